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
//! Before a channel is coded, its neighbours may move means and scales: as the likelihood was trained to
//! ([`rrvq::likelihood::causal`]), or as was fitted when the model was packed ([`super::neighbours`]).
//!
//! Red is coded first, then green given red, then blue given both: the values move the means, and the component a pixel
//! came from is weighed anew by how well it explained the values so far.

use super::neighbours::{Errors, Neighbours};
use super::stack::{PRECISION, Slot, TOTAL};
use rrvq::likelihood::{Bins, causal};
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

/// Components that are worked on side by side; those beyond a likelihood's last weigh nothing.
const LANES: usize = 8;
type Lanes<T> = [T; LANES];

/// The logistic function at places in fixed point, 0 at −18.
#[inline(always)]
fn logistic(table: &Heights, places: Lanes<u32>) -> Lanes<u32> {
    std::array::from_fn(|i| {
        let step = places[i] & ((1 << STEP_BITS) - 1);
        let [low, rise] = table[(places[i] >> STEP_BITS) as usize % ENTRIES];
        low + ((rise * step) >> STEP_BITS)
    })
}

/// An edge as a place of each component.
#[inline(always)]
fn places(edge: f32, means: &Lanes<f32>, inverses: &Lanes<f32>) -> Lanes<u32> {
    std::array::from_fn(|i| {
        // A scale is never negative; should one be, counts rise all the same.
        let a = (edge - means[i]) * inverses[i].abs();
        // NaN is not above the lower bound, and goes there.
        let a = if a > -REACH { a } else { -REACH };
        let a = if a < REACH { a } else { REACH } + REACH;
        cut_small(a * (CELLS << STEP_BITS) as f32)
    })
}

/// Counts of a sum of weighted heights.
#[inline(always)]
fn counts(sum: u64) -> u32 {
    (((sum >> (WEIGHT_BITS + HEIGHT_BITS - 32)) * SHARED) >> 32) as u32
}

/// The whole part of a number from 0 to 2³². A cast has to think of all others too, and takes four at a time apart.
#[inline(always)]
fn cut(x: f64) -> u32 {
    // So large that no fraction fits beside it, and its last bits are the number.
    const SHIFT: f64 = (1u64 << 52) as f64;
    let nearest = (x + SHIFT) - SHIFT;
    let below = if nearest > x { nearest - 1.0 } else { nearest };
    (below + SHIFT).to_bits() as u32
}

/// The same for a number from 0 to 2²³, not included.
#[inline(always)]
fn cut_small(x: f32) -> u32 {
    const SHIFT: f32 = (1u32 << 23) as f32;
    let nearest = (x + SHIFT) - SHIFT;
    let below = if nearest > x { nearest - 1.0 } else { nearest };
    (below + SHIFT).to_bits() & ((1 << 23) - 1)
}

/// log₂ of a positive number, to a tenth or so.
#[inline(always)]
fn rough_log2(x: f32) -> f32 {
    x.to_bits() as i32 as f32 * (1.0 / (1 << 23) as f32) - 126.94
}

/// Some components of one pixel: what is known of them for the channel at hand.
#[derive(Clone, Copy, Default)]
struct Group {
    weights: Lanes<u32>,
    means: Lanes<f32>,
    inverses: Lanes<f32>,
    /// Heights at the lower and the upper edge of the byte that was looked at last.
    low: Lanes<u32>,
    high: Lanes<u32>,
}

impl Group {
    #[inline(always)]
    fn heights(&self, table: &Heights, edge: f32) -> Lanes<u32> {
        logistic(table, places(edge, &self.means, &self.inverses))
    }

    #[inline(always)]
    fn weighted(&self, heights: &Lanes<u32>) -> u64 {
        let mut sum = 0;
        for (&weight, &height) in self.weights.iter().zip(heights) {
            sum += weight as u64 * height as u64;
        }
        sum
    }

    /// How much of the byte each component explains, by its weight. One count more for each, so that no byte explains
    /// nothing. Below 2⁵³, all of them together.
    #[inline(always)]
    fn explained(&self) -> Lanes<u64> {
        std::array::from_fn(|i| {
            let mass = self.high[i] - self.low[i] + 1;
            self.weights[i] as u64 * mass as u64
        })
    }
}

