//! Whether a sample is a patchwork: its neighbouring parts have less in common than those of nearly all test images.
//!
//! Images are cut into squares. Where one square is lighter or redder than the mean of all pictures, its neighbours in a
//! picture mostly are as well; in a patchwork, whose positions were drawn one by one, they are so by chance only. The mean
//! is that of the pictures themselves: samples that are all too light do not agree by that.

use rrvq::picture::Picture;

/// Squares along a side.
const SQUARES: usize = 4;
/// The share of test images that count as patchworks, which sets the limit.
const SHARE: f64 = 0.05;

/// Means of squares, channel by channel.
fn squares(picture: &Picture) -> Vec<f64> {
    let [height, width, channels] = picture.shape();
    let mut sums = vec![0.0; SQUARES * SQUARES * channels];
    for (i, &v) in picture.pixels().iter().enumerate() {
        let (pixel, channel) = (i / channels, i % channels);
        let (y, x) = (
            pixel / width * SQUARES / height,
            pixel % width * SQUARES / width,
        );
        sums[(y * SQUARES + x) * channels + channel] += v as f64;
    }
    let area = (height * width) as f64 / (SQUARES * SQUARES) as f64;
    sums.into_iter().map(|v| v / area).collect()
}

/// How far neighbours agree in each picture: 1 where all squares are alike, about 0 where they have nothing in common.
fn agreements(pictures: &[Picture]) -> Vec<f64> {
    let all: Vec<Vec<f64>> = pictures.iter().map(squares).collect();
    let channels = pictures.first().map_or(1, |p| p.shape()[2]);
    let count = (all.len() * SQUARES * SQUARES).max(1) as f64;
    let mean = |c: usize| {
        let values = all
            .iter()
            .flat_map(|one| one.iter().skip(c).step_by(channels));
        values.sum::<f64>() / count
    };
    let centre: Vec<f64> = (0..channels).map(mean).collect();
    all.iter().map(|one| agreement(one, &centre)).collect()
}

/// That of one picture, by the means of its squares and of all pictures.
fn agreement(squares: &[f64], centre: &[f64]) -> f64 {
    let channels = centre.len();
    let at = |y: usize, x: usize, c: usize| squares[(y * SQUARES + x) * channels + c] - centre[c];
    let (mut product, mut square) = (0.0, 0.0);
    for c in 0..channels {
        for y in 0..SQUARES {
            for x in 0..SQUARES {
                let here = at(y, x, c);
                for (v, u) in [(y + 1, x), (y, x + 1)] {
                    if v < SQUARES && u < SQUARES {
                        let there = at(v, u, c);
                        product += here * there;
                        square += (here * here + there * there) / 2.0;
                    }
                }
            }
        }
    }
    if square > 0.0 { product / square } else { 1.0 }
}

/// What tells patchworks from pictures of a data set.
pub struct Patchworks {
    limit: f64,
}

impl Patchworks {
    /// By test images.
    pub fn of(images: &[Picture]) -> Patchworks {
        let mut agree = agreements(images);
        agree.sort_by(f64::total_cmp);
        let place = (agree.len() as f64 * SHARE) as usize;
        Patchworks {
            limit: agree.get(place).copied().unwrap_or(f64::MIN),
        }
    }

    /// How many pictures are patchworks.
    pub fn count(&self, pictures: &[Picture]) -> usize {
        let agree = agreements(pictures);
        agree.iter().filter(|a| **a < self.limit).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::dataset::swatches::scramble;

    /// Squares of 4 pixels, each of a level that `of` gives for its place.
    fn picture(of: impl Fn(usize) -> u8) -> Picture {
        let pixel = |i: usize| [of(i / 16 / 4 * 4 + i % 16 / 4); 3];
        Picture::new([16, 16, 3], (0..256).flat_map(pixel).collect()).unwrap()
    }

    #[test]
    fn random_squares_are_patchworks_and_whole_images_are_not() {
        let level = |n: u64| (scramble(n) % 256) as u8;
        let whole: Vec<Picture> = (0..100).map(|i| picture(|_| level(i))).collect();
        let slopes: Vec<Picture> = (0..100)
            .map(|i| picture(|place| level(i) / 2 + 8 * place as u8))
            .collect();
        let random: Vec<Picture> = (0..100)
            .map(|i| picture(|place| level(1000 + i * 16 + place as u64)))
            .collect();
        let pictures = [whole, slopes].concat();
        let patchworks = Patchworks::of(&pictures);
        assert!(patchworks.count(&random) > 90);
        // Patchworks that are all too dark are patchworks still.
        let dark: Vec<Picture> = (0..100)
            .map(|i| picture(|place| level(5000 + i * 16 + place as u64) / 16))
            .collect();
        assert!(patchworks.count(&dark) > 90);
        assert!(patchworks.count(&pictures) <= 10);
    }
}
