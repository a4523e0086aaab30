//! Images to train on: the [`Dataset`] trait, a set in memory ([`Images`]) and a made-up one ([`Swatches`]).
//!
//! A [`Dataset`] hands out single images by index; shuffling, mirroring and batching belong to training.
//! Images are 8 bit, rows first, channels last. Readers of files are in the crate `rrvq-data`.

pub mod bank;
mod batches;
mod holdout;
mod images;
pub mod swatches;

pub use batches::Batches;
pub(crate) use holdout::check_held_out;
pub use holdout::hold_out;
pub use images::Images;
pub use swatches::Swatches;

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A set of images of one shape.
///
/// ```
/// use rrvq::{Dataset, Split};
///
/// /// Grey images, each darker than the one before.
/// struct Greys;
///
/// impl Dataset for Greys {
///     fn name(&self) -> &str {
///         "greys"
///     }
///     fn len(&self, _: Split) -> usize {
///         256
///     }
///     fn shape(&self) -> [usize; 3] {
///         [8, 8, 1]
///     }
///     fn read(&self, _: Split, index: usize, out: &mut [u8]) {
///         out.fill(255 - index as u8);
///     }
/// }
///
/// let mut image = [0; 64];
/// Greys.read(Split::Train, 5, &mut image);
/// assert_eq!(image, [250; 64]);
/// ```
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
    fn may_flip(&self) -> bool {
        false
    }
    /// The class of image `index` of `split`, where it is known.
    fn label(&self, _split: Split, _index: usize) -> Option<u32> {
        None
    }
    /// The names of the classes, where they have some.
    fn classes(&self) -> &[String] {
        &[]
    }
    /// Of each image that was damaged and left out, what is wrong with it ([`DataConfig::skip_damaged`](crate::config::DataConfig)).
    fn left_out(&self) -> &[String] {
        &[]
    }
}

/// Refuses a data set whose images the model cannot take.
pub fn check_shape(data: &dyn Dataset, model: &ModelConfig) -> Result<()> {
    let [height, width, channels] = data.shape();
    let (size, wanted) = (model.size, model.image_channels);
    if [height, width, channels] == [size, size, wanted] {
        return Ok(());
    }
    Err(Error::new(format!(
        "data set {} has images of {height}×{width}×{channels}, but the model is made for {size}×{size}×{wanted}; \
         change model.size and model.image_channels",
        data.name()
    )))
}

/// Images to learn from, to choose settings by, or to report results on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Images to learn from.
    Train,
    /// Images to choose settings by: held out of the training images by [`hold_out`], or empty.
    Validation,
    /// Images to report results on.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "train" => Ok(Split::Train),
            "validation" => Ok(Split::Validation),
            "test" => Ok(Split::Test),
            _ => Err(Error::new(format!(
                "there is no split {text:?}; expected train, validation or test"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_parsed_as_they_are_written() {
        for split in [Split::Train, Split::Validation, Split::Test] {
            assert_eq!(split.to_string().parse::<Split>().unwrap(), split);
        }
        let said = "valid".parse::<Split>().unwrap_err().to_string();
        assert!(said.contains("train, validation or test"));
    }

    #[test]
    fn a_model_for_grey_images_refuses_coloured_ones() {
        let mut model = ModelConfig::default();
        let data = Swatches::new(model.size, 9, 9);
        check_shape(&data, &model).unwrap();
        model.image_channels = 1;
        let said = check_shape(&data, &model).unwrap_err().to_string();
        assert!(
            said.contains("32×32×3") && said.contains("model.image_channels"),
            "{said}"
        );
    }
}
