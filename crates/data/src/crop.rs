//! Which parts of an image are kept: one, or several at places drawn at random.
//!
//! A place is a function of the seed, the image's name and the number of the part, so that adding images moves no other
//! part and every run of every seed is judged by the same test images.

use super::folder::hash;
use rrvq::config::{Crop, CropWord, DataConfig};
use rrvq::error::{Error, Result};
use rrvq::picture::Part;
use rrvq::streams::CROP;
use rrvq_tensor::rng::philox4x32_10;

/// How images are cut, and what they become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cropping {
    /// Side of what is kept of an image.
    pub size: usize,
    pub channels: usize,
    /// Parts of each image.
    pub parts: usize,
    how: How,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    Fixed(Part),
    Random { side: u32, seed: u64 },
}

impl Cropping {
    /// As the configuration says; `usual` is the part where it says nothing.
    pub fn new(config: &DataConfig, usual: Part, size: usize, channels: usize) -> Cropping {
        let how = match &config.crop {
            Crop::Word(CropWord::Auto) => How::Fixed(usual),
            Crop::Word(CropWord::Centre) => How::Fixed(Part::Centre),
            Crop::Word(CropWord::Random) => How::Random {
                side: match config.crop_size {
                    0 => size as u32,
                    side => side as u32,
                },
                seed: config.crop_seed,
            },
            Crop::Square([left, top, right, _]) => How::Fixed(Part::At {
                left: *left as u32,
                above: *top as u32,
                side: right.saturating_sub(*left) as u32,
            }),
        };
        Cropping {
            size,
            channels,
            parts: config.crops.max(1),
            how,
        }
    }

    /// Bytes that an image becomes.
    pub fn bytes(&self) -> usize {
        self.size * self.size * self.channels * self.parts
    }

    /// Part `number` of the image called `name`.
    pub fn part(&self, name: &str, number: usize) -> Part {
        match self.how {
            How::Fixed(part) => part,
            How::Random { side, seed } => {
                let name = hash(name);
                let counter = [number as u32, CROP, name as u32, (name >> 32) as u32];
                let [across, down, ..] = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
                Part::Somewhere { side, across, down }
            }
        }
    }
}

/// Refuses settings of crops for a data set that has nothing to crop.
pub(super) fn check_unused(config: &DataConfig) -> Result<()> {
    let usual = DataConfig::default();
    if (&config.crop, config.crops) == (&usual.crop, usual.crops) {
        return Ok(());
    }
    let name = &config.name;
    Err(Error::new(format!(
        "data.crop is set, but the images of data set {name} have one size and are not cropped; leave data.crop at \
         \"auto\" and data.crops at 1"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64, crops: usize) -> Cropping {
        let config = DataConfig {
            crop: Crop::Word(CropWord::Random),
            crop_seed: seed,
            crops,
            ..DataConfig::default()
        };
        Cropping::new(&config, Part::Centre, 8, 3)
    }

    #[test]
    fn random_parts_depend_on_seed_name_and_number_alone() {
        let (crop, again, other) = (random(1, 4), random(1, 2), random(2, 4));
        assert_eq!(crop.bytes(), 4 * 8 * 8 * 3);
        let first = crop.part("a.png", 0);
        assert!(matches!(first, Part::Somewhere { side: 8, .. }));
        assert_eq!(first, again.part("a.png", 0));
        for different in [
            crop.part("b.png", 0),
            crop.part("a.png", 1),
            other.part("a.png", 0),
        ] {
            assert_ne!(first, different);
        }
    }

    #[test]
    fn settings_choose_the_part() {
        let usual = Part::At {
            left: 1,
            above: 2,
            side: 3,
        };
        let part = |crop| {
            let config = DataConfig {
                crop,
                ..DataConfig::default()
            };
            Cropping::new(&config, usual, 8, 3).part("a", 0)
        };
        assert_eq!(part(Crop::Word(CropWord::Auto)), usual);
        assert_eq!(part(Crop::Word(CropWord::Centre)), Part::Centre);
        let square = Part::At {
            left: 10,
            above: 20,
            side: 30,
        };
        assert_eq!(part(Crop::Square([10, 20, 40, 50])), square);
    }
}
