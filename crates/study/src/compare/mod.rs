//! What the codec is worth beside others, on the same images.
//!
//! Without loss the one question is size, and whether everything came back. With loss it is a curve: how many bits a pixel
//! for how close a picture. All codecs get the same samples and are measured by the same code; profiles and orientation
//! are left aside, and so is transparency where there is loss.
//!
//! Other formats store a file for each image. Ours may store many in one file, which shares a header and gives bits back
//! from image to image; both ways are told, and for the others a single sheet of all images beside the single files.
//!
//! - [`quality`]: PSNR and MS-SSIM.
//! - [`header`]: bytes of a file that are not the image.
//! - [`rivals`], [`programs`]: the other codecs, in this program and on the path.
//! - [`ours`]: this codec.
//! - [`source`]: the images.
//! - [`pages`], [`figure`]: a chart of rate against quality, pictures side by side, a page with everything.
//!
//! Time is that of one core: where several work at once, their seconds are added.

pub mod figure;
pub mod header;
pub mod ours;

pub mod pages;
pub mod programs;
pub mod quality;
pub mod rivals;
pub mod source;

pub use rivals::LeftOut;

use header::header_bytes;
use rayon::prelude::*;
use rivals::Rival;
use rrvq::Collective;
use rrvq::cluster::{Made, shared};
use rrvq::error::{Error, Result};
use rrvq::interrupt::{self, Interrupt};
use rrvq_codec::lossy::Tiles;
use rrvq_codec::{Identity, Image, Workers};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// A codec, or one setting of it, over all images.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    pub codec: String,
    /// The program that encoded, its version, and how hard it tried.
    pub encoder: String,
    /// What it was set to, for instance "quality 50"; empty where there is nothing to set.
    pub setting: String,
    pub size: Size,
    pub encode: Duration,
    pub decode: Duration,
    pub verdict: Verdict,
}

/// Bytes of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    pub files: usize,
    pub bytes: usize,
    /// Of them, around the coded data; `None` where the format does not keep it apart.
    pub header: Option<usize>,
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.header = self.header.zip(other.header).map(|(a, b)| a + b);
    }
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// So many images as they were.
    Equal(usize),
    /// The squared error over all samples, and the mean of the images' MS-SSIM.
    Close { squared_error: f64, ms_ssim: f64 },
}

impl Default for Verdict {
    fn default() -> Self {
        Verdict::Equal(0)
    }
}

/// The first part of a lossy file, over a few images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefix {
    /// Of the file's bytes, and what they are a pixel.
    pub share: f64,
    pub bits_per_pixel: f64,
    /// The squared error over all samples.
    pub squared_error: f64,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Comparison {
    pub images: usize,
    pub pixels: usize,
    /// Samples of colours and transparency, one byte each; and of colours alone.
    pub samples: usize,
    pub colours: usize,
    pub lossless: Vec<Row>,
    /// Images the model coded in one file for all, rather than prediction.
    pub by_model: usize,
    pub lossy: Vec<Row>,
    /// What first parts of our lossy files show.
    pub prefixes: Vec<Prefix>,
    pub left_out: Vec<LeftOut>,
    /// The fewest and the most scales of MS-SSIM, which the images' sizes decide.
    pub scales: (usize, usize),
    pub threads: usize,
}

impl Comparison {
    /// Of these images, with nothing compared yet.
    pub fn of(images: &[Image]) -> Comparison {
        let scales = || images.iter().map(|i| quality::scales(i.width, i.height));
        Comparison {
            images: images.len(),
            pixels: images.iter().map(|i| i.width * i.height).sum(),
            samples: images.iter().map(Image::bytes).sum(),
            colours: images.iter().map(|i| i.colour.len()).sum(),
            scales: (scales().min().unwrap_or(1), scales().max().unwrap_or(1)),
            threads: rayon::current_num_threads(),
            ..Comparison::default()
        }
    }

