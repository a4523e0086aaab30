//! Which images a step sees: a function of seed and step alone, so that a resumed run needs no history.
//!
//! Epochs are permutations of the training images, one after another; a step takes the next `batch` places of
//! that endless row.

use super::{Dataset, Split, bank};
use crate::error::Result;
use crate::streams::{MIRROR, SHUFFLE};
use rrvq_tensor::Device;
use rrvq_tensor::device::{FLIPPED, RowBank};
use rrvq_tensor::rng::philox4x32_10;
use std::ops::Range;

/// Batches of training images.
pub struct Batches<'a> {
    data: &'a dyn Dataset,
    seed: u64,
    batch: usize,
    /// The places of a batch that are asked for.
    own: Range<usize>,
    flip: bool,
    /// The permutation of one epoch, kept until another is wanted.
    epoch: Option<(u64, Vec<u32>)>,
    buffer: Vec<u8>,
    /// All training images on a device, once they were put there.
    bank: Option<RowBank>,
}

impl<'a> Batches<'a> {
    /// Batches of `batch` training images, shuffled by `seed`, mirrored at random where `flip` is set.
    pub fn new(data: &'a dyn Dataset, seed: u64, batch: usize, flip: bool) -> Self {
        let image: usize = data.shape().iter().product();
        let flip = flip && data.may_flip();
        Batches {
            data,
            seed,
            batch,
            own: 0..batch,
            flip,
            epoch: None,
            buffer: vec![0; batch * image],
            bank: None,
        }
    }

    /// The same, of which only the images at these places of a batch are handed out.
    pub fn only(mut self, own: Range<usize>) -> Self {
        let image: usize = self.data.shape().iter().product();
        self.buffer.truncate(own.len() * image);
        self.own = own;
        self
    }

    /// Puts all training images on the device.
    pub fn put_on(&mut self, device: &Device) -> Result<()> {
        let count = self.data.len(Split::Train);
        self.bank = Some(bank::put(device, self.data, Split::Train, count)?);
        Ok(())
    }

    /// The same where it pays and fits.
    pub fn put_on_if_useful(&mut self, device: &Device) -> Result<()> {
        let count = self.data.len(Split::Train);
        self.bank = bank::put_if_useful(device, self.data, Split::Train, count)?;
        Ok(())
    }

    /// The training images on the device, in the order [`rows`](Self::rows) numbers them.
    pub fn bank(&self) -> Option<&RowBank> {
        self.bank.as_ref()
    }

    /// The numbers of the images of `step`, counted from 0; those to be mirrored have the bit [`FLIPPED`].
    pub fn rows(&mut self, step: u64) -> Vec<u32> {
        let (len, batch) = (self.data.len(Split::Train) as u64, self.batch);
        let own = self.own.clone();
        let row = |i: usize| {
            let place = step * batch as u64 + i as u64;
            let index = self.permuted(place / len, (place % len) as usize);
            let mirrored = self.flip && words(self.seed, MIRROR, place)[0] & 1 == 1;
            index | if mirrored { FLIPPED } else { 0 }
        };
        own.map(row).collect()
    }

    /// The images of `step`, counted from 0.
    pub fn at(&mut self, step: u64) -> &[u8] {
        let layout = bank::layout(self.data);
        let rows = self.rows(step);
        for (row, out) in rows.iter().zip(self.buffer.chunks_exact_mut(layout.bytes)) {
            self.data.read(Split::Train, (row & !FLIPPED) as usize, out);
            if row & FLIPPED != 0 {
                layout.flip(out);
            }
        }
        &self.buffer
    }

    fn permuted(&mut self, epoch: u64, place: usize) -> u32 {
        if self.epoch.as_ref().is_none_or(|(known, _)| *known != epoch) {
            let order = permutation(self.seed, epoch, self.data.len(Split::Train));
            self.epoch = Some((epoch, order));
        }
        self.epoch.as_ref().map_or(0, |(_, order)| order[place])
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
