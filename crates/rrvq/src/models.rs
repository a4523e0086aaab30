//! Models that are built in.
//!
//! Files of the codec name the model they were written with, so a model that is here stays here: a better one gets a
//! name of its own. `models/*.md`, here and in `rrvq-models`, say what they are and how they were made.

/// A trained model inside the program.
pub struct BuiltIn {
    /// What it is called where a run or a file could be named.
    pub name: &'static str,
    /// One line on what it is.
    pub about: &'static str,
    /// The packed file.
    pub bytes: &'static [u8],
    /// Its model card, in Markdown.
    pub card: &'static str,
}

#[cfg(feature = "models")]
impl BuiltIn {
    /// One of another package.
    const fn of(name: &'static str, about: &'static str, packed: rrvq_models::Packed) -> BuiltIn {
        BuiltIn {
            name,
            about,
            bytes: packed.bytes,
            card: packed.card,
        }
    }
}

/// The model that lossless files are written with by default.
pub const DEFAULT: &str = "tiles-2";

/// The models that lossy files are written with, by quality: low, medium, high.
pub const LOSSY: [&str; 3] = ["photos-low", "photos-medium", "photos-high"];

/// Another name of [`DEFAULT`].
const ALIAS: &str = "built-in";

/// Every built-in model.
pub static BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "tiles-2",
        about: "32×32 tiles of natural images, nine layers of 48 channels: the codec's own",
        bytes: include_bytes!("../models/tiles-2.safetensors"),
        card: include_str!("../models/tiles.md"),
    },
    #[cfg(feature = "models")]
    BuiltIn::of(
        LOSSY[0],
        "photographs of any size, four layers of 48 channels: lossy files, the smallest",
        rrvq_models::PHOTOS[0],
    ),
    #[cfg(feature = "models")]
    BuiltIn::of(
        LOSSY[1],
        "the same for lossy files of medium quality: what `rrvq compress --lossy` writes with",
        rrvq_models::PHOTOS[1],
    ),
    #[cfg(feature = "models")]
    BuiltIn::of(
        LOSSY[2],
        "the same for lossy files of high quality",
        rrvq_models::PHOTOS[2],
    ),
    BuiltIn {
        name: "tiles",
        about: "32×32 tiles of natural images, six layers of 32 channels: what the first files were written with",
        bytes: include_bytes!("../models/tiles.safetensors"),
        card: include_str!("../models/tiles.md"),
    },
    BuiltIn {
        name: "cifar10",
        about: "CIFAR-10, 32×32, 16 layers of 64 channels: samples, codes, reconstructions",
        bytes: include_bytes!("../models/cifar10.safetensors"),
        card: include_str!("../models/cifar10.md"),
    },
    #[cfg(feature = "models")]
    BuiltIn::of(
        "celeba",
        "CelebA, 64×64, 16 layers of 64 channels: samples, codes, reconstructions of faces",
        rrvq_models::CELEBA,
    ),
];

/// The built-in model called `name`.
pub fn find(name: &str) -> Option<&'static BuiltIn> {
    let name = if name == ALIAS { DEFAULT } else { name };
    BUILT_IN.iter().find(|model| model.name == name)
}
