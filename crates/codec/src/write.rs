//! Writing a file: images in, blocks out, a segment at a time.
//!
//! A segment is a handful of images, or one large one. All its images are coded by prediction, which is quick, and by the
//! model; whoever is smaller has the image. Chunks of the model share a stack, so an image cannot be taken out of one
//! afterwards: where prediction wins, the remaining images are coded once more.
//!
//! Nothing is written that does not come back: every chunk and every strip is read again first and compared.

use super::chunk::{self, Chain, Times, Written};
use super::container::{BLOCK_OVERHEAD, Header, Kind, VERSION, placed, write_block};
use super::identity::Identity;
use super::image::Image;
use super::metadata;
use super::networks::Networks;
use super::plane::{self, Shape};
use super::record::{LONGEST_RECORDS, MOST_IMAGES, Record, put_records, tidy_name};
use super::tiles::{Sequence, Tiling};
use super::workers::Workers;
use rayon::prelude::*;
use rrvq::error::{Error, Result};
use rrvq::interrupt::Interrupt;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::Range;

/// A segment is closed once it has so many tiles: thirty-two chunks, to keep as many cores busy.
const SEGMENT_TILES: usize = 32 * chunk::MOST_TILES;

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub images: usize,
    /// Images the model has; the others were smaller by prediction.
    pub by_model: usize,
    /// Bytes of all samples.
    pub samples: usize,
    /// Pixels of all images.
    pub pixels: usize,
    /// Bytes of the file.
    pub bytes: usize,
    /// Bytes of the chunks of tiles alone.
    pub tile_bytes: usize,
    /// Bytes of stacks, the model's and those of prediction: all but headers, names and checksums.
    pub coded_bytes: usize,
    /// Where the time of the model's chunks went, all threads together, without reading back.
    pub times: Times,
}

/// Who codes an image's colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Whoever makes it smaller.
    Smaller,
    /// The model, whatever it costs: to measure or to test it.
    Model,
    /// Prediction, to measure it.
    Prediction,
}

/// Writes images to a file, `count` of them.
pub struct Writer<'a> {
    pub workers: &'a mut Workers,
    pub identity: Identity,
    pub coding: Coding,
    /// Read everything back and compare, before it is written. Only a measurement of speed has a reason not to.
    pub check: bool,
    /// Told how many bytes of samples have been processed, repeatedly.
    pub watch: &'a (dyn Fn(usize) + Sync),
}

