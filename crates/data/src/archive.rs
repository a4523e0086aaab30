//! Files inside other files: gzip, and the members of tar and zip archives.
//!
//! Data sets are handed out packed; reading them so saves a step and the room of an unpacked copy. Nothing is written to
//! disk, so no path in an archive leads anywhere.

use super::mapped::Shared;
use flate2::bufread::MultiGzDecoder;
use rrvq::error::Error;
use rrvq::limits;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// Bytes of a tar header; contents are padded to a multiple of it.
const BLOCK: usize = 512;
/// Bytes of an entry in a zip archive's list of files, before the file's name.
const LIST_HEADER: usize = 46;

/// Whether `bytes` begin as a gzip file does.
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// What a gzip file holds, or what is wrong and at which byte.
pub(super) fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if !is_gzip(bytes) {
        return Err("byte 0 does not begin a gzip file".into());
    }
    let mut rest = bytes;
    let read = limits::read_all(MultiGzDecoder::new(&mut rest));
    let at = bytes.len() - rest.len();
    match read {
        Ok(out) => out.ok_or_else(limits::unpacks_to_more),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(format!("it ends at byte {}, in the middle", bytes.len()))
        }
        Err(error) => Err(format!(
            "it is damaged near byte {at} and cannot be unpacked ({error})"
        )),
    }
}

/// The files in a tar archive, each with its path, or what is wrong and at which byte of the archive.
pub(super) fn members(tar: &[u8]) -> Result<Vec<(String, &[u8])>, String> {
    let ends = || {
        let at = tar.len();
        format!("what it unpacks to ends at byte {at}, in the middle of a member")
    };
    let (mut found, mut at) = (Vec::new(), 0);
    let mut archive = tar::Archive::new(tar);
    for entry in archive.entries().map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| match tar.len() < at + BLOCK {
            true => ends(),
            false => format!(
                "byte {at} of what it unpacks to does not begin a member of a tar archive ({error})"
            ),
        })?;
        let start = usize::try_from(entry.raw_file_position()).map_err(|_| ends())?;
        let size = usize::try_from(entry.size()).map_err(|_| ends())?;
        let content = tar.get(start..).and_then(|rest| rest.get(..size));
        let content = content.ok_or_else(ends)?;
        if entry.header().entry_type().is_file() {
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            found.push((path, content));
        }
        at = start + size.next_multiple_of(BLOCK);
    }
    Ok(found)
}

/// A zip archive, whose files are unpacked in memory, on as many cores as ask.
pub(super) struct Zip {
    path: PathBuf,
    archive: ZipArchive<Shared>,
}

impl Zip {
    pub fn open(path: &Path) -> Result<Zip, Error> {
        let bytes = Shared::open(path)?;
        let bad = |problem: String| {
            let path = path.display();
            Error::new(format!(
                "{path} cannot be read as a zip archive: {problem}; fetch it again"
            ))
        };
        let archive = ZipArchive::new(bytes.clone()).map_err(|error| {
            let at = bytes.len();
            bad(format!(
                "it ends at byte {at} without a list of files that can be read ({error})"
            ))
        })?;
        let path = path.to_path_buf();
        let zip = Zip { path, archive };
        match zip.lists_more_than_it_counts(&bytes) {
            None | Some(false) => Ok(zip),
            Some(true) => Err(bad(
                "it lists more files than it counts, so a part of them would be missing; unpack it"
                    .into(),
            )),
        }
    }

    /// Some writers count files in 16 bits, and CelebA has three times as many.
    fn lists_more_than_it_counts(&self, bytes: &Shared) -> Option<bool> {
        let entries = (0..self.archive.len()).filter_map(|i| self.archive.by_index_data(i).ok());
        let last = entries.map(|entry| entry.central_header_start()).max()?;
        let header = bytes.part(last, LIST_HEADER).ok()?;
        let len = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let next = last + (LIST_HEADER + len(28) + len(30) + len(32)) as u64;
        let next = bytes.part(next, 4).ok()?;
        Some(next == *b"PK\x01\x02")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, folders left out: the number and the path of each.
    pub fn files(&self) -> Vec<(usize, String)> {
        let names = self.archive.file_names_raw().enumerate();
        names
            .map(|(i, name)| (i, String::from_utf8_lossy(name).into_owned()))
            .filter(|(_, name)| !name.ends_with('/'))
            .collect()
    }

    /// The content of a file, held to its size and its checksum.
    pub fn read(&self, number: usize) -> Result<Vec<u8>, String> {
        let mut archive = self.archive.clone();
        let file = archive.by_index(number).map_err(|e| e.to_string())?;
        let size = file.size();
        // One byte more than it should have, so that too much is noticed and nothing endless is unpacked.
        let content = limits::read_all(file.take(size.saturating_add(1)));
        let content = content.map_err(|error| error.to_string())?;
        let content = content.ok_or_else(limits::unpacks_to_more)?;
        match content.len() as u64 == size {
            true => Ok(content),
            false => Err(format!("it is listed with {size} bytes and has others")),
        }
    }
}

impl fmt::Debug for Zip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::{Cursor, Write};

    pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A tar archive of these files, behind an entry for a folder.
    pub(crate) fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |name: &str, kind: tar::EntryType, content: &[u8]| {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, content).unwrap();
        };
        add("folder/", tar::EntryType::Directory, &[]);
        for (name, content) in files {
            add(name, tar::EntryType::Regular, content);
        }
        builder.into_inner().unwrap()
    }

    /// A zip archive of these files, every other one deflated, behind an entry for a folder.
    pub(crate) fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        writer.add_directory("folder", options).unwrap();
        for (i, (name, content)) in files.iter().enumerate() {
            let method = match i % 2 {
                0 => zip::CompressionMethod::Deflated,
                _ => zip::CompressionMethod::Stored,
            };
            let options = options.compression_method(method);
            writer.start_file(*name, options).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// Writes an archive and opens it.
    fn opened(bytes: &[u8]) -> Result<Zip, Error> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a.zip");
        std::fs::write(&path, bytes).unwrap();
        Zip::open(&path)
    }

    #[test]
    fn members_come_out_as_they_went_in() {
        let files = [
            ("folder/a".into(), vec![1; 700]),
            ("b".into(), vec![2; 512]),
        ];
        let archive = tar(&files);
        let packed = gzip(&archive);
        assert_eq!(gunzip(&packed).unwrap(), archive);
        let found = members(&archive).unwrap();
        let expected: Vec<(String, &[u8])> = files
            .iter()
            .map(|(name, bytes)| (name.clone(), &bytes[..]))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn damage_is_told_with_its_byte() {
        let archive = tar(&[("a".into(), vec![1; 700])]);
        let packed = gzip(&archive);
        for cut in [3, 20, packed.len() - 1] {
            let said = gunzip(&packed[..cut]).unwrap_err();
            assert!(said.contains(&format!("ends at byte {cut}")), "{said}");
        }
        let mut wrong = packed.clone();
        let sum = packed.len() - 6;
        wrong[sum] ^= 1;
        assert!(gunzip(&wrong).unwrap_err().contains("damaged near byte"));
        assert!(gunzip(b"PK").unwrap_err().contains("byte 0"));
        assert!(
            members(&archive[..900])
                .unwrap_err()
                .contains("ends at byte 900")
        );
        assert!(
            members(&archive[..1200])
                .unwrap_err()
                .contains("ends at byte 1200")
        );
        let mut wrong = archive.clone();
        wrong[515] = b'x';
        assert!(members(&wrong).unwrap_err().contains("byte 512"));
    }

    #[test]
    fn zipped_files_come_out_as_they_went_in() {
        let long: Vec<u8> = (0..5000).map(|i| (i / 40) as u8).collect();
        let files = [("folder/a", &long[..]), ("../b", b"short"), ("empty", b"")];
        let zip = opened(&zip(&files)).unwrap();
        let found = zip.files();
        let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["folder/a", "../b", "empty"]);
        for ((number, _), (_, content)) in found.iter().zip(files) {
            assert_eq!(zip.read(*number).unwrap(), content);
        }
        assert_eq!(opened(&self::zip(&[])).unwrap().files(), []);
    }

    #[test]
    fn damage_in_a_zip_is_told() {
        let long: Vec<u8> = (0..500).map(|i| (i * i) as u8).collect();
        let whole = zip(&[("a", &long), ("b", &long)]);
        let said = opened(&whole[..700]).unwrap_err().to_string();
        let told = said.contains("a.zip") && said.contains("ends at byte 700");
        assert!(told && said.contains("fetch it again"), "{said}");
        assert!(opened(b"GIF89a").is_err());
        // The content of b is stored, so that one wrong byte is found by the checksum alone.
        let mut wrong = whole.clone();
        let stored = wrong.windows(500).position(|w| w == &long[..]).unwrap();
        wrong[stored + 9] ^= 1;
        let zip = opened(&wrong).unwrap();
        assert!(zip.read(1).is_ok());
        let said = zip.read(2).unwrap_err();
        assert!(said.to_lowercase().contains("checksum"), "{said}");
    }

    #[test]
    fn a_zip_that_lists_more_than_it_counts_is_refused() {
        let mut bytes = zip(&[("a", b"1"), ("b", b"2")]);
        let end = bytes.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
        assert_eq!(bytes[end + 8..][..4], [3, 0, 3, 0], "folder, a and b");
        bytes[end + 8..][..4].copy_from_slice(&[1, 0, 1, 0]);
        let said = opened(&bytes).unwrap_err().to_string();
        assert!(said.contains("more files than it counts"), "{said}");
    }

    #[test]
    fn no_wrong_byte_in_a_zip_is_a_panic() {
        let whole = zip(&[("a", b"content"), ("b", b"more of it")]);
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a.zip");
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut wrong = whole.clone();
                wrong[at] = value;
                std::fs::write(&path, &wrong).unwrap();
                if let Ok(zip) = Zip::open(&path) {
                    zip.files().iter().for_each(|(i, _)| drop(zip.read(*i)));
                }
            }
        }
    }
}
