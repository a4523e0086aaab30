//! Files of images: PNG, JPEG and WebP to 8-bit samples, and what is done to samples before a model sees them.
//!
//! The decoders are crates of one format each. What they have in common is here: the size before anything is decoded, the
//! colour profile, how a photograph is to be held, squares cut out and resized.

use crate::limits;
use png::{BitDepth, ColorType, Transformations};
use std::io::Cursor;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Longest side that a JPEG file can have.
const JPEG_SIDE: usize = 65535;

/// What is known of an image before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 grey, 3 colours, and one more where there is transparency.
    pub channels: usize,
    /// Bits of a sample in the file, 8 or 16; fewer are read as 8.
    pub bits: usize,
}

enum Format<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    Jpeg(Box<JpegDecoder<ZCursor<&'a [u8]>>>),
    WebP(Box<image_webp::WebPDecoder<Cursor<&'a [u8]>>>),
}

/// A file of an image whose header was read.
///
/// ```
/// use rrvq::picture::Picture;
/// use rrvq::image_file::ImageFile;
///
/// let png = Picture::new([1, 2, 1], vec![7, 200])?.to_png()?;
/// let file = ImageFile::open(&png)?;
/// assert_eq!((file.header().width, file.header().channels), (2, 1));
/// assert_eq!(file.decode()?.pixels, [7, 200]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ImageFile<'a> {
    header: Header,
    format: Format<'a>,
}

/// Errors are the ends of sentences that begin with a name.
type Result<T> = std::result::Result<T, String>;

/// What a decoder says, as the end of a sentence.
fn say(error: impl ToString) -> String {
    error.to_string()
}

