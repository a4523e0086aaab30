//! Steps that turn all directions of a matrix equally far: Muon (Jordan et al. 2024).
//!
//! The gradient of a convolution's kernel lies in a few directions, and so do the steps that Adam and AdaMax make of it, value by
//! value. Muon replaces the running mean M = U S Vᵀ of the gradient by something near U Vᵀ: the same directions, each as
//! long as the others. A kernel of any rank is a matrix here, whose columns are its last axis.
//!
//! U Vᵀ is found without a decomposition: an odd polynomial takes singular values from (0, 1] to near 1, five times over
//! (a Newton–Schulz iteration). Every round multiplies X by a polynomial of the Gram matrix XᵀX of its shorter side, so all rounds
//! together are one matrix Q, and as Q and the first G = XᵀX commute, the next Gram matrix is Q G Q. Only small squares go
//! through the rounds; the long side is multiplied twice instead of fifteen times. Q starts at the identity and is kept as
//! q·I + R, so that no identity is needed.
//!
//! Matrices of one shape go through the rounds together, as one product of many pairs. With factors in TF32 the result is off by
//! a few hundredths of its length (docs/experiments/muon.md), and its singular values stay near 1 and below 1.3.

use crate::graph::Var;
use crate::params::Entry;
use std::collections::BTreeMap;

/// x ↦ a x + b x³ + c x⁵ takes all of [0.005, 1] to [0.7, 1.2] in [`ROUNDS`] rounds.
const A: f32 = 3.4445;
const B: f32 = -4.775;
const C: f32 = 2.0315;
const ROUNDS: usize = 5;
/// Root mean square of the values of a step at a rate of 1: about what Adam's steps have.
const SIZE: f32 = 0.2;

/// For every value of the flat vector `direction` its step at a rate of 1, where it belongs to one of `matrices`; 0 elsewhere.
pub(super) fn steps<'g>(direction: Var<'g>, matrices: &[&Entry]) -> Var<'g> {
    let g = direction.graph();
    let mut shapes: BTreeMap<[usize; 2], Vec<&Entry>> = BTreeMap::new();
    for entry in matrices {
        let cols = entry.shape.last().copied().unwrap_or(1);
        let rows = entry.len() / cols;
        shapes.entry([rows, cols]).or_default().push(entry);
    }
    let (mut parts, mut offsets) = (Vec::new(), Vec::new());
    for ([rows, cols], entries) in shapes {
        let size = rows * cols;
        let own: Vec<Var<'g>> = entries
            .iter()
            .map(|e| direction.slice(0, e.offset, size))
            .collect();
        let places: Vec<usize> = (0..own.len()).map(|i| i * size).collect();
        let all = g.pack(&own, &places, own.len() * size);
        let turned = orthogonal(all.reshape(&[own.len(), rows, cols]));
        let steps = (turned * (SIZE * (rows.max(cols) as f32).sqrt())).flatten();
        for (entry, place) in entries.iter().zip(places) {
            parts.push(steps.slice(0, place, size));
            offsets.push(entry.offset);
        }
    }
    g.pack(&parts, &offsets, direction.size())
}

