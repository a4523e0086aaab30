//! Each command: from arguments to library calls to lines.

use crate::args;
use crate::device::Compute;
use crate::launch::{group_of, together, with_others};
use crate::output::check_free;
use crate::prior;
use crate::terminal::{
    Follow, SAVING, STOPPING, bar, grouped, json, line, note, table, watch_for_interrupts,
};
use rrvq::cluster::Cluster;
use rrvq::config::{self, Config};
use rrvq::dataset::{Dataset, Split};
use rrvq::evaluate::EvalRecord;
use rrvq::evaluate::{Evaluator, Extent, importance_bound};
use rrvq::latent;
use rrvq::picture::{Picture, comfortable_scale, grid};
use rrvq::run::Run;
use rrvq::train::log::{Record, read};
use rrvq::{Error, Group, PixelValues, Result, SampleOptions, Trained};
use rrvq_study::demo as demonstration;
use rrvq_study::framework::first_images;
use serde_json::json;
use std::path::Path;

/// Images a batch of evaluation on the CPU, unless the run trained with fewer.
const EVAL_BATCH: usize = 64;
/// The same on a GPU, which needs more of them to be busy.
const EVAL_BATCH_GPU: usize = 256;

pub fn demo(args: &args::Demo) -> Result<()> {
    watch_for_interrupts(SAVING)?;
    line(
        "Two models on images of one of nine colours each: one layer of codes, and a hierarchy of five.",
    );
    let mut follow = |name: &str| -> Box<dyn rrvq::train::Watch> { Box::new(Follow::quiet(name)) };
    let outcome = demonstration::run(&args.out, &mut follow)?;
    table(
        &["model", "samples of one colour", "bits/dim", "seconds"],
        &outcome
            .models
            .iter()
            .map(|m| {
                let uniform = format!("{} of {}", m.uniform, m.samples);
                vec![
                    m.name.clone(),
                    uniform,
                    format!("{:.4}", m.bits_per_dim),
                    format!("{:.0}", m.seconds),
                ]
            })
            .collect::<Vec<_>>(),
    );
    line(format!("{} seconds in all", outcome.seconds.round()));
    line(format!("report: {}", outcome.report.display()));
    Ok(())
}

/// Opens the data set, with a bar while it is decoded.
pub fn open_data(config: &Config) -> Result<Box<dyn Dataset>> {
    let mut shown = None;
    let data = rrvq_data::open_followed(config, &mut |done, total| {
        let bar = shown.get_or_insert_with(|| bar("decoding images", total));
        bar.set_position(done as u64);
    });
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    data
}

pub fn eval(args: &args::Eval) -> Result<()> {
    with_others(args.compute, |compute, cluster| {
        eval_as(args, compute, cluster)
    })
}

