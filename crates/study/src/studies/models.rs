//! Models that several studies share, so that each is trained once.

use crate::framework::{Context, Wanted};
use rrvq::config::Estimator;
use rrvq::{Error, Result};

/// Steps of a small model at the quick scale.
const QUICK_STEPS: usize = 600;
/// Steps of a model of few layers at the full scale, and of 32.
const FULL_STEPS: usize = 10_000;
const FULL_STEPS_OF_32: usize = 24_000;
/// Of a model of Figure 1, whose batches are twice as large at the quick scale and which has 32 channels at both.
const QUICK_STEPS_OF_FIGURE_1: usize = 400;
const FULL_STEPS_OF_FIGURE_1: usize = 16_000;
/// What systems have in common at the full scale, but for those of 32 layers, so that they differ in themselves alone: the paper's batch and optimiser, and
/// gradients that all count the same. Rates and estimators of systems of codes are as good for one as for the other.
const FULL_SETTINGS: [&str; 7] = [
    "train.batch=64",
    "train.optimiser=adamax",
    "train.lr=6e-3",
    "train.kernel_lr=1",
    "train.clip=5",
    "train.warmup=500",
    "train.schedule=cosine",
];
const FULL_ESTIMATOR: [&str; 2] = [
    "model.sample=reinmax",
    "model.temperature={start=2,end=1.1}",
];
/// What 32 layers of codes and of Gaussians have in common at the full scale instead: by AdaMax codes were 0.40 behind after 6,000 steps
/// (docs/experiments/muon.md). With gradients of Gaussians, whose norms are up to 560, all cut to 5, bits on SVHN were 1.8 above those of codes.
const FULL_SETTINGS_OF_32: [&str; 7] = [
    "train.optimiser=muon",
    "train.lr=9.6e-2",
    "train.kernel_lr=0.5",
    "train.beta2=0.999",
    "train.clip=200",
    "train.skip_norm=3000",
    "train.schedule=linear",
];
/// Long runs of 32 layers lose codes at temperatures near 1 (docs/experiments/temperature.md).
const FULL_TEMPERATURE_OF_32: &str = "model.temperature={start=2,end=1.25}";

/// A model with its steps at both scales, and what is common at the full one.
pub fn with_steps(
    context: &Context<'_>,
    wanted: Wanted,
    quick_steps: usize,
    full_steps: usize,
) -> Result<Wanted> {
    let name = wanted.name.clone();
    let settings: &[&str] = context.by_scale(&[], &[], &FULL_SETTINGS);
    let wanted = wanted.with(&name, settings)?;
    Ok(wanted.budget(quick_steps, full_steps))
}

/// A small preset on any data set, or the preset of the data set for a GPU, with its steps there.
fn of(
    context: &Context<'_>,
    data: &str,
    small: &str,
    large: [(&str, &str, usize); 3],
) -> Result<Wanted> {
    let Some((_, large, steps)) = large.iter().find(|(name, ..)| *name == data) else {
        let message = format!("there is no model for the data set {data}; please report this");
        return Err(Error::new(message));
    };
    let wanted = Wanted::preset(context.preset(small, large))?.on(data);
    let mut wanted = with_steps(context, wanted, QUICK_STEPS, *steps)?;
    if context.by_scale(true, true, false) && data == "celeba" {
        // Half as large as the paper's, and as the small models are made for.
        wanted.config.model.size = 32;
    }
    Ok(wanted)
}

/// Five layers of codes (RRVQ-VAE).
pub fn five_layers(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "l5-cifar10", FULL_STEPS),
        ("svhn", "l5-svhn", FULL_STEPS),
        ("celeba", "l5-celeba", FULL_STEPS),
    ];
    of(context, data, "small-l5-cifar10", large)
}

/// The paper's deepest model; five layers at smaller scales.
pub fn deepest(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "l32-cifar10", FULL_STEPS_OF_32),
        ("svhn", "l32-svhn", FULL_STEPS_OF_32 / 2),
        ("celeba", "l32-celeba", FULL_STEPS_OF_32 / 2),
    ];
    let wanted = of_32(context, of(context, data, "small-l5-cifar10", large)?)?;
    let name = wanted.name.clone();
    let own = [FULL_ESTIMATOR[0], FULL_TEMPERATURE_OF_32];
    wanted.with(&name, context.by_scale(&[], &[], &own))
}

/// With what models of 32 layers have in common at the full scale.
fn of_32(context: &Context<'_>, wanted: Wanted) -> Result<Wanted> {
    let name = wanted.name.clone();
    wanted.with(&name, context.by_scale(&[], &[], &FULL_SETTINGS_OF_32))
}

/// One layer of codes with variances of 1 and a uniform prior (rVQ-VAE).
pub fn one_layer(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "rvq-cifar10", FULL_STEPS),
        ("svhn", "rvq-svhn", FULL_STEPS),
        ("celeba", "rvq-celeba", FULL_STEPS),
    ];
    let wanted = of(context, data, "small-rvq-cifar10", large)?;
    let name = wanted.name.clone();
    wanted.with(&name, context.by_scale(&[], &[], &FULL_ESTIMATOR))
}

/// The continuous twin of [`deepest`] (Spatial-VAE).
pub fn continuous(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "spatial32-cifar10", FULL_STEPS_OF_32),
        ("svhn", "spatial32-svhn", FULL_STEPS_OF_32 / 2),
        ("celeba", "spatial32-celeba", FULL_STEPS_OF_32 / 2),
    ];
    of_32(context, of(context, data, "small-spatial-cifar10", large)?)
}

/// Figure 1's one-layer models as the paper describes them: "rvq" or "spatial".
pub fn of_figure_1(kind: &str, data: &str) -> Result<Wanted> {
    let wanted = Wanted::preset(&format!("paper-fig1-{kind}-{data}"))?;
    Ok(wanted.budget(QUICK_STEPS_OF_FIGURE_1, FULL_STEPS_OF_FIGURE_1))
}

/// A system that the paper has on CIFAR-10 alone.
pub fn on_cifar10(context: &Context<'_>, small: &str, large: &str) -> Result<Wanted> {
    let wanted = Wanted::preset(context.preset(small, large))?;
    // Several samples of an image make a step as much dearer.
    let dearer = match wanted.config.train.estimator {
        Estimator::Vimco => 3,
        Estimator::Pathwise => 1,
    };
    with_steps(context, wanted, QUICK_STEPS, FULL_STEPS / dearer)
}

/// An ablation of five layers, as its preset is, which keeps codes alive by its estimator; or with straight-through samples, of which
/// most codes die.
pub fn ablation(context: &Context<'_>, data: &str, name: &str, alive: bool) -> Result<Wanted> {
    let stem = format!("ablate-{name}");
    let wanted = match name {
        // That is the model itself, under its own name.
        "embed-learnt" => five_layers(context, data)?,
        _ => {
            let (small, large) = (format!("small-{stem}-cifar10"), format!("{stem}-{data}"));
            let wanted = Wanted::preset(context.preset(&small, &large))?.on(data);
            with_steps(context, wanted, QUICK_STEPS, FULL_STEPS)?
        }
    };
    let mut wanted = match alive {
        true => wanted,
        false => {
            let name = format!("{}-straight", wanted.name);
            wanted.with(
                &name,
                &[
                    "model.sample=straight-through",
                    "model.temperature={start=0.5,end=0.5}",
                ],
            )?
        }
    };
    wanted.may_diverge = true;
    Ok(wanted)
}
