//! PNG files of large images, a few rows at a time: memory does not grow with the image.
//!
//! All ways to filter are tried on each few rows, quickly, and the best one's rows are packed tightly; a PNG's filter may
//! change with every row.

use super::pack::{self, Matches, Packer, zlib};
use super::palette::{Entries, Palette};
use super::{Filter, before_samples, filter_rows, interleaved, kind_of, put};
use crate::record::Record;
use rayon::prelude::*;
use rrvq::error::{Error, Result};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Takes a few rows: samples of colours, and of transparency where there is any. It may have seen enough.
pub type Take<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<ControlFlow<()>> + 'a;

/// Gives a picture's rows from top to bottom, as often as it is asked to.
pub type Rows<'a> = dyn FnMut(&mut Take<'_>) -> Result<()> + 'a;

/// Bytes of a chunk of samples, about.
const CHUNK: usize = 1 << 20;

/// Writes a file of the image that `about` describes and whose samples `rows` gives.
pub fn write(about: &Record, rows: &mut Rows<'_>, out: &mut dyn Write) -> Result<()> {
    let palette = palette(about, rows)?;
    let entries: Option<Entries> = palette.as_ref().map(|found| found.entries(about.alpha));
    let step = about.channels + about.alpha as usize;
    let (depth, kind) = match &palette {
        Some(palette) => (palette.depth() as u8, 3),
        None => (8, kind_of(step)),
    };
    let head = before_samples(about, depth, kind, entries.as_ref());
    out.write_all(&head).map_err(unwritten)?;
    let (mut packer, mut packed) = (None, Vec::new());
    let mut palette = palette;
    let row_bytes = match &palette {
        Some(palette) => palette.row_bytes(about.width),
        None => about.width * step,
    };
    let mut above = vec![0; row_bytes];
    rows(&mut |colour, alpha| {
        let (rows, filtered);
        match &mut palette {
            Some(palette) => {
                let indices = palette.learn(colour, alpha).ok_or_else(changed)?;
                rows = palette.pack(about.width, &indices);
                filtered = filter_rows(&rows, 1, &above, Filter::Fixed(0));
            }
            None => {
                rows = interleaved(colour, alpha, about.channels);
                filtered = best(&rows, step, &above);
            }
        }
        // The first rows tell which matches are worth taking.
        let packer = packer.get_or_insert_with(|| Packer::new(pack::BEST, matches(&filtered)));
        packer.take(&filtered, &mut packed);
        if packed.len() >= CHUNK {
            put_samples(&mut packed, out)?;
        }
        above.copy_from_slice(&rows[rows.len() - row_bytes..]);
        Ok(ControlFlow::Continue(()))
    })?;
    if let Some(packer) = packer {
        packer.finish(&mut packed);
    }
    put_samples(&mut packed, out)?;
    let mut end = Vec::new();
    put(&mut end, b"IEND", &[]);
    out.write_all(&end).map_err(unwritten)
}

/// Writes what was packed as a chunk.
fn put_samples(packed: &mut Vec<u8>, out: &mut dyn Write) -> Result<()> {
    let mut chunk = Vec::with_capacity(packed.len() + 12);
    put(&mut chunk, b"IDAT", packed);
    packed.clear();
    out.write_all(&chunk).map_err(unwritten)
}

/// The kind of matches that makes these rows smallest.
fn matches(filtered: &[u8]) -> Matches {
    let tried = Matches::KINDS.into_par_iter();
    let tried = tried.min_by_key(|kind| zlib(filtered, pack::BEST, *kind).len());
    tried.unwrap_or(Matches::All)
}

pub fn unwritten(error: io::Error) -> Error {
    Error::io("write", "the PNG file", error)
}

fn changed() -> Error {
    Error::new("its colours were not the same when they were read again")
}

/// Its colours, where there are few; most pictures have too many within their first rows.
fn palette(about: &Record, rows: &mut Rows<'_>) -> Result<Option<Palette>> {
    if about.channels != 3 {
        return Ok(None);
    }
    let mut found = Some(Palette::default());
    rows(&mut |colour, alpha| {
        let known = found.as_mut().and_then(|found| found.learn(colour, alpha));
        if known.is_none() {
            found = None;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The rows filtered in the way that packs best.
fn best(rows: &[u8], step: usize, above: &[u8]) -> Vec<u8> {
    let ways = [0, 1, 2, 4].map(Filter::Fixed);
    let ways = ways.into_iter().chain([Filter::Smallest]);
    let tried = ways.collect::<Vec<_>>().into_par_iter().map(|filter| {
        let filtered = filter_rows(rows, step, above, filter);
        (zlib(&filtered, pack::FAST, Matches::All).len(), filtered)
    });
    let smallest = tried.min_by_key(|(len, _)| *len);
    smallest.map(|(_, filtered)| filtered).unwrap_or_default()
}
