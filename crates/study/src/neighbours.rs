//! The nearest training images of samples, so that a reader sees that they are not copies.
//!
//! Nearest by the squared difference of pixels. Distances of test images to their own nearest training images tell what is
//! usual for images that the model has not seen. A model that was trained with flips has seen every image mirrored too, and
//! could copy it so: its samples are compared with both.

use rayon::prelude::*;
use rrvq::dataset::{Dataset, Split};
use rrvq::picture::Picture;
use rrvq::{Config, Error, Result};

/// A training image and how far it is: the root of the mean squared difference, in levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Its number among the training images.
    pub index: usize,
    /// How far it is.
    pub distance: f64,
    /// Whether its mirror image is the nearer one, and so the one that is meant.
    pub mirrored: bool,
    /// What it looks like, mirrored where it is.
    pub picture: Picture,
}

/// Training images read at a time.
const CHUNK: usize = 512;

/// Whether training as `config` says shows images of `data` mirrored.
pub fn flips(config: &Config, data: &dyn Dataset) -> bool {
    config.data.flip && data.may_flip()
}

/// The same picture mirrored left to right.
fn mirror(picture: &Picture) -> Result<Picture> {
    let [_, width, channels] = picture.shape();
    let rows = picture.pixels().chunks_exact(width * channels);
    let pixels = rows.flat_map(|row| row.chunks_exact(channels).rev().flatten().copied());
    Picture::new(picture.shape(), pixels.collect())
}

/// The `count` nearest training images of each picture, nearest first, with `flips` each in the orientation that is nearer;
/// `watch` hears how many training images were seen.
pub fn nearest(
    pictures: &[Picture],
    data: &dyn Dataset,
    count: usize,
    flips: bool,
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
    // A mirrored picture is as far from an image as the picture from the mirrored image.
    let mirrored: Vec<Option<Picture>> = pictures
        .iter()
        .map(|picture| flips.then(|| mirror(picture)).transpose())
        .collect::<Result<_>>()?;
    let mut best: Vec<Vec<(u64, usize, bool)>> = vec![Vec::new(); pictures.len()];
    let mut bytes = vec![0; CHUNK * each];
    for first in (0..total).step_by(CHUNK) {
        let here = CHUNK.min(total - first);
        for (i, out) in bytes.chunks_exact_mut(each).take(here).enumerate() {
            data.read(Split::Train, first + i, out);
        }
        best.par_iter_mut()
            .zip(pictures.par_iter().zip(&mirrored))
            .for_each(|(best, (picture, mirrored))| {
                for (i, image) in bytes.chunks_exact(each).take(here).enumerate() {
                    let plain = (squares(picture, image), first + i, false);
                    let other = mirrored
                        .as_ref()
                        .map(|mirrored| (squares(mirrored, image), first + i, true));
                    best.push(other.map_or(plain, |other| plain.min(other)));
                }
                best.sort_unstable();
                best.truncate(count);
            });
        watch(first + here);
    }
    let found = |(square, index, mirrored): &(u64, usize, bool)| {
        let mut pixels = vec![0; each];
        data.read(Split::Train, *index, &mut pixels);
        let picture = Picture::new(shape, pixels)?;
        Ok(Neighbour {
            index: *index,
            distance: (*square as f64 / each as f64).sqrt(),
            mirrored: *mirrored,
            picture: if *mirrored {
                mirror(&picture)?
            } else {
                picture
            },
        })
    };
    best.iter()
        .map(|best| best.iter().map(found).collect())
        .collect()
}

/// The summed squared difference of a picture and an image of its size.
fn squares(picture: &Picture, image: &[u8]) -> u64 {
    let square = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b)).pow(2);
    picture.pixels().iter().zip(image).map(square).sum()
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
        let found = nearest(std::slice::from_ref(&picture), &data, 7, false, |_| {}).unwrap();
        let levels: Vec<u8> = found[0].iter().map(|n| n.picture.pixels()[0]).collect();
        let same = (0..1100).filter(|i| level(*i) == 101).count();
        assert!(same < 7 && levels[..same].iter().all(|l| *l == 101));
        assert!(found[0].is_sorted_by(|a, b| a.distance <= b.distance));
        assert_eq!((found[0][0].distance, found[0][same].distance), (0.0, 1.0));
        let large = Picture::new([4, 4, 1], vec![0; 16]).unwrap();
        let said = nearest(&[large], &data, 1, false, |_| {})
            .unwrap_err()
            .to_string();
        assert!(said.contains("4×4×1") && said.contains("2×2×1"), "{said}");
    }

    #[test]
    fn a_mirrored_copy_is_found_where_training_flips() {
        let image = |seed: u8| (0..12u8).map(move |i| i.wrapping_mul(83).wrapping_mul(seed) % 251);
        let data = Images {
            name: "few".into(),
            shape: [2, 2, 3],
            train: (1..6).flat_map(image).collect(),
            test: vec![0; 12],
            flip: true,
        };
        let original = Picture::new([2, 2, 3], image(3).collect()).unwrap();
        let copy = mirror(&original).unwrap();
        assert_eq!(copy.pixels()[..3], original.pixels()[3..6]);
        assert_eq!(mirror(&copy).unwrap(), original);
        let first = |picture: &Picture, flips: bool| {
            let found = nearest(std::slice::from_ref(picture), &data, 2, flips, |_| {});
            found.unwrap()[0][0].clone()
        };
        let found = first(&copy, true);
        assert_eq!(
            (found.index, found.distance, found.mirrored),
            (2, 0.0, true)
        );
        assert_eq!(found.picture, copy, "shown as it was compared");
        let unturned = first(&original, true);
        let as_it_is = (unturned.index, unturned.distance, unturned.mirrored);
        assert_eq!(as_it_is, (2, 0.0, false));
        assert!(first(&copy, false).distance > 0.0);
        let mut config = Config::default();
        assert!(flips(&config, &data));
        config.data.flip = false;
        assert!(!flips(&config, &data));
    }
}
