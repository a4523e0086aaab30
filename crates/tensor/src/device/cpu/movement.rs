//! Kernels that move, pick or pool elements without anything to fuse.

use super::for_ranges;
use super::memory::Memory;
use crate::compile::{Movement, Place};
use rayon::prelude::*;

/// Elements below which a second thread costs more than it helps.
const GRAIN: usize = 32 * 1024;

/// # Safety
/// Nobody writes `from` and nobody else uses `to` meanwhile, and they do not overlap.
pub(crate) unsafe fn run(movement: &Movement, m: &Memory, from: Place, to: Place) {
    // SAFETY: as the caller says; lengths are checked as the tensors are taken.
    unsafe {
        match movement {
            Movement::Broadcast { shape, strides } => {
                let span: usize = shape
                    .iter()
                    .zip(strides)
                    .map(|(&d, &s)| (d.max(1) - 1) * s)
                    .sum();
                let from = m.slice(from, span + 1);
                broadcast(
                    from,
                    m.slice_mut(to, shape.iter().product()),
                    shape,
                    strides,
                );
            }
            Movement::Runs {
                outer,
                len,
                from: step,
                to: step_to,
            } => {
                let (outer, len, step, step_to) = (*outer, *len, *step, *step_to);
                if outer == 0 || len == 0 {
                    return;
                }
                let from = m.slice(from, (outer - 1) * step + len);
                let to = m.slice_mut(to, (outer - 1) * step_to + len);
                for i in 0..outer {
                    to[i * step_to..][..len].copy_from_slice(&from[i * step..][..len]);
                }
            }
            Movement::Pad {
                outer,
                len,
                before,
                wide,
            } => {
                let (len, before) = (*len, *before);
                let from = m.slice(from, outer * len);
                rows(m.slice_mut(to, outer * wide), *wide, |row, out| {
                    out[..before].fill(0.0);
                    out[before..][..len].copy_from_slice(&from[row * len..][..len]);
                    out[before + len..].fill(0.0);
                });
            }
            Movement::Transpose { rows: tall, cols } => {
                let (tall, cols) = (*tall, *cols);
                let from = m.slice(from, tall * cols);
                rows(m.slice_mut(to, tall * cols), tall, |col, out| {
                    let column = from[col..].iter().step_by(cols);
                    out.iter_mut().zip(column).for_each(|(o, v)| *o = *v);
                });
            }
            Movement::Upsample { shape, factor } => {
                let [n, h, w, c] = *shape;
                let from = m.slice(from, n * h * w * c);
                let out = m.slice_mut(to, n * h * w * c * factor * factor);
                rows(out, w * factor * c, |row, out| {
                    let source = &from[(row / factor) * w * c..][..w * c];
                    for (x, pixel) in out.chunks_exact_mut(c).enumerate() {
                        pixel.copy_from_slice(&source[x / factor * c..][..c]);
                    }
                });
            }
            Movement::SumPool { shape, factor } => {
                let [n, h, w, c] = *shape;
                let from = m.slice(from, n * h * w * c);
                let out = m.slice_mut(to, n * h * w * c / (factor * factor));
                rows(out, w / factor * c, |row, out| {
                    for (x, pixel) in out.chunks_exact_mut(c).enumerate() {
                        pixel.fill(0.0);
                        for i in 0..factor * factor {
                            let (dy, dx) = (i / factor, i % factor);
                            let source =
                                &from[((row * factor + dy) * w + x * factor + dx) * c..][..c];
                            pixel.iter_mut().zip(source).for_each(|(o, v)| *o += v);
                        }
                    }
                });
            }
            Movement::EdgePad { shape, by } => {
                let [n, h, w, c] = *shape;
                let (wide, tall) = (w + 2 * by, h + 2 * by);
                let from = m.slice(from, n * h * w * c);
                let out = m.slice_mut(to, n * tall * wide * c);
                rows(out, wide * c, |row, out| {
                    let (image, y) = (row / tall, (row % tall).saturating_sub(*by).min(h - 1));
                    let source = &from[(image * h + y) * w * c..][..w * c];
                    out[by * c..][..w * c].copy_from_slice(source);
                    for x in 0..*by {
                        out[x * c..][..c].copy_from_slice(&source[..c]);
                        out[(by + w + x) * c..][..c].copy_from_slice(&source[(w - 1) * c..]);
                    }
                });
            }
            Movement::EdgeFold { shape, by } => {
                let [n, tall, wide, c] = *shape;
                let (h, w) = (tall - 2 * by, wide - 2 * by);
                let from = m.slice(from, n * tall * wide * c);
                let out = m.slice_mut(to, n * h * w * c);
                rows(out, w * c, |row, out| {
                    out.fill(0.0);
                    let (image, y) = (row / h, row % h);
                    // The rows whose border this row was, from top to bottom.
                    let first = if y == 0 { 0 } else { y + by };
                    let last = if y == h - 1 { tall - 1 } else { y + by };
                    for source in first..=last {
                        let source = &from[(image * tall + source) * wide * c..][..wide * c];
                        for (x, pixel) in source.chunks_exact(c).enumerate() {
                            let x = x.saturating_sub(*by).min(w - 1);
                            let to = &mut out[x * c..][..c];
                            to.iter_mut().zip(pixel).for_each(|(o, v)| *o += v);
                        }
                    }
                });
            }
            Movement::SpaceToDepth { shape, factor } => {
                let [n, h, w, c] = *shape;
                let from = m.slice(from, n * h * w * c);
                let out = m.slice_mut(to, n * h * w * c);
                let f = *factor;
                rows(out, w * f * c, |row, out| {
                    for (i, pixel) in out.chunks_exact_mut(c).enumerate() {
                        let (x, part) = (i / (f * f), i % (f * f));
                        let at = ((row * f + part / f) * w + x * f + part % f) * c;
                        pixel.copy_from_slice(&from[at..at + c]);
                    }
                });
            }
            Movement::DepthToSpace { shape, factor } => {
                let [n, h, w, c] = *shape;
                let f = *factor;
                let deep = c / (f * f);
                let from = m.slice(from, n * h * w * c);
                let out = m.slice_mut(to, n * h * w * c);
                rows(out, w * f * deep, |row, out| {
                    for (x, pixel) in out.chunks_exact_mut(deep).enumerate() {
                        let part = (row % f) * f + x % f;
                        let at = ((row / f) * w + x / f) * c + part * deep;
                        pixel.copy_from_slice(&from[at..at + deep]);
                    }
                });
            }
        }
    }
}

