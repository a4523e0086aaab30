//! A model means the same on every device: bits per dim, counts of codes, pictures.

use crate::common::report::Report;
use crate::common::{Slopes, gpu, named, small_models};
use rrvq::PixelValues;
use rrvq::dataset::Batches;
use rrvq::dataset::{Split, bank};
use rrvq::evaluate::{Evaluator, Extent, importance_bound};
use rrvq::programs::{Inference, Model, Sampler, Scorer, Scores, Step, StepInput};
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Device, Store};

/// How far a device may be from the CPU.
#[derive(Clone, Copy)]
struct Limits {
    /// In bits a dimension.
    bits: f32,
    /// Of the likelihood or KL of a single image, relative.
    image: f32,
    /// Whether every code must be drawn as often, and pictures be the same.
    codes: bool,
}

const F32: Limits = Limits {
    bits: 1e-4,
    image: 1e-4,
    codes: true,
};

/// Codes that are nearly tied are drawn the other way now and then, which moves an image more than the average.
const BF16: Limits = Limits {
    bits: 3e-2,
    image: 3e-1,
    codes: false,
};

/// Grey levels, of 255.
const PICTURES: f32 = 0.02;

const DATA: Slopes = Slopes {
    size: 16,
    images: 44,
};
const BATCH: usize = 16;

/// Weights after a few steps on the CPU.
fn trained(config: &rrvq::config::Config) -> (Model, Vec<f32>) {
    let (device, model) = (Device::Cpu, Model::new(&config.model));
    let mut batches = Batches::new(&DATA, 1, config.train.batch, true);
    let mut store = model.initial(&device, 1, batches.at(0)).unwrap();
    let mut step = Step::new(&device, &model, &config.train).unwrap();
    for at in 0..25 {
        let input = StepInput {
            seed: 1,
            step: at,
            lr: 4e-3,
            tau: 0.5,
            kl_weight: 1.0,
        };
        step.run(&mut store, batches.at(at), &input).unwrap();
    }
    let theta = store.get("theta").to_vec();
    (model, theta)
}

fn check(device: &Device, limits: Limits) {
    for (name, config) in small_models() {
        let (model, theta) = trained(&config);
        let store = || Store::with("theta", theta.clone());
        let mut report = Report::new(format!("evaluation of {name}, {}", named(device)));
        check_bits(&mut report, device, &model, store, limits);
        check_scores(&mut report, device, &model, store, limits);
        if limits.codes {
            check_pictures(&mut report, device, &model, store);
        }
        report.end();
    }
}

/// Whole evaluations, the last batch being a part of one.
fn check_bits(
    report: &mut Report,
    device: &Device,
    model: &Model,
    store: impl Fn() -> Store,
    limits: Limits,
) {
    let extent = Extent {
        split: Split::Test,
        images: 0,
    };
    let of = |device: &Device| {
        let mut evaluator = Evaluator::new(device, model, &DATA, BATCH).unwrap();
        evaluator.evaluate(&mut store(), extent).unwrap()
    };
    let (want, have) = (of(&Device::Cpu), of(device));
    assert_eq!((want.images, have.images), (DATA.images, DATA.images));
    let bits = |have: f64, want: f64| (have - want).abs() as f32;
    let error = bits(have.bits_per_dim, want.bits_per_dim);
    println!(
        "{} bits per dim, {} on the CPU",
        have.bits_per_dim, want.bits_per_dim
    );
    assert!((1.0..8.0).contains(&want.bits_per_dim), "a trained model");
    report.note("bits per dim", "bits per dim", error, limits.bits);
    let error = bits(have.reconstruction, want.reconstruction);
    report.note("bits per dim", "reconstruction", error, limits.bits);
    for (have, want) in have.kl.iter().zip(&want.kl) {
        report.note("bits per dim", "KL", bits(*have, *want), limits.bits);
    }
    if limits.codes {
        report.same("use of the codes", &have.usage, &want.usage);
    }
    let bound = |device: &Device| {
        importance_bound(device, model, &mut store(), &DATA, extent, (BATCH, None), 3).unwrap()
    };
    let error = bits(bound(device), bound(&Device::Cpu));
    report.note("bits per dim", "importance bound", error, limits.bits);
}

