//! Kernels that move or pick data: one thread a vector of the output.

use super::{Draft, literal};
use crate::compile::{Movement, Place};
use crate::graph::DType;
use std::fmt::Write;

const BLOCK: usize = 256;

/// Elements a thread may take at once when runs of `run` elements start at multiples of `strides`.
fn width(places: &[Place], run: usize, strides: &[usize]) -> usize {
    let fits = |w: usize| {
        let aligned =
            |p: &Place| (p.offset * p.dtype.bytes()).is_multiple_of((w * p.dtype.bytes()).min(16));
        run.is_multiple_of(w)
            && strides.iter().all(|s| s.is_multiple_of(w))
            && places.iter().all(aligned)
    };
    [8, 4, 2].into_iter().find(|&w| fits(w)).unwrap_or(1)
}

fn start(draft: &mut Draft, threads: usize) {
    draft.grid[0] = threads.div_ceil(BLOCK).max(1) as u32;
    let _ = writeln!(
        draft.body,
        "    const size_t i = (size_t)blockIdx.x * {BLOCK} + threadIdx.x;\n    if (i >= (size_t){threads}u) return;"
    );
}

pub fn movement(movement: &Movement, from: Place, to: Place) -> Draft {
    let mut draft = Draft::new(BLOCK as u32);
    let (x, y) = (draft.pointer(from), draft.pointer(to));
    let both = [from, to];
    let copy = |draft: &mut Draft, w: usize, source: &str, target: &str| {
        let _ = writeln!(
            draft.body,
            "    float v[{w}]; load<{w}>({x} + ({source}), v); store<{w}>({y} + ({target}), v);"
        );
    };
    match movement {
        Movement::Broadcast { shape, strides } => {
            let total: usize = shape.iter().product();
            start(&mut draft, total);
            let mut body = String::from("    size_t rest = i, at = 0;\n");
            for (&size, &stride) in shape.iter().zip(strides).rev() {
                let _ = writeln!(
                    body,
                    "    at += rest % {size}u * {stride}u; rest /= {size}u;"
                );
            }
            draft.body += &body;
            copy(&mut draft, 1, "at", "i");
        }
        Movement::Runs {
            outer,
            len,
            from: step,
            to: step_to,
        } => {
            let mut w = width(&both, *len, &[*step, *step_to]);
            // One run is as good as a flat copy.
            if *outer == 1 {
                w = width(&both, *len, &[]);
            }
            start(&mut draft, outer * len / w);
            let n = len / w;
            let _ = writeln!(
                draft.body,
                "    const size_t r = i / {n}u, c = i % {n}u * {w}u;"
            );
            copy(
                &mut draft,
                w,
                &format!("r * {step}u + c"),
                &format!("r * {step_to}u + c"),
            );
        }
        Movement::Pad {
            outer,
            len,
            before,
            wide,
        } => {
            let w = width(&both, *len, &[*before, *wide]);
            start(&mut draft, outer * wide / w);
            let n = wide / w;
            let _ = writeln!(
                draft.body,
                "    const size_t r = i / {n}u, c = i % {n}u * {w}u;
    float v[{w}] = {{}};
    if (c >= {before}u && c < {before}u + {len}u) load<{w}>({x} + (r * {len}u + c - {before}u), v);
    store<{w}>({y} + i * {w}u, v);"
            );
        }
        Movement::Upsample {
            shape: [n, h, w, c],
            factor,
        } => {
            let v = width(&both, *c, &[]);
            let (tall, wide, k) = (h * factor, w * factor, c / v);
            start(&mut draft, n * tall * wide * k);
            let _ = writeln!(
                draft.body,
                "    const size_t p = i / {k}u, c = i % {k}u * {v}u, px = p % {wide}u / {factor}u, py = p / {wide}u % {tall}u / {factor}u, b = p / {};",
                wide * tall
            );
            copy(
                &mut draft,
                v,
                &format!("((b * {h}u + py) * {w}u + px) * {c}u + c"),
                &format!("i * {v}u"),
            );
        }
        Movement::SumPool {
            shape: [n, h, w, c],
            factor,
        } => {
            let v = width(&both, *c, &[]);
            let (tall, wide, k) = (h / factor, w / factor, c / v);
            start(&mut draft, n * tall * wide * k);
            let _ = writeln!(
                draft.body,
                "    const size_t p = i / {k}u, c = i % {k}u * {v}u, px = p % {wide}u * {factor}u, py = p / {wide}u * {factor}u;
    float sum[{v}] = {{}};
    _Pragma(\"unroll\") for (int a = 0; a < {factor}; a++) _Pragma(\"unroll\") for (int b = 0; b < {factor}; b++) {{
        float q[{v}]; load<{v}>({x} + (((py + a) * {w}u + px + b) * {c}u + c), q);
        _Pragma(\"unroll\") for (int j = 0; j < {v}; j++) sum[j] += q[j];
    }}
    store<{v}>({y} + i * {v}u, sum);"
            );
        }
        Movement::EdgePad {
            shape: [n, h, w, c],
            by,
        } => {
            let v = width(&both, *c, &[]);
            let (tall, wide, k) = (h + 2 * by, w + 2 * by, c / v);
            start(&mut draft, n * tall * wide * k);
            let _ = writeln!(
                draft.body,
                "    const size_t p = i / {k}u, c = i % {k}u * {v}u;
    const int px = min(max((int)(p % {wide}u) - {by}, 0), {w} - 1), py = min(max((int)(p / {wide}u % {tall}u) - {by}, 0), {h} - 1);
    const size_t b = p / {};",
                wide * tall
            );
            copy(
                &mut draft,
                v,
                &format!("((b * {h}u + py) * {w}u + px) * {c}u + c"),
                &format!("i * {v}u"),
            );
        }
        Movement::EdgeFold {
            shape: [n, h, w, c],
            by,
        } => {
            let (tall, wide) = (h - 2 * by, w - 2 * by);
            start(&mut draft, n * tall * wide * c);
            // A border pixel takes everything that lies outside of it.
            let _ = writeln!(
                draft.body,
                "    const size_t p = i / {c}u, c = i % {c}u, b = p / {};
    const int px = (int)(p % {wide}u), py = (int)(p / {wide}u % {tall}u);
    const int x0 = px == 0 ? 0 : px + {by}, x1 = px == {wide} - 1 ? {w} - 1 : px + {by};
    const int y0 = py == 0 ? 0 : py + {by}, y1 = py == {tall} - 1 ? {h} - 1 : py + {by};
    float sum = 0.0f;
    for (int a = y0; a <= y1; a++) for (int d = x0; d <= x1; d++) sum += load1({x} + (((b * {h}u + a) * {w}u + d) * {c}u + c));
    store1({y} + i, sum);",
                wide * tall
            );
        }
        Movement::SpaceToDepth {
            shape: [n, h, w, c],
            factor,
        } => {
            start(&mut draft, n * h * w * c);
            let (tall, wide, deep) = (h / factor, w / factor, c * factor * factor);
            let _ = writeln!(
                draft.body,
                "    const size_t p = i / {deep}u, d = i % {deep}u, k = d % {c}u, dx = d / {c}u % {factor}u, dy = d / {}u;
    const size_t px = p % {wide}u, py = p / {wide}u % {tall}u, b = p / {};",
                c * factor,
                wide * tall
            );
            copy(
                &mut draft,
                1,
                &format!(
                    "((b * {h}u + py * {factor}u + dy) * {w}u + px * {factor}u + dx) * {c}u + k"
                ),
                "i",
            );
        }
        Movement::DepthToSpace {
            shape: [n, h, w, c],
            factor,
        } => {
            start(&mut draft, n * h * w * c);
            let (tall, wide, flat) = (h * factor, w * factor, c / (factor * factor));
            let _ = writeln!(
                draft.body,
                "    const size_t p = i / {flat}u, k = i % {flat}u, x = p % {wide}u, y = p / {wide}u % {tall}u, b = p / {};",
                wide * tall
            );
            copy(
                &mut draft,
                1,
                &format!(
                    "((b * {h}u + y / {factor}u) * {w}u + x / {factor}u) * {c}u + (y % {factor}u * {factor}u + x % {factor}u) * {flat}u + k"
                ),
                "i",
            );
        }
        Movement::Transpose { rows, cols } => {
            // Tiles of 32 pairs, so that a warp moves whole lines of bf16 both ways.
            let v = width(&both, *cols, &[*rows]).min(2);
            let side = 32 * v;
            draft.grid = [cols.div_ceil(side) as u32, rows.div_ceil(side) as u32];
            let _ = writeln!(
                draft.body,
                "    __shared__ float tile[{side}][{side} + 1];
    const u32 tx = threadIdx.x % 32u * {v}u, ty = threadIdx.x / 32u, c = blockIdx.x * {side}u, r = blockIdx.y * {side}u;
    _Pragma(\"unroll\") for (u32 k = ty; k < {side}u; k += 8u) if (r + k < {rows}u && c + tx < {cols}u) {{
        float q[{v}]; load<{v}>({x} + ((size_t)(r + k) * {cols}u + c + tx), q);
        _Pragma(\"unroll\") for (int j = 0; j < {v}; j++) tile[k][tx + j] = q[j];
    }}
    __syncthreads();
    _Pragma(\"unroll\") for (u32 k = ty; k < {side}u; k += 8u) if (c + k < {cols}u && r + tx < {rows}u) {{
        float q[{v}];
        _Pragma(\"unroll\") for (int j = 0; j < {v}; j++) q[j] = tile[tx + j][k];
        store<{v}>({y} + ((size_t)(c + k) * {rows}u + r + tx), q);
    }}"
            );
        }
    }
    draft
}

