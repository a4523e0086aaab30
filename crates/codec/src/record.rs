//! Lists of images: everything about them but their samples, in as few bytes as it takes.
//!
//! Versions 2 to 5 of the format share this form; version 1 has its own, in [`container`](super::container).

use super::image::{Image, LONGEST_PROFILE, check_size};
use super::metadata::{self, Metadata};
use rrvq::error::{Error, Result};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Write};

/// Images of a list, and bytes of their records.
pub const MOST_IMAGES: usize = 1 << 12;
pub const LONGEST_RECORDS: usize = 64 << 20;
const LONGEST_NAME: usize = 200;

/// A number in as few bytes as it needs: seven bits each, lowest first, the eighth says that more follow.
pub fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0u64;
    for shift in (0..35).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= ((first & 127) as u64) << shift;
        if *first < 128 {
            // One way to write a number, and only one.
            let number = usize::try_from(number).ok()?;
            return (*first > 0 || shift == 0).then_some(number);
        }
    }
    None
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len());
    out.extend(text);
}

/// Everything about an image but its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub name: OsString,
    pub width: usize,
    pub height: usize,
    /// 1 or 3.
    pub channels: usize,
    pub alpha: bool,
    pub orientation: u8,
    /// Without loss: 1 if the model codes the colours, 0 if prediction does. With loss: layers left out, from the bottom.
    pub coding: usize,
    pub profile: Vec<u8>,
    pub metadata: Metadata,
}

const COLOUR: u8 = 1;
const ALPHA: u8 = 2;
const PROFILE: u8 = 4;
const METADATA: u8 = 64;

impl Record {
    pub fn of(image: &Image, coding: usize) -> Record {
        Record {
            name: image.name.clone(),
            width: image.width,
            height: image.height,
            channels: image.channels(),
            alpha: image.alpha.is_some(),
            orientation: image.orientation,
            coding,
            profile: image.profile.clone(),
            metadata: image.metadata.clone(),
        }
    }

