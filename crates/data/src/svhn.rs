//! SVHN: photographed house numbers, 32×32 pixels, in the MATLAB files they are handed out in.
//!
//! `train_32x32.mat` and `test_32x32.mat` each hold an array X of 32×32×3×N bytes whose first index, the row, runs
//! fastest; images are kept rows first, channels last. An array y of N bytes has the digits, 10 for 0; without it, images
//! have no labels. The half million easier images of `extra_32x32.mat` are read
//! only under the name `svhn-extra`: what a model was trained on must not depend on which files happened to be there.
//! Digits are never mirrored.

use super::labels::{Labelled, Labels};
use super::mat::byte_array;
use super::{Dataset, folder_of};
use crate::Images;
use rayon::prelude::*;
use rrvq::config::DataConfig;
use rrvq::error::{Error, Result};
use std::path::Path;

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const IMAGE: usize = 3 * PLANE;
const TRAIN: &str = "train_32x32.mat";
const TEST: &str = "test_32x32.mat";
const EXTRA: &str = "extra_32x32.mat";

pub(super) fn open(config: &DataConfig, _: usize, _: usize) -> Result<Box<dyn Dataset>> {
    let dir = folder_of(config, "train_32x32.mat and test_32x32.mat")?;
    Ok(Box::new(load(dir, "svhn", &[TRAIN])?))
}

pub(super) fn open_with_extra(config: &DataConfig, _: usize, _: usize) -> Result<Box<dyn Dataset>> {
    let dir = folder_of(
        config,
        "train_32x32.mat, extra_32x32.mat and test_32x32.mat",
    )?;
    Ok(Box::new(load(dir, "svhn-extra", &[TRAIN, EXTRA])?))
}

/// Whether `dir` has any of the files.
pub(super) fn is_there(dir: &Path) -> bool {
    [TRAIN, TEST].iter().any(|name| dir.join(name).exists())
}

fn load(dir: &Path, name: &'static str, train: &[&str]) -> Result<Labelled> {
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for file in train {
        let (more, digits) = read(&dir.join(file))?;
        match images.is_empty() {
            true => images = more,
            false => images.extend(more),
        }
        labels.extend(digits);
    }
    let (test, digits) = read(&dir.join(TEST))?;
    Ok(Labelled {
        left_out: vec![],
        images: Images {
            name: name.into(),
            shape: [SIDE, SIDE, 3],
            train: images.into(),
            test: test.into(),
            flip: false,
        },
        labels: Labels {
            train: labels,
            test: digits,
            classes: (0..10).map(|digit| digit.to_string()).collect(),
        },
    })
}

/// The images of a file and their digits.
fn read(path: &Path) -> Result<(Vec<u8>, Vec<Option<u32>>)> {
    let file = rrvq::limits::read_file(path)?;
    let found = byte_array(&file, "X").map_err(|problem| {
        let path = path.display();
        Error::new(format!(
            "{path} is not one of SVHN's MATLAB files: {problem}; fetch it again"
        ))
    })?;
    let digits = byte_array(&file, "y");
    drop(file);
    let mut images = found.bytes;
    match found.sides[..] {
        [SIDE, SIDE, 3, count] if count > 0 => {}
        // An array of one image has no fourth side.
        [SIDE, SIDE, 3] => {}
        _ => {
            let (path, sides) = (path.display(), found.sides);
            return Err(Error::new(format!(
                "{path} has an array X of sides {sides:?}; expected [32, 32, 3, N], the cropped digits of SVHN's second \
                 format"
            )));
        }
    }
    images.par_chunks_exact_mut(IMAGE).for_each(rows_first);
    let count = images.len() / IMAGE;
    let digit = |digit: &u8| (1..=10).contains(digit).then(|| u32::from(digit % 10));
    let labels = match digits {
        Ok(digits) if digits.bytes.len() == count => digits.bytes.iter().map(digit).collect(),
        _ => vec![None; count],
    };
    Ok((images, labels))
}

