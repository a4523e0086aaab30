//! The file around the bits, without loss: blocks, each with a kind, a length and a checksum. FORMAT.md beside this file
//! is the whole story; here is what it says in code.
//!
//! ```text
//! magic · header · (images · tiles … · strips … · images again) … · end
//! ```
//!
//! A file comes from anywhere. Nothing in it is believed before it is checked: lengths against limits, sizes against the
//! largest an image may have, names against what a file may be called. Bytes are read as they come, so a length that lies
//! costs no memory.
//!
//! After damage the next whole block is searched for; in version 3, written today, every block says where it belongs.
//! Version 1 is read: its blocks have no numbers, its chunks no chains, and its lists a form of their own.

use super::identity::Identity;
use super::image::{LONGEST_PROFILE, check_size};
use super::metadata::Metadata;
use super::record::{LONGEST_RECORDS, MOST_IMAGES, Record, check_name, put_number, take_number};
use rrvq::error::{Error, Result};
use std::io::{self, Read, Write};

pub const MAGIC: [u8; 8] = *b"\x89RRVQ\r\n\x1a";
/// What is written, and the other one that is read.
pub const VERSION: u16 = 3;
const FIRST_VERSION: u16 = 1;

/// Longest block; the largest real ones are far below.
const LONGEST_BLOCK: usize = 1 << 28;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Header,
    /// A list of images, plain or packed by DEFLATE; in version 1 always packed.
    Images,
    PackedImages,
    Tiles,
    Strip,
    End,
}

const KINDS: [(Kind, u8); 6] = [
    (Kind::Header, b'H'),
    (Kind::Images, b'I'),
    (Kind::PackedImages, b'i'),
    (Kind::Tiles, b'T'),
    (Kind::Strip, b'S'),
    (Kind::End, b'E'),
];

impl Kind {
    /// The kind that a block's first byte says.
    pub fn of(letter: u8) -> Option<Kind> {
        KINDS
            .iter()
            .find(|(_, l)| *l == letter)
            .map(|(kind, _)| *kind)
    }

    pub fn lists(self) -> bool {
        matches!(self, Kind::Images | Kind::PackedImages)
    }
}

/// Where a block of version 3 belongs: the number of its segment, and two more within it. A list has the first alone.
pub type Place = [usize; 3];

/// The payload of a block with its place before it.
pub fn placed(place: &[usize], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + place.len());
    place
        .iter()
        .for_each(|number| put_number(&mut out, *number));
    out.extend(payload);
    out
}

/// Takes the first numbers of a payload.
pub fn take_place<const N: usize>(payload: &mut &[u8]) -> Result<[usize; N]> {
    let mut place = [0; N];
    for number in &mut place {
        *number = take_number(payload).ok_or_else(cut_off)?;
    }
    Ok(place)
}

/// Writes a block.
pub fn write_block(out: &mut dyn Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let letter = KINDS.iter().find(|(k, _)| *k == kind).map_or(0, |k| k.1);
    let mut crc = flate2::Crc::new();
    let mut put = |bytes: &[u8]| {
        crc.update(bytes);
        out.write_all(bytes)
    };
    put(&[letter])?;
    put(&(payload.len() as u32).to_le_bytes())?;
    put(payload)?;
    let sum = crc.sum();
    out.write_all(&sum.to_le_bytes())
}

/// Bytes a block takes besides its payload.
pub const BLOCK_OVERHEAD: usize = 9;

/// A block as it was found.
pub struct Block {
    pub kind: Kind,
    pub payload: Vec<u8>,
    /// Whether the checksum fits.
    pub whole: bool,
}

/// Reads the next block. An error means that nothing after it can be read either.
pub fn read_block(input: &mut dyn Read) -> Result<Block> {
    let mut head = [0; 5];
    fill(input, &mut head)?;
    let [letter, len @ ..] = head;
    let len = u32::from_le_bytes(len) as usize;
    let Some(kind) = Kind::of(letter) else {
        return Err(Error::new("a block of no known kind follows"));
    };
    if len > LONGEST_BLOCK {
        return Err(Error::new(format!("a block claims {len} bytes")));
    }
    let mut payload = Vec::new();
    let got = input.take(len as u64).read_to_end(&mut payload);
    if got.map_err(unreadable)? < len {
        return Err(short());
    }
    let mut sum = [0; 4];
    fill(input, &mut sum)?;
    let mut crc = flate2::Crc::new();
    crc.update(&head);
    crc.update(&payload);
    Ok(Block {
        kind,
        payload,
        whole: crc.sum().to_le_bytes() == sum,
    })
}

fn fill(input: &mut dyn Read, bytes: &mut [u8]) -> Result<()> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => short(),
        _ => unreadable(error),
    })
}

pub fn short() -> Error {
    Error::new("it ends too early")
}

fn unreadable(error: io::Error) -> Error {
    Error::new(format!("it cannot be read: {error}"))
}

/// What a file says about itself first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u16,
    pub identity: Identity,
    /// Side of a tile.
    pub side: usize,
    /// Images in the file.
    pub images: usize,
}

