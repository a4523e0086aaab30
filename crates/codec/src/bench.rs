//! How fast the codec is: each way, with one thread and with all, and how much of it is the coder itself.

use super::identity::Identity;
use super::image::Image;
use super::read::Reader;
use super::workers::Workers;
use super::write::{Coding, Summary, Writer};
use rrvq::error::{Error, Result};
use std::time::Instant;

/// What was measured.
pub struct Measured {
    pub one: Side,
    pub all: Side,
    /// Bytes of all samples, and of the file.
    pub samples: usize,
    pub bytes: usize,
    /// Bytes of all programs and weights.
    pub planned: usize,
}

/// With a number of threads.
pub struct Side {
    pub threads: usize,
    /// Megabytes of samples a second. Writing is without reading back.
    pub write: f64,
    pub read: f64,
    /// Tables and stack, of the time the model's chunks took.
    pub write_coder_share: f64,
    pub read_coder_share: f64,
    pub write_seconds_per_megapixel: f64,
    pub read_seconds_per_megapixel: f64,
}

/// Writes and reads the images. What the first round compiles is not counted.
pub fn measure(workers: &mut Workers, identity: Identity, images: &[Image]) -> Result<Measured> {
    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .map_err(|error| Error::new(format!("cannot start a thread: {error}")))?
        .install(|| side(workers, identity, images))?;
    let all = side(workers, identity, images)?;
    Ok(Measured {
        one: one.0,
        all: all.0,
        samples: one.1.samples,
        bytes: one.1.bytes,
        planned: workers.bytes(),
    })
}

fn side(workers: &mut Workers, identity: Identity, images: &[Image]) -> Result<(Side, Summary)> {
    write(workers, identity, images)?;
    let start = Instant::now();
    let (file, summary) = write(workers, identity, images)?;
    let writing = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut input = &file[..];
    let mut reader = Reader::new(&mut input)?;
    while let Some(outcomes) = reader.segment(Some(workers), &|_| {})? {
        outcomes
            .into_iter()
            .try_for_each(|outcome| outcome.image.map(drop))?;
    }
    let reading = start.elapsed().as_secs_f64();
    let share = |times: super::chunk::Times| {
        let all = times.coder + times.networks;
        times.coder.as_secs_f64() / all.as_secs_f64().max(1e-9)
    };
    let (megabytes, megapixels) = (summary.samples as f64 / 1e6, summary.pixels as f64 / 1e6);
    let side = Side {
        threads: rayon::current_num_threads(),
        write: megabytes / writing,
        read: megabytes / reading,
        write_coder_share: share(summary.times),
        read_coder_share: share(reader.times),
        write_seconds_per_megapixel: writing / megapixels,
        read_seconds_per_megapixel: reading / megapixels,
    };
    Ok((side, summary))
}

fn write(
    workers: &mut Workers,
    identity: Identity,
    images: &[Image],
) -> Result<(Vec<u8>, Summary)> {
    let mut file = Vec::new();
    let mut writer = Writer {
        workers,
        identity,
        coding: Coding::Model,
        check: false,
        watch: &|_| {},
    };
    let summary = writer.write(images.iter().cloned().map(Ok), images.len(), &mut file)?;
    Ok((file, summary))
}
