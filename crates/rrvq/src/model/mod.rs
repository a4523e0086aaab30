//! The RRVQ-VAE, drawn into a graph.
//!
//! - [`backbone`]: weight-normalised convolutions and residual blocks.
//! - [`ladder`]: the small networks between backbone and embedding space.
//! - `layer`: a layer of latents, of each kind.
//! - [`mlp`]: the same without maps.
//! - [`vimco`]: the bound on several samples, and its gradient.
//! - [`hierarchy`]: up pass, down pass and ELBO; the posterior's and the prior's use of it side by side.
//! - `steps`: the pieces of a layer's step, which the codec draws one by one.
//!
//! Every function here draws; nothing computes. The same drawing serves training, evaluation, sampling,
//! reconstruction and the data-dependent initialisation, which differ in what they ask of it.

pub mod backbone;
pub mod hierarchy;
pub mod ladder;
mod layer;
pub mod mlp;
mod steps;
pub mod vimco;

pub use backbone::Pen;
pub use hierarchy::{Elbo, Hierarchy};
pub(crate) use steps::layer_of;
