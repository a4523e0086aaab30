//! A mixture of discretised logistics over the channels of a pixel, as PixelCNN++ defines it: a pixel chooses one of
//! m components, and within a component green's mean moves with the value of red, blue's with those of red and green.
//! A single logistic cannot say "this or that colour"; a mixture can, and the shifts say "and the channels go together".
//!
//! Bytes span [−1, 1] here, in bins of 1/128. The decoder gives for each pixel, m numbers a slot: a weight's logit;
//! a mean for each channel; a log scale for each channel; three coefficients. Grey pixels have no coefficients.
//!
//! Everything is the log of something positive from start to end: a bin's mass as in [`super::logistic`], the sum over
//! components by its largest term. No term of it is clipped, so every component always has a gradient to come back by.
//!
//! Work is done on rows of m numbers, one row for each pixel, read straight from the decoder's output: on every device
//! that is one fused kernel forward, and nothing wider than the decoder's output is kept.

use super::logistic::log_mass;
use super::{Bins, Likelihood, Pixels};
use crate::config::ModelConfig;
use crate::nn::Builder;
use rrvq_tensor::{Init, Var};

/// Width of a bin.
pub const BIN: f32 = 1.0 / 128.0;
/// No scale goes below e^−7, about a ninth of a bin: a narrower one gains nothing and steepens every slope.
const LEAST_LOG_SCALE: f64 = -7.0;
/// The components' means start evenly spread between plus and minus this.
const SPREAD: f32 = 0.9;

/// The decoder's output read as a mixture.
pub struct Mixture<'g> {
    /// [n · h · w, slots · m], or wider where a likelihood adds numbers of its own behind these.
    pub(super) raw: Var<'g>,
    /// Where the components' means lie around, [m].
    centres: Var<'g>,
    /// Added to raw log scales.
    log_scale: f32,
    /// Of the picture: n, h, w, channels.
    pub(super) shape: [usize; 4],
    pub(super) components: usize,
}

/// Numbers a component has for each pixel.
pub(super) fn slots(image_channels: usize) -> usize {
    1 + 2 * image_channels + image_channels * (image_channels - 1) / 2
}

impl<'g> Mixture<'g> {
    /// Reads a mixture from the first channels of `raw`, which may have more.
    pub(super) fn draw(builder: &Builder<'g>, raw: Var<'g>) -> Self {
        let (g, config) = (builder.graph, builder.config);
        let components = config.mixtures;
        let centres = g.param("likelihood.centres", &[components], Init::Constant(0.0));
        // Components that start alike would stay alike; the middle of m equal parts of the range is each one's own.
        let part = |k: usize| SPREAD * ((2 * k + 1) as f32 / components as f32 - 1.0);
        let parts: Vec<Var<'g>> = (0..components).map(|k| g.full(part(k), &[1])).collect();
        builder.start_at("likelihood.centres", g.concat(&parts, 0));
        let shape = [raw.dim(0), raw.dim(1), raw.dim(2), config.image_channels];
        let rows = shape[..3].iter().product();
        Mixture {
            raw: raw.reshape(&[rows, raw.dim(3)]),
            centres,
            // The inverse of the softplus that bounds the scales, so that zero outputs give the configured start.
            log_scale: (config.mixture_log_scale - LEAST_LOG_SCALE).exp_m1().ln() as f32,
            shape,
            components,
        }
    }

