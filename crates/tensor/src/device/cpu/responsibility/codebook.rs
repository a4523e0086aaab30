//! The codebook as the products want it, and its gradient out of their sums.
//!
//! With iv = e^-logvar, the score of code k is a_k(e) = c_k + Σ_d e_d (mu iv)_kd - e_d² (iv/2)_kd: one product
//! of [e, e²] with a matrix that is prepared once a call. Its gradients need three sums over rows,
//! G0 = Σ da, G1 = Σ da e and G2 = Σ da e², from which dmu and dlogvar follow by code.

use super::Responsibility;
use crate::device::cpu::gemm::panels::{Panels, transpose_into};
use crate::device::cpu::scratch::with_scratch;
use crate::lanes::{Lanes, WIDTH, dispatch};
use crate::math;
use crate::simd::Isa;

/// The score of lanes past the last code: low enough for probability zero, finite so that
/// differences of scores stay numbers.
const NO_CODE: f32 = -1e30;

/// Prepared matrices. `codes` is rounded up to whole vectors in `stride`.
pub struct Codebook<'a> {
    pub stride: usize,
    /// c_k.
    pub constant: &'a [f32],
    /// [2D × stride]: mu·iv over -iv/2, one column a code.
    pub scores: Panels<'a>,
    /// [D × stride]: mu, one column a code.
    pub means: Panels<'a>,
    /// [K × 2D]: mu·iv beside iv, one row a code.
    pub back: Panels<'a>,
}

/// Prepares a codebook in scratch memory for the length of `body`; `means` and `back` only where
/// gradients are asked for.
pub fn with_codebook<R>(
    isa: Isa,
    op: &Responsibility,
    mu: &[f32],
    logvar: &[f32],
    gradients: bool,
    body: impl FnOnce(&Codebook) -> R,
) -> R {
    let (k, d) = (op.codes, op.dim);
    let (back_d, back_k) = if gradients { (d, k) } else { (0, 0) };
    let n = k.next_multiple_of(WIDTH);
    let plain = [back_k * d, 2 * d * n, back_k * 2 * d, n];
    let packed = [
        Panels::floats(2 * d, n),
        Panels::floats(back_d, n),
        Panels::floats(back_k, 2 * d),
    ];
    let aligned = plain
        .iter()
        .chain(&packed)
        .map(|n| n.next_multiple_of(WIDTH));
    with_scratch(aligned.sum(), |room| {
        let mut room = room;
        let [iv, columns, rows, constant] = plain.map(|len| take(&mut room, len));
        let [scores, means, back] = packed.map(|len| take(&mut room, len));
        let (mean_columns, logvar_columns) = columns.split_at_mut(d * n);
        transpose_into(mu, d, d, k, mean_columns, n);
        transpose_into(logvar, d, d, k, logvar_columns, n);
        let means = Panels::packed(isa, back_d, n, &columns[..back_d * n], means);
        inverse_variance(isa, &logvar[..back_k * d], iv);
        let by_code = mu.chunks_exact(d).zip(iv.chunks_exact(d));
        for (row, (mu, iv)) in rows.chunks_exact_mut(2 * d).zip(by_code) {
            let (scaled, plain) = row.split_at_mut(d);
            for i in 0..d {
                scaled[i] = mu[i] * iv[i];
            }
            plain.copy_from_slice(iv);
        }
        constant_and_scores(isa, d, columns, constant);
        constant[k..].fill(NO_CODE);
        let codebook = Codebook {
            stride: n,
            constant,
            scores: Panels::packed(isa, 2 * d, n, columns, scores),
            means,
            back: Panels::packed(isa, back_k, 2 * d, rows, back),
        };
        body(&codebook)
    })
}

/// The next `len` floats, leaving the rest on a vector boundary.
pub fn take<'a>(room: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (head, tail) = std::mem::take(room).split_at_mut(len.next_multiple_of(WIDTH));
    *room = tail;
    &mut head[..len]
}

