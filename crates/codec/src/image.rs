//! Images as the codec takes and gives them: every sample exactly, with colour profile, orientation and metadata beside.
//!
//! Colour and transparency are kept apart, because they are coded apart. Pixels stay as they were stored: a photograph
//! that lies on its side stays so, and its orientation says how to hold it.

use super::metadata::{self, Metadata};
use super::png::{self, Effort};
use super::record::Record;
use rrvq::error::{Error, Result};
use rrvq::image_file::{Header, ImageFile};
use rrvq::{limits, whole};
use std::ffi::{OsStr, OsString};
use std::io::Write;
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
    pub name: OsString,
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
    /// What else the file said about it.
    pub metadata: Metadata,
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
            metadata: Metadata::new(),
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
        let bytes = limits::read_file(path)?;
        Image::from_file(path, &bytes)
    }

    /// The same from the bytes of such a file; its path is for the image's name and for errors.
    pub fn from_file(path: &Path, bytes: &[u8]) -> Result<Image> {
        Image::decode(path.file_stem().unwrap_or_default(), bytes).map_err(|said| {
            Error::new(format!(
                "cannot compress {}: {said}; expected a PNG, JPEG or WebP image of 8 bits a sample",
                path.display()
            ))
        })
    }

    fn decode(name: impl AsRef<OsStr>, bytes: &[u8]) -> std::result::Result<Image, String> {
        let contents = whole::check(bytes)?;
        if contents.animated {
            return Err("it has several frames, of which only one could be kept".into());
        }
        if contents.inks {
            return Err("its colours are inks (CMYK), which would be converted".into());
        }
        let mut file = ImageFile::open(bytes)?;
        let Header {
            width,
            height,
            channels,
            bits,
        } = file.header();
        check_size(width, height)?;
        if bits != 8 {
            return Err(format!("it has {bits} bits a sample"));
        }
        let profile = file.profile()?;
        if profile.len() > LONGEST_PROFILE {
            return Err(format!("its colour profile has {} bytes", profile.len()));
        }
        let metadata = metadata::read(bytes)?;
        let orientation = metadata::orientation(&metadata).unwrap_or(1);
        let samples = file.decode()?.pixels;
        let (colour, alpha) = match channels {
            1 | 3 => (samples, None),
            _ => split(samples, channels - 1),
        };
        Ok(Image {
            name: name.as_ref().into(),
            width,
            height,
            colour,
            alpha,
            profile,
            orientation,
            metadata,
        })
    }

    /// The image as the bytes of a PNG file, as few as can be.
    pub fn to_png(&self) -> Vec<u8> {
        if self.bytes() <= png::LARGE {
            return png::encode(self, Effort::Most);
        }
        let mut file = Vec::new();
        // Memory takes whatever is written to it.
        let _ = self.write_png(&mut file);
        file
    }

    /// Writes that file. Of a large image no second copy is made.
    pub fn write_png(&self, out: &mut dyn Write) -> Result<()> {
        if self.bytes() <= png::LARGE {
            return out.write_all(&self.to_png()).map_err(png::unwritten);
        }
        png::write(&Record::of(self, 0), &mut |take| self.rows(take), out)
    }

    /// Tells its samples a few rows at a time: colours, and transparency where there is any.
    fn rows(&self, take: &mut png::Take<'_>) -> Result<()> {
        const SAMPLES: usize = 1 << 18;
        let (width, row) = (self.width, self.width * self.channels());
        let rows = (SAMPLES / row).max(1);
        let mut alpha = self
            .alpha
            .iter()
            .flat_map(|alpha| alpha.chunks(rows * width));
        for colour in self.colour.chunks(rows * row) {
            if take(colour, alpha.next())?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Whether an image of this size can be coded.
pub fn check_size(width: usize, height: usize) -> std::result::Result<(), String> {
    let sides = 1..=LONGEST_SIDE;
    match sides.contains(&width) && sides.contains(&height) && width * height <= MOST_PIXELS {
        true => limits::check_pixels(width, height),
        false => Err(format!(
            "it has {width}×{height} pixels; sides of at most {LONGEST_SIDE} and {MOST_PIXELS} pixels in all can be coded"
        )),
    }
}

/// Colour and transparency. Colours stay where they are, closer together: a large image is not held twice.
fn split(mut samples: Vec<u8>, channels: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let step = channels + 1;
    let alpha: Vec<u8> = samples
        .iter()
        .skip(channels)
        .step_by(step)
        .copied()
        .collect();
    for pixel in 0..alpha.len() {
        samples.copy_within(pixel * step..pixel * step + channels, pixel * channels);
    }
    samples.truncate(alpha.len() * channels);
    (samples, Some(alpha))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ExtendedColorType, ImageEncoder};

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
            metadata: Metadata::new(),
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
                        let mut image = example(channels, alpha, orientation, profile);
                        let back = Image::decode("x", &image.to_png()).unwrap();
                        // The orientation is now in Exif, and stays there.
                        assert_eq!(back.metadata.len(), (orientation != 1) as usize);
                        image.metadata = vec![
                            (*b"gAMA", vec![0, 0, 0xb1, 0x8f]),
                            (*b"cICP", vec![9, 16, 0, 1]),
                            (*b"pHYs", vec![0, 0, 11, 19, 0, 0, 11, 19, 1]),
                            (*b"iTXt", b"Title\0\0\0\0\0a picture".to_vec()),
                        ];
                        image.metadata.extend(back.metadata);
                        let back = Image::decode("x", &image.to_png());
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