fn eval_as(args: &args::Eval, compute: Compute, cluster: Option<&Cluster>) -> Result<()> {
    let device = compute.open()?;
    let (group, silent) = group_of(cluster)?;
    let group = group.as_ref();
    let split: Split = args.split.parse()?;
    let trained = Trained::open(&args.run)?;
    let (mut config, model, step) = (trained.config().clone(), trained.model(), trained.step());
    let mut store = trained.store();
    if let Some(dir) = &args.data {
        config.data.dir = Some(dir.clone());
    }
    let data = open_data(&config)?;
    watch_for_interrupts(STOPPING)?;
    let extent = Extent {
        split,
        images: args.images,
    };
    let batch = args.batch.unwrap_or(match device.is_cpu() {
        true => config.train.batch.min(EVAL_BATCH),
        false => EVAL_BATCH_GPU,
    });
    let world = group.map_or(1, Group::world);
    if !batch.is_multiple_of(world) {
        return Err(Error::new(format!(
            "batches of {batch} images cannot be shared by {world} processes; give --batch a multiple of {world}"
        )));
    }
    let total = data.len(split);
    let progress = bar(
        "evaluating",
        if args.images == 0 {
            total
        } else {
            total.min(args.images)
        },
    );
    let objective = config.train.objective;
    let mut evaluator =
        Evaluator::for_objective(&device, model, data.as_ref(), batch, objective, group)?;
    let mut record =
        evaluator.evaluate_watched(&mut store, extent, |n| progress.set_position(n as u64))?;
    progress.finish_and_clear();
    record.step = step as usize;
    let bound = match args.samples {
        1 => None,
        k => Some(importance_bound(
            &device,
            model,
            &mut store,
            data.as_ref(),
            extent,
            (batch, group),
            k as usize,
        )?),
    };
    if silent {
        return Ok(());
    }
    let prior = trained.prior()?;
    let with_prior = match prior {
        None => None,
        Some(mut found) => match found.check(&store) {
            Err(stale) => Some((stale.to_string(), json!({ "stale": true }))),
            Ok(()) => {
                let progress = bar("codes", record.images);
                let mut watch = |n| progress.set_position(n as u64);
                let pair = (model, &mut store);
                let kl = found.evaluate(&device, pair, data.as_ref(), extent, batch, &mut watch)?;
                progress.finish_and_clear();
                Some(prior::judged(&record, &found, kl))
            }
        },
    };
    if args.json {
        let mut out = serde_json::to_value(&record)
            .map_err(|e| Error::new(format!("cannot write JSON: {e}")))?;
        out["samples"] = json!(args.samples);
        out["importance_bound"] = json!(bound);
        out["prior"] = with_prior.map_or(serde_json::Value::Null, |(_, value)| value);
        json(&out);
        return Ok(());
    }
    line(format!(
        "{}: {:.4} bits/dim on {} {} images (step {}, {:.1} s)",
        args.run.display(),
        record.bits_per_dim,
        record.images,
        record.split,
        record.step,
        record.seconds
    ));
    if let Some((text, _)) = with_prior {
        line(text);
    }
    if let Some(bound) = bound {
        line(format!(
            "importance bound with {} samples: {bound:.4} bits/dim",
            args.samples
        ));
    }
    line(format!(
        "reconstruction: {:.4} bits/dim",
        record.reconstruction
    ));
    if let Some((rate, quality)) = record.rate_and_quality(&config.model) {
        line(format!(
            "rate and distortion: {rate:.4} bits a pixel, {quality:.2} dB (PSNR); {:.4} bits/dim at {} squared error a bit",
            record.objective(&config.train),
            config.train.bit_worth
        ));
    }
    layer_table(&config, &record);
    Ok(())
}

fn layer_table(config: &Config, record: &EvalRecord) {
    let sides = config.model.sides();
    let row = |layer: usize| {
        let mut cells = vec![
            format!("{}", layer + 1),
            format!("{0}x{0}", sides[layer]),
            format!("{:.5}", record.kl[layer].max(0.0)),
        ];
        if let Some(usage) = record.usage.get(layer) {
            cells.push(format!("{:.1}", usage.perplexity));
            cells.push(format!("{} of {}", usage.used, usage.used + usage.dead));
        }
        let size = record.embedding_size.get(layer);
        cells.extend(size.map(|size| format!("{size:.2}")));
        cells
    };
    let rows: Vec<Vec<String>> = (0..record.kl.len().min(sides.len()))
        .rev()
        .map(row)
        .collect();
    let titles = [
        "layer",
        "map",
        "KL bits/dim",
        "perplexity",
        "codes used",
        "embedding RMS",
    ];
    // Gaussians have no codes to use, and not all codes have embeddings.
    let shown = rows.first().map_or(0, Vec::len);
    table(&titles[..shown], &rows);
}

/// Says what to know of the pictures of a model, where its likelihood has something to say.
pub fn caution(trained: &Trained) {
    if let Some(text) = rrvq::likelihood::of(&trained.config().model).caution() {
        note(text);
    }
}

pub fn sample(args: &args::Sample) -> Result<()> {
    with_others(args.compute, |compute, cluster| {
        sample_as(args, compute, cluster)
    })
}

