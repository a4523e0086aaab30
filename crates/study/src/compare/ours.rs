//! This codec, measured like the others.

use super::figure::Ours;
use super::{Contest, Prefix, Row, Size, Verdict, judge, quality};
use rayon::prelude::*;
use rrvq::error::Result;
use rrvq_codec::lossy::{self, Keep, Options};
use rrvq_codec::{Coding, Image, Reader, Workers, Writer};
use std::time::{Duration, Instant};

/// Enough for batches of every size.
const WARMING_TILES: usize = 48;

/// The start of a sum of sizes.
const NOTHING: Size = Size {
    files: 0,
    bytes: 0,
    header: Some(0),
};

/// How often the images will be told of.
pub fn length(contest: &Contest, images: usize) -> usize {
    let points = match contest.lossy {
        true => ways(contest.search).count() * layers(contest.workers),
        false => 0,
    };
    let ways = if contest.lossless { 3 } else { 0 };
    (ways + points) * images
}

/// Without loss: all images in one file, the same by plain prediction alone, and a file for each. Also how many images of
/// the first the model has.
pub fn lossless(contest: &mut Contest) -> Result<(Vec<Row>, usize)> {
    let images = contest.images;
    for few in warming(contest.workers, images) {
        through(contest, few, Coding::Smaller)?;
    }
    let (mut together, by_model) = through(contest, images, Coding::Smaller)?;
    together.codec = "rrvq, one file".into();
    together.encoder = "the model or prediction, whichever is smaller".into();
    (contest.watch)(images.len());
    let (mut predicted, _) = through(contest, images, Coding::Prediction)?;
    predicted.codec = "rrvq, one file".into();
    predicted.encoder = "plain prediction alone".into();
    (contest.watch)(images.len());
    let mut alone = Row {
        size: NOTHING,
        ..Row::default()
    };
    for image in images {
        let (row, _) = through(contest, std::slice::from_ref(image), Coding::Smaller)?;
        alone.size += row.size;
        alone.encode += row.encode;
        alone.decode += row.decode;
        if let (Verdict::Equal(sum), Verdict::Equal(one)) = (&mut alone.verdict, row.verdict) {
            *sum += one;
        }
        (contest.watch)(1);
    }
    alone.codec = "rrvq, a file an image".into();
    alone.encoder = together.encoder.clone();
    Ok((vec![together, predicted, alone], by_model))
}

/// A few images, and one: programs for batches of every size are compiled on them before anything is timed. Of large images
/// none, since compiling is nothing beside them.
fn warming<'a>(workers: &Workers, images: &'a [Image]) -> Vec<&'a [Image]> {
    let room = WARMING_TILES * workers.model().config.size.pow(2);
    let mut pixels = 0;
    let fits = |image: &&Image| {
        pixels += image.width * image.height;
        pixels <= room
    };
    let few = images.iter().take_while(fits).count();
    match few {
        0 => Vec::new(),
        few => vec![&images[..1], &images[..few]],
    }
}

/// The time all cores took.
fn of_all_cores(start: Instant) -> Duration {
    start.elapsed() * rayon::current_num_threads() as u32
}

/// Images through one file and back, and how many of them the model has.
fn through(contest: &mut Contest, images: &[Image], coding: Coding) -> Result<(Row, usize)> {
    let start = Instant::now();
    let mut file = Vec::new();
    let mut writer = Writer {
        workers: contest.workers,
        identity: contest.identity,
        coding,
        check: false,
        watch: &|_| {},
    };
    let summary = writer.write(images.iter().cloned().map(Ok), images.len(), &mut file)?;
    let encode = of_all_cores(start);
    let start = Instant::now();
    let mut input = &file[..];
    let mut reader = Reader::new(&mut input)?;
    let mut back = Vec::with_capacity(images.len());
    while let Some(outcomes) = reader.segment(Some(contest.workers), &|_| {})? {
        for outcome in outcomes {
            back.push(outcome.image?);
        }
    }
    let decode = of_all_cores(start);
    // Names were tidied; what counts is the samples.
    let same = |(a, b): &(&Image, &Image)| a.colour == b.colour && a.alpha == b.alpha;
    let row = Row {
        size: Size {
            files: 1,
            bytes: summary.bytes,
            header: Some(summary.bytes - summary.coded_bytes),
        },
        encode,
        decode,
        verdict: Verdict::Equal(images.iter().zip(&back).filter(same).count()),
        ..Row::default()
    };
    Ok((row, summary.by_model))
}

/// A file with loss and what came back of it.
struct Point {
    size: Size,
    encode: Duration,
    decode: Duration,
    shown: Vec<Image>,
}

fn point(contest: &mut Contest, images: &[Image], options: &Options) -> Result<Point> {
    let start = Instant::now();
    let file = lossy::encode(contest.workers, contest.identity, images, options)?;
    let encode = of_all_cores(start);
    let start = Instant::now();
    let shown = lossy::decode(contest.workers, contest.identity, &file.bytes)?;
    Ok(Point {
        size: Size {
            files: 1,
            bytes: file.bytes.len(),
            header: Some(file.header),
        },
        encode,
        decode: of_all_cores(start),
        shown,
    })
}

