//! From one image to another through their codes.
//!
//! Codes are exchanged position by position: the top layer first, which says what is in the picture, then layer by layer
//! down to its grain. Within a layer the order is shuffled, always in the same way; it is that of the page in a browser
//! (`web/js/plan.js`).

use crate::codes::{CodeMap, Codes};
use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::trained::Trained;

/// Codes of which the first `share` (0 to 1) of all layers, counted from the top, are the second image's and the others
/// the first one's; and how many layers hold at least one code of the second.
///
/// # Errors
/// Where the two are not codes of as many images in layers of the same shape, or `share` is not from 0 to 1.
pub fn between(first: &Codes, second: &Codes, share: f64) -> Result<(Codes, usize)> {
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::new(format!(
            "{share} is no share of the codes; give a number from 0 to 1"
        )));
    }
    let shape = |codes: &Codes| -> Vec<_> {
        let maps = codes.layers.iter();
        maps.map(|m| (m.layer, m.side, m.codes, m.values.len()))
            .collect()
    };
    if shape(first) != shape(second) {
        return Err(Error::new(
            "the two are not codes of as many images of one model; encode both with the same model",
        ));
    }
    let layers = first.layers.len();
    let part = share * layers as f64;
    let mut reached = 0;
    let mut mixed = first.clone();
    mixed.labels = None;
    for (at, (map, other)) in mixed.layers.iter_mut().zip(&second.layers).enumerate() {
        let here = (part - (layers - 1 - at) as f64).clamp(0.0, 1.0);
        reached += (here > 0.0) as usize;
        exchange(map, other, here);
    }
    Ok((mixed, reached))
}

/// Gives `map` a share of the other's codes.
fn exchange(map: &mut CodeMap, other: &CodeMap, share: f64) {
    let positions = map.positions();
    let mut order: Vec<usize> = (0..positions).collect();
    order.sort_by_key(|&position| turn(map.layer as u32, position as u32));
    let count = (share * positions as f64).round() as usize;
    let pairs = map.values.chunks_exact_mut(positions);
    for (mine, theirs) in pairs.zip(other.values.chunks_exact(positions)) {
        for &position in &order[..count.min(positions)] {
            mine[position] = theirs[position];
        }
    }
}

/// When a position's turn comes: a hash of it.
fn turn(layer: u32, position: u32) -> u32 {
    let mut word = (layer + 1).wrapping_mul(0x9e37_79b1) ^ (position + 1).wrapping_mul(0x85eb_ca6b);
    word = (word ^ (word >> 15)).wrapping_mul(0x2c1b_3c6d);
    word = (word ^ (word >> 12)).wrapping_mul(0x297a_2d39);
    word ^ (word >> 15)
}

impl Trained {
    /// `count` pictures from one image's codes to another's, both ends included. With `fill`, layers that no exchange has
    /// reached yet are the prior's most likely ones, as what is above them changes, instead of the first image's.
    ///
    /// ```
    /// use rrvq::{SampleOptions, Trained};
    ///
    /// let model = Trained::open("built-in")?;
    /// let ends = model.sample(2, SampleOptions::default())?;
    /// let way = model.interpolate(&ends[0], &ends[1], 5, false)?;
    /// assert_eq!(way.len(), 5);
    /// assert_eq!(way[4], model.reconstruct(&ends[1..])?[0]);
    /// # Ok::<(), rrvq::Error>(())
    /// ```
    pub fn interpolate(
        &self,
        first: &Picture,
        second: &Picture,
        count: usize,
        fill: bool,
    ) -> Result<Vec<Picture>> {
        let first = self.encode(std::slice::from_ref(first))?;
        let second = self.encode(std::slice::from_ref(second))?;
        // Those of as many layers are decoded together.
        let mut runs: Vec<Codes> = Vec::new();
        for step in 0..count {
            let share = step as f64 / count.saturating_sub(1).max(1) as f64;
            let (codes, reached) = between(&first, &second, share)?;
            let shown = match fill && reached > 0 {
                true => codes.top(reached),
                false => codes,
            };
            match runs.last_mut() {
                Some(run) if run.layers.len() == shown.layers.len() => {
                    let found = shown.layers.into_iter().map(|map| map.values);
                    run.append(1, found.collect());
                }
                _ => runs.push(shown),
            }
        }
        let pictures = runs.iter().map(|run| self.decode(run));
        Ok(pictures.collect::<Result<Vec<_>>>()?.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(value: u32) -> Codes {
        let map = |layer: usize, side: usize| CodeMap {
            layer,
            side,
            codes: 8,
            values: vec![value; 2 * side * side],
        };
        Codes {
            images: 2,
            layers: vec![map(0, 4), map(1, 2)],
            labels: Some(vec![1, 2]),
        }
    }

    #[test]
    fn the_top_layer_is_exchanged_first() {
        let count = |share: f64| {
            let (mixed, reached) = between(&codes(0), &codes(1), share).unwrap();
            let of = |layer: usize| mixed.layers[layer].values.iter().sum::<u32>();
            (of(1), of(0), reached)
        };
        assert_eq!(count(0.0), (0, 0, 0));
        assert_eq!(count(0.25), (4, 0, 1));
        assert_eq!(count(0.5), (8, 0, 1));
        assert_eq!(count(0.75), (8, 16, 2));
        assert_eq!(count(1.0), (8, 32, 2));
    }

    #[test]
    fn what_was_exchanged_stays_and_the_order_is_the_pages() {
        let at = |share: f64| {
            between(&codes(0), &codes(1), share).unwrap().0.layers[0]
                .values
                .clone()
        };
        let (less, more) = (at(0.7), at(0.9));
        assert!(less.iter().zip(&more).all(|(a, b)| a <= b) && less != more);
        // As node says of plan.js.
        assert_eq!(
            [turn(0, 0), turn(0, 1), turn(3, 100)],
            [502_018_598, 1_106_315_618, 3_936_025_901]
        );
    }

    #[test]
    fn other_shapes_and_shares_are_refused() {
        let mut other = codes(1);
        other.layers.pop();
        assert!(between(&codes(0), &other, 0.5).is_err());
        assert!(between(&codes(0), &codes(1), 1.5).is_err());
        assert!(between(&codes(0), &codes(1), f64::NAN).is_err());
    }
}
