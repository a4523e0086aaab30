//! The pages a column is written in: values as they are, or their numbers in a dictionary.
//!
//! A page is packed as a whole. Where values may be missing, it first says for each row how deep its value goes; only
//! rows of full depth have one. Depths and dictionary numbers share one way of writing: runs of one number, and groups
//! of eight numbers of a few bits each.

use super::snappy;
use super::thrift::{self, varint};
use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::Read;

/// Kinds of pages.
const DATA: usize = 0;
const DICTIONARY: usize = 2;
const DATA_2: usize = 3;
/// Ways to write values.
const PLAIN: usize = 0;
const OLD_DICTIONARY: usize = 2;
const IN_DICTIONARY: usize = 8;
/// Ways to pack a page.
const NOT_PACKED: usize = 0;
const SNAPPY: usize = 1;
const GZIP: usize = 2;
const CODECS: [&str; 8] = [
    "uncompressed",
    "snappy",
    "gzip",
    "lzo",
    "brotli",
    "lz4",
    "zstd",
    "lz4-raw",
];

/// What is wrong, and at which byte of a column's piece of the file.
#[derive(Debug)]
pub(super) struct Problem {
    at: usize,
    what: String,
}

impl Problem {
    fn new(at: usize, what: impl Into<String>) -> Problem {
        let what = what.into();
        Problem { at, what }
    }

    /// The sentence, the piece beginning at byte `start` of the file.
    pub fn tell(self, start: usize) -> String {
        format!("the page at byte {} {}", start + self.at, self.what)
    }
}

/// Refuses what cannot be unpacked here.
pub(super) fn check_codec(codec: usize) -> Result<(), String> {
    match codec {
        NOT_PACKED | SNAPPY | GZIP => Ok(()),
        other => Err(format!(
            "its images are compressed with {}; expected snappy, gzip or no compression, so write it anew with one of \
             these",
            CODECS.get(other).unwrap_or(&"something unknown")
        )),
    }
}

/// The values of the first `rows` rows of a piece; `depth` parents of each, itself counted, may be missing.
pub(super) fn values(
    piece: &[u8],
    codec: usize,
    depth: usize,
    rows: usize,
) -> Result<Vec<Option<Vec<u8>>>, Problem> {
    let mut found = Vec::new();
    let mut dictionary: Option<Vec<Vec<u8>>> = None;
    let mut at = 0;
    while found.len() < rows {
        let page = at;
        let unlike = |what: &str| Problem::new(page, format!("has no {what}"));
        let header = thrift::fields(piece, &mut at)
            .map_err(|at| Problem::new(page, format!("is damaged {} bytes in", at - page)))?;
        let size = header.count(2).ok_or_else(|| unlike("size"))?;
        let packed = header.count(3).ok_or_else(|| unlike("packed size"))?;
        let body = piece.get(at..).and_then(|rest| rest.get(..packed));
        let body = body.ok_or_else(|| Problem::new(page, "goes beyond its column"))?;
        at += packed;
        let damaged = |inside: usize| {
            Problem::new(
                page,
                format!("is damaged near byte {inside} of its content"),
            )
        };
        match header.count(1) {
            Some(DICTIONARY) => {
                let about = header.field(7);
                let count = about.and_then(|about| about.count(1));
                let content = unpack(body, codec, size).map_err(damaged)?;
                let entries = plain(&content, &mut 0, count.ok_or_else(|| unlike("count"))?);
                dictionary = Some(entries.map_err(damaged)?);
            }
            Some(DATA) => {
                let about = header.field(5).ok_or_else(|| unlike("header"))?;
                let count = about.count(1).ok_or_else(|| unlike("count"))?;
                let content = unpack(body, codec, size).map_err(damaged)?;
                let mut inside = 0;
                let levels = match depth {
                    0 => &[][..],
                    _ => {
                        let len = number(&content, &mut inside).map_err(damaged)?;
                        take(&content, &mut inside, len).map_err(damaged)?
                    }
                };
                let data = Data {
                    encoding: about.count(2),
                    count,
                    levels,
                    depth,
                };
                found.extend(data.read(&content[inside..], dictionary.as_deref(), page)?);
            }
            Some(DATA_2) => {
                let about = header.field(8).ok_or_else(|| unlike("header"))?;
                let count = about.count(1).ok_or_else(|| unlike("count"))?;
                let [depths, repeats] = [5, 6].map(|field| about.count(field).unwrap_or(0));
                // Depths are never packed in this form.
                let start = repeats.saturating_add(depths);
                let levels = body.get(repeats..start).ok_or_else(|| damaged(0))?;
                let codec = match about.truth(7) {
                    Some(false) => NOT_PACKED,
                    _ => codec,
                };
                let size = size.checked_sub(start).ok_or_else(|| damaged(0))?;
                let content = unpack(&body[start..], codec, size).map_err(damaged)?;
                let data = Data {
                    encoding: about.count(4),
                    count,
                    levels,
                    depth,
                };
                found.extend(data.read(&content, dictionary.as_deref(), page)?);
            }
            // An index, or what a later version may bring.
            _ => {}
        }
    }
    match found.len() == rows {
        true => Ok(found),
        false => Err(Problem::new(at, "ends a column of too many values")),
    }
}

