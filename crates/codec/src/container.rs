//! The file around the bits: blocks, each with a kind, a length and a checksum. FORMAT.md beside this file is the whole
//! story; here is what it says in code.
//!
//! ```text
//! magic · header · (images · tiles … · strips …) … · end
//! ```
//!
//! A file comes from anywhere. Nothing in it is believed before it is checked: lengths against limits, sizes against the
//! largest an image may have, names against what a file may be called. Bytes are read as they come, so a length that lies
//! costs no memory.

use super::identity::Identity;
use super::image::{Image, LONGEST_PROFILE, check_size};
use rrvq::error::{Error, Result};
use std::io::{self, Read, Write};

pub const MAGIC: [u8; 8] = *b"\x89RRVQ\r\n\x1a";
pub const VERSION: u16 = 1;

/// Longest block; the largest real ones are far below.
const LONGEST_BLOCK: usize = 1 << 28;
/// Images of a segment, and bytes of their records.
pub const MOST_IMAGES: usize = 1 << 12;
pub const LONGEST_RECORDS: usize = 64 << 20;
const LONGEST_NAME: usize = 200;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Header,
    Images,
    Tiles,
    Strip,
    End,
}

const KINDS: [(Kind, u8); 5] = [
    (Kind::Header, b'H'),
    (Kind::Images, b'I'),
    (Kind::Tiles, b'T'),
    (Kind::Strip, b'S'),
    (Kind::End, b'E'),
];

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
    let Some((kind, _)) = KINDS.iter().find(|(_, l)| *l == letter) else {
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
        kind: *kind,
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

fn short() -> Error {
    Error::new("it ends too early")
}

fn unreadable(error: io::Error) -> Error {
    Error::new(format!("it cannot be read: {error}"))
}

/// What a file says about itself first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub identity: Identity,
    /// Side of a tile.
    pub side: usize,
    /// Images in the file.
    pub images: usize,
}

impl Header {
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        let mut payload = VERSION.to_le_bytes().to_vec();
        payload.extend(self.identity.0);
        payload.extend((self.side as u32).to_le_bytes());
        payload.extend((self.images as u32).to_le_bytes());
        write_block(out, Kind::Header, &payload)
    }

    pub fn read(input: &mut dyn Read) -> Result<Header> {
        let mut magic = [0; 8];
        let foreign = || Error::new("it is not a file that `rrvq compress` wrote");
        fill(input, &mut magic).map_err(|_| foreign())?;
        if magic != MAGIC {
            return Err(foreign());
        }
        let block = read_block(input)?;
        let mut fields = Fields(&block.payload);
        let version = fields.short()?;
        if block.whole && version != VERSION as usize {
            return Err(Error::new(format!(
                "it has version {version} of the format and this program knows {VERSION}; use a newer rrvq"
            )));
        }
        if block.kind != Kind::Header || !block.whole {
            return Err(Error::new("its header is damaged"));
        }
        let identity = Identity(*fields.array()?);
        let (side, images) = (fields.long()?, fields.long()?);
        fields.end()?;
        Ok(Header {
            identity,
            side,
            images,
        })
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
    /// By the model, or by prediction alone.
    pub by_model: bool,
    pub profile: Vec<u8>,
    pub orientation: u8,
}

impl Record {
    pub fn of(image: &Image, by_model: bool) -> Record {
        Record {
            name: image.name.clone(),
            width: image.width,
            height: image.height,
            channels: image.channels(),
            alpha: image.alpha.is_some(),
            by_model,
            profile: image.profile.clone(),
            orientation: image.orientation,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend(self.name.as_bytes());
        out.extend((self.width as u32).to_le_bytes());
        out.extend((self.height as u32).to_le_bytes());
        out.extend([
            self.channels as u8,
            self.alpha as u8,
            self.by_model as u8,
            self.orientation,
        ]);
        out.extend((self.profile.len() as u32).to_le_bytes());
        out.extend(&self.profile);
    }

    fn read(fields: &mut Fields<'_>) -> Result<Record> {
        let len = fields.short()?;
        let name = std::str::from_utf8(fields.bytes(len)?).unwrap_or("");
        check_name(name)?;
        let (width, height) = (fields.long()?, fields.long()?);
        let wrong = |what: String| Error::new(format!("{what} (image {name})"));
        check_size(width, height).map_err(wrong)?;
        let [channels, alpha, by_model, orientation] = *fields.array()?;
        let known = [1, 3].contains(&channels)
            && alpha <= 1
            && by_model <= 1
            && (1..=8).contains(&orientation);
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
            by_model: by_model == 1,
            profile: fields.bytes(len)?.to_vec(),
            orientation,
        })
    }
}

