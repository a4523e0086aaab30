//! The nearest training images of samples, so that a reader sees that they are not copies.
//!
//! Nearest by the squared difference of pixels. Distances of test images to their own nearest training images tell what is
//! usual for images that the model has not seen.

use rayon::prelude::*;
use rrvq::dataset::{Dataset, Split};
use rrvq::picture::Picture;
use rrvq::{Error, Result};

/// A training image and how far it is: the root of the mean squared difference, in levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Its number among the training images.
    pub index: usize,
    /// How far it is.
    pub distance: f64,
    /// What it looks like.
    pub picture: Picture,
}

/// Training images read at a time.
const CHUNK: usize = 512;

/// The `count` nearest training images of each picture, nearest first; `watch` hears how many training images were seen.
pub fn nearest(
    pictures: &[Picture],
    data: &dyn Dataset,
    count: usize,
    mut watch: impl FnMut(usize),
) -> Result<Vec<Vec<Neighbour>>> {
    let shape = data.shape();
    if let Some(odd) = pictures.iter().find(|p| p.shape() != shape) {
        let [h, w, c] = odd.shape();
        return Err(Error::new(format!(
            "a picture is {h}×{w}×{c}, but the images of {} are {}×{}×{}; only pictures of one size can be compared",
            data.name(),
            shape[0],
            shape[1],
            shape[2]
        )));
    }
    let each: usize = shape.iter().product();
    let total = data.len(Split::Train);
    let mut best: Vec<Vec<(u64, usize)>> = vec![Vec::new(); pictures.len()];
    let mut bytes = vec![0; CHUNK * each];
    for first in (0..total).step_by(CHUNK) {
        let here = CHUNK.min(total - first);
        for (i, out) in bytes.chunks_exact_mut(each).take(here).enumerate() {
            data.read(Split::Train, first + i, out);
        }
        best.par_iter_mut()
            .zip(pictures)
            .for_each(|(best, picture)| {
                for (i, image) in bytes.chunks_exact(each).take(here).enumerate() {
                    let square = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b)).pow(2);
                    best.push((
                        picture.pixels().iter().zip(image).map(square).sum(),
                        first + i,
                    ));
                }
                best.sort_unstable();
                best.truncate(count);
            });
        watch(first + here);
    }
    let found = |(square, index): &(u64, usize)| {
        let mut pixels = vec![0; each];
        data.read(Split::Train, *index, &mut pixels);
        Ok(Neighbour {
            index: *index,
            distance: (*square as f64 / each as f64).sqrt(),
            picture: Picture::new(shape, pixels)?,
        })
    };
    best.iter()
        .map(|best| best.iter().map(found).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::dataset::Images;

    #[test]
    fn the_nearest_come_first_wherever_they_are() {
        // 1,100 flat images, in a scrambled order of levels, so that several chunks are read.
        let level = |i: usize| (i * 37 % 256) as u8;
        let data = Images {
            name: "flat".into(),
            shape: [2, 2, 1],
            train: (0..1100).flat_map(|i| [level(i); 4]).collect(),
            test: vec![0; 4],
            flip: false,
        };
        let picture = Picture::new([2, 2, 1], vec![101; 4]).unwrap();
        let found = nearest(std::slice::from_ref(&picture), &data, 7, |_| {}).unwrap();
        let levels: Vec<u8> = found[0].iter().map(|n| n.picture.pixels()[0]).collect();
        let same = (0..1100).filter(|i| level(*i) == 101).count();
        assert!(same < 7 && levels[..same].iter().all(|l| *l == 101));
        assert!(found[0].is_sorted_by(|a, b| a.distance <= b.distance));
        assert_eq!((found[0][0].distance, found[0][same].distance), (0.0, 1.0));
        let large = Picture::new([4, 4, 1], vec![0; 16]).unwrap();
        let said = nearest(&[large], &data, 1, |_| {}).unwrap_err().to_string();
        assert!(said.contains("4×4×1") && said.contains("2×2×1"), "{said}");
    }
}
