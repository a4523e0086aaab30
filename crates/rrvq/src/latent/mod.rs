//! Latents: how the features of a layer become a prior, a posterior, a sample and its KL. One file a kind.
//!
//! A kind implements [`Latent`], which is all that the rest of the program asks of it; [`Coded`] is what a codec asks of
//! kinds whose positions hold one of a number of codes. To add a kind, write its file and name it here and in [`KINDS`].

pub mod bernoulli;
pub mod codebook;
pub mod fsq;
pub mod gaussian;
pub mod nearest;
pub mod responsibility;

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::nn::{Builder, Geometry, layer_name};
use codebook::{FirstBatch, Moved};
use rrvq_tensor::SampleMode;
use rrvq_tensor::Var;

/// Every kind of latent, in the order help texts list them.
pub static KINDS: &[&dyn Latent] = &[
    &responsibility::Kind,
    &nearest::Kind,
    &gaussian::Kind,
    &bernoulli::Kind,
    &fsq::Kind,
];

/// The kind called `name`.
pub fn find(name: &str) -> Result<&'static dyn Latent> {
    let found = KINDS.iter().find(|kind| kind.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        Error::new(format!(
            "model.latent is \"{name}\"; expected one of \"{}\"",
            known.join("\", \"")
        ))
    })
}

/// The kind of a model's latents.
///
/// # Panics
/// Where there is no such kind, which [`crate::config::Config::validate`] refuses.
pub fn of(config: &ModelConfig) -> &'static dyn Latent {
    find(&config.latent).unwrap_or_else(|error| panic!("{error}"))
}

/// Codes of a layer, where a position holds one of a number of them.
pub fn codes(config: &ModelConfig, layer: usize) -> Option<usize> {
    Some(of(config).coded()?.codes(config, layer))
}

/// Bits of an image's latents when all values are equally likely; none where latents are continuous.
pub fn bits_of_image(config: &ModelConfig) -> Option<f64> {
    let kind = of(config);
    let sides = config.sides().into_iter().enumerate();
    sides
        .map(|(layer, side)| Some((side * side) as f64 * kind.bits(config, layer)?))
        .sum()
}

/// A kind of latent: everything that the model, training, evaluation, reports and the codec ask of it.
pub trait Latent: Sync {
    /// The word for it in `model.latent`.
    fn name(&self) -> &'static str;

    /// One line on what it is, for help texts.
    fn about(&self) -> &'static str;

    /// A model of it in a few words, for reports; `layers` is "one layer" or "5 layers".
    fn describe(&self, config: &ModelConfig, layers: &str) -> String;

    /// Its settings in `model.options`: name, and one line on what it is.
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Refuses settings that it cannot work with.
    fn check(&self, _config: &ModelConfig) -> Result<()> {
        Ok(())
    }

    /// A layer of the down pass: prior and posterior side by side, a sample of one of them, and the KL between them.
    fn draw<'g>(&self, at: &LayerInputs<'_, 'g>) -> Drawn<'g>;

    /// Standard deviation that the outputs of ladders and straps start with.
    fn first_gain(&self) -> f32 {
        1.0
    }

    /// Bits of a position when all its values are equally likely; none where they are continuous.
    fn bits(&self, config: &ModelConfig, layer: usize) -> Option<f64>;

    /// What a codec needs, where a position holds one of a number of codes.
    fn coded(&self) -> Option<&dyn Coded> {
        None
    }

    /// Whether samples have log probabilities under a posterior that spreads, which score-function estimators (VIMCO)
    /// weigh them by.
    fn has_scores(&self) -> bool {
        false
    }

    /// Whether `train.split_every` may split its codes.
    fn can_split(&self) -> bool {
        false
    }

    /// Whether posteriors are responsibilities for embeddings that can run away from the codes (`train.norm_penalty`).
    fn has_embeddings(&self) -> bool {
        false
    }

    /// What makes training unstable in this configuration, and what to do, where something is known.
    fn instability(&self, _config: &ModelConfig) -> Option<&'static str> {
        None
    }
}

/// A kind of latent whose positions hold one of a number of codes.
pub trait Coded: Sync {
    /// How many codes a layer has.
    fn codes(&self, config: &ModelConfig, layer: usize) -> usize;

    /// Whether the posterior is one code and nothing else, so that nothing is drawn from it.
    fn certain(&self) -> bool;

    /// Whether codes have parameters of their own, so that unused ones can be left out.
    fn has_codebook(&self) -> bool;

    /// Numbers of the posterior's embedding for each position.
    fn width(&self, config: &ModelConfig) -> usize {
        config.embed
    }

    /// log p of every code at every position, [rows, K]; none where all codes are equally likely.
    fn log_prior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Option<Var<'g>>;

    /// log q of every code at every position, [rows, K]; where the posterior is certain, any numbers whose largest is
    /// the code.
    fn log_posterior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Var<'g>;

    /// What the layers below see of codes, [rows, d_e], by their numbers, [rows, 1].
    fn embed<'g>(&self, at: &LayerInputs<'_, 'g>, index: Var<'g>) -> Var<'g>;
}

/// How samples are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawMode {
    /// As training sees them, with the gradients that `model.sample` and the latent's kind give.
    Train,
    /// Hard.
    Hard,
    /// Hard, with the log probability of every sample, at the price of K-wide tensors.
    Weighed,
    /// The same without any gradient through a sample.
    Scored,
}

impl DrawMode {
    /// Whether log probabilities of samples are wanted.
    pub fn weighs(self) -> bool {
        matches!(self, DrawMode::Weighed | DrawMode::Scored)
    }
}

