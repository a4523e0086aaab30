//! RRVQ.

pub mod config;
pub mod data;
pub mod error;
pub mod picture;
pub mod report;
pub mod run;
pub mod train;

pub use error::{Error, Result};
