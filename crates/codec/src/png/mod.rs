//! PNG files as small as a good encoder makes them: images that are decompressed should not be larger than they were.
//!
//! Each way to filter rows suits other pictures, and so does a palette where there are few colours; all are tried: on whole
//! images, or on a few rows at a time of large ones. Reading is the image crate's business.

mod pack;
mod palette;
mod stream;

pub use stream::{Rows, Take, unwritten, write};

use super::image::Image;
use super::metadata;
use super::record::Record;
use pack::{Matches, zlib};
use palette::{Entries, Palette};
use rayon::prelude::*;

pub const START: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Samples beyond which an image is written a few rows at a time.
pub const LARGE: usize = 1 << 23;

/// How long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// One way, as fast as it goes: for files that are read once.
    Quick,
    /// All ways, packed as tightly as DEFLATE can be.
    Most,
}

/// Which filter the rows have.
#[derive(Clone, Copy)]
enum Filter {
    /// The same for all: 0 none, 1 left, 2 above, 3 mean of both, 4 Paeth's.
    Fixed(u8),
    /// For each row the one whose bytes are smallest.
    Smallest,
}

/// Rows before filtering: their bytes one after another, and how a header describes them.
struct Form {
    rows: Vec<u8>,
    row_bytes: usize,
    /// Bytes to the sample of the pixel before.
    step: usize,
    depth: u8,
    kind: u8,
    /// Entries of the palette, and their transparency.
    palette: Option<Entries>,
}

/// The bytes of a PNG file.
pub fn encode(image: &Image, effort: Effort) -> Vec<u8> {
    let plain = plain(image);
    let packed = match effort {
        Effort::Quick => None,
        Effort::Most => with_palette(image),
    };
    let mut ways = vec![(&plain, Filter::Smallest, Matches::All)];
    if effort == Effort::Most {
        let fixed = [0, 1, 2, 4].map(Filter::Fixed);
        ways.extend(fixed.map(|filter| (&plain, filter, Matches::All)));
        for matches in [Matches::Long, Matches::Runs] {
            ways.extend([Filter::Smallest, Filter::Fixed(4)].map(|f| (&plain, f, matches)));
        }
        ways.extend(
            packed
                .iter()
                .map(|form| (form, Filter::Fixed(0), Matches::All)),
        );
    }
    let level = match effort {
        Effort::Quick => pack::FAST,
        Effort::Most => pack::BEST,
    };
    let tried = ways.into_par_iter().map(|(form, filter, matches)| {
        let data = zlib(&filtered(form, filter), level, matches);
        let chunk = |data: &Vec<u8>| data.len() + 12;
        let palette = form.palette.as_ref().map_or(0, |(colours, alpha)| {
            chunk(colours) + alpha.as_ref().map_or(0, chunk)
        });
        (data.len() + palette, form, data)
    });
    let smallest = tried.min_by_key(|(len, ..)| *len);
    let (_, form, data) = smallest.unwrap_or((0, &plain, Vec::new()));
    let about = Record::of(image, 0);
    let mut file = before_samples(&about, form.depth, form.kind, form.palette.as_ref());
    put(&mut file, b"IDAT", &data);
    put(&mut file, b"IEND", &[]);
    file
}

/// What comes before the samples: header, metadata, colour profile, palette.
fn before_samples(about: &Record, depth: u8, kind: u8, palette: Option<&Entries>) -> Vec<u8> {
    let mut header = (about.width as u32).to_be_bytes().to_vec();
    header.extend((about.height as u32).to_be_bytes());
    header.extend([depth, kind, 0, 0, 0]);
    let mut file = START.to_vec();
    put(&mut file, b"IHDR", &header);
    metadata::put(&mut file, &about.metadata, about.orientation);
    if !about.profile.is_empty() {
        let packed = zlib(&about.profile, pack::BEST, Matches::All);
        put(
            &mut file,
            b"iCCP",
            &[b"ICC profile\0\0", &packed[..]].concat(),
        );
    }
    if let Some((colours, alpha)) = palette {
        put(&mut file, b"PLTE", colours);
        alpha
            .iter()
            .for_each(|alpha| put(&mut file, b"tRNS", alpha));
    }
    file
}

/// Writes a chunk.
pub fn put(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    let mut crc = flate2::Crc::new();
    crc.update(kind);
    crc.update(data);
    file.extend((data.len() as u32).to_be_bytes());
    file.extend(kind);
    file.extend(data);
    file.extend(crc.sum().to_be_bytes());
}

/// Samples of eight bits, transparency among them.
fn plain(image: &Image) -> Form {
    let channels = image.channels();
    let rows = interleaved(&image.colour, image.alpha.as_deref(), channels);
    let step = channels + image.alpha.is_some() as usize;
    Form {
        rows,
        row_bytes: image.width * step,
        step,
        depth: 8,
        kind: kind_of(step),
        palette: None,
    }
}

/// How a header calls pixels of so many samples.
fn kind_of(step: usize) -> u8 {
    [0, 4, 2, 6][step - 1]
}

/// Each pixel's transparency behind its colour.
fn interleaved(colour: &[u8], alpha: Option<&[u8]>, channels: usize) -> Vec<u8> {
    let Some(alpha) = alpha else {
        return colour.to_vec();
    };
    let pixels = colour.chunks_exact(channels).zip(alpha);
    let pixels = pixels.flat_map(|(pixel, alpha)| pixel.iter().chain([alpha]));
    pixels.copied().collect()
}

