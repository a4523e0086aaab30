//! The figure of Appendix B: maps of codes drawn as images, coloured by the norm of each code's mean.

use super::models::five_layers;
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::with_rows_named;
use rrvq::dataset::Split;
use rrvq::picture::{Picture, grid};
use rrvq::{CodeMap, Codes as CodesOf, Result};

/// Maps of codes.
pub struct Codes;

/// Images that are drawn, and that the agreement is measured on.
const SHOWN: usize = 8;
const MEASURED: usize = 128;

/// The norm of each code's mean.
fn norms(trial: &Trial, layer: usize) -> Result<Vec<f64>> {
    let (means, each) = trial.code_means(layer)?;
    let norm = |mean: &[f32]| mean.iter().map(|&v| (v as f64).powi(2)).sum::<f64>().sqrt();
    Ok(means.chunks_exact(each).map(norm).collect())
}

/// From dark blue over green to yellow, evenly in lightness.
fn colour(share: f64) -> [u8; 3] {
    const STOPS: [[f64; 3]; 5] = [
        [56.0, 16.0, 84.0],
        [52.0, 84.0, 138.0],
        [34.0, 146.0, 136.0],
        [122.0, 200.0, 82.0],
        [250.0, 230.0, 60.0],
    ];
    let place = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let (low, part) = ((place as usize).min(STOPS.len() - 2), place.fract());
    let part = if place as usize == STOPS.len() - 1 {
        1.0
    } else {
        part
    };
    std::array::from_fn(|c| (STOPS[low][c] * (1.0 - part) + STOPS[low + 1][c] * part) as u8)
}

/// A map of codes as large as the images, coloured by values between the least and the largest of those in use.
fn drawn(map: &CodeMap, image: usize, values: &[f64], size: usize) -> Result<Picture> {
    let used = || map.values.iter().map(|&code| values[code as usize]);
    let (low, high) = used().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    let codes = map.of_images(image, 1);
    let pixel = |i: usize| {
        let (y, x) = (i / size * map.side / size, i % size * map.side / size);
        let value = values[codes[y * map.side + x] as usize];
        colour((value - low) / (high - low).max(1e-12))
    };
    Picture::new([size, size, 3], (0..size * size).flat_map(pixel).collect())
}

/// Lightness of an image on a map of `side`, and its contrast: how far pixels of a cell lie from their mean.
fn looks(picture: &Picture, side: usize) -> [Vec<f64>; 2] {
    let [height, width, channels] = picture.shape();
    let mut sums = vec![[0.0; 3]; side * side];
    for (i, pixel) in picture.pixels().chunks_exact(channels).enumerate() {
        let (y, x) = (i / width * side / height, i % width * side / width);
        let light = pixel.iter().map(|&v| v as f64).sum::<f64>() / channels as f64;
        let cell = &mut sums[y * side + x];
        (cell[0], cell[1], cell[2]) = (cell[0] + 1.0, cell[1] + light, cell[2] + light * light);
    }
    let mean = |[count, sum, _]: &[f64; 3]| sum / count;
    let deviation = |cell: &[f64; 3]| (cell[2] / cell[0] - mean(cell).powi(2)).max(0.0).sqrt();
    [
        sums.iter().map(mean).collect(),
        sums.iter().map(deviation).collect(),
    ]
}

/// The correlation of two maps, without its sign; none where one does not vary.
fn agreement(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len() as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        both += (a - mean_a) * (b - mean_b);
        of_a += (a - mean_a).powi(2);
        of_b += (b - mean_b).powi(2);
    }
    let scale = (of_a * of_b).sqrt();
    (scale > 1e-9).then(|| (both / scale).abs())
}

/// Mean agreement of norms with what an image looks like, and with what the next one does.
#[derive(Clone, Copy, Default)]
struct Agreement {
    own: f64,
    other: f64,
}

