//! The fused responsibility by itself, values and gradients, on each of the roads its sizes take on a GPU.

use crate::common::golden::program;
use crate::common::report::Report;
use crate::common::{gpu, named, normal, run_once};
use rrvq::latent::Sampling;
use rrvq::latent::responsibility::{Codebook, Prior};
use rrvq_tensor::SampleMode;
use rrvq_tensor::{DType, Device, Graph, Layout, grad};

/// How far two ways may be apart.
#[derive(Clone, Copy)]
struct Limits {
    /// Means and KL, of the largest in their tensor.
    values: f32,
    /// The length of a gradient's difference, of its length.
    gradients: f32,
    /// Rows of a thousand that may choose another code, for scores that are nearly alike.
    ties: f32,
}

const F32: Limits = Limits {
    values: 2e-5,
    gradients: 2e-5,
    ties: 0.2,
};

/// Scores keep 16 bits, their gradients 8.
const BF16: Limits = Limits {
    values: 1e-3,
    gradients: 5e-3,
    ties: 1.0,
};

/// Embeddings far from all codes, [`FAR`]: the scores of all codes are large numbers that differ by little. This is the
/// case that gradients of 8 bits must be right in. In f32 neither device keeps enough digits of it to hold one to the
/// other: a KL without a prior is a difference of such numbers, and its gradient meets the embeddings.
const FAR_IN_BF16: Limits = Limits {
    values: 3e-3,
    gradients: 1e-2,
    ties: 10.0,
};

/// How much larger embeddings are than is usual, and codes smaller, so that scores stay what they are.
const FAR: f32 = 10.0;

/// Rows, codes, dimensions: each road's sizes, some with rows that fill no tile, and some of several chunks.
const SIZES: [(usize, usize, usize); 9] = [
    (37, 7, 5),
    (300, 64, 16),
    (1000, 256, 32),
    (333, 256, 128),
    (4096, 256, 128),
    (70, 64, 96),
    (90, 1024, 32),
    (20_480, 64, 64),
    (17_001, 64, 64),
];

/// Whether the prior is learnt, and the estimator.
const CHOICES: [(bool, SampleMode); 6] = [
    (true, SampleMode::StraightThrough),
    (false, SampleMode::StraightThrough),
    (true, SampleMode::Relaxed),
    (false, SampleMode::Relaxed),
    (true, SampleMode::ReinMax),
    (false, SampleMode::ReinMax),
];

