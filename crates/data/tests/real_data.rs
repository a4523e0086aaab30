//! The real files, where there are some: counts, and what the images look like on average.
//!
//! The data sets are not ours to hand on. `RRVQ_CIFAR10`, `RRVQ_SVHN` and `RRVQ_CELEBA` name folders of them; a test
//! whose folder is not named says so and has checked nothing.

use rrvq::config::Config;
use rrvq::dataset::{Dataset, Split};
use rrvq_data::open_for;
use std::path::{Path, PathBuf};

fn folder(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        println!("skipped: {variable} names no folder");
    }
    found
}

fn open(name: &str, folder: &Path, size: usize) -> Box<dyn Dataset> {
    let mut config = Config::default();
    config.data.name = name.into();
    config.data.dir = Some(folder.into());
    config.model.size = size;
    config.model.image_channels = 3;
    open_for(&config).unwrap()
}

/// Mean of each channel over some thousand images of a split.
fn means(data: &dyn Dataset, split: Split) -> [f64; 3] {
    let mut image = vec![0; data.shape().iter().product()];
    let (mut sum, mut count) = ([0.0; 3], 0.0);
    let len = data.len(split);
    for index in (0..len).step_by((len / 4000).max(1)) {
        data.read(split, index, &mut image);
        for pixel in image.chunks_exact(3) {
            (0..3).for_each(|c| sum[c] += pixel[c] as f64);
            count += 1.0;
        }
    }
    sum.map(|s| s / count)
}

#[track_caller]
fn near(have: [f64; 3], want: [f64; 3], by: f64) {
    let apart = (0..3).map(|c| (have[c] - want[c]).abs());
    assert!(apart.fold(0.0, f64::max) < by, "{have:?} for {want:?}");
}

#[test]
fn cifar_10_is_whole() {
    let Some(folder) = folder("RRVQ_CIFAR10") else {
        return;
    };
    let data = open("cifar10", &folder, 32);
    assert_eq!(
        (data.len(Split::Train), data.len(Split::Test)),
        (50_000, 10_000)
    );
    // The published means of its training images: 0.4914, 0.4822, 0.4465 of 255.
    near(
        means(data.as_ref(), Split::Train),
        [125.3, 123.0, 113.9],
        2.0,
    );
}

#[test]
fn svhn_is_whole_or_the_reduced_set() {
    let Some(folder) = folder("RRVQ_SVHN") else {
        return;
    };
    let data = open("svhn", &folder, 32);
    let counts = (data.len(Split::Train), data.len(Split::Test));
    assert!(
        [(73_257, 26_032), (9_000, 1_000)].contains(&counts),
        "{counts:?}"
    );
    // The published means of its training images: 0.4377, 0.4438, 0.4728; the test images are a little brighter.
    near(
        means(data.as_ref(), Split::Train),
        [111.6, 113.2, 120.6],
        8.0,
    );
}

#[test]
fn celeba_is_split_by_the_numbers_of_its_files() {
    let Some(folder) = folder("RRVQ_CELEBA") else {
        return;
    };
    let data = open("celeba", &folder, 64);
    let files = std::fs::read_dir(folder.join("img_align_celeba")).unwrap();
    let numbers: Vec<u32> = files
        .filter_map(|f| {
            f.unwrap()
                .file_name()
                .to_str()?
                .split('.')
                .next()?
                .parse()
                .ok()
        })
        .collect();
    let count =
        |range: std::ops::RangeInclusive<u32>| numbers.iter().filter(|n| range.contains(n)).count();
    assert!(numbers.len() > 1000);
    assert_eq!(data.len(Split::Train), count(1..=162_770));
    assert_eq!(data.len(Split::Test), count(182_638..=202_599));
    // Faces: red above green above blue.
    let [red, green, blue] = means(data.as_ref(), Split::Test);
    assert!(red > green + 10.0 && green > blue, "{red} {green} {blue}");
}
