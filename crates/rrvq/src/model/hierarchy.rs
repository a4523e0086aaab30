//! Up pass, down pass, ELBO.
//!
//! The down pass is written once. What differs between inference and generation is where a layer's sample comes from: q
//! in inference, p in generation; both stand side by side in the `draw` of each kind of latent ([`crate::latent`]).

use crate::config::{Backbone, GrowLast, ModelConfig, TrainConfig};
use crate::latent::codebook::Moved;
use crate::latent::{self, DrawMode, Drawn, Evidence, Latent, LayerInputs, Sampling};
use crate::likelihood::{self, PixelValues, Pixels};
use crate::nn::{Builder, Geometry, Resize, layer_name};
use rrvq_tensor::SampleMode;
use rrvq_tensor::optim::{Exceptions, Optimiser};
use rrvq_tensor::{DType, Graph, Init, Var};

/// The name of the learnt features above the top layer, the only parameter of convolutions that has places.
pub const TOP: &str = "top";

/// A model drawn into a graph.
pub struct Hierarchy<'g> {
    /// What it is drawn with.
    pub builder: Builder<'g>,
    pub(super) geometry: Geometry,
    pub(super) latent: &'static dyn Latent,
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
    /// The same with every pixel given the latents alone, where the likelihood looks at other pixels too.
    pub log_likelihood_of_decoder: Option<Var<'g>>,
    /// KL of each layer and image in nats, [n, 1] each.
    pub kl: Vec<Var<'g>>,
    /// The same of each position, [n · M, 1] each.
    pub kl_rows: Vec<Var<'g>>,
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
    /// Squared error of the means, before they are clipped to 0 … 255, over all values of each image, [n, 1].
    pub squared_error: Var<'g>,
    /// log p(x | z) for the gradient of the likelihood's scales alone, where means can follow another objective.
    scales: Option<Var<'g>>,
    /// Entropy of the posterior over all layers, in nats, [n, 1]; none where the latents do not tell it.
    pub entropy: Option<Var<'g>>,
    /// The posterior's embeddings of each layer, [n · M, d_e], where codes answer for them.
    pub embeddings: Vec<Var<'g>>,
    /// log p(x, z) − log q(z | x) of the sample, [n, 1]; only where it was asked for.
    pub log_weight: Option<Var<'g>>,
    /// log q(z | x) of the sample, likewise.
    pub log_q: Option<Var<'g>>,
}

/// Where the samples of the down pass come from.
#[derive(Clone, Copy)]
enum Source<'a, 'g> {
    /// The posterior, from up-pass features of each layer, bottom first.
    Posterior(&'a [Var<'g>], DrawMode),
    /// Codes of the top layers, top first, [n · M, 1] each; the prior for the others.
    Prior(&'a [Var<'g>]),
}

impl<'g> Hierarchy<'g> {
    /// The model that `config` describes, for batches of `batch` images.
    pub fn new(graph: &'g Graph, config: &'g ModelConfig, batch: usize) -> Self {
        Self::with_builder(Builder::new(graph, config), batch)
    }

    /// The same with a builder that may initialise.
    pub fn with_builder(builder: Builder<'g>, batch: usize) -> Self {
        Hierarchy {
            geometry: Geometry::new(builder.config),
            latent: latent::of(builder.config),
            images: batch,
            particles: 1,
            batch,
            builder,
        }
    }

    /// The same with `particles` samples of each image, all first ones before all second ones.
    pub fn with_particles(mut self, particles: usize) -> Self {
        self.particles = particles;
        self.batch = self.images * particles;
        self
    }

    /// Samples of each image.
    pub fn particles(&self) -> usize {
        self.particles
    }

