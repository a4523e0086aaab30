//! Batches that are cut into shards: nearly the numbers of a whole batch, and the same ones by any group.

use rrvq::dataset::Swatches;
use rrvq::{Config, Device, Event, Trainer};

fn trained(preset: &str, changes: &[&str]) -> (Vec<f64>, Vec<f32>) {
    let mut config = Config::preset(preset).unwrap();
    for change in ["train.steps=12", "train.batch=16", "train.eval_every=6"]
        .iter()
        .chain(changes)
    {
        config.set(change).unwrap();
    }
    let data = Swatches::for_config(&config);
    let mut trainer = Trainer::new(&config, &data, Device::Cpu).unwrap();
    let mut told = Vec::new();
    while let Some(event) = trainer.step().unwrap() {
        match event {
            Event::Step { outcome, .. } => told.push(outcome.loss),
            Event::Evaluated(record) => told.push(record.bits_per_dim),
            Event::Saved(_) => {}
        }
    }
    (told, trainer.finish().unwrap().theta().to_vec())
}

/// Everything that crosses shards, on: free bits, splits, revived codes, data-dependent starts, Gaussians.
#[test]
fn shards_train_the_model_of_whole_batches() {
    let cases: [(&str, &[&str]); 8] = [
        (
            "tiny-swatches",
            &["model.free_bits=0.05", "train.split_every=4"],
        ),
        (
            "tiny-swatches",
            &[
                "model.latent=nearest",
                "model.codebook=ema",
                "model.codebook_revive=0.2",
            ],
        ),
        (
            "tiny-swatches",
            &["model.latent=gaussian", "train.skip_norm=1e9"],
        ),
        (
            "tiny-swatches",
            &["model.latent=bernoulli", "train.batch=2"],
        ),
        (
            "tiny-swatches",
            &["train.objective=rate-distortion", "train.bit_worth=30"],
        ),
        (
            "tiny-swatches",
            &["model.likelihood=mixture-causal", "train.decoder_share=0.3"],
        ),
        ("tiny-swatches", &["train.optimiser=muon"]),
        (
            "tiny-swatches",
            &["train.norm_penalty=2", "train.norm_limit=0.5"],
        ),
    ];
    for (preset, changes) in cases {
        let (whole, theta) = trained(preset, changes);
        for shards in [2, 4] {
            if changes.contains(&"train.batch=2") && shards == 4 {
                continue;
            }
            let of_shards = format!("train.shards={shards}");
            let (told, other) = trained(preset, &[changes, &[&of_shards]].concat());
            assert_eq!(told.len(), whole.len());
            for (a, b) in told.iter().zip(&whole) {
                assert!(
                    (a - b).abs() < 2e-4 * b.abs(),
                    "{changes:?}, {shards}: {told:?} and {whole:?}"
                );
            }
            assert_ne!(theta, other, "the order of sums differs");
        }
    }
}
