//! The mixture of discretised logistics as mathematics: a distribution over the values of a pixel, the one its
//! definition says, with the definition's slopes and means; and something a model learns with.
//!
//! The definition is written here in f64 and by plain probabilities, channel by channel, so that it shares nothing with
//! the library's way through logarithms.

use rrvq::config::Config;
use rrvq::dataset::Batches;
use rrvq::dataset::Swatches;
use rrvq::likelihood;
use rrvq::nn::Builder;
use rrvq::programs::{Inference, Model, Step, StepInput};
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::{DType, Data, Device, Graph, Program, Store, grad};

/// A mixture for one pixel: what the decoder would give, slot by slot.
#[derive(Clone)]
struct Case {
    name: &'static str,
    channels: usize,
    components: usize,
    raw: Vec<f32>,
    centres: Vec<f32>,
}

/// Added to raw log scales: they start at −1.75 and never go below −7.
const START: f64 = -1.75;

impl Case {
    fn slots(channels: usize) -> usize {
        [3, 0, 10][channels - 1]
    }

    fn random(seed: u32, channels: usize, components: usize, spread: f32) -> Case {
        let count = Case::slots(channels) * components;
        let uniform = |i: usize| {
            philox4x32_10([i as u32, 0, 0, 0], [seed, 7])[0] as f32 / 2f32.powi(31) - 1.0
        };
        Case {
            name: "random",
            channels,
            components,
            raw: (0..count).map(|i| spread * uniform(i)).collect(),
            centres: (0..components).map(|k| 0.7 * uniform(count + k)).collect(),
        }
    }

    /// Two components at opposite ends, as narrow as they get, one hardly ever chosen, coefficients saturated.
    fn extreme(channels: usize) -> Case {
        let mut raw = vec![-4.0, 4.0];
        for end in [[-1.5, 1.2], [0.996, -0.99], [0.0, 3.0]]
            .iter()
            .take(channels)
        {
            raw.extend(end);
        }
        for scale in [[-40.0, -12.0], [-6.0, 5.0], [-9.0, -3.0]]
            .iter()
            .take(channels)
        {
            raw.extend(scale);
        }
        if channels == 3 {
            raw.extend([9.0, -9.0, -20.0, 0.5, 20.0, -0.1]);
        }
        Case {
            name: "extreme",
            channels,
            components: 2,
            raw,
            centres: vec![-0.3, 0.2],
        }
    }

    fn all(channels: usize) -> Vec<Case> {
        let mut cases: Vec<Case> = (1..5)
            .map(|seed| Case::random(seed, channels, 1 + seed as usize * 2, seed as f32))
            .collect();
        cases.push(Case::extreme(channels));
        cases
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        for change in [
            "model.likelihood=mixture".to_string(),
            format!("model.mixtures={}", self.components),
            format!("model.mixture_log_scale={START}"),
            format!("model.image_channels={}", self.channels),
        ] {
            config.set(&change).unwrap();
        }
        config.validate().unwrap();
        config
    }