/// Coloured pixels as numbers of at most 256 colours, in as few bits as they need. Grey stays grey.
fn with_palette(image: &Image) -> Option<Form> {
    if image.channels() != 3 {
        return None;
    }
    let mut palette = Palette::default();
    let indices = palette.learn(&image.colour, image.alpha.as_deref())?;
    Some(Form {
        rows: palette.pack(image.width, &indices),
        row_bytes: palette.row_bytes(image.width),
        step: 1,
        depth: palette.depth() as u8,
        kind: 3,
        palette: Some(palette.entries(image.alpha.is_some())),
    })
}

/// All rows with their filters' numbers before them.
fn filtered(form: &Form, filter: Filter) -> Vec<u8> {
    let above = vec![0; form.row_bytes];
    filter_rows(&form.rows, form.step, &above, filter)
}

/// Some rows with their filters' numbers before them, below a row that gives its length to all.
fn filter_rows<'a>(rows: &'a [u8], step: usize, mut above: &'a [u8], filter: Filter) -> Vec<u8> {
    let row_bytes = above.len();
    let mut out = Vec::with_capacity(rows.len() + rows.len() / row_bytes);
    for row in rows.chunks_exact(row_bytes) {
        match filter {
            Filter::Fixed(number) => filter_row(&mut out, number, step, row, above),
            Filter::Smallest => {
                let start = out.len();
                let mut least = u64::MAX;
                for number in 0..5 {
                    let here = out.len();
                    filter_row(&mut out, number, step, row, above);
                    let small = |byte: &u8| (*byte as i8).unsigned_abs() as u64;
                    let sum: u64 = out[here + 1..].iter().map(small).sum();
                    if sum < least {
                        out.copy_within(here.., start);
                        least = sum;
                    }
                    out.truncate(start + 1 + row_bytes);
                }
            }
        }
        above = row;
    }
    out
}

fn filter_row(out: &mut Vec<u8>, number: u8, step: usize, row: &[u8], above: &[u8]) {
    out.push(number);
    out.extend(row.iter().enumerate().map(|(at, byte)| {
        let before = |row: &[u8]| if at < step { 0 } else { row[at - step] };
        let (left, up) = (before(row), above[at]);
        byte.wrapping_sub(match number {
            0 => 0,
            1 => left,
            2 => up,
            3 => ((left as u16 + up as u16) / 2) as u8,
            _ => paeth(left, up, before(above)),
        })
    }));
}

/// Whichever of the three is nearest to left + up − corner.
fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let guess = left as i16 + up as i16 - corner as i16;
    let far = |byte: u8| (guess - byte as i16).abs();
    if far(left) <= far(up) && far(left) <= far(corner) {
        left
    } else if far(up) <= far(corner) {
        up
    } else {
        corner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(file: &[u8]) -> image::DynamicImage {
        image::load_from_memory_with_format(file, image::ImageFormat::Png).unwrap()
    }

    /// Pictures of few colours, of slopes, and of noise, of every kind.
    fn pictures() -> Vec<Image> {
        let mut out = Vec::new();
        for (number, channels) in [1, 3, 1, 3, 3, 3, 3].into_iter().enumerate() {
            for alpha in [false, true] {
                let (width, height) = (37, 23);
                let sample = |i: usize| match number {
                    0 | 1 => (i % (width * channels) + i / width) as u8,
                    2 | 3 => ((i * i * 2_654_435_761) >> 13) as u8,
                    few => ((i / channels / 5) % [2, 4, 200][few - 4]) as u8,
                };
                let colour = (0..width * height * channels).map(sample).collect();
                let mut image = Image::new("x", width, height, colour).unwrap();
                image.alpha = alpha.then(|| vec![255; width * height]);
                out.push(image);
            }
        }
        out
    }

    #[test]
    fn every_way_gives_the_samples_back() {
        for image in pictures() {
            for effort in [Effort::Quick, Effort::Most] {
                let back = decoded(&encode(&image, effort));
                let channels = image.channels() + image.alpha.is_some() as usize;
                assert_eq!(back.color().channel_count() as usize, channels);
                assert_eq!(back.as_bytes(), plain(&image).rows);
            }
            // Each filter by itself, on the form with a palette too.
            for form in [Some(plain(&image)), with_palette(&image)]
                .into_iter()
                .flatten()
            {
                for filter in (0..5).map(Filter::Fixed).chain([Filter::Smallest]) {
                    let rows = filtered(&form, filter);
                    assert_eq!(rows.len(), form.rows.len() + image.height);
                }
            }
        }
    }

    #[test]
    fn a_file_is_no_larger_than_the_image_crate_makes_it() {
        use image::codecs::png::{CompressionType, FilterType, PngEncoder};
        for image in pictures() {
            let ours = encode(&image, Effort::Most).len();
            for filter in [
                FilterType::Adaptive,
                FilterType::NoFilter,
                FilterType::Paeth,
            ] {
                let mut theirs = Vec::new();
                let best = CompressionType::Best;
                let encoder = PngEncoder::new_with_quality(&mut theirs, best, filter);
                let kind = decoded(&encode(&image, Effort::Quick)).color();
                let (width, height) = (image.width as u32, image.height as u32);
                let rows = plain(&image).rows;
                image::ImageEncoder::write_image(encoder, &rows, width, height, kind.into())
                    .unwrap();
                assert!(ours <= theirs.len(), "{ours} bytes beside {}", theirs.len());
            }
        }
    }
}
