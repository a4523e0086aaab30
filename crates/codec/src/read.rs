//! Reading a file: blocks in, images out, a segment at a time.
//!
//! Damage costs the images it touches: a chain of tiles and its pool, or an image's strips. Blocks say where they belong,
//! so whatever is whole is found and used; lists and header have a second copy. Images of a segment are made as their bits
//! arrive, never from sizes alone.

use super::blocks::Blocks;
use super::chunk::{self, Chain, Times};
use super::container::{Block, Fields, Header, Kind, Place, read_block, read_records, take_place};
use super::image::Image;
use super::networks::Networks;
use super::plane::{self, Shape};
use super::record::{Record, take_records};
use super::stack::Stack;
use super::tiles::{Located, Sequence, Tiling};
use super::workers::Workers;
use rrvq::error::{Error, Remedy, Result};
use rrvq::limits;
use std::ffi::OsString;
use std::io::Read;
use std::ops::Range;

/// Reads a file's images one segment after another.
pub struct Reader<'a> {
    blocks: Blocks<'a>,
    pub header: Header,
    /// A block that was read and belongs to what comes next.
    waiting: Option<Block>,
    /// Why nothing more can be read.
    broken: Option<Error>,
    /// Segments that are behind us.
    segments: usize,
    /// Images whose records were read.
    seen: usize,
    /// Whether an image was lost.
    lost: bool,
    finished: bool,
    /// Where the time of the model's chunks went, all threads together.
    pub times: Times,
}

