//! The small file: the container's ideas in as few bytes as they can do with.
//!
//! A picture may take two hundred bytes, so what is around it must not take a hundred. Numbers have as many bytes as they
//! need, the model goes by the first six bytes of its identity (the digits people see), the header has no checksum of
//! its own but shares that of the first list of images, and there is no end: the list says what has to come.
//!
//! ```text
//! magic · identity · images in the file · (list · for each image: codes … · strips …) …
//! ```
//!
//! Files are cut off, on purpose or not: a block whose end is missing still gives what there is of it.

use super::super::container::{LONGEST_RECORDS, MAGIC, MOST_IMAGES, check_name};
use super::super::identity::Identity;
use super::super::image::{Image, LONGEST_PROFILE, check_size};
use rrvq::error::{Error, Result};
use std::io::{Read, Write};

/// The first bytes of every file of ours, then the number of the form.
pub const START: [u8; 6] = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], MAGIC[4], 2];
/// Bytes of the identity that are kept.
pub const SHORT_IDENTITY: usize = 6;
const LONGEST_BLOCK: usize = 1 << 28;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A list of images, plain or packed by DEFLATE.
    List,
    PackedList,
    Codes,
    Strip,
}

const KINDS: [(Kind, u8); 4] = [
    (Kind::List, b'I'),
    (Kind::PackedList, b'i'),
    (Kind::Codes, b'C'),
    (Kind::Strip, b'S'),
];

impl Kind {
    pub fn lists(self) -> bool {
        matches!(self, Kind::List | Kind::PackedList)
    }
}

/// A number in as few bytes as it needs: seven bits each, lowest first, the eighth says that more follow.
pub fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= ((first & 127) as usize) << shift;
        if *first < 128 {
            // One way to write a number, and only one.
            return (*first > 0 || shift == 0).then_some(number);
        }
    }
    None
}

/// Writes a block; `before` is what its checksum covers besides. Gives its length.
pub fn put_block(out: &mut Vec<u8>, before: &[u8], kind: Kind, payload: &[u8]) {
    let start = out.len();
    out.push(KINDS.iter().find(|(k, _)| *k == kind).map_or(0, |k| k.1));
    put_number(out, payload.len());
    out.extend(payload);
    let mut crc = flate2::Crc::new();
    crc.update(before);
    crc.update(&out[start..]);
    out.extend(crc.sum().to_le_bytes());
}

/// Bytes of a block with so long a payload, without the payload.
pub fn overhead(payload: usize) -> usize {
    let mut number = Vec::new();
    put_number(&mut number, payload);
    1 + number.len() + 4
}

/// A block as it was found.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub kind: Kind,
    /// What is there of the payload, and how long it should be.
    pub payload: &'a [u8],
    pub len: usize,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Whole,
    /// The file ends in it.
    Cut,
    /// The checksum is wrong.
    Damaged,
}

/// Why no block could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The file ends here.
    End,
    /// What is here is no block, and nothing after it can be found.
    Lost,
}

/// Takes the next block from the bytes; `before` is what its checksum covers besides.
pub fn take_block<'a>(bytes: &mut &'a [u8], before: &[u8]) -> std::result::Result<Block<'a>, Stop> {
    let mut rest = *bytes;
    let (letter, after) = rest.split_first().ok_or(Stop::End)?;
    rest = after;
    let known = KINDS.iter().find(|(_, l)| l == letter);
    let (kind, _) = *known.ok_or(Stop::Lost)?;
    let here = rest;
    let Some(len) = take_number(&mut rest) else {
        // A number that the file's end cuts off has nothing but "more follows" in it.
        let cut = here.len() < 5 && here.iter().all(|byte| *byte >= 128);
        return Err(if cut { Stop::End } else { Stop::Lost });
    };
    if len > LONGEST_BLOCK {
        return Err(Stop::Lost);
    }
    let found = rest.split_at_checked(len);
    let whole = found.and_then(|(payload, rest)| Some((payload, rest.split_first_chunk::<4>()?)));
    let Some((payload, (sum, after))) = whole else {
        *bytes = &[];
        return Ok(Block {
            kind,
            payload: &rest[..len.min(rest.len())],
            len,
            state: State::Cut,
        });
    };
    let mut crc = flate2::Crc::new();
    crc.update(before);
    crc.update(&bytes[..bytes.len() - after.len() - 4]);
    let state = match crc.sum().to_le_bytes() == *sum {
        true => State::Whole,
        false => State::Damaged,
    };
    *bytes = after;
    Ok(Block {
        kind,
        payload,
        len,
        state,
    })
}

