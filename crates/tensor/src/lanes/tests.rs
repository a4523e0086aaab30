//! Every path gives the bits of the portable one, for ordinary and for awkward operands.

use super::{Lanes, WIDTH, Words};
use crate::simd::Isa;

crate::lanes::dispatch! {
    fn every_operation(isa, a: &[f32], b: &[f32], c: &[f32], out: &mut Vec<u32>) => every_operation_lanes;
}

#[inline(always)]
fn put<L: Lanes>(out: &mut Vec<u32>, x: L) {
    for v in x.to_array() {
        // The payload of a NaN is not part of the promise.
        out.push(if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() });
    }
}

#[inline(always)]
fn every_operation_lanes<L: Lanes>(a: &[f32], b: &[f32], c: &[f32], out: &mut Vec<u32>) {
    let (x, y, z) = (L::load(a), L::load(b), L::load(c));
    for v in [
        x.add(y),
        x.sub(y),
        x.mul(y),
        x.div(y),
        x.fma(y, z),
        x.min(y),
        x.max(y),
    ] {
        put(out, v);
    }
    for v in [x.abs(), x.neg(), x.floor(), x.sqrt()] {
        put(out, v);
    }
    let steps = L::splat(-150.0).add(L::Words::count_from(0).to_floats().mul(L::splat(19.0)));
    put(out, x.scale(steps));
    let (yes, no) = (L::splat(1.0), L::splat(2.0));
    let masks = [x.lt(y), x.eq(y), x.gt(y), x.is_nan()];
    for m in masks {
        put(out, L::select(m, yes, no));
        put(out, L::select(L::or(m, masks[1]), yes, no));
    }
    let (p, q) = (x.bits(), y.bits());
    let (high, low) = p.mul_wide(q);
    let words = [
        p.add(q),
        p.sub(q),
        p.and(q),
        p.xor(q),
        p.shl::<7>(),
        p.shr::<9>(),
        p.sar::<3>(),
        high,
        low,
        p.mul_lo(q),
        L::Words::select(p.eq(q), p, L::Words::splat(3)),
    ];
    for w in words {
        out.extend(w.to_array());
    }
    put(out, p.to_floats());
    for v in [x.sum(), x.max_lane(), y.max_lane()] {
        put(out, L::splat(v));
    }
    for n in 0..=WIDTH {
        let part = L::load_prefix(&a[..n]);
        put(out, part);
        let mut kept = [9.0; WIDTH];
        y.store_prefix(&mut kept[..n]);
        put(out, L::load(&kept));
    }
}

#[test]
fn every_path_gives_the_portable_bits() {
    let awkward = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1e-42,
        -3e-39,
        f32::MIN_POSITIVE,
        f32::MAX,
        0.1,
        -7.25e8,
        16_777_217.0,
        -2.5,
        3.3e-5,
    ];
    let at = |i: usize| awkward[i % WIDTH];
    for shift in 0..WIDTH {
        let a: Vec<f32> = (0..WIDTH).map(at).collect();
        let b: Vec<f32> = (0..WIDTH).map(|i| at(i + shift)).collect();
        let c: Vec<f32> = (0..WIDTH).map(|i| at(3 * i + shift)).collect();
        let mut expected = Vec::new();
        every_operation(Isa::Portable, &a, &b, &c, &mut expected);
        for isa in Isa::all() {
            let mut got = Vec::new();
            every_operation(isa, &a, &b, &c, &mut got);
            assert_eq!(got.len(), expected.len());
            for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(
                    g,
                    e,
                    "{isa:?}, shift {shift}, vector {}, lane {}",
                    i / WIDTH,
                    i % WIDTH
                );
            }
        }
    }
}

#[test]
fn the_sum_is_the_stated_tree() {
    let a: Vec<f32> = (0..WIDTH).map(|i| 1.0 / (i as f32 + 0.7)).collect();
    let mut t = a.clone();
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            t[i] += t[i + half];
        }
    }
    crate::lanes::dispatch! {
        fn sum(isa, a: &[f32]) -> f32 => sum_lanes;
    }
    #[inline(always)]
    fn sum_lanes<L: Lanes>(a: &[f32]) -> f32 {
        L::load(a).sum()
    }
    for isa in Isa::all() {
        assert_eq!(sum(isa, &a).to_bits(), t[0].to_bits(), "{isa:?}");
    }
}

#[test]
fn a_missing_instruction_set_falls_back() {
    assert!(Isa::Avx512.clamp_to_machine() <= Isa::best());
    assert!(Isa::all().contains(&crate::simd::isa()));
}
