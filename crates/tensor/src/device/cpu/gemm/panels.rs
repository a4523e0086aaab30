//! The right-hand operand of a product, laid out for the register tiles.
//!
//! Columns are cut into panels of up to four vectors (one where registers are few); a panel is
//! contiguous, row after row, with zeros past the last column. A matrix that is a single full panel
//! already has this layout and is used where it lies.

use crate::device::cpu::scratch::with_scratch;
use crate::lanes::WIDTH;
use crate::simd::Isa;
use rayon::prelude::*;

/// A packed matrix of `depth` rows and `cols` columns.
pub struct Panels<'a> {
    data: &'a [f32],
    pub depth: usize,
    pub cols: usize,
    wide: bool,
}

/// One panel: `cols` columns from `first` on, in `vectors` vectors.
pub struct Panel<'a> {
    pub data: &'a [f32],
    pub first: usize,
    pub cols: usize,
    pub vectors: usize,
}

/// How the matrix to pack is stored.
#[derive(Clone, Copy)]
pub enum Layout {
    /// Row-major, as the sum walks it.
    Straight,
    /// Stored with rows and columns exchanged.
    Transposed,
    /// Blocks of `depth / taps` rows, each block stored transposed, the blocks in reverse order: the
    /// weights of a convolution as its data gradient walks them.
    FlippedTaps { taps: usize },
}

/// Vectors of each panel, widest first, of equal width give or take one.
#[inline(always)]
pub fn split_columns(wide: bool, cols: usize) -> impl Iterator<Item = usize> {
    let vectors = cols.div_ceil(WIDTH);
    let panels = if wide { vectors.div_ceil(4) } else { vectors };
    let (low, higher) = (vectors / panels.max(1), vectors % panels.max(1));
    (0..panels).map(move |p| low + usize::from(p < higher))
}

/// Columns of the widest panel.
pub fn panel_width(isa: Isa, cols: usize) -> usize {
    let wide = isa.clamp_to_machine() == Isa::Avx512;
    split_columns(wide, cols).next().unwrap_or(1) * WIDTH
}

impl<'a> Panels<'a> {
    /// Packs a `depth` × `cols` matrix into scratch memory for the length of `body`.
    pub fn with<R>(
        isa: Isa,
        depth: usize,
        cols: usize,
        layout: Layout,
        data: &[f32],
        body: impl FnOnce(&Panels) -> R,
    ) -> R {
        assert_eq!(data.len(), depth * cols);
        let wide = isa.clamp_to_machine() == Isa::Avx512;
        let aligned = (data.as_ptr() as usize).is_multiple_of(64);
        let single = cols == panel_width(isa, cols);
        if matches!(layout, Layout::Straight) && single && (aligned || !wide) {
            return body(&Panels {
                data,
                depth,
                cols,
                wide,
            });
        }
        with_scratch(Self::floats(depth, cols), |packed| {
            Self::pack(wide, depth, cols, layout, data, packed);
            body(&Panels {
                data: packed,
                depth,
                cols,
                wide,
            })
        })
    }

    /// Floats a packed matrix takes.
    pub fn floats(depth: usize, cols: usize) -> usize {
        depth * cols.next_multiple_of(WIDTH)
    }

    /// Packs into memory of the caller, [`floats`](Self::floats) long.
    pub fn packed(isa: Isa, depth: usize, cols: usize, data: &[f32], out: &'a mut [f32]) -> Self {
        assert_eq!(data.len(), depth * cols);
        let wide = isa.clamp_to_machine() == Isa::Avx512;
        Self::pack(wide, depth, cols, Layout::Straight, data, out);
        Panels {
            data: out,
            depth,
            cols,
            wide,
        }
    }

