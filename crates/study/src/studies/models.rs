//! Models that several studies share, so that each is trained once.

use crate::framework::{Context, Wanted};
use rrvq::{Error, Result};

/// Steps of a small model at the quick scale.
const QUICK_STEPS: usize = 600;
/// Minutes of a model at the full scale.
const FULL_MINUTES: f64 = 4.0;
/// Of a model of Figure 1, whose batches are twice as large.
const QUICK_STEPS_OF_FIGURE_1: usize = 400;

/// A small preset on any data set, or the preset of the data set for a GPU.
fn of(context: &Context<'_>, data: &str, small: &str, large: [(&str, &str); 3]) -> Result<Wanted> {
    let Some((_, large)) = large.iter().find(|(name, _)| *name == data) else {
        let message = format!("there is no model for the data set {data}; please report this");
        return Err(Error::new(message));
    };
    let wanted = Wanted::preset(context.preset(small, large))?.on(data);
    let mut wanted = wanted.budget(QUICK_STEPS, FULL_MINUTES);
    if context.by_scale(true, true, false) && data == "celeba" {
        // Half as large as the paper's, and as the small models are made for.
        wanted.config.model.size = 32;
    }
    Ok(wanted)
}

/// Five layers of codes (RRVQ-VAE).
pub fn five_layers(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "l5-cifar10"),
        ("svhn", "l5-svhn"),
        ("celeba", "l5-celeba"),
    ];
    of(context, data, "small-l5-cifar10", large)
}

/// The paper's deepest model; five layers at smaller scales.
pub fn deepest(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "l32-cifar10"),
        ("svhn", "l32-svhn"),
        ("celeba", "l32-celeba"),
    ];
    of(context, data, "small-l5-cifar10", large)
}

/// One layer of codes with variances of 1 and a uniform prior (rVQ-VAE).
pub fn one_layer(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "rvq-cifar10"),
        ("svhn", "rvq-svhn"),
        ("celeba", "rvq-celeba"),
    ];
    of(context, data, "small-rvq-cifar10", large)
}

/// The continuous twin of [`deepest`] (Spatial-VAE).
pub fn continuous(context: &Context<'_>, data: &str) -> Result<Wanted> {
    let large = [
        ("cifar10", "spatial32-cifar10"),
        ("svhn", "spatial32-svhn"),
        ("celeba", "spatial32-celeba"),
    ];
    of(context, data, "small-spatial-cifar10", large)
}

/// Figure 1's one-layer models as the paper describes them: "rvq" or "spatial".
pub fn of_figure_1(kind: &str, data: &str) -> Result<Wanted> {
    let wanted = Wanted::preset(&format!("paper-fig1-{kind}-{data}"))?;
    Ok(wanted.budget(QUICK_STEPS_OF_FIGURE_1, 2.0))
}

/// A system that the paper has on CIFAR-10 alone.
pub fn on_cifar10(context: &Context<'_>, small: &str, large: &str) -> Result<Wanted> {
    let wanted = Wanted::preset(context.preset(small, large))?;
    Ok(wanted.budget(QUICK_STEPS, FULL_MINUTES))
}

/// An ablation of five layers; where codes are kept alive, by splitting those in use.
pub fn ablation(context: &Context<'_>, data: &str, name: &str, alive: bool) -> Result<Wanted> {
    let stem = format!("ablate-{name}");
    let wanted = match name {
        // That is the model itself, under its own name.
        "embed-learnt" => five_layers(context, data)?,
        _ => {
            let (small, large) = (format!("small-{stem}-cifar10"), format!("{stem}-{data}"));
            let wanted = Wanted::preset(context.preset(&small, &large))?.on(data);
            wanted.budget(QUICK_STEPS, FULL_MINUTES)
        }
    };
    // The presets for a GPU keep codes alive, the small ones do not.
    match (context.by_scale(false, false, true), alive) {
        (true, false) => {
            let name = format!("{}-unsplit", wanted.name);
            wanted.with(&name, &["train.split_every=0"])
        }
        (false, true) => {
            let name = format!("{}-split", wanted.name);
            let every = format!("train.split_every={}", QUICK_STEPS / 16);
            wanted.with(&name, &[&every])
        }
        _ => Ok(wanted),
    }
}
