//! VQ-VAE: the nearest code, straight through, with a commitment loss that keeps the encoder near its codes. The prior
//! is uniform, so the KL of a position is the constant ln K.
//!
//! The codes follow the encoder in one of two ways. By a codebook loss, they are parameters like all others. By
//! averages ([`Averages`]), a code is the running mean of the outputs it was nearest to: k-means on a stream, which
//! knows no learning rate. A code that is hardly used any more would stay where it is for good; it starts again at an
//! output of the current batch.

use super::codebook::{First, FirstBatch, Memory, Moved, any_code, mean_name, pick};
use super::{Coded, Drawn, Latent, LayerInputs, Weight};
use crate::config::{CodebookRule, ModelConfig};
use crate::nn::Builder;
use crate::streams;
use rrvq_tensor::Sampled;
use rrvq_tensor::{Init, Var};

/// Means of a layer's codes, [K, d_e].
#[derive(Clone, Copy)]
pub struct Nearest<'g> {
    /// The means.
    pub mu: Var<'g>,
}

/// A quantised map.
#[derive(Clone, Copy)]
pub struct Quantised<'g> {
    /// The sample, its codes and their KL.
    pub sampled: Sampled<'g>,
    /// ‖sg(e) − μ‖² + β ‖e − sg(μ)‖² of each row, [rows, 1]; the second part alone where averages move the codes.
    pub penalty: Var<'g>,
}

impl<'g> Nearest<'g> {
    /// The `codes` means of the codebook `name`, drawn into the builder's graph.
    pub fn draw(builder: &Builder<'g>, name: &str, codes: usize) -> Self {
        let init = Init::Normal(builder.config.code_scale as f32);
        let shape = [codes, builder.config.embed];
        let mu = builder.graph.param(&mean_name(name), &shape, init);
        Nearest {
            mu: match builder.config.codebook {
                CodebookRule::Loss => mu,
                // What averages decide, no gradient may move.
                CodebookRule::Ema => mu.detach(),
            },
        }
    }

    /// e·μ − ½‖μ‖² of each row and code, [rows, K]: the nearest code has the largest.
    pub fn closeness(&self, e: Var<'g>) -> Var<'g> {
        let half = (self.mu.square().sum_last() * 0.5).reshape(&[1, self.mu.dim(0)]);
        e.matmul(self.mu, false, true) - half
    }

    /// Where averages move the codes, they start at outputs of the first batch.
    pub fn starting(self, builder: &Builder<'g>, batch: &FirstBatch<'g>) -> Self {
        match builder.config.codebook {
            CodebookRule::Loss => self,
            CodebookRule::Ema => Nearest {
                mu: batch.start(builder, self.mu, |found| found),
            },
        }
    }

    /// Each row of `e`, [rows, d_e], to the code nearest to it; `commitment` is β.
    pub fn quantise(&self, e: Var<'g>, commitment: f32, rule: CodebookRule) -> Quantised<'g> {
        let (g, codes) = (e.graph(), self.mu.dim(0));
        let index = self.closeness(e).argmax_last();
        let code = self.mu.gather(index);
        let commits = (e - code.detach()).square().sum_last() * commitment;
        let sampled = Sampled {
            z: e + (code - e).detach(),
            index,
            kl: g.full((codes as f32).ln(), &[e.dim(0), 1]),
        };
        Quantised {
            sampled,
            penalty: match rule {
                CodebookRule::Loss => (e.detach() - code).square().sum_last() + commits,
                CodebookRule::Ema => commits,
            },
        }
    }
}

/// The averages a codebook follows.
#[derive(Clone, Copy, Debug)]
pub struct Averages {
    /// What is left of an average after a step.
    pub decay: f32,
    /// A code used less often than this, in units of even use, starts again; 0 lets it be.
    pub revive: f32,
    /// Noise of this stream and the next picks where.
    pub stream: u32,
}

/// Keeps a code that was never used from dividing by zero.
const SMOOTHING: f32 = 1e-5;

impl Averages {
    /// Those of `layer`, as the configuration has them.
    pub fn of_layer(builder: &Builder<'_>, layer: usize) -> Averages {
        Averages {
            decay: builder.config.codebook_decay as f32,
            revive: builder.config.codebook_revive as f32,
            stream: streams::code_start(layer),
        }
    }

    /// Use of each code and sum of what it was nearest to, both in units of even use: a code that is used as often as
    /// the others has 1, whatever the size of a batch.
    pub fn memories(name: &str, codes: usize, embed: usize) -> [Memory; 2] {
        let memory = |what: &str, shape: Vec<usize>, first| Memory {
            name: format!("{name}.{what}"),
            shape,
            first,
        };
        let mean = First::Parameter(mean_name(name));
        [
            memory("use", vec![codes, 1], First::Ones),
            memory("sum", vec![codes, embed], mean),
        ]
    }

    /// Moves the codes `name` after a batch of `images`: `e` [rows, d_e] went to the codes `index` [rows, 1].
    pub fn moved<'g>(
        &self,
        name: &str,
        codes: usize,
        e: Var<'g>,
        index: Var<'g>,
        images: usize,
    ) -> Moved<'g> {
        let (g, e) = (e.graph(), e.detach());
        let (rows, embed) = (e.dim(0), e.dim(1));
        let unit = codes as f32 / (rows * g.shards()) as f32;
        let ones = g.full(1.0, &[rows, 1]);
        let now_used = index.scatter_add(ones, codes).all_sum() * unit;
        let now_sum = index.scatter_add(e, codes).all_sum() * unit;
        let memories = Self::memories(name, codes, embed);
        let [used, sum] = [(0, now_used), (1, now_sum)].map(|(i, now): (usize, Var<'g>)| {
            let memory: &Memory = &memories[i];
            let old = g.state(&memory.name, memory.len()).reshape(&memory.shape);
            now + (old - now) * self.decay
        });
        let (used, sum) = match self.revive > 0.0 {
            false => (used, sum),
            true => {
                let dead = g.scalar(self.revive).greater(used);
                let picked = pick(e, images, codes, self.stream);
                // Revived with an even share: it has as long to find its place as any code has to lose it.
                (dead.select(g.scalar(1.0), used), dead.select(picked, sum))
            }
        };
        let total = used.sum();
        let smooth = (used + SMOOTHING) * (total / (total + codes as f32 * SMOOTHING));
        let [use_memory, sum_memory] = memories;
        Moved {
            mean: (mean_name(name), sum / smooth),
            memories: [(use_memory, used), (sum_memory, sum)],
        }
    }
}

