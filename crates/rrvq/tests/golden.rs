//! Three tiny models against values that PyTorch computed for them.
//!
//! `tools/golden.py` writes the model a second time, in PyTorch and from its definition; each file in `golden/`
//! holds settings, images, parameters and what came out in float64. Whatever this crate and the engine below it
//! get wrong together (a layout, a sign, a missing factor in a gradient, the address of a noise) shows here.
//!
//! The last test holds the fused responsibility to the same thing drawn out of plain operations.

use rrvq::config::{Config, Optimiser as Rule, Sample};
use rrvq::latent::responsibility::{Codebook, Sampling};
use rrvq::model::Hierarchy;
use rrvq_tensor::device::cpu::Program;
use rrvq_tensor::device::cpu::counter;
use rrvq_tensor::optim;
use rrvq_tensor::params::{Tensors, from_safetensors};
use rrvq_tensor::rng::{Distribution, Noise, fill};
use rrvq_tensor::{DType, Data, Graph, Layout, Store, Var, compile, grad};

/// Values of the forward pass and training losses, relative.
const VALUES: f32 = 1e-5;
/// A KL is a sum over positions of differences of logarithms: what is near 0 has no more digits than these.
const SMALL: f32 = 0.1;
/// A gradient, relative to the largest element of its tensor.
const GRADIENTS: f32 = 2e-5;
/// How far a parameter or its average moved in ten steps, relative to that distance.
const MOVES: f32 = 2e-4;

const TRAINING_STEPS: u64 = 10;

/// A golden file.
struct Golden {
    config: Config,
    file: Tensors,
    images: Vec<u8>,
}

impl Golden {
    fn read(case: &str) -> Golden {
        let path = format!(
            "{}/tests/golden/{case}.safetensors",
            env!("CARGO_MANIFEST_DIR")
        );
        let file = from_safetensors(&std::fs::read(path).unwrap()).unwrap();
        let mut config = Config::default();
        for change in file.metadata["set"].lines() {
            config.set(change).unwrap();
        }
        config.validate().unwrap();
        let images = file.map["images"].1.iter().map(|&v| v as u8).collect();
        Golden {
            config,
            file,
            images,
        }
    }

    fn values(&self, name: &str) -> &[f32] {
        &self.file.map[name].1
    }

    fn step(&self) -> u64 {
        self.file.metadata["step"].parse().unwrap()
    }

    /// Runs with the file's images and noise of the given step.
    fn run(&self, program: &mut Program, store: &mut Store, step: u64) {
        let words = counter(self.config.train.seed, step);
        let tau = [self.config.model.temperature.start as f32];
        let lr = [self.config.train.lr as f32];
        let t = [(step + 1) as f32];
        let inputs = [
            ("images", Data::U8(&self.images)),
            ("counter", Data::U32(&words)),
            ("tau", Data::F32(&tau)),
            ("noise_scale", Data::F32(&[1.0])),
            ("lr", Data::F32(&lr)),
            ("t", Data::F32(&t)),
        ];
        program.run(store, &inputs).unwrap();
    }
}

/// Fails where the two differ by more than `tolerance` of `scale`.
fn close(what: &str, have: &[f32], want: &[f32], scale: f32, tolerance: f32) {
    assert_eq!(have.len(), want.len(), "{what}");
    for (i, (&have, &want)) in have.iter().zip(want).enumerate() {
        let off = (have - want).abs();
        assert!(
            off <= tolerance * scale,
            "{what}, element {i}: {have} where {want} is expected, {off:e} apart"
        );
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, v| a.max(v.abs()))
}

/// The same for numbers that stand for themselves; below `SMALL` the difference counts, not its share.
fn close_each(what: &str, have: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(have.len(), want.len(), "{what}");
    for (have, want) in have.iter().zip(want) {
        let scale = want.abs().max(SMALL);
        close(what, &[*have], &[*want], scale, tolerance);
    }
}

