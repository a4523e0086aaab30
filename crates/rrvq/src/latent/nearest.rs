//! VQ-VAE: the nearest code, straight through, with a commitment loss that keeps the encoder near its codes. The prior
//! is uniform, so the KL of a position is the constant ln K.
//!
//! The codes follow the encoder in one of two ways. By a codebook loss, they are parameters like all others. By
//! averages ([`Averages`]), a code is the running mean of the outputs it was nearest to: k-means on a stream, which
//! knows no learning rate. A code that is hardly used any more would stay where it is for good; it starts again at an
//! output of the current batch.

use crate::config::CodebookRule;
use crate::model::Pen;
use rrvq_tensor::op::Sampled;
use rrvq_tensor::rng::Distribution;
use rrvq_tensor::{Graph, Init, Var};

/// Means of a layer's codes, [K, d_e].
#[derive(Clone, Copy)]
pub struct Nearest<'g> {
    pub mu: Var<'g>,
}

/// A quantised map.
#[derive(Clone, Copy)]
pub struct Quantised<'g> {
    pub sampled: Sampled<'g>,
    /// ‖sg(e) − μ‖² + β ‖e − sg(μ)‖² of each row, [rows, 1]; the second part alone where averages move the codes.
    pub penalty: Var<'g>,
}

impl<'g> Nearest<'g> {
    pub fn draw(pen: &Pen<'g>, name: &str, codes: usize) -> Self {
        let init = Init::Normal(pen.config.code_scale as f32);
        let shape = [codes, pen.config.embed];
        let mu = pen.graph.param(&mean_name(name), &shape, init);
        Nearest {
            mu: match pen.config.codebook {
                CodebookRule::Loss => mu,
                // What averages decide, no gradient may move.
                CodebookRule::Ema => mu.detach(),
            },
        }
    }

