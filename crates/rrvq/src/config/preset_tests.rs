//! What the presets promise: those of the paper have its numbers, the others say in their first lines what differs.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn presets_load_are_valid_and_described() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/presets")).unwrap();
    assert_eq!(presets().len(), files.count(), "every file is in a group");
    for (name, about) in presets() {
        Config::preset(name).unwrap().validate().unwrap();
        assert!(about.len() > 20 && about.len() < 100, "{name}: {about}");
    }
}

#[test]
fn presets_of_the_paper_have_nothing_of_ours() {
    let of_paper = presets()
        .into_iter()
        .filter(|(name, _)| name.starts_with("paper-"));
    let mut count = 0;
    for (name, _) in of_paper {
        let Config {
            model, data, train, ..
        } = Config::preset(name).unwrap();
        let rates = (train.batch, train.lr, train.lr_floor, train.plateau_factor);
        assert_eq!(rates, (64, 2e-3, 5e-5, 0.8), "{name}");
        assert_eq!(train.optimiser, Optimiser::AdaMax, "{name}");
        let patience = if data.name == "celeba" { 5 } else { 20 };
        assert_eq!(train.plateau_patience, patience, "{name}");
        assert!(
            train.schedule == Schedule::Plateau || data.name == "swatches",
            "{name}"
        );
        let added = (
            train.split_every,
            train.warmup,
            train.clip,
            train.ema,
            data.flip,
        );
        assert_eq!(added, (0, 0, 0.0, 0.0, false), "{name}");
        let of_loss = (train.norm_penalty, train.skip_norm, train.kl_warmup);
        assert_eq!(of_loss, (0.0, 0.0, 0), "{name}");
        let loss = (train.objective, train.estimator);
        assert_eq!(loss, (Objective::Elbo, Estimator::Pathwise), "{name}");
        assert_eq!(model.likelihood, "logistic", "{name}");
        // The paper's top layer has a learnt tensor, but for one layer, and for five, whose top is one latent.
        let top = match model.layers() == 32 && name != "paper-l32-uniform-cifar10" {
            true => Top::Learnt,
            false => Top::Uniform,
        };
        assert_eq!(model.top, top, "{name}");
        let starts = (model.code_start, model.sample, model.free_bits);
        assert_eq!(starts, (CodeStart::Normal, Sample::Relaxed, 0.02), "{name}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// Settings by the words that first lines have for them; docs/models.md has the same list.
const WORDS: [(&str, &[&str]); 10] = [
    ("width", &["model.channels"]),
    (
        "depth",
        &["model.blocks", "model.data_blocks", "model.ladder_blocks"],
    ),
    ("top", &["model.top"]),
    ("batch", &["train.batch"]),
    ("flips", &["data.flip"]),
    ("starts", &["model.code_start", "model.code_scale"]),
    (
        "estimator",
        &[
            "model.sample",
            "model.temperature.start",
            "model.temperature.end",
            "train.estimator",
            "train.particles",
        ],
    ),
    ("optimiser", &["train.optimiser", "train.kernel_lr"]),
    (
        "schedule",
        &[
            "train.steps",
            "train.lr",
            "train.beta2",
            "train.warmup",
            "train.schedule",
            "train.lr_floor",
            "train.plateau_patience",
        ],
    ),
    ("penalty", &["train.norm_penalty"]),
];

/// All of ours limit gradients and average weights, and what is logged changes no result.
const NOT_NAMED: [&str; 8] = [
    "train.clip",
    "train.skip_norm",
    "train.ema",
    "train.log_every",
    "train.eval_every",
    "train.eval_images",
    "train.sample_every",
    "train.save_every",
];

/// Presets to be compared with one of the paper that has another name, and the settings that make them what they are.
const OTHER_NAMES: [(&str, &str, &[&str]); 6] = [
    ("ablate-embed-learnt-cifar10", "paper-l5-cifar10", &[]),
    ("ablate-embed-learnt-svhn", "paper-l5-svhn", &[]),
    ("vimco-cifar10", "paper-rvq-cifar10", &[]),
    (
        "vq-cifar10",
        "paper-rvq-cifar10",
        &["model.latent", "model.sigma"],
    ),
    (
        "vq-ema-cifar10",
        "paper-rvq-cifar10",
        &["model.latent", "model.sigma", "model.codebook"],
    ),
    ("spatial1-cifar10", "paper-fig1-spatial-cifar10", &[]),
];

/// The words for what differs between two presets of the same system; panics where there is no word.
fn differences(ours: &str, paper: &str, apart: &[&str]) -> BTreeSet<&'static str> {
    let [own, theirs] = [ours, paper].map(|name| Config::preset(name).unwrap());
    let values = |config: &Config| -> BTreeMap<String, String> {
        let keys = config.keys().into_iter();
        keys.map(|key| (key.path, key.default)).collect()
    };
    // A larger batch takes fewer steps for as many epochs.
    let seen = |config: &Config| (config.train.steps * config.train.batch) as f64;
    let as_long = (seen(&own) / seen(&theirs) - 1.0).abs() < 0.01;
    let has_no_effect = |path: &str| match path {
        "data.flip" => own.data.name == "svhn",
        "train.steps" => as_long,
        "model.codes" => own.model.latent == "gaussian",
        "model.code_start" => own.model.latent != "code",
        "model.code_scale" => own.model.latent == "gaussian",
        "model.sample" | "model.temperature.start" | "model.temperature.end" => {
            own.model.latent != "code"
        }
        path => NOT_NAMED.contains(&path) || apart.contains(&path),
    };
    let (own_values, their_values) = (values(&own), values(&theirs));
    let differing = own_values
        .iter()
        .filter(|(path, value)| their_values[*path] != **value && !has_no_effect(path));
    let word = |(path, _): (&String, &String)| {
        let of = WORDS
            .iter()
            .find(|(_, paths)| paths.contains(&path.as_str()));
        of.unwrap_or_else(|| panic!("{ours} and {paper} differ in {path}, which has no word"))
            .0
    };
    differing.map(word).collect()
}

#[test]
fn first_lines_say_what_differs_from_the_paper() {
    let described: BTreeMap<&str, &str> = presets().into_iter().collect();
    let of_paper = described
        .keys()
        .filter_map(|paper| Some((paper.strip_prefix("paper-")?, *paper)));
    let same_names = of_paper
        .filter(|(name, _)| described.contains_key(name))
        .map(|(name, paper)| (name, paper, [].as_slice()));
    let mut count = 0;
    for (name, paper, apart) in same_names.chain(OTHER_NAMES) {
        let about = described[name];
        let said: BTreeSet<&str> = match about.rsplit_once("; ") {
            Some((_, last)) if last.ends_with("ours") => last
                .trim_end_matches(" are ours")
                .trim_end_matches(" is ours")
                .split([',', ' '])
                .filter(|word| !word.is_empty() && *word != "and")
                .collect(),
            _ => BTreeSet::new(),
        };
        assert_eq!(said, differences(name, paper, apart), "{name}: {about}");
        count += 1;
    }
    assert!(count > 20, "{count}");
    // Systems that the paper quotes or shows without settings.
    for name in ["foust1-cifar10", "foust4-cifar10", "mlp-swatches"] {
        assert!(described[name].ends_with("all are ours"), "{name}");
    }
}
