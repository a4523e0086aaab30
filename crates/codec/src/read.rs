//! Reading a file: blocks in, images out, a segment at a time.
//!
//! Damage costs the images it touches and no others, as far as the file can be followed: each block has a checksum, and
//! the length of a damaged one still leads to the next. Images of a segment are made as their bits arrive, never from
//! sizes alone.

use super::chunk::{self, Times};
use super::container::{Block, Fields, Header, Kind, Record, read_block, read_records};
use super::image::Image;
use super::networks::Networks;
use super::plane::{self, Shape};
use super::stack::Stack;
use super::tiles::{Located, Sequence, Tiling};
use super::workers::Workers;
use rrvq::error::{Error, Remedy, Result};
use rrvq::limits;
use std::io::Read;

/// Reads a file's images one segment after another.
pub struct Reader<'a> {
    input: &'a mut dyn Read,
    pub header: Header,
    /// A block that was read and belongs to what comes next.
    waiting: Option<Block>,
    /// Why nothing more can be read.
    broken: Option<Error>,
    /// Images whose records were read.
    seen: usize,
    finished: bool,
    /// Where the time of the model's chunks went, all threads together.
    pub times: Times,
}

/// What became of an image.
pub struct Outcome {
    /// Empty where not even that could be read.
    pub name: String,
    pub image: Result<Image>,
}

/// The next block, if it is of the kind that is due.
enum Due {
    Whole(Vec<u8>),
    Damaged,
    Missing,
}

impl<'a> Reader<'a> {
    pub fn new(input: &'a mut dyn Read) -> Result<Reader<'a>> {
        let header = Header::read(input)?;
        Ok(Reader {
            input,
            header,
            waiting: None,
            broken: None,
            seen: 0,
            finished: false,
            times: Times::default(),
        })
    }

    fn block(&mut self) -> Result<Block> {
        if let Some(block) = self.waiting.take() {
            return Ok(block);
        }
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => read_block(self.input).inspect_err(|error| self.broken = Some(error.clone())),
        }
    }

    fn due(&mut self, kind: Kind) -> Due {
        match self.block() {
            Ok(block) if block.kind == kind => match block.whole {
                true => Due::Whole(block.payload),
                false => Due::Damaged,
            },
            Ok(other) => {
                self.waiting = Some(other);
                Due::Missing
            }
            Err(_) => Due::Missing,
        }
    }