/// The agreement with lightness, and with contrast.
fn agreements(map: &CodeMap, norms: &[f64], images: &[Picture]) -> [Agreement; 2] {
    let looks: Vec<[Vec<f64>; 2]> = images.iter().map(|p| looks(p, map.side)).collect();
    let mean = |which: usize, shift: usize| {
        let each = (0..images.len()).filter_map(|i| {
            let codes = map.of_images(i, 1).iter();
            let of_codes: Vec<f64> = codes.map(|&code| norms[code as usize]).collect();
            agreement(&of_codes, &looks[(i + shift) % images.len()][which])
        });
        let all: Vec<f64> = each.collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    [0, 1].map(|which| Agreement {
        own: mean(which, 0),
        other: mean(which, 1),
    })
}

impl Study for Codes {
    fn name(&self) -> &'static str {
        "codes"
    }

    fn about(&self) -> &'static str {
        "maps of codes of every layer, coloured by the norm of the code's mean, beside the picture (App. B)"
    }

    fn paper(&self) -> &'static str {
        "two faces of CelebA beside their z_1, coloured by the norm of the code's mean: \"somewhat like a compressed version of the input\", \"a weak effect\"."
    }

    fn data(&self) -> &'static [&'static str] {
        &["cifar10", "svhn", "celeba"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick => 0.3,
            Scale::Full => 10.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let given = context.available(self.data());
        given
            .iter()
            .map(|data| five_layers(context, data))
            .collect()
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = 1;
        let mut rows = Vec::new();
        for data in context.available(self.data()) {
            let wanted = five_layers(context, data)?;
            let trial = &context.train(vec![wanted])?[0];
            let images = trial.images(Split::Test, MEASURED)?;
            let codes: CodesOf = trial.trained.encode(&images)?;
            let size = trial.trained.config().model.size;
            let shown = SHOWN.min(images.len());
            let mut sheet: Vec<Picture> = images[..shown].to_vec();
            let mut lowest = [Agreement::default(); 2];
            for map in &codes.layers {
                let norms = norms(trial, map.layer)?;
                for image in 0..shown {
                    sheet.push(drawn(map, image, &norms, size)?);
                }
                if map.side > 1 {
                    let found = agreements(map, &norms, &images);
                    if map.layer == 0 {
                        lowest = found;
                    }
                    let mut row = vec![data.to_string(), format!("{}", map.layer + 1)];
                    row.extend(
                        found
                            .iter()
                            .flat_map(|of| [format!("{:.3}", of.own), format!("{:.3}", of.other)]),
                    );
                    rows.push(row);
                }
            }
            let caption = format!(
                "{data}: test images, and below each its codes from layer 1 to the top; dark blue is the least norm in use in a layer, yellow the largest"
            );
            let layers = codes
                .layers
                .iter()
                .map(|map| format!("layer {}", map.layer + 1));
            let names: Vec<String> = std::iter::once("image".into()).chain(layers).collect();
            let sheet = with_rows_named(&grid(&sheet, shown, 2, 2)?, &names)?;
            section.picture(data, &sheet, &caption)?;
            let [light, contrast] = lowest;
            // Whichever of the two says more.
            let verdicts = lowest.map(|of| Verdict::below(of.other, of.own, 0.05));
            section.claim(
                &format!("On {data}, z_1 drawn as an image looks somewhat like the picture."),
                "shown for two images",
                format!(
                    "correlation of norm and lightness {:.2}, with another image's {:.2}; of norm and contrast {:.2}, {:.2}",
                    light.own, light.other, contrast.own, contrast.other
                ),
                match verdicts.contains(&Verdict::Holds) {
                    true => Verdict::Holds,
                    false => verdicts[0],
                },
            );
        }
        section.paragraph(&format!("The correlation, without its sign, of the norms of an image's codes with its lightness on the same map, and with its contrast (the deviation of pixels under a position), which outlines have; means over {MEASURED} test images. Beside them those with another image, which is what chance gives."));
        section.table(
            "numbers",
            &[
                "data",
                "layer",
                "lightness",
                "another image's",
                "contrast",
                "another image's contrast",
            ],
            &rows,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_correlation_without_its_sign() {
        assert_eq!(agreement(&[1.0, 1.0], &[1.0, 2.0]), None);
        let found = agreement(&[1.0, 2.0, 3.0], &[6.0, 4.0, 2.0]).unwrap();
        assert!((found - 1.0).abs() < 1e-12);
        assert!(agreement(&[1.0, -1.0, 1.0, -1.0], &[1.0, 1.0, -1.0, -1.0]).unwrap() < 1e-12);
    }

    #[test]
    fn a_map_is_drawn_as_large_as_the_image() {
        let map = CodeMap {
            layer: 0,
            side: 2,
            codes: 3,
            values: vec![0, 1, 1, 2],
        };
        let picture = drawn(&map, 0, &[0.0, 1.0, 2.0], 4).unwrap();
        let pixel = |x: usize, y: usize| &picture.pixels()[3 * (y * 4 + x)..][..3];
        assert_eq!(pixel(0, 0), pixel(1, 1));
        assert_eq!(pixel(3, 0), pixel(0, 3));
        assert_eq!(
            (pixel(0, 0), pixel(3, 3)),
            (&colour(0.0)[..], &colour(1.0)[..])
        );
        let grey = Picture::new([4, 4, 1], (0..16).map(|i| (i / 8) * 100).collect()).unwrap();
        let [light, contrast] = looks(&grey, 2);
        assert_eq!(light, [0.0, 0.0, 100.0, 100.0]);
        assert_eq!(contrast, [0.0; 4]);
        let stripes = (0..16).map(|i| (i % 2) * 100).collect();
        let stripes = Picture::new([4, 4, 1], stripes).unwrap();
        assert_eq!(looks(&stripes, 2), [vec![50.0; 4], vec![50.0; 4]]);
    }
}
