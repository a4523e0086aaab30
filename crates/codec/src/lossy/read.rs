//! Reading: whatever part of a file there is, to pictures.
//!
//! A list of images says which blocks have to come; those that do not are missing codes, and missing codes are filled in.
//! So there is one way to read a whole file and a cut one, and what is missing is an answer beside the picture.

use super::super::image::Image;
use super::super::plane::{self, Shape};
use super::super::record::{Record, take_number, take_records};
use super::super::tiles::Tiling;
use super::super::workers::Workers;
use super::file::{Block, Header, Kind, State, Stop, take_block};
use super::layout::{Layout, Order, group, positions};
use super::show::{Coded, show};
use super::walk::Arrived;
use rrvq::config::ModelConfig;
use rrvq::error::{Error, Result};
use rrvq::limits;
use std::ffi::OsString;

/// Reads a file's images one segment after another.
pub struct Reader<'a> {
    pub header: Header,
    /// What the first list's checksum covers besides the list.
    before: &'a [u8],
    rest: &'a [u8],
    /// Images that were listed so far, and whether there was a list at all.
    seen: usize,
    listed: bool,
    /// Whether an error was that the file ends here, and nothing worse.
    cut_off: bool,
}

/// What became of an image.
pub struct Outcome {
    pub name: OsString,
    pub image: Result<Image>,
    /// Codes it should have, and codes that were there.
    pub codes: usize,
    pub present: usize,
    /// Rows whose transparency is missing; they are shown opaque.
    pub rows_without_alpha: usize,
    /// Whether the file ends in its codes, so that the last of them could not be checked.
    pub unchecked: bool,
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
        match both.is_empty() {
            true => self.unchecked.then(|| "its checksum is missing".into()),
            false => Some(both.join(", ")),
        }
    }
}

/// A segment's images and what there is of them.
struct Segment<'a> {
    /// Side of the tiles.
    side: usize,
    records: Vec<Record>,
    coded: Vec<Coded<'a>>,
    strips: Vec<Vec<&'a [u8]>>,
    damaged: Vec<bool>,
    /// Whether the file ends in one of its blocks, whose checksum nobody knows.
    unchecked: Vec<bool>,
}

