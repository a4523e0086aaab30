//! The data-dependent initialisation: after it, the first batch gives outputs of the promised mean and spread.

use rrvq::config::Config;
use rrvq::dataset::{Images, Swatches};
use rrvq::prior::PriorModel;
use rrvq::programs::{Inference, Model, StepOutcome};
use rrvq::run::{Existing, Run};
use rrvq::train::{Silent, Watch};
use rrvq::weights::load_weights;
use rrvq::{TrainOptions, Trainer};
use rrvq_tensor::Device;
use rrvq_tensor::rng::{counter, philox4x32_10};

#[test]
fn the_first_batch_gives_pictures_near_grey_with_the_promised_spread() {
    let mut config = Config::default();
    for setting in [
        "model.size=16",
        "model.maps=[8,4,2]",
        "model.channels=12",
        "model.embed=8",
        "model.codes=16",
    ] {
        config.set(setting).unwrap();
    }
    let model = Model::new(&config.model);
    let (seed, batch) = (5, 8);
    let byte = |i: usize| (philox4x32_10([i as u32 / 40, 0, 0, 0], [3, 0])[0] >> 24) as u8;
    let images: Vec<u8> = (0..batch * model.image_len()).map(byte).collect();
    let mut store = model.initial(&Device::Cpu, seed, &images).unwrap();
    // The same noise as the initialisation saw, through the drawing that training uses.
    let mut inference = Inference::pictures(&Device::Cpu, &model, batch).unwrap();
    let found = inference
        .run(&mut store, &images, counter(seed, 0), 1.0)
        .unwrap();
    // Before it, gains of 1 and biases of 0 give neither.
    let mut raw = rrvq_tensor::Store::with("theta", model.layout.initial(seed));
    let before = inference
        .run(&mut raw, &images, counter(seed, 0), 1.0)
        .unwrap();
    let (mean, spread) = moments(&found);
    // Grey is 127.5; a standard deviation of 0.1 is 25.6 levels.
    assert!((mean - 127.5).abs() < 0.1, "mean {mean}");
    assert!((spread - 25.6).abs() < 0.1, "spread {spread}");
    assert!((moments(&before).1 - 25.6).abs() > 1.0);
}

#[test]
fn batches_of_two_start_and_train_where_a_map_has_one_position() {
    let mut config = Config::default();
    for setting in [
        "model.size=8",
        "model.maps=[4,2,1]",
        "model.latent=gaussian",
        "model.channels=12",
        "model.embed=8",
        "model.blocks=3",
        "model.ladder_blocks=3",
        "train.batch=2",
        "train.steps=20",
    ] {
        config.set(setting).unwrap();
    }
    // Small differences of large levels, which two images hardly tell.
    let byte = |i: usize| 100 + (philox4x32_10([i as u32, 0, 0, 0], [3, 0])[0] >> 30) as u8;
    let image = |n: usize| (0..192).map(|i| byte(192 * n + i)).collect();
    let train: Vec<Vec<u8>> = (0..64).map(image).collect();
    let data = Images {
        name: "nearly alike".into(),
        shape: [8, 8, 3],
        train: train.concat(),
        test: train.concat(),
        flip: false,
    };
    for seed in 0..4 {
        config.train.seed = seed;
        let mut trainer = Trainer::new(&config, &data, Device::Cpu).unwrap();
        let finished = trainer.run(&mut Silent).unwrap();
        let bits = finished.last.unwrap().bits_per_dim;
        assert!(bits < 20.0, "seed {seed}: {bits}");
    }
}

fn moments(values: &[f32]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
    let variance = values
        .iter()
        .map(|&v| (v as f64 - mean).powi(2))
        .sum::<f64>()
        / n;
    (mean, variance.sqrt())
}

/// The losses of a training, step by step.
#[derive(Default)]
struct Losses(Vec<f64>);

impl Watch for Losses {
    fn stepped(&mut self, _step: usize, outcome: &StepOutcome) {
        self.0.push(outcome.loss);
    }
}

/// A preset with some settings changed.
fn changed(preset: &str, settings: &str) -> Config {
    let mut config = Config::preset(preset).unwrap();
    let all = settings.split_whitespace();
    all.for_each(|setting| config.set(setting).unwrap());
    config
}

#[test]
fn fully_connected_models_start_at_batches_of_few_images() {
    let mut config = changed(
        "mlp-swatches",
        "train.warmup=0 train.steps=5 train.eval_images=16 train.early_images=0",
    );
    let data = Swatches::for_config(&config);
    for (batch, seed) in [1, 2, 3]
        .into_iter()
        .flat_map(|b| (0..4).map(move |s| (b, s)))
    {
        (config.train.batch, config.train.seed) = (batch, seed);
        let mut losses = Losses::default();
        let mut trainer = Trainer::new(&config, &data, Device::Cpu).unwrap();
        trainer.run(&mut losses).unwrap();
        // Bytes that are all alike have 8 bits; gains of two values an image gave 107 at step 5 of batches of two.
        assert_eq!(losses.0.len(), 5);
        let sane = losses.0.iter().all(|loss| *loss < 11.0);
        assert!(sane, "batch {batch}, seed {seed}: {:?}", losses.0);
    }
}

#[test]
fn gains_of_a_prior_are_found_from_enough_codes() {
    let mut config = changed(
        "swatches-rvq",
        "model.latent=nearest model.size=4 model.maps=[2] model.channels=8 train.steps=100 train.eval_images=16 \
         train.early_images=0 prior.batch=1 prior.steps=1 prior.lr=1e-9 prior.channels=16 prior.layers=4 \
         prior.eval_images=16",
    );
    let data = Swatches::for_config(&config);
    let folder = tempfile::tempdir().unwrap();
    let options = || TrainOptions {
        out: Some(folder.path().join("run")),
        existing: Existing::Overwrite,
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::with(&config, &data, Device::Cpu, options()).unwrap();
    trainer.run(&mut Silent).unwrap();
    let layout = PriorModel::new(&config.model, &config.prior).layout;
    for seed in 0..8 {
        config.prior.seed = seed;
        let run = folder.path().join("run");
        let mut trainer = Trainer::prior(&run, &config, &data, Device::Cpu, options()).unwrap();
        trainer.run(&mut Silent).unwrap();
        let weights = load_weights(&Run::open(run).unwrap().prior(), &layout).unwrap();
        let theta = weights.store.get("theta");
        let gains = layout.entries().iter().filter(|e| e.name.ends_with(".g"));
        let largest = gains
            .flat_map(|e| &theta[e.offset..e.offset + e.len()])
            .fold(0.0, |most: f32, gain| most.max(*gain));
        // From the four codes of one image they are 16 to 93.
        assert!(largest < 12.0, "seed {seed}: {largest}");
    }
}
