//! Codes that hardly any image uses take half of a code that many use.
//!
//! A code that is responsible for nothing has no gradient, and where variances are learnt it falls behind for good:
//! the codes in use grow narrow, and in d_e dimensions the density of a narrow code is larger by far. So from time to
//! time codes are counted on training images, and one that has hardly any becomes the twin of the one that has most: the
//! same variances, the same share of a direct prior, the same moments of the optimiser, and a mean a small step aside.
//! Prior and posterior both see twins where they saw one code, so that little changes but the room to move apart.

use crate::error::Result;
use crate::programs::{Model, Shared};
use crate::streams;
use rrvq_tensor::Store;
use rrvq_tensor::optim::STATES;
use rrvq_tensor::rng::{Distribution, Noise, fill};
use rrvq_tensor::simd::isa;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A code evenly used is met this often among the images that are looked at, so that few are missed by chance.
const MIN_EXPECTED_COUNT: usize = 8;
/// Fewest and most images that are looked at.
const IMAGES: [usize; 2] = [256, 8192];
/// A code with less than one in so many of an even share is given away.
const TOO_RARE: u64 = 50;
/// How far a twin steps aside, in units of the means' root mean square.
const PERTURBATION: f32 = 0.05;

/// Splits the codes of one model every so many steps.
pub(super) struct Splitter {
    shared: Vec<Shared>,
    /// Where each of them lies in the flat vector, and whether it is the means.
    places: Vec<(usize, usize, bool)>,
    /// Training images to count codes on.
    pub images: usize,
}

impl Splitter {
    pub fn new(model: &Model) -> Splitter {
        let shared = model.shared_by_codes();
        let place = |shared: &Shared| {
            let entry = &model.layout.entries()[shared.entry];
            (
                entry.offset,
                entry.len(),
                entry.name.ends_with(".codes.mean"),
            )
        };
        let sides = model.config.sides().into_iter().enumerate();
        let images = sides.map(|(l, side)| {
            let expected = MIN_EXPECTED_COUNT * model.config.codes.at(l);
            expected.div_ceil(side * side)
        });
        let [fewest, most] = IMAGES;
        Splitter {
            places: shared.iter().map(place).collect(),
            shared,
            images: images.max().unwrap_or(0).clamp(fewest, most),
        }
    }

    /// Splits codes after `step` steps, where `tally` says how often each was met; how many of each layer, bottom
    /// first.
    pub fn split(
        &self,
        store: &mut Store,
        tally: &[Vec<u64>],
        seed: u64,
        step: u64,
    ) -> Result<Vec<usize>> {
        let twins: Vec<Vec<Twins>> = tally.iter().map(|counts| twins(counts)).collect();
        for (shared, &(offset, len, means)) in self.shared.iter().zip(&self.places) {
            let twins = &twins[shared.layer];
            if twins.is_empty() {
                continue;
            }
            let mut aside = Vec::new();
            for state in STATES {
                let mut values = store.part(state, offset..offset + len)?;
                if means && aside.is_empty() {
                    let noise = Noise {
                        seed,
                        stream: streams::code_split(shared.layer),
                        step,
                    };
                    aside = steps_aside(shared, &values, &tally[shared.layer], twins, noise);
                }
                // Parameters and their average move; moments stay what they were.
                let moves = means && matches!(state, "theta" | "ema");
                for (i, pair) in twins.iter().enumerate() {
                    let ranges = shared.of_code(pair.from, len);
                    for (from, to) in ranges.zip(shared.of_code(pair.to, len)) {
                        values.copy_within(from, to.start);
                        if moves {
                            let by = &aside[i * shared.inner..][..shared.inner];
                            values[to].iter_mut().zip(by).for_each(|(v, by)| *v += by);
                        }
                    }
                }
                store.set_part(state, offset, &values)?;
            }
        }
        Ok(twins.iter().map(Vec::len).collect())
    }
}

/// A code that is to be split, and the rare one that becomes its other half.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Twins {
    from: usize,
    to: usize,
}

/// Who is split for whom: always the code that has most, while a half of it is more than an even share.
fn twins(counts: &[u64]) -> Vec<Twins> {
    let total: u64 = counts.iter().sum();
    let codes = counts.len() as u64;
    let (rare, used): (Vec<usize>, Vec<usize>) =
        (0..counts.len()).partition(|&k| counts[k] * codes * TOO_RARE < total);
    let mut used: BinaryHeap<_> = used.iter().map(|&k| (counts[k], Reverse(k))).collect();
    let mut found = Vec::new();
    for to in rare {
        let Some((most, Reverse(from))) = used.pop() else {
            break;
        };
        let half = most / 2;
        if half * codes <= total {
            break;
        }
        found.push(Twins { from, to });
        used.extend([(half, Reverse(from)), (half, Reverse(to))]);
    }
    found
}

