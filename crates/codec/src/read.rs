//! Reading a file: blocks in, images out, a segment at a time.
//!
//! Damage costs the images it touches: a chain of tiles and its pool, or an image's strips. Blocks say where they belong,
//! so whatever is whole is found and used; lists and header have a second copy. Images of a segment are made as their bits
//! arrive, never from sizes alone; large ones need not be made at once, see [`large`](super::large).

use super::blocks::Blocks;
use super::chunk::{self, Times};
use super::container::{Block, Fields, Header, Kind, Place, read_block, read_records, take_place};
use super::image::Image;
use super::large::{Chunk, Large, needs_model};
use super::plane::{self, Shape};
use super::record::{Record, take_records};
use super::tiles::{Sequence, Tiling};
use super::workers::Workers;
use rrvq::error::{Error, Result};
use rrvq::limits;
use std::ffi::OsString;
use std::io::Read;

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
pub struct Outcome<I = Image> {
    /// Empty where not even that could be read.
    pub name: OsString,
    pub image: Result<I>,
}

/// An image, or what it is made of.
pub enum Made {
    Whole(Image),
    Large(Large),
}

/// The next block, if it is of the kind that is due.
enum Due {
    Whole(Vec<u8>),
    Damaged,
    Missing,
}

impl Due {
    fn payload(self) -> Result<Vec<u8>> {
        match self {
            Due::Whole(payload) => Ok(payload),
            Due::Damaged => Err(damaged()),
            Due::Missing => Err(missing()),
        }
    }
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
        let whole = |made: Made| match made {
            Made::Whole(image) => Ok(image),
            Made::Large(_) => Err(Error::new("no image is that large")),
        };
        let outcome = |outcome: Outcome<Made>| Outcome {
            name: outcome.name,
            image: outcome.image.and_then(whole),
        };
        let outcomes = self.segment_by_rows(workers, watch, usize::MAX)?;
        Ok(outcomes.map(|outcomes| outcomes.into_iter().map(outcome).collect()))
    }

    /// The same, but images of more than so many samples are left to be made a few rows at a time.
    pub fn segment_by_rows(
        &mut self,
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
        large: usize,
    ) -> Result<Option<Vec<Outcome<Made>>>> {
        let outcomes = self.next_segment(workers, watch, large)?;
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
        large: usize,
    ) -> Result<Option<Vec<Outcome<Made>>>> {
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
                    Ok(Some(records)) => {
                        return self.images(records, workers, watch, large).map(Some);
                    }
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
                            return self.images(records, workers, watch, large).map(Some);
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
        large: usize,
    ) -> Result<Vec<Outcome<Made>>> {
        let pixels = records.iter().map(|r| r.width * r.height).sum();
        limits::check_pixels_in_all(pixels).map_err(Error::new)?;
        self.seen += records.len();
        let side = self.header.side.max(1);
        let new = |(number, record)| Making::new(number, record, side, large);
        let mut made: Vec<Making> = records.into_iter().enumerate().map(new).collect();
        self.tiles(&mut made, workers, watch)?;
        for making in &mut made {
            let mut strips = 0..;
            if making.record.coding == 0 {
                let shape = making.shape(making.record.channels);
                let colour = self.plane(shape, making, &mut strips, watch);
                making.set(|making| {
                    making.colour = colour?;
                    Ok(())
                });
            }
            if making.record.alpha {
                let alpha = self.plane(making.shape(1), making, &mut strips, watch);
                making.set(|making| {
                    making.alpha = Some(alpha?);
                    Ok(())
                });
            }
        }
        self.segments += 1;
        Ok(made.into_iter().map(Making::finish).collect())
    }

    /// Reads the model's chunks, as many at a time as there are hands.
    fn tiles(
        &mut self,
        made: &mut [Making],
        workers: Option<&mut Workers>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let mut sequence = Sequence::default();
        for making in made.iter().filter(|making| making.record.coding == 1) {
            sequence.add(making.number, making.tiling);
        }
        if sequence.count == 0 {
            return Ok(());
        }
        let Some(workers) = workers else {
            return Err(needs_model());
        };
        let config = &workers.model().config;
        let fits = |m: &Making| m.record.coding == 0 || m.record.channels <= config.image_channels;
        if self.header.side != config.size || !made.iter().all(fits) {
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
                let chunk = Chunk {
                    payloads: found.map(Due::payload).collect(),
                    at: sequence.tiles(range),
                    chains,
                    counted: !self.header.has_places(),
                };
                keep_for_later(&chunk, made);
                if chunk.at.iter().any(|at| made[at.image].later.is_none()) {
                    jobs.push(chunk);
                }
            }
            let done = workers.each(jobs, |networks, chunk| {
                let (at, tiles) = chunk.read(networks)?;
                watch(at.iter().map(|at| at.tiling.extent(at.tile).bytes()).sum());
                Ok((at, tiles))
            })?;
            for (at, (tiles, times)) in done.into_iter().collect::<Result<Vec<_>>>()? {
                self.times += times;
                for (at, tile) in at.iter().zip(tiles) {
                    if made[at.image].later.is_some() {
                        continue;
                    }
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

    /// Reads the strips of a plane, or keeps them for later. All of them are taken from the file, whatever they are.
    fn plane(
        &mut self,
        shape: Shape,
        making: &mut Making,
        numbers: &mut dyn Iterator<Item = usize>,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<u8>> {
        let mut reader = Ok(plane::Reader::new(shape));
        for number in numbers.take(shape.strips()) {
            let place = [self.segments, making.number, number];
            let strip = self.due(Kind::Strip, place).payload();
            reader = match (reader, strip, &mut making.later) {
                (Err(error), ..) | (Ok(_), Err(error), _) => Err(error),
                (reader, Ok(strip), Some(later)) => {
                    later.strips.push(strip);
                    reader
                }
                (Ok(mut reader), Ok(strip), None) => {
                    let before = reader.samples.len();
                    reader.strip(&strip).map(|()| {
                        watch(reader.samples.len() - before);
                        reader
                    })
                }
            };
        }
        reader.map(|reader| reader.samples)
    }
}

/// Gives a chunk to the images that are made from it later.
fn keep_for_later(chunk: &Chunk, made: &mut [Making]) {
    let mut last = None;
    for at in &chunk.at {
        if last.replace(at.image) == Some(at.image) || made[at.image].later.is_none() {
            continue;
        }
        made[at.image].set(|making| {
            let whole: Result<Vec<_>> = chunk.payloads.iter().cloned().collect();
            whole?;
            if let Some(later) = &mut making.later {
                later.chunks.push(chunk.clone());
            }
            Ok(())
        });
    }
}

fn damaged() -> Error {
    Error::new("a block is damaged")
}

fn missing() -> Error {
    Error::new("the file is damaged or ends before it")
}

/// An image in the making.
struct Making {
    /// Its number in the segment.
    number: usize,
    record: Record,
    tiling: Tiling,
    colour: Vec<u8>,
    alpha: Option<Vec<u8>>,
    /// What it is made of, if it is not made now.
    later: Option<Later>,
    lost: Option<Error>,
}

/// Blocks of an image.
#[derive(Default)]
struct Later {
    chunks: Vec<Chunk>,
    /// Colours first, should prediction have them.
    strips: Vec<Vec<u8>>,
}

impl Making {
    fn new(number: usize, record: Record, side: usize, large: usize) -> Making {
        let samples = record.width * record.height * (record.channels + record.alpha as usize);
        Making {
            number,
            tiling: Tiling {
                width: record.width,
                height: record.height,
                channels: record.channels,
                side,
            },
            record,
            colour: Vec::new(),
            alpha: None,
            later: (samples > large).then(Later::default),
            lost: None,
        }
    }

    fn shape(&self, channels: usize) -> Shape {
        Shape {
            width: self.record.width,
            height: self.record.height,
            channels,
        }
    }

    /// Goes on unless something is lost already; a loss gives the memory back.
    fn set(&mut self, step: impl FnOnce(&mut Making) -> Result<()>) {
        if self.lost.is_none()
            && let Err(error) = step(self)
        {
            (self.colour, self.alpha, self.lost) = (Vec::new(), None, Some(error));
            self.later = self.later.take().map(|_| Later::default());
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

    fn finish(self) -> Outcome<Made> {
        let name = self.record.name.clone();
        let image = match (self.lost, self.later) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(Made::Whole(self.record.image(self.colour, self.alpha))),
            (None, Some(mut later)) => {
                let shape = Shape {
                    width: self.record.width,
                    height: self.record.height,
                    channels: self.record.channels,
                };
                let strips = if self.record.coding == 0 {
                    shape.strips()
                } else {
                    0
                };
                let alpha = later.strips.split_off(strips.min(later.strips.len()));
                Ok(Made::Large(Large {
                    record: self.record,
                    number: self.number,
                    tiling: self.tiling,
                    chunks: later.chunks,
                    colour: later.strips,
                    alpha,
                }))
            }
        };
        Outcome { name, image }
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
