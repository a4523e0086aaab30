//! CelebA: 202,599 aligned faces of 178×218 pixels, in the folder `img_align_celeba` or its zip archive.
//!
//! The square from (15, 40) to (163, 188) of each is kept, unless `data.crop` says otherwise, and resized to the side of
//! the model. The archive is read as it is: unpacked, it would be two hundred thousand small files. Splits are the official
//! ones: `list_eval_partition.txt` says which image is in which; without it the image's number does, in the same way.
//! The official validation images belong to neither split here.

use super::items::{Item, images_in, images_in_zip};
use super::listing::Listing;
use rrvq::dataset::Split;
use rrvq::error::{Error, Remedy, Result};
use rrvq::limits::read_file;
use rrvq::picture::Part;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const FOLDER: &str = "img_align_celeba";
const LIST: &str = "list_eval_partition.txt";
const FACE: Part = Part::At {
    left: 15,
    above: 40,
    side: 148,
};
/// Numbers of the last image to train on and of the last to validate with.
const LAST_TRAIN: usize = 162_770;
const LAST_VALID: usize = 182_637;

pub(super) const HOLDING: &str = "img_align_celeba or img_align_celeba.zip in it";

/// Whether `dir` has the images, packed or not.
pub(super) fn is_there(dir: &Path) -> bool {
    folder(dir).is_some() || archive(dir).is_some()
}

pub(super) fn list(dir: &Path) -> Result<Listing> {
    let (place, images, files) = match (folder(dir), archive(dir)) {
        (Some(folder), _) => (folder.clone(), images_in(&folder)?, vec![]),
        (None, Some(archive)) => {
            let images = images_in_zip(&archive)?;
            (archive.clone(), images, vec![archive])
        }
        (None, None) => {
            let shown = dir.display();
            return Err(match dir.is_dir() {
                true => Error::with_remedy(
                    format!("{shown} has neither a folder {FOLDER} nor {FOLDER}.zip in it"),
                    Remedy::DataFolder,
                ),
                false => Error::new(format!("cannot open {shown}: there is no such folder")),
            });
        }
    };
    let near = match files.is_empty() {
        true => place.join(".."),
        false => place.parent().unwrap_or(dir).to_path_buf(),
    };
    let partition = [dir, &dir.join("Eval"), &place, &near, &near.join("Eval")]
        .map(|place| place.join(LIST))
        .into_iter()
        .find(|file| file.is_file());
    let partition = partition.map(|file| read_list(&file)).transpose()?;
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for image in images {
        let split = match &partition {
            Some((file, splits)) => {
                let name = image.below.rsplit('/').next().unwrap_or_default();
                splits.get(name).copied().ok_or_else(|| {
                    let file = file.display();
                    Error::new(format!("{file} does not say which split {name} belongs to"))
                })?
            }
            None => by_number(&image)?,
        };
        match split {
            Split::Train => train.push(image),
            // Validation is what data.holdout keeps of the training images, as in every data set.
            Split::Validation => {}
            Split::Test => test.push(image),
        }
    }
    if train.is_empty() || test.is_empty() {
        return Err(Error::new(format!(
            "{} has {} images to train on and {} to test with; expected some of each",
            place.display(),
            train.len(),
            test.len()
        )));
    }
    Ok(Listing {
        name: "celeba",
        train,
        test,
        part: FACE,
        classes: vec![],
        dir: dir.to_path_buf(),
        files,
    })
}

/// Where the images are: some archives pack the folder into itself.
fn folder(dir: &Path) -> Option<PathBuf> {
    let once = dir.join(FOLDER);
    let itself = dir.file_name().is_some_and(|name| name == FOLDER);
    let places = [once.join(FOLDER), once, dir.join("Img").join(FOLDER)];
    let found = places.into_iter().find(|place| place.is_dir());
    found.or_else(|| (itself && dir.is_dir()).then(|| dir.to_path_buf()))
}

/// The archive, in `dir` or where the data set's own home has it, or `dir` itself.
fn archive(dir: &Path) -> Option<PathBuf> {
    let name = format!("{FOLDER}.zip");
    let places = [dir.join(&name), dir.join("Img").join(&name)];
    let itself = dir.file_name().is_some_and(|own| *own == *name);
    let found = places.into_iter().find(|place| place.is_file());
    found.or_else(|| (itself && dir.is_file()).then(|| dir.to_path_buf()))
}