    /// log p of each pixel, the slope of their sum by each raw output, and the mean picture, from the library.
    fn run(&self, pixels: &[Vec<usize>]) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let config = self.config();
        let (g, n) = (Graph::new(), pixels.len());
        let builder = Builder::new(&g, &config.model);
        assert_eq!(
            likelihood::of(&config.model).channels(&config.model),
            self.raw.len()
        );
        let raw = g.input("raw", &[1, 1, 1, self.raw.len()], DType::F32);
        let bytes = g.input("bytes", &[n, 1, 1, self.channels], DType::F32);
        let mixture = likelihood::of(builder.config)
            .pixels(&builder, raw.broadcast(&[n, 1, 1, self.raw.len()]));
        let log_p = mixture.log_likelihood(bytes);
        assert_eq!(log_p.shape(), [n, 1]);
        let slope = grad(log_p.sum(), &[raw])[0];
        let layout = g.layout();
        assert_eq!(layout.count(), self.components);
        let mut theta = vec![0.0; layout.len()];
        theta[..self.components].copy_from_slice(&self.centres);
        let outputs = [("log_p", log_p), ("slope", slope), ("mean", mixture.mean())];
        let mut program = Program::new(&Device::Cpu, &g, &layout, &outputs).unwrap();
        let values: Vec<f32> = pixels.iter().flatten().map(|&v| v as f32).collect();
        let inputs = [("raw", Data::F32(&self.raw)), ("bytes", Data::F32(&values))];
        let mut store = Store::with("theta", theta);
        program.run(&mut store, &inputs).unwrap();
        let take = |name| program.output(name).unwrap().to_vec();
        (take("log_p"), take("slope"), take("mean"))
    }

    fn slot(&self, raw: &[f64], slot: usize, k: usize) -> f64 {
        raw[slot * self.components + k]
    }

    fn mean(&self, raw: &[f64], k: usize, channel: usize, earlier: &[f64]) -> f64 {
        let own = self.slot(raw, 1 + channel, k) + self.centres[k] as f64;
        let coefficient = |i: usize| self.slot(raw, 7 + i, k).tanh();
        match channel {
            0 => own,
            1 => own + coefficient(0) * earlier[0],
            _ => own + coefficient(1) * earlier[0] + coefficient(2) * earlier[1],
        }
    }

    /// Probability of the first channels' values, by definition.
    fn probability(&self, raw: &[f64], pixel: &[usize]) -> f64 {
        let values: Vec<f64> = pixel.iter().map(|&v| centre(v)).collect();
        let weights = self.weights(raw);
        (0..self.components)
            .map(|k| {
                let mut p = weights[k];
                for (channel, &value) in pixel.iter().enumerate() {
                    let mean = self.mean(raw, k, channel, &values);
                    let log_scale = self.slot(raw, 1 + self.channels + channel, k);
                    let start = (START + 7.0).exp_m1().ln();
                    p *= mass(value, mean, (log_scale + start).exp().ln_1p() - 7.0);
                }
                p
            })
            .sum()
    }

    fn weights(&self, raw: &[f64]) -> Vec<f64> {
        let total: f64 = raw[..self.components].iter().map(|l| l.exp()).sum();
        raw[..self.components]
            .iter()
            .map(|l| l.exp() / total)
            .collect()
    }

    fn exact(&self) -> Vec<f64> {
        self.raw.iter().map(|&v| v as f64).collect()
    }

    /// A value of the next channel the mixture thinks likely, given those before it.
    fn likely(&self, before: &[usize]) -> usize {
        let raw = self.exact();
        let p = |v: usize| self.probability(&raw, &[before, &[v]].concat());
        (0..256).max_by(|&a, &b| p(a).total_cmp(&p(b))).unwrap()
    }
}

/// The middle of a bin; bytes span [−1, 1].
fn centre(value: usize) -> f64 {
    (value as f64 + 0.5) / 128.0 - 1.0
}

/// Mass of a logistic on a bin, the outer bins taking the tails; the difference is taken where both sides are small.
fn mass(value: usize, mean: f64, log_scale: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let at = |edge: usize| (edge as f64 / 128.0 - 1.0 - mean) / log_scale.exp();
    let (lower, upper) = (at(value), at(value + 1));
    match value {
        0 => sigmoid(upper),
        255 => sigmoid(-lower),
        _ if lower > 0.0 => sigmoid(-lower) - sigmoid(-upper),
        _ => sigmoid(upper) - sigmoid(lower),
    }
}

fn total(log_p: &[f32]) -> f64 {
    log_p.iter().map(|&l| (l as f64).exp()).sum()
}

fn near_one(what: &str, case: &Case, ratio: f64) {
    let off = (ratio - 1.0).abs();
    assert!(
        off < 1e-5,
        "{what} of {} in {}: {ratio}",
        case.components,
        case.name
    );
}

#[test]
fn grey_probabilities_sum_to_one() {
    for case in Case::all(1) {
        let pixels: Vec<_> = (0..256).map(|v| vec![v]).collect();
        near_one("256 values", &case, total(&case.run(&pixels).0));
    }
}

