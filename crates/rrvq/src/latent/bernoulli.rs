//! Bits with the Fourier straight-through estimator (FouST): binary latents, d of them a position.
//!
//! A bit is x = ±1 with logit a: q(x = 1) = σ(a), its mean m = tanh(a / 2). Write f for what the bit costs the model
//! below it, with all other bits held. On two points every f is a line, E f = f̂(∅) + f̂(1) · m, and its slope is the
//! first-order Fourier coefficient f̂(1) = ½ (f(1) − f(−1)). A network has no Fourier coefficients at hand, but it has
//! derivatives, and the slope is their mean over the segment between the two points: f̂(1) = ½ ∫ f'(t) dt from −1 to 1.
//! The straight-through estimator takes f' at one point of it. Which point, and with which weight, is all there is to
//! choose; with f = Σ c_k t^k the slope is Σ c_k over odd k, and plain straight-through finds k c_k for odd k and k c_k m for even k. What is done here, after Pervez, Cohen and Gavves (ICML 2020), derived anew from the line above:
//!
//! - **Weights.** f' at the sample counts 1 / (2 q(x)) times, as if both values had been drawn alike often. The mean is
//!   then ½ (f'(1) + f'(−1)): the trapezoid rule, from which all even k drop out. Weights by themselves have no bound,
//!   but m moves with the logit by 2 q (1 − q), and the product, 1 − q(x), is at most 1. So the gradient is drawn for the
//!   logit at once: (1 − q(x)) · f'.
//! - **Noise.** For a uniform bit and u uniform in [−1, 1], (x + u) / 2 is uniform in [−1, 1]: a bit is the first digit of
//!   a uniform number. So training takes f' at a point between 0 and x, at random, and the mean of the weighted f' is
//!   the integral itself: no bias from any k. The price is paid across bits: every bit stands nearer to 0 then,
//!   a product x_i x_j looks smaller than it is, and the decoder learns from bits it will not meet later. `bit_noise` is how
//!   much of the way noise may go; with 0, the default, the points are the samples themselves, products are exact, and
//!   k = 3 counts threefold (`crates/rrvq/tests/bits.rs` holds all of this to enumeration). Deep networks are mostly
//!   products: in short runs the price outweighed the gain (docs/experiments/foust-noise.md).
//! - **Scale.** A third remedy of the paper shrinks the input, so that c_k falls as γ^k. Here the first layer below a bit
//!   is weight-normalised on the first batch and would undo any γ, so there is none.
//!
//! Evaluation, sampling and reconstruction see hard bits, without noise. KL and log probabilities are exact sums.

use super::{DrawMode, Drawn, Latent, LayerInputs, Weight};
use crate::config::ModelConfig;
use crate::streams;
use rrvq_tensor::rng::Distribution;
use rrvq_tensor::{Graph, Var};

/// Independent bits of each row, by their logits: [rows, d].
#[derive(Clone, Copy)]
pub struct Bernoulli<'g> {
    /// log q(1) − log q(0) of each bit.
    pub logits: Var<'g>,
}

/// A sample of the posterior.
#[derive(Clone, Copy)]
pub struct Bits<'g> {
    /// ±1, without a gradient, [rows, d].
    pub hard: Var<'g>,
    /// What the layers below see: the same, moved by noise where there is some, with the estimator's gradient.
    pub z: Var<'g>,
}

impl<'g> Bernoulli<'g> {
    /// All bits even, [rows, d].
    pub fn even(graph: &'g Graph, rows: usize, d: usize) -> Self {
        Bernoulli {
            logits: graph.full(0.0, &[rows, d]),
        }
    }

    /// ±1 of each bit; `noise_scale` 1 samples, 0 takes the likelier value.
    pub fn hard(&self, noise_scale: Var<'g>, stream: u32) -> Var<'g> {
        let (g, shape) = (self.logits.graph(), self.logits.shape());
        let u = g.noise_stream(Distribution::Uniform, &shape, stream);
        let logistic = u.log() - (1.0 - u).log();
        let one = (self.logits + logistic * noise_scale).greater(g.scalar(0.0));
        (one * 2.0 - 1.0).detach()
    }

    /// A sample with the estimator's gradient; `noise` is how much of the way to 0 a bit may be moved.
    pub fn sample(&self, noise: f32, noise_scale: Var<'g>, stream: u32) -> Bits<'g> {
        let (g, a) = (self.logits.graph(), self.logits);
        let hard = self.hard(noise_scale, stream);
        let point = match noise > 0.0 {
            true => {
                let u = g.noise_stream(
                    Distribution::Uniform,
                    &a.shape(),
                    streams::bit_noise(stream),
                );
                hard * (1.0 - u * noise)
            }
            false => hard,
        };
        // 1 − q(x), the probability of the value that was not drawn.
        let weight = (-(hard * a)).sigmoid().detach();
        Bits {
            hard,
            z: point.detach() + (a - a.detach()) * weight,
        }
    }

    /// KL(self ‖ other) of each row, [rows, 1]: σ(a) (a − b) − softplus(a) + softplus(b) for each bit.
    pub fn divergence(&self, other: Bernoulli<'g>) -> Var<'g> {
        let (a, b) = (self.logits, other.logits);
        (a.sigmoid() * (a - b) - a.softplus() + b.softplus()).sum_last()
    }

    /// log probability of bits ±1 in each row, [rows, 1].
    pub fn log_mass(&self, hard: Var<'g>) -> Var<'g> {
        -(-(hard * self.logits)).softplus().sum_last()
    }
}

/// `model.latent = "bernoulli"`: d_e bits a position.
pub struct Kind;

impl Latent for Kind {
    fn name(&self) -> &'static str {
        "bernoulli"
    }

    fn about(&self) -> &'static str {
        "bits (FouST)"
    }

    fn describe(&self, _config: &ModelConfig, layers: &str) -> String {
        format!("bits in {layers}")
    }

    fn bits(&self, config: &ModelConfig, _layer: usize) -> Option<f64> {
        Some(config.embed as f64)
    }

    fn has_scores(&self) -> bool {
        true
    }

    fn draw<'g>(&self, at: &LayerInputs<'_, 'g>) -> Drawn<'g> {
        let (config, d) = (at.config(), at.config().embed);
        let (scale, stream) = (at.sampling.noise_scale, at.sampling.stream);
        let p = match at.prior(d) {
            Some(logits) => Bernoulli { logits },
            None => Bernoulli::even(at.builder.graph, at.rows(), d),
        };
        let Some(logits) = at.posterior(d) else {
            return Drawn::generated(p.hard(scale, stream), None);
        };
        let q = Bernoulli { logits };
        let training = at.mode == DrawMode::Train;
        let noise = if training {
            config.bit_noise as f32
        } else {
            0.0
        };
        let bits = q.sample(noise, scale, stream);
        let z = if training { bits.z } else { bits.hard };
        Drawn {
            weight: at.mode.weighs().then(|| Weight {
                log_p: p.log_mass(bits.hard),
                log_q: q.log_mass(bits.hard),
            }),
            ..Drawn::new(z, q.divergence(p))
        }
    }
}
