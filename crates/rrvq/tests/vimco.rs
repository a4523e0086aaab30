//! VIMCO's gradient against the exact one of a model small enough to enumerate, and its baseline's use.
//!
//! One latent of three codes: logits `a` of q and a table `b` of log p(x, z). The bound on two samples is then a sum over nine
//! pairs, whose derivatives are taken in f64.

use rrvq::model::vimco::MultiSample;
use rrvq_tensor::device::counter;
use rrvq_tensor::device::cpu::Program;
use rrvq_tensor::rng::Distribution;
use rrvq_tensor::{DType, Data, Graph, Layout, Store, Var, compile, grad};

const CODES: usize = 3;
const IMAGES: usize = 2048;
const A: [f32; CODES] = [0.5, -0.4, 0.1];
const B: [f32; CODES] = [-1.0, -3.5, -0.2];

/// All tuples of `particles` codes.
fn tuples(particles: usize) -> Vec<Vec<usize>> {
    (0..CODES.pow(particles as u32))
        .map(|mut n| {
            let mut next = || {
                let code = n % CODES;
                n /= CODES;
                code
            };
            (0..particles).map(|_| next()).collect()
        })
        .collect()
}

/// E log (1/K) Σ p(x, z_k) / q(z_k), and the mean of log p / q.
fn exact_bound(a: [f64; CODES], b: [f64; CODES], particles: usize) -> f64 {
    let sum: f64 = a.iter().map(|v| v.exp()).sum();
    let q = a.map(|v| v.exp() / sum);
    let weight = |z: usize| b[z].exp() / q[z];
    let of = |tuple: &Vec<usize>| {
        let mean = tuple.iter().map(|&z| weight(z)).sum::<f64>() / particles as f64;
        tuple.iter().map(|&z| q[z]).product::<f64>() * mean.ln()
    };
    tuples(particles).iter().map(of).sum()
}

/// Central differences in f64 for all of `a`, then all of `b`.
fn exact_gradient(particles: usize) -> Vec<f64> {
    let (a, b, h) = (A.map(f64::from), B.map(f64::from), 1e-5);
    let moved = |i: usize, by: f64| {
        let (mut a, mut b) = (a, b);
        match i < CODES {
            true => a[i] += by,
            false => b[i - CODES] += by,
        }
        exact_bound(a, b, particles)
    };
    (0..2 * CODES)
        .map(|i| (moved(i, h) - moved(i, -h)) / (2.0 * h))
        .collect()
}

/// One row an image to one row a sample.
fn for_each(v: Var<'_>, particles: usize) -> Var<'_> {
    v.reshape(&[1, IMAGES * CODES])
        .broadcast(&[particles, IMAGES * CODES])
        .reshape(&[particles * IMAGES, CODES])
}

/// For a bound on `particles` samples: mean and standard error of the bound and of each gradient over single images.
fn estimated(particles: usize) -> Vec<(f64, f64)> {
    let g = Graph::new();
    let rows = particles * IMAGES;
    // Parameters of every image for themselves, so that gradients come image by image.
    let var = |name: &str| g.input(name, &[IMAGES, CODES], DType::F32);
    let (a, b) = (var("a"), var("b"));
    let each = |v| for_each(v, particles);
    let log_q = each(a).log_softmax();
    let noisy = log_q + g.noise(Distribution::Gumbel, &[rows, CODES]);
    let drawn = noisy.equal(noisy.max_last()).detach();
    let log_q = (drawn * log_q).sum_last();
    let weight = (drawn * each(b)).sum_last() - log_q;
    let found = MultiSample::new(weight, log_q, particles);
    // One nat a dimension: the loss is minus the mean bound.
    let slopes = grad(found.loss(1.0) * -(IMAGES as f32), &[a, b]);
    let outputs = [("bound", found.bound), ("a", slopes[0]), ("b", slopes[1])];
    let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
    let all = |v: [f32; CODES]| -> Vec<f32> { (0..IMAGES * CODES).map(|i| v[i % CODES]).collect() };
    let (a, b, seeds) = (all(A), all(B), 100);
    let (mut sums, mut squares) = (vec![0.0; 1 + 2 * CODES], vec![0.0; 1 + 2 * CODES]);
    for seed in 0..seeds {
        let inputs = [
            ("counter", Data::U32(&counter(seed, 0))),
            ("a", Data::F32(&a)),
            ("b", Data::F32(&b)),
        ];
        program.run(&mut Store::default(), &inputs).unwrap();
        let mut add = |first: usize, name: &str| {
            let values = program.output(name);
            let width = values.len() / IMAGES;
            for (i, &v) in values.iter().enumerate() {
                sums[first + i % width] += v as f64;
                squares[first + i % width] += (v as f64).powi(2);
            }
        };
        add(0, "bound");
        add(1, "a");
        add(1 + CODES, "b");
    }
    let count = seeds as f64 * IMAGES as f64;
    let moments = sums.iter().zip(&squares);
    moments
        .map(|(sum, square)| {
            let mean = sum / count;
            (mean, ((square / count - mean * mean) / count).sqrt())
        })
        .collect()
}

#[test]
fn bound_and_gradient_are_those_of_the_enumeration() {
    for particles in [2, 3, 5] {
        let found = estimated(particles);
        let mut exact = vec![exact_bound(A.map(f64::from), B.map(f64::from), particles)];
        exact.extend(exact_gradient(particles));
        for (i, (&(mean, error), exact)) in found.iter().zip(&exact).enumerate() {
            // Five standard errors over 204,800 images, and a little for f32.
            assert!(
                (mean - exact).abs() < 5.0 * error + 1e-5,
                "{particles} particles, value {i}: {mean} ± {error}, exact {exact}"
            );
            assert!(error < 2.5e-3, "the limit is a real one: {error}");
        }
    }
}

#[test]
fn bounds_rise_with_samples_towards_the_likelihood() {
    let (a, b) = (A.map(f64::from), B.map(f64::from));
    let likelihood = b.iter().map(|v| v.exp()).sum::<f64>().ln();
    let bounds: Vec<f64> = [1, 2, 3, 6].map(|k| exact_bound(a, b, k)).to_vec();
    assert!(bounds.is_sorted_by(|x, y| x < y), "{bounds:?}");
    assert!(bounds[3] < likelihood && likelihood - bounds[3] < 0.2 * (likelihood - bounds[0]));
}

#[test]
fn a_sample_that_dwarfs_the_others_leaves_finite_numbers() {
    let g = Graph::new();
    let weight = g.input("weight", &[3, 1], DType::F32);
    let log_q = g.input("log_q", &[3, 1], DType::F32);
    let found = MultiSample::new(weight, log_q, 3);
    let slopes = grad(found.loss(1.0), &[weight, log_q]);
    let outputs = [("bound", found.bound), ("w", slopes[0]), ("q", slopes[1])];
    let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
    let inputs = [
        ("weight", Data::F32(&[-9000.0, -100.0, -8000.0])),
        ("log_q", Data::F32(&[-1.0, -1.0, -1.0])),
    ];
    program.run(&mut Store::default(), &inputs).unwrap();
    assert!((program.output("bound")[0] + 100.0 + 3f32.ln()).abs() < 1e-3);
    assert_eq!(program.output("w"), [0.0, -1.0, 0.0]);
    // The best sample is credited with all it added: without it, the bound is that of the best of the others.
    let credit = program.output("q");
    assert!((credit[1] + 7900.0).abs() < 1.0, "{credit:?}");
    assert!(
        credit[0].abs() < 1e-3 && credit[2].abs() < 1e-3,
        "{credit:?}"
    );
}
