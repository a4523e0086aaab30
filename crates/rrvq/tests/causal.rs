//! The causal mixture against its definition in f64: values, slopes, and that it is a distribution whose pixels follow
//! pixels before them only.

use rrvq::config::Config;
use rrvq::likelihood::{self, causal::PLACES};
use rrvq::nn::Builder;
use rrvq_tensor::rng::philox4x32_10;
use rrvq_tensor::{DType, Data, Device, Graph, Program, Store, grad};

const SIDE: usize = 4;
const CHANNELS: usize = 3;
const COMPONENTS: usize = 2;
const START: f64 = -1.75;

/// `model.causal_gain` and `model.neighbours`.
type Case = (f64, usize);

/// Numbers of a pixel.
fn slots((_, neighbours): Case) -> usize {
    10 * COMPONENTS + CHANNELS * (neighbours + 1)
}

fn config((gain, neighbours): Case) -> Config {
    let mut config = Config::default();
    for change in [
        "model.likelihood=mixture-causal".to_string(),
        format!("model.mixtures={COMPONENTS}"),
        format!("model.mixture_log_scale={START}"),
        format!("model.causal_gain={gain}"),
        format!("model.neighbours={neighbours}"),
    ] {
        config.set(&change).unwrap();
    }
    config.validate().unwrap();
    config
}

/// The decoder's output for one image, every pixel its own.
fn raw(seed: u32, case: Case) -> Vec<f32> {
    (0..SIDE * SIDE * slots(case))
        .map(|i| philox4x32_10([i as u32, 0, 0, 0], [seed, 3])[0] as f32 / 2f32.powi(31) - 1.0)
        .collect()
}

fn image(seed: u32) -> Vec<u8> {
    (0..SIDE * SIDE * CHANNELS)
        .map(|i| (philox4x32_10([i as u32, 1, 0, 0], [seed, 3])[0] >> 24) as u8)
        .collect()
}

const CENTRES: [f32; COMPONENTS] = [-0.4, 0.5];

/// log p of each image and the slope of their sum by the decoder's output, from the library.
fn run(case: Case, raw: &[f32], images: &[Vec<u8>]) -> (Vec<f32>, Vec<f32>) {
    let config = config(case);
    let (g, n) = (Graph::new(), images.len());
    let builder = Builder::new(&g, &config.model);
    let kind = likelihood::of(&config.model);
    assert_eq!(kind.channels(&config.model), slots(case));
    let shape = [n, SIDE, SIDE, slots(case)];
    let input = g.input("raw", &[1, SIDE, SIDE, slots(case)], DType::F32);
    let bytes = g.input("bytes", &[n, SIDE, SIDE, CHANNELS], DType::F32);
    let pixels = kind.pixels(&builder, input.broadcast(&shape));
    let log_p = pixels.log_likelihood(bytes);
    let slope = grad(log_p.sum(), &[input])[0];
    let layout = g.layout();
    let outputs = [("log_p", log_p), ("slope", slope)];
    let mut program = Program::new(&Device::Cpu, &g, &layout, &outputs).unwrap();
    let values: Vec<f32> = images.iter().flatten().map(|&v| v as f32).collect();
    let mut theta = vec![0.0; layout.len()];
    theta[..COMPONENTS].copy_from_slice(&CENTRES);
    let mut store = Store::with("theta", theta);
    let inputs = [("raw", Data::F32(raw)), ("bytes", Data::F32(&values))];
    program.run(&mut store, &inputs).unwrap();
    let take = |name| program.output(name).unwrap().to_vec();
    (take("log_p"), take("slope"))
}

/// Mass of a logistic on a bin, the outer bins taking the tails; the difference is taken where both sides are small.
fn mass(byte: u8, mean: f64, scale: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let at = |edge: f64| (edge / 128.0 - 1.0 - mean) / scale;
    let (lower, upper) = (at(byte as f64), at(byte as f64 + 1.0));
    match byte {
        0 => sigmoid(upper),
        255 => sigmoid(-lower),
        _ if lower > 0.0 => sigmoid(-lower) - sigmoid(-upper),
        _ => sigmoid(upper) - sigmoid(lower),
    }
}

