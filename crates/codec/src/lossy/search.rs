//! Looking for better codes than the posterior's likeliest: fewer bits for the same picture, or a better one for the same.
//!
//! The posterior knows nothing of what a code costs to write. Here a code is chosen by −log q − w · log p, with a weight w
//! for the price: 0 takes the posterior's likeliest, a large one the cheapest. What a choice does to the picture shows
//! only at the bottom, through all layers below, so it is tried: for each tile first one weight for all layers, then,
//! layer by layer from the top, whether another weight for this one is better still; in the lowest layer also code by
//! code (`refine`). Tried are the squared error and the bits of the
//! whole tile, and a change is kept only if error + worth · bits has fallen: never worse than where it began.
//!
//! All tiles of a batch are tried together, each for itself. Prices are integers, so that every machine finds the same.

use super::super::chunk::{Extent, likeliest};
use super::super::codes::Table;
use super::super::networks::{Level, Networks};
use super::super::stack::{Slot, cost};
use super::refine;
use rrvq::error::Result;
use rrvq::interrupt;

/// Weights of the price, in quarters.
const WEIGHTS: [i64; 6] = [0, 1, 2, 4, 8, 16];

/// What is wanted for a tile.
pub struct Wish {
    pub extent: Extent,
    /// Layers that are left out, and filled in by the prior.
    pub dropped: usize,
    /// What a bit is worth in squared error; without it the likeliest codes stay.
    pub worth: Option<f64>,
}

pub(super) struct Search<'a> {
    pub networks: &'a mut Networks,
    size: usize,
    pub squares: &'a [u8],
    ladders: &'a [Vec<f32>],
    pub wishes: &'a [Wish],
}

/// A layer's features and counts, and the posterior's.
pub(super) struct Known {
    level: Level,
    pub posterior: Vec<f32>,
}

impl Known {
    /// The prior's table of a position.
    pub fn table<'t>(&self, row: usize, room: &'t mut [u32]) -> Table<'t> {
        match &self.level.counts {
            None => Table::uniform(room),
            Some(counts) => Table::new(&counts[row * room.len()..][..room.len()], room),
        }
    }
}

/// Codes of a layer, all tiles of the batch, and the bits each tile's take, in 65,536ths.
#[derive(Clone)]
pub(super) struct Chosen {
    pub codes: Vec<u32>,
    pub bits: Vec<i64>,
}

/// What became of a choice: the pictures, and error + worth · bits of each tile.
pub(super) struct Tried {
    pub shown: Vec<u8>,
    pub costs: Vec<f64>,
}

/// Codes of all layers, bottom first, for a batch of `size` tiles.
pub fn codes(
    networks: &mut Networks,
    size: usize,
    squares: &[u8],
    ladders: &[Vec<f32>],
    wishes: &[Wish],
) -> Result<Vec<Vec<u32>>> {
    let layers = networks.layers();
    let mut search = Search {
        networks,
        size,
        squares,
        ladders,
        wishes,
    };
    // The best found so far: a weight for each tile, and what it costs.
    let mut base = vec![0; wishes.len()];
    let mut best = vec![f64::INFINITY; wishes.len()];
    let top = search.known(layers - 1, &[], &[])?;
    let none = vec![0; wishes.len()];
    for weight in WEIGHTS {
        interrupt::check()?;
        let same = vec![weight; wishes.len()];
        let first = search.choose(layers - 1, &top, &same);
        let costs = search.finish(layers - 1, &top, first, &none, &same)?.costs;
        for tile in 0..wishes.len() {
            if costs[tile] < best[tile] {
                (best[tile], base[tile]) = (costs[tile], weight);
            }
        }
    }
    let mut out = vec![Vec::new(); layers];
    let mut bits = none;
    let mut known = top;
    for layer in (0..layers).rev() {
        let mut kept = search.choose(layer, &known, &base);
        for weight in WEIGHTS {
            interrupt::check()?;
            let tried = search.choose(layer, &known, &vec![weight; wishes.len()]);
            if tried.codes == kept.codes {
                continue;
            }
            let (codes, tile_bits) = (tried.codes.clone(), tried.bits.clone());
            let costs = search.finish(layer, &known, tried, &bits, &base)?.costs;
            let positions = search.networks.positions(layer);
            for tile in 0..wishes.len() {
                if costs[tile] >= best[tile] {
                    continue;
                }
                best[tile] = costs[tile];
                let range = tile * positions..(tile + 1) * positions;
                kept.codes[range.clone()].copy_from_slice(&codes[range]);
                kept.bits[tile] = tile_bits[tile];
            }
        }
        if wishes.iter().any(|wish| wish.dropped == layer) {
            refine::refine(&mut search, layer, &known, &mut kept, &bits, &mut best)?;
        }
        bits.iter_mut().zip(&kept.bits).for_each(|(b, k)| *b += k);
        if layer > 0 {
            known = search.known(layer - 1, &known.level.features, &kept.codes)?;
        }
        out[layer] = kept.codes;
    }
    Ok(out)
}

