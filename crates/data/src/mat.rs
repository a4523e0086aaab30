//! Just enough of MATLAB's version 5 files to find one array of bytes.
//!
//! Such a file is a header of 128 bytes and then elements, each behind a tag with its kind and its length; an array may
//! be packed as a whole. Only the array that is asked for is kept, and nothing is believed that the file's length does
//! not bear out. Packed arrays carry a checksum, so damage in the pixels is found too.
//! Hand-written: no well-kept crate reads these files and reports at which byte one is damaged.

use flate2::bufread::ZlibDecoder;
use rrvq::limits::{Limits, unpacks_to_more};
use std::io::{ErrorKind, Read};

/// An array of bytes; the first index runs fastest.
#[derive(Debug)]
pub(super) struct Array {
    pub sides: Vec<usize>,
    pub bytes: Vec<u8>,
}

const HEADER: usize = 128;
/// No name and no list of sides is longer.
const LONGEST_NOTE: usize = 4096;

/// Kinds of elements.
const INT8: u32 = 1;
const UINT8: u32 = 2;
const INT32: u32 = 5;
const UINT32: u32 = 6;
const MATRIX: u32 = 14;
const PACKED: u32 = 15;
/// The class of an array whose numbers are bytes.
const BYTES: u8 = 9;

/// The array called `name`, or what is wrong and at which byte.
pub(super) fn byte_array(file: &[u8], name: &str) -> Result<Array, String> {
    check_header(file)?;
    let mut at = HEADER;
    while at < file.len() {
        let Some(tag) = file.get(at..at + 8) else {
            return Err(ends(file.len()));
        };
        let (kind, size) = (number(&tag[..4]), number(&tag[4..]) as usize);
        let Some(body) = file[at + 8..].get(..size) else {
            return Err(format!(
                "it ends at byte {}, but the element at byte {at} goes on to byte {}",
                file.len(),
                at + 8 + size
            ));
        };
        let mut reader = match kind {
            PACKED => Reader::packed(body, at + 8),
            _ => Reader::plain(body, at + 8),
        };
        let inside = match kind {
            PACKED => number(&reader.take(8)?[..4]),
            kind => kind,
        };
        if inside == MATRIX
            && let Some(array) = matrix(&mut reader, name)?
        {
            return Ok(array);
        }
        at += 8 + size;
    }
    Err(format!(
        "it ends at byte {at} without an array named {name}"
    ))
}

fn check_header(file: &[u8]) -> Result<(), String> {
    if file.starts_with(b"MATLAB 7.3") {
        return Err("byte 7 says version 7.3; expected version 5".into());
    }
    let words = b"MATLAB 5.0";
    if let Some(at) = file.iter().zip(words).position(|(have, word)| have != word) {
        return Err(format!(
            "byte {at} is {}; expected the words MATLAB 5.0 at the start",
            file[at]
        ));
    }
    let Some(order) = file.get(HEADER - 2..HEADER) else {
        return Err(ends(file.len()));
    };
    match order == b"IM" {
        true => Ok(()),
        false => Err(format!(
            "byte {} does not begin the mark IM of a file written on a PC",
            HEADER - 2
        )),
    }
}

