//! Random numbers by address: Philox 4x32-10.
//!
//! A counter-based generator has no state to pass around: the value of one element is a function of
//! (seed, stream, step, element), so noise needs no memory, does not depend on how work is split, and is
//! the same on every device. Streams tell apart the noises of one step.
//!
//! The key is the seed; the counter is (block, stream, step low, step high). Element e = 64c + 16j + l
//! (j < 4, l < 16) takes word j of block 16c + l, so sixteen lanes of blocks fill sixteen consecutive
//! elements word by word, without a transpose.

use crate::lanes::{Lanes, Words, dispatch};
use crate::math;
use crate::simd::Isa;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;
/// Elements that sixteen blocks give.
const CHUNK: usize = 64;

/// Which noise: everything but the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// One for a whole run.
    pub seed: u64,
    /// Tells apart the noises of one step.
    pub stream: u32,
    /// The number of the step.
    pub step: u64,
}

/// What the words of the generator are turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// In (0, 1), both ends excluded.
    Uniform,
    /// Mean 0, variance 1, by Box and Muller's method on words (0, 1) and (2, 3) of a block.
    Normal,
    /// -ln(-ln u).
    Gumbel,
}

/// One block of four words: the generator itself (Salmon et al. 2011), for what needs words and not floats.
///
/// ```
/// use rrvq_tensor::rng::philox4x32_10;
/// // The authors' own test vector.
/// let words = philox4x32_10([0; 4], [0; 2]);
/// assert_eq!(words, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    let mut key = key;
    for _ in 0..ROUNDS {
        let low = u64::from(a) * u64::from(MULTIPLIERS[0]);
        let high = u64::from(c) * u64::from(MULTIPLIERS[1]);
        (a, b, c, d) = (
            (high >> 32) as u32 ^ b ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ d ^ key[1],
            low as u32,
        );
        key = [
            key[0].wrapping_add(KEY_STEPS[0]),
            key[1].wrapping_add(KEY_STEPS[1]),
        ];
    }
    [a, b, c, d]
}

/// Fills `out` with the elements from `first_element` on: the numbers that [`Graph::noise`](crate::Graph::noise) of
/// the same stream has in a program, on any device of that seed and step.
///
/// ```
/// use rrvq_tensor::rng::{Distribution, Noise, fill};
/// use rrvq_tensor::simd::isa;
/// let noise = Noise { seed: 1, stream: 0, step: 5 };
/// let (mut all, mut rest) = ([0.0; 100], [0.0; 30]);
/// fill(isa(), noise, Distribution::Normal, 0, &mut all);
/// fill(isa(), noise, Distribution::Normal, 70, &mut rest);
/// assert_eq!(all[70..], rest); // by address, not by order
/// ```
pub fn fill(isa: Isa, noise: Noise, dist: Distribution, first_element: u64, out: &mut [f32]) {
    fill_any(isa, &noise, dist, first_element, out);
}

dispatch! {
    fn fill_any(isa, noise: &Noise, dist: Distribution, first: u64, out: &mut [f32]) => fill_lanes;
}

/// [`fill`] for kernels that already run on some lanes.
#[inline(always)]
pub(crate) fn fill_lanes<L: Lanes>(noise: &Noise, dist: Distribution, first: u64, out: &mut [f32]) {
    let mut chunk = first / CHUNK as u64;
    let mut skip = (first % CHUNK as u64) as usize;
    let mut out = out;
    while !out.is_empty() {
        if skip == 0 && out.len() >= CHUNK {
            let (whole, rest) = out.split_at_mut(CHUNK);
            chunk_lanes::<L>(noise, dist, chunk, whole);
            out = rest;
        } else {
            let mut whole = [0.0; CHUNK];
            chunk_lanes::<L>(noise, dist, chunk, &mut whole);
            let n = out.len().min(CHUNK - skip);
            let (part, rest) = out.split_at_mut(n);
            part.copy_from_slice(&whole[skip..skip + n]);
            out = rest;
            skip = 0;
        }
        chunk += 1;
    }
}

/// The 64 elements of sixteen blocks.
#[inline(always)]
fn chunk_lanes<L: Lanes>(noise: &Noise, dist: Distribution, chunk: u64, out: &mut [f32]) {
    let words = blocks::<L>(noise, (chunk as u32).wrapping_mul(16));
    let u = [
        uniform::<L>(words[0]),
        uniform::<L>(words[1]),
        uniform::<L>(words[2]),
        uniform::<L>(words[3]),
    ];
    let v = match dist {
        Distribution::Uniform => u,
        Distribution::Gumbel => [gumbel(u[0]), gumbel(u[1]), gumbel(u[2]), gumbel(u[3])],
        Distribution::Normal => {
            let (a, b) = normal_pair(u[0], u[1]);
            let (c, d) = normal_pair(u[2], u[3]);
            [a, b, c, d]
        }
    };
    let mut j = 0;
    while j < 4 {
        v[j].store(&mut out[16 * j..]);
        j += 1;
    }
}