/// What a file says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub identity: [u8; SHORT_IDENTITY],
    pub images: usize,
}

impl Header {
    pub fn new(identity: Identity, images: usize) -> Header {
        let mut short = [0; SHORT_IDENTITY];
        short.copy_from_slice(&identity.0[..SHORT_IDENTITY]);
        Header {
            identity: short,
            images,
        }
    }

    pub fn put(&self) -> Vec<u8> {
        let mut out = START.to_vec();
        out.extend(self.identity);
        put_number(&mut out, self.images);
        out
    }

    pub fn take(bytes: &mut &[u8]) -> Result<Header> {
        let rest = bytes
            .strip_prefix(&START)
            .ok_or_else(|| Error::new("it is not a file that `rrvq compress --lossy` wrote"))?;
        let short = || Error::new("it ends within its first bytes, before anything can be shown");
        let (identity, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
        let images = take_number(&mut rest).ok_or_else(short)?;
        *bytes = rest;
        Ok(Header {
            identity: *identity,
            images,
        })
    }

    pub fn fits(&self, identity: Identity) -> bool {
        identity.0.starts_with(&self.identity)
    }
}

/// Everything about an image but its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub width: usize,
    pub height: usize,
    /// 1 or 3.
    pub channels: usize,
    pub alpha: bool,
    pub orientation: u8,
    /// Layers that are left out, from the bottom.
    pub dropped: usize,
    pub profile: Vec<u8>,
}

const COLOUR: u8 = 1;
const ALPHA: u8 = 2;
const PROFILE: u8 = 4;

impl Record {
    pub fn of(image: &Image, dropped: usize) -> Record {
        Record {
            name: image.name.clone(),
            width: image.width,
            height: image.height,
            channels: image.channels(),
            alpha: image.alpha.is_some(),
            orientation: image.orientation,
            dropped,
            profile: image.profile.clone(),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.name.len());
        out.extend(self.name.as_bytes());
        put_number(out, self.width);
        put_number(out, self.height);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        out.push(
            flag(self.channels == 3, COLOUR)
                | flag(self.alpha, ALPHA)
                | flag(!self.profile.is_empty(), PROFILE)
                | (self.orientation - 1) << 3,
        );
        put_number(out, self.dropped);
        if !self.profile.is_empty() {
            put_number(out, self.profile.len());
            out.extend(&self.profile);
        }
    }

    fn take(bytes: &mut &[u8]) -> Result<Record> {
        let wrong = || Error::new("a list of images is not one");
        let number = |bytes: &mut &[u8]| take_number(bytes).ok_or_else(wrong);
        let text = |bytes: &mut &[u8], most: usize| {
            let len = take_number(bytes).filter(|len| *len <= most);
            let (text, rest) = len
                .and_then(|len| bytes.split_at_checked(len))
                .ok_or_else(wrong)?;
            *bytes = rest;
            Ok::<Vec<u8>, Error>(text.to_vec())
        };
        let name = String::from_utf8(text(bytes, 1 << 10)?).unwrap_or_default();
        check_name(&name)?;
        let (width, height) = (number(bytes)?, number(bytes)?);
        check_size(width, height).map_err(|said| Error::new(format!("{said} (image {name})")))?;
        let (flags, rest) = bytes.split_first().ok_or_else(wrong)?;
        *bytes = rest;
        let dropped = number(bytes)?;
        if *flags >= 64 {
            return Err(wrong());
        }
        let profile = match flags & PROFILE {
            0 => Vec::new(),
            _ => text(bytes, LONGEST_PROFILE)?,
        };
        Ok(Record {
            name,
            width,
            height,
            channels: if flags & COLOUR == 0 { 1 } else { 3 },
            alpha: flags & ALPHA != 0,
            orientation: 1 + (flags >> 3),
            dropped,
            profile,
        })
    }
}

