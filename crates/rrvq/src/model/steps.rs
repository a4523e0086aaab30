//! The pieces of a layer's step, each drawn in one place.
//!
//! The down pass strings them together for a whole model ([`super::hierarchy`]). A codec cannot: it has to stop at every
//! layer to read or write its codes. It draws the same pieces one by one, each as a program of its own.

use super::backbone::Resize;
use super::hierarchy::{Hierarchy, to_bytes};
use crate::config::{LatentKind, PriorKind, Top};
use crate::latent::nearest::Nearest;
use crate::latent::responsibility::{Codebook, Prior};
use crate::likelihood::Pixels;
use rrvq_tensor::{DType, Init, Var};

/// What the parameters of a layer are called; layers count from 0 at the bottom.
pub(super) fn layer_name(layer: usize) -> String {
    format!("layer.{}", layer + 1)
}

/// The layer that a parameter belongs to by its name.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix("layer.")?.split_once('.')?;
    number.parse::<usize>().ok()?.checked_sub(1)
}

/// And those of its codebook.
pub(super) fn books_name(layer: usize) -> String {
    format!("{}.codes", layer_name(layer))
}

impl<'g> Hierarchy<'g> {
    pub fn layers(&self) -> usize {
        self.sides.len()
    }

    /// Positions of a layer in the whole batch.
    pub fn rows(&self, layer: usize) -> usize {
        self.batch * self.sides[layer] * self.sides[layer]
    }

    /// Whether a layer's map is larger than the one above it.
    pub(super) fn grows(&self, layer: usize) -> bool {
        layer + 1 < self.layers() && self.features[layer] > self.features[layer + 1]
    }

    /// Whether a layer's prior is fixed: that of a uniform top.
    pub(super) fn fixed(&self, layer: usize) -> bool {
        layer + 1 == self.layers() && self.pen.config.top == Top::Uniform
    }

    /// The map of a layer's features, and the channels on it that give `out` values for each latent.
    fn map(&self, layer: usize, out: usize) -> [usize; 4] {
        let side = self.features[layer];
        let channels = self.rows(layer) / (self.batch * side * side) * out;
        [self.batch, side, side, channels]
    }

