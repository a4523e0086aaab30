//! AdaMax, Adam, Muon, clipping by global norm and EMA, as nodes of the same graph as the loss.
//!
//! They work on the flat parameter vector, so each is one fused pass over it. The states are `theta` (the
//! parameters), `m` and `v` (moments; AdaMax's infinity norm lives in `v`) and `ema`.
//!
//! A parameter may be *set* instead of learnt: a codebook that follows averages is part of the model and of its
//! EMA, but its next value comes from somewhere else than a gradient.
//!
//! Some parameters are *matrices*, and their steps may be orthogonalised instead of being divided value by value.
//!
//! A step may be *skipped*: one whose gradient is far larger than usual, or not finite, leaves every state as it was.
//! Whether it is, is decided on the device, so that nothing waits for the host.

mod muon;

use crate::grad::grad;
use crate::graph::{Graph, Var};
use crate::params::{Entry, Layout, PARAMETERS};

/// The update rule (Kingma and Ba 2015).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Steps are divided by a decaying maximum of gradients.
    AdaMax,
    /// Steps are divided by the root of a decaying mean of squared gradients.
    Adam,
}

/// How parameters are updated.
///
/// ```
/// use rrvq_tensor::optim::{Optimiser, Rule, STATES};
/// use rrvq_tensor::{Data, Device, Graph, Init, Program, Store};
/// let g = Graph::new();
/// let x = g.param("x", &[2], Init::Constant(1.0));
/// let loss = x.square().sum();
/// let optimiser = Optimiser {
///     rule: Rule::Adam,
///     beta1: 0.9,
///     beta2: 0.999,
///     epsilon: 1e-8,
///     clip: 0.0,
///     ema: 0.99,
/// };
/// let norm = optimiser.build(loss);
/// let layout = g.layout();
/// let mut program = Program::new(&Device::Cpu, &g, &layout, &[("loss", loss), ("norm", norm)])?;
/// // Parameters, two moments and the EMA: vectors of one length.
/// let mut store = Store::default();
/// for (name, first) in STATES.into_iter().zip([1.0, 0.0, 0.0, 1.0]) {
///     store.insert(name, layout.initial(0).iter().map(|x| x * first).collect());
/// }
/// for t in 1..=100 {
///     let inputs = [("lr", Data::F32(&[0.1])), ("t", Data::F32(&[t as f32]))];
///     program.run(&mut store, &inputs)?;
/// }
/// assert!(program.scalar("loss")? < 1e-2);
/// # Ok::<(), rrvq_tensor::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimiser {
    /// The update rule.
    pub rule: Rule,
    /// Decay of the mean of gradients.
    pub beta1: f32,
    /// Decay of their maximum or mean square.
    pub beta2: f32,
    /// Added to the divisor.
    pub epsilon: f32,
    /// Largest global gradient norm; 0 leaves gradients alone.
    pub clip: f32,
    /// EMA decay; early steps use the smaller (1 + t) / (10 + t), so that short runs forget their start.
    pub ema: f32,
}

/// Departures from the plain update, for [`Optimiser::build_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Exceptions<'a, 'g> {
    /// Parameters that become these values, whatever their gradients are.
    pub set: &'a [(String, Var<'g>)],
    /// A step whose gradient's global norm is not below this changes nothing; 0 skips none.
    pub skip_norm: f32,
    /// Whether the vector [`RATES`] multiplies the learning rate, value by value.
    pub rates: bool,
    /// Whether the GPUs of a group tell each other gradients in bf16.
    pub bf16_sums: bool,
    /// Parameters whose steps are orthogonalised (Muon) whatever the rule: matrices, or kernels whose last axis are the columns.
    pub matrices: &'a [String],
    /// Values of the gradient that a group sums last, of which the other sums are a multiple; 0 takes what suits GPUs.
    pub bucket: usize,
}

/// Name of the vector of factors that learning rates of parameters are multiplied by. It is read and never written: a
/// vector beside the others costs one more read of the same pass, where computing it anew would cost kernels.
pub const RATES: &str = "rates";

/// The nodes that [`Optimiser::build_with`] added.
#[derive(Clone, Copy, Debug)]
pub struct Update<'g> {
    /// The gradient's global norm, before clipping.
    pub norm: Var<'g>,
    /// 1 where the step is made and 0 where it is skipped; none where all are made.
    pub made: Option<Var<'g>>,
}

impl<'g> Update<'g> {
    /// `next`, or `old` where the step is skipped.
    pub fn unless_skipped(&self, next: Var<'g>, old: Var<'g>) -> Var<'g> {
        match self.made {
            Some(made) => made.select(next, old),
            None => next,
        }
    }
}

/// Values of the flat vector that are summed over shards last. Parameters come in the order of the forward pass, so those at
/// the front have their gradients last, and nothing is left to compute beside their sum: it should be small.
const BUCKET: usize = 8 << 20;
/// How many times as large the other sums are. Each cuts the batches of small kernels that finish gradients, so there should be
/// few.
const LARGER: usize = 5;