/// Planes of columns become rows of pixels.
fn rows_first(image: &mut [u8]) {
    let mut planes = [0; IMAGE];
    planes.copy_from_slice(image);
    for (place, pixel) in image.chunks_exact_mut(3).enumerate() {
        let (row, column) = (place / SIDE, place % SIDE);
        for (channel, sample) in pixel.iter_mut().enumerate() {
            *sample = planes[channel * PLANE + column * SIDE + row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mat::tests::file;
    use super::*;
    use rrvq::dataset::Split;

    /// A sample that says which image, row, column and channel it is of.
    fn sample(image: usize, row: usize, column: usize, channel: usize) -> u8 {
        (image * 101 + row * 5 + column * 3 + channel * 67) as u8
    }

    /// `count` images as MATLAB writes them, the first of them being number `from`.
    fn written(from: usize, count: usize) -> Vec<u8> {
        let one = |i: usize| {
            let (image, channel) = (i / IMAGE, i % IMAGE / PLANE);
            let (column, row) = (i % PLANE / SIDE, i % SIDE);
            sample(from + image, row, column, channel)
        };
        let content: Vec<u8> = (0..count * IMAGE).map(one).collect();
        file(&[32, 32, 3, count as u32], &content, from.is_multiple_of(2))
    }

    #[test]
    fn images_come_rows_first_and_extra_only_when_named() {
        let scratch = tempfile::tempdir().unwrap();
        for (name, from, count) in [(TRAIN, 0, 2), (EXTRA, 2, 3), (TEST, 5, 1)] {
            std::fs::write(scratch.path().join(name), written(from, count)).unwrap();
        }
        let config = DataConfig {
            dir: Some(scratch.path().join("")),
            ..DataConfig::default()
        };
        let data = open(&config, 32, 3).unwrap();
        assert_eq!((data.len(Split::Train), data.len(Split::Test)), (2, 1));
        assert!(!data.may_flip(), "a mirrored 3 is no digit");
        let digits = [0, 1].map(|i| data.label(Split::Train, i));
        assert_eq!(digits, [Some(1), Some(0)], "MATLAB's 10 is 0");
        assert_eq!(data.label(Split::Test, 0), None, "one image, two digits");
        assert_eq!(data.classes().len(), 10);
        let more = open_with_extra(&config, 32, 3).unwrap();
        assert_eq!((more.len(Split::Train), more.len(Split::Test)), (5, 1));
        let mut image = [0; IMAGE];
        for (split, index, number) in [
            (Split::Train, 1, 1),
            (Split::Train, 3, 3),
            (Split::Test, 0, 5),
        ] {
            more.read(split, index, &mut image);
            for (row, column, channel) in [(0, 0, 0), (3, 7, 1), (31, 2, 2), (9, 31, 0)] {
                let have = image[(row * SIDE + column) * 3 + channel];
                assert_eq!(
                    have,
                    sample(number, row, column, channel),
                    "{row}, {column}"
                );
            }
        }
    }

    #[test]
    fn bad_files_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        let said = |dir: &Path| load(dir, "svhn", &[TRAIN]).unwrap_err().to_string();
        let missing = said(&scratch.path().join(""));
        assert!(
            missing.contains("train_32x32.mat: there is no such file"),
            "{missing}"
        );
        assert!(!is_there(&scratch.path().join("")));
        std::fs::write(scratch.path().join(TRAIN), written(0, 1)).unwrap();
        assert!(is_there(&scratch.path().join("")));
        let mut short = written(1, 1);
        short.truncate(1000);
        std::fs::write(scratch.path().join(TEST), short).unwrap();
        let cut = said(&scratch.path().join(""));
        assert!(
            cut.contains("test_32x32.mat") && cut.contains("ends at byte 1000"),
            "{cut}"
        );
        std::fs::write(scratch.path().join(TEST), file(&[4, 4], &[0; 16], true)).unwrap();
        let other = said(&scratch.path().join(""));
        assert!(
            other.contains("[4, 4]") && other.contains("expected [32, 32, 3, N]"),
            "{other}"
        );
        let unnamed = open(&DataConfig::default(), 32, 3)
            .err()
            .unwrap()
            .to_string();
        assert!(unnamed.contains("data.dir"), "{unnamed}");
    }
}
