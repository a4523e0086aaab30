//! Appendix G: a fully connected rVQ-VAE draws images of one colour, new colours among them.

use super::spread::seeds_told;
use super::swatches::{HEADERS, OverSeeds, from_seeds, over_seeds, range};
use crate::demo::{SAMPLES, is_uniform};
use crate::framework::{Context, Scale, Section, Study, Verdict, Wanted};
use rrvq::Result;
use rrvq::dataset::swatches::COLOURS;
use rrvq::picture::{Picture, grid};

/// Appendix G.
pub struct Mlp;

/// A colour farther than this from all nine, in some channel, is a new one.
const NEW: u8 = 24;

/// Whether an image of one colour has none of the nine.
fn is_new(picture: &Picture) -> bool {
    let own = &picture.pixels()[..3];
    let far = |colour: &[u8; 3]| own.iter().zip(colour).any(|(a, b)| a.abs_diff(*b) > NEW);
    is_uniform(picture) && COLOURS.iter().all(|(_, colour)| far(colour))
}

impl Study for Mlp {
    fn name(&self) -> &'static str {
        "mlp"
    }

    fn about(&self) -> &'static str {
        "samples of a fully connected rVQ-VAE trained on colour swatches, over seeds (App. G)"
    }

    fn paper(&self) -> &'static str {
        "samples \"show consistent colour cast\", and \"new colours beyond the training set\"; one picture, no counts."
    }

    fn data(&self) -> &'static [&'static str] {
        &["swatches"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick | Scale::Full => 0.5,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        from_seeds("mlp-swatches", &context.seeds(5, 5))
    }

    fn takes_seeds(&self) -> bool {
        true
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let seeds = context.seeds(5, 5);
        section.seeds = seeds.len();
        let OverSeeds {
            counts,
            shown,
            rows,
        } = over_seeds(context, "mlp-swatches", &seeds)?;
        section.picture(
            "samples",
            &grid(&shown, shown.len() / seeds.len(), 2, 1)?,
            "Samples of the prior; a row is a seed",
        )?;
        section.table("numbers", &HEADERS, &rows)?;
        section.claim(
            "Samples of a fully connected model have one colour each.",
            "consistent colour, shown",
            format!("{} over {}", range(&counts), seeds_told(seeds.len())),
            Verdict::of(counts.iter().all(|n| *n >= SAMPLES * 15 / 16)),
        );
        let new = shown.iter().filter(|p| is_new(p)).count();
        section.claim(
            "Some samples have colours that the training set does not have.",
            "new colours, shown",
            format!(
                "{new} of {} are more than {NEW} levels from all nine colours",
                shown.len()
            ),
            Verdict::of(new > 0),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_images_of_other_colours_are_new() {
        let of = |colour: [u8; 3]| Picture::new([2, 2, 3], colour.repeat(4)).unwrap();
        let (_, red) = COLOURS[0];
        assert!(!is_new(&of(red)) && !is_new(&of([red[0] - 5, red[1], red[2]])));
        assert!(is_new(&of([128, 128, 128])));
        let mut patches = of([128, 128, 128]).pixels().to_vec();
        patches[0] = 0;
        assert!(!is_new(&Picture::new([2, 2, 3], patches).unwrap()));
    }
}