    /// The learnt d_{L+1}, from which the down pass starts.
    pub fn top(&self) -> Var<'g> {
        let (side, c) = (self.features[self.layers() - 1], self.pen.config.channels);
        let start = Init::Constant(0.0);
        let top = self.pen.graph.param("top", &[1, side, side, c], start);
        top.broadcast(&[self.batch, side, side, c])
    }

    /// d_ℓ = dec_{ℓ+1}(d_{ℓ+1}) + pladder_ℓ(z), from the features above and the code means of the layer, [rows, d_e].
    pub fn below(&self, layer: usize, d: Var<'g>, z: Var<'g>) -> Var<'g> {
        let pen = &self.pen;
        let resize = match self.grows(layer) {
            true => Resize::Up,
            false => Resize::Same,
        };
        let identity = pen.blocks(&format!("dec.{}", layer + 2), d, pen.config.blocks, resize);
        let z = z.reshape(&self.map(layer, z.dim(1)));
        identity + pen.pladder(&format!("{}.pladder", layer_name(layer)), z)
    }

    /// pstrap: the features above as rows of `out` values.
    pub(super) fn pstrap(&self, layer: usize, d: Var<'g>, out: usize) -> Var<'g> {
        let name = format!("{}.pstrap", layer_name(layer));
        let [.., channels] = self.map(layer, out);
        let map = self.pen.strap(&name, d, channels, self.grows(layer));
        map.reshape(&[self.rows(layer), out])
    }

    /// qladder: the features of the up pass as a map of `out` values for each latent.
    pub(super) fn qladder(&self, layer: usize, up: Var<'g>, out: usize) -> Var<'g> {
        let name = format!("{}.qladder", layer_name(layer));
        let [.., channels] = self.map(layer, out);
        self.pen.qladder(&name, up, channels)
    }

    /// qladder + qstrap as rows of `out` values.
    pub(super) fn posterior_rows(
        &self,
        layer: usize,
        d: Var<'g>,
        ladder: Var<'g>,
        out: usize,
    ) -> Var<'g> {
        let name = format!("{}.qstrap", layer_name(layer));
        let [.., channels] = self.map(layer, out);
        let sum = ladder + self.pen.strap(&name, d, channels, self.grows(layer));
        sum.reshape(&[self.rows(layer), out])
    }

    /// The codebook of a layer of codes.
    pub(super) fn book(&self, layer: usize) -> Codebook<'g> {
        Codebook::draw(
            &self.pen,
            &books_name(layer),
            self.pen.config.codes.at(layer),
        )
    }

    /// The codebook of a layer of nearest codes.
    pub(super) fn nearest_book(&self, layer: usize) -> Nearest<'g> {
        Nearest::draw(
            &self.pen,
            &books_name(layer),
            self.pen.config.codes.at(layer),
        )
    }

    /// Means of codes, [rows, d_e], by their numbers, [rows, 1].
    pub(super) fn code_means(&self, layer: usize, index: Var<'g>) -> Var<'g> {
        match self.pen.config.latent {
            LatentKind::Nearest => self.nearest_book(layer).mu.gather(index),
            _ => self.book(layer).mu.gather(index),
        }
    }

    /// What a layer's codes are compared with, given the features above.
    pub(super) fn code_prior(&self, layer: usize, d: Var<'g>) -> Prior<'g> {
        let config = self.pen.config;
        match config.prior {
            _ if self.fixed(layer) => Prior::Uniform,
            PriorKind::Embedding => Prior::Embedding(self.pstrap(layer, d, config.embed)),
            PriorKind::Direct => Prior::Direct(self.pstrap(layer, d, config.codes.at(layer))),
        }
    }

    // What follows is drawn by the codec alone.

    /// Features above a layer as they were handed over: an input of the program.
    pub fn given_features(&self, name: &str, layer: usize) -> Var<'g> {
        let side = self.features[layer];
        let shape = [self.batch, side, side, self.pen.config.channels];
        self.pen.graph.input(name, &shape, DType::F32)
    }

    /// What the up pass says to each layer, bottom first: d_e values for each position.
    pub fn ladders(&self) -> Vec<Var<'g>> {
        let embed = self.pen.config.embed;
        let up = self.up(self.images().to_f32());
        let layers = up.into_iter().enumerate();
        layers
            .map(|(layer, up)| self.qladder(layer, up, embed))
            .collect()
    }

    /// Such a map as an input of the program.
    pub fn given_ladder(&self, name: &str, layer: usize) -> Var<'g> {
        let shape = self.map(layer, self.pen.config.embed);
        self.pen.graph.input(name, &shape, DType::F32)
    }

    /// log p of every code at every position of a layer, [rows, K]; none where all codes are alike.
    pub fn log_prior(&self, layer: usize, d: Var<'g>) -> Option<Var<'g>> {
        if self.pen.config.latent == LatentKind::Nearest {
            return None;
        }
        match self.code_prior(layer, d) {
            Prior::Uniform => None,
            Prior::Embedding(e) => Some(self.book(layer).log_responsibilities(e)),
            Prior::Direct(logits) => Some(logits.log_softmax()),
        }
    }

    /// log q of every code at every position of a layer, [rows, K]. For nearest codes, numbers whose largest is the code.
    pub fn log_posterior(&self, layer: usize, d: Var<'g>, ladder: Var<'g>) -> Var<'g> {
        let e = self.posterior_rows(layer, d, ladder, self.pen.config.embed);
        match self.pen.config.latent {
            LatentKind::Nearest => self.nearest_book(layer).closeness(e),
            _ => self.book(layer).log_responsibilities(e),
        }
    }

    /// Means of the codes that were drawn: an input of indices, [rows, 1], looked up.
    pub fn given_codes(&self, name: &str, layer: usize) -> Var<'g> {
        let index = self
            .pen
            .graph
            .input(name, &[self.rows(layer), 1], DType::U32);
        self.code_means(layer, index)
    }

    /// The likelihood, from d_1.
    pub fn pixels(&self, d: Var<'g>) -> Pixels<'g> {
        self.decode(d)
    }

    /// What is shown of it: the mean of each sample, 0 … 255.
    pub fn shown(&self, d: Var<'g>) -> Var<'g> {
        to_bytes(self.decode(d).mean())
    }
}