/// How to sample: temperatures are inputs of the program.
#[derive(Clone, Copy)]
pub struct Sampling<'g> {
    /// Temperature of the Gumbel-softmax, or of ReinMax's softmax without noise.
    pub tau: Var<'g>,
    /// 1 samples, 0 takes the mode.
    pub noise_scale: Var<'g>,
    /// The gradient of a sample.
    pub mode: SampleMode,
    /// Stream of the noise.
    pub stream: u32,
}

/// What the posterior of a layer is inferred from.
#[derive(Clone, Copy)]
pub enum Evidence<'g> {
    /// Nothing: samples come from the prior.
    None,
    /// Features of the up pass, d̂_ℓ.
    Features(Var<'g>),
    /// The same after qladder, as a codec hands it over.
    Ladder(Var<'g>),
}

/// What a layer of latents has around it: the features of both passes, which become rows of numbers, one a position.
pub struct LayerInputs<'a, 'g> {
    /// What it is drawn with.
    pub builder: &'a Builder<'g>,
    /// The maps of the hierarchy.
    pub geometry: &'a Geometry,
    /// Counted from 0 at the bottom.
    pub layer: usize,
    /// Images, times samples of each.
    pub batch: usize,
    /// Features from above, d_{ℓ+1}.
    pub down: Var<'g>,
    /// What the posterior is inferred from.
    pub evidence: Evidence<'g>,
    /// How samples are drawn.
    pub mode: DrawMode,
    /// Temperatures and noise.
    pub sampling: Sampling<'g>,
}

impl<'g> LayerInputs<'_, 'g> {
    /// The model's settings.
    pub fn config(&self) -> &'g ModelConfig {
        self.builder.config
    }

    /// Positions of the layer in the whole batch.
    pub fn rows(&self) -> usize {
        self.batch * self.geometry.positions(self.layer)
    }

    /// What the parameters of the layer's codebook are called.
    pub fn codebook(&self) -> String {
        codebook::name(self.layer)
    }

    /// pstrap_ℓ(d_{ℓ+1}): `out` numbers for each position that the prior is made of; none where the prior is fixed.
    pub fn prior(&self, out: usize) -> Option<Var<'g>> {
        if self.geometry.fixed_prior(self.layer) {
            return None;
        }
        Some(self.strap("pstrap", out).reshape(&[self.rows(), out]))
    }

    /// qladder_ℓ(d̂_ℓ) + qstrap_ℓ(d_{ℓ+1}): `out` numbers for each position that the posterior is made of; none where
    /// there is nothing to infer from.
    pub fn posterior(&self, out: usize) -> Option<Var<'g>> {
        let ladder = match self.evidence {
            Evidence::None => return None,
            Evidence::Features(up) => self.qladder(up, out),
            Evidence::Ladder(map) => map,
        };
        let sum = ladder + self.strap("qstrap", out);
        Some(sum.reshape(&[self.rows(), out]))
    }

    /// qladder_ℓ(d̂_ℓ): features of the up pass as a map of `out` numbers for each position.
    pub fn qladder(&self, up: Var<'g>, out: usize) -> Var<'g> {
        let name = format!("{}.qladder", layer_name(self.layer));
        let [.., channels] = self.geometry.map(self.batch, self.layer, out);
        self.builder.qladder(&name, up, channels, self.gain())
    }

    fn strap(&self, which: &str, out: usize) -> Var<'g> {
        let name = format!("{}.{which}", layer_name(self.layer));
        let [.., channels] = self.geometry.map(self.batch, self.layer, out);
        let grows = self.geometry.grows(self.layer);
        self.builder
            .strap(&name, self.down, channels, grows, self.gain())
    }

    fn gain(&self) -> f32 {
        of(self.config()).first_gain()
    }

    /// The layer's embeddings as what its codes may start at.
    pub fn first_batch(&self, e: Var<'g>) -> FirstBatch<'g> {
        FirstBatch {
            name: self.codebook(),
            layer: self.layer,
            e,
            images: self.batch,
        }
    }
}

/// log probabilities of a layer's samples under p and q, [rows, 1] each.
#[derive(Clone, Copy)]
pub struct Weight<'g> {
    /// Under the prior.
    pub log_p: Var<'g>,
    /// Under the posterior.
    pub log_q: Var<'g>,
}

/// What a layer's sample is to the rest of the model.
pub struct Drawn<'g> {
    /// What the layers below see, [rows, d_e].
    pub z: Var<'g>,
    /// Nats of each row, [rows, 1].
    pub kl: Var<'g>,
    /// The sampled codes, [rows, 1].
    pub code: Option<Var<'g>>,
    /// Nats of each row that training adds, [rows, 1].
    pub penalty: Option<Var<'g>>,
    /// What running averages of the codes become.
    pub moved: Option<Moved<'g>>,
    /// Log probabilities of the sample, where the mode asks for them.
    pub weight: Option<Weight<'g>>,
    /// Entropy of the posterior in nats of each row, [rows, 1], where it is known.
    pub entropy: Option<Var<'g>>,
    /// The posterior's embedding, [rows, d_e], where codes answer for it.
    pub embedding: Option<Var<'g>>,
}

impl<'g> Drawn<'g> {
    /// A sample and its KL.
    pub fn new(z: Var<'g>, kl: Var<'g>) -> Self {
        Drawn {
            z,
            kl,
            code: None,
            penalty: None,
            moved: None,
            weight: None,
            entropy: None,
            embedding: None,
        }
    }

    /// A sample of the prior, which has no divergence from it, and its codes where there are some.
    pub fn generated(z: Var<'g>, code: Option<Var<'g>>) -> Self {
        Drawn {
            code,
            ..Drawn::new(z, z.graph().full(0.0, &[z.dim(0), 1]))
        }
    }
}
