//! Down the layers, tile by tile: writing codes, reading them, and filling in those that are not there.
//!
//! Both ways visit the layers from the top down and ask the same program for the prior. A code that was not written, or
//! did not arrive, is the prior's likeliest: from there on the picture is what the model expects, given what is known.

use super::super::chunk::{Extent, likeliest};
use super::super::codes::Table;
use super::super::networks::{Level, Networks};
use super::super::stack::{Slot, Stack};
use super::context::{self, Coder, Context};
use super::search;
use rrvq::error::Result;
use std::collections::BTreeMap;
use std::ops::Range;

/// Some tiles on their way down.
struct Descent<'a> {
    networks: &'a mut Networks,
    tiles: usize,
    /// Tiles the networks run on at a time.
    batch: usize,
    /// Features above the layer that was visited last, for each batch.
    features: Vec<Vec<f32>>,
    /// Codes of each layer, bottom first, tile after tile.
    codes: Vec<Vec<u32>>,
}

/// A layer of one batch.
struct Visit<'a> {
    tiles: Range<usize>,
    /// Tiles the programs take: the last ones may be there only to fill them up.
    size: usize,
    level: &'a Level,
}

impl Visit<'_> {
    /// The prior's table of a position, counted from the batch's first.
    fn table<'t>(&self, row: usize, room: &'t mut [u32]) -> Table<'t> {
        match &self.level.counts {
            None => Table::uniform(room),
            Some(counts) => Table::new(&counts[row * room.len()..][..room.len()], room),
        }
    }
}

