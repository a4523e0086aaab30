//! Elementary functions of sixteen lanes.
//!
//! Ours rather than a library's because the bits are part of the interface: each function is a fixed
//! sequence of fused multiply-adds and exact operations, so every machine gives the same result. The
//! polynomials are minimax fits over the reduced range, rounded to `f32`; exp, expm1 and log stay
//! below 2 units in the last place. NaN stays NaN, infinities and zeros give their limits.

use crate::lanes::{Lanes, Words};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has 15 fraction bits, so its small multiples are exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
/// Adding and subtracting this rounds to the nearest integer.
const ROUNDER: f32 = 12_582_912.0;

/// c[0] + c[1] x + …, as one chain.
macro_rules! polynomial {
    ($l:ident, $x:expr, [$last:expr $(, $c:expr)*]) => {{
        let x = $x;
        let p = $l::splat($last);
        $(let p = p.fma(x, $l::splat($c));)*
        p
    }};
}

/// x = n ln 2 + r with |r| ≤ ln 2 / 2: (n, e^r - 1).
#[inline(always)]
fn reduce_exp<L: Lanes>(x: L) -> (L, L) {
    let rounder = L::splat(ROUNDER);
    let n = x.fma(L::splat(LOG2_E), rounder).sub(rounder);
    let r = n.fma(L::splat(-LN2_HIGH), x);
    let r = n.fma(L::splat(-LN2_LOW), r);
    let q = polynomial!(
        L,
        r,
        [
            0.001_394_652_9,
            0.008_366_631,
            0.041_666_28,
            0.166_665_42,
            0.5
        ]
    );
    (n, q.fma(r.mul(r), r))
}

/// e^x.
#[inline(always)]
pub fn exp<L: Lanes>(x: L) -> L {
    // Past these bounds the result is 0 or infinity; the order of operands keeps NaN.
    let x = L::splat(-110.0).max(x);
    let x = L::splat(100.0).min(x);
    let (n, tail) = reduce_exp(x);
    tail.add(L::splat(1.0)).scale(n)
}

/// e^x - 1, accurate near zero.
#[inline(always)]
pub fn expm1<L: Lanes>(x: L) -> L {
    let x = L::splat(-30.0).max(x);
    let x = L::splat(100.0).min(x);
    let (n, tail) = reduce_exp(x);
    // Half the result first: 2^n itself may overflow where the result does not.
    let half = L::splat(0.5).scale(n);
    let y = tail.fma(half, half.sub(L::splat(0.5)));
    y.add(y)
}

/// ln x for positive, normal, finite x.
#[inline(always)]
pub fn log_normal<L: Lanes>(x: L) -> L {
    log_scaled(x, L::zero())
}

/// ln x + shift·ln 2.
#[inline(always)]
fn log_scaled<L: Lanes>(x: L, shift: L) -> L {
    // x = 2^n m with m in [√½, √2): the integer subtraction moves the cut from 1 to √½.
    let cut = L::Words::splat(0x3f35_04f3);
    let n = x.bits().sub(cut).sar::<23>();
    let m = x.bits().sub(n.shl::<23>()).as_floats();
    let n = n.to_floats().add(shift);
    let f = m.sub(L::splat(1.0));
    let p = polynomial!(
        L,
        f,
        [
            -0.078_600_15,
            0.128_812_75,
            -0.131_284_19,
            0.141_812_37,
            -0.166_245_97,
            0.200_022_85,
            -0.250_008_08,
            0.333_333_16
        ]
    );
    let square = f.mul(f);
    let low = p.mul(f).mul(square);
    let low = n.fma(L::splat(LN2_LOW), low);
    let low = square.fma(L::splat(-0.5), low);
    n.fma(L::splat(LN2_HIGH), low.add(f))
}

/// ln x.
#[inline(always)]
pub fn log<L: Lanes>(x: L) -> L {
    let subnormal = x.lt(L::splat(f32::MIN_POSITIVE));
    let scaled = L::select(subnormal, x.mul(L::splat(16_777_216.0)), x);
    let shift = L::select(subnormal, L::splat(-24.0), L::zero());
    let y = log_scaled(scaled, shift);
    let y = L::select(x.eq(L::zero()), L::splat(f32::NEG_INFINITY), y);
    let y = L::select(x.eq(L::splat(f32::INFINITY)), x, y);
    L::select(L::or(x.lt(L::zero()), x.is_nan()), L::splat(f32::NAN), y)
}

/// ln(1 + x) for x in [0, 1].
#[inline(always)]
fn log1p_unit<L: Lanes>(x: L) -> L {
    let one = L::splat(1.0);
    let u = one.add(x);
    let lost = x.sub(u.sub(one));
    log_normal(u).add(lost.div(u))
}

#[inline(always)]
pub fn tanh<L: Lanes>(x: L) -> L {
    let a = L::splat(10.0).min(x.abs());
    let e = expm1(a.add(a));
    let y = e.div(e.add(L::splat(2.0)));
    L::select(x.lt(L::zero()), y.neg(), y)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<L: Lanes>(x: L) -> L {
    let one = L::splat(1.0);
    let e = exp(x.abs().neg());
    let top = L::select(x.lt(L::zero()), e, one);
    top.div(e.add(one))
}

/// ln(1 + e^x).
#[inline(always)]
pub fn softplus<L: Lanes>(x: L) -> L {
    let y = log1p_unit(exp(x.abs().neg())).add(L::zero().max(x));
    L::select(x.is_nan(), x, y)
}

/// x^-½, from the exact square root and quotient.
#[inline(always)]
pub fn rsqrt<L: Lanes>(x: L) -> L {
    L::splat(1.0).div(x.sqrt())
}

/// (sin 2πu, cos 2πu) for u in [0, 1).
#[inline(always)]
pub fn sin_cos_turns<L: Lanes>(u: L) -> (L, L) {
    let rounder = L::splat(ROUNDER);
    let quarter = u.fma(L::splat(4.0), rounder);
    let r = quarter.sub(rounder).fma(L::splat(-0.25), u);
    let t = r.mul(r);
    let s = polynomial!(L, t, [41.487_724, -76.698_39, 81.605_21, -41.341_7]);
    // 2π as its nearest float and the rest.
    let s = s.fma(t, L::splat(-1.748_455_5e-7)).mul(r);
    let sin = r.fma(L::splat(6.283_185_5), s);
    let c = polynomial!(L, t, [59.246, -85.443_74, 64.939_32, -19.739_208]);
    let cos = c.fma(t, L::splat(1.0));
    // Quarter turns: the low bits of the rounded value count them.
    let q = quarter.bits();
    let one = L::Words::splat(1);
    let swap = q.and(one).eq(one);
    let sign_sin = q.shl::<30>().and(L::Words::splat(0x8000_0000));
    let sign_cos = q.add(one).shl::<30>().and(L::Words::splat(0x8000_0000));
    let (a, b) = (L::select(swap, cos, sin), L::select(swap, sin, cos));
    (
        a.bits().xor(sign_sin).as_floats(),
        b.bits().xor(sign_cos).as_floats(),
    )
}

#[cfg(test)]
mod tests;
