//! Pixels drawn from the distributions that a likelihood gives them, where its means would show only what is expected.
//!
//! A pixel chooses its component, and its channels follow one after another, each from the values of those before it.
//! Where the likelihood is [causal](super::causal), pixels too follow those before them: row by row, each hears how far
//! the decoder was off at its neighbours. It is plain arithmetic in a fixed order on numbers that the CPU gives the same
//! everywhere, so the pictures are the same bits everywhere.

use super::{Bins, causal};
use crate::streams;
use rrvq_tensor::rng::{Distribution, Noise, fill};
use rrvq_tensor::simd::isa;

/// How pixels are drawn: those of no two batches share any noise.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// Seed of the noise.
    pub seed: u64,
    /// Number of the batch.
    pub batch: u64,
    /// Components whose weight is below this share of the pixel's largest are not chosen.
    pub min_p: f32,
}

/// Bytes of images drawn from the numbers of their pixels ([`super::Pixels::numbers`]), `side` pixels a row.
pub fn draw(bins: Bins, side: usize, numbers: &[f32], how: Draw) -> Vec<u8> {
    let pixels = side * side;
    let bytes = pixels * bins.channels;
    let images = numbers.chunks_exact(pixels * bins.numbers());
    let mut out = vec![0; images.len() * bytes];
    let mut canvas = Canvas {
        bins,
        side,
        min_p: how.min_p,
        choices: vec![0.0; pixels],
        spreads: vec![0.0; 2 * bytes],
        errors: vec![[0.0; 2]; if bins.neighbours > 0 { bytes } else { 0 }],
    };
    for (i, (numbers, out)) in images.zip(out.chunks_exact_mut(bytes)).enumerate() {
        let noise = |stream| Noise {
            seed: how.seed,
            stream,
            step: how.batch,
        };
        let take = |stream, what, values: &mut [f32]| {
            let first = (i * values.len()) as u64;
            fill(isa(), noise(stream), what, first, values);
        };
        let (choices, spreads) = (&mut canvas.choices, &mut canvas.spreads);
        take(streams::COMPONENT, Distribution::Uniform, choices);
        take(streams::PIXEL, Distribution::Gumbel, spreads);
        canvas.paint(numbers, out);
    }
    out
}

/// One image after another.
struct Canvas {
    bins: Bins,
    side: usize,
    min_p: f32,
    /// Of each pixel, in (0, 1): which component it chooses.
    choices: Vec<f32>,
    /// Two Gumbel variables for each value; their difference is logistic.
    spreads: Vec<f32>,
    /// Of each value so far: the decoder's error, and its size as neighbours count it.
    errors: Vec<[f32; 2]>,
}

impl Canvas {
    fn paint(&mut self, numbers: &[f32], out: &mut [u8]) {
        let (bins, channels) = (self.bins, self.bins.channels);
        let per_pixel = numbers.chunks_exact(bins.numbers());
        let each = per_pixel.zip(out.chunks_exact_mut(channels));
        for (pixel, (numbers, bytes)) in each.enumerate() {
            let own = Own { bins, numbers };
            let component = own.chosen(self.choices[pixel], self.min_p);
            for channel in 0..channels {
                let at = pixel * channels + channel;
                let (shift, narrowing) = self.heard(&own, pixel, channel);
                let scale = 1.0 / (own.inverse(channel, component) * narrowing);
                let spread = self.spreads[2 * at] - self.spreads[2 * at + 1];
                let mean = own.mean(channel, component, bytes) + shift;
                let bin = (mean + scale * spread) / bins.width + 128.0;
                // The outer bins have all that is beyond them.
                let byte = bin.floor().clamp(0.0, 255.0) as u8;
                if bins.neighbours > 0 {
                    self.errors[at] = own.error(channel, byte, bytes);
                }
                bytes[channel] = byte;
            }
        }
    }

    /// What a channel hears from the pixels before: how far its means move, and how much 1 / s shrinks.
    fn heard(&self, own: &Own<'_>, pixel: usize, channel: usize) -> (f32, f32) {
        if self.bins.neighbours == 0 {
            return (0.0, 1.0);
        }
        let (channels, side) = (self.bins.channels, self.side);
        let (y, x) = (pixel / side, pixel % side);
        let (mut shift, mut near) = (0.0, 0.0);
        let places = &causal::PLACES[..self.bins.neighbours];
        for (k, &(up, left)) in places.iter().enumerate() {
            let there = x.checked_add_signed(-left).filter(|x| *x < side);
            let (Some(y), Some(x)) = (y.checked_sub(up), there) else {
                continue;
            };
            let [error, size] = self.errors[(y * side + x) * channels + channel];
            shift += own.causal(k, channel) * error;
            if k < causal::NEAR {
                near += size;
            }
        }
        let growth = own.causal(places.len(), channel);
        (shift, 1.0 / (1.0 + growth * near))
    }
}