fn check_forward_and_gradients(case: &str) {
    let golden = Golden::read(case);
    let model = &golden.config.model;
    let g = Graph::new();
    let elbo = Hierarchy::new(&g, model, golden.config.train.batch).training_elbo();
    let loss = elbo.loss(model);
    let layout = g.layout();
    let mut outputs = vec![
        ("loss".to_string(), loss),
        ("log_likelihood".to_string(), elbo.log_likelihood),
    ];
    for (i, (kl, codes)) in elbo.kl.iter().zip(&elbo.codes).enumerate() {
        outputs.push((format!("kl.{}", i + 1), *kl));
        outputs.push((format!("codes.{}", i + 1), *codes));
    }
    for (entry, d) in layout.entries().iter().zip(grad(loss, &g.params())) {
        outputs.push((format!("grad.{}", entry.name), d));
    }
    let mut program = program(&g, &layout, &outputs);
    let mut store = Store::with("theta", layout.flatten(&golden.file, "param.").unwrap());
    golden.run(&mut program, &mut store, golden.step());

    for i in 1..=model.layers() {
        let want: Vec<u32> = golden
            .values(&format!("out.codes.{i}"))
            .iter()
            .map(|&v| v as u32)
            .collect();
        assert_eq!(
            program.output_u32(&format!("codes.{i}")),
            want,
            "{case}: codes of layer {i}"
        );
    }
    for (name, want) in [
        ("loss", "out.loss"),
        ("log_likelihood", "out.log_likelihood"),
    ] {
        close_each(
            &format!("{case}: {name}"),
            program.output(name),
            golden.values(want),
            VALUES,
        );
    }
    let kl = golden.values("out.kl").chunks(golden.config.train.batch);
    assert_eq!(kl.len(), model.layers());
    for (i, want) in kl.enumerate() {
        let have = program.output(&format!("kl.{}", i + 1));
        close_each(
            &format!("{case}: KL of layer {}", i + 1),
            have,
            want,
            VALUES,
        );
    }

    let in_file = golden
        .file
        .map
        .keys()
        .filter(|name| name.starts_with("grad."))
        .count();
    assert_eq!(
        in_file,
        layout.entries().len(),
        "{case}: parameters in the file and in the model"
    );
    for entry in layout.entries() {
        let name = format!("grad.{}", entry.name);
        let want = golden.values(&name);
        close(
            &format!("{case}: {name}"),
            program.output(&name),
            want,
            largest(want),
            GRADIENTS,
        );
    }
}

/// Sum and norm of what each parameter changed by, in the order of the names.
fn moved(layout: &Layout, start: &[f32], end: &[f32]) -> Vec<[f32; 2]> {
    let mut entries: Vec<_> = layout.entries().iter().collect();
    entries.sort_by_key(|entry| &entry.name);
    let of = |entry: &&rrvq_tensor::params::Entry| {
        let range = entry.offset..entry.offset + entry.len();
        let change = |(a, b): (&f32, &f32)| *b as f64 - *a as f64;
        let changes = || {
            start[range.clone()]
                .iter()
                .zip(&end[range.clone()])
                .map(change)
        };
        let norm = changes().map(|c| c * c).sum::<f64>().sqrt();
        [changes().sum::<f64>() as f32, norm as f32]
    };
    entries.iter().map(of).collect()
}

fn check_training(case: &str) {
    let golden = Golden::read(case);
    let (model, train) = (&golden.config.model, &golden.config.train);
    let g = Graph::new();
    let loss = Hierarchy::new(&g, model, train.batch)
        .training_elbo()
        .loss(model);
    let optimiser = optim::Optimiser {
        rule: match train.optimiser {
            Rule::AdaMax => optim::Rule::AdaMax,
            Rule::Adam => optim::Rule::Adam,
        },
        beta1: train.beta1 as f32,
        beta2: train.beta2 as f32,
        epsilon: train.epsilon as f32,
        clip: train.clip as f32,
        ema: train.ema as f32,
    };
    let norm = optimiser.draw(loss);
    let layout = g.layout();
    let outputs = [("loss".to_string(), loss), ("norm".to_string(), norm)];
    let mut program = program(&g, &layout, &outputs);
    let start = layout.flatten(&golden.file, "param.").unwrap();
    let mut store = Store::with("theta", start.clone());
    store.insert("ema", start.clone());
    store.insert("m", vec![0.0; layout.len()]);
    store.insert("v", vec![0.0; layout.len()]);

    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 0..TRAINING_STEPS {
        golden.run(&mut program, &mut store, step);
        losses.push(program.scalar("loss"));
        norms.push(program.scalar("norm"));
    }
    close_each(
        &format!("{case}: losses"),
        &losses,
        golden.values("out.losses"),
        VALUES,
    );
    close_each(
        &format!("{case}: gradient norms"),
        &norms,
        golden.values("out.norms"),
        VALUES,
    );
    for (state, name) in [("theta", "out.moved"), ("ema", "out.ema_moved")] {
        let have = moved(&layout, &start, store.get(state));
        let want = golden.values(name).chunks(2);
        assert_eq!(have.len(), want.len());
        for (i, (have, want)) in have.iter().zip(want).enumerate() {
            let what = format!("{case}: {name} of parameter {i}");
            close(&what, have, want, want[1], MOVES);
        }
    }
}

