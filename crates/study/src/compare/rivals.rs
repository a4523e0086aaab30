//! The codecs to compare with. Some are in this program; others are programs of their own, used where they are found.
//!
//! A rival turns an image into the bytes of a file and back. One that cannot be had is still named, with the reason: a
//! table that leaves something out in silence says more than it knows.

use super::programs::{Program, Tool};
use image::codecs::jpeg;
use image::{DynamicImage, ExtendedColorType, ImageEncoder};
use rrvq::error::{Error, Result};
use rrvq_codec::Image;

/// A codec to compare with.
pub trait Rival: Sync {
    fn name(&self) -> &str;
    /// The program that encodes, its version, and how hard it tries.
    fn encoder(&self) -> String;
    /// What its settings are called in a table: "quality", "distance".
    fn knob(&self) -> &str;
    /// Settings worth trying; of a lossless codec one, without meaning.
    fn settings(&self) -> &[f64];
    /// The bytes of a file.
    fn encode(&self, image: &Image, setting: f64) -> Result<Vec<u8>>;
    /// The picture in such a file.
    fn decode(&self, file: &[u8]) -> Result<DynamicImage>;
}

/// A rival that cannot be compared with, and why.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// Rivals, and those that cannot be had.
pub type Found = (Vec<Box<dyn Rival>>, Vec<LeftOut>);

/// Codecs without loss.
pub fn lossless() -> Found {
    let inside: Vec<Box<dyn Rival>> = vec![Box::new(Inside::Png)];
    let programs = [
        Tool::WebpLossless(false),
        Tool::WebpLossless(true),
        Tool::JxlLossless(7),
        Tool::JxlLossless(9),
        Tool::AvifLossless,
    ];
    with_programs(inside, &programs)
}

/// Codecs with loss.
pub fn lossy() -> Found {
    let inside: Vec<Box<dyn Rival>> = vec![Box::new(Inside::Jpeg)];
    with_programs(inside, &[Tool::Cjpeg, Tool::Webp, Tool::Jxl, Tool::Avif])
}

fn with_programs(mut rivals: Vec<Box<dyn Rival>>, tools: &[Tool]) -> Found {
    let mut missing = Vec::new();
    for tool in tools {
        match Program::find(*tool) {
            Ok(program) => rivals.push(Box::new(program)),
            Err(why) if !missing.contains(&why) => missing.push(why),
            Err(_) => {}
        }
    }
    (rivals, missing)
}

/// Codecs of this program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inside {
    Png,
    Jpeg,
}

/// Qualities of a JPEG.
pub const JPEG_QUALITIES: [f64; 11] = [
    5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0,
];

impl Rival for Inside {
    fn name(&self) -> &str {
        match self {
            Inside::Png => "PNG",
            Inside::Jpeg => "JPEG",
        }
    }

    fn encoder(&self) -> String {
        match self {
            Inside::Png => "this program, best of all filters",
            Inside::Jpeg => "this program, standard tables, full colour",
        }
        .into()
    }

    fn knob(&self) -> &str {
        "quality"
    }

    fn settings(&self) -> &[f64] {
        match self {
            Inside::Jpeg => &JPEG_QUALITIES,
            _ => &[0.0],
        }
    }

    fn encode(&self, image: &Image, setting: f64) -> Result<Vec<u8>> {
        let mut file = Vec::new();
        let (samples, kind) = joined(image);
        let (width, height) = (image.width as u32, image.height as u32);
        let written = match self {
            Inside::Png => return Ok(image.to_png()),
            Inside::Jpeg => jpeg::JpegEncoder::new_with_quality(&mut file, setting as u8)
                .write_image(&samples, width, height, kind),
        };
        written.map_err(|error| {
            let (image, name) = (image.name.display(), self.name());
            Error::new(format!("cannot write {image} as {name}: {error}"))
        })?;
        Ok(file)
    }

    fn decode(&self, file: &[u8]) -> Result<DynamicImage> {
        read(file, self.name())
    }
}

