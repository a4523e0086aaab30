//! Which images a step sees: a function of seed and step alone, so that a resumed run needs no history.
//!
//! Epochs are permutations of the training images, one after another; a step takes the next `batch` places of
//! that endless row.

use crate::data::{Dataset, Split};
use rrvq_tensor::rng::philox4x32_10;

/// Streams of the generator that no noise of a model uses.
const SHUFFLE: u32 = 0xffff_0001;
const MIRROR: u32 = 0xffff_0002;

/// Batches of training images.
pub struct Batches<'a> {
    data: &'a dyn Dataset,
    seed: u64,
    batch: usize,
    flip: bool,
    /// The permutation of one epoch, kept until another is wanted.
    epoch: Option<(u64, Vec<u32>)>,
    buffer: Vec<u8>,
}

impl<'a> Batches<'a> {
    pub fn new(data: &'a dyn Dataset, seed: u64, batch: usize, flip: bool) -> Self {
        let image: usize = data.shape().iter().product();
        let flip = flip && data.may_flip();
        Batches {
            data,
            seed,
            batch,
            flip,
            epoch: None,
            buffer: vec![0; batch * image],
        }
    }

    /// The images of `step`, counted from 0.
    pub fn at(&mut self, step: u64) -> &[u8] {
        let len = self.data.len(Split::Train) as u64;
        let [_, width, channels] = self.data.shape();
        let image = self.buffer.len() / self.batch;
        let mut buffer = std::mem::take(&mut self.buffer);
        for (i, out) in buffer.chunks_exact_mut(image).enumerate() {
            let place = step * self.batch as u64 + i as u64;
            let index = self.permuted(place / len, (place % len) as usize);
            self.data.read(Split::Train, index, out);
            if self.flip && words(self.seed, MIRROR, place)[0] & 1 == 1 {
                mirror(out, width, channels);
            }
        }
        self.buffer = buffer;
        &self.buffer
    }

    fn permuted(&mut self, epoch: u64, place: usize) -> usize {
        if self.epoch.as_ref().is_none_or(|(known, _)| *known != epoch) {
            let order = permutation(self.seed, epoch, self.data.len(Split::Train));
            self.epoch = Some((epoch, order));
        }
        self.epoch
            .as_ref()
            .map_or(0, |(_, order)| order[place] as usize)
    }
}

fn words(seed: u64, stream: u32, element: u64) -> [u32; 4] {
    let counter = [element as u32, stream, (element >> 32) as u32, 0];
    philox4x32_10(counter, [seed as u32, (seed >> 32) as u32])
}

/// Fisher and Yates's shuffle of 0 … len − 1.
fn permutation(seed: u64, epoch: u64, len: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len as u32).collect();
    for i in (1..len).rev() {
        let counter = [i as u32, SHUFFLE, epoch as u32, (epoch >> 32) as u32];
        let word = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32])[0];
        order.swap(i, ((word as u64 * (i as u64 + 1)) >> 32) as usize);
    }
    order
}

/// Left becomes right.
fn mirror(image: &mut [u8], width: usize, channels: usize) {
    for row in image.chunks_exact_mut(width * channels) {
        for x in 0..width / 2 {
            for c in 0..channels {
                row.swap(x * channels + c, (width - 1 - x) * channels + c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images whose bytes are their index and the column.
    struct Numbered;
    impl Dataset for Numbered {
        fn name(&self) -> &str {
            "numbered"
        }
        fn len(&self, _: Split) -> usize {
            10
        }
        fn shape(&self) -> [usize; 3] {
            [1, 3, 1]
        }
        fn read(&self, _: Split, index: usize, out: &mut [u8]) {
            out.copy_from_slice(&[index as u8, 100, 200]);
        }
        fn may_flip(&self) -> bool {
            true
        }
    }

    #[test]
    fn every_epoch_sees_every_image_once_in_another_order() {
        let mut batches = Batches::new(&Numbered, 1, 5, false);
        let mut epoch = |e: u64| -> Vec<u8> {
            (0..2)
                .flat_map(|i| {
                    batches
                        .at(e * 2 + i)
                        .chunks(3)
                        .map(|x| x[0])
                        .collect::<Vec<_>>()
                })
                .collect()
        };
        let (first, second) = (epoch(0), epoch(1));
        let mut sorted = first.clone();
        sorted.sort();
        assert_eq!(sorted, (0..10).collect::<Vec<u8>>());
        assert_ne!(first, second);
        assert_eq!(epoch(0), first, "an epoch can be asked for again");
    }

    #[test]
    fn about_half_the_images_are_mirrored_and_mirroring_swaps_left_and_right() {
        let mut batches = Batches::new(&Numbered, 1, 100, true);
        let images: Vec<Vec<u8>> = batches.at(0).chunks(3).map(<[u8]>::to_vec).collect();
        let mirrored = images.iter().filter(|x| x[0] == 200).count();
        assert!((30..70).contains(&mirrored), "{mirrored} of 100");
        assert!(
            images
                .iter()
                .all(|x| x[1] == 100 && (x[0] == 200) != (x[2] == 200))
        );
    }
}
