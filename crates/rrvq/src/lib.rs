//! Relaxed-responsibility hierarchical discrete VAEs: the model, its training, its pictures.

pub mod config;
pub mod data;
pub mod error;
pub mod latent;
pub mod likelihood;
pub mod model;
pub mod picture;
pub mod report;
pub mod run;
pub mod train;

pub use error::{Error, Result};
