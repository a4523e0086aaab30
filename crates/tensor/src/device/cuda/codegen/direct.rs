//! Convolutions by definition, one thread an output: for the few that cuDNN has no engine for.

use super::Draft;
use crate::compile::{ConvGeometry, Place};
use crate::device::cuda::dnn::Direction as Which;
use crate::op::Filter;
use std::fmt::Write;

const BLOCK: usize = 256;

/// `a` and `b` are the two tensors the product reads, in the order above.
pub fn conv(which: Which, g: &ConvGeometry, a: Place, b: Place, out: Place) -> Draft {
    let ConvGeometry {
        n,
        h,
        w,
        ci,
        oh,
        ow,
        co,
        kh,
        kw,
        stride,
        pad,
        filter,
    } = *g;
    let total = match which {
        Which::Forward => n * oh * ow * co,
        Which::Data => n * h * w * ci,
        Which::Weight => kh * kw * ci * co,
    };
    let mut draft = Draft::new(BLOCK as u32);
    let (a, b, y) = (draft.pointer(a), draft.pointer(b), draft.pointer(out));
    draft.grid[0] = total.div_ceil(BLOCK) as u32;
    let weight = |y: &str, x: &str, i: &str, o: &str| match filter {
        Filter::Hwio => format!("((({y}) * {kw}u + ({x})) * {ci}u + ({i})) * {co}u + ({o})"),
        Filter::Ohwi => format!("((({o}) * {kh}u + ({y})) * {kw}u + ({x})) * {ci}u + ({i})"),
    };
    let _ = writeln!(
        draft.body,
        "    const size_t i = (size_t)blockIdx.x * {BLOCK} + threadIdx.x;\n    if (i >= (size_t){total}u) return;\n    float sum = 0.0f;"
    );
    let kernel = weight("ky", "kx", "c", "o");
    let _ = match which {
        Which::Forward => writeln!(
            draft.body,
            "    const u32 o = i % {co}u, px = i / {co}u % {ow}u, py = i / {}u % {oh}u; const size_t m = i / {}u;
    for (int ky = 0; ky < {kh}; ky++) for (int kx = 0; kx < {kw}; kx++) {{
        const int iy = (int)py * {stride} + ky - {pad}, ix = (int)px * {stride} + kx - {pad};
        if (iy < 0 || iy >= {h} || ix < 0 || ix >= {w}) continue;
        for (u32 c = 0; c < {ci}u; c++) sum += load1({a} + ((m * {h}u + iy) * {w}u + ix) * {ci}u + c) * load1({b} + ({kernel}));
    }}",
            co * ow,
            co * ow * oh
        ),
        Which::Data => writeln!(
            draft.body,
            "    const u32 c = i % {ci}u, ix = i / {ci}u % {w}u, iy = i / {}u % {h}u; const size_t m = i / {}u;
    for (int ky = 0; ky < {kh}; ky++) for (int kx = 0; kx < {kw}; kx++) {{
        const int ty = (int)iy + {pad} - ky, tx = (int)ix + {pad} - kx;
        if (ty < 0 || tx < 0 || ty % {stride} || tx % {stride} || ty / {stride} >= {oh} || tx / {stride} >= {ow}) continue;
        for (u32 o = 0; o < {co}u; o++) sum += load1({a} + ((m * {oh}u + ty / {stride}) * {ow}u + tx / {stride}) * {co}u + o) * load1({b} + ({kernel}));
    }}",
            ci * w,
            ci * w * h
        ),
        Which::Weight => {
            let (o, rest) = match filter {
                Filter::Hwio => (
                    format!("i % {co}u"),
                    format!("c = i / {co}u % {ci}u, kx = i / {}u % {kw}u, ky = i / {}u", co * ci, co * ci * kw),
                ),
                Filter::Ohwi => (
                    format!("i / {}u", kh * kw * ci),
                    format!("c = i % {ci}u, kx = i / {ci}u % {kw}u, ky = i / {}u % {kh}u", ci * kw),
                ),
            };
            writeln!(
                draft.body,
                "    const u32 o = {o}, {rest};
    for (u32 m = 0; m < {n}u; m++) for (u32 py = 0; py < {oh}u; py++) for (u32 px = 0; px < {ow}u; px++) {{
        const int iy = (int)(py * {stride} + ky) - {pad}, ix = (int)(px * {stride} + kx) - {pad};
        if (iy < 0 || iy >= {h} || ix < 0 || ix >= {w}) continue;
        sum += load1({a} + (((size_t)m * {h}u + iy) * {w}u + ix) * {ci}u + c) * load1({b} + (((size_t)m * {oh}u + py) * {ow}u + px) * {co}u + o);
    }}"
            )
        }
    };
    let _ = writeln!(draft.body, "    store1({y} + i, sum);");
    draft
}