#[inline(always)]
fn blocks<L: Lanes>(noise: &Noise, first: u32) -> [L::Words; 4] {
    let m0 = L::Words::splat(MULTIPLIERS[0]);
    let m1 = L::Words::splat(MULTIPLIERS[1]);
    let mut a = L::Words::count_from(first);
    let mut b = L::Words::splat(noise.stream);
    let mut c = L::Words::splat(noise.step as u32);
    let mut d = L::Words::splat((noise.step >> 32) as u32);
    let mut key = [noise.seed as u32, (noise.seed >> 32) as u32];
    let mut round = 0;
    while round < ROUNDS {
        let (high0, low0) = a.mul_wide(m0);
        let (high1, low1) = c.mul_wide(m1);
        a = high1.xor(b).xor(L::Words::splat(key[0]));
        c = high0.xor(d).xor(L::Words::splat(key[1]));
        b = low1;
        d = low0;
        key = [
            key[0].wrapping_add(KEY_STEPS[0]),
            key[1].wrapping_add(KEY_STEPS[1]),
        ];
        round += 1;
    }
    [a, b, c, d]
}

/// The middle of one of 2^23 equal cells of (0, 1).
#[inline(always)]
fn uniform<L: Lanes>(bits: L::Words) -> L {
    bits.shr::<9>()
        .to_floats()
        .add(L::splat(0.5))
        .mul(L::splat(1.0 / 8_388_608.0))
}

#[inline(always)]
fn gumbel<L: Lanes>(u: L) -> L {
    math::log_normal(math::log_normal(u).neg()).neg()
}

#[inline(always)]
fn normal_pair<L: Lanes>(u: L, v: L) -> (L, L) {
    let r = math::log_normal(u).mul(L::splat(-2.0)).sqrt();
    let (sin, cos) = math::sin_cos_turns(v);
    (r.mul(cos), r.mul(sin))
}

/// The value of a program's input `counter`, which every [noise](crate::Graph::noise) of a run is addressed by.
pub fn counter(seed: u64, step: u64) -> [u32; 4] {
    [
        seed as u32,
        (seed >> 32) as u32,
        step as u32,
        (step >> 32) as u32,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Noise = Noise {
        seed: 0x0123_4567_89ab_cdef,
        stream: 7,
        step: (3 << 32) + 11,
    };

    #[test]
    fn blocks_match_the_published_vectors() {
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, words) in cases {
            assert_eq!(philox4x32_10(counter, key), words);
        }
    }

    #[test]
    fn uniform_elements_are_the_addressed_words() {
        for isa in Isa::all() {
            let mut out = [0.0; 300];
            fill(isa, NOISE, Distribution::Uniform, 1000, &mut out);
            for (i, v) in out.iter().enumerate() {
                let e = 1000 + i;
                let (c, j, l) = (e / 64, e / 16 % 4, e % 16);
                let counter = [(16 * c + l) as u32, 7, 11, 3];
                let word = philox4x32_10(counter, [0x89ab_cdef, 0x0123_4567])[j];
                let expected = ((word >> 9) as f64 + 0.5) / 8_388_608.0;
                assert_eq!(*v as f64, expected, "{isa:?}, element {e}");
            }
        }
    }

    #[test]
    fn any_split_gives_the_same_bits_on_every_path() {
        for dist in [
            Distribution::Uniform,
            Distribution::Normal,
            Distribution::Gumbel,
        ] {
            let mut expected = vec![0.0; 1000];
            fill(Isa::Portable, NOISE, dist, 37, &mut expected);
            for isa in Isa::all() {
                for step in [1, 5, 64, 127, 1000] {
                    let mut got = vec![0.0; 1000];
                    for (i, part) in got.chunks_mut(step).enumerate() {
                        fill(isa, NOISE, dist, 37 + (i * step) as u64, part);
                    }
                    let same = got
                        .iter()
                        .zip(&expected)
                        .all(|(g, e)| g.to_bits() == e.to_bits());
                    assert!(same, "{isa:?} {dist:?} in steps of {step}");
                }
            }
        }
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let euler = 0.577_215_664_9;
        let cases = [
            (Distribution::Uniform, 0.5, 1.0 / 12.0),
            (Distribution::Normal, 0.0, 1.0),
            (
                Distribution::Gumbel,
                euler,
                std::f64::consts::PI.powi(2) / 6.0,
            ),
        ];
        for (dist, mean, variance) in cases {
            let mut out = vec![0.0; 1 << 20];
            fill(Isa::best(), NOISE, dist, 0, &mut out);
            let n = out.len() as f64;
            let m = out.iter().map(|v| *v as f64).sum::<f64>() / n;
            let v = out.iter().map(|v| (*v as f64 - m).powi(2)).sum::<f64>() / n;
            assert!((m - mean).abs() < 0.005, "{dist:?}: mean {m}");
            assert!((v - variance).abs() < 0.02, "{dist:?}: variance {v}");
        }
    }

    #[test]
    fn noises_differ_by_seed_stream_and_step() {
        let of = |noise: Noise| {
            let mut out = [0.0; 64];
            fill(Isa::best(), noise, Distribution::Uniform, 0, &mut out);
            out
        };
        let others = [
            Noise {
                seed: NOISE.seed + 1,
                ..NOISE
            },
            Noise { stream: 8, ..NOISE },
            Noise {
                step: NOISE.step + 1,
                ..NOISE
            },
        ];
        for other in others {
            let (a, b) = (of(NOISE), of(other));
            assert!(a.iter().zip(&b).filter(|(a, b)| a == b).count() < 3);
        }
    }
}
