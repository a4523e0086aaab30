//! Whether the file of an image is whole, by walking its own structure.
//!
//! Decoders fill a missing part with grey, or show the first frame of several, and nobody would ever know.

/// What is in the file of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Whether there are several frames.
    pub animated: bool,
    /// Whether its colours are inks (CMYK).
    pub inks: bool,
}

/// Walks a PNG, JPEG or WebP file to its end and says what is in it; what is missing where it was cut short. Files of
/// other kinds are left to their decoders.
pub fn check(bytes: &[u8]) -> Result<Contents, String> {
    let still = Contents {
        animated: false,
        inks: false,
    };
    match bytes {
        [0xff, 0xd8, rest @ ..] => Ok(Contents {
            inks: jpeg(rest).ok_or_else(|| cut(bytes, "JPEG"))?,
            ..still
        }),
        [0x89, b'P', b'N', b'G', _, _, _, _, rest @ ..] => Ok(Contents {
            animated: png(rest).ok_or_else(|| cut(bytes, "PNG"))?,
            ..still
        }),
        [b'R', b'I', b'F', b'F', a, b, c, d, rest @ ..] => {
            let whole = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let Some(chunks) = rest.get(..whole) else {
                return Err(format!("it ends at byte {} of {}", bytes.len(), 8 + whole));
            };
            Ok(Contents {
                animated: webp(chunks)?,
                ..still
            })
        }
        _ => Ok(still),
    }
}

fn cut(bytes: &[u8], kind: &str) -> String {
    format!(
        "it ends at byte {} without the mark that ends a {kind}",
        bytes.len()
    )
}

/// Segments up to the end of the image; whether it has four channels. Segments are skipped by their length, so that the
/// end of a small picture inside one does not count.
fn jpeg(mut rest: &[u8]) -> Option<bool> {
    let mut inks = false;
    loop {
        // Any number of fill bytes may stand before a marker.
        let at = rest.iter().position(|&byte| byte != 0xff)?;
        let (marker, after) = (rest[at], &rest[at + 1..]);
        if at == 0 {
            return None;
        }
        match marker {
            0xd9 => return Some(inks),
            // Markers without a segment.
            0x01 | 0xd0..=0xd8 => rest = after,
            _ => {
                let len = usize::from(u16::from_be_bytes([*after.first()?, *after.get(1)?]));
                let segment = after.get(..len.max(2))?;
                rest = &after[segment.len()..];
                // Frame headers: precision, height, width, number of channels.
                if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
                    inks |= segment.get(7) == Some(&4);
                }
                if marker == 0xda {
                    rest = after_scan(rest)?;
                }
            }
        }
    }
}

/// What follows the coded data of a scan: in it, 0xff is followed by 0 or by a restart marker.
fn after_scan(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let at = rest.iter().position(|&byte| byte == 0xff)?;
        rest = &rest[at..];
        match rest.get(1)? {
            0x00 | 0xd0..=0xd7 => rest = &rest[2..],
            0xff => rest = &rest[1..],
            _ => return Some(rest),
        }
    }
}

/// Chunks up to the last, none longer than the file; whether the extended header says that there are frames.
fn webp(chunks: &[u8]) -> Result<bool, String> {
    let (mut rest, mut animated) = (chunks.get(4..).unwrap_or_default(), false);
    while let Some((head, data)) = rest.split_first_chunk::<8>() {
        let [kind @ .., a, b, c, d] = head;
        let len = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let Some(chunk) = data.get(..len) else {
            let kind = String::from_utf8_lossy(kind);
            let have = data.len();
            return Err(format!(
                "its part {kind:?} claims {len} bytes where {have} are left"
            ));
        };
        // The second bit of the flags.
        animated |= kind == b"VP8X" && chunk.first().is_some_and(|flags| flags & 2 > 0);
        rest = data.get(len.next_multiple_of(2)..).unwrap_or_default();
    }
    Ok(animated)
}

/// Chunks up to the last; whether one of them says that there are frames.
fn png(mut rest: &[u8]) -> Option<bool> {
    let mut animated = false;
    loop {
        let len = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let kind = rest.get(4..8)?;
        // Length, kind, data, checksum.
        rest = rest.get(len.checked_add(12)?..)?;
        match kind {
            b"IEND" => return Some(animated),
            b"acTL" => animated = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{DynamicImage, ImageFormat, RgbImage};
    use std::io::Cursor;

    fn file(format: ImageFormat) -> Vec<u8> {
        let pixel = |x: u32, y: u32| image::Rgb([(x * 7) as u8, (y * 5) as u8, (x * y) as u8]);
        let image = DynamicImage::from(RgbImage::from_fn(40, 30, pixel));
        let mut out = Cursor::new(Vec::new());
        image.write_to(&mut out, format).unwrap();
        out.into_inner()
    }

    #[test]
    fn whole_files_pass_and_no_cut_does() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
            let bytes = file(format);
            let still = Contents {
                animated: false,
                inks: false,
            };
            assert_eq!(check(&bytes), Ok(still), "{format:?}");
            for end in 12..bytes.len() {
                assert!(check(&bytes[..end]).is_err(), "{format:?} cut at {end}");
            }
        }
    }

    #[test]
    fn a_small_picture_inside_does_not_end_a_jpeg() {
        let whole = file(ImageFormat::Jpeg);
        let small = [0xff, 0xd8, 0xff, 0xd9];
        let mut bytes = vec![0xff, 0xd8, 0xff, 0xe1, 0, 2 + small.len() as u8];
        bytes.extend(small);
        bytes.extend(&whole[2..]);
        assert!(check(&bytes).is_ok());
        assert!(check(&bytes[..bytes.len() / 2]).is_err());
    }

    #[test]
    fn frames_and_inks_are_seen() {
        let mut png = file(ImageFormat::Png);
        // A chunk behind the header: length 8, kind, data, any checksum.
        let chunk = [&[0, 0, 0, 8][..], b"acTL", &[0; 12]].concat();
        png.splice(33..33, chunk);
        assert!(check(&png).unwrap().animated);
        let webp = [
            &b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0"[..],
            &[2, 0, 0, 0],
            &[0; 6],
        ]
        .concat();
        assert!(check(&webp).unwrap().animated);
        let said = check(b"RIFF\x0c\0\0\0WEBPICCP\xff\xff\xff\xff").unwrap_err();
        assert!(
            said.contains("ICCP") && said.contains("4294967295"),
            "{said}"
        );
        let jpeg = [
            &[0xff, 0xd8, 0xff, 0xc0, 0, 20, 8, 0, 1, 0, 1, 4][..],
            &[0; 12],
            &[0xff, 0xd9],
        ];
        assert!(check(&jpeg.concat()).unwrap().inks);
    }
}
