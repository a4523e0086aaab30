//! The discretised logistic as mathematics: over the 256 values of a pixel it is a distribution, and it is the
//! one its definition says.
//!
//! The library never subtracts two nearly equal sigmoids; the definition does, so it is evaluated in f64 and
//! from the side where both are small.

use rrvq::config::Config;
use rrvq::likelihood;
use rrvq::nn::Builder;
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{DType, Data, Graph, Store};

/// Middle of the outer bins.
const EDGE: f32 = 0.5 - 1.0 / 512.0;

/// Means in the middle, between two bins, at the borders and beyond them.
const MEANS: [f32; 9] = [
    -0.7,
    -EDGE,
    -0.3,
    -1.0 / 256.0,
    0.0,
    0.123,
    0.4375,
    EDGE,
    3.0,
];
const LOG_SCALES: [f32; 7] = [-7.0, -5.5, -3.5, -2.0, -0.5, 1.0, 3.0];

/// log p of an image of one pixel, for each of its 256 values; all channels have the same value and mean.
fn log_probabilities(kind: &str, mean: f32, log_scales: &[f32], channels: usize) -> Vec<f32> {
    let mut config = Config::default();
    config.set(&format!("model.likelihood={kind}")).unwrap();
    let g = Graph::new();
    let builder = Builder::new(&g, &config.model);
    let shape = [256, 1, 1, channels];
    let raw = g.input("raw", &shape, DType::F32);
    let bytes = g.input("bytes", &shape, DType::F32);
    let pixels = likelihood::of(builder.config).pixels(&builder, raw);
    let log_p = pixels.log_likelihood(bytes);
    let layout = g.layout();
    assert_eq!(layout.count(), log_scales.len());
    let mut program = Program::new(compile(&g, &layout, &[("log_p", log_p)]).unwrap());
    let mut theta = vec![0.0; layout.len()];
    theta[..log_scales.len()].copy_from_slice(log_scales);
    let values: Vec<f32> = (0..256).flat_map(|v| vec![v as f32; channels]).collect();
    let means = vec![mean; 256 * channels];
    let inputs = [("raw", Data::F32(&means)), ("bytes", Data::F32(&values))];
    program
        .run(&mut Store::with("theta", theta), &inputs)
        .unwrap();
    program.output("log_p").to_vec()
}

/// The definition in f64: the mass of a logistic between the edges of a bin, the outer bins taking the tails.
fn by_definition(value: usize, mean: f32, log_scale: f32) -> f64 {
    let (mean, scale) = (mean as f64, (log_scale as f64).exp());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let at = |edge: usize| (edge as f64 / 256.0 - 0.5 - mean) / scale;
    let (lower, upper) = (at(value), at(value + 1));
    match value {
        0 => sigmoid(upper),
        255 => sigmoid(-lower),
        _ if lower > 0.0 => sigmoid(-lower) - sigmoid(-upper),
        _ => sigmoid(upper) - sigmoid(lower),
    }
}

#[test]
fn probabilities_sum_to_one() {
    for mean in MEANS {
        for log_scale in LOG_SCALES {
            let log_p = log_probabilities("logistic", mean, &[log_scale], 1);
            assert_eq!(log_p.len(), 256);
            let sum: f64 = log_p.iter().map(|&l| (l as f64).exp()).sum();
            assert!(
                (sum - 1.0).abs() < 1e-5,
                "mean {mean}, log scale {log_scale}: the sum is {sum}"
            );
        }
    }
}

#[test]
fn probabilities_are_those_of_the_definition() {
    for mean in MEANS {
        for log_scale in LOG_SCALES {
            let log_p = log_probabilities("logistic", mean, &[log_scale], 1);
            for (value, &have) in log_p.iter().enumerate() {
                let want = by_definition(value, mean, log_scale).ln();
                let off = (have as f64 - want).abs();
                // Far out in a tail the definition itself runs out of range.
                assert!(
                    off < 2e-5 + 1e-6 * want.abs() || want < -600.0,
                    "mean {mean}, log scale {log_scale}, value {value}: {have} where {want} is expected"
                );
                assert!(have.is_finite());
            }
        }
    }
}

#[test]
fn each_channel_has_its_own_scale() {
    let scales = [-5.0, -3.0, -1.0];
    let log_p = log_probabilities("logistic-channel", 0.123, &scales, 3);
    for (value, &have) in log_p.iter().enumerate() {
        let want: f64 = scales
            .iter()
            .map(|&s| by_definition(value, 0.123, s).ln())
            .sum();
        let off = (have as f64 - want).abs();
        assert!(
            off < 5e-5 + 1e-6 * want.abs(),
            "value {value}: {have} where {want} is expected"
        );
    }
}