impl<'a> Descent<'a> {
    fn new(networks: &'a mut Networks, tiles: usize, batch: usize) -> Descent<'a> {
        let layers = networks.layers();
        Descent {
            networks,
            tiles,
            batch,
            features: vec![Vec::new(); tiles.div_ceil(batch)],
            codes: vec![Vec::new(); layers],
        }
    }

    /// Codes of a batch's tiles, filled up to the size its programs take.
    fn filled(&self, layer: usize, tiles: &Range<usize>, size: usize) -> Vec<u32> {
        let Some(codes) = self.codes.get(layer) else {
            return Vec::new();
        };
        let positions = self.networks.positions(layer);
        let mut filled = codes[tiles.start * positions..tiles.end * positions].to_vec();
        filled.resize(size * positions, 0);
        filled
    }

    fn batches(&self) -> impl Iterator<Item = (usize, Range<usize>, usize)> + use<> {
        let (tiles, most) = (self.tiles, self.batch);
        (0..tiles.div_ceil(most)).map(move |batch| {
            let range = batch * most..((batch + 1) * most).min(tiles);
            let size = range.len().next_power_of_two();
            (batch, range, size)
        })
    }

    /// Visits a layer: `choose` gives the codes of each batch.
    fn layer(
        &mut self,
        layer: usize,
        mut choose: impl FnMut(&mut Networks, Visit<'_>) -> Result<Vec<u32>>,
    ) -> Result<()> {
        for (batch, tiles, size) in self.batches() {
            let upper = self.filled(layer + 1, &tiles, size);
            let level = self
                .networks
                .prior(size, layer, &self.features[batch], &upper)?;
            let visit = Visit {
                tiles,
                size,
                level: &level,
            };
            let chosen = choose(self.networks, visit)?;
            self.codes[layer].extend(chosen);
            self.features[batch] = level.features;
        }
        Ok(())
    }

    /// The pictures of all tiles, once all layers have been visited.
    fn shown(&mut self) -> Result<Vec<Vec<u8>>> {
        let len = self.networks.model.image_len();
        let mut out = Vec::with_capacity(self.tiles);
        for (batch, tiles, size) in self.batches() {
            let codes = self.filled(0, &tiles, size);
            let bytes = self.networks.shown(size, &self.features[batch], &codes)?;
            let wanted = bytes.chunks_exact(len).take(tiles.len());
            out.extend(wanted.map(<[u8]>::to_vec));
        }
        Ok(out)
    }
}

/// Tiles of one unit that are to be written.
pub struct Outgoing {
    /// Whole squares, as the network sees them, and what of each belongs to the image.
    pub squares: Vec<Vec<u8>>,
    pub extents: Vec<Extent>,
    pub dropped: usize,
    /// The runs of layers to be written, each on a stack of its own.
    pub runs: Vec<Range<usize>>,
    /// What a bit is worth in squared error, where codes are to be searched for.
    pub worth: Option<f64>,
}

/// What became of it.
pub struct Written {
    /// The bytes of each run of layers, by its first and last.
    pub runs: BTreeMap<(usize, usize), Vec<u8>>,
    /// Checksum of the codes of each layer.
    pub sums: Vec<u32>,
}

/// Writes units: networks run on all their tiles together, `at_once` of them, and bits are kept apart.
pub fn write(networks: &mut Networks, at_once: usize, units: &[Outgoing]) -> Result<Vec<Written>> {
    let tiles: Vec<(usize, &[u8])> = units
        .iter()
        .enumerate()
        .flat_map(|(unit, out)| out.squares.iter().map(move |square| (unit, &square[..])))
        .collect();
    let extents: Vec<Extent> = units.iter().flat_map(|u| u.extents.clone()).collect();
    let mut descent = Descent::new(networks, tiles.len(), at_once);
    let (mut ladders, mut searched) = (Vec::new(), Vec::new());
    for (_, range, size) in descent.batches() {
        let mut squares: Vec<u8> = Vec::new();
        let batch = &tiles[range.clone()];
        batch.iter().for_each(|(_, s)| squares.extend_from_slice(s));
        squares.resize(size * descent.networks.model.image_len(), 0);
        let said = descent.networks.ladders(size, &squares)?;
        let wishes: Vec<search::Wish> = batch
            .iter()
            .zip(&extents[range.clone()])
            .map(|((unit, _), extent)| search::Wish {
                extent: *extent,
                dropped: units[*unit].dropped,
                worth: units[*unit].worth,
            })
            .collect();
        let wanted = wishes.iter().any(|wish| wish.worth.is_some());
        searched.push(match wanted && !descent.networks.certain() {
            true => Some(search::codes(
                descent.networks,
                size,
                &squares,
                &said,
                &wishes,
            )?),
            false => None,
        });
        ladders.push(said);
    }
    let layers = descent.networks.layers();
    let lowest = units.iter().map(|unit| unit.dropped).min().unwrap_or(0);
    let mut slots: Vec<Vec<Vec<Slot>>> = vec![vec![Vec::new(); layers]; units.len()];
    let mut sums: Vec<Vec<flate2::Crc>> = units
        .iter()
        .map(|_| (0..layers).map(|_| flate2::Crc::new()).collect())
        .collect();
    for layer in (lowest..layers).rev() {
        let (positions, count) = (
            descent.networks.positions(layer),
            descent.networks.codes(layer),
        );
        let mut room = vec![0; count];
        let side = descent.networks.model.config.sides()[layer];
        let mut contexts: Vec<Context> = units.iter().map(|_| Context::new(side)).collect();
        descent.layer(layer, |networks, visit| {
            let batch = visit.tiles.start / at_once;
            let posterior = match &searched[batch] {
                Some(_) => Vec::new(),
                None => networks.posterior(
                    visit.size,
                    layer,
                    &visit.level.features,
                    &ladders[batch][layer],
                )?,
            };
            let rows = 0..visit.tiles.len() * positions;
            let codes: Vec<u32> = match &searched[batch] {
                Some(found) => found[layer][rows.clone()].to_vec(),
                None => rows
                    .clone()
                    .map(|row| likeliest(&posterior[row * count..][..count]))
                    .collect(),
            };
            for (row, &code) in rows.zip(&codes) {
                let unit = tiles[visit.tiles.start + row / positions].0;
                let mut coder = context::Write {
                    code,
                    slots: &mut slots[unit][layer],
                };
                let before = &codes[row - row % positions..row];
                contexts[unit].next(&visit.table(row, &mut room), before, &mut coder);
                sums[unit][layer].update(&code.to_le_bytes());
            }
            Ok(codes)
        })?;
    }
    let written = units.iter().zip(slots).zip(sums);
    Ok(written
        .map(|((unit, slots), sums)| Written {
            runs: unit
                .runs
                .iter()
                .map(|run| ((run.start, run.end), stacked(&slots[run.clone()])))
                .collect(),
            sums: sums.iter().map(flate2::Crc::sum).collect(),
        })
        .collect())
}

/// Slots of some layers, bottom first, so that the top layer's come off first.
fn stacked(layers: &[Vec<Slot>]) -> Vec<u8> {
    let mut stack = Stack::bare();
    for layer in layers {
        layer.iter().rev().for_each(|slot| stack.push(*slot));
    }
    stack.to_bare_bytes()
}

/// What of a block has arrived: the first of `len` bytes.
#[derive(Clone, Copy)]
pub struct Arrived<'a> {
    pub bytes: &'a [u8],
    pub len: usize,
}

impl<'a> Arrived<'a> {
    pub fn whole(bytes: &'a [u8]) -> Arrived<'a> {
        Arrived {
            bytes,
            len: bytes.len(),
        }
    }
}

/// A unit that is to be read.
pub struct Incoming<'a> {
    pub tiles: usize,
    /// Whether neighbouring codes are a context.
    pub context: bool,
    /// Its steps, top first, and the block of each.
    pub steps: Vec<(Range<usize>, Option<Arrived<'a>>)>,
}

/// A unit that was read.
pub struct Seen {
    /// Whole squares of the model's channels.
    pub squares: Vec<Vec<u8>>,
    /// Codes that were there.
    pub present: usize,
    /// Checksum of the codes of each layer.
    pub sums: Vec<u32>,
    /// Whether bits were there that cannot be right.
    pub damaged: bool,
}

/// Reading the bits of one unit. Once something is missing, nothing after it can be understood.
struct Source<'a> {
    unit: &'a Incoming<'a>,
    /// The block of the present step, and whether it was cut off.
    open: Option<(Stack, bool)>,
    lost: bool,
    present: usize,
    sums: Vec<flate2::Crc>,
    damaged: bool,
}

impl Source<'_> {
    /// Before the first code of a layer.
    fn enter(&mut self, layer: usize) {
        let first = |(step, _): &&(Range<usize>, _)| step.end == layer + 1;
        if let Some((_, arrived)) = self.unit.steps.iter().find(first) {
            self.open = arrived
                .filter(|_| !self.lost)
                .and_then(|arrived| Stack::from_bare_bytes(arrived.bytes, arrived.len));
            let whole = arrived.is_some_and(|a| a.bytes.len() == a.len);
            self.damaged |= !self.lost && whole && self.open.is_none();
            self.lost |= self.open.is_none();
        }
    }

