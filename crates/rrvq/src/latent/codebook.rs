//! What codebooks of all kinds share: where codes start, what training keeps of them besides parameters.

use crate::nn::{Builder, layer_name};
use crate::streams;
use rrvq_tensor::rng::Distribution;
use rrvq_tensor::{DType, Graph, Var};

/// The input with the numbers that a shard's images have in the whole batch, [images, 1].
pub const SHARD_ROWS: &str = "shard_rows";

/// What the parameters of a layer's codebook are called.
pub fn name(layer: usize) -> String {
    format!("{}.codes", layer_name(layer))
}

/// What the means of the codebook `name` are called.
pub fn mean_name(name: &str) -> String {
    format!("{name}.mean")
}

/// A vector that a training step keeps besides the parameters and their moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// What it is called in a checkpoint.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// What it holds before the first step.
    pub first: First,
}

/// What a memory holds before the first step.
#[derive(Clone, Debug, PartialEq)]
pub enum First {
    /// Ones.
    Ones,
    /// A copy of this parameter.
    Parameter(String),
}

impl Memory {
    /// How many numbers it holds.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a step makes of a codebook and its memories.
pub struct Moved<'g> {
    /// The parameter of the means, and its next value, [K, d_e].
    pub mean: (String, Var<'g>),
    /// Next values of the memories.
    pub memories: [(Memory, Var<'g>); 2],
}

/// What a layer's codes may start at: its embeddings of a batch of `images`, [rows, d_e].
pub struct FirstBatch<'g> {
    /// What the layer's codebook is called.
    pub name: String,
    /// Counted from 0 at the bottom.
    pub layer: usize,
    /// The embeddings.
    pub e: Var<'g>,
    /// How many images they are of.
    pub images: usize,
}

impl<'g> FirstBatch<'g> {
    /// The means, placed by any of these embeddings where this drawing is the one that finds first values: what is
    /// initialised after them sees them there.
    pub(super) fn start(
        &self,
        builder: &Builder<'g>,
        mu: Var<'g>,
        place: impl FnOnce(Var<'g>) -> Var<'g>,
    ) -> Var<'g> {
        if !builder.initialises() {
            return mu;
        }
        let stream = streams::code_start(self.layer);
        let mu = place(pick(self.e, self.images, mu.dim(0), stream));
        builder.start_at(&mean_name(&self.name), mu);
        mu
    }
}

/// Noise for each row and each code of means `mu`, [rows, K].
pub(super) fn gumbel<'g>(mu: Var<'g>, rows: usize, stream: u32) -> Var<'g> {
    let shape = [rows, mu.dim(0)];
    mu.graph()
        .noise_stream(Distribution::Gumbel, &shape, stream)
}

/// Codes of means `mu` that are all equally likely, [rows, 1].
pub(super) fn any_code<'g>(mu: Var<'g>, rows: usize, stream: u32) -> Var<'g> {
    gumbel(mu, rows, stream).argmax_last()
}

/// Any `count` rows of `e`, [count, d_e]: for each an image, then a position in it. Two draws of some hundred numbers in
/// place of one among all rows, which would need noise for every pair.
pub(super) fn pick<'g>(e: Var<'g>, images: usize, count: usize, stream: u32) -> Var<'g> {
    let g: &Graph = e.graph();
    let (positions, embed) = (e.dim(0) / images, e.dim(1));
    let noise = |len: usize, stream| g.shared_noise(Distribution::Uniform, &[count, len], stream);
    let lots = noise(images * g.shards(), stream);
    let by_image = e.reshape(&[images, positions * embed]);
    let of_image = match g.group() {
        None => by_image.gather(lots.argmax_last()),
        // The image of each row where it is one of this shard's, and zeros elsewhere.
        Some(_) => {
            let drawn = lots.equal(lots.max_last());
            let share = (drawn / drawn.sum_last()).transpose();
            let rows = g.input(SHARD_ROWS, &[images, 1], DType::U32);
            share.gather(rows).matmul(by_image, true, false)
        }
    };
    let lots = noise(positions, stream + 1);
    let drawn = lots.equal(lots.max_last());
    // Of equal lots, which are rare, the mean.
    let share = (drawn / drawn.sum_last()).reshape(&[count, positions, 1]);
    let chosen = of_image.reshape(&[count, positions, embed]) * share;
    let picked = chosen.sum_to(&[count, 1, embed]).reshape(&[count, embed]);
    picked.all_sum()
}
