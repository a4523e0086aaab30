//! How good samples are, as numbers, without a network from elsewhere.
//!
//! Pictures are compared by features of a small network that is trained on the data set itself ([`features`]): the Fréchet
//! distance of two sets (how far their Gaussians are apart), precision (how many samples lie among real images) and
//! recall (how many real images lie among samples). The numbers compare models on one data set and one such network.
//! They are not FID, whose features are another network's.

pub mod features;
mod matrix;

use rayon::prelude::*;
use rrvq::{Error, Result};

/// Nearest neighbours that make the radius around a picture's features.
pub const NEAREST: usize = 3;

/// Features of some pictures, one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// Numbers of each.
    pub width: usize,
    /// All of them.
    pub values: Vec<f32>,
}

impl Points {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.width..][..self.width]
    }

    /// Means and covariances.
    fn moments(&self) -> (Vec<f64>, matrix::Square) {
        let (n, w) = (self.len() as f64, self.width);
        let mut mean = vec![0.0; w];
        for row in self.rows() {
            mean.iter_mut().zip(row).for_each(|(m, v)| *m += *v as f64);
        }
        mean.iter_mut().for_each(|m| *m /= n);
        let mut covariance = matrix::Square::zero(w);
        for row in self.rows() {
            for i in 0..w {
                let a = row[i] as f64 - mean[i];
                for j in 0..=i {
                    covariance[(i, j)] += a * (row[j] as f64 - mean[j]) / (n - 1.0);
                }
            }
        }
        for i in 0..w {
            for j in 0..i {
                covariance[(j, i)] = covariance[(i, j)];
            }
        }
        (mean, covariance)
    }

    /// The squared distance from each to its [`NEAREST`]th nearest among them.
    fn radii(&self) -> Vec<f32> {
        let of = |at: usize| {
            let mut all: Vec<f32> = (0..self.len())
                .filter(|other| *other != at)
                .map(|other| distance(self.row(at), self.row(other)))
                .collect();
            let nth = NEAREST.min(all.len()) - 1;
            *all.select_nth_unstable_by(nth, f32::total_cmp).1
        };
        (0..self.len()).into_par_iter().map(of).collect()
    }
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// How two sets of pictures compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Fréchet distance of the features; 0 where means and covariances are the same.
    pub frechet: f64,
    /// Share of the samples that lie among the real images.
    pub precision: f64,
    /// Share of the real images that lie among the samples.
    pub recall: f64,
}

/// Compares samples with real images.
///
/// # Errors
/// Where the two have features of different widths, or fewer pictures than a covariance needs.
pub fn compare(real: &Points, samples: &Points) -> Result<Quality> {
    let least = NEAREST + 1;
    if real.width != samples.width || real.len().min(samples.len()) < least {
        return Err(Error::new(format!(
            "features of {} pictures with {} numbers and of {} with {} cannot be compared; give at least {least} of each from one network",
            real.len(),
            real.width,
            samples.len(),
            samples.width
        )));
    }
    Ok(Quality {
        frechet: frechet(real, samples)?,
        precision: covered(samples, real),
        recall: covered(real, samples),
    })
}

/// |μ₁ − μ₂|² + tr(C₁ + C₂ − 2 (C₁ C₂)^½).
fn frechet(a: &Points, b: &Points) -> Result<f64> {
    let ((mean_a, cov_a), (mean_b, cov_b)) = (a.moments(), b.moments());
    let means = mean_a.iter().zip(&mean_b).map(|(a, b)| (a - b).powi(2));
    let means: f64 = means.sum();
    let product = matrix::trace_of_root(&cov_a, &cov_b)?;
    Ok((means + cov_a.trace() + cov_b.trace() - 2.0 * product).max(0.0))
}

/// The share of `points` that lie within the radius of at least one of `others`.
fn covered(points: &Points, others: &Points) -> f64 {
    let radii = others.radii();
    let inside = |at: usize| {
        let row = points.row(at);
        (0..others.len()).any(|other| distance(row, others.row(other)) <= radii[other])
    };
    let count = (0..points.len()).into_par_iter().filter(|at| inside(*at));
    count.count() as f64 / points.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of a lattice, stretched and moved.
    fn lattice(scale: [f32; 2], by: [f32; 2]) -> Points {
        let at = |i: usize| [(i % 20) as f32 / 20.0, (i / 20) as f32 / 20.0];
        let one = |i| {
            let [x, y] = at(i);
            [x * scale[0] + by[0], y * scale[1] + by[1]]
        };
        Points {
            width: 2,
            values: (0..400).flat_map(one).collect(),
        }
    }

    #[test]
    fn the_distance_of_gaussians_is_the_known_one() {
        let plain = lattice([1.0, 1.0], [0.0, 0.0]);
        assert!(frechet(&plain, &plain).unwrap() < 1e-9);
        // Moved by (3, 4).
        let moved = lattice([1.0, 1.0], [3.0, 4.0]);
        assert!((frechet(&plain, &moved).unwrap() - 25.0).abs() < 1e-4);
        // Stretched in x: the deviation s becomes 3 s, at a distance of (2 s)² from means that differ by 2 of them.
        let wide = lattice([3.0, 1.0], [0.0, 0.0]);
        let (mean, covariance) = plain.moments();
        let want = 4.0 * covariance[(0, 0)] + 4.0 * mean[0] * mean[0];
        assert!((frechet(&plain, &wide).unwrap() - want).abs() < 1e-4);
    }

    #[test]
    fn precision_and_recall_tell_narrow_from_wide_samples() {
        let real = lattice([1.0, 1.0], [0.0, 0.0]);
        let same = compare(&real, &real).unwrap();
        assert_eq!((same.precision, same.recall), (1.0, 1.0));
        // Samples of a corner only: all are good, most of the images are missed.
        let narrow = compare(&real, &lattice([0.2, 0.2], [0.0, 0.0])).unwrap();
        assert!(narrow.precision == 1.0 && narrow.recall < 0.1, "{narrow:?}");
        // Samples far and wide: few are good, though all images lie among them.
        let wide = compare(&real, &lattice([10.0, 10.0], [-5.0, -5.0])).unwrap();
        assert!(wide.precision < 0.1 && wide.recall > 0.9, "{wide:?}");
        let elsewhere = compare(&real, &lattice([1.0, 1.0], [9.0, 0.0])).unwrap();
        assert_eq!((elsewhere.precision, elsewhere.recall), (0.0, 0.0));
    }

    #[test]
    fn too_few_pictures_are_refused() {
        let few = Points {
            width: 2,
            values: vec![0.0; 6],
        };
        assert!(compare(&few, &lattice([1.0, 1.0], [0.0, 0.0])).is_err());
    }
}