/// Counts what goes through.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: usize,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.out.write(bytes)?;
        self.bytes += done;
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Writer<'_> {
    /// Images are asked for as they are needed; one that cannot be had ends the writing.
    pub fn write(
        &mut self,
        images: impl IntoIterator<Item = Result<Image>>,
        count: usize,
        out: &mut dyn Write,
    ) -> Result<Summary> {
        let mut out = Counted { out, bytes: 0 };
        let mut summary = Summary::default();
        let header = Header {
            version: VERSION,
            identity: self.identity,
            side: self.workers.model().config.size,
            images: count,
        };
        header.write(&mut out).map_err(unwritten)?;
        let mut names = BTreeSet::new();
        let (mut waiting, mut tiles, mut records, mut segments) = (Vec::new(), 0, 0, 0);
        for image in images {
            let mut image = image?;
            image.name = tidy_name(&image.name, &mut names);
            tiles += self.tiling(&image).count();
            records += image.profile.len() + metadata::to_bytes(&image.metadata).len() + 512;
            summary.images += 1;
            summary.samples += image.bytes();
            summary.pixels += image.width * image.height;
            waiting.push(image);
            let full = tiles >= SEGMENT_TILES
                || waiting.len() == MOST_IMAGES
                || records > LONGEST_RECORDS / 4;
            if full {
                self.segment(segments, &waiting, &mut out, &mut summary)?;
                segments += 1;
                (tiles, records) = (0, 0);
                waiting.clear();
            }
        }
        if summary.images != count {
            return Err(Error::new(format!(
                "{count} images were announced and {} came",
                summary.images
            )));
        }
        if !waiting.is_empty() {
            self.segment(segments, &waiting, &mut out, &mut summary)?;
        }
        // The header once more, should its first copy be damaged: not in a file that loses no more than a chain may.
        let end = match count > chunk::MOST_LOST {
            true => header.payload(),
            false => (count as u32).to_le_bytes().to_vec(),
        };
        write_block(&mut out, Kind::End, &end).map_err(unwritten)?;
        summary.bytes = out.bytes;
        Ok(summary)
    }

    fn tiling(&self, image: &Image) -> Tiling {
        Tiling {
            width: image.width,
            height: image.height,
            channels: image.channels(),
            side: self.workers.model().config.size,
        }
    }

    fn segment(
        &mut self,
        number: usize,
        images: &[Image],
        out: &mut dyn Write,
        summary: &mut Summary,
    ) -> Result<()> {
        let check = self.check;
        let known = self.workers.model().config.image_channels;
        let wanted = self.coding != Coding::Prediction;
        let mut by_model: Vec<bool> = images
            .iter()
            .map(|image| wanted && image.channels() <= known)
            .collect();
        // Colours that the model has in any case need no other coding.
        let settled = self.coding == Coding::Model;
        let interrupt = Interrupt::current();
        let planes: Vec<Planes> = images
            .par_iter()
            .zip(&by_model)
            .map(|(image, by_model)| {
                interrupt.scope(|| Planes::of(image, !(settled && *by_model), check))
            })
            .collect::<Result<_>>()?;
        let (mut sequence, mut chunks) = self.code(images, &by_model)?;
        if self.coding == Coding::Smaller {
            if drop_losers(&mut by_model, &planes, &sequence, &chunks) {
                (sequence, chunks) = self.code(images, &by_model)?;
            }
            if all_lose(&by_model, &planes, &chunks) {
                by_model.fill(false);
                (sequence, chunks) = (Sequence::default(), Vec::new());
            }
        }
        chunks.iter().for_each(|c| summary.times += c.times);
        if check {
            self.check_chunks(images, &sequence, &chunks)?;
        }
        let predicted = images.iter().zip(&by_model).filter(|(_, by)| !**by);
        (self.watch)(predicted.map(|(image, _)| image.bytes()).sum());
        let mut put = |kind, payload: &[u8]| write_block(out, kind, payload).map_err(unwritten);
        let records: Vec<Record> = images
            .iter()
            .zip(&by_model)
            .map(|(image, by)| Record::of(image, *by as usize))
            .collect();
        let (packed, list) = put_records(&records)?;
        let list = placed(&[number], &list);
        let kind = match packed {
            true => Kind::PackedImages,
            false => Kind::Images,
        };
        put(kind, &list)?;
        for (at, (written, range)) in chunks
            .iter()
            .zip(sequence.chunks(chunk::MOST_TILES))
            .enumerate()
        {
            for (chain, payload) in payloads(written, range.len()).iter().enumerate() {
                let payload = placed(&[number, at, chain], payload);
                summary.tile_bytes += payload.len() + BLOCK_OVERHEAD;
                summary.coded_bytes += written.stacks[chain].len();
                put(Kind::Tiles, &payload)?;
            }
        }
        for (at, (planes, by)) in planes.iter().zip(&by_model).enumerate() {
            let colour = planes.colour.iter().filter(|_| !by);
            for (strip, payload) in colour.chain(&planes.alpha).enumerate() {
                put(Kind::Strip, &placed(&[number, at, strip], payload))?;
                summary.coded_bytes += payload.len();
            }
            summary.by_model += *by as usize;
        }
        // Without its list nothing of a segment can be read.
        if images.len() > chunk::MOST_LOST {
            put(kind, &list)?;
        }
        Ok(())
    }

    /// Codes the tiles of the images the model has.
    fn code(&mut self, images: &[Image], by_model: &[bool]) -> Result<(Sequence, Vec<Written>)> {
        let mut sequence = Sequence::default();
        for (number, image) in images.iter().enumerate() {
            if by_model[number] {
                sequence.add(number, self.tiling(image));
            }
        }
        let (tiles, check, watch) = (&sequence, self.check, self.watch);
        let code = |networks: &mut Networks, range: Range<usize>| {
            let channels = networks.model.config.image_channels;
            let tiles: Vec<_> = tiles
                .tiles(range)
                .iter()
                .map(|at| at.tiling.cut(&images[at.image].colour, at.tile, channels))
                .collect();
            let written = chunk::write(networks, &tiles)?;
            if !check {
                watch(tiles.iter().map(|tile| tile.extent.bytes()).sum());
            }
            Ok(written)
        };
        let jobs = sequence.chunks(chunk::MOST_TILES).collect();
        let chunks = self.workers.each(jobs, code)?;
        let chunks = chunks.into_iter().collect::<Result<_>>()?;
        Ok((sequence, chunks))
    }

    /// Reads chunks back and compares.
    fn check_chunks(
        &mut self,
        images: &[Image],
        sequence: &Sequence,
        chunks: &[Written],
    ) -> Result<()> {
        let watch = self.watch;
        let jobs = sequence.chunks(chunk::MOST_TILES).zip(chunks).collect();
        let same = self.workers.each(jobs, |networks, (range, chunk)| {
            let at = sequence.tiles(range);
            let extents: Vec<_> = at.iter().map(|at| at.tiling.extent(at.tile)).collect();
            let chains = chunk::chains(at.len());
            let written = (0..chains.len()).map(|number| {
                Ok(Chain {
                    back: chunk::flags_of(&chains, number, &chunk.back),
                    stack: chunk.stacks[number].clone(),
                })
            });
            let (tiles, _) = chunk::read(networks, &extents, &chains, written.collect())?;
            watch(extents.iter().map(|extent| extent.bytes()).sum());
            let mut pairs = at.iter().zip(tiles);
            Ok(pairs
                .all(|(at, tile)| tile == Ok(at.tiling.bytes(&images[at.image].colour, at.tile))))
        })?;
        match same.into_iter().all(|same| same == Ok(true)) {
            true => Ok(()),
            false => Err(unfaithful()),
        }
    }
}

