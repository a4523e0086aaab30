//! Reading: whatever part of a file there is, to pictures.
//!
//! A list of images says which blocks have to come; those that do not are missing codes, and missing codes are filled in.
//! So there is one way to read a whole file and a cut one, and what is missing is an answer beside the picture.

use super::super::image::{Image, MOST_PIXELS};
use super::super::plane::{self, Shape};
use super::super::tiles::Tiling;
use super::super::workers::Workers;
use super::file::{Block, Header, Kind, Record, State, Stop, take_block, take_records};
use super::layout::{Layout, Unit, jobs};
use super::walk::{self, Arrived, Incoming};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

/// Reads a file's images one segment after another.
pub struct Reader<'a> {
    pub header: Header,
    /// What the first list's checksum covers besides the list.
    before: &'a [u8],
    rest: &'a [u8],
    /// Images that were listed so far, and whether there was a list at all.
    seen: usize,
    listed: bool,
    /// Nothing more can be found, and not because the file ends.
    lost: bool,
}

/// What became of an image.
pub struct Outcome {
    pub name: String,
    pub image: Result<Image>,
    /// Codes it should have, and codes that were there.
    pub codes: usize,
    pub present: usize,
    /// Rows whose transparency is missing; they are shown opaque.
    pub rows_without_alpha: usize,
    /// Whether anything is wrong besides an early end.
    pub damaged: bool,
}

impl Outcome {
    /// What is missing, in words; nothing for a whole image.
    pub fn missing(&self) -> Option<String> {
        let part = |have: usize, all: usize| 100 * have / all.max(1);
        if self.damaged {
            return Some("it is damaged".into());
        }
        let codes = (self.present < self.codes).then(|| {
            format!(
                "{} % of its codes are there",
                part(self.present, self.codes)
            )
        });
        let alpha = (self.rows_without_alpha > 0)
            .then(|| format!("{} rows have no transparency", self.rows_without_alpha));
        let both: Vec<String> = codes.into_iter().chain(alpha).collect();
        (!both.is_empty()).then(|| both.join(", "))
    }
}

/// A segment's images and what there is of them.
struct Segment<'a> {
    records: Vec<Record>,
    coded: Vec<Coded<'a>>,
    strips: Vec<Vec<&'a [u8]>>,
    damaged: Vec<bool>,
}

/// The next block, if it is of the kind that is due.
enum Due<'a> {
    There(Block<'a>),
    Missing,
}

impl<'a> Reader<'a> {
    pub fn new(file: &'a [u8]) -> Result<Reader<'a>> {
        let mut rest = file;
        let header = Header::take(&mut rest)?;
        Ok(Reader {
            header,
            before: &file[..file.len() - rest.len()],
            rest,
            seen: 0,
            listed: false,
            lost: false,
        })
    }

    /// Images that have not been listed yet.
    pub fn unlisted(&self) -> usize {
        self.header.images - self.seen
    }

    fn due(&mut self, wanted: Kind) -> Due<'a> {
        let mut rest = self.rest;
        match take_block(&mut rest, &[]) {
            Ok(block) if block.kind == wanted => {
                self.rest = rest;
                Due::There(block)
            }
            Err(Stop::Lost) => {
                self.lost = true;
                Due::Missing
            }
            _ => Due::Missing,
        }
    }

