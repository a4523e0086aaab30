//! AdaMax, Adam, clipping by global norm and EMA, drawn into the same graph as the step.
//!
//! They work on the flat parameter vector, so each is one fused pass over it. The states are `theta` (the
//! parameters), `m` and `v` (moments; AdaMax's infinity norm lives in `v`) and `ema`.
//!
//! A parameter may be *set* instead of learnt: a codebook that follows averages is part of the model and of its
//! EMA, but its next value comes from somewhere else than a gradient.
//!
//! A step may be *skipped*: one whose gradient is far larger than usual, or not finite, leaves every state as it was.
//! Whether it is, is decided on the device, so that nothing waits for the host.

use crate::grad::grad;
use crate::graph::Var;
use crate::params::PARAMETERS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    AdaMax,
    Adam,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimiser {
    pub rule: Rule,
    pub beta1: f32,
    pub beta2: f32,
    pub epsilon: f32,
    /// Largest global gradient norm; 0 leaves gradients alone.
    pub clip: f32,
    /// EMA decay; early steps use the smaller (1 + t) / (10 + t), so that short runs forget their start.
    pub ema: f32,
}

/// What is done besides, or instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exceptions<'a, 'g> {
    /// Parameters that become these values, whatever their gradients are.
    pub set: &'a [(String, Var<'g>)],
    /// A step whose gradient's global norm is not below this changes nothing; 0 skips none.
    pub skip_norm: f32,
    /// Whether the vector [`RATES`] multiplies the learning rate, value by value.
    pub rates: bool,
}

/// Name of the vector of factors that learning rates of parameters are multiplied by. It is read and never written: a
/// vector beside the others costs one more read of the same pass, where drawing it anew would cost kernels.
pub const RATES: &str = "rates";

/// What [`Optimiser::draw_with`] has drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'g> {
    /// The gradient's global norm, before clipping.
    pub norm: Var<'g>,
    /// 1 where the step is made and 0 where it is skipped; none where all are made.
    pub made: Option<Var<'g>>,
}

impl<'g> Drawn<'g> {
    /// `next`, or `old` where the step is skipped.
    pub fn unless_skipped(&self, next: Var<'g>, old: Var<'g>) -> Var<'g> {
        match self.made {
            Some(made) => made.select(next, old),
            None => next,
        }
    }
}

/// Names of the flat vectors an optimiser keeps.
pub const STATES: [&str; 4] = [PARAMETERS, "m", "v", "ema"];

impl Optimiser {
    /// Draws gradient, clipping, update and EMA for every parameter of the graph; returns the gradient's
    /// global norm. Inputs of the program: scalars `lr` and `t`, the number of the update, from 1.
    pub fn draw<'g>(&self, loss: Var<'g>) -> Var<'g> {
        self.draw_with(loss, Exceptions::default()).norm
    }

    /// The same with exceptions.
    pub fn draw_with<'g>(&self, loss: Var<'g>, except: Exceptions<'_, 'g>) -> Drawn<'g> {
        let set = except.set;
        let g = loss.graph();
        let layout = g.layout();
        let n = layout.len();
        let gradients = grad(loss, &g.params());
        let offsets: Vec<usize> = layout.entries().iter().map(|e| e.offset).collect();
        let flat = g.pack(&gradients, &offsets, n);
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
        let step = match except.rates {
            true => step * g.state(RATES, n),
            false => step,
        };
        let theta2 = match set {
            [] => theta - step,
            _ => {
                let at = |name: &str| match layout.get(name) {
                    Some(entry) => entry.offset,
                    None => panic!("{name} is set but is not a parameter"),
                };
                let offsets: Vec<usize> = set.iter().map(|(name, _)| at(name)).collect();
                let values: Vec<Var<'g>> = set.iter().map(|(_, value)| *value).collect();
                let ones: Vec<Var<'g>> = values.iter().map(|v| g.full(1.0, &v.shape())).collect();
                let chosen = g.pack(&ones, &offsets, n);
                chosen.select(g.pack(&values, &offsets, n), theta - step)
            }
        };
        let decay = ((1.0 + t) / (10.0 + t)).min(g.scalar(self.ema));
        let ema2 = theta2 + (ema - theta2) * decay;
        let drawn = Drawn {
            norm,
            // False where the norm is not a number.
            made: (except.skip_norm > 0.0).then(|| g.scalar(except.skip_norm).greater(norm)),
        };
        let (old, next) = ([theta, m, v, ema], [theta2, m2, v2, ema2]);
        for (name, (old, next)) in STATES.into_iter().zip(old.into_iter().zip(next)) {
            g.assign(name, drawn.unless_skipped(next, old));
        }
        drawn
    }
}
