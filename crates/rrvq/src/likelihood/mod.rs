//! Likelihoods of 8-bit pixels given the decoder's output. One file a kind; [`Pixels`] is whichever the settings name.

pub mod logistic;
pub mod mixture;

use crate::config::{Likelihood, ModelConfig};
use crate::model::Pen;
use logistic::Logistic;
use mixture::Mixture;
use rrvq_tensor::Var;

/// What a likelihood makes of the decoder's output.
pub enum Pixels<'g> {
    Logistic(Logistic<'g>),
    Mixture(Mixture<'g>),
}

impl<'g> Pixels<'g> {
    /// Channels the decoder must give for each pixel.
    pub fn channels(config: &ModelConfig) -> usize {
        match config.likelihood {
            Likelihood::Logistic | Likelihood::LogisticChannel => config.image_channels,
            Likelihood::Mixture => Mixture::channels(config),
        }
    }

    /// `raw` is a map with [`Pixels::channels`] channels.
    pub fn draw(pen: &Pen<'g>, raw: Var<'g>) -> Self {
        match pen.config.likelihood {
            Likelihood::Logistic | Likelihood::LogisticChannel => {
                Pixels::Logistic(Logistic::draw(pen, raw))
            }
            Likelihood::Mixture => Pixels::Mixture(Mixture::draw(pen, raw)),
        }
    }

    /// log p(x) of each image in nats, [n, 1]; `bytes` are the pixel values 0 … 255 as f32.
    pub fn log_likelihood(&self, bytes: Var<'g>) -> Var<'g> {
        match self {
            Pixels::Logistic(pixels) => pixels.log_likelihood(bytes),
            Pixels::Mixture(pixels) => pixels.log_likelihood(bytes),
        }
    }

    /// Mean of each pixel, [n, h, w, channels]; bytes span [−0.5, 0.5].
    pub fn mean(&self) -> Var<'g> {
        match self {
            Pixels::Logistic(pixels) => pixels.mean,
            Pixels::Mixture(pixels) => pixels.mean(),
        }
    }
}