    /// After the last code of a layer.
    fn leave(&mut self, layer: usize) {
        if self.unit.steps.iter().any(|(step, _)| step.start == layer) {
            let left = self.open.take();
            if left.is_some_and(|(stack, cut)| !cut && !stack.is_bare()) {
                (self.damaged, self.lost) = (true, true);
            }
        }
    }

    /// The next code of a tile, after those before.
    fn next(&mut self, table: &Table<'_>, context: &mut Context, before: &[u32]) -> u32 {
        let likeliest = table.mode as u32;
        let Some((stack, cut)) = &mut self.open else {
            return likeliest;
        };
        let mut coder = context::Read {
            stack,
            cut: *cut,
            dry: false,
        };
        let code = match self.unit.context {
            true => context.next(table, before, &mut coder),
            false => coder.code(table),
        };
        self.present += code.is_some() as usize;
        if coder.dry {
            (self.open, self.lost) = (None, true);
        }
        code.unwrap_or(likeliest)
    }
}

/// Reads units, and shows them; networks run on `batch` tiles at a time.
pub fn read(networks: &mut Networks, batch: usize, units: &[Incoming<'_>]) -> Result<Vec<Seen>> {
    let owners: Vec<usize> = units
        .iter()
        .enumerate()
        .flat_map(|(number, unit)| std::iter::repeat_n(number, unit.tiles))
        .collect();
    let layers = networks.layers();
    let mut sources: Vec<Source<'_>> = units
        .iter()
        .map(|unit| Source {
            unit,
            open: None,
            lost: false,
            present: 0,
            sums: (0..layers).map(|_| flate2::Crc::new()).collect(),
            damaged: false,
        })
        .collect();
    let mut descent = Descent::new(networks, owners.len(), batch);
    for layer in (0..layers).rev() {
        sources.iter_mut().for_each(|source| source.enter(layer));
        let positions = descent.networks.positions(layer);
        let mut room = vec![0; descent.networks.codes(layer)];
        let side = descent.networks.model.config.sides()[layer];
        let mut contexts: Vec<Context> = units.iter().map(|_| Context::new(side)).collect();
        descent.layer(layer, |_, visit| {
            let mut codes: Vec<u32> = Vec::with_capacity(visit.tiles.len() * positions);
            for row in 0..visit.tiles.len() * positions {
                let unit = owners[visit.tiles.start + row / positions];
                let (source, table) = (&mut sources[unit], visit.table(row, &mut room));
                let before = &codes[row - row % positions..];
                let code = source.next(&table, &mut contexts[unit], before);
                source.sums[layer].update(&code.to_le_bytes());
                codes.push(code);
            }
            Ok(codes)
        })?;
        sources.iter_mut().for_each(|source| source.leave(layer));
    }
    let mut squares = descent.shown()?.into_iter();
    let seen = sources.into_iter().map(|source| Seen {
        squares: squares.by_ref().take(source.unit.tiles).collect(),
        present: source.present,
        sums: source.sums.iter().map(flate2::Crc::sum).collect(),
        damaged: source.damaged,
    });
    Ok(seen.collect())
}
