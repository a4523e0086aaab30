//! Up pass, down pass, ELBO.
//!
//! The down pass is written once, out of the pieces in [`super::steps`]. What differs between inference and generation is where a layer's sample
//! comes from ([`Posterior`]): q in inference, p in generation.

use super::backbone::{Pen, Resize};
use crate::config::{LatentKind, ModelConfig, Sample, Top};
use crate::latent::gaussian::Gaussian;
use crate::latent::responsibility::{Sampling, any_code};
use crate::likelihood::Pixels;
use rrvq_tensor::op::Sampled;
use rrvq_tensor::{DType, Graph, Var};

/// A model on a drawing surface.
pub struct Hierarchy<'g> {
    pub pen: Pen<'g>,
    pub(super) sides: Vec<usize>,
    pub(super) batch: usize,
}

/// The pieces of the ELBO, bottom layer first.
pub struct Elbo<'g> {
    /// log p(x | z) of each image in nats, [n, 1].
    pub log_likelihood: Var<'g>,
    /// KL of each layer and image in nats, [n, 1] each.
    pub kl: Vec<Var<'g>>,
    /// The sampled codes of each layer, [n · M, 1]; none where latents are Gaussians.
    pub codes: Vec<Var<'g>>,
    /// What training adds to the ELBO, in nats an image, [n, 1]: the losses of nearest codes.
    pub penalty: Option<Var<'g>>,
    /// Mean of each pixel, in bytes: 0 … 255, [n, h, w, channels].
    pub picture: Var<'g>,
    /// log p(x, z) − log q(z | x) of the sample, [n, 1]; only where it was asked for.
    pub log_weight: Option<Var<'g>>,
}

/// Where the samples of the down pass come from.
#[derive(Clone, Copy)]
struct Posterior<'a, 'g> {
    /// Up-pass features of each layer, bottom first; without them, samples come from the prior.
    up: Option<&'a [Var<'g>]>,
    relaxed: bool,
    /// Draw the log probability of every sample, at the price of K-wide tensors.
    weigh: bool,
}

/// Where in the down pass a latent is drawn.
struct Spot<'g> {
    layer: usize,
    /// Features from above.
    d: Var<'g>,
    /// Features of the up pass; without them, samples come from the prior.
    up: Option<Var<'g>>,
    how: Sampling<'g>,
}

/// What a layer's sample is to the rest of the model.
#[derive(Clone, Copy)]
struct Latent<'g> {
    /// [rows, d_e].
    z: Var<'g>,
    /// Nats of each row, [rows, 1].
    kl: Var<'g>,
    code: Option<Var<'g>>,
    /// Nats of each row that training adds, [rows, 1].
    penalty: Option<Var<'g>>,
}

impl<'g> From<Sampled<'g>> for Latent<'g> {
    fn from(sampled: Sampled<'g>) -> Self {
        Latent {
            z: sampled.z,
            kl: sampled.kl,
            code: Some(sampled.index),
            penalty: None,
        }
    }
}

/// What the down pass gives.
struct Down<'g> {
    features: Var<'g>,
    latents: Vec<Latent<'g>>,
    /// log p − log q of each layer's samples, where asked for.
    weights: Vec<Var<'g>>,
}

impl<'g> Hierarchy<'g> {
    pub fn new(graph: &'g Graph, config: &'g ModelConfig, batch: usize) -> Self {
        Self::with_pen(Pen::new(graph, config), batch)
    }

    pub fn with_pen(pen: Pen<'g>, batch: usize) -> Self {
        let sides = pen.config.sides();
        Hierarchy { pen, sides, batch }
    }