/// Each row of the output, on as many threads as it is worth.
fn rows(out: &mut [f32], len: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if len == 0 {
        return;
    }
    if out.len() < GRAIN {
        out.chunks_mut(len)
            .enumerate()
            .for_each(|(i, row)| work(i, row));
        return;
    }
    let group = (GRAIN / len).max(1);
    out.par_chunks_mut(len * group)
        .enumerate()
        .for_each(|(g, rows)| {
            rows.chunks_mut(len)
                .enumerate()
                .for_each(|(i, row)| work(g * group + i, row));
        });
}

fn broadcast(from: &[f32], to: &mut [f32], shape: &[usize], strides: &[usize]) {
    let Some((&last, outer)) = shape.split_last() else {
        to[0] = from[0];
        return;
    };
    let step = strides[outer.len()];
    rows(to, last, |row, out| {
        let (mut rest, mut at) = (row, 0);
        for (&d, &s) in outer.iter().zip(strides).rev() {
            at += rest % d * s;
            rest /= d;
        }
        match step {
            0 => out.fill(from[at]),
            _ => out.copy_from_slice(&from[at..at + last]),
        }
    });
}

/// Index of the largest of each row, the first of equals.
pub(crate) fn argmax(x: &[f32], cols: usize, out: &mut [u32]) {
    for (row, out) in x.chunks_exact(cols).zip(out) {
        let best = (1..cols).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        *out = best as u32;
    }
}

pub(crate) fn gather(table: &[f32], index: &[u32], cols: usize, out: &mut [f32]) {
    for (row, &i) in out.chunks_exact_mut(cols).zip(index) {
        row.copy_from_slice(&table[i as usize * cols..][..cols]);
    }
}

/// Adds each row to the code it belongs to, in the order of the rows; threads share out columns of codes.
pub(crate) fn scatter_add(index: &[u32], x: &[f32], cols: usize, out: &mut [f32]) {
    let codes = out.len() / cols;
    out.fill(0.0);
    let target = out.as_mut_ptr() as usize;
    for_ranges(codes, codes.div_ceil(8), |from, to| {
        for (row, &i) in x.chunks_exact(cols).zip(index) {
            let i = i as usize;
            if (from..to).contains(&i) {
                // SAFETY: each range of codes has one worker.
                let out = unsafe {
                    std::slice::from_raw_parts_mut((target as *mut f32).add(i * cols), cols)
                };
                out.iter_mut().zip(row).for_each(|(o, v)| *o += v);
            }
        }
    });
}