/// A list of images as a block, in whichever form is shorter.
pub fn put_records(records: &[Record]) -> Result<(Kind, Vec<u8>)> {
    let mut plain = Vec::new();
    records.iter().for_each(|record| record.put(&mut plain));
    let mut list = Vec::new();
    put_number(&mut list, records.len());
    let mut packed = list.clone();
    put_number(&mut packed, plain.len());
    let mut packer = flate2::write::DeflateEncoder::new(packed, flate2::Compression::best());
    let packed = packer
        .write_all(&plain)
        .and_then(|()| packer.finish())
        .map_err(|error| Error::new(format!("cannot pack the list of images: {error}")))?;
    list.extend(plain);
    Ok(match packed.len() < list.len() {
        true => (Kind::PackedList, packed),
        false => (Kind::List, list),
    })
}

pub fn take_records(kind: Kind, payload: &[u8]) -> Result<Vec<Record>> {
    let wrong = || Error::new("a list of images cannot be unpacked");
    let mut rest = payload;
    let count = take_number(&mut rest).filter(|count| *count <= MOST_IMAGES);
    let count = count.ok_or_else(wrong)?;
    let mut unpacked = Vec::new();
    if kind == Kind::PackedList {
        let len = take_number(&mut rest).filter(|len| *len <= LONGEST_RECORDS);
        let len = len.ok_or_else(wrong)?;
        let unpacker = flate2::read::DeflateDecoder::new(rest);
        let done = unpacker.take(len as u64 + 1).read_to_end(&mut unpacked);
        if done.is_err() || unpacked.len() != len {
            return Err(wrong());
        }
        rest = &unpacked;
    }
    let records = (0..count)
        .map(|_| Record::take(&mut rest))
        .collect::<Result<_>>()?;
    match rest.is_empty() {
        true => Ok(records),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for number in [0, 1, 127, 128, 300, 65536, u32::MAX as usize] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(take_number(&mut &bytes[..]), Some(number));
            for len in 0..bytes.len() {
                assert_eq!(take_number(&mut &bytes[..len]), None);
            }
        }
        assert_eq!(take_number(&mut &[128, 0][..]), None);
        assert_eq!(take_number(&mut &[255; 9][..]), None);
    }

    #[test]
    fn blocks_notice_flipped_bits_and_give_what_is_left_of_a_cut() {
        let mut file = Vec::new();
        put_block(&mut file, b"before", Kind::Codes, b"some bytes");
        assert_eq!(file.len(), 10 + overhead(10));
        let whole = |file: &[u8], before: &[u8]| {
            let block = take_block(&mut &file[..], before);
            block.is_ok_and(|b| b.state == State::Whole && b.payload == b"some bytes")
        };
        assert!(whole(&file, b"before") && !whole(&file, b"bef0re"));
        for bit in 0..8 * file.len() {
            let mut bent = file.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!whole(&bent, b"before"), "{bit}");
        }
        for len in 0..file.len() {
            match take_block(&mut &file[..len], b"before") {
                Ok(block) => {
                    assert_eq!((block.state, block.len), (State::Cut, 10));
                    assert_eq!(block.payload, &b"some bytes"[..(len - 2).min(10)]);
                }
                Err(stop) => assert!(stop == Stop::End && len < 2),
            }
        }
    }

    #[test]
    fn records_come_back_and_lies_are_refused() {
        let record = Record {
            name: "a".into(),
            width: 3,
            height: 65536,
            channels: 3,
            alpha: true,
            orientation: 8,
            dropped: 2,
            profile: vec![7; 1000],
        };
        let small = Record {
            profile: Vec::new(),
            ..record.clone()
        };
        let both = [record.clone(), small.clone()];
        for records in [&[], &both[1..], &both] {
            let (kind, payload) = put_records(records).unwrap();
            assert_eq!(take_records(kind, &payload).unwrap(), records);
            assert!(payload.len() < 60);
        }
        for change in [
            |r: &mut Record| r.name = "../x".into(),
            |r: &mut Record| r.width = 0,
            |r: &mut Record| r.height = 1 << 20,
        ] {
            let mut bent = small.clone();
            change(&mut bent);
            let (kind, payload) = put_records(&[bent]).unwrap();
            assert!(take_records(kind, &payload).is_err());
        }
        // A bomb: more unpacked than it says.
        let (kind, mut payload) = put_records(&[record.clone(), record]).unwrap();
        assert_eq!(kind, Kind::PackedList);
        (payload[1], payload[2]) = (100, 0);
        assert!(take_records(kind, &payload).is_err());
    }
}