/// Codes the pixels of one likelihood; keeps its scratch from pixel to pixel.
pub struct Coder {
    bins: Bins,
    table: &'static Heights,
    groups: Vec<Group>,
    /// What neighbours say, and what is known of them.
    neighbours: Option<Neighbours>,
    errors: Errors,
    /// Weights as the network gave them, for a causal likelihood.
    given: Vec<Lanes<u32>>,
    /// Mean and 1 / s of the channel at hand, all components together, as the network gave them.
    whole: [f32; 2],
}

impl Coder {
    /// For tiles of so many pixels a side.
    pub fn new(bins: Bins, side: usize, neighbours: Option<Neighbours>) -> Coder {
        let remembers = bins.neighbours > 0 || neighbours.is_some();
        Coder {
            errors: Errors::new(if remembers { side } else { 0 }, bins.channels),
            neighbours,
            given: vec![[0; LANES]; bins.components.div_ceil(LANES)],
            whole: [0.0; 2],
            bins,
            table: &LOGISTIC,
            groups: vec![Group::default(); bins.components.div_ceil(LANES)],
        }
    }

    /// To be called before the first pixel of every tile.
    pub fn next_tile(&mut self) {
        self.errors.forget();
    }

    pub fn bins(&self) -> &Bins {
        &self.bins
    }

    /// Of the tile so far.
    pub fn errors(&self) -> &Errors {
        &self.errors
    }

    /// The slots of a pixel's bytes, as many channels as there are bytes. `pixel` is its number in the tile, row by row;
    /// its numbers are the first ones.
    #[inline(always)]
    pub fn slots(&mut self, pixel: usize, numbers: &[f32], bytes: &[u8], slots: &mut [Slot]) {
        self.start(numbers);
        for (channel, &byte) in bytes.iter().enumerate() {
            self.prepare(numbers, channel, &bytes[..channel]);
            self.listen(pixel, numbers, channel);
            slots[channel] = self.slot(byte as u32);
            self.note(pixel, channel, byte);
            if channel + 1 < bytes.len() {
                self.weigh();
            }
        }
    }

    /// Decodes a pixel: `next` is asked for a place among the counts and then told the slot it was in.
    #[inline(always)]
    pub fn decode<E>(
        &mut self,
        pixel: usize,
        numbers: &[f32],
        bytes: &mut [u8],
        mut next: impl FnMut(Asked) -> Result<u32, E>,
    ) -> Result<(), E> {
        self.start(numbers);
        for channel in 0..bytes.len() {
            let (earlier, rest) = bytes.split_at_mut(channel);
            self.prepare(numbers, channel, earlier);
            self.listen(pixel, numbers, channel);
            let place = next(Asked::Place)?;
            let (byte, slot) = self.find(place);
            next(Asked::Taken(slot))?;
            rest[0] = byte;
            self.note(pixel, channel, byte);
            if channel + 1 < bytes.len() {
                self.weigh();
            }
        }
        Ok(())
    }

