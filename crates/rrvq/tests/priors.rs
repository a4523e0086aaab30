//! Every kind of prior against its definition: summed over all codes, or integrated, in f64.

use rrvq::config::CodebookRule;
use rrvq::latent::Sampling;
use rrvq::latent::gaussian::Gaussian;
use rrvq::latent::nearest::Nearest;
use rrvq::latent::responsibility::{Codebook, Prior};
use rrvq_tensor::SampleMode;
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{DType, Data, Graph, Layout, Store, grad};

const ROWS: usize = 40;
const CODES: usize = 7;
const DIM: usize = 3;

fn random(stream: u32, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| philox4x32_10([i as u32, stream, 0, 0], [5, 0])[0] as f32 / 2f32.powi(31) - 1.0)
        .collect()
}

fn log_softmax(logits: Vec<f64>) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = logits.iter().map(|v| (v - largest).exp()).sum();
    logits.iter().map(|v| v - largest - sum.ln()).collect()
}

/// log π of one embedding, as the paper writes it.
fn responsibilities(e: &[f32], mu: &[f32], logvar: &[f32]) -> Vec<f64> {
    let score = |k: usize| -> f64 {
        let term = |d: usize| {
            let (m, v) = (mu[k * DIM + d] as f64, logvar[k * DIM + d] as f64);
            -0.5 * ((e[d] as f64 - m).powi(2) / v.exp() + v)
        };
        (0..DIM).map(term).sum()
    };
    log_softmax((0..CODES).map(score).collect())
}

#[test]
fn kl_and_samples_are_those_of_the_definition() {
    let (e_q, other) = (random(1, ROWS * DIM), random(2, ROWS * DIM));
    let logits: Vec<f32> = random(3, ROWS * CODES).iter().map(|v| 3.0 * v).collect();
    let (mu, logvar) = (random(4, CODES * DIM), random(5, CODES * DIM));
    for kind in ["uniform", "embedding", "direct"] {
        let g = Graph::new();
        let var = |name: &str, shape: &[usize]| g.input(name, shape, DType::F32);
        let book = Codebook {
            mu: var("mu", &[CODES, DIM]),
            logvar: var("logvar", &[CODES, DIM]),
        };
        let how = Sampling {
            tau: g.scalar_input("tau"),
            noise_scale: g.scalar_input("noise_scale"),
            mode: SampleMode::StraightThrough,
            stream: 2,
        };
        let prior = match kind {
            "uniform" => Prior::Uniform,
            "embedding" => Prior::Embedding(var("e_p", &[ROWS, DIM])),
            _ => Prior::Direct(var("logits", &[ROWS, CODES])),
        };
        let sampled = book.sample(var("e_q", &[ROWS, DIM]), prior, how);
        let (drawn, _) = book.sample_prior(prior, ROWS, how);
        let outputs = [
            ("kl", sampled.kl),
            ("z", sampled.z),
            ("index", sampled.index),
            ("drawn", drawn),
        ];
        let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
        let mut counts = [0.0; CODES];
        let seeds = 400;
        let log_p = |row: usize| match kind {
            "uniform" => vec![-(CODES as f64).ln(); CODES],
            "embedding" => responsibilities(&other[row * DIM..][..DIM], &mu, &logvar),
            _ => log_softmax(
                logits[row * CODES..][..CODES]
                    .iter()
                    .map(|&v| v as f64)
                    .collect(),
            ),
        };
        for seed in 0..seeds {
            let words = counter(seed, 0);
            let inputs = [
                ("counter", Data::U32(&words)),
                ("tau", Data::F32(&[0.5])),
                ("noise_scale", Data::F32(&[1.0])),
                ("e_q", Data::F32(&e_q)),
                ("e_p", Data::F32(&other)),
                ("logits", Data::F32(&logits)),
                ("mu", Data::F32(&mu)),
                ("logvar", Data::F32(&logvar)),
            ];
            program.run(&mut Store::default(), &inputs).unwrap();
            let drawn = program.output("drawn");
            for row in drawn.chunks(DIM) {
                let code = mu.chunks(DIM).position(|mean| mean == row);
                counts[code.expect("a sample is a code's mean")] +=
                    1.0 / (seeds as f64 * ROWS as f64);
            }
        }
        let kl = program.output("kl");
        let index = program.output_u32("index");
        for row in 0..ROWS {
            let log_q = responsibilities(&e_q[row * DIM..][..DIM], &mu, &logvar);
            let exact: f64 = log_q
                .iter()
                .zip(log_p(row))
                .map(|(q, p)| q.exp() * (q - p))
                .sum();
            assert!(
                (kl[row] as f64 - exact).abs() < 1e-5,
                "{kind}: {} {exact}",
                kl[row]
            );
            let mean = &mu[index[row] as usize * DIM..][..DIM];
            let z = &program.output("z")[row * DIM..][..DIM];
            let near = z.iter().zip(mean).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(near, "{kind}: {z:?} {mean:?}");
        }
        // Over all rows, codes come as often as the prior says: 16,000 draws, five standard deviations.
        for (code, &seen) in counts.iter().enumerate() {
            let expected = (0..ROWS).map(|row| log_p(row)[code].exp()).sum::<f64>() / ROWS as f64;
            assert!(
                (seen - expected).abs() < 0.02,
                "{kind}: code {code}: {seen}, {expected}"
            );
        }
    }
}

