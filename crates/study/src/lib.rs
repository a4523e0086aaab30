//! Reports, comparisons and studies of trained models.
//!
//! - [`report`]: charts and pages, self-contained HTML.
//! - [`report::runs`]: runs on one page.
//! - [`compare`]: our codec beside others.
//! - [`demo`]: two models of colour swatches, trained and shown in a minute.

pub mod compare;
pub mod demo;
pub mod report;

pub use rrvq::{Error, Result};
