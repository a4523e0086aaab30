//! Up pass, down pass, ELBO.
//!
//! The down pass is written once, out of the pieces in `steps`. What differs between inference and generation is
//! where a layer's sample comes from ([`Posterior`]): q in inference, p in generation.

use super::backbone::{Pen, Resize};
use super::layer::{Latent, Look, Spot, Weight};
use crate::config::{Backbone, LatentKind, ModelConfig, Sample};
use crate::latent::nearest::Moved;
use crate::latent::responsibility::Sampling;
use crate::likelihood::Pixels;
use rrvq_tensor::optim::Optimiser;
use rrvq_tensor::{DType, Graph, Var};

/// A model on a drawing surface.
pub struct Hierarchy<'g> {
    pub pen: Pen<'g>,
    /// Sides of each layer's map of latents, and of its features.
    pub(super) sides: Vec<usize>,
    pub(super) features: Vec<usize>,
    /// Images, and samples of each.
    images: usize,
    particles: usize,
    /// Both multiplied: how many times the down pass is made.
    pub(super) batch: usize,
}

/// The pieces of the ELBO, bottom layer first.
pub struct Elbo<'g> {
    /// log p(x | z) of each image in nats, [n, 1].
    pub log_likelihood: Var<'g>,
    /// KL of each layer and image in nats, [n, 1] each.
    pub kl: Vec<Var<'g>>,
    /// What the layers below see of each layer's sample, [n · M, d_e].
    pub samples: Vec<Var<'g>>,
    /// The sampled codes of each layer, [n · M, 1]; none where latents are not codes.
    pub codes: Vec<Var<'g>>,
    /// What training adds to the ELBO, in nats an image, [n, 1]: the losses of nearest codes.
    pub penalty: Option<Var<'g>>,
    /// Where averages move the codebooks: what a training step makes of them.
    pub moved: Vec<Moved<'g>>,
    /// Mean of each pixel, in bytes: 0 … 255, [n, h, w, channels].
    pub picture: Var<'g>,
    /// log p(x, z) − log q(z | x) of the sample, [n, 1]; only where it was asked for.
    pub log_weight: Option<Var<'g>>,
    /// log q(z | x) of the sample, likewise.
    pub log_q: Option<Var<'g>>,
}

/// Where the samples of the down pass come from.
#[derive(Clone, Copy)]
struct Posterior<'a, 'g> {
    /// Up-pass features of each layer, bottom first; without them, samples come from the prior.
    up: Option<&'a [Var<'g>]>,
    /// Codes of each layer, bottom first, [n · M, 1]; with them, nothing is sampled.
    given: Option<&'a [Var<'g>]>,
    look: Look,
}

/// What the down pass gives.
struct Down<'g> {
    features: Var<'g>,
    latents: Vec<Latent<'g>>,
    /// Of each layer's samples, where asked for.
    weights: Vec<Weight<'g>>,
}

impl<'g> Hierarchy<'g> {
    pub fn new(graph: &'g Graph, config: &'g ModelConfig, batch: usize) -> Self {
        Self::with_pen(Pen::new(graph, config), batch)
    }

    pub fn with_pen(pen: Pen<'g>, batch: usize) -> Self {
        Hierarchy {
            sides: pen.config.sides(),
            features: Self::feature_sides(&pen),
            images: batch,
            particles: 1,
            batch,
            pen,
        }
    }

    /// The same with `particles` samples of each image, all first ones before all second ones.
    pub fn with_particles(mut self, particles: usize) -> Self {
        self.particles = particles;
        self.batch = self.images * particles;
        self
    }

    pub fn particles(&self) -> usize {
        self.particles
    }

