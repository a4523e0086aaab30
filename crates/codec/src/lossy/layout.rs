//! Where an image's codes lie in a file: the most important first.
//!
//! Codes come from the top layer down over the whole image, so that any first part of them makes a picture. A model's
//! networks want a handful of tiles at a time, not all of a large image: tiles are taken in groups, and a block holds the
//! codes of one group. A block costs some bytes by itself, so layers with few codes share one.

use rrvq::config::ModelConfig;
use std::ops::Range;

/// Tiles of a group, at most.
pub const GROUP: usize = 64;
/// Layers share a block until it has so many codes.
const STEP_CODES: usize = 1 << 14;

/// Positions of each layer in a tile, bottom first.
pub fn positions(config: &ModelConfig) -> Vec<usize> {
    config.sides().iter().map(|side| side * side).collect()
}

/// The blocks of an image: for each step from the top down, one for each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub tiles: usize,
    /// Layers of each step, numbered from 0 at the bottom.
    pub steps: Vec<Range<usize>>,
    /// Codes of a tile.
    pub codes: usize,
}

impl Layout {
    /// `positions` are those of each layer in one tile, bottom first; the lowest `dropped` layers are left out.
    pub fn new(positions: &[usize], tiles: usize, dropped: usize) -> Layout {
        let mut steps = Vec::new();
        let (mut above, mut codes) = (positions.len(), 0);
        for layer in (dropped..positions.len()).rev() {
            codes += positions[layer] * tiles.min(GROUP);
            if codes >= STEP_CODES || layer == dropped {
                steps.push(layer..above);
                (above, codes) = (layer, 0);
            }
        }
        Layout {
            tiles,
            steps,
            codes: positions.iter().skip(dropped).sum(),
        }
    }

    pub fn groups(&self) -> usize {
        self.tiles.div_ceil(GROUP)
    }

    /// Tiles of a group.
    pub fn group(&self, number: usize) -> Range<usize> {
        number * GROUP..((number + 1) * GROUP).min(self.tiles)
    }
}

/// A group of one image's tiles.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    pub image: usize,
    pub group: usize,
    pub tiles: usize,
}

/// Units that are worked on together, so that the networks have whole batches: large images fill a job with one group,
/// small ones share it. Their bits stay apart.
pub fn jobs(layouts: impl IntoIterator<Item = (usize, Layout)>) -> Vec<Vec<Unit>> {
    let mut jobs: Vec<Vec<Unit>> = Vec::new();
    let mut room = 0;
    for (image, layout) in layouts {
        for group in 0..layout.groups() {
            let tiles = layout.group(group).len();
            if tiles > room {
                jobs.push(Vec::new());
                room = GROUP;
            }
            room -= tiles;
            if let Some(job) = jobs.last_mut() {
                job.push(Unit {
                    image,
                    group,
                    tiles,
                });
            }
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_images_have_one_block_and_large_ones_many() {
        let positions = [256, 64, 16, 4];
        let steps = |positions: &[usize], tiles, dropped| -> Vec<(usize, usize)> {
            let layout = Layout::new(positions, tiles, dropped);
            layout.steps.iter().map(|s| (s.start, s.end)).collect()
        };
        assert_eq!(Layout::new(&positions, 1, 0).codes, 340);
        assert_eq!(steps(&positions, 1, 0), [(0, 4)]);
        let many = Layout::new(&positions, 100, 0);
        assert_eq!(steps(&positions, 100, 0), [(0, 4)]);
        let deep = [256, 256, 256, 64, 64, 64];
        assert_eq!(steps(&deep, 64, 0), [(2, 6), (1, 2), (0, 1)]);
        assert_eq!(steps(&deep, 64, 2), [(2, 6)]);
        assert_eq!(steps(&deep, 64, 4), [(4, 6)]);
        let none = Layout::new(&deep, 64, 6);
        assert!(none.steps.is_empty() && none.codes == 0);
        assert_eq!((many.groups(), many.group(1)), (2, 64..100));
    }

    #[test]
    fn jobs_hold_every_tile_once() {
        let layout = |tiles| Layout::new(&[4], tiles, 0);
        let jobs = jobs([
            (0, layout(130)),
            (1, layout(1)),
            (2, layout(62)),
            (3, layout(2)),
        ]);
        let sizes: Vec<Vec<usize>> = jobs
            .iter()
            .map(|job| job.iter().map(|unit| unit.tiles).collect())
            .collect();
        assert_eq!(sizes, [vec![64], vec![64], vec![2, 1], vec![62, 2]]);
    }
}