/// The flat gradient, summed over all shards in a few large pieces.
fn summed<'g>(
    g: &'g Graph,
    gradients: &[Var<'g>],
    layout: &Layout,
    except: &Exceptions<'_, 'g>,
) -> Var<'g> {
    let most = match except.bucket {
        0 => BUCKET,
        most => most,
    };
    let entries = layout.entries();
    let (mut buckets, mut starts) = (Vec::new(), Vec::new());
    let mut first = 0;
    while first < entries.len() {
        let start = entries[first].offset;
        let size = |entry: &Entry| entry.offset + entry.len() - start;
        let most = if first == 0 { most } else { LARGER * most };
        let count = entries[first..].partition_point(|entry| size(entry) <= most);
        let last = first + count.max(1);
        let offsets: Vec<usize> = entries[first..last]
            .iter()
            .map(|e| e.offset - start)
            .collect();
        let bucket = g.pack(&gradients[first..last], &offsets, size(&entries[last - 1]));
        buckets.push(bucket.sum_over_shards(except.bf16_sums));
        starts.push(start);
        first = last;
    }
    g.pack(&buckets, &starts, layout.len())
}

/// The parameter of this name.
fn entry<'a>(layout: &'a Layout, name: &str) -> &'a Entry {
    match layout.get(name) {
        Some(entry) => entry,
        None => panic!("{name} is to be updated and is not a parameter"),
    }
}

/// 1 for the values of these parameters in a flat vector of `len` values, 0 for the others.
fn chosen<'g>(g: &'g Graph, entries: &[&Entry], len: usize) -> Var<'g> {
    let ones: Vec<Var<'g>> = entries.iter().map(|e| g.full(1.0, &e.shape)).collect();
    let offsets: Vec<usize> = entries.iter().map(|e| e.offset).collect();
    g.pack(&ones, &offsets, len)
}

/// Names of the flat vectors an optimiser keeps.
pub const STATES: [&str; 4] = [PARAMETERS, "m", "v", "ema"];

impl Optimiser {
    /// Adds gradient, clipping, update and EMA for every parameter of the graph; returns the gradient's
    /// global norm. Inputs of the program: scalars `lr` and `t`, the number of the update, from 1.
    pub fn build<'g>(&self, loss: Var<'g>) -> Var<'g> {
        self.build_with(loss, Exceptions::default()).norm
    }

    /// The same with exceptions.
    pub fn build_with<'g>(&self, loss: Var<'g>, except: Exceptions<'_, 'g>) -> Update<'g> {
        let set = except.set;
        let g = loss.graph();
        let layout = g.layout();
        let n = layout.len();
        let gradients = grad(loss, &g.params());
        let offsets: Vec<usize> = layout.entries().iter().map(|e| e.offset).collect();
        let flat = match g.group() {
            None => g.pack(&gradients, &offsets, n),
            Some(_) => summed(g, &gradients, &layout, &except),
        };
        let norm = flat.square().sum().sqrt();
        let d = if self.clip > 0.0 {
            flat * (self.clip / (norm + 1e-6)).min(g.scalar(1.0))
        } else {
            flat
        };
        let (lr, t) = (g.scalar_input("lr"), g.scalar_input("t"));
        let [theta, m, v, ema] = STATES.map(|name| g.state(name, n));
        // 1 − βᵗ, accurate for small t.
        let correction = |beta: f32| -((t * (beta as f64).ln() as f32).expm1());
        let m2 = m + (d - m) * (1.0 - self.beta1);
        let (v2, step) = match self.rule {
            Rule::AdaMax => {
                let v2 = (v * self.beta2).max(d.abs());
                (v2, m2 / (v2 + self.epsilon) * (lr / correction(self.beta1)))
            }
            Rule::Adam => {
                let v2 = v + (d.square() - v) * (1.0 - self.beta2);
                let denominator = (v2 / correction(self.beta2)).sqrt() + self.epsilon;
                (v2, m2 / denominator * (lr / correction(self.beta1)))
            }
        };
        let step = match except.matrices {
            [] => step,
            names => {
                let entries: Vec<&Entry> = names.iter().map(|name| entry(&layout, name)).collect();
                // Nesterov's: the mean as it will be once this gradient has counted twice.
                let steps = muon::steps(d + (m2 - d) * self.beta1, &entries);
                chosen(g, &entries, n).select(steps * lr, step)
            }
        };
        let step = match except.rates {
            true => step * g.state(RATES, n),
            false => step,
        };
        let theta2 = match set {
            [] => theta - step,
            _ => {
                let entries: Vec<&Entry> =
                    set.iter().map(|(name, _)| entry(&layout, name)).collect();
                let offsets: Vec<usize> = entries.iter().map(|e| e.offset).collect();
                let values: Vec<Var<'g>> = set.iter().map(|(_, value)| *value).collect();
                let values = g.pack(&values, &offsets, n);
                chosen(g, &entries, n).select(values, theta - step)
            }
        };
        let decay = ((1.0 + t) / (10.0 + t)).min(g.scalar(self.ema));
        let ema2 = theta2 + (ema - theta2) * decay;
        let update = Update {
            norm,
            // False where the norm is not a number.
            made: (except.skip_norm > 0.0).then(|| g.scalar(except.skip_norm).greater(norm)),
        };
        let (old, next) = ([theta, m, v, ema], [theta2, m2, v2, ema2]);
        for (name, (old, next)) in STATES.into_iter().zip(old.into_iter().zip(next)) {
            g.assign(name, update.unless_skipped(next, old));
        }
        update
    }
}
