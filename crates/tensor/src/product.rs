//! The sizes of matrix products, as every part of the engine states them.

/// c [m, n] = a [m, k] · b [k, n], `count` times one behind the other; with `ta` each a is stored as [k, m], with `tb` each b as
/// [n, k].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    pub count: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub ta: bool,
    pub tb: bool,
}

impl MatrixProduct {
    /// The product of tensors of these shapes, of rank 2 or 3.
    pub fn of(a: &[usize], b: &[usize], ta: bool, tb: bool) -> Self {
        let (count, [m, k], [k2, n]) = match (a, b) {
            (&[p, q], &[r, s]) => (1, [p, q], [r, s]),
            (&[count, p, q], &[same, r, s]) if count == same => (count, [p, q], [r, s]),
            _ => panic!("a product of {a:?} and {b:?}"),
        };
        let [m, k] = if ta { [k, m] } else { [m, k] };
        let [k2, n] = if tb { [n, k2] } else { [k2, n] };
        assert_eq!(
            k, k2,
            "a product of {a:?} and {b:?}, transposed: {ta}, {tb}"
        );
        MatrixProduct {
            count,
            m,
            k,
            n,
            ta,
            tb,
        }
    }

    /// Values of the first factors.
    pub fn first(&self) -> usize {
        self.count * self.m * self.k
    }

    /// Values of the second factors.
    pub fn second(&self) -> usize {
        self.count * self.k * self.n
    }

    /// Values of the results.
    pub fn result(&self) -> usize {
        self.count * self.m * self.n
    }
}
