//! Convolutions and products the slow way.

use crate::compile::ConvGeometry;
use crate::device::cuda::dnn::Direction;

/// A square convolution that pads by half its kernel.
pub fn conv(n: usize, size: usize, ci: usize, co: usize, k: usize, stride: usize) -> ConvGeometry {
    let pad = k / 2;
    let out = (size + 2 * pad - k) / stride + 1;
    ConvGeometry {
        n,
        h: size,
        w: size,
        ci,
        oh: out,
        ow: out,
        co,
        kh: k,
        kw: k,
        stride,
        pad,
        filter: crate::op::Filter::Ohwi,
    }
}

/// Lengths of x, w and y.
pub fn lengths(g: &ConvGeometry) -> [usize; 3] {
    [
        g.n * g.h * g.w * g.ci,
        g.co * g.kh * g.kw * g.ci,
        g.n * g.oh * g.ow * g.co,
    ]
}

/// What the direction computes, from the other two of x, w and y.
pub fn convolve(g: &ConvGeometry, d: Direction, x: &[f32], w: &[f32], y: &[f32]) -> Vec<f32> {
    let [lx, lw, ly] = lengths(g);
    let mut out = vec![
        0.0f64;
        match d {
            Direction::Forward => ly,
            Direction::Data => lx,
            Direction::Weight => lw,
        }
    ];
    for n in 0..g.n {
        for (oy, ox) in (0..g.oh).flat_map(|oy| (0..g.ow).map(move |ox| (oy, ox))) {
            for (ky, kx) in (0..g.kh).flat_map(|ky| (0..g.kw).map(move |kx| (ky, kx))) {
                let (iy, ix) = (oy * g.stride + ky, ox * g.stride + kx);
                if iy < g.pad || ix < g.pad || iy - g.pad >= g.h || ix - g.pad >= g.w {
                    continue;
                }
                let at_x = ((n * g.h + iy - g.pad) * g.w + ix - g.pad) * g.ci;
                let at_y = ((n * g.oh + oy) * g.ow + ox) * g.co;
                for o in 0..g.co {
                    let at_w = ((o * g.kh + ky) * g.kw + kx) * g.ci;
                    for i in 0..g.ci {
                        match d {
                            Direction::Forward => {
                                out[at_y + o] += f64::from(x[at_x + i]) * f64::from(w[at_w + i])
                            }
                            Direction::Data => {
                                out[at_x + i] += f64::from(y[at_y + o]) * f64::from(w[at_w + i])
                            }
                            Direction::Weight => {
                                out[at_w + i] += f64::from(x[at_x + i]) * f64::from(y[at_y + o])
                            }
                        }
                    }
                }
            }
        }
    }
    out.into_iter().map(|v| v as f32).collect()
}

/// The largest difference, in units of the largest number.
pub fn difference(have: &[f32], want: &[f32]) -> f32 {
    assert_eq!(have.len(), want.len());
    let most = want.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
    let mut worst = 0.0f32;
    for (h, w) in have.iter().zip(want) {
        let d = (h - w).abs() / most;
        if d.is_nan() {
            return f32::INFINITY;
        }
        worst = worst.max(d);
    }
    worst
}
