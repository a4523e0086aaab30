//! Tables of pixels: cumulative counts of the bytes of a channel, from the numbers the likelihood gives for a pixel.
//!
//! A file must decode on every machine, and the counts must rise strictly from byte to byte, even where the true
//! distribution function is flat and a float one would go back by a unit in the last place. So:
//!
//! - the place of a bin's edge, (edge − mean) / s, is a subtraction, a product and a cut to fixed point: each is rounded
//!   correctly, so a higher edge never gives a lower place;
//! - the logistic function is a table of integers with straight lines between them: it never falls either;
//! - weights are integers, and the sum over components is exact;
//! - byte v adds v: every byte has at least one count.
//!
//! Red is coded first, then green given red, then blue given both: the values move the means, and the component a pixel
//! came from is weighed anew by how well it explained the values so far.

use super::stack::{PRECISION, Slot, TOTAL};
use crate::likelihood::Bins;
use std::sync::LazyLock;

/// Beyond this many scales from the mean, a logistic is as good as 0 or 1.
const REACH: f32 = 18.0;
/// Entries of the table for each unit, and steps between two entries.
const CELLS: usize = 64;
const STEP_BITS: u32 = 11;
/// Values of the logistic function are counts out of 2²⁸, weights out of 2²⁰.
const HEIGHT_BITS: u32 = 28;
const WEIGHT_BITS: u32 = 20;
const HEIGHT: u32 = 1 << HEIGHT_BITS;
/// Counts that follow the distribution; the other 256 make sure that every byte has one.
const SHARED: u64 = TOTAL as u64 - 256;

/// Entries of the table, a power of two so that no place lies outside.
const ENTRIES: usize = 4096;
type Heights = [[u32; 2]; ENTRIES];

/// 2²⁸ / (1 + e^−x) for x = −18, −18 + 1/64, … 18, each with the step to the next; the last one again to the end.
static LOGISTIC: LazyLock<Box<Heights>> = LazyLock::new(|| {
    let cells = 2 * REACH as usize * CELLS;
    let value = |i: usize| {
        let x = i.min(cells) as f64 / CELLS as f64 - REACH as f64;
        let below = 1.0 / (1.0 + exponential(x.abs()));
        let share = if x < 0.0 { below } else { 1.0 - below };
        (share * HEIGHT as f64 + 0.5) as u32
    };
    let mut table = Box::new([[0; 2]; ENTRIES]);
    for (i, entry) in table.iter_mut().enumerate() {
        *entry = [value(i), value(i + 1) - value(i)];
    }
    table
});

/// e^x out of sums and products alone, which every machine rounds alike; `x` from 0 to 18.
fn exponential(x: f64) -> f64 {
    let small = x / 32.0;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..24 {
        term = term * small / n as f64;
        sum += term;
    }
    (0..5).fold(sum, |power, _| power * power)
}

/// The logistic function at a place in fixed point, 0 at −18.
#[inline(always)]
fn logistic(table: &Heights, place: u32) -> u32 {
    let step = place & ((1 << STEP_BITS) - 1);
    let [low, rise] = table[(place >> STEP_BITS) as usize % ENTRIES];
    low + ((rise * step) >> STEP_BITS)
}

/// The edge below byte `v` as a place; `mean` and `inverse` are a component's.
#[inline(always)]
fn place(edge: f32, mean: f32, inverse: f32) -> u32 {
    // A scale is never negative; should one be, counts rise all the same.
    let a = (edge - mean) * inverse.abs();
    // NaN is not above the lower bound, and goes there.
    let a = if a > -REACH { a } else { -REACH };
    let a = if a < REACH { a } else { REACH } + REACH;
    // Through a signed number: the unsigned cast takes twice as long, and both are the same this far below 2³¹.
    (a * (CELLS << STEP_BITS) as f32) as i32 as u32
}

/// Counts of a sum of weighted heights.
#[inline(always)]
fn counts(sum: u64) -> u32 {
    (((sum >> (WEIGHT_BITS + HEIGHT_BITS - 32)) * SHARED) >> 32) as u32
}

