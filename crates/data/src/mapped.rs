//! Large files, read where they lie, on as many cores as ask; and pixels that may be more than memory holds.
//!
//! Every read of an archive or a table is checked, so that a file that somebody cuts short meanwhile is an error. Only a
//! private copy, which nobody else can reach, is ever mapped.

use memmap2::Mmap;
use rrvq::error::{Error, Result};
use rrvq::limits::Limits;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// A file that several readers share, each at a place of its own.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    file: Arc<File>,
    len: u64,
    /// Where [`Read`] goes on.
    at: u64,
}

impl Shared {
    pub fn open(path: &Path) -> Result<Shared> {
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let about = file.metadata();
        let len = about.map_err(|error| Error::io("read", path, error))?.len();
        Ok(Shared {
            file: Arc::new(file),
            len,
            at: 0,
        })
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// A reader from this byte on.
    pub fn from(&self, at: u64) -> Shared {
        Shared { at, ..self.clone() }
    }

    /// A part of the file, which must be there.
    pub fn part(&self, start: u64, len: usize) -> io::Result<Vec<u8>> {
        let end = start.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; len];
        self.from(start).read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for Shared {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let got = std::os::unix::fs::FileExt::read_at(&*self.file, out, self.at)?;
        #[cfg(windows)]
        let got = std::os::windows::fs::FileExt::seek_read(&*self.file, out, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl Seek for Shared {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.len, by),
            SeekFrom::Current(by) => (self.at, by),
        };
        let at = base.checked_add_signed(by);
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Samples of images, one image after the other: in memory, or in a file.
#[derive(Clone)]
pub struct Pixels(Held, Range<usize>);

#[derive(Clone)]
enum Held {
    Memory(Arc<Vec<u8>>),
    File(Arc<Mmap>),
}

impl Pixels {
    /// The rest of a file from where it stands: in memory where it fits in half of the limit, else in a private copy on
    /// disk, in `folder`.
    pub(super) fn rest_of(mut file: File, folder: &Path) -> io::Result<Pixels> {
        let start = file.stream_position()?;
        let len = file.metadata()?.len().saturating_sub(start);
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let (held, got) = match len <= Limits::current().memory / 2 {
            true => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(len).map_err(io::Error::other)?;
                let got = file.take(len as u64).read_to_end(&mut bytes)?;
                (Held::Memory(Arc::new(bytes)), got as u64)
            }
            false => {
                let mut copy = tempfile::tempfile_in(folder)?;
                let got = io::copy(&mut file, &mut copy)?;
                // SAFETY: the copy has no name, so nobody else can write it or cut it short while it is mapped.
                let copy = unsafe { Mmap::map(&copy) }?;
                (Held::File(Arc::new(copy)), got)
            }
        };
        match got == len as u64 {
            true => Ok(Pixels(held, 0..len)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The first `count` bytes, and the others.
    pub(super) fn split_at(&self, count: usize) -> [Pixels; 2] {
        let Range { start, end } = self.1;
        let middle = (start + count).min(end);
        [start..middle, middle..end].map(|range| Pixels(self.0.clone(), range))
    }
}

impl Deref for Pixels {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let whole: &[u8] = match &self.0 {
            Held::Memory(bytes) => bytes,
            Held::File(file) => file,
        };
        &whole[self.1.clone()]
    }
}

impl From<Vec<u8>> for Pixels {
    fn from(bytes: Vec<u8>) -> Pixels {
        let range = 0..bytes.len();
        Pixels(Held::Memory(Arc::new(bytes)), range)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_short_meanwhile_is_an_error_or_a_copy() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let shared = Shared::open(&path).unwrap();
        assert_eq!(shared.part(1000, 5).unwrap(), [7; 5]);
        assert!(shared.part(1 << 20, 1).is_err() && shared.part(u64::MAX, 2).is_err());
        let before = Limits::current();
        let mut held = Vec::new();
        for memory in [before.memory, 1 << 10] {
            Limits { memory, ..before }.set();
            let mut file = File::open(&path).unwrap();
            file.seek(SeekFrom::Start(10)).unwrap();
            let pixels = Pixels::rest_of(file, scratch.path()).unwrap();
            held.push(pixels.split_at(100));
        }
        before.set();
        std::fs::write(&path, b"short").unwrap();
        assert!(shared.part(1000, 5).is_err());
        for [first, rest] in held {
            assert_eq!((first.len(), rest.len()), (100, (1 << 20) - 110));
            assert!(first.iter().chain(rest.iter()).all(|&byte| byte == 7));
        }
        assert_eq!(scratch.path().read_dir().unwrap().count(), 1);
    }
}
