//! Likelihoods of 8-bit pixels given the decoder's output. One file a kind; [`Pixels`] is whichever the settings name.

pub mod logistic;
pub mod mixture;

use crate::config::{Likelihood, ModelConfig};
use crate::model::Pen;
use logistic::Logistic;
use mixture::Mixture;
use rrvq_tensor::Var;

/// How the numbers of a pixel are to be read: for each of `components`, its weight; a mean for each channel; 1 / s for
/// each channel; and, where there are coefficients, one for each pair of channels, (1, 0), (2, 0), (2, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins {
    pub channels: usize,
    pub components: usize,
    /// Whether a channel's means move with the values of the channels before it.
    pub coefficients: bool,
    /// Width of a byte's bin; 128 bins lie below zero.
    pub width: f32,
}

impl Bins {
    pub fn of(config: &ModelConfig) -> Bins {
        let channels = config.image_channels;
        match config.likelihood {
            Likelihood::Logistic | Likelihood::LogisticChannel => Bins {
                channels,
                components: 1,
                coefficients: false,
                width: logistic::BIN,
            },
            Likelihood::Mixture => Bins {
                channels,
                components: config.mixtures,
                coefficients: true,
                width: mixture::BIN,
            },
        }
    }

    /// Numbers of a pixel.
    pub fn numbers(&self) -> usize {
        let pairs = self.channels * (self.channels - 1) / 2;
        self.components * (1 + 2 * self.channels + if self.coefficients { pairs } else { 0 })
    }
}

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

    /// What a coder needs for each pixel, [n · h · w, numbers]; [`Bins::of`] says how to read them.
    pub fn numbers(&self) -> Var<'g> {
        match self {
            Pixels::Logistic(pixels) => pixels.numbers(),
            Pixels::Mixture(pixels) => pixels.numbers(),
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
