//! Appendix F: images as the codes of a hierarchy, beside JPEG and others in as many bits.
//!
//! The models are trained for what a lossy file is: bits of codes and squared error (`train.objective`), one model for each
//! worth of a bit. The paper's own has five layers and at most 2,275 bits; higher rates need more positions. What the
//! paper's protocol does not have: real files of a set, sizes with and without headers, and whole curves.

use crate::compare::{
    Comparison, Contest, Row, Verdict as Judged, figure, ours, pages, quality, rivals,
};
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::with_rows_named;
use rrvq::Result;
use rrvq::dataset::Split;
use rrvq::latent::bits_of_image;
use rrvq_codec::lossy::{Options, Tiles};
use rrvq_codec::{CodingModel, Identity, Image, Workers};

/// Appendix F.
pub struct Compression;

/// Rates up to which the claim is about, in bits a pixel.
const HIGHEST: f64 = 1.5;
/// A curve that ends below this share of it tells nothing of the highest rates.
const REACHED: f64 = 0.8;
/// Steps of a model at the full scale, and settings there: small batches make more steps of the same images, and gradients that all
/// count the same keep the upper layers.
const FULL_STEPS: usize = 16_000;
const FULL_SETTINGS: [&str; 2] = ["train.batch=64", "train.clip=5"];

/// Rate without headers, and PSNR.
type Point = (f64, f64);

