//! MNIST and the sets made in its image: grey pictures in idx files, plain or gzipped.
//!
//! An idx file is two zero bytes, the kind of its numbers, how many sides it has, each side in four bytes (the largest
//! byte first) and then the numbers. The folder must hold one file of training images and one of test images, by the
//! names they are handed out under; files of labels (`train-labels-idx1-ubyte`, `t10k-labels-idx1-ubyte`) may lie beside
//! them. Digits are never mirrored. Hand-written: the format is a header of a few bytes.

use super::archive::{gunzip, is_gzip};
use super::labels::{Labelled, Labels};
use super::{Dataset, folder_of};
use crate::Images;
use rrvq::config::DataConfig;
use rrvq::error::{Error, Remedy, Result};
use std::path::{Path, PathBuf};

/// Files of images or of labels.
struct Form {
    name: &'static str,
    /// What the files' names say.
    idx: &'static str,
    /// How many sides: images, rows and columns, or labels alone.
    sides: u8,
}

const IMAGES: Form = Form {
    name: "images",
    idx: "idx3",
    sides: 3,
};
const LABELS: Form = Form {
    name: "labels",
    idx: "idx1",
    sides: 1,
};
const TRAIN: &[&str] = &["train"];
const TEST: &[&str] = &["t10k", "test"];

pub(super) fn open(config: &DataConfig, _: usize, _: usize) -> Result<Box<dyn Dataset>> {
    let holding = "train-images-idx3-ubyte and t10k-images-idx3-ubyte, gzipped or not";
    Ok(Box::new(load(folder_of(config, holding)?)?))
}

/// Whether `dir` has a file of training or of test images.
pub(super) fn is_there(dir: &Path) -> bool {
    let found = |words| candidates(dir, words, &IMAGES).is_ok_and(|files| !files.is_empty());
    found(TRAIN) || found(TEST)
}

fn load(dir: &Path) -> Result<Labelled> {
    let train_file = one(dir, TRAIN)?;
    let (side, train) = images(&train_file)?;
    let test_file = one(dir, TEST)?;
    let (test_side, test) = images(&test_file)?;
    if side != test_side {
        let (train, test) = (train_file.display(), test_file.display());
        return Err(Error::new(format!(
            "{train} has images of {}×{} but {test} of {}×{}; expected one size",
            side[0], side[1], test_side[0], test_side[1]
        )));
    }
    let each = side[0] * side[1];
    Ok(Labelled {
        left_out: vec![],
        labels: Labels {
            train: labels(dir, TRAIN, train.len() / each)?,
            test: labels(dir, TEST, test.len() / each)?,
            classes: vec![],
        },
        images: Images {
            name: "idx".into(),
            shape: [side[0], side[1], 1],
            train: train.into(),
            test: test.into(),
            flip: false,
        },
    })
}

/// The labels beside `count` images; none where there is no file of them, or more than one.
fn labels(dir: &Path, words: &[&str], count: usize) -> Result<Vec<Option<u32>>> {
    let [file] = &candidates(dir, words, &LABELS)?[..] else {
        return Ok(vec![]);
    };
    let (sides, labels) = read(file, &LABELS)?;
    match sides[0] == count {
        true => Ok(labels.iter().map(|label| Some((*label).into())).collect()),
        false => Err(Error::new(format!(
            "{} has {} labels, but there are {count} images; fetch both again, or take the labels away",
            file.display(),
            sides[0]
        ))),
    }
}

/// Files of a form whose names have one of `words`.
fn candidates(dir: &Path, words: &[&str], form: &Form) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|error| Error::io("open", dir, error))?;
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let has = |word: &&str| name.contains(&format!("{word}-{}", form.name));
        name.contains(form.idx) && words.iter().any(has) && path.is_file()
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(fits).collect();
    files.sort();
    // A file that lies beside its packed self is one file.
    let plain = files.clone();
    files.retain(|file| {
        file.extension().is_none_or(|e| e != "gz") || !plain.contains(&file.with_extension(""))
    });
    Ok(files)
}

fn one(dir: &Path, words: &[&str]) -> Result<PathBuf> {
    let files = candidates(dir, words, &IMAGES)?;
    let (dir, wanted) = (dir.display(), format!("{}-images", words[0]));
    match &files[..] {
        [file] => Ok(file.clone()),
        [] => Err(Error::with_remedy(
            format!("{dir} has no file {wanted}-idx3-ubyte or {wanted}-idx3-ubyte.gz"),
            Remedy::DataFolder,
        )),
        [first, second, ..] => Err(Error::new(format!(
            "{dir} has several files of that kind, {} and {}; keep one data set in a folder",
            first.display(),
            second.display()
        ))),
    }
}

/// Rows and columns, and the images.
fn images(path: &Path) -> Result<([usize; 2], Vec<u8>)> {
    let (sides, images) = read(path, &IMAGES)?;
    Ok(([sides[1], sides[2]], images))
}

