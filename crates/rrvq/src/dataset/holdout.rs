//! Training images held out for validation, so that settings are chosen without the test images.
//!
//! The last images of the training split are held out, whatever the seed: runs that are compared see the same ones.

use super::{Dataset, Split};
use crate::config::DataConfig;
use crate::error::{Error, Result};

/// A data set whose last `held` training images are its validation split.
struct HeldOut {
    inner: Box<dyn Dataset>,
    held: usize,
}

/// The data set with `data.holdout` of its training images held out; as it is where that is 0.
///
/// ```
/// use rrvq::config::Config;
/// use rrvq::dataset::{Split, Swatches, hold_out};
///
/// let mut config = Config::default();
/// config.set("data.holdout=0.1")?;
/// let data = hold_out(Box::new(Swatches::new(8, 500, 50)), &config.data)?;
/// assert_eq!((data.len(Split::Train), data.len(Split::Validation)), (450, 50));
/// # Ok::<(), rrvq::Error>(())
/// ```
pub fn hold_out(inner: Box<dyn Dataset>, config: &DataConfig) -> Result<Box<dyn Dataset>> {
    if config.holdout == 0.0 {
        return Ok(inner);
    }
    // All random crops of an image are on the same side.
    let images = inner.len(Split::Train) / config.crops;
    let held = (images as f64 * config.holdout).round() as usize;
    if held == 0 || held >= images {
        let (name, share) = (inner.name(), config.holdout);
        return Err(Error::new(format!(
            "data.holdout = {share} of the {images} training images of {name} leaves {} to train on and {held} for \
             validation; expected at least one of each",
            images - held.min(images)
        )));
    }
    let held = held * config.crops;
    Ok(Box::new(HeldOut { inner, held }))
}

/// Refuses a data set without validation images where `data.holdout` asks for some.
pub(crate) fn check_held_out(data: &dyn Dataset, config: &DataConfig) -> Result<()> {
    if config.holdout == 0.0 || !data.is_empty(Split::Validation) {
        return Ok(());
    }
    Err(Error::new(format!(
        "data.holdout is {}, but data set {} has no validation images; pass it through dataset::hold_out first",
        config.holdout,
        data.name()
    )))
}

impl HeldOut {
    /// Where an image is in the data set that was divided.
    fn place(&self, split: Split, index: usize) -> (Split, usize) {
        match split {
            Split::Validation => (Split::Train, self.len(Split::Train) + index),
            Split::Train | Split::Test => (split, index),
        }
    }
}

impl Dataset for HeldOut {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self, split: Split) -> usize {
        match split {
            Split::Train => self.inner.len(split) - self.held,
            Split::Validation => self.held,
            Split::Test => self.inner.len(split),
        }
    }

    fn shape(&self) -> [usize; 3] {
        self.inner.shape()
    }

    fn read(&self, split: Split, index: usize, out: &mut [u8]) {
        let (split, index) = self.place(split, index);
        self.inner.read(split, index, out)
    }

    fn may_flip(&self) -> bool {
        self.inner.may_flip()
    }

    fn label(&self, split: Split, index: usize) -> Option<u32> {
        let (split, index) = self.place(split, index);
        self.inner.label(split, index)
    }

    fn classes(&self) -> &[String] {
        self.inner.classes()
    }

    fn left_out(&self) -> &[String] {
        self.inner.left_out()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Images;
    use super::*;

    fn numbered() -> Box<dyn Dataset> {
        Box::new(Images {
            name: "numbered".into(),
            shape: [1, 1, 1],
            train: (0..20).collect::<Vec<u8>>(),
            test: vec![100, 101],
            flip: true,
        })
    }

    fn config(holdout: f64, crops: usize) -> DataConfig {
        DataConfig {
            holdout,
            crops,
            ..DataConfig::default()
        }
    }

    fn all(data: &dyn Dataset, split: Split) -> Vec<u8> {
        let read = |index| {
            let mut out = [0];
            data.read(split, index, &mut out);
            out[0]
        };
        (0..data.len(split)).map(read).collect()
    }

    #[test]
    fn the_last_training_images_are_held_out() {
        let data = hold_out(numbered(), &config(0.1, 1)).unwrap();
        assert_eq!(all(&*data, Split::Train), (0..18).collect::<Vec<u8>>());
        assert_eq!(all(&*data, Split::Validation), [18, 19]);
        assert_eq!(all(&*data, Split::Test), [100, 101]);
        assert!(data.may_flip() && data.shape() == [1, 1, 1]);
        assert_eq!(data.name(), "numbered");
    }

    #[test]
    fn crops_of_an_image_are_on_the_same_side() {
        // Four images of five crops each: a third of them is one.
        let data = hold_out(numbered(), &config(0.33, 5)).unwrap();
        assert_eq!(all(&*data, Split::Validation), [15, 16, 17, 18, 19]);
    }

    #[test]
    fn nothing_is_held_out_unless_asked_for() {
        let data = hold_out(numbered(), &config(0.0, 1)).unwrap();
        assert_eq!(data.len(Split::Train), 20);
        assert!(data.is_empty(Split::Validation));
    }

    #[test]
    fn a_data_set_that_was_not_divided_is_refused() {
        let data = numbered();
        check_held_out(&*data, &config(0.0, 1)).unwrap();
        let said = check_held_out(&*data, &config(0.1, 1)).unwrap_err();
        assert!(said.to_string().contains("dataset::hold_out"), "{said}");
        let data = hold_out(data, &config(0.1, 1)).unwrap();
        check_held_out(&*data, &config(0.1, 1)).unwrap();
    }

    #[test]
    fn both_sides_need_images() {
        for share in [0.01, 0.99] {
            let said = hold_out(numbered(), &config(share, 1)).err().unwrap();
            assert!(said.to_string().contains("data.holdout"), "{said}");
        }
    }
}