    /// The next list of images; none after the last. Nothing else can be read after an error.
    fn list(&mut self) -> Result<Option<Vec<Record>>> {
        if self.listed && self.seen == self.header.images {
            return Ok(None);
        }
        // Blocks that nobody asked for: what is before them was damaged.
        let block = loop {
            let before = if self.listed { &[] } else { self.before };
            match take_block(&mut self.rest, before) {
                Ok(block) if block.kind.lists() || !self.listed => break block,
                Ok(_) => continue,
                Err(Stop::End) => return Err(ends_early(self.unlisted())),
                Err(Stop::Lost) => return Err(Error::new("it cannot be followed to its end")),
            }
        };
        match block.state {
            State::Whole if block.kind.lists() => {}
            State::Cut => return Err(ends_early(self.unlisted())),
            _ => return Err(Error::new("a list of images is damaged")),
        }
        let records = take_records(block.kind, block.payload)?;
        let due = self.unlisted();
        if records.len() > due || (records.is_empty() && due > 0) {
            return Err(Error::new(format!(
                "{due} images should follow and {} do",
                records.len()
            )));
        }
        let sizes = || records.iter().map(|r| r.width * r.height);
        if sizes().sum::<usize>() > sizes().max().unwrap_or(0) + MOST_PIXELS {
            return Err(Error::new("a segment has more pixels than one may have"));
        }
        self.seen += records.len();
        self.listed = true;
        Ok(Some(records))
    }

    /// Collects the blocks of the next segment.
    fn parse(&mut self, config: &ModelConfig) -> Result<Option<Segment<'a>>> {
        let Some(records) = self.list()? else {
            return Ok(None);
        };
        let mut segment = Segment {
            coded: Vec::new(),
            strips: Vec::new(),
            damaged: Vec::new(),
            records,
        };
        for record in &segment.records {
            if record.dropped > config.layers() || record.channels > config.image_channels {
                return Err(Error::new("its images do not fit its model"));
            }
            let tiling = Tiling {
                width: record.width,
                height: record.height,
                channels: record.channels,
                side: config.size,
            };
            let layout = Layout::new(&positions(config), tiling.count(), record.dropped);
            let mut damaged = false;
            let mut blocks = Vec::new();
            for _ in 0..layout.steps.len() * layout.groups() {
                let Due::There(block) = self.due(Kind::Codes) else {
                    break;
                };
                damaged |= block.state == State::Damaged;
                blocks.push(match block.state {
                    State::Damaged => None,
                    _ => Some(Arrived {
                        bytes: block.payload,
                        len: block.len,
                    }),
                });
            }
            let mut strips = Vec::new();
            for _ in 0..alpha_strips(record) {
                match self.due(Kind::Strip) {
                    Due::There(block) => match block.state {
                        State::Whole => strips.push(block.payload),
                        state => {
                            damaged |= state == State::Damaged;
                            break;
                        }
                    },
                    Due::Missing => break,
                }
            }
            // Something follows that should not: it was not the file's end that took the rest.
            let whole = blocks.len() == layout.steps.len() * layout.groups()
                && strips.len() == alpha_strips(record);
            damaged |= self.lost || (!whole && !self.rest.is_empty() && self.rest.len() > 5);
            segment.coded.push(Coded {
                layout,
                tiling,
                blocks,
            });
            segment.strips.push(strips);
            segment.damaged.push(damaged);
        }
        Ok(Some(segment))
    }

    /// Goes through the whole file without showing anything: what is wrong with it, if anything is.
    pub fn check(mut self, config: &ModelConfig) -> Result<()> {
        while let Some(segment) = self.parse(config)? {
            for (number, record) in segment.records.iter().enumerate() {
                let coded = &segment.coded[number];
                let whole =
                    |block: &Option<Arrived<'_>>| block.is_some_and(|b| b.bytes.len() == b.len);
                let due = coded.layout.steps.len() * coded.layout.groups();
                let all = coded.blocks.len() == due
                    && coded.blocks.iter().all(whole)
                    && segment.strips[number].len() == alpha_strips(record);
                if segment.damaged[number] {
                    return Err(Error::new(format!("the image {} is damaged", record.name)));
                }
                if !all {
                    return Err(Error::new(format!(
                        "it ends within the image {}",
                        record.name
                    )));
                }
            }
        }
        self.end()
    }

    /// The images of the next segment, in their order; none after the last. An error ends the file.
    pub fn segment(
        &mut self,
        workers: &mut Workers,
        watch: &(dyn Fn(usize) + Sync),
    ) -> Result<Option<Vec<Outcome>>> {
        let config = workers.model().config.clone();
        let Some(segment) = self.parse(&config)? else {
            return Ok(None);
        };
        let shown = show(workers, &segment.coded, watch)?;
        let mut outcomes = Vec::with_capacity(segment.records.len());
        for (number, (record, shown)) in segment.records.into_iter().zip(shown).enumerate() {
            let coded = &segment.coded[number];
            let shape = Shape {
                width: record.width,
                height: record.height,
                channels: 1,
            };
            let alpha = match record.alpha {
                true => Some(opaque_below(shape, &segment.strips[number])),
                false => None,
            };
            let (alpha, rows, bad_alpha) = match alpha {
                Some((alpha, rows, bad)) => (Some(alpha), rows, bad),
                None => (None, 0, false),
            };
            let (present, bad_codes) = match &shown {
                Ok(picture) => (picture.present, picture.damaged),
                Err(_) => (0, false),
            };
            outcomes.push(Outcome {
                name: record.name.clone(),
                codes: coded.layout.codes * coded.layout.tiles,
                present,
                rows_without_alpha: rows,
                damaged: segment.damaged[number] || bad_codes || bad_alpha,
                image: shown.map(|picture| Image {
                    name: record.name,
                    width: record.width,
                    height: record.height,
                    colour: picture.colour,
                    alpha,
                    profile: record.profile,
                    orientation: record.orientation,
                }),
            });
        }
        Ok(Some(outcomes))
    }

    /// After the last segment: nothing may follow.
    pub fn end(&self) -> Result<()> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(Error::new("there are bytes after its end")),
        }
    }
}