/// `model.latent = "nearest"`: the VQ-VAE.
pub struct Kind;

impl Kind {
    fn book<'g>(&self, at: &LayerInputs<'_, 'g>) -> Nearest<'g> {
        Nearest::draw(at.builder, &at.codebook(), at.config().codes.at(at.layer))
    }
}

impl Latent for Kind {
    fn name(&self) -> &'static str {
        "nearest"
    }

    fn about(&self) -> &'static str {
        "the nearest code of a codebook (VQ-VAE)"
    }

    fn describe(&self, config: &ModelConfig, layers: &str) -> String {
        format!("nearest codes in {layers}, codebook by {}", config.codebook)
    }

    fn bits(&self, config: &ModelConfig, layer: usize) -> Option<f64> {
        Some((config.codes.at(layer) as f64).log2())
    }

    fn coded(&self) -> Option<&dyn Coded> {
        Some(self)
    }

    fn draw<'g>(&self, at: &LayerInputs<'_, 'g>) -> Drawn<'g> {
        let (config, book) = (at.config(), self.book(at));
        let Some(e) = at.posterior(config.embed) else {
            let index = any_code(book.mu, at.rows(), at.sampling.stream);
            return Drawn::generated(book.mu.gather(index), Some(index));
        };
        let book = book.starting(at.builder, &at.first_batch(e));
        let found = book.quantise(e, config.commitment as f32, config.codebook);
        let Sampled { z, index, kl } = found.sampled;
        let averages = Averages::of_layer(at.builder, at.layer);
        let codes = config.codes.at(at.layer);
        Drawn {
            code: Some(index),
            penalty: Some(found.penalty),
            moved: (config.codebook == CodebookRule::Ema)
                .then(|| averages.moved(&at.codebook(), codes, e, index, at.batch)),
            // The posterior is certain; all codes are equally likely under the prior.
            weight: at.mode.weighs().then(|| Weight {
                log_p: -kl,
                log_q: kl * 0.0,
            }),
            ..Drawn::new(z, kl)
        }
    }
}

impl Coded for Kind {
    fn codes(&self, config: &ModelConfig, layer: usize) -> usize {
        config.codes.at(layer)
    }

    fn certain(&self) -> bool {
        true
    }

    fn has_codebook(&self) -> bool {
        true
    }

    fn log_prior<'g>(&self, _at: &LayerInputs<'_, 'g>) -> Option<Var<'g>> {
        None
    }

    fn log_posterior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Var<'g> {
        let e = at.posterior(at.config().embed).expect("an image is given");
        self.book(at).closeness(e)
    }

    fn embed<'g>(&self, at: &LayerInputs<'_, 'g>, index: Var<'g>) -> Var<'g> {
        self.book(at).mu.gather(index)
    }
}
