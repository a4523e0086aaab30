//! What a pixel learns from the pixels before it in its tile.
//!
//! Given its codes, the model takes the pixels of a tile for independent. They are not: where it was too dark to the left
//! and above, it is most likely too dark here as well. So means follow the errors of six neighbours, and scales are wider
//! or narrower by how large those errors were. What follows what, and how far, is fitted once to training images
//! when a model is packed, and is part of the model from then on.
//!
//! Errors are told from the network's own means, before any of this: nothing is carried on from pixel to pixel.

use super::chunk::{self, Extent, Tile};
use super::networks::Networks;
use super::pixels::Coder;
use super::stack::cost;
use rrvq::dataset::{Dataset, Split};
use rrvq::error::{Error, Remedy, Result};
use rrvq::likelihood::causal::{LARGEST, NEAR, PLACES};
use rrvq::trained::NamedTensor;

/// Sizes of the near errors, in scales and summed, that part the classes.
const EDGES: [f32; 8] = [0.5, 1.5, 2.5, 3.5, 4.5, 6.0, 8.0, 11.0];
pub const CLASSES: usize = EDGES.len() + 1;

/// Neighbours whose pulls are fitted, the first so many of [`PLACES`].
const FITTED: usize = 6;

/// Names of the two tensors in a packed file.
const PULL: &str = "neighbours.pull";
const NARROWING: &str = "neighbours.narrowing";

/// Of each channel: how far the mean follows the error of each neighbour, and what 1 / s is multiplied by in each class.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    pub pull: Vec<[f32; FITTED]>,
    pub narrowing: Vec<[f32; CLASSES]>,
}

impl Neighbours {
    /// Such that nothing follows from them.
    fn silent(channels: usize) -> Neighbours {
        Neighbours {
            pull: vec![[0.0; FITTED]; channels],
            narrowing: vec![[1.0; CLASSES]; channels],
        }
    }

    /// As the tensors of a file: name, shape, values.
    pub fn tensors(&self) -> [(String, Vec<usize>, &[f32]); 2] {
        let channels = self.pull.len();
        [
            (
                PULL.into(),
                vec![channels, FITTED],
                self.pull.as_flattened(),
            ),
            (
                NARROWING.into(),
                vec![channels, CLASSES],
                self.narrowing.as_flattened(),
            ),
        ]
    }

    /// Those in a file for a model of so many channels, if it has any.
    pub fn from_tensors(tensors: &[NamedTensor], channels: usize) -> Result<Option<Neighbours>> {
        let mut out = Neighbours::silent(channels);
        let read = |name: &str, width: usize, place: &mut [f32]| -> Result<bool> {
            let Some((_, shape, values)) = tensors.iter().find(|(n, ..)| n == name) else {
                return Ok(false);
            };
            if *shape != [channels, width] || values.iter().any(|v| !v.is_finite()) {
                return Err(Error::new(format!(
                    "tensor {name} is not one finite number for each of {channels} channels and {width} cases"
                )));
            }
            place.copy_from_slice(values);
            Ok(true)
        };
        let pull = read(PULL, FITTED, out.pull.as_flattened_mut())?;
        let narrowing = read(NARROWING, CLASSES, out.narrowing.as_flattened_mut())?;
        match (pull, narrowing) {
            (true, true) => Ok(Some(out)),
            (false, false) => Ok(None),
            _ => Err(Error::new(format!(
                "of {PULL} and {NARROWING} one is missing"
            ))),
        }
    }
}

/// The errors of a tile so far.
pub struct Errors {
    side: usize,
    channels: usize,
    /// Error and 1 / s of every sample, with a border of zeros around the tile.
    samples: Vec<[f32; 2]>,
}

impl Errors {
    pub fn new(side: usize, channels: usize) -> Errors {
        Errors {
            side,
            channels,
            samples: vec![[0.0; 2]; (side + 2) * (side + 4) * channels],
        }
    }

    /// For the next tile.
    pub fn forget(&mut self) {
        self.samples.fill([0.0; 2]);
    }

    /// Where a sample lies; two columns of zeros are left of it, two right, two rows above.
    #[inline(always)]
    fn at(&self, pixel: usize, channel: usize) -> usize {
        let (y, x) = (pixel / self.side, pixel % self.side);
        ((y + 2) * (self.side + 4) + x + 2) * self.channels + channel
    }

    #[inline(always)]
    fn neighbour(&self, at: usize, (up, left): (usize, isize)) -> [f32; 2] {
        let back = (up * (self.side + 4)) as isize + left;
        self.samples[at - back as usize * self.channels]
    }