/// The split of each image by the official list.
type Splits = HashMap<String, Split>;

fn read_list(file: &Path) -> Result<(PathBuf, Splits)> {
    let bytes = read_file(file)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut splits = Splits::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let split = match words[..] {
            [] => continue,
            [_, "0"] => Split::Train,
            [_, "1"] => Split::Validation,
            [_, "2"] => Split::Test,
            _ => {
                let (file, number) = (file.display(), number + 1);
                return Err(Error::new(format!(
                    "{file}, line {number}: expected an image's name and 0, 1 or 2, found {line:?}"
                )));
            }
        };
        splits.insert(words[0].into(), split);
    }
    Ok((file.to_path_buf(), splits))
}

fn by_number(image: &Item) -> Result<Split> {
    match image.stem().parse::<usize>() {
        Ok(1..=LAST_TRAIN) => Ok(Split::Train),
        Ok(number) if number > LAST_VALID => Ok(Split::Test),
        Ok(number) if number > LAST_TRAIN => Ok(Split::Validation),
        _ => Err(Error::new(format!(
            "{image} is not one of CelebA's images, whose names are numbers from 000001; take it out, or put {LIST} beside \
             the images"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::tests::zip;
    use super::super::crop::Cropping;
    use super::*;
    use crate::labels::Labelled;
    use rrvq::config::{Crop, CropWord, DataConfig};
    use rrvq::picture::Picture;

    /// An image of CelebA's size, bright in the part that is kept.
    fn save(path: PathBuf, width: usize) {
        let inside = |x: usize, y: usize| (15..163).contains(&x) && (40..188).contains(&y);
        let sample = |i: usize| match inside(i / 3 % width, i / 3 / width) {
            true => 200,
            false => 0,
        };
        let pixels = (0..218 * width * 3).map(sample).collect();
        let picture = Picture::new([218, width, 3], pixels).unwrap();
        picture.save(path).unwrap();
    }

    fn some(scratch: &tempfile::TempDir) {
        std::fs::create_dir_all(scratch.path().join(FOLDER)).unwrap();
        for number in [1, 162_770, 162_771, 182_637, 182_638, 202_599] {
            save(
                scratch.path().join(format!("{FOLDER}/{number:06}.png")),
                178,
            );
        }
    }

    fn names(items: &[Item]) -> Vec<&str> {
        items.iter().map(Item::stem).collect()
    }

    fn open(scratch: &tempfile::TempDir, crop: Crop) -> Result<Labelled> {
        let config = DataConfig {
            crop,
            ..DataConfig::default()
        };
        let listing = list(&scratch.path().join(""))?;
        listing.open(&Cropping::new(&config, listing.part, 64, 3), &mut |_, _| {})
    }

    #[test]
    fn splits_follow_the_number_or_the_list() {
        let scratch = tempfile::tempdir().unwrap();
        some(&scratch);
        for dir in ["", FOLDER] {
            let found = list(&scratch.path().join(dir)).unwrap();
            assert_eq!(names(&found.train), ["000001", "162770"]);
            assert_eq!(names(&found.test), ["182638", "202599"]);
        }
        let lines =
            "000001.png 2\n162770.png 1\n162771.png 0\n182637.png 0\n182638.png 1\n202599.png 2\n";
        std::fs::write(scratch.path().join(LIST), lines).unwrap();
        for dir in ["", FOLDER] {
            let found = list(&scratch.path().join(dir)).unwrap();
            assert_eq!(names(&found.train), ["162771", "182637"]);
            assert_eq!(names(&found.test), ["000001", "202599"]);
        }
        std::fs::write(scratch.path().join(LIST), "000001.png 0\n162770.png 7\n").unwrap();
        let said = list(&scratch.path().join("")).unwrap_err().to_string();
        assert!(said.contains("list_eval_partition.txt, line 2"), "{said}");
        std::fs::write(scratch.path().join(LIST), "000001.png 0\n").unwrap();
        let said = list(&scratch.path().join("")).unwrap_err().to_string();
        assert!(said.contains("which split 162770.png"), "{said}");
    }

    #[test]
    fn only_the_face_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        some(&scratch);
        let auto = Crop::Word(CropWord::Auto);
        let data = open(&scratch, auto.clone()).unwrap();
        assert_eq!(data.images.train.len(), 2 * 64 * 64 * 3);
        assert!(data.images.train.iter().all(|sample| *sample == 200));
        let corner = open(&scratch, Crop::Square([0, 0, 30, 30])).unwrap();
        assert!(corner.images.train.iter().all(|sample| *sample == 0));
        save(scratch.path().join("img_align_celeba/000002.png"), 100);
        let said = open(&scratch, auto).unwrap_err().to_string();
        assert!(
            said.contains("000002.png has 100×218 pixels")
                && said.contains("(15, 40) to (163, 188)"),
            "{said}"
        );
    }

    #[test]
    fn what_is_missing_or_foreign_is_said() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(!is_there(&scratch.path().join("")));
        let said =
            |scratch: &tempfile::TempDir| list(&scratch.path().join("")).unwrap_err().to_string();
        assert!(said(&scratch).contains("neither a folder img_align_celeba nor"));
        std::fs::write(scratch.path().join("img_align_celeba.zip"), b"").unwrap();
        assert!(
            is_there(&scratch.path().join("")) && said(&scratch).contains(".zip cannot be read")
        );
        std::fs::create_dir_all(scratch.path().join(FOLDER)).unwrap();
        assert!(said(&scratch).contains("0 images to train on"));
        save(scratch.path().join("img_align_celeba/cat.png"), 178);
        assert!(said(&scratch).contains("cat.png is not one of CelebA's images"));
    }

    #[test]
    fn the_archive_gives_the_images_of_the_folder() {
        let scratch = tempfile::tempdir().unwrap();
        some(&scratch);
        let auto = Crop::Word(CropWord::Auto);
        let plain = open(&scratch, auto.clone()).unwrap();
        let mut files: Vec<(String, Vec<u8>)> = images_in(&scratch.path().join(FOLDER))
            .unwrap()
            .iter()
            .map(|item| {
                let name = format!("{FOLDER}/{}", item.below);
                let bytes = std::fs::read(scratch.path().join(&name)).unwrap();
                (name, bytes)
            })
            .collect();
        files.push(("__MACOSX/img_align_celeba/._000001.png".into(), vec![1]));
        let packed = |files: &[(String, Vec<u8>)]| {
            let files: Vec<_> = files.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
            zip(&files)
        };
        let archive = packed(&files);
        std::fs::remove_dir_all(scratch.path().join(FOLDER)).unwrap();
        std::fs::write(scratch.path().join("img_align_celeba.zip"), &archive).unwrap();
        for dir in ["", "img_align_celeba.zip"] {
            let found = list(&scratch.path().join(dir)).unwrap();
            assert_eq!(names(&found.train), ["000001", "162770"]);
            assert_eq!(names(&found.test), ["182638", "202599"]);
        }
        let data = open(&scratch, auto.clone()).unwrap();
        assert_eq!(
            (data.images.train, data.images.test),
            (plain.images.train, plain.images.test)
        );

        let lines =
            "000001.png 2\n162770.png 1\n162771.png 0\n182637.png 0\n182638.png 1\n202599.png 2\n";
        std::fs::write(scratch.path().join(LIST), lines).unwrap();
        let found = list(&scratch.path().join("img_align_celeba.zip")).unwrap();
        assert_eq!(names(&found.test), ["000001", "202599"]);
        std::fs::remove_file(scratch.path().join(LIST)).unwrap();

        files[0].1.truncate(40);
        std::fs::write(scratch.path().join("img_align_celeba.zip"), packed(&files)).unwrap();
        let said = open(&scratch, auto.clone()).unwrap_err().to_string();
        assert!(
            said.contains("000001.png in") && said.contains("ends at byte 40"),
            "{said}"
        );
        std::fs::write(scratch.path().join("img_align_celeba.zip"), &archive[..500]).unwrap();
        let said = open(&scratch, auto).unwrap_err().to_string();
        assert!(
            said.contains("ends at byte 500") && said.contains("fetch it again"),
            "{said}"
        );
    }
}
