//! What settings of training do to a step: which ones are made, and how far they go.

use rrvq::config::{Config, TrainConfig};
use rrvq::dataset::Batches;
use rrvq::dataset::Swatches;
use rrvq::programs::{Model, Step, StepInput, StepOutcome};
use rrvq_tensor::{Device, Store};

fn config(changes: &[&str]) -> Config {
    let mut config = Config::preset("tiny-swatches").unwrap();
    changes.iter().for_each(|c| config.set(c).unwrap());
    config.validate().unwrap();
    config
}

fn input(step: u64) -> StepInput {
    StepInput {
        seed: 3,
        step,
        lr: 2e-3,
        tau: 0.5,
        kl_weight: 1.0,
    }
}

/// Everything that a step may change, as bits: what is not a number is equal to itself.
fn states(store: &Store, model: &Model) -> Vec<Vec<u32>> {
    let memories = model.memories.iter().map(|m| m.name.as_str());
    let names = ["theta", "m", "v", "ema"].into_iter().chain(memories);
    let bits = |name| store.get(name).iter().map(|v| v.to_bits()).collect();
    names.map(bits).collect()
}

/// The model after `steps` steps from its first weights, changed by `change`, and what the last one told.
fn stepped(
    config: &Config,
    steps: u64,
    change: impl Fn(&Model, &mut Store),
) -> (Model, Store, StepOutcome) {
    let (data, device) = (Swatches::for_config(config), Device::Cpu);
    let model = Model::new(&config.model);
    let mut batches = Batches::new(&data, 3, config.train.batch, true);
    let mut store = model.initial(&device, 3, batches.at(0)).unwrap();
    change(&model, &mut store);
    let mut step = Step::new(&device, &model, &config.train).unwrap();
    let made = (0..steps).map(|i| step.run(&mut store, batches.at(i), &input(i)).unwrap());
    let last = made.last().unwrap();
    (model, store, last)
}

const AVERAGED: [&str; 4] = [
    "model.latent=nearest",
    "model.codebook=ema",
    "model.maps=[4]",
    "model.top=uniform",
];

#[test]
fn a_step_below_the_limit_is_the_same_step() {
    for more in [&[][..], &AVERAGED] {
        let free = config(more);
        let limited = config(&[more, &["train.skip_norm=1e9"]].concat());
        let (model, without, told) = stepped(&free, 3, |_, _| {});
        let (_, with, same) = stepped(&limited, 3, |_, _| {});
        assert!(told.grad_norm > 1e-3 && !told.skipped);
        assert_eq!(told, same);
        assert!(states(&without, &model) == states(&with, &model));
    }
}

#[test]
fn a_step_above_the_limit_changes_nothing() {
    for more in [&[][..], &AVERAGED] {
        let (_, _, told) = stepped(&config(more), 1, |_, _| {});
        // At the limit itself a step is skipped; a little above, it is made.
        let norm = told.grad_norm as f32;
        for (limit, skipped) in [(norm * 0.5, true), (norm, true), (norm * 1.001, false)] {
            let limited = TrainConfig {
                skip_norm: limit as f64,
                ..config(more).train
            };
            let limited = Config {
                train: limited,
                ..config(more)
            };
            let data = Swatches::for_config(&limited);
            let mut batches = Batches::new(&data, 3, limited.train.batch, true);
            let model = Model::new(&limited.model);
            let mut store = model.initial(&Device::Cpu, 3, batches.at(0)).unwrap();
            let before = states(&store, &model);
            assert_eq!(before.len(), 4 + model.memories.len());
            let mut step = Step::new(&Device::Cpu, &model, &limited.train).unwrap();
            let made = step.run(&mut store, batches.at(0), &input(0)).unwrap();
            assert_eq!(made.skipped, skipped, "{limit} of {norm}");
            let after = states(&store, &model);
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(before == after, skipped);
            }
        }
    }
}

#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    let poison = |model: &Model, store: &mut Store| {
        let entry = model.layout.get("enc.1.b").unwrap();
        store.set_part("theta", entry.offset, &[f32::NAN]).unwrap();
    };
    let (model, store, told) = stepped(&config(&["train.skip_norm=100"]), 1, poison);
    assert!(told.skipped && !told.grad_norm.is_finite());
    for moment in ["m", "v"] {
        assert!(store.get(moment).iter().all(|v| *v == 0.0), "{moment}");
    }
    let theta = store.get("theta").iter().filter(|v| !v.is_finite());
    assert_eq!(theta.count(), 1, "the one that was put there");
    // Without the limit it spreads to everything.
    let (_, store, told) = stepped(&config(&[]), 1, poison);
    assert!(!told.skipped);
    let spread = store.get("theta").iter().filter(|v| v.is_nan()).count();
    assert!(spread > model.layout.count() / 2, "{spread}");
}

