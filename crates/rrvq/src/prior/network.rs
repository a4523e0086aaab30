//! A gated PixelCNN over one map of codes: the probability of each code given those above it and to its left.
//!
//! Two stacks of features go through the layers side by side. The vertical one sees the rows above a position, the
//! horizontal one what is left of it in its own row, and at every layer hears what the vertical one found; so together
//! they see everything that came before, without the blind spot of a single masked stack.
//!
//! Nothing is masked. A map is shifted by one before the first layer, and kernels are as high and as wide as what they
//! may see: two rows of three positions, or two positions of one row. What must not be seen has no weight to be zero.

use crate::config::PriorConfig;
use crate::nn::Builder;
use rrvq_tensor::{DType, Init, Var};

/// The size of what a prior describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// Rows, and positions of a row.
    pub side: usize,
    /// Codes of the codebook.
    pub codes: usize,
}

impl Map {
    /// Positions of an image.
    pub fn positions(self) -> usize {
        self.side * self.side
    }
}

/// A PixelCNN on a drawing surface.
pub struct PixelCnn<'g> {
    /// What it is drawn with.
    pub builder: Builder<'g>,
    map: Map,
    channels: usize,
    layers: usize,
    batch: usize,
}

impl<'g> PixelCnn<'g> {
    /// The network for `batch` maps of codes.
    pub fn new(builder: Builder<'g>, config: &PriorConfig, map: Map, batch: usize) -> Self {
        PixelCnn {
            builder,
            map,
            channels: config.channels,
            layers: config.layers,
            batch,
        }
    }

    /// The codes of a batch, row by row, [n · M, 1].
    pub fn codes(&self) -> Var<'g> {
        let shape = [self.batch * self.map.positions(), 1];
        self.builder.graph.input("codes", &shape, DType::U32)
    }

    /// Logits of every code at every position, [n · M, K].
    pub fn logits(&self, codes: Var<'g>) -> Var<'g> {
        let (side, embedded) = (self.map.side, self.embed(codes, self.map.side));
        let above = self.vertical(embedded);
        let logits = self.horizontal(embedded, self.places(), &above);
        logits.reshape(&[self.batch * side * side, self.map.codes])
    }

    /// −log p of the codes of each image in nats, [n, 1]. The program's input `order` is 0, 1, … K − 1.
    pub fn surprise(&self, codes: Var<'g>) -> Var<'g> {
        let order = self
            .builder
            .graph
            .input("order", &[1, self.map.codes], DType::F32);
        let chosen = codes.to_f32().equal(order);
        let log_p = (self.logits(codes).log_softmax() * chosen).sum_last();
        -log_p
            .reshape(&[self.batch, self.map.positions()])
            .sum_last()
    }

    /// What the vertical stack tells each layer of the row that `row` marks, a one among `side` zeros:
    /// [layers · n, 1, side, 2 · channels].
    pub fn above(&self, codes: Var<'g>, row: Var<'g>) -> Var<'g> {
        let told = self.vertical(self.embed(codes, self.map.side));
        let rows: Vec<Var<'g>> = told.iter().map(|&t| self.only(t, row)).collect();
        self.builder.graph.concat(&rows, 0)
    }

    /// Logits of one row, [n · side, K], from its codes, [n · side, 1], and what [`above`](Self::above) gave.
    pub fn row_logits(&self, codes: Var<'g>, above: Var<'g>, row: Var<'g>) -> Var<'g> {
        let n = self.batch;
        let told: Vec<Var<'g>> = (0..self.layers).map(|i| above.slice(0, i * n, n)).collect();
        let places = self.only(self.places(), row);
        let logits = self.horizontal(self.embed(codes, 1), places, &told);
        logits.reshape(&[n * self.map.side, self.map.codes])
    }

    /// The shape of what goes from [`above`](Self::above) to [`row_logits`](Self::row_logits).
    pub fn above_shape(&self) -> [usize; 4] {
        [
            self.layers * self.batch,
            1,
            self.map.side,
            2 * self.channels,
        ]
    }

    /// The row that `row` marks, as a map of one row. Zeros times anything finite add nothing: the bits are the row's.
    fn only(&self, map: Var<'g>, row: Var<'g>) -> Var<'g> {
        let [n, h, w, c] = [0, 1, 2, 3].map(|axis| map.dim(axis));
        (map * row.reshape(&[1, h, 1, 1])).sum_to(&[n, 1, w, c])
    }

    fn embed(&self, codes: Var<'g>, rows: usize) -> Var<'g> {
        let shape = [self.map.codes, self.channels];
        let table = self.builder.graph.param("embed", &shape, Init::Normal(1.0));
        table
            .gather(codes)
            .reshape(&[self.batch, rows, self.map.side, self.channels])
    }

    /// What is learnt of each place of a map, whatever its neighbours are.
    fn places(&self) -> Var<'g> {
        let shape = [1, self.map.side, self.map.side, self.channels];
        self.builder
            .graph
            .param("places", &shape, Init::Normal(0.1))
    }

    /// What each layer's horizontal stack hears of the rows above.
    fn vertical(&self, embedded: Var<'g>) -> Vec<Var<'g>> {
        let wide = 2 * self.channels;
        let mut v = shifted(embedded, 1) + self.places();
        let mut told = Vec::new();
        for layer in 0..self.layers {
            let seen = v.pad(1, 1, 0).pad(2, 1, 1);
            let found = self.conv(&format!("layer.{layer}.v"), seen, [2, 3], wide, 1.0);
            told.push(self.conv(&format!("layer.{layer}.vh"), found, [1, 1], wide, 1.0));
            v = v + gated(found);
        }
        told
    }

    /// Logits, [n, rows, side, K].
    fn horizontal(&self, embedded: Var<'g>, places: Var<'g>, above: &[Var<'g>]) -> Var<'g> {
        let (c, wide) = (self.channels, 2 * self.channels);
        let mut h = shifted(embedded, 2) + places;
        for (layer, &told) in above.iter().enumerate() {
            let seen = h.pad(2, 1, 0);
            let found = self.conv(&format!("layer.{layer}.h"), seen, [1, 2], wide, 1.0) + told;
            h = h + self.conv(&format!("layer.{layer}.hh"), gated(found), [1, 1], c, 0.3);
        }
        let last = self.conv("last", h.elu(), [1, 1], c, 1.0);
        // Small first logits: training starts at the uniform prior.
        self.conv("logits", last.elu(), [1, 1], self.map.codes, 0.1)
    }

    fn conv(&self, name: &str, x: Var<'g>, [kh, kw]: [usize; 2], out: usize, gain: f32) -> Var<'g> {
        let shape = [kh, kw, x.dim(3), out];
        self.builder
            .normalised(name, &shape, [1, 1, 1, out], gain, |w| x.conv_valid(w, 1))
    }
}

/// A map moved on by one along an axis, with zeros where nothing came before.
fn shifted(map: Var<'_>, axis: usize) -> Var<'_> {
    map.pad(axis, 1, 0).slice(axis, 0, map.dim(axis))
}

/// tanh of one half of the channels, let through by the sigmoid of the other.
fn gated(x: Var<'_>) -> Var<'_> {
    let half = x.dim(3) / 2;
    x.slice(3, 0, half).tanh() * x.slice(3, half, half).sigmoid()
}
