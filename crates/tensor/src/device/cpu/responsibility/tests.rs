//! The op against plain f64 formulas, its gradient against finite differences, its bits against
//! every path and thread count.

use super::*;
use crate::device::cpu::gemm::tests::{assert_same, normal};
use SampleMode::{ReinMax, Relaxed, StraightThrough};

struct Case {
    op: Responsibility,
    e_q: Vec<f32>,
    e_p: Option<Vec<f32>>,
    mu: Vec<f32>,
    logvar: Vec<f32>,
    dz: Vec<f32>,
    dkl: Vec<f32>,
}

fn case(
    rows: usize,
    dim: usize,
    codes: usize,
    mode: SampleMode,
    prior: bool,
    noise_scale: f32,
) -> Case {
    let noise = Noise {
        seed: 9,
        stream: 2,
        step: 4,
    };
    let op = Responsibility {
        rows,
        dim,
        codes,
        mode,
        tau: 0.7,
        noise_scale,
        noise,
        first: 0,
    };
    let scaled = |stream, n, by: f32| normal(stream, n).iter().map(|v| v * by).collect::<Vec<_>>();
    Case {
        op,
        e_q: scaled(1, rows * dim, 0.8),
        e_p: prior.then(|| scaled(2, rows * dim, 0.8)),
        mu: scaled(3, codes * dim, 0.8),
        logvar: scaled(4, codes * dim, 0.4),
        dz: scaled(5, rows * dim, 1.0),
        dkl: scaled(6, rows, 1.0),
    }
}

#[derive(Clone, Default)]
struct Results {
    z: Vec<f32>,
    index: Vec<u32>,
    kl: Vec<f32>,
    de_q: Vec<f32>,
    de_p: Vec<f32>,
    dmu: Vec<f32>,
    dlogvar: Vec<f32>,
}

fn run(isa: Isa, c: &Case, threads: usize) -> Results {
    let n = c.e_q.len();
    let bad = f32::NAN;
    let mut r = Results {
        z: vec![bad; n],
        index: vec![u32::MAX; c.op.rows],
        kl: vec![bad; c.op.rows],
        de_q: vec![bad; n],
        de_p: vec![bad; if c.e_p.is_some() { n } else { 0 }],
        dmu: vec![bad; c.mu.len()],
        dlogvar: vec![bad; c.mu.len()],
    };
    let e_p = c.e_p.as_deref();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(|| {
        forward(
            isa,
            &c.op,
            &c.e_q,
            e_p,
            &c.mu,
            &c.logvar,
            &mut r.z,
            &mut r.index,
            &mut r.kl,
        );
        let de_p = e_p.map(|_| &mut r.de_p[..]);
        let (e_q, mu, logvar) = (&c.e_q, &c.mu, &c.logvar);
        let (dmu, dlogvar) = (&mut r.dmu, &mut r.dlogvar);
        backward(
            isa,
            &c.op,
            e_q,
            e_p,
            mu,
            logvar,
            &c.dz,
            &c.dkl,
            &mut r.de_q,
            de_p,
            dmu,
            dlogvar,
        );
    });
    r
}

/// Inputs in f64, flat: e_q, e_p, mu, logvar.
#[derive(Clone)]
struct Inputs([Vec<f64>; 4]);

impl Inputs {
    fn new(c: &Case) -> Self {
        let wide = |v: &[f32]| v.iter().map(|x| *x as f64).collect::<Vec<_>>();
        Inputs([
            wide(&c.e_q),
            wide(c.e_p.as_deref().unwrap_or(&[])),
            wide(&c.mu),
            wide(&c.logvar),
        ])
    }
}

struct Row64 {
    lq: Vec<f64>,
    lp: Vec<f64>,
    y: Vec<f64>,
    index: usize,
    kl: f64,
}

fn log_softmax(a: &[f64]) -> Vec<f64> {
    let m = a.iter().cloned().fold(f64::MIN, f64::max);
    let lse = m + a.iter().map(|v| (v - m).exp()).sum::<f64>().ln();
    a.iter().map(|v| v - lse).collect()
}