impl<'a> ImageFile<'a> {
    /// Reads the header of a PNG, JPEG or WebP file.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => ImageFile::png(bytes),
            [0xff, 0xd8, ..] => ImageFile::jpeg(bytes),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => ImageFile::webp(bytes),
            _ => Err(format!(
                "it begins like no PNG, JPEG or WebP file (it has {} bytes)",
                bytes.len()
            )),
        }
    }

    fn png(bytes: &'a [u8]) -> Result<Self> {
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        // Palettes, one to four bits and transparent colours become samples of their own.
        decoder.set_transformations(Transformations::EXPAND);
        decoder.set_ignore_text_chunk(true);
        let reader = decoder.read_info().map_err(say)?;
        let (colour, depth) = reader.output_color_type();
        let channels = match colour {
            ColorType::Grayscale => 1,
            ColorType::GrayscaleAlpha => 2,
            ColorType::Rgb => 3,
            ColorType::Rgba => 4,
            ColorType::Indexed => return Err("its palette could not be resolved".into()),
        };
        let info = reader.info();
        Ok(ImageFile {
            header: Header {
                width: info.width as usize,
                height: info.height as usize,
                channels,
                bits: if depth == BitDepth::Sixteen { 16 } else { 8 },
            },
            format: Format::Png(Box::new(reader)),
        })
    }

    fn jpeg(bytes: &'a [u8]) -> Result<Self> {
        // What is damaged inside is an error, not a guess.
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(JPEG_SIDE)
            .set_max_height(JPEG_SIDE);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(say)?;
        let info = decoder.info().ok_or("it has no frame")?;
        let (wanted, channels) = match decoder.input_colorspace() {
            Some(ColorSpace::Luma) => (ColorSpace::Luma, 1),
            _ => (ColorSpace::RGB, 3),
        };
        decoder.set_options(options.jpeg_set_out_colorspace(wanted));
        Ok(ImageFile {
            header: Header {
                width: info.width.into(),
                height: info.height.into(),
                channels,
                bits: 8,
            },
            format: Format::Jpeg(Box::new(decoder)),
        })
    }

    fn webp(bytes: &'a [u8]) -> Result<Self> {
        let decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).map_err(say)?;
        let (width, height) = decoder.dimensions();
        Ok(ImageFile {
            header: Header {
                width: width as usize,
                height: height as usize,
                channels: if decoder.has_alpha() { 4 } else { 3 },
                bits: 8,
            },
            format: Format::WebP(Box::new(decoder)),
        })
    }

    /// Size and kind of the image.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The ICC profile; empty where there is none.
    pub fn profile(&mut self) -> Result<Vec<u8>> {
        let found = match &mut self.format {
            Format::Png(reader) => reader.info().icc_profile.as_ref().map(|p| p.to_vec()),
            Format::Jpeg(decoder) => decoder.icc_profile(),
            Format::WebP(decoder) => decoder.icc_profile().map_err(say)?,
        };
        Ok(found.unwrap_or_default())
    }

    /// How to hold the image, 1 to 8 as Exif counts; 1 where nothing is said.
    pub fn orientation(&mut self) -> Result<u8> {
        let exif = match &mut self.format {
            Format::Png(reader) => reader.info().exif_metadata.as_ref().map(|e| e.to_vec()),
            Format::Jpeg(decoder) => decoder.exif().cloned(),
            Format::WebP(decoder) => decoder.exif_metadata().map_err(say)?,
        };
        Ok(exif.as_deref().and_then(exif_orientation).unwrap_or(1))
    }

    /// The samples as they are stored, not yet turned; those of 16 bits are rounded to 8.
    pub fn decode(self) -> Result<Samples> {
        let Header {
            width,
            height,
            channels,
            bits,
        } = self.header;
        let pixels = match self.format {
            Format::Png(mut reader) if bits == 16 && !reader.info().interlaced => {
                let mut pixels = room(width * height * channels, false)?;
                while let Some(row) = reader.next_row().map_err(say)? {
                    pixels.extend(row.data().chunks_exact(2).map(rounded));
                }
                pixels
            }
            Format::Png(mut reader) => {
                let bytes = width * height * channels * bits / 8;
                let mut pixels = room(bytes, true)?;
                reader.next_frame(&mut pixels).map_err(say)?;
                match bits {
                    16 => pixels.chunks_exact(2).map(rounded).collect(),
                    _ => pixels,
                }
            }
            Format::Jpeg(mut decoder) => {
                let mut pixels = room(width * height * channels, true)?;
                decoder.decode_into(&mut pixels).map_err(say)?;
                pixels
            }
            Format::WebP(mut decoder) => {
                let mut pixels = room(width * height * channels, true)?;
                decoder.read_image(&mut pixels).map_err(say)?;
                pixels
            }
        };
        match pixels.len() == width * height * channels {
            true => Ok(Samples {
                width,
                height,
                channels,
                pixels,
            }),
            false => Err(format!("it has fewer than its {height} rows")),
        }
    }
}

/// Memory for so many bytes, cleared if wanted; an error where there is none.
fn room(bytes: usize, cleared: bool) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    let reserved = memory.try_reserve_exact(bytes);
    reserved.map_err(|_| format!("there is no memory for its {bytes} bytes"))?;
    if cleared {
        memory.resize(bytes, 0);
    }
    Ok(memory)
}

/// A sample of 16 bits, high byte first, in 8: 257 steps of one are a step of the other.
fn rounded(sample: &[u8]) -> u8 {
    ((u32::from(sample[0]) * 256 + u32::from(sample[1]) + 128) / 257) as u8
}

