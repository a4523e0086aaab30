//! Decoded data sets on disk, so that a large one is decoded once and not before every run.
//!
//! One file holds the pixels of both splits behind a short header, in `images` in the folder where the program keeps
//! what it can make again. Its name stands for the data set's folder and the settings; the header carries the sum of
//! all names, sizes and times of the files it was made of, and a checksum of the pixels. Whatever does not agree is not
//! used but made anew in its place: a cache may be slow, never wrong. A set larger
//! than memory can be trained on: it is mapped, from a private copy (see `mapped`).

use super::checksums::hex;
use super::mapped::Pixels;
use md5::{Digest, Md5};
use rayon::prelude::*;
use rrvq::error::Result;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Begins every file; changes when the form of the files does, or what decoding makes of an image.
const START: &[u8; 16] = b"rrvq images 2\n\0\0";
/// The start, the sum of what the pixels were made of, the bytes of each split, the checksum of the pixels.
const HEADER: usize = 16 + 16 + 8 + 8 + 8;
/// Bytes that are summed up together.
const BLOCK: usize = 1 << 20;

/// A data set that may be kept: where, and what it is made of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    file: PathBuf,
    sources: [u8; 16],
    /// Bytes of each split.
    sizes: [usize; 2],
}

/// A key in the making.
pub(super) struct Stamp {
    file: PathBuf,
    sources: Md5,
    sizes: [usize; 2],
}

impl Stamp {
    /// The set called `name` in `dir`, kept in `cache`; `settings` are those that decide the pixels, `sizes` the bytes
    /// of each split. None where there is no such folder.
    pub fn new(
        cache: &Path,
        name: &str,
        dir: &Path,
        settings: &str,
        sizes: [usize; 2],
    ) -> Option<Stamp> {
        // From another working folder the same name may be another folder.
        let dir = dir.canonicalize().ok()?;
        let place = hex(Md5::new_with_prefix(format!(
            "{name}\n{}\n{settings}",
            dir.display()
        )));
        Some(Stamp {
            file: cache.join("images").join(format!("{name}-{place}")),
            sources: Md5::new(),
            sizes,
        })
    }

    /// Adds a name.
    pub fn add(&mut self, text: &str) {
        self.sources.update((text.len() as u64).to_le_bytes());
        self.sources.update(text.as_bytes());
    }

    /// Adds a file's size, which is returned, and the time it was last written; none where the system does not tell.
    pub fn add_file(&mut self, path: &Path) -> Option<u64> {
        let about = fs::metadata(path).ok()?;
        let written = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        self.sources.update(about.len().to_le_bytes());
        self.sources.update(written.as_nanos().to_le_bytes());
        Some(about.len())
    }

    pub fn done(self) -> Key {
        Key {
            file: self.file,
            sources: self.sources.finalize().into(),
            sizes: self.sizes,
        }
    }
}

/// Both splits, if they were kept whole and nothing they were made of has changed.
pub(super) fn load(key: &Key) -> Option<[Pixels; 2]> {
    let mut file = File::open(&key.file).ok()?;
    let mut header = [0; HEADER];
    file.read_exact(&mut header).ok()?;
    let [train, test] = key.sizes;
    if file.metadata().ok()?.len() != (HEADER + train + test) as u64 {
        return None;
    }
    let pixels = Pixels::rest_of(file, key.file.parent()?).ok()?;
    (header == header_of(key, checksum(&pixels))).then(|| pixels.split_at(train))
}

/// What fills a file with pixels: the outer result is that of making them, the inner that of writing.
type Fill<'a> = &'a mut dyn FnMut(&mut dyn Write) -> Result<io::Result<()>>;

/// Keeps what `fill` writes, whole or not at all. Whether it did: a disk that is full or forbidden is no error.
pub(super) fn store(key: &Key, fill: Fill) -> Result<bool> {
    let Some(folder) = key.file.parent() else {
        return Ok(false);
    };
    let part = key
        .file
        .with_extension(format!("{}.part", std::process::id()));
    let Ok(file) = fs::create_dir_all(folder).and_then(|()| File::create(&part)) else {
        return Ok(false);
    };
    let filled = fill_and_seal(key, file, fill);
    let renamed = matches!(filled, Ok(Ok(()))) && fs::rename(&part, &key.file).is_ok();
    if !renamed {
        let _ = fs::remove_file(&part);
    }
    filled.map(|_| renamed)
}

fn fill_and_seal(key: &Key, mut file: File, fill: Fill) -> Result<io::Result<()>> {
    if let Err(error) = file.write_all(&[0; HEADER]) {
        return Ok(Err(error));
    }
    let mut out = Summed {
        out: &mut file,
        block: Vec::with_capacity(BLOCK),
        blocks: Vec::new(),
        len: 0,
    };
    if let Err(error) = fill(&mut out)? {
        return Ok(Err(error));
    }
    let sum = out.finish();
    // The header comes last: a file without one is not whole.
    let seal = || {
        let header = header_of(key, sum?);
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header)?;
        file.sync_all()
    };
    Ok(seal())
}

/// Writes in blocks, and sums them up as they pass.
struct Summed<'a> {
    out: &'a mut File,
    block: Vec<u8>,
    blocks: Vec<u64>,
    len: usize,
}