/// Single images, handed over and from the device.
fn check_scores(
    report: &mut Report,
    device: &Device,
    model: &Model,
    store: impl Fn() -> Store,
    limits: Limits,
) {
    let len = model.image_len();
    let mut images = vec![0; DATA.images * len];
    let read =
        |(i, out): (usize, &mut [u8])| rrvq::dataset::Dataset::read(&DATA, Split::Test, i, out);
    images.chunks_exact_mut(len).enumerate().for_each(read);
    let batches = [
        (0, BATCH, counter(9, 0).to_vec()),
        (7, BATCH - 5, counter(9, 1 << 33).to_vec()),
    ];
    let handed = |device: &Device| -> Vec<Scores> {
        let mut scorer = Scorer::new(device, model, BATCH).unwrap();
        let mut store = store();
        let score = |(first, count, noise): &(u32, usize, Vec<u32>)| {
            let images = &images[*first as usize * len..][..count * len];
            scorer.run(&mut store, images, noise).unwrap()
        };
        batches.iter().map(score).collect()
    };
    let (want, have) = (handed(&Device::Cpu), handed(device));
    let bank = bank::put(device, &DATA, Split::Test, DATA.images).unwrap();
    let mut scorer = Scorer::new(device, model, BATCH).unwrap();
    let there = scorer.replay(&mut store(), &bank, &batches).unwrap();
    for (i, want) in want.iter().enumerate() {
        let (have, there) = (&have[i], &there[i]);
        let likelihood = &want.log_likelihood;
        assert_eq!(likelihood.len(), batches[i].1);
        report.each(
            "images",
            "likelihood of image",
            &have.log_likelihood,
            likelihood,
            limits.image,
        );
        report.same(
            "likelihoods from the device",
            &there.log_likelihood,
            &have.log_likelihood,
        );
        report.same("KLs from the device", &there.kl, &have.kl);
        report.same("counts from the device", &there.tally, &have.tally);
        for (have, want) in have.kl.iter().zip(&want.kl) {
            report.each("images", "KL of image", have, want, limits.image);
        }
        for (layer, (have, want)) in have.tally.iter().zip(&want.tally).enumerate() {
            assert_eq!(have.iter().sum::<u64>(), want.iter().sum::<u64>());
            if limits.codes {
                report.same(&format!("counts of layer {}", layer + 1), have, want);
            }
        }
    }
}

/// Reconstructions and samples.
fn check_pictures(report: &mut Report, device: &Device, model: &Model, store: impl Fn() -> Store) {
    let mut images = vec![0; 5 * model.image_len()];
    let mut batches = Batches::new(&DATA, 2, 5, false);
    images.copy_from_slice(batches.at(0));
    let kept = |device: &Device| {
        let mut inference = Inference::pictures(device, model, 8).unwrap();
        inference
            .run(&mut store(), &images, counter(0, 0), 0.0)
            .unwrap()
    };
    let drawn = |device: &Device| {
        let mut sampler = Sampler::new(device, model, 6, PixelValues::Means).unwrap();
        sampler.run(&mut store(), counter(4, 5), 1.0).unwrap()
    };
    let (have, want) = (kept(device), kept(&Device::Cpu));
    assert_eq!(want.len(), images.len());
    report.scaled("pictures", "reconstructions", &have, &want, 1.0, PICTURES);
    report.scaled(
        "pictures",
        "samples",
        &drawn(device),
        &drawn(&Device::Cpu),
        1.0,
        PICTURES,
    );
    // What pixels are drawn from: weights, means, inverse scales, and what neighbours pull.
    let numbers = |device: &Device| {
        let mut sampler = Sampler::new(device, model, 6, PixelValues::Drawn).unwrap();
        sampler.run(&mut store(), counter(4, 5), 1.0).unwrap()
    };
    let want = numbers(&Device::Cpu);
    report.tensor(
        "pictures",
        "numbers of pixels",
        &numbers(device),
        &want,
        1e-4,
    );
}

#[test]
fn evaluation_here() {
    check(&Device::Cpu, F32);
}

#[test]
fn evaluation_in_f32_is_the_cpus() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.f32(), F32);
}

#[test]
fn evaluation_in_bf16_is_close_to_the_cpus() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.bf16(), BF16);
}