    /// The image, given its samples.
    pub fn image(self, colour: Vec<u8>, alpha: Option<Vec<u8>>) -> Image {
        Image {
            name: self.name,
            width: self.width,
            height: self.height,
            colour,
            alpha,
            profile: self.profile,
            orientation: self.orientation,
            metadata: self.metadata,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self.name.as_encoded_bytes());
        put_number(out, self.width);
        put_number(out, self.height);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        out.push(
            flag(self.channels == 3, COLOUR)
                | flag(self.alpha, ALPHA)
                | flag(!self.profile.is_empty(), PROFILE)
                | flag(!self.metadata.is_empty(), METADATA)
                | (self.orientation - 1) << 3,
        );
        put_number(out, self.coding);
        if !self.profile.is_empty() {
            put_text(out, &self.profile);
        }
        if !self.metadata.is_empty() {
            put_text(out, &metadata::to_bytes(&self.metadata));
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
        let name = name_of(text(bytes, 1 << 10)?);
        check_name(&name)?;
        let (width, height) = (number(bytes)?, number(bytes)?);
        check_size(width, height)
            .map_err(|said| Error::new(format!("{said} (image {})", name.display())))?;
        let (flags, rest) = bytes.split_first().ok_or_else(wrong)?;
        *bytes = rest;
        let coding = number(bytes)?;
        if *flags >= 128 {
            return Err(wrong());
        }
        let profile = match flags & PROFILE {
            0 => Vec::new(),
            _ => text(bytes, LONGEST_PROFILE)?,
        };
        let metadata = match flags & METADATA {
            0 => Metadata::new(),
            _ => metadata::from_bytes(&text(bytes, metadata::LONGEST)?).ok_or_else(wrong)?,
        };
        Ok(Record {
            name,
            width,
            height,
            channels: if flags & COLOUR == 0 { 1 } else { 3 },
            alpha: flags & ALPHA != 0,
            orientation: 1 + (flags >> 3 & 7),
            coding,
            profile,
            metadata,
        })
    }
}

/// The name that these bytes are, as a file system has it: on Unix any bytes, elsewhere text.
#[cfg(unix)]
pub fn name_of(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
pub fn name_of(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// A list of images, and whether it is packed by DEFLATE: whichever is shorter.
pub fn put_records(records: &[Record]) -> Result<(bool, Vec<u8>)> {
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
        true => (true, packed),
        false => (false, list),
    })
}

pub fn take_records(packed: bool, payload: &[u8]) -> Result<Vec<Record>> {
    let wrong = || Error::new("a list of images cannot be unpacked");
    let mut rest = payload;
    let count = take_number(&mut rest).filter(|count| *count <= MOST_IMAGES);
    let count = count.ok_or_else(wrong)?;
    let mut unpacked = Vec::new();
    if packed {
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

/// Whether a character may be in a file's name on every system.
fn fits(c: char) -> bool {
    !c.is_control() && !"/\\:*?\"<>|".contains(c)
}

/// A name must be that of a file in the folder it is written to, on any system, and no path. It need not be text.
pub fn check_name(name: &std::ffi::OsStr) -> Result<()> {
    // Bytes that are no text are none of the characters below.
    let text = name.to_string_lossy();
    let letters = !name.is_empty() && name.len() <= LONGEST_NAME && text.chars().all(fits);
    let upper = text.to_ascii_uppercase();
    let device = upper.split('.').next().unwrap_or("").trim_end();
    let numbered = |word: &str| {
        let rest = device.strip_prefix(word);
        rest.is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    let reserved =
        ["CON", "PRN", "AUX", "NUL"].contains(&device) || numbered("COM") || numbered("LPT");
    let plain = letters && !text.starts_with(['.', ' ']) && !text.ends_with(['.', ' ']);
    match plain && !reserved {
        true => Ok(()),
        false => Err(Error::new(format!(
            "an image is called {name:?}, which is no name for a file"
        ))),
    }
}

/// Names that pass, each once: what cannot stay is replaced, what is there already gets a number. A name that is no text
/// but passes stays, byte by byte.
pub fn tidy_name(name: &std::ffi::OsStr, taken: &mut BTreeSet<String>) -> OsString {
    let tidy = match check_name(name) {
        Ok(()) if name.len() <= LONGEST_NAME - 8 => name.to_owned(),
        _ => tidy_text(&name.to_string_lossy()).into(),
    };
    let mut name = tidy.clone();
    let mut number = 1;
    // Systems differ in whether case matters: names differ by more than it.
    while !taken.insert(name.to_string_lossy().to_lowercase()) {
        number += 1;
        name = tidy.clone();
        name.push(format!("-{number}"));
    }
    name
}

fn tidy_text(name: &str) -> String {
    let mut tidy: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    while tidy.len() > LONGEST_NAME - 8 {
        tidy.pop();
    }
    let mut tidy = tidy.trim_matches(['.', ' ']).to_string();
    if check_name(tidy.as_ref()).is_err() {
        tidy.insert_str(0, "image-");
        tidy.truncate(tidy.trim_end_matches('-').len());
    }
    tidy
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
    fn names_are_tame() {
        let check = |name: &str| check_name(name.as_ref());
        let tidy = |name: &str, taken: &mut BTreeSet<String>| tidy_name(name.as_ref(), taken);
        for bad in [
            "", ".", "..", ".hidden", "a/b", "..\\x", "C:x", "nul", "Com1.txt", "x\n", "end.",
            " x", "a\0b", "lpt9",
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
            let tidy = tidy(bad, &mut BTreeSet::new());
            assert!(check_name(&tidy).is_ok(), "{bad:?} became {tidy:?}");
        }
        for good in ["x", "photo 1", "Größe", "a.b", "computer", "null"] {
            assert!(check(good).is_ok(), "{good:?}");
            assert_eq!(tidy(good, &mut BTreeSet::new()), good);
        }
        let long = "ä".repeat(300);
        assert!(check(&long).is_err());
        let mut taken = BTreeSet::new();
        let names = ["x", "X", "x"].map(|name| tidy(name, &mut taken));
        assert_eq!(names, ["x", "X-2", "x-3"]);
        assert!(check_name(&tidy(&long, &mut taken)).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn names_need_not_be_text() {
        let odd = name_of(b"caf\xe9".to_vec());
        assert_eq!(tidy_name(&odd, &mut BTreeSet::new()), odd);
        assert!(check_name(&name_of(b"a\xff/b".to_vec())).is_err());
        let mut taken = BTreeSet::new();
        let twice = [&odd, &odd].map(|name| tidy_name(name, &mut taken));
        assert_eq!(twice[1], name_of(b"caf\xe9-2".to_vec()));
    }

    #[test]
    fn records_come_back_and_lies_are_refused() {
        let record = Record {
            name: name_of(b"na\xefve".to_vec()),
            width: 3,
            height: 65536,
            channels: 3,
            alpha: true,
            orientation: 8,
            coding: 2,
            profile: vec![7; 1000],
            metadata: vec![(*b"gAMA", vec![0, 0, 0x85, 0xee])],
        };
        let small = Record {
            profile: Vec::new(),
            metadata: Metadata::new(),
            ..record.clone()
        };
        let both = [record.clone(), small.clone()];
        for records in [&[], &both[1..], &both] {
            let (packed, payload) = put_records(records).unwrap();
            assert_eq!(take_records(packed, &payload).unwrap(), records);
            assert!(payload.len() < 80);
        }
        for change in [
            |r: &mut Record| r.name = "../x".into(),
            |r: &mut Record| r.width = 0,
            |r: &mut Record| r.height = 1 << 20,
        ] {
            let mut bent = small.clone();
            change(&mut bent);
            let (packed, payload) = put_records(&[bent]).unwrap();
            assert!(take_records(packed, &payload).is_err());
        }
        // A bomb: more unpacked than it says.
        let (packed, mut payload) = put_records(&[record.clone(), record]).unwrap();
        assert!(packed);
        (payload[1], payload[2]) = (100, 0);
        assert!(take_records(packed, &payload).is_err());
    }
}
