//! Zip archives: which files are inside, and the bytes of one of them.
//!
//! The list stands at the end of an archive, so it is read from there, and single files are then unpacked where they
//! lie, on as many cores as ask. The list's own length says where it ends, not the number of its entries: that number
//! has 16 bits, and CelebA has three times as many images. Every unpacked file is held to its checksum.

use flate2::bufread::DeflateDecoder;
use std::borrow::Cow;
use std::io::Read;

/// One file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its path inside, with `/` between folders.
    pub name: String,
    method: usize,
    crc: u32,
    packed: usize,
    size: usize,
    /// Where its own header begins.
    at: usize,
}

/// What begins each part of an archive.
const FILE: &[u8] = b"PK\x03\x04";
const LISTED: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const LONG_END: &[u8] = b"PK\x06\x06";
const LONG_END_PLACE: &[u8] = b"PK\x06\x07";
const FILE_HEADER: usize = 30;
const LIST_HEADER: usize = 46;
const END_HEADER: usize = 22;
const LONG_END_HEADER: usize = 56;
/// A comment may stand behind the end.
const LONGEST_COMMENT: usize = 65_535;
/// In a place of four bytes: the number is elsewhere, it does not fit.
const ELSEWHERE: usize = 0xffff_ffff;
const STORED: usize = 0;
const DEFLATED: usize = 8;
/// The bit that says that a file is encrypted.
const SECRET: usize = 1;

/// The files in an archive, folders left out, or what is wrong and at which byte.
pub(super) fn entries(archive: &[u8]) -> Result<Vec<Entry>, String> {
    let (start, len) = list(archive)?;
    let end = start.checked_add(len).filter(|end| *end <= archive.len());
    let Some(end) = end else {
        return Err(format!(
            "it ends at byte {}, but its list of files would be {len} bytes from byte {start}",
            archive.len()
        ));
    };
    let (mut found, mut at) = (Vec::new(), start);
    while at < end {
        let header = archive[at..end].get(..LIST_HEADER);
        let Some(header) = header.filter(|header| header.starts_with(LISTED)) else {
            return Err(format!("byte {at} does not begin an entry of its list"));
        };
        let [name_len, extra_len, comment_len] = [28, 30, 32].map(|place| short(header, place));
        let next = at + LIST_HEADER + name_len + extra_len + comment_len;
        if next > end {
            return Err(format!(
                "the entry at byte {at} of its list goes beyond the list's end at byte {end}"
            ));
        }
        let name = String::from_utf8_lossy(&archive[at + LIST_HEADER..][..name_len]).into_owned();
        let [packed, size, place] = [20, 24, 42].map(|place| long(header, place));
        if [packed, size, place].contains(&ELSEWHERE) {
            return Err(format!(
                "{name}, listed at byte {at}, is beyond 4 GiB, which is not supported; unpack the archive"
            ));
        }
        if !name.ends_with('/') {
            if short(header, 8) & SECRET != 0 {
                return Err(format!("{name}, listed at byte {at}, is encrypted"));
            }
            found.push(Entry {
                name,
                method: short(header, 10),
                crc: long(header, 16) as u32,
                packed,
                size,
                at: place,
            });
        }
        at = next;
    }
    Ok(found)
}

/// Where the list of files begins and how long it is.
fn list(archive: &[u8]) -> Result<(usize, usize), String> {
    if !archive.starts_with(FILE) && !archive.starts_with(END) {
        return Err("byte 0 does not begin a zip archive".into());
    }
    let whole = archive.len();
    let earliest = whole.saturating_sub(END_HEADER + LONGEST_COMMENT);
    let tail = &archive[earliest..];
    let end = tail
        .windows(END_HEADER)
        .rposition(|window| window.starts_with(END));
    let Some(end) = end.map(|end| earliest + end) else {
        return Err(format!(
            "it ends at byte {whole} without its list of files, so a part of it is missing"
        ));
    };
    let header = &archive[end..];
    let (len, start) = (long(header, 12), long(header, 16));
    if start != ELSEWHERE && len != ELSEWHERE {
        return Ok((start, len));
    }
    // The long form stands before the end, and the place of the long form right before the end.
    let pointer = end.checked_sub(20).map(|at| &archive[at..end]);
    let at = pointer
        .filter(|pointer| pointer.starts_with(LONG_END_PLACE))
        .and_then(|pointer| very_long(pointer, 8));
    let header = at.and_then(|at| archive.get(at..)?.get(..LONG_END_HEADER));
    header
        .filter(|header| header.starts_with(LONG_END))
        .and_then(|header| Some((very_long(header, 48)?, very_long(header, 40)?)))
        .ok_or_else(|| format!("byte {end} refers to a longer list that is not there"))
}

