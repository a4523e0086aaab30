//! Latents: how features become a distribution, a sample and a KL. One file a kind.

pub mod bernoulli;
pub mod gaussian;
pub mod nearest;
pub mod responsibility;