/// What became of an image.
pub struct Outcome {
    /// Empty where not even that could be read.
    pub name: OsString,
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
        Ok(Reader::of(header, Blocks::new(input, header.has_places())))
    }

    /// Of a file whose header is damaged: with the copy at its end, if it has one.
    pub fn rescue(input: &'a mut dyn Read) -> Result<Reader<'a>> {
        let mut blocks = Blocks::searched(input)?;
        let header = |block: &Block| Header::take(&block.payload);
        let copy = blocks.ahead(|block| block.kind == Kind::End && header(block).is_ok());
        match copy {
            Some(copy) => Ok(Reader::of(header(&copy)?, blocks)),
            None => Err(Error::new("its header is damaged, and there is no copy")),
        }
    }

    fn of(header: Header, blocks: Blocks<'a>) -> Reader<'a> {
        Reader {
            blocks,
            header,
            waiting: None,
            broken: None,
            segments: 0,
            seen: 0,
            lost: false,
            finished: false,
            times: Times::default(),
        }
    }

    fn block(&mut self) -> Result<Block> {
        if let Some(block) = self.waiting.take() {
            return Ok(block);
        }
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => {
                let next = self.blocks.next();
                next.inspect_err(|error| self.broken = Some(error.clone()))
            }
        }
    }

    /// The block of this kind and place. What belongs before it is left over from damage.
    fn due(&mut self, kind: Kind, wanted: Place) -> Due {
        loop {
            let Ok(block) = self.block() else {
                return Due::Missing;
            };
            if !self.header.has_places() {
                match block.kind == kind {
                    true if block.whole => return Due::Whole(block.payload),
                    true => return Due::Damaged,
                    false => {
                        self.waiting = Some(block);
                        return Due::Missing;
                    }
                }
            }
            let mut payload = &block.payload[..];
            let rank = |kind| [Kind::Tiles, Kind::Strip].iter().position(|k| *k == kind);
            match (rank(block.kind), take_place::<3>(&mut payload)) {
                (Some(_), Ok(place)) if block.kind == kind && place == wanted => {
                    return Due::Whole(payload.to_vec());
                }
                (Some(here), Ok(place))
                    if (place[0], Some(here), place) < (wanted[0], rank(kind), wanted) => {}
                // A block without a place is as good as damaged.
                (Some(_), Err(_)) => {}
                _ => {
                    self.waiting = Some(block);
                    return Due::Missing;
                }
            }
        }
    }

    /// The images of the next segment, in their order; `None` after the last one. `workers` may be missing for a file
    /// that was written without the model's help. An error ends the file.
    pub fn segment(
        &mut self,
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Option<Vec<Outcome>>> {
        let outcomes = self.next_segment(workers, watch)?;
        self.lost |= outcomes
            .iter()
            .flatten()
            .any(|outcome| outcome.image.is_err());
        Ok(outcomes)
    }

    fn next_segment(
        &mut self,
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Option<Vec<Outcome>>> {
        let lost = |said: Error| {
            Ok(Some(vec![Outcome {
                name: OsString::new(),
                image: Err(said),
            }]))
        };
        loop {
            if self.finished {
                return Ok(None);
            }
            let block = self.block()?;
            match block.kind {
                kind if kind.lists() && block.whole => match self.list(&block) {
                    Ok(None) => {}
                    Ok(Some(records)) => return self.images(records, workers, watch).map(Some),
                    Err(said) => return self.skip().and_then(|()| lost(said)),
                },
                Kind::End if block.whole => {
                    self.finished = true;
                    self.end(&block.payload)?;
                }
                Kind::End => {
                    self.finished = true;
                    return Err(Error::new("its end is damaged"));
                }
                Kind::Header if !self.blocks.damaged() => {
                    self.broken = Some(Error::new("a second header follows"));
                }
                Kind::Header => {}
                _ if self.header.has_places() => match take_place::<3>(&mut &block.payload[..]) {
                    // Of a segment whose list is damaged.
                    Ok([segment, ..]) if segment >= self.segments => {
                        let list = self.blocks.list_ahead(segment);
                        if let Some(Ok(Some(records))) = list.map(|list| self.list(&list)) {
                            self.waiting = Some(block);
                            return self.images(records, workers, watch).map(Some);
                        }
                        self.segments = segment + 1;
                        return lost(Error::new("a list of images is damaged"));
                    }
                    _ => {}
                },
                _ => {
                    self.skip()?;
                    return lost(Error::new("a block is damaged or out of place"));
                }
            }
        }
    }

    /// The records of a list; none if it is a copy of one that was read. The segment it begins is the next one.
    fn list(&mut self, block: &Block) -> Result<Option<Vec<Record>>> {
        if !self.header.has_places() {
            return read_records(&block.payload).map(Some);
        }
        let mut payload = &block.payload[..];
        let [segment] = take_place(&mut payload)?;
        if segment < self.segments {
            return Ok(None);
        }
        self.segments = segment;
        let records = take_records(block.kind == Kind::PackedImages, payload)?;
        match records.iter().all(|record| record.coding <= 1) {
            true => Ok(Some(records)),
            false => Err(Error::new("an image has a kind this program does not know")),
        }
    }

    /// On to the next list of images, or to the end.
    fn skip(&mut self) -> Result<()> {
        loop {
            let block = self.block()?;
            if block.kind.lists() || block.kind == Kind::End {
                self.waiting = Some(block);
                return Ok(());
            }
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<()> {
        let count = match self.header.has_places() && payload.len() > 4 {
            true if Header::take(payload)? == self.header => self.header.images,
            true => return Err(Error::new("its header and the copy of it differ")),
            false => {
                let mut fields = Fields(payload);
                let count = fields.long()?;
                fields.end()?;
                count
            }
        };
        if count != self.header.images || count != self.seen {
            return Err(Error::new(format!(
                "it should have {count} images and {} were found",
                self.seen
            )));
        }
        if self.blocks.damaged() && !self.lost {
            return Err(Error::new("it is damaged, in no image"));
        }
        match self.blocks.ended() {
            true => Ok(()),
            false => Err(Error::new("there are bytes after its end")),
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
        self.seen += records.len();
        let mut made: Vec<Making> = records.iter().map(Making::new).collect();
        self.tiles(&records, &mut made, workers, watch)?;
        for (number, (record, making)) in records.iter().zip(&mut made).enumerate() {
            let mut strips = 0..;
            if record.coding == 0 {
                let shape = making.shape(record.channels);
                let colour = self.plane(shape, number, &mut strips, watch);
                making.set(|making| {
                    making.colour = colour?;
                    Ok(())
                });
            }
            if record.alpha {
                let alpha = self.plane(making.shape(1), number, &mut strips, watch);
                making.set(|making| {
                    making.alpha = Some(alpha?);
                    Ok(())
                });
            }
        }
        self.segments += 1;
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
        for (number, record) in records.iter().enumerate().filter(|(_, r)| r.coding == 1) {
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
        let fits = |r: &Record| r.coding == 0 || r.channels <= config.image_channels;
        if self.header.side != config.size || !records.iter().all(fits) {
            return Err(Error::new("its images do not fit its model"));
        }
        let most = match self.header.has_places() {
            true => chunk::MOST_TILES,
            false => chunk::FIRST_MOST_TILES,
        };
        let mut ranges = sequence.chunks(most).enumerate().peekable();
        while ranges.peek().is_some() {
            let mut jobs = Vec::new();
            for (number, range) in ranges.by_ref().take(workers.most()) {
                let chains = match self.header.has_places() {
                    true => chunk::chains(range.len()),
                    false => Vec::from_iter(std::iter::once(0..range.len())),
                };
                let place = |chain| [self.segments, number, chain];
                let places: Vec<Place> = (0..chains.len()).map(place).collect();
                let found = places.into_iter().map(|place| self.due(Kind::Tiles, place));
                let found = found.collect::<Vec<_>>();
                jobs.push((sequence.tiles(range), chains, found));
            }
            let counted = !self.header.has_places();
            let done = workers.each(jobs, |networks, (at, chains, found)| {
                let tiles = read_tiles(networks, &at, &chains, found, counted)?;
                watch(at.iter().map(|at| at.tiling.extent(at.tile).bytes()).sum());
                Ok((at, tiles))
            })?;
            for (at, (tiles, times)) in done.into_iter().collect::<Result<Vec<_>>>()? {
                self.times += times;
                for (at, tile) in at.iter().zip(tiles) {
                    made[at.image].set(|making| {
                        let tile = tile?;
                        making.room(at.tiling.width * at.tiling.height * at.tiling.channels)?;
                        at.tiling.paste(&mut making.colour, at.tile, &tile);
                        Ok(())
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads the strips of a plane. All of them are taken from the file, whatever they are.
    fn plane(
        &mut self,
        shape: Shape,
        image: usize,
        numbers: &mut dyn Iterator<Item = usize>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<u8>> {
        let mut reader = Ok(plane::Reader::new(shape));
        for number in numbers.take(shape.strips()) {
            match self.due(Kind::Strip, [self.segments, image, number]) {
                Due::Whole(bytes) => {
                    reader = reader.and_then(|mut reader| {
                        let before = reader.samples.len();
                        reader.strip(&bytes)?;
                        watch(reader.samples.len() - before);
                        Ok(reader)
                    });
                }
                Due::Damaged => reader = Err(damaged()),
                Due::Missing => reader = Err(missing()),
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

/// Reads a chunk. In version 1 the number of tiles comes first.
fn read_tiles(
    networks: &mut Networks,
    at: &[Located],
    chains: &[Range<usize>],
    found: Vec<Due>,
    counted: bool,
) -> Result<chunk::Found> {
    let chain = |(number, due): (usize, Due)| {
        let payload = match due {
            Due::Whole(payload) => payload,
            Due::Damaged => return Err(damaged()),
            Due::Missing => return Err(missing()),
        };
        let mut fields = Fields(&payload);
        if counted && fields.short()? != at.len() {
            return Err(damaged());
        }
        let flags = chunk::flag_count(chains, number);
        let bits = fields.bytes(flags.div_ceil(8))?;
        Ok(Chain {
            back: (0..flags)
                .map(|i| bits[i / 8] >> (i % 8) & 1 == 1)
                .collect(),
            stack: Stack::from_bytes(fields.0).ok_or_else(damaged)?,
        })
    };
    let found = found.into_iter().enumerate().map(chain).collect();
    let extents: Vec<_> = at.iter().map(|at| at.tiling.extent(at.tile)).collect();
    chunk::read(networks, &extents, chains, found)
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
            None => Ok(record.image(self.colour, self.alpha)),
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

/// The records of all images in a file, without decoding any.
pub fn list(input: &mut dyn Read) -> Result<(Header, Vec<Record>)> {
    let mut reader = Reader::new(input)?;
    let mut records = Vec::new();
    loop {
        let block = reader.block()?;
        match block.kind {
            _ if !block.whole || reader.blocks.damaged() => return Err(damaged()),
            Kind::End => return Ok((reader.header, records)),
            kind if kind.lists() => {
                if let Some(more) = reader.list(&block)? {
                    reader.segments += 1;
                    records.extend(more);
                }
            }
            _ => {}
        }
    }
}
