//! A chunk: tiles on one stack, by bits back.
//!
//! A tile's latents are drawn by *popping* them off the stack under the posterior; then the pixels go on under the
//! likelihood and the latents under the prior. The reader takes latents and pixels off again, and by putting the latents
//! back under the posterior finds the very bits the writer had drawn them with: the earlier tiles. So a tile costs its
//! negative ELBO, not its latents' whole length.
//!
//! Networks want batches. A batch of tiles is one large sample: all positions of the top layer for all its tiles, then
//! the next layer, and so on. Batches have 1, 1, 2, 4, 8, 16, 16, … tiles, as the stack grows. The first one has nothing
//! to draw with: it takes the posterior's likeliest codes, and so does any batch that would run the stack dry; a flag for
//! each batch says so. That fills the stack, and a small file does not pay for bits it never gets back.
//!
//! The reader goes through the batches backwards, and a stack that does not end up empty is a damaged one.

use super::codes::Table;
use super::networks::Networks;
use super::pixels::{Asked, Coder};
use super::stack::{Dry, Slot, Stack, cost};
use rayon::prelude::*;
use rrvq::error::{Error, Result};
use rrvq_tensor::clock::Instant;
use rrvq_tensor::simd::with_instructions;
use std::ops::Range;
use std::time::Duration;

/// Tiles of a batch, at most.
const LARGEST_BATCH: usize = 16;
/// Tiles of a chunk, at most.
pub const MOST_TILES: usize = 256;

/// The part of a tile that is coded: the rest only fills it up. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    /// The first channels of the model's.
    pub channels: usize,
}

impl Extent {
    pub fn bytes(&self) -> usize {
        self.width * self.height * self.channels
    }
}

/// A tile to be written: a whole square for the network, of which the extent is coded.
pub struct Tile {
    pub extent: Extent,
    pub square: Vec<u8>,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    pub networks: Duration,
    /// Tables and stack.
    pub coder: Duration,
}

impl std::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Times) {
        self.networks += other.networks;
        self.coder += other.coder;
    }
}

/// A written chunk.
pub struct Written {
    /// For each batch, whether its latents were drawn with bits of the stack.
    pub back: Vec<bool>,
    pub stack: Stack,
    /// What each tile added, in 65,536ths of a bit.
    pub costs: Vec<i64>,
    pub times: Times,
}

/// The batches of so many tiles.
pub fn batches(tiles: usize) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut first = 0;
    while first < tiles {
        // As many as there are already, that is, twice the last batch.
        let size = first.clamp(1, LARGEST_BATCH).min(tiles - first);
        out.push(first..first + size);
        first += size;
    }
    out
}

/// Codes of a batch, bottom layer first; positions of a tile are next to each other.
type Codes = Vec<Vec<u32>>;

/// Writes tiles on a stack of their own.
pub fn write(networks: &mut Networks, tiles: &[Tile]) -> Result<Written> {
    let mut out = Written {
        back: Vec::new(),
        stack: Stack::default(),
        costs: vec![0; tiles.len()],
        times: Times::default(),
    };
    for batch in batches(tiles.len()) {
        let mut writer = Writer {
            costs: &mut out.costs[batch.clone()],
            stack: &mut out.stack,
            times: &mut out.times,
            networks,
            tiles: &tiles[batch.clone()],
            size: batch.len().next_power_of_two(),
        };
        let drawn = match batch.start > 0 && !writer.networks.certain() {
            true => writer.draw(true)?,
            false => None,
        };
        out.back.push(drawn.is_some());
        let drawn = match drawn {
            Some(drawn) => drawn,
            None => writer
                .draw(false)?
                .ok_or_else(|| Error::new("the likeliest codes need no bits"))?,
        };
        writer.put(drawn)?;
    }
    Ok(out)
}

struct Writer<'a> {
    networks: &'a mut Networks,
    stack: &'a mut Stack,
    costs: &'a mut [i64],
    times: &'a mut Times,
    tiles: &'a [Tile],
    /// Tiles the programs take; the last ones may be there only to fill them up.
    size: usize,
}