#[test]
fn a_gaussian_s_kl_is_the_integral_and_its_sample_has_its_moments() {
    let g = Graph::new();
    let var = |name: &str| g.input(name, &[ROWS, 2 * DIM], DType::F32);
    let (q, p) = (Gaussian::from_rows(var("q")), Gaussian::from_rows(var("p")));
    let drawn = q.draw(p, g.scalar_input("noise_scale"), 4);
    let outputs = [
        ("kl", drawn.kl),
        ("z", drawn.z),
        ("weight", drawn.log_p - drawn.log_q),
    ];
    let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
    let (q, p) = (random(6, ROWS * 2 * DIM), random(7, ROWS * 2 * DIM));
    let (mut sums, mut squares, mut weights) = (
        vec![0.0; ROWS * DIM],
        vec![0.0; ROWS * DIM],
        vec![0.0; ROWS],
    );
    let seeds = 2000;
    for seed in 0..seeds {
        let words = counter(seed, 0);
        let inputs = [
            ("counter", Data::U32(&words)),
            ("noise_scale", Data::F32(&[1.0])),
            ("q", Data::F32(&q)),
            ("p", Data::F32(&p)),
        ];
        program.run(&mut Store::default(), &inputs).unwrap();
        for (i, &z) in program.output("z").iter().enumerate() {
            sums[i] += z as f64 / seeds as f64;
            squares[i] += (z as f64).powi(2) / seeds as f64;
        }
        for (sum, &w) in weights.iter_mut().zip(program.output("weight")) {
            *sum += w as f64 / seeds as f64;
        }
    }
    let kl = program.output("kl");
    let at = |rows: &[f32], row: usize, d: usize| {
        let mean = rows[row * 2 * DIM + d] as f64;
        (mean, (rows[row * 2 * DIM + DIM + d] as f64).exp())
    };
    let log = |x: f64, (mean, variance): (f64, f64)| {
        -0.5 * ((x - mean).powi(2) / variance + (2.0 * std::f64::consts::PI * variance).ln())
    };
    for row in 0..ROWS {
        let mut exact = 0.0;
        for d in 0..DIM {
            let (of_q, of_p) = (at(&q, row, d), at(&p, row, d));
            let step = 1e-3 * of_q.1.sqrt();
            exact += (-12_000..12_000)
                .map(|i| of_q.0 + i as f64 * step)
                .map(|x| log(x, of_q).exp() * (log(x, of_q) - log(x, of_p)) * step)
                .sum::<f64>();
            let (i, deviation) = (row * DIM + d, of_q.1.sqrt());
            assert!((sums[i] - of_q.0).abs() < 0.12 * deviation, "mean of {i}");
            let variance = squares[i] - sums[i] * sums[i];
            assert!((variance / of_q.1 - 1.0).abs() < 0.2, "variance of {i}");
        }
        assert!((kl[row] as f64 - exact).abs() < 1e-4, "{} {exact}", kl[row]);
        // The log weight is −KL on average.
        assert!(
            (weights[row] + exact).abs() < 0.3,
            "{} {exact}",
            weights[row]
        );
    }
}

