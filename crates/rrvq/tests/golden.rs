//! Four tiny models against values that PyTorch computed for them.
//!
//! `tools/golden.py` writes the model a second time, in PyTorch and from its definition; each file in `golden/`
//! holds settings, images, parameters and what came out in float64. Whatever this crate and the engine below it
//! get wrong together (a layout, a sign, a missing factor in a gradient, the address of a noise) shows here.
//!
//! The last test holds the fused responsibility to the same thing drawn out of plain operations.

mod common;

use common::golden::{F32, Golden, program};
use common::report::{Report, largest};
use common::{normal, run_once};
use rrvq::config::Sample;
use rrvq::latent::Sampling;
use rrvq::latent::responsibility::{Codebook, Prior};
use rrvq_tensor::SampleMode;
use rrvq_tensor::rng::counter;
use rrvq_tensor::{DType, Data, Device, Graph, Layout, Store, Var, grad};

#[test]
fn straight_through_forward_and_gradients() {
    let golden = Golden::read("straight-through");
    assert_eq!(golden.config.model.sample, Sample::StraightThrough);
    // The file should see free bits from both sides: one layer below its floor, one above.
    let free_bits = golden.config.model.free_bits as f32;
    let sides = golden.config.model.sides();
    let below = golden.kl().zip(sides).filter(|(kl, side)| {
        kl.iter().sum::<f32>() / (kl.len() as f32) < free_bits * (side * side) as f32
    });
    assert_eq!(below.count(), 1);
    golden.check_gradients(&Device::Cpu, F32);
}

#[test]
fn straight_through_ten_steps() {
    let golden = Golden::read("straight-through");
    // And clipping that bites at some steps.
    let clip = golden.config.train.clip as f32;
    let norms = golden.values("out.norms").iter();
    assert!((3..8).contains(&norms.filter(|norm| **norm > clip).count()));
    golden.check_training(&Device::Cpu, F32);
}

#[test]
fn relaxed_forward_and_gradients() {
    let golden = Golden::read("relaxed");
    assert_eq!(golden.config.model.sample, Sample::Relaxed);
    golden.check_gradients(&Device::Cpu, F32);
}

#[test]
fn relaxed_ten_steps() {
    Golden::read("relaxed").check_training(&Device::Cpu, F32);
}

#[test]
fn rvq_forward_and_gradients() {
    Golden::read("rvq").check_gradients(&Device::Cpu, F32);
}

#[test]
fn rvq_ten_steps() {
    Golden::read("rvq").check_training(&Device::Cpu, F32);
}

#[test]
fn mixture_forward_and_gradients() {
    let golden = Golden::read("mixture");
    assert_eq!(golden.config.model.likelihood, "mixture");
    golden.check_gradients(&Device::Cpu, F32);
}

#[test]
fn mixture_ten_steps() {
    Golden::read("mixture").check_training(&Device::Cpu, F32);
}

#[test]
fn the_fused_responsibility_is_the_plain_one() {
    for (rows, codes, dim) in [(37, 7, 5), (130, 64, 32), (5, 33, 17)] {
        for learnt in [true, false] {
            for mode in MODES {
                check_responsibility(rows, codes, dim, learnt, mode, [0.6, 0.9]);
            }
            for temperatures in [[1.0, 1.0], [1.5, 1.0], [1.5, 0.0]] {
                check_responsibility(rows, codes, dim, learnt, SampleMode::ReinMax, temperatures);
            }
        }
    }
}

const MODES: [SampleMode; 3] = [
    SampleMode::StraightThrough,
    SampleMode::Relaxed,
    SampleMode::ReinMax,
];

