//! The autoregressive prior: what a code may see, that probabilities are probabilities, and that sampling agrees.

use rrvq::config::{Config, ModelConfig, PriorConfig};
use rrvq::nn::Builder;
use rrvq::prior::PriorModel;
use rrvq::prior::network::{Map, PixelCnn};
use rrvq::prior::programs::{PriorSampler, PriorScorer, PriorStep};
use rrvq_tensor::optim::{Optimiser, Rule};
use rrvq_tensor::rng::philox4x32_10;
use rrvq_tensor::testing::{ConvLayout, CpuProgram as Program, Target, compile, compile_for};
use rrvq_tensor::{Data, Device, Graph, Store};

fn settings(side: usize, codes: usize) -> (ModelConfig, PriorConfig) {
    let mut config = Config::default();
    for change in [
        "model.latent=nearest".to_string(),
        format!("model.maps=[{side}]"),
        format!("model.size={}", 2 * side),
        format!("model.codes={codes}"),
        "prior.channels=6".into(),
        "prior.layers=3".into(),
        "prior.batch=5".into(),
    ] {
        config.set(&change).unwrap();
    }
    config.validate().unwrap();
    (config.model, config.prior)
}

fn random_codes(stream: u32, len: usize, codes: usize) -> Vec<u32> {
    let word = |i: u32| philox4x32_10([i, stream, 0, 0], [9, 0])[0];
    (0..len as u32).map(|i| word(i) % codes as u32).collect()
}

/// Weights for which codes matter to each other, and the logits are far from even.
fn weights(prior: &PriorModel) -> Store {
    let codes = random_codes(1, 40 * prior.map.positions(), prior.map.codes);
    let store = prior.initial(&Device::Cpu, 4, &codes).unwrap();
    let mut theta = store.get("theta").to_vec();
    let gain = prior.layout.get("logits.g").unwrap();
    theta[gain.offset..gain.offset + gain.len()]
        .iter_mut()
        .for_each(|g| *g *= 8.0);
    Store::with("theta", theta)
}

#[test]
fn a_code_is_seen_by_later_positions_alone() {
    let (model, config) = settings(5, 7);
    let prior = PriorModel::new(&model, &config);
    let Map { side, codes: kinds } = prior.map;
    let graph = Graph::new();
    let net = PixelCnn::new(Builder::new(&graph, &model), &config, prior.map, 1);
    let outputs = [("logits", net.logits(net.codes()))];
    let mut program = Program::new(compile(&graph, &prior.layout, &outputs).unwrap());
    let mut store = weights(&prior);
    let mut logits = |codes: &[u32]| -> Vec<Vec<u32>> {
        let inputs = [("codes", Data::U32(codes))];
        program.run(&mut store, &inputs).unwrap();
        let rows = program.output("logits").chunks(kinds);
        rows.map(|row| row.iter().map(|v| v.to_bits()).collect())
            .collect()
    };
    let codes = random_codes(2, side * side, kinds);
    let before = logits(&codes);
    for changed in 0..side * side {
        let mut other = codes.clone();
        other[changed] = (other[changed] + 1) % kinds as u32;
        let after = logits(&other);
        assert_eq!(before[..=changed], after[..=changed], "position {changed}");
        // Right of it and below it, with one column to the left for each row: three layers deep.
        let (row, column) = (changed / side, changed % side);
        let sees = |at: usize| {
            let (r, c) = (at / side, at % side);
            (r == row && c > column && c - column <= 4)
                || (r > row && r - row <= 3 && c.abs_diff(column) <= 1)
        };
        for at in (changed + 1..side * side).filter(|&at| sees(at)) {
            assert_ne!(before[at], after[at], "{at} does not see {changed}");
        }
    }
}

/// Every map of 2 × 2 positions and 3 codes.
fn all_maps() -> Vec<[u32; 4]> {
    let digit = |i: u32, place: u32| i / 3u32.pow(place) % 3;
    (0..81)
        .map(|i| [digit(i, 3), digit(i, 2), digit(i, 1), digit(i, 0)])
        .collect()
}

#[test]
fn probabilities_of_all_maps_sum_to_one_and_samples_come_as_often() {
    let (model, config) = settings(2, 3);
    let prior = PriorModel::new(&model, &config);
    let mut store = weights(&prior);
    let mut scorer = PriorScorer::new(&Device::Cpu, &prior, 7).unwrap();
    let nats = scorer.run(&mut store, &all_maps().concat()).unwrap();
    assert_eq!(nats.len(), 81);
    let p: Vec<f64> = nats.iter().map(|&v| (-v as f64).exp()).collect();
    let total: f64 = p.iter().sum();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
    let most = p.iter().copied().fold(0.0, f64::max);
    assert!(most > 3.0 / 81.0, "far from uniform: {most}");

    let (batch, rounds) = (500, 40);
    let mut sampler = PriorSampler::new(&Device::Cpu, &prior, batch).unwrap();
    let mut seen = [0.0; 81];
    for round in 0..rounds {
        let codes = sampler.run(&mut store, 6, round, 1.0, &mut |_| {}).unwrap();
        for map in codes.chunks(4) {
            seen[map.iter().fold(0, |i, &code| 3 * i + code as usize)] += 1.0;
        }
    }
    let count = (batch * rounds as usize) as f64;
    for (i, &p) in p.iter().enumerate() {
        let deviation = (p * (1.0 - p) / count).sqrt();
        let share = seen[i] / count;
        assert!((share - p).abs() < 5.0 * deviation, "map {i}: {share}, {p}");
    }
}