/// Codes the pixels of one likelihood; keeps its scratch from pixel to pixel.
pub struct Coder {
    bins: Bins,
    table: &'static Heights,
    weights: Vec<u32>,
    means: Vec<f32>,
    /// Heights of each component at the lower and the upper edge of a byte.
    low: Vec<u32>,
    high: Vec<u32>,
    /// Room for the heights at an edge that is looked at.
    probed: Vec<u32>,
}

impl Coder {
    pub fn new(bins: Bins) -> Coder {
        let m = bins.components;
        Coder {
            bins,
            table: &LOGISTIC,
            weights: vec![0; m],
            means: vec![0.0; m],
            low: vec![0; m],
            high: vec![0; m],
            probed: vec![0; m],
        }
    }

    /// The slots of a pixel's bytes, as many channels as there are bytes.
    pub fn slots(&mut self, numbers: &[f32], bytes: &[u8], slots: &mut [Slot]) {
        self.start(numbers);
        for (channel, &byte) in bytes.iter().enumerate() {
            self.prepare(numbers, channel, &bytes[..channel]);
            slots[channel] = self.slot(numbers, channel, byte);
            if channel + 1 < bytes.len() {
                self.weigh();
            }
        }
    }

    /// Decodes a pixel: `next` is asked for a place among the counts and then told the slot it was in.
    pub fn decode<E>(
        &mut self,
        numbers: &[f32],
        bytes: &mut [u8],
        mut next: impl FnMut(Asked) -> Result<u32, E>,
    ) -> Result<(), E> {
        self.start(numbers);
        for channel in 0..bytes.len() {
            let (earlier, rest) = bytes.split_at_mut(channel);
            self.prepare(numbers, channel, earlier);
            let place = next(Asked::Place)?;
            let (byte, slot) = self.find(numbers, channel, place);
            next(Asked::Taken(slot))?;
            rest[0] = byte;
            if channel + 1 < bytes.len() {
                self.weigh();
            }
        }
        Ok(())
    }

    /// Weights as the network gave them.
    fn start(&mut self, numbers: &[f32]) {
        let whole = (1 << WEIGHT_BITS) as f32;
        for (weight, number) in self.weights.iter_mut().zip(numbers) {
            *weight = ((number * whole) as u32).min(1 << WEIGHT_BITS);
        }
        self.balance();
    }

    /// What is missing to the whole goes to the heaviest; what is over is taken off from the end.
    fn balance(&mut self) {
        let whole = 1u32 << WEIGHT_BITS;
        let (mut sum, mut heaviest) = (0, 0);
        for i in 0..self.weights.len() {
            self.weights[i] = self.weights[i].min(whole - sum);
            sum += self.weights[i];
            if self.weights[i] > self.weights[heaviest] {
                heaviest = i;
            }
        }
        self.weights[heaviest] += whole - sum;
    }

    /// Means of a channel, given the values of the channels before it.
    fn prepare(&mut self, numbers: &[f32], channel: usize, earlier: &[u8]) {
        let m = self.bins.components;
        self.means
            .copy_from_slice(&numbers[(1 + channel) * m..][..m]);
        if !self.bins.coefficients {
            return;
        }
        let first = 1 + 2 * self.bins.channels + channel * channel.saturating_sub(1) / 2;
        for (i, &byte) in earlier.iter().enumerate() {
            let value = (byte as f32 + 0.5) * self.bins.width - 1.0;
            let coefficients = &numbers[(first + i) * m..][..m];
            for (mean, coefficient) in self.means.iter_mut().zip(coefficients) {
                *mean += coefficient * value;
            }
        }
    }