    /// How far the mean moves, and what 1 / s is multiplied by.
    #[inline(always)]
    pub fn hint(&self, neighbours: &Neighbours, pixel: usize, channel: usize) -> (f32, f32) {
        let at = self.at(pixel, channel);
        let mut shift = 0.0;
        for (pull, place) in neighbours.pull[channel].iter().zip(PLACES) {
            shift += pull * self.neighbour(at, place)[0];
        }
        (shift, neighbours.narrowing[channel][self.class(at)])
    }

    /// The same for a likelihood that was trained to follow errors, from its numbers of the pixel; see
    /// [`rrvq::likelihood::causal`].
    #[inline(always)]
    pub fn causal(
        &self,
        numbers: &[f32],
        neighbours: usize,
        pixel: usize,
        channel: usize,
    ) -> (f32, f32) {
        let at = self.at(pixel, channel);
        let (mut shift, mut near) = (0.0, 0.0);
        for (k, &place) in PLACES[..neighbours].iter().enumerate() {
            let [error, inverse] = self.neighbour(at, place);
            shift += numbers[k * self.channels + channel] * error;
            if k < NEAR {
                let size = error.abs() * inverse;
                near += size / (1.0 + size / LARGEST);
            }
        }
        let growth = numbers[neighbours * self.channels + channel];
        (shift, 1.0 / (1.0 + growth * near))
    }

    /// The class of a sample, by how large the near errors are.
    #[inline(always)]
    fn class(&self, at: usize) -> usize {
        let mut size = 0.0;
        for place in &PLACES[..NEAR] {
            let [error, inverse] = self.neighbour(at, *place);
            size += error.abs() * inverse;
        }
        class(size)
    }

    #[inline(always)]
    pub fn note(&mut self, pixel: usize, channel: usize, error: f32, inverse: f32) {
        let at = self.at(pixel, channel);
        self.samples[at] = [error, inverse];
    }
}

/// The class of a size; NaN is in the first.
#[inline(always)]
fn class(size: f32) -> usize {
    EDGES.iter().map(|edge| (size >= *edge) as usize).sum()
}

/// What 1 / s may be multiplied by.
const NARROWINGS: [f32; 12] = [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0];
/// Scales narrower than this do not weigh more.
const SHARPEST: f64 = 100.0;
/// Tiles whose numbers are held at once.
const AT_ONCE: usize = 16;

/// Fits neighbours to the first `images` training images. `watch` is told how many are done, each twice.
pub fn fit(
    networks: &mut Networks,
    data: &dyn Dataset,
    images: usize,
    mut watch: impl FnMut(usize),
) -> Result<Neighbours> {
    let config = networks.model.config.clone();
    let (side, channels) = (config.size, config.image_channels);
    let count = images.min(data.len(Split::Train));
    if count == 0 {
        return Err(Error::with_remedy(
            "there are no training images to fit neighbours to",
            Remedy::Neighbours,
        ));
    }
    let bins = networks.bins();
    if bins.neighbours > 0 {
        return Err(Error::new(format!(
            "a model whose model.likelihood is \"{}\" follows the pixels before by its training; pack it without fitting neighbours",
            config.likelihood
        )));
    }
    // The same draws for both passes.
    let mut each = |work: &mut dyn FnMut(&Tile, &[f32]), networks: &mut Networks| -> Result<()> {
        for first in (0..count).step_by(AT_ONCE) {
            let tile = |number: usize| {
                let mut square = vec![0; side * side * channels];
                data.read(Split::Train, number, &mut square);
                let extent = Extent {
                    width: side,
                    height: side,
                    channels,
                };
                Tile { extent, square }
            };
            let tiles: Vec<Tile> = (first..count.min(first + AT_ONCE)).map(tile).collect();
            let numbers = chunk::numbers(networks, &tiles, first as u64)?;
            let of_each = numbers.chunks_exact(side * side * bins.numbers());
            tiles.iter().zip(of_each).for_each(|(t, n)| work(t, n));
            watch(tiles.len());
        }
        Ok(())
    };

    // How far means follow: least squares, each sample weighed by how sharp the network was there.
    const N: usize = FITTED;
    let mut sums = vec![[[0.0f64; N + 1]; N]; channels];
    let mut coder = Coder::new(bins, side, Some(Neighbours::silent(channels)));
    let mut gather = |tile: &Tile, numbers: &[f32]| {
        chunk::pixel_slots(&mut coder, tile, numbers, side);
        let errors = coder.errors();
        for pixel in 0..side * side {
            for (channel, sums) in sums.iter_mut().enumerate() {
                let at = errors.at(pixel, channel);
                let [error, inverse] = errors.samples[at].map(f64::from);
                let weight = inverse.min(SHARPEST).powi(2);
                let around: [f64; N] =
                    std::array::from_fn(|k| errors.neighbour(at, PLACES[k])[0] as f64);
                for (row, a) in sums.iter_mut().zip(around) {
                    for (sum, b) in row.iter_mut().zip(around.iter().chain([&error])) {
                        *sum += weight * a * b;
                    }
                }
            }
        }
    };
    each(&mut gather, networks)?;
    let pull: Vec<[f32; N]> = sums
        .into_iter()
        .map(|s| solve(s).map(|v| v as f32))
        .collect();

    // How narrow to be: whatever costs least, of some.
    let mut costs = vec![[[0i64; NARROWINGS.len()]; CLASSES]; channels];
    let mut coders: Vec<Coder> = NARROWINGS
        .iter()
        .map(|&narrowing| {
            let narrowing = vec![[narrowing; CLASSES]; channels];
            let pull = pull.clone();
            Coder::new(bins, side, Some(Neighbours { pull, narrowing }))
        })
        .collect();
    let mut price = |tile: &Tile, numbers: &[f32]| {
        for (i, coder) in coders.iter_mut().enumerate() {
            let slots = chunk::pixel_slots(coder, tile, numbers, side);
            let errors = coder.errors();
            for (at, slot) in slots.iter().enumerate() {
                let (pixel, channel) = (at / channels, at % channels);
                let class = errors.class(errors.at(pixel, channel));
                costs[channel][class][i] += cost(*slot);
            }
        }
    };
    each(&mut price, networks)?;
    let best = |costs: [i64; NARROWINGS.len()]| {
        let none = costs.iter().all(|c| *c == 0);
        let (best, _) = NARROWINGS
            .iter()
            .zip(costs)
            .fold((1.0, i64::MAX), |least, (&n, cost)| {
                if cost < least.1 { (n, cost) } else { least }
            });
        if none { 1.0 } else { best }
    };
    let narrowing = costs.into_iter().map(|c| c.map(best)).collect();
    Ok(Neighbours { pull, narrowing })
}

