//! Appendix F: images as the codes of five layers, beside JPEG and others in as many bits.
//!
//! The comparison is that of `rrvq codec eval` ([`crate::compare`]). What the paper's protocol does not have: real files, sizes
//! with and without headers, and whole curves. What is missing here: a model trained for a rate and a distortion; these
//! minimise bits per dim, of which the picture is only a part.

use super::models::five_layers;
use crate::compare::{Comparison, Contest, Row, Verdict as Judged, figure, pages, quality};
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict};
use rrvq::Result;
use rrvq::dataset::Split;
use rrvq::latent::bits_of_image;
use rrvq_codec::{CodingModel, Image};

/// Appendix F.
pub struct Compression;

/// Rates up to which the claim is about, in bits a pixel.
const HIGHEST: f64 = 1.5;

/// Rate without headers, and PSNR.
type Point = (f64, f64);

/// The points of a codec by rate; those of ours in one file, as bits of headers are shared there.
fn points(comparison: &Comparison, codec: &str) -> Vec<Point> {
    let of = |row: &Row| {
        let Judged::Close { squared_error, .. } = row.verdict else {
            return None;
        };
        let rate = comparison.bare_bits_per_pixel(row)?;
        Some((rate, quality::psnr(squared_error)))
    };
    let rows = comparison.lossy.iter().filter(|row| row.codec == codec);
    let mut points: Vec<Point> = rows.filter_map(of).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// A codec's PSNR at a rate, on the line through its points over the logarithm of the rate; none below its lowest rate.
fn at_rate(points: &[Point], rate: f64) -> Option<f64> {
    let after = points.iter().position(|(r, _)| *r >= rate);
    match after {
        Some(0) => (points[0].0 <= rate).then_some(points[0].1),
        None => points.last().map(|(_, quality)| *quality),
        Some(next) => {
            let ((a, low), (b, high)) = (points[next - 1], points[next]);
            let part = (rate.ln() - a.ln()) / (b.ln() - a.ln()).max(1e-12);
            Some(low + part * (high - low))
        }
    }
}

/// Compares a model's files with other codecs on test images.
fn compared(trial: &Trial, images: &[Image]) -> Result<(Comparison, pages::Drawn)> {
    let (mut workers, identity) = trial.trained.workers()?;
    let mut contest = Contest {
        workers: &mut workers,
        identity,
        images,
        lossy: true,
        search: false,
        watch: &|_| {},
    };
    let comparison = contest.run()?;
    let drawn = figure::draw(&mut contest)?;
    Ok((comparison, drawn))
}

impl Study for Compression {
    fn name(&self) -> &'static str {
        "compression"
    }

    fn about(&self) -> &'static str {
        "images as codes of five layers beside JPEG, WebP and others at the same size (App. F)"
    }

    fn paper(&self) -> &'static str {
        "CelebA faces of 64 × 64 in 2,275 bits, 43 times smaller, beside JPEG of the same size: \"outperforms JPEG\", \"does not introduce blocky artefacts\"; pictures, no numbers."
    }

    fn data(&self) -> &'static [&'static str] {
        &["celeba", "cifar10", "svhn"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.2,
            Scale::Quick => 1.0,
            Scale::Full => 15.0,
        }
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = 1;
        // The paper's data set where it is there, else another.
        let data = context.available(self.data())[0];
        let wanted = five_layers(context, data)?;
        let trial = &context.train(vec![wanted])?[0];
        let count = context.by_scale(4, 100, 500);
        let mut images = Vec::new();
        for (i, picture) in trial.images(Split::Test, count)?.into_iter().enumerate() {
            let [height, width, _] = picture.shape();
            images.push(Image::new(
                &i.to_string(),
                width,
                height,
                picture.pixels().to_vec(),
            )?);
        }
        let (comparison, (rows, picture)) = compared(trial, &images)?;
        let [whole, bare, alike, prefixes] = pages::charts(&comparison);
        section.chart("psnr-payload", &bare)?;
        section.chart("psnr-file", &whole)?;
        section.chart("ms-ssim", &alike)?;
        section.chart("prefixes", &prefixes)?;
        let shown: Vec<String> = rows
            .iter()
            .map(|row| match row.bytes {
                Some((bytes, coded)) => {
                    format!("{} ({bytes} bytes, {coded} without headers)", row.what)
                }
                None => row.what.clone(),
            })
            .collect();
        section.picture("pictures", &picture, &format!("Rows: {}", shown.join("; ")))?;
        let (titles, table) = pages::lossy_table(&comparison);
        section.table("numbers", &titles, &table)?;
        for left in &comparison.left_out {
            section.paragraph(&format!("Left out: {}: {}.", left.name, left.why));
        }
        let model = &trial.trained.config().model;
        let most = bits_of_image(model).unwrap_or(f64::NAN);
        let pixels = (model.size * model.size) as f64;
        let ours = points(&comparison, "rrvq, one file");
        let rate = ours.last().map_or(f64::NAN, |p| p.0 * pixels);
        section.claim(
            &format!("On {data}, an image is at most the bits of its codes."),
            "2,275 bits of 98,304 on CelebA",
            format!(
                "{rate:.0} bits an image in a file of {}, at most {most:.0} of {:.0}",
                images.len(),
                pixels * 24.0
            ),
            // A set's file shares one header, and the prior knows which codes are likely.
            Verdict::of(rate <= most),
        );
        for rival in ["JPEG", "WebP"] {
            let theirs = points(&comparison, rival);
            if theirs.is_empty() {
                continue;
            }
            let told = ours.iter().filter(|(rate, _)| *rate <= HIGHEST);
            let (mut worst, mut told_of) = (f64::MAX, Vec::new());
            for (rate, quality) in told {
                let (gap, words) = match at_rate(&theirs, *rate) {
                    Some(other) => (quality - other, format!("{other:.1}")),
                    None => (f64::MAX, format!("not below {:.2} bits", theirs[0].0)),
                };
                worst = worst.min(gap);
                told_of.push(format!("{rate:.2} bits: {quality:.1} against {words}"));
            }
            section.claim(
                &format!("On {data}, our payload is ahead of {rival}'s at every rate up to {HIGHEST} bits a pixel."),
                if rival == "JPEG" { "ahead of JPEG at 0.56 bits a pixel, shown" } else { "–" },
                format!("PSNR, dB, at {}", told_of.join("; ")),
                Verdict::of(worst > 0.0),
            );
        }
        section.paragraph("Rates leave out headers: ours is one file of all images, the others are a file an image. The model was trained for bits per dim, not for a rate and a distortion, and has no knob but the number of layers.");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_is_read_between_points_and_not_below_the_lowest_rate() {
        let points = [(0.5, 20.0), (1.0, 26.0), (2.0, 30.0)];
        assert_eq!(at_rate(&points, 0.4), None);
        assert_eq!(at_rate(&points, 0.5), Some(20.0));
        let middle = at_rate(&points, 2f64.sqrt()).unwrap();
        assert!((middle - 28.0).abs() < 1e-9, "{middle}");
        assert_eq!(at_rate(&points, 9.0), Some(30.0));
        assert_eq!(at_rate(&[], 1.0), None);
    }
}