    fn pack(wide: bool, depth: usize, cols: usize, layout: Layout, data: &[f32], out: &mut [f32]) {
        let mut out = out;
        let mut first = 0;
        for vectors in split_columns(wide, cols) {
            let width = vectors * WIDTH;
            let (panel, rest) = out.split_at_mut(depth * width);
            out = rest;
            let n = width.min(cols - first);
            // Rows are independent, so the split does not show in the result.
            let band = 64;
            panel
                .par_chunks_mut(band * width)
                .enumerate()
                .with_min_len(4)
                .for_each(|(i, rows)| {
                    pack_rows(depth, cols, layout, data, first, n, i * band, width, rows);
                });
            first += n;
        }
    }

    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = Panel<'_>> {
        let (mut first, mut start) = (0, 0);
        let (depth, cols, data) = (self.depth, self.cols, self.data);
        split_columns(self.wide, cols).map(move |vectors| {
            let floats = depth * vectors * WIDTH;
            let panel = Panel {
                data: &data[start..start + floats],
                first,
                cols: (cols - first).min(vectors * WIDTH),
                vectors,
            };
            first += panel.cols;
            start += floats;
            panel
        })
    }
}

/// Rows `k0..` of one panel, columns `first..first + n`.
#[allow(clippy::too_many_arguments)]
fn pack_rows(
    depth: usize,
    cols: usize,
    layout: Layout,
    data: &[f32],
    first: usize,
    n: usize,
    k0: usize,
    width: usize,
    rows: &mut [f32],
) {
    let count = rows.len() / width;
    match layout {
        Layout::Straight => {
            for (i, row) in rows.chunks_mut(width).enumerate() {
                let start = (k0 + i) * cols + first;
                let (body, pad) = row.split_at_mut(n);
                body.copy_from_slice(&data[start..start + n]);
                pad.fill(0.0);
            }
        }
        Layout::Transposed => {
            transpose_into(&data[first * depth + k0..], depth, count, n, rows, width);
        }
        Layout::FlippedTaps { taps } => {
            let block = depth / taps;
            let mut i = 0;
            while i < count {
                let (tap, k) = (taps - 1 - (k0 + i) / block, (k0 + i) % block);
                let len = (block - k).min(count - i);
                let from = &data[(tap * cols + first) * block + k..];
                transpose_into(from, block, len, n, &mut rows[i * width..], width);
                i += len;
            }
        }
    }
}

/// Side of the blocks that are transposed in registers.
const SIDE: usize = 4;

/// to[i][j] = from[j][i] for i < m and j < n, and zero from n on to the end of the row.
pub fn transpose_into(
    from: &[f32],
    stride: usize,
    m: usize,
    n: usize,
    to: &mut [f32],
    width: usize,
) {
    let (whole_m, whole_n) = (m - m % SIDE, n - n % SIDE);
    for j in (0..whole_n).step_by(SIDE) {
        for i in (0..whole_m).step_by(SIDE) {
            transpose_block(
                &from[j * stride + i..],
                stride,
                &mut to[i * width + j..],
                width,
            );
        }
    }
    for i in 0..m {
        let start = if i < whole_m { whole_n } else { 0 };
        for j in start..n {
            to[i * width + j] = from[j * stride + i];
        }
    }
    if n < width {
        for row in to.chunks_mut(width).take(m) {
            row[n..].fill(0.0);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn transpose_block(from: &[f32], stride: usize, to: &mut [f32], width: usize) {
    use std::arch::x86_64::*;
    assert!(from.len() >= (SIDE - 1) * stride + SIDE && to.len() >= (SIDE - 1) * width + SIDE);
    // SAFETY: the assert covers the four rows of either side; SSE is part of the architecture.
    unsafe {
        let row = |j: usize| _mm_loadu_ps(from.as_ptr().wrapping_add(j * stride));
        let (mut a, mut b, mut c, mut d) = (row(0), row(1), row(2), row(3));
        _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
        for (i, v) in [a, b, c, d].into_iter().enumerate() {
            _mm_storeu_ps(to.as_mut_ptr().wrapping_add(i * width), v);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn transpose_block(from: &[f32], stride: usize, to: &mut [f32], width: usize) {
    for i in 0..SIDE {
        for j in 0..SIDE {
            to[i * width + j] = from[j * stride + i];
        }
    }
}
