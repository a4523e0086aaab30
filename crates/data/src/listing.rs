//! Encoded images that become a data set: which belong to which split, and which part of each is kept.
//!
//! Listing is quick and decoding is not, so they are two steps: a look at a folder lists everything and decodes a few.
//! All images are decoded when a data set is opened, on all cores, before the first step: a training step never waits
//! for a file, and an unreadable one is known at once. A large set is decoded once and kept (see `decoded_cache`).

use super::crop::Cropping;
use super::decoded_cache::{Key, Stamp, load, store};
use super::items::{Item, Place, read};
use super::labels::{Labelled, Labels};
use crate::Images;
use rayon::prelude::*;
use rrvq::dataset::Split;
use rrvq::error::{Error, Result};
use rrvq::picture::{Part, Picture};
use rrvq_tensor::cache_dir;
use std::io;
use std::path::{Path, PathBuf};

/// Images that are decoded before progress is told.
const PIECE: usize = 512;
/// Sets of which neither the files nor the pixels take as many bytes are decoded faster than they are looked up.
const WORTH_KEEPING: u64 = 16 << 20;

/// Follows the decoding: images done, and images in all.
pub type Follow<'a> = &'a mut dyn FnMut(usize, usize);

/// Encoded images, in two splits.
#[derive(Debug)]
pub(super) struct Listing {
    pub name: &'static str,
    pub train: Vec<Item>,
    pub test: Vec<Item>,
    /// What is kept of an image where the configuration says nothing.
    pub part: Part,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The folder that was listed.
    pub dir: PathBuf,
    /// Archives and tables that the images are in.
    pub files: Vec<PathBuf>,
}

impl Listing {
    /// All images, decoded now or when they were last asked for.
    pub fn open(&self, crop: &Cropping, follow: Follow) -> Result<Labelled> {
        self.open_cached(crop, cache_dir().as_deref(), follow)
    }

    /// The same with another folder to keep them in, or none.
    pub fn open_cached(
        &self,
        crop: &Cropping,
        cache: Option<&Path>,
        follow: Follow,
    ) -> Result<Labelled> {
        if let Some(key) = cache.and_then(|cache| self.key(crop, cache)) {
            if let Some([train, test]) = load(&key) {
                return Ok(self.images(crop, train, test));
            }
            let written = store(&key, &mut |out| {
                self.decode_all(crop, follow, &mut |pixels| out.write_all(pixels))
            })?;
            // A disk that is full or forbidden is no reason to stop: then the images stay in memory.
            if written && let Some([train, test]) = load(&key) {
                return Ok(self.images(crop, train, test));
            }
        }
        let mut pixels = self.room(crop)?;
        let filled = self.decode_all(crop, follow, &mut |more| {
            pixels.extend(more);
            Ok(())
        })?;
        filled.map_err(|error| Error::new(format!("cannot keep images in memory: {error}")))?;
        let test = pixels.split_off(self.train.len() * crop.bytes());
        Ok(self.images(crop, pixels.into(), test.into()))
    }

    fn images(&self, crop: &Cropping, train: super::Pixels, test: super::Pixels) -> Labelled {
        Labelled {
            images: Images {
                name: self.name.into(),
                shape: [crop.size, crop.size, crop.channels],
                train,
                test,
                flip: true,
            },
            labels: self.labels(crop),
            left_out: Vec::new(),
        }
    }

    /// The labels of all images; all parts of an image have its label.
    pub fn labels(&self, crop: &Cropping) -> Labels {
        let labels = |items: &[Item]| {
            let label = |item: &Item| std::iter::repeat_n(item.label, crop.parts);
            items.iter().flat_map(label).collect()
        };
        Labels {
            train: labels(&self.train),
            test: labels(&self.test),
            classes: self.classes.clone(),
        }
    }

    fn items(&self, split: Split) -> &[Item] {
        match split {
            Split::Train => &self.train,
            Split::Validation => &[],
            Split::Test => &self.test,
        }
    }

    /// How many images `split` becomes.
    pub fn count(&self, split: Split, crop: &Cropping) -> usize {
        self.items(split).len() * crop.parts
    }

    /// The first `count` training images, decoded.
    pub fn first(&self, count: usize, crop: &Cropping) -> Result<Vec<u8>> {
        let items = count.div_ceil(crop.parts).min(self.train.len());
        let mut pixels = decode(&runs(&self.train[..items]), crop)?;
        pixels.truncate(count * crop.bytes() / crop.parts);
        Ok(pixels)
    }