    /// e·μ − ½‖μ‖² of each row and code, [rows, K]: the nearest code has the largest.
    pub fn closeness(&self, e: Var<'g>) -> Var<'g> {
        let half = (self.mu.square().sum_last() * 0.5).reshape(&[1, self.mu.dim(0)]);
        e.matmul(self.mu, false, true) - half
    }

    /// Where averages move the codes, they start at outputs of the first batch.
    pub fn starting(self, pen: &Pen<'g>, batch: &FirstBatch<'g>) -> Self {
        match pen.config.codebook {
            CodebookRule::Loss => self,
            CodebookRule::Ema => Nearest {
                mu: batch.start(pen, self.mu, |found| found),
            },
        }
    }

    /// Each row of `e`, [rows, d_e], to the code nearest to it; `commitment` is β.
    pub fn quantise(&self, e: Var<'g>, commitment: f32, rule: CodebookRule) -> Quantised<'g> {
        let (g, codes) = (e.graph(), self.mu.dim(0));
        let index = self.closeness(e).argmax_last();
        let code = self.mu.gather(index);
        let commits = (e - code.detach()).square().sum_last() * commitment;
        let sampled = Sampled {
            z: e + (code - e).detach(),
            index,
            kl: g.full((codes as f32).ln(), &[e.dim(0), 1]),
        };
        Quantised {
            sampled,
            penalty: match rule {
                CodebookRule::Loss => (e.detach() - code).square().sum_last() + commits,
                CodebookRule::Ema => commits,
            },
        }
    }
}

fn mean_name(name: &str) -> String {
    format!("{name}.mean")
}

/// A vector that a training step keeps besides the parameters and their moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub name: String,
    pub shape: Vec<usize>,
    pub first: First,
}

/// What a memory holds before the first step.
#[derive(Clone, Debug, PartialEq)]
pub enum First {
    Ones,
    /// A copy of this parameter.
    Parameter(String),
}

impl Memory {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The averages a codebook follows.
#[derive(Clone, Copy, Debug)]
pub struct Averages {
    /// What is left of an average after a step.
    pub decay: f32,
    /// A code used less often than this, in units of even use, starts again; 0 lets it be.
    pub revive: f32,
    /// Noise of this stream and the next picks where.
    pub stream: u32,
}

/// What a step makes of a codebook and its memories.
pub struct Moved<'g> {
    /// The parameter of the means, and its next value, [K, d_e].
    pub mean: (String, Var<'g>),
    /// Next values of the memories.
    pub memories: [(Memory, Var<'g>); 2],
}

/// Keeps a code that was never used from dividing by zero.
const SMOOTHING: f32 = 1e-5;

/// First stream of the noise that revives; layers below it draw their samples.
const REVIVAL: u32 = 0x7000_0000;

impl Averages {
    /// Those of `layer`, as the configuration has them.
    pub fn of_layer(pen: &Pen<'_>, layer: usize) -> Averages {
        Averages {
            decay: pen.config.codebook_decay as f32,
            revive: pen.config.codebook_revive as f32,
            stream: REVIVAL + 2 * layer as u32,
        }
    }

    /// Use of each code and sum of what it was nearest to, both in units of even use: a code that is used as often as
    /// the others has 1, whatever the size of a batch.
    pub fn memories(name: &str, codes: usize, embed: usize) -> [Memory; 2] {
        let memory = |what: &str, shape: Vec<usize>, first| Memory {
            name: format!("{name}.{what}"),
            shape,
            first,
        };
        let mean = First::Parameter(mean_name(name));
        [
            memory("use", vec![codes, 1], First::Ones),
            memory("sum", vec![codes, embed], mean),
        ]
    }

    /// Moves the codes `name` after a batch of `images`: `e` [rows, d_e] went to the codes `index` [rows, 1].
    pub fn moved<'g>(
        &self,
        name: &str,
        codes: usize,
        e: Var<'g>,
        index: Var<'g>,
        images: usize,
    ) -> Moved<'g> {
        let (g, e) = (e.graph(), e.detach());
        let (rows, embed) = (e.dim(0), e.dim(1));
        let unit = codes as f32 / rows as f32;
        let now_used = index.scatter_add(g.full(1.0, &[rows, 1]), codes) * unit;
        let now_sum = index.scatter_add(e, codes) * unit;
        let memories = Self::memories(name, codes, embed);
        let [used, sum] = [(0, now_used), (1, now_sum)].map(|(i, now): (usize, Var<'g>)| {
            let memory: &Memory = &memories[i];
            let old = g.state(&memory.name, memory.len()).reshape(&memory.shape);
            now + (old - now) * self.decay
        });
        let (used, sum) = match self.revive > 0.0 {
            false => (used, sum),
            true => {
                let dead = g.scalar(self.revive).greater(used);
                let picked = pick(e, images, codes, self.stream);
                // Revived with an even share: it has as long to find its place as any code has to lose it.
                (dead.select(g.scalar(1.0), used), dead.select(picked, sum))
            }
        };
        let total = used.sum();
        let smooth = (used + SMOOTHING) * (total / (total + codes as f32 * SMOOTHING));
        let [use_memory, sum_memory] = memories;
        Moved {
            mean: (mean_name(name), sum / smooth),
            memories: [(use_memory, used), (sum_memory, sum)],
        }
    }
}

/// What a layer's codes may start at: its embeddings of a batch of `images`, [rows, d_e].
pub struct FirstBatch<'g> {
    /// What the layer's codebook is called.
    pub name: String,
    pub layer: usize,
    pub e: Var<'g>,
    pub images: usize,
}

impl<'g> FirstBatch<'g> {
    /// The means, placed by any of these embeddings where this drawing is the one that finds first values: what is
    /// initialised after them sees them there.
    pub(super) fn start(
        &self,
        pen: &Pen<'g>,
        mu: Var<'g>,
        place: impl FnOnce(Var<'g>) -> Var<'g>,
    ) -> Var<'g> {
        if !pen.initialises() {
            return mu;
        }
        let stream = Averages::of_layer(pen, self.layer).stream;
        let mu = place(pick(self.e, self.images, mu.dim(0), stream));
        pen.start_at(&mean_name(&self.name), mu);
        mu
    }
}

/// Any `count` rows of `e`, [count, d_e]: for each an image, then a position in it. Two draws of some hundred numbers in
/// place of one among all rows, which would need noise for every pair.
fn pick<'g>(e: Var<'g>, images: usize, count: usize, stream: u32) -> Var<'g> {
    let g: &Graph = e.graph();
    let (positions, embed) = (e.dim(0) / images, e.dim(1));
    let noise = |len: usize, stream| g.noise_stream(Distribution::Uniform, &[count, len], stream);
    let image = noise(images, stream).argmax_last();
    let of_image = e.reshape(&[images, positions * embed]).gather(image);
    let lots = noise(positions, stream + 1);
    let drawn = lots.equal(lots.max_last());
    // Of equal lots, which are rare, the mean.
    let share = (drawn / drawn.sum_last()).reshape(&[count, positions, 1]);
    let chosen = of_image.reshape(&[count, positions, embed]) * share;
    chosen.sum_to(&[count, 1, embed]).reshape(&[count, embed])
}
