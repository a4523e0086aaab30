//! Training.

pub mod log;
pub mod schedule;
pub mod tensorboard;