    fn inverses<'a>(&self, numbers: &'a [f32], channel: usize) -> &'a [f32] {
        let m = self.bins.components;
        &numbers[(1 + self.bins.channels + channel) * m..][..m]
    }

    #[inline(always)]
    fn edge(&self, byte: u32) -> f32 {
        byte as f32 * self.bins.width - 128.0 * self.bins.width
    }

    /// Counts below a byte from 0 to 256; notes the heights of all components there.
    #[inline(always)]
    fn below(&mut self, inverses: &[f32], byte: u32) -> u32 {
        if byte == 0 || byte == 256 {
            // The outer bins take the tails.
            self.probed.fill(byte / 256 * HEIGHT);
            return byte / 256 * TOTAL;
        }
        let edge = self.edge(byte);
        let mut sum = 0u64;
        let components = self.weights.iter().zip(&self.means).zip(inverses);
        for (((&weight, &mean), &inverse), height) in components.zip(&mut self.probed) {
            *height = logistic(self.table, place(edge, mean, inverse));
            sum += weight as u64 * *height as u64;
        }
        byte + counts(sum)
    }

    /// The slot of a byte. Inner bytes have both edges looked at in one go.
    fn slot(&mut self, numbers: &[f32], channel: usize, byte: u8) -> Slot {
        let inverses = self.inverses(numbers, channel);
        let byte = byte as u32;
        if byte == 0 || byte == 255 {
            let left = self.below(inverses, byte);
            std::mem::swap(&mut self.low, &mut self.probed);
            let right = self.below(inverses, byte + 1);
            std::mem::swap(&mut self.high, &mut self.probed);
            let count = right - left;
            return Slot { left, count };
        }
        let (lower, upper) = (self.edge(byte), self.edge(byte + 1));
        let (mut below, mut above) = (0u64, 0u64);
        let components = self.weights.iter().zip(&self.means).zip(inverses);
        let heights = self.low.iter_mut().zip(&mut self.high);
        for (((&weight, &mean), &inverse), (low, high)) in components.zip(heights) {
            *low = logistic(self.table, place(lower, mean, inverse));
            *high = logistic(self.table, place(upper, mean, inverse));
            below += weight as u64 * *low as u64;
            above += weight as u64 * *high as u64;
        }
        let left = counts(below) + byte;
        let count = counts(above) + byte + 1 - left;
        Slot { left, count }
    }

    /// The byte whose slot holds `place`: the last one with no more counts below it.
    ///
    /// Where the search begins does not change what it finds, so the guess may be rough: one logistic in place of all,
    /// with their mean and spread.
    fn find(&mut self, numbers: &[f32], channel: usize, place: u32) -> (u8, Slot) {
        let inverses = self.inverses(numbers, channel);
        let (mut least, mut beyond) = (0u32, 256u32);
        let (mut left, mut right) = (0, TOTAL);
        self.low.fill(0);
        self.high.fill(HEIGHT);
        let mut probe = self.guess(inverses, place);
        let mut stride = Some(1);
        let mut went_up = None;
        while beyond - least > 1 {
            let counts = self.below(inverses, probe);
            let up = counts <= place;
            match up {
                true => {
                    (least, left) = (probe, counts);
                    std::mem::swap(&mut self.low, &mut self.probed);
                }
                false => {
                    (beyond, right) = (probe, counts);
                    std::mem::swap(&mut self.high, &mut self.probed);
                }
            }
            // Strides as long as they go one way, halves from then on.
            if went_up.is_some_and(|before| before != up) {
                stride = None;
            }
            went_up = Some(up);
            let middle = (least + beyond) / 2;
            probe = match stride {
                Some(step) if up => probe + step,
                Some(step) => probe.saturating_sub(step),
                None => middle,
            };
            stride = stride.map(|step| 2 * step + 1);
            if probe <= least || probe >= beyond {
                probe = middle;
            }
        }
        let count = right - left;
        (least as u8, Slot { left, count })
    }

    /// A byte near the one at `place`, from 1 to 255.
    fn guess(&self, inverses: &[f32], place: u32) -> u32 {
        let share = |weight: u32| weight as f32 * (1.0 / (1 << WEIGHT_BITS) as f32);
        let mut mean = 0.0;
        for (&weight, &own) in self.weights.iter().zip(&self.means) {
            mean += share(weight) * own;
        }
        let mut spread = 0.0;
        for ((&weight, &own), &inverse) in self.weights.iter().zip(&self.means).zip(inverses) {
            spread += share(weight) * (1.0 / inverse + 0.5 * (own - mean).abs());
        }
        let u = (place as f32 + 0.5) * (1.0 / TOTAL as f32);
        let value = mean + spread * (u / (1.0 - u).max(1e-7)).ln();
        ((value / self.bins.width + 128.0) as u32).clamp(1, 255)
    }

    /// Weighs the components by how well they explained the byte. One more for each, so that no byte explains nothing.
    fn weigh(&mut self) {
        let edges = || self.low.iter().zip(&self.high);
        let mass = |(low, high): (&u32, &u32)| (high - low) as u64 + 1;
        let explained = |(&weight, edges)| weight as u64 * mass(edges);
        let sum: u64 = self.weights.iter().zip(edges()).map(explained).sum();
        // Sums stay below 2⁵³ and a quotient is rounded correctly: floats, but the same on every machine.
        let scale = (1u64 << WEIGHT_BITS) as f64 / sum as f64;
        let edges = self.low.iter().zip(&self.high);
        for (weight, edges) in self.weights.iter_mut().zip(edges) {
            *weight = ((*weight as u64 * mass(edges)) as f64 * scale) as u32;
        }
        self.balance();
    }
}

