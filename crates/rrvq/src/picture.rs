//! Pictures: 8-bit images as people see them.
//!
//! Grids of samples to PNG, users' images in, and data URIs for pages that must work without any other file.

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::image_file::Samples;
use crate::limits;
use crate::whole;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// An image of 8-bit samples, rows first, channels last; 1 channel is grey, 3 are red, green and blue.
///
/// ```
/// use rrvq::picture::{Picture, grid};
///
/// let red = Picture::new([2, 2, 3], [200, 30, 30].repeat(4))?;
/// let sheet = grid(&[red.clone(), red], 2, 1, 1)?; // two columns, a gap of one pixel
/// assert!(sheet.to_png()?.starts_with(b"\x89PNG"));
/// # Ok::<(), rrvq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    channels: usize,
    pixels: Vec<u8>,
}

const GAP: u8 = 255;

/// Endings of names that promise a picture of another kind than PNG.
const OTHER_FORMATS: [&str; 16] = [
    "jpg", "jpeg", "jfif", "webp", "gif", "bmp", "tif", "tiff", "avif", "jxl", "ico", "ppm", "pgm",
    "pnm", "tga", "qoi",
];

/// A square of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The largest one in the middle.
    Centre,
    /// The one of this side, so far from the left and from above.
    At {
        /// Pixels to its left.
        left: u32,
        /// Pixels above it.
        above: u32,
        /// Its width and height.
        side: u32,
    },
    /// One of this side, or the largest there is, so far across and down the room there is, in parts of 2³².
    Somewhere {
        /// Its width and height.
        side: u32,
        /// How far from the left.
        across: u32,
        /// How far from above.
        down: u32,
    },
}

impl Part {
    /// Left, above and side in an image of this size, if it is large enough.
    fn of(self, width: u32, height: u32) -> Option<(u32, u32, u32)> {
        match self {
            Part::Centre => {
                let side = width.min(height);
                Some(((width - side) / 2, (height - side) / 2, side))
            }
            Part::At { left, above, side } => {
                (left + side <= width && above + side <= height).then_some((left, above, side))
            }
            Part::Somewhere { side, across, down } => {
                let side = side.min(width).min(height);
                let place = |share: u32, room: u32| {
                    ((u64::from(share) * (u64::from(room) + 1)) >> 32) as u32
                };
                let (left, above) = (place(across, width - side), place(down, height - side));
                Some((left, above, side))
            }
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Centre => f.write_str("the central square"),
            Part::Somewhere { side, .. } => write!(f, "a square of {side} pixels"),
            Part::At { left, above, side } => write!(
                f,
                "the square from ({left}, {above}) to ({}, {})",
                left + side,
                above + side
            ),
        }
    }
}

impl Picture {
    /// A picture of `shape` (height, width, channels) from its samples.
    pub fn new(shape: [usize; 3], pixels: Vec<u8>) -> Result<Picture> {
        let [height, width, channels] = shape;
        let fits = pixels.len() == height * width * channels
            && !pixels.is_empty()
            && [1, 3].contains(&channels);
        if !fits {
            return Err(Error::new(format!(
                "a picture of {height}×{width}×{channels} cannot be made of {} samples; expected height × width × 1 or 3",
                pixels.len()
            )));
        }
        Ok(Picture {
            width,
            height,
            channels,
            pixels,
        })
    }

    /// The pictures of a batch that lie one after the other in `pixels`.
    pub fn batch(shape: [usize; 3], pixels: &[u8]) -> Result<Vec<Picture>> {
        let each: usize = shape.iter().product();
        pixels
            .chunks(each.max(1))
            .map(|pixels| Picture::new(shape, pixels.to_vec()))
            .collect()
    }

    /// Height, width and channels.
    pub fn shape(&self) -> [usize; 3] {
        [self.height, self.width, self.channels]
    }

