//! a·b + c rounded once, in double precision, for machines without an instruction for it.
//!
//! The product of two `f32` is exact in `f64`. Its sum with c is rounded to 53 bits and then to 24, and rounding twice goes
//! wrong only where the first result lies half-way between two `f32`. There the sum is rounded *to odd* instead: an
//! inexact result whose last bit is 0 moves one step towards what was lost, which no later rounding can mistake for a tie.

use super::WIDTH;

/// The nearest `f32` to a·b + c, as [`f32::mul_add`] gives it.
#[cfg_attr(target_feature = "simd128", allow(dead_code))]
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // What the sum lost (Knuth's two-sum); NaN where an operand is infinite.
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    let even = sum.to_bits() & 1 == 0;
    let towards = match even && lost.abs() > 0.0 {
        true if (lost > 0.0) == (sum > 0.0) => 1,
        true => -1,
        false => 0,
    };
    f64::from_bits(sum.to_bits().wrapping_add_signed(towards)) as f32
}

/// The same of sixteen lanes.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
#[inline(always)]
pub fn fma_lanes(a: &[f32; WIDTH], b: &[f32; WIDTH], c: &[f32; WIDTH]) -> [f32; WIDTH] {
    std::array::from_fn(|i| fma(a[i], b[i], c[i]))
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub use wide::fma_lanes;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wide {
    use super::WIDTH;
    use std::arch::wasm32::*;

    const VECTORS: usize = WIDTH / 4;

    /// Rounds twice, and looks whether a sum lies where that may be wrong: half-way between two `f32`, or below the normal
    /// ones, where half-way is elsewhere. That is rare, so all sixteen are looked at together.
    #[inline(always)]
    pub fn fma_lanes(a: &[f32; WIDTH], b: &[f32; WIDTH], c: &[f32; WIDTH]) -> [f32; WIDTH] {
        // SAFETY: sixteen floats are four vectors, whatever they hold.
        let (av, bv, cv): ([v128; VECTORS], [v128; VECTORS], [v128; VECTORS]) = unsafe {
            (
                std::mem::transmute_copy(a),
                std::mem::transmute_copy(b),
                std::mem::transmute_copy(c),
            )
        };
        let mut out = [f32x4_splat(0.0); VECTORS];
        let mut ties = i32x4_splat(i32::MAX);
        let mut least = u32x4_splat(u32::MAX);
        let mut i = 0;
        while i < VECTORS {
            let low = f64x2_add(f64x2_mul(low(av[i]), low(bv[i])), low(cv[i]));
            let high = f64x2_add(f64x2_mul(high(av[i]), high(bv[i])), high(cv[i]));
            out[i] = join(low, high);
            // The 29 bits that are cut off, at the top of a word: half-way is the smallest integer.
            let cut = i32x4_shl(i32x4_shuffle::<0, 2, 4, 6>(low, high), 3);
            ties = i32x4_min(ties, cut);
            least = u32x4_min(least, i32x4_shl(out[i], 1));
            i += 1;
        }
        let tie = i32x4_eq(ties, i32x4_splat(i32::MIN));
        let small = u32x4_le(least, u32x4_splat(f32::MIN_POSITIVE.to_bits() << 1));
        if v128_any_true(v128_or(tie, small)) {
            i = 0;
            while i < VECTORS {
                out[i] = exactly(av[i], bv[i], cv[i]);
                i += 1;
            }
        }
        // SAFETY: as above.
        unsafe { std::mem::transmute::<[v128; VECTORS], [f32; WIDTH]>(out) }
    }

    #[inline(always)]
    fn low(v: v128) -> v128 {
        f64x2_promote_low_f32x4(v)
    }

    #[inline(always)]
    fn high(v: v128) -> v128 {
        f64x2_promote_low_f32x4(i64x2_shuffle::<1, 1>(v, v))
    }

    #[inline(always)]
    fn join(low: v128, high: v128) -> v128 {
        let (low, high) = (f32x4_demote_f64x2_zero(low), f32x4_demote_f64x2_zero(high));
        i64x2_shuffle::<0, 2>(low, high)
    }

    /// Vectors go by value, as C passes them: a pointer would keep all operands in memory on the way that is not cold, too.
    #[cold]
    #[inline(never)]
    #[allow(improper_ctypes_definitions)]
    extern "C" fn exactly(a: v128, b: v128, c: v128) -> v128 {
        let below = to_odd(f64x2_mul(low(a), low(b)), low(c));
        let above = to_odd(f64x2_mul(high(a), high(b)), high(c));
        join(below, above)
    }

    /// The steps of [`super::fma`], two lanes at a time.
    #[inline(always)]
    fn to_odd(product: v128, c: v128) -> v128 {
        let sum = f64x2_add(product, c);
        let part = f64x2_sub(sum, product);
        let rest = f64x2_sub(product, f64x2_sub(sum, part));
        let lost = f64x2_add(rest, f64x2_sub(c, part));
        let zero = f64x2_splat(0.0);
        let inexact = v128_or(f64x2_gt(lost, zero), f64x2_lt(lost, zero));
        let even = i64x2_sub(v128_and(sum, i64x2_splat(1)), i64x2_splat(1));
        // 1 where sum and loss have the same sign, -1 where not.
        let sign = v128_or(i64x2_shr(v128_xor(lost, sum), 63), i64x2_splat(1));
        i64x2_add(sum, v128_and(sign, v128_and(inexact, even)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::philox4x32_10;

    fn check(a: [f32; WIDTH], b: [f32; WIDTH], c: [f32; WIDTH]) {
        let found = fma_lanes(&a, &b, &c);
        for i in 0..WIDTH {
            let want = a[i].mul_add(b[i], c[i]);
            for got in [found[i], fma(a[i], b[i], c[i])] {
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(
                    same,
                    "{:e}·{:e} + {:e}: {got:e}, not {want:e}",
                    a[i], b[i], c[i]
                );
            }
        }
    }

    /// Any bit pattern, and numbers of few bits and close exponents, whose sums are ties now and then.
    fn number(word: u32, kind: u32) -> f32 {
        match kind {
            0 => f32::from_bits(word),
            1 => f32::from_bits((word & 0x807f_ffff) | (0x3e80_0000 + ((word >> 8) & 0x0380_0000))),
            2 => f32::from_bits((word & 0x8000_0fff) | 0x3f80_0000),
            3 => f32::from_bits(word & 0x81ff_ffff),
            _ => f32::from_bits((word & 0x8078_0001) | (0x3400_0000 + ((word >> 4) & 0x0780_0000))),
        }
    }

    #[test]
    fn random_operands_are_rounded_once() {
        let mut ties = 0;
        for round in 0..60_000u32 {
            let words: [[u32; 4]; WIDTH] =
                std::array::from_fn(|i| philox4x32_10([round, i as u32, 0, 0], [7, 8]));
            let kinds = [round % 5, round / 5 % 5, round / 25 % 5];
            let [a, b, c] = [0, 1, 2].map(|j| words.map(|w| number(w[j], kinds[j])));
            for i in 0..WIDTH {
                let twice = (f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i])) as f32;
                ties += u32::from(twice.is_finite() && twice != a[i].mul_add(b[i], c[i]));
            }
            check(a, b, c);
        }
        assert!(
            ties > 20,
            "only {ties} operands need more than two roundings"
        );
    }

    #[test]
    fn special_operands_are_rounded_once() {
        let values = [
            0.0,
            1.0,
            1.0 + f32::EPSILON,
            1.0 - f32::EPSILON / 2.0,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::from_bits(0x007f_ffff),
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
            16_777_216.0,
            5.960_464_5e-8,
            f32::from_bits(0x1a00_0001),
            1.5e-23,
        ];
        let all: Vec<f32> = values.iter().flat_map(|v| [*v, -*v]).collect();
        let mut triples = Vec::new();
        for a in &all {
            for b in &all {
                triples.extend(all.iter().map(|c| (*a, *b, *c)));
            }
        }
        for some in triples.chunks(WIDTH) {
            let at = |i: usize| some[i % some.len()];
            check(
                std::array::from_fn(|i| at(i).0),
                std::array::from_fn(|i| at(i).1),
                std::array::from_fn(|i| at(i).2),
            );
        }
    }
}