/// What a decoder of pixels asks of a stack.
pub enum Asked {
    /// Where among the counts the next symbol lies.
    Place,
    /// The symbol had this slot; the answer does not matter.
    Taken(Slot),
}

const _: () = assert!(PRECISION == 24 && SHARED < 1 << 24);

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(components: usize) -> Bins {
        Bins {
            channels: 3,
            components,
            coefficients: true,
            width: 1.0 / 128.0,
        }
    }

    #[test]
    fn the_logistic_table_rises_and_is_what_it_says() {
        let table = &LOGISTIC;
        let next = |[low, rise]: [u32; 2]| low + rise;
        assert!(table.windows(2).all(|pair| next(pair[0]) == pair[1][0]));
        assert!(place(1e9, 0.0, 1e9) >> STEP_BITS == 36 * 64);
        for (i, &[entry, _]) in table.iter().enumerate().take(36 * 64 + 1) {
            let exact = 268_435_456.0 / (1.0 + (18.0 - i as f64 / 64.0).exp());
            assert!((entry as f64 - exact).abs() <= 0.5001, "{i}");
            // No entry lies so near a tie that another way to compute it could round it differently.
            assert!(
                ((exact + 0.5).fract() - 0.5).abs() < 0.499_999,
                "{i}: {exact}"
            );
        }
    }

    /// Every byte of every channel has counts, and they add up, whatever the numbers.
    #[test]
    fn counts_rise_strictly_whatever_the_numbers() {
        let odd = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1e-30,
            1e30,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.3,
        ];
        let mut seed = 7u32;
        let mut number = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 8
        };
        for round in 0..300 {
            let m = 1 + round % 5;
            let mut coder = Coder::new(bins(m));
            let mut numbers: Vec<f32> = (0..coder.bins.numbers())
                .map(|_| number() as f32 / 4e6 - 2.0)
                .collect();
            let scales = (1 + 3) * m..(1 + 6) * m;
            numbers[scales]
                .iter_mut()
                .for_each(|s| *s = (*s * 4.0).exp().min(1100.0));
            if round % 3 == 0 {
                let at = number() as usize % numbers.len();
                numbers[at] = odd[number() as usize % odd.len()];
            }
            coder.start(&numbers);
            let mut earlier = Vec::new();
            for channel in 0..3 {
                coder.prepare(&numbers, channel, &earlier);
                let mut left = 0;
                for byte in 0..=255u8 {
                    let slot = coder.slot(&numbers, channel, byte);
                    assert!(
                        slot.left == left && slot.count > 0,
                        "{round} {channel} {byte}"
                    );
                    left += slot.count;
                    assert_eq!(coder.find(&numbers, channel, slot.left), (byte, slot));
                    assert_eq!(coder.find(&numbers, channel, left - 1), (byte, slot));
                }
                assert_eq!(left, TOTAL);
                earlier.push(number() as u8);
                coder.slot(&numbers, channel, earlier[channel]);
                coder.weigh();
            }
        }
    }
}
