//! Writing: images to codes to a file, a segment at a time.
//!
//! Which codes an image has is decided in `choose`; here they are listed, put into blocks and counted.

use super::super::identity::Identity;
use super::super::image::Image;
use super::super::metadata;
use super::super::plane::{self, Shape};
use super::super::record::{
    LONGEST_RECORDS, MOST_IMAGES, Record, put_number, put_records, tidy_name,
};
use super::super::workers::Workers;
use super::choose::Chooser;
use super::file::{Header, Kind, overhead, put_block};
use super::layout::group;
use super::{Keep, Options};
use rrvq::error::{Error, Result};
use std::collections::BTreeSet;
use std::io::Write;

/// A segment is closed once it has so many tiles of the model's own side, or as many pixels.
const SEGMENT_TILES: usize = 1 << 12;

/// One image of a written file.
pub struct Part {
    /// Bytes of its codes.
    pub codes: usize,
    /// Bytes of its transparency.
    pub alpha: usize,
    /// Bytes around its own blocks.
    pub blocks: usize,
    /// Layers left out, from the bottom.
    pub dropped: usize,
    /// Over all samples of its colours.
    pub squared_error: u64,
    /// What a decoder shows.
    pub shown: Image,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub images: usize,
    /// Bytes of all samples, and of those of colours alone.
    pub samples: usize,
    pub colour_samples: usize,
    pub pixels: usize,
    /// Bytes of the file, of codes alone, and of transparency.
    pub bytes: usize,
    pub codes: usize,
    pub alpha: usize,
    pub squared_error: u64,
    /// Fewest and most layers that were left out of an image.
    pub dropped: Option<(usize, usize)>,
}

/// Writes images to a file.
pub struct Writer<'a> {
    pub workers: &'a mut Workers,
    pub identity: Identity,
    pub options: Options,
    /// Told how many bytes of colours are done, once for each image.
    pub watch: &'a (dyn Fn(usize) + Sync),
}

