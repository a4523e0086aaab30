//! `rrvq compress`, `rrvq decompress`, `rrvq bench codec`. What is different with loss is in [`crate::lossy`].

use crate::args::{BenchCodec, Compress, Decompress, Pack};
use crate::bench::peak_memory_mib;
use crate::commands::open_data;
use crate::lossy;
use crate::terminal::{bar, complain, grouped, line, table};
use rrvq::dataset::Split;
use rrvq::files::write_atomic;
use rrvq::{Error, Result, Trained, models};
use rrvq_codec::networks::Networks;
use rrvq_codec::{
    Coding, CodingModel, Image, Reader, Writer, bench, built_in_of, neighbours, prune, read,
};
use rrvq_study::compare::source;
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Instant;

/// The model to code with: the one that is named, or the built-in one.
pub fn model(named: Option<&Path>) -> Result<Trained> {
    Trained::open(named.unwrap_or(Path::new(models::DEFAULT)))
}

pub fn pack(args: &Pack) -> Result<()> {
    if args.out.exists() && !args.force {
        return Err(Error::new(format!(
            "{} is there already; choose another name or replace it with --force",
            args.out.display()
        )));
    }
    let mut model = Trained::open(&args.run)?;
    let mut config = model.config().clone();
    if let Some(dir) = &args.data {
        config.data.dir = Some(dir.clone());
    }
    let data = match args.prune.or(args.neighbours) {
        Some(_) => Some(open_data(&config)?),
        None => None,
    };
    if let (Some(images), Some(data)) = (args.prune, &data) {
        let progress = bar("looking for codes", images.min(data.len(Split::Train)));
        let watch = |done: usize| progress.set_position(done as u64);
        model = prune::prune(&model, data.as_ref(), images, watch)?;
        progress.finish_and_clear();
        let settings = &model.config().model;
        let codes = (0..settings.layers()).map(|l| settings.codes.at(l).to_string());
        let codes: Vec<String> = codes.collect();
        line(format!(
            "codes in use, bottom layer first: {}",
            codes.join(", ")
        ));
    }
    if let (Some(images), Some(data)) = (args.neighbours, &data) {
        let mut networks = Networks::new(model.model(), model.theta())?;
        let progress = bar("fitting neighbours", 2 * images.min(data.len(Split::Train)));
        let watch = |more: usize| progress.inc(more as u64);
        let found = neighbours::fit(&mut networks, data.as_ref(), images, watch)?;
        progress.finish_and_clear();
        model = model.with_neighbours(&found);
    }
    let bytes = model.pack()?;
    write_atomic(&args.out, |file| file.write_all(&bytes))?;
    let identity = Trained::open(&args.out)?.identity()?;
    line(format!(
        "{}: {}, model {identity:?}; use it with --model",
        args.out.display(),
        size(bytes.len())
    ));
    Ok(())
}

pub fn compress(args: &Compress) -> Result<()> {
    let start = Instant::now();
    let (mut workers, identity) = model(args.model.as_deref())?.workers()?;
    let out = &args.out;
    if out.exists() && !args.force {
        return Err(Error::new(format!(
            "{} is there already; choose another name or replace it with --force",
            out.display()
        )));
    }
    if args.lossy {
        return lossy::compress(args, workers, identity);
    }
    let progress = bar("compressing", 0);
    let mut writer = Writer {
        workers: &mut workers,
        identity,
        coding: Coding::Smaller,
        check: true,
        watch: &|samples| progress.inc(samples as u64),
    };
    // Images are opened when their turn comes: the bar's end moves away as they do.
    let images = args
        .images
        .iter()
        .map(|path| Image::open(path).inspect(|image| progress.inc_length(image.bytes() as u64)));
    let summary = write_file(out, |file| writer.write(images, args.images.len(), file));
    progress.finish_and_clear();
    let summary = summary?;
    let seconds = start.elapsed().as_secs_f64();
    let bits = summary.bytes as f64 * 8.0 / summary.samples as f64;
    if args.json {
        let told = json!({
            "file": out, "images": summary.images, "by_model": summary.by_model, "pixels": summary.pixels,
            "samples": summary.samples, "bytes": summary.bytes, "tile_bytes": summary.tile_bytes,
            "bits_per_sample": bits, "model": format!("{identity:?}"), "seconds": seconds,
        });
        line(told.to_string());
        return Ok(());
    }
    line(format!(
        "{}: {} as they are, {} compressed: {bits:.3} bits a sample, {:.1} times smaller ({seconds:.1} s)",
        count(summary.images),
        size(summary.samples),
        size(summary.bytes),
        summary.samples as f64 / summary.bytes as f64,
    ));
    let predicted = summary.images - summary.by_model;
    if predicted > 0 {
        line(format!(
            "{} of them smaller by plain prediction than by the model",
            grouped(predicted)
        ));
    }
    line(format!(
        "every image was read back and compared; the file is {}",
        out.display()
    ));
    Ok(())
}