impl Header {
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        write_block(out, Kind::Header, &self.payload())
    }

    pub fn payload(&self) -> Vec<u8> {
        let mut payload = self.version.to_le_bytes().to_vec();
        payload.extend(self.identity.0);
        payload.extend((self.side as u32).to_le_bytes());
        payload.extend((self.images as u32).to_le_bytes());
        payload
    }

    pub fn read(input: &mut dyn Read) -> Result<Header> {
        let mut magic = [0; 8];
        let foreign = || Error::new("it is not a file that `rrvq compress` wrote");
        fill(input, &mut magic).map_err(|_| foreign())?;
        if magic != MAGIC {
            return Err(foreign());
        }
        let block = read_block(input)?;
        if block.kind != Kind::Header || !block.whole {
            return Err(Error::new("its header is damaged"));
        }
        Header::take(&block.payload)
    }

    /// What [`Header::payload`] made.
    pub fn take(payload: &[u8]) -> Result<Header> {
        let mut fields = Fields(payload);
        let version = fields.short()? as u16;
        if ![FIRST_VERSION, VERSION].contains(&version) {
            return Err(Error::new(format!(
                "it has version {version} of the format and this program knows {FIRST_VERSION} and {VERSION}; use a newer rrvq"
            )));
        }
        let identity = Identity(*fields.array()?);
        let (side, images) = (fields.long()?, fields.long()?);
        fields.end()?;
        Ok(Header {
            version,
            identity,
            side,
            images,
        })
    }

    /// Whether blocks have places and chunks have chains.
    pub fn has_places(&self) -> bool {
        self.version != FIRST_VERSION
    }
}

/// A record of version 1.
fn read_record(fields: &mut Fields<'_>) -> Result<Record> {
    let len = fields.short()?;
    let name = std::str::from_utf8(fields.bytes(len)?).unwrap_or("");
    check_name(name.as_ref())?;
    let (width, height) = (fields.long()?, fields.long()?);
    let wrong = |what: String| Error::new(format!("{what} (image {name})"));
    check_size(width, height).map_err(wrong)?;
    let [channels, alpha, by_model, orientation] = *fields.array()?;
    let known =
        [1, 3].contains(&channels) && alpha <= 1 && by_model <= 1 && (1..=8).contains(&orientation);
    if !known {
        return Err(wrong(
            "an image has a kind this program does not know".into(),
        ));
    }
    let len = fields.long()?;
    if len > LONGEST_PROFILE {
        return Err(wrong(format!("a colour profile claims {len} bytes")));
    }
    Ok(Record {
        name: name.into(),
        width,
        height,
        channels: channels as usize,
        alpha: alpha == 1,
        coding: by_model as usize,
        profile: fields.bytes(len)?.to_vec(),
        orientation,
        metadata: Metadata::new(),
    })
}

/// The payload of an images block of version 1: how many, how long unpacked, and the records packed by DEFLATE.
pub fn read_records(payload: &[u8]) -> Result<Vec<Record>> {
    let mut fields = Fields(payload);
    let (count, len) = (fields.long()?, fields.long()?);
    if count > MOST_IMAGES || len > LONGEST_RECORDS {
        return Err(Error::new(format!(
            "a list claims {count} images in {len} bytes"
        )));
    }
    let mut plain = Vec::new();
    let unpacker = flate2::read::DeflateDecoder::new(fields.0);
    let unpacked = unpacker.take(len as u64 + 1).read_to_end(&mut plain);
    if unpacked.is_err() || plain.len() != len {
        return Err(Error::new("a list of images cannot be unpacked"));
    }
    let mut fields = Fields(&plain);
    let records = (0..count)
        .map(|_| read_record(&mut fields))
        .collect::<Result<_>>()?;
    fields.end()?;
    Ok(records)
}

/// Little-endian fields, one after another.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len).ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(first)
    }

    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(first)
    }

    pub fn short(&mut self) -> Result<usize> {
        Ok(u16::from_le_bytes(*self.array()?) as usize)
    }

    pub fn long(&mut self) -> Result<usize> {
        Ok(u32::from_le_bytes(*self.array()?) as usize)
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Error::new("a block has unexpected trailing bytes")),
        }
    }
}

fn cut_off() -> Error {
    Error::new("a block is too short for what it says")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_notice_every_flipped_bit() {
        let mut file = Vec::new();
        write_block(&mut file, Kind::Strip, b"some bytes").unwrap();
        assert_eq!(file.len(), 10 + BLOCK_OVERHEAD);
        let block = read_block(&mut &file[..]).unwrap();
        assert!(block.whole && block.kind == Kind::Strip && block.payload == b"some bytes");
        for bit in 0..8 * file.len() {
            let mut bent = file.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!read_block(&mut &bent[..]).is_ok_and(|b| b.whole), "{bit}");
        }
        for len in 0..file.len() {
            assert!(read_block(&mut &file[..len]).is_err());
        }
    }
}