    /// One number for each pixel and component, [n · h · w, m].
    fn slot(&self, slot: usize) -> Var<'g> {
        let (m, c) = (self.components, self.shape[3]);
        // Slots of a kind are cut out together: a slope is then put back into the whole output once a kind.
        let kinds = [0, 1, 1 + c, 1 + 2 * c, slots(c)];
        let kind = kinds.iter().rposition(|&first| first <= slot).unwrap_or(0);
        let (first, next) = (kinds[kind], kinds[kind + 1]);
        self.raw
            .slice(1, first * m, (next - first) * m)
            .slice(1, (slot - first) * m, m)
    }

    pub(super) fn logits(&self) -> Var<'g> {
        self.slot(0)
    }

    /// The mean of a channel before what earlier channels add.
    fn own_mean(&self, channel: usize) -> Var<'g> {
        self.slot(1 + channel) + self.centres
    }

    /// The mean of a channel given the values of the channels before it, in [−1, 1].
    pub(super) fn mean_given(&self, channel: usize, earlier: &[Var<'g>]) -> Var<'g> {
        let first = 1 + 2 * self.shape[3] + channel * channel.saturating_sub(1) / 2;
        let terms = earlier.iter().take(channel).enumerate();
        terms.fold(self.own_mean(channel), |mean, (i, &value)| {
            mean + self.slot(first + i).tanh() * value
        })
    }

    /// 1 / s of a channel. The bound from below is soft: a scale near it still has a slope.
    pub(super) fn inverse_scale(&self, channel: usize) -> Var<'g> {
        let raw = self.slot(1 + self.shape[3] + channel) + self.log_scale;
        (-(raw.softplus() + LEAST_LOG_SCALE as f32)).exp()
    }

    /// The values of each channel, in [−1, 1], [n · h · w, 1] each.
    pub(super) fn values(&self, bytes: Var<'g>) -> Vec<Var<'g>> {
        let [n, h, w, channels] = self.shape;
        let bytes = bytes.reshape(&[n * h * w, channels]);
        (0..channels)
            .map(|c| (bytes.slice(1, c, 1) + 0.5) * BIN - 1.0)
            .collect()
    }

    /// log p(x) of each image, from the means and inverse scales of a channel's components.
    pub(super) fn log_likelihood_of(
        &self,
        bytes: Var<'g>,
        channel: impl Fn(usize) -> (Var<'g>, Var<'g>),
    ) -> Var<'g> {
        let [n, h, w, channels] = self.shape;
        let bytes = bytes.reshape(&[n * h * w, channels]);
        let joint = (0..channels).fold(self.logits(), |sum, c| {
            let (mean, inverse_scale) = channel(c);
            sum + log_mass(bytes.slice(1, c, 1), mean, inverse_scale, BIN)
        });
        let log_p = log_sum_exp(joint) - log_sum_exp(self.logits());
        log_p.reshape(&[n, h * w]).sum_last()
    }
}

/// `model.likelihood = "mixture"`.
pub struct Kind;

impl Likelihood for Kind {
    fn name(&self) -> &'static str {
        "mixture"
    }

    fn about(&self) -> &'static str {
        "mixture of discretised logistics; green's mean follows red, blue's red and green"
    }

    fn channels(&self, config: &ModelConfig) -> usize {
        slots(config.image_channels) * config.mixtures
    }

    fn pixels<'g>(&self, builder: &Builder<'g>, raw: Var<'g>) -> Box<dyn Pixels<'g> + 'g> {
        Box::new(Mixture::draw(builder, raw))
    }

    fn bins(&self, config: &ModelConfig) -> Option<Bins> {
        Some(Bins {
            channels: config.image_channels,
            components: config.mixtures,
            coefficients: true,
            width: BIN,
            neighbours: 0,
        })
    }
}

impl<'g> Pixels<'g> for Mixture<'g> {
    fn log_likelihood(&self, bytes: Var<'g>) -> Var<'g> {
        let values = self.values(bytes);
        self.log_likelihood_of(bytes, |c| {
            (self.mean_given(c, &values), self.inverse_scale(c))
        })
    }

    /// What a coder needs for each pixel, m numbers a slot: weights, means before what earlier channels add, 1 / s,
    /// coefficients of the earlier channels; [n · h · w, slots · m].
    fn numbers(&self) -> Var<'g> {
        let channels = self.shape[3];
        let mut parts = vec![self.logits().softmax()];
        parts.extend((0..channels).map(|c| self.own_mean(c)));
        parts.extend((0..channels).map(|c| self.inverse_scale(c)));
        parts.extend((1 + 2 * channels..slots(channels)).map(|slot| self.slot(slot).tanh()));
        self.raw.graph().concat(&parts, 1)
    }

    /// Expectation of each pixel, bytes spanning [−0.5, 0.5], [n, h, w, channels].
    ///
    /// Within a component the channels follow each other in order, each from the means of those before it. A mean
    /// beyond the border stands for the border: no byte lies outside.
    fn mean(&self) -> Var<'g> {
        let g = self.raw.graph();
        let border = 1.0 - BIN / 2.0;
        let weights = self.logits().softmax();
        let mut means: Vec<Var<'g>> = Vec::new();
        for channel in 0..self.shape[3] {
            let mean = self.mean_given(channel, &means);
            means.push(mean.clamp(-border, border));
        }
        let expected: Vec<Var<'g>> = means
            .iter()
            .map(|&mean| (weights * mean).sum_last() * 0.5)
            .collect();
        g.concat(&expected, 1).reshape(&self.shape)
    }
}

/// log Σ exp over the last axis, which stays with size one.
fn log_sum_exp(x: Var<'_>) -> Var<'_> {
    let largest = x.max_last().detach();
    (x - largest).exp().sum_last().log() + largest
}