fn ends_early(images: usize) -> Error {
    Error::new(format!(
        "it ends before the list of its {}images",
        match images {
            0 => String::new(),
            count => format!("{count} remaining "),
        }
    ))
}

fn alpha_strips(record: &Record) -> usize {
    let shape = Shape {
        width: record.width,
        height: record.height,
        channels: 1,
    };
    if record.alpha { shape.strips() } else { 0 }
}

/// Transparency as far as it is there, opaque from there on; how many rows that are, and whether a strip was broken.
fn opaque_below(shape: Shape, strips: &[&[u8]]) -> (Vec<u8>, usize, bool) {
    let mut reader = plane::Reader::new(shape);
    let mut broken = false;
    for strip in strips {
        let before = reader.samples.len();
        if reader.strip(strip).is_err() {
            reader.samples.truncate(before);
            broken = true;
            break;
        }
    }
    let mut alpha = reader.samples;
    let rows = shape.height - alpha.len() / shape.width;
    alpha.resize(shape.bytes(), u8::MAX);
    (alpha, rows, broken)
}

/// Positions of each layer in a tile, bottom first.
pub fn positions(config: &ModelConfig) -> Vec<usize> {
    config.sides().iter().map(|side| side * side).collect()
}

/// An image's codes, as far as they are there.
pub struct Coded<'a> {
    pub layout: Layout,
    pub tiling: Tiling,
    /// Step by step, group by group; what is missing at the end need not be listed.
    pub blocks: Vec<Option<Arrived<'a>>>,
}

impl<'a> Coded<'a> {
    fn arrived(&self, step: usize, group: usize) -> Option<Arrived<'a>> {
        let number = step * self.layout.groups() + group;
        self.blocks.get(number).copied().flatten()
    }
}

/// What is seen of them.
pub struct Picture {
    pub colour: Vec<u8>,
    pub present: usize,
    /// For each group, checksums of the codes of each layer.
    pub sums: Vec<Vec<u32>>,
    pub damaged: bool,
}

/// Jobs at hand for each worker: enough to keep all busy, few enough to be pasted before memory grows.
const JOBS_EACH: usize = 4;

