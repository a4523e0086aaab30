//! Large images of a file, made a few rows at a time: what is held is the file's blocks, not their samples.

use super::chunk::{self, Chain};
use super::container::Fields;
use super::networks::Networks;
use super::plane::{self, Shape};
use super::png::Take;
use super::record::Record;
use super::stack::Stack;
use super::tiles::{Located, Tiling};
use super::workers::Workers;
use rrvq::error::{Error, Remedy, Result};
use rrvq::interrupt;
use std::ops::{ControlFlow, Range};

/// A chunk of a file, as it was found: its tiles, its chains, and the payloads of these.
#[derive(Clone)]
pub(super) struct Chunk {
    pub at: Vec<Located>,
    pub chains: Vec<Range<usize>>,
    pub payloads: Vec<Result<Vec<u8>>>,
    /// Whether the number of tiles comes first, as in version 1.
    pub counted: bool,
}

impl Chunk {
    pub fn read(self, networks: &mut Networks) -> Result<(Vec<Located>, chunk::Found)> {
        let damaged = || Error::new("a block is damaged");
        let tiles = self.at.len();
        let chain = |(number, payload): (usize, Result<Vec<u8>>)| {
            let payload = payload?;
            let mut fields = Fields(&payload);
            if self.counted && fields.short()? != tiles {
                return Err(damaged());
            }
            let flags = chunk::flag_count(&self.chains, number);
            let bits = fields.bytes(flags.div_ceil(8))?;
            Ok(Chain {
                back: (0..flags)
                    .map(|i| bits[i / 8] >> (i % 8) & 1 == 1)
                    .collect(),
                stack: Stack::from_bytes(fields.0).ok_or_else(damaged)?,
            })
        };
        let payloads = self.payloads.into_iter().enumerate();
        let found = payloads.map(chain).collect();
        let extents: Vec<_> = self.at.iter().map(|at| at.tiling.extent(at.tile)).collect();
        let read = chunk::read(networks, &extents, &self.chains, found)?;
        Ok((self.at, read))
    }
}

/// An image whose blocks are all there.
pub struct Large {
    pub record: Record,
    /// Its number in its segment.
    pub(super) number: usize,
    pub(super) tiling: Tiling,
    /// Those that hold its tiles, should the model have its colours; its strips otherwise.
    pub(super) chunks: Vec<Chunk>,
    pub(super) colour: Vec<Vec<u8>>,
    pub(super) alpha: Vec<Vec<u8>>,
}

/// Rows of transparency, read as they are needed.
struct Alpha<'a> {
    reader: plane::Reader,
    strips: std::slice::Iter<'a, Vec<u8>>,
    width: usize,
}

impl Alpha<'_> {
    fn rows(&mut self, rows: usize) -> Result<Vec<u8>> {
        let wanted = rows * self.width;
        while self.reader.samples.len() < wanted {
            let strip = self.strips.next();
            let strip = strip.ok_or_else(|| Error::new("the file is damaged or ends before it"))?;
            self.reader.strip(strip)?;
        }
        let later = self.reader.samples.split_off(wanted);
        Ok(std::mem::replace(&mut self.reader.samples, later))
    }
}

impl Large {
    fn shape(&self, channels: usize) -> Shape {
        Shape {
            width: self.record.width,
            height: self.record.height,
            channels,
        }
    }

    /// Tells its samples a few rows at a time. `workers` are those the file's other images were read with.
    pub fn rows(&self, workers: Option<&mut Workers>, take: &mut Take<'_>) -> Result<()> {
        let row = self.record.width * self.record.channels;
        let mut alpha = self.record.alpha.then(|| Alpha {
            reader: plane::Reader::new(self.shape(1)),
            strips: self.alpha.iter(),
            width: self.record.width,
        });
        let mut give = |colour: &[u8]| -> Result<ControlFlow<()>> {
            interrupt::check()?;
            let alpha = alpha.as_mut().map(|alpha| alpha.rows(colour.len() / row));
            take(colour, alpha.transpose()?.as_deref())
        };
        if self.record.coding != 0 {
            let Some(workers) = workers else {
                return Err(needs_model());
            };
            return self.tiles(workers, &mut give);
        }
        let mut reader = plane::Reader::new(self.shape(self.record.channels));
        for strip in &self.colour {
            reader.strip(strip)?;
            if give(&reader.take())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Rows of tiles, as many chunks at a time as there are workers.
    fn tiles(
        &self,
        workers: &mut Workers,
        give: &mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Tiling {
            width,
            height,
            channels,
            side,
        } = self.tiling;
        let (across, down) = (width.div_ceil(side), height.div_ceil(side));
        let band = |number: usize| Tiling {
            height: side.min(height - number * side),
            ..self.tiling
        };
        let (mut number, mut rows) = (0, vec![0; width * band(0).height * channels]);
        for round in self.chunks.chunks(workers.most()) {
            let jobs = round.to_vec();
            let done = workers.each(jobs, |networks, chunk| chunk.read(networks))?;
            for found in done {
                let (at, (tiles, _)) = found?;
                let ours = at
                    .iter()
                    .zip(tiles)
                    .filter(|(at, _)| at.image == self.number);
                for (at, tile) in ours {
                    band(number).paste(&mut rows, at.tile % across, &tile?);
                    if (at.tile + 1) % across > 0 {
                        continue;
                    }
                    number = at.tile / across + 1;
                    if give(&rows)?.is_break() || number == down {
                        return Ok(());
                    }
                    rows.resize(width * band(number).height * channels, 0);
                }
            }
        }
        Err(Error::new("the file is damaged or ends before it"))
    }
}

pub(super) fn needs_model() -> Error {
    Error::with_remedy(
        "its images need the model they were written with",
        Remedy::Model,
    )
}
