//! Where an image's codes lie in a file: the most important first.
//!
//! Codes come from the top layer down over the whole image, so that any first part of them makes a picture, coarse all over
//! before it is fine anywhere. A model's networks want a handful of tiles at a time, not all of a large image: tiles are
//! taken in groups, and a block holds the codes of one group. A block costs some bytes by itself, so the layers of an image
//! of one group share a block; an image of several has a block for each layer and group.

use super::super::workers::as_many;
use rrvq::config::{Backbone, ModelConfig};
use rrvq::resize::scaled;
use std::ops::Range;

/// Tiles of a group, at most, where they have the side of the model's images.
const GROUP: usize = 64;
/// In the older order, layers share a block until it has so many codes.
const STEP_CODES: usize = 1 << 14;

/// How layers make steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As many layers a step as make a block worth its bytes: version 2. A large image's first bytes show a part of it.
    Steps,
    /// A layer a step, where there is more than one group: version 4.
    Layers,
    /// The same, with neighbouring codes as a context, and lists that say the side of tiles: version 5.
    Context,
}

/// Tiles of this side in a group, for a model whose own have the side `own`.
pub fn group(own: usize, side: usize) -> usize {
    as_many(GROUP, own, side)
}

/// Tiles may cover so many times (6 of 5) the pixels that those would which cover least: pictures of 96 × 64 to 700 × 460 had the best
/// of rate and error together with a limit between 1.19 and 1.21.
const MOST_COVERED: (usize, usize) = (6, 5);

/// The sides that tiles of a model may have: a quarter of its own to four times as much, where all maps have whole positions.
pub fn sides(config: &ModelConfig) -> impl DoubleEndedIterator<Item = usize> + Clone {
    let (own, maps) = (config.size, config.maps.clone());
    let convolutions = config.backbone == Backbone::Convolution;
    let all = [
        (own % 4 == 0).then_some(own / 4),
        (own % 2 == 0).then_some(own / 2),
        Some(own),
        Some(2 * own),
        Some(4 * own),
    ];
    let fits =
        move |side: &usize| *side == own || (convolutions && scaled(&maps, own, *side).is_some());
    all.into_iter().flatten().filter(fits)
}

/// Positions of each layer in a tile of this side, bottom first; none where tiles may not have it.
pub fn positions(config: &ModelConfig, side: usize) -> Option<Vec<usize>> {
    if !sides(config).any(|known| known == side) {
        return None;
    }
    let maps = scaled(&config.sides(), config.size, side)?;
    Some(maps.into_iter().map(|map| map * map).collect())
}

/// The side of tiles for an image: the largest that does not add too much to it. With larger tiles more of a picture is known
/// when a code is chosen, and fewer borders can be seen; what hangs over costs bits and time.
pub fn fitting(config: &ModelConfig, width: usize, height: usize) -> usize {
    let covered = |side: usize| width.div_ceil(side) * height.div_ceil(side) * side * side;
    let least = sides(config).map(covered).min().unwrap_or(0);
    let (times, of) = MOST_COVERED;
    let fits = |side: &usize| of * covered(*side) <= times * least;
    sides(config).rev().find(fits).unwrap_or(config.size)
}

/// The blocks of an image: for each step from the top down, one for each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub tiles: usize,
    /// Tiles of a group, at most.
    group: usize,
    /// Whether neighbouring codes are a context.
    pub context: bool,
    /// Layers of each step, numbered from 0 at the bottom.
    pub steps: Vec<Range<usize>>,
    /// Codes of a tile.
    pub codes: usize,
}

impl Layout {
    /// `positions` are those of each layer in one tile, bottom first; the lowest `dropped` layers are left out. A group has at
    /// most `group` tiles.
    pub fn new(
        positions: &[usize],
        tiles: usize,
        group: usize,
        dropped: usize,
        order: Order,
    ) -> Layout {
        let mut steps = Vec::new();
        let (mut above, mut codes) = (positions.len(), 0);
        for layer in (dropped..positions.len()).rev() {
            codes += positions[layer] * tiles.min(group);
            let full = match order {
                Order::Steps => codes >= STEP_CODES,
                Order::Layers | Order::Context => tiles > group,
            };
            if full || layer == dropped {
                steps.push(layer..above);
                (above, codes) = (layer, 0);
            }
        }
        Layout {
            tiles,
            group,
            context: order == Order::Context,
            steps,
            codes: positions.iter().skip(dropped).sum(),
        }
    }

    pub fn groups(&self) -> usize {
        self.tiles.div_ceil(self.group)
    }

    /// Tiles of a group.
    pub fn group(&self, number: usize) -> Range<usize> {
        number * self.group..((number + 1) * self.group).min(self.tiles)
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
                room = layout.group;
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
            let layout = Layout::new(positions, tiles, GROUP, dropped, Order::Steps);
            layout.steps.iter().map(|s| (s.start, s.end)).collect()
        };
        assert_eq!(
            Layout::new(&positions, 1, GROUP, 0, Order::Steps).codes,
            340
        );
        assert_eq!(steps(&positions, 1, 0), [(0, 4)]);
        let many = Layout::new(&positions, 100, GROUP, 0, Order::Steps);
        assert_eq!(steps(&positions, 100, 0), [(0, 4)]);
        let deep = [256, 256, 256, 64, 64, 64];
        assert_eq!(steps(&deep, 64, 0), [(2, 6), (1, 2), (0, 1)]);
        assert_eq!(steps(&deep, 64, 2), [(2, 6)]);
        assert_eq!(steps(&deep, 64, 4), [(4, 6)]);
        let none = Layout::new(&deep, 64, GROUP, 6, Order::Steps);
        assert!(none.steps.is_empty() && none.codes == 0);
        assert_eq!((many.groups(), many.group(1)), (2, 64..100));
        let by_layer = |tiles| Layout::new(&positions, tiles, GROUP, 1, Order::Layers).steps;
        assert!(by_layer(64).len() == 1 && by_layer(64)[0] == (1..4));
        assert_eq!(by_layer(65), [3..4, 2..3, 1..2]);
    }

    #[test]
    fn tiles_are_as_large_as_hang_over_little() {
        let config = rrvq::config::Config::preset("rd-photos").unwrap().model;
        let all: Vec<usize> = sides(&config).collect();
        assert_eq!(all, [16, 32, 64, 128, 256]);
        for (width, height, side) in [
            (32, 32, 32),
            (96, 64, 32),
            (320, 213, 64),
            (480, 320, 64),
            (500, 375, 128),
            (640, 427, 128),
            (768, 512, 256),
            (1, 1, 16),
            (4000, 3000, 256),
        ] {
            assert_eq!(fitting(&config, width, height), side, "{width} × {height}");
        }
    }

    #[test]
    fn jobs_hold_every_tile_once() {
        let layout = |tiles| Layout::new(&[4], tiles, GROUP, 0, Order::Layers);
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