/// Draws both ways into one graph, with the same random weights on samples and KL for the gradients.
fn check_responsibility(
    rows: usize,
    codes: usize,
    dim: usize,
    learnt: bool,
    mode: SampleMode,
    [tau, noise_scale]: [f32; 2],
) {
    let case = format!(
        "{rows} rows, {codes} codes of {dim}, learnt {learnt}, {mode:?}, tau {tau}, noise {noise_scale}"
    );
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
        mode,
        stream: 3,
    };
    let prior = match learnt {
        true => Prior::Embedding(e_p),
        false => Prior::Uniform,
    };
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
    let mut program = program(&Device::Cpu, &g, &Layout::default(), &outputs);
    let given = [
        ("e_q", normal(0, rows * dim, 1.0)),
        ("e_p", normal(1, rows * dim, 1.0)),
        ("mu", normal(2, codes * dim, 0.7)),
        ("logvar", normal(3, codes * dim, 0.4)),
        ("weight_z", normal(4, rows * dim, 1.0)),
        ("weight_kl", normal(5, rows, 1.0)),
        ("tau", vec![tau]),
        ("noise_scale", vec![noise_scale]),
    ];
    let words = counter(5, 6);
    let mut inputs: Vec<_> = given.iter().map(|(n, v)| (*n, Data::F32(v))).collect();
    inputs.push(("counter", Data::U32(&words)));
    program.run(&mut Store::default(), &inputs).unwrap();

    let mut report = Report::new(&case);
    let index = |way: &str| program.output_u32(&format!("{way} index")).unwrap();
    report.same("codes", &index("fused"), &index("plain"));
    let mut names = vec!["z".to_string(), "kl".into()];
    names.extend(wrt.iter().map(|(name, _)| format!("d {name}")));
    for name in names {
        let want = program.output(&format!("plain {name}")).unwrap();
        let have = program.output(&format!("fused {name}")).unwrap();
        assert!(largest(&want) > 1e-3, "{case}: {name} is zero");
        report.tensor("values and gradients", &name, &have, &want, F32.gradients);
    }
    report.end();
}

/// A direct prior's samples are drawn out of plain operations. The prior has no part in the gradient of a sample, so the
/// fused one with a uniform prior must send back the same.
#[test]
fn a_direct_prior_samples_with_the_same_gradient() {
    let (rows, codes, dim) = (60, 19, 6);
    for mode in MODES {
        let g = Graph::new();
        let input = |name: &str, shape: &[usize]| g.input(name, shape, DType::F32);
        let e_q = input("e_q", &[rows, dim]);
        let book = Codebook {
            mu: input("mu", &[codes, dim]),
            logvar: input("logvar", &[codes, dim]),
        };
        let how = Sampling {
            tau: g.scalar_input("tau"),
            noise_scale: g.scalar_input("noise_scale"),
            mode,
            stream: 3,
        };
        let weight = input("weight", &[rows, dim]);
        let direct = Prior::Direct(input("logits", &[rows, codes]));
        let wrt = [("e_q", e_q), ("mu", book.mu), ("logvar", book.logvar)];
        let mut outputs = Vec::new();
        for (way, prior) in [("direct", direct), ("uniform", Prior::Uniform)] {
            let z = book.sample(e_q, prior, how).z;
            let slopes = grad((z * weight).sum(), &wrt.map(|(_, v)| v));
            let names = wrt.iter().map(|(name, _)| format!("{way} d {name}"));
            outputs.extend(names.zip(slopes));
            outputs.push((format!("{way} z"), z));
        }
        let mut program = program(&Device::Cpu, &g, &Layout::default(), &outputs);
        let given = [
            ("e_q", normal(0, rows * dim, 1.0)),
            ("mu", normal(1, codes * dim, 0.7)),
            ("logvar", normal(2, codes * dim, 0.4)),
            ("logits", normal(3, rows * codes, 1.0)),
            ("weight", normal(4, rows * dim, 1.0)),
            ("tau", vec![1.2]),
            ("noise_scale", vec![1.0]),
        ];
        run_once(&mut program, &given);
        let mut report = Report::new(format!("{mode:?}"));
        for name in ["z", "d e_q", "d mu", "d logvar"] {
            let have = program.output(&format!("direct {name}")).unwrap();
            let want = program.output(&format!("uniform {name}")).unwrap();
            assert!(largest(&want) > 1e-3, "{mode:?}: {name} is zero");
            report.tensor("values and gradients", name, &have, &want, F32.gradients);
        }
        report.end();
    }
}
