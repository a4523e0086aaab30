//! How close a picture is to its original: the squared error and PSNR, and MS-SSIM.
//!
//! MS-SSIM compares local means, contrasts and structure through a Gaussian window, at the picture's own size and at halves
//! of it, up to five times. A small picture has no room for five: a scale counts only where the window fits, so 32×32
//! has two. The weights of the scales that are left are made to sum to one; numbers over different numbers of scales do not
//! compare, which is why the number is told with the value.

pub use rrvq::evaluate::psnr;

/// Taps of the window, and the width of its Gaussian.
const WINDOW: usize = 11;
const SIGMA: f64 = 1.5;
/// Weights of the scales, from the picture's own size down.
const WEIGHTS: [f64; 5] = [0.0448, 0.2856, 0.3001, 0.2363, 0.1333];
/// Keep quotients tame where a picture is black or flat: (0.01 · 255)² and (0.03 · 255)².
const C1: f64 = 6.5025;
const C2: f64 = 58.5225;

/// The mean squared error of two lists of samples of one length.
pub fn squared_error(a: &[u8], b: &[u8]) -> f64 {
    let square = |(a, b): (&u8, &u8)| (*a as f64 - *b as f64).powi(2);
    a.iter().zip(b).map(square).sum::<f64>() / a.len().max(1) as f64
}

/// At how many sizes pictures of this size are compared.
pub fn scales(width: usize, height: usize) -> usize {
    let side = width.min(height);
    let fits = |scale: &usize| side >> scale >= WINDOW;
    (1..WEIGHTS.len()).take_while(fits).count() + 1
}

/// MS-SSIM of two pictures, each channel by itself, the mean over channels. A picture smaller than the window is compared
/// through a smaller one.
pub fn ms_ssim(a: &[u8], b: &[u8], width: usize, height: usize) -> f64 {
    let channels = a.len() / (width * height);
    let plane = |samples: &[u8], channel: usize| Plane {
        width,
        height,
        values: samples[channel..]
            .iter()
            .step_by(channels)
            .map(|v| *v as f64)
            .collect(),
    };
    let one = |channel| of_planes(plane(a, channel), plane(b, channel));
    (0..channels).map(one).sum::<f64>() / channels as f64
}

struct Plane {
    width: usize,
    height: usize,
    values: Vec<f64>,
}

fn of_planes(mut a: Plane, mut b: Plane) -> f64 {
    let scales = scales(a.width, a.height);
    let total: f64 = WEIGHTS[..scales].iter().sum();
    let mut product = 1.0;
    for (scale, weight) in WEIGHTS[..scales].iter().enumerate() {
        let (contrast, whole) = compare(&a, &b);
        // Pictures that are each other's negative have less than nothing in common: nothing is the least there is.
        let kept = if scale + 1 == scales { whole } else { contrast };
        product *= kept.max(0.0).powf(weight / total);
        (a, b) = (a.halved(), b.halved());
    }
    product
}

/// The means of contrast and structure, and of those times luminance.
fn compare(a: &Plane, b: &Plane) -> (f64, f64) {
    let taps = gaussian(WINDOW.min(a.width).min(a.height));
    let (mean_a, mean_b) = (a.blurred(&taps), b.blurred(&taps));
    let squares_a = a.times(a).blurred(&taps);
    let squares_b = b.times(b).blurred(&taps);
    let products = a.times(b).blurred(&taps);
    let (mut contrast, mut whole) = (0.0, 0.0);
    for i in 0..mean_a.len() {
        let (ma, mb) = (mean_a[i], mean_b[i]);
        let spread = squares_a[i] - ma * ma + squares_b[i] - mb * mb;
        let alike = (2.0 * (products[i] - ma * mb) + C2) / (spread + C2);
        contrast += alike;
        whole += alike * (2.0 * ma * mb + C1) / (ma * ma + mb * mb + C1);
    }
    let count = mean_a.len() as f64;
    (contrast / count, whole / count)
}

fn gaussian(taps: usize) -> Vec<f64> {
    let middle = (taps as f64 - 1.0) / 2.0;
    let height = |i: usize| (-(i as f64 - middle).powi(2) / (2.0 * SIGMA * SIGMA)).exp();
    let sum: f64 = (0..taps).map(height).sum();
    (0..taps).map(|i| height(i) / sum).collect()
}

