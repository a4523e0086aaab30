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

/// Bytes of images drawn from the numbers of their pixels ([`super::Pixels::numbers`]), `side` pixels a row. `seed` and
/// `batch` settle the noise, so that no two batches share any.
pub fn draw(bins: Bins, side: usize, numbers: &[f32], seed: u64, batch: u64) -> Vec<u8> {
    let pixels = side * side;
    let bytes = pixels * bins.channels;
    let images = numbers.chunks_exact(pixels * bins.numbers());
    let mut out = vec![0; images.len() * bytes];
    let mut canvas = Canvas {
        bins,
        side,
        choices: vec![0.0; pixels],
        spreads: vec![0.0; 2 * bytes],
        errors: vec![[0.0; 2]; if bins.neighbours > 0 { bytes } else { 0 }],
    };
    for (i, (numbers, out)) in images.zip(out.chunks_exact_mut(bytes)).enumerate() {
        let noise = |stream| Noise {
            seed,
            stream,
            step: batch,
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
            let component = own.chosen(self.choices[pixel]);
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

    /// The component in which a share of all weights ends.
    fn chosen(&self, share: f32) -> usize {
        let all: f32 = (0..self.bins.components).map(|k| self.weight(k)).sum();
        let mut left = share * all;
        for k in 0..self.bins.components {
            left -= self.weight(k);
            if left < 0.0 {
                return k;
            }
        }
        self.bins.components - 1
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
