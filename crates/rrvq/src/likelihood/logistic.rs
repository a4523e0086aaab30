//! The discretised logistic of the ResNet-VAE: bins of 1/256, the outer bins take the tails, one learnt scale
//! for the whole image or one for each channel.
//!
//! With a = (upper edge − m) / s and b = (lower edge − m) / s, an inner bin has
//! σ(a) − σ(b) = σ(a) · σ(−b) · (1 − e^(b−a)), so its log is a sum of three terms none of which can cancel:
//! no small constant is needed to keep the logarithm finite.

use super::{Bins, Likelihood, Pixels};
use crate::config::ModelConfig;
use crate::nn::Builder;
use rrvq_tensor::{Init, Var};

/// Width of a bin.
pub const BIN: f32 = 1.0 / 256.0;

/// The decoder's output read as means of logistics.
pub struct Logistic<'g> {
    /// Mean of each pixel; bytes span [−0.5, 0.5]. It is not clipped to that: a mean beyond the border is a
    /// proper way to say "surely 255", and clipping would leave such pixels without a gradient.
    pub mean: Var<'g>,
    /// 1 / s, for the whole image or for each channel.
    inverse_scale: Var<'g>,
}

/// One scale for the whole image.
pub static SHARED: Kind = Kind { per_channel: false };
/// One scale for each channel.
pub static PER_CHANNEL: Kind = Kind { per_channel: true };

/// `model.likelihood = "logistic"` and `"logistic-channel"`.
pub struct Kind {
    per_channel: bool,
}

impl Likelihood for Kind {
    fn name(&self) -> &'static str {
        match self.per_channel {
            false => "logistic",
            true => "logistic-channel",
        }
    }

    fn about(&self) -> &'static str {
        match self.per_channel {
            false => "discretised logistic, one scale for the whole image",
            true => "discretised logistic, one scale for each channel",
        }
    }

    fn has_plain_means(&self) -> bool {
        true
    }

    fn channels(&self, config: &ModelConfig) -> usize {
        config.image_channels
    }

    fn pixels<'g>(&self, builder: &Builder<'g>, raw: Var<'g>) -> Box<dyn Pixels<'g> + 'g> {
        let start = Init::Constant(builder.config.log_scale as f32);
        let per_channel = [raw.dim(3)];
        let shape = if self.per_channel {
            &per_channel[..]
        } else {
            &[]
        };
        let log_scale = builder.graph.param("likelihood.log_scale", shape, start);
        Box::new(Logistic {
            mean: raw,
            inverse_scale: (-log_scale).exp(),
        })
    }

    fn bins(&self, config: &ModelConfig) -> Option<Bins> {
        Some(Bins {
            channels: config.image_channels,
            components: 1,
            coefficients: false,
            width: BIN,
            neighbours: 0,
        })
    }
}

impl<'g> Pixels<'g> for Logistic<'g> {
    fn log_likelihood(&self, bytes: Var<'g>) -> Var<'g> {
        per_image(log_mass(bytes, self.mean, self.inverse_scale, BIN))
    }

    fn log_likelihood_of_scales(&self, bytes: Var<'g>) -> Option<Var<'g>> {
        let mean = self.mean.detach();
        Some(per_image(log_mass(bytes, mean, self.inverse_scale, BIN)))
    }

    fn mean(&self) -> Var<'g> {
        self.mean
    }

    /// A mixture of one: weight 1, means, 1 / s; [n · h · w, 1 + 2 · channels].
    fn numbers(&self) -> Var<'g> {
        let g = self.mean.graph();
        let channels = self.mean.dim(3);
        let shape = [self.mean.size() / channels, channels];
        let parts = [
            g.full(1.0, &[shape[0], 1]),
            self.mean.reshape(&shape),
            self.inverse_scale.broadcast(&shape),
        ];
        g.concat(&parts, 1)
    }
}

/// Sums over all values of each image, [n, 1].
fn per_image(values: Var<'_>) -> Var<'_> {
    let n = values.dim(0);
    values.reshape(&[n, values.size() / n]).sum_last()
}

/// log of the mass a logistic has on each byte's bin; bins have the given width and 128 of them lie below zero.
pub(super) fn log_mass<'g>(
    bytes: Var<'g>,
    mean: Var<'g>,
    inverse_scale: Var<'g>,
    width: f32,
) -> Var<'g> {
    let g = bytes.graph();
    let lower = bytes * width - 128.0 * width;
    let upper = lower + width;
    let a = (upper - mean) * inverse_scale;
    let b = (lower - mean) * inverse_scale;
    let has_lower = bytes.greater(g.scalar(0.0));
    let has_upper = g.scalar(255.0).greater(bytes);
    let log_width = (-(inverse_scale * -width).expm1()).log();
    let inner = has_lower * has_upper * log_width;
    inner - has_upper * (-a).softplus() - has_lower * b.softplus()
}