#[test]
fn colour_probabilities_sum_to_one_channel_by_channel() {
    for case in Case::all(3) {
        let raw = case.exact();
        let p = |pixel: &[usize]| case.probability(&raw, pixel);
        let sum = |before: &[usize]| (0..256).map(|v| p(&[before, &[v]].concat())).sum::<f64>();
        // The values of red; of green for a red; and the library's, of blue for a red and a green.
        near_one("reds", &case, sum(&[]));
        for red in [0, 7, case.likely(&[]), 130, 255] {
            if p(&[red]) < 1e-12 {
                continue;
            }
            near_one("greens", &case, sum(&[red]) / p(&[red]));
            for green in [case.likely(&[red]), 0, 128, 255] {
                if p(&[red, green]) < 1e-12 {
                    continue;
                }
                let pixels: Vec<_> = (0..256).map(|blue| vec![red, green, blue]).collect();
                let blues = total(&case.run(&pixels).0);
                near_one("blues", &case, blues / p(&[red, green]));
            }
        }
        // Green and blue together, all 65,536 of them, for the likeliest red.
        let red = case.likely(&[]);
        let pixels: Vec<_> = (0..65536).map(|v| vec![red, v / 256, v % 256]).collect();
        near_one(
            "greens and blues",
            &case,
            total(&case.run(&pixels).0) / p(&[red]),
        );
    }
}

#[test]
fn probabilities_are_those_of_the_definition() {
    for case in [Case::all(1), Case::all(3)].concat() {
        let mut pixels: Vec<Vec<usize>> = (0..400)
            .map(|i| philox4x32_10([i, 1, 0, 0], [5, 5])[..case.channels].to_vec())
            .map(|words| words.iter().map(|w| (w >> 24) as usize).collect())
            .collect();
        pixels.extend([vec![0; case.channels], vec![255; case.channels]]);
        let raw = case.exact();
        let mut compared = 0;
        for (pixel, &have) in pixels.iter().zip(&case.run(&pixels).0) {
            assert!(
                have.is_finite() && have < 1e-5,
                "{}: {pixel:?}: {have}",
                case.name
            );
            // Far out in a tail the definition itself runs out of range.
            let want = case.probability(&raw, pixel).ln();
            if want < -400.0 {
                continue;
            }
            compared += 1;
            let off = (have as f64 - want).abs();
            assert!(
                off < 3e-5 + 2e-6 * want.abs(),
                "{}, {pixel:?}: {have} where {want} is expected",
                case.name
            );
        }
        assert!(compared > 0, "{}: nothing to compare", case.name);
    }
}

#[test]
fn slopes_are_those_of_the_definition() {
    for case in (1..4).map(|seed| Case::random(seed, 3, 3, 1.5)) {
        let pixels: Vec<Vec<usize>> = [[0, 0, 0], [255, 255, 255], [0, 255, 90], [100, 120, 140]]
            .iter()
            .map(|p| p.to_vec())
            .collect();
        let slope = case.run(&pixels).1;
        let log_p =
            |raw: &[f64]| -> f64 { pixels.iter().map(|p| case.probability(raw, p).ln()).sum() };
        let largest = slope.iter().fold(0.0f32, |a, s| a.max(s.abs())) as f64;
        assert!(largest > 0.1);
        for (i, &have) in slope.iter().enumerate() {
            let step = 1e-5;
            let (mut up, mut down) = (case.exact(), case.exact());
            up[i] += step;
            down[i] -= step;
            let want = (log_p(&up) - log_p(&down)) / (2.0 * step);
            let off = (have as f64 - want).abs();
            assert!(
                off < 2e-5 * largest + 1e-5,
                "raw {i}: {have} where {want} is expected"
            );
        }
    }
}

#[test]
fn a_component_at_the_least_scale_still_has_a_slope() {
    let mut case = Case::random(1, 1, 1, 0.0);
    case.raw[2] = -7.5;
    let slope = case.run(&[vec![90]]).1;
    assert!(slope[2].is_finite() && slope[2].abs() > 1e-3, "{slope:?}");
    // Far from the byte, the mean is drawn to it with the full force of its scale.
    case.centres[0] = 0.9;
    let slope = case.run(&[vec![0]]).1;
    assert!(slope[1] < -100.0 && slope[1].is_finite(), "{slope:?}");
}

