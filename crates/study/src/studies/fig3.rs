//! Figure 3: what each layer decides. A row holds the layers above ℓ, its columns draw z_ℓ anew, the layers below take
//! their modes.

use super::models::five_layers;
use super::probe::{self, CLASSES, Examples, Probe};
use super::spread::Spread;
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::{Chart, Series};
use rrvq::dataset::Split;
use rrvq::picture::{Picture, grid};
use rrvq::{Codes, Result, SampleOptions};

/// Figure 3.
pub struct Fig3;

/// Rows and columns of a layer's pictures.
const SIDE: usize = 8;
/// Draws of the layers above that the numbers are measured over; the first are shown.
const DRAWS: usize = 32;
/// Side of the squares whose means are the coarse part of a picture.
const COARSE: usize = 8;

/// `SIDE` pictures for each of `DRAWS` draws of the layers above `layer`.
fn redrawn(trial: &Trial, layer: usize) -> Result<Vec<Picture>> {
    let model = &trial.trained;
    let layers = model.config().model.layers();
    let none = Codes {
        images: DRAWS,
        layers: Vec::new(),
        labels: None,
    };
    let options = |seed| SampleOptions {
        seed,
        ..SampleOptions::default()
    };
    let above = model.complete(&none, options(1))?.top(layers - 1 - layer);
    let drawn = model.complete(&above.repeated(SIDE), options(2))?;
    model.decode(&drawn.top(layers - layer))
}

/// A network that tells the digits of a data set's pictures, and how well; none where the data has no labels.
fn reader(context: &Context<'_>, trial: &Trial) -> Result<Option<(Probe, f64)>> {
    let steps = context.by_scale(4, 1500, 6000);
    let most = context.by_scale(64, 10_000, 100_000);
    let labelled = |split: Split| -> Result<Examples> {
        let pictures = trial.images(split, most)?;
        let labels = (0..pictures.len()).filter_map(|i| trial.data.label(split, i));
        let labels: Vec<usize> = labels.map(|label| label as usize % CLASSES).collect();
        Ok(Examples::of_pictures(&pictures, labels))
    };
    let (train, test) = (labelled(Split::Train)?, labelled(Split::Test)?);
    // One unlabelled picture is as good as none labelled: which is which would not be known.
    if train.values.len() != train.labels.len() * train.side * train.side * train.width {
        return Ok(None);
    }
    let mut probe = Probe::train(context.device(), &train, steps, 0)?;
    let accuracy = probe.accuracy(&test)?;
    Ok(Some((probe, accuracy)))
}

/// How often two pictures of the same layers above show different digits, for each draw of these.
fn disagreements(digits: &[usize]) -> Vec<f64> {
    let of_row = |row: &[usize]| {
        let mut counts = [0usize; CLASSES];
        row.iter().for_each(|digit| counts[*digit] += 1);
        let same: usize = counts
            .iter()
            .map(|count| count * count.saturating_sub(1))
            .sum();
        1.0 - same as f64 / (row.len() * (row.len() - 1)) as f64
    };
    digits.chunks(SIDE).map(of_row).collect()
}

/// Root of the mean variance of samples over pictures of the same layers above, in levels; and the share of the variance
/// that means over squares of [`COARSE`] pixels have.
fn spread(pictures: &[Picture]) -> (f64, f64) {
    let (mut fine, mut coarse, mut count) = (0.0, 0.0, 0);
    for row in pictures.chunks(SIDE) {
        let all: Vec<Vec<f64>> = row.iter().map(values).collect();
        let squares: Vec<Vec<f64>> = row.iter().map(coarse_values).collect();
        fine += variance(&all);
        coarse += variance(&squares);
        count += 1;
    }
    let (fine, coarse) = (fine / count as f64, coarse / count as f64);
    (fine.sqrt(), if fine > 0.0 { coarse / fine } else { 0.0 })
}

fn values(picture: &Picture) -> Vec<f64> {
    picture.pixels().iter().map(|&v| v as f64).collect()
}

fn coarse_values(picture: &Picture) -> Vec<f64> {
    let [height, width, channels] = picture.shape();
    let side = COARSE.min(height);
    let (rows, columns) = (height / side, width / side);
    let mut sums = vec![0.0; rows * columns * channels];
    for (i, &v) in picture.pixels().iter().enumerate() {
        let (pixel, channel) = (i / channels, i % channels);
        let (y, x) = (pixel / width / side, pixel % width / side);
        if y < rows && x < columns {
            sums[(y * columns + x) * channels + channel] += v as f64;
        }
    }
    let area = (side * side) as f64;
    sums.into_iter().map(|v| v / area).collect()
}

/// Mean over places of the variance over rows.
fn variance(rows: &[Vec<f64>]) -> f64 {
    let (n, places) = (rows.len() as f64, rows[0].len());
    let at = |place: usize| {
        let mean = rows.iter().map(|r| r[place]).sum::<f64>() / n;
        rows.iter().map(|r| (r[place] - mean).powi(2)).sum::<f64>() / n
    };
    (0..places).map(at).sum::<f64>() / places as f64
}

