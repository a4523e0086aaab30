//! The toy of Figure 1 over several seeds: how many samples have one colour, from one layer and from a hierarchy.

use super::spread::seeds_told;
use crate::demo::{SAMPLES, SPREAD, is_uniform};
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use rrvq::picture::{Picture, grid};
use rrvq::{Result, SampleOptions};

/// Colour swatches.
pub struct Swatches;

/// Samples of each seed that are shown.
const SHOWN: usize = 16;

/// Samples of a model, and how many of them have one colour.
pub(super) fn counted(trial: &Trial) -> Result<(Vec<Picture>, usize)> {
    let drawn = trial.trained.sample(SAMPLES, SampleOptions::default())?;
    let uniform = drawn.iter().filter(|p| is_uniform(p)).count();
    Ok((drawn, uniform))
}

/// What a model showed from each seed.
pub(super) struct OverSeeds {
    /// Samples of one colour.
    pub counts: Vec<usize>,
    /// The first samples.
    pub shown: Vec<Picture>,
    /// Rows of the table.
    pub rows: Vec<Vec<String>>,
}

/// A preset's model from each seed.
pub(super) fn from_seeds(preset: &str, seeds: &[u64]) -> Result<Vec<Wanted>> {
    let of = |&seed: &u64| Ok(Wanted::preset(preset)?.seed(seed));
    seeds.iter().map(of).collect()
}

/// Trains a preset from each seed and counts.
pub(super) fn over_seeds(
    context: &mut Context<'_>,
    preset: &str,
    seeds: &[u64],
) -> Result<OverSeeds> {
    let (mut counts, mut shown, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let trials = context.train(from_seeds(preset, seeds)?)?;
    for (trial, seed) in trials.iter().zip(seeds) {
        let (drawn, uniform) = counted(trial)?;
        let bits = trial.evaluate(rrvq::Split::Test, 0)?.bits_per_dim;
        rows.push(vec![
            preset.to_string(),
            seed.to_string(),
            uniform.to_string(),
            drawn.len().to_string(),
            format!("{bits:.4}"),
        ]);
        counts.push(uniform);
        shown.extend(drawn.into_iter().take(SHOWN));
    }
    Ok(OverSeeds {
        counts,
        shown,
        rows,
    })
}

pub(super) const HEADERS: [&str; 5] = [
    "model",
    "seed",
    "samples of one colour",
    "samples",
    "test bits per dim",
];

/// "57 to 64 of 64".
pub(super) fn range(counts: &[usize]) -> String {
    let least = counts.iter().min().copied().unwrap_or(0);
    let most = counts.iter().max().copied().unwrap_or(0);
    match least == most {
        true => format!("{least} of {SAMPLES}"),
        false => format!("{least} to {most} of {SAMPLES}"),
    }
}

impl Study for Swatches {
    fn name(&self) -> &'static str {
        "swatches"
    }

    fn about(&self) -> &'static str {
        "samples of one colour, from one layer of codes and from a hierarchy of five, over seeds (Fig. 1's toy)"
    }

    fn paper(&self) -> &'static str {
        "trained on images of one of nine colours, samples of one layer are \"rainbow images where each patch is separately given a random colour\"; shown, not counted, and for one-layer models only."
    }

    fn data(&self) -> &'static [&'static str] {
        &["swatches"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick | Scale::Full => 3.4,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let seeds = context.seeds(5, 5);
        let one = from_seeds("swatches-rvq", &seeds)?;
        Ok([one, from_seeds("swatches-l5", &seeds)?].concat())
    }

    fn takes_seeds(&self) -> bool {
        true
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let seeds = context.seeds(5, 5);
        section.seeds = seeds.len();
        section.paragraph(&format!(
            "A sample counts as one colour when no channel varies by more than {SPREAD} of 256 levels over the image. {SAMPLES} samples from {}; a row of the pictures below is a seed.",
            seeds_told(seeds.len())
        ));
        let one = over_seeds(context, "swatches-rvq", &seeds)?;
        let five = over_seeds(context, "swatches-l5", &seeds)?;
        let rows = [one.rows, five.rows].concat();
        section.picture(
            "one-layer",
            &grid(&one.shown, SHOWN, 2, 1)?,
            "Samples of one layer (rVQ-VAE)",
        )?;
        section.picture(
            "hierarchy",
            &grid(&five.shown, SHOWN, 2, 1)?,
            "Samples of five layers (RRVQ-VAE)",
        )?;
        section.table("numbers", &HEADERS, &rows)?;
        section.claim(
            "One layer of codes with a uniform prior draws patchworks of the colours.",
            "patchworks, shown",
            format!(
                "{} have one colour, over {}",
                range(&one.counts),
                seeds_told(seeds.len())
            ),
            Verdict::of(one.counts.iter().all(|n| *n <= SAMPLES / 16)),
        );
        section.claim(
            "A hierarchy whose top is one latent draws whole images.",
            "–",
            format!(
                "{} have one colour, over {}",
                range(&five.counts),
                seeds_told(seeds.len())
            ),
            Verdict::of(five.counts.iter().all(|n| *n >= SAMPLES * 15 / 16)),
        );
        Ok(())
    }
}
