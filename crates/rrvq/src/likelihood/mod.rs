//! Likelihoods of 8-bit pixels given the decoder's output. One file a kind.
//!
//! A kind implements [`Likelihood`]. To add one, write its file and name it in [`KINDS`].

pub mod causal;
pub mod draw;
pub mod logistic;
pub mod mixture;

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::nn::Builder;
use rrvq_tensor::Var;
use std::str::FromStr;

/// Every kind of likelihood, in the order help texts list them.
pub static KINDS: &[&dyn Likelihood] = &[
    &logistic::SHARED,
    &logistic::PER_CHANNEL,
    &mixture::Kind,
    &causal::Kind,
];

/// The kind called `name`.
pub fn find(name: &str) -> Result<&'static dyn Likelihood> {
    let found = KINDS.iter().find(|kind| kind.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        Error::new(format!(
            "model.likelihood is \"{name}\"; expected one of \"{}\"",
            known.join("\", \"")
        ))
    })
}

/// The likelihood of a model.
///
/// # Panics
/// Where there is no such kind, which [`crate::config::Config::validate`] refuses.
pub fn of(config: &ModelConfig) -> &'static dyn Likelihood {
    find(&config.likelihood).unwrap_or_else(|error| panic!("{error}"))
}

/// A kind of likelihood.
pub trait Likelihood: Sync {
    /// The word for it in `model.likelihood`.
    fn name(&self) -> &'static str;

    /// One line on what it is, for help texts.
    fn about(&self) -> &'static str;

    /// What samples show, where nobody asks for the other.
    fn shows(&self) -> PixelValues {
        PixelValues::Means
    }

    /// What whoever looks at the means of such a model should know.
    fn caution(&self) -> Option<&'static str> {
        None
    }

    /// Whether a pixel has one mean and scales of the whole model, so that means can be trained for squared error alone.
    fn has_plain_means(&self) -> bool {
        false
    }

    /// Channels the decoder must give for each pixel.
    fn channels(&self, config: &ModelConfig) -> usize;

    /// The distribution of pixels; `raw` is a map with [`Likelihood::channels`] channels.
    fn pixels<'g>(&self, builder: &Builder<'g>, raw: Var<'g>) -> Box<dyn Pixels<'g> + 'g>;

    /// How a codec is to read [`Pixels::numbers`]; none where it cannot code such pixels.
    fn bins(&self, config: &ModelConfig) -> Option<Bins>;
}

/// A distribution of the pixels of images.
pub trait Pixels<'g> {
    /// log p(x) of each image in nats, [n, 1]; `bytes` are the pixel values 0 … 255 as f32.
    fn log_likelihood(&self, bytes: Var<'g>) -> Var<'g>;

    /// The same with every pixel given the latents alone, where [`Pixels::log_likelihood`] looks at other pixels too.
    fn log_likelihood_of_decoder(&self, _bytes: Var<'g>) -> Option<Var<'g>> {
        None
    }

    /// The value of [`Pixels::log_likelihood`], of which no gradient reaches the means: for scales while means follow another objective. None
    /// where [`Likelihood::has_plain_means`] is false.
    fn log_likelihood_of_scales(&self, _bytes: Var<'g>) -> Option<Var<'g>> {
        None
    }

    /// Mean of each pixel, [n, h, w, channels]; bytes span [−0.5, 0.5].
    fn mean(&self) -> Var<'g>;

    /// What a codec needs for each pixel, [n · h · w, numbers]; [`Likelihood::bins`] says how to read them.
    fn numbers(&self) -> Var<'g>;
}

/// What is shown of the distribution of each pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelValues {
    /// Its mean, given the latents alone.
    Means,
    /// A value drawn from it: a sample of the whole model, with the noise that the likelihood leaves to pixels.
    Drawn,
}

impl PixelValues {
    /// Both.
    pub const ALL: [PixelValues; 2] = [PixelValues::Means, PixelValues::Drawn];

    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PixelValues::Means => "means",
            PixelValues::Drawn => "drawn",
        }
    }
}

impl FromStr for PixelValues {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        let found = PixelValues::ALL.into_iter().find(|p| p.name() == word);
        found.ok_or_else(|| {
            Error::new(format!(
                "\"{word}\" cannot be shown of pixels; expected \"means\" or \"drawn\""
            ))
        })
    }
}

/// How the numbers of a pixel are to be read: for each of `components`, its weight; a mean for each channel; 1 / s for
/// each channel; and, where there are coefficients, one for each pair of channels, (1, 0), (2, 0), (2, 1). Behind these,
/// where it is causal, the numbers that [`causal`] describes, once a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins {
    /// Channels of a pixel.
    pub channels: usize,
    /// Components of the mixture.
    pub components: usize,
    /// Whether a channel's means move with the values of the channels before it.
    pub coefficients: bool,
    /// Width of a byte's bin; 128 bins lie below zero.
    pub width: f32,
    /// Pixels before whose errors means and scales follow, the first so many of [`causal::PLACES`]; 0 for none.
    pub neighbours: usize,
}

impl Bins {
    /// Numbers of a pixel.
    pub fn numbers(&self) -> usize {
        self.of_components() + self.channels * causal::slots(self.neighbours)
    }

    /// Those of the components; the causal ones come behind them.
    pub fn of_components(&self) -> usize {
        let pairs = self.channels * (self.channels - 1) / 2;
        self.components * (1 + 2 * self.channels + if self.coefficients { pairs } else { 0 })
    }
}
