//! A folder of images: PNG, JPEG and WebP files, in it or in folders below it.
//!
//! Of each image its central square is kept, resized to the side of the model, or random squares (`data.crop`). About one in ten is for testing,
//! chosen by a hash of its path below the folder: but for a handful of images, where neither split may be empty, adding
//! some never moves another from one split to the other.

use super::items::{Item, images_in};
use super::listing::Listing;
use rrvq::error::{Error, Result};
use rrvq::picture::Part;
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
    Ok(Listing {
        name: "folder",
        train,
        test,
        part: Part::Centre,
        classes: vec![],
        dir: dir.to_path_buf(),
        files: vec![],
    })
}

/// Images to test with, and the others; neither is ever empty.
pub(super) fn split(images: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
    let low = images.iter().map(|image| hash(&image.below)).min();
    let high = images.iter().map(|image| hash(&image.below)).max();
    images.into_iter().partition(|image| {
        let hash = hash(&image.below);
        // In a handful of images none or all may fall to the test: the outermost hashes are on fixed sides.
        Some(hash) != high && (hash < u64::MAX / TEST_SHARE || Some(hash) == low)
    })
}

/// FNV-1a, and a scramble so that the top bits are as good as the bottom ones.
pub(super) fn hash(name: &str) -> u64 {
    let bits = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    rrvq::dataset::swatches::scramble(bits)
}

#[cfg(test)]
mod tests {
    use super::super::crop::Cropping;
    use super::super::items::Place;
    use super::*;
    use crate::labels::Labelled;
    use rrvq::config::{Crop, CropWord, DataConfig};
    use rrvq::dataset::{Dataset, Split};
    use rrvq::picture::Picture;
    use std::path::PathBuf;

    fn entry(name: String) -> Item {
        let place = Place::File(PathBuf::from(&name));
        Item {
            below: name,
            place,
            label: None,
        }
    }

    fn open(dir: &Path, size: usize, channels: usize, config: &DataConfig) -> Result<Labelled> {
        let listing = list(dir)?;
        let crop = Cropping::new(config, listing.part, size, channels);
        listing.open(&crop, &mut |_, _| {})
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
        let name = |image: &Item| image.below.clone();
        let many: Vec<String> = many.iter().map(name).collect();
        assert!(few.iter().all(|image| many.contains(&image.below)));
        for count in 2..20 {
            let (test, train) = split(names(count));
            assert!(!test.is_empty() && !train.is_empty(), "{count} images");
        }
    }

    #[test]
    fn images_of_all_folders_are_read_in_order_of_their_paths() {
        let scratch = tempfile::tempdir().unwrap();
        for folder in ["b", "a/deep", ".hidden"] {
            std::fs::create_dir_all(scratch.path().join(folder)).unwrap();
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
            picture.save(scratch.path().join(name)).unwrap();
        }
        let below: Vec<String> = images_in(&scratch.path().join(""))
            .unwrap()
            .into_iter()
            .map(|entry| entry.below)
            .collect();
        assert_eq!(below, ["a/1.PNG", "a/deep/2.png", "b/0.png", "z.png"]);
        let data = open(&scratch.path().join(""), 8, 1, &DataConfig::default()).unwrap();
        assert_eq!(data.shape(), [8, 8, 1]);
        assert_eq!(data.len(Split::Train) + data.len(Split::Test), 4);
        let mut greys: Vec<u8> = data
            .images
            .train
            .iter()
            .chain(data.images.test.iter())
            .step_by(64)
            .copied()
            .collect();
        greys.sort();
        assert_eq!(greys, [0, 10, 20, 30]);
    }

