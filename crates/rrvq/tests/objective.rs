//! The objective of lossy files: bits of the codes against squared error.

use rrvq::config::Config;
use rrvq::dataset::{Batches, Swatches};
use rrvq::evaluate::{EvalRecord, Extent, psnr};
use rrvq::model::hierarchy::nats_per_dim;
use rrvq::programs::{Model, Step, StepInput, StepOutcome};
use rrvq::{Device, Split, Trainer};

const BIT_WORTH: f64 = 40.0;

fn config(changes: &[&str]) -> Config {
    let mut config = Config::preset("tiny-swatches").unwrap();
    let worth = format!("train.bit_worth={BIT_WORTH}");
    let own = [
        "train.objective=rate-distortion",
        "model.free_bits=0",
        &worth,
    ];
    for change in own.iter().chain(changes) {
        config.set(change).unwrap();
    }
    config.validate().unwrap();
    config
}

/// A run in memory, and its last evaluation.
fn trained(config: &Config) -> EvalRecord {
    let data = Swatches::for_config(config);
    let mut trainer = Trainer::new(config, &data, Device::Cpu).unwrap();
    while trainer.step().unwrap().is_some() {}
    let model = trainer.finish().unwrap();
    let extent = Extent {
        split: Split::Test,
        images: 64,
    };
    model.evaluate(&data, extent).unwrap()
}

/// The first step of a run: what it tells, and the parameters before and after it.
fn first_step(config: &Config) -> (StepOutcome, [Vec<f32>; 2]) {
    let (device, data) = (Device::Cpu, Swatches::for_config(config));
    let model = Model::new(&config.model);
    let mut batches = Batches::new(&data, 3, config.train.batch, false);
    let mut store = model.initial(&device, 3, batches.at(0)).unwrap();
    let before = store.get("theta").to_vec();
    let mut step = Step::new(&device, &model, &config.train).unwrap();
    let input = StepInput {
        seed: 3,
        step: 0,
        lr: 1e-3,
        tau: 0.5,
        kl_weight: 1.0,
    };
    let made = step.run(&mut store, batches.at(0), &input).unwrap();
    (made, [before, store.get("theta").to_vec()])
}

#[test]
fn the_loss_is_bits_and_squared_error() {
    let config = config(&[]);
    let (made, [before, after]) = first_step(&config);
    let rate = made.kl.iter().sum::<f64>() / nats_per_dim(&config.model);
    let distortion = made.loss - rate;
    assert!(distortion > 0.0, "{distortion}");
    // The same batch, noise and weights, at another price: only the weight of the error changes.
    let mut other = config.clone();
    other.train.bit_worth = 2.0 * BIT_WORTH;
    let (dearer, _) = first_step(&other);
    assert!((dearer.loss - rate - distortion / 2.0).abs() < 1e-4 * distortion);
    assert_eq!(dearer.kl, made.kl);
    // The likelihood's scale moves all the same, by its own gradient.
    let layout = Model::new(&config.model).layout;
    let scale = layout.get("likelihood.log_scale").unwrap().offset;
    assert_ne!(after[scale], before[scale]);
}

#[test]
fn a_dearer_bit_gives_fewer_bits_and_a_worse_picture() {
    let steps = "train.steps=300";
    let cheap = trained(&config(&[steps, "train.bit_worth=2"]));
    let dear = trained(&config(&[steps, "train.bit_worth=20000"]));
    let rate = |record: &EvalRecord| record.kl.iter().sum::<f64>();
    assert!(rate(&dear) < 0.5 * rate(&cheap), "{dear:?} {cheap:?}");
    let quality = |record: &EvalRecord| psnr(record.squared_error.unwrap());
    assert!(quality(&dear) + 1.0 < quality(&cheap), "{dear:?} {cheap:?}");
}

#[test]
fn the_entropy_of_the_posterior_counts_as_bits_where_it_is_asked_for() {
    let loss = |changes: &[&str]| first_step(&config(changes)).0.loss;
    let (without, half, whole) = (
        loss(&[]),
        loss(&["train.entropy_share=0.5"]),
        loss(&["train.entropy_share=1"]),
    );
    let entropy = whole - without;
    assert!((half - without - entropy / 2.0).abs() < 1e-4 * whole);
    // At most log2 K of each position: 16 codes on 4×4 and 2×2 of 8×8×3 values.
    let most = 4.0 * (16.0 + 4.0) / 192.0;
    assert!(entropy > 0.1 * most && entropy <= most, "{entropy} {most}");
}

#[test]
fn evaluations_tell_what_training_lowers() {
    let config = config(&["train.steps=20"]);
    let record = trained(&config);
    let error = record.squared_error.unwrap();
    let rate = record.kl.iter().sum::<f64>();
    assert_eq!(record.objective(&config.train), rate + error / BIT_WORTH);
    let (bits, quality) = record.rate_and_quality(&config.model).unwrap();
    assert_eq!((bits, quality), (3.0 * rate, psnr(error)));
    // Without the objective there is no error, and bits per dim are lowered.
    let mut plain = config.clone();
    plain.set("train.objective=elbo").unwrap();
    let record = trained(&plain);
    assert_eq!(record.squared_error, None);
    assert_eq!(record.objective(&plain.train), record.bits_per_dim);
}
