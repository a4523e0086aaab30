//! Compiled kernels on disk: one file each, named after a hash of what went in, with a hash of what came out.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Begins every file; changes when the form of the files does.
const START: &[u8] = b"rrvq kernel 1\n";

/// The name of a cached kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(u128);

impl Key {
    pub fn of(parts: &[&str]) -> Key {
        let mut hash = Hash::new();
        for part in parts {
            // The lengths keep ("ab", "c") apart from ("a", "bc").
            hash.add(&(part.len() as u64).to_le_bytes());
            hash.add(part.as_bytes());
        }
        Key(hash.0)
    }
}

/// FNV-1a with 128 bits: no protection against malice, and none is needed in one's own folder.
struct Hash(u128);

impl Hash {
    fn new() -> Hash {
        Hash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul((1 << 88) + 0x13b);
        }
    }

    fn of(bytes: &[u8]) -> [u8; 16] {
        let mut hash = Hash::new();
        hash.add(bytes);
        hash.0.to_le_bytes()
    }
}

pub struct Cache(PathBuf);

impl Cache {
    pub fn in_folder(folder: &Path) -> Cache {
        Cache(folder.join("kernels"))
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.0.join(format!("{:032x}.cubin", key.0))
    }

    /// The cached kernel, if its file is undamaged.
    pub fn read(&self, key: &Key) -> Option<Vec<u8>> {
        let bytes = fs::read(self.file(key)).ok()?;
        let rest = bytes.strip_prefix(START)?;
        let (hash, cubin) = rest.split_at_checked(16)?;
        (!cubin.is_empty() && hash == Hash::of(cubin)).then(|| cubin.to_vec())
    }

    /// Writes a kernel to the cache; a full or read-only disk is not an error.
    pub fn write(&self, key: &Key, cubin: &[u8]) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:032x}.{}-{number}.part", key.0, std::process::id());
        let part = self.0.join(name);
        let written = fs::create_dir_all(&self.0)
            .and_then(|()| {
                let mut file = fs::File::create(&part)?;
                file.write_all(START)?;
                file.write_all(&Hash::of(cubin))?;
                file.write_all(cubin)
            })
            .and_then(|()| fs::rename(&part, self.file(key)));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // The reference value of the empty text and of "a", from the algorithm's definition.
        assert_eq!(Hash::new().0, 144066263297769815596495629667062367629);
        let mut hash = Hash::new();
        hash.add(b"a");
        assert_eq!(hash.0, 0xd228cb69_6f1a8caf_78912b70_4e4a8964);
    }

    #[test]
    fn keys_see_where_a_part_ends() {
        assert_ne!(Key::of(&["ab", "c"]), Key::of(&["a", "bc"]));
        assert_ne!(Key::of(&["ab"]), Key::of(&["ab", ""]));
        assert_eq!(Key::of(&["a", "b"]), Key::of(&["a", "b"]));
    }
}