#[test]
fn the_nearest_code_is_the_nearest_and_gradients_go_straight_through() {
    let g = Graph::new();
    let var = |name: &str, shape: &[usize]| g.input(name, shape, DType::F32);
    let (e, mu) = (var("e", &[ROWS, DIM]), var("mu", &[CODES, DIM]));
    let found = Nearest { mu }.quantise(e, 0.25, CodebookRule::Loss);
    let weight = var("weight", &[ROWS, DIM]);
    let through = grad((found.sampled.z * weight).sum(), &[e, mu]);
    let losses = grad(found.penalty.sum(), &[e, mu]);
    let outputs = [
        ("index", found.sampled.index),
        ("z", found.sampled.z),
        ("kl", found.sampled.kl),
        ("penalty", found.penalty),
        ("e through", through[0]),
        ("mu through", through[1]),
        ("e loss", losses[0]),
        ("mu loss", losses[1]),
    ];
    let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
    let (e, mu, weight) = (
        random(8, ROWS * DIM),
        random(9, CODES * DIM),
        random(10, ROWS * DIM),
    );
    let inputs = [
        ("e", Data::F32(&e)),
        ("mu", Data::F32(&mu)),
        ("weight", Data::F32(&weight)),
    ];
    program.run(&mut Store::default(), &inputs).unwrap();
    let mut pulled = vec![0.0f32; CODES * DIM];
    for row in 0..ROWS {
        let e = &e[row * DIM..][..DIM];
        let distance =
            |k: usize| -> f32 { (0..DIM).map(|d| (e[d] - mu[k * DIM + d]).powi(2)).sum() };
        let nearest = (0..CODES)
            .min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
            .unwrap();
        assert_eq!(program.output_u32("index")[row] as usize, nearest);
        assert!((program.output("penalty")[row] - 1.25 * distance(nearest)).abs() < 1e-5);
        assert!((program.output("kl")[row] - (CODES as f32).ln()).abs() < 1e-6);
        for d in 0..DIM {
            let (i, code) = (row * DIM + d, mu[nearest * DIM + d]);
            assert!((program.output("z")[i] - code).abs() < 1e-6);
            assert_eq!(program.output("e through")[i], weight[i]);
            assert!((program.output("e loss")[i] - 0.5 * (e[d] - code)).abs() < 1e-5);
            pulled[nearest * DIM + d] += 2.0 * (code - e[d]);
        }
    }
    assert!(program.output("mu through").iter().all(|&v| v == 0.0));
    let near = program.output("mu loss").iter().zip(&pulled);
    assert!(near.into_iter().all(|(a, b)| (a - b).abs() < 1e-4));
}

#[test]
fn variances_as_printed_count_once_beside_all_dimensions() {
    let (e, mu, logvar) = (
        random(1, ROWS * DIM),
        random(4, CODES * DIM),
        random(5, CODES),
    );
    let g = Graph::new();
    let var = |name: &str, shape: &[usize]| g.input(name, shape, DType::F32);
    let book = Codebook {
        mu: var("mu", &[CODES, DIM]),
        logvar: var("logvar", &[CODES, 1]),
    };
    let log_q = book.log_responsibilities(var("e", &[ROWS, DIM]));
    let compiled = compile(&g, &Layout::default(), &[("log_q", log_q)]).unwrap();
    let mut program = Program::new(compiled);
    let inputs = [
        ("e", Data::F32(&e)),
        ("mu", Data::F32(&mu)),
        ("logvar", Data::F32(&logvar)),
    ];
    program.run(&mut Store::default(), &inputs).unwrap();
    let found = program.output("log_q");
    for row in 0..ROWS {
        let score = |k: usize| {
            let squares = (0..DIM).map(|d| (e[row * DIM + d] - mu[k * DIM + d]) as f64);
            let square: f64 = squares.map(|v| v * v).sum();
            let variance = (logvar[k] as f64).exp();
            // exp(−|e − μ|² / 2E) / √E, the constant power of 2π aside.
            ((-square / (2.0 * variance)).exp() / variance.sqrt()).ln()
        };
        let expected = log_softmax((0..CODES).map(score).collect());
        for (k, expected) in expected.iter().enumerate() {
            let found = found[row * CODES + k] as f64;
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}
