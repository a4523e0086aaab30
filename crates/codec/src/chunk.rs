//! A chunk: tiles on stacks of bits, by bits back.
//!
//! A tile's latents are drawn by *popping* them off a stack under the posterior; then the pixels go on under the
//! likelihood and the latents under the prior. The reader takes latents and pixels off again, and by putting the latents
//! back under the posterior finds the very bits the writer had drawn them with: the earlier tiles. So a tile costs its
//! negative ELBO, not its latents' whole length.
//!
//! A damaged stack loses every tile on it, so a chunk has several: *chains* of at most twelve tiles. A chain's first tile
//! has nothing of its own to draw with, and to start without would cost a tenth of a tile each time. It draws from the
//! *pool*, a chain of a few tiles that is written first: a chain can be read without the pool, and the pool once the
//! latents of all first tiles are back on it. Damage to a chain costs its tiles and the pool's, at most 16 together.
//!
//! Networks want batches. The pool's are of 1, 1, 2, 4, 8, 16, 16, … tiles, as its stack grows, each one large sample: all
//! positions of the top layer for all its tiles, then the next layer, and so on. Chains go side by side, a tile of each
//! at a time. The pool's first batch takes the posterior's likeliest codes, and so does any that would run a stack dry; a
//! flag says so.
//!
//! The reader goes backwards, and a stack that does not end up empty is a damaged one.

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
/// Tiles of a chunk, at most; and in version 1 of the format.
pub const MOST_TILES: usize = 128;
pub const FIRST_MOST_TILES: usize = 256;
/// What damage to one chain may cost, in tiles: a chunk of no more has the pool alone.
pub const MOST_LOST: usize = 16;
/// Tiles of a chain besides the pool, at most.
const CHAIN: usize = 12;
/// For each so many tiles of a chunk, one of the pool: it has bits for the first tiles of all chains.
const TILES_A_POOL_TILE: usize = 32;

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
    /// For each tile, whether its latents were drawn with bits of a stack.
    pub back: Vec<bool>,
    /// Of the pool, then of each chain.
    pub stacks: Vec<Stack>,
    /// What each tile added, in 65,536ths of a bit.
    pub costs: Vec<i64>,
    pub times: Times,
}

/// The tiles of the pool, then of each chain, for a chunk of so many.
pub fn chains(tiles: usize) -> Vec<Range<usize>> {
    if tiles <= MOST_LOST {
        return Vec::from_iter(std::iter::once(0..tiles));
    }
    let pool = tiles.div_ceil(TILES_A_POOL_TILE);
    let rest = tiles - pool;
    let count = rest.div_ceil(CHAIN);
    let start = |chain: usize| pool + chain * rest / count;
    let others = (0..count).map(|chain| start(chain)..start(chain + 1));
    std::iter::once(0..pool).chain(others).collect()
}

/// Flags of one chain, as a file has them: of the pool one for each of its batches and one for the first tile of every
/// other chain; of those, one for each tile but the first.
pub fn flags_of(chains: &[Range<usize>], number: usize, back: &[bool]) -> Vec<bool> {
    flagged(chains, number)
        .iter()
        .map(|tiles| back[tiles.start])
        .collect()
}

/// Which tiles each flag of a chain is about.
fn flagged(chains: &[Range<usize>], number: usize) -> Vec<Range<usize>> {
    let one = |tile: usize| tile..tile + 1;
    match number {
        0 => {
            let firsts = chains[1..].iter().map(|chain| one(chain.start));
            batches(chains[0].len()).into_iter().chain(firsts).collect()
        }
        _ => chains[number].clone().skip(1).map(one).collect(),
    }
}

/// How many flags a chain has.
pub fn flag_count(chains: &[Range<usize>], number: usize) -> usize {
    flagged(chains, number).len()
}

/// A tile in a batch: the stack its latents are drawn from, and the one it is written to.
#[derive(Clone, Copy)]
struct Seat {
    tile: usize,
    from: usize,
    to: usize,
}