fn row64(c: &Case, x: &Inputs, gumbel: &[f32], r: usize) -> Row64 {
    let (d, k) = (c.op.dim, c.op.codes);
    let [e_q, e_p, mu, logvar] = &x.0;
    let scores = |e: &[f64]| -> Vec<f64> {
        let code = |k: usize| {
            let term = |i: usize| {
                let lv = logvar[k * d + i];
                (e[i] - mu[k * d + i]).powi(2) * (-lv).exp() + lv
            };
            -0.5 * (0..d).map(term).sum::<f64>()
        };
        (0..k).map(code).collect()
    };
    let lq = log_softmax(&scores(&e_q[r * d..(r + 1) * d]));
    let lp = match e_p.is_empty() {
        true => vec![-(k as f64).ln(); k],
        false => log_softmax(&scores(&e_p[r * d..(r + 1) * d])),
    };
    let t: Vec<f64> = (0..k)
        .map(|i| lq[i] + c.op.noise_scale as f64 * gumbel[r * k + i] as f64)
        .collect();
    let index = (0..k).fold(0, |b, i| if t[i] > t[b] { i } else { b });
    let scaled: Vec<f64> = t.iter().map(|v| v / c.op.tau as f64).collect();
    let y = log_softmax(&scaled).iter().map(|v| v.exp()).collect();
    let kl = (0..k).map(|i| lq[i].exp() * (lq[i] - lp[i])).sum();
    Row64 {
        lq,
        lp,
        y,
        index,
        kl,
    }
}

fn gumbel(c: &Case) -> Vec<f32> {
    let mut g = vec![0.0; c.op.rows * c.op.codes];
    fill(Isa::Portable, c.op.noise, Distribution::Gumbel, 0, &mut g);
    g
}

fn softmax(a: &[f64]) -> Vec<f64> {
    log_softmax(a).iter().map(|v| v.exp()).collect()
}

/// ReinMax's log π1 less log q for each row and code, π1 = (D + softmax(log q / τ)) / 2: constants of its gradient.
fn reinmax_offsets(c: &Case, x: &Inputs, gumbel: &[f32]) -> Vec<Vec<f64>> {
    let offsets = |r: usize| {
        let row = row64(c, x, gumbel, r);
        let scaled: Vec<f64> = row.lq.iter().map(|v| v / c.op.tau as f64).collect();
        let mut pi = softmax(&scaled);
        pi[row.index] += 1.0;
        let offset = pi.iter().zip(&row.lq).map(|(pi, lq)| (pi / 2.0).ln() - lq);
        offset.collect()
    };
    (0..c.op.rows).map(offsets).collect()
}

/// The function whose gradient `backward` gives: dz·z + dkl·kl, where z mixes the means by the Gumbel-softmax or, given
/// ReinMax's offsets, by 2 softmax(log q + offset) - q / 2; `fixed` replaces the codebook in z.
fn objective(
    c: &Case,
    x: &Inputs,
    gumbel: &[f32],
    fixed: Option<&[f64]>,
    offsets: Option<&[Vec<f64>]>,
) -> f64 {
    let (d, k) = (c.op.dim, c.op.codes);
    let mu = fixed.unwrap_or(&x.0[2]);
    let mut total = 0.0;
    for r in 0..c.op.rows {
        let row = row64(c, x, gumbel, r);
        total += c.dkl[r] as f64 * row.kl;
        let y = match offsets {
            None => row.y,
            Some(offsets) => {
                let moved: Vec<f64> = row.lq.iter().zip(&offsets[r]).map(|(l, o)| l + o).collect();
                let pi = softmax(&moved);
                let with_q = pi.iter().zip(&row.lq);
                with_q.map(|(pi, lq)| 2.0 * pi - 0.5 * lq.exp()).collect()
            }
        };
        for i in 0..d {
            let z: f64 = (0..k).map(|k| y[k] * mu[k * d + i]).sum();
            total += c.dz[r * d + i] as f64 * z;
        }
    }
    total
}

fn cases() -> Vec<Case> {
    vec![
        case(70, 5, 19, StraightThrough, true, 1.0),
        case(33, 16, 48, Relaxed, true, 1.0),
        case(40, 7, 37, StraightThrough, false, 1.0),
        case(5, 32, 64, Relaxed, false, 0.5),
        case(9, 3, 2, StraightThrough, true, 0.0),
        case(70, 5, 19, ReinMax, true, 1.0),
        case(40, 16, 48, ReinMax, false, 0.5),
        case(9, 3, 2, ReinMax, true, 0.0),
    ]
}