/// Near U Vᵀ for each matrix U S Vᵀ of a tensor of rank 3.
fn orthogonal<'g>(x: Var<'g>) -> Var<'g> {
    let [count, rows, cols] = [x.dim(0), x.dim(1), x.dim(2)];
    let (tall, side) = (rows >= cols, rows.min(cols));
    let product = |a: Var<'g>, b: Var<'g>| a.matmul_tf32(b, false, false);
    // The largest singular value is at most the root of the sum of squares; a matrix of zeros stays one.
    let squares = x.square().sum_to(&[count, 1, 1]);
    let inverse = (squares + 1e-30).rsqrt();
    let gram = x.matmul_tf32(x, tall, !tall) * inverse.square().broadcast(&[count, side, side]);
    let (mut gram, mut q, mut r) = (gram, 1.0, None::<Var<'g>>);
    for round in 1..=ROUNDS {
        // X becomes X (a·I + p).
        let p = gram * B + product(gram, gram) * C;
        r = Some(match r {
            None => p,
            Some(r) => p * q + r * A + product(r, p),
        });
        q *= A;
        if round < ROUNDS {
            let pg = product(p, gram);
            gram = gram * (A * A) + pg * (2.0 * A) + product(pg, p);
        }
    }
    let r = r.expect("there are rounds");
    let turned = match tall {
        true => product(x, r),
        false => product(r, x),
    };
    (x * q + turned) * inverse.broadcast(&[count, rows, cols])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Distribution, Noise, fill};
    use crate::simd::isa;
    use crate::{Data, Device, Graph, Init, Layout, Program, Store};

    /// Row by row, in f64.
    struct Matrix {
        rows: usize,
        cols: usize,
        values: Vec<f64>,
    }

    impl Matrix {
        fn new(rows: usize, cols: usize, at: impl Fn(usize, usize) -> f64) -> Matrix {
            let place = |i: usize| at(i / cols, i % cols);
            let values = (0..rows * cols).map(place).collect();
            Matrix { rows, cols, values }
        }

        fn at(&self, row: usize, col: usize) -> f64 {
            self.values[row * self.cols + col]
        }

        fn times(&self, other: &Matrix) -> Matrix {
            Matrix::new(self.rows, other.cols, |i, j| {
                (0..self.cols).map(|k| self.at(i, k) * other.at(k, j)).sum()
            })
        }

        fn transposed(&self) -> Matrix {
            Matrix::new(self.cols, self.rows, |i, j| self.at(j, i))
        }

        fn length(&self) -> f64 {
            self.values.iter().map(|v| v * v).sum::<f64>().sqrt()
        }

        /// The iteration as it is usually written, on the whole matrix.
        fn orthogonal(&self) -> Matrix {
            let length = self.length();
            let mut x = Matrix::new(self.rows, self.cols, |i, j| self.at(i, j) / length);
            for _ in 0..ROUNDS {
                let gram = x.times(&x.transposed());
                let (third, square) = (gram.times(&x), gram.times(&gram));
                let fifth = square.times(&x);
                x = Matrix::new(self.rows, self.cols, |i, j| {
                    A as f64 * x.at(i, j) + B as f64 * third.at(i, j) + C as f64 * fifth.at(i, j)
                });
            }
            x
        }
    }

    fn noise(len: usize, stream: u32) -> Vec<f32> {
        let mut values = vec![0.0; len];
        let from = Noise {
            seed: 5,
            stream,
            step: 0,
        };
        fill(isa(), from, Distribution::Normal, 0, &mut values);
        values
    }

    /// Steps of the parameters of a layout for a direction.
    fn steps_for(layout: &Layout, names: &[&str], direction: &[f32]) -> Vec<f32> {
        let g = Graph::new();
        let input = g.input("direction", &[layout.len()], crate::DType::F32);
        let entries: Vec<&Entry> = names.iter().map(|name| layout.get(name).unwrap()).collect();
        let out = steps(input, &entries);
        let mut program =
            Program::new(&Device::Cpu, &g, &Layout::default(), &[("steps", out)]).unwrap();
        let inputs = [("direction", Data::F32(direction))];
        program.run(&mut Store::default(), &inputs).unwrap();
        program.output("steps").unwrap().to_vec()
    }

    fn layout(shapes: &[(&str, &[usize])]) -> Layout {
        let g = Graph::new();
        for (name, shape) in shapes {
            g.param(name, shape, Init::Constant(0.0));
        }
        g.layout()
    }

    #[test]
    fn steps_are_those_of_the_plain_iteration() {
        // Two of one shape, tall ones, wide ones, one row, a kernel of rank 4, and one that is left alone.
        let shapes: [(&str, &[usize]); 7] = [
            ("a", &[20, 7]),
            ("b", &[20, 7]),
            ("left", &[5, 5]),
            ("wide", &[6, 30]),
            ("row", &[1, 9]),
            ("kernel", &[3, 3, 4, 8]),
            ("square", &[8, 8]),
        ];
        let layout = layout(&shapes);
        let direction = noise(layout.len(), 1);
        let names: Vec<&str> = shapes
            .iter()
            .map(|s| s.0)
            .filter(|n| *n != "left")
            .collect();
        let have = steps_for(&layout, &names, &direction);
        for entry in layout.entries() {
            let own = |from: &[f32]| from[entry.offset..][..entry.len()].to_vec();
            let have = own(&have);
            if entry.name == "left" {
                assert!(have.iter().all(|v| *v == 0.0));
                continue;
            }
            let cols = *entry.shape.last().unwrap();
            let rows = entry.len() / cols;
            let from = own(&direction);
            let want = Matrix::new(rows, cols, |i, j| f64::from(from[i * cols + j])).orthogonal();
            let scale = f64::from(SIZE) * (rows.max(cols) as f64).sqrt();
            let apart = Matrix::new(rows, cols, |i, j| {
                f64::from(have[i * cols + j]) / scale - want.at(i, j)
            });
            let error = apart.length() / want.length();
            assert!(error < 1e-4, "{}: {error:.1e}", entry.name);
            // The mean square of its values is that of a step of Adam, whatever the direction's length.
            let size = want.length() * scale / (entry.len() as f64).sqrt();
            assert!((0.1..0.3).contains(&size), "{}: {size}", entry.name);
        }
    }

    #[test]
    fn all_directions_are_about_as_long() {
        // Singular values from 1 to 0.01 in two planes' turns.
        let spread = [1.0, 0.3, 0.1, 0.03, 0.01];
        let layout = layout(&[("m", &[40, 5])]);
        let noise = noise(layout.len(), 2);
        let basis = |i: usize, j: usize| f64::from(noise[i * 5 + j]);
        let plain = Matrix::new(40, 5, basis);
        // Columns of unit length that stand on each other.
        let mut columns: Vec<Vec<f64>> = Vec::new();
        for j in 0..5 {
            let mut column: Vec<f64> = (0..40).map(|i| plain.at(i, j)).collect();
            for other in &columns {
                let dot: f64 = column.iter().zip(other).map(|(a, b)| a * b).sum();
                column
                    .iter_mut()
                    .zip(other)
                    .for_each(|(a, b)| *a -= dot * b);
            }
            let length = column.iter().map(|v| v * v).sum::<f64>().sqrt();
            column.iter_mut().for_each(|v| *v /= length);
            columns.push(column);
        }
        let mut direction = vec![0.0; layout.len()];
        for i in 0..40 {
            for j in 0..5 {
                direction[i * 5 + j] = (columns[j][i] * spread[j]) as f32;
            }
        }
        let have = steps_for(&layout, &["m"], &direction);
        let scale = f64::from(SIZE) * 40f64.sqrt();
        for (j, column) in columns.iter().enumerate() {
            let along: f64 = (0..40)
                .map(|i| f64::from(have[i * 5 + j]) * column[i])
                .sum();
            let value = along / scale;
            assert!((0.6..1.25).contains(&value), "direction {j}: {value}");
        }
    }

    #[test]
    fn no_direction_is_no_step() {
        let layout = layout(&[("m", &[4, 6])]);
        let have = steps_for(&layout, &["m"], &vec![0.0; layout.len()]);
        assert!(have.iter().all(|v| *v == 0.0), "{have:?}");
    }
}