    /// Adds all other codecs with loss, at all their settings. One that fails is left out and named.
    pub fn add_rivals(&mut self, images: &[Image], watch: &(dyn Fn(usize) + Sync)) {
        let (rivals, missing) = rivals::lossy();
        self.left_out.extend(missing);
        for rival in &rivals {
            for &setting in rival.settings() {
                let row = with_loss(rival.as_ref(), setting, images, watch);
                let broken = row.is_err();
                keep(row, rival.name(), &mut self.lossy, &mut self.left_out);
                // What fails once fails at every setting.
                if broken {
                    break;
                }
            }
        }
    }

    pub fn bits_per_pixel(&self, row: &Row) -> f64 {
        8.0 * row.size.bytes as f64 / self.pixels as f64
    }

    pub fn bits_per_sample(&self, row: &Row) -> f64 {
        let samples = match row.verdict {
            Verdict::Equal(_) => self.samples,
            Verdict::Close { .. } => self.colours,
        };
        8.0 * row.size.bytes as f64 / samples as f64
    }

    /// Notes what could not be had.
    pub fn leave_out(&mut self, name: &str, why: Error) {
        self.left_out.push(LeftOut {
            name: name.into(),
            why: why.to_string(),
        });
    }

    /// Without what is around the coded data.
    pub fn bare_bits_per_pixel(&self, row: &Row) -> Option<f64> {
        let header = row.size.header?;
        Some(8.0 * (row.size.bytes - header) as f64 / self.pixels as f64)
    }
}

/// A comparison to be made.
pub struct Contest<'a> {
    pub workers: &'a mut Workers,
    pub identity: Identity,
    /// Without profile and orientation, as [`source::images`] gives them.
    pub images: &'a [Image],
    /// Whether codecs without loss are compared, and those with it.
    pub lossless: bool,
    pub lossy: bool,
    /// Also choose codes for rate and distortion.
    pub search: bool,
    /// Tiles of our lossy files.
    pub tiles: Tiles,
    /// Told after each image of each codec and setting.
    pub watch: &'a (dyn Fn(usize) + Sync),
    /// Processes that share the rows of the tables.
    pub together: Option<&'a dyn Collective>,
}

