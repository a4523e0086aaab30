//! The networks a model is made of, drawn into a graph: convolutions, residual blocks, ladders and straps.
//!
//! A fully connected model needs no second drawing. A dense layer is a 1 × 1 convolution of a map that has one pixel with
//! everything in its channels: features are vectors of `channels` numbers, a strap gives the embeddings of all positions
//! of its layer at once, and the last layer gives all pixels. Positions of latents are then places in a list.

mod builder;
mod ladder;

pub use builder::{Builder, Resize};

use crate::config::{Backbone, ModelConfig, Top};

/// The sides of a hierarchy's maps, bottom first.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Of each layer's latents.
    pub latents: Vec<usize>,
    /// Of each layer's features: those of its latents, or one pixel.
    pub features: Vec<usize>,
    top: Top,
}

impl Geometry {
    /// The maps of a model.
    pub fn new(config: &ModelConfig) -> Self {
        let latents = config.sides();
        Geometry {
            features: match config.backbone {
                Backbone::Convolution => latents.clone(),
                Backbone::Mlp => vec![1; latents.len()],
            },
            latents,
            top: config.top,
        }
    }

    /// How many layers of latents there are.
    pub fn layers(&self) -> usize {
        self.latents.len()
    }

    /// Positions of a layer in one image.
    pub fn positions(&self, layer: usize) -> usize {
        self.latents[layer] * self.latents[layer]
    }

    /// Whether a layer's map is larger than the one above it.
    pub fn grows(&self, layer: usize) -> bool {
        layer + 1 < self.layers() && self.features[layer] > self.features[layer + 1]
    }

    /// Whether a layer's prior is fixed: that of a uniform top.
    pub fn fixed_prior(&self, layer: usize) -> bool {
        layer + 1 == self.layers() && self.top == Top::Uniform
    }

    /// The map of a layer's features, and the channels on it that give `out` numbers for each latent.
    pub fn map(&self, batch: usize, layer: usize, out: usize) -> [usize; 4] {
        let side = self.features[layer];
        let channels = self.positions(layer) / (side * side) * out;
        [batch, side, side, channels]
    }
}

/// What the parameters of a layer are called; layers count from 0 at the bottom.
pub fn layer_name(layer: usize) -> String {
    format!("layer.{}", layer + 1)
}

/// The layer that a parameter belongs to by its name.
pub fn layer_of(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix("layer.")?.split_once('.')?;
    number.parse::<usize>().ok()?.checked_sub(1)
}
