//! Commands about the pictures of a model: the way between two images, and how good samples are.

use crate::args;
use crate::commands::{caution, check_temperature, open_data, save_sheet};
use crate::output::check_free;
use crate::terminal::{bar, json, line, note};
use rrvq::dataset::Split;
use rrvq::picture::Picture;
use rrvq::{Result, SampleOptions, Trained};
use rrvq_study::framework::first_images;
use rrvq_study::quality::features::Features;
use rrvq_study::quality::{NEAREST, compare};
use serde_json::json;

/// Pictures in a row of a strip.
const ROW: usize = 16;
/// Steps of training the network whose features samples are judged by.
const FEATURE_STEPS: usize = 1500;

pub fn interpolate(args: &args::Interpolate) -> Result<()> {
    let device = args.compute.open()?;
    check_free(&args.out)?;
    let trained = Trained::open(&args.model)?.on(device);
    caution(&trained);
    let model = &trained.config().model;
    let (size, channels) = (model.size, model.image_channels);
    let [first, second] =
        [&args.first, &args.second].map(|path| Picture::load(path, size, channels));
    let way = trained.interpolate(&first?, &second?, args.count as usize, args.fill)?;
    save_sheet(&args.out, &way, way.len().min(ROW), size)?;
    note(format!(
        "{} pictures from {} to {}, codes exchanged from the top layer down: {}",
        way.len(),
        args.first.display(),
        args.second.display(),
        args.out.display()
    ));
    Ok(())
}

pub fn quality(args: &args::Quality) -> Result<()> {
    let device = args.compute.open()?;
    check_temperature(args.temperature)?;
    let trained = Trained::open(&args.run)?.on(device.clone());
    let mut config = trained.config().clone();
    if let Some(dir) = &args.data {
        config.data.dir = Some(dir.clone());
    }
    let data = open_data(&config)?;
    let progress = bar("features", 3);
    let features = Features::of(&device, data.as_ref(), FEATURE_STEPS)?;
    progress.inc(1);
    let count = args.count as usize;
    let options = SampleOptions {
        seed: args.seed,
        temperature: args.temperature,
        ..SampleOptions::default()
    };
    let real = first_images(data.as_ref(), Split::Test, count)?;
    let seen = first_images(data.as_ref(), Split::Train, count)?;
    let drawn = trained.sample(count, options)?;
    progress.inc(1);
    let real = features.of_pictures(&real)?;
    let samples = compare(&real, &features.of_pictures(&drawn)?)?;
    let training = compare(&real, &features.of_pictures(&seen)?)?;
    progress.finish_and_clear();
    let told = [("samples", samples), ("training images", training)];
    if args.json {
        let of = |found: rrvq_study::quality::Quality| {
            json!({
                "frechet_distance": found.frechet, "precision": found.precision, "recall": found.recall,
            })
        };
        json(&json!({
            "run": args.run, "features": "rrvq", "learnt_from": features.learnt_from, "nearest": NEAREST,
            "images": real.len(), "count": drawn.len(), "samples": of(samples), "training_images": of(training),
        }));
        return Ok(());
    }
    line(format!(
        "{} samples and {} test images, features of rrvq's own network, learnt from the data set's {}:",
        drawn.len(),
        real.len(),
        features.learnt_from
    ));
    for (what, found) in told {
        line(format!(
            "{what}: Fréchet distance {:.4}, precision {:.3}, recall {:.3}",
            found.frechet, found.precision, found.recall
        ));
    }
    Ok(())
}
