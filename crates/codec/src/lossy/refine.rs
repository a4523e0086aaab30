//! The last step of the search: code by code in the lowest layer that is written.
//!
//! What one code of the lowest layer does is seen near its place and hardly elsewhere. So many are tried at once, on a grid
//! wide enough that they do not meet, and each is judged by the pixels around it. Those that seem better are put together
//! and judged once more, by the whole tile: neighbours do meet a little, and a change stays only if the tile is better for
//! it.

use super::super::chunk::Extent;
use super::super::stack::cost;
use super::search::{Chosen, Known, Search, cheapest};
use rrvq::error::Result;
use rrvq::interrupt;
use std::ops::Range;

/// Positions from one tried code to the next.
const STRIDE: usize = 4;
/// Of the posterior's likeliest so many are tried, and the best at these weights of the price, in quarters.
const RANKS: usize = 4;
const WEIGHTS: [i64; 2] = [4, 16];

/// Puts better codes into `kept`; `best` is what each tile costs. `bits` are those of the layers above.
pub fn refine(
    search: &mut Search<'_>,
    layer: usize,
    known: &Known,
    kept: &mut Chosen,
    bits: &[i64],
    best: &mut [f64],
) -> Result<()> {
    let config = &search.networks.model.config;
    let (side, tile_side, channels) = (config.sides()[layer], config.size, config.image_channels);
    let (positions, len) = (side * side, search.networks.model.image_len());
    let count = search.networks.codes(layer);
    let tiles: Vec<usize> = (0..search.wishes.len())
        .filter(|&tile| search.wishes[tile].dropped == layer && search.wishes[tile].worth.is_some())
        .collect();
    let weights = vec![0; search.wishes.len()];
    let (stride, scale) = (STRIDE.min(side), tile_side / side);
    let mut now = search.finish(layer, known, kept.clone(), bits, &weights)?;
    let mut room = vec![0; count];
    for phase in 0..stride * stride {
        let grid: Vec<usize> = (0..positions)
            .filter(|at| at / side % stride * stride + at % side % stride == phase)
            .collect();
        for kind in 0..RANKS + WEIGHTS.len() {
            interrupt::check()?;
            let mut tried = kept.clone();
            // Tile, place, its row, and what the new code costs more.
            let mut changes: Vec<(usize, usize, usize, i64)> = Vec::new();
            for (&tile, &at) in tiles
                .iter()
                .flat_map(|t| grid.iter().map(move |at| (t, at)))
            {
                let row = tile * positions + at;
                let table = known.table(row, &mut room);
                let numbers = &known.posterior[row * count..][..count];
                let code = match kind.checked_sub(RANKS) {
                    None => ranked(numbers, kind),
                    Some(weight) => cheapest(numbers, &table, WEIGHTS[weight]),
                };
                let old = kept.codes[row];
                if code != old {
                    let more = cost(table.share(code as usize)) - cost(table.share(old as usize));
                    changes.push((tile, at, row, more));
                    tried.codes[row] = code;
                }
            }
            if changes.is_empty() {
                continue;
            }
            let seen = search.finish(layer, known, tried.clone(), bits, &weights)?;
            let mut next = kept.clone();
            for &(tile, at, row, more) in &changes {
                let wish = &search.wishes[tile];
                let window = |place: usize| {
                    let middle = place * scale + scale / 2;
                    let half = stride * scale / 2;
                    middle.saturating_sub(half)..middle + half.max(1)
                };
                let (rows, columns) = (window(at / side), window(at % side));
                let original = &search.squares[tile * len..][..len];
                let error = |shown: &[u8]| {
                    let area = (&rows, &columns, wish.extent);
                    around(
                        &shown[tile * len..][..len],
                        original,
                        area,
                        tile_side,
                        channels,
                    )
                };
                let gain = error(&now.shown) as f64 - error(&seen.shown) as f64;
                if gain > wish.worth.unwrap_or(0.0) * (more as f64 / 65536.0) {
                    next.codes[row] = tried.codes[row];
                    next.bits[tile] += more;
                }
            }
            let whole = search.finish(layer, known, next.clone(), bits, &weights)?;
            for &tile in &tiles {
                if whole.costs[tile] >= best[tile] {
                    continue;
                }
                best[tile] = whole.costs[tile];
                let of_tile = tile * positions..(tile + 1) * positions;
                kept.codes[of_tile.clone()].copy_from_slice(&next.codes[of_tile]);
                kept.bits[tile] = next.bits[tile];
                let of_tile = tile * len..(tile + 1) * len;
                now.shown[of_tile.clone()].copy_from_slice(&whole.shown[of_tile]);
            }
        }
    }
    Ok(())
}

/// The code of a rank, the likeliest being 0; the first of equals comes first.
fn ranked(numbers: &[f32], rank: usize) -> u32 {
    let mut order: Vec<u32> = (0..numbers.len() as u32).collect();
    let rank = rank.min(order.len() - 1);
    let by_size = |a: &u32, b: &u32| {
        let (x, y) = (numbers[*a as usize], numbers[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    *order.select_nth_unstable_by(rank, by_size).1
}

/// Squared differences within some rows and columns, as far as they belong to the image.
fn around(
    a: &[u8],
    b: &[u8],
    (rows, columns, extent): (&Range<usize>, &Range<usize>, Extent),
    side: usize,
    channels: usize,
) -> u64 {
    let (left, right) = (columns.start, columns.end.min(extent.width));
    (rows.start..rows.end.min(extent.height))
        .flat_map(|y| {
            let row = (y * side + left) * channels..(y * side + right.max(left)) * channels;
            a[row.clone()].iter().zip(&b[row])
        })
        .map(|(a, b)| (a.abs_diff(*b) as u64).pow(2))
        .sum()
}
