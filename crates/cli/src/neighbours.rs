//! `rrvq neighbours`: samples beside the training images nearest to them.

use crate::args;
use crate::commands::{open_data, save_sheet};
use crate::terminal::{bar, json, line};
use rrvq::dataset::Split;
use rrvq::{Result, SampleOptions, Trained};
use rrvq_study::framework::first_images;
use rrvq_study::neighbours::{Neighbour, flips, nearest};
use serde_json::json;

/// Samples beside their nearest training images.
pub fn neighbours(args: &args::Neighbours) -> Result<()> {
    let device = args.compute.open()?;
    let trained = Trained::open(&args.run)?.on(device);
    let mut config = trained.config().clone();
    if let Some(dir) = &args.data {
        config.data.dir = Some(dir.clone());
    }
    let data = open_data(&config)?;
    let options = SampleOptions {
        seed: args.seed,
        ..SampleOptions::default()
    };
    let samples = trained.sample(args.count as usize, options)?;
    let unseen = first_images(data.as_ref(), Split::Test, samples.len())?;
    let progress = bar("training images", data.len(Split::Train));
    let all = [samples.clone(), unseen].concat();
    let watch = |n| progress.set_position(n as u64);
    let (near, flips) = (args.nearest as usize, flips(&config, data.as_ref()));
    let found = nearest(&all, data.as_ref(), near, flips, watch)?;
    progress.finish_and_clear();
    let (of_samples, of_unseen) = found.split_at(samples.len());
    let mut sheet = Vec::new();
    for (sample, near) in samples.iter().zip(of_samples) {
        sheet.push(sample.clone());
        sheet.extend(near.iter().map(|n| n.picture.clone()));
    }
    let columns = sheet.len() / samples.len();
    save_sheet(&args.out, &sheet, columns, config.model.size)?;
    if args.json {
        json(&json!({
            "flips": flips,
            "samples": listed(of_samples),
            "test_images": listed(of_unseen),
        }));
        return Ok(());
    }
    line(format!(
        "{} samples, each before its nearest training images: {}",
        samples.len(),
        args.out.display()
    ));
    if flips {
        let shown = of_samples.iter().flatten();
        line(format!(
            "training images mirrored where that is nearer, as training flips them: {} of {}",
            shown.clone().filter(|n| n.mirrored).count(),
            shown.count()
        ));
    }
    line(format!("samples to the nearest: {}", told(of_samples)));
    line(format!("test images to theirs: {}", told(of_unseen)));
    Ok(())
}

/// For each picture, its nearest training images: number, distance, orientation.
fn listed(found: &[Vec<Neighbour>]) -> serde_json::Value {
    let one =
        |n: &Neighbour| json!({ "index": n.index, "distance": n.distance, "mirrored": n.mirrored });
    let all = found
        .iter()
        .map(|near| near.iter().map(one).collect::<Vec<_>>());
    json!(all.collect::<Vec<_>>())
}

/// How far pictures are from the training image nearest to each.
fn told(found: &[Vec<Neighbour>]) -> String {
    let mut nearest: Vec<f64> = found
        .iter()
        .filter_map(|n| Some(n.first()?.distance))
        .collect();
    nearest.sort_by(f64::total_cmp);
    let least = nearest.first().copied().unwrap_or(f64::NAN);
    let median = nearest.get(nearest.len() / 2).copied().unwrap_or(f64::NAN);
    format!("{median:.1} levels in the middle, {least:.1} at least")
}
