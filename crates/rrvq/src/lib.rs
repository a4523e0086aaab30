//! Relaxed-responsibility hierarchical discrete VAEs: the model, its training, its pictures.

pub mod bench;
pub mod codes;
pub mod config;
pub mod dataset;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod latent;
pub mod likelihood;
pub mod model;
pub mod models;
pub mod nn;
pub mod picture;
pub mod prior;
pub mod programs;
pub mod run;
pub mod sample;
pub mod streams;
pub mod train;
pub mod trained;
mod validate;
pub mod weights;

pub use codes::{CodeMap, Codes};
pub use config::Config;
pub use dataset::{Dataset, Split};
pub use error::{Error, Result};
pub use rrvq_tensor::{Device, device};
pub use train::{Event, TrainOptions, Trainer};
pub use trained::{SampleOptions, Trained};
