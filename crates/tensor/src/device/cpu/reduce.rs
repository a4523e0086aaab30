//! Reductions that are not by short rows: over leading or middle axes, and of very long rows.
//!
//! Work is cut into chunks whose size depends on the shape alone, each chunk is summed in a fixed order, and
//! the chunks' sums are added in order: the same bits whichever thread computed a chunk.

use super::chain::{Runner, View, accumulate};
use super::for_ranges;
use super::memory::Memory;
use crate::compile::Chain;
use crate::lanes::{Lanes, WIDTH, dispatch};
use crate::op::ReduceOp;
use crate::simd::Isa;

/// Elements of a long row that are summed before the next level.
const CHUNK: usize = 16 * 1024;
/// Rows that are summed before the next level, at most.
const ROWS: usize = 256;

/// Sums [outer, len, inner] over `len`, after the chain.
///
/// # Safety
/// As [`Runner::new`].
pub(crate) unsafe fn run(
    isa: Isa,
    chain: &Chain,
    m: &Memory,
    op: ReduceOp,
    shape: [usize; 3],
    out: &mut [f32],
) {
    let [outer, len, inner] = shape;
    assert!(chain.flat, "closing chains are flat");
    // SAFETY: as the caller says; chunks are disjoint.
    let runner = unsafe { Runner::new(isa, chain, m) };
    let result = chain.result.expect("a closing chain has a result");
    if inner == 1 {
        let per_row = len.div_ceil(CHUNK);
        let mut partial = vec![0.0f32; outer * per_row];
        let target = Shared(partial.as_mut_ptr());
        for_ranges(outer * per_row, 1, |from, to| {
            for i in from..to {
                let (row, chunk) = (i / per_row, i % per_row);
                let first = row * len + chunk * CHUNK;
                let end = (first + CHUNK).min((row + 1) * len);
                let mut acc = [identity(op); WIDTH];
                runner.range(first, end, None, |b| {
                    // SAFETY: the view is of this block.
                    unsafe { line(isa, op, &runner.view(result, b), b.cols, &mut acc) };
                });
                // SAFETY: each chunk has its own place.
                unsafe { *target.at(i) = lanes_to_value(isa, op, &acc) };
            }
        });
        for (row, value) in out.iter_mut().enumerate() {
            let parts = &partial[row * per_row..(row + 1) * per_row];
            *value = parts[1..].iter().fold(parts[0], |a, &b| combine(op, a, b));
        }
        return;
    }
    let rows = (CHUNK * 2 / inner).clamp(1, ROWS);
    let chunks = len.div_ceil(rows);
    let mut partial = vec![0.0f32; outer * chunks * inner];
    let target = Shared(partial.as_mut_ptr());
    for_ranges(outer * chunks, 1, |from, to| {
        for i in from..to {
            let (block, chunk) = (i / chunks, i % chunks);
            let (first, end) = (chunk * rows, ((chunk + 1) * rows).min(len));
            // SAFETY: each chunk has its own place.
            let acc = unsafe { std::slice::from_raw_parts_mut(target.at(i * inner), inner) };
            acc.fill(identity(op));
            let (from, to) = ((block * len + first) * inner, (block * len + end) * inner);
            let mut column = 0;
            runner.range(from, to, None, |b| {
                let view = runner.view(result, b);
                // SAFETY: the view is of this block.
                column = unsafe { columns(isa, op, &view, b.cols, column, acc) };
            });
        }
    });
    for (block, out) in out.chunks_mut(inner).enumerate() {
        let parts = &partial[block * chunks * inner..(block + 1) * chunks * inner];
        out.copy_from_slice(&parts[..inner]);
        for part in parts[inner..].chunks(inner) {
            out.iter_mut()
                .zip(part)
                .for_each(|(o, &p)| *o = combine(op, *o, p));
        }
    }
}

struct Shared(*mut f32);
// SAFETY: every chunk writes its own elements.
unsafe impl Sync for Shared {}
impl Shared {
    fn at(&self, i: usize) -> *mut f32 {
        self.0.wrapping_add(i)
    }
}

fn identity(op: ReduceOp) -> f32 {
    match op {
        ReduceOp::Sum => 0.0,
        ReduceOp::Max => f32::NEG_INFINITY,
    }
}

fn combine(op: ReduceOp, a: f32, b: f32) -> f32 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Max => {
            if b > a {
                b
            } else {
                a
            }
        }
    }
}

dispatch! {
    /// # Safety
    /// The view has a row of `cols` elements.
    unsafe fn line(isa, op: ReduceOp, view: &View, cols: usize, acc: &mut [f32; WIDTH]) => line_lanes;
}

/// # Safety
/// As [`line`].
#[inline(always)]
unsafe fn line_lanes<L: Lanes>(op: ReduceOp, view: &View, cols: usize, acc: &mut [f32; WIDTH]) {
    // SAFETY: as the caller says.
    unsafe { accumulate::<L>(op, view, 0, cols, L::load(acc)) }.store(acc);
}

dispatch! {
    fn lanes_to_value(isa, op: ReduceOp, acc: &[f32; WIDTH]) -> f32 => lanes_to_value_lanes;
}

#[inline(always)]
fn lanes_to_value_lanes<L: Lanes>(op: ReduceOp, acc: &[f32; WIDTH]) -> f32 {
    match op {
        ReduceOp::Sum => L::load(acc).sum(),
        ReduceOp::Max => L::load(acc).max_lane(),
    }
}

dispatch! {
    /// Adds elements to the columns they belong to; returns the column the next block starts at.
    ///
    /// # Safety
    /// The view has a row of `len` elements.
    unsafe fn columns(isa, op: ReduceOp, view: &View, len: usize, column: usize, acc: &mut [f32]) -> usize => columns_lanes;
}

/// # Safety
/// As [`columns`].
#[inline(always)]
unsafe fn columns_lanes<L: Lanes>(
    op: ReduceOp,
    view: &View,
    len: usize,
    column: usize,
    acc: &mut [f32],
) -> usize {
    let inner = acc.len();
    let row = view.row(0);
    // SAFETY: the view's own row.
    let fixed = unsafe { view.fixed::<L>(row) };
    let (mut at, mut column) = (0, column);
    while at < len {
        if column == 0 && len - at >= inner {
            // Whole rows: a strip of columns stays in registers while the rows pass.
            let rows = (len - at) / inner;
            for first in (0..inner).step_by(WIDTH) {
                let n = WIDTH.min(inner - first);
                let to = &mut acc[first..first + n];
                let mut sum = L::load_prefix(to);
                for r in 0..rows {
                    let from = at + r * inner + first;
                    let x = match n {
                        // SAFETY: sixteen elements are left in the row.
                        WIDTH => unsafe { view.lanes::<L>(row, from, fixed) },
                        // SAFETY: n elements are left in the row.
                        _ => unsafe { view.tail::<L>(row, from, n, fixed) },
                    };
                    sum = join::<L>(op, sum, x);
                }
                sum.store_prefix(to);
            }
            at += rows * inner;
            continue;
        }
        let n = (inner - column).min(len - at).min(WIDTH);
        let to = &mut acc[column..column + n];
        // SAFETY: n elements are left in the row.
        let x = unsafe { view.tail::<L>(row, at, n, fixed) };
        join::<L>(op, L::load_prefix(to), x).store_prefix(to);
        at += n;
        column = (column + n) % inner;
    }
    column
}

#[inline(always)]
fn join<L: Lanes>(op: ReduceOp, sum: L, x: L) -> L {
    match op {
        ReduceOp::Sum => sum.add(x),
        ReduceOp::Max => x.max(sum),
    }
}
