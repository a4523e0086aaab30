//! Data sets: where images come from.
//!
//! A [`Dataset`] hands out single images by index; shuffling, mirroring and batching belong to training.
//! Images are 8 bit, rows first, channels last. A new data set is one new file and one line in `KINDS`.

pub mod bank;
pub mod cifar10;
mod pickle;
pub mod swatches;

use crate::config::{Config, DataConfig};
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A set of images of one shape.
pub trait Dataset: Send + Sync {
    /// The name it has in a configuration.
    fn name(&self) -> &str;
    /// How many images `split` has.
    fn len(&self, split: Split) -> usize;
    /// Whether `split` has no images.
    fn is_empty(&self, split: Split) -> bool {
        self.len(split) == 0
    }
    /// Height, width and channels of every image.
    fn shape(&self) -> [usize; 3];
    /// Writes image `index` of `split` to `out`, which holds exactly one image.
    fn read(&self, split: Split, index: usize, out: &mut [u8]);
    /// Whether a mirrored image is as likely as the image.
    fn may_flip(&self) -> bool;
}

/// Images to learn from, or images to judge by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    Train,
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Split::Train => "train",
            Split::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "train" => Ok(Split::Train),
            "test" => Ok(Split::Test),
            _ => Err(Error::new(format!(
                "there is no split {text:?}; expected train or test"
            ))),
        }
    }
}

type Open = fn(&DataConfig, usize) -> Result<Box<dyn Dataset>>;

const KINDS: [(&str, Open); 2] = [("swatches", swatches::open), ("cifar10", cifar10::open)];

/// Names that are known but cannot be opened.
const TO_COME: [&str; 3] = ["svhn", "celeba", "folder"];

/// The names of the data sets that can be opened.
pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|(name, _)| *name).collect()
}

/// Refuses a data set that cannot be opened.
pub fn check_name(name: &str) -> Result<()> {
    find(name).map(|_| ())
}

fn find(name: &str) -> Result<Open> {
    if let Some((_, open)) = KINDS.iter().find(|(known, _)| *known == name) {
        return Ok(*open);
    }
    let available = names().join(", ");
    Err(Error::new(match TO_COME.contains(&name) {
        true => {
            format!("data set {name} is not built into this version yet; available: {available}")
        }
        false => format!("there is no data set {name:?} (data.name); available: {available}"),
    }))
}

/// Opens the data set that `config` names, with square images of side `size`.
pub fn open(config: &DataConfig, size: usize) -> Result<Box<dyn Dataset>> {
    find(&config.name)?(config, size)
}

/// Opens the data set of a whole configuration, and refuses one whose images the model cannot take.
pub fn open_for(config: &Config) -> Result<Box<dyn Dataset>> {
    let data = open(&config.data, config.model.size)?;
    let [height, width, channels] = data.shape();
    let (size, wanted) = (config.model.size, config.model.image_channels);
    if [height, width, channels] != [size, size, wanted] {
        return Err(Error::new(format!(
            "data set {} has images of {height}×{width}×{channels}, but the model is made for {size}×{size}×{wanted}; \
             change model.size and model.image_channels",
            data.name()
        )));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_parsed_as_they_are_written() {
        for split in [Split::Train, Split::Test] {
            assert_eq!(split.to_string().parse::<Split>().unwrap(), split);
        }
        assert!(
            "valid"
                .parse::<Split>()
                .unwrap_err()
                .to_string()
                .contains("train or test")
        );
    }

    #[test]
    fn a_model_for_grey_images_refuses_coloured_ones() {
        let mut config = Config::default();
        assert_eq!(open_for(&config).unwrap().shape(), [32, 32, 3]);
        config.model.image_channels = 1;
        let said = open_for(&config).err().unwrap().to_string();
        assert!(
            said.contains("32×32×3") && said.contains("model.image_channels"),
            "{said}"
        );
    }
}
