//! The data-dependent initialisation: after it, the first batch gives outputs of the promised mean and spread.

use rrvq::Trainer;
use rrvq::config::Config;
use rrvq::dataset::Images;
use rrvq::programs::{Inference, Model};
use rrvq::train::Silent;
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
