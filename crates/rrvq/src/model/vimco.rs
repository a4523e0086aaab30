//! VIMCO (Mnih and Rezende 2016): a bound on several samples of an image, and a gradient that needs no relaxation.
//!
//! With log weights ℓ_k = log p(x, z_k) − log q(z_k | x) of K samples, the bound is L = log (1/K) Σ exp ℓ_k. Its gradient has
//! two parts: Σ w_k ∇ℓ_k with w the softmax of the ℓ, as everywhere, and Σ (L − L_k) ∇ log q(z_k | x), which credits each
//! sample with what it added. L_k is the bound with sample k replaced by a stand-in made of the others: the geometric mean of
//! their weights, that is, the mean of their ℓ. It does not depend on sample k, so that the gradient stays unbiased, and it is
//! close to what the sample adds on average, so that the variance stays small.
//!
//! Nothing flows through a sample, so codes and bits are hard in training too. The K samples of an image are a batch K
//! times as large; the up pass, which samples nothing, is made once for all.

use super::hierarchy::{Elbo, Hierarchy, nats_per_dim};
use rrvq_tensor::Var;

/// The K-sample bound of each image.
pub struct MultiSample<'g> {
    /// Nats of each image, [n, 1].
    pub bound: Var<'g>,
    /// Its gradient is VIMCO's estimate of the bound's; its value has no meaning. Nats summed over images, a scalar.
    surrogate: Var<'g>,
}

impl<'g> MultiSample<'g> {
    /// From log weights and log q of samples, [K · n, 1] each, all first samples before all second ones.
    pub fn new(log_weight: Var<'g>, log_q: Var<'g>, particles: usize) -> Self {
        let n = log_weight.dim(0) / particles;
        let (k, g) = (particles as f32, log_weight.graph());
        // One row an image, one column a sample.
        let rows = |v: Var<'g>| v.reshape(&[particles, n]).transpose();
        let (l, log_q) = (rows(log_weight), rows(log_q));
        let fixed = l.detach();
        let bound = log_sum_exp(fixed) - k.ln();
        let others = (fixed.sum_last() - fixed) * (1.0 / (k - 1.0));
        // For each sample a row of all, with the stand-in in its own place: [n, K, K].
        let place = |i: usize| g.full(1.0, &[1, 1]).pad(1, i, particles - 1 - i);
        let own: Vec<Var<'g>> = (0..particles).map(place).collect();
        let own = g.concat(&own, 0).reshape(&[1, particles, particles]);
        let without = own.select(
            others.reshape(&[n, particles, 1]),
            fixed.reshape(&[n, 1, particles]),
        );
        let credit = bound - (log_sum_exp(without) - k.ln()).reshape(&[n, particles]);
        let weights = fixed.softmax();
        MultiSample {
            bound,
            surrogate: (weights.detach() * l + credit.detach() * log_q).sum(),
        }
    }

    /// What training lowers: the bound in bits a dimension, with VIMCO's gradient.
    pub fn loss(&self, nats_per_dim: f64) -> Var<'g> {
        let per_dim = -1.0 / (self.bound.dim(0) as f64 * nats_per_dim);
        let gradient = self.surrogate - self.surrogate.detach();
        (self.bound.sum() + gradient) * per_dim as f32
    }
}

impl<'g> Hierarchy<'g> {
    /// The pieces of the ELBO of every sample, and the loss of the multi-sample bound; the hierarchy is one with particles.
    pub fn vimco(&self) -> (Elbo<'g>, Var<'g>) {
        let elbo = self.scored_elbo();
        let (weight, log_q) = elbo.log_weight.zip(elbo.log_q).expect("scored");
        let loss = MultiSample::new(weight, log_q, self.particles())
            .loss(nats_per_dim(self.builder.config));
        (elbo, loss)
    }
}

/// log Σ exp over the last axis, which stays with size one.
fn log_sum_exp(x: Var<'_>) -> Var<'_> {
    let largest = x.max_last();
    (x - largest).exp().sum_last().log() + largest
}
