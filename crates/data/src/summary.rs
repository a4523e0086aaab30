//! A look at a folder: which data set is in it, and what its images look like.
//!
//! Kinds are asked in turn whether their files are there, a plain folder of images last, since it would claim the
//! images of others too. Where images are single files, only those that are shown are decoded.

use super::crop::{Cropping, check_unused};
use super::{Dataset, KINDS, Kind, Source};
use rrvq::config::DataConfig;
use rrvq::dataset::Split;
use rrvq::error::{Error, Result};
use rrvq::picture::Picture;
use std::collections::BTreeMap;
use std::path::Path;

const SPLITS: [Split; 2] = [Split::Train, Split::Test];

/// What was found.
#[derive(Debug)]
pub struct Summary {
    /// The name of the data set in a configuration.
    pub name: &'static str,
    /// Images to train on.
    pub train: usize,
    /// Images to test with.
    pub test: usize,
    /// Height, width and channels of each; images in files of their own are brought to the size that was asked for.
    pub shape: [usize; 3],
    /// The first training images.
    pub shown: Vec<Picture>,
    /// How many training and how many test images have each label; empty where there are no labels.
    pub labels: BTreeMap<u32, [usize; 2]>,
    /// The names of the classes, class 0 first; empty where they have none.
    pub classes: Vec<String>,
}

/// Looks at `dir`. Images in files of their own are cut as `config` says and resized to side `size`; at most `shown` are
/// kept to look at.
pub fn summarise(dir: &Path, config: &DataConfig, size: usize, shown: usize) -> Result<Summary> {
    let kind = find_kind(dir)?;
    match kind.source {
        Source::Whole(open) => {
            let config = DataConfig {
                name: kind.name.into(),
                dir: Some(dir.into()),
                ..config.clone()
            };
            check_unused(&config)?;
            let data = open(&config, size, 3)?;
            let [train, test] = SPLITS.map(|split| data.len(split));
            Ok(Summary {
                name: kind.name,
                train,
                test,
                shape: data.shape(),
                shown: first(data.as_ref(), shown)?,
                labels: count([train, test], |split, i| data.label(split, i)),
                classes: data.classes().to_vec(),
            })
        }
        Source::Listed(_, list) => {
            let listing = list(dir)?;
            let shape = [size, size, 3];
            let crop = Cropping::new(config, listing.part, size, 3);
            let pixels = listing.first(shown, &crop)?;
            let [train, test] = SPLITS.map(|split| listing.count(split, &crop));
            let labels = listing.labels(&crop);
            Ok(Summary {
                name: kind.name,
                train,
                test,
                shape,
                shown: Picture::batch(shape, &pixels)?,
                labels: count([train, test], |split, i| labels.get(split, i)),
                classes: labels.classes,
            })
        }
    }
}

/// How many images of each split have each label.
fn count(
    sizes: [usize; 2],
    label: impl Fn(Split, usize) -> Option<u32>,
) -> BTreeMap<u32, [usize; 2]> {
    let mut counts = BTreeMap::new();
    for (i, split) in SPLITS.into_iter().enumerate() {
        for label in (0..sizes[i]).filter_map(|index| label(split, index)) {
            counts.entry(label).or_insert([0; 2])[i] += 1;
        }
    }
    counts
}

/// The name of the data set in a folder.
pub fn kind_in(dir: &Path) -> Result<&'static str> {
    find_kind(dir).map(|kind| kind.name)
}

fn find_kind(dir: &Path) -> Result<&'static Kind> {
    // A folder that cannot be opened is not one without data.
    std::fs::metadata(dir).map_err(|error| Error::io("open", dir, error))?;
    let found = KINDS.iter().find(|kind| (kind.is_there)(dir));
    found.ok_or_else(|| {
        Error::new(format!(
            "{} holds no data set that is known; looked for CIFAR-10 (batches or tar.gz), SVHN (train_32x32.mat), CelebA \
             (img_align_celeba or its zip), idx files (train-images-idx3-ubyte), parquet files and images (PNG, JPEG, WebP)",
            dir.display()
        ))
    })
}

fn first(data: &dyn Dataset, count: usize) -> Result<Vec<Picture>> {
    let shape = data.shape();
    let one = |index| {
        let mut pixels = vec![0; shape.iter().product()];
        data.read(Split::Train, index, &mut pixels);
        Picture::new(shape, pixels)
    };
    (0..count.min(data.len(Split::Train))).map(one).collect()
}
