//! The part of the op that is a row of K codes at a time: softmax, divergence, sample, and back.
//!
//! Scores come in as tiles of rows, `stride` floats apart (K rounded up to whole vectors; the lanes past K
//! hold a score so low that their probability is zero). Each function is a few passes over one row,
//! which stays in the first-level cache.

use super::Responsibility;
use crate::lanes::{Lanes, WIDTH, Words, dispatch};
use crate::math;
use crate::op::SampleMode;

/// A tile of scores, with the noise of its rows.
pub struct Tile<'a> {
    pub op: &'a Responsibility,
    pub stride: usize,
    /// Standard Gumbel noise, K floats a row; empty where there is none.
    pub gumbel: &'a [f32],
}

impl Tile<'_> {
    /// Noise of the codes from `at` on, as many as there are.
    #[inline(always)]
    fn noise<L: Lanes>(&self, row: usize, at: usize) -> L {
        if self.gumbel.is_empty() {
            return L::zero();
        }
        let codes = self.op.codes;
        L::load_prefix(&self.gumbel[row * codes + at..(row + 1) * codes])
    }
}

/// What a log-softmax needs besides the scores: 1 / Σ e^(a - max) and ln Σ e^a, in every lane.
#[derive(Clone, Copy)]
struct Normaliser<L> {
    inverse: L,
    log: L,
}

/// e^x for a softmax, x ≤ 0. Terms below e^-80 count as zero: they cannot show in a sum that holds a
/// one, and subnormal numbers would cost a hundred cycles each in every later product.
#[inline(always)]
fn weight<L: Lanes>(x: L) -> L {
    L::select(x.lt(L::splat(-80.0)), L::zero(), math::exp(x))
}

/// Writes e^(a - max) to `e`.
#[inline(always)]
fn normalise<L: Lanes>(a: &[f32], e: &mut [f32]) -> Normaliser<L> {
    let mut best = L::splat(f32::NEG_INFINITY);
    for a in a.chunks_exact(WIDTH) {
        best = L::load(a).max(best);
    }
    let best = L::splat(best.max_lane());
    let mut sum = L::zero();
    for (a, e) in a.chunks_exact(WIDTH).zip(e.chunks_exact_mut(WIDTH)) {
        let v = weight(L::load(a).sub(best));
        v.store(e);
        sum = sum.add(v);
    }
    let sum = L::splat(sum.sum());
    Normaliser {
        inverse: L::splat(1.0).div(sum),
        log: best.add(math::log_normal(sum)),
    }
}

/// The running arg max of perturbed scores.
#[derive(Clone, Copy)]
struct Best<L: Lanes> {
    value: L,
    code: L::Words,
}

impl<L: Lanes> Best<L> {
    #[inline(always)]
    fn new() -> Self {
        Best {
            value: L::splat(f32::NEG_INFINITY),
            code: L::Words::splat(0),
        }
    }

    #[inline(always)]
    fn see(&mut self, t: L, at: usize) {
        let better = t.gt(self.value);
        self.value = L::select(better, t, self.value);
        self.code = L::Words::select(better, L::Words::count_from(at as u32), self.code);
    }

    /// The largest value and the first code that has it.
    #[inline(always)]
    fn first(self) -> (f32, u32) {
        let largest = self.value.max_lane();
        let (values, codes) = (self.value.to_array(), self.code.to_array());
        let mut code = u32::MAX;
        for l in 0..WIDTH {
            if values[l] == largest {
                code = code.min(codes[l]);
            }
        }
        // Only NaN scores leave no candidate.
        (largest, if code == u32::MAX { 0 } else { code })
    }
}

dispatch! {
    /// From scores to index, divergence and, for a relaxed sample, responsibilities y (over `a_q`).
    /// `row` is room for two rows.
    pub fn forward(isa, tile: &Tile, a_q: &mut [f32], a_p: &[f32], index: &mut [u32], kl: &mut [f32], row: &mut [f32])
        => forward_lanes;
}

