//! Data sets for `rrvq`: readers of the files they are published in, downloads, and a cache of decoded images.
//!
//! Everything here becomes a [`rrvq::dataset::Dataset`]: images of one shape in a training and a test split, with labels
//! where the files have some. The settings in `data` of a configuration say which data set and where:
//!
//! ```
//! use rrvq::Split;
//! use rrvq::config::Config;
//!
//! let mut config = Config::preset("tiny-swatches")?;
//! // config.set("data.name=cifar10")?; and config.data.dir = Some("data/cifar10".into());
//! config.set("data.name=swatches")?;
//! let data = rrvq_data::open_for(&config)?;
//! assert_eq!(data.shape(), [8, 8, 3]);
//! assert_eq!(data.label(Split::Train, 0), None);
//! # Ok::<(), rrvq::Error>(())
//! ```
//!
//! | name | files | labels |
//! |---|---|---|
//! | `cifar10` | binary or Python batches, or their tar.gz | yes |
//! | `svhn`, `svhn-extra` | MATLAB files of cropped digits | yes |
//! | `celeba` | a folder or a zip archive of aligned faces | no |
//! | `idx` | MNIST and sets in its format | yes, where the files are there |
//! | `parquet` | a column of images; needs the cargo feature `parquet` | yes, where there is a column `label` |
//! | `folder` | PNG, JPEG and WebP files | no |
//! | `swatches` | none, images are generated | no |
//!
//! [`summarise`] says which data set is in a folder, [`fetch`] downloads one, and [`checksums`] tells the originals from
//! other files. Images in files of their own are decoded on all cores and, where there are many, once only.
//!
//! A new data set is one new file and one line in `KINDS`.

#![warn(missing_docs)]

mod archive;
mod celeba;
pub mod checksums;
mod cifar10;
mod crop;
mod decoded_cache;
pub mod fetch;
mod folder;
mod idx;
mod items;
mod labels;
mod listing;
mod mapped;
mod mat;
mod parquet;
mod pickle;
mod summary;
mod svhn;

pub use listing::Follow;
pub use mapped::Pixels;
pub use summary::{Summary, kind_in, summarise};

use crop::Cropping;
use labels::Labelled;
use listing::Listing;
use rrvq::config::{Config, DataConfig};
use rrvq::dataset::{Dataset, Swatches, check_shape, hold_out};
use rrvq::error::{Error, Remedy, Result};
use std::path::{Path, PathBuf};

/// Images in memory or in mapped files.
pub(crate) type Images = rrvq::dataset::Images<Pixels>;

/// One kind of data set.
struct Kind {
    /// The name in a configuration.
    name: &'static str,
    /// Whether its files are in a folder.
    is_there: fn(&Path) -> bool,
    source: Source,
}

/// Opens the data set of a configuration, with images of a side and of so many channels where there is a choice.
type Open = fn(&DataConfig, usize, usize) -> Result<Box<dyn Dataset>>;

enum Source {
    /// Read, or made up, as a whole.
    Whole(Open),
    /// Images in files of their own: what must be in the folder, and how they are listed.
    Listed(&'static str, fn(&Path) -> Result<Listing>),
}

const NOWHERE: fn(&Path) -> bool = |_| false;

/// In the order in which a folder is searched for them.
static KINDS: [Kind; 8] = [
    whole("swatches", NOWHERE, swatches),
    whole("cifar10", cifar10::is_there, cifar10::open),
    whole("svhn", svhn::is_there, svhn::open),
    whole("svhn-extra", NOWHERE, svhn::open_with_extra),
    listed("celeba", celeba::is_there, celeba::HOLDING, celeba::list),
    whole("idx", idx::is_there, idx::open),
    listed(
        "parquet",
        parquet::is_there,
        parquet::HOLDING,
        parquet::list,
    ),
    listed("folder", folder::is_there, folder::HOLDING, folder::list),
];

fn swatches(config: &DataConfig, size: usize, _: usize) -> Result<Box<dyn Dataset>> {
    let (train, test) = (config.train_images, config.test_images);
    Ok(Box::new(Swatches::new(size, train, test)))
}

const fn whole(name: &'static str, is_there: fn(&Path) -> bool, open: Open) -> Kind {
    Kind {
        name,
        is_there,
        source: Source::Whole(open),
    }
}

const fn listed(
    name: &'static str,
    is_there: fn(&Path) -> bool,
    holding: &'static str,
    list: fn(&Path) -> Result<Listing>,
) -> Kind {
    Kind {
        name,
        is_there,
        source: Source::Listed(holding, list),
    }
}

/// The names of the data sets that can be opened.
pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// Refuses a data set that cannot be opened.
pub fn check_name(name: &str) -> Result<()> {
    find(name).map(|_| ())
}

fn find(name: &str) -> Result<&'static Kind> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return Ok(kind);
    }
    let available = names().join(", ");
    Err(Error::new(format!(
        "there is no data set {name:?} (data.name); available: {available}"
    )))
}

/// The folder of a data set that needs one; `holding` says what must be in it.
fn folder_of<'a>(config: &'a DataConfig, holding: &str) -> Result<&'a Path> {
    config.dir.as_deref().ok_or_else(|| {
        let name = &config.name;
        Error::with_remedy(
            format!("data set {name} needs a folder with {holding}"),
            Remedy::DataFolder,
        )
    })
}

/// Opens the data set that `config` names, with square images of side `size` and `channels` where it has a choice;
/// `follow` is told how far decoding is.
pub fn open(
    config: &DataConfig,
    size: usize,
    channels: usize,
    follow: Follow,
) -> Result<Box<dyn Dataset>> {
    let data = match find(&config.name)?.source {
        Source::Whole(open) => {
            crop::check_unused(config)?;
            open(config, size, channels)?
        }
        Source::Listed(holding, list) => {
            let mut listing = list(folder_of(config, holding)?)?;
            let crop = Cropping::new(config, listing.part, size, channels);
            Box::new(match listing.open(&crop, follow) {
                Err(_) if config.skip_damaged => {
                    let left_out = listing.drop_damaged(&crop)?;
                    let found = listing.open(&crop, follow)?;
                    Labelled { left_out, ..found }
                }
                opened => opened?,
            })
        }
    };
    hold_out(data, config)
}

/// The image files in a folder and below, sorted by path.
pub fn image_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let file = |item: items::Item| match item.place {
        items::Place::File(path) => Some(path),
        _ => None,
    };
    Ok(items::images_in(dir)?
        .into_iter()
        .filter_map(file)
        .collect())
}

/// Opens the data set of a whole configuration, and refuses one whose images the model cannot take.
pub fn open_for(config: &Config) -> Result<Box<dyn Dataset>> {
    open_followed(config, &mut |_, _| {})
}

/// The same, telling `follow` how far decoding is.
pub fn open_followed(config: &Config, follow: Follow) -> Result<Box<dyn Dataset>> {
    let model = &config.model;
    let data = open(&config.data, model.size, model.image_channels, follow)?;
    check_shape(data.as_ref(), model)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_data_set_is_refused_with_the_known_ones() {
        let mut config = Config::default();
        config.set("data.name=cats").unwrap();
        let said = open_for(&config).err().unwrap().to_string();
        assert!(
            said.contains("\"cats\"") && said.contains("swatches, cifar10, svhn"),
            "{said}"
        );
    }
}
