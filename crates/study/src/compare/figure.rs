//! The paper's comparison by eye: images, what this codec keeps of them, and what JPEG keeps in as many bytes.
//!
//! A JPEG of as few bytes is often all header, and smaller ones than its smallest do not exist: the nearest larger one is
//! shown then. So that the eye judges the coding and not the header, a last row leaves headers out of both sizes.

use super::header::header_bytes;
use super::rivals::{Inside, Rival, colours};
use super::{Contest, ours, without_alpha};
use rrvq::error::{Error, Result};
use rrvq::picture::{Picture, comfortable_scale, grid};
use rrvq_codec::Image;

/// Images in a row, and the longest side that is shown of each.
pub const COLUMNS: usize = 8;
const LONGEST: usize = 256;

/// A row of pictures of the same images.
pub struct Shown {
    pub what: String,
    /// Colours of each image.
    pub colours: Vec<Vec<u8>>,
    /// Bytes of all files, and of the coded data in them; none for originals.
    pub bytes: Option<(usize, usize)>,
}

/// One of our files: its bytes, those of coded data among them, and what it shows.
pub struct Ours {
    pub bytes: usize,
    pub coded: usize,
    pub colours: Vec<u8>,
}

/// The figure of the first images: its rows, and the picture they make.
pub fn draw(contest: &mut Contest) -> Result<(Vec<Shown>, Picture)> {
    let count = contest.images.len().min(COLUMNS);
    let images: Vec<Image> = contest.images[..count].iter().map(without_alpha).collect();
    let files = ours::shown(contest, &images)?;
    let rows = rows(&images, &files, "rrvq, all layers, a file an image")?;
    let picture = picture(&images, &rows)?;
    Ok((rows, picture))
}

/// The rows of the figure for `images`, of which `ours` are the files.
pub fn rows(images: &[Image], ours: &[Ours], what: &str) -> Result<Vec<Shown>> {
    let sum = |of: fn(&Ours) -> usize| ours.iter().map(of).sum::<usize>();
    let mut rows = vec![
        Shown {
            what: "originals".into(),
            colours: images.iter().map(|image| image.colour.clone()).collect(),
            bytes: None,
        },
        Shown {
            what: what.into(),
            colours: ours.iter().map(|ours| ours.colours.clone()).collect(),
            bytes: Some((sum(|o| o.bytes), sum(|o| o.coded))),
        },
    ];
    for bare in [false, true] {
        rows.push(row_of(&Inside::Jpeg, images, ours, bare)?);
    }
    Ok(rows)
}

/// A rival's files of the size of ours, or the nearest larger; headers left out of both, if `bare`.
pub fn row_of(rival: &dyn Rival, images: &[Image], ours: &[Ours], bare: bool) -> Result<Shown> {
    let what = match bare {
        false => "of the same size, or the nearest larger",
        true => "of the same size, headers left out of both",
    };
    let (mut shown, mut bytes, mut coded) = (Vec::new(), 0, 0);
    for (image, ours) in images.iter().zip(ours) {
        let wanted = if bare { ours.coded } else { ours.bytes };
        let (file, header) = sized(rival, image, wanted, bare)?;
        shown.push(colours(rival.decode(&file)?, image)?);
        bytes += file.len();
        coded += file.len() - header;
    }
    Ok(Shown {
        what: format!("{} {what}", rival.name()),
        colours: shown,
        bytes: Some((bytes, coded)),
    })
}

/// A rival's smallest file that has at least `wanted` bytes, and its header; of no header, if `bare`. The best where all
/// are smaller.
fn sized(rival: &dyn Rival, image: &Image, wanted: usize, bare: bool) -> Result<(Vec<u8>, usize)> {
    // Settings from the smallest file to the largest.
    let at = |step: usize| -> Result<(Vec<u8>, usize)> {
        let setting = match rival.knob() {
            "quantizer" => 63 - step,
            _ => step,
        };
        let file = rival.encode(image, setting as f64)?;
        let header = header_bytes(&file).ok_or_else(|| {
            let name = rival.name();
            Error::new(format!("a file of {name} does not keep its header apart"))
        })?;
        Ok((file, header))
    };
    // Sizes grow with quality, so the lowest that is large enough is found by halving.
    let (mut low, mut high) = match rival.knob() {
        "quantizer" => (0, 63),
        _ => (1, 100),
    };
    while low < high {
        let middle = (low + high) / 2;
        let (file, header) = at(middle)?;
        let size = if bare {
            file.len() - header
        } else {
            file.len()
        };
        match size < wanted {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    at(low)
}

/// The rows as one picture, each pixel large enough to be seen. Of images of several sizes the middle is shown.
pub fn picture(images: &[Image], rows: &[Shown]) -> Result<Picture> {
    let least = |of: fn(&Image) -> usize| images.iter().map(of).min().unwrap_or(1).min(LONGEST);
    let (width, height) = (least(|i| i.width), least(|i| i.height));
    // Grey among coloured ones is drawn in three channels.
    let channels = images.iter().map(Image::channels).max().unwrap_or(1);
    let mut cells = Vec::new();
    for row in rows {
        for (image, colour) in images.iter().zip(&row.colours) {
            let has = image.channels();
            let (left, above) = ((image.width - width) / 2, (image.height - height) / 2);
            let mut pixels = Vec::with_capacity(width * height * channels);
            for y in above..above + height {
                for x in left..left + width {
                    let at = (y * image.width + x) * has;
                    pixels.extend((0..channels).map(|c| colour[at + c % has]));
                }
            }
            cells.push(Picture::new([height, width, channels], pixels)?);
        }
    }
    grid(
        &cells,
        images.len(),
        4,
        comfortable_scale(width.max(height)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(width: usize, height: usize, channels: usize) -> Image {
        let value = |i: usize| ((i * i / 7) ^ (i * 3)) as u8;
        Image {
            name: "x".into(),
            width,
            height,
            colour: (0..width * height * channels).map(value).collect(),
            alpha: None,
            profile: Vec::new(),
            orientation: 1,
            metadata: Vec::new(),
        }
    }

    #[test]
    fn the_smallest_jpeg_that_is_not_smaller_is_chosen() {
        let image = image(40, 40, 3);
        let size = |quality: usize| Inside::Jpeg.encode(&image, quality as f64).unwrap();
        let (small, middle, large) = (size(1), size(60), size(100));
        assert_eq!(sized(&Inside::Jpeg, &image, 1, false).unwrap().0, small);
        assert_eq!(
            sized(&Inside::Jpeg, &image, usize::MAX, false).unwrap().0,
            large
        );
        let (found, header) = sized(&Inside::Jpeg, &image, middle.len(), false).unwrap();
        assert!(found.len() >= middle.len() && found.len() < large.len());
        // The same number of bytes buys more without the header.
        let (bare, _) = sized(&Inside::Jpeg, &image, middle.len(), true).unwrap();
        assert!(bare.len() - header >= middle.len());
    }

    #[test]
    fn rows_of_any_size_and_colour_become_one_picture() {
        let images = [image(30, 20, 3), image(16, 40, 1)];
        let ours: Vec<Ours> = images
            .iter()
            .map(|image| Ours {
                bytes: 200,
                coded: 150,
                colours: vec![9; image.colour.len()],
            })
            .collect();
        let rows = rows(&images, &ours, "ours").unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1].bytes, Some((400, 300)));
        let drawn = picture(&images, &rows).unwrap();
        let [height, width, channels] = drawn.shape();
        let scale = comfortable_scale(20);
        assert_eq!(
            [height, width, channels],
            [4 * 20 * scale + 12, 2 * 16 * scale + 4, 3]
        );
    }
}
