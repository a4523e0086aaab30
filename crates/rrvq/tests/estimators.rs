//! The bias of each gradient estimator of a sample, by enumeration of all codes.
//!
//! The codes are the corners of a cube, so that embeddings are the logits of q, and a loss of the sample plus its KL has an
//! exact gradient: Σ_c q_c f(c) has the slope q_k (f(k) − Σ_c q_c f(c)). An estimator's mean is taken code by code, weighed by
//! q; what is left to chance is the Gumbel noise given the code, which ReinMax's gradient does not depend on.

mod common;

use common::normal;
use rrvq::latent::Sampling;
use rrvq::latent::responsibility::{Codebook, Prior};
use rrvq_tensor::SampleMode::{self, ReinMax, Relaxed, StraightThrough};
use rrvq_tensor::rng::counter;
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{DType, Data, Graph, Layout, Store, Var, grad};

const CODES: usize = 6;
/// Posteriors that are tried, and samples of each in one run.
const POSTERIORS: usize = 8;
const SAMPLES: usize = 4096;
const RUNS: u64 = 8;
const HIDDEN: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// ½ zᵀMz + bᵀz
    Quadratic,
    /// Σ v tanh(Az + b), A of this standard deviation.
    Tanh(f32),
}

fn draw<'g>(g: &'g Graph, loss: Loss, z: Var<'g>) -> Var<'g> {
    let input = |name: &str, shape: &[usize]| g.input(name, shape, DType::F32);
    match loss {
        Loss::Quadratic => {
            let m = input("matrix", &[CODES, CODES]);
            let b = input("linear", &[1, CODES]);
            (z.matmul(m, false, false) * z * 0.5 + z * b).sum_last()
        }
        Loss::Tanh(_) => {
            let a = input("inwards", &[CODES, HIDDEN]);
            let (b, v) = (input("bias", &[1, HIDDEN]), input("outwards", &[1, HIDDEN]));
            ((z.matmul(a, false, false) + b).tanh() * v).sum_last()
        }
    }
}

/// The mean gradient of the logits of one posterior, and the exact one.
struct Slopes {
    mean: [f64; CODES],
    /// Standard errors of the mean.
    error: [f64; CODES],
    exact: [f64; CODES],
}

