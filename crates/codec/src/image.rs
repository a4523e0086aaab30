//! Images as the codec takes and gives them: every sample exactly, with the colour profile and the orientation beside.
//!
//! Colour and transparency are kept apart, because they are coded apart. Pixels stay as they were stored: a photograph
//! that lies on its side stays so, and its orientation says how to hold it.

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageReader};
use rrvq::error::{Error, Result};
use rrvq::whole;
use std::io::Cursor;
use std::path::Path;

/// Longest side of an image, and most pixels.
pub const LONGEST_SIDE: usize = 1 << 16;
pub const MOST_PIXELS: usize = 1 << 28;
/// Longest colour profile.
pub const LONGEST_PROFILE: usize = 16 << 20;

/// An image of 8-bit samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Without an ending.
    pub name: String,
    pub width: usize,
    pub height: usize,
    /// Grey or red, green and blue; rows first, channels last.
    pub colour: Vec<u8>,
    /// One sample a pixel, where there is transparency.
    pub alpha: Option<Vec<u8>>,
    /// ICC profile; empty where there is none.
    pub profile: Vec<u8>,
    /// How to hold the image, 1 to 8, as Exif counts.
    pub orientation: u8,
}

impl Image {
    /// An image of grey or coloured samples, rows first, channels last; without transparency or a colour profile.
    pub fn new(name: &str, width: usize, height: usize, colour: Vec<u8>) -> Result<Image> {
        let pixels = width.checked_mul(height).filter(|&pixels| {
            (1..=MOST_PIXELS).contains(&pixels) && width.max(height) <= LONGEST_SIDE
        });
        if !pixels.is_some_and(|pixels| [pixels, 3 * pixels].contains(&colour.len())) {
            return Err(Error::new(format!(
                "{} samples are no image of {width}×{height} pixels; expected one or three for each of at most {MOST_PIXELS} pixels",
                colour.len()
            )));
        }
        Ok(Image {
            name: name.into(),
            width,
            height,
            colour,
            alpha: None,
            profile: Vec::new(),
            orientation: 1,
        })
    }

    /// 1 for grey, 3 for colour.
    pub fn channels(&self) -> usize {
        self.colour.len() / (self.width * self.height)
    }

    /// Bytes of all samples.
    pub fn bytes(&self) -> usize {
        self.colour.len() + self.alpha.as_ref().map_or(0, Vec::len)
    }

    /// The image in a PNG, JPEG or WebP file.
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
        Image::read(path, &bytes)
    }

    /// The image in the bytes of such a file; `path` names it.
    pub fn read(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Image> {
        let path = path.as_ref();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Image::decode(&stem, bytes).map_err(|said| {
            Error::new(format!(
                "cannot compress {}: {said}; expected a PNG, JPEG or WebP image of 8 bits a sample",
                path.display()
            ))
        })
    }

    /// The same from the bytes of such a file.
    fn decode(name: &str, bytes: &[u8]) -> std::result::Result<Image, String> {
        let say = |error: image::ImageError| error.to_string();
        let contents = whole::check(bytes)?;
        if contents.animated {
            return Err("it has several frames, of which only one could be kept".into());
        }
        if contents.inks {
            return Err("its colours are inks (CMYK), which would be converted".into());
        }
        let reader = ImageReader::new(Cursor::new(bytes))
            .with_guessed_format()
            .map_err(|error| error.to_string())?;
        let mut decoder = reader.into_decoder().map_err(say)?;
        let (width, height) = decoder.dimensions();
        let (width, height) = (width as usize, height as usize);
        check_size(width, height)?;
        let kind = decoder.color_type();
        if !matches!(
            kind,
            ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8
        ) {
            let bits = 8 * kind.bytes_per_pixel() / kind.channel_count();
            return Err(format!("it has {bits} bits a sample"));
        }
        let profile = decoder.icc_profile().map_err(say)?.unwrap_or_default();
        if profile.len() > LONGEST_PROFILE {
            return Err(format!("its colour profile has {} bytes", profile.len()));
        }
        let held = decoder.orientation().map_err(say)?.to_exif();
        let orientation = match held {
            1 => exif_of_png(bytes)
                .and_then(orientation_in)
                .unwrap_or(Orientation::NoTransforms.to_exif()),
            other => other,
        };
        let samples = DynamicImage::from_decoder(decoder).map_err(say)?;
        let (colour, alpha) = match samples {
            DynamicImage::ImageLuma8(image) => (image.into_raw(), None),
            DynamicImage::ImageRgb8(image) => (image.into_raw(), None),
            DynamicImage::ImageLumaA8(image) => split(&image.into_raw(), 1),
            DynamicImage::ImageRgba8(image) => split(&image.into_raw(), 3),
            _ => return Err("it has more than 8 bits a sample".into()),
        };
        Ok(Image {
            name: name.into(),
            width,
            height,
            colour,
            alpha,
            profile,
            orientation,
        })
    }

    /// The image as the bytes of a PNG file.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let channels = self.channels();
        let kind = match (channels, self.alpha.is_some()) {
            (1, false) => ExtendedColorType::L8,
            (1, true) => ExtendedColorType::La8,
            (_, false) => ExtendedColorType::Rgb8,
            (_, true) => ExtendedColorType::Rgba8,
        };
        let joined;
        let samples = match &self.alpha {
            None => &self.colour,
            Some(alpha) => {
                let pixels = self.colour.chunks_exact(channels).zip(alpha);
                joined = pixels
                    .flat_map(|(pixel, alpha)| pixel.iter().chain([alpha]))
                    .copied()
                    .collect();
                &joined
            }
        };
        let failed = |error: String| {
            let name = &self.name;
            Error::new(format!("cannot encode {name} as PNG: {error}"))
        };
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::png::PngEncoder::new(&mut bytes);
        if !self.profile.is_empty() {
            encoder
                .set_icc_profile(self.profile.clone())
                .map_err(|error| failed(error.to_string()))?;
        }
        encoder
            .write_image(samples, self.width as u32, self.height as u32, kind)
            .map_err(|error| failed(error.to_string()))?;
        if self.orientation != 1 {
            insert_exif(&mut bytes, self.orientation);
        }
        Ok(bytes)
    }
}