fn program(g: &Graph, layout: &Layout, outputs: &[(String, Var<'_>)]) -> Program {
    let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    Program::new(compile(g, layout, &named).unwrap())
}

#[test]
fn straight_through_forward_and_gradients() {
    let golden = Golden::read("straight-through");
    assert_eq!(golden.config.model.sample, Sample::StraightThrough);
    // The file should see free bits from both sides: one layer below its floor, one above.
    let free_bits = golden.config.model.free_bits as f32;
    let kl = golden.values("out.kl").chunks(golden.config.train.batch);
    let below = kl.zip(golden.config.model.sides()).filter(|(kl, side)| {
        kl.iter().sum::<f32>() / (kl.len() as f32) < free_bits * (side * side) as f32
    });
    assert_eq!(below.count(), 1);
    check_forward_and_gradients("straight-through");
}

#[test]
fn straight_through_ten_steps() {
    let golden = Golden::read("straight-through");
    // And clipping that bites at some steps.
    let clip = golden.config.train.clip as f32;
    let clipped = golden
        .values("out.norms")
        .iter()
        .filter(|norm| **norm > clip);
    assert!((3..8).contains(&clipped.count()));
    check_training("straight-through");
}

#[test]
fn relaxed_forward_and_gradients() {
    assert_eq!(Golden::read("relaxed").config.model.sample, Sample::Relaxed);
    check_forward_and_gradients("relaxed");
}

#[test]
fn relaxed_ten_steps() {
    check_training("relaxed");
}

#[test]
fn rvq_forward_and_gradients() {
    check_forward_and_gradients("rvq");
}

#[test]
fn rvq_ten_steps() {
    check_training("rvq");
}

fn normal(stream: u32, len: usize, scale: f32) -> Vec<f32> {
    let mut out = vec![0.0; len];
    let noise = Noise {
        seed: 11,
        stream,
        step: 0,
    };
    let isa = rrvq_tensor::device::cpu::simd::isa();
    fill(isa, noise, Distribution::Normal, 0, &mut out);
    out.iter_mut().for_each(|v| *v *= scale);
    out
}

#[test]
fn the_fused_responsibility_is_the_plain_one() {
    for (rows, codes, dim) in [(37, 7, 5), (130, 64, 32), (5, 33, 17)] {
        for learnt in [true, false] {
            for relaxed in [true, false] {
                check_responsibility(rows, codes, dim, learnt, relaxed);
            }
        }
    }
}

/// Draws both ways into one graph, with the same random weights on samples and KL for the gradients.
fn check_responsibility(rows: usize, codes: usize, dim: usize, learnt: bool, relaxed: bool) {
    let case = format!("{rows} rows, {codes} codes of {dim}, learnt {learnt}, relaxed {relaxed}");
    let g = Graph::new();
    let (e_q, e_p) = (
        g.input("e_q", &[rows, dim], DType::F32),
        g.input("e_p", &[rows, dim], DType::F32),
    );
    let book = Codebook {
        mu: g.input("mu", &[codes, dim], DType::F32),
        logvar: g.input("logvar", &[codes, dim], DType::F32),
    };
    let how = Sampling {
        tau: g.scalar_input("tau"),
        noise_scale: g.scalar_input("noise_scale"),
        relaxed,
        stream: 3,
    };
    let prior = learnt.then_some(e_p);
    let (weight_z, weight_kl) = (
        g.input("weight_z", &[rows, dim], DType::F32),
        g.input("weight_kl", &[rows, 1], DType::F32),
    );
    let mut wrt = vec![("e_q", e_q), ("mu", book.mu), ("logvar", book.logvar)];
    wrt.extend(learnt.then_some(("e_p", e_p)));
    let mut outputs = Vec::new();
    for (way, s) in [
        ("fused", book.sample(e_q, prior, how)),
        ("plain", book.sample_slowly(e_q, prior, how).sampled),
    ] {
        let loss = (s.z * weight_z).sum() + (s.kl * weight_kl).sum();
        let vars: Vec<Var<'_>> = wrt.iter().map(|(_, v)| *v).collect();
        for (name, v) in [("z", s.z), ("kl", s.kl), ("index", s.index)] {
            outputs.push((format!("{way} {name}"), v));
        }
        for ((name, _), d) in wrt.iter().zip(grad(loss, &vars)) {
            outputs.push((format!("{way} d {name}"), d));
        }
    }
    let mut program = program(&g, &Layout::default(), &outputs);
    let given = [
        ("e_q", normal(0, rows * dim, 1.0)),
        ("e_p", normal(1, rows * dim, 1.0)),
        ("mu", normal(2, codes * dim, 0.7)),
        ("logvar", normal(3, codes * dim, 0.4)),
        ("weight_z", normal(4, rows * dim, 1.0)),
        ("weight_kl", normal(5, rows, 1.0)),
        ("tau", vec![0.6]),
        ("noise_scale", vec![0.9]),
    ];
    let words = counter(5, 6);
    let mut inputs: Vec<_> = given.iter().map(|(n, v)| (*n, Data::F32(v))).collect();
    inputs.push(("counter", Data::U32(&words)));
    program.run(&mut Store::default(), &inputs).unwrap();

    assert_eq!(
        program.output_u32("fused index"),
        program.output_u32("plain index"),
        "{case}"
    );
    let mut names = vec!["z".to_string(), "kl".into()];
    names.extend(wrt.iter().map(|(name, _)| format!("d {name}")));
    for name in names {
        let want = program.output(&format!("plain {name}"));
        let have = program.output(&format!("fused {name}"));
        let scale = largest(want);
        assert!(scale > 1e-3, "{case}: {name} is zero");
        close(&format!("{case}: {name}"), have, want, scale, GRADIENTS);
    }
}
