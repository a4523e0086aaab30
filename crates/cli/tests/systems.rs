//! Every system of the paper that is built, at a tiny size, through train, resume, eval, sample, reconstruct and report.

mod common;
use common::{Scratch, png_size};

/// Name and the settings that make the tiny preset that system.
const SYSTEMS: [(&str, &[&str]); 19] = [
    (
        "rvq",
        &["model.sigma=one", "model.top=uniform", "model.maps=[4]"],
    ),
    ("embed, learnt", &[]),
    ("embed, as printed", &["model.sigma=printed"]),
    (
        "figure 1, from a quarter of the image's side",
        &[
            "model.maps=[2]",
            "model.top=uniform",
            "model.data_blocks=2",
            "model.grow_last=steps",
        ],
    ),
    ("embed, one", &["model.sigma=one"]),
    ("direct, learnt", &["model.prior=direct"]),
    ("direct, one", &["model.prior=direct", "model.sigma=one"]),
    (
        "vq",
        &[
            "model.latent=nearest",
            "model.maps=[4]",
            "model.top=uniform",
        ],
    ),
    (
        "vq, averages",
        &[
            "model.latent=nearest",
            "model.codebook=ema",
            "model.maps=[4]",
            "model.top=uniform",
        ],
    ),
    ("spatial", &["model.latent=gaussian"]),
    (
        "spatial, one layer",
        &[
            "model.latent=gaussian",
            "model.maps=[4]",
            "model.top=uniform",
        ],
    ),
    (
        "foust",
        &["model.latent=bernoulli", "model.maps=[4, 4, 2, 1]"],
    ),
    (
        "foust, one layer",
        &[
            "model.latent=bernoulli",
            "model.maps=[4]",
            "model.bit_noise=0.5",
        ],
    ),
    (
        "vimco",
        &[
            "train.estimator=vimco",
            "train.particles=3",
            "model.maps=[4]",
            "model.top=uniform",
        ],
    ),
    (
        "vimco, bits",
        &["train.estimator=vimco", "model.latent=bernoulli"],
    ),
    (
        "mlp",
        &["model.backbone=mlp", "model.maps=[2]", "model.top=uniform"],
    ),
    ("mlp, two layers", &["model.backbone=mlp"]),
    ("fsq", &["model.latent=fsq", "model.options.levels=[3, 4]"]),
    (
        "fsq, one layer",
        &["model.latent=fsq", "model.maps=[4]", "model.top=uniform"],
    ),
];

#[test]
fn every_system_goes_the_whole_way() {
    for (name, settings) in SYSTEMS {
        let scratch = Scratch::new();
        let mut train = vec![
            "train",
            "--preset",
            "tiny-swatches",
            "--out",
            "run",
            "--steps",
            "10",
        ];
        train.extend(settings.iter().flat_map(|set| ["--set", set]));
        scratch.run(&train).done();
        scratch
            .run(&["train", "--resume", "--out", "run", "--steps", "12"])
            .done();
        let found = scratch
            .run(&["eval", "run", "--json", "--samples", "3", "--images", "32"])
            .json();
        let bits = |key: &str| found[key].as_f64().unwrap();
        assert_eq!(found["step"], 12, "{name}");
        assert!(
            bits("bits_per_dim") > 0.0 && bits("bits_per_dim") < 20.0,
            "{name}: {found}"
        );
        assert!(bits("importance_bound").is_finite(), "{name}: {found}");
        for picture in ["sample", "reconstruct"] {
            scratch
                .run(&[
                    picture, "run", "--out", "grid.png", "--count", "4", "--force",
                ])
                .done();
            assert!(
                png_size(&scratch.read("grid.png")).0 > 16,
                "{name}: {picture}"
            );
        }
        scratch.run(&["report", "run", "--out", "page.html"]).done();
    }
}