/// A page of values, once it is unpacked.
struct Data<'a> {
    encoding: Option<usize>,
    count: usize,
    levels: &'a [u8],
    depth: usize,
}

impl Data<'_> {
    fn read(
        &self,
        content: &[u8],
        dictionary: Option<&[Vec<u8>]>,
        page: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, Problem> {
        let damaged =
            |at: usize| Problem::new(page, format!("is damaged near byte {at} of its content"));
        let whole: Vec<bool> = match self.depth {
            0 => vec![true; self.count.min(1 << 28)],
            depth => {
                let width = usize::BITS - depth.leading_zeros();
                let levels = hybrid(self.levels, width, self.count).map_err(damaged)?;
                levels.iter().map(|level| *level == depth).collect()
            }
        };
        let present = whole.iter().filter(|whole| **whole).count();
        let mut values = match (self.encoding, dictionary) {
            (Some(PLAIN), _) => plain(content, &mut 0, present).map_err(damaged)?,
            (Some(OLD_DICTIONARY | IN_DICTIONARY), Some(dictionary)) => {
                let (width, numbers) = content.split_first().ok_or_else(|| damaged(0))?;
                let numbers = hybrid(numbers, u32::from(*width), present).map_err(damaged)?;
                let value = |number: usize| dictionary.get(number).cloned();
                let values: Option<Vec<Vec<u8>>> = numbers.into_iter().map(value).collect();
                values.ok_or_else(|| damaged(0))?
            }
            _ => {
                return Err(Problem::new(
                    page,
                    "writes its values in a way that is not supported; write the file anew with pyarrow's defaults",
                ));
            }
        }
        .into_iter();
        Ok(whole
            .into_iter()
            .map(|whole| whole.then(|| values.next()).flatten())
            .collect())
    }
}

fn unpack(packed: &[u8], codec: usize, size: usize) -> Result<Cow<'_, [u8]>, usize> {
    match codec {
        SNAPPY => snappy::unpack(packed, size).map(Cow::Owned),
        GZIP => {
            let mut out = Vec::new();
            let read = MultiGzDecoder::new(packed)
                .take(size as u64 + 1)
                .read_to_end(&mut out);
            match read.is_ok() && out.len() == size {
                true => Ok(Cow::Owned(out)),
                false => Err(0),
            }
        }
        _ if packed.len() == size => Ok(Cow::Borrowed(packed)),
        _ => Err(packed.len()),
    }
}

/// Values one after the other, each behind its length.
fn plain(content: &[u8], at: &mut usize, count: usize) -> Result<Vec<Vec<u8>>, usize> {
    let mut found = Vec::new();
    for _ in 0..count {
        let len = number(content, at)?;
        found.push(take(content, at, len)?.to_vec());
    }
    Ok(found)
}

/// `count` numbers of `width` bits, in runs and in groups of eight.
fn hybrid(bytes: &[u8], width: u32, count: usize) -> Result<Vec<usize>, usize> {
    if width > 32 {
        return Err(0);
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while found.len() < count {
        let start = at;
        let head = varint(bytes, &mut at)?;
        let many = usize::try_from(head >> 1).map_err(|_| start)?;
        let left = count - found.len();
        if head & 1 == 0 {
            let value = take(bytes, &mut at, width.div_ceil(8) as usize)?;
            let value = value.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
            found.extend(std::iter::repeat_n(value, many.min(left)));
        } else {
            let len = many.checked_mul(width as usize).ok_or(start)?;
            let group = take(bytes, &mut at, len)?;
            let (mut bits, mut held) = (0u64, 0);
            let mut group = group.iter();
            for _ in 0..many.saturating_mul(8).min(left) {
                while held < width {
                    bits |= u64::from(*group.next().ok_or(start)?) << held;
                    held += 8;
                }
                found.push((bits & ((1 << width) - 1)) as usize);
                bits >>= width;
                held -= width;
            }
        }
        if many == 0 {
            return Err(start);
        }
    }
    Ok(found)
}

fn number(bytes: &[u8], at: &mut usize) -> Result<usize, usize> {
    let four = take(bytes, at, 4)?;
    Ok(u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, count: usize) -> Result<&'a [u8], usize> {
    let taken = bytes.get(*at..).and_then(|rest| rest.get(..count));
    let taken = taken.ok_or(*at)?;
    *at += count;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_groups_of_numbers_are_read() {
        // The example of the format's own description: 0 to 7 in three bits each.
        let group = [3, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(hybrid(&group, 3, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(hybrid(&group, 3, 5).unwrap(), [0, 1, 2, 3, 4]);
        let run = [&[10, 2, 4, 1][..], &group].concat();
        assert_eq!(hybrid(&run, 3, 10).unwrap(), [2, 2, 2, 2, 2, 1, 1, 0, 1, 2]);
        assert_eq!(hybrid(&[8, 0x34, 0x12], 13, 3).unwrap(), [0x1234; 3]);
        assert_eq!(hybrid(&[6], 0, 3).unwrap(), [0; 3]);
        assert_eq!(hybrid(&group[..3], 3, 8), Err(1));
        assert_eq!(hybrid(&[0, 0], 1, 1), Err(0), "a run of none");
        assert_eq!(hybrid(&[2, 0], 99, 1), Err(0));
    }
}
