//! The sampling claim: one top-down pass against position by position. Speed does not depend on what weights are, so that
//! nothing is trained.

use crate::framework::{Context, Scale, Section, Study, Verdict};
use crate::report::{Chart, Series};
use rrvq::config::Config;
use rrvq::prior::PriorModel;
use rrvq::prior::programs::PriorSampler;
use rrvq::programs::{Decoder, Model, Sampler};
use rrvq::{Device, PixelValues, Result};
use rrvq_tensor::Store;
use rrvq_tensor::rng::counter;
use std::time::Instant;

/// Sampling, timed.
pub struct Speed;

/// Images drawn together.
const BATCH: usize = 16;

/// Latents of an image: the passes an autoregressive model over them needs.
fn latents(config: &Config) -> usize {
    config.model.sides().iter().map(|side| side * side).sum()
}

/// Seconds of one call after a first one, the least of several: other work on the machine only adds.
fn timed(repeats: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let mut best = f64::MAX;
    for _ in 0..repeats {
        let begin = Instant::now();
        call()?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Seconds of one top-down pass that draws a batch.
fn top_down(device: &Device, config: &Config, repeats: usize) -> Result<f64> {
    let model = Model::new(&config.model);
    let mut store = Store::with("theta", model.layout.initial(0));
    let mut sampler = Sampler::new(device, &model, BATCH, PixelValues::Means)?;
    timed(repeats, || {
        sampler.run(&mut store, counter(0, 0), 1.0).map(|_| ())
    })
}

/// Seconds that a PixelCNN takes to draw the codes of a batch, and their decoder to show them.
fn by_position(device: &Device, config: &Config, repeats: usize) -> Result<f64> {
    let model = Model::new(&config.model);
    let prior = PriorModel::new(&config.model, &config.prior);
    let mut store = Store::with("theta", prior.layout.initial(0));
    let mut theta = Store::with("theta", model.layout.initial(0));
    let mut sampler = PriorSampler::new(device, &prior, BATCH)?;
    let mut decoder = Decoder::new(device, &model, BATCH, 1, PixelValues::Means)?;
    timed(repeats, || {
        let codes = sampler.run(&mut store, 0, 0, 1.0, &mut |_| {})?;
        decoder.run(&mut theta, &[&codes], [0; 4], 1.0).map(|_| ())
    })
}

impl Study for Speed {
    fn name(&self) -> &'static str {
        "speed"
    }

    fn about(&self) -> &'static str {
        "sampling in one top-down pass against position by position, timed"
    }

    fn paper(&self) -> &'static str {
        "\"We are able to generate samples using a single forward pass\"; with autoregressive priors the 32-layer models would need ≈ 2,000 passes for 32 × 32 images and ≈ 10,000 for 64 × 64. No times."
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick => 0.1,
            Scale::Full => 1.0,
        }
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let repeats = context.by_scale(1, 3, 10);
        let deep = Config::preset("paper-l32-cifar10")?;
        let (of_32, of_64) = (
            latents(&deep),
            latents(&Config::preset("paper-l32-celeba")?),
        );
        let mut hierarchy = deep;
        // As wide as the small models at smaller scales.
        let changes = context.by_scale(
            &["model.channels=8", "model.embed=8", "model.codes=16"][..],
            &["model.channels=32", "model.embed=16", "model.codes=64"],
            &[],
        );
        changes
            .iter()
            .try_for_each(|change| hierarchy.set(change))?;
        let mut vq = Config::preset(context.preset("small-vq-cifar10", "vq-cifar10"))?;
        let changes = context.by_scale(&["model.channels=8", "prior.channels=8"][..], &[], &[]);
        changes.iter().try_for_each(|change| vq.set(change))?;
        let device = context.device().clone();
        let pass = top_down(&device, &hierarchy, repeats)?;
        let pixelcnn = by_position(&device, &vq, repeats)?;
        let row = |name: &str, passes: usize, seconds: f64, how: &str| {
            vec![
                name.to_string(),
                passes.to_string(),
                format!("{:.2}", 1000.0 * seconds / BATCH as f64),
                how.to_string(),
            ]
        };
        section.paragraph(&format!("Batches of {BATCH} images of 32 × 32, on {}. The least of {repeats} times after a first one. A pass of the hierarchy is its whole down pass; the last row is that time, once for each of its latents.", device.name()));
        section.table(
            "numbers",
            &["model", "passes", "milliseconds an image", ""],
            &[
                row("RRVQ, 32 layers, top down", 1, pass, "measured"),
                row(
                    "VQ-VAE with a PixelCNN over 16 × 16 codes",
                    latents(&vq),
                    pixelcnn,
                    "measured",
                ),
                row(
                    "an autoregressive model over the same 32 layers",
                    of_32,
                    pass * of_32 as f64,
                    "passes × the time of one",
                ),
            ],
        )?;
        let point = |name: &str, passes: usize, seconds: f64| {
            let milliseconds = 1000.0 * seconds / BATCH as f64;
            Series::new(name, vec![(passes as f64, milliseconds)])
        };
        section.chart(
            "speed",
            &Chart {
                title: format!("Time to draw an image, on {}", device.name()),
                x_label: "passes one after another".into(),
                y_label: "milliseconds".into(),
                log_x: true,
                log_y: true,
                dots: true,
                series: vec![
                    point("RRVQ, 32 layers, top down", 1, pass),
                    point("VQ-VAE with a PixelCNN", latents(&vq), pixelcnn),
                    point("32 layers, autoregressive", of_32, pass * of_32 as f64),
                ],
            },
        )?;
        section.claim(
            "One top-down pass of 32 layers draws an image sooner than a PixelCNN draws one layer of codes.",
            "a single pass; no times",
            format!(
                "{:.1} ms an image against {:.1}: {:.0} times",
                1000.0 * pass / BATCH as f64,
                1000.0 * pixelcnn / BATCH as f64,
                pixelcnn / pass
            ),
            Verdict::below(pass, pixelcnn, 0.2 * pass),
        );
        let near = |found: usize, said: f64| (found as f64 / said - 1.0).abs() < 0.5;
        section.claim(
            "An autoregressive model over the latents of 32 layers needs thousands of passes.",
            "≈ 2,000 and ≈ 10,000",
            format!("{of_32} latents for 32 × 32 images, {of_64} for 64 × 64"),
            Verdict::of(near(of_32, 2000.0) && near(of_64, 10_000.0)),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latents_are_the_positions_of_all_layers() {
        let deep = Config::preset("paper-l32-cifar10").unwrap();
        assert_eq!(latents(&deep), 8 * (256 + 64 + 16 + 4));
    }
}
