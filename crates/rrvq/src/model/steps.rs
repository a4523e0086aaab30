//! The pieces of the down pass one by one, for a codec, and for those who stop at a layer to look at it.
//!
//! [`super::hierarchy`] strings them together for a whole model. A codec has to stop at every layer to read or write its
//! codes, so it draws each piece as a program of its own.

use super::hierarchy::Hierarchy;
use crate::latent::{Coded, DrawMode, Evidence, LayerInputs};
use rrvq_tensor::{DType, Var};

impl<'g> Hierarchy<'g> {
    fn coded(&self) -> &'static dyn Coded {
        self.latent.coded().expect("latents that are codes")
    }

    fn hard(&self, layer: usize, d: Var<'g>, evidence: Evidence<'g>) -> LayerInputs<'_, 'g> {
        self.at(layer, d, evidence, DrawMode::Hard)
    }

    pub(super) fn embed(&self, at: &LayerInputs<'_, 'g>, index: Var<'g>) -> Var<'g> {
        self.coded().embed(at, index)
    }

    /// Features above a layer as they were handed over: an input of the program.
    pub fn given_features(&self, name: &str, layer: usize) -> Var<'g> {
        let channels = self.builder.config.channels;
        let side = self.geometry.features[layer];
        let shape = [self.batch, side, side, channels];
        self.builder.graph.input(name, &shape, DType::F32)
    }

    /// What the up pass says to each layer, bottom first.
    pub fn ladders(&self) -> Vec<Var<'g>> {
        let width = self.coded().width(self.builder.config);
        let up = self.up(self.images().to_f32());
        let layers = up.into_iter().enumerate();
        layers
            .map(|(layer, up)| self.hard(layer, up, Evidence::None).qladder(up, width))
            .collect()
    }

    /// Such a map as an input of the program.
    pub fn given_ladder(&self, name: &str, layer: usize) -> Var<'g> {
        let width = self.coded().width(self.builder.config);
        let shape = self.geometry.map(self.batch, layer, width);
        self.builder.graph.input(name, &shape, DType::F32)
    }

    /// log p of every code at every position of a layer, [rows, K]; none where all codes are equally likely.
    pub fn log_prior(&self, layer: usize, d: Var<'g>) -> Option<Var<'g>> {
        self.coded().log_prior(&self.hard(layer, d, Evidence::None))
    }

    /// log q of every code at every position of a layer, [rows, K]; where it is certain, numbers whose largest is the code.
    pub fn log_posterior(&self, layer: usize, d: Var<'g>, ladder: Var<'g>) -> Var<'g> {
        let at = self.hard(layer, d, Evidence::Ladder(ladder));
        self.coded().log_posterior(&at)
    }

    /// The codes of a layer as the prior draws them, [rows, 1]. `d` is above the layer.
    pub fn drawn_codes(&self, layer: usize, d: Var<'g>) -> Var<'g> {
        let drawn = self.latent.draw(&self.hard(layer, d, Evidence::None));
        drawn.code.expect("latents that are codes")
    }

    /// Means of the codes that were drawn: an input of indices, [rows, 1], looked up. `d` is above the layer.
    pub fn given_codes(&self, name: &str, layer: usize, d: Var<'g>) -> Var<'g> {
        let shape = [self.rows(layer), 1];
        let index = self.builder.graph.input(name, &shape, DType::U32);
        self.embed(&self.hard(layer, d, Evidence::None), index)
    }
}