impl Summed<'_> {
    fn end_block(&mut self) -> io::Result<()> {
        self.out.write_all(&self.block)?;
        self.blocks.push(checksum_of_block(&self.block));
        self.block.clear();
        Ok(())
    }

    /// The checksum of all that was written.
    fn finish(mut self) -> io::Result<u64> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        Ok(joined(self.len, &self.blocks))
    }
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = &bytes[..bytes.len().min(BLOCK - self.block.len())];
        self.block.extend(some);
        self.len += some.len();
        if self.block.len() == BLOCK {
            self.end_block()?;
        }
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn header_of(key: &Key, checksum: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let parts: [&[u8]; 5] = [
        START,
        &key.sources,
        &(key.sizes[0] as u64).to_le_bytes(),
        &(key.sizes[1] as u64).to_le_bytes(),
        &checksum.to_le_bytes(),
    ];
    header.copy_from_slice(&parts.concat());
    header
}

/// A sum that notices damage and takes less time than reading the file: blocks on all cores, four chains in each.
fn checksum(bytes: &[u8]) -> u64 {
    let blocks: Vec<u64> = bytes.par_chunks(BLOCK).map(checksum_of_block).collect();
    joined(bytes.len(), &blocks)
}

fn joined(len: usize, blocks: &[u64]) -> u64 {
    blocks
        .iter()
        .fold(len as u64, |sum, block| mix(sum, *block))
}

fn checksum_of_block(block: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut chains = [1, 2, 3, 4];
    let wide = block.chunks_exact(32);
    let rest = wide.remainder();
    for four in wide {
        for (chain, bytes) in chains.iter_mut().zip(four.chunks_exact(8)) {
            *chain = mix(*chain, word(bytes));
        }
    }
    let rest = rest.chunks(8).map(word);
    chains.into_iter().chain(rest).fold(0, mix)
}

/// Both steps can be undone, so that two words never become one.
fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::error::Error;

    fn key(scratch: &tempfile::TempDir, settings: &str, file: &str) -> Key {
        let dir = scratch.path().join("");
        let mut stamp =
            Stamp::new(&scratch.path().join("cache"), "set", &dir, settings, [5, 3]).unwrap();
        stamp.add("name");
        assert!(stamp.add_file(&scratch.path().join(file)).is_some());
        stamp.done()
    }

    fn eight(out: &mut dyn Write) -> Result<io::Result<()>> {
        Ok(out.write_all(b"01234").and_then(|()| out.write_all(b"567")))
    }

    #[test]
    fn what_was_kept_comes_back_until_a_file_changes() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a"), "one").unwrap();
        std::fs::write(scratch.path().join("b"), "other").unwrap();
        let mine = key(&scratch, "size 8", "a");
        assert!(load(&mine).is_none());
        assert!(store(&mine, &mut eight).unwrap());
        let [train, test] = load(&mine).unwrap();
        assert_eq!((&train[..], &test[..]), (&b"01234"[..], &b"567"[..]));
        assert!(load(&key(&scratch, "size 9", "a")).is_none());
        let changed = key(&scratch, "size 8", "b");
        assert_eq!(changed.file, mine.file, "the old one is replaced");
        assert!(load(&changed).is_none());
        let names = std::fs::read_dir(scratch.path().join("cache/images")).unwrap();
        assert_eq!(names.count(), 1, "nothing is left over");
    }

    #[test]
    fn no_damage_is_trusted() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a"), "one").unwrap();
        let key = key(&scratch, "", "a");
        assert!(store(&key, &mut eight).unwrap());
        let whole = std::fs::read(&key.file).unwrap();
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] ^= 4;
            std::fs::write(&key.file, &wrong).unwrap();
            assert!(load(&key).is_none(), "byte {at}");
            std::fs::write(&key.file, &whole[..at]).unwrap();
            assert!(load(&key).is_none(), "cut to {at}");
        }
        std::fs::write(&key.file, [&whole[..], b"more"].concat()).unwrap();
        assert!(load(&key).is_none());
        std::fs::write(&key.file, &whole).unwrap();
        assert!(load(&key).is_some());
    }

    #[test]
    fn failures_leave_nothing_behind() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a"), "one").unwrap();
        let mine = key(&scratch, "", "a");
        let full = store(&mine, &mut |out| {
            Ok(out
                .write_all(b"some")
                .and(Err(io::ErrorKind::StorageFull.into())))
        });
        assert_eq!(full, Ok(false));
        let unreadable = store(&mine, &mut |_| Err(Error::new("no image")));
        assert_eq!(unreadable, Err(Error::new("no image")));
        let short = store(&mine, &mut |out| Ok(out.write_all(b"01")));
        assert_eq!(short, Ok(true));
        assert!(load(&mine).is_none(), "too few pixels");
        std::fs::remove_dir_all(scratch.path().join("cache")).unwrap();
        std::fs::write(scratch.path().join("cache"), "a file in the way").unwrap();
        assert_eq!(store(&mine, &mut eight), Ok(false));
    }

    #[test]
    fn the_checksum_sees_every_bit_and_every_place() {
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * 7) as u8).collect();
        let sum = checksum(&bytes);
        for at in [0, 8, 31, 32, 1500, 2999] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x80;
            assert_ne!(checksum(&wrong), sum, "byte {at}");
        }
        let mut swapped = bytes.clone();
        swapped.swap(100, 132);
        assert_ne!(checksum(&swapped), sum);
        assert_ne!(checksum(&[bytes, vec![0]].concat()), sum);
    }
}
