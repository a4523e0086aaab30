//! The paper's first claim, shown in two minutes on a CPU.
//!
//! A model with one map of latents and a uniform prior draws every position for itself: trained on images of
//! a single colour, its samples are patchworks. A hierarchy whose top is one latent decides the colour once:
//! its samples are whole.

use crate::framework::first_images;
use crate::report::layers::{LAYER_HEADERS, layer_rows};
use crate::report::{Chart, Figure, Report, Series};
use rrvq::config::Config;
use rrvq::dataset::{Split, Swatches};
use rrvq::error::{Error, Result};
use rrvq::picture::{Picture, comfortable_scale, grid};
use rrvq::run::{Existing, Run};
use rrvq::train::log::{Record, read};
use rrvq::train::{TrainOptions, Trainer, Watch};
use rrvq::trained::SampleOptions;
use rrvq_tensor::Device;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Samples that are counted.
pub const SAMPLES: usize = 64;
/// Largest spread of a channel over an image that still counts as one colour, in levels of 256.
pub const SPREAD: u8 = 8;

/// What one model showed.
#[derive(Clone, Debug)]
pub struct ModelOutcome {
    pub name: String,
    /// Samples whose colour is uniform, of how many.
    pub uniform: usize,
    pub samples: usize,
    pub bits_per_dim: f64,
    pub seconds: f64,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub models: Vec<ModelOutcome>,
    pub report: PathBuf,
    pub seconds: f64,
}

/// Whether every channel varies by at most [`SPREAD`] levels over the picture.
pub fn is_uniform(picture: &Picture) -> bool {
    let [_, _, channels] = picture.shape();
    (0..channels).all(|c| {
        let values = picture.pixels().iter().skip(c).step_by(channels);
        let (low, high) = values.fold((u8::MAX, u8::MIN), |(l, h), &v| (l.min(v), h.max(v)));
        high.saturating_sub(low) <= SPREAD
    })
}

const MODELS: [(&str, &str, &str); 2] = [
    ("one layer (rVQ-VAE)", "swatches-rvq", "one-layer"),
    ("five layers (RRVQ-VAE)", "swatches-l5", "hierarchy"),
];

/// Trains both models into `out` and writes `report.html` and the pictures there.
pub fn run(out: &Path, follow: &mut dyn FnMut(&str) -> Box<dyn Watch>) -> Result<Outcome> {
    let begin = Instant::now();
    // Its counts are promised, and only the CPU gives the same bits everywhere.
    let device = Device::Cpu;
    let mut models = Vec::new();
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    let mut originals_sheet = None;
    let mut all_samples = Vec::new();
    let mut layers = Vec::new();
    for (name, preset, folder) in MODELS {
        let start = Instant::now();
        let config = Config::preset(preset)?;
        let dir = out.join(folder);
        let options = TrainOptions {
            out: Some(dir.clone()),
            existing: Existing::Overwrite,
            ..TrainOptions::default()
        };
        let mut watch = follow(folder);
        let data = Swatches::for_config(&config);
        let mut trainer = Trainer::with(&config, &data, device.clone(), options)?;
        let finished = trainer.run(watch.as_mut())?;
        drop(watch);
        if finished.interrupted {
            return Err(Error::new(format!(
                "the demo was stopped at step {}; run it again for the report",
                finished.step
            )));
        }
        let trained = trainer.finish()?;
        let drawn = trained.sample(SAMPLES, SampleOptions::default())?;
        let originals = first_images(&data, Split::Test, 24)?;
        let found = trained.reconstruct(&originals)?;
        let scale = comfortable_scale(config.model.size).min(2);
        let samples_sheet = grid(&drawn, 16, 2, scale)?;
        let found_sheet = grid(&found, 8, 2, scale)?;
        samples_sheet.save(out.join(format!("{folder}-samples.png")))?;
        found_sheet.save(out.join(format!("{folder}-reconstructions.png")))?;
        if originals_sheet.is_none() {
            let sheet = grid(&originals, 8, 2, scale)?;
            sheet.save(out.join("originals.png"))?;
            originals_sheet = Some(sheet);
        }
        if let Some(last) = &finished.last {
            let rows = layer_rows(&config, last).into_iter();
            layers.extend(rows.map(|row| [vec![name.to_string()], row].concat()));
        }
        models.push(ModelOutcome {
            name: name.into(),
            uniform: drawn.iter().filter(|p| is_uniform(p)).count(),
            samples: drawn.len(),
            bits_per_dim: finished.last.map_or(f64::NAN, |r| r.bits_per_dim),
            seconds: start.elapsed().as_secs_f64(),
        });
        all_samples.push(drawn);
        rows.push((name, samples_sheet, found_sheet));
        curves.push(curve(name, &read(Run::open(&dir)?.log())?));
    }
    side_by_side(&all_samples[0], &all_samples[1])?.save(out.join("comparison.png"))?;
    let report = out.join("report.html");
    let seconds = begin.elapsed().as_secs_f64();
    write_report(
        &report,
        &models,
        rows,
        &layers,
        curves,
        originals_sheet,
        seconds,
    )?;
    Ok(Outcome {
        models,
        report,
        seconds,
    })
}