    /// The images of the next segment, in their order; `None` after the last one. `workers` may be missing for a file
    /// that was written without the model's help. An error ends the file.
    pub fn segment(
        &mut self,
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Option<Vec<Outcome>>> {
        if self.finished {
            return Ok(None);
        }
        let block = self.block()?;
        let lost = |said: Error| {
            Ok(Some(vec![Outcome {
                name: String::new(),
                image: Err(said),
            }]))
        };
        match block.kind {
            Kind::Images if block.whole => match read_records(&block.payload) {
                Ok(records) => {
                    self.seen += records.len();
                    self.images(records, workers, watch).map(Some)
                }
                Err(said) => self.skip().and_then(|()| lost(said)),
            },
            Kind::End if block.whole => {
                self.finished = true;
                self.end(&block.payload).map(|()| None)
            }
            Kind::End => {
                self.finished = true;
                Err(Error::new("its end is damaged"))
            }
            Kind::Header => {
                self.broken = Some(Error::new("a second header follows"));
                self.block().map(|_| None)
            }
            _ => {
                self.skip()?;
                lost(Error::new("a block is damaged or out of place"))
            }
        }
    }

    /// On to the next list of images, or to the end.
    fn skip(&mut self) -> Result<()> {
        loop {
            let block = self.block()?;
            if matches!(block.kind, Kind::Images | Kind::End) {
                self.waiting = Some(block);
                return Ok(());
            }
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<()> {
        let mut fields = Fields(payload);
        let count = fields.long()?;
        fields.end()?;
        if count != self.header.images || count != self.seen {
            return Err(Error::new(format!(
                "it should have {count} images and {} were found",
                self.seen
            )));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            _ => Err(Error::new("there are bytes after its end")),
        }
    }

    fn images(
        &mut self,
        records: Vec<Record>,
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Outcome>> {
        let pixels = records.iter().map(|r| r.width * r.height).sum();
        limits::check_pixels_in_all(pixels).map_err(Error::new)?;
        let mut made: Vec<Making> = records.iter().map(Making::new).collect();
        self.tiles(&records, &mut made, workers, watch)?;
        for (record, making) in records.iter().zip(&mut made) {
            if !record.by_model {
                let colour = self.plane(making.shape(record.channels), watch);
                making.set(|making| {
                    making.colour = colour?;
                    Ok(())
                });
            }
            if record.alpha {
                let alpha = self.plane(making.shape(1), watch);
                making.set(|making| {
                    making.alpha = Some(alpha?);
                    Ok(())
                });
            }
        }
        let outcome = |(record, making): (Record, Making)| Outcome {
            name: record.name.clone(),
            image: making.finish(record),
        };
        Ok(records.into_iter().zip(made).map(outcome).collect())
    }

    /// Reads the model's chunks, as many at a time as there are hands.
    fn tiles(
        &mut self,
        records: &[Record],
        made: &mut [Making],
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let mut sequence = Sequence::default();
        for (number, record) in records.iter().enumerate().filter(|(_, r)| r.by_model) {
            sequence.add(
                number,
                Tiling {
                    width: record.width,
                    height: record.height,
                    channels: record.channels,
                    side: self.header.side.max(1),
                },
            );
        }
        if sequence.count == 0 {
            return Ok(());
        }
        let Some(workers) = workers else {
            return Err(Error::with_remedy(
                "its images need the model they were written with",
                Remedy::Model,
            ));
        };
        let config = &workers.model().config;
        let fits = |r: &Record| !r.by_model || r.channels <= config.image_channels;
        if self.header.side != config.size || !records.iter().all(fits) {
            return Err(Error::new("its images do not fit its model"));
        }
        let mut ranges = sequence.chunks().peekable();
        while ranges.peek().is_some() {
            let mut jobs = Vec::new();
            for range in ranges.by_ref().take(workers.most()) {
                jobs.push((sequence.tiles(range), self.due(Kind::Tiles)));
            }
            let done = workers.each(jobs, |networks, (at, due)| {
                let tiles = read_tiles(networks, &at, due);
                watch(at.iter().map(|at| at.tiling.extent(at.tile).bytes()).sum());
                Ok((at, tiles))
            })?;
            for (at, tiles) in done.into_iter().collect::<Result<Vec<_>>>()? {
                if let Ok((_, times)) = &tiles {
                    self.times += *times;
                }
                for (number, at) in at.iter().enumerate() {
                    made[at.image].set(|making| {
                        let tiles = tiles.as_ref().map_err(Error::clone)?;
                        making.room(at.tiling.width * at.tiling.height * at.tiling.channels)?;
                        at.tiling
                            .paste(&mut making.colour, at.tile, &tiles.0[number]);
                        Ok(())
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads the strips of a plane. All of them are taken from the file, whatever they are.
    fn plane(&mut self, shape: Shape, watch: &(dyn Fn(usize) + Sync)) -> Result<Vec<u8>> {
        let mut reader = Ok(plane::Reader::new(shape));
        for _ in 0..shape.strips() {
            match self.due(Kind::Strip) {
                Due::Whole(bytes) => {
                    reader = reader.and_then(|mut reader| {
                        let before = reader.samples.len();
                        reader.strip(&bytes)?;
                        watch(reader.samples.len() - before);
                        Ok(reader)
                    });
                }
                Due::Damaged => reader = Err(damaged()),
                Due::Missing => return Err(missing()),
            }
        }
        reader.map(|reader| reader.samples)
    }
}

fn damaged() -> Error {
    Error::new("a block is damaged")
}

fn missing() -> Error {
    Error::new("the file is damaged or ends before it")
}

fn read_tiles(networks: &mut Networks, at: &[Located], due: Due) -> Result<(Vec<Vec<u8>>, Times)> {
    let payload = match due {
        Due::Whole(payload) => payload,
        Due::Damaged => return Err(damaged()),
        Due::Missing => return Err(missing()),
    };
    let mut fields = Fields(&payload);
    if fields.short()? != at.len() {
        return Err(damaged());
    }
    let batches = chunk::batches(at.len()).len();
    let bits = fields.bytes(batches.div_ceil(8))?;
    let back: Vec<bool> = (0..batches)
        .map(|i| bits[i / 8] >> (i % 8) & 1 == 1)
        .collect();
    let stack = Stack::from_bytes(fields.0).ok_or_else(damaged)?;
    let extents: Vec<_> = at.iter().map(|at| at.tiling.extent(at.tile)).collect();
    chunk::read(networks, &extents, &back, stack)
}

/// An image in the making.
struct Making {
    size: (usize, usize),
    colour: Vec<u8>,
    alpha: Option<Vec<u8>>,
    lost: Option<Error>,
}

impl Making {
    fn new(record: &Record) -> Making {
        Making {
            size: (record.width, record.height),
            colour: Vec::new(),
            alpha: None,
            lost: None,
        }
    }

    fn shape(&self, channels: usize) -> Shape {
        Shape {
            width: self.size.0,
            height: self.size.1,
            channels,
        }
    }

    /// Goes on unless something is lost already; a loss gives the memory back.
    fn set(&mut self, step: impl FnOnce(&mut Making) -> Result<()>) {
        if self.lost.is_none()
            && let Err(error) = step(self)
        {
            (self.colour, self.alpha, self.lost) = (Vec::new(), None, Some(error));
        }
    }

    /// Room for all samples, once the first of them are there.
    fn room(&mut self, bytes: usize) -> Result<()> {
        if self.colour.is_empty() {
            let full = |_| Error::new(format!("there is no memory for its {bytes} bytes"));
            self.colour.try_reserve_exact(bytes).map_err(full)?;
            self.colour.resize(bytes, 0);
        }
        Ok(())
    }

    fn finish(self, record: Record) -> Result<Image> {
        match self.lost {
            Some(error) => Err(error),
            None => Ok(Image {
                name: record.name,
                width: record.width,
                height: record.height,
                colour: self.colour,
                alpha: self.alpha,
                profile: record.profile,
                orientation: record.orientation,
            }),
        }
    }
}

/// Goes through a file and holds every block to its checksum, without decoding any.
pub fn check(input: &mut dyn Read) -> Result<Header> {
    let header = Header::read(input)?;
    loop {
        let block = read_block(input)?;
        if !block.whole {
            return Err(damaged());
        }
        if block.kind == Kind::End {
            return Ok(header);
        }
    }
}