    /// The input all programs that look at images share.
    pub fn images(&self) -> Var<'g> {
        let c = self.pen.config;
        self.pen.graph.input(
            "images",
            &[self.batch, c.size, c.size, c.image_channels],
            DType::U8,
        )
    }

    /// The ELBO as training sees it.
    pub fn training_elbo(&self) -> Elbo<'g> {
        let relaxed = self.pen.config.sample == Sample::Relaxed;
        self.elbo(self.images(), relaxed, false)
    }

    /// The ELBO with hard samples, the only one that is reported.
    pub fn hard_elbo(&self) -> Elbo<'g> {
        self.elbo(self.images(), false, false)
    }

    /// The same with the log weight of the sample, for the importance bound.
    pub fn weighed_elbo(&self) -> Elbo<'g> {
        self.elbo(self.images(), false, true)
    }

    fn elbo(&self, images: Var<'g>, relaxed: bool, weigh: bool) -> Elbo<'g> {
        let bytes = images.to_f32();
        let up = self.up(bytes);
        let down = self.down(Posterior {
            up: Some(&up),
            relaxed,
            weigh,
        });
        let pixels = self.decode(down.features);
        let log_likelihood = pixels.log_likelihood(bytes);
        let n = self.batch;
        let per_image = |rows: Var<'g>| rows.reshape(&[n, rows.size() / n]).sum_last();
        let log_weight = weigh.then(|| {
            down.weights
                .iter()
                .fold(log_likelihood, |sum, &w| sum + per_image(w))
        });
        Elbo {
            log_likelihood,
            kl: down.latents.iter().map(|l| per_image(l.kl)).collect(),
            codes: down.latents.iter().filter_map(|l| l.code).collect(),
            penalty: down
                .latents
                .iter()
                .filter_map(|l| l.penalty.map(per_image))
                .reduce(|a, b| a + b),
            picture: to_bytes(pixels.mean()),
            log_weight,
        }
    }

    /// Pictures from the prior, one top-down pass: means of the pixels in bytes.
    pub fn generate(&self) -> Var<'g> {
        let down = self.down(Posterior {
            up: None,
            relaxed: false,
            weigh: false,
        });
        to_bytes(self.decode(down.features).mean())
    }

    /// d̂_1 = enc_1(x), d̂_ℓ = enc_ℓ(d̂_{ℓ−1}).
    pub(super) fn up(&self, bytes: Var<'g>) -> Vec<Var<'g>> {
        let pen = &self.pen;
        let c = pen.config.channels;
        // Pixel centres in (−1, 1).
        let x = (bytes + 0.5) * (1.0 / 128.0) - 1.0;
        let mut h = pen.conv("enc.1", x, c, 3, 2);
        let mut step = 0;
        while h.dim(1) > self.sides[0] {
            step += 1;
            h = pen.conv(&format!("enc.1.down{step}"), h.elu(), c, 3, 2);
        }
        let mut features = vec![h];
        for layer in 1..self.sides.len() {
            let shrinks = self.sides[layer] < self.sides[layer - 1];
            let resize = if shrinks { Resize::Down } else { Resize::Same };
            h = pen.blocks(&format!("enc.{}", layer + 1), h, pen.config.blocks, resize);
            features.push(h);
        }
        features
    }

    /// d_ℓ = dec_{ℓ+1}(d_{ℓ+1}) + pladder_ℓ(μ[z_ℓ]), from the learnt d_{L+1} down to d_1.
    fn down(&self, posterior: Posterior<'_, 'g>) -> Down<'g> {
        let (pen, g) = (&self.pen, self.pen.graph);
        let mut d = self.top();
        let (tau, noise_scale) = (g.scalar_input("tau"), g.scalar_input("noise_scale"));
        let (mut latents, mut weights) = (Vec::new(), Vec::new());
        for layer in (0..self.layers()).rev() {
            let spot = Spot {
                layer,
                d,
                up: posterior.up.map(|up| up[layer]),
                how: Sampling {
                    tau,
                    noise_scale,
                    relaxed: posterior.relaxed,
                    stream: layer as u32,
                },
            };
            let (latent, weight) = match pen.config.latent {
                LatentKind::Code => self.code(&spot, posterior.weigh),
                LatentKind::Nearest => self.nearest(&spot, posterior.weigh),
                LatentKind::Gaussian => self.gaussian(&spot, posterior.weigh),
            };
            weights.extend(weight);
            if posterior.up.is_some() {
                latents.push(latent);
            }
            d = self.below(layer, d, latent.z);
        }
        latents.reverse();
        Down {
            features: d,
            latents,
            weights,
        }
    }

    /// qladder + qstrap, where there is something to infer from.
    fn posterior(&self, spot: &Spot<'g>, out: usize) -> Option<Var<'g>> {
        let ladder = self.qladder(spot.layer, spot.up?, out);
        Some(self.posterior_rows(spot.layer, spot.d, ladder, out))
    }

    /// A layer of codes, and log p − log q of its samples where asked for.
    fn code(&self, spot: &Spot<'g>, weigh: bool) -> (Latent<'g>, Option<Var<'g>>) {
        let embed = self.pen.config.embed;
        let book = self.book(spot.layer);
        let prior = self.code_prior(spot.layer, spot.d);
        match self.posterior(spot, embed) {
            Some(e_q) if weigh => {
                let w = book.sample_slowly(e_q, prior, spot.how);
                (w.sampled.into(), Some(w.log_p - w.log_q))
            }
            Some(e_q) => (book.sample(e_q, prior, spot.how).into(), None),
            None => {
                let z = book.sample_prior(prior, self.rows(spot.layer), spot.how);
                (generated(z), None)
            }
        }
    }

    /// A layer of nearest codes, likewise.
    fn nearest(&self, spot: &Spot<'g>, weigh: bool) -> (Latent<'g>, Option<Var<'g>>) {
        let config = self.pen.config;
        let book = self.nearest_book(spot.layer);
        match self.posterior(spot, config.embed) {
            Some(e) => {
                let found = book.quantise(e, config.commitment as f32);
                let latent = Latent {
                    penalty: Some(found.penalty),
                    ..found.sampled.into()
                };
                // The posterior is certain: log p − log q is −ln K.
                (latent, weigh.then(|| -latent.kl))
            }
            None => {
                let rows = self.rows(spot.layer);
                (generated(any_code(book.mu, rows, spot.how.stream)), None)
            }
        }
    }

    /// A layer of Gaussians, likewise.
    fn gaussian(&self, spot: &Spot<'g>, weigh: bool) -> (Latent<'g>, Option<Var<'g>>) {
        let embed = self.pen.config.embed;
        let (out, rows) = (2 * embed, self.rows(spot.layer));
        let Sampling {
            noise_scale,
            stream,
            ..
        } = spot.how;
        let fixed = spot.layer + 1 == self.layers() && self.pen.config.top == Top::Uniform;
        let prior = match fixed {
            true => Gaussian::standard(self.pen.graph, rows, embed),
            false => Gaussian::from_rows(self.pstrap(spot.layer, spot.d, out)),
        };
        match self.posterior(spot, out) {
            Some(rows) => {
                let drawn = Gaussian::from_rows(rows).draw(prior, noise_scale, stream);
                let latent = Latent {
                    z: drawn.z,
                    kl: drawn.kl,
                    code: None,
                    penalty: None,
                };
                (latent, weigh.then_some(drawn.log_weight))
            }
            None => (generated(prior.sample(noise_scale, stream)), None),
        }
    }

    /// dec_1: a transposed convolution in its sub-pixel form, then the likelihood.
    pub(super) fn decode(&self, d: Var<'g>) -> Pixels<'g> {
        let (pen, config) = (&self.pen, self.pen.config);
        let factor = config.size / self.sides[0];
        let channels = Pixels::channels(config) * factor * factor;
        let raw = pen.picture_conv("dec.1", d.elu(), channels);
        Pixels::draw(pen, raw.depth_to_space(factor))
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
    }
}

/// Means as bytes.
pub(super) fn to_bytes<'g>(mean: Var<'g>) -> Var<'g> {
    ((mean + 0.5) * 256.0 - 0.5).clamp(0.0, 255.0)
}