/// Eight columns of each, a gap between them.
fn side_by_side(left: &[Picture], right: &[Picture]) -> Result<Picture> {
    let Some(first) = left.first() else {
        return Err(Error::new("there are no samples to compare"));
    };
    let [h, w, c] = first.shape();
    let blank = Picture::new([h, w, c], vec![255; h * w * c])?;
    let mut all = Vec::new();
    for (a, b) in left.chunks(8).zip(right.chunks(8)) {
        all.extend(a.iter().chain([&blank]).chain(b).cloned());
    }
    grid(&all, 17, 2, 1)
}

/// Bits a dimension by step, as evaluated.
fn curve(name: &str, records: &[Record]) -> Series {
    let evaluations = records.iter().filter_map(Record::evaluation);
    let points = evaluations.map(|eval| (eval.step as f64, eval.bits_per_dim));
    Series::new(name, points.collect())
}

fn write_report(
    path: &Path,
    models: &[ModelOutcome],
    rows: Vec<(&str, Picture, Picture)>,
    layers: &[Vec<String>],
    curves: Vec<Series>,
    originals: Option<Picture>,
    seconds: f64,
) -> Result<()> {
    let mut report = Report::new("Samples of one layer, samples of a hierarchy")
        .paragraph(&format!(
            "Every training image has one of nine colours. The paper's claim: a model with one layer of latents draws patchworks, a hierarchy draws whole pictures. The table says what came out here, for one seed. A sample counts as uniform when no channel varies by more than {SPREAD} of 256 levels over the image. Trained and drawn in {seconds:.0} seconds."
        ));
    let cells = |m: &ModelOutcome| {
        [
            m.name.clone(),
            format!("{} of {}", m.uniform, m.samples),
            format!("{:.4}", m.bits_per_dim),
            format!("{:.0}", m.seconds),
        ]
    };
    let table: Vec<[String; 4]> = models.iter().map(cells).collect();
    report = report.table(
        &[
            "model",
            "samples of one colour",
            "test bits per dim",
            "seconds",
        ],
        &table,
    );
    if let Some(picture) = originals {
        report = report.heading("The data").figure(&Figure {
            picture: &picture,
            caption: "Test images".into(),
            alt: "squares of one colour each".into(),
        })?;
    }
    for (name, samples, found) in rows {
        report = report.heading(name).figures_row(&[
            Figure {
                picture: &samples,
                caption: "Samples of the prior".into(),
                alt: format!("samples of {name}"),
            },
            Figure {
                picture: &found,
                caption: "Reconstructions of the test images".into(),
                alt: format!("reconstructions by {name}"),
            },
        ])?;
    }
    report
        .heading("Where the bits are")
        .paragraph("Naming one of nine equally likely colours takes 3.17 bits. A hierarchy that has understood the data pays that once, at the top; one layer has to pay at every position.")
        .table(&[&["model"], &LAYER_HEADERS[..]].concat(), layers)
        .heading("Learning")
        .chart(&Chart {
            title: "Test bits per dim, hard samples, averaged weights".into(),
            x_label: "step".into(),
            y_label: "bits per dim".into(),
            log_x: false,
            log_y: false,
            dots: false,
            series: curves,
        })
        .write(path)
}