/// A small step for each twin, one after another.
fn steps_aside(
    shared: &Shared,
    means: &[f32],
    counts: &[u64],
    twins: &[Twins],
    noise: Noise,
) -> Vec<f32> {
    let used = (0..shared.codes).filter(|&k| counts[k] > 0);
    let values = used.flat_map(|k| &means[k * shared.inner..][..shared.inner]);
    let (count, sum) = values.fold((0usize, 0.0f64), |(n, sum), v| {
        (n + 1, sum + (*v as f64).powi(2))
    });
    let far = PERTURBATION * (sum / count.max(1) as f64).sqrt() as f32;
    let mut aside = vec![0.0; twins.len() * shared.inner];
    fill(isa(), noise, Distribution::Normal, 0, &mut aside);
    aside.iter_mut().for_each(|v| *v *= far);
    aside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn pairs(counts: &[u64]) -> Vec<(usize, usize)> {
        twins(counts).iter().map(|t| (t.from, t.to)).collect()
    }

    #[test]
    fn the_busiest_code_is_split_first() {
        assert_eq!(pairs(&[0, 5, 90, 5]), [(2, 0)]);
        // Even is 16.7: halves of 30 and 20, but not of 15.
        assert_eq!(pairs(&[60, 0, 40, 0, 0, 0]), [(0, 1), (2, 3)]);
        assert_eq!(
            pairs(&[600, 0, 400, 0, 0, 0, 0, 0, 0, 0]),
            [(0, 1), (2, 3), (0, 4), (1, 5)]
        );
        assert_eq!(pairs(&[25, 25, 25, 25]), []);
        // Even is 250, and a fiftieth of it 5.
        assert_eq!(pairs(&[690, 300, 6, 4]), [(0, 3)]);
        assert_eq!(pairs(&[34, 33, 33, 0]), [], "half would be less than even");
        assert_eq!(pairs(&[0, 0]), []);
    }

    fn model(changes: &[&str]) -> Model {
        let mut config = Config::preset("tiny-swatches").unwrap();
        changes.iter().for_each(|c| config.set(c).unwrap());
        Model::new(&config.model)
    }

    #[test]
    fn enough_images_are_looked_at() {
        // The top map has 2 × 2 positions and 16 codes: 32 images would do.
        assert_eq!(Splitter::new(&model(&[])).images, 256);
        let many = Splitter::new(&model(&["model.codes=1024"]));
        assert_eq!(many.images, 8 * 1024 / 4);
    }

    /// A twin has all that the other has, in every state; only its mean is a little aside.
    #[test]
    fn twins_are_what_the_one_was() {
        for prior in ["embedding", "direct"] {
            let model = model(&[&format!("model.prior={prior}")]);
            let n = model.layout.len();
            let mut store = Store::default();
            for (i, state) in STATES.iter().enumerate() {
                let value = |j: usize| ((i * n + j) as f32 * 0.37).sin();
                store.insert(state, (0..n).map(value).collect());
            }
            let before: Vec<Vec<f32>> = STATES.map(|s| store.get(s).to_vec()).into();
            // Code 3 of the bottom layer is split for code 1; the top layer has nothing to split.
            let mut counts = vec![10; 16];
            (counts[1], counts[3]) = (0, 100);
            let splitter = Splitter::new(&model);
            let told = splitter.split(&mut store, &[counts, vec![1; 16]], 0, 7);
            assert_eq!(told.unwrap(), [1, 0]);
            let shared = model.shared_by_codes();
            let mut touched = 0;
            for (state, before) in STATES.iter().zip(&before) {
                let after = store.get(state);
                let mut expected = before.clone();
                for s in shared.iter().filter(|s| s.layer == 0) {
                    let entry = &model.layout.entries()[s.entry];
                    let here = entry.offset..entry.offset + entry.len();
                    let ranges = s.of_code(3, entry.len()).zip(s.of_code(1, entry.len()));
                    for (from, to) in ranges {
                        let one = &before[here.clone()][from.clone()];
                        let now = &after[here.clone()];
                        let expected = &mut expected[here.clone()];
                        expected.copy_within(from, to.start);
                        if entry.name.ends_with("mean") && ["theta", "ema"].contains(state) {
                            for (one, twin) in one.iter().zip(&now[to.clone()]) {
                                assert!(one != twin && (one - twin).abs() < 0.5);
                            }
                            expected[to.clone()].copy_from_slice(&now[to]);
                        }
                        touched += 1;
                    }
                }
                assert!(after == expected, "{prior}, {state}");
            }
            // Mean and variance, and of a direct prior weights, gains and biases, in four states.
            assert_eq!(touched >= 4 * 5, prior == "direct", "{touched}");
        }
    }
}