/// Whether an image of this size can be coded.
pub fn check_size(width: usize, height: usize) -> std::result::Result<(), String> {
    let sides = 1..=LONGEST_SIDE;
    match sides.contains(&width) && sides.contains(&height) && width * height <= MOST_PIXELS {
        true => Ok(()),
        false => Err(format!(
            "it has {width}×{height} pixels; sides of at most {LONGEST_SIDE} and {MOST_PIXELS} pixels in all can be coded"
        )),
    }
}

/// Colour and transparency.
fn split(samples: &[u8], channels: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let pixels = || samples.chunks_exact(channels + 1);
    let colour = pixels().flat_map(|pixel| &pixel[..channels]).copied();
    let alpha = pixels().map(|pixel| pixel[channels]);
    (colour.collect(), Some(alpha.collect()))
}

const PNG_START: usize = 8;

/// The Exif chunk of a PNG file, which the decoder does not look for.
fn exif_of_png(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    loop {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let len = u32::from_be_bytes(*len) as usize;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let data = after.get(..len)?;
        match kind {
            b"eXIf" => return Some(data),
            b"IEND" => return None,
            _ => rest = after.get(len + 4..)?,
        }
    }
}

/// Exif's orientation: tag 0x112 in the first directory of a TIFF file.
fn orientation_in(exif: &[u8]) -> Option<u8> {
    let little = exif.starts_with(b"II");
    let short = |at: usize| {
        let two: [u8; 2] = exif.get(at..at + 2)?.try_into().ok()?;
        Some(match little {
            true => u16::from_le_bytes(two),
            false => u16::from_be_bytes(two),
        } as usize)
    };
    let long = |at: usize| {
        let (first, second) = (short(at)?, short(at + 2)?);
        Some(match little {
            true => first | second << 16,
            false => first << 16 | second,
        })
    };
    let directory = long(4)?;
    let entries = short(directory)?;
    let tag = (0..entries)
        .map(|i| directory + 2 + 12 * i)
        .find(|&at| short(at) == Some(0x112))?;
    let found = short(tag + 8)? as u8;
    (1..=8).contains(&found).then_some(found)
}

/// Puts an Exif chunk with nothing but the orientation right behind a PNG's header.
fn insert_exif(png: &mut Vec<u8>, orientation: u8) {
    let mut chunk = b"eXIfMM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    chunk.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let mut crc = flate2::Crc::new();
    crc.update(&chunk);
    let mut whole = (chunk.len() as u32 - 4).to_be_bytes().to_vec();
    whole.extend(chunk);
    whole.extend(crc.sum().to_be_bytes());
    let header_end = PNG_START + 4 + 4 + 13 + 4;
    png.splice(header_end..header_end, whole);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(channels: usize, alpha: bool, orientation: u8, profile: &[u8]) -> Image {
        let (width, height) = (5, 4);
        Image {
            name: "x".into(),
            width,
            height,
            colour: (0..width * height * channels)
                .map(|i| (i * 11) as u8)
                .collect(),
            alpha: alpha.then(|| (0..width * height).map(|i| (i * 7) as u8).collect()),
            profile: profile.into(),
            orientation,
        }
    }

    #[test]
    fn a_photograph_that_was_cut_short_is_refused() {
        let mut whole = Vec::new();
        let samples: Vec<u8> = (0..64 * 64 * 3u32).map(|i| ((i * i) >> 5) as u8).collect();
        image::codecs::jpeg::JpegEncoder::new(&mut whole)
            .write_image(&samples, 64, 64, ExtendedColorType::Rgb8)
            .unwrap();
        assert_eq!(Image::decode("x", &whole).unwrap().width, 64);
        for percent in [10, 50, 90, 99] {
            let said = Image::decode("x", &whole[..whole.len() * percent / 100]).unwrap_err();
            assert!(said.contains("without the mark that ends a JPEG"), "{said}");
        }
    }

    #[test]
    fn every_kind_survives_png() {
        for channels in [1, 3] {
            for alpha in [false, true] {
                for orientation in [1, 3, 6, 8] {
                    let profile: Vec<u8> = (0..999u32).map(|i| (i * i) as u8).collect();
                    for profile in [&profile[..], &[]] {
                        let image = example(channels, alpha, orientation, profile);
                        let back = Image::decode("x", &image.to_png().unwrap());
                        assert_eq!(back.as_ref(), Ok(&image));
                    }
                }
            }
        }
    }

    #[test]
    fn sixteen_bits_and_other_files_are_refused() {
        let mut png = Vec::new();
        image::codecs::png::PngEncoder::new(&mut png)
            .write_image(&[0; 2 * 2 * 6], 2, 2, ExtendedColorType::Rgb16)
            .unwrap();
        let said = Image::decode("x", &png).unwrap_err();
        assert!(said.contains("16 bits a sample"), "{said}");
        assert!(Image::decode("x", b"text").is_err());
        assert!(check_size(LONGEST_SIDE, LONGEST_SIDE).is_err());
        assert!(check_size(0, 1).is_err() && check_size(1, LONGEST_SIDE).is_ok());
    }
}
