//! A folder of images: PNG, JPEG and WebP files, in it or in folders below it.
//!
//! Each image is cropped to its central square and resized to the side of the model. About one in ten is for testing,
//! chosen by a hash of its path below the folder: but for a handful of images, where neither split may be empty, adding
//! some never moves another from one split to the other.

use super::listing::{Entry, Listing, images_in};
use crate::error::{Error, Result};
use crate::picture::Part;
use std::path::Path;

/// One image in this many is for testing.
const TEST_SHARE: u64 = 10;

pub(super) const HOLDING: &str = "images (PNG, JPEG or WebP)";

/// Whether there is an image in `dir` or below.
pub(super) fn is_there(dir: &Path) -> bool {
    images_in(dir).is_ok_and(|images| !images.is_empty())
}

pub(super) fn list(dir: &Path) -> Result<Listing> {
    let images = images_in(dir)?;
    if images.len() < 2 {
        let (dir, have) = (dir.display(), images.len());
        return Err(Error::new(format!(
            "{dir} has {have} images (PNG, JPEG, WebP) in it and below; expected at least 2, one to train on and one to \
             test with"
        )));
    }
    let (test, train) = split(images);
    let paths = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.path).collect();
    Ok(Listing {
        name: "folder",
        train: paths(train),
        test: paths(test),
        part: Part::Centre,
    })
}

/// Images to test with, and the others; neither is ever empty.
fn split(images: Vec<Entry>) -> (Vec<Entry>, Vec<Entry>) {
    let low = images.iter().map(|image| hash(&image.below)).min();
    let high = images.iter().map(|image| hash(&image.below)).max();
    images.into_iter().partition(|image| {
        let hash = hash(&image.below);
        // In a handful of images none or all may fall to the test: the outermost hashes are on fixed sides.
        Some(hash) != high && (hash < u64::MAX / TEST_SHARE || Some(hash) == low)
    })
}

/// FNV-1a, and a scramble so that the top bits are as good as the bottom ones.
fn hash(name: &str) -> u64 {
    let bits = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    super::swatches::scramble(bits)
}

#[cfg(test)]
mod tests {
    use super::super::{Dataset, Split};
    use super::*;
    use crate::picture::Picture;
    use crate::run::tests::Scratch;
    use std::path::PathBuf;

    fn entry(name: String) -> Entry {
        let path = PathBuf::from(&name);
        Entry { below: name, path }
    }

    #[test]
    fn about_a_tenth_is_for_testing_and_stays_so() {
        let names = |count: usize| {
            (0..count)
                .map(|i| entry(format!("cats/{i:05}.png")))
                .collect()
        };
        let (few, _) = split(names(2000));
        let (many, others) = split(names(4000));
        assert!((140..260).contains(&few.len()), "{}", few.len());
        assert!((320..480).contains(&many.len()), "{}", many.len());
        assert_eq!(many.len() + others.len(), 4000);
        // The smallest hash of few is in the test either way; it is one of the tenth.
        assert!(few.iter().all(|image| many.contains(image)));
        for count in 2..20 {
            let (test, train) = split(names(count));
            assert!(!test.is_empty() && !train.is_empty(), "{count} images");
        }
    }

    #[test]
    fn images_of_all_folders_are_read_in_order_of_their_paths() {
        let scratch = Scratch::new();
        for folder in ["b", "a/deep", ".hidden"] {
            std::fs::create_dir_all(scratch.path(folder)).unwrap();
        }
        let names = [
            "a/deep/2.png",
            "a/1.PNG",
            "b/0.png",
            "z.png",
            ".hidden/x.png",
            "b/notes.txt",
        ];
        for (i, name) in names.iter().enumerate() {
            let pixels = vec![i as u8 * 10; 6 * 4 * 3];
            let picture = Picture::new([6, 4, 3], pixels).unwrap();
            picture.save(scratch.path(name)).unwrap();
        }
        let below: Vec<String> = images_in(&scratch.path(""))
            .unwrap()
            .into_iter()
            .map(|entry| entry.below)
            .collect();
        assert_eq!(below, ["a/1.PNG", "a/deep/2.png", "b/0.png", "z.png"]);
        let data = list(&scratch.path("")).unwrap().open(8, 1).unwrap();
        assert_eq!(data.shape(), [8, 8, 1]);
        assert_eq!(data.len(Split::Train) + data.len(Split::Test), 4);
        let mut greys: Vec<u8> = data
            .train
            .iter()
            .chain(&data.test)
            .step_by(64)
            .copied()
            .collect();
        greys.sort();
        assert_eq!(greys, [0, 10, 20, 30]);
    }

    #[test]
    fn an_unreadable_image_and_an_empty_folder_are_named() {
        let scratch = Scratch::new();
        assert!(!is_there(&scratch.path("")));
        let said = list(&scratch.path("")).unwrap_err().to_string();
        assert!(said.contains("has 0 images"), "{said}");
        for i in 0..40 {
            let picture = Picture::new([2, 2, 3], vec![i; 12]).unwrap();
            picture.save(scratch.path(&format!("{i:02}.png"))).unwrap();
        }
        std::fs::write(scratch.path("17.png"), b"no picture").unwrap();
        let said = list(&scratch.path(""))
            .unwrap()
            .open(2, 3)
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("17.png as an image") && said.contains("expected a PNG"),
            "{said}"
        );
        let said = list(&scratch.path("none")).unwrap_err().to_string();
        assert!(said.contains("no such file or folder"), "{said}");
    }
}