struct Outcome {
    index: Vec<u32>,
    values: [Vec<f32>; 2],
    gradients: Vec<(&'static str, Vec<f32>)>,
}

/// What is computed, and of what.
#[derive(Clone, Copy, Debug)]
struct Case {
    size: (usize, usize, usize),
    learnt: bool,
    mode: SampleMode,
    /// By how much embeddings are larger and codes smaller.
    far: f32,
    /// Standard deviation of the codes' log-variances.
    spread: f32,
}

/// What computes: the fused operation on a device, or plain operations here.
#[derive(Clone, Copy)]
enum By<'a> {
    Fused(&'a Device),
    PlainOperations,
}

fn run(by: By<'_>, case: Case) -> Outcome {
    let (rows, codes, dim) = case.size;
    let g = Graph::new();
    let e_q = g.input("e_q", &[rows, dim], DType::F32);
    let e_p = g.input("e_p", &[rows, dim], DType::F32);
    let mu = g.input("mu", &[codes, dim], DType::F32);
    let logvar = g.input("logvar", &[codes, dim], DType::F32);
    let to_z = g.input("to_z", &[rows, dim], DType::F32);
    let to_kl = g.input("to_kl", &[rows, 1], DType::F32);
    let how = Sampling {
        tau: g.scalar_input("tau"),
        noise_scale: g.scalar_input("noise_scale"),
        mode: case.mode,
        stream: 3,
    };
    let prior = match case.learnt {
        true => Prior::Embedding(e_p),
        false => Prior::Uniform,
    };
    let book = Codebook { mu, logvar };
    let (sampled, device) = match by {
        By::Fused(device) => (book.sample(e_q, prior, how), device),
        By::PlainOperations => (book.sample_slowly(e_q, prior, how).sampled, &Device::Cpu),
    };
    let kl = sampled.kl.reshape(&[rows, 1]);
    let loss = (sampled.z * to_z).sum() + (kl * to_kl).sum();
    let mut names = vec!["e_q", "mu", "logvar"];
    let mut wrt = vec![e_q, mu, logvar];
    if case.learnt {
        names.push("e_p");
        wrt.push(e_p);
    }
    let mut outputs = vec![
        ("index".to_string(), sampled.index),
        ("z".to_string(), sampled.z),
        ("kl".to_string(), sampled.kl),
    ];
    for (name, d) in names.iter().zip(grad(loss, &wrt)) {
        outputs.push((format!("d {name}"), d));
    }
    let mut program = program(device, &g, &Layout::default(), &outputs);
    // Means so far apart that several codes are likely in each row, whatever the dimensions.
    let apart = 1.5 / (dim as f32).sqrt() / case.far;
    let given = [
        ("e_q", normal(0, rows * dim, case.far)),
        ("e_p", normal(1, rows * dim, case.far)),
        ("mu", normal(2, codes * dim, apart)),
        ("logvar", normal(3, codes * dim, case.spread)),
        ("to_z", normal(4, rows * dim, 1.0)),
        ("to_kl", normal(5, rows, 1.0)),
        ("tau", vec![0.6]),
        ("noise_scale", vec![0.9]),
    ];
    run_once(&mut program, &given);
    let values = |name: &str| program.output(name).unwrap().into_owned();
    Outcome {
        index: program.output_u32("index").unwrap(),
        values: [values("z"), values("kl")],
        gradients: names
            .iter()
            .map(|name| (*name, values(&format!("d {name}"))))
            .collect(),
    }
}

/// The length of the difference, of the length of what is wanted.
fn apart(have: &[f32], want: &[f32]) -> f32 {
    let square = |x: f32| (x as f64).powi(2);
    let difference: f64 = have.iter().zip(want).map(|(a, b)| square(a - b)).sum();
    (difference / want.iter().map(|&x| square(x)).sum::<f64>()).sqrt() as f32
}

/// A device against another way to compute the same.
fn check(device: &Device, by: By<'_>, near: Limits, far: Option<Limits>) {
    let mut wrong = Vec::new();
    for size in SIZES {
        for (learnt, mode) in CHOICES {
            let case = Case {
                size,
                learnt,
                mode,
                far: 1.0,
                spread: 0.1,
            };
            wrong.extend(check_case(device, by, near, case));
            let Some(limits) = far.filter(|_| mode != SampleMode::Relaxed) else {
                continue;
            };
            // Variances of 1, as some models have, and such as differ by little.
            for spread in [0.0, 0.01] {
                let far = FAR;
                let case = Case {
                    far,
                    spread,
                    ..case
                };
                wrong.extend(check_case(device, by, limits, case));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is out of its limits.
fn check_case(device: &Device, by: By<'_>, limits: Limits, case: Case) -> Vec<String> {
    let want = run(by, case);
    let have = run(By::Fused(device), case);
    let mut report = Report::new(format!("{case:?}, {}", named(device)));
    let relaxed = case.mode == SampleMode::Relaxed;
    let (rows, _, dim) = case.size;
    let other: Vec<usize> = (0..rows)
        .filter(|&r| have.index[r] != want.index[r])
        .collect();
    let allowed = (limits.ties * rows as f32 / 1000.0).ceil();
    report.note("ties", "rows of another code", other.len() as f32, allowed);
    let [mut z, kl] = have.values;
    if !relaxed {
        for &row in &other {
            let row = row * dim..(row + 1) * dim;
            z[row.clone()].copy_from_slice(&want.values[0][row]);
        }
    }
    report.tensor("means", "z", &z, &want.values[0], limits.values);
    report.tensor("KL", "KL", &kl, &want.values[1], limits.values);
    // A row of another code sends all its dz to another mean.
    let moved = if relaxed {
        0.0
    } else {
        (2.0 * other.len() as f32 / rows as f32).sqrt()
    };
    for ((name, have), (_, want)) in have.gradients.iter().zip(&want.gradients) {
        report.note(
            "gradients",
            name,
            apart(have, want),
            limits.gradients + moved,
        );
    }
    report.told()
}

#[test]
fn responsibilities_here() {
    check(&Device::Cpu, By::PlainOperations, F32, None);
}

#[test]
fn responsibilities_in_f32() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.f32(), By::Fused(&Device::Cpu), F32, None);
}

#[test]
fn responsibilities_in_bf16() {
    let Some(gpu) = gpu() else { return };
    let here = By::Fused(&Device::Cpu);
    check(&gpu.bf16(), here, BF16, Some(FAR_IN_BF16));
}
