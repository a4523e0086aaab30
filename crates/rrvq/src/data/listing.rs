//! Image files that become a data set: which belong to which split, and which part of each is kept.
//!
//! Listing is quick and decoding is not, so they are two steps: a look at a folder lists everything and decodes a few.
//! All images are decoded when a data set is opened, on all cores, and stay in memory: a training step never waits for
//! a file, and an unreadable one is known before the first step.

use super::Split;
use super::images::Images;
use crate::error::{Error, Result};
use crate::picture::{Part, Picture};
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Endings of the files that count as images.
const ENDINGS: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// Image files, in two splits.
#[derive(Debug)]
pub(super) struct Listing {
    pub name: &'static str,
    pub train: Vec<PathBuf>,
    pub test: Vec<PathBuf>,
    pub part: Part,
}

impl Listing {
    /// All images, decoded.
    pub fn open(&self, size: usize, channels: usize) -> Result<Images> {
        Ok(Images {
            name: self.name,
            shape: [size, size, channels],
            train: self.decode(&self.train, size, channels)?,
            test: self.decode(&self.test, size, channels)?,
            flip: true,
        })
    }

    /// The files of a split.
    pub fn files(&self, split: Split) -> &[PathBuf] {
        match split {
            Split::Train => &self.train,
            Split::Test => &self.test,
        }
    }

    /// The images in `files`, one after the other. Of several unreadable ones the first is told of.
    pub fn decode(&self, files: &[PathBuf], size: usize, channels: usize) -> Result<Vec<u8>> {
        let each = size * size * channels;
        let mut pixels = Vec::new();
        let whole = files.len().checked_mul(each);
        let room = whole.filter(|whole| pixels.try_reserve_exact(*whole).is_ok());
        let Some(whole) = room else {
            return Err(Error::new(format!(
                "{} images of {size}×{size}×{channels} do not fit in memory; use fewer or lower model.size",
                files.len()
            )));
        };
        pixels.resize(whole, 0);
        let failed =
            pixels
                .par_chunks_exact_mut(each)
                .zip(files)
                .find_map_first(|(image, file)| {
                    match Picture::load_part(file, self.part, size, channels) {
                        Ok(picture) => {
                            image.copy_from_slice(picture.pixels());
                            None
                        }
                        Err(error) => Some(error),
                    }
                });
        match failed {
            Some(error) => Err(error),
            None => Ok(pixels),
        }
    }
}

/// An image file, and its path below the folder that was listed, with `/` on every system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub below: String,
    pub path: PathBuf,
}

/// The images in `dir` and its folders, sorted by path; hidden files are left out.
pub(super) fn images_in(dir: &Path) -> Result<Vec<Entry>> {
    let (mut entries, mut seen) = (Vec::new(), HashSet::new());
    let mut folders = vec![(String::new(), dir.to_path_buf())];
    while let Some((prefix, folder)) = folders.pop() {
        // A link to a folder that was listed already would never end.
        let real = folder
            .canonicalize()
            .map_err(|error| Error::io("open", &folder, error))?;
        if !seen.insert(real) {
            continue;
        }
        let listed = std::fs::read_dir(&folder).map_err(|e| Error::io("open", &folder, e))?;
        for entry in listed {
            let entry = entry.map_err(|error| Error::io("list", &folder, error))?;
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            // Asking each of many files for more than its kind takes long; links are followed.
            let kind = entry.file_type();
            let is_folder = match kind {
                Ok(kind) if !kind.is_symlink() => kind.is_dir(),
                _ => path.is_dir(),
            };
            if is_folder {
                folders.push((format!("{prefix}{name}/"), path));
            } else if is_image(&path) {
                let below = format!("{prefix}{name}");
                entries.push(Entry { below, path });
            }
        }
    }
    entries.sort();
    Ok(entries)
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    ENDINGS.contains(&ending.to_lowercase().as_str())
}
