//! Matrix products, and the tiles and panels that convolutions share with them.
//!
//! Results leave block by block through [`Finish`], so that whatever follows a product (bias,
//! activation, a residual sum) runs while the block is still in cache and before it reaches memory.

use crate::device::cpu::scratch::with_scratch;
use crate::op::MatrixProduct;
use crate::simd::Isa;
use panels::{Layout, Panels, panel_width, transpose_into};
use rayon::prelude::*;
use tile::{Passes, Point, Row, Segment, Terms, outer, product};

pub mod panels;
pub mod tile;

/// Takes finished outputs: the index of the first element and a contiguous block, which it may
/// overwrite. Called in any order, from any thread.
pub type Finish<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

/// Floats of a block: with its operands, what a second-level cache holds.
const BLOCK_FLOATS: usize = 16 * 1024;
/// Blocks worth having for each thread, so that one that falls behind does not hold up the others.
pub const BLOCKS: usize = 2;
/// Rows worth having in a block, for tiles to be full and panels to be reused.
const BLOCK_ROWS: usize = 16;
/// Terms of a sum of outer products that stay in the first-level cache.
pub const POINTS: usize = 64;

/// Rows of a block, of `rows` rows of `cols` columns in all. Outputs do not know their block, so threads
/// may decide here without showing in the bits.
pub fn block_rows(rows: usize, cols: usize) -> usize {
    let fit = (BLOCK_FLOATS / cols.max(1)).max(1);
    fit.min((rows / (BLOCKS * rayon::current_num_threads())).max(BLOCK_ROWS))
}

/// Products one behind the other; [`matmul`] is one of them.
pub fn matmuls(isa: Isa, p: &MatrixProduct, a: &[f32], b: &[f32], finish: Finish) {
    assert_eq!((a.len(), b.len()), (p.first(), p.second()));
    // Many small products keep all cores busy, where one of them would not.
    (0..p.count).into_par_iter().for_each(|i| {
        let (size_a, size_b, size_c) = (p.m * p.k, p.k * p.n, p.m * p.n);
        let (a, b) = (&a[i * size_a..][..size_a], &b[i * size_b..][..size_b]);
        let finish = |first: usize, block: &mut [f32]| finish(i * size_c + first, block);
        matmul(isa, p.m, p.k, p.n, p.ta, p.tb, a, b, &finish);
    });
}

/// C = op(A) · op(B), C being m × n and the sums k long; op transposes where `ta` or `tb` says so.
/// A is stored m × k (k × m with `ta`), B k × n (n × k with `tb`), all row-major.
#[allow(clippy::too_many_arguments)]
pub fn matmul(
    isa: Isa,
    m: usize,
    k: usize,
    n: usize,
    ta: bool,
    tb: bool,
    a: &[f32],
    b: &[f32],
    finish: Finish,
) {
    assert_eq!(a.len(), m * k);
    assert_eq!(b.len(), k * n);
    if m == 0 || n == 0 {
        return;
    }
    let block = block_rows(m, n);
    let layout = if tb {
        Layout::Transposed
    } else {
        Layout::Straight
    };
    if !ta {
        let passes = Passes::new(panel_width(isa, n), [Segment { a: 0, b: 0, len: k }]);
        Panels::with(isa, k, n, layout, b, |b| {
            (0..m.div_ceil(block)).into_par_iter().for_each(|unit| {
                let first = unit * block;
                let count = block.min(m - first);
                let rows: Vec<Row> = (0..count)
                    .map(|r| Row {
                        a: (first + r) * k,
                        c: r * n,
                    })
                    .collect();
                with_scratch(count * n, |c| {
                    product(isa, a, &rows, &passes, b, c, false);
                    finish(first * n, c);
                });
            });
        });
    } else if tb {
        with_scratch(k * n, |straight| {
            transpose_into(b, k, k, n, straight, n);
            transposed_product(isa, [m, k, n], block, a, straight, finish);
        });
    } else {
        transposed_product(isa, [m, k, n], block, a, b, finish);
    }
}

/// AᵀB from the rows of A and B.
fn transposed_product(
    isa: Isa,
    [m, k, n]: [usize; 3],
    block: usize,
    a: &[f32],
    b: &[f32],
    finish: Finish,
) {
    let points: Vec<Point> = (0..POINTS.min(k))
        .map(|p| Point { a: p * m, b: p * n })
        .collect();
    (0..m.div_ceil(block)).into_par_iter().for_each(|unit| {
        let first = unit * block;
        let count = block.min(m - first);
        with_scratch(count * n, |c| {
            c.fill(0.0);
            for p in (0..k).step_by(POINTS) {
                let points = &points[..POINTS.min(k - p)];
                let (a, b) = (&a[p * m + first..], &b[p * n..]);
                let next = [&[][..], b.get(POINTS * n..).unwrap_or_default()];
                outer(isa, &Terms { a, b, points, next }, count, n, c, n);
            }
            finish(first * n, c);
        });
    });
}

#[cfg(test)]
pub mod tests;
