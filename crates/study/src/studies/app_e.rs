//! Appendix E: reconstructions and samples of all data sets, as large as the paper's pages.

use super::models::{deepest, one_layer};
use super::patchwork::Patchworks;
use crate::compare::quality::psnr;
use crate::framework::{Context, Scale, Section, Study, Verdict, Wanted};
use crate::quality::compare;
use crate::quality::features::Features;
use crate::report::with_rows_named;
use rrvq::dataset::Split;
use rrvq::picture::{Picture, grid};
use rrvq::{Result, SampleOptions};

/// Appendix E.
pub struct AppE;

/// Pairs of a row of reconstructions, and rows of them.
const PAIRS: usize = 8;
const ROWS: usize = 6;
/// Test images that reconstructions are measured on, and samples that are counted.
const MEASURED: usize = 500;
const COUNTED: usize = 128;
/// Digits of a Fréchet distance that two sets of samples may differ in by chance, as a share.
const CHANCE: f64 = 0.1;

fn squared_error(a: &[Picture], b: &[Picture]) -> f64 {
    let pixels = || {
        a.iter()
            .zip(b)
            .flat_map(|(a, b)| a.pixels().iter().zip(b.pixels()))
    };
    let sum: f64 = pixels().map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
    sum / pixels().count().max(1) as f64
}

impl Study for AppE {
    fn name(&self) -> &'static str {
        "appE"
    }

    fn about(&self) -> &'static str {
        "reconstructions and samples of all data sets, at the size of the paper's pages (App. E)"
    }

    fn paper(&self) -> &'static str {
        "pairs of reconstruction and original, and samples of the one-layer baseline (top) and of 32 layers (below), for CIFAR-10, SVHN and CelebA: \"high quality reconstructions\", \"reasonable sampling quality\"."
    }

    fn data(&self) -> &'static [&'static str] {
        &["cifar10", "svhn", "celeba"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick => 1.5,
            Scale::Full => 4.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let mut models = Vec::new();
        for data in context.available(self.data()) {
            models.extend([one_layer(context, data)?, deepest(context, data)?]);
        }
        Ok(models)
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = 1;
        let mut table = Vec::new();
        for data in context.available(self.data()) {
            let wanted = vec![one_layer(context, data)?, deepest(context, data)?];
            let trials = context.train(wanted)?;
            let images = trials[0].images(Split::Test, context.by_scale(32, MEASURED, MEASURED))?;
            let patchworks = Patchworks::of(&trials[0].images(Split::Test, 1000)?);
            let (mut quality, mut drawn, mut kept) = (Vec::new(), Vec::new(), Vec::new());
            let (many, steps) = context.by_scale((COUNTED, 4), (1000, 400), (5000, 4000));
            let source = trials[0].data.clone();
            let features = Features::of(context.device(), source.as_ref(), steps)?;
            let real = features.of_pictures(&trials[0].images(Split::Test, many)?)?;
            let seen = features.of_pictures(&trials[0].images(Split::Train, many)?)?;
            let floor = compare(&real, &seen)?;
            for (trial, name) in trials.iter().zip(["one layer (rVQ)", "hierarchy (RRVQ)"]) {
                let found = trial.trained.reconstruct(&images)?;
                let samples = trial.trained.sample(many, SampleOptions::default())?;
                let judged = compare(&real, &features.of_pictures(&samples)?)?;
                let (psnr, count) = (
                    psnr(squared_error(&images, &found)),
                    patchworks.count(&samples[..COUNTED]),
                );
                table.push(vec![
                    data.to_string(),
                    name.to_string(),
                    format!("{psnr:.2}"),
                    format!("{count} of {COUNTED}"),
                    format!("{:.3}", judged.frechet),
                    format!("{:.3}", judged.precision),
                    format!("{:.3}", judged.recall),
                ]);
                quality.push((psnr, count, judged.frechet));
                drawn.push(samples);
                kept.push(found);
            }
            table.push(vec![
                data.to_string(),
                "training images".to_string(),
                "–".into(),
                "–".into(),
                format!("{:.3}", floor.frechet),
                format!("{:.3}", floor.precision),
                format!("{:.3}", floor.recall),
            ]);
            let pairs = kept[1]
                .iter()
                .zip(&images)
                .flat_map(|(a, b)| [a.clone(), b.clone()]);
            let pairs: Vec<Picture> = pairs.take(2 * PAIRS * ROWS).collect();
            let caption = format!("{data}: pairs of a reconstruction and its original");
            section.picture(
                &format!("{data}-reconstructions"),
                &grid(&pairs, 2 * PAIRS, 1, 1)?,
                &caption,
            )?;
            let shown = [&drawn[0][..2 * PAIRS], &drawn[1][..2 * PAIRS * (ROWS - 1)]].concat();
            let mut names = vec![String::new(); ROWS];
            (names[0], names[1]) = ("one layer".into(), "hierarchy".into());
            let caption =
                format!("{data}: samples of one layer (top row) and of the hierarchy (below)");
            section.picture(
                &format!("{data}-samples"),
                &with_rows_named(&grid(&shown, 2 * PAIRS, 1, 1)?, &names)?,
                &caption,
            )?;
            let ((_, one, far), (psnr, many, near)) = (quality[0], quality[1]);
            section.claim(
                &format!("On {data}, samples of the hierarchy are better than the one-layer baseline's."),
                "shown",
                format!("patchworks of {COUNTED}: {one} of one layer, {many} of the hierarchy; its reconstructions have {psnr:.1} dB"),
                // Counts of this size differ by chance by some ten.
                Verdict::below(many as f64, one as f64, 12.0),
            );
            section.claim(
                &format!("On {data}, samples of the hierarchy are nearer to test images than the one-layer baseline's."),
                "–",
                format!(
                    "Fréchet distance on rrvq's own features {near:.2} against {far:.2}; training images {:.2}",
                    floor.frechet
                ),
                Verdict::below(near, far, CHANCE * far),
            );
        }
        section.paragraph("Fréchet distance, precision (samples among test images) and recall (test images among samples) are on features of a small network that rrvq trains on the data set itself: on labels where there are some. They compare rows of one data set here, and are not FID.");
        section.table(
            "numbers",
            &[
                "data",
                "model",
                "PSNR of reconstructions, dB",
                "patchworks",
                "Fréchet distance",
                "precision",
                "recall",
            ],
            &table,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_a_mean_over_samples() {
        let of = |v: u8| Picture::new([1, 1, 3], vec![v, 10, 10]).unwrap();
        assert_eq!(
            squared_error(&[of(10), of(10)], &[of(13), of(10)]),
            9.0 / 6.0
        );
    }
}
