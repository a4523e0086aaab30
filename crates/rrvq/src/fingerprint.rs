//! Short words for weights and images, by which two processes or two days know whether they have the same.
//!
//! FNV-1a: nobody is kept from making two that are alike, and by chance none are.

use crate::dataset::{Dataset, Split};

const START: u64 = 0xcbf2_9ce4_8422_2325;

fn fold(words: impl IntoIterator<Item = u32>, start: u64) -> u64 {
    let step = |hash: u64, word: u32| (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
    words.into_iter().fold(start, step)
}

/// Of all weights, in their order.
pub fn of_weights(weights: &[f32]) -> u64 {
    fold(weights.iter().map(|value| value.to_bits()), START)
}

/// Of at most so many images of a split, evenly spaced.
pub fn of_images(data: &dyn Dataset, split: Split, most: usize) -> u64 {
    let (len, mut image) = (data.len(split), vec![0; data.shape().iter().product()]);
    let count = len.min(most);
    (0..count).fold(START, |hash, i| {
        data.read(split, i * len / count, &mut image);
        fold(image.iter().map(|byte| u32::from(*byte)), hash)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Images;

    #[test]
    fn what_differs_anywhere_has_another_word() {
        // FNV-1a of no bytes, and of one.
        assert_eq!(of_weights(&[]), START);
        assert_eq!(fold([u32::from(b'a')], START), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(of_weights(&[1.0, 2.0]), of_weights(&[2.0, 1.0]));
        assert_ne!(of_weights(&[0.0]), of_weights(&[-0.0]));
        let images = |last: u8| Images {
            name: "few".into(),
            shape: [1, 1, 1],
            train: vec![1, 2, 3, last],
            test: vec![0],
            flip: false,
        };
        let word = |last: u8, most: usize| of_images(&images(last), Split::Train, most);
        assert_eq!(word(4, 9), fold([1, 2, 3, 4], START));
        assert_ne!(word(4, 4), word(5, 4));
        assert_eq!(word(4, 2), word(5, 2), "of four the first and the third");
    }
}