/// Pictures of images. Only memory that cannot be had fails one of them.
pub fn show(
    workers: &mut Workers,
    images: &[Coded<'_>],
    watch: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Result<Picture>>> {
    let model_channels = workers.model().config.image_channels;
    let mut pictures: Vec<Result<Picture>> = images.iter().map(Picture::new).collect();
    let known = |(number, coded): (usize, &Coded<'_>)| {
        let any = coded.arrived(0, 0).is_some();
        any.then(|| (number, coded.layout.clone()))
    };
    let mut waiting = jobs(images.iter().enumerate().filter_map(known)).into_iter();
    loop {
        let round: Vec<_> = waiting.by_ref().take(JOBS_EACH * workers.most()).collect();
        if round.is_empty() {
            break;
        }
        let done = workers.each(round, |networks, units: Vec<Unit>| {
            let incoming: Vec<Incoming<'_>> = units
                .iter()
                .map(|unit| {
                    let coded = &images[unit.image];
                    let steps = coded.layout.steps.iter().cloned().enumerate();
                    Incoming {
                        tiles: unit.tiles,
                        steps: steps
                            .map(|(number, step)| (step, coded.arrived(number, unit.group)))
                            .collect(),
                    }
                })
                .collect();
            let seen = walk::read(networks, &incoming)?;
            Ok((units, seen))
        })?;
        for (units, seen) in done.into_iter().collect::<Result<Vec<_>>>()? {
            for (unit, seen) in units.into_iter().zip(seen) {
                let coded = &images[unit.image];
                let Ok(picture) = &mut pictures[unit.image] else {
                    continue;
                };
                for (tile, square) in coded.layout.group(unit.group).zip(&seen.squares) {
                    picture.paste(&coded.tiling, tile, square, model_channels);
                    watch(coded.tiling.extent(tile).bytes());
                }
                picture.present += seen.present;
                picture.sums.push(seen.sums);
                picture.damaged |= seen.damaged;
            }
        }
    }
    // Without any codes all tiles are alike.
    let blank = |coded: &Coded<'_>| coded.arrived(0, 0).is_none();
    if images.iter().any(blank) {
        let one = Incoming {
            tiles: 1,
            steps: Vec::new(),
        };
        let seen = workers.each(vec![one], |networks, one| walk::read(networks, &[one]))?;
        let seen = seen.into_iter().collect::<Result<Vec<_>>>()?;
        let square = seen.first().and_then(|s| s.first()).map(|s| &s.squares[0]);
        for (coded, picture) in images.iter().zip(&mut pictures) {
            if let (true, Ok(picture), Some(square)) = (blank(coded), picture, square) {
                for tile in 0..coded.tiling.count() {
                    picture.paste(&coded.tiling, tile, square, model_channels);
                }
            }
        }
    }
    Ok(pictures)
}

impl Picture {
    fn new(coded: &Coded<'_>) -> Result<Picture> {
        let Tiling {
            width,
            height,
            channels,
            ..
        } = coded.tiling;
        let bytes = width * height * channels;
        let mut colour = Vec::new();
        let full = |_| Error::new(format!("there is no memory for its {bytes} bytes"));
        colour.try_reserve_exact(bytes).map_err(full)?;
        colour.resize(bytes, 0);
        Ok(Picture {
            colour,
            present: 0,
            sums: Vec::new(),
            damaged: false,
        })
    }

    /// Puts what belongs to the image into its place; grey is the mean of the model's channels.
    fn paste(&mut self, tiling: &Tiling, tile: usize, square: &[u8], model_channels: usize) {
        let extent = tiling.extent(tile);
        let mut bytes = Vec::with_capacity(extent.bytes());
        for y in 0..extent.height {
            let row = &square[y * tiling.side * model_channels..];
            for pixel in row.chunks_exact(model_channels).take(extent.width) {
                match extent.channels == model_channels {
                    true => bytes.extend_from_slice(pixel),
                    false => {
                        let sum: usize = pixel.iter().map(|byte| *byte as usize).sum();
                        bytes.push(((sum + model_channels / 2) / model_channels) as u8);
                    }
                }
            }
        }
        tiling.paste(&mut self.colour, tile, &bytes);
    }
}