impl Search<'_> {
    /// What is known of a layer, from the features and codes above.
    fn known(&mut self, layer: usize, above: &[f32], codes: &[u32]) -> Result<Known> {
        let level = self.networks.prior(self.size, layer, above, codes)?;
        let needed = self.wishes.iter().any(|wish| wish.dropped <= layer);
        let posterior = match needed {
            true => {
                let ladder = &self.ladders[layer];
                self.networks
                    .posterior(self.size, layer, &level.features, ladder)?
            }
            false => Vec::new(),
        };
        Ok(Known { level, posterior })
    }

    /// Codes of a layer by a weight for each tile. Tiles that only fill the batch up have zeros.
    fn choose(&self, layer: usize, known: &Known, weights: &[i64]) -> Chosen {
        let (positions, count) = (self.networks.positions(layer), self.networks.codes(layer));
        let mut chosen = Chosen {
            codes: Vec::with_capacity(self.size * positions),
            bits: vec![0; self.wishes.len()],
        };
        let mut room = vec![0; count];
        for (tile, wish) in self.wishes.iter().enumerate() {
            let weight = if wish.worth.is_some() {
                weights[tile]
            } else {
                0
            };
            for row in tile * positions..(tile + 1) * positions {
                let table = known.table(row, &mut room);
                if layer < wish.dropped {
                    chosen.codes.push(table.mode as u32);
                    continue;
                }
                let numbers = &known.posterior[row * count..][..count];
                let code = match weight {
                    0 => likeliest(numbers),
                    weight => cheapest(numbers, &table, weight),
                };
                chosen.bits[tile] += cost(table.slot(code as usize));
                chosen.codes.push(code);
            }
        }
        chosen.codes.resize(self.size * positions, 0);
        chosen
    }

    /// Goes on below a layer whose codes were chosen. `bits` are those of the layers above.
    pub fn finish(
        &mut self,
        layer: usize,
        known: &Known,
        first: Chosen,
        bits: &[i64],
        weights: &[i64],
    ) -> Result<Tried> {
        let mut bits: Vec<i64> = bits.iter().zip(&first.bits).map(|(a, b)| a + b).collect();
        let mut codes = first.codes;
        let mut features = known.level.features.clone();
        for below in (0..layer).rev() {
            let known = self.known(below, &features, &codes)?;
            let chosen = self.choose(below, &known, weights);
            bits.iter_mut().zip(&chosen.bits).for_each(|(b, k)| *b += k);
            (codes, features) = (chosen.codes, known.level.features);
        }
        let shown = self.networks.shown(self.size, &features, &codes)?;
        let config = &self.networks.model.config;
        let (side, channels) = (config.size, config.image_channels);
        let len = self.networks.model.image_len();
        let costs = self.wishes.iter().enumerate().map(|(tile, wish)| {
            let range = tile * len..(tile + 1) * len;
            let (a, b) = (&shown[range.clone()], &self.squares[range]);
            let error = squared_error(a, b, wish.extent, side, channels);
            error as f64 + wish.worth.unwrap_or(0.0) * (bits[tile] as f64 / 65536.0)
        });
        let costs = costs.collect();
        Ok(Tried { shown, costs })
    }
}

/// The code with the least −log q − w · log p, the first of equals.
pub(super) fn cheapest(posterior: &[f32], prior: &Table<'_>, weight: i64) -> u32 {
    let mut best = (i64::MAX, 0);
    for (code, number) in posterior.iter().enumerate() {
        let count = (*number as u32).clamp(1, 1 << 24);
        let price = 4 * cost(Slot { left: 0, count }) + weight * cost(prior.share(code));
        best = best.min((price, code as u32));
    }
    best.1
}

/// Squared differences of the part of two squares that belongs to the image, over its own channels.
fn squared_error(a: &[u8], b: &[u8], extent: Extent, side: usize, channels: usize) -> u64 {
    let rows = (0..extent.height).map(|y| y * side * channels);
    rows.flat_map(|start| {
        let row = start..start + extent.width * channels;
        a[row.clone()].iter().zip(&b[row])
    })
    .map(|(a, b)| (a.abs_diff(*b) as u64).pow(2))
    .sum()
}