#[test]
fn forward_is_the_formula() {
    for c in cases() {
        let (x, g) = (Inputs::new(&c), gumbel(&c));
        let got = run(Isa::best(), &c, 2);
        for r in 0..c.op.rows {
            let row = row64(&c, &x, &g, r);
            assert_eq!(got.index[r] as usize, row.index, "row {r}");
            assert!(
                (got.kl[r] as f64 - row.kl).abs() < 2e-4 * (1.0 + row.kl),
                "row {r}"
            );
            for i in 0..c.op.dim {
                let z = match c.op.mode == Relaxed {
                    true => (0..c.op.codes)
                        .map(|k| row.y[k] * x.0[2][k * c.op.dim + i])
                        .sum(),
                    false => x.0[2][row.index * c.op.dim + i],
                };
                let error = (got.z[r * c.op.dim + i] as f64 - z).abs();
                assert!(error < 1e-4, "row {r}: {error}");
            }
            assert!(row.lq.iter().chain(&row.lp).all(|v| v.is_finite()));
        }
    }
}

#[test]
fn backward_is_the_slope() {
    for c in cases() {
        let (x, g) = (Inputs::new(&c), gumbel(&c));
        let got = run(Isa::best(), &c, 2);
        let outputs = [&got.de_q, &got.de_p, &got.dmu, &got.dlogvar];
        // Straight through, the codebook in z is a constant, and dz reaches it at the chosen codes.
        let fixed = (c.op.mode != Relaxed).then(|| x.0[2].clone());
        let offsets = (c.op.mode == ReinMax).then(|| reinmax_offsets(&c, &x, &g));
        let mut direct = vec![0.0f64; c.mu.len()];
        if c.op.mode != Relaxed {
            for (r, k) in got.index.iter().enumerate() {
                for i in 0..c.op.dim {
                    direct[*k as usize * c.op.dim + i] += c.dz[r * c.op.dim + i] as f64;
                }
            }
        }
        for (which, output) in outputs.iter().enumerate() {
            let scale = output.iter().fold(0.1f32, |m, v| m.max(v.abs())) as f64;
            for at in (0..output.len()).step_by(output.len() / 40 + 1) {
                let h = 1e-5;
                let at_step = |step: f64| {
                    let mut moved = x.clone();
                    moved.0[which][at] += step;
                    objective(&c, &moved, &g, fixed.as_deref(), offsets.as_deref())
                };
                let mut slope = (at_step(h) - at_step(-h)) / (2.0 * h);
                if which == 2 {
                    slope += direct[at];
                }
                let error = (output[at] as f64 - slope).abs() / scale;
                assert!(
                    error < 2e-4,
                    "input {which}, element {at}: {} and {slope}",
                    output[at]
                );
            }
        }
    }
}

#[test]
fn reinmax_draws_what_straight_through_draws() {
    for noise_scale in [0.0, 1.0] {
        let hard = run(
            Isa::best(),
            &case(70, 5, 19, StraightThrough, true, noise_scale),
            2,
        );
        let got = run(Isa::best(), &case(70, 5, 19, ReinMax, true, noise_scale), 2);
        assert_eq!(got.index, hard.index);
        assert_same(&got.z, &hard.z, "z");
        assert_same(&got.kl, &hard.kl, "KL");
        assert_same(&got.de_p, &hard.de_p, "the prior's gradient");
        assert_ne!(got.de_q, hard.de_q);
    }
}

#[test]
fn bits_do_not_depend_on_path_or_threads() {
    let mut all = cases();
    all.push(case(300, 6, 20, StraightThrough, true, 1.0));
    all.push(case(300, 6, 20, ReinMax, true, 1.0));
    for c in all {
        let e = run(Isa::Portable, &c, 1);
        for isa in Isa::all() {
            for threads in 1..=3 {
                let g = run(isa, &c, threads);
                let what = format!("{isa:?}, {threads} threads, {:?}", c.op);
                assert_eq!(g.index, e.index, "{what}");
                assert_same(&g.z, &e.z, &what);
                assert_same(&g.kl, &e.kl, &what);
                assert_same(&g.de_q, &e.de_q, &what);
                assert_same(&g.de_p, &e.de_p, &what);
                assert_same(&g.dmu, &e.dmu, &what);
                assert_same(&g.dlogvar, &e.dlogvar, &what);
            }
        }
    }
}

#[test]
fn far_embeddings_stay_finite() {
    for mode in [StraightThrough, ReinMax] {
        let mut c = case(8, 4, 10, mode, true, 1.0);
        c.e_q.iter_mut().for_each(|v| *v *= 200.0);
        let got = run(Isa::best(), &c, 1);
        assert!(
            got.kl
                .iter()
                .chain(&got.de_q)
                .chain(&got.dmu)
                .all(|v| v.is_finite())
        );
        assert!(got.index.iter().all(|k| *k < 10));
    }
}