impl Study for Fig3 {
    fn name(&self) -> &'static str {
        "fig3"
    }

    fn about(&self) -> &'static str {
        "layer-wise sampling: what each layer decides, given the layers above it (Fig. 3)"
    }

    fn paper(&self) -> &'static str {
        "five panels of SVHN, one for each layer of a five-layer model: rows are draws of the layers above ℓ, columns fresh draws of z_ℓ, modes below. \"Different layers represent different aspects of the data\"; layer 2 changes the digit and keeps the rest."
    }

    fn data(&self) -> &'static [&'static str] {
        &["svhn", "cifar10"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick => 0.4,
            Scale::Full => 10.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let given = context.available(self.data());
        given
            .iter()
            .map(|data| five_layers(context, data))
            .collect()
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = 1;
        section.paragraph(&format!(
            "Shown are {SIDE} of {DRAWS} draws of the layers above, over all of which the numbers are. The spread is the root of the variance over fresh draws of one layer, in levels of 256; its coarse share is that of means over squares of {COARSE} × {COARSE} pixels."
        ));
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for data in context.available(self.data()) {
            let wanted = five_layers(context, data)?;
            let trial = &context.train(vec![wanted])?[0];
            let layers = trial.trained.config().model.layers();
            // What a picture shows is read where it is a digit.
            let mut reader = match data {
                "svhn" => reader(context, trial)?,
                _ => None,
            };
            let (mut found, mut changes) = (Vec::new(), Vec::new());
            for layer in (0..layers).rev() {
                let pictures = redrawn(trial, layer)?;
                let (deviation, coarse) = spread(&pictures);
                found.push((layer + 1, deviation, coarse));
                let mut told = "–".to_string();
                if let Some((probe, _)) = &mut reader {
                    let examples = Examples::of_pictures(&pictures, vec![0; pictures.len()]);
                    let change = Spread::of(&disagreements(&probe.digits(&examples)?));
                    told = format!("{:.2}", change.mean);
                    changes.push((layer + 1, change));
                }
                rows.push(vec![
                    data.to_string(),
                    format!("{}", layer + 1),
                    format!("{deviation:.2}"),
                    format!("{coarse:.3}"),
                    told,
                ]);
                let sheet = grid(&pictures[..SIDE * SIDE], SIDE, 2, 2)?;
                let caption = format!("{data}, ℓ = {}: a row holds the layers above", layer + 1);
                section.picture(&format!("{data}-layer-{}", layer + 1), &sheet, &caption)?;
            }
            let points = found
                .iter()
                .rev()
                .map(|(l, deviation, _)| (*l as f64, *deviation));
            lines.push(Series::new(data, points.collect()));
            let (top, bottom) = (found[0], found[layers - 1]);
            let told = found
                .iter()
                .map(|(l, d, c)| format!("{l}: {d:.1} ({:.0} %)", 100.0 * c));
            section.claim(
                &format!("On {data}, layers decide different things: high ones the whole picture, low ones its detail."),
                "shown",
                format!(
                    "spread in levels and its coarse share, by layer: {}",
                    told.collect::<Vec<_>>().join(", ")
                ),
                match top.1.min(bottom.1) < 1.0 {
                    true => Verdict::NotDecided,
                    false => Verdict::below(bottom.2, top.2, 0.05),
                },
            );
            let second = changes.iter().find(|(layer, _)| *layer == 2);
            let others = changes.iter().filter(|(layer, _)| *layer != 2);
            let most = others.max_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
            if let (Some((_, accuracy)), Some((_, second)), Some((layer, most))) =
                (&reader, second, most)
            {
                let told = changes
                    .iter()
                    .map(|(l, change)| format!("{l}: {:.2}", change.mean));
                section.claim(
                    "On svhn, fresh draws of layer 2 change the digit most often.",
                    "\"resampling in this layer changes digit identity\", by eye",
                    format!(
                        "two draws show different digits, by layer: {}; of the others layer {layer} most",
                        told.collect::<Vec<_>>().join(", ")
                    ),
                    Verdict::below(most.mean, second.mean, most.noise(second)),
                );
                section.paragraph(&format!(
                    "Digits are told by {}, trained on the pixels of labelled images, of which it knows {:.0} % of the test images'.",
                    probe::about(),
                    100.0 * accuracy
                ));
            }
        }
        section.table(
            "numbers",
            &[
                "data",
                "layer",
                "spread, levels",
                "coarse share",
                "two draws show different digits",
            ],
            &rows,
        )?;
        section.chart(
            "spread",
            &Chart {
                title: "Spread of pictures over fresh draws of one layer".into(),
                x_label: "layer, 1 at the bottom".into(),
                y_label: "levels of 256".into(),
                dots: true,
                series: lines,
                ..Chart::default()
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_different_digits_are_counted() {
        let all_alike = [3; SIDE];
        let halves: Vec<usize> = (0..SIDE).map(|i| i % 2).collect();
        let found = disagreements(&[&all_alike[..], &halves].concat());
        // Of 28 pairs 16 are of one of each.
        assert_eq!(found, [0.0, 1.0 - 24.0 / 56.0]);
    }

    #[test]
    fn the_spread_is_that_over_columns_and_its_coarse_part_is_told() {
        let flat = |v: u8| Picture::new([8, 8, 3], vec![v; 192]).unwrap();
        // Rows differ, columns do not.
        let rows: Vec<Picture> = (0..16)
            .map(|i| flat(if i < SIDE { 10 } else { 200 }))
            .collect();
        assert_eq!(spread(&rows), (0.0, 0.0));
        // Whole pictures of two levels: all of the variance is coarse.
        let columns: Vec<Picture> = (0..8).map(|i| flat(100 + 20 * (i % 2))).collect();
        let (deviation, coarse) = spread(&columns);
        assert!((deviation - 10.0).abs() < 1e-9 && (coarse - 1.0).abs() < 1e-9);
        // Chequers and their negatives: nothing is.
        let chequer = |i: u8| {
            let pixel = |p: usize| [100 + 20 * ((p / 8 + p % 8 + i as usize) % 2) as u8; 3];
            Picture::new([8, 8, 3], (0..64).flat_map(pixel).collect()).unwrap()
        };
        let (_, coarse) = spread(&(0..8).map(|i| chequer(i % 2)).collect::<Vec<_>>());
        assert!(coarse < 1e-9);
    }
}