/// Writes a file whole or not at all. What is not written by the disk's fault and what is not by the image's need
/// different sentences.
pub fn write_file<T: Default>(
    path: &Path,
    write: impl FnOnce(&mut dyn std::io::Write) -> Result<T>,
) -> Result<T> {
    let mut outcome = Ok(T::default());
    let written = write_atomic(path, |file| {
        outcome = write(file);
        match &outcome {
            Ok(_) => Ok(()),
            Err(_) => Err(std::io::ErrorKind::Other.into()),
        }
    });
    outcome.and_then(|done| written.map(|()| done))
}

pub fn decompress(args: &Decompress) -> Result<()> {
    let file = &args.file;
    if lossy::is_lossy(file) {
        return lossy::decompress(args);
    }
    if args.partial {
        return Err(Error::new(format!(
            "{} was not compressed with loss, and a part of it makes no picture; get the images that are whole with \
             --keep-going",
            file.display()
        )));
    }
    let named = |said: Error| Error::new(format!("{}: {said}", file.display()));
    let damaged = |said: Error| {
        Error::new(format!(
            "{} cannot be decompressed: {said}; fetch it again, or get what is whole with --keep-going",
            file.display()
        ))
    };
    let open = || -> Result<BufReader<File>> {
        let opened = File::open(file).map_err(|error| Error::io("open", file, error))?;
        Ok(BufReader::new(opened))
    };
    // Before anything is written: a whole file, unless what is left of a damaged one is wanted.
    let header = match args.keep_going {
        false => read::check(&mut open()?).map_err(damaged)?,
        true => Reader::new(&mut open()?).map_err(named)?.header,
    };
    let mut workers = match &args.model {
        // Without a built-in model's name in it, a file may still hold images that need no model.
        None => match built_in_of(|identity| identity == header.identity)? {
            Some(trained) => Some(trained.workers()?.0),
            None => None,
        },
        Some(run) => {
            let (workers, identity) = Trained::open(run)?.workers()?;
            if identity != header.identity {
                return Err(Error::new(format!(
                    "{} was compressed with the model {}, and {} holds {identity}; name the run it was made with",
                    file.display(),
                    header.identity,
                    run.display()
                )));
            }
            Some(workers)
        }
    };
    std::fs::create_dir_all(&args.out).map_err(|error| Error::io("create", &args.out, error))?;
    let len = std::fs::metadata(file).map_or(0, |found| found.len());
    let progress = bar("decompressing", len as usize);
    let mut input = progress.wrap_read(open()?);
    let mut reader = Reader::new(&mut input).map_err(named)?;
    let (mut done, mut lost) = (0usize, Vec::new());
    let ended = 'file: loop {
        let segment = reader.segment(workers.as_mut(), &|_| {});
        let outcomes = match segment {
            Ok(Some(outcomes)) => outcomes,
            Ok(None) => break Ok(()),
            Err(said) => break Err(said),
        };
        for outcome in outcomes {
            let saved = outcome.image.and_then(|image| save(args, &image));
            match saved {
                Ok(()) => done += 1,
                Err(said) => lost.push(match outcome.name.is_empty() {
                    true => said.to_string(),
                    false => format!("{}: {said}", outcome.name.display()),
                }),
            }
            if !lost.is_empty() && !args.keep_going {
                break 'file Ok(());
            }
        }
    };
    progress.finish_and_clear();
    if let Err(said) = ended {
        lost.push(said.tell(crate::flag));
    }
    if args.json {
        let told = json!({"file": file, "images": done, "announced": header.images, "lost": lost});
        line(told.to_string());
    } else {
        line(format!("{} in {}", count(done), args.out.display()));
    }
    match lost.split_last() {
        None => Ok(()),
        Some((last, others)) => {
            others.iter().for_each(complain);
            Err(Error::new(format!(
                "{}: {last}; {} of {} images could be had",
                file.display(),
                grouped(done),
                grouped(header.images)
            )))
        }
    }
}