    #[test]
    fn an_unreadable_image_and_an_empty_folder_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(!is_there(&scratch.path().join("")));
        let said = list(&scratch.path().join("")).unwrap_err().to_string();
        assert!(said.contains("has 0 images"), "{said}");
        for i in 0..40 {
            let picture = Picture::new([2, 2, 3], vec![i; 12]).unwrap();
            picture
                .save(scratch.path().join(format!("{i:02}.png")))
                .unwrap();
        }
        std::fs::write(scratch.path().join("17.png"), b"no picture").unwrap();
        let said = open(&scratch.path().join(""), 2, 3, &DataConfig::default())
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("17.png as an image") && said.contains("expected a PNG"),
            "{said}"
        );
        let config = DataConfig {
            name: "folder".into(),
            dir: Some(scratch.path().into()),
            skip_damaged: true,
            ..DataConfig::default()
        };
        let data = crate::open(&config, 2, 3, &mut |_, _| {}).unwrap();
        assert_eq!(data.len(Split::Train) + data.len(Split::Test), 39);
        let [said] = data.left_out() else {
            panic!("{:?}", data.left_out());
        };
        assert!(said.contains("17.png"), "{said}");
        for i in 0..40 {
            let path = scratch.path().join(format!("{i:02}.png"));
            std::fs::write(path, b"no picture").unwrap();
        }
        let said = crate::open(&config, 2, 3, &mut |_, _| {});
        let said = said.err().unwrap().to_string();
        assert!(said.contains("no image of a split"), "{said}");
        let said = list(&scratch.path().join("none")).unwrap_err().to_string();
        assert!(said.contains("no such file or folder"), "{said}");
    }

    /// Grey images whose samples say where they are: 3 × row + column.
    fn slopes(scratch: &tempfile::TempDir) {
        for i in 0..6 {
            let pixels = (0..20 * 30).map(|p| (p / 30 * 3 + p % 30) as u8);
            let picture = Picture::new([20, 30, 1], pixels.collect()).unwrap();
            picture
                .save(scratch.path().join(format!("{i}.png")))
                .unwrap();
        }
    }

    #[test]
    fn random_crops_are_cut_as_they_are_and_always_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        slopes(&scratch);
        let mut config = DataConfig {
            crop: Crop::Word(CropWord::Random),
            crops: 20,
            ..DataConfig::default()
        };
        let data = open(&scratch.path().join(""), 8, 1, &config).unwrap();
        let count = data.len(Split::Train) + data.len(Split::Test);
        assert_eq!(count, 6 * 20);
        let corners: Vec<u8> = data.images.train.chunks(64).map(|image| image[0]).collect();
        for (image, corner) in data.images.train.chunks(64).zip(&corners) {
            let expected = (0..64).map(|p| corner + (p / 8 * 3 + p % 8) as u8);
            assert!(
                image.iter().copied().eq(expected),
                "pixels of the image itself"
            );
        }
        let (low, high) = (
            *corners.iter().min().unwrap(),
            *corners.iter().max().unwrap(),
        );
        assert!(
            low < 12 && high > 46 && high <= 12 * 3 + 22,
            "{low} to {high}"
        );
        let again = open(&scratch.path().join(""), 8, 1, &config).unwrap();
        assert_eq!(
            (&again.images.train, &again.images.test),
            (&data.images.train, &data.images.test)
        );
        config.crop_seed = 1;
        let other = open(&scratch.path().join(""), 8, 1, &config).unwrap();
        assert_ne!(other.images.train, data.images.train);
        // Larger than the image: the largest square there is, resized.
        config.crop_size = 500;
        let large = open(&scratch.path().join(""), 8, 1, &config).unwrap();
        assert!(
            large
                .images
                .train
                .chunks(64)
                .all(|image| image[63] > image[0] + 50)
        );
    }

    #[test]
    fn a_large_folder_is_decoded_once() {
        let scratch = tempfile::tempdir().unwrap();
        slopes(&scratch);
        // Enough pixels to be worth keeping.
        let config = DataConfig {
            crop: Crop::Word(CropWord::Random),
            crops: 50_000,
            ..DataConfig::default()
        };
        let (crops, crop) = (config.crops, Cropping::new(&config, Part::Centre, 8, 1));
        let cache = scratch.path().join("cache");
        let open = || {
            let (mut told, listing) = (Vec::new(), list(&scratch.path().join("")).unwrap());
            let data =
                listing.open_cached(&crop, Some(&cache), &mut |done, all| told.push((done, all)));
            (data.unwrap(), told)
        };
        let (first, told) = open();
        assert_eq!(told, [(6 * crops, 6 * crops)]);
        let (second, told) = open();
        assert!(told.is_empty(), "nothing was decoded again");
        assert_eq!(
            (&first.images.train, &first.images.test),
            (&second.images.train, &second.images.test)
        );
        // A new image beside the others makes another set.
        let picture = Picture::new([20, 30, 1], vec![7; 600]).unwrap();
        picture.save(scratch.path().join("7.png")).unwrap();
        let (third, told) = open();
        assert_eq!(told, [(7 * crops, 7 * crops)]);
        assert_eq!(
            third.images.train.len() + third.images.test.len(),
            7 * crops * 64
        );
    }
}