/// Batches of the pool, and those of the chains, in the order of writing.
fn schedule(chains: &[Range<usize>]) -> (Vec<Vec<Seat>>, Vec<Vec<Seat>>) {
    let (pool, others) = chains
        .split_first()
        .map_or((0, chains), |(pool, rest)| (pool.len(), rest));
    let seat = |tile| Seat {
        tile,
        from: 0,
        to: 0,
    };
    let of_pool = batches(pool)
        .into_iter()
        .map(|batch| batch.map(seat).collect());
    let longest = others.iter().map(Range::len).max().unwrap_or(0);
    let mut columns = Vec::new();
    for column in 0..longest {
        let long_enough = (1..).zip(others).filter(|(_, chain)| chain.len() > column);
        let seats: Vec<Seat> = long_enough
            .map(|(number, chain)| Seat {
                tile: chain.start + column,
                from: if column == 0 { 0 } else { number },
                to: number,
            })
            .collect();
        columns.extend(seats.chunks(LARGEST_BATCH).map(<[Seat]>::to_vec));
    }
    (of_pool.collect(), columns)
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

/// Writes tiles on stacks of their own.
pub fn write(networks: &mut Networks, tiles: &[Tile]) -> Result<Written> {
    let chains = chains(tiles.len());
    let mut out = Written {
        back: vec![false; tiles.len()],
        stacks: vec![Stack::default(); chains.len()],
        costs: vec![0; tiles.len()],
        times: Times::default(),
    };
    let certain = networks.certain();
    let mut writer = Writer {
        networks,
        tiles,
        stacks: &mut out.stacks,
        costs: &mut out.costs,
        times: &mut out.times,
    };
    let (pool, columns) = schedule(&chains);
    for (number, seats) in pool.iter().chain(&columns).enumerate() {
        let mut back = vec![!certain && number > 0; seats.len()];
        let drawn = loop {
            let Dried(seat) = match writer.draw(seats, &back)? {
                Ok(drawn) => break drawn,
                Err(dried) => dried,
            };
            match (seats[seat].from, seats[seat].to) {
                // A batch of the pool is one sample.
                (0, 0) => back.fill(false),
                // What is left of the pool is less than this tile needs.
                (0, _) => back[seat..].fill(false),
                _ => back[seat] = false,
            }
        };
        writer.put(seats, drawn)?;
        for (seat, back) in seats.iter().zip(back) {
            out.back[seat.tile] = back;
        }
    }
    Ok(out)
}

struct Writer<'a> {
    networks: &'a mut Networks,
    tiles: &'a [Tile],
    stacks: &'a mut [Stack],
    costs: &'a mut [i64],
    times: &'a mut Times,
}

/// The latents of a batch, with their slots under the prior.
struct Drawn {
    codes: Codes,
    slots: Vec<Vec<Slot>>,
    /// Features above the bottom layer.
    above: Vec<f32>,
    /// What drawing gave back of each tile's cost.
    costs: Vec<i64>,
}

/// The stack of this seat of a batch has too few bits.
struct Dried(usize);

/// Tiles the programs take for a batch; the last ones may be there only to fill them up.
fn size_of(seats: &[Seat]) -> usize {
    seats.len().next_power_of_two()
}