pub fn fill(to: Place, len: usize, value: f32) -> Draft {
    let mut draft = Draft::new(BLOCK as u32);
    let y = draft.pointer(to);
    start(&mut draft, len);
    let _ = writeln!(draft.body, "    store1({y} + i, {});", literal(value));
    draft
}

/// The first of the largest of each row: a warp takes a row.
pub fn argmax(rows: usize, cols: usize, x: Place, out: Place) -> Draft {
    let mut draft = Draft::new(BLOCK as u32);
    let (x, y) = (draft.pointer(x), draft.pointer(out));
    draft.grid[0] = rows.div_ceil(8) as u32;
    let _ = writeln!(
        draft.body,
        "    const u32 row = blockIdx.x * 8u + threadIdx.x / 32u, t = threadIdx.x % 32u;
    if (row >= {rows}u) return;
    float best = Max::start(); u32 at = 0xffffffffu;
    for (u32 c = t; c < {cols}u; c += 32u) {{ float v = load1({x} + (size_t)row * {cols}u + c); if (at == 0xffffffffu || v > best) {{ best = v; at = c; }} }}
    for (int k = 16; k > 0; k /= 2) {{
        float v = __shfl_xor_sync(0xffffffffu, best, k); u32 w = __shfl_xor_sync(0xffffffffu, at, k);
        if (w != 0xffffffffu && (at == 0xffffffffu || v > best || (v == best && w < at))) {{ best = v; at = w; }}
    }}
    if (t == 0) {y}[row] = at;"
    );
    draft
}

