//! Swatches: every image is one block of one of nine colours.
//!
//! The paper's toy data. It is trivial to reconstruct, and a sample that is not of a single colour shows at a glance
//! that a model's prior does not know what its positions have in common.

use super::{Dataset, Split};
use crate::config::Config;

/// The nine colours, each far from the others.
pub const COLOURS: [(&str, [u8; 3]); 9] = [
    ("red", [220, 30, 40]),
    ("orange", [245, 140, 20]),
    ("yellow", [250, 225, 50]),
    ("green", [40, 160, 70]),
    ("cyan", [80, 215, 230]),
    ("blue", [30, 70, 200]),
    ("purple", [150, 50, 180]),
    ("white", [245, 245, 245]),
    ("black", [20, 20, 20]),
];

/// The data set of single-coloured images.
#[derive(Debug, Clone)]
pub struct Swatches {
    size: usize,
    train: usize,
    test: usize,
}

impl Swatches {
    /// Images of side `size`, with as many in each split as said.
    pub fn new(size: usize, train: usize, test: usize) -> Self {
        Swatches { size, train, test }
    }

    /// As a configuration asks for them.
    pub fn for_config(config: &Config) -> Self {
        let data = &config.data;
        Swatches::new(config.model.size, data.train_images, data.test_images)
    }
}

/// Which of [`COLOURS`] the image `index` of `split` has.
pub fn colour_of(split: Split, index: usize) -> usize {
    // Two sequences that never meet: even inputs for training, odd ones for testing.
    let input = 2 * index as u64 + u64::from(split == Split::Test);
    (scramble(input) % COLOURS.len() as u64) as usize
}

/// The finaliser of SplitMix64: a bijection under which neighbours have nothing in common.
pub fn scramble(input: u64) -> u64 {
    let mut bits = input.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Dataset for Swatches {
    fn name(&self) -> &str {
        "swatches"
    }

    fn len(&self, split: Split) -> usize {
        match split {
            Split::Train => self.train,
            Split::Validation => 0,
            Split::Test => self.test,
        }
    }

    fn shape(&self) -> [usize; 3] {
        [self.size, self.size, 3]
    }

    fn read(&self, split: Split, index: usize, out: &mut [u8]) {
        let (_, colour) = COLOURS[colour_of(split, index)];
        out.chunks_exact_mut(3)
            .for_each(|pixel| pixel.copy_from_slice(&colour));
    }

    fn may_flip(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_about_equally_frequent_in_both_splits() {
        for split in [Split::Train, Split::Test] {
            let mut counts = [0; COLOURS.len()];
            (0..9000).for_each(|index| counts[colour_of(split, index)] += 1);
            assert!(
                counts.iter().all(|count| (880..1120).contains(count)),
                "{split}: {counts:?}"
            );
        }
    }

    #[test]
    fn colours_are_clearly_different() {
        for (i, (one, a)) in COLOURS.iter().enumerate() {
            for (other, b) in &COLOURS[..i] {
                let apart: i32 = a
                    .iter()
                    .zip(b)
                    .map(|(a, b)| (*a as i32 - *b as i32).pow(2))
                    .sum();
                assert!(apart > 80 * 80, "{one} and {other}");
            }
        }
    }

    #[test]
    fn an_image_is_one_colour_and_always_the_same() {
        let data = Swatches::new(4, 10, 5);
        let mut image = [0; 48];
        data.read(Split::Test, 3, &mut image);
        let (_, colour) = COLOURS[colour_of(Split::Test, 3)];
        assert!(image.chunks(3).all(|pixel| pixel == colour));
        assert_eq!((data.len(Split::Train), data.len(Split::Test)), (10, 5));
    }
}