impl<'g> Elbo<'g> {
    /// What training lowers, in bits a dimension: free bits bound each layer's KL, averaged over the batch,
    /// from below.
    pub fn loss(&self, config: &ModelConfig) -> Var<'g> {
        self.weighted_loss(config, self.log_likelihood.graph().scalar(1.0))
    }

    /// The same with the KL counted `weight` times, for a warm-up of the KL.
    pub fn weighted_loss(&self, config: &ModelConfig, weight: Var<'g>) -> Var<'g> {
        let n = self.log_likelihood.dim(0) as f32;
        let g = self.log_likelihood.graph();
        let mut kl_total = g.scalar(0.0);
        for (layer, kl) in self.kl.iter().enumerate() {
            let mean = kl.sum() * (1.0 / n);
            let positions = (config.sides()[layer] * config.sides()[layer]) as f32;
            let floor = config.free_bits as f32 * positions;
            kl_total = kl_total
                + if floor > 0.0 {
                    mean.max(g.scalar(floor))
                } else {
                    mean
                };
        }
        let nats = kl_total * weight - self.log_likelihood.sum() * (1.0 / n);
        let nats = match self.penalty {
            Some(penalty) => nats + penalty.sum() * (1.0 / n),
            None => nats,
        };
        nats * (1.0 / nats_per_dim(config)) as f32
    }
}

/// Nats an image that make one bit a dimension.
pub fn nats_per_dim(config: &ModelConfig) -> f64 {
    (config.size * config.size * config.image_channels) as f64 * std::f64::consts::LN_2
}
