//! A layer of latents: from features to a prior, a posterior, a sample and its KL, for each kind of latent.
//!
//! Each kind's own mathematics is in its file of [`crate::latent`]; here are the straps and ladders it is fed by, prior
//! and posterior side by side, and what a sample is to the rest of the model ([`Latent`]).

use super::hierarchy::Hierarchy;
use super::steps::books_name;
use crate::config::CodebookRule;
use crate::latent::bernoulli::Bernoulli;
use crate::latent::gaussian::Gaussian;
use crate::latent::nearest::{Averages, FirstBatch, Moved};
use crate::latent::responsibility::{Sampling, any_code};
use rrvq_tensor::Var;
use rrvq_tensor::op::Sampled;

/// How samples are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// As training sees them, with the gradients that `sample` and the latent's kind give.
    Train { relaxed: bool },
    /// Hard.
    Hard,
    /// Hard, with the log probability of every sample, at the price of K-wide tensors.
    Weighed,
    /// The same without any gradient through a sample.
    Scored,
}

impl Look {
    pub fn weighs(self) -> bool {
        matches!(self, Look::Weighed | Look::Scored)
    }
}

/// log probabilities of a layer's samples under p and q, [rows, 1] each.
#[derive(Clone, Copy)]
pub(super) struct Weight<'g> {
    pub log_p: Var<'g>,
    pub log_q: Var<'g>,
}

/// Where in the down pass a latent is drawn.
pub(super) struct Spot<'g> {
    pub layer: usize,
    /// Features from above.
    pub d: Var<'g>,
    /// Features of the up pass; without them, samples come from the prior.
    pub up: Option<Var<'g>>,
    pub how: Sampling<'g>,
    pub look: Look,
}

/// What a layer's sample is to the rest of the model.
pub(super) struct Latent<'g> {
    /// [rows, d_e].
    pub z: Var<'g>,
    /// Nats of each row, [rows, 1].
    pub kl: Var<'g>,
    pub code: Option<Var<'g>>,
    /// Nats of each row that training adds, [rows, 1].
    pub penalty: Option<Var<'g>>,
    /// What running averages of the codes become.
    pub moved: Option<Moved<'g>>,
}

impl<'g> From<Sampled<'g>> for Latent<'g> {
    fn from(sampled: Sampled<'g>) -> Self {
        Latent {
            z: sampled.z,
            kl: sampled.kl,
            code: Some(sampled.index),
            penalty: None,
            moved: None,
        }
    }
}

impl<'g> Hierarchy<'g> {
    /// qladder + qstrap, where there is something to infer from.
    fn posterior(&self, spot: &Spot<'g>, out: usize) -> Option<Var<'g>> {
        let ladder = self.qladder(spot.layer, spot.up?, out);
        Some(self.posterior_rows(spot.layer, spot.d, ladder, out))
    }

    /// A layer's embeddings as what its codes may start at.
    fn first_batch(&self, layer: usize, e: Var<'g>) -> FirstBatch<'g> {
        FirstBatch {
            name: books_name(layer),
            layer,
            e,
            images: self.batch,
        }
    }

    /// A layer of codes, and the probabilities of its samples where asked for.
    pub(super) fn code(&self, spot: &Spot<'g>) -> (Latent<'g>, Option<Weight<'g>>) {
        let embed = self.pen.config.embed;
        let book = self.book(spot.layer);
        let prior = self.code_prior(spot.layer, spot.d);
        match self.posterior(spot, embed) {
            Some(e_q) if spot.look.weighs() => {
                let w = book.sample_slowly(e_q, prior, spot.how);
                let (log_p, log_q) = (w.log_p, w.log_q);
                let mut latent: Latent<'g> = w.sampled.into();
                if spot.look == Look::Scored {
                    latent.z = book.mu.gather(w.sampled.index);
                }
                (latent, Some(Weight { log_p, log_q }))
            }
            Some(e_q) => {
                let book = book.starting(&self.pen, &self.first_batch(spot.layer, e_q));
                (book.sample(e_q, prior, spot.how).into(), None)
            }
            None => {
                let z = book.sample_prior(prior, self.rows(spot.layer), spot.how);
                (generated(z), None)
            }
        }
    }

    /// A layer of nearest codes, likewise.
    pub(super) fn nearest(&self, spot: &Spot<'g>) -> (Latent<'g>, Option<Weight<'g>>) {
        let config = self.pen.config;
        let codes = config.codes.at(spot.layer);
        let name = books_name(spot.layer);
        let book = self.nearest_book(spot.layer);
        match self.posterior(spot, config.embed) {
            Some(e) => {
                let book = book.starting(&self.pen, &self.first_batch(spot.layer, e));
                let found = book.quantise(e, config.commitment as f32, config.codebook);
                let index = found.sampled.index;
                let averages = Averages::of_layer(&self.pen, spot.layer);
                let latent = Latent {
                    penalty: Some(found.penalty),
                    moved: (config.codebook == CodebookRule::Ema)
                        .then(|| averages.moved(&name, codes, e, index, self.batch)),
                    ..found.sampled.into()
                };
                // The posterior is certain; all codes are alike to the prior.
                let weight = spot.look.weighs().then(|| Weight {
                    log_p: -latent.kl,
                    log_q: latent.kl * 0.0,
                });
                (latent, weight)
            }
            None => {
                let rows = self.rows(spot.layer);
                (generated(any_code(book.mu, rows, spot.how.stream)), None)
            }
        }
    }

    /// A layer whose codes are known: their means.
    pub(super) fn given(&self, spot: &Spot<'g>, codes: Option<&[Var<'g>]>) -> Latent<'g> {
        let index = codes.and_then(|codes| codes.get(spot.layer));
        generated(self.code_means(spot.layer, *index.expect("codes of every layer")))
    }

