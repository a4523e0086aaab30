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

use super::super::container::MAGIC;
use super::super::identity::Identity;
use super::super::record::{put_number, take_number};
use super::layout::Order;
use rrvq::error::{Error, Result};

/// The first bytes of every file of ours; the number of the form follows.
pub const START: [u8; 5] = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], MAGIC[4]];
/// Forms with loss: how codes are written, and the number. The last is written.
const FORMS: [(Order, u8); 3] = [(Order::Steps, 2), (Order::Layers, 4), (Order::Context, 5)];
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

    /// Of a list of images.
    pub fn of_list(packed: bool) -> Kind {
        match packed {
            true => Kind::PackedList,
            false => Kind::List,
        }
    }
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
    pub order: Order,
    pub identity: [u8; SHORT_IDENTITY],
    pub images: usize,
}

impl Header {
    pub fn new(identity: Identity, images: usize) -> Header {
        let mut short = [0; SHORT_IDENTITY];
        short.copy_from_slice(&identity.0[..SHORT_IDENTITY]);
        Header {
            order: Order::Context,
            identity: short,
            images,
        }
    }

    pub fn put(&self) -> Vec<u8> {
        let mut out = START.to_vec();
        out.extend(
            FORMS
                .iter()
                .find(|(order, _)| *order == self.order)
                .map(|form| form.1),
        );
        out.extend(self.identity);
        put_number(&mut out, self.images);
        out
    }

    pub fn take(bytes: &mut &[u8]) -> Result<Header> {
        let (order, rest) = form_of(bytes)
            .ok_or_else(|| Error::new("it is not a file that `rrvq compress --lossy` wrote"))?;
        let short = || Error::new("it ends within its first bytes, before anything can be shown");
        let (identity, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
        let images = take_number(&mut rest).ok_or_else(short)?;
        *bytes = rest;
        Ok(Header {
            order,
            identity: *identity,
            images,
        })
    }

    /// The first digits of the model's identity, as people compare them.
    pub fn model(&self) -> String {
        self.identity.map(|byte| format!("{byte:02x}")).concat()
    }

    pub fn fits(&self, identity: Identity) -> bool {
        identity.0.starts_with(&self.identity)
    }
}

/// How the codes of a file that begins so are written, and what follows; none if it is not one with loss.
pub fn form_of(file: &[u8]) -> Option<(Order, &[u8])> {
    let (number, rest) = file.strip_prefix(&START)?.split_first()?;
    let (order, _) = FORMS.iter().find(|(_, form)| form == number)?;
    Some((*order, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
