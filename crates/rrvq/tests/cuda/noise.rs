//! The same seed gives the same noise on every device, and with it the same codes.

use crate::common::golden::program;
use crate::common::report::Report;
use crate::common::{gpu, named, normal, run_once};
use rrvq::latent::Sampling;
use rrvq::latent::responsibility::{Codebook, Prior};
use rrvq_tensor::SampleMode;
use rrvq_tensor::rng::{Distribution, Noise, counter, fill};
use rrvq_tensor::{DType, Data, Device, Graph, Layout, Store};

/// Two logarithms by other code, relative; below 1 the difference itself.
const GUMBEL: f32 = 1e-6;
/// Scores of codes that are closer than this, of the largest in their row, may be taken for each other in f32.
const TIE: f32 = 1e-5;
/// Means and KL, of the largest in their tensor.
const VALUES: f32 = 1e-5;

/// Seeds, steps and streams, some beyond 32 bits.
const ADDRESSES: [(u64, u64, u32); 3] = [
    (0, 0, 0),
    (0x0123_4567_89ab_cdef, (3 << 32) + 11, 7),
    (5, 1_000_000, 0xffff_0003),
];

fn check_noise(device: &Device) {
    let shapes: [&[usize]; 3] = [&[1000], &[3, 7, 5, 8], &[129, 64]];
    let mut report = Report::new(format!("noise, {}", named(device)));
    for (seed, step, stream) in ADDRESSES {
        for shape in shapes {
            let g = Graph::new();
            let drawn = |distribution| g.noise_stream(distribution, shape, stream);
            let outputs = [
                ("uniform".to_string(), drawn(Distribution::Uniform)),
                ("gumbel".to_string(), drawn(Distribution::Gumbel)),
            ];
            let mut program = program(device, &g, &Layout::default(), &outputs);
            let words = counter(seed, step);
            let inputs = [("counter", Data::U32(&words))];
            program.run(&mut Store::default(), &inputs).unwrap();
            let wanted = |distribution| {
                let mut out = vec![0.0; shape.iter().product()];
                let isa = rrvq_tensor::simd::isa();
                let noise = Noise { seed, stream, step };
                fill(isa, noise, distribution, 0, &mut out);
                out
            };
            let bits =
                |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
            let what = format!("{shape:?} of seed {seed}, step {step}, stream {stream}");
            let have = program.output("uniform").unwrap();
            let want = wanted(Distribution::Uniform);
            assert!(want.iter().all(|v| (0.0..1.0).contains(v)) && want[0] != want[1]);
            report.same(&format!("uniform {what}"), &bits(&have), &bits(&want));
            let have = program.output("gumbel").unwrap();
            for (have, want) in have.iter().zip(&wanted(Distribution::Gumbel)) {
                let scale = want.abs().max(1.0);
                report.scaled(
                    "Gumbel",
                    &format!("Gumbel {what}"),
                    &[*have],
                    &[*want],
                    scale,
                    GUMBEL,
                );
            }
        }
    }
    report.end();
}

/// What a device samples for the same embeddings and codebook.
struct Drawn {
    index: Vec<u32>,
    z: Vec<f32>,
    kl: Vec<f32>,
    /// The noisy score of every code, row by row, out of plain operations.
    scores: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    rows: usize,
    codes: usize,
    dim: usize,
}

fn draw(device: &Device, size: Size, learnt: bool, mode: SampleMode) -> Drawn {
    let Size { rows, codes, dim } = size;
    let g = Graph::new();
    let e_q = g.input("e_q", &[rows, dim], DType::F32);
    let e_p = g.input("e_p", &[rows, dim], DType::F32);
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
    let sampled = book.sample(e_q, prior, how);
    let noise = g.noise_stream(Distribution::Gumbel, &[rows, codes], how.stream);
    let scores = book.log_responsibilities(e_q) + noise * how.noise_scale;
    let outputs = [
        ("index".to_string(), sampled.index),
        ("z".to_string(), sampled.z),
        ("kl".to_string(), sampled.kl),
        ("scores".to_string(), scores),
    ];
    let mut program = program(device, &g, &Layout::default(), &outputs);
    let given = [
        ("e_q", normal(0, rows * dim, 1.0)),
        ("e_p", normal(1, rows * dim, 1.0)),
        ("mu", normal(2, codes * dim, 0.7)),
        ("logvar", normal(3, codes * dim, 0.4)),
        ("tau", vec![0.6]),
        ("noise_scale", vec![0.9]),
    ];
    run_once(&mut program, &given);
    let values = |name: &str| program.output(name).unwrap().into_owned();
    Drawn {
        index: program.output_u32("index").unwrap(),
        z: values("z"),
        kl: values("kl"),
        scores: values("scores"),
    }
}

/// Whether two codes of a row are as good as each other, as far as f32 can tell.
fn tied(scores: &[f32], one: u32, other: u32) -> bool {
    let scale = scores.iter().fold(1.0f32, |a, v| a.max(v.abs()));
    (scores[one as usize] - scores[other as usize]).abs() < TIE * scale
}

fn check_codes(device: &Device) {
    let size = |rows, codes, dim| Size { rows, codes, dim };
    // Sizes for tensor cores, and others.
    let sizes = [
        size(37, 7, 5),
        size(301, 33, 17),
        size(130, 64, 32),
        size(1000, 256, 32),
        size(513, 128, 16),
    ];
    for size in sizes {
        for (learnt, mode) in [
            (true, SampleMode::StraightThrough),
            (false, SampleMode::StraightThrough),
            (true, SampleMode::Relaxed),
            (true, SampleMode::ReinMax),
        ] {
            let (want, have) = (
                draw(&Device::Cpu, size, learnt, mode),
                draw(device, size, learnt, mode),
            );
            let title = format!("{size:?}, learnt {learnt}, {mode:?}, {}", named(device));
            let mut report = Report::new(title);
            let mut ties = 0;
            for (row, scores) in want.scores.chunks(size.codes).enumerate() {
                let (mine, theirs) = (want.index[row], have.index[row]);
                let best = scores.iter().fold(f32::MIN, |a, v| a.max(*v));
                assert_eq!(scores[mine as usize], best, "the CPU's own choice");
                if mine == theirs {
                    continue;
                }
                ties += 1;
                let same = (theirs as usize) < size.codes && tied(scores, mine, theirs);
                report.note(
                    "codes",
                    &format!("row {row}"),
                    if same { 0.0 } else { 1.0 },
                    0.0,
                );
            }
            // Ties this close are rarer than one in ten thousand.
            report.note("ties", "the number of ties", ties as f32, 2.0);
            report.tensor("KL", "KL", &have.kl, &want.kl, VALUES);
            if ties == 0 {
                report.tensor("means", "z", &have.z, &want.z, VALUES);
            }
            report.end();
        }
    }
}

#[test]
fn noise_here() {
    check_noise(&Device::Cpu);
}

#[test]
fn noise_is_the_cpus() {
    let Some(gpu) = gpu() else { return };
    gpu.both().iter().for_each(check_noise);
}

#[test]
fn codes_here() {
    check_codes(&Device::Cpu);
}

#[test]
fn codes_are_the_cpus_for_the_same_embeddings() {
    let Some(gpu) = gpu() else { return };
    check_codes(&gpu.f32());
}