    /// A layer of Gaussians, likewise.
    pub(super) fn gaussian(&self, spot: &Spot<'g>) -> (Latent<'g>, Option<Weight<'g>>) {
        let embed = self.pen.config.embed;
        let (out, rows) = (2 * embed, self.rows(spot.layer));
        let Sampling {
            noise_scale,
            stream,
            ..
        } = spot.how;
        let prior = match self.fixed(spot.layer) {
            true => Gaussian::standard(self.pen.graph, rows, embed),
            false => Gaussian::from_rows(self.pstrap(spot.layer, spot.d, out)),
        };
        match self.posterior(spot, out) {
            Some(rows) => {
                let drawn = Gaussian::from_rows(rows).draw(prior, noise_scale, stream);
                let (log_p, log_q) = (drawn.log_p, drawn.log_q);
                let latent = Latent {
                    z: drawn.z,
                    kl: drawn.kl,
                    code: None,
                    penalty: None,
                    moved: None,
                };
                let weight = Weight { log_p, log_q };
                (latent, spot.look.weighs().then_some(weight))
            }
            None => (generated(prior.sample(noise_scale, stream)), None),
        }
    }

    /// A layer of bits, likewise.
    pub(super) fn bits(&self, spot: &Spot<'g>) -> (Latent<'g>, Option<Weight<'g>>) {
        let config = self.pen.config;
        let (d, rows) = (config.embed, self.rows(spot.layer));
        let (scale, stream) = (spot.how.noise_scale, spot.how.stream);
        let prior = match self.fixed(spot.layer) {
            true => Bernoulli::even(self.pen.graph, rows, d),
            false => Bernoulli {
                logits: self.pstrap(spot.layer, spot.d, d),
            },
        };
        let Some(logits) = self.posterior(spot, d) else {
            return (generated(prior.hard(scale, stream)), None);
        };
        let q = Bernoulli { logits };
        let noise = match spot.look {
            Look::Train { .. } => config.bit_noise as f32,
            _ => 0.0,
        };
        let bits = q.sample(noise, scale, stream);
        let latent = Latent {
            z: match spot.look {
                Look::Train { .. } => bits.z,
                _ => bits.hard,
            },
            kl: q.divergence(prior),
            code: None,
            penalty: None,
            moved: None,
        };
        let weight = || Weight {
            log_p: prior.log_mass(bits.hard),
            log_q: q.log_mass(bits.hard),
        };
        (latent, spot.look.weighs().then(weight))
    }
}

/// A sample of the prior, which has no divergence from it.
fn generated<'g>(z: Var<'g>) -> Latent<'g> {
    let kl = z.graph().full(0.0, &[z.dim(0), 1]);
    Latent {
        z,
        kl,
        code: None,
        penalty: None,
        moved: None,
    }
}