/// Solves a symmetric system whose last column is the right side; a hair of the diagonal is added, so that it can be.
fn solve<const N: usize, const M: usize>(mut rows: [[f64; M]; N]) -> [f64; N] {
    for (i, row) in rows.iter_mut().enumerate() {
        row[i] += 1e-6 * row[i] + 1e-12;
    }
    for i in 0..N {
        for j in 0..N {
            if i != j {
                let factor = rows[j][i] / rows[i][i];
                let row = rows[i];
                rows[j]
                    .iter_mut()
                    .zip(row)
                    .for_each(|(a, b)| *a -= factor * b);
            }
        }
    }
    std::array::from_fn(|i| rows[i][N] / rows[i][i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_solved() {
        let rows = [[4.0, 1.0, 6.0], [1.0, 3.0, 7.0]];
        let [a, b] = solve(rows);
        assert!((4.0 * a + b - 6.0).abs() < 1e-4 && (a + 3.0 * b - 7.0).abs() < 1e-4);
        assert_eq!(solve([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), [0.0, 0.0]);
    }

    #[test]
    fn classes_part_at_their_edges() {
        assert_eq!(class(0.0), 0);
        assert_eq!(class(f32::NAN), 0);
        assert_eq!(class(0.5), 1);
        assert_eq!(class(10.9), 7);
        assert_eq!(class(f32::INFINITY), CLASSES - 1);
    }

    /// Each neighbour is the one it is said to be, and beyond the tile there is nothing.
    #[test]
    fn neighbours_are_where_they_are_said_to_be() {
        let (side, channels) = (4, 2);
        let mut errors = Errors::new(side, channels);
        let value = |y: isize, x: isize| match (0..4).contains(&y) && (0..4).contains(&x) {
            true => (10 * y + x + 1) as f32,
            false => 0.0,
        };
        for pixel in 0..16 {
            let (y, x) = (pixel / side, pixel % side);
            errors.note(pixel, 1, value(y as isize, x as isize), 1.0);
        }
        for pixel in 0..16 {
            let (y, x) = ((pixel / side) as isize, (pixel % side) as isize);
            for (i, (up, left)) in PLACES.into_iter().enumerate() {
                let there = value(y - up as isize, x - left);
                // Pulls of each neighbour and growths, of both channels.
                let mut numbers = vec![0.0; (PLACES.len() + 1) * channels];
                numbers[i * channels + 1] = 1.0;
                let (shift, _) = errors.causal(&numbers, PLACES.len(), pixel, 1);
                assert_eq!(shift, there, "{pixel} {i}");
                if i < FITTED {
                    let mut only = Neighbours::silent(channels);
                    only.pull[1][i] = 1.0;
                    let (shift, _) = errors.hint(&only, pixel, 1);
                    assert_eq!(shift, there, "{pixel} {i}");
                    assert_eq!(errors.hint(&only, pixel, 0), (0.0, 1.0));
                }
            }
        }
        errors.forget();
        assert_eq!(errors.hint(&Neighbours::silent(2), 5, 1), (0.0, 1.0));
    }
}
