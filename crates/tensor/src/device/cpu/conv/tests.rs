//! Convolutions against one scalar chain per output, bit for bit.

use super::*;
use crate::device::cpu::gemm::tests::{assert_same, gather, normal};

fn shape(n: usize, hw: (usize, usize), c: (usize, usize), k: usize, stride: usize) -> ConvShape {
    let pad = k / 2;
    let out = |size: usize| (size + 2 * pad - k) / stride + 1;
    let (h, w) = hw;
    let (ci, co) = c;
    ConvShape {
        n,
        h,
        w,
        ci,
        co,
        kh: k,
        kw: k,
        stride,
        pad,
        oh: out(h),
        ow: out(w),
    }
}

fn shapes() -> Vec<ConvShape> {
    vec![
        shape(1, (1, 1), (1, 1), 3, 1),
        shape(5, (2, 2), (20, 64), 3, 1),
        shape(9, (4, 4), (13, 12), 3, 1),
        shape(3, (7, 5), (3, 17), 3, 1),
        shape(2, (16, 16), (8, 32), 3, 1),
        shape(2, (9, 11), (3, 40), 3, 2),
        shape(1, (12, 12), (5, 100), 3, 2),
        shape(2, (6, 8), (4, 16), 5, 1),
        shape(2, (8, 7), (6, 9), 5, 2),
        shape(4, (5, 3), (33, 50), 1, 1),
        shape(2, (6, 6), (7, 18), 1, 2),
        ConvShape {
            pad: 0,
            oh: 2,
            ow: 4,
            ..shape(2, (4, 6), (5, 6), 3, 1)
        },
        // Kernels of two rows and three columns, and of one row and two.
        ConvShape {
            kh: 2,
            pad: 0,
            oh: 4,
            ow: 4,
            ..shape(2, (5, 6), (5, 18), 3, 1)
        },
        ConvShape {
            kh: 1,
            kw: 2,
            pad: 0,
            oh: 4,
            ow: 5,
            ..shape(3, (4, 6), (7, 6), 3, 1)
        },
    ]
}

/// Calls `f` with (n, oy, ox, ky, kx, y, x) for every tap that falls inside, in that order.
fn each(s: &ConvShape, mut f: impl FnMut([usize; 7])) {
    for n in 0..s.n {
        for (oy, ox) in (0..s.oh).flat_map(|y| (0..s.ow).map(move |x| (y, x))) {
            for (ky, kx) in (0..s.kh).flat_map(|y| (0..s.kw).map(move |x| (y, x))) {
                let (y, x) = (oy * s.stride + ky, ox * s.stride + kx);
                if (s.pad..s.h + s.pad).contains(&y) && (s.pad..s.w + s.pad).contains(&x) {
                    f([n, oy, ox, ky, kx, y - s.pad, x - s.pad]);
                }
            }
        }
    }
}

struct Reference {
    y: Vec<f32>,
    dx: Vec<f32>,
    dw: Vec<f32>,
}

fn reference(s: &ConvShape, x: &[f32], w: &[f32], dy: &[f32]) -> Reference {
    let mut r = Reference {
        y: vec![0.0; s.y_len()],
        dx: vec![0.0; s.x_len()],
        dw: vec![0.0; s.w_len()],
    };
    // Visiting outputs in order makes every chain of dx and dw run over ascending positions.
    each(s, |[n, oy, ox, ky, kx, iy, ix]| {
        let yi = ((n * s.oh + oy) * s.ow + ox) * s.co;
        let xi = ((n * s.h + iy) * s.w + ix) * s.ci;
        let wi = (ky * s.kw + kx) * s.ci * s.co;
        for a in 0..s.ci {
            for b in 0..s.co {
                let k = wi + a * s.co + b;
                r.y[yi + b] = x[xi + a].mul_add(w[k], r.y[yi + b]);
                r.dx[xi + a] = dy[yi + b].mul_add(w[k], r.dx[xi + a]);
                r.dw[k] = x[xi + a].mul_add(dy[yi + b], r.dw[k]);
            }
        }
    });
    r
}

#[test]
fn convolutions_are_one_chain_per_output() {
    for s in shapes() {
        let (x, w, dy) = (
            normal(1, s.x_len()),
            normal(2, s.w_len()),
            normal(3, s.y_len()),
        );
        let r = reference(&s, &x, &w, &dy);
        for isa in Isa::all() {
            for threads in 1..=3 {
                let what = format!("{isa:?}, {threads} threads, {s:?}");
                let y = gather(s.y_len(), |f| conv(isa, &s, &x, &w, f), threads);
                assert_same(&y, &r.y, &format!("forward, {what}"));
                let dx = gather(s.x_len(), |f| conv_grad_input(isa, &s, &dy, &w, f), threads);
                assert_same(&dx, &r.dx, &format!("data gradient, {what}"));
                let mut dw = vec![f32::NAN; s.w_len()];
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                pool.install(|| conv_grad_weight(isa, &s, &x, &dy, &mut dw));
                assert_same(&dw, &r.dw, &format!("weight gradient, {what}"));
            }
        }
    }
}

#[test]
fn no_images_no_blocks() {
    let s = ConvShape {
        n: 0,
        ..shape(1, (4, 4), (3, 5), 3, 1)
    };
    let w = normal(1, s.w_len());
    let y = gather(0, |f| conv(Isa::best(), &s, &[], &w, f), 1);
    assert!(y.is_empty());
    let mut dw = vec![1.0; s.w_len()];
    conv_grad_weight(Isa::best(), &s, &[], &[], &mut dw);
    assert!(dw.iter().all(|v| *v == 0.0));
}
