//! Files looked at where they lie: the system brings in what is touched and lets go of it when memory is short.
//!
//! So an archive, or a data set larger than memory, is a plain slice of bytes, and cores read it side by side.

use memmap2::Mmap;
use rrvq::error::{Error, Result};
use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// The bytes of the file at `path`.
pub(super) fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    // SAFETY: the file is only read here. Another program that writes into it meanwhile changes pixels, as it would
    // change what a read returns; whoever cuts it short ends this program, as pulling out a disk would.
    unsafe { Mmap::map(&file) }.map_err(|error| Error::io("read", path, error))
}

/// A mapped file that several readers share.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mmap>);

impl Shared {
    pub fn open(path: &Path) -> Result<Shared> {
        Ok(Shared(Arc::new(map(path)?)))
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Samples of images, one image after the other: in memory, or in a file.
#[derive(Clone)]
pub struct Pixels(Held);

#[derive(Clone)]
enum Held {
    Memory(Vec<u8>),
    File(Arc<Mmap>, Range<usize>),
}

impl Pixels {
    /// A part of a file.
    pub(super) fn part(file: Arc<Mmap>, range: Range<usize>) -> Pixels {
        Pixels(Held::File(file, range))
    }
}

impl Deref for Pixels {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Memory(bytes) => bytes,
            Held::File(file, range) => &file[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Pixels {
    fn from(bytes: Vec<u8>) -> Pixels {
        Pixels(Held::Memory(bytes))
    }
}

impl PartialEq for Pixels {
    fn eq(&self, other: &Pixels) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of pixels", self.len())
    }
}