#[test]
fn the_mean_follows_the_channels_in_order() {
    let border = centre(255);
    for case in Case::all(3) {
        let raw = case.exact();
        let mut want = [0.0; 3];
        for (k, weight) in case.weights(&raw).into_iter().enumerate() {
            let mut means = Vec::new();
            for (channel, want) in want.iter_mut().enumerate() {
                let mean = case.mean(&raw, k, channel, &means).clamp(-border, border);
                *want += weight * mean / 2.0;
                means.push(mean);
            }
        }
        let have = case.run(&[vec![1, 2, 3]]).2;
        for (have, want) in have.iter().zip(want) {
            assert!(
                (*have as f64 - want).abs() < 1e-6,
                "{have} where {want} is expected"
            );
        }
    }
    // By hand: red at 0.5; green 0.25 + 0.8 · 0.5; blue −0.25 − 0.6 · 0.5 + 0.4 · 0.65.
    let coefficients = [0.8f32, -0.6, 0.4].map(f32::atanh);
    let mut raw = vec![0.0, 0.5, 0.25, -0.25, 0.0, 0.0, 0.0];
    raw.extend(coefficients);
    let case = Case {
        name: "by hand",
        channels: 3,
        components: 1,
        raw,
        centres: vec![0.0],
    };
    let have = case.run(&[vec![1, 2, 3]]).2;
    for (have, want) in have.iter().zip([0.5, 0.65, -0.29]) {
        assert!(
            (have * 2.0 - want).abs() < 1e-6,
            "{have} where {want} / 2 is expected"
        );
    }
}

fn tiny(changes: &[&str]) -> Config {
    let mut config = Config::preset("tiny-swatches").unwrap();
    for change in ["model.likelihood=mixture", "model.mixtures=4"]
        .iter()
        .chain(changes)
    {
        config.set(change).unwrap();
    }
    config.validate().unwrap();
    config
}

#[test]
fn components_start_apart_and_pictures_near_grey() {
    let config = tiny(&[]);
    let data = Swatches::for_config(&config);
    let images = Batches::new(&data, 0, 16, false).at(0).to_vec();
    let model = Model::new(&config.model);
    let mut store = model.initial(&Device::Cpu, 3, &images).unwrap();
    let entry = model.layout.get("likelihood.centres").unwrap();
    let centres = &store.get("theta")[entry.offset..entry.offset + entry.len()];
    for (have, want) in centres.iter().zip([-0.675, -0.225, 0.225, 0.675]) {
        assert!((have - want).abs() < 1e-6, "{centres:?}");
    }
    let mut inference = Inference::pictures(&Device::Cpu, &model, 16).unwrap();
    let pictures = inference
        .run(&mut store, &images, counter(3, 0), 1.0)
        .unwrap();
    assert!(pictures.iter().all(|v| (v - 127.5).abs() < 70.0));
    let mean = pictures.iter().sum::<f32>() / pictures.len() as f32;
    assert!((mean - 127.5).abs() < 4.0, "mean {mean}");
}

#[test]
fn training_on_swatches_lowers_the_loss() {
    for changes in [
        &["train.steps=120"][..],
        &["train.steps=120", "model.mixtures=1"],
    ] {
        let config = tiny(changes);
        let data = Swatches::for_config(&config);
        let train = &config.train;
        let mut batches = Batches::new(&data, 1, train.batch, false);
        let model = Model::new(&config.model);
        let mut store = model.initial(&Device::Cpu, 1, batches.at(0)).unwrap();
        let mut step = Step::new(&Device::Cpu, &model, train).unwrap();
        let mut losses = Vec::new();
        for at in 0..train.steps as u64 {
            let input = StepInput {
                seed: 1,
                step: at,
                lr: train.lr,
                tau: 0.5,
                kl_weight: 1.0,
            };
            let outcome = step.run(&mut store, batches.at(at), &input).unwrap();
            assert_eq!(outcome.not_finite(), None, "step {at}");
            losses.push(outcome.loss);
        }
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let (first, last) = (mean(&losses[..5]), mean(&losses[losses.len() - 5..]));
        println!("{changes:?}: {first:.3} to {last:.3} bits per dim");
        assert!(first < 10.0 && last < first - 2.0, "{first} to {last}");
    }
}