/// The latents of a batch, with their slots under the prior.
struct Drawn {
    codes: Codes,
    slots: Vec<Vec<Slot>>,
    /// Features above the bottom layer.
    above: Vec<f32>,
}

impl Writer<'_> {
    fn run<T>(&mut self, run: impl FnOnce(&mut Networks, usize) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = run(self.networks, self.size);
        self.times.networks += start.elapsed();
        done
    }

    /// Draws all latents of the batch, off the stack or the likeliest ones. A stack that runs dry is as it was before.
    fn draw(&mut self, back: bool) -> Result<Option<Drawn>> {
        let image_len = self.networks.model.image_len();
        let mut squares = Vec::with_capacity(self.size * image_len);
        self.tiles
            .iter()
            .for_each(|tile| squares.extend_from_slice(&tile.square));
        squares.resize(self.size * image_len, 0);
        let ladders = self.run(|networks, size| networks.ladders(size, &squares))?;
        let layers = self.networks.layers();
        let mut codes: Codes = vec![Vec::new(); layers];
        let mut slots = vec![Vec::new(); layers];
        let mut above = Vec::new();
        // What was popped, to be put back should the stack run dry.
        let mut popped = Vec::new();
        for layer in (0..layers).rev() {
            let upper = codes.get(layer + 1).map_or(&[][..], |codes| codes);
            let level = self.run(|networks, size| networks.prior(size, layer, &above, upper))?;
            let posterior = self.run(|networks, size| {
                networks.posterior(size, layer, &level.features, &ladders[layer])
            })?;
            let start = Instant::now();
            let (positions, count) = (self.networks.positions(layer), self.networks.codes(layer));
            let mut room = vec![0; count];
            let mut here = Vec::with_capacity(self.size * positions);
            for (tile, rows) in posterior.chunks_exact(positions * count).enumerate() {
                let Some(tile_cost) = self.costs.get_mut(tile) else {
                    break;
                };
                for numbers in rows.chunks_exact(count) {
                    if !back {
                        here.push(likeliest(numbers));
                        continue;
                    }
                    let table = Table::new(numbers, &mut room);
                    let (code, slot) = table.find(self.stack.peek());
                    if self.stack.pop(slot).is_err() {
                        popped.into_iter().rev().for_each(|s| self.stack.push(s));
                        self.costs.fill(0);
                        return Ok(None);
                    }
                    popped.push(slot);
                    *tile_cost -= cost(slot);
                    here.push(code as u32);
                }
            }
            let uniform = Table::uniform(&mut room);
            slots[layer] = match &level.counts {
                None => here.iter().map(|&c| uniform.slot(c as usize)).collect(),
                Some(counts) => {
                    let rows = counts.chunks_exact(count).zip(&here);
                    let mut room = vec![0; count];
                    rows.map(|(numbers, &code)| Table::new(numbers, &mut room).slot(code as usize))
                        .collect()
                }
            };
            here.resize(self.size * positions, 0);
            codes[layer] = here;
            above = level.features;
            self.times.coder += start.elapsed();
        }
        Ok(Some(Drawn {
            codes,
            slots,
            above,
        }))
    }

    /// Puts pixels and latents on the stack, so that a reader finds them from the top layer down.
    fn put(&mut self, drawn: Drawn) -> Result<()> {
        let numbers =
            self.run(|networks, size| networks.pixels(size, &drawn.above, &drawn.codes[0]))?;
        let start = Instant::now();
        let (config, bins) = (&self.networks.model.config, self.networks.bins());
        let each = config.size * config.size * bins.numbers();
        let side = config.size;
        let neighbours = &self.networks.neighbours;
        let slots: Vec<Vec<Slot>> = self
            .tiles
            .par_iter()
            .zip(numbers.par_chunks_exact(each))
            .map_init(
                || Coder::new(bins, side, neighbours.clone()),
                |coder, (tile, numbers)| pixel_slots(coder, tile, numbers, side),
            )
            .collect();
        for (slots, tile_cost) in slots.iter().zip(self.costs.iter_mut()).rev() {
            for slot in slots.iter().rev() {
                self.stack.push(*slot);
                *tile_cost += cost(*slot);
            }
        }
        for (layer, slots) in drawn.slots.iter().enumerate() {
            let positions = self.networks.positions(layer);
            for (row, slot) in slots.iter().enumerate().rev() {
                self.stack.push(*slot);
                self.costs[row / positions] += cost(*slot);
            }
        }
        self.times.coder += start.elapsed();
        Ok(())
    }
}

