//! Products against one scalar chain per output, bit for bit.

use super::*;
use crate::rng::{Distribution, Noise, fill};
use std::sync::Mutex;

pub fn normal(stream: u32, n: usize) -> Vec<f32> {
    let mut x = vec![0.0; n];
    fill(
        Isa::best(),
        Noise {
            seed: 5,
            stream,
            step: 0,
        },
        Distribution::Normal,
        0,
        &mut x,
    );
    x
}

/// Runs a kernel that finishes blocks and puts them together; every element must arrive once.
pub fn gather(n: usize, kernel: impl FnOnce(Finish) + Send, threads: usize) -> Vec<f32> {
    let out = Mutex::new(vec![f32::NAN; n]);
    let finish = |first: usize, block: &mut [f32]| {
        let mut out = out.lock().unwrap();
        let place = &mut out[first..first + block.len()];
        assert!(place.iter().all(|v| v.is_nan()), "an element arrived twice");
        place.copy_from_slice(block);
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(|| kernel(&finish));
    out.into_inner().unwrap()
}

pub fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert_eq!(
            g.to_bits(),
            e.to_bits(),
            "{what}: element {i} is {g}, not {e}"
        );
    }
}

#[test]
fn matmul_is_one_chain_per_output() {
    let sizes = [
        (1, 1, 1),
        (7, 5, 3),
        (33, 70, 17),
        (50, 130, 100),
        (20, 9, 64),
        (3, 300, 49),
    ];
    for (m, k, n) in sizes {
        let (a, b) = (normal(1, m * k), normal(2, k * n));
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut expected = vec![0.0f32; m * n];
            for i in 0..m {
                for j in 0..n {
                    let mut acc = 0.0f32;
                    for p in 0..k {
                        let x = a[if ta { p * m + i } else { i * k + p }];
                        let y = b[if tb { j * k + p } else { p * n + j }];
                        acc = x.mul_add(y, acc);
                    }
                    expected[i * n + j] = acc;
                }
            }
            for isa in Isa::all() {
                for threads in 1..=3 {
                    let got = gather(m * n, |f| matmul(isa, m, k, n, ta, tb, &a, &b, f), threads);
                    assert_same(&got, &expected, &format!("{isa:?} {m}x{k}x{n} {ta} {tb}"));
                }
            }
        }
    }
}

#[test]
fn an_empty_sum_is_zero() {
    let got = gather(
        6,
        |f| matmul(Isa::best(), 2, 0, 3, false, false, &[], &[], f),
        1,
    );
    assert_eq!(got, [0.0; 6]);
    let got = gather(
        6,
        |f| matmul(Isa::best(), 2, 0, 3, true, true, &[], &[], f),
        1,
    );
    assert_eq!(got, [0.0; 6]);
}

#[test]
fn segments_join_and_are_cut_without_loss() {
    let parts = [(0, 0, 5), (5, 5, 400), (500, 405, 3), (700, 408, 250)];
    let parts = parts.map(|(a, b, len)| Segment { a, b, len });
    let passes = Passes::new(64, parts);
    let (a, b) = (normal(1, 1000), normal(2, 658 * 64));
    let mut expected = vec![0.0f32; 64];
    for s in parts {
        for k in 0..s.len {
            for (j, e) in expected.iter_mut().enumerate() {
                *e = a[s.a + k].mul_add(b[(s.b + k) * 64 + j], *e);
            }
        }
    }
    let mut c = vec![f32::NAN; 64];
    Panels::with(Isa::best(), 658, 64, Layout::Straight, &b, |b| {
        product(
            Isa::best(),
            &a,
            &[Row { a: 0, c: 0 }],
            &passes,
            b,
            &mut c,
            false,
        );
    });
    assert_same(&c, &expected, "segments");
}