/// A name must be that of a file in the folder it is written to, on any system, and no path.
pub fn check_name(name: &str) -> Result<()> {
    let letters = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name
            .chars()
            .all(|c| !c.is_control() && !"/\\:*?\"<>|".contains(c));
    let upper = name.to_ascii_uppercase();
    let device = upper.split('.').next().unwrap_or("").trim_end();
    let numbered = |word: &str| {
        let rest = device.strip_prefix(word);
        rest.is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    let reserved =
        ["CON", "PRN", "AUX", "NUL"].contains(&device) || numbered("COM") || numbered("LPT");
    let plain = letters && !name.starts_with(['.', ' ']) && !name.ends_with(['.', ' ']);
    match plain && !reserved {
        true => Ok(()),
        false => Err(Error::new(format!(
            "an image is called {name:?}, which is no name for a file"
        ))),
    }
}

/// Names that pass, each once: what cannot stay is replaced, what is there already gets a number.
pub fn tidy_name(name: &str, taken: &mut std::collections::BTreeSet<String>) -> String {
    let fits = |c: char| !c.is_control() && !"/\\:*?\"<>|".contains(c);
    let mut tidy: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    while tidy.len() > LONGEST_NAME - 8 {
        tidy.pop();
    }
    let mut tidy = tidy.trim_matches(['.', ' ']).to_string();
    if check_name(&tidy).is_err() {
        tidy.insert_str(0, "image-");
        tidy.truncate(tidy.trim_end_matches('-').len());
    }
    let mut name = tidy.clone();
    let mut number = 1;
    // Systems differ in whether case matters: names differ by more than it.
    while !taken.insert(name.to_lowercase()) {
        number += 1;
        name = format!("{tidy}-{number}");
    }
    name
}

/// The payload of an images block: how many, how long unpacked, and the records packed by DEFLATE.
pub fn write_records(records: &[Record]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    records.iter().for_each(|record| record.write(&mut plain));
    let mut payload = (records.len() as u32).to_le_bytes().to_vec();
    payload.extend((plain.len() as u32).to_le_bytes());
    let mut packer = flate2::write::DeflateEncoder::new(payload, flate2::Compression::best());
    packer
        .write_all(&plain)
        .and_then(|()| packer.finish())
        .map_err(|error| Error::new(format!("cannot pack the list of images: {error}")))
}

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
        .map(|_| Record::read(&mut fields))
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
    use std::collections::BTreeSet;

    #[test]
    fn names_are_tame() {
        for bad in [
            "", ".", "..", ".hidden", "a/b", "..\\x", "C:x", "nul", "Com1.txt", "x\n", "end.",
            " x", "a\0b", "lpt9",
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
            let tidy = tidy_name(bad, &mut BTreeSet::new());
            assert!(check_name(&tidy).is_ok(), "{bad:?} became {tidy:?}");
        }
        for good in ["x", "photo 1", "Größe", "a.b", "computer", "null"] {
            assert!(check_name(good).is_ok(), "{good:?}");
            assert_eq!(tidy_name(good, &mut BTreeSet::new()), good);
        }
        let long = "ä".repeat(300);
        assert!(check_name(&long).is_err());
        let mut taken = BTreeSet::new();
        let names = ["x", "X", "x"].map(|name| tidy_name(name, &mut taken));
        assert_eq!(names, ["x", "X-2", "x-3"]);
        assert!(check_name(&tidy_name(&long, &mut taken)).is_ok());
    }

    #[test]
    fn records_come_back_and_lies_are_refused() {
        let record = |name: &str| Record {
            name: name.into(),
            width: 3,
            height: 65536,
            channels: 3,
            alpha: true,
            by_model: false,
            profile: vec![7; 1000],
            orientation: 6,
        };
        let records = [record("a"), record("b")];
        let payload = write_records(&records).unwrap();
        assert!(payload.len() < 200);
        assert_eq!(read_records(&payload).unwrap(), records);
        assert_eq!(read_records(&write_records(&[]).unwrap()).unwrap(), []);
        for change in [
            |r: &mut Record| r.name = "../x".into(),
            |r: &mut Record| r.width = 0,
            |r: &mut Record| r.width = 1 << 20,
            |r: &mut Record| r.channels = 2,
            |r: &mut Record| r.orientation = 9,
        ] {
            let mut bent = record("a");
            change(&mut bent);
            let payload = write_records(&[bent]).unwrap();
            assert!(read_records(&payload).is_err());
        }
        // A bomb: more unpacked than it says.
        let mut payload = write_records(&records).unwrap();
        payload[4..8].copy_from_slice(&100u32.to_le_bytes());
        assert!(read_records(&payload).is_err());
    }

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
