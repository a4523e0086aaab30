//! `rrvq compress`, `rrvq decompress`, `rrvq bench codec`. What is different with loss is in [`crate::lossy`].

use crate::args::{BenchCodec, CodecList, Compress, Decompress, Pack};
use crate::bench::peak_memory_mib;
use crate::commands::open_data;
use crate::lossy;
use crate::output::{self, check_free, check_stream, is_stream, tell, tell_json};
use crate::terminal::{
    self, STOPPING, bar, complain, detail, grouped, line, note, table, watch_for_interrupts,
};
use rrvq::dataset::Split;
use rrvq::files::write_atomic;
use rrvq::{Error, Result, Trained, limits, models};
use rrvq_codec::networks::Networks;
use rrvq_codec::read::Made;
use rrvq_codec::record::Record;
use rrvq_codec::{
    Coding, CodingModel, Image, Reader, Writer, bench, built_in_name, built_in_of, neighbours, png,
    prune, read,
};
use rrvq_study::compare::source;
use serde_json::json;
use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::Instant;

/// The model to code with: the one that is named, or the built-in one.
pub fn model(named: Option<&Path>) -> Result<Trained> {
    Trained::open(named.unwrap_or(Path::new(models::DEFAULT)))
}

pub fn pack(args: &Pack) -> Result<()> {
    check_free(&args.out)?;
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
        note(format!(
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
    note(format!(
        "{}: {}, model {identity:?}; use it with --model",
        args.out.display(),
        size(bytes.len())
    ));
    Ok(())
}

pub fn compress(args: &Compress) -> Result<()> {
    let start = Instant::now();
    let out = &args.out;
    check_free(out)?;
    check_stream(out)?;
    if args.images.iter().filter(|path| is_stream(path)).count() > 1 {
        return Err(Error::new(
            "- is named more than once, and standard input can be read once",
        ));
    }
    watch_for_interrupts(STOPPING)?;
    if args.lossy {
        return lossy::compress(args);
    }
    let (mut workers, identity) = model(args.model.as_deref())?.workers()?;
    let progress = bar("compressing", 0);
    let mut writer = Writer {
        workers: &mut workers,
        identity,
        coding: Coding::Smaller,
        check: true,
        watch: &|samples| progress.inc(samples as u64),
    };
    // Images are opened when their turn comes: the bar's end moves away as they do.
    let given = Cell::new(0);
    let images = args
        .images
        .iter()
        .map(|path| open(path, &given).inspect(|image| progress.inc_length(image.bytes() as u64)));
    let summary = output::write(out, |file| writer.write(images, args.images.len(), file));
    progress.finish_and_clear();
    let summary = summary?;
    let seconds = start.elapsed().as_secs_f64();
    let bits = summary.bytes as f64 * 8.0 / summary.samples as f64;
    if args.json {
        let told = json!({
            "file": out, "images": summary.images, "by_model": summary.by_model, "pixels": summary.pixels,
            "samples": summary.samples, "input_bytes": given.get(), "bytes": summary.bytes,
            "tile_bytes": summary.tile_bytes, "bits_per_sample": bits, "model": format!("{identity:?}"),
            "seconds": seconds,
        });
        tell_json(out, &told);
        return Ok(());
    }
    let sizes = sizes(summary.images, given.get(), summary.samples, summary.bytes);
    tell(
        out,
        format!("{sizes}, {bits:.3} bits a sample ({seconds:.1} s)"),
    );
    let predicted = summary.images - summary.by_model;
    if predicted > 0 {
        let said = "smaller by plain prediction than by the model";
        tell(out, format!("{} of them {said}", grouped(predicted)));
    }
    tell(
        out,
        format!("every image was read back and compared{}", named(out)),
    );
    Ok(())
}

/// An image, and how many bytes its file has.
pub fn open(path: &Path, given: &Cell<usize>) -> Result<Image> {
    let (name, bytes) = match is_stream(path) {
        true => (Path::new("stdin"), read_stdin()?),
        false => {
            let bytes = limits::read_file(path)?;
            (path, bytes)
        }
    };
    given.set(given.get() + bytes.len());
    let image = Image::from_file(name, &bytes)?;
    detail(|| {
        let kinds: Vec<String> = image
            .metadata
            .iter()
            .map(|(kind, _)| String::from_utf8_lossy(kind).into_owned())
            .collect();
        let kept = match kinds.is_empty() {
            true => String::new(),
            false => format!(", with {}", kinds.join(" ")),
        };
        let (width, height) = (image.width, image.height);
        format!(
            "{}: {width}×{height}, {}{kept}",
            path.display(),
            size(bytes.len())
        )
    });
    Ok(image)
}

fn read_stdin() -> Result<Vec<u8>> {
    let read = limits::read_all(std::io::stdin().lock());
    read.map_err(|error| Error::io("read", "standard input", error))?
        .ok_or_else(|| Error::new(format!("standard input cannot be taken: {}", endless())))
}

/// What is wrong with something to read that goes on and on.
fn endless() -> String {
    let most = limits::Limits::current().memory;
    format!("it goes on beyond {} (max-memory)", size(most))
}

/// What became of the files that were given, and of the samples in them.
pub fn sizes(images: usize, given: usize, samples: usize, bytes: usize) -> String {
    let ratio = |before: usize| match before >= bytes {
        true => format!("{:.2} times smaller", before as f64 / bytes as f64),
        false => format!("{:.2} times larger", bytes as f64 / before.max(1) as f64),
    };
    format!(
        "{}: files of {} became {}, {}; beside {} of raw samples {}",
        count(images),
        size(given),
        size(bytes),
        ratio(given),
        size(samples),
        ratio(samples)
    )
}

/// The end of a sentence that names the file.
pub fn named(out: &Path) -> String {
    match is_stream(out) {
        true => String::new(),
        false => format!("; the file is {}", out.display()),
    }
}

/// A compressed file: a file, or what came on standard input.
pub enum Source<'a> {
    File(&'a Path),
    Stream(Vec<u8>),
}

impl<'a> Source<'a> {
    pub fn new(path: &'a Path) -> Result<Source<'a>> {
        match is_stream(path) {
            true => Ok(Source::Stream(read_stdin()?)),
            false => Ok(Source::File(path)),
        }
    }

    fn open(&self) -> Result<Box<dyn Read + '_>> {
        Ok(match self {
            Source::File(path) => {
                let opened = File::open(path).map_err(|error| Error::io("open", path, error))?;
                Box::new(BufReader::new(opened))
            }
            Source::Stream(bytes) => Box::new(&bytes[..]),
        })
    }

    /// All of it.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            Source::File(path) => limits::read_file(path).map(Cow::from),
            Source::Stream(bytes) => Ok(Cow::from(bytes)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Source::File(path) => std::fs::metadata(path).map_or(0, |found| found.len() as usize),
            Source::Stream(bytes) => bytes.len(),
        }
    }

    /// Its first bytes.
    fn first(&self) -> Result<Vec<u8>> {
        let mut first = Vec::new();
        let read = self.open()?.take(16).read_to_end(&mut first);
        let failed = |error| match self {
            Source::File(path) => Error::io("read", path, error),
            Source::Stream(_) => Error::io("read", "standard input", error),
        };
        read.map_err(failed)?;
        Ok(first)
    }

    /// Whether it begins as a lossy file does; one that cannot be read does not.
    fn is_lossy(&self) -> bool {
        self.first()
            .is_ok_and(|first| rrvq_codec::lossy::is_lossy(&first))
    }

    /// Refuses what is no file of ours at all, of which no part could be had either.
    fn check_kind(&self) -> Result<()> {
        let first = self.first()?;
        if first.starts_with(&rrvq_codec::lossy::file::START) {
            return Ok(());
        }
        let name = match self {
            Source::File(path) => path.display().to_string(),
            Source::Stream(_) => "standard input".into(),
        };
        let what = match first.is_empty() {
            true => "is empty",
            false => "is not a file that `rrvq compress` wrote",
        };
        Err(Error::new(format!("{name} {what}; name one that it wrote")))
    }
}

pub fn decompress(args: &Decompress) -> Result<()> {
    check_stream(&args.out)?;
    let file = &args.file;
    let source = Source::new(file)?;
    watch_for_interrupts(STOPPING)?;
    if source.is_lossy() {
        return lossy::decompress(args, &source);
    }
    // What is left of a damaged file is looked for also where its first bytes are damaged.
    if !args.keep_going {
        source.check_kind()?;
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
    let (mut input, mut again) = (source.open()?, source.open()?);
    let progress = bar("decompressing", source.len());
    // Before anything is written: a whole file, unless what is left of a damaged one is wanted.
    if !args.keep_going {
        read::check(&mut source.open()?).map_err(damaged)?;
    }
    let (mut input, mut again) = (
        progress.wrap_read(&mut input),
        progress.wrap_read(&mut again),
    );
    let mut reader = match Reader::new(&mut input) {
        Err(_) if args.keep_going => Reader::rescue(&mut again).map_err(named)?,
        reader => reader.map_err(named)?,
    };
    let header = reader.header;
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
    prepare(args, header.images)?;
    let (mut done, mut lost) = (0usize, Vec::new());
    let ended = 'file: loop {
        let segment = reader.segment_by_rows(workers.as_mut(), &|_| {}, png::LARGE);
        let outcomes = match segment {
            Ok(Some(outcomes)) => outcomes,
            Ok(None) => break Ok(()),
            Err(said) => break Err(said),
        };
        for outcome in outcomes {
            let saved = outcome.image.and_then(|made| match made {
                Made::Whole(image) => save(args, &image),
                Made::Large(image) => save_as(args, &image.record.name, |out| {
                    let rows = &mut |take: &mut png::Take<'_>| image.rows(workers.as_mut(), take);
                    png::write(&image.record, rows, out)
                }),
            });
            match saved {
                Err(Error::Interrupted) => break 'file Err(Error::Interrupted),
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
    match ended {
        Ok(()) => {}
        Err(Error::Interrupted) => lost.push("stopped before the end".into()),
        Err(said) => lost.push(said.tell(crate::flag)),
    }
    if args.json {
        let told = json!({"file": file, "images": done, "announced": header.images, "lost": lost});
        tell_json(&args.out, &told);
    } else {
        tell(&args.out, format!("{}{}", count(done), into(&args.out)));
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

/// Where images went, in words.
pub fn into(out: &Path) -> String {
    match is_stream(out) {
        true => String::new(),
        false => format!(" in {}", out.display()),
    }
}

/// Makes room for so many images.
pub fn prepare(args: &Decompress, images: usize) -> Result<()> {
    match is_stream(&args.out) {
        true if images != 1 => Err(Error::new(format!(
            "{} holds {}, and standard output takes one; name a folder with --out",
            args.file.display(),
            count(images)
        ))),
        true => Ok(()),
        false => {
            let made = std::fs::create_dir_all(&args.out);
            made.map_err(|error| Error::io("create", &args.out, error))
        }
    }
}

pub fn save(args: &Decompress, image: &Image) -> Result<()> {
    save_as(args, &image.name, |out| image.write_png(out))
}

/// Writes the PNG file of an image to where it belongs.
fn save_as(
    args: &Decompress,
    name: &OsStr,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let path = match is_stream(&args.out) {
        true => args.out.clone(),
        false => {
            let mut name = name.to_owned();
            name.push(".png");
            args.out.join(name)
        }
    };
    check_free(&path)?;
    output::write(&path, write).map_err(|error| match error {
        Error::Io { action, source, .. } => Error::Io {
            action,
            path: path.clone(),
            source,
        },
        other => other,
    })?;
    detail(|| {
        let bytes = std::fs::metadata(&path).map_or(0, |file| file.len() as usize);
        format!("{}: {}", path.display(), size(bytes))
    });
    Ok(())
}

/// What is in a file, from its lists alone.
pub fn list(args: &CodecList) -> Result<()> {
    let source = Source::new(&args.file)?;
    let named = |said: Error| Error::new(format!("cannot list {}: {said}", args.file.display()));
    let lossy = source.is_lossy();
    let (model, records, built_in) = match lossy {
        true => {
            let bytes = source.bytes()?;
            let reader = rrvq_codec::lossy::Reader::new(&bytes).map_err(named)?;
            let header = &reader.header;
            let (model, built_in) = (header.model(), built_in_name(|it| header.fits(it))?);
            (model, reader.records().map_err(named)?, built_in)
        }
        false => {
            let (header, records) = read::list(&mut source.open()?).map_err(named)?;
            let records = records.into_iter().map(|record| (record, None)).collect();
            let built_in = built_in_name(|identity| identity == header.identity)?;
            (header.identity.to_string(), records, built_in)
        }
    };
    let coding = |record: &Record| match (lossy, record.coding) {
        (true, 0) => "codes, all layers".into(),
        (true, 1) => "codes, without the lowest layer".into(),
        (true, dropped) => format!("codes, without the lowest {dropped} layers"),
        (false, 0) => "prediction".into(),
        (false, _) => "model".to_string(),
    };
    let also = |record: &Record| {
        let mut also = Vec::new();
        if !record.profile.is_empty() {
            also.push("profile".to_string());
        }
        if record.orientation != 1 {
            also.push(format!("orientation {}", record.orientation));
        }
        let kinds = record
            .metadata
            .iter()
            .map(|(kind, _)| String::from_utf8_lossy(kind));
        also.extend(kinds.map(|kind| kind.into_owned()));
        also
    };
    if args.json {
        let image = |(r, side): &(Record, Option<usize>)| {
            json!({
                "name": r.name.to_string_lossy(), "width": r.width, "height": r.height, "channels": r.channels,
                "alpha": r.alpha, "coding": coding(r), "tile": side, "also": also(r),
            })
        };
        let images: Vec<_> = records.iter().map(image).collect();
        let told = json!({
            "file": args.file, "bytes": source.len(), "lossy": lossy, "model": model, "built_in": built_in, "images": images,
        });
        terminal::json(&told);
        return Ok(());
    }
    let row = |(record, side): &(Record, Option<usize>)| {
        let colours = match (record.channels, record.alpha) {
            (1, false) => "grey",
            (1, true) => "grey, alpha",
            (_, false) => "colour",
            (_, true) => "colour, alpha",
        };
        vec![
            record.name.display().to_string(),
            format!("{}×{}", record.width, record.height),
            colours.into(),
            match side {
                Some(side) => format!("{}, tiles of {side}×{side}", coding(record)),
                None => coding(record),
            },
            also(record).join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    table(&["image", "pixels", "samples", "coded by", "with"], &rows);
    let loss = if lossy { "with" } else { "without" };
    line(format!(
        "{} {loss} loss in {}, model {}{model}",
        count(records.len()),
        size(source.len()),
        built_in.map_or(String::new(), |name| format!("{name}, "))
    ));
    Ok(())
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
        terminal::json(&told);
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
