//! How many bytes of an image file are not the image: signatures, tables, boxes around the coded data.
//!
//! At some hundred bytes a file is mostly that, and a comparison of codecs is one of headers. So both are told: the whole,
//! and the part that every file of the format has to have.

/// Bytes around the coded samples; `None` where the format does not keep them apart.
pub fn header_bytes(file: &[u8]) -> Option<usize> {
    match file {
        [0xff, 0xd8, ..] => jpeg(file),
        [0x89, b'P', b'N', b'G', ..] => Some(file.len() - payload(file, 8, png_chunk, &[b"IDAT"])?),
        [b'R', b'I', b'F', b'F', ..] => {
            Some(file.len() - payload(file, 12, riff_chunk, &[b"VP8 ", b"VP8L", b"ALPH"])?)
        }
        // A bare JPEG XL stream: its header is bits, packed with what follows.
        [0xff, 0x0a, ..] => None,
        _ => Some(file.len() - payload(file, 0, iso_box, &[b"mdat", b"jxlc", b"jxlp"])?),
    }
}

/// Everything before the first scan's entropy-coded data.
fn jpeg(file: &[u8]) -> Option<usize> {
    let mut at = 2;
    loop {
        let [0xff, marker] = *file.get(at..at + 2)? else {
            return None;
        };
        // A marker may be preceded by any number of fill bytes.
        if marker == 0xff {
            at += 1;
            continue;
        }
        let len = u16::from_be_bytes(*file.get(at + 2..)?.first_chunk()?) as usize;
        at += 2 + len;
        if marker == 0xda {
            return (at <= file.len()).then_some(at);
        }
    }
}

/// A part of a file: its name, where its data begins and ends, and where the next part begins.
struct Part {
    name: [u8; 4],
    data: std::ops::Range<usize>,
    next: usize,
}

/// Bytes in the data of the parts with these names.
fn payload(
    file: &[u8],
    start: usize,
    part: fn(&[u8], usize) -> Option<Part>,
    names: &[&[u8; 4]],
) -> Option<usize> {
    let (mut at, mut sum, mut found) = (start, 0, false);
    while at < file.len() {
        let part = part(file, at)?;
        if part.next <= at || part.data.end > file.len() {
            return None;
        }
        if names.contains(&&part.name) {
            sum += part.data.len();
            found = true;
        }
        at = part.next;
    }
    found.then_some(sum)
}

fn four(file: &[u8], at: usize) -> Option<[u8; 4]> {
    file.get(at..)?.first_chunk().copied()
}

fn png_chunk(file: &[u8], at: usize) -> Option<Part> {
    let len = u32::from_be_bytes(four(file, at)?) as usize;
    Some(Part {
        name: four(file, at + 4)?,
        data: at + 8..at + 8 + len,
        next: at + 12 + len,
    })
}

fn riff_chunk(file: &[u8], at: usize) -> Option<Part> {
    let len = u32::from_le_bytes(four(file, at + 4)?) as usize;
    Some(Part {
        name: four(file, at)?,
        data: at + 8..at + 8 + len,
        next: at + 8 + len.next_multiple_of(2),
    })
}

/// A box of AVIF or of JPEG XL's container.
fn iso_box(file: &[u8], at: usize) -> Option<Part> {
    let (head, len) = match u32::from_be_bytes(four(file, at)?) {
        // To the end of the file.
        0 => (8, file.len() - at),
        1 => {
            let len = u64::from_be_bytes(*file.get(at + 8..)?.first_chunk()?);
            (16, usize::try_from(len).ok()?)
        }
        len => (8, len as usize),
    };
    let end = at.checked_add(len).filter(|end| *end >= at + head)?;
    Some(Part {
        name: four(file, at + 4)?,
        data: at + head..end,
        next: end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_ends_its_header_where_its_first_scan_begins() {
        let mut file = vec![0xff, 0xd8];
        file.extend([0xff, 0xe0, 0, 4, 1, 2]); // a segment of two bytes
        file.extend([0xff, 0xff, 0xc4, 0, 3, 9]); // another, after a fill byte
        file.extend([0xff, 0xda, 0, 5, 1, 2, 3]); // the start of a scan
        let header = file.len();
        file.extend([7, 7, 7, 0xff, 0xd9]);
        assert_eq!(header_bytes(&file), Some(header));
        for len in 2..header {
            assert_eq!(header_bytes(&file[..len]), None, "{len}");
        }
    }

    #[test]
    fn containers_are_what_is_not_coded_data() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x01IHDRx____\0\0\0\x03IDATabc____\0\0\0\x02IDATde____\0\0\0\0IEND____";
        assert_eq!(header_bytes(png), Some(png.len() - 5));
        // Data of an odd length is padded.
        let webp = b"RIFF____WEBPVP8L\x03\0\0\0abc_VP8X\x02\0\0\0xx";
        assert_eq!(header_bytes(webp), Some(webp.len() - 3));
        let avif =
            b"\0\0\0\x0cftypavif\0\0\0\x0amdatab\0\0\0\x01mdat\0\0\0\0\0\0\0\x11c\0\0\0\0mdatdef";
        assert_eq!(header_bytes(avif), Some(avif.len() - 6));
        assert_eq!(header_bytes(&[0xff, 0x0a, 1, 2]), None);
        assert_eq!(header_bytes(b"\0\0\0\x02mdatab"), None);
        assert_eq!(header_bytes(b"\0\0\0\x30mdatab"), None);
        assert_eq!(header_bytes(b""), None);
    }
}
