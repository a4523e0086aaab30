//! Reports, comparisons and studies of trained models.
//!
//! - [`report`]: charts and pages, self-contained HTML.
//! - [`report::runs`]: runs on one page.
//! - [`compare`]: our codec beside others.
//! - [`demo`]: two models of colour swatches, trained and shown in a minute.
//! - [`neighbours`]: the nearest training images of samples.
//! - [`quality`]: how good samples are, on features learnt from the data.
//! - [`studies`]: the paper's tables, figures and theorems, measured, on one page; [`framework`] is what they share.

pub mod compare;
pub mod demo;
mod fit;
pub mod framework;
pub mod neighbours;
pub mod quality;
pub mod report;
pub mod studies;

pub use rrvq::{Error, Result};