/// The picture in a file of a format this program reads.
pub fn read(file: &[u8], name: &str) -> Result<DynamicImage> {
    image::load_from_memory(file)
        .map_err(|error| Error::new(format!("cannot read a file of {name} back: {error}")))
}

/// Samples with transparency among them, as files have it.
fn joined(image: &Image) -> (Vec<u8>, ExtendedColorType) {
    let channels = image.channels();
    let kind = match (channels, image.alpha.is_some()) {
        (1, false) => ExtendedColorType::L8,
        (1, true) => ExtendedColorType::La8,
        (_, false) => ExtendedColorType::Rgb8,
        (_, true) => ExtendedColorType::Rgba8,
    };
    let samples = match &image.alpha {
        None => image.colour.clone(),
        Some(alpha) => {
            let pixels = image.colour.chunks_exact(channels).zip(alpha);
            let pixels = pixels.flat_map(|(pixel, alpha)| pixel.iter().chain([alpha]));
            pixels.copied().collect()
        }
    };
    (samples, kind)
}

/// Whether a picture is the image, sample for sample.
pub fn is_same(picture: &DynamicImage, image: &Image) -> bool {
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    if (width, height) != (image.width, image.height) {
        return false;
    }
    // Formats differ in whether grey is kept as grey; its value is the same in each of three channels.
    let channels = image.channels();
    let back = picture.to_rgba8();
    let same = |(number, pixel): (usize, &image::Rgba<u8>)| {
        let colour = |c: usize| image.colour[number * channels + c % channels];
        let alpha = image.alpha.as_ref().map_or(255, |alpha| alpha[number]);
        pixel.0 == [colour(0), colour(1), colour(2), alpha]
    };
    back.pixels().enumerate().all(same)
}

/// The colours of a picture in as many channels as the image has.
pub fn colours(picture: DynamicImage, image: &Image) -> Result<Vec<u8>> {
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    if (width, height) != (image.width, image.height) {
        return Err(Error::new(format!(
            "{} came back with {width}×{height} pixels instead of {}×{}",
            image.name.display(),
            image.width,
            image.height
        )));
    }
    Ok(match image.channels() {
        1 => picture.into_luma8().into_raw(),
        _ => picture.into_rgb8().into_raw(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(channels: usize, alpha: bool) -> Image {
        let (width, height) = (13, 9);
        Image {
            name: "x".into(),
            width,
            height,
            colour: (0..width * height * channels)
                .map(|i| (i * 7 + i / 5) as u8)
                .collect(),
            alpha: alpha.then(|| (0..width * height).map(|i| (i * 3) as u8).collect()),
            profile: Vec::new(),
            orientation: 1,
            metadata: Vec::new(),
        }
    }

    #[test]
    fn what_is_lossless_gives_every_kind_back() {
        for rival in [Inside::Png] {
            for (channels, alpha) in [(1, false), (1, true), (3, false), (3, true)] {
                let image = image(channels, alpha);
                let file = rival.encode(&image, 0.0).unwrap();
                let back = rival.decode(&file).unwrap();
                assert!(is_same(&back, &image), "{rival:?} {channels} {alpha}");
                let mut other = image.clone();
                other.colour[5] ^= 1;
                assert!(!is_same(&back, &other));
            }
        }
    }

    #[test]
    fn more_quality_is_more_bytes_and_less_error() {
        for channels in [1, 3] {
            let image = image(channels, false);
            let at = |quality: f64| {
                let file = Inside::Jpeg.encode(&image, quality).unwrap();
                let back = colours(Inside::Jpeg.decode(&file).unwrap(), &image).unwrap();
                assert_eq!(back.len(), image.colour.len());
                let error = super::super::quality::squared_error(&back, &image.colour);
                (file.len(), error)
            };
            let (low, high) = (at(5.0), at(95.0));
            assert!(low.0 < high.0 && low.1 > high.1, "{low:?} {high:?}");
        }
    }
}