impl Plane {
    fn times(&self, other: &Plane) -> Plane {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| a * b);
        Plane {
            values: values.collect(),
            ..*self
        }
    }

    /// Seen through the window, wherever it lies wholly inside.
    fn blurred(&self, taps: &[f64]) -> Vec<f64> {
        let (width, height) = (self.width + 1 - taps.len(), self.height + 1 - taps.len());
        let mut along = vec![0.0; width * self.height];
        for (out, row) in along
            .chunks_exact_mut(width)
            .zip(self.values.chunks_exact(self.width))
        {
            for (i, tap) in taps.iter().enumerate() {
                out.iter_mut()
                    .zip(&row[i..])
                    .for_each(|(out, v)| *out += tap * v);
            }
        }
        let mut out = vec![0.0; width * height];
        for (y, out) in out.chunks_exact_mut(width).enumerate() {
            for (i, tap) in taps.iter().enumerate() {
                let row = &along[(y + i) * width..][..width];
                out.iter_mut().zip(row).for_each(|(out, v)| *out += tap * v);
            }
        }
        out
    }

    /// Half as large: the means of squares of four. A last odd row or column is left out.
    fn halved(&self) -> Plane {
        let (width, height) = (self.width / 2, self.height / 2);
        let mean = |i: usize| {
            let (x, y) = (i % width * 2, i / width * 2);
            let at = |dx, dy| self.values[(y + dy) * self.width + x + dx];
            (at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1)) / 4.0
        };
        Plane {
            width,
            height,
            values: (0..width * height).map(mean).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pair of pictures of `tools/quality.py`.
    fn pair(width: usize, height: usize) -> (Vec<u8>, Vec<u8>) {
        let mut seed = 7u32;
        let mut next = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 24
        };
        let count = width * height * 3;
        let value = |i: usize| (i / 3 % width * 5 + i / 3 / width * 3 + i % 3 * 40) as u32;
        let first: Vec<u8> = (0..count)
            .map(|i| ((value(i) + next() / 4) % 256) as u8)
            .collect();
        let moved = |v: &u8| (*v as i32 + (next() / 8) as i32 - 16).clamp(0, 255) as u8;
        let second = first.iter().map(moved).collect();
        (first, second)
    }

    #[test]
    fn psnr_has_its_known_values() {
        assert_eq!(squared_error(&[0, 10, 255], &[0, 10, 255]), 0.0);
        assert_eq!(psnr(0.0), f64::INFINITY);
        assert_eq!(psnr(255.0 * 255.0), 0.0);
        // Every sample off by one.
        assert!((psnr(squared_error(&[1, 2, 3], &[2, 3, 2])) - 48.130_803_608_679_1).abs() < 1e-9);
        assert_eq!(squared_error(&[0, 0], &[3, 4]), 12.5);
    }

    #[test]
    fn scales_are_those_that_fit() {
        let sizes = [
            (4, 1),
            (11, 1),
            (21, 1),
            (22, 2),
            (32, 2),
            (64, 3),
            (175, 4),
            (176, 5),
            (9999, 5),
        ];
        for (side, count) in sizes {
            assert_eq!(scales(side, 9999), count, "{side}");
            assert_eq!(scales(9999, side), count, "{side}");
        }
    }

    #[test]
    fn a_picture_is_like_itself_and_unlike_its_negative() {
        for (width, height) in [(3, 5), (32, 32), (180, 190)] {
            let (a, b) = pair(width, height);
            assert!((ms_ssim(&a, &a, width, height) - 1.0).abs() < 1e-12);
            let close = ms_ssim(&a, &b, width, height);
            let back = ms_ssim(&b, &a, width, height);
            assert!(close < 1.0 && (close - back).abs() < 1e-9, "{close} {back}");
            let negative: Vec<u8> = a.iter().map(|v| 255 - v).collect();
            assert!(ms_ssim(&a, &negative, width, height) < 0.5 * close);
        }
    }

    /// Values that `python tools/quality.py` prints, which shares no code with this.
    #[test]
    fn numpy_says_the_same() {
        let told = [
            (7, 9, 28.7589161658, 1, 0.901541977332),
            (32, 32, 28.9507836768, 2, 0.977130032283),
            (50, 47, 28.9274458908, 3, 0.989325571476),
            (180, 190, 28.9649790541, 5, 0.991563196905),
        ];
        for (width, height, decibels, count, value) in told {
            let (a, b) = pair(width, height);
            assert!((psnr(squared_error(&a, &b)) - decibels).abs() < 1e-9);
            assert_eq!(scales(width, height), count);
            let ours = ms_ssim(&a, &b, width, height);
            assert!(
                (ours - value).abs() < 1e-9,
                "{width}×{height}: {ours}, expected {value}"
            );
        }
    }
}
