//! MNIST and the sets made in its image: grey pictures in idx files, plain or gzipped.
//!
//! An idx file is two zero bytes, the kind of its numbers, how many sides it has, each side in four bytes (the largest
//! byte first) and then the numbers. The folder must hold one file of training images and one of test images, by the
//! names they are handed out under; labels are not read. Digits are never mirrored.

use super::archive::{gunzip, is_gzip};
use super::{Dataset, folder_of};
use crate::Images;
use rrvq::config::DataConfig;
use rrvq::error::{Error, Result};
use std::path::{Path, PathBuf};

const HEADER: usize = 16;
/// Bytes, in three sides: images, rows, columns.
const MAGIC: [u8; 4] = [0, 0, 8, 3];
const TRAIN: &[&str] = &["train-images"];
const TEST: &[&str] = &["t10k-images", "test-images"];

pub(super) fn open(config: &DataConfig, _: usize, _: usize) -> Result<Box<dyn Dataset>> {
    let holding = "train-images-idx3-ubyte and t10k-images-idx3-ubyte, gzipped or not";
    Ok(Box::new(load(folder_of(config, holding)?)?))
}

/// Whether `dir` has a file of training or of test images.
pub(super) fn is_there(dir: &Path) -> bool {
    let found = |words| candidates(dir, words).is_ok_and(|files| !files.is_empty());
    found(TRAIN) || found(TEST)
}

fn load(dir: &Path) -> Result<Images> {
    let train_file = one(dir, TRAIN)?;
    let (side, train) = read(&train_file)?;
    let test_file = one(dir, TEST)?;
    let (test_side, test) = read(&test_file)?;
    if side != test_side {
        let (train, test) = (train_file.display(), test_file.display());
        return Err(Error::new(format!(
            "{train} has images of {}×{} but {test} of {}×{}; expected one size",
            side[0], side[1], test_side[0], test_side[1]
        )));
    }
    Ok(Images {
        name: "idx".into(),
        shape: [side[0], side[1], 1],
        train: train.into(),
        test: test.into(),
        flip: false,
    })
}

/// Files whose names have one of `words` and say idx.
fn candidates(dir: &Path, words: &[&str]) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|error| Error::io("open", dir, error))?;
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains("idx3") && words.iter().any(|word| name.contains(word)) && path.is_file()
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
    let files = candidates(dir, words)?;
    let (dir, wanted) = (dir.display(), words[0]);
    match &files[..] {
        [file] => Ok(file.clone()),
        [] => Err(Error::new(format!(
            "{dir} has no file {wanted}-idx3-ubyte or {wanted}-idx3-ubyte.gz; name the right folder with --data"
        ))),
        [first, second, ..] => Err(Error::new(format!(
            "{dir} has several files of that kind, {} and {}; keep one data set in a folder",
            first.display(),
            second.display()
        ))),
    }
}

/// Rows and columns, and the images.
fn read(path: &Path) -> Result<([usize; 2], Vec<u8>)> {
    let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
    let shown = path.display();
    let foreign = |problem: String| {
        Error::new(format!(
            "{shown} is not an idx file of images: {problem}; fetch it again"
        ))
    };
    let (mut bytes, packed) = match is_gzip(&bytes) {
        true => (gunzip(&bytes).map_err(foreign)?, " once unpacked"),
        false => (bytes, ""),
    };
    if let Some(at) = bytes
        .iter()
        .zip(MAGIC)
        .position(|(have, want)| *have != want)
    {
        let (found, wanted) = (bytes[at], MAGIC[at]);
        return Err(foreign(format!(
            "byte {at}{packed} is {found}; expected {wanted}"
        )));
    }
    let have = bytes.len();
    if have < HEADER {
        return Err(foreign(format!(
            "it ends at byte {have}{packed}; expected a header of {HEADER} bytes"
        )));
    }
    let side = |at: usize| {
        bytes[at..at + 4]
            .iter()
            .fold(0, |n, byte| n << 8 | usize::from(*byte))
    };
    let [count, rows, columns] = [4, 8, 12].map(side);
    let whole = rows
        .checked_mul(columns)
        .and_then(|each| each.checked_mul(count))
        .and_then(|all| all.checked_add(HEADER))
        .filter(|whole| *whole > HEADER);
    if whole != Some(have) {
        return Err(foreign(format!(
            "it ends at byte {have}{packed}; expected {HEADER} and {count} images of {rows}×{columns}"
        )));
    }
    bytes.drain(..HEADER);
    Ok(([rows, columns], bytes))
}

#[cfg(test)]
mod tests {
    use super::super::archive::tests::gzip;
    use super::*;
    use rrvq::dataset::Split;

    fn file(count: usize, rows: u8, columns: u8, first: u8) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
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
        write("train-labels-idx1-ubyte", vec![]);
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
