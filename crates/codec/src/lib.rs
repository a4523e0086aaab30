//! The codec: images to files and back, lossless, or lossy at a small fraction of their size.
//!
//! A model that gives pixels probabilities is a compressor: a byte of probability p takes −log₂ p bits. Latents would have
//! to be stored as well; *bits back* gets most of their price back, and an image costs its negative ELBO.
//!
//! - [`stack`]: symbols on a stack of bits, each at the price of its probability.
//! - `codes`, `pixels`: tables of integers from the networks' numbers, the same on every machine.
//! - [`neighbours`]: what a pixel learns from those before it, which the networks do not say.
//! - [`networks`]: the model as one small program for each layer.
//! - [`chunk`]: tiles on one stack, by bits back, batch by batch.
//! - [`plane`]: a predictive coder for transparency, and for images it is better at.
//! - [`tiles`], [`image`], [`metadata`], [`png`]: images cut into squares; samples, colour profile and what else a file
//!   says of them; files of them.
//! - [`container`], `blocks`, [`record`], [`write`], [`read`], [`large`]: the file. FORMAT.md beside them says all that a second decoder
//!   needs.
//! - [`identity`]: which model a file belongs to.
//! - [`lossy`]: the codes alone; the picture is what the model makes of them.
//! - [`model`]: a trained model as the codec sees it.
//! - [`prune`]: a model without the codes that nobody uses.
//! - [`workers`]: chunks side by side.

pub mod bench;
mod blocks;
pub mod chunk;
mod codes;
pub mod container;
pub mod identity;
pub mod image;
pub mod large;
pub mod lossy;
mod memory;
pub mod metadata;
pub mod model;
pub mod neighbours;
pub mod networks;
mod pixels;
pub mod plane;
pub mod png;
pub mod prune;
pub mod read;
pub mod record;
pub mod stack;
pub mod tiles;
pub mod workers;
pub mod write;

pub use identity::Identity;
pub use image::Image;
pub use memory::{compress, compress_lossy, decompress, decompress_with};
pub use model::{CodingModel, built_in_name, built_in_of};
pub use read::Reader;
pub use workers::Workers;
pub use write::{Coding, Summary, Writer};
