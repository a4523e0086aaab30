//! Files inside other files: gzip, and the members of a tar archive.
//!
//! Data sets are handed out packed; reading them so saves a step and the room of an unpacked copy.

use flate2::bufread::MultiGzDecoder;
use std::io::{ErrorKind, Read};

const BLOCK: usize = 512;

/// Whether `bytes` begin as a gzip file does.
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// What a gzip file holds, or what is wrong and at which byte.
pub(super) fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if !is_gzip(bytes) {
        return Err("byte 0 does not begin a gzip file".into());
    }
    let (mut rest, mut out) = (bytes, Vec::new());
    let read = MultiGzDecoder::new(&mut rest).read_to_end(&mut out);
    let at = bytes.len() - rest.len();
    match read {
        Ok(_) => Ok(out),
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
    let (mut found, mut at) = (Vec::new(), 0);
    // Two blocks of zeros are the end; some writers leave them out.
    while at < tar.len() {
        let Some(header) = tar.get(at..at + BLOCK) else {
            return Err(ends(tar));
        };
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let size = octal(&header[124..136]).filter(|_| is_header(header));
        let Some(size) = size else {
            return Err(format!(
                "byte {at} of what it unpacks to does not begin a member of a tar archive"
            ));
        };
        let start = at + BLOCK;
        let content = tar[start..].get(..size).ok_or_else(|| ends(tar))?;
        // Plain files are marked with a zero digit, or with nothing in old archives.
        if [b'0', 0].contains(&header[156]) {
            found.push((text(&header[..100]), content));
        }
        at = start + size.next_multiple_of(BLOCK);
    }
    Ok(found)
}

fn ends(tar: &[u8]) -> String {
    let at = tar.len();
    format!("what it unpacks to ends at byte {at}, in the middle of a member")
}

/// Headers carry the sum of their bytes, taken with blanks in the place of the sum.
fn is_header(header: &[u8]) -> bool {
    let blank = |(i, byte): (usize, &u8)| match (148..156).contains(&i) {
        true => usize::from(b' '),
        false => usize::from(*byte),
    };
    octal(&header[148..156]) == Some(header.iter().enumerate().map(blank).sum())
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
}

fn octal(field: &[u8]) -> Option<usize> {
    usize::from_str_radix(text(field).trim(), 8).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A tar archive of these files, behind an entry for a folder.
    pub(crate) fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        let folder = ("folder/".to_string(), Vec::new());
        for (i, (name, content)) in std::iter::once(&folder).chain(files).enumerate() {
            let mut header = [0; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            header[148..156].fill(b' ');
            header[156] = if i == 0 { b'5' } else { b'0' };
            let sum: usize = header.iter().map(|byte| usize::from(*byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            out.extend(header);
            out.extend(content);
            out.resize(out.len().next_multiple_of(BLOCK), 0);
        }
        out.resize(out.len() + 2 * BLOCK, 0);
        out
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
}
