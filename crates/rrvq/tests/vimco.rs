//! VIMCO's gradient against the exact one of a model small enough to enumerate, and its baseline's use.
//!
//! One latent of three codes: logits `a` of q and a table `b` of log p(x, z). The bound on two samples is then a sum over nine
//! pairs, whose derivatives are taken in f64. Then the same for whole models of two layers, whose states are enumerated.

use rrvq::config::Config;
use rrvq::model::Hierarchy;
use rrvq::model::vimco::MultiSample;
use rrvq::programs::{Model, objective};
use rrvq_tensor::rng::{Distribution, counter};
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{DType, Data, Device, Graph, Layout, Store, Var, grad};
use std::collections::HashMap;

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

/// The gradient for all parameters, one after another.
fn flat_gradient<'g>(value: Var<'g>, model: &Model) -> Var<'g> {
    let g = value.graph();
    let offsets: Vec<usize> = model.layout.entries().iter().map(|e| e.offset).collect();
    g.pack(&grad(value, &g.params()), &offsets, model.layout.len())
}

/// One state of the latents: log q, log weight, and the gradients of both.
struct State {
    log_q: f64,
    log_weight: f64,
    of_q: Vec<f64>,
    of_weight: Vec<f64>,
}

/// All states of a model's latents for one image.
fn states(model: &Model, store: &mut Store, image: &[u8], count: usize) -> Vec<State> {
    let graph = Graph::new();
    let hierarchy = Hierarchy::new(&graph, &model.config, 1).with_particles(1);
    let elbo = hierarchy.scored_elbo();
    let (log_q, log_weight) = (elbo.log_q.unwrap(), elbo.log_weight.unwrap());
    let mut outputs = vec![
        ("log_q", log_q),
        ("log_weight", log_weight),
        ("of_q", flat_gradient(log_q.sum(), model)),
        ("of_weight", flat_gradient(log_weight.sum(), model)),
    ];
    outputs.extend(
        ["top", "bottom"]
            .into_iter()
            .zip(elbo.samples.iter().copied()),
    );
    let mut program = Program::new(compile(&graph, &model.layout, &outputs).unwrap());
    let mut found: HashMap<Vec<u32>, State> = HashMap::new();
    for seed in 0..20_000 {
        let inputs = [
            ("images", Data::U8(image)),
            ("counter", Data::U32(&counter(seed, 0))),
            ("tau", Data::F32(&[1.0])),
            // Hot, so that unlikely states are met too.
            ("noise_scale", Data::F32(&[20.0])),
        ];
        program.run(store, &inputs).unwrap();
        let wide = |name: &str| program.output(name).iter().map(|&v| v as f64).collect();
        let bits = |name: &str| program.output(name).iter().map(|v| v.to_bits()).collect();
        let latents: [Vec<u32>; 2] = [bits("top"), bits("bottom")];
        found.entry(latents.concat()).or_insert_with(|| State {
            log_q: program.output("log_q")[0] as f64,
            log_weight: program.output("log_weight")[0] as f64,
            of_q: wide("of_q"),
            of_weight: wide("of_weight"),
        });
        if found.len() == count {
            return found.into_values().collect();
        }
    }
    panic!("only {} states of {count}", found.len());
}

#[test]
fn whole_models_get_the_gradient_of_their_enumerated_bound() {
    let kinds: [(&[&str], usize); 2] = [(&["model.codes=3"], 9), (&["model.latent=bernoulli"], 16)];
    for (settings, count) in kinds {
        let mut config = Config::default();
        let common = [
            "model.size=2",
            "model.maps=[1, 1]",
            "model.channels=4",
            "model.embed=2",
            "model.log_scale=1.0",
            "train.estimator=vimco",
            "train.particles=2",
            "train.batch=256",
        ];
        for change in common.iter().chain(settings) {
            config.set(change).unwrap();
        }
        config.validate().unwrap();
        let model = Model::new(&config.model);
        let image: Vec<u8> = (0..12).map(|i| (i * 97 % 256) as u8).collect();
        let others: Vec<u8> = (0..16 * 12).map(|i| (i * i % 251) as u8).collect();
        let first = model.initial(&Device::Cpu, 3, &others).unwrap();
        let mut store = Store::with("theta", first.get("theta").to_vec());
        let states = states(&model, &mut store, &image, count);
        // ∇ E L = Σ q q' [L (∇ log q + ∇ log q') + w ∇ℓ + w' ∇ℓ'], over all pairs.
        let (mut bound, mut exact) = (0.0, vec![0.0; model.layout.len()]);
        for a in &states {
            for b in &states {
                let mass = (a.log_q + b.log_q).exp();
                let (x, y) = (a.log_weight, b.log_weight);
                let value = x.max(y) + ((-(x - y).abs()).exp() / 2.0 + 0.5).ln();
                let share = 1.0 / (1.0 + (y - x).exp());
                bound += mass * value;
                for (i, sum) in exact.iter_mut().enumerate() {
                    let scores = value * (a.of_q[i] + b.of_q[i]);
                    let path = share * a.of_weight[i] + (1.0 - share) * b.of_weight[i];
                    *sum += mass * (scores + path);
                }
            }
        }
        let graph = Graph::new();
        let (_, loss) = objective(&graph, &model, &config.train);
        // Nats of an image, as the bound is.
        let nats = loss * -(12.0 * std::f64::consts::LN_2) as f32;
        let outputs = [("bound", nats), ("gradient", flat_gradient(nats, &model))];
        let mut program = Program::new(compile(&graph, &model.layout, &outputs).unwrap());
        let images = image.repeat(config.train.batch);
        let (seeds, mut bounds) = (300, 0.0);
        let mut sums = vec![(0.0, 0.0); exact.len()];
        for seed in 0..seeds {
            let inputs = [
                ("images", Data::U8(&images)),
                ("counter", Data::U32(&counter(seed, 0))),
                ("tau", Data::F32(&[1.0])),
                ("noise_scale", Data::F32(&[1.0])),
            ];
            program.run(&mut store, &inputs).unwrap();
            bounds += program.output("bound")[0] as f64 / seeds as f64;
            for (sum, &v) in sums.iter_mut().zip(program.output("gradient")) {
                *sum = (sum.0 + v as f64, sum.1 + (v as f64).powi(2));
            }
        }
        assert!(
            (bounds - bound).abs() < 0.05,
            "{settings:?}: {bounds} {bound}"
        );
        let largest = exact.iter().fold(0f64, |x, v| x.max(v.abs()));
        for (i, (&(sum, squares), exact)) in sums.iter().zip(&exact).enumerate() {
            let mean = sum / seeds as f64;
            let error = ((squares / seeds as f64 - mean * mean).max(0.0) / seeds as f64).sqrt();
            assert!(
                (mean - exact).abs() < 5.0 * error + 1e-4 * largest,
                "{settings:?}, parameter {i}: {mean} ± {error}, exact {exact}"
            );
            assert!(
                error < 0.05 * largest,
                "the limit is a real one: {error} of {largest}"
            );
        }
    }
}