fn sample_as(args: &args::Sample, compute: Compute, cluster: Option<&Cluster>) -> Result<()> {
    let device = compute.open()?;
    let (collective, silent) = together(cluster);
    check_temperature(args.temperature)?;
    check_free(&args.out)?;
    let trained = Trained::open(&args.run)?.on(device);
    if args.pixels == Some(PixelValues::Means) {
        caution(&trained);
    }
    let (config, mut store) = (trained.config(), trained.store());
    let count = args.count as usize;
    let options = SampleOptions {
        seed: args.seed,
        temperature: args.temperature,
        pixels: args.pixels,
        min_p: args.min_p,
    };
    check_min_p(&options, &trained)?;
    if args.uniform && config.model.layers() > 1 {
        return Err(Error::new(format!(
            "--uniform is for one layer of codes with a PixelCNN prior, but {} has {} layers with a learnt prior; leave it out",
            args.run.display(),
            config.model.layers()
        )));
    }
    let found = match args.uniform {
        true => None,
        false => trained.prior()?,
    };
    let (drawn, of) = match (found, &args.given, args.from_layer) {
        // Few pictures, which one process draws.
        (_, Some(_), Some(_)) if silent => return Ok(()),
        (_, Some(image), Some(layer)) => {
            let drawn = redrawn(&trained, image, layer, count, options)?;
            (drawn, ", the image first")
        }
        (Some(mut found), ..) => {
            found.check(&store)?;
            let progress = bar("rows of codes", found.rows(count));
            let mut watch = |n| progress.set_position(n as u64);
            let pair = (trained.model(), &mut store);
            let others = collective.as_deref();
            let drawn =
                found.samples(trained.device(), pair, count, options, others, &mut watch)?;
            progress.finish_and_clear();
            (drawn, " of the PixelCNN prior")
        }
        (None, ..) => {
            let drawn = trained.sample_together(count, options, collective.as_deref())?;
            (drawn, "")
        }
    };
    if silent {
        return Ok(());
    }
    save_sheet(&args.out, &drawn, columns(drawn.len()), config.model.size)?;
    note(format!(
        "{} samples{of}: {}",
        drawn.len(),
        args.out.display()
    ));
    if config.data.name == "swatches" {
        let whole = drawn.iter().filter(|p| demonstration::is_uniform(p));
        note(format!(
            "{} of {} have one colour",
            whole.count(),
            drawn.len()
        ));
    }
    Ok(())
}

/// An image, and pictures whose codes are the image's above `layer` and drawn by the prior from it down.
fn redrawn(
    trained: &Trained,
    image: &Path,
    layer: usize,
    count: usize,
    options: SampleOptions,
) -> Result<Vec<Picture>> {
    let model = &trained.config().model;
    let layers = model.layers();
    if !(1..=layers).contains(&layer) {
        return Err(Error::new(format!(
            "--from-layer {layer} is not a layer of the model; expected 1, the lowest, to {layers}"
        )));
    }
    let image = Picture::load(image, model.size, model.image_channels)?;
    let codes = trained.encode(std::slice::from_ref(&image))?;
    let held = codes.top(layers - layer).repeated(count.saturating_sub(1));
    let mut all = vec![image];
    all.extend(trained.show(&held, options)?);
    Ok(all)
}

/// About as many columns as rows, at most sixteen.
pub fn columns(count: usize) -> usize {
    ((count as f64).sqrt().ceil() as usize).clamp(1, 16)
}

/// Refuses to choose what pixels are drawn from where none are drawn.
pub fn check_min_p(options: &SampleOptions, trained: &Trained) -> Result<()> {
    let shown = options.shown(&trained.config().model);
    match options.min_p > 0.0 && shown == PixelValues::Means {
        false => Ok(()),
        true => Err(Error::new(format!(
            "--min-p {} is for pixels that are drawn, and here their means are shown; give --pixels drawn too",
            options.min_p
        ))),
    }
}

/// Refuses what is no temperature of a prior.
pub fn check_temperature(temperature: f32) -> Result<()> {
    match temperature >= 0.0 && temperature.is_finite() {
        true => Ok(()),
        false => Err(Error::new(format!(
            "--temperature {temperature} is not a temperature; give 0 or more"
        ))),
    }
}

pub fn save_sheet(path: &Path, shown: &[Picture], columns: usize, size: usize) -> Result<()> {
    grid(shown, columns, 2, comfortable_scale(size))?.save(path)
}