#[inline(always)]
fn forward_lanes<L: Lanes>(
    tile: &Tile,
    a_q: &mut [f32],
    a_p: &[f32],
    index: &mut [u32],
    kl: &mut [f32],
    row: &mut [f32],
) {
    let n = tile.stride;
    let (q, p) = row[..2 * n].split_at_mut(n);
    let scale = L::splat(tile.op.noise_scale);
    let inverse_tau = L::splat(1.0 / tile.op.tau);
    for r in 0..index.len() {
        let a_q = &mut a_q[r * n..(r + 1) * n];
        let of_q = normalise::<L>(a_q, q);
        let prior = Prior::<L>::new(tile, a_p, r, p);
        let mut sum = L::zero();
        let mut best = Best::<L>::new();
        for at in (0..n).step_by(WIDTH) {
            let lq = L::load(&a_q[at..]).sub(of_q.log);
            let lp = prior.log(a_p, r * n + at);
            sum = L::load(&q[at..]).mul(of_q.inverse).fma(lq.sub(lp), sum);
            let t = scale.fma(tile.noise(r, at), lq);
            best.see(t, at);
            t.store(&mut a_q[at..]);
        }
        kl[r] = sum.sum();
        let (largest, code) = best.first();
        index[r] = code;
        if tile.op.mixes() {
            let mut sum = L::zero();
            for t in a_q.chunks_exact_mut(WIDTH) {
                let y = weight(L::load(t).sub(L::splat(largest)).mul(inverse_tau));
                y.store(t);
                sum = sum.add(y);
            }
            let inverse = L::splat(1.0).div(L::splat(sum.sum()));
            for t in a_q.chunks_exact_mut(WIDTH) {
                L::load(t).mul(inverse).store(t);
            }
        }
    }
}

/// log p, from scores or uniform.
#[derive(Clone, Copy)]
struct Prior<L> {
    scored: bool,
    of_p: Normaliser<L>,
}

impl<L: Lanes> Prior<L> {
    #[inline(always)]
    fn new(tile: &Tile, a_p: &[f32], r: usize, p: &mut [f32]) -> Self {
        let n = tile.stride;
        if a_p.is_empty() {
            let log = math::log_normal(L::splat(tile.op.codes as f32));
            return Prior {
                scored: false,
                of_p: Normaliser {
                    inverse: L::zero(),
                    log,
                },
            };
        }
        Prior {
            scored: true,
            of_p: normalise(&a_p[r * n..(r + 1) * n], p),
        }
    }

    #[inline(always)]
    fn log(&self, a_p: &[f32], at: usize) -> L {
        if self.scored {
            L::load(&a_p[at..]).sub(self.of_p.log)
        } else {
            self.of_p.log.neg()
        }
    }
}

/// What flows back into the rows of a tile, and what gathers there.
pub struct Flow<'a> {
    /// dz · mu_k, `stride` floats a row.
    pub dy: &'a [f32],
    pub dkl: &'a [f32],
    /// Σ over rows of the score gradients of q and p, `stride` floats.
    pub total: &'a mut [f32],
    /// Relaxed responsibilities, `stride` floats a row; empty where the sample is hard.
    pub y: &'a mut [f32],
    /// The chosen codes.
    pub index: &'a mut [u32],
}

dispatch! {
    /// Turns scores into their gradients, in place. `row` is room for three rows.
    ///
    /// Through the sample: y (dy - <y, dy>) / tau, y the Gumbel-softmax. ReinMax: with D the one-hot sample and s the softmax
    /// at tau without noise, (D + s)(dy - <D + s, dy> / 2) - q (dy - <q, dy>) / 2.
    pub fn backward(isa, tile: &Tile, a_q: &mut [f32], a_p: &mut [f32], flow: Flow, row: &mut [f32])
        => backward_lanes;
}

