//! Trained models that [`rrvq`](https://docs.rs/rrvq) has beside those in its own package, as the bytes of packed files.
//!
//! They are a package of their own because registries limit how large one may be.

/// A packed model and its card.
#[derive(Clone, Copy)]
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

/// Photographs, for lossy files: low, medium and high quality.
pub const PHOTOS: [Packed; 3] = [
    Packed {
        bytes: include_bytes!("../photos-low.safetensors"),
        card: PHOTOS_CARD,
    },
    Packed {
        bytes: include_bytes!("../photos-medium.safetensors"),
        card: PHOTOS_CARD,
    },
    Packed {
        bytes: include_bytes!("../photos-high.safetensors"),
        card: PHOTOS_CARD,
    },
];

const PHOTOS_CARD: &str = include_str!("../photos.md");
