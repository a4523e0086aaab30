//! Relaxed-responsibility hierarchical discrete VAEs: hierarchies of up to 32 layers of discrete latents, trained end to
//! end; the model, its training, evaluation, codes and pictures. CPU results are the same bits on every machine; with the
//! feature `cuda`, the same programs run on NVIDIA GPUs.
//!
//! # Train, encode, decode
//!
//! Anything that hands out bytes of images is a [`Dataset`]; a [`Trainer`] trains a [`Config`] on it and gives a
//! [`Trained`] model.
//!
//! ```
//! use rrvq::dataset::Swatches;
//! use rrvq::{Config, Device, Event, SampleOptions, Trained, Trainer};
//!
//! # fn main() -> rrvq::Result<()> {
//! let mut config = Config::preset("tiny-swatches")?;
//! config.set("train.steps=20")?;
//! let data = Swatches::for_config(&config);
//! let mut trainer = Trainer::new(&config, &data, Device::Cpu)?;
//! while let Some(event) = trainer.step()? {
//!     if let Event::Evaluated(record) = event {
//!         println!("step {}: {:.3} bits/dim", record.step, record.bits_per_dim);
//!     }
//! }
//! let model: Trained = trainer.finish()?;
//!
//! let images = model.sample(2, SampleOptions::default())?;
//! let codes = model.encode(&images)?; // an integer map a layer
//! assert_eq!(codes.layers.len(), config.model.layers());
//! let back = model.decode(&codes)?;
//! assert_eq!(back.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! [`Trained::open`] takes a run folder, a packed file or the name of a built-in model.
//!
//! # Where what is
//!
//! | module | what |
//! |---|---|
//! | [`latent`] | a layer's prior, posterior, sample and KL; one file a kind. The paper's own is [`latent::responsibility`] |
//! | [`likelihood`] | distributions of pixels |
//! | [`model`] | up pass, down pass, ELBO |
//! | [`nn`] | the networks between them |
//! | [`train`], [`evaluate`], [`prior`] | the training loop, bits per dim, priors over codes |
//! | [`config`], [`run`], [`mod@codes`] | settings and presets, the folder of a run, integer maps as files |
//! | [`interrupt`] | ending a long computation from another thread |
//! | [`programs`], [`streams`], [`weights`] | what is compiled for a device, noise, parameters: for those who write a loop of their own |
//!
//! Data sets are read by `rrvq-data`, files written by `rrvq-codec`, reports made by `rrvq-study`.

#![warn(missing_docs)]

pub mod bench;
pub mod between;
pub mod cluster;
pub mod codes;
pub mod config;
pub mod dataset;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod fingerprint;
pub mod image_file;
pub mod interrupt;
pub mod latent;
pub mod likelihood;
pub mod limits;
pub mod model;
pub mod models;
pub mod nn;
pub mod picture;
pub mod prior;
pub mod programs;
pub mod resize;
pub mod run;
pub mod sample;
pub mod streams;
pub mod train;
pub mod trained;
mod validate;
pub mod weights;
pub mod whole;

pub use codes::{CodeMap, Codes};
pub use config::Config;
pub use dataset::{Dataset, Split};
pub use error::{Error, Remedy, Result};
pub use likelihood::PixelValues;
pub use rrvq_tensor::{Collective, Device, Group, cache_dir, device, simd};
pub use train::{Event, TrainOptions, Trainer};
pub use trained::{SampleOptions, Trained};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