impl Writer<'_> {
    /// Images are asked for as they are needed, `count` in all; `each` is told about every one.
    pub fn write(
        &mut self,
        images: impl IntoIterator<Item = Result<Image>>,
        count: usize,
        out: &mut dyn Write,
        each: &mut dyn FnMut(Part),
    ) -> Result<Summary> {
        self.check_options()?;
        let mut summary = Summary::default();
        let mut header = Some(Header::new(self.identity, count).put());
        let mut names = BTreeSet::new();
        let config = self.workers.model().config.clone();
        let (mut waiting, mut pixels, mut records, mut given) = (Vec::new(), 0, 0, 0);
        // Of the images that wait: a segment has tiles of one side.
        let mut side = config.size;
        let mut put = |writer: &mut Self, images: &mut Vec<Image>, side: usize| -> Result<()> {
            let before = header.take().unwrap_or_default();
            let mut bytes = before.clone();
            writer.segment(images, side, &before, &mut bytes, &mut summary, each)?;
            images.clear();
            summary.bytes += bytes.len();
            let failed = |error| Error::io("write", "the compressed file", error);
            out.write_all(&bytes).map_err(failed)
        };
        for image in images {
            let mut image = image?;
            let known = self.workers.model().config.image_channels;
            if image.channels() > known {
                return Err(Error::new(format!(
                    "{} has colours and the model knows grey images only; name another model",
                    image.name.display()
                )));
            }
            image.name = tidy_name(&image.name, &mut names);
            let wanted = self.options.tiles.side(self.workers, &image);
            if wanted != side && !waiting.is_empty() {
                put(self, &mut waiting, side)?;
                (pixels, records) = (0, 0);
            }
            side = wanted;
            let covered = image.width.div_ceil(side) * image.height.div_ceil(side) * side * side;
            pixels += covered;
            records += image.profile.len() + metadata::to_bytes(&image.metadata).len() + 512;
            given += 1;
            waiting.push(image);
            let full = pixels >= SEGMENT_TILES.saturating_mul(config.size * config.size)
                || waiting.len() == MOST_IMAGES
                || records > LONGEST_RECORDS / 4;
            if full {
                put(self, &mut waiting, side)?;
                (pixels, records) = (0, 0);
            }
        }
        if given != count {
            return Err(Error::new(format!(
                "{count} images were announced and {given} came"
            )));
        }
        if !waiting.is_empty() || count == 0 {
            put(self, &mut waiting, side)?;
        }
        Ok(summary)
    }

    fn check_options(&self) -> Result<()> {
        let config = &self.workers.model().config;
        let layers = config.layers();
        self.options.tiles.check(config)?;
        let positive = |number: f64| number.is_finite() && number > 0.0;
        match (self.options.keep, self.options.bit_worth) {
            (Keep::Drop(dropped), _) if dropped > layers => Err(Error::new(format!(
                "{dropped} layers cannot be left out of a model that has {layers}; choose a smaller number"
            ))),
            (Keep::Bits(bits), _) if !positive(bits) => Err(Error::new(format!(
                "{bits} is no number of bits a pixel; give one above 0, such as 0.5"
            ))),
            (_, Some(worth)) if !positive(worth) => Err(Error::new(format!(
                "{worth} is not what a bit can be worth; give a number above 0, such as 50"
            ))),
            _ => Ok(()),
        }
    }

    fn segment(
        &mut self,
        images: &[Image],
        side: usize,
        before: &[u8],
        out: &mut Vec<u8>,
        summary: &mut Summary,
        each: &mut dyn FnMut(Part),
    ) -> Result<()> {
        let own = self.workers.model().config.size;
        let attempts = Chooser {
            workers: self.workers.at_side(side)?,
            group: group(own, side),
            options: self.options,
        }
        .best(images)?;
        let records: Vec<Record> = images
            .iter()
            .zip(&attempts)
            .map(|(image, attempt)| Record::of(image, attempt.dropped))
            .collect();
        let (packed, listed) = put_records(&records)?;
        let mut list = Vec::with_capacity(listed.len() + 2);
        put_number(&mut list, side);
        list.extend(listed);
        put_block(out, before, Kind::of_list(packed), &list);
        for (image, attempt) in images.iter().zip(attempts) {
            let strips = alpha(image)?;
            let blocks = attempt.blocks.iter().map(|block| (Kind::Codes, block));
            for (kind, payload) in blocks.chain(strips.iter().map(|s| (Kind::Strip, s))) {
                put_block(out, &[], kind, payload);
            }
            let around: usize = strips.iter().map(|strip| overhead(strip.len())).sum();
            let part = Part {
                codes: attempt.codes(),
                alpha: strips.iter().map(Vec::len).sum(),
                blocks: around + attempt.overhead(),
                dropped: attempt.dropped,
                squared_error: attempt.squared_error,
                shown: Image {
                    name: image.name.clone(),
                    width: image.width,
                    height: image.height,
                    colour: attempt.colour,
                    alpha: image.alpha.clone(),
                    profile: image.profile.clone(),
                    orientation: image.orientation,
                    metadata: image.metadata.clone(),
                },
            };
            summary.add(image, &part);
            (self.watch)(image.colour.len());
            each(part);
        }
        Ok(())
    }
}

fn alpha(image: &Image) -> Result<Vec<Vec<u8>>> {
    let Some(alpha) = &image.alpha else {
        return Ok(Vec::new());
    };
    let shape = Shape {
        width: image.width,
        height: image.height,
        channels: 1,
    };
    plane::write(shape, alpha)
}

impl Summary {
    fn add(&mut self, image: &Image, part: &Part) {
        self.images += 1;
        self.samples += image.bytes();
        self.colour_samples += image.colour.len();
        self.pixels += image.width * image.height;
        self.codes += part.codes;
        self.alpha += part.alpha;
        self.squared_error += part.squared_error;
        let (least, most) = self.dropped.unwrap_or((part.dropped, part.dropped));
        self.dropped = Some((least.min(part.dropped), most.max(part.dropped)));
    }

    /// Of all samples of colours together, in decibels; none where nothing is lost.
    pub fn psnr(&self) -> Option<f64> {
        let mean = self.squared_error as f64 / self.colour_samples as f64;
        (self.squared_error > 0).then(|| 10.0 * (255.0 * 255.0 / mean).log10())
    }
}