#[inline(always)]
fn backward_lanes<L: Lanes>(
    tile: &Tile,
    a_q: &mut [f32],
    a_p: &mut [f32],
    flow: Flow,
    row: &mut [f32],
) {
    let n = tile.stride;
    let (q, rest) = row[..3 * n].split_at_mut(n);
    let (p, t) = rest.split_at_mut(n);
    let scale = L::splat(tile.op.noise_scale);
    let inverse_tau = L::splat(1.0 / tile.op.tau);
    let half = L::splat(0.5);
    let reinmax = tile.op.mode == SampleMode::ReinMax;
    for r in 0..flow.index.len() {
        let a_q = &mut a_q[r * n..(r + 1) * n];
        let dy = &flow.dy[r * n..(r + 1) * n];
        let of_q = normalise::<L>(a_q, q);
        let prior = Prior::<L>::new(tile, a_p, r, p);
        let mut kl = L::zero();
        let mut best = Best::<L>::new();
        let mut top = L::splat(f32::NEG_INFINITY);
        for at in (0..n).step_by(WIDTH) {
            let lq = L::load(&a_q[at..]).sub(of_q.log);
            let ratio = lq.sub(prior.log(a_p, r * n + at));
            let prob = L::load(&q[at..]).mul(of_q.inverse);
            kl = prob.fma(ratio, kl);
            prob.store(&mut q[at..]);
            ratio.store(&mut a_q[at..]);
            let v = scale.fma(tile.noise(r, at), lq);
            best.see(v, at);
            if reinmax {
                top = lq.max(top);
                lq.store(&mut t[at..]);
            } else {
                v.store(&mut t[at..]);
            }
        }
        let kl = L::splat(kl.sum());
        let (mut largest, code) = best.first();
        if reinmax {
            largest = top.max_lane();
        }
        flow.index[r] = code;
        let mut sum = L::zero();
        let mut flowing = L::zero();
        let mut mean_q = L::zero();
        for at in (0..n).step_by(WIDTH) {
            let y = weight(L::load(&t[at..]).sub(L::splat(largest)).mul(inverse_tau));
            y.store(&mut t[at..]);
            sum = sum.add(y);
            flowing = y.fma(L::load(&dy[at..]), flowing);
            if reinmax {
                mean_q = L::load(&q[at..]).fma(L::load(&dy[at..]), mean_q);
            }
        }
        let inverse = L::splat(1.0).div(L::splat(sum.sum()));
        let mut mean = L::splat(flowing.sum()).mul(inverse);
        let mean_q = L::splat(mean_q.sum());
        let drawn = dy[code as usize];
        if reinmax {
            mean = L::splat(drawn).add(mean).mul(half);
        }
        let dkl = L::splat(flow.dkl[r]);
        for at in (0..n).step_by(WIDTH) {
            let y = L::load(&t[at..]).mul(inverse);
            if !flow.y.is_empty() {
                y.store(&mut flow.y[r * n + at..]);
            }
            let q = L::load(&q[at..]);
            let through_kl = q.mul(L::load(&a_q[at..]).sub(kl)).mul(dkl);
            let through_y = y.mul(L::load(&dy[at..]).sub(mean));
            let da_q = if reinmax {
                let through_q = q.mul(L::load(&dy[at..]).sub(mean_q));
                through_y.add(through_kl).sub(through_q.mul(half))
            } else {
                through_y.fma(inverse_tau, through_kl)
            };
            da_q.store(&mut a_q[at..]);
            let mut total = L::load(&flow.total[at..]).add(da_q);
            if prior.scored {
                let p = L::load(&p[at..]).mul(prior.of_p.inverse);
                let da_p = p.sub(q).mul(dkl);
                da_p.store(&mut a_p[r * n + at..]);
                total = total.add(da_p);
            }
            total.store(&mut flow.total[at..]);
        }
        if reinmax {
            // The one-hot sample's own part of (D + s)(dy - mean).
            let own = drawn - mean.to_array()[0];
            a_q[code as usize] += own;
            flow.total[code as usize] += own;
        }
    }
}