/// log p of one image, pixel by pixel, as the module's page defines it; with or without the last pixel's blue.
fn defined(case: Case, raw: &[f64], image: &[u8], whole: bool) -> f64 {
    let (m, (gain, neighbours)) = (COMPONENTS, case);
    let numbers = |pixel: usize| &raw[pixel * slots(case)..][..slots(case)];
    let value = |pixel: usize, c: usize| (image[pixel * CHANNELS + c] as f64 + 0.5) / 128.0 - 1.0;
    let weights = |pixel: usize| {
        let r = numbers(pixel);
        let total: f64 = r[..m].iter().map(|l| l.exp()).sum();
        (0..m).map(|k| r[k].exp() / total).collect::<Vec<f64>>()
    };
    let mean = |pixel: usize, c: usize, k: usize| {
        let r = numbers(pixel);
        let coefficient = |i: usize| r[(7 + i) * m + k].tanh();
        let own = r[(1 + c) * m + k] + CENTRES[k] as f64;
        match c {
            0 => own,
            1 => own + coefficient(0) * value(pixel, 0),
            _ => own + coefficient(1) * value(pixel, 0) + coefficient(2) * value(pixel, 1),
        }
    };
    let scale = |pixel: usize, c: usize, k: usize| {
        let start = (START + 7.0).exp_m1().ln();
        ((numbers(pixel)[(4 + c) * m + k] + start).exp().ln_1p() - 7.0).exp()
    };
    // Error and its size in scales; nothing outside the image.
    let error = |y: isize, x: isize, c: usize| {
        if !(0..SIDE as isize).contains(&y) || !(0..SIDE as isize).contains(&x) {
            return (0.0, 0.0);
        }
        let pixel = y as usize * SIDE + x as usize;
        let w = weights(pixel);
        let expected: f64 = (0..m).map(|k| w[k] * mean(pixel, c, k)).sum();
        let expected = expected.clamp(-255.0 / 256.0, 255.0 / 256.0);
        let e = value(pixel, c) - expected;
        let s: f64 = (0..m).map(|k| w[k] * scale(pixel, c, k)).sum();
        (e, e.abs() / s)
    };
    let mut log_p = 0.0;
    for pixel in 0..SIDE * SIDE {
        let (y, x) = ((pixel / SIDE) as isize, (pixel % SIDE) as isize);
        let own = &numbers(pixel)[10 * m..];
        let mut shift = [0.0; CHANNELS];
        let mut wider = [1.0; CHANNELS];
        for c in 0..CHANNELS {
            let sizes = (0..neighbours).map(|k| own[k * CHANNELS + c].abs());
            let size = 1.0 + sizes.sum::<f64>();
            for (k, (up, left)) in PLACES.into_iter().take(neighbours).enumerate() {
                let (e, r) = error(y - up as isize, x - left, c);
                let t = own[k * CHANNELS + c];
                shift[c] += e * if gain == 0.0 {
                    t.tanh()
                } else {
                    gain * t / size
                };
                if k < 4 {
                    let growth = (own[neighbours * CHANNELS + c] - 2.97).exp().ln_1p();
                    wider[c] += growth * r / (1.0 + r / 8.0);
                }
            }
        }
        let last = !whole && pixel + 1 == SIDE * SIDE;
        let channels = CHANNELS - last as usize;
        let w = weights(pixel);
        let p: f64 = (0..m)
            .map(|k| {
                (0..channels).fold(w[k], |p, c| {
                    let (mean, s) = (mean(pixel, c, k) + shift[c], scale(pixel, c, k) * wider[c]);
                    p * mass(image[pixel * CHANNELS + c], mean, s)
                })
            })
            .sum();
        log_p += p.ln();
    }
    log_p
}