/// The array at the reader, if it has the name.
fn matrix(reader: &mut Reader, name: &str) -> Result<Option<Array>, String> {
    let flags = reader.note(UINT32)?;
    let sides = reader.note(INT32)?;
    if reader.note(INT8)? != name.as_bytes() {
        return Ok(None);
    }
    let at = reader.at();
    if flags.first() != Some(&BYTES) {
        return Err(format!(
            "the array {name} before byte {at} does not hold bytes (uint8)"
        ));
    }
    let side = |bytes: &[u8]| number(bytes) as usize;
    let sides: Vec<usize> = sides.chunks_exact(4).map(side).collect();
    let len = sides.iter().try_fold(1usize, |len, s| len.checked_mul(*s));
    let tag = reader.take(8)?;
    let (kind, size) = (number(&tag[..4]), number(&tag[4..]) as usize);
    if kind != UINT8 || Some(size) != len {
        return Err(format!(
            "the array {name} near byte {at} has {size} bytes of kind {kind}, which its sides {sides:?} do not make"
        ));
    }
    if size > Limits::current().memory {
        return Err(unpacks_to_more());
    }
    let bytes = reader.take(size)?;
    reader.finish()?;
    Ok(Some(Array { sides, bytes }))
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn ends(at: usize) -> String {
    format!("it ends at byte {at}, in the middle")
}

/// The content of an element, unpacked as it is read.
struct Reader<'a> {
    source: Source<'a>,
    start: usize,
    len: usize,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Packed(Box<ZlibDecoder<&'a [u8]>>),
}

impl<'a> Reader<'a> {
    fn plain(body: &'a [u8], start: usize) -> Self {
        Reader {
            source: Source::Plain(body),
            start,
            len: body.len(),
        }
    }

    fn packed(body: &'a [u8], start: usize) -> Self {
        Reader {
            source: Source::Packed(Box::new(ZlibDecoder::new(body))),
            start,
            len: body.len(),
        }
    }

    /// The byte of the file that is read next.
    fn at(&self) -> usize {
        self.start
            + match &self.source {
                Source::Plain(rest) => self.len - rest.len(),
                Source::Packed(decoder) => decoder.total_in() as usize,
            }
    }

    fn up_to(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let read = match &mut self.source {
            Source::Plain(rest) => rest.by_ref().take(count as u64).read_to_end(&mut out),
            Source::Packed(decoder) => decoder.by_ref().take(count as u64).read_to_end(&mut out),
        };
        match read {
            Ok(_) => Ok(out),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(ends(self.at())),
            Err(error) => Err(format!(
                "it is damaged near byte {}: the packed array cannot be unpacked ({error})",
                self.at()
            )),
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let taken = self.up_to(count)?;
        match taken.len() == count {
            true => Ok(taken),
            false => Err(format!(
                "its element that ends at byte {} lacks {} bytes",
                self.at(),
                count - taken.len()
            )),
        }
    }

    /// A short element of one kind; up to four bytes may stand in its own tag.
    fn note(&mut self, expected: u32) -> Result<Vec<u8>, String> {
        let at = self.at();
        let tag = self.take(8)?;
        let word = number(&tag[..4]);
        let (kind, short) = (word & 0xffff, (word >> 16) as usize);
        let size = match short {
            0 => number(&tag[4..]) as usize,
            short => short,
        };
        if kind != expected || size > LONGEST_NOTE || short > 4 {
            return Err(format!(
                "near byte {at} is an element of kind {kind} and {size} bytes where a short one of kind {expected} is \
                 expected"
            ));
        }
        if short > 0 {
            return Ok(tag[4..4 + short].to_vec());
        }
        let mut padded = self.take(size.next_multiple_of(8))?;
        padded.truncate(size);
        Ok(padded)
    }

    /// Reads past the padding, to where the checksum of a packed array is compared.
    fn finish(&mut self) -> Result<(), String> {
        self.up_to(8).map(|_| ())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write;

    fn element(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = [kind.to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn array(name: &str, class: u8, sides: &[u32], content: &[u8]) -> Vec<u8> {
        let sides: Vec<u8> = sides.iter().flat_map(|side| side.to_le_bytes()).collect();
        let mut short = vec![INT8 as u8, 0, name.len() as u8, 0];
        short.extend(name.as_bytes());
        short.resize(8, 0);
        let parts = [
            element(UINT32, &[class, 0, 0, 0, 0, 0, 0, 0]),
            element(INT32, &sides),
            short,
            element(UINT8, content),
        ];
        element(MATRIX, &parts.concat())
    }

    fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        let packed = encoder.finish().unwrap();
        let mut out = [PACKED.to_le_bytes(), (packed.len() as u32).to_le_bytes()].concat();
        out.extend(packed);
        out
    }

    /// A whole file with labels and an array X of bytes, packed or not.
    pub(crate) fn file(sides: &[u32], content: &[u8], packed: bool) -> Vec<u8> {
        let mut bytes = b"MATLAB 5.0 MAT-file, made for a test".to_vec();
        bytes.resize(HEADER - 4, b' ');
        bytes.extend(b"\x00\x01IM");
        let labels = array("y", BYTES, &[2, 1], &[1, 10]);
        let images = array("X", BYTES, sides, content);
        for part in [labels, images] {
            bytes.extend(match packed {
                true => pack(&part),
                false => part,
            });
        }
        bytes
    }

    #[test]
    fn an_array_is_found_packed_or_not() {
        let content: Vec<u8> = (0..30).collect();
        for packed in [false, true] {
            let bytes = file(&[2, 3, 5], &content, packed);
            let found = byte_array(&bytes, "X").unwrap();
            assert_eq!((found.sides, found.bytes), (vec![2, 3, 5], content.clone()));
            assert_eq!(byte_array(&bytes, "y").unwrap().bytes, [1, 10]);
            let missing = byte_array(&bytes, "Z").unwrap_err();
            let end = format!("ends at byte {} without an array named Z", bytes.len());
            assert!(missing.contains(&end), "{missing}");
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_with_a_byte() {
        for packed in [false, true] {
            let bytes = file(&[2, 3, 5], &[7; 30], packed);
            for cut in 0..bytes.len() {
                let said = byte_array(&bytes[..cut], "X").unwrap_err();
                assert!(said.contains(&format!("byte {cut}")), "{cut}: {said}");
            }
        }
    }

    #[test]
    fn damage_and_foreign_files_are_told_apart() {
        let mut bytes = file(&[30], &(0..30).collect::<Vec<u8>>(), true);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let said = byte_array(&bytes, "X").unwrap_err();
        assert!(said.contains("damaged near byte"), "{said}");
        let said = byte_array(b"\x89PNG and so on", "X").unwrap_err();
        assert!(said.contains("byte 0 is 137"), "{said}");
        assert!(
            byte_array(b"MATLAB 7.3 MAT-file", "X")
                .unwrap_err()
                .contains("version 7.3")
        );
        let wrong = file(&[31], &[0; 30], false);
        assert!(byte_array(&wrong, "X").unwrap_err().contains("do not make"));
    }
}
