//! Ladders and straps: from backbone features to embeddings and back.
//!
//! Each is one convolution; `ladder_blocks` residual blocks may stand on its backbone side.

use super::builder::{Builder, Resize};
use rrvq_tensor::Var;

impl<'g> Builder<'g> {
    /// qladder: up-pass features to an embedding whose numbers start with a standard deviation of `gain`.
    pub fn qladder(&self, name: &str, up: Var<'g>, out: usize, gain: f32) -> Var<'g> {
        let x = self.ladder_blocks(name, up);
        self.gained(name, x, out, false, gain)
    }

    /// qstrap and pstrap: down-pass features to an embedding (or to logits of codes), growing where the map grows.
    pub fn strap(&self, name: &str, down: Var<'g>, out: usize, grows: bool, gain: f32) -> Var<'g> {
        let x = self.ladder_blocks(name, down);
        self.gained(name, x, out, grows, gain)
    }

    /// pladder: code means to down-pass features.
    pub fn pladder(&self, name: &str, z: Var<'g>) -> Var<'g> {
        let x = self.conv(name, z, self.config.channels, self.kernel(), 1);
        self.ladder_blocks(name, x)
    }

    fn ladder_blocks(&self, name: &str, x: Var<'g>) -> Var<'g> {
        self.blocks(
            &format!("{name}.blocks"),
            x,
            self.config.ladder_blocks,
            Resize::Same,
        )
    }
}