    /// Decodes all images, those to train on first, and gives them to `take` piece by piece. Of several unreadable
    /// ones the first is told of; what `take` could not do is handed back.
    fn decode_all(
        &self,
        crop: &Cropping,
        follow: Follow,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<io::Result<()>> {
        let total = self.train.len() + self.test.len();
        let runs = [runs(&self.train), runs(&self.test)].concat();
        let (mut left, mut done) = (&runs[..], 0);
        while !left.is_empty() {
            let (mut count, mut images) = (0, 0);
            while count < left.len() && images < PIECE {
                images += left[count].len();
                count += 1;
            }
            let (piece, rest) = left.split_at(count);
            if let Err(error) = take(&decode(piece, crop)?) {
                return Ok(Err(error));
            }
            left = rest;
            done += images;
            follow(done * crop.parts, total * crop.parts);
        }
        Ok(Ok(()))
    }

    /// Room in memory for all images.
    fn room(&self, crop: &Cropping) -> Result<Vec<u8>> {
        let (mut pixels, count) = (Vec::new(), self.train.len() + self.test.len());
        let whole = count.checked_mul(crop.bytes());
        match whole.is_some_and(|whole| pixels.try_reserve_exact(whole).is_ok()) {
            true => Ok(pixels),
            false => Err(Error::new(format!(
                "{count} images of {size}×{size}×{}, {} parts of each, do not fit in memory; use fewer or lower model.size",
                crop.channels,
                crop.parts,
                size = crop.size,
            ))),
        }
    }

    /// Takes out the images that cannot be decoded and says of each why; fails where a split would be left empty, or where
    /// images that are unpacked together cannot be.
    pub fn drop_damaged(&mut self, crop: &Cropping) -> Result<Vec<String>> {
        let mut said = Vec::new();
        for items in [&mut self.train, &mut self.test] {
            let runs = runs(items);
            let found: Vec<Vec<Option<Error>>> = runs
                .par_iter()
                .map(|run| match (read(run), run.len()) {
                    (Err(error), 1) => Ok(vec![Some(error)]),
                    (Err(error), _) => Err(error),
                    (Ok(encoded), _) => Ok(run
                        .par_iter()
                        .zip(encoded)
                        .map(|(item, bytes)| {
                            let mut out = vec![0; crop.bytes()];
                            decode_one(item, &bytes, crop, &mut out).err()
                        })
                        .collect()),
                })
                .collect::<Result<_>>()?;
            let mut found = found.into_iter().flatten();
            items.retain(|_| match found.next().flatten() {
                Some(error) => {
                    said.push(error.to_string());
                    false
                }
                None => true,
            });
            if items.is_empty() {
                return Err(Error::new(format!(
                    "no image of a split of {} can be read, of {} that are damaged in all; the first: {}",
                    self.dir.display(),
                    said.len(),
                    said.first().map_or("", String::as_str)
                )));
            }
        }
        Ok(said)
    }

    /// Everything that decides what the pixels are, if they are worth keeping.
    fn key(&self, crop: &Cropping, cache: &Path) -> Option<Key> {
        let sizes = [&self.train, &self.test].map(|items| items.len() * crop.bytes());
        let mut stamp = Stamp::new(cache, self.name, &self.dir, &format!("{crop:?}"), sizes)?;
        let mut encoded = 0;
        for file in &self.files {
            stamp.add(&file.to_string_lossy());
            encoded += stamp.add_file(file)?;
        }
        for split in [Split::Train, Split::Test] {
            for item in self.items(split) {
                stamp.add(&item.below);
                if let Place::File(path) = &item.place {
                    encoded += stamp.add_file(path)?;
                }
            }
            stamp.add("end of a split");
        }
        let pixels = (sizes[0] + sizes[1]) as u64;
        (encoded.max(pixels) >= WORTH_KEEPING).then(|| stamp.done())
    }
}

/// Images that are unpacked at once, together.
fn runs(items: &[Item]) -> Vec<&[Item]> {
    items.chunk_by(Item::goes_with).collect()
}

fn decode(runs: &[&[Item]], crop: &Cropping) -> Result<Vec<u8>> {
    let each = crop.bytes();
    let count: usize = runs.iter().map(|run| run.len()).sum();
    let mut pixels = vec![0; count * each];
    let (mut rest, mut work) = (&mut pixels[..], Vec::new());
    for run in runs {
        let (mine, others) = rest.split_at_mut(run.len() * each);
        work.push((*run, mine));
        rest = others;
    }
    let failed = work.into_par_iter().find_map_first(|(run, out)| {
        let encoded = match read(run) {
            Ok(encoded) => encoded,
            Err(error) => return Some(error),
        };
        let images = run
            .par_iter()
            .zip(encoded)
            .zip(out.par_chunks_exact_mut(each));
        images
            .map(|((item, bytes), out)| decode_one(item, &bytes, crop, out))
            .find_map_first(|outcome| outcome.err())
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(pixels),
    }
}

fn decode_one(item: &Item, bytes: &[u8], crop: &Cropping, out: &mut [u8]) -> Result<()> {
    let part = |number| crop.part(&item.below, number);
    let parts: Vec<Part> = (0..crop.parts).map(part).collect();
    let pictures = Picture::cut(bytes, &item, &parts, crop.size, crop.channels)?;
    for (picture, out) in pictures.iter().zip(out.chunks_exact_mut(picture_len(crop))) {
        out.copy_from_slice(picture.pixels());
    }
    Ok(())
}

fn picture_len(crop: &Cropping) -> usize {
    crop.size * crop.size * crop.channels
}
