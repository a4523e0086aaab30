//! The hierarchical VAE, drawn into a graph.
//!
//! - [`hierarchy`]: up pass, down pass and ELBO. A layer of the down pass is `draw` of its kind of latent
//!   ([`crate::latent`]), where q, p, z and KL stand side by side.
//! - `steps`: the pieces of the down pass one by one, for the codec.
//! - [`vimco`]: the bound on several samples, and its gradient.
//!
//! Every function here draws; nothing computes. The same drawing serves training, evaluation, sampling,
//! reconstruction and the data-dependent initialisation, which differ in what they ask of it.

pub mod hierarchy;
mod steps;
pub mod vimco;

pub use hierarchy::{Elbo, Hierarchy};
