//! Up pass, down pass, ELBO.
//!
//! The down pass is written once. What differs between inference and generation is where a layer's sample
//! comes from ([`Posterior`]): q in inference, p in generation.

use super::backbone::{Pen, Resize};
use crate::config::{ModelConfig, Sample, Top};
use crate::latent::responsibility::{Codebook, Sampling, Weighed};
use crate::likelihood::Pixels;
use rrvq_tensor::op::Sampled;
use rrvq_tensor::{DType, Graph, Init, Var};

/// A model on a drawing surface.
pub struct Hierarchy<'g> {
    pub pen: Pen<'g>,
    sides: Vec<usize>,
    batch: usize,
}

/// The pieces of the ELBO, bottom layer first.
pub struct Elbo<'g> {
    /// log p(x | z) of each image in nats, [n, 1].
    pub log_likelihood: Var<'g>,
    /// KL of each layer and image in nats, [n, 1] each.
    pub kl: Vec<Var<'g>>,
    /// The sampled codes of each layer, [n · M, 1].
    pub codes: Vec<Var<'g>>,
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

/// What the down pass gives.
struct Down<'g> {
    features: Var<'g>,
    latents: Vec<Sampled<'g>>,
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
            codes: down.latents.iter().map(|l| l.index).collect(),
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
    fn up(&self, bytes: Var<'g>) -> Vec<Var<'g>> {
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
        let (pen, g, n) = (&self.pen, self.pen.graph, self.batch);
        let (c, embed) = (pen.config.channels, pen.config.embed);
        let layers = self.sides.len();
        let top = self.sides[layers - 1];
        let start = g.param("top", &[1, top, top, c], Init::Constant(0.0));
        let mut d = start.broadcast(&[n, top, top, c]);
        let (tau, noise_scale) = (g.scalar_input("tau"), g.scalar_input("noise_scale"));
        let (mut latents, mut weights) = (Vec::new(), Vec::new());
        for layer in (0..layers).rev() {
            let name = format!("layer.{}", layer + 1);
            let side = self.sides[layer];
            let rows = |map: Var<'g>| map.reshape(&[n * side * side, embed]);
            let grows = layer + 1 < layers && side > self.sides[layer + 1];
            let uniform = layer + 1 == layers && pen.config.top == Top::Uniform;
            let book = Codebook::draw(pen, &format!("{name}.codes"), pen.config.codes.at(layer));
            let how = Sampling {
                tau,
                noise_scale,
                relaxed: posterior.relaxed,
                stream: layer as u32,
            };

            let e_p = (!uniform).then(|| rows(pen.strap(&format!("{name}.pstrap"), d, grows)));
            let z = match posterior.up {
                Some(up) => {
                    let e_q = pen.qladder(&format!("{name}.qladder"), up[layer])
                        + pen.strap(&format!("{name}.qstrap"), d, grows);
                    let latent = match posterior.weigh {
                        false => book.sample(rows(e_q), e_p, how),
                        true => {
                            let Weighed {
                                sampled,
                                log_q,
                                log_p,
                            } = book.sample_slowly(rows(e_q), e_p, how);
                            weights.push(log_p - log_q);
                            sampled
                        }
                    };
                    latents.push(latent);
                    latent.z
                }
                None => match e_p {
                    // Sampling q = p is sampling p.
                    Some(e_p) => book.sample(e_p, Some(e_p), how).z,
                    None => book.sample_uniform(n * side * side, layer as u32),
                },
            };
            let resize = if grows { Resize::Up } else { Resize::Same };
            let identity = pen.blocks(&format!("dec.{}", layer + 2), d, pen.config.blocks, resize);
            d = identity
                + pen.pladder(
                    &format!("{name}.pladder"),
                    z.reshape(&[n, side, side, embed]),
                );
        }
        latents.reverse();
        Down {
            features: d,
            latents,
            weights,
        }
    }

    /// dec_1: a transposed convolution in its sub-pixel form, then the likelihood.
    fn decode(&self, d: Var<'g>) -> Pixels<'g> {
        let (pen, config) = (&self.pen, self.pen.config);
        let factor = config.size / self.sides[0];
        let channels = Pixels::channels(config) * factor * factor;
        let raw = pen.picture_conv("dec.1", d.elu(), channels);
        Pixels::draw(pen, raw.depth_to_space(factor))
    }
}

/// Means as bytes.
fn to_bytes<'g>(mean: Var<'g>) -> Var<'g> {
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
        nats * (1.0 / nats_per_dim(config)) as f32
    }
}

/// Nats an image that make one bit a dimension.
pub fn nats_per_dim(config: &ModelConfig) -> f64 {
    (config.size * config.size * config.image_channels) as f64 * std::f64::consts::LN_2
}
