//! What an image file says about its picture besides samples, profile and orientation: gamma and colour space, Exif, text,
//! resolution. It is kept as the PNG chunks it becomes when the image is written again.
//!
//! What a JPEG or WebP file says is turned into the PNG chunk of the same meaning. Left out is what describes a file's own
//! form (palettes, histograms, thumbnails of JFIF) and what only its maker understands.

use super::png;
use rrvq::image_file::exif_orientation;

/// Chunks: their kind and data, in the order of the file.
pub type Metadata = Vec<([u8; 4], Vec<u8>)>;

/// Longest metadata of an image, in bytes.
pub const LONGEST: usize = 16 << 20;

/// Chunks that are kept. The first ones change what is seen; all of them may stand before a PNG's samples.
const KEPT: [&[u8; 4]; 12] = [
    b"gAMA", b"cHRM", b"sRGB", b"cICP", b"mDCV", b"cLLI", b"eXIf", b"pHYs", b"tIME", b"tEXt",
    b"zTXt", b"iTXt",
];

const EXIF: &[u8] = b"Exif\0\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// What the bytes of an image file say, or why it cannot be kept.
pub fn read(file: &[u8]) -> Result<Metadata, String> {
    let found = match file {
        [b'\x89', b'P', ..] => of_png(file),
        [0xff, 0xd8, ..] => of_jpeg(file),
        [b'R', b'I', b'F', b'F', ..] => of_webp(file),
        _ => None,
    };
    let found = found.unwrap_or_default();
    let bytes: usize = found.iter().map(|(_, data)| data.len() + 12).sum();
    match bytes <= LONGEST {
        true => Ok(found),
        false => Err(format!(
            "its metadata has {bytes} bytes, more than {LONGEST}"
        )),
    }
}

fn of_png(file: &[u8]) -> Option<Metadata> {
    let mut found = Metadata::new();
    for (kind, data) in chunks_of(file) {
        if KEPT.contains(&kind) && data.len() <= LONGEST {
            found.push((*kind, data.to_vec()));
        }
    }
    Some(found)
}

/// The chunks of a PNG file, as far as they can be followed.
fn chunks_of(file: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut rest = file.strip_prefix(png::START).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let (data, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = after.get(4..)?;
        Some((kind, data))
    })
}

/// Segments before the first scan: Exif and XMP of APP1, the resolution of APP0, comments.
fn of_jpeg(file: &[u8]) -> Option<Metadata> {
    let mut found = Metadata::new();
    let mut rest = file.get(2..)?;
    loop {
        let (&[0xff, marker], after) = rest.split_first_chunk::<2>()? else {
            return Some(found);
        };
        if marker == 0xff {
            rest = &rest[1..];
            continue;
        }
        let len = u16::from_be_bytes(*after.first_chunk()?) as usize;
        let data = after.get(2..len)?;
        match marker {
            0xe1 if data.starts_with(EXIF) => found.push((*b"eXIf", data[EXIF.len()..].to_vec())),
            0xe1 if data.starts_with(XMP) => found.push(xmp(&data[XMP.len()..])),
            0xe0 if data.starts_with(b"JFIF\0") => found.extend(resolution(data)),
            0xfe => found.push((*b"tEXt", [b"Comment\0", data].concat())),
            0xda | 0xd9 => return Some(found),
            _ => {}
        }
        rest = after.get(len..)?;
    }
}

/// Dots a metre, from JFIF's a centimetre or an inch; where it has a ratio alone, that.
fn resolution(jfif: &[u8]) -> Option<([u8; 4], Vec<u8>)> {
    let unit = *jfif.get(7)?;
    let number = |at: usize| Some(u16::from_be_bytes(*jfif.get(at..)?.first_chunk()?) as u32);
    let (x, y) = (number(8)?, number(10)?);
    let metric = |dots: u32| match unit {
        1 => (dots * 10_000 + 127) / 254,
        2 => dots * 100,
        _ => dots,
    };
    // Square pixels of no size are what is assumed anyway.
    if x == 0 || y == 0 || (unit == 0 && x == y) {
        return None;
    }
    let mut data = metric(x).to_be_bytes().to_vec();
    data.extend(metric(y).to_be_bytes());
    data.push((unit == 1 || unit == 2) as u8);
    Some((*b"pHYs", data))
}

/// XMP as PNG has it: international text that is not packed.
fn xmp(text: &[u8]) -> ([u8; 4], Vec<u8>) {
    (*b"iTXt", [b"XML:com.adobe.xmp\0\0\0\0\0", text].concat())
}

