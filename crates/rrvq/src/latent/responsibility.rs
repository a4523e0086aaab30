//! Relaxed responsibilities (the paper's eq. rr_q and rr_p): posterior and prior are the responsibilities of
//! the same Gaussian codes for two embeddings.
//!
//! [`Codebook::sample`] is the fused operation, without any tensor K wide. [`Codebook::sample_slowly`] draws
//! the same out of plain operations: the reference the fused one is tested against, and the way to the log
//! probabilities of single samples that an importance bound needs.

use super::codebook::{FirstBatch, any_code, gumbel};
use super::{Coded, DrawMode, Drawn, Latent, LayerInputs, Sampling, Weight};
use crate::config::{CodeStart, ModelConfig, PriorKind, Sigma, Top};
use crate::nn::Builder;
use rrvq_tensor::{Embeddings, SampleMode, Sampled};
use rrvq_tensor::{Init, Var};

/// Means and log-variances of a layer's codes, [K, d_e] each; or log-variances [K, 1], of which each counts once beside the
/// distance over all dimensions, as the paper prints it.
#[derive(Clone, Copy)]
pub struct Codebook<'g> {
    /// Means, μ.
    pub mu: Var<'g>,
    /// Logarithms of the variances, log σ².
    pub logvar: Var<'g>,
}

/// What a layer's codes are compared with.
#[derive(Clone, Copy)]
pub enum Prior<'g> {
    /// All codes alike.
    Uniform,
    /// The responsibilities for another embedding, [rows, d_e]: the paper's own.
    Embedding(Var<'g>),
    /// The softmax of logits, [rows, K]: the paper's "direct" ablation.
    Direct(Var<'g>),
}

/// The one-hot sample `hard` of softmax(`log_q`) with the ReinMax gradient (Liu et al. 2023).
fn reinmax<'g>(log_q: Var<'g>, hard: Var<'g>, tau: Var<'g>) -> Var<'g> {
    let (pi_0, at_tau) = (log_q.softmax(), (log_q / tau).softmax());
    let pi_1 = (log_q + (((hard + at_tau) * 0.5).log() - log_q).detach()).softmax();
    let pi_2 = pi_1 * 2.0 - pi_0 * 0.5;
    hard + pi_2 - pi_2.detach()
}

/// A sample with the log probabilities of what was sampled.
pub struct Weighed<'g> {
    /// The sample.
    pub sampled: Sampled<'g>,
    /// log q and log p of the sampled code, [rows, 1] each.
    pub log_q: Var<'g>,
    /// log p of the sampled code, [rows, 1].
    pub log_p: Var<'g>,
}

impl<'g> Codebook<'g> {
    /// The `codes` codes of the codebook `name`, drawn into the builder's graph.
    pub fn draw(builder: &Builder<'g>, name: &str, codes: usize) -> Self {
        let (g, d) = (builder.graph, builder.config.embed);
        let scale = builder.config.code_scale as f32;
        let mu = g.param(&format!("{name}.mean"), &[codes, d], Init::Normal(scale));
        let logvar = match builder.config.sigma {
            Sigma::Diagonal => g.param(&format!("{name}.logvar"), &[codes, d], Init::Constant(0.0)),
            Sigma::Isotropic => g
                .param(&format!("{name}.logvar"), &[codes, 1], Init::Constant(0.0))
                .broadcast(&[codes, d]),
            Sigma::Printed => g.param(&format!("{name}.logvar"), &[codes, 1], Init::Constant(0.0)),
            Sigma::One => g.full(0.0, &[codes, d]),
        };
        Codebook { mu, logvar }
    }

    /// The codes where the configuration has them start.
    pub fn starting(self, builder: &Builder<'g>, batch: &FirstBatch<'g>) -> Self {
        let scale = builder.config.code_scale as f32;
        // Two codes may be given the same embedding; a little of the noise keeps them apart.
        let place = |found: Var<'g>| found * scale + self.mu * 0.1;
        match builder.config.code_start {
            CodeStart::Normal => self,
            CodeStart::Embeddings => Codebook {
                mu: batch.start(builder, self.mu, place),
                ..self
            },
        }
    }