/// The sides of a file, and its bytes.
fn read(path: &Path, form: &Form) -> Result<(Vec<usize>, Vec<u8>)> {
    let bytes = rrvq::limits::read_file(path)?;
    let shown = path.display();
    let foreign = |problem: String| {
        Error::new(format!(
            "{shown} is not an idx file of {}: {problem}; fetch it again",
            form.name
        ))
    };
    let (mut bytes, packed) = match is_gzip(&bytes) {
        true => (gunzip(&bytes).map_err(foreign)?, " once unpacked"),
        false => (bytes, ""),
    };
    // Two zeros, the number for bytes, how many sides.
    let magic = [0, 0, 8, form.sides];
    let differs = |(have, want): (&u8, u8)| *have != want;
    if let Some(at) = bytes.iter().zip(magic).position(differs) {
        let (found, wanted) = (bytes[at], magic[at]);
        return Err(foreign(format!(
            "byte {at}{packed} is {found}; expected {wanted}"
        )));
    }
    let (have, header) = (bytes.len(), 4 + 4 * usize::from(form.sides));
    if have < header {
        return Err(foreign(format!(
            "it ends at byte {have}{packed}; expected a header of {header} bytes"
        )));
    }
    let side = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let sides: Vec<usize> = bytes[4..header].chunks_exact(4).map(side).collect();
    let all = sides
        .iter()
        .try_fold(1usize, |all, side| all.checked_mul(*side));
    let whole = all
        .filter(|all| *all > 0)
        .and_then(|all| all.checked_add(header));
    if whole != Some(have) {
        let (count, name) = (sides[0], form.name);
        let each: Vec<String> = sides[1..].iter().map(usize::to_string).collect();
        let of = if each.is_empty() { "" } else { " of " };
        return Err(foreign(format!(
            "it ends at byte {have}{packed}; expected {header} and {count} {name}{of}{}",
            each.join("×")
        )));
    }
    bytes.drain(..header);
    Ok((sides, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::archive::tests::gzip;
    use super::*;
    use rrvq::dataset::Split;

    fn file(count: usize, rows: u8, columns: u8, first: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 3];
        bytes.extend([0, 0, 0, count as u8, 0, 0, 0, rows, 0, 0, 0, columns]);
        bytes.extend((0..count * rows as usize * columns as usize).map(|i| first + i as u8));
        bytes
    }

    #[test]
    fn plain_and_packed_files_are_read() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(!is_there(&scratch.path().join("")));
        let write =
            |name: &str, bytes: Vec<u8>| std::fs::write(scratch.path().join(name), bytes).unwrap();
        write("train-images-idx3-ubyte", file(3, 2, 2, 10));
        write("train-images-idx3-ubyte.gz", gzip(&file(9, 2, 2, 0)));
        write(
            "train-labels-idx1-ubyte",
            vec![0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9],
        );
        write("t10k-images.idx3-ubyte.gz", gzip(&file(2, 2, 2, 50)));
        assert!(is_there(&scratch.path().join("")));
        let data = load(&scratch.path().join("")).unwrap();
        assert_eq!((data.len(Split::Train), data.len(Split::Test)), (3, 2));
        assert_eq!((data.shape(), data.may_flip()), ([2, 2, 1], false));
        let mut image = [0; 4];
        data.read(Split::Train, 2, &mut image);
        assert_eq!(image, [18, 19, 20, 21]);
        data.read(Split::Test, 1, &mut image);
        assert_eq!(image, [54, 55, 56, 57]);
        let labels = |data: &dyn Dataset, split| -> Vec<Option<u32>> {
            (0..data.len(split)).map(|i| data.label(split, i)).collect()
        };
        assert_eq!(labels(&data, Split::Train), [Some(7), Some(0), Some(9)]);
        assert_eq!(labels(&data, Split::Test), [None, None], "without a file");
        let config = DataConfig {
            holdout: 0.3,
            ..DataConfig::default()
        };
        let divided = rrvq::dataset::hold_out(Box::new(data), &config).unwrap();
        assert_eq!(labels(&*divided, Split::Validation), [Some(9)]);
        for (bytes, words) in [
            (vec![], "ends at byte 0; expected a header of 8"),
            (
                vec![0, 0, 8, 1, 0, 0, 0, 3, 7],
                "ends at byte 9; expected 8 and 3 labels",
            ),
            (
                vec![0, 0, 8, 1, 0, 0, 0, 1, 7],
                "has 1 labels, but there are 2 images",
            ),
        ] {
            write("t10k-labels-idx1-ubyte", bytes);
            let said = load(&scratch.path().join("")).unwrap_err().to_string();
            assert!(
                said.contains("t10k-labels") && said.contains(words),
                "{said}"
            );
        }
    }

    #[test]
    fn bad_files_are_named_with_the_byte() {
        let scratch = tempfile::tempdir().unwrap();
        let (train, test) = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte");
        let write =
            |name: &str, bytes: Vec<u8>| std::fs::write(scratch.path().join(name), bytes).unwrap();
        let said = || load(&scratch.path().join("")).unwrap_err().to_string();
        assert!(said().contains("no file train-images-idx3-ubyte"));
        write(train, file(3, 2, 2, 0));
        assert!(said().contains("no file t10k-images-idx3-ubyte"));
        for (bytes, words) in [
            (vec![], "ends at byte 0"),
            (
                file(3, 2, 2, 0)[..20].to_vec(),
                "ends at byte 20; expected 16 and 3 images of 2×2",
            ),
            (vec![0, 0, 8, 1, 0, 0, 0, 9], "byte 3 is 1; expected 3"),
            (
                gzip(&file(3, 2, 2, 0)[..20]),
                "ends at byte 20 once unpacked",
            ),
            (gzip(&file(3, 2, 2, 0))[..25].to_vec(), "ends at byte 25"),
            (file(1, 3, 2, 0), "images of 2×2 but"),
        ] {
            write(test, bytes);
            let said = said();
            assert!(said.contains(test) && said.contains(words), "{said}");
        }
        write("emnist-train-images-idx3-ubyte", vec![]);
        assert!(said().contains("several"));
    }
}