/// A row of the tables, or some that are measured together.
enum Part<'r> {
    Ours,
    OursWithLoss,
    Alone(&'r dyn Rival),
    Sheet(&'r dyn Rival, &'r Image),
    WithLoss(&'r dyn Rival, f64),
}

/// What came of a part.
#[derive(Default, Serialize, Deserialize)]
struct Measured {
    lossless: Vec<Row>,
    by_model: usize,
    lossy: Vec<Row>,
    prefixes: Vec<Prefix>,
    left_out: Vec<LeftOut>,
}

impl Contest<'_> {
    /// How often `watch` will be told of an image, about: what fails is told of less.
    pub fn length(&self) -> usize {
        let count = self.images.len();
        let lossless = match self.lossless {
            true => rivals::lossless().0.len() * (count + sheet(self.images).iter().len()),
            false => 0,
        };
        let settings: usize = match self.lossy {
            true => rivals::lossy().0.iter().map(|r| r.settings().len()).sum(),
            false => 0,
        };
        lossless + settings * count + ours::length(self, count)
    }

    /// Compares. A rival that fails is left out and named; a failure of our own is an error.
    pub fn run(&mut self) -> Result<Comparison> {
        if self.images.is_empty() {
            return Err(Error::new("there are no images to compare codecs on"));
        }
        let mut out = Comparison::of(self.images);
        let (lossless, missing) = match self.lossless {
            true => rivals::lossless(),
            false => Default::default(),
        };
        out.left_out.extend(missing);
        let (lossy, missing) = match self.lossy {
            true => rivals::lossy(),
            false => Default::default(),
        };
        out.left_out.extend(missing);
        let sheet = sheet(self.images);
        let mut parts: Vec<Part> = self.lossless.then_some(Part::Ours).into_iter().collect();
        for rival in &lossless {
            parts.push(Part::Alone(rival.as_ref()));
            parts.extend(sheet.iter().map(|sheet| Part::Sheet(rival.as_ref(), sheet)));
        }
        let mut plain = Vec::new();
        if self.lossy {
            plain.extend(self.images.iter().map(without_alpha));
            parts.push(Part::OursWithLoss);
        }
        for rival in &lossy {
            let settings = rival.settings().iter();
            parts.extend(settings.map(|&setting| Part::WithLoss(rival.as_ref(), setting)));
        }
        let mut broken: Vec<String> = Vec::new();
        let measured = shared(self.together, parts.len(), |number| {
            let part = &parts[number];
            // What fails once fails at every setting.
            if matches!(part, Part::WithLoss(rival, _) if broken.iter().any(|name| name == rival.name()))
            {
                return Ok(Measured::default());
            }
            let found = self.measure(part, &plain)?;
            interrupt::check()?;
            broken.extend(found.left_out.iter().map(|left| left.name.clone()));
            Ok(found)
        })?;
        for part in measured {
            out.lossless.extend(part.lossless);
            out.by_model += part.by_model;
            out.lossy.extend(part.lossy);
            out.prefixes.extend(part.prefixes);
            // Several processes may each have met the same failure.
            for left in part.left_out {
                if out.left_out.iter().all(|known| known.name != left.name) {
                    out.left_out.push(left);
                }
            }
        }
        Ok(out)
    }

    fn measure(&mut self, part: &Part, plain: &[Image]) -> Result<Measured> {
        let mut out = Measured::default();
        match *part {
            Part::Ours => (out.lossless, out.by_model) = ours::lossless(self)?,
            Part::Alone(rival) => {
                let row = out_of_loss(rival, self.images, self.watch);
                keep(row, rival.name(), &mut out.lossless, &mut out.left_out);
            }
            Part::Sheet(rival, sheet) => {
                let name = format!("{}, one sheet", rival.name());
                let row = out_of_loss(rival, std::slice::from_ref(sheet), self.watch);
                // The sheet is all the images: as many came back as it holds.
                let row = row.map(|mut row| {
                    if row.verdict == Verdict::Equal(1) {
                        row.verdict = Verdict::Equal(self.images.len());
                    }
                    row.codec = name.clone();
                    row
                });
                keep(row, &name, &mut out.lossless, &mut out.left_out);
            }
            // A model of grey pictures cannot show colours, though it can store them by prediction.
            Part::OursWithLoss => match ours::lossy(self, plain) {
                Ok(rows) => {
                    out.lossy = rows;
                    out.prefixes = ours::prefixes(self, plain)?;
                }
                Err(why) => out.left_out.push(LeftOut {
                    name: "rrvq with loss".into(),
                    why: why.to_string(),
                }),
            },
            Part::WithLoss(rival, setting) => {
                let row = with_loss(rival, setting, plain, self.watch);
                keep(row, rival.name(), &mut out.lossy, &mut out.left_out);
            }
        }
        Ok(out)
    }
}

impl Made for Measured {
    fn to_bytes(self) -> Result<Vec<u8>> {
        serde_json::to_vec(&self).map_err(|e| Error::new(format!("cannot write JSON: {e}")))
    }
    fn from_bytes(bytes: &[u8]) -> Result<Measured> {
        serde_json::from_slice(bytes).map_err(|e| {
            Error::new(format!(
                "a rank sent rows that cannot be read: {e}; start the same program in all processes"
            ))
        })
    }
}

fn keep(row: Result<Row>, name: &str, rows: &mut Vec<Row>, left_out: &mut Vec<LeftOut>) {
    match row {
        Ok(row) => rows.push(row),
        Err(error) => left_out.push(LeftOut {
            name: name.into(),
            why: error.to_string(),
        }),
    }
}

fn without_alpha(image: &Image) -> Image {
    Image {
        alpha: None,
        ..image.clone()
    }
}

/// All images on one sheet, where they have one shape: about as many columns as rows, black where none is left.
pub fn sheet(images: &[Image]) -> Option<Image> {
    let first = images.first()?;
    let shape = |i: &Image| (i.width, i.height, i.channels(), i.alpha.is_some());
    if images.len() < 2 || first.alpha.is_some() || images.iter().any(|i| shape(i) != shape(first))
    {
        return None;
    }
    let columns = (images.len() as f64).sqrt().ceil() as usize;
    let rows = images.len().div_ceil(columns);
    let (line, width) = (first.width * first.channels(), columns * first.width);
    let mut colour = vec![0; columns * line * rows * first.height];
    for (number, image) in images.iter().enumerate() {
        let (left, above) = (number % columns * line, number / columns * first.height);
        for (y, row) in image.colour.chunks_exact(line).enumerate() {
            let start = (above + y) * columns * line + left;
            colour[start..start + line].copy_from_slice(row);
        }
    }
    Some(Image {
        name: "sheet".into(),
        width,
        height: rows * first.height,
        colour,
        ..first.clone()
    })
}