    /// Samples q, the responsibilities for `e_q`. A direct prior and variances as printed have tensors as wide as the
    /// codebook, the others none.
    pub fn sample(&self, e_q: Var<'g>, prior: Prior<'g>, how: Sampling<'g>) -> Sampled<'g> {
        let e_p = match prior {
            // The fused operation counts a log-variance for every dimension.
            _ if self.logvar.dim(1) < self.mu.dim(1) => {
                return self.sample_slowly(e_q, prior, how).sampled;
            }
            Prior::Uniform => None,
            Prior::Embedding(e_p) => Some(e_p),
            Prior::Direct(_) => return self.sample_slowly(e_q, prior, how).sampled,
        };
        let (mu, logvar, tau, noise_scale) = (self.mu, self.logvar, how.tau, how.noise_scale);
        Embeddings {
            e_q,
            e_p,
            mu,
            logvar,
            tau,
            noise_scale,
        }
        .sample(how.mode, how.stream)
    }

    /// Samples the prior: means of the codes, [rows, d_e], and the codes, [rows, 1].
    pub fn sample_prior(
        &self,
        prior: Prior<'g>,
        rows: usize,
        how: Sampling<'g>,
    ) -> (Var<'g>, Var<'g>) {
        let index = match prior {
            Prior::Uniform => any_code(self.mu, rows, how.stream),
            // Sampling q = p is sampling p.
            Prior::Embedding(e_p) => {
                let Sampled { z, index, .. } = self.sample(e_p, prior, how);
                return (z, index);
            }
            Prior::Direct(logits) => {
                let noise = gumbel(self.mu, rows, how.stream);
                (logits.log_softmax() + noise * how.noise_scale).argmax_last()
            }
        };
        (self.mu.gather(index), index)
    }

    /// log π_k = −½ Σ_d [(e_d − μ_kd)² / σ²_kd + log σ²_kd], normalised over k: [rows, K].
    pub fn log_responsibilities(&self, e: Var<'g>) -> Var<'g> {
        let (codes, d) = (self.mu.dim(0), self.mu.dim(1));
        let inverse = (-self.logvar).exp();
        let (inverse, constant) = match self.logvar.dim(1) < d {
            true => {
                let inverse = inverse.broadcast(&[codes, d]);
                (
                    inverse,
                    (self.mu.square() * inverse).sum_last() + self.logvar,
                )
            }
            false => {
                let each = self.mu.square() * inverse + self.logvar;
                (inverse, each.sum_last())
            }
        };
        let constant = constant.reshape(&[1, codes]);
        let logits = e.matmul(self.mu * inverse, false, true)
            - e.square().matmul(inverse, false, true) * 0.5
            - constant * 0.5;
        logits.log_softmax()
    }

    /// [`Codebook::sample`] out of plain operations, with the log probabilities of the sample.
    pub fn sample_slowly(&self, e_q: Var<'g>, prior: Prior<'g>, how: Sampling<'g>) -> Weighed<'g> {
        let g = self.mu.graph();
        let (rows, codes) = (e_q.dim(0), self.mu.dim(0));
        let log_q = self.log_responsibilities(e_q);
        let log_p = match prior {
            Prior::Uniform => g.full(-(codes as f32).ln(), &[rows, codes]),
            Prior::Embedding(e_p) => self.log_responsibilities(e_p),
            Prior::Direct(logits) => logits.log_softmax(),
        };
        let noise = gumbel(self.mu, rows, how.stream);
        let noisy = log_q + noise * how.noise_scale;
        let relaxed = (noisy / how.tau).softmax();
        let hard = noisy.equal(noisy.max_last()).detach();
        let y = match how.mode {
            SampleMode::Relaxed => relaxed,
            SampleMode::StraightThrough => hard + relaxed - relaxed.detach(),
            SampleMode::ReinMax => reinmax(log_q, hard, how.tau),
        };
        let z = y.matmul(self.mu, false, false);
        let kl = (log_q.exp() * (log_q - log_p)).sum_last();
        let sampled = Sampled {
            z,
            index: noisy.argmax_last(),
            kl,
        };
        Weighed {
            sampled,
            log_q: (hard * log_q).sum_last(),
            log_p: (hard * log_p).sum_last(),
        }
    }
}

/// `model.latent = "code"`: codes by their responsibilities, the paper's own latent.
pub struct Kind;

impl Kind {
    fn book<'g>(&self, at: &LayerInputs<'_, 'g>) -> Codebook<'g> {
        Codebook::draw(at.builder, &at.codebook(), at.config().codes.at(at.layer))
    }

    /// What the prior makes of e_θ = pstrap_ℓ(d_{ℓ+1}).
    fn prior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Prior<'g> {
        let config = at.config();
        let (width, of): (usize, fn(Var<'g>) -> Prior<'g>) = match config.prior {
            PriorKind::Embedding => (config.embed, Prior::Embedding),
            PriorKind::Direct => (config.codes.at(at.layer), Prior::Direct),
        };
        at.prior(width).map_or(Prior::Uniform, of)
    }
}

impl Latent for Kind {
    fn name(&self) -> &'static str {
        "code"
    }

    fn about(&self) -> &'static str {
        "a code by responsibilities (rVQ, RRVQ)"
    }

    fn describe(&self, config: &ModelConfig, layers: &str) -> String {
        let prior = match (config.prior, config.top, config.layers()) {
            (_, Top::Uniform, 1) => "uniform",
            (PriorKind::Embedding, ..) => "embedding",
            (PriorKind::Direct, ..) => "direct",
        };
        let variances = match config.sigma {
            Sigma::One => "variances 1",
            Sigma::Isotropic => "one variance a code",
            Sigma::Printed => "one variance a code, as printed",
            Sigma::Diagonal => "learnt variances",
        };
        format!("codes in {layers}, {prior} prior, {variances}")
    }

    fn bits(&self, config: &ModelConfig, layer: usize) -> Option<f64> {
        Some((config.codes.at(layer) as f64).log2())
    }

    fn coded(&self) -> Option<&dyn Coded> {
        Some(self)
    }

    fn has_scores(&self) -> bool {
        true
    }

    fn can_split(&self) -> bool {
        true
    }

    fn has_embeddings(&self) -> bool {
        true
    }

    fn instability(&self, config: &ModelConfig) -> Option<&'static str> {
        // The paper found this one ablation unstable too.
        let known = config.prior == PriorKind::Direct && config.sigma != Sigma::One;
        known.then_some(
            "a direct prior with learnt variances is known to be unstable: model.sigma=\"one\" is steadier",
        )
    }