    /// The samples, rows first, channels last.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The image in a PNG, JPEG or WebP file as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Picture> {
        let path = path.as_ref();
        let bytes = limits::read_file(path)?;
        let image = decode(&bytes, &path.display())?.on_white();
        Picture::new([image.height, image.width, image.channels], image.pixels)
    }

    /// The image in a PNG, JPEG or WebP file, cropped to its central square and resized to side `size`.
    pub fn load(path: impl AsRef<Path>, size: usize, channels: usize) -> Result<Picture> {
        let path = path.as_ref();
        let bytes = limits::read_file(path)?;
        let mut all = Picture::cut(&bytes, &path.display(), &[Part::Centre], size, channels)?;
        all.pop()
            .ok_or_else(|| Error::new("one part makes one picture"))
    }

    /// Parts of an encoded image, each resized to side `size`; `name` is what to call the image in a message.
    pub fn cut(
        bytes: &[u8],
        name: &dyn fmt::Display,
        parts: &[Part],
        size: usize,
        channels: usize,
    ) -> Result<Vec<Picture>> {
        let image = decode(bytes, name)?;
        let picture = |part: &Part| {
            let (width, height) = (image.width as u32, image.height as u32);
            let (left, above, square) = part.of(width, height).ok_or_else(|| {
                Error::new(format!(
                    "{name} has {width}×{height} pixels, too few to cut {part} out of it"
                ))
            })?;
            // Of what may be large no copy is made that is not needed.
            let mut image = match [width, height] == [square; 2] {
                true => Cow::Borrowed(&image),
                false => {
                    let side = square as usize;
                    Cow::Owned(image.cropped(left as usize, above as usize, side, side))
                }
            };
            if image.has_alpha() {
                image = Cow::Owned(image.into_owned().on_white());
            }
            if square as usize != size {
                image = Cow::Owned(image.resized(size, size));
            }
            let pixels = match channels {
                1 => image.into_owned().into_grey(),
                _ => image.into_owned().into_rgb(),
            };
            Picture::new([size, size, channels], pixels)
        };
        parts.iter().map(picture).collect()
    }

    /// The picture as the bytes of a PNG file.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(match self.channels {
            1 => png::ColorType::Grayscale,
            _ => png::ColorType::Rgb,
        });
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(&self.pixels)?;
            writer.finish()
        });
        match written {
            Ok(()) => Ok(bytes),
            Err(error) => Err(Error::new(format!(
                "cannot encode a picture as PNG: {error}"
            ))),
        }
    }

    /// Writes the picture as a PNG file; refuses names of other formats.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let named = |other: &str| ending.as_deref().is_some_and(|ending| ending == other);
        if OTHER_FORMATS.into_iter().any(named) {
            return Err(Error::new(format!(
                "cannot write {}: pictures are written as PNG; choose a name that ends in .png",
                path.display()
            )));
        }
        let bytes = self.to_png()?;
        write_atomic(path, |out| out.write_all(&bytes))
    }

    /// The picture as a `data:` address, for a page that holds its own images.
    pub fn data_uri(&self) -> Result<String> {
        Ok(format!("data:image/png;base64,{}", base64(&self.to_png()?)))
    }
}

fn decode(bytes: &[u8], name: &dyn fmt::Display) -> Result<Samples> {
    let read = whole::check(bytes).and_then(|_| Samples::read(bytes));
    read.map_err(|problem| {
        Error::new(format!(
            "cannot read {name} as an image: {problem}; expected a PNG, JPEG or WebP file"
        ))
    })
}

/// Pictures of one shape in rows of `columns`, `gap` pixels apart, every pixel drawn as `scale` × `scale`.
pub fn grid(pictures: &[Picture], columns: usize, gap: usize, scale: usize) -> Result<Picture> {
    let Some(first) = pictures.first() else {
        return Err(Error::new("a grid needs at least one picture"));
    };
    let shape @ [height, width, channels] = first.shape();
    if let Some(odd) = pictures.iter().find(|picture| picture.shape() != shape) {
        return Err(Error::new(format!(
            "a grid needs pictures of one shape, found {shape:?} and {:?}",
            odd.shape()
        )));
    }
    let (columns, scale) = (columns.clamp(1, pictures.len()), scale.max(1));
    let rows = pictures.len().div_ceil(columns);
    let (cell_width, cell_height) = (width * scale, height * scale);
    let total_width = columns * (cell_width + gap) - gap;
    let total_height = rows * (cell_height + gap) - gap;
    let mut pixels = vec![GAP; total_width * total_height * channels];
    for (number, picture) in pictures.iter().enumerate() {
        let (left, above) = (
            number % columns * (cell_width + gap),
            number / columns * (cell_height + gap),
        );
        for y in 0..cell_height {
            let source = &picture.pixels[y / scale * width * channels..][..width * channels];
            let start = ((above + y) * total_width + left) * channels;
            let target = &mut pixels[start..][..cell_width * channels];
            for (pixel, block) in source
                .chunks_exact(channels)
                .zip(target.chunks_exact_mut(scale * channels))
            {
                block
                    .chunks_exact_mut(channels)
                    .for_each(|out| out.copy_from_slice(pixel));
            }
        }
    }
    Picture::new([total_height, total_width, channels], pixels)
}