/// The orientation that Exif tells: tag 0x112 in the first directory of a TIFF file.
pub fn exif_orientation(exif: &[u8]) -> Option<u8> {
    // Some writers leave the beginning that JPEG wants.
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let little = exif.starts_with(b"II");
    let short = |at: usize| {
        let two: [u8; 2] = exif.get(at..at.checked_add(2)?)?.try_into().ok()?;
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

/// An image of 8-bit samples, rows first, channels last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 grey, 3 colours, and one more where there is transparency.
    pub channels: usize,
    /// All samples.
    pub pixels: Vec<u8>,
}

impl Samples {
    /// The image in a file, turned as it is to be held; refused where it has more pixels than [`limits`] allow.
    pub fn read(bytes: &[u8]) -> Result<Samples> {
        let mut file = ImageFile::open(bytes)?;
        limits::check_pixels(file.header.width, file.header.height)?;
        // Cameras store photographs lying down and say so beside the pixels.
        let orientation = file.orientation()?;
        Ok(file.decode()?.turned(orientation))
    }

    /// Whether there is transparency.
    pub fn has_alpha(&self) -> bool {
        self.channels.is_multiple_of(2)
    }

    /// The image as it looks when it is held as `orientation` says, 1 to 8 as Exif counts.
    pub fn turned(self, orientation: u8) -> Samples {
        if !(2..=8).contains(&orientation) {
            return self;
        }
        let (w, h, channels) = (self.width, self.height, self.channels);
        let (width, height) = if orientation > 4 { (h, w) } else { (w, h) };
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for y in 0..height {
            for x in 0..width {
                let (x, y) = match orientation {
                    2 => (w - 1 - x, y),
                    3 => (w - 1 - x, h - 1 - y),
                    4 => (x, h - 1 - y),
                    5 => (y, x),
                    6 => (y, h - 1 - x),
                    7 => (w - 1 - y, h - 1 - x),
                    _ => (w - 1 - y, x),
                };
                pixels.extend_from_slice(&self.pixels[(y * w + x) * channels..][..channels]);
            }
        }
        Samples {
            width,
            height,
            channels,
            pixels,
        }
    }

    /// The rectangle of this size, so far from the left and from above.
    pub fn cropped(&self, left: usize, above: usize, width: usize, height: usize) -> Samples {
        let rows = (above..above + height).flat_map(|y| {
            let start = (y * self.width + left) * self.channels;
            &self.pixels[start..][..width * self.channels]
        });
        Samples {
            width,
            height,
            channels: self.channels,
            pixels: rows.copied().collect(),
        }
    }

    /// Transparent parts become white, as on paper.
    pub fn on_white(mut self) -> Samples {
        if !self.has_alpha() {
            return self;
        }
        let colours = self.channels - 1;
        for pixel in 0..self.width * self.height {
            let from = pixel * self.channels;
            let cover = u32::from(self.pixels[from + colours]);
            for c in 0..colours {
                let seen = u32::from(self.pixels[from + c]) * cover + 255 * (255 - cover);
                self.pixels[pixel * colours + c] = ((seen + 127) / 255) as u8;
            }
        }
        self.pixels.truncate(self.width * self.height * colours);
        self.channels = colours;
        self
    }

    /// One sample a pixel: the lightness of the colours, transparency left out.
    pub fn into_grey(self) -> Vec<u8> {
        match self.channels {
            1 => self.pixels,
            2 => self.pixels.chunks_exact(2).map(|pixel| pixel[0]).collect(),
            // The shares of red, green and blue in lightness, of Rec. 709, in parts of 10,000.
            n => (self.pixels.chunks_exact(n))
                .map(|p| [p[0], p[1], p[2]].map(u32::from))
                .map(|[r, g, b]| ((2126 * r + 7152 * g + 722 * b) / 10_000) as u8)
                .collect(),
        }
    }

    /// Red, green and blue of each pixel, transparency left out.
    pub fn into_rgb(self) -> Vec<u8> {
        match self.channels {
            3 => self.pixels,
            4 => (self.pixels.chunks_exact(4))
                .flat_map(|pixel| &pixel[..3])
                .copied()
                .collect(),
            n => (self.pixels.chunks_exact(n))
                .flat_map(|pixel| [pixel[0]; 3])
                .collect(),
        }
    }

    /// The image with other sides, each new sample a mean of old ones with the weights of [`Taps`], columns first.
    pub fn resized(&self, width: usize, height: usize) -> Samples {
        let row = self.width * self.channels;
        let mut tall = vec![0f32; row * height];
        for (taps, out) in Taps::all(self.height, height)
            .iter()
            .zip(tall.chunks_exact_mut(row))
        {
            for (y, weight) in (taps.first..).zip(&taps.weights) {
                let source = &self.pixels[y * row..][..row];
                for (sum, &sample) in out.iter_mut().zip(source) {
                    *sum += f32::from(sample) * weight;
                }
            }
        }
        let across = Taps::all(self.width, width);
        let mut pixels = Vec::with_capacity(width * height * self.channels);
        for source in tall.chunks_exact(row) {
            for taps in &across {
                for c in 0..self.channels {
                    let mut sum = 0f32;
                    for (x, weight) in (taps.first..).zip(&taps.weights) {
                        sum += source[x * self.channels + c] * weight;
                    }
                    pixels.push(sum.clamp(0.0, 255.0).round() as u8);
                }
            }
        }
        Samples {
            width,
            height,
            channels: self.channels,
            pixels,
        }
    }
}

/// The old samples that a new one is a mean of, along one side: Lanczos' windowed sinc, three lobes to either side, as wide
/// as a new sample where there are fewer new ones.
struct Taps {
    first: usize,
    weights: Vec<f32>,
}

const LOBES: f32 = 3.0;

impl Taps {
    /// Of each of `new` samples in place of `old`.
    fn all(old: usize, new: usize) -> Vec<Taps> {
        let step = old as f32 / new as f32;
        let scale = step.max(1.0);
        let of = |i: usize| {
            let centre = (i as f32 + 0.5) * step;
            let reach = LOBES * scale;
            let first = ((centre - reach).floor() as i64).clamp(0, old as i64 - 1);
            let end = ((centre + reach).ceil() as i64).clamp(first + 1, old as i64);
            let weight = |j: i64| lanczos((j as f32 - (centre - 0.5)) / scale);
            let mut weights: Vec<f32> = (first..end).map(weight).collect();
            let sum: f32 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= sum);
            Taps {
                first: first as usize,
                weights,
            }
        };
        (0..new).map(of).collect()
    }
}

