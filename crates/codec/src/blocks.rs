//! The blocks of a file, one after another, and how to go on after a damaged one.
//!
//! Damage to a block's length would hide all that follows, so the length of a damaged block is not believed: what follows
//! is searched, byte by byte, for the next block whose checksum fits.

use super::container::{Block, Kind, read_block, short, take_place};
use rrvq::error::{Error, Result};
use rrvq::limits;
use std::io::{self, Read};

/// Blocks as they come.
pub struct Blocks<'a> {
    input: &'a mut dyn Read,
    /// Whether blocks say where they belong, so that searching for one makes sense.
    searches: bool,
    /// What follows the first damage.
    rest: Option<Rest>,
}

impl<'a> Blocks<'a> {
    pub fn new(input: &'a mut dyn Read, searches: bool) -> Blocks<'a> {
        Blocks {
            input,
            searches,
            rest: None,
        }
    }

    /// Those of a file whose beginning is damaged, wherever they are.
    pub fn searched(input: &'a mut dyn Read) -> Result<Blocks<'a>> {
        let mut blocks = Blocks::new(input, true);
        blocks.search(Vec::new(), 0)?;
        Ok(blocks)
    }

    /// Whether there is nothing more.
    pub fn ended(&mut self) -> bool {
        match &self.rest {
            Some(rest) => rest.at >= rest.bytes.len(),
            None => matches!(self.input.read(&mut [0]), Ok(0)),
        }
    }

    /// Whether damage was met.
    pub fn damaged(&self) -> bool {
        self.rest.is_some()
    }

    /// The next block. Where blocks are searched for it is whole.
    pub fn next(&mut self) -> Result<Block> {
        if !self.searches {
            return read_block(self.input);
        }
        if self.rest.is_none() {
            let mut copied = Copied {
                input: self.input,
                bytes: Vec::new(),
            };
            match read_block(&mut copied) {
                Ok(block) if block.whole => return Ok(block),
                _ => {
                    let bytes = copied.bytes;
                    self.search(bytes, 1)?;
                }
            }
        }
        let found = self.rest.as_mut().and_then(Rest::next);
        found.ok_or_else(short)
    }

    /// From here on blocks are searched for, in `bytes` from `at` on and in what follows.
    fn search(&mut self, mut bytes: Vec<u8>, at: usize) -> Result<()> {
        let rest = limits::read_all(&mut *self.input);
        let rest = rest.map_err(|error| Error::new(format!("it cannot be read: {error}")))?;
        bytes.extend(rest.ok_or_else(|| Error::new("it is larger than may be read (max-memory)"))?);
        let patience = PATIENCE * bytes.len();
        self.rest = Some(Rest {
            bytes,
            at,
            patience,
        });
        Ok(())
    }

    /// A later block that `wanted` accepts, without going there.
    pub fn ahead(&mut self, wanted: impl Fn(&Block) -> bool) -> Option<Block> {
        let rest = self.rest.as_mut()?;
        let here = rest.at;
        let found = std::iter::from_fn(|| rest.next()).find(wanted);
        rest.at = here;
        found
    }

    /// A later copy of a segment's list.
    pub fn list_ahead(&mut self, segment: usize) -> Option<Block> {
        self.ahead(|block| {
            let place = take_place::<1>(&mut &block.payload[..]);
            block.kind.lists() && place == Ok([segment])
        })
    }
}

/// How often the bytes after damage may be read, on average: a file made to be slow is given up.
const PATIENCE: usize = 16;

/// The bytes after damage.
struct Rest {
    bytes: Vec<u8>,
    at: usize,
    /// Bytes that may still be held against a checksum.
    patience: usize,
}

impl Rest {
    fn next(&mut self) -> Option<Block> {
        while self.at < self.bytes.len() {
            let mut here = &self.bytes[self.at..];
            let all = here.len();
            if let Some(len) = claimed(here) {
                self.patience = self.patience.checked_sub(len)?;
                if let Ok(block) = read_block(&mut here)
                    && block.whole
                {
                    self.at += all - here.len();
                    return Some(block);
                }
            }
            self.at += 1;
        }
        None
    }
}

/// The length of the block that would begin here, if it can be one.
fn claimed(bytes: &[u8]) -> Option<usize> {
    let ([letter, len @ ..], after) = bytes.split_first_chunk::<5>()?;
    let len = u32::from_le_bytes(*len) as usize;
    (Kind::of(*letter).is_some() && after.len().checked_sub(4)? >= len).then_some(len + 9)
}

/// Keeps a copy of what is read.
struct Copied<'a, 'b> {
    input: &'a mut (dyn Read + 'b),
    bytes: Vec<u8>,
}

impl Read for Copied<'_, '_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(room)?;
        self.bytes.extend_from_slice(&room[..len]);
        Ok(len)
    }
}