    /// The input all programs that look at images share.
    pub fn images(&self) -> Var<'g> {
        let c = self.builder.config;
        self.builder.graph.input(
            "images",
            &[self.images, c.size, c.size, c.image_channels],
            DType::U8,
        )
    }

    /// The ELBO as training sees it.
    pub fn training_elbo(&self) -> Elbo<'g> {
        self.elbo(DrawMode::Train)
    }

    /// The ELBO with hard samples, the only one that is reported.
    pub fn hard_elbo(&self) -> Elbo<'g> {
        self.elbo(DrawMode::Hard)
    }

    /// The same with the log weight of the sample, for the importance bound.
    pub fn weighed_elbo(&self) -> Elbo<'g> {
        self.elbo(DrawMode::Weighed)
    }

    /// The same for an estimator that scores samples instead of looking through them.
    pub fn scored_elbo(&self) -> Elbo<'g> {
        self.elbo(DrawMode::Scored)
    }

    fn elbo(&self, mode: DrawMode) -> Elbo<'g> {
        let bytes = self.images().to_f32();
        let up = self.up(bytes);
        let up: Vec<Var<'g>> = up
            .into_iter()
            .map(|map| self.for_each_particle(map))
            .collect();
        let bytes = self.for_each_particle(bytes);
        let (d, mut layers) = self.down(Source::Posterior(&up, mode));
        let pixels = self.decode(d);
        let log_likelihood = pixels.log_likelihood(bytes);
        let n = self.batch;
        let per_image = |rows: Var<'g>| rows.reshape(&[n, rows.size() / n]).sum_last();
        let weights: Vec<_> = layers.iter().filter_map(|l| l.weight).collect();
        let log_weight = mode.weighs().then(|| {
            let of_layers = weights.iter().map(|w| per_image(w.log_p - w.log_q));
            of_layers.fold(log_likelihood, |sum, w| sum + w)
        });
        Elbo {
            log_likelihood,
            log_likelihood_of_decoder: pixels.log_likelihood_of_decoder(bytes),
            samples: layers.iter().map(|l| l.z).collect(),
            kl: layers.iter().map(|l| per_image(l.kl)).collect(),
            kl_rows: layers.iter().map(|l| l.kl).collect(),
            codes: layers.iter().filter_map(|l| l.code).collect(),
            penalty: layers
                .iter()
                .filter_map(|l| l.penalty.map(per_image))
                .reduce(|a, b| a + b),
            moved: layers.iter_mut().filter_map(|l| l.moved.take()).collect(),
            picture: to_bytes(pixels.mean()),
            squared_error: {
                let error = in_bytes(pixels.mean()) - bytes;
                per_image(error * error)
            },
            scales: pixels.log_likelihood_of_scales(bytes),
            entropy: {
                let of_layers: Option<Vec<_>> = layers.iter().map(|l| l.entropy).collect();
                let sums = of_layers.into_iter().flatten().map(per_image);
                sums.reduce(|a, b| a + b)
            },
            embeddings: layers.iter().filter_map(|l| l.embedding).collect(),
            log_weight,
            log_q: weights
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

    /// Pictures from the prior, one top-down pass: what is asked for of their pixels.
    pub fn generate(&self, pixels: PixelValues) -> Var<'g> {
        self.complete(&[], pixels).0
    }

    /// Pictures of which the codes of the top layers are given, top first, [n · M, 1] each, and the prior draws the
    /// others: what is asked for of their pixels, and the codes of all layers, bottom first.
    pub fn complete(&self, given: &[Var<'g>], pixels: PixelValues) -> (Var<'g>, Vec<Var<'g>>) {
        let (d, layers) = self.down(Source::Prior(given));
        let codes = layers.iter().filter_map(|layer| layer.code).collect();
        let answer = match pixels {
            PixelValues::Means => self.shown(d),
            PixelValues::Drawn => self.decode(d).numbers(),
        };
        (answer, codes)
    }

    /// d̂_1 = enc_1(x), d̂_ℓ = enc_ℓ(d̂_{ℓ−1}).
    pub(super) fn up(&self, bytes: Var<'g>) -> Vec<Var<'g>> {
        let builder = &self.builder;
        let c = builder.config.channels;
        // Pixel centres in (−1, 1).
        let x = (bytes + 0.5) * (1.0 / 128.0) - 1.0;
        let mut h = match builder.config.backbone {
            Backbone::Convolution => builder.conv("enc.1", x, c, 3, 2),
            Backbone::Mlp => builder.dense_image("enc.1", x),
        };
        let mut step = 0;
        while h.dim(1) > self.geometry.features[0] {
            step += 1;
            h = builder.conv(&format!("enc.1.down{step}"), h.elu(), c, 3, 2);
        }
        let blocks = builder.config.data_blocks;
        h = builder.blocks("enc.1.blocks", h, blocks, Resize::Same);
        let mut features = vec![h];
        for layer in 1..self.geometry.layers() {
            let shrinks = self.geometry.features[layer] < self.geometry.features[layer - 1];
            let resize = if shrinks { Resize::Down } else { Resize::Same };
            let name = format!("enc.{}", layer + 1);
            h = builder.blocks(&name, h, builder.config.blocks, resize);
            features.push(h);
        }
        features
    }

    /// From the learnt d_{L+1} down to d_1, and what each layer drew on the way, bottom first.
    fn down(&self, source: Source<'_, 'g>) -> (Var<'g>, Vec<Drawn<'g>>) {
        let mut d = self.top();
        let mut layers = Vec::new();
        for layer in (0..self.layers()).rev() {
            let (evidence, mode) = match source {
                Source::Posterior(up, mode) => (Evidence::Features(up[layer]), mode),
                Source::Prior(_) => (Evidence::None, DrawMode::Hard),
            };
            let at = self.at(layer, d, evidence, mode);
            let given = match source {
                Source::Prior(top) => top.get(self.layers() - 1 - layer),
                Source::Posterior(..) => None,
            };
            let drawn = match given {
                Some(&codes) => Drawn::generated(self.embed(&at, codes), Some(codes)),
                None => self.latent.draw(&at),
            };
            d = self.below(layer, d, drawn.z);
            layers.push(drawn);
        }
        layers.reverse();
        (d, layers)
    }

    /// The learnt d_{L+1}, from which the down pass starts.
    pub fn top(&self) -> Var<'g> {
        let side = self.geometry.features[self.layers() - 1];
        let c = self.builder.config.channels;
        let start = Init::Constant(0.0);
        let top = self.builder.graph.param(TOP, &[1, side, side, c], start);
        top.broadcast(&[self.batch, side, side, c])
    }

    /// d_ℓ = dec_{ℓ+1}(d_{ℓ+1}) + pladder_ℓ(z), from the features above and the code means of the layer, [rows, d_e].
    pub fn below(&self, layer: usize, d: Var<'g>, z: Var<'g>) -> Var<'g> {
        let builder = &self.builder;
        let resize = match self.geometry.grows(layer) {
            true => Resize::Up,
            false => Resize::Same,
        };
        let name = format!("dec.{}", layer + 2);
        let identity = builder.blocks(&name, d, builder.config.blocks, resize);
        let z = z.reshape(&self.geometry.map(self.batch, layer, z.dim(1)));
        identity + builder.pladder(&format!("{}.pladder", layer_name(layer)), z)
    }

    /// What a layer's latent has around it.
    pub(super) fn at(
        &self,
        layer: usize,
        down: Var<'g>,
        evidence: Evidence<'g>,
        mode: DrawMode,
    ) -> LayerInputs<'_, 'g> {
        let (g, config) = (self.builder.graph, self.builder.config);
        LayerInputs {
            builder: &self.builder,
            geometry: &self.geometry,
            layer,
            batch: self.batch,
            down,
            evidence,
            mode,
            sampling: Sampling {
                tau: g.scalar_input("tau"),
                noise_scale: g.scalar_input("noise_scale"),
                mode: match mode {
                    DrawMode::Train => config.sample.mode(),
                    _ => SampleMode::StraightThrough,
                },
                stream: layer as u32,
            },
        }
    }

    /// How many layers of latents there are.
    pub fn layers(&self) -> usize {
        self.geometry.layers()
    }

    /// Positions of a layer in the whole batch.
    pub fn rows(&self, layer: usize) -> usize {
        self.batch * self.geometry.positions(layer)
    }

    /// dec_1: a transposed convolution in its sub-pixel form, then the likelihood, from d_1.
    pub fn decode(&self, d: Var<'g>) -> Box<dyn Pixels<'g> + 'g> {
        let (builder, config) = (&self.builder, self.builder.config);
        let kind = likelihood::of(config);
        let mut d = builder.blocks("dec.1.blocks", d, config.data_blocks, Resize::Same);
        let by_steps = config.grow_last == GrowLast::Steps;
        let by_steps = by_steps && config.backbone == Backbone::Convolution;
        let mut step = 0;
        while by_steps && 2 * d.dim(1) < config.size {
            step += 1;
            d = builder.grow(&format!("dec.1.up{step}"), d.elu(), config.channels);
        }
        let factor = config.size / d.dim(1);
        let channels = kind.channels(config) * factor * factor;
        let raw = builder.picture_conv("dec.1", d.elu(), channels);
        kind.pixels(builder, raw.depth_to_space(factor))
    }

    /// What is shown of it: the mean of each pixel, 0 … 255.
    pub fn shown(&self, d: Var<'g>) -> Var<'g> {
        to_bytes(self.decode(d).mean())
    }
}