/// The first of the largest.
pub(super) fn likeliest(numbers: &[f32]) -> u32 {
    let mut best = 0;
    for (code, number) in numbers.iter().enumerate() {
        if *number > numbers[best] {
            best = code;
        }
    }
    best as u32
}

/// Slots of a tile's bytes: pixel after pixel, row after row.
pub(super) fn pixel_slots(
    coder: &mut Coder,
    tile: &Tile,
    numbers: &[f32],
    side: usize,
) -> Vec<Slot> {
    let Extent {
        width, channels, ..
    } = tile.extent;
    let (each, all) = (coder.bins().numbers(), coder.bins().channels);
    let mut slots = vec![Slot { left: 0, count: 1 }; tile.extent.bytes()];
    coder.next_tile();
    with_instructions(
        #[inline(always)]
        || {
            for (at, slots) in slots.chunks_exact_mut(channels).enumerate() {
                let pixel = at / width * side + at % width;
                let bytes = &tile.square[pixel * all..][..channels];
                coder.slots(pixel, &numbers[pixel * each..], bytes, slots);
            }
        },
    );
    slots
}

/// The likelihood's numbers for every pixel of a few tiles, given latents drawn from the posterior by chance.
pub(super) fn numbers(networks: &mut Networks, tiles: &[Tile], seed: u64) -> Result<Vec<f32>> {
    let size = tiles.len().next_power_of_two();
    let positions: usize = (0..networks.layers()).map(|l| networks.positions(l)).sum();
    let mut stack = Stack::random(size * positions, seed);
    let mut writer = Writer {
        costs: &mut vec![0; tiles.len()],
        stack: &mut stack,
        times: &mut Times::default(),
        size,
        networks,
        tiles,
    };
    let back = !writer.networks.certain();
    let drawn = writer.draw(back)?.ok_or_else(damaged)?;
    writer.run(|networks, size| networks.pixels(size, &drawn.above, &drawn.codes[0]))
}

/// Reads tiles of these extents back: the bytes of each, rows first.
pub fn read(
    networks: &mut Networks,
    extents: &[Extent],
    back: &[bool],
    stack: Stack,
) -> Result<(Vec<Vec<u8>>, Times)> {
    let batches = batches(extents.len());
    if back.len() != batches.len() {
        return Err(damaged());
    }
    let mut reader = Reader {
        networks,
        stack,
        times: Times::default(),
    };
    let mut tiles = vec![Vec::new(); extents.len()];
    for (batch, &back) in batches.into_iter().zip(back).rev() {
        if back && reader.networks.certain() {
            return Err(damaged());
        }
        reader.batch(&extents[batch.clone()], &mut tiles[batch], back)?;
    }
    match reader.stack.is_empty() {
        true => Ok((tiles, reader.times)),
        false => Err(damaged()),
    }
}

struct Reader<'a> {
    networks: &'a mut Networks,
    stack: Stack,
    times: Times,
}

impl From<Dry> for Error {
    fn from(_: Dry) -> Error {
        damaged()
    }
}

fn damaged() -> Error {
    Error::new("its bits do not belong together")
}