fn lanczos(x: f32) -> f32 {
    let sinc = |t: f32| match t * std::f32::consts::PI {
        0.0 => 1.0,
        angle => sin(angle) / angle,
    };
    match x.abs() < LOBES {
        true => sinc(x) * sinc(x / LOBES),
        false => 0.0,
    }
}

/// The sine of a few turns at most, from sums and products alone: the platform's differ between machines by the last bit.
fn sin(angle: f32) -> f32 {
    use std::f64::consts::PI;
    let turns = (f64::from(angle) / PI).round();
    let x = f64::from(angle) - turns * PI;
    // Terms of the series, x ≤ π / 2: what the next one would add is below 1e-16.
    let mut sum = 0.0;
    for k in (1..=10).rev() {
        let (a, b) = (f64::from(2 * k), f64::from(2 * k + 1));
        sum = (1.0 + sum) * -(x * x) / (a * b);
    }
    let sine = x + x * sum;
    (if turns % 2.0 == 0.0 { sine } else { -sine }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{DynamicImage, ImageBuffer, ImageFormat, imageops::FilterType};

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 7u32;
        let mut next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(&mut next).collect()
    }

    fn written(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    /// Every kind that files have.
    fn images() -> Vec<DynamicImage> {
        let (w, h) = (23, 17);
        let n = (w * h) as usize;
        let wide = |channels: usize| -> Vec<u16> {
            let samples = noise(2 * n * channels);
            let pair = |p: &[u8]| u16::from_be_bytes([p[0], p[1]]);
            samples.chunks_exact(2).map(pair).collect()
        };
        vec![
            DynamicImage::ImageLuma8(ImageBuffer::from_raw(w, h, noise(n)).unwrap()),
            DynamicImage::ImageLumaA8(ImageBuffer::from_raw(w, h, noise(2 * n)).unwrap()),
            DynamicImage::ImageRgb8(ImageBuffer::from_raw(w, h, noise(3 * n)).unwrap()),
            DynamicImage::ImageRgba8(ImageBuffer::from_raw(w, h, noise(4 * n)).unwrap()),
            DynamicImage::ImageLuma16(ImageBuffer::from_raw(w, h, wide(1)).unwrap()),
            DynamicImage::ImageRgb16(ImageBuffer::from_raw(w, h, wide(3)).unwrap()),
            DynamicImage::ImageRgba16(ImageBuffer::from_raw(w, h, wide(4)).unwrap()),
        ]
    }

    #[test]
    fn files_are_read_as_the_image_crate_reads_them() {
        let mut read = 0;
        for image in images() {
            for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
                let mut file = Cursor::new(Vec::new());
                if image.write_to(&mut file, format).is_err() {
                    continue;
                }
                let file = file.into_inner();
                let theirs = image::load_from_memory(&file).unwrap();
                let ours = Samples::read(&file).unwrap();
                let channels = ours.channels;
                assert_eq!(channels, usize::from(theirs.color().channel_count()));
                let wanted = match channels {
                    1 => theirs.to_luma8().into_raw(),
                    2 => theirs.to_luma_alpha8().into_raw(),
                    3 => theirs.to_rgb8().into_raw(),
                    _ => theirs.to_rgba8().into_raw(),
                };
                assert_eq!(ours.pixels, wanted, "{format:?} {:?}", image.color());
                // Lightness is rounded down here, and to the nearest there.
                let grey = ours.clone().into_grey();
                let near = |(&ours, theirs): (&u8, u8)| theirs - ours <= 1;
                assert!(grey.iter().zip(theirs.to_luma8().into_raw()).all(near));
                assert_eq!(ours.into_rgb(), theirs.to_rgb8().into_raw());
                read += 1;
            }
        }
        assert!(read >= 7 + 2 + 2, "{read}");
    }

    #[test]
    fn sizes_change_as_in_the_image_crate() {
        for image in &images()[..4] {
            let ours = Samples::read(&written(image, ImageFormat::Png)).unwrap();
            for (w, h) in [(5, 4), (23, 17), (40, 9), (64, 64), (1, 1)] {
                let theirs = image.resize_exact(w, h, FilterType::Lanczos3);
                let resized = ours.resized(w as usize, h as usize);
                assert_eq!(resized.pixels, theirs.as_bytes(), "{w}×{h}");
            }
            let cropped = ours.cropped(3, 2, 11, 13);
            assert_eq!(cropped.pixels, image.crop_imm(3, 2, 11, 13).as_bytes());
        }
    }

    #[test]
    fn the_sine_is_right_to_the_last_bit_or_so() {
        for i in -30_000..=30_000 {
            let angle = i as f32 * (10.0 / 30_000.0);
            let right = f64::from(angle).sin() as f32;
            let off = (sin(angle) - right).abs();
            assert!(off <= right.abs() * f32::EPSILON, "{angle}: {off}");
        }
    }

    #[test]
    fn images_are_turned_as_exif_counts() {
        use image::metadata::Orientation;
        let image = &images()[2];
        for number in 0..=9 {
            let mut theirs = image.clone();
            theirs.apply_orientation(
                Orientation::from_exif(number).unwrap_or(Orientation::NoTransforms),
            );
            let ours = Samples::read(&written(image, ImageFormat::Png)).unwrap();
            let ours = ours.turned(number);
            assert_eq!(ours.width as u32, theirs.width(), "{number}");
            assert_eq!(ours.pixels, theirs.as_bytes(), "{number}");
        }
    }

    #[test]
    fn exif_says_how_to_hold_a_photograph() {
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        assert_eq!(exif_orientation(big), Some(6));
        assert_eq!(exif_orientation(&[b"Exif\0\0", &big[..]].concat()), Some(6));
        let little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(exif_orientation(little), Some(3));
        for len in 0..big.len() - 6 {
            assert_eq!(exif_orientation(&big[..len]), None, "{len}");
        }
        let mut nine = *big;
        nine[19] = 9;
        assert_eq!(exif_orientation(&nine), None);
    }

    #[test]
    fn transparency_becomes_white() {
        let grey = Samples {
            width: 3,
            height: 1,
            channels: 2,
            pixels: vec![10, 255, 10, 0, 100, 128],
        };
        assert_eq!(grey.on_white().pixels, [10, 255, 177]);
    }
}