/// A model's settings that decide its rates: those of the paper, or ones for higher rates.
struct Kind {
    /// In the name of a run.
    name: &'static str,
    /// What differs from the preset at the quick scale, and on images of 32×32.
    quick: &'static [&'static str],
    low: &'static [&'static str],
    /// The presets of the quick and the full scale.
    presets: [&'static str; 2],
    /// What a bit is worth, at the quick and the full scale.
    worths: [&'static [usize]; 2],
    /// Steps at the quick scale.
    steps: usize,
}

/// The paper's five layers of 2,275 bits, and twice the resolution for higher rates.
const KINDS: [Kind; 2] = [
    Kind {
        name: "paper",
        quick: &[],
        low: &["model.size=32"],
        presets: ["small-rd-celeba", "rd-l5-celeba"],
        worths: [&[50], &[200, 50]],
        steps: 1500,
    },
    Kind {
        name: "fine",
        quick: &[
            "model.maps=[32,16,8,4,2]",
            "model.codes=64",
            "model.grow_last=once",
        ],
        low: &["model.size=32", "model.maps=[16,8,4,2,1]"],
        presets: ["small-rd-celeba", "rd-celeba"],
        worths: [&[25], &[100, 25, 8]],
        steps: 300,
    },
];

/// The models of the curve, the paper's first, each with the name of its kind.
fn wanted(context: &Context<'_>, data: &str) -> Result<Vec<(&'static str, Wanted)>> {
    let mut all = Vec::new();
    for kind in &KINDS {
        let preset = context.preset(kind.presets[0], kind.presets[1]);
        let worths = context.by_scale(&kind.worths[0][..1], kind.worths[0], kind.worths[1]);
        for worth in worths {
            let plain = Wanted::preset(preset)?.on(data);
            let own = context.by_scale(kind.quick, kind.quick, &FULL_SETTINGS);
            let low = if data == "celeba" { &[] } else { kind.low };
            let setting = format!("train.bit_worth={worth}");
            let settings = [own, low, &[setting.as_str()]].concat();
            let name = format!("{}-{}-{worth}", plain.name, kind.name);
            let model = plain.with(&name, &settings)?;
            all.push((kind.name, model.budget(kind.steps, FULL_STEPS)));
        }
    }
    Ok(all)
}

/// The points of a codec by rate, without those that another of its own is better than at fewer bits.
fn points(comparison: &Comparison, codec: &str) -> Vec<Point> {
    let of = |row: &Row| {
        let Judged::Close { squared_error, .. } = row.verdict else {
            return None;
        };
        let rate = comparison.bare_bits_per_pixel(row)?;
        Some((rate, quality::psnr(squared_error)))
    };
    let rows = comparison.lossy.iter().filter(|row| row.codec == codec);
    let mut all: Vec<Point> = rows.filter_map(of).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best = f64::NEG_INFINITY;
    all.retain(|(_, quality)| {
        let better = *quality > best;
        best = best.max(*quality);
        better
    });
    all
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

/// Whether our line is ahead at all rates from its first point to [`HIGHEST`], and the numbers: at our points, at theirs and
/// at the end.
fn ahead(ours: &[Point], theirs: &[Point]) -> (Verdict, String) {
    let begin = ours.first().map_or(f64::MAX, |p| p.0);
    let end = ours.last().map_or(0.0, |p| p.0);
    let both = ours.iter().chain(theirs).map(|(rate, _)| *rate);
    let rates = both.chain([HIGHEST]).filter(|rate| *rate <= HIGHEST);
    let mut told = Vec::new();
    let mut worst: Option<(f64, String)> = None;
    for rate in rates.filter(|rate| (begin..=end).contains(rate)) {
        let Some(quality) = at_rate(ours, rate) else {
            continue;
        };
        let is_point = ours.iter().any(|p| p.0 == rate);
        let Some(other) = at_rate(theirs, rate) else {
            told.push(format!("{rate:.2} bits {quality:.1} against none"));
            continue;
        };
        let words = format!("{rate:.2} bits {quality:.1} against {other:.1}");
        if is_point {
            told.push(words.clone());
        }
        if worst.as_ref().is_none_or(|(gap, _)| quality - other < *gap) {
            worst = Some((quality - other, words));
        }
    }
    let Some((gap, words)) = worst else {
        if told.is_empty() {
            told.push(format!(
                "no rate up to {HIGHEST} bits a pixel is both ours and theirs"
            ));
        }
        return (Verdict::NotDecided, told.join("; "));
    };
    if !told.contains(&words) {
        told.push(format!("at worst {words}"));
    }
    let verdict = match gap > 0.0 {
        false => Verdict::DoesNotHold,
        true if end >= REACHED * HIGHEST => Verdict::Holds,
        true => {
            told.push(format!("nothing above {end:.2} bits"));
            Verdict::NotDecided
        }
    };
    (verdict, told.join("; "))
}

/// Our files with loss, as they are written by default.
fn contest<'a>(workers: &'a mut Workers, identity: Identity, images: &'a [Image]) -> Contest<'a> {
    Contest {
        workers,
        identity,
        images,
        lossless: false,
        lossy: true,
        search: false,
        tiles: Tiles::Suiting,
        watch: &|_| {},
        together: None,
    }
}

/// Writes the images with a model's likeliest codes, in one file.
fn row(trial: &Trial, images: &[Image], said: &str) -> Result<Row> {
    let (mut workers, identity) = trial.trained.workers()?;
    let mut contest = contest(&mut workers, identity, images);
    ours::in_one_file(&mut contest, images, &Options::default(), said.into())
}

/// Images, what our files show, and the others in as many bytes.
fn pictures(trial: &Trial, images: &[Image]) -> Result<pages::Drawn> {
    let (mut workers, identity) = trial.trained.workers()?;
    let few = &images[..images.len().min(figure::COLUMNS)];
    let mut contest = contest(&mut workers, identity, few);
    let files = ours::shown(&mut contest, few)?;
    let mut rows = figure::rows(few, &files, "rrvq, a file an image")?;
    let mut names = ["original", "rrvq", "JPEG, file", "JPEG, payload"]
        .map(String::from)
        .to_vec();
    for rival in rivals::lossy().0 {
        if ["WebP", "AVIF"].contains(&rival.name()) {
            for bare in [false, true] {
                rows.push(figure::row_of(rival.as_ref(), few, &files, bare)?);
                let of = if bare { "payload" } else { "file" };
                names.push(format!("{}, {of}", rival.name()));
            }
        }
    }
    let picture = with_rows_named(&figure::picture(few, &rows)?, &names)?;
    Ok((rows, picture))
}

impl Study for Compression {
    fn name(&self) -> &'static str {
        "compression"
    }

    fn about(&self) -> &'static str {
        "faces as codes beside JPEG, WebP and AVIF at the same size, models trained for rate and distortion (App. F)"
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
            Scale::Quick => 5.0,
            Scale::Full => 20.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let models = wanted(context, context.available(self.data())[0])?;
        Ok(models.into_iter().map(|(_, model)| model).collect())
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = 1;
        // The paper's data set where it is there, else another.
        let data = context.available(self.data())[0];
        let (kinds, models): (Vec<&str>, Vec<Wanted>) = wanted(context, data)?.into_iter().unzip();
        let trials = context.train(models)?;
        let count = context.by_scale(4, 100, 500);
        let mut images = Vec::new();
        for (i, picture) in trials[0]
            .images(Split::Test, count)?
            .into_iter()
            .enumerate()
        {
            let [height, width, _] = picture.shape();
            let pixels = picture.pixels().to_vec();
            images.push(Image::new(&i.to_string(), width, height, pixels)?);
        }
        let mut comparison = Comparison::of(&images);
        for (trial, kind) in trials.iter().zip(kinds) {
            // One that was given may have been trained for another worth.
            let worth = trial.trained.config().train.bit_worth;
            let said = format!("{kind}, a bit worth {worth}");
            comparison.lossy.push(row(trial, &images, &said)?);
        }
        comparison.add_rivals(&images, &|_| {});
        rrvq::interrupt::check()?;
        let [whole, bare, alike, _] = pages::charts(&comparison);
        section.chart("psnr-payload", &bare)?;
        section.chart("psnr-file", &whole)?;
        section.chart("ms-ssim", &alike)?;
        let (shown, picture) = pictures(&trials[0], &images)?;
        let shown: Vec<String> = shown.iter().map(pages::caption).collect();
        section.picture(
            "pictures",
            &picture,
            &format!("From above: {}", shown.join("; ")),
        )?;
        let (titles, table) = pages::lossy_table(&comparison);
        section.table("numbers", &titles, &table)?;
        for left in &comparison.left_out {
            section.paragraph(&format!("Left out: {}: {}.", left.name, left.why));
        }
        let model = &trials[0].trained.config().model;
        let most = bits_of_image(model).unwrap_or(f64::NAN);
        let of_paper = &comparison.lossy[0];
        let each = |bytes: usize| 8.0 * bytes as f64 / images.len() as f64;
        let (file, codes) = (
            each(of_paper.size.bytes),
            each(of_paper.size.bytes - of_paper.size.header.unwrap_or(0)),
        );
        section.claim(
            &format!("On {data}, the codes of an image are at most {most:.0} bits, and so is an image's share of a set's file."),
            "2,275 bits of 98,304 on CelebA",
            format!(
                "{codes:.0} bits of codes and {file:.0} of the file, of {}, in a file of {} images",
                24 * model.size * model.size,
                images.len()
            ),
            Verdict::of(file <= most),
        );
        let ours = points(&comparison, ours::ONE_FILE);
        let lowest = ours.first().map_or(f64::NAN, |point| point.0);
        for rival in ["JPEG", "JPEG, cjpeg", "WebP"] {
            let theirs = points(&comparison, rival);
            if theirs.is_empty() {
                continue;
            }
            let (verdict, told) = ahead(&ours, &theirs);
            section.claim(
                &format!("On {data}, our payload is ahead of that of {rival} at every rate from our lowest, {lowest:.2} bits a pixel, to {HIGHEST}."),
                if rival == "JPEG" { "ahead of JPEG at 0.56 bits a pixel, shown" } else { "–" },
                format!("PSNR, dB: {told}"),
                verdict,
            );
        }
        section.paragraph("Payload is without headers: ours is one file of all images, the others are a file an image. JPEG is this program's encoder (full colour, optimised codes), the others are the programs named in the table. Each point of ours is a model trained for what a bit is worth in squared error (train.bit_worth).");
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

    #[test]
    fn being_ahead_needs_every_rate_and_a_curve_that_gets_there() {
        let theirs = [(0.5, 20.0), (1.0, 26.0), (2.0, 30.0)];
        let verdict = |ours: &[Point]| ahead(ours, &theirs).0;
        assert_eq!(verdict(&[(0.5, 21.0), (1.3, 28.5)]), Verdict::Holds);
        assert_eq!(verdict(&[(0.5, 21.0), (1.3, 27.0)]), Verdict::DoesNotHold);
        assert_eq!(verdict(&[(0.3, 19.0), (0.6, 25.0)]), Verdict::NotDecided);
        // Between two points the line counts, and beyond the rates of the claim nothing.
        assert_eq!(verdict(&[(0.5, 21.0), (1.9, 22.0)]), Verdict::DoesNotHold);
        assert_eq!(
            verdict(&[(0.5, 21.0), (1.5, 29.0), (1.9, 29.1)]),
            Verdict::Holds
        );
    }
}