/// Means as bytes.
pub(super) fn to_bytes<'g>(mean: Var<'g>) -> Var<'g> {
    in_bytes(mean).clamp(0.0, 255.0)
}

/// The same where a mean may lie beyond the last byte: that must not end its gradient.
fn in_bytes<'g>(mean: Var<'g>) -> Var<'g> {
    (mean + 0.5) * 256.0 - 0.5
}

impl<'g> Elbo<'g> {
    /// In a group, sums over all shards: KL of each layer, likelihood, penalty where there is one. All of them are one sum
    /// across processes.
    fn totals(&self) -> Option<Vec<Var<'g>>> {
        let g = self.log_likelihood.graph();
        g.group()?;
        let pieces = self.kl.iter().chain([&self.log_likelihood]);
        let sums: Vec<Var<'g>> = pieces.chain(&self.penalty).map(|v| v.sum()).collect();
        Some(g.all_sums(&sums))
    }

    /// One of the [totals](Self::totals), or the sum of what it is the total of.
    fn total(&self, index: usize, own: Var<'g>) -> Var<'g> {
        match self.totals() {
            Some(totals) => totals[index],
            None => own.sum(),
        }
    }

    /// Sums over the whole batch: log p(x | z), and the KL of each layer, each [1].
    pub fn sums(&self) -> (Var<'g>, Vec<Var<'g>>) {
        let layers = self.kl.len();
        let sums: Vec<Var<'g>> = match self.totals() {
            Some(totals) => totals,
            None => {
                let kl = self.kl.iter().map(|kl| kl.sum());
                kl.chain([self.log_likelihood.sum()]).collect()
            }
        };
        let kl = sums[..layers].iter().map(|kl| kl.reshape(&[1]));
        (sums[layers], kl.collect())
    }

    /// What training lowers, in bits a dimension: free bits bound each layer's KL, averaged over the batch,
    /// from below.
    pub fn loss(&self, config: &ModelConfig) -> Var<'g> {
        self.weighted_loss(config, self.log_likelihood.graph().scalar(1.0))
    }

    /// The same with the KL counted `weight` times, for a warm-up of the KL.
    pub fn weighted_loss(&self, config: &ModelConfig, weight: Var<'g>) -> Var<'g> {
        let worth = self.total(self.kl.len(), self.log_likelihood);
        self.with_rate(config, weight, worth)
    }

    /// Bits of the codes and squared error, of which a bit is worth `train.bit_worth`; in bits a dimension, the bits counted
    /// `weight` times. It is the ELBO of a Gaussian whose variance is `train.bit_worth` / (2 ln 2), less its constant.
    /// A lossy file pays −log p of its codes, which is the KL and the posterior's entropy: `train.entropy_share` of the
    /// latter counts.
    ///
    /// The scales of the likelihood still follow it, so that bits per dim stay what the means are worth.
    ///
    /// # Panics
    /// Where the likelihood has no plain means, which [`crate::config::Config::validate`] refuses.
    pub fn rate_distortion(
        &self,
        config: &ModelConfig,
        weight: Var<'g>,
        train: &TrainConfig,
    ) -> Var<'g> {
        let scales = self.scales.expect("the likelihood has plain means").sum();
        let nats = std::f64::consts::LN_2 / train.bit_worth;
        let distortion = self.squared_error.sum() * nats as f32;
        // Of no value, but with a gradient.
        let follow = scales - scales.detach();
        let worth = match self.entropy.filter(|_| train.entropy_share > 0.0) {
            Some(entropy) => {
                follow - distortion - entropy.sum() * (weight * train.entropy_share as f32)
            }
            None => follow - distortion,
        };
        self.with_rate(config, weight, worth.all_sum())
    }

    /// The KL within free bits, counted `weight` times, less what the pictures are worth (in nats, summed over the batch);
    /// in bits a dimension.
    fn with_rate(&self, config: &ModelConfig, weight: Var<'g>, worth: Var<'g>) -> Var<'g> {
        let g = self.log_likelihood.graph();
        let n = (g.shards() * self.log_likelihood.dim(0)) as f32;
        let layers = self.kl.len();
        let mut kl_total = g.scalar(0.0);
        for (layer, kl) in self.kl.iter().enumerate() {
            let mean = self.total(layer, *kl) * (1.0 / n);
            let positions = (config.sides()[layer] * config.sides()[layer]) as f32;
            let floor = config.free_bits as f32 * positions;
            kl_total = kl_total
                + if floor > 0.0 {
                    mean.max(g.scalar(floor))
                } else {
                    mean
                };
        }
        let nats = kl_total * weight - worth * (1.0 / n);
        let nats = match self.penalty {
            Some(penalty) => nats + self.total(layers + 1, penalty) * (1.0 / n),
            None => nats,
        };
        nats * (1.0 / nats_per_dim(config)) as f32
    }

    /// What is added to the loss, in bits a dimension, for the likelihood to be `share` of it that of the decoder alone;
    /// none where the likelihood is that anyway.
    pub fn decoder_share(&self, config: &ModelConfig, share: f64) -> Option<Var<'g>> {
        let alone = self.log_likelihood_of_decoder.filter(|_| share > 0.0)?;
        let n = (alone.graph().shards() * alone.dim(0)) as f64;
        let scale = share / (n * nats_per_dim(config));
        Some((self.log_likelihood - alone).sum().all_sum() * scale as f32)
    }

    /// What is added to the loss, in bits a dimension, so that embeddings stay near their codes: of each layer
    /// `norm_penalty` times the mean of |e| / R − 1 over all positions where that is positive, R being the norm of an embedding
    /// at `norm_limit`; none where there is no penalty. A layer of one position weighs as much as one of many.
    ///
    /// A posterior whose embedding is far from all codes is one code, whatever the image, and its gradient is zero: nothing
    /// else brings it back. The prior's embedding needs no such help, for a KL tells it of codes that it does not expect.
    pub fn norm_penalty(&self, train: &TrainConfig) -> Option<Var<'g>> {
        let g = self.log_likelihood.graph();
        let beyond = |e: &Var<'g>| {
            let limit = train.norm_limit * (e.dim(1) as f64).sqrt();
            // The small number keeps the root's gradient finite at zero.
            let norm = (e.square().sum_last() + 1e-12).sqrt();
            let over = (norm * (1.0 / limit) as f32 - 1.0).max(g.scalar(0.0));
            over.sum() * (train.norm_penalty / (g.shards() * e.dim(0)) as f64) as f32
        };
        let layers = self.embeddings.iter().filter(|_| train.norm_penalty > 0.0);
        Some(layers.map(beyond).reduce(|a, b| a + b)?.all_sum())
    }
}

impl<'g> Elbo<'g> {
    /// Draws what a training step changes: parameters by the gradient of `loss`, codebooks that follow averages by the
    /// batch. Returns the gradient's global norm.
    pub fn descend(&self, optimiser: &Optimiser, loss: Var<'g>) -> Var<'g> {
        self.descend_with(optimiser, loss, Exceptions::default())
    }

    /// The same with exceptions; codebooks that follow averages are added to those that are set.
    pub fn descend_with(
        &self,
        optimiser: &Optimiser,
        loss: Var<'g>,
        except: Exceptions<'_, 'g>,
    ) -> Var<'g> {
        let g = loss.graph();
        let means = self.moved.iter().map(|m| m.mean.clone());
        let set: Vec<(String, Var<'g>)> = except.set.iter().cloned().chain(means).collect();
        let drawn = optimiser.build_with(
            loss,
            Exceptions {
                set: &set,
                ..except
            },
        );
        for (memory, value) in self.moved.iter().flat_map(|m| &m.memories) {
            let old = g.state(&memory.name, memory.len()).reshape(&memory.shape);
            g.assign(&memory.name, drawn.unless_skipped(*value, old));
        }
        drawn.norm
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