pub fn gather(rows: usize, cols: usize, table: Place, index: Place, out: Place) -> Draft {
    let mut draft = Draft::new(BLOCK as u32);
    let (t, k, y) = (
        draft.pointer(table),
        draft.pointer(index),
        draft.pointer(out),
    );
    start(&mut draft, rows * cols);
    let _ = writeln!(
        draft.body,
        "    store1({y} + i, load1({t} + (size_t){k}[i / {cols}u] * {cols}u + i % {cols}u));"
    );
    draft
}

/// Rows added to the row their index names: a block owns a row of the table and looks at all indices, its threads
/// always add the same rows, and their sums are joined in a fixed order.
pub fn scatter_add(
    rows: usize,
    cols: usize,
    codes: usize,
    index: Place,
    x: Place,
    out: Place,
) -> Draft {
    let mut draft = Draft::new(BLOCK as u32);
    let (k, x, y) = (draft.pointer(index), draft.pointer(x), draft.pointer(out));
    draft.grid[0] = codes as u32;
    let _ = writeln!(
        draft.body,
        "    for (u32 c = 0; c < {cols}u; c++) {{
        float sum = 0.0f;
        for (u32 r = threadIdx.x; r < {rows}u; r += {BLOCK}u)
            if ({k}[r] == blockIdx.x) sum += load1({x} + (size_t)r * {cols}u + c);
        sum = join_threads<Sum, {BLOCK}>(sum);
        if (threadIdx.x == 0) store1({y} + (size_t)blockIdx.x * {cols}u + c, sum);
    }}"
    );
    draft
}

/// The same elements in another type.
pub fn convert(from: Place, to: Place, len: usize) -> Draft {
    debug_assert!(from.dtype != DType::U32 && to.dtype != DType::U32);
    let runs = Movement::Runs {
        outer: 1,
        len,
        from: len,
        to: len,
    };
    movement(&runs, from, to)
}