pub fn save(args: &Decompress, image: &Image) -> Result<()> {
    let mut name = image.name.clone();
    name.push(".png");
    let path = args.out.join(name);
    if path.exists() && !args.force {
        return Err(Error::new(format!(
            "{} is there already; choose another folder or replace it with --force",
            path.display()
        )));
    }
    let png = image.to_png();
    write_atomic(&path, |file| file.write_all(&png))
}

pub fn count(images: usize) -> String {
    match images {
        1 => "1 image".into(),
        many => format!("{} images", grouped(many)),
    }
}

pub fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{} bytes", grouped(bytes)),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

pub fn bench(args: &BenchCodec) -> Result<()> {
    let model = model(args.model.as_deref())?;
    let (mut workers, identity) = model.workers()?;
    let images = match args.images.is_empty() {
        false => args.images.iter().map(Image::open).collect::<Result<_>>()?,
        true => source::images(model.config(), args.data.as_deref(), args.count as usize)?.images,
    };
    let measured = bench::measure(&mut workers, identity, &images)?;
    let peak = peak_memory_mib();
    if args.json {
        let side = |side: &bench::Side| {
            json!({
                "threads": side.threads, "write_mb_per_second": side.write, "read_mb_per_second": side.read,
                "write_coder_share": side.write_coder_share, "read_coder_share": side.read_coder_share,
                "write_seconds_per_megapixel": side.write_seconds_per_megapixel,
                "read_seconds_per_megapixel": side.read_seconds_per_megapixel,
            })
        };
        let told = json!({
            "images": images.len(), "samples": measured.samples, "bytes": measured.bytes,
            "bits_per_sample": measured.bytes as f64 * 8.0 / measured.samples as f64,
            "one": side(&measured.one), "all": side(&measured.all),
            "planned_mib": measured.planned as f64 / (1 << 20) as f64, "peak_memory_mib": peak,
        });
        line(told.to_string());
        return Ok(());
    }
    line(format!(
        "{}, {} to {}, {:.3} bits a sample",
        count(images.len()),
        size(measured.samples),
        size(measured.bytes),
        measured.bytes as f64 * 8.0 / measured.samples as f64
    ));
    let row = |side: &bench::Side| {
        vec![
            side.threads.to_string(),
            format!("{:.2}", side.write),
            format!("{:.2}", side.read),
            format!("{:.0}", 100.0 * side.write_coder_share),
            format!("{:.0}", 100.0 * side.read_coder_share),
            format!("{:.2}", side.write_seconds_per_megapixel),
            format!("{:.2}", side.read_seconds_per_megapixel),
        ]
    };
    table(
        &[
            "threads",
            "write MB/s",
            "read MB/s",
            "coder %",
            "coder %",
            "s/Mpixel",
            "s/Mpixel",
        ],
        &[row(&measured.one), row(&measured.all)],
    );
    line(format!(
        "{:.0} MiB planned{}",
        measured.planned as f64 / (1 << 20) as f64,
        peak.map_or(String::new(), |p| format!(", {p:.0} MiB at most in memory"))
    ));
    Ok(())
}
