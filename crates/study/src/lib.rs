//! Reports, comparisons and studies of trained models.
//!
//! - [`report`]: charts and pages, self-contained HTML.
//! - [`overview`]: the runs of a project on one page.
//! - [`compare`]: our codec beside others.
//! - [`demo`]: two models of colour swatches, trained and shown in a minute.

pub mod compare;
pub mod demo;
pub mod overview;
pub mod report;

pub use rrvq::{Error, Result};