/// The content of a file, or what is wrong and at which byte of the archive.
pub(super) fn read<'a>(archive: &'a [u8], entry: &Entry) -> Result<Cow<'a, [u8]>, String> {
    let at = entry.at;
    let header = archive.get(at..).and_then(|rest| rest.get(..FILE_HEADER));
    let Some(header) = header.filter(|header| header.starts_with(FILE)) else {
        return Err(format!("byte {at} does not begin a file"));
    };
    let start = at + FILE_HEADER + short(header, 26) + short(header, 28);
    let packed = archive.get(start..).and_then(|r| r.get(..entry.packed));
    let Some(packed) = packed else {
        return Err(format!(
            "it ends at byte {}, in the middle of the file that begins at byte {at}",
            archive.len()
        ));
    };
    let content = match entry.method {
        STORED => Cow::Borrowed(packed),
        DEFLATED => {
            let mut out = Vec::new();
            let wrong = || format!("what is packed from byte {start} on is damaged");
            // One byte more than it should have, so that too much is noticed and nothing endless is unpacked.
            out.try_reserve_exact(entry.size + 1).map_err(|_| wrong())?;
            DeflateDecoder::new(packed)
                .take(entry.size as u64 + 1)
                .read_to_end(&mut out)
                .map_err(|_| wrong())?;
            Cow::Owned(out)
        }
        other => {
            return Err(format!(
                "byte {} says that it is packed in way {other}; expected 0 (stored) or 8 (deflated)",
                at + 8
            ));
        }
    };
    let mut crc = flate2::Crc::new();
    crc.update(&content);
    if content.len() != entry.size || crc.sum() != entry.crc {
        return Err(format!(
            "the {} bytes from byte {start} on do not have the checksum they are listed with",
            entry.packed
        ));
    }
    Ok(content)
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn long(bytes: &[u8], at: usize) -> usize {
    short(bytes, at) | short(bytes, at + 2) << 16
}

