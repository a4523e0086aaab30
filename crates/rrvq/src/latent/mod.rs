//! Latents: how an embedding becomes a distribution over codes, a sample and a KL. One file a kind.

pub mod responsibility;
