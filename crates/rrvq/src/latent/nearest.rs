//! VQ-VAE: the nearest code, straight through, with a codebook loss and a commitment loss. The prior is uniform, so
//! the KL of a position is the constant ln K.

use crate::model::Pen;
use rrvq_tensor::op::Sampled;
use rrvq_tensor::{Init, Var};

/// Means of a layer's codes, [K, d_e].
#[derive(Clone, Copy)]
pub struct Nearest<'g> {
    pub mu: Var<'g>,
}

/// A quantised map.
#[derive(Clone, Copy)]
pub struct Quantised<'g> {
    pub sampled: Sampled<'g>,
    /// ‖sg(e) − μ‖² + β ‖e − sg(μ)‖² of each row, [rows, 1].
    pub penalty: Var<'g>,
}

impl<'g> Nearest<'g> {
    pub fn draw(pen: &Pen<'g>, name: &str, codes: usize) -> Self {
        let init = Init::Normal(pen.config.code_scale as f32);
        let shape = [codes, pen.config.embed];
        Nearest {
            mu: pen.graph.param(&format!("{name}.mean"), &shape, init),
        }
    }

    /// e·μ − ½‖μ‖² of each row and code, [rows, K]: the nearest code has the largest.
    pub fn closeness(&self, e: Var<'g>) -> Var<'g> {
        let half = (self.mu.square().sum_last() * 0.5).reshape(&[1, self.mu.dim(0)]);
        e.matmul(self.mu, false, true) - half
    }

    /// Each row of `e`, [rows, d_e], to the code nearest to it; `commitment` is β.
    pub fn quantise(&self, e: Var<'g>, commitment: f32) -> Quantised<'g> {
        let (g, codes) = (e.graph(), self.mu.dim(0));
        let index = self.closeness(e).argmax_last();
        let code = self.mu.gather(index);
        let pulls = (e.detach() - code).square().sum_last();
        let commits = (e - code.detach()).square().sum_last();
        let sampled = Sampled {
            z: e + (code - e).detach(),
            index,
            kl: g.full((codes as f32).ln(), &[e.dim(0), 1]),
        };
        Quantised {
            sampled,
            penalty: pulls + commits * commitment,
        }
    }
}
