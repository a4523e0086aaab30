//! What a file may ask for: one budget for everything that is read, the same for the whole process.
//!
//! Models, configurations, images and data sets come from anywhere, and a few bytes can describe terabytes. Sizes are held
//! to the [`Limits`] before anything is allocated or drawn. What exceeds them is an error that gives both numbers.
//!
//! ```
//! use rrvq::limits::{self, Limits};
//!
//! assert!(limits::check_pixels(1 << 15, 1 << 15).is_err());
//! Limits { pixels: 1 << 30, ..Limits::default() }.set();
//! assert!(limits::check_pixels(1 << 15, 1 << 15).is_ok());
//! # Limits::default().set();
//! ```

use crate::error::{Error, Result};
use rrvq_tensor::limit::{
    DEFAULT_MEMORY_LIMIT, check_memory, memory_limit, readable, set_memory_limit,
};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most layers of latents, and most residual blocks of all layers together. Drawing and planning take time with them.
pub(crate) const MOST_LAYERS: usize = 512;
pub(crate) const MOST_BLOCKS: usize = 4096;

const DEFAULT_PIXELS: usize = 1 << 26;

static PIXELS: AtomicUsize = AtomicUsize::new(DEFAULT_PIXELS);

/// The budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one allocation: parameters, what a program works in, an unpacked file, the rows of a table.
    pub memory: usize,
    /// Pixels of an image, and of images that are decoded together.
    pub pixels: usize,
}

impl Default for Limits {
    /// 8 GiB, and 67,108,864 pixels: an image of 8192 × 8192.
    fn default() -> Self {
        Limits {
            memory: DEFAULT_MEMORY_LIMIT,
            pixels: DEFAULT_PIXELS,
        }
    }
}

impl Limits {
    /// Makes these the limits of the process.
    pub fn set(self) {
        set_memory_limit(self.memory);
        PIXELS.store(self.pixels, Ordering::Relaxed);
    }

    /// The limits of the process.
    pub fn current() -> Limits {
        Limits {
            memory: memory_limit(),
            pixels: PIXELS.load(Ordering::Relaxed),
        }
    }
}

/// Refuses an image of more pixels than the limit; the sentence goes on from a name or "it".
pub fn check_pixels(width: usize, height: usize) -> std::result::Result<(), String> {
    match width.checked_mul(height) {
        Some(pixels) if pixels <= Limits::current().pixels => Ok(()),
        _ => Err(format!("it has {width}×{height} pixels{}", above_pixels())),
    }
}

/// Refuses images that are decoded together and have so many pixels in all.
pub fn check_pixels_in_all(pixels: usize) -> std::result::Result<(), String> {
    match pixels <= Limits::current().pixels {
        true => Ok(()),
        false => Err(format!(
            "images that are decoded together have {pixels} pixels{}",
            above_pixels()
        )),
    }
}

fn above_pixels() -> String {
    let most = Limits::current().pixels;
    format!(", and at most {most} are read (max-pixels); raise the limit if you trust the file")
}

/// Refuses `bytes` above the limit; `what` begins the sentence.
pub fn check_bytes(what: &str, bytes: usize) -> Result<()> {
    check_memory(what, bytes).map_err(|said| Error::new(said.to_string()))
}

/// All that `source` gives, up to the limit; `None` where there is more.
pub fn read_all(source: impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let (mut bytes, most) = (Vec::new(), memory_limit());
    // A source is read as it comes, so that memory grows with what is there, not with what was claimed.
    source
        .take((most as u64).saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok((bytes.len() <= most).then_some(bytes))
}

/// What to say of something that unpacks to more than the limit.
pub fn unpacks_to_more() -> String {
    format!(
        "it unpacks to more than {} (max-memory); raise the limit if you trust it",
        readable(memory_limit())
    )
}

/// The bytes of a file, refused where it is larger than the limit.
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let failed = |error| Error::io("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    check_bytes(&format!("reading {}", path.display()), len)?;
    read_all(file).map_err(failed)?.ok_or_else(|| {
        Error::new(format!(
            "{} goes on beyond {} (max-memory); name another file",
            path.display(),
            readable(memory_limit())
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_counted_without_overflow() {
        assert!(check_pixels(1 << 13, 1 << 13).is_ok());
        for (width, height) in [(1 << 13, (1 << 13) + 1), (usize::MAX, 2)] {
            let said = check_pixels(width, height).unwrap_err();
            let told = said.contains(&width.to_string()) && said.contains("at most 67108864");
            assert!(told, "{said}");
        }
        assert!(check_pixels_in_all(DEFAULT_PIXELS + 1).is_err());
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(DEFAULT_MEMORY_LIMIT as u64 + 1).unwrap();
        let said = read_file(&path).unwrap_err().to_string();
        assert!(said.contains("sparse") && said.contains("8 GiB"), "{said}");
        std::fs::write(&path, "short").unwrap();
        assert_eq!(read_file(&path).unwrap(), b"short");
    }
}