dispatch! {
    fn inverse_variance(isa, logvar: &[f32], iv: &mut [f32]) => inverse_variance_lanes;
}

#[inline(always)]
fn inverse_variance_lanes<L: Lanes>(logvar: &[f32], iv: &mut [f32]) {
    for (l, v) in logvar.chunks(WIDTH).zip(iv.chunks_mut(WIDTH)) {
        math::exp(L::load_prefix(l).neg()).store_prefix(v);
    }
}

dispatch! {
    /// Columns of mu over logvar become columns of mu·iv over -iv/2, and c = -½ Σ_d (mu² iv + logvar).
    fn constant_and_scores(isa, d: usize, columns: &mut [f32], constant: &mut [f32]) => constant_and_scores_lanes;
}

#[inline(always)]
fn constant_and_scores_lanes<L: Lanes>(d: usize, columns: &mut [f32], constant: &mut [f32]) {
    let n = constant.len();
    let (means, logvars) = columns.split_at_mut(d * n);
    for at in (0..n).step_by(WIDTH) {
        let mut sum = L::zero();
        for i in 0..d {
            let mean = &mut means[i * n + at..][..WIDTH];
            let logvar = &mut logvars[i * n + at..][..WIDTH];
            let (mu, lv) = (L::load(mean), L::load(logvar));
            let iv = math::exp(lv.neg());
            let scaled = mu.mul(iv);
            sum = scaled.fma(mu, sum).add(lv);
            scaled.store(mean);
            iv.mul(L::splat(-0.5)).store(logvar);
        }
        sum.mul(L::splat(-0.5)).store(&mut constant[at..]);
    }
}

/// Sums over rows, by code.
pub struct Sums<'a> {
    /// G0, `codes` floats and more.
    pub total: &'a [f32],
    /// [K × 2D]: G1 beside G2.
    pub moments: &'a [f32],
    /// [K × D]: what reaches mu through z.
    pub through_z: &'a [f32],
}

dispatch! {
    /// dmu = iv (G1 - mu G0) + Z and dlogvar = ½ (iv (G2 - 2 mu G1 + mu² G0) - G0), for the codes from `first` on.
    pub fn codebook_gradient(isa, d: usize, first: usize, mu: &[f32], logvar: &[f32], sums: Sums, dmu: &mut [f32], dlogvar: &mut [f32])
        => codebook_gradient_lanes;
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn codebook_gradient_lanes<L: Lanes>(
    d: usize,
    first: usize,
    mu: &[f32],
    logvar: &[f32],
    sums: Sums,
    dmu: &mut [f32],
    dlogvar: &mut [f32],
) {
    for (i, (dmu, dlogvar)) in dmu.chunks_mut(d).zip(dlogvar.chunks_mut(d)).enumerate() {
        let k = first + i;
        let g0 = L::splat(sums.total[k]);
        for at in (0..d).step_by(WIDTH) {
            let end = (at + WIDTH).min(d);
            let mean = L::load_prefix(&mu[k * d + at..k * d + end]);
            let iv = math::exp(L::load_prefix(&logvar[k * d + at..k * d + end]).neg());
            let g1 = L::load_prefix(&sums.moments[2 * k * d + at..2 * k * d + end]);
            let g2 = L::load_prefix(&sums.moments[(2 * k + 1) * d + at..(2 * k + 1) * d + end]);
            let z = L::load_prefix(&sums.through_z[k * d + at..k * d + end]);
            let centred = mean.neg().fma(g0, g1);
            iv.fma(centred, z).store_prefix(&mut dmu[at..end]);
            // Σ da (e - mu)² = G2 - mu G1 - mu (G1 - mu G0)
            let spread = mean.neg().fma(centred, mean.neg().fma(g1, g2));
            let half = L::splat(0.5);
            iv.fma(spread, g0.neg())
                .mul(half)
                .store_prefix(&mut dlogvar[at..end]);
        }
    }
}