impl Writer<'_> {
    fn run<T>(&mut self, run: impl FnOnce(&mut Networks) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = run(self.networks);
        self.times.networks += start.elapsed();
        done
    }

    /// Draws all latents of the batch, off the stacks where `back` says so, else the likeliest ones. When a stack runs
    /// dry, all are as they were before.
    fn draw(&mut self, seats: &[Seat], back: &[bool]) -> Result<std::result::Result<Drawn, Dried>> {
        let (size, image_len) = (size_of(seats), self.networks.model.image_len());
        let mut squares = Vec::with_capacity(size * image_len);
        for seat in seats {
            squares.extend_from_slice(&self.tiles[seat.tile].square);
        }
        squares.resize(size * image_len, 0);
        let ladders = self.run(|networks| networks.ladders(size, &squares))?;
        let layers = self.networks.layers();
        let mut codes: Codes = vec![Vec::new(); layers];
        let mut slots = vec![Vec::new(); layers];
        let mut costs = vec![0; seats.len()];
        let mut above = Vec::new();
        // What was popped, to be put back should a stack run dry.
        let mut popped: Vec<(usize, Slot)> = Vec::new();
        for layer in (0..layers).rev() {
            let upper = codes.get(layer + 1).map_or(&[][..], |codes| codes);
            let level = self.run(|networks| networks.prior(size, layer, &above, upper))?;
            let posterior = self.run(|networks| {
                networks.posterior(size, layer, &level.features, &ladders[layer])
            })?;
            let start = Instant::now();
            let (positions, count) = (self.networks.positions(layer), self.networks.codes(layer));
            let mut room = vec![0; count];
            let mut here = Vec::with_capacity(size * positions);
            let tiles = posterior.chunks_exact(positions * count).zip(seats);
            for (number, (rows, seat)) in tiles.enumerate() {
                for numbers in rows.chunks_exact(count) {
                    if !back[number] {
                        here.push(likeliest(numbers));
                        continue;
                    }
                    let table = Table::new(numbers, &mut room);
                    let stack = &mut self.stacks[seat.from];
                    let (code, slot) = table.find(stack.peek());
                    if stack.pop(slot).is_err() {
                        for (stack, slot) in popped.into_iter().rev() {
                            self.stacks[stack].push(slot);
                        }
                        return Ok(Err(Dried(number)));
                    }
                    popped.push((seat.from, slot));
                    costs[number] -= cost(slot);
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
            here.resize(size * positions, 0);
            codes[layer] = here;
            above = level.features;
            self.times.coder += start.elapsed();
        }
        Ok(Ok(Drawn {
            codes,
            slots,
            above,
            costs,
        }))
    }

    /// Puts pixels and latents on the stacks, so that a reader finds them from the top layer down.
    fn put(&mut self, seats: &[Seat], drawn: Drawn) -> Result<()> {
        let size = size_of(seats);
        let numbers = self.run(|networks| networks.pixels(size, &drawn.above, &drawn.codes[0]))?;
        let start = Instant::now();
        let (config, bins) = (&self.networks.model.config, self.networks.bins());
        let each = config.size * config.size * bins.numbers();
        let side = config.size;
        let neighbours = &self.networks.neighbours;
        let slots: Vec<Vec<Slot>> = seats
            .par_iter()
            .zip(numbers.par_chunks_exact(each))
            .map_init(
                || Coder::new(bins, side, neighbours.clone()),
                |coder, (seat, numbers)| pixel_slots(coder, &self.tiles[seat.tile], numbers, side),
            )
            .collect();
        for (seat, drawn) in seats.iter().zip(&drawn.costs) {
            self.costs[seat.tile] += drawn;
        }
        let mut push = |seat: &Seat, slot: Slot| {
            self.stacks[seat.to].push(slot);
            self.costs[seat.tile] += cost(slot);
        };
        for (slots, seat) in slots.iter().zip(seats).rev() {
            slots.iter().rev().for_each(|slot| push(seat, *slot));
        }
        for (layer, slots) in drawn.slots.iter().enumerate() {
            let positions = self.networks.positions(layer);
            for (row, slot) in slots.iter().enumerate().rev() {
                push(&seats[row / positions], *slot);
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
    let seats: Vec<Seat> = (0..tiles.len())
        .map(|tile| Seat {
            tile,
            from: 0,
            to: 0,
        })
        .collect();
    let size = size_of(&seats);
    let positions: usize = (0..networks.layers()).map(|l| networks.positions(l)).sum();
    let back = vec![!networks.certain(); tiles.len()];
    let mut writer = Writer {
        networks,
        tiles,
        stacks: &mut [Stack::random(size * positions, seed)],
        costs: &mut vec![0; tiles.len()],
        times: &mut Times::default(),
    };
    let drawn = writer.draw(&seats, &back)?.map_err(|_| damaged())?;
    writer.run(|networks| networks.pixels(size, &drawn.above, &drawn.codes[0]))
}

/// A chain that was found in a file: its flags and its stack.
pub struct Chain {
    pub back: Vec<bool>,
    pub stack: Stack,
}

/// Tiles as they were, or why not; and where the time went.
pub type Found = (Vec<Result<Vec<u8>>>, Times);

/// Reads tiles of these extents back: the bytes of each, rows first. `chains` says which tiles each of `found` has.
pub fn read(
    networks: &mut Networks,
    extents: &[Extent],
    chains: &[Range<usize>],
    found: Vec<Result<Chain>>,
) -> Result<Found> {
    let mut reader = Reader {
        extents,
        tiles: vec![Vec::new(); extents.len()],
        back: vec![false; extents.len()],
        stacks: Vec::new(),
        lost: Vec::new(),
        times: Times::default(),
        networks,
    };
    for (number, found) in found.into_iter().enumerate() {
        let (stack, lost) = match found.and_then(|chain| reader.admit(chains, number, chain)) {
            Ok(stack) => (stack, None),
            Err(said) => (Stack::default(), Some(said)),
        };
        reader.stacks.push(stack);
        reader.lost.push(lost);
    }
    let (pool, columns) = schedule(chains);
    columns
        .iter()
        .rev()
        .try_for_each(|seats| reader.batch(seats))?;
    for (number, chain) in chains.iter().enumerate().skip(1) {
        if reader.stacks[number] != Stack::default() && reader.lost[number].is_none() {
            reader.lost[number] = Some(damaged());
        }
        // The pool lacks what the chain's first tile took from it.
        if reader.lost[number].is_some() && reader.back[chain.start] && reader.lost[0].is_none() {
            reader.lost[0] = reader.lost[number].clone();
        }
    }
    pool.iter()
        .rev()
        .try_for_each(|seats| reader.batch(seats))?;
    if reader.stacks.first().is_some_and(|stack| !stack.is_empty()) && reader.lost[0].is_none() {
        reader.lost[0] = Some(damaged());
    }
    let mut tiles: Vec<Result<Vec<u8>>> = reader.tiles.into_iter().map(Ok).collect();
    for (chain, lost) in chains.iter().zip(&reader.lost) {
        if let Some(said) = lost {
            tiles[chain.clone()].fill(Err(said.clone()));
        }
    }
    Ok((tiles, reader.times))
}

struct Reader<'a> {
    networks: &'a mut Networks,
    extents: &'a [Extent],
    tiles: Vec<Vec<u8>>,
    /// For each tile, whether its latents go back on a stack.
    back: Vec<bool>,
    /// Of each chain, and why it cannot be read.
    stacks: Vec<Stack>,
    lost: Vec<Option<Error>>,
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
    /// Takes a chain's flags and gives its stack.
    fn admit(&mut self, chains: &[Range<usize>], number: usize, chain: Chain) -> Result<Stack> {
        let flagged = flagged(chains, number);
        let impossible = chain.back.contains(&true) && self.networks.certain();
        if flagged.len() != chain.back.len() || impossible {
            return Err(damaged());
        }
        for (tiles, back) in flagged.into_iter().zip(chain.back) {
            self.back[tiles].fill(back);
        }
        Ok(chain.stack)
    }

    fn run<T>(&mut self, run: impl FnOnce(&mut Networks) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = run(self.networks);
        self.times.networks += start.elapsed();
        done
    }

    /// Reads the tiles of a batch whose chains are not lost.
    fn batch(&mut self, seats: &[Seat]) -> Result<()> {
        let lost = |seat: &&Seat| self.lost[seat.to].is_none();
        let seats: Vec<Seat> = seats.iter().filter(lost).copied().collect();
        if seats.is_empty() {
            return Ok(());
        }
        let size = size_of(&seats);
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
            let mut room = vec![0; count];
            let mut here = Vec::with_capacity(size * positions);
            for row in 0..seats.len() * positions {
                let table = match &level.counts {
                    None => Table::uniform(&mut room),
                    Some(counts) => Table::new(&counts[row * count..][..count], &mut room),
                };
                let to = seats[row / positions].to;
                let (code, slot) = table.find(self.stacks[to].peek());
                if let Err(dry) = self.stacks[to].pop(slot) {
                    self.lost[to] = Some(dry.into());
                }
                here.push(code as u32);
            }
            here.resize(size * positions, 0);
            codes[layer] = here;
            features[layer] = level.features;
            self.times.coder += start.elapsed();
        }
        let numbers = self.run(|networks| networks.pixels(size, &features[0], &codes[0]))?;
        self.pixels(&seats, &numbers);
        match seats.iter().any(|seat| self.back[seat.tile]) {
            true => self.give_back(&seats, &codes, &features),
            false => Ok(()),
        }
    }

    fn pixels(&mut self, seats: &[Seat], numbers: &[f32]) {
        let start = Instant::now();
        let (side, bins) = (self.networks.model.config.size, self.networks.bins());
        let mut coder = Coder::new(bins, side, self.networks.neighbours.clone());
        let each = side * side * bins.numbers();
        for (seat, numbers) in seats.iter().zip(numbers.chunks_exact(each)) {
            let (extent, bytes) = (self.extents[seat.tile], &mut self.tiles[seat.tile]);
            let stack = &mut self.stacks[seat.to];
            bytes.resize(extent.bytes(), 0);
            coder.next_tile();
            let decoded = with_instructions(
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
            );
            if let Err(dry) = decoded {
                self.lost[seat.to] = Some(dry.into());
            }
        }
        self.times.coder += start.elapsed();
    }

    /// Puts the latents back under the posterior of the images just read, in the reverse order of their drawing.
    fn give_back(&mut self, seats: &[Seat], codes: &Codes, features: &[Vec<f32>]) -> Result<()> {
        let size = size_of(seats);
        let config = &self.networks.model.config;
        let (side, channels) = (config.size, config.image_channels);
        let mut squares = Vec::with_capacity(size * side * side * channels);
        for seat in seats {
            let (extent, bytes) = (self.extents[seat.tile], &self.tiles[seat.tile]);
            squares.extend(super::tiles::square(extent, bytes, side, channels));
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
            for row in (0..seats.len() * positions).rev() {
                let seat = seats[row / positions];
                if self.back[seat.tile] {
                    let table = Table::new(&posterior[row * count..][..count], &mut room);
                    self.stacks[seat.from].push(table.slot(codes[layer][row] as usize));
                }
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

    #[test]
    fn a_chain_and_the_pool_have_few_tiles_and_all_have_each_once() {
        for tiles in 0..=MOST_TILES {
            let chains = chains(tiles);
            let ends = chains.windows(2).all(|two| two[0].end == two[1].start);
            assert!(ends && chains[0].start == 0 && chains[chains.len() - 1].end == tiles);
            let longest = chains[1..].iter().map(Range::len).max().unwrap_or(0);
            assert!(
                chains[0].len() + longest <= MOST_LOST,
                "{tiles}: {chains:?}"
            );
            let (pool, columns) = schedule(&chains);
            let mut seated: Vec<usize> = pool
                .iter()
                .chain(&columns)
                .flatten()
                .map(|s| s.tile)
                .collect();
            seated.sort();
            assert_eq!(seated, (0..tiles).collect::<Vec<_>>());
            let flags: usize = (0..chains.len()).map(|c| flag_count(&chains, c)).sum();
            assert_eq!(flags, pool.len() + tiles - chains[0].len());
        }
    }
}
