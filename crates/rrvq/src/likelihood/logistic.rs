//! The discretised logistic of the ResNet-VAE: bins of 1/256, the outer bins take the tails, one learnt scale
//! for the whole image or one for each channel.
//!
//! With a = (upper edge − m) / s and b = (lower edge − m) / s, an inner bin has
//! σ(a) − σ(b) = σ(a) · σ(−b) · (1 − e^(b−a)), so its log is a sum of three terms none of which can cancel:
//! no small constant is needed to keep the logarithm finite.

use crate::config::Likelihood;
use crate::model::Pen;
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

impl<'g> Logistic<'g> {
    /// `raw` is [n, h, w, channels].
    pub fn draw(pen: &Pen<'g>, raw: Var<'g>) -> Self {
        let g = pen.graph;
        let start = Init::Constant(pen.config.log_scale as f32);
        let per_channel = pen.config.likelihood == Likelihood::LogisticChannel;
        let shape = if per_channel { &[raw.dim(3)][..] } else { &[] };
        let log_scale = g.param("likelihood.log_scale", shape, start);
        Logistic {
            mean: raw,
            inverse_scale: (-log_scale).exp(),
        }
    }

    /// log p(x) of each image in nats, [n, 1]; `bytes` are the pixel values 0 … 255 as f32.
    pub fn log_likelihood(&self, bytes: Var<'g>) -> Var<'g> {
        let log_p = log_mass(bytes, self.mean, self.inverse_scale, BIN);
        let n = bytes.dim(0);
        log_p.reshape(&[n, bytes.size() / n]).sum_last()
    }
}

impl<'g> Logistic<'g> {
    /// What a coder needs for each pixel, as a mixture of one: weight 1, means, 1 / s; [n · h · w, 1 + 2 · channels].
    pub fn numbers(&self) -> Var<'g> {
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
