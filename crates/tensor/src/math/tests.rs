//! Each function against the standard library in f64, and each path against the portable bits.

use crate::lanes::{Lanes, WIDTH, dispatch};
use crate::simd::Isa;

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Expm1,
    Log,
    Tanh,
    Sigmoid,
    Softplus,
    Rsqrt,
    Sin,
    Cos,
}
use Function::*;

const ALL: [Function; 9] = [Exp, Expm1, Log, Tanh, Sigmoid, Softplus, Rsqrt, Sin, Cos];

dispatch! {
    fn apply(isa, f: Function, x: &[f32], y: &mut [f32]) => apply_lanes;
}

#[inline(always)]
fn apply_lanes<L: Lanes>(f: Function, x: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks(WIDTH).zip(y.chunks_mut(WIDTH)) {
        let x = L::load_prefix(x);
        let v = match f {
            Exp => super::exp(x),
            Expm1 => super::expm1(x),
            Log => super::log(x),
            Tanh => super::tanh(x),
            Sigmoid => super::sigmoid(x),
            Softplus => super::softplus(x),
            Rsqrt => super::rsqrt(x),
            Sin => super::sin_cos_turns(x).0,
            Cos => super::sin_cos_turns(x).1,
        };
        v.store_prefix(y);
    }
}

fn exact(f: Function, x: f64) -> f64 {
    match f {
        Exp => x.exp(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Tanh => x.tanh(),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Softplus => x.exp().ln_1p(),
        Rsqrt => 1.0 / x.sqrt(),
        Sin => (std::f64::consts::TAU * x).sin(),
        Cos => (std::f64::consts::TAU * x).cos(),
    }
}

fn run(isa: Isa, f: Function, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    apply(isa, f, x, &mut y);
    y
}

/// Dense in the range, and denser near its ends and near zero.
fn grid(low: f32, high: f32, n: usize) -> Vec<f32> {
    let mut x: Vec<f32> = (0..n)
        .map(|i| low + (high - low) * (i as f32 + 0.37) / n as f32)
        .collect();
    for e in 1..36 {
        for m in 0..40 {
            let t = (1.0 + m as f32 / 40.0) * 0.5f32.powi(e);
            x.extend([t, -t, 1.0 - t, 1.0 + t, low + t, high - t]);
        }
    }
    x.retain(|v| (low..high).contains(v));
    x
}

#[test]
fn errors_stay_below_their_bounds() {
    // function, range, units in the last place
    let cases = [
        (Exp, -86.0, 88.0, 1.5),
        (Expm1, -20.0, 88.0, 2.0),
        (Log, 1e-30, 3.0, 1.5),
        (Log, 0.5, 3e30, 1.5),
        (Tanh, -12.0, 12.0, 3.5),
        (Sigmoid, -80.0, 30.0, 3.0),
        (Softplus, -80.0, 90.0, 3.0),
        (Rsqrt, 1e-20, 1e6, 1.6),
    ];
    for (f, low, high, bound) in cases {
        let x = grid(low, high, 200_000);
        let mut worst = (0.0, 0.0);
        for (x, y) in x.iter().zip(run(Isa::best(), f, &x)) {
            let e = exact(f, *x as f64);
            let ulp = ((e.abs() as f32).to_bits() + 1) as i64;
            let ulp = f32::from_bits(ulp as u32) as f64 - (e.abs() as f32) as f64;
            let error = (y as f64 - e).abs() / ulp;
            if error > worst.0 {
                worst = (error, *x);
            }
        }
        println!("{f:?} [{low}, {high}]: {:.2} ulp at {}", worst.0, worst.1);
        assert!(worst.0 < bound, "{f:?}: {} ulp at {}", worst.0, worst.1);
    }
    for f in [Sin, Cos] {
        let x = grid(0.0, 1.0, 200_000);
        for (x, y) in x.iter().zip(run(Isa::best(), f, &x)) {
            let e = exact(f, *x as f64);
            assert!((y as f64 - e).abs() < 1.2e-7, "{f:?}({x}) = {y}, not {e}");
        }
    }
}

#[test]
fn limits_are_kept() {
    let inf = f32::INFINITY;
    let cases = [
        (Exp, -200.0, 0.0),
        (Exp, -inf, 0.0),
        (Exp, 200.0, inf),
        (Exp, inf, inf),
        (Exp, 0.0, 1.0),
        (Expm1, -inf, -1.0),
        (Expm1, 0.0, 0.0),
        (Expm1, 200.0, inf),
        (Log, 0.0, -inf),
        (Log, inf, inf),
        (Log, 1.0, 0.0),
        (Tanh, -inf, -1.0),
        (Tanh, 50.0, 1.0),
        (Sigmoid, -inf, 0.0),
        (Sigmoid, inf, 1.0),
        (Softplus, -inf, 0.0),
        (Softplus, inf, inf),
        (Softplus, 100.0, 100.0),
        (Rsqrt, 4.0, 0.5),
    ];
    for isa in Isa::all() {
        for (f, x, y) in cases {
            assert_eq!(run(isa, f, &[x])[0], y, "{isa:?} {f:?}({x})");
        }
        for f in ALL {
            assert!(run(isa, f, &[f32::NAN])[0].is_nan(), "{isa:?} {f:?}(NaN)");
        }
        assert!(run(isa, Log, &[-1.0])[0].is_nan());
        let tiny = f32::from_bits(77);
        let error = run(isa, Log, &[tiny])[0] as f64 - (tiny as f64).ln();
        assert!(error.abs() < 1e-5);
    }
}

#[test]
fn every_path_gives_the_portable_bits() {
    let mut x: Vec<f32> = (0..20_000u32)
        .map(|i| f32::from_bits(i.wrapping_mul(214_783)))
        .collect();
    x.extend(grid(-100.0, 100.0, 5_000));
    let units: Vec<f32> = grid(0.0, 1.0, 5_000);
    for f in ALL {
        let x = if matches!(f, Sin | Cos) { &units } else { &x };
        let expected = run(Isa::Portable, f, x);
        for isa in Isa::all() {
            for ((x, g), e) in x.iter().zip(run(isa, f, x)).zip(&expected) {
                let same = g.to_bits() == e.to_bits() || (g.is_nan() && e.is_nan());
                assert!(same, "{isa:?} {f:?}({x}): {g} and {e}");
            }
        }
    }
}