fn exact(raw: &[f32]) -> Vec<f64> {
    raw.iter().map(|&v| v as f64).collect()
}

#[test]
fn values_and_slopes_are_those_of_the_definition() {
    for (seed, case) in [(1, (0.0, 6)), (2, (0.75, 6)), (3, (0.5, 9)), (8, (0.0, 12))] {
        let (raw, image) = (raw(seed, case), image(seed));
        let (log_p, slope) = run(case, &raw, std::slice::from_ref(&image));
        let want = defined(case, &exact(&raw), &image, true);
        let off = (log_p[0] as f64 - want).abs();
        assert!(off < 3e-6 * want.abs(), "{} and {want}", log_p[0]);
        let largest = slope.iter().fold(0.0f32, |a, s| a.max(s.abs())) as f64;
        for (i, &have) in slope.iter().enumerate() {
            let step = 1e-5;
            let (mut up, mut down) = (exact(&raw), exact(&raw));
            up[i] += step;
            down[i] -= step;
            let want = (defined(case, &up, &image, true) - defined(case, &down, &image, true))
                / (2.0 * step);
            let off = (have as f64 - want).abs();
            assert!(off < 5e-5 * largest, "raw {i}: {have} and {want}");
        }
    }
}

/// Of the last pixel's blue, which no other sample follows, all 256 values together leave the probability of the others.
#[test]
fn probabilities_of_the_last_sample_sum_to_one() {
    for (seed, case) in [
        (4, (0.0, 6)),
        (5, (0.75, 6)),
        (6, (0.75, 12)),
        (7, (0.9, 4)),
    ] {
        let (raw, first) = (raw(seed, case), image(seed));
        let of = |blue: u8| {
            let mut image = first.clone();
            image[SIDE * SIDE * CHANNELS - 1] = blue;
            image
        };
        let images: Vec<Vec<u8>> = (0..=255).map(of).collect();
        let others = defined(case, &exact(&raw), &first, false);
        let log_p = run(case, &raw, &images).0;
        let sum: f64 = log_p.iter().map(|l| (*l as f64 - others).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    }
}

/// A share of 0 leaves the loss as it is, a share of 1 makes it that of the plain mixture with the same decoder.
#[test]
fn a_share_of_the_decoder_goes_from_the_causal_mixture_to_the_plain_one() {
    use rrvq::programs::{Model, objective};
    let mut base = Config::preset("tiny-swatches").unwrap();
    for change in ["model.mixtures=2", "train.batch=4"] {
        base.set(change).unwrap();
    }
    let data = rrvq::dataset::Swatches::for_config(&base);
    let images = rrvq::dataset::Batches::new(&data, 1, 4, false)
        .at(0)
        .to_vec();
    let loss = |likelihood: &str, share: f64| {
        let mut config = base.clone();
        config
            .set(&format!("model.likelihood={likelihood}"))
            .unwrap();
        config.train.decoder_share = share;
        let model = Model::new(&config.model);
        let g = Graph::new();
        let loss = objective(&g, &model, &config.train).1;
        let mut store = model.initial(&Device::Cpu, 1, &images).unwrap();
        let mut program = Program::new(&Device::Cpu, &g, &model.layout, &[("loss", loss)]).unwrap();
        let inputs = [
            ("images", Data::U8(&images)),
            ("counter", Data::U32(&[1, 0, 0, 0])),
            ("tau", Data::F32(&[1.0])),
            ("noise_scale", Data::F32(&[1.0])),
        ];
        program.run(&mut store, &inputs).unwrap();
        program.output("loss").unwrap()[0] as f64
    };
    let (causal, half, alone) = (
        loss("mixture-causal", 0.0),
        loss("mixture-causal", 0.5),
        loss("mixture-causal", 1.0),
    );
    assert!(
        (half - (causal + alone) / 2.0).abs() < 1e-5,
        "{causal} {half} {alone}"
    );
    assert!((causal - alone).abs() > 1e-3, "{causal} {alone}");
}
