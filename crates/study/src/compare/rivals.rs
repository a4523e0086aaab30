//! The codecs to compare with. Some are in this program; others are programs of their own, used where they are found.
//!
//! A rival turns an image into the bytes of a file and back. One that cannot be had is still named, with the reason: a
//! table that leaves something out in silence says more than it knows.

use super::programs::{Program, Tool};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use rrvq::error::{Error, Result};
use rrvq::image_file::Samples;
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
    fn decode(&self, file: &[u8]) -> Result<Samples>;
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
            Inside::Jpeg => "this program, full colour, optimised codes",
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
        if *self == Inside::Png {
            return Ok(image.to_png());
        }
        let failed = |why: &dyn std::fmt::Display| {
            let name = image.name.display();
            Error::new(format!("cannot write {name} as JPEG: {why}"))
        };
        let side = |side: usize| {
            u16::try_from(side)
                .map_err(|_| failed(&"a JPEG file has sides of at most 65,535 pixels"))
        };
        let kind = match image.channels() {
            1 => ColorType::Luma,
            _ => ColorType::Rgb,
        };
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, setting as u8);
        encoder.set_sampling_factor(SamplingFactor::F_1_1);
        encoder.set_optimized_huffman_tables(true);
        let written = encoder.encode(&image.colour, side(image.width)?, side(image.height)?, kind);
        written.map_err(|error| failed(&error))?;
        Ok(file)
    }

    fn decode(&self, file: &[u8]) -> Result<Samples> {
        read(file, self.name())
    }
}

/// The picture in a file of a format this program reads.
pub fn read(file: &[u8], name: &str) -> Result<Samples> {
    Samples::read(file)
        .map_err(|error| Error::new(format!("cannot read a file of {name} back: {error}")))
}

/// Whether a picture is the image, sample for sample.
pub fn is_same(picture: &Samples, image: &Image) -> bool {
    if (picture.width, picture.height) != (image.width, image.height) {
        return false;
    }
    // Formats differ in whether grey is kept as grey; its value is the same in each of three channels.
    let channels = image.channels();
    let colours = picture.channels - picture.has_alpha() as usize;
    let same = |(number, pixel): (usize, &[u8])| {
        let alpha = image.alpha.as_ref().map_or(255, |alpha| alpha[number]);
        let colour = |c: usize| image.colour[number * channels + c % channels];
        (0..3).all(|c| pixel[c % colours] == colour(c))
            && pixel.get(colours).is_none_or(|&a| a == alpha)
            && (picture.has_alpha() || alpha == 255)
    };
    let pixels = picture.pixels.chunks_exact(picture.channels);
    pixels.enumerate().all(same)
}

/// The colours of a picture in as many channels as the image has.
pub fn colours(picture: Samples, image: &Image) -> Result<Vec<u8>> {
    let (width, height) = (picture.width, picture.height);
    if (width, height) != (image.width, image.height) {
        return Err(Error::new(format!(
            "{} came back with {width}×{height} pixels instead of {}×{}",
            image.name.display(),
            image.width,
            image.height
        )));
    }
    Ok(match image.channels() {
        1 => picture.into_grey(),
        _ => picture.into_rgb(),
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