fn of_webp(file: &[u8]) -> Option<Metadata> {
    let mut found = Metadata::new();
    let mut rest = file.get(12..)?;
    while let Some((kind, after)) = rest.split_first_chunk::<4>() {
        let (len, after) = after.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        let data = after.get(..len)?;
        match kind {
            // Some writers leave the beginning that JPEG wants.
            b"EXIF" => found.push((*b"eXIf", data.strip_prefix(EXIF).unwrap_or(data).to_vec())),
            b"XMP " => found.push(xmp(data)),
            _ => {}
        }
        rest = after.get(len.checked_next_multiple_of(2)?..).unwrap_or(&[]);
    }
    Some(found)
}

/// The orientation that Exif among the metadata says.
pub fn orientation(metadata: &Metadata) -> Option<u8> {
    let (_, exif) = metadata.iter().find(|(kind, _)| kind == b"eXIf")?;
    exif_orientation(exif)
}

/// Exif that says nothing but how to hold the image.
fn exif_of(orientation: u8) -> Vec<u8> {
    let mut exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    exif
}

/// Writes metadata and orientation as chunks of a PNG file.
pub fn put(file: &mut Vec<u8>, metadata: &Metadata, orientation: u8) {
    let told = self::orientation(metadata).unwrap_or(1);
    for (kind, data) in metadata {
        // Should Exif say otherwise, the orientation that was read holds.
        if kind != b"eXIf" || told == orientation {
            png::put(file, kind, data);
        }
    }
    if told != orientation {
        png::put(file, b"eXIf", &exif_of(orientation));
    }
}

/// Metadata as a record has it: each chunk as in a PNG file, without the checksum.
pub fn to_bytes(metadata: &Metadata) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, data) in metadata {
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(kind);
        bytes.extend(data);
    }
    bytes
}

/// What [`to_bytes`] made; nothing else, and no other kinds.
pub fn from_bytes(mut bytes: &[u8]) -> Option<Metadata> {
    let mut metadata = Metadata::new();
    while !bytes.is_empty() {
        let (len, after) = bytes.split_first_chunk::<4>()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let (data, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        KEPT.contains(&kind).then_some(())?;
        metadata.push((*kind, data.to_vec()));
        bytes = after;
    }
    Some(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_were_and_nothing_else_is() {
        let metadata: Metadata = vec![(*b"gAMA", vec![1, 2, 3, 4]), (*b"tEXt", b"a\0b".to_vec())];
        let bytes = to_bytes(&metadata);
        assert_eq!(from_bytes(&bytes), Some(metadata));
        for len in [1, 4, 9, 11, 20] {
            assert_eq!(from_bytes(&bytes[..len]), None, "{len}");
        }
        assert_eq!(from_bytes(b"\0\0\0\0IDAT"), None);
    }

    #[test]
    fn what_jpeg_and_webp_say_becomes_chunks() {
        let segment = |marker: u8, data: &[u8]| {
            let len = (data.len() as u16 + 2).to_be_bytes();
            [&[0xff, marker], &len[..], data].concat()
        };
        let exif = exif_of(6);
        let jpeg = [
            b"\xff\xd8".to_vec(),
            segment(0xe0, b"JFIF\0\x01\x01\x01\x00\x48\x00\x48\0\0"),
            segment(0xe1, &[EXIF, &exif].concat()),
            segment(0xe1, &[XMP, b"<x/>"].concat()),
            segment(0xfe, b"made by hand"),
            segment(0xda, &[0; 6]),
            segment(0xfe, b"after the samples began"),
        ]
        .concat();
        let found = read(&jpeg).unwrap();
        let kinds: Vec<&[u8; 4]> = found.iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [b"pHYs", b"eXIf", b"iTXt", b"tEXt"]);
        // 72 dots an inch are 2835 a metre.
        assert_eq!(found[0].1, [0, 0, 0x0b, 0x13, 0, 0, 0x0b, 0x13, 1]);
        assert_eq!(orientation(&found), Some(6));
        assert_eq!(found[3].1, b"Comment\0made by hand");
        let chunk = |kind: &[u8], data: &[u8]| {
            let padding = &[0][..data.len() % 2];
            [kind, &(data.len() as u32).to_le_bytes(), data, padding].concat()
        };
        let parts = [
            chunk(b"VP8L", b"odd"),
            chunk(b"EXIF", &exif),
            chunk(b"XMP ", b"<y/>"),
        ];
        let webp = [&b"RIFF____WEBP"[..], &parts.concat()].concat();
        let found = read(&webp).unwrap();
        assert_eq!((found.len(), orientation(&found)), (2, Some(6)));
        assert!(found[1].1.ends_with(b"<y/>"));
    }
}
