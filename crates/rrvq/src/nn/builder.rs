//! The [`Builder`]: weight-normalised convolutions and residual blocks, drawn into a graph.

use crate::config::{Backbone, Border, Grow, ModelConfig};
use rrvq_tensor::{Graph, Init, Var};
use std::cell::RefCell;

/// Draws the networks of a model into a graph. One that initialises sets the gains and biases of all convolutions from
/// a first batch.
pub struct Builder<'g> {
    /// What is drawn into.
    pub graph: &'g Graph,
    /// The model's settings.
    pub config: &'g ModelConfig,
    /// First values found by a data-dependent initialisation, by parameter name: gains and biases above all.
    found: Option<RefCell<Vec<(String, Var<'g>)>>>,
}

impl<'g> Builder<'g> {
    /// A builder of the model that `config` describes.
    pub fn new(graph: &'g Graph, config: &'g ModelConfig) -> Self {
        Builder {
            graph,
            config,
            found: None,
        }
    }

    /// A builder whose convolutions normalise their outputs over the batch and note the gain and bias that would
    /// have done it (Salimans and Kingma's data-dependent initialisation).
    pub fn initialising(graph: &'g Graph, config: &'g ModelConfig) -> Self {
        Builder {
            graph,
            config,
            found: Some(RefCell::new(Vec::new())),
        }
    }

    /// Side of the kernels between maps. A fully connected layer sees one pixel with everything in it.
    pub fn kernel(&self) -> usize {
        match self.config.backbone {
            Backbone::Convolution => 3,
            Backbone::Mlp => 1,
        }
    }

    /// What an initialising builder found.
    pub fn found(&self) -> Vec<(String, Var<'g>)> {
        self.found
            .as_ref()
            .map(|f| f.borrow().clone())
            .unwrap_or_default()
    }

    /// Whether this drawing finds first values.
    pub fn initialises(&self) -> bool {
        self.found.is_some()
    }

    /// Has the parameter `name` start at `value`, where an initialiser cannot say it.
    pub fn start_at(&self, name: &str, value: Var<'g>) {
        if let Some(found) = &self.found {
            found.borrow_mut().push((name.into(), value));
        }
    }