pub fn reconstruct(args: &args::Reconstruct) -> Result<()> {
    let device = args.compute.open()?;
    check_free(&args.out)?;
    let trained = Trained::open(&args.run)?.on(device);
    caution(&trained);
    let config = trained.config();
    let (size, channels) = (config.model.size, config.model.image_channels);
    let originals: Vec<Picture> = if args.images.is_empty() {
        let data = open_data(config)?;
        first_images(data.as_ref(), Split::Test, args.count as usize)?
    } else {
        args.images
            .iter()
            .map(|path| Picture::load(path, size, channels))
            .collect::<Result<_>>()?
    };
    let found = trained.reconstruct(&originals)?;
    let columns = columns(originals.len() * 2).min(originals.len()).max(1);
    let blank = Picture::new([size, size, channels], vec![255; size * size * channels])?;
    let mut sheet = Vec::new();
    for (above, below) in originals.chunks(columns).zip(found.chunks(columns)) {
        for row in [above, below] {
            sheet.extend(row.iter().cloned());
            sheet.extend(std::iter::repeat_n(blank.clone(), columns - row.len()));
        }
    }
    save_sheet(&args.out, &sheet, columns, size)?;
    note(format!(
        "{}, each above its reconstruction: {}",
        crate::codec::count(originals.len()),
        args.out.display()
    ));
    Ok(())
}

pub fn report(args: &args::Report) -> Result<()> {
    check_free(&args.out)?;
    let runs: Result<Vec<Run>> = args.runs.iter().map(Run::open).collect();
    rrvq_study::report::runs::write(&runs?, &args.out)?;
    note(format!("written: {}", args.out.display()));
    Ok(())
}

pub fn info(args: &args::Info) -> Result<()> {
    let trained = Trained::open(&args.run)?;
    let (config, model, step) = (trained.config(), trained.model(), trained.step());
    let records = match trained.run() {
        Some(run) => read(run.log())?,
        None => Vec::new(),
    };
    let last = records.iter().rev().find_map(Record::evaluation);
    let m = &config.model;
    let with_prior = match trained.run() {
        Some(run) => prior::described(run)?,
        None => None,
    };
    if args.json {
        let out = json!({
            "run": args.run, "data": config.data.name, "layers": m.layers(), "sides": m.sides(),
            "channels": m.channels, "embed": m.embed, "parameters": model.layout.count(),
            "step": step, "steps": config.train.steps, "last_evaluation": last,
            "prior": with_prior.map(|(_, value)| value),
        });
        json(&out);
        return Ok(());
    }
    // A packed model may not know how long it was trained.
    let steps = match (step, trained.run()) {
        (0, None) => String::new(),
        _ => format!(" {step} of {} steps", config.train.steps),
    };
    let (name, data) = (args.run.display(), &config.data.name);
    line(format!("{name}: trained{steps} on {data}"));
    line(format!(
        "{} layers, {} channels, embeddings of {} dimensions, {} parameters",
        m.layers(),
        m.channels,
        m.embed,
        grouped(model.layout.count())
    ));
    match rrvq::latent::bits_of_image(m) {
        Some(bits) => line(format!("an image is at most {bits:.0} bits of latents")),
        None => line("latents are continuous: their bits are what the KL says"),
    }
    if let Some(Record::Diverged(end)) = records.last() {
        line(format!("it stopped: {}", end.said));
    }
    match last {
        Some(eval) => {
            line(format!(
                "last evaluation, step {}: {:.4} bits/dim on {} {} images",
                eval.step, eval.bits_per_dim, eval.images, eval.split
            ));
            layer_table(config, eval);
        }
        None if trained.run().is_none() => {
            line("a packed model keeps no evaluations: `rrvq eval` makes one")
        }
        None => line("not evaluated yet"),
    }
    if let Some((text, _)) = with_prior {
        line(text);
    }
    Ok(())
}

pub fn presets(args: &args::Presets) -> Result<()> {
    if args.keys {
        for key in Config::default().keys() {
            line(format!("{} = {}\n    {}", key.path, key.default, key.doc));
        }
        for kind in latent::KINDS {
            for (option, doc) in kind.options() {
                let name = kind.name();
                line(format!(
                    "model.options.{option}\n    With model.latent = \"{name}\": {doc}"
                ));
            }
        }
        return Ok(());
    }
    match &args.name {
        Some(name) => line(Config::preset(name)?.to_toml()?.trim_end()),
        None => {
            let names = config::presets().into_iter().map(|(name, _)| name.len());
            let width = names.max().unwrap_or(0);
            for (i, (title, presets)) in config::preset_groups().into_iter().enumerate() {
                line(format!("{}{title}", if i > 0 { "\n" } else { "" }));
                presets
                    .iter()
                    .for_each(|(name, what)| line(format!("  {name:width$}  {what}")));
            }
            line(
                "\n`rrvq presets NAME` prints all settings of one; a file of yours may begin with: base = \"NAME\"",
            );
        }
    }
    Ok(())
}