    /// The `kind`th number of each component of a group. Lanes beyond the last component hold whatever comes next.
    #[inline(always)]
    fn taken(numbers: &[f32], bins: &Bins, kind: usize, group: usize) -> Lanes<f32> {
        let numbers = &numbers[kind * bins.components + group * LANES..];
        match numbers.first_chunk() {
            Some(found) => *found,
            None => std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0.0)),
        }
    }

    /// Weights as the network gave them.
    #[inline(always)]
    fn start(&mut self, numbers: &[f32]) {
        let whole = (1 << WEIGHT_BITS) as f32;
        for (g, group) in self.groups.iter_mut().enumerate() {
            let taken = Self::taken(numbers, &self.bins, 0, g);
            let there = self.bins.components - g * LANES;
            group.weights = std::array::from_fn(|i| {
                let number = taken[i] * whole;
                // Neither is NaN above 0.
                let number = if number > 0.0 { number } else { 0.0 };
                let number = if number < whole { number } else { whole };
                if i < there { cut_small(number) } else { 0 }
            });
        }
        self.balance();
        let given = self.given.iter_mut().zip(&self.groups);
        given.for_each(|(given, group)| *given = group.weights);
    }

    /// What is missing to the whole goes to the heaviest; what is over is taken off from the end.
    #[inline(always)]
    fn balance(&mut self) {
        let whole = 1u32 << WEIGHT_BITS;
        let all = |g: &Group| g.weights.iter().map(|w| *w as u64).sum::<u64>();
        let mut sum: u64 = self.groups.iter().map(all).sum();
        if sum > whole as u64 {
            let mut room = whole;
            for weight in self.groups.iter_mut().flat_map(|g| &mut g.weights) {
                *weight = (*weight).min(room);
                room -= *weight;
            }
            sum = whole as u64;
        }
        let most = |g: &Group| g.weights.iter().fold(0, |a, w| a.max(*w));
        let largest = self.groups.iter().map(most).max().unwrap_or(0);
        for group in &mut self.groups {
            let mut heaviest = 0u32;
            for (i, weight) in group.weights.iter().enumerate() {
                heaviest |= ((*weight == largest) as u32) << i;
            }
            if heaviest > 0 {
                group.weights[heaviest.trailing_zeros() as usize % LANES] += whole - sum as u32;
                break;
            }
        }
    }

    /// Means and scales of a channel, given the values of the channels before it.
    #[inline(always)]
    fn prepare(&mut self, numbers: &[f32], channel: usize, earlier: &[u8]) {
        let channels = self.bins.channels;
        let first = 1 + 2 * channels + channel * channel.saturating_sub(1) / 2;
        for (g, group) in self.groups.iter_mut().enumerate() {
            let taken = |kind| Self::taken(numbers, &self.bins, kind, g);
            group.means = taken(1 + channel);
            group.inverses = taken(1 + channels + channel);
            if !self.bins.coefficients {
                continue;
            }
            for (i, &byte) in earlier.iter().enumerate() {
                let value = (byte as f32 + 0.5) * self.bins.width - 1.0;
                let coefficients = taken(first + i);
                for (mean, coefficient) in group.means.iter_mut().zip(coefficients) {
                    *mean += coefficient * value;
                }
            }
        }
    }

    /// The sum over all components, each by its weight: eight of them by halves, then eight after eight.
    #[inline(always)]
    fn weighted(&self, term: impl Fn(&Group, usize) -> f32) -> f32 {
        let now = self.groups.iter().map(|group| &group.weights);
        self.weighted_by(now, term)
    }

    #[inline(always)]
    fn weighted_by<'a>(
        &self,
        weights: impl Iterator<Item = &'a Lanes<u32>>,
        term: impl Fn(&Group, usize) -> f32,
    ) -> f32 {
        const SHARE: f32 = 1.0 / (1 << WEIGHT_BITS) as f32;
        let groups = self.groups.iter().zip(weights);
        groups.fold(0.0, |sum, (group, weights)| {
            let terms: Lanes<f32> = std::array::from_fn(|i| match weights[i] {
                0 => 0.0,
                weight => weight as i32 as f32 * SHARE * term(group, i),
            });
            let pairs: [f32; 4] = std::array::from_fn(|i| terms[i] + terms[i + 4]);
            sum + ((pairs[0] + pairs[2]) + (pairs[1] + pairs[3]))
        })
    }

    /// Moves means and scales of the channel that was prepared by the errors of its neighbours.
    #[inline(always)]
    fn listen(&mut self, pixel: usize, numbers: &[f32], channel: usize) {
        let (shift, narrowing) = if self.bins.neighbours > 0 {
            // Errors are told by the weights before any channel of the pixel was seen.
            let mean = self.weighted_by(self.given.iter(), |g, i| g.means[i]);
            let scale = self.weighted_by(self.given.iter(), |g, i| 1.0 / g.inverses[i]);
            self.whole = [mean.clamp(-causal::BORDER, causal::BORDER), 1.0 / scale];
            let own = &numbers[self.bins.of_components()..self.bins.numbers()];
            self.errors
                .causal(own, self.bins.neighbours, pixel, channel)
        } else if let Some(neighbours) = &self.neighbours {
            self.whole = [
                self.weighted(|g, i| g.means[i]),
                self.weighted(|g, i| g.inverses[i]),
            ];
            self.errors.hint(neighbours, pixel, channel)
        } else {
            return;
        };
        for group in &mut self.groups {
            group.means.iter_mut().for_each(|mean| *mean += shift);
            let inverses = group.inverses.iter_mut();
            inverses.for_each(|inverse| *inverse *= narrowing);
        }
    }

    /// Notes how far the network was off.
    #[inline(always)]
    fn note(&mut self, pixel: usize, channel: usize, byte: u8) {
        if self.bins.neighbours > 0 || self.neighbours.is_some() {
            let [mean, inverse] = self.whole;
            let centre = (byte as f32 + 0.5) * self.bins.width - 128.0 * self.bins.width;
            self.errors.note(pixel, channel, centre - mean, inverse);
        }
    }

    /// The slot of a byte; notes the heights at both its edges. The outer bins take the tails.
    #[inline(always)]
    fn slot(&mut self, byte: u32) -> Slot {
        let edge = |byte: u32| byte as f32 * self.bins.width - 128.0 * self.bins.width;
        let (lower, upper) = (edge(byte), edge(byte + 1));
        let (mut below, mut above) = (0, 0);
        for group in &mut self.groups {
            group.low = match byte {
                0 => [0; LANES],
                _ => group.heights(self.table, lower),
            };
            group.high = match byte {
                255 => [HEIGHT; LANES],
                _ => group.heights(self.table, upper),
            };
            below += group.weighted(&group.low);
            above += group.weighted(&group.high);
        }
        let left = counts(below) + byte;
        let right = match byte {
            255 => TOTAL,
            _ => counts(above) + byte + 1,
        };
        let count = right - left;
        Slot { left, count }
    }

    /// The byte whose slot holds `place`. Where the search looks does not change what it finds, so it may be guided by
    /// rough numbers: first by one logistic in place of all, then by the slots it met.
    #[inline(always)]
    fn find(&mut self, place: u32) -> (u8, Slot) {
        // The byte is from `least` to `most`.
        let (mut least, mut most) = (0u32, 255u32);
        let mut probe = self.guess(place);
        for round in 0.. {
            let slot = self.slot(probe);
            let right = slot.left + slot.count;
            // As if all slots on the way had the size of this one.
            let wanted = match (place < slot.left, place < right) {
                (true, _) => {
                    most = probe - 1;
                    probe.saturating_sub(1 + (slot.left - 1 - place) / slot.count)
                }
                (false, false) => {
                    least = probe + 1;
                    probe + 1 + (place - right) / slot.count
                }
                (false, true) => return (probe as u8, slot),
            };
            // Should that be no good guide, halves are.
            probe = match round % 3 {
                2 => (least + most) / 2,
                _ => wanted.clamp(least, most),
            };
        }
        unreachable!("every place lies in a slot, and each round leaves out a byte at least")
    }

    /// A byte near the one at `place`.
    #[inline(always)]
    fn guess(&self, place: u32) -> u32 {
        let mean = self.weighted(|g, i| g.means[i]);
        let off = |g: &Group, i: usize| (g.means[i] - mean).abs();
        let spread = self.weighted(|g, i| 1.0 / g.inverses[i] + 0.5 * off(g, i));
        let u = (place as i32 as f32 + 0.5) * (1.0 / TOTAL as f32);
        let logit = (rough_log2(u) - rough_log2((1.0 - u).max(1e-7))) * std::f32::consts::LN_2;
        let byte = (mean + spread * logit) / self.bins.width + 128.0;
        (byte as i32).clamp(0, 255) as u32
    }

    /// Weighs the components by how well they explained the byte.
    #[inline(always)]
    fn weigh(&mut self) {
        let all = |g: &Group| g.explained().iter().sum::<u64>();
        let sum: u64 = self.groups.iter().map(all).sum();
        // Sums stay below 2⁵³ and a quotient is rounded correctly: floats, but the same on every machine.
        let scale = (1u64 << WEIGHT_BITS) as f64 / sum as i64 as f64;
        for group in &mut self.groups {
            let explained = group.explained();
            group.weights = std::array::from_fn(|i| cut(explained[i] as i64 as f64 * scale));
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
const _: () = assert!(2 * (REACH as usize) * (CELLS << STEP_BITS) < 1 << 23);

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::likelihood::draw::{Draw, draw};
    use rrvq_tensor::rng::{Distribution, Noise, fill};
    use rrvq_tensor::simd::isa;

    fn bins(components: usize) -> Bins {
        Bins {
            channels: 3,
            components,
            coefficients: true,
            width: 1.0 / 128.0,
            neighbours: 0,
        }
    }

    #[test]
    fn the_logistic_table_rises_and_is_what_it_says() {
        let table = &LOGISTIC;
        let next = |[low, rise]: [u32; 2]| low + rise;
        assert!(table.windows(2).all(|pair| next(pair[0]) == pair[1][0]));
        let far = places(1e9, &[0.0; LANES], &[1e9; LANES]);
        assert!(far[0] >> STEP_BITS == 36 * 64);
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

    #[test]
    fn cutting_is_what_a_cast_does() {
        for i in 0..100_000u32 {
            let x = i as f64 * 31.7 / (1 + i % 7) as f64;
            assert_eq!(cut(x), x as u32);
            assert_eq!((cut(i as f64), cut(i as f64 + 0.5)), (i, i));
            let x = x as f32;
            assert_eq!(cut_small(x), x as u32);
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
            let m = 1 + round % 12;
            let mut coder = Coder::new(bins(m), 4, None);
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
                    let slot = coder.slot(byte as u32);
                    assert!(
                        slot.left == left && slot.count > 0,
                        "{round} {channel} {byte}"
                    );
                    left += slot.count;
                    assert_eq!(coder.find(slot.left), (byte, slot));
                    assert_eq!(coder.find(left - 1), (byte, slot));
                }
                assert_eq!(left, TOTAL);
                earlier.push(number() as u8);
                coder.slot(earlier[channel] as u32);
                coder.weigh();
            }
        }
    }

    /// Where drawn bytes lie among the counts that a file would pay for them is even: the distribution they are drawn from
    /// is the one that is coded with, neighbours and earlier channels included.
    #[test]
    fn drawn_pixels_lie_evenly_among_the_counts() {
        const SIDE: usize = 16;
        const IMAGES: usize = 32;
        const PARTS: usize = 16;
        let mixture = |channels, components, neighbours| Bins {
            channels,
            components,
            coefficients: true,
            width: 1.0 / 128.0,
            neighbours,
        };
        let logistic = Bins {
            components: 1,
            coefficients: false,
            width: 1.0 / 256.0,
            ..mixture(3, 1, 0)
        };
        let all = [
            logistic,
            mixture(3, 10, 0),
            mixture(3, 10, 6),
            mixture(1, 3, 6),
            mixture(3, 4, 12),
        ];
        for (round, bins) in all.into_iter().enumerate() {
            let noise = Noise {
                seed: 11,
                stream: round as u32,
                step: 0,
            };
            let mut numbers = vec![0.0; IMAGES * SIDE * SIDE * bins.numbers()];
            fill(isa(), noise, Distribution::Uniform, 0, &mut numbers);
            for own in numbers.chunks_exact_mut(bins.numbers()) {
                let (weights, rest) = own.split_at_mut(bins.components);
                let sum: f32 = weights.iter().sum();
                weights.iter_mut().for_each(|w| *w /= sum);
                let (means, rest) = rest.split_at_mut(bins.channels * bins.components);
                means.iter_mut().for_each(|m| *m -= 0.5);
                let (inverses, rest) = rest.split_at_mut(bins.channels * bins.components);
                inverses.iter_mut().for_each(|i| *i = 4.0 + 60.0 * *i);
                // Coefficients, pulls and growths.
                rest.iter_mut().for_each(|v| *v -= 0.3);
                let growths = rest.len()
                    - if bins.neighbours > 0 {
                        bins.channels
                    } else {
                        0
                    };
                rest[growths..].iter_mut().for_each(|v| *v = v.abs());
            }
            let how = Draw {
                seed: 5,
                batch: round as u64,
                min_p: 0.0,
            };
            let bytes = draw(bins, SIDE, &numbers, how);
            let mut within = vec![0.0; bytes.len()];
            let other = Noise { step: 1, ..noise };
            fill(isa(), other, Distribution::Uniform, 0, &mut within);
            let mut coder = Coder::new(bins, SIDE, None);
            let mut parts = [0usize; PARTS];
            let pixels = bytes.chunks_exact(bins.channels);
            let numbers = numbers.chunks_exact(bins.numbers());
            let within = within.chunks_exact(bins.channels);
            for (i, ((bytes, numbers), within)) in pixels.zip(numbers).zip(within).enumerate() {
                let pixel = i % (SIDE * SIDE);
                if pixel == 0 {
                    coder.next_tile();
                }
                let mut slots = vec![Slot { left: 0, count: 0 }; bins.channels];
                coder.slots(pixel, numbers, bytes, &mut slots);
                for (slot, within) in slots.iter().zip(within) {
                    let place = slot.left as f64 + slot.count as f64 * *within as f64;
                    parts[(place / TOTAL as f64 * PARTS as f64) as usize] += 1;
                }
            }
            let even = bytes.len() as f64 / PARTS as f64;
            let chi: f64 = parts
                .iter()
                .map(|&n| (n as f64 - even).powi(2) / even)
                .sum();
            // 15 is expected, 44 is exceeded once in ten thousand draws.
            assert!(chi < 44.0, "{bins:?}: {chi}, {parts:?}");
        }
    }
}