    /// Weight-normalised convolution with a bias: kernel g · v / ‖v‖ for each output channel.
    pub fn conv(
        &self,
        name: &str,
        x: Var<'g>,
        out: usize,
        kernel: usize,
        stride: usize,
    ) -> Var<'g> {
        let shape = [kernel, kernel, x.dim(3), out];
        let apply = |w| x.conv(w, stride);
        self.normalised(name, &shape, [1, 1, 1, out], 1.0, apply)
    }

    /// A convolution of stride 1 or one that doubles the sides, whose outputs start with a standard deviation of `gain`.
    pub fn gained(&self, name: &str, x: Var<'g>, out: usize, grows: bool, gain: f32) -> Var<'g> {
        let plain = |x: Var<'g>| {
            let shape = [self.kernel(), self.kernel(), x.dim(3), out];
            self.normalised(name, &shape, [1, 1, 1, out], gain, |w| x.conv(w, 1))
        };
        match (grows, self.config.grow) {
            (false, _) => plain(x),
            (true, Grow::Nearest) => plain(x.upsample(2)),
            (true, Grow::Transposed) => self.transposed(name, x, out, gain),
        }
    }

    /// The convolution that makes the picture. Bytes span [−0.5, 0.5]: its outputs start with a standard
    /// deviation of 0.1, so that the first pictures are near grey, well inside.
    pub fn picture_conv(&self, name: &str, x: Var<'g>, out: usize) -> Var<'g> {
        let shape = [self.kernel(), self.kernel(), x.dim(3), out];
        self.normalised(name, &shape, [1, 1, 1, out], 0.1, |w| {
            match (self.config.backbone, self.config.border) {
                (Backbone::Mlp, _) | (_, Border::Zero) => x.conv(w, 1),
                (_, Border::Edge) => x.edge_pad(1).conv_valid(w, 1),
            }
        })
    }

    /// The same as a transposed convolution of stride 2: the map doubles its sides.
    pub fn conv_transposed(&self, name: &str, x: Var<'g>, out: usize) -> Var<'g> {
        self.transposed(name, x, out, 1.0)
    }

    fn transposed(&self, name: &str, x: Var<'g>, out: usize, gain: f32) -> Var<'g> {
        let shape = [3, 3, out, x.dim(3)];
        let (h, w) = (2 * x.dim(1), 2 * x.dim(2));
        self.normalised(name, &shape, [1, 1, out, 1], gain, |k| {
            x.conv_transposed(k, 2, h, w)
        })
    }

    pub(crate) fn normalised(
        &self,
        name: &str,
        shape: &[usize; 4],
        per_output: [usize; 4],
        first_gain: f32,
        apply: impl Fn(Var<'g>) -> Var<'g>,
    ) -> Var<'g> {
        let g = self.graph;
        let out = per_output.iter().product();
        let v = g.param(
            &format!("{name}.v"),
            shape,
            Init::Normal(self.config.kernel_scale as f32),
        );
        let gain = g.param(&format!("{name}.g"), &[out], Init::Constant(1.0));
        let bias = g.param(&format!("{name}.b"), &[out], Init::Constant(0.0));
        let inverse_norm = (v.square().sum_to(&per_output) + 1e-12).rsqrt();
        let Some(found) = &self.found else {
            return apply(v * (gain.reshape(&per_output) * inverse_norm)) + bias;
        };
        let t = apply(v * inverse_norm);
        let count = (g.shards() * t.size() / out) as f32;
        let mean = t.sum_to(&[out]).all_sum() * (1.0 / count);
        let variance = (t - mean).square().sum_to(&[out]).all_sum() * (1.0 / count);
        // Outputs that do not vary (the learnt top starts at zero) keep the bare gain.
        let varies = variance.greater(g.scalar(1e-8));
        let scale = varies.select(
            (variance + 1e-12).rsqrt() * first_gain,
            g.scalar(first_gain),
        );
        let mut found = found.borrow_mut();
        found.push((format!("{name}.g"), scale));
        found.push((format!("{name}.b"), -(mean * scale)));
        (t - mean) * scale
    }

    /// enc_1 of a fully connected model: [n, h, w, c] to [n, 1, 1, channels].
    pub fn dense_image(&self, name: &str, x: Var<'g>) -> Var<'g> {
        let n = x.dim(0);
        let flat = x.reshape(&[n, 1, 1, x.size() / n]);
        self.conv(name, flat, self.config.channels, 1, 1)
    }

    /// x + s · conv(ELU(conv(ELU(x)))), s being `block_scale`, 0.1 in the paper's model; a block that resizes rescales its identity path.
    pub fn block(&self, name: &str, x: Var<'g>, resize: Resize) -> Var<'g> {
        let c = x.dim(3);
        let (a, b) = (format!("{name}.a"), format!("{name}.b"));
        let h = match resize {
            Resize::Same => self.conv(&a, x.elu(), c, self.kernel(), 1),
            Resize::Down => self.conv(&a, x.elu(), c, 3, 2),
            Resize::Up => self.grow(&a, x.elu(), c),
        };
        let identity = match resize {
            Resize::Same => x,
            Resize::Down => x.avg_pool(2),
            Resize::Up => x.upsample(2),
        };
        identity + self.conv(&b, h.elu(), c, self.kernel(), 1) * self.config.block_factor() as f32
    }

    /// Several blocks, the first of which resizes.
    pub fn blocks(&self, name: &str, x: Var<'g>, count: usize, resize: Resize) -> Var<'g> {
        (0..count).fold(x, |x, i| {
            let resize = if i == 0 { resize } else { Resize::Same };
            self.block(&format!("{name}.{i}"), x, resize)
        })
    }

    /// A convolution that doubles the map's sides.
    pub fn grow(&self, name: &str, x: Var<'g>, out: usize) -> Var<'g> {
        match self.config.grow {
            Grow::Transposed => self.conv_transposed(name, x, out),
            Grow::Nearest => self.conv(name, x.upsample(2), out, 3, 1),
        }
    }
}

/// What a block does to the sides of its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// Nothing.
    Same,
    /// Halves them.
    Down,
    /// Doubles them.
    Up,
}