fn very_long(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u64::from_le_bytes(*bytes)).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use std::io::Write;

    /// An archive of these files, every other one deflated, behind an entry for a folder.
    pub(crate) fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
        archive(files, false)
    }

    fn archive(files: &[(&str, &[u8])], long: bool) -> Vec<u8> {
        let (mut out, mut list) = (Vec::new(), Vec::new());
        let folder = ("folder/", &[][..]);
        for (i, (name, content)) in std::iter::once(&folder).chain(files).enumerate() {
            let (method, packed) = match i % 2 {
                0 => (STORED, content.to_vec()),
                _ => {
                    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
                    encoder.write_all(content).unwrap();
                    (DEFLATED, encoder.finish().unwrap())
                }
            };
            let mut crc = flate2::Crc::new();
            crc.update(content);
            let mut common = vec![20, 0, 0, 0, method as u8, 0, 0, 0, 0, 0];
            for number in [crc.sum(), packed.len() as u32, content.len() as u32] {
                common.extend(number.to_le_bytes());
            }
            common.extend((name.len() as u16).to_le_bytes());
            let at = out.len() as u32;
            out.extend(FILE);
            out.extend(&common);
            // Three bytes of extra field, which the list does not have.
            out.extend([3, 0]);
            out.extend(name.as_bytes());
            out.extend(b"xyz");
            out.extend(packed);
            list.extend(LISTED);
            list.extend([20, 0]);
            list.extend(&common);
            list.extend([0; 12]);
            list.extend(at.to_le_bytes());
            list.extend(name.as_bytes());
        }
        let (start, len, count) = (out.len() as u64, list.len() as u64, files.len() as u64 + 1);
        out.extend(list);
        if long {
            let at = out.len() as u64;
            out.extend(LONG_END);
            out.extend(44u64.to_le_bytes());
            out.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            [count, count, len, start]
                .iter()
                .for_each(|number| out.extend(number.to_le_bytes()));
            out.extend(LONG_END_PLACE);
            out.extend([0; 4]);
            out.extend(at.to_le_bytes());
            out.extend([1, 0, 0, 0]);
        }
        out.extend(END);
        out.extend([0; 4]);
        // As in a large archive, the number of entries does not count.
        out.extend([0xff; 4]);
        match long {
            true => out.extend([0xff; 8]),
            false => {
                out.extend((len as u32).to_le_bytes());
                out.extend((start as u32).to_le_bytes());
            }
        }
        out.extend([7, 0]);
        out.extend(b"comment");
        out
    }

    #[test]
    fn files_come_out_as_they_went_in() {
        let long: Vec<u8> = (0..5000).map(|i| (i / 40) as u8).collect();
        let files = [("folder/a", &long[..]), ("b", b"short"), ("empty", b"")];
        for archive in [archive(&files, false), archive(&files, true)] {
            let found = entries(&archive).unwrap();
            let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(names, ["folder/a", "b", "empty"]);
            for (entry, (_, content)) in found.iter().zip(files) {
                assert_eq!(*read(&archive, entry).unwrap(), *content);
            }
        }
        assert_eq!(entries(&zip(&[])).unwrap(), []);
    }

    #[test]
    fn damage_is_told_with_its_byte() {
        let long: Vec<u8> = (0..500).map(|i| (i * i) as u8).collect();
        let archive = zip(&[("a", &long), ("b", &long)]);
        let found = entries(&archive).unwrap();
        assert!(entries(b"GIF89a").unwrap_err().contains("byte 0"));
        let said = entries(&archive[..700]).unwrap_err();
        assert!(said.contains("ends at byte 700"), "{said}");
        let said = read(&archive[..700], &found[1]).unwrap_err();
        assert!(said.contains("ends at byte 700"), "{said}");
        for (entry, words) in [(&found[0], "damaged"), (&found[1], "checksum")] {
            let mut wrong = archive.clone();
            wrong[entry.at + 40..][..20].fill(0xff);
            let said = read(&wrong, entry).unwrap_err();
            let byte = format!("byte {}", entry.at + FILE_HEADER + 4);
            let told = said.contains(words) || said.contains("checksum");
            assert!(told && said.contains(&byte), "{said}");
        }
        let list = archive.windows(4).position(|w| w == LISTED).unwrap();
        let mut wrong = archive.clone();
        wrong[list] = b'Q';
        let said = entries(&wrong).unwrap_err();
        assert!(said.contains(&format!("byte {list}")), "{said}");
        let mut secret = archive.clone();
        secret[list + 8] |= 1;
        assert!(entries(&secret).is_ok(), "the first is a folder");
        let next = list + LIST_HEADER + "folder/".len();
        secret[next + 8] |= 1;
        assert!(entries(&secret).unwrap_err().contains("encrypted"));
        let mut other = found[0].clone();
        other.method = 14;
        assert!(read(&archive, &other).unwrap_err().contains("way 14"));
    }

    #[test]
    fn no_single_wrong_byte_is_a_panic() {
        let archive = zip(&[("a", b"content"), ("b", b"more of it")]);
        for at in 0..archive.len() {
            for value in [0, 0x7f, 0xff] {
                let mut wrong = archive.clone();
                wrong[at] = value;
                if let Ok(found) = entries(&wrong) {
                    found.iter().for_each(|entry| drop(read(&wrong, entry)));
                }
            }
        }
    }
}