    /// The input all programs that look at images share.
    pub fn images(&self) -> Var<'g> {
        let c = self.pen.config;
        self.pen.graph.input(
            "images",
            &[self.images, c.size, c.size, c.image_channels],
            DType::U8,
        )
    }

    /// The ELBO as training sees it.
    pub fn training_elbo(&self) -> Elbo<'g> {
        let relaxed = self.pen.config.sample == Sample::Relaxed;
        self.elbo(Look::Train { relaxed })
    }

    /// The ELBO with hard samples, the only one that is reported.
    pub fn hard_elbo(&self) -> Elbo<'g> {
        self.elbo(Look::Hard)
    }

    /// The same with the log weight of the sample, for the importance bound.
    pub fn weighed_elbo(&self) -> Elbo<'g> {
        self.elbo(Look::Weighed)
    }

    /// The same for an estimator that scores samples instead of looking through them.
    pub fn scored_elbo(&self) -> Elbo<'g> {
        self.elbo(Look::Scored)
    }

    fn elbo(&self, look: Look) -> Elbo<'g> {
        let bytes = self.images().to_f32();
        let up = self.up(bytes);
        let up: Vec<Var<'g>> = up
            .into_iter()
            .map(|map| self.for_each_particle(map))
            .collect();
        let bytes = self.for_each_particle(bytes);
        let mut down = self.down(Posterior {
            up: Some(&up),
            given: None,
            look,
        });
        let pixels = self.decode(down.features);
        let log_likelihood = pixels.log_likelihood(bytes);
        let n = self.batch;
        let per_image = |rows: Var<'g>| rows.reshape(&[n, rows.size() / n]).sum_last();
        let log_weight = look.weighs().then(|| {
            let of_layer = |w: &Weight<'g>| per_image(w.log_p - w.log_q);
            let layers = down.weights.iter().map(of_layer);
            layers.fold(log_likelihood, |sum, w| sum + w)
        });
        Elbo {
            log_likelihood,
            samples: down.latents.iter().map(|l| l.z).collect(),
            kl: down.latents.iter().map(|l| per_image(l.kl)).collect(),
            codes: down.latents.iter().filter_map(|l| l.code).collect(),
            penalty: down
                .latents
                .iter()
                .filter_map(|l| l.penalty.map(per_image))
                .reduce(|a, b| a + b),
            moved: down
                .latents
                .iter_mut()
                .filter_map(|l| l.moved.take())
                .collect(),
            picture: to_bytes(pixels.mean()),
            log_weight,
            log_q: down
                .weights
                .iter()
                .map(|w| per_image(w.log_q))
                .reduce(|a, b| a + b),
        }
    }

    /// A map of each image as one of each sample.
    fn for_each_particle(&self, map: Var<'g>) -> Var<'g> {
        let mut shape = map.shape();
        shape[0] *= self.particles;
        map.reshape(&[1, map.size()])
            .broadcast(&[self.particles, map.size()])
            .reshape(&shape)
    }

    /// Pictures from the prior, one top-down pass: means of the pixels in bytes.
    pub fn generate(&self) -> Var<'g> {
        let down = self.down(Posterior {
            up: None,
            given: None,
            look: Look::Hard,
        });
        to_bytes(self.decode(down.features).mean())
    }

    /// Pictures of given codes, [n · M, 1] for each layer, bottom first: means of the pixels in bytes.
    pub fn picture_of(&self, codes: &[Var<'g>]) -> Var<'g> {
        let down = self.down(Posterior {
            up: None,
            given: Some(codes),
            look: Look::Hard,
        });
        to_bytes(self.decode(down.features).mean())
    }

    /// d̂_1 = enc_1(x), d̂_ℓ = enc_ℓ(d̂_{ℓ−1}).
    pub(super) fn up(&self, bytes: Var<'g>) -> Vec<Var<'g>> {
        let pen = &self.pen;
        let c = pen.config.channels;
        // Pixel centres in (−1, 1).
        let x = (bytes + 0.5) * (1.0 / 128.0) - 1.0;
        let mut h = match pen.config.backbone {
            Backbone::Convolution => pen.conv("enc.1", x, c, 3, 2),
            Backbone::Mlp => pen.dense_image("enc.1", x),
        };
        let mut step = 0;
        while h.dim(1) > self.features[0] {
            step += 1;
            h = pen.conv(&format!("enc.1.down{step}"), h.elu(), c, 3, 2);
        }
        let mut features = vec![h];
        for layer in 1..self.features.len() {
            let shrinks = self.features[layer] < self.features[layer - 1];
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
                    relaxed: posterior.look == Look::Train { relaxed: true },
                    stream: layer as u32,
                },
                look: posterior.look,
            };
            let (latent, weight) = match pen.config.latent {
                _ if posterior.given.is_some() => (self.given(&spot, posterior.given), None),
                LatentKind::Code => self.code(&spot),
                LatentKind::Nearest => self.nearest(&spot),
                LatentKind::Gaussian => self.gaussian(&spot),
                LatentKind::Bernoulli => self.bits(&spot),
            };
            weights.extend(weight);
            let z = latent.z;
            if posterior.up.is_some() {
                latents.push(latent);
            }
            d = self.below(layer, d, z);
        }
        latents.reverse();
        Down {
            features: d,
            latents,
            weights,
        }
    }

    /// dec_1: a transposed convolution in its sub-pixel form, then the likelihood.
    pub(super) fn decode(&self, d: Var<'g>) -> Pixels<'g> {
        let (pen, config) = (&self.pen, self.pen.config);
        let factor = config.size / self.features[0];
        let channels = Pixels::channels(config) * factor * factor;
        let raw = pen.picture_conv("dec.1", d.elu(), channels);
        Pixels::draw(pen, raw.depth_to_space(factor))
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

impl<'g> Elbo<'g> {
    /// Draws what a training step changes: parameters by the gradient of `loss`, codebooks that follow averages by the
    /// batch. Returns the gradient's global norm.
    pub fn descend(&self, optimiser: &Optimiser, loss: Var<'g>) -> Var<'g> {
        let g = loss.graph();
        let means: Vec<(String, Var<'g>)> = self.moved.iter().map(|m| m.mean.clone()).collect();
        for (memory, value) in self.moved.iter().flat_map(|m| &m.memories) {
            g.assign(&memory.name, *value);
        }
        optimiser.draw_setting(loss, &means)
    }
}

/// Dimensions of an image: samples of all channels.
pub fn dims(config: &ModelConfig) -> usize {
    config.size * config.size * config.image_channels
}

/// Nats an image that make one bit a dimension.
pub fn nats_per_dim(config: &ModelConfig) -> f64 {
    dims(config) as f64 * std::f64::consts::LN_2
}
