//! The fully connected model: the same hierarchy on maps of one pixel.
//!
//! A dense layer is a 1 × 1 convolution of a map that has one pixel with everything in its channels. So an MLP needs
//! no second drawing of the model: features are vectors of `channels` numbers, a strap gives the embeddings of all
//! positions of its layer at once, and the last layer gives all pixels. Positions of latents are then places in a list,
//! not in the image. Weight normalisation, first batch, residual blocks and the size of a run folder come along.

use super::backbone::Pen;
use super::hierarchy::Hierarchy;
use crate::config::Backbone;
use rrvq_tensor::Var;

impl<'g> Hierarchy<'g> {
    /// Sides of each layer's features: those of its latents, or one pixel.
    pub(super) fn feature_sides(pen: &Pen<'g>) -> Vec<usize> {
        let sides = pen.config.sides();
        match pen.config.backbone {
            Backbone::Convolution => sides,
            Backbone::Mlp => vec![1; sides.len()],
        }
    }
}

impl<'g> Pen<'g> {
    /// enc_1 of a fully connected model: [n, h, w, c] to [n, 1, 1, channels].
    pub(super) fn dense_image(&self, name: &str, x: Var<'g>) -> Var<'g> {
        let n = x.dim(0);
        let flat = x.reshape(&[n, 1, 1, x.size() / n]);
        self.conv(name, flat, self.config.channels, 1, 1)
    }
}