#[test]
fn the_scale_of_blocks_is_what_it_says() {
    // Two layers of two blocks each: 1/√4.
    let after = |scale: &str| {
        let config = config(&["model.blocks=2", &format!("model.block_scale={scale}")]);
        let (model, store, _) = stepped(&config, 2, |_, _| {});
        states(&store, &model)
    };
    assert!(after("depth") == after("0.5"));
    assert!(after("depth") != after("0.1"));
}

/// How far each parameter whose name ends in `end` moved in the first step, and how far all others did.
fn moved(changes: &[&str], end: &str) -> [Vec<f32>; 2] {
    let config = config(changes);
    let data = Swatches::for_config(&config);
    let model = Model::new(&config.model);
    let mut batches = Batches::new(&data, 3, config.train.batch, true);
    let mut store = model.initial(&Device::Cpu, 3, batches.at(0)).unwrap();
    let before = store.get("theta").to_vec();
    let mut step = Step::new(&Device::Cpu, &model, &config.train).unwrap();
    step.run(&mut store, batches.at(0), &input(0)).unwrap();
    let mut found = [Vec::new(), Vec::new()];
    for entry in model.layout.entries() {
        let place = entry.offset..entry.offset + entry.len();
        let pairs = store.get("theta")[place.clone()].iter().zip(&before[place]);
        let mine = usize::from(!entry.name.ends_with(end));
        found[mine].extend(pairs.map(|(after, before)| after - before));
    }
    found
}

#[test]
fn kernels_codes_and_variances_have_learning_rates_of_their_own() {
    for (key, end) in [
        ("kernel_lr", ".v"),
        ("code_lr", ".codes.mean"),
        ("logvar_lr", ".codes.logvar"),
    ] {
        let [plain, others] = moved(&[], end);
        assert!(plain.iter().any(|v| v.abs() > 1e-4), "{key}");
        for factor in [0.0, 0.25] {
            let [scaled, unchanged] = moved(&[&format!("train.{key}={factor}")], end);
            assert!(unchanged == others, "{key}: only these move differently");
            for (scaled, plain) in scaled.iter().zip(&plain) {
                assert!((scaled - plain * factor).abs() < 1e-6, "{scaled} {plain}");
            }
        }
    }
}

#[test]
fn muon_moves_kernels_in_all_directions_and_nothing_else_differently() {
    let [by_value, others] = moved(&[], ".v");
    let [turned, same] = moved(&["train.optimiser=muon"], ".v");
    assert!(same == others, "gains, biases and codes follow AdaMax");
    let size = |steps: &[f32]| {
        let squares: f32 = steps.iter().map(|v| v * v).sum();
        (squares / steps.len() as f32).sqrt() / input(0).lr as f32
    };
    // AdaMax makes a first step of the rate in every value that has a gradient; Muon of about a fifth of it.
    assert!(
        (0.8..1.01).contains(&size(&by_value)),
        "{}",
        size(&by_value)
    );
    assert!((0.1..0.25).contains(&size(&turned)), "{}", size(&turned));
    let [half, _] = moved(&["train.optimiser=muon", "train.kernel_lr=0.5"], ".v");
    for (half, whole) in half.iter().zip(&turned) {
        assert!((half - whole * 0.5).abs() < 1e-6, "{half} {whole}");
    }
}

#[test]
fn a_resumed_run_keeps_its_rates() {
    // What a checkpoint has is the four states: the factors are found again.
    let config = config(&["train.code_lr=0.5"]);
    let (model, store, _) = stepped(&config, 2, |_, _| {});
    let data = Swatches::for_config(&config);
    let mut batches = Batches::new(&data, 3, config.train.batch, true);
    let mut run_on = |store: &mut Store| {
        let mut step = Step::new(&Device::Cpu, &model, &config.train).unwrap();
        step.run(store, batches.at(2), &input(2)).unwrap();
        states(store, &model)
    };
    let mut loaded = Store::default();
    for name in ["theta", "m", "v", "ema"] {
        loaded.insert(name, store.get(name).to_vec());
    }
    let mut store = store;
    assert!(run_on(&mut loaded) == run_on(&mut store));
}