fn unwritten(error: io::Error) -> Error {
    Error::io("write", "the compressed file", error)
}

fn unfaithful() -> Error {
    Error::new(
        "what was compressed does not come back as it was, so nothing is written; please report this with the model \
         and the images",
    )
}

/// An image coded by prediction.
struct Planes {
    colour: Vec<Vec<u8>>,
    alpha: Vec<Vec<u8>>,
}

impl Planes {
    fn of(image: &Image, colour: bool, check: bool) -> Result<Planes> {
        let code = |samples: &[u8], channels| {
            let shape = Shape {
                width: image.width,
                height: image.height,
                channels,
            };
            match check {
                true => plane::write_checked(shape, samples)?.ok_or_else(unfaithful),
                false => plane::write(shape, samples),
            }
        };
        Ok(Planes {
            colour: match colour {
                true => code(&image.colour, image.channels())?,
                false => Vec::new(),
            },
            alpha: match &image.alpha {
                Some(alpha) => code(alpha, 1)?,
                None => Vec::new(),
            },
        })
    }

    /// Bytes of the colours' blocks.
    fn bytes(&self) -> usize {
        let strips = self.colour.iter();
        strips.map(|strip| strip.len() + BLOCK_OVERHEAD).sum()
    }
}

/// Takes images from the model that are smaller by prediction; whether there were any.
fn drop_losers(
    by_model: &mut [bool],
    planes: &[Planes],
    sequence: &Sequence,
    chunks: &[Written],
) -> bool {
    let mut costs = vec![0i64; by_model.len()];
    for (range, chunk) in sequence.chunks(chunk::MOST_TILES).zip(chunks) {
        for (at, cost) in sequence.tiles(range).iter().zip(&chunk.costs) {
            costs[at.image] += cost;
        }
    }
    let mut any = false;
    for ((by, planes), cost) in by_model.iter_mut().zip(planes).zip(costs) {
        if *by && planes.bytes() as i64 * 8 <= cost >> 16 {
            (*by, any) = (false, true);
        }
    }
    any
}

/// Whether the model's images together, with all that is around them, are larger than by prediction.
fn all_lose(by_model: &[bool], planes: &[Planes], chunks: &[Written]) -> bool {
    let of_model = planes.iter().zip(by_model).filter(|(_, by)| **by);
    let predicted: usize = of_model.map(|(planes, _)| planes.bytes()).sum();
    let coded: usize = chunks
        .iter()
        .flat_map(|c| payloads(c, c.costs.len()))
        .map(|payload| payload.len() + BLOCK_OVERHEAD)
        .sum();
    predicted <= coded
}

/// What tiles blocks hold of a chunk's chains: a bit for each flag, the stack.
fn payloads(chunk: &Written, tiles: usize) -> Vec<Vec<u8>> {
    let chains = chunk::chains(tiles);
    let payload = |number: usize| {
        let mut payload = Vec::new();
        for eight in chunk::flags_of(&chains, number, &chunk.back).chunks(8) {
            let bits = eight.iter().enumerate();
            payload.push(bits.fold(0, |byte, (i, &back)| byte | (back as u8) << i));
        }
        payload.extend(chunk.stacks[number].to_bytes());
        payload
    };
    (0..chains.len()).map(payload).collect()
}