#[test]
fn row_by_row_is_the_whole_map_at_once() {
    let (model, config) = settings(4, 11);
    let prior = PriorModel::new(&model, &config);
    let (mut store, batch) = (weights(&prior), 6);
    let graph = Graph::new();
    let net = PixelCnn::new(Builder::new(&graph, &model), &config, prior.map, batch);
    let modes = net.logits(net.codes()).argmax_last();
    let plan = compile(&graph, &prior.layout, &[("modes", modes)]).unwrap();
    let mut whole = Program::new(plan);
    let mut sampler = PriorSampler::new(&Device::Cpu, &prior, batch).unwrap();
    let mut rows = Vec::new();
    let mut draw = |temperature, rows: &mut Vec<usize>| {
        let mut watch = |row| rows.push(row);
        sampler
            .run(&mut store, 1, 0, temperature, &mut watch)
            .unwrap()
    };
    let (cold, warm) = (draw(0.0, &mut rows), draw(1.0, &mut rows));
    assert_eq!(rows, [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(warm, draw(1.0, &mut rows), "the same seed, the same codes");
    assert_ne!(warm, cold);
    // Without noise every code is the likeliest of all after those before it.
    let inputs = [("codes", Data::U32(&cold))];
    whole.run(&mut weights(&prior), &inputs).unwrap();
    assert_eq!(whole.output_u32("modes"), cold);
}

#[test]
fn it_learns_that_rows_repeat() {
    let (model, config) = settings(4, 4);
    let prior = PriorModel::new(&model, &config);
    // Each image is one row of random codes, four times.
    let batch = |stream: u32| -> Vec<u32> {
        let rows = random_codes(stream, 5 * 4, 4);
        rows.chunks(4).flat_map(|row| row.repeat(4)).collect()
    };
    let mut store = prior.initial(&Device::Cpu, 1, &batch(0)).unwrap();
    let mut step = PriorStep::new(&Device::Cpu, &prior).unwrap();
    let mut nats = Vec::new();
    for i in 0..300 {
        let outcome = step.run(&mut store, &batch(i), i as u64, 1e-2).unwrap();
        assert!(outcome.grad_norm.is_finite());
        nats.push(outcome.kl[0]);
    }
    let uniform = 16.0 * 4f64.ln();
    assert!((nats[0] - uniform).abs() < 0.1 * uniform, "{}", nats[0]);
    // Only the first row can surprise: 4 ln 4 is 5.5.
    let last = nats[280..].iter().sum::<f64>() / 20.0;
    assert!(last < 7.0 && last > 4.5, "{last}");
}

#[test]
fn a_plan_for_tensor_cores_makes_the_same_step() {
    let (model, config) = settings(4, 10);
    let prior = PriorModel::new(&model, &config);
    let codes = random_codes(3, 5 * 16, 10);
    let order: Vec<f32> = (0..10).map(|k| k as f32).collect();
    let made = |target: Target| {
        let graph = Graph::new();
        let net = PixelCnn::new(Builder::new(&graph, &model), &config, prior.map, 5);
        let loss = net.surprise(net.codes()).sum();
        let optimiser = Optimiser {
            rule: Rule::Adam,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            clip: 200.0,
            ema: 0.999,
        };
        let outputs = [("loss", loss), ("norm", optimiser.build(loss))];
        let plan = compile_for(target, &graph, &prior.layout, &outputs).unwrap();
        let mut store = prior.initial(&Device::Cpu, 1, &codes).unwrap();
        let mut program = Program::new(plan);
        for step in 0..2 {
            let inputs = [
                ("codes", Data::U32(&codes)),
                ("order", Data::F32(&order)),
                ("lr", Data::F32(&[2e-3])),
                ("t", Data::F32(&[step as f32 + 1.0])),
            ];
            program.run(&mut store, &inputs).unwrap();
        }
        (program.scalar("loss"), store.get("m").to_vec())
    };
    let (loss, m) = made(Target::default());
    let (loss2, m2) = made(Target {
        conv_layout: Some(ConvLayout {
            channels: 8,
            narrow: 4,
        }),
        batches: true,
        ..Target::default()
    });
    assert!((loss - loss2).abs() < 1e-5 * loss, "{loss} {loss2}");
    let largest = m.iter().fold(0f32, |x, v| x.max(v.abs()));
    let error = m
        .iter()
        .zip(&m2)
        .fold(0f32, |x, (p, q)| x.max((p - q).abs()));
    assert!(error < 1e-3 * largest, "{error} of {largest}");
}
