//! Trained models that [`rrvq`](https://docs.rs/rrvq) has beside those in its own package, as the bytes of packed files.
//!
//! They are a package of their own because registries limit how large one may be.

/// A packed model and its card.
pub struct Packed {
    /// The bytes of the file.
    pub bytes: &'static [u8],
    /// What it is and how it was made, in Markdown.
    pub card: &'static str,
}

/// Faces of 64×64, 16 layers of 64 channels.
pub const CELEBA: Packed = Packed {
    bytes: include_bytes!("../celeba.safetensors"),
    card: include_str!("../celeba.md"),
};
