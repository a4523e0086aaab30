//! Diagonal Gaussians in place of codes: the Spatial-VAE, the paper's continuous twin of the same hierarchy.

use super::{Drawn as Layer, Latent, LayerInputs, Weight};
use crate::config::ModelConfig;
use rrvq_tensor::rng::Distribution;
use rrvq_tensor::{Graph, Var};

/// A Gaussian for each row; both are [rows, d].
#[derive(Clone, Copy)]
pub struct Gaussian<'g> {
    /// Means.
    pub mean: Var<'g>,
    /// Logarithms of the variances.
    pub log_variance: Var<'g>,
}

/// A sample of the posterior.
#[derive(Clone, Copy)]
pub struct Drawn<'g> {
    /// [rows, d].
    pub z: Var<'g>,
    /// KL(q ‖ p) of each row in nats, [rows, 1].
    pub kl: Var<'g>,
    /// log p and log q of the sample, [rows, 1] each.
    pub log_p: Var<'g>,
    /// log q of the sample, [rows, 1].
    pub log_q: Var<'g>,
}

impl<'g> Gaussian<'g> {
    /// From what a strap gives, [rows, 2d]: means, then log-variances.
    pub fn from_rows(rows: Var<'g>) -> Self {
        let d = rows.dim(1) / 2;
        Gaussian {
            mean: rows.slice(1, 0, d),
            log_variance: rows.slice(1, d, d),
        }
    }

    /// Mean 0, variance 1, [rows, d].
    pub fn standard(graph: &'g Graph, rows: usize, d: usize) -> Self {
        let zero = graph.full(0.0, &[rows, d]);
        Gaussian {
            mean: zero,
            log_variance: zero,
        }
    }

    /// mean + σ ε, the noise taken `noise_scale` times: 1 samples, 0 takes the mode.
    pub fn sample(&self, noise_scale: Var<'g>, stream: u32) -> Var<'g> {
        let g = self.mean.graph();
        let noise = g.noise_stream(Distribution::Normal, &self.mean.shape(), stream);
        self.mean + (self.log_variance * 0.5).exp() * noise * noise_scale
    }

    /// KL(self ‖ other) of each row, [rows, 1]: ½ Σ [(σ² + (μ − μ')²) / σ'² − 1 + ln σ'² − ln σ²].
    pub fn divergence(&self, other: Gaussian<'g>) -> Var<'g> {
        let ratio = (self.log_variance - other.log_variance).exp();
        let apart = (self.mean - other.mean).square() * (-other.log_variance).exp();
        let each = ratio + apart - 1.0 + other.log_variance - self.log_variance;
        each.sum_last() * 0.5
    }

    /// log density of `z` in each row, [rows, 1].
    pub fn log_density(&self, z: Var<'g>) -> Var<'g> {
        let apart = (z - self.mean).square() * (-self.log_variance).exp();
        let constant = (2.0 * std::f64::consts::PI).ln() as f32;
        (apart + self.log_variance + constant).sum_last() * -0.5
    }

    /// Samples this posterior against `prior`.
    pub fn draw(&self, prior: Gaussian<'g>, noise_scale: Var<'g>, stream: u32) -> Drawn<'g> {
        let z = self.sample(noise_scale, stream);
        Drawn {
            z,
            kl: self.divergence(prior),
            log_p: prior.log_density(z),
            log_q: self.log_density(z),
        }
    }
}

/// `model.latent = "gaussian"`: the Spatial-VAE.
pub struct Kind;

impl Latent for Kind {
    fn name(&self) -> &'static str {
        "gaussian"
    }

    fn about(&self) -> &'static str {
        "a diagonal Gaussian (Spatial-VAE)"
    }

    fn describe(&self, _config: &ModelConfig, layers: &str) -> String {
        format!("Gaussians in {layers}")
    }

    fn bits(&self, _config: &ModelConfig, _layer: usize) -> Option<f64> {
        None
    }

    /// Gaussians start near the standard one: with outputs of variance 1 their first KL is enormous.
    fn first_gain(&self) -> f32 {
        0.1
    }

    fn draw<'g>(&self, at: &LayerInputs<'_, 'g>) -> Layer<'g> {
        let d = at.config().embed;
        let (scale, stream) = (at.sampling.noise_scale, at.sampling.stream);
        let p = match at.prior(2 * d) {
            Some(rows) => Gaussian::from_rows(rows),
            None => Gaussian::standard(at.builder.graph, at.rows(), d),
        };
        let Some(rows) = at.posterior(2 * d) else {
            return Layer::generated(p.sample(scale, stream), None);
        };
        let Drawn {
            z,
            kl,
            log_p,
            log_q,
        } = Gaussian::from_rows(rows).draw(p, scale, stream);
        Layer {
            weight: at.mode.weighs().then_some(Weight { log_p, log_q }),
            ..Layer::new(z, kl)
        }
    }
}