/// A rival without loss.
fn out_of_loss(rival: &dyn Rival, images: &[Image], watch: &(dyn Fn(usize) + Sync)) -> Result<Row> {
    let setting = rival.settings().first().copied().unwrap_or(0.0);
    let one = |image: &Image| {
        let mut tried = Tried::of(rival, image, setting)?;
        tried.equal = rivals::is_same(&tried.picture, image) as usize;
        tried.picture = Default::default();
        watch(1);
        Ok(tried)
    };
    let (row, sum) = tried_all(rival, images, &one)?;
    Ok(Row {
        verdict: Verdict::Equal(sum.equal),
        ..row
    })
}

/// A rival with loss.
fn with_loss(
    rival: &dyn Rival,
    setting: f64,
    images: &[Image],
    watch: &(dyn Fn(usize) + Sync),
) -> Result<Row> {
    let one = |image: &Image| {
        let mut tried = Tried::of(rival, image, setting)?;
        let shown = rivals::colours(std::mem::take(&mut tried.picture), image)?;
        (tried.squared_error, tried.ms_ssim) = judge(image, &shown);
        watch(1);
        Ok(tried)
    };
    let (row, sum) = tried_all(rival, images, &one)?;
    let samples: usize = images.iter().map(|i| i.colour.len()).sum();
    Ok(Row {
        setting: format!("{} {setting}", rival.knob()),
        verdict: Verdict::Close {
            squared_error: sum.squared_error / samples as f64,
            ms_ssim: sum.ms_ssim / images.len() as f64,
        },
        ..row
    })
}

/// The sum of squared errors of a picture, and its MS-SSIM.
fn judge(image: &Image, shown: &[u8]) -> (f64, f64) {
    let error = quality::squared_error(&image.colour, shown) * shown.len() as f64;
    let alike = quality::ms_ssim(&image.colour, shown, image.width, image.height);
    (error, alike)
}

fn tried_all(
    rival: &dyn Rival,
    images: &[Image],
    one: &(dyn Fn(&Image) -> Result<Tried> + Sync),
) -> Result<(Row, Tried)> {
    let interrupt = Interrupt::current();
    let one = |image: &Image| interrupt.check().and_then(|()| one(image));
    let tried: Vec<Tried> = images.par_iter().map(one).collect::<Result<_>>()?;
    let mut sum = Tried::default();
    sum.size.header = Some(0);
    tried.into_iter().for_each(|tried| sum += tried);
    let row = Row {
        codec: rival.name().into(),
        encoder: rival.encoder(),
        size: sum.size,
        encode: sum.encode,
        decode: sum.decode,
        ..Row::default()
    };
    Ok((row, sum))
}

/// One image through a rival, or the sum of many.
#[derive(Default)]
struct Tried {
    size: Size,
    encode: Duration,
    decode: Duration,
    equal: usize,
    squared_error: f64,
    ms_ssim: f64,
    picture: rrvq::image_file::Samples,
}

impl Tried {
    fn of(rival: &dyn Rival, image: &Image, setting: f64) -> Result<Tried> {
        let start = Instant::now();
        let file = rival.encode(image, setting)?;
        let encode = start.elapsed();
        let start = Instant::now();
        let picture = rival.decode(&file)?;
        Ok(Tried {
            size: Size {
                files: 1,
                bytes: file.len(),
                header: header_bytes(&file),
            },
            encode,
            decode: start.elapsed(),
            picture,
            ..Tried::default()
        })
    }
}

impl AddAssign for Tried {
    fn add_assign(&mut self, other: Tried) {
        self.size += other.size;
        self.encode += other.encode;
        self.decode += other.decode;
        self.equal += other.equal;
        self.squared_error += other.squared_error;
        self.ms_ssim += other.ms_ssim;
    }
}