/// The numbers of one pixel.
struct Own<'a> {
    bins: Bins,
    numbers: &'a [f32],
}

impl Own<'_> {
    fn number(&self, kind: usize, component: usize) -> f32 {
        self.numbers[kind * self.bins.components + component]
    }

    fn weight(&self, component: usize) -> f32 {
        self.number(0, component)
    }

    fn inverse(&self, channel: usize, component: usize) -> f32 {
        self.number(1 + self.bins.channels + channel, component)
    }

    /// The component in which a share of the weights ends, of those that are at least `min_p` times the largest.
    fn chosen(&self, share: f32, min_p: f32) -> usize {
        let weights = (0..self.bins.components).map(|k| self.weight(k));
        let least = min_p * weights.clone().fold(0.0, f32::max);
        let weights = weights.map(|weight| if weight < least { 0.0 } else { weight });
        let mut left = share * weights.clone().sum::<f32>();
        let mut last = 0;
        for (k, weight) in weights.enumerate().filter(|(_, weight)| *weight > 0.0) {
            left -= weight;
            last = k;
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// The mean of a channel, given the bytes of the channels before it.
    fn mean(&self, channel: usize, component: usize, earlier: &[u8]) -> f32 {
        let bins = self.bins;
        let mut mean = self.number(1 + channel, component);
        if bins.coefficients {
            let first = 1 + 2 * bins.channels + channel * channel.saturating_sub(1) / 2;
            for (i, &byte) in earlier[..channel].iter().enumerate() {
                mean += self.number(first + i, component) * self.value(byte);
            }
        }
        mean
    }

    /// The middle of a byte's bin.
    fn value(&self, byte: u8) -> f32 {
        (byte as f32 + 0.5 - 128.0) * self.bins.width
    }

    /// The numbers behind those of the components, of each neighbour, and how much scales grow.
    fn causal(&self, kind: usize, channel: usize) -> f32 {
        self.numbers[self.bins.of_components() + kind * self.bins.channels + channel]
    }

    /// How far the decoder alone was off with a channel, and the size of that.
    fn error(&self, channel: usize, byte: u8, earlier: &[u8]) -> [f32; 2] {
        let (mut expected, mut scale) = (0.0, 0.0);
        for k in 0..self.bins.components {
            expected += self.weight(k) * self.mean(channel, k, earlier);
            scale += self.weight(k) / self.inverse(channel, k);
        }
        let error = self.value(byte) - expected.clamp(-causal::BORDER, causal::BORDER);
        let size = error.abs() / scale;
        [error, size / (1.0 + size / causal::LARGEST)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grey pixels whose narrow components lie far apart: a large one, a small one, and one that nothing has.
    #[test]
    fn small_components_are_left_out_where_that_is_asked_for() {
        const SIDE: usize = 64;
        let bins = Bins {
            channels: 1,
            components: 3,
            coefficients: false,
            width: 1.0 / 128.0,
            neighbours: 0,
        };
        let pixel = [[0.9, 0.1, 0.0], [-0.5, 0.5, 0.0], [1e4; 3]].concat();
        assert_eq!(pixel.len(), bins.numbers());
        let numbers = pixel.repeat(SIDE * SIDE);
        let (seed, batch) = (3, 0);
        let high = |min_p| {
            let bytes = draw(bins, SIDE, &numbers, Draw { seed, batch, min_p });
            assert!(bytes.iter().all(|byte| [63, 64, 191, 192].contains(byte)));
            bytes.iter().filter(|byte| **byte > 128).count() as f64 / bytes.len() as f64
        };
        for all in [0.0, 0.1] {
            // Six standard deviations of 4,096 draws.
            assert!((high(all) - 0.1).abs() < 0.03, "{}", high(all));
        }
        for large in [0.2, 1.0] {
            assert_eq!(high(large), 0.0);
        }
    }
}