/// The same with a file for each image.
fn alone(contest: &mut Contest, images: &[Image], options: &Options) -> Result<Point> {
    let mut sum = Point {
        size: NOTHING,
        encode: Duration::ZERO,
        decode: Duration::ZERO,
        shown: Vec::new(),
    };
    for image in images {
        let one = point(contest, std::slice::from_ref(image), options)?;
        sum.size += one.size;
        sum.encode += one.encode;
        sum.decode += one.decode;
        sum.shown.extend(one.shown);
        (contest.watch)(1);
    }
    Ok(sum)
}

/// All layers, in tiles of the side that is asked for.
fn options(contest: &Contest) -> Options {
    Options {
        tiles: contest.tiles,
        ..Options::default()
    }
}

/// With loss: a point for each number of layers that are kept, in a file for each image and in one for all.
pub fn lossy(contest: &mut Contest, images: &[Image]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for few in warming(contest.workers, images) {
        point(contest, few, &options(contest))?;
    }
    for way in ways(contest.search) {
        for dropped in 0..layers(contest.workers) {
            let options = Options {
                keep: Keep::Drop(dropped),
                search: way.search,
                ..options(contest)
            };
            let point = match way.alone {
                true => alone(contest, images, &options)?,
                false => {
                    let point = point(contest, images, &options)?;
                    (contest.watch)(images.len());
                    point
                }
            };
            let setting = match dropped {
                0 => "all layers".into(),
                dropped => format!("drop {dropped}"),
            };
            rows.push(judged(way.name, setting, images, point));
        }
    }
    Ok(rows)
}

struct Way {
    name: &'static str,
    alone: bool,
    search: bool,
}

fn ways(search: bool) -> impl Iterator<Item = Way> {
    let way = |name, alone, search| Way {
        name,
        alone,
        search,
    };
    // A search is slow and chooses the same codes in a file of many.
    [
        way("rrvq, a file an image", true, false),
        way(ONE_FILE, false, false),
        way("rrvq, one file, searched", false, true),
    ]
    .into_iter()
    .filter(move |way| search || !way.search)
}

/// All images in one file with loss, as `options` have it.
pub fn in_one_file(
    contest: &mut Contest,
    images: &[Image],
    options: &Options,
    setting: String,
) -> Result<Row> {
    let point = point(contest, images, options)?;
    Ok(judged(ONE_FILE, setting, images, point))
}

/// What rows of all images in one file are called.
pub const ONE_FILE: &str = "rrvq, one file";

fn judged(name: &str, setting: String, images: &[Image], point: Point) -> Row {
    let pairs = images.par_iter().zip(&point.shown);
    let judged = pairs.map(|(image, shown)| judge(image, &shown.colour));
    let (error, alike) = judged
        .collect::<Vec<_>>()
        .iter()
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let samples: usize = images.iter().map(|i| i.colour.len()).sum();
    Row {
        codec: name.into(),
        encoder: "codes of the hierarchy".into(),
        setting,
        size: point.size,
        encode: point.encode,
        decode: point.decode,
        verdict: Verdict::Close {
            squared_error: error / samples as f64,
            ms_ssim: alike / images.len() as f64,
        },
    }
}

fn layers(workers: &Workers) -> usize {
    workers.model().config.layers()
}

/// Images whose files are cut off, and places to cut at.
const CUT_IMAGES: usize = 8;
const CUTS: usize = 20;

/// What the first parts of single files with all layers show, over the first images: after the header, and after each
/// twentieth of what follows.
pub fn prefixes(contest: &mut Contest, images: &[Image]) -> Result<Vec<Prefix>> {
    let images = &images[..images.len().min(CUT_IMAGES)];
    let (mut errors, mut bytes) = ([0.0; CUTS + 1], [0; CUTS + 1]);
    for image in images {
        let one = std::slice::from_ref(image);
        let file = lossy::encode(contest.workers, contest.identity, one, &options(contest))?;
        for cut in 0..=CUTS {
            let len = file.header + cut * (file.bytes.len() - file.header) / CUTS;
            let mut reader = lossy::Reader::new(&file.bytes[..len])?;
            let shown = reader
                .segment(contest.workers, &|_| {})?
                .unwrap_or_default();
            for outcome in shown {
                let shown = outcome.image?.colour;
                errors[cut] += quality::squared_error(&image.colour, &shown) * shown.len() as f64;
            }
            bytes[cut] += len;
        }
    }
    let pixels: usize = images.iter().map(|image| image.width * image.height).sum();
    let samples: usize = images.iter().map(|image| image.colour.len()).sum();
    let whole = bytes[CUTS];
    let prefix = |(squared_error, bytes): (f64, usize)| Prefix {
        share: bytes as f64 / whole as f64,
        bits_per_pixel: 8.0 * bytes as f64 / pixels as f64,
        squared_error: squared_error / samples as f64,
    };
    Ok(errors.into_iter().zip(bytes).map(prefix).collect())
}

/// Single files of a few images with all layers, for the figure.
pub fn shown(contest: &mut Contest, images: &[Image]) -> Result<Vec<Ours>> {
    let one = |image: &Image| {
        let point = point(contest, std::slice::from_ref(image), &options(contest))?;
        Ok(Ours {
            bytes: point.size.bytes,
            coded: point.size.bytes - point.size.header.unwrap_or(0),
            colours: point
                .shown
                .into_iter()
                .next()
                .map_or(Vec::new(), |i| i.colour),
        })
    };
    images.iter().map(one).collect()
}