    /// p(z_ℓ | z_>ℓ) are the responsibilities for e_θ (eq. rr_p), q(z_ℓ | z_>ℓ, x) those for
    /// e_φ = qladder_ℓ(d̂_ℓ) + qstrap_ℓ(d_{ℓ+1}) (eq. rr_q), of the same codes.
    fn draw<'g>(&self, at: &LayerInputs<'_, 'g>) -> Drawn<'g> {
        let book = self.book(at);
        let p = self.prior(at);
        let Some(e_q) = at.posterior(at.config().embed) else {
            let (z, index) = book.sample_prior(p, at.rows(), at.sampling);
            return Drawn::generated(z, Some(index));
        };
        if !at.mode.weighs() {
            let book = book.starting(at.builder, &at.first_batch(e_q));
            let Sampled { z, index, kl } = book.sample(e_q, p, at.sampling);
            // ln K − KL(q ‖ uniform); drawn and left out where nobody asks.
            let from_uniform = book.sample(e_q, Prior::Uniform, at.sampling).kl;
            let most = (book.mu.dim(0) as f32).ln();
            return Drawn {
                code: Some(index),
                entropy: Some(-from_uniform + most),
                embedding: Some(e_q),
                ..Drawn::new(z, kl)
            };
        }
        let Weighed {
            sampled: Sampled { z, index, kl },
            log_p,
            log_q,
        } = book.sample_slowly(e_q, p, at.sampling);
        let z = match at.mode {
            DrawMode::Scored => book.mu.gather(index),
            _ => z,
        };
        Drawn {
            code: Some(index),
            weight: Some(Weight { log_p, log_q }),
            ..Drawn::new(z, kl)
        }
    }
}

impl Coded for Kind {
    fn codes(&self, config: &ModelConfig, layer: usize) -> usize {
        config.codes.at(layer)
    }

    fn certain(&self) -> bool {
        false
    }

    fn has_codebook(&self) -> bool {
        true
    }

    fn log_prior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Option<Var<'g>> {
        match self.prior(at) {
            Prior::Uniform => None,
            Prior::Embedding(e) => Some(self.book(at).log_responsibilities(e)),
            Prior::Direct(logits) => Some(logits.log_softmax()),
        }
    }

    fn log_posterior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Var<'g> {
        let e = at.posterior(at.config().embed).expect("an image is given");
        self.book(at).log_responsibilities(e)
    }

    fn embed<'g>(&self, at: &LayerInputs<'_, 'g>, index: Var<'g>) -> Var<'g> {
        self.book(at).mu.gather(index)
    }
}