fn slopes(loss: Loss, mode: SampleMode, tau: f32) -> Vec<Slopes> {
    let rows = POSTERIORS * SAMPLES;
    let g = Graph::new();
    let input = |name: &str, shape: &[usize]| g.input(name, shape, DType::F32);
    let (e_q, e_p) = (input("e_q", &[rows, CODES]), input("e_p", &[rows, CODES]));
    let book = Codebook {
        mu: input("mu", &[CODES, CODES]),
        logvar: g.full(0.0, &[CODES, CODES]),
    };
    let how = Sampling {
        tau: g.scalar_input("tau"),
        noise_scale: g.scalar_input("noise_scale"),
        mode,
        stream: 1,
    };
    let sampled = book.sample(e_q, Prior::Embedding(e_p), how);
    // The loss of a drawn code is that of its mean, also where the sample is relaxed.
    let at_code = draw(&g, loss, book.mu.gather(sampled.index));
    let total = (draw(&g, loss, sampled.z) + sampled.kl).sum();
    let outputs = [
        ("index", sampled.index),
        ("loss", at_code),
        ("log_q", book.log_responsibilities(e_q)),
        ("log_p", book.log_responsibilities(e_p)),
        ("slope", grad(total, &[e_q])[0]),
    ];
    let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
    let spread = |of_posteriors: Vec<f32>| -> Vec<f32> {
        let all = of_posteriors.chunks(CODES);
        all.flat_map(|one| one.repeat(SAMPLES)).collect()
    };
    let mut symmetric = normal(4, CODES * CODES, 1.0);
    for i in 0..CODES {
        for j in 0..i {
            symmetric[i * CODES + j] = symmetric[j * CODES + i];
        }
    }
    let corner = |i: usize| if i / CODES == i % CODES { 1.0 } else { 0.0 };
    let mut given = vec![
        ("e_q", spread(normal(1, POSTERIORS * CODES, 1.0))),
        ("e_p", spread(normal(2, POSTERIORS * CODES, 1.0))),
        ("mu", (0..CODES * CODES).map(corner).collect()),
        ("tau", vec![tau]),
        ("noise_scale", vec![1.0]),
    ];
    match loss {
        Loss::Quadratic => given.extend([("matrix", symmetric), ("linear", normal(5, CODES, 1.0))]),
        Loss::Tanh(steep) => given.extend([
            ("inwards", normal(6, CODES * HIDDEN, steep)),
            ("bias", normal(7, HIDDEN, 0.5)),
            ("outwards", normal(8, HIDDEN, 1.0)),
        ]),
    }
    // Sums of a code's slopes, of their squares, and how many there are.
    let mut seen = [[([0.0f64; CODES], [0.0f64; CODES], 0usize); CODES]; POSTERIORS];
    let mut losses = [f64::NAN; CODES];
    for run in 0..RUNS {
        let words = counter(run, 0);
        let mut inputs: Vec<_> = given.iter().map(|(n, v)| (*n, Data::F32(v))).collect();
        inputs.push(("counter", Data::U32(&words)));
        program.run(&mut Store::default(), &inputs).unwrap();
        let (slope, of_code) = (program.output("slope"), program.output("loss"));
        for (row, &code) in program.output_u32("index").iter().enumerate() {
            let (sum, squares, count) = &mut seen[row / SAMPLES][code as usize];
            for k in 0..CODES {
                let v = slope[row * CODES + k] as f64;
                sum[k] += v;
                squares[k] += v * v;
            }
            *count += 1;
            losses[code as usize] = of_code[row] as f64;
        }
    }
    let wide = |name: &str, posterior: usize| -> Vec<f64> {
        let all = &program.output(name)[posterior * SAMPLES * CODES..][..CODES];
        all.iter().map(|&v| v as f64).collect()
    };
    let of_posterior = |i: usize| {
        let (log_q, log_p) = (wide("log_q", i), wide("log_p", i));
        let q: Vec<f64> = log_q.iter().map(|v| v.exp()).collect();
        // The KL's own slope is that of its weight in an expectation: log q has no slope on average.
        let cost = |k: usize| losses[k] + log_q[k] - log_p[k];
        let expected: f64 = (0..CODES).map(|k| q[k] * cost(k)).sum();
        let (mut mean, mut variance, mut exact) = ([0.0; CODES], [0.0; CODES], [0.0; CODES]);
        for k in 0..CODES {
            exact[k] = q[k] * (cost(k) - expected);
            for (code, (sum, squares, count)) in seen[i].iter().enumerate() {
                assert!(
                    *count > 10,
                    "code {code} of posterior {i} was drawn {count} times"
                );
                let n = *count as f64;
                let here = sum[k] / n;
                mean[k] += q[code] * here;
                variance[k] += q[code].powi(2) * (squares[k] / n - here * here).max(0.0) / n;
            }
        }
        let error = variance.map(f64::sqrt);
        Slopes { mean, error, exact }
    };
    (0..POSTERIORS).map(of_posterior).collect()
}

/// Bias and its standard error, as lengths over all posteriors, of the length of the exact gradient.
fn bias(loss: Loss, mode: SampleMode, tau: f32) -> (f64, f64) {
    let (mut off, mut noise, mut whole) = (0.0, 0.0, 0.0);
    for one in slopes(loss, mode, tau) {
        for k in 0..CODES {
            off += (one.mean[k] - one.exact[k]).powi(2);
            noise += one.error[k].powi(2);
            whole += one.exact[k].powi(2);
        }
    }
    let relative = |square: f64| (square / whole).sqrt();
    let found = (relative(off), relative(noise));
    println!(
        "{loss:?}, {mode:?} at tau {tau}: bias {:.4} of the gradient (standard error {:.4})",
        found.0, found.1
    );
    found
}

/// Every estimator's bias for one loss: ReinMax's at τ = 1, the value returned, must be below straight-through's.
fn compare(loss: Loss) -> f64 {
    let (reinmax, by_chance) = bias(loss, ReinMax, 1.0);
    assert!(
        by_chance < 1e-4,
        "given the code, nothing is left to chance: {by_chance}"
    );
    for tau in [0.5, 1.0] {
        let (other, error) = bias(loss, StraightThrough, tau);
        assert!(
            reinmax + 5.0 * error < other,
            "{loss:?}: straight-through at tau {tau} has a bias of {other} ± {error}, ReinMax of {reinmax}"
        );
    }
    bias(loss, ReinMax, 1.5);
    bias(loss, Relaxed, 0.5);
    bias(loss, Relaxed, 1.0);
    reinmax
}

#[test]
fn reinmax_has_less_bias_than_straight_through() {
    for steep in [1.0, 2.0] {
        let least = compare(Loss::Tanh(steep));
        assert!(least > 1e-3, "no estimator is exact for this loss: {least}");
    }
}

#[test]
fn reinmax_is_exact_for_a_quadratic_loss() {
    let least = compare(Loss::Quadratic);
    assert!(least < 1e-4, "{least}");
}