/// The next block, if it is of the kind that is due.
enum Due<'a> {
    There(Block<'a>),
    /// The file ends here.
    Ended,
    /// Something else is here, or nothing that can be followed.
    Other,
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
            cut_off: false,
        })
    }

    /// Whether the last error was that the file ends too early, so that a first part of it is all that is wrong.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    fn ends_early(&mut self) -> Error {
        self.cut_off = true;
        let count = match self.unlisted() {
            0 => String::new(),
            count => format!("{count} remaining "),
        };
        Error::new(format!("it ends before the list of its {count}images"))
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
            Err(Stop::End) => Due::Ended,
            _ => Due::Other,
        }
    }

    /// The next list of images, and the side of their tiles where the list says it; none after the last. Nothing else can be
    /// read after an error.
    fn list(&mut self) -> Result<Option<(Option<usize>, Vec<Record>)>> {
        if self.listed && self.seen == self.header.images {
            return Ok(None);
        }
        // Unexpected blocks: what is before them was damaged.
        let block = loop {
            let before = if self.listed { &[] } else { self.before };
            match take_block(&mut self.rest, before) {
                Ok(block) if block.kind.lists() || !self.listed => break block,
                Ok(_) => continue,
                Err(Stop::End) => return Err(self.ends_early()),
                Err(Stop::Lost) => return Err(Error::new("it cannot be followed to its end")),
            }
        };
        match block.state {
            State::Whole if block.kind.lists() => {}
            State::Cut => return Err(self.ends_early()),
            _ => return Err(Error::new("a list of images is damaged")),
        }
        let mut payload = block.payload;
        let side = match self.header.order {
            Order::Context => {
                let side = take_number(&mut payload);
                Some(side.ok_or_else(|| Error::new("a list of images is damaged"))?)
            }
            Order::Steps | Order::Layers => None,
        };
        let records = take_records(block.kind == Kind::PackedList, payload)?;
        let due = self.unlisted();
        if records.len() > due || (records.is_empty() && due > 0) {
            return Err(Error::new(format!(
                "{due} images should follow and {} do",
                records.len()
            )));
        }
        let pixels = records.iter().map(|r| r.width * r.height);
        let pixels = pixels.fold(0, usize::saturating_add);
        limits::check_pixels_in_all(pixels).map_err(Error::new)?;
        self.seen += records.len();
        self.listed = true;
        Ok(Some((side, records)))
    }

    /// Collects the blocks of the next segment.
    fn parse(&mut self, config: &ModelConfig) -> Result<Option<Segment<'a>>> {
        let Some((side, records)) = self.list()? else {
            return Ok(None);
        };
        let side = side.unwrap_or(config.size);
        let positions = positions(config, side).ok_or_else(|| {
            let own = config.size;
            Error::new(format!(
                "its tiles have the side {side}, which a model of images of side {own} cannot take; fetch it again"
            ))
        })?;
        let mut segment = Segment {
            side,
            coded: Vec::new(),
            strips: Vec::new(),
            damaged: Vec::new(),
            unchecked: Vec::new(),
            records,
        };
        for record in &segment.records {
            if record.coding > config.layers() || record.channels > config.image_channels {
                return Err(Error::new("its images do not fit its model"));
            }
            let tiling = Tiling {
                width: record.width,
                height: record.height,
                channels: record.channels,
                side,
            };
            let layout = Layout::new(
                &positions,
                tiling.count(),
                group(config.size, side),
                record.coding,
                self.header.order,
            );
            let (mut damaged, mut unchecked) = (false, false);
            let mut blocks = Vec::new();
            for _ in 0..layout.steps.len() * layout.groups() {
                match self.due(Kind::Codes) {
                    Due::There(block) => {
                        damaged |= block.state == State::Damaged;
                        unchecked |= block.state == State::Cut;
                        let arrived = Arrived {
                            bytes: block.payload,
                            len: block.len,
                        };
                        blocks.push((block.state != State::Damaged).then_some(arrived));
                    }
                    Due::Ended => break,
                    Due::Other => {
                        damaged = true;
                        break;
                    }
                }
            }
            let mut strips = Vec::new();
            for _ in 0..alpha_strips(record) {
                match self.due(Kind::Strip) {
                    Due::There(block) if block.state == State::Whole => strips.push(block.payload),
                    Due::There(block) => {
                        damaged |= block.state == State::Damaged;
                        break;
                    }
                    Due::Ended => break,
                    Due::Other => {
                        damaged = true;
                        break;
                    }
                }
            }
            segment.coded.push(Coded {
                layout,
                tiling,
                blocks,
            });
            segment.strips.push(strips);
            segment.damaged.push(damaged);
            segment.unchecked.push(unchecked);
        }
        Ok(Some(segment))
    }

    /// The records of all images, without showing any, and the side of their tiles where the file says it; before version 5
    /// it is that of the model's images.
    pub fn records(mut self) -> Result<Vec<(Record, Option<usize>)>> {
        let mut records = Vec::new();
        while let Some((side, more)) = self.list()? {
            records.extend(more.into_iter().map(|record| (record, side)));
        }
        Ok(records)
    }

    /// Goes through the whole file without showing anything: what is wrong with it, if anything is.
    pub fn check(mut self, config: &ModelConfig) -> Result<()> {
        while let Some(segment) = self.parse(config)? {
            for (number, record) in segment.records.iter().enumerate() {
                let coded = &segment.coded[number];
                let all = (coded.whole() || coded.due() == 0)
                    && segment.strips[number].len() == alpha_strips(record)
                    && !segment.unchecked[number];
                if segment.damaged[number] {
                    return Err(Error::new(format!(
                        "the image {} is damaged",
                        record.name.display()
                    )));
                }
                if !all {
                    return Err(Error::new(format!(
                        "it ends within the image {}",
                        record.name.display()
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
        let shown = show(workers.at_side(segment.side)?, &segment.coded, watch)?;
        let mut outcomes = Vec::with_capacity(segment.records.len());
        for (number, (record, shown)) in segment.records.into_iter().zip(shown).enumerate() {
            let coded = &segment.coded[number];
            let shape = Shape {
                width: record.width,
                height: record.height,
                channels: 1,
            };
            // Where no colour is shown, transparency would be room made out of nothing.
            let alpha = match record.alpha && shown.is_ok() {
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
                unchecked: segment.unchecked[number],
                damaged: segment.damaged[number] || bad_codes || bad_alpha,
                image: shown.map(|picture| record.image(picture.colour, alpha)),
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