impl Reader<'_> {
    fn run<T>(&mut self, run: impl FnOnce(&mut Networks) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = run(self.networks);
        self.times.networks += start.elapsed();
        done
    }

    fn batch(&mut self, extents: &[Extent], tiles: &mut [Vec<u8>], back: bool) -> Result<()> {
        let size = extents.len().next_power_of_two();
        let layers = self.networks.layers();
        let mut codes: Codes = vec![Vec::new(); layers];
        // Features above each layer; none above the top one.
        let mut features: Vec<Vec<f32>> = vec![Vec::new(); layers + 1];
        for layer in (0..layers).rev() {
            let upper = codes.get(layer + 1).map_or(&[][..], |codes| codes);
            let above = &features[layer + 1];
            let level = self.run(|networks| networks.prior(size, layer, above, upper))?;
            let start = Instant::now();
            let (positions, count) = (self.networks.positions(layer), self.networks.codes(layer));
            let rows = extents.len() * positions;
            let mut room = vec![0; count];
            let mut here = Vec::with_capacity(size * positions);
            for row in 0..rows {
                let table = match &level.counts {
                    None => Table::uniform(&mut room),
                    Some(counts) => Table::new(&counts[row * count..][..count], &mut room),
                };
                let (code, slot) = table.find(self.stack.peek());
                self.stack.pop(slot)?;
                here.push(code as u32);
            }
            here.resize(size * positions, 0);
            codes[layer] = here;
            features[layer] = level.features;
            self.times.coder += start.elapsed();
        }
        let numbers = self.run(|networks| networks.pixels(size, &features[0], &codes[0]))?;
        self.pixels(extents, tiles, &numbers)?;
        match back {
            true => self.give_back(size, extents, tiles, &codes, &features),
            false => Ok(()),
        }
    }

    fn pixels(&mut self, extents: &[Extent], tiles: &mut [Vec<u8>], numbers: &[f32]) -> Result<()> {
        let start = Instant::now();
        let (side, bins) = (self.networks.model.config.size, self.networks.bins());
        let mut coder = Coder::new(bins, side, self.networks.neighbours.clone());
        let stack = &mut self.stack;
        let each = side * side * bins.numbers();
        for ((extent, bytes), numbers) in extents.iter().zip(tiles).zip(numbers.chunks_exact(each))
        {
            bytes.resize(extent.bytes(), 0);
            coder.next_tile();
            with_instructions(
                #[inline(always)]
                || {
                    let pixels = bytes.chunks_exact_mut(extent.channels).enumerate();
                    for (at, bytes) in pixels {
                        let pixel = at / extent.width * side + at % extent.width;
                        let numbers = &numbers[pixel * bins.numbers()..];
                        coder.decode(pixel, numbers, bytes, |asked| match asked {
                            Asked::Place => Ok(stack.peek()),
                            Asked::Taken(slot) => stack.pop(slot).map(|()| 0),
                        })?;
                    }
                    Ok::<(), Dry>(())
                },
            )?;
        }
        self.times.coder += start.elapsed();
        Ok(())
    }

    /// Puts the latents back under the posterior of the images just read, in the reverse order of their drawing.
    fn give_back(
        &mut self,
        size: usize,
        extents: &[Extent],
        tiles: &[Vec<u8>],
        codes: &Codes,
        features: &[Vec<f32>],
    ) -> Result<()> {
        let config = &self.networks.model.config;
        let (side, channels) = (config.size, config.image_channels);
        let mut squares = Vec::with_capacity(size * side * side * channels);
        for (extent, bytes) in extents.iter().zip(tiles) {
            squares.extend(super::tiles::square(*extent, bytes, side, channels));
        }
        squares.resize(size * side * side * channels, 0);
        let ladders = self.run(|networks| networks.ladders(size, &squares))?;
        for layer in 0..codes.len() {
            let posterior = self.run(|networks| {
                networks.posterior(size, layer, &features[layer], &ladders[layer])
            })?;
            let start = Instant::now();
            let (positions, count) = (self.networks.positions(layer), self.networks.codes(layer));
            let mut room = vec![0; count];
            for row in (0..extents.len() * positions).rev() {
                let table = Table::new(&posterior[row * count..][..count], &mut room);
                self.stack.push(table.slot(codes[layer][row] as usize));
            }
            self.times.coder += start.elapsed();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_with_the_stack_and_leave_nothing_out() {
        let sizes = |tiles| batches(tiles).iter().map(Range::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [0; 0]);
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(3), [1, 1, 1]);
        assert_eq!(sizes(48), [1, 1, 2, 4, 8, 16, 16]);
        assert_eq!(sizes(50), [1, 1, 2, 4, 8, 16, 16, 2]);
        let last = batches(MOST_TILES).last().cloned();
        assert_eq!(last.map(|batch| batch.end), Some(MOST_TILES));
    }
}
