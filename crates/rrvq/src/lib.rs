//! Relaxed-responsibility hierarchical discrete VAEs: the model, its training, its pictures.

pub mod bench;
pub mod config;
pub mod dataset;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod latent;
pub mod likelihood;
pub mod model;
pub mod nn;
pub mod picture;
pub mod prior;
pub mod programs;
pub mod run;
pub mod sample;
pub mod streams;
pub mod train;
mod validate;

pub use error::{Error, Result};
pub use rrvq_tensor::device;
