//! Figure 1: originals, reconstructions and samples of one-layer models, of codes and of Gaussians, and of a hierarchy.

use super::models::{five_layers, of_figure_1};
use super::patchwork::Patchworks;
use crate::demo::is_uniform;
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::with_rows_named;
use rrvq::dataset::Split;
use rrvq::picture::{Picture, grid};
use rrvq::{Result, SampleOptions};

/// Figure 1.
pub struct Fig1;

/// Pictures of a kind in a row of the figure, and rows of each model.
const COLUMNS: usize = 8;
const ROWS: usize = 2;
/// Samples that are counted, and test images they are compared with.
const COUNTED: usize = 128;
const COMPARED: usize = 1000;

/// Originals, reconstructions and samples side by side.
pub(super) fn rows(trial: &Trial, samples: &[Picture]) -> Result<Vec<Picture>> {
    let originals = trial.images(Split::Test, COLUMNS * ROWS)?;
    let found = trial.trained.reconstruct(&originals)?;
    let [h, w, c] = samples[0].shape();
    let blank = Picture::new([h, w, c], vec![255; h * w * c])?;
    let mut all = Vec::new();
    for row in 0..ROWS {
        for (i, part) in [&originals, &found, samples].into_iter().enumerate() {
            if i > 0 {
                all.push(blank.clone());
            }
            let here = (0..COLUMNS).map(|x| part.get(row * COLUMNS + x).unwrap_or(&blank));
            all.extend(here.cloned());
        }
    }
    Ok(all)
}

/// The models of a data set: one layer of codes, one of Gaussians, a hierarchy.
fn on(context: &Context<'_>, data: &str) -> Result<[Wanted; 3]> {
    let whole = match data {
        "swatches" => Wanted::preset("swatches-l5")?,
        _ => five_layers(context, data)?,
    };
    Ok([
        of_figure_1("rvq", data)?,
        of_figure_1("spatial", data)?,
        whole,
    ])
}

impl Study for Fig1 {
    fn name(&self) -> &'static str {
        "fig1"
    }

    fn about(&self) -> &'static str {
        "originals, reconstructions and samples of rVQ, Spatial-VAE and RRVQ; patchworks counted (Fig. 1)"
    }

    fn paper(&self) -> &'static str {
        "originals, reconstructions and samples of a one-layer rVQ-VAE and a one-layer Spatial-VAE on swatches, SVHN and CIFAR-10: good reconstructions, and samples that are patchworks, with codes and with Gaussians alike."
    }

    fn data(&self) -> &'static [&'static str] {
        &["swatches", "svhn", "cifar10"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.2,
            Scale::Quick => 4.0,
            Scale::Full => 6.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let given = context.available(self.data());
        let models: Result<Vec<[Wanted; 3]>> = given.iter().map(|data| on(context, data)).collect();
        Ok(models?.into_iter().flatten().collect())
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = 1;
        section.paragraph(&format!(
            "One-layer models as the paper describes them: two residual blocks of 32 channels each way, 16 codes of 16 dimensions or 16 Gaussians a position. On swatches a sample is a patchwork when it does not have one colour. On other data it is one when its neighbouring parts agree less than in 95 % of {COMPARED} test images; of these, 5 % count by definition. Of the pictures, the left third are test images, the middle their reconstructions, the right samples; two rows each of rVQ-VAE, Spatial-VAE and RRVQ-VAE."
        ));
        let mut table = Vec::new();
        for data in context.available(self.data()) {
            let trials = context.train(on(context, data)?.into())?;
            let patchworks = Patchworks::of(&trials[0].images(Split::Test, COMPARED)?);
            let (mut sheet, mut counts) = (Vec::new(), Vec::new());
            for (trial, name) in trials.iter().zip(["rVQ", "Spatial-VAE", "RRVQ"]) {
                let samples = trial.trained.sample(COUNTED, SampleOptions::default())?;
                let count = match data {
                    "swatches" => samples.iter().filter(|p| !is_uniform(p)).count(),
                    _ => patchworks.count(&samples),
                };
                let bits = trial.evaluate(Split::Test, context.by_scale(16, 1000, 0))?;
                table.push(vec![
                    data.to_string(),
                    name.to_string(),
                    count.to_string(),
                    COUNTED.to_string(),
                    format!("{:.3}", bits.bits_per_dim),
                    trial.steps().to_string(),
                ]);
                sheet.extend(rows(trial, &samples)?);
                counts.push(count);
            }
            let picture = grid(&sheet, 3 * COLUMNS + 2, 1, 1)?;
            let names = ["rVQ-VAE", "Spatial-VAE", "RRVQ-VAE"].map(String::from);
            let picture = with_rows_named(&picture, &names)?;
            let caption = format!(
                "{data}: test images, reconstructions, samples; rVQ-VAE, Spatial-VAE, RRVQ-VAE"
            );
            section.picture(data, &picture, &caption)?;
            let told = format!(
                "patchworks of {COUNTED}: rVQ {}, Spatial-VAE {}, RRVQ {}",
                counts[0], counts[1], counts[2]
            );
            let many = |n: usize| n * 2 > COUNTED;
            section.claim(
                &format!("On {data}, samples of one layer are patchworks, with codes and with Gaussians alike."),
                "shown",
                told.clone(),
                Verdict::of(many(counts[0]) && many(counts[1])),
            );
            section.claim(
                &format!("On {data}, samples of the hierarchy are whole."),
                "–",
                told,
                match counts[2] as f64 / COUNTED as f64 {
                    share if share < 0.15 => Verdict::Holds,
                    _ if counts[2] < counts[0].min(counts[1]) => Verdict::NotDecided,
                    _ => Verdict::DoesNotHold,
                },
            );
        }
        section.table(
            "numbers",
            &[
                "data",
                "model",
                "patchworks",
                "samples",
                "test bits per dim",
                "steps",
            ],
            &table,
        )
    }
}
