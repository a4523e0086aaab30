//! Roots of covariances, in f64, by Jacobi's rotations: slow for large matrices, and as exact as their numbers are.

use rrvq::{Error, Result};
use std::ops::{Index, IndexMut};

/// Sweeps over all pairs after which a matrix is given up.
const SWEEPS: usize = 60;

/// A square matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Square {
    pub size: usize,
    values: Vec<f64>,
}

impl Index<(usize, usize)> for Square {
    type Output = f64;

    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        &self.values[row * self.size + column]
    }
}

impl IndexMut<(usize, usize)> for Square {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        &mut self.values[row * self.size + column]
    }
}

impl Square {
    pub fn zero(size: usize) -> Square {
        Square {
            size,
            values: vec![0.0; size * size],
        }
    }

    pub fn trace(&self) -> f64 {
        (0..self.size).map(|i| self[(i, i)]).sum()
    }

    fn times(&self, other: &Square) -> Square {
        let mut out = Square::zero(self.size);
        for i in 0..self.size {
            for k in 0..self.size {
                let factor = self[(i, k)];
                for j in 0..self.size {
                    out[(i, j)] += factor * other[(k, j)];
                }
            }
        }
        out
    }

    /// Eigenvalues and eigenvectors (columns) of a symmetric matrix.
    fn eigen(mut self) -> Result<(Vec<f64>, Square)> {
        let n = self.size;
        let mut vectors = Square::zero(n);
        (0..n).for_each(|i| vectors[(i, i)] = 1.0);
        let size: f64 = self.values.iter().map(|v| v * v).sum();
        for _ in 0..SWEEPS {
            let off: f64 = (0..n)
                .flat_map(|i| (0..i).map(move |j| (i, j)))
                .map(|at| self[at] * self[at])
                .sum();
            // Written so that a NaN ends the search in an error.
            if off <= 1e-26 * size {
                return Ok(((0..n).map(|i| self[(i, i)]).collect(), vectors));
            }
            for p in 0..n {
                for q in p + 1..n {
                    self.rotate(p, q, &mut vectors);
                }
            }
        }
        Err(Error::new(
            "the covariances of these features have no root; are there pictures enough, and finite ones?",
        ))
    }

    /// Makes the entry (p, q) zero.
    fn rotate(&mut self, p: usize, q: usize, vectors: &mut Square) {
        if self[(p, q)] == 0.0 {
            return;
        }
        let theta = (self[(q, q)] - self[(p, p)]) / (2.0 * self[(p, q)]);
        let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
        let c = 1.0 / (t * t + 1.0).sqrt();
        let s = t * c;
        for k in 0..self.size {
            let (a, b) = (self[(k, p)], self[(k, q)]);
            (self[(k, p)], self[(k, q)]) = (c * a - s * b, s * a + c * b);
        }
        for k in 0..self.size {
            let (a, b) = (self[(p, k)], self[(q, k)]);
            (self[(p, k)], self[(q, k)]) = (c * a - s * b, s * a + c * b);
            let (a, b) = (vectors[(k, p)], vectors[(k, q)]);
            (vectors[(k, p)], vectors[(k, q)]) = (c * a - s * b, s * a + c * b);
        }
    }

    /// The root of a symmetric matrix without negative eigenvalues; those that rounding made negative count as 0.
    fn root(self) -> Result<Square> {
        let n = self.size;
        let (values, vectors) = self.eigen()?;
        let mut out = Square::zero(n);
        for (k, value) in values.iter().enumerate() {
            let root = value.max(0.0).sqrt();
            for i in 0..n {
                for j in 0..n {
                    out[(i, j)] += root * vectors[(i, k)] * vectors[(j, k)];
                }
            }
        }
        Ok(out)
    }
}

/// tr (A B)^½ of two covariances: A B has the eigenvalues of A^½ B A^½, which is symmetric.
pub fn trace_of_root(a: &Square, b: &Square) -> Result<f64> {
    let root = a.clone().root()?;
    let mut product = root.times(b).times(&root);
    for i in 0..product.size {
        for j in 0..i {
            let mean = (product[(i, j)] + product[(j, i)]) / 2.0;
            (product[(i, j)], product[(j, i)]) = (mean, mean);
        }
    }
    let (values, _) = product.eigen()?;
    Ok(values.iter().map(|v| v.max(0.0).sqrt()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square<const N: usize>(rows: [[f64; N]; N]) -> Square {
        Square {
            size: N,
            values: rows.concat(),
        }
    }

    #[test]
    fn a_root_times_itself_is_the_matrix() {
        // The square of [[3, 1, 0], [1, 3, 1], [0, 1, 3]].
        let matrix = square([[10.0, 6.0, 1.0], [6.0, 11.0, 6.0], [1.0, 6.0, 10.0]]);
        let want = square([[3.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 3.0]]);
        let root = matrix.root().unwrap();
        let far = root.values.iter().zip(&want.values);
        assert!(far.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) < 1e-12);
    }

    #[test]
    fn the_trace_of_a_products_root_is_known_in_two_dimensions() {
        // Of two rows: tr M^½ = √(tr M + 2 √det M), also where the two do not commute.
        let (a, b) = (
            square([[2.0, 0.7], [0.7, 1.0]]),
            square([[0.5, -0.3], [-0.3, 3.0]]),
        );
        let m = a.times(&b);
        let det = m[(0, 0)] * m[(1, 1)] - m[(0, 1)] * m[(1, 0)];
        let want = (m.trace() + 2.0 * det.sqrt()).sqrt();
        assert!((trace_of_root(&a, &b).unwrap() - want).abs() < 1e-12);
        assert_ne!(m, b.times(&a));
        // Singular ones have roots, too.
        let flat = square([[1.0, 1.0], [1.0, 1.0]]);
        assert!((trace_of_root(&flat, &flat).unwrap() - 2.0).abs() < 1e-7);
        assert!(trace_of_root(&square([[f64::NAN]]), &square([[1.0]])).is_err());
    }
}
