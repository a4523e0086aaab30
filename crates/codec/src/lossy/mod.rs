//! Compression with loss: the codes of the hierarchy, and nothing else.
//!
//! Where the lossless mode stores the pixels and gets the codes for nothing, this one stores the codes, each at the price
//! the prior gives it, and shows the mean of the likelihood. The upper layers say what is in the picture and cost little,
//! the lower ones are its grain: layers left out at the bottom, or lost with the end of a file, are filled in by
//! what the prior thinks likeliest.
//!
//! - [`layout`]: which code lies where; the most important first.
//! - `walk`: codes on stacks and off again, layer by layer.
//! - `context`: codes predicted from neighbouring ones, on top of the prior.
//! - `search`, `refine`: better codes than the posterior's likeliest.
//! - [`file`]: the container, in few bytes.
//! - `choose`: which codes are written.
//! - `show`: codes to pictures.
//! - [`write`], [`read`]: images to files, and files, whole or cut off, to images.

mod choose;
mod context;
pub mod file;
pub mod layout;
pub mod read;
mod refine;
mod search;
mod show;
mod walk;
pub mod write;

pub use read::{Outcome, Reader};
pub use write::{Part, Summary, Writer};

use super::identity::Identity;
use super::image::Image;
use super::workers::Workers;
use rrvq::config::ModelConfig;
use rrvq::error::{Error, Result};
use rrvq::limits;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keep {
    /// All but the lowest so many layers.
    Drop(usize),
    /// As many layers as fit a budget of so many bits a pixel; blocks and their checksums count, transparency does not.
    Bits(f64),
}

/// How large tiles are. Kernels do not mind: the same model can look at larger squares than it was trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tiles {
    /// For models of parts of pictures ([`Workers::of_parts`]), the largest that suits a picture, from a quarter to four times
    /// the side of their own images; for others, their own.
    #[default]
    Suiting,
    /// Of this side.
    Side(usize),
}

impl Tiles {
    /// Whether a model can take them.
    pub fn check(self, config: &ModelConfig) -> Result<()> {
        let Tiles::Side(side) = self else {
            return Ok(());
        };
        if layout::positions(config, side).is_some() {
            return Ok(());
        }
        let known: Vec<String> = layout::sides(config).map(|side| side.to_string()).collect();
        Err(Error::new(format!(
            "tiles of side {side} do not fit the model, whose images have side {}; choose one of {}",
            config.size,
            known.join(", ")
        )))
    }

    /// The side for an image.
    fn side(self, workers: &Workers, image: &Image) -> usize {
        let config = &workers.model().config;
        match self {
            Tiles::Side(side) => side,
            Tiles::Suiting if workers.of_parts => {
                layout::fitting(config, image.width, image.height)
            }
            Tiles::Suiting => config.size,
        }
    }
}

/// What is wanted of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    pub keep: Keep,
    pub tiles: Tiles,
    /// Look for codes that are worth their bits, instead of the posterior's likeliest. Many times slower to write.
    pub search: bool,
    /// What a bit is worth in squared error, for the search; without it, what it is worth at the image's own quality.
    pub bit_worth: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            keep: Keep::Drop(0),
            tiles: Tiles::Suiting,
            search: false,
            bit_worth: None,
        }
    }
}

/// A file in memory.
pub struct Encoded {
    pub bytes: Vec<u8>,
    /// Bytes of it that are neither codes nor transparency.
    pub header: usize,
    /// One for each image.
    pub parts: Vec<Part>,
}

/// Images to the bytes of one file. Many small ones at once are much quicker than one by one.
pub fn encode(
    workers: &mut Workers,
    identity: Identity,
    images: &[Image],
    options: &Options,
) -> Result<Encoded> {
    let (mut bytes, mut parts) = (Vec::new(), Vec::new());
    let mut writer = Writer {
        workers,
        identity,
        options: *options,
        watch: &|_| {},
    };
    let given = images.iter().cloned().map(Ok);
    writer.write(given, images.len(), &mut bytes, &mut |part| {
        parts.push(part)
    })?;
    let content: usize = parts.iter().map(|part| part.codes + part.alpha).sum();
    Ok(Encoded {
        header: bytes.len() - content,
        bytes,
        parts,
    })
}

/// The images of a whole file; a cut or damaged one is refused. [`Reader`] shows what is left of those.
pub fn decode(workers: &mut Workers, identity: Identity, file: &[u8]) -> Result<Vec<Image>> {
    let mut reader = Reader::new(file)?;
    if !reader.header.fits(identity) {
        return Err(Error::new(format!(
            "it was compressed with the model {}, and this one is {identity}; give the one it names",
            reader.header.model()
        )));
    }
    // All pictures are held together, so all of them count before the first is shown.
    let pixels = Reader::new(file)?.records()?;
    let pixels = pixels
        .iter()
        .map(|(record, _)| record.width * record.height);
    limits::check_pixels_in_all(pixels.fold(0, usize::saturating_add)).map_err(Error::new)?;
    let mut images = Vec::new();
    while let Some(outcomes) = reader.segment(workers, &|_| {})? {
        for outcome in outcomes {
            match outcome.missing() {
                None => images.push(outcome.image?),
                Some(what) => {
                    let name = outcome.name.display();
                    return Err(Error::new(format!("{name}: {what}")));
                }
            }
        }
    }
    reader.end()?;
    Ok(images)
}

/// Whether a file that begins so was written with loss.
pub fn is_lossy(first_bytes: &[u8]) -> bool {
    file::form_of(first_bytes).is_some()
}
