//! Which taps reach which output, along one axis.
//!
//! Near a border some taps fall outside the input, and at stride 2 the data gradient sees only every
//! other tap. Outputs reached by the same taps form a class: they share one list of terms and differ
//! only in where it starts. The classes of a map are pairs of a row class and a column class, so no
//! padded copy is made and no product with a padding zero is computed; on 2×2 maps that is more than
//! half of the work.

/// Outputs reached by the same taps.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    /// (tap in packed order, distance of its source from the first source), sources ascending.
    pub terms: Vec<(usize, usize)>,
    /// (output, its first source), outputs ascending.
    pub members: Vec<(usize, usize)>,
}

/// Output o of a convolution sums over tap k of input o·stride + k - pad.
pub fn forward(input: usize, output: usize, taps: usize, stride: usize, pad: usize) -> Vec<Class> {
    classes(output, |o| {
        let inside = |k: &usize| (pad..input + pad).contains(&(o * stride + k));
        (0..taps)
            .filter(inside)
            .map(|k| (k, o * stride + k - pad))
            .collect()
    })
}

/// Input i of a convolution receives from output (i + pad - k) / stride through tap k; the packed order
/// of taps is reversed, so that sources ascend.
pub fn backward(input: usize, output: usize, taps: usize, stride: usize, pad: usize) -> Vec<Class> {
    classes(input, |i| {
        let source = |k: usize| {
            let at = (i + pad).checked_sub(k)?;
            let inside = at.is_multiple_of(stride) && at / stride < output;
            inside.then_some((taps - 1 - k, at / stride))
        };
        (0..taps).rev().filter_map(source).collect()
    })
}

fn classes(outputs: usize, reach: impl Fn(usize) -> Vec<(usize, usize)>) -> Vec<Class> {
    let mut found: Vec<Class> = Vec::new();
    for o in 0..outputs {
        let terms = reach(o);
        let first = terms.first().map_or(0, |t| t.1);
        let terms: Vec<_> = terms
            .into_iter()
            .map(|(tap, at)| (tap, at - first))
            .collect();
        match found.iter_mut().find(|c| c.terms == terms) {
            Some(class) => class.members.push((o, first)),
            None => found.push(Class {
                terms,
                members: vec![(o, first)],
            }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_and_inside_are_classes_of_their_own() {
        let c = forward(5, 5, 3, 1, 1);
        assert_eq!(c.len(), 3);
        assert_eq!(c[0].terms, [(1, 0), (2, 1)]);
        assert_eq!(c[0].members, [(0, 0)]);
        assert_eq!(c[1].terms, [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(c[1].members, [(1, 0), (2, 1), (3, 2)]);
        assert_eq!(c[2].members, [(4, 3)]);
    }

    #[test]
    fn the_gradient_of_stride_two_has_two_phases() {
        // Inputs 0..6 of a 3-tap, stride 2, pad 1 convolution with 3 outputs.
        let c = backward(6, 3, 3, 2, 1);
        let inside: Vec<_> = c
            .iter()
            .map(|c| (c.terms.clone(), c.members.clone()))
            .collect();
        assert_eq!(inside[0], (vec![(1, 0)], vec![(0, 0), (2, 1), (4, 2)]));
        assert_eq!(inside[1], (vec![(0, 0), (2, 1)], vec![(1, 0), (3, 1)]));
        assert_eq!(inside[2], (vec![(0, 0)], vec![(5, 2)]));
    }
}