/// A scale at which an image of side `size` is large enough to look at.
pub fn comfortable_scale(size: usize) -> usize {
    (96 / size.max(1)).clamp(1, 16)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| chunk.get(place).copied().unwrap_or(0) as usize;
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[bits >> (18 - 6 * place) & 63];
            text.push(if place <= chunk.len() {
                letter as char
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(shape: [usize; 3], value: u8) -> Picture {
        Picture::new(shape, vec![value; shape.iter().product()]).unwrap()
    }

    #[test]
    fn base64_known_answers() {
        let answers = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        answers
            .iter()
            .for_each(|(plain, coded)| assert_eq!(base64(plain.as_bytes()), *coded));
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn a_grid_places_scales_and_separates() {
        let pictures = [
            plain([1, 2, 1], 10),
            plain([1, 2, 1], 20),
            plain([1, 2, 1], 30),
        ];
        let whole = grid(&pictures, 2, 1, 2).unwrap();
        assert_eq!(whole.shape(), [5, 9, 1]);
        let rows: Vec<&[u8]> = whole.pixels().chunks(9).collect();
        assert_eq!(rows[0], [10, 10, 10, 10, GAP, 20, 20, 20, 20]);
        assert_eq!(rows[1], rows[0]);
        assert_eq!(rows[2], [GAP; 9]);
        assert_eq!(rows[4], [30, 30, 30, 30, GAP, GAP, GAP, GAP, GAP]);
    }

    #[test]
    fn grids_of_nothing_and_of_mixed_shapes_are_refused() {
        assert!(grid(&[], 2, 1, 1).is_err());
        assert!(grid(&[plain([1, 1, 1], 0), plain([1, 2, 1], 0)], 2, 1, 1).is_err());
        assert!(Picture::new([2, 2, 3], vec![0; 11]).is_err());
        assert!(Picture::batch([1, 1, 3], &[0; 7]).is_err());
    }

    #[test]
    fn pictures_survive_png() {
        let scratch = tempfile::tempdir().unwrap();
        for channels in [1, 3] {
            let pixels = (0..4 * 4 * channels)
                .map(|value| (value * 5) as u8)
                .collect();
            let picture = Picture::new([4, 4, channels], pixels).unwrap();
            picture.save(scratch.path().join("picture.png")).unwrap();
            assert_eq!(
                Picture::load(scratch.path().join("picture.png"), 4, channels).unwrap(),
                picture
            );
        }
    }

    #[test]
    fn loading_crops_the_middle_and_resizes() {
        let scratch = tempfile::tempdir().unwrap();
        let side = |value| plain([8, 4, 3], value);
        let wide = grid(&[side(0), side(90), side(90), side(255)], 4, 0, 1).unwrap();
        wide.save(scratch.path().join("wide.png")).unwrap();
        assert_eq!(
            Picture::load(scratch.path().join("wide.png"), 2, 3).unwrap(),
            plain([2, 2, 3], 90)
        );
        assert_eq!(
            Picture::load(scratch.path().join("wide.png"), 16, 1).unwrap(),
            plain([16, 16, 1], 90)
        );
    }

    #[test]
    fn what_is_not_an_image_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("notes.png"), "not an image").unwrap();
        let said = Picture::load(scratch.path().join("notes.png"), 2, 3)
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("notes.png as an image") && said.contains("PNG, JPEG or WebP"),
            "{said}"
        );
        assert!(
            Picture::load(scratch.path().join("none.png"), 2, 3)
                .unwrap_err()
                .to_string()
                .contains("no such file")
        );
    }

    #[test]
    fn parts_at_random_stay_inside() {
        let far = |across, down| Part::Somewhere {
            side: 4,
            across,
            down,
        };
        assert_eq!(far(0, 0).of(10, 6), Some((0, 0, 4)));
        assert_eq!(far(u32::MAX, u32::MAX).of(10, 6), Some((6, 2, 4)));
        assert_eq!(far(1 << 31, 7).of(3, 9), Some((0, 0, 3)));
    }

    #[test]
    fn an_image_that_was_cut_short_is_refused_with_its_byte() {
        let pixels: Vec<u8> = (0..32 * 32 * 3).map(|i| (i * i / 7) as u8).collect();
        let image = image::RgbImage::from_raw(32, 32, pixels).unwrap();
        for format in [
            image::ImageFormat::Jpeg,
            image::ImageFormat::Png,
            image::ImageFormat::WebP,
        ] {
            let mut file = std::io::Cursor::new(Vec::new());
            image.write_to(&mut file, format).unwrap();
            let whole = file.into_inner();
            let cut = |bytes: &[u8]| Picture::cut(bytes, &"it", &[Part::Centre], 8, 3);
            assert_eq!(cut(&whole).unwrap().len(), 1);
            for len in [whole.len() / 2, whole.len() - 5] {
                let said = cut(&whole[..len]).unwrap_err().to_string();
                assert!(
                    said.contains(&format!("ends at byte {len}")),
                    "{format:?}: {said}"
                );
            }
        }
    }
}
