//! Whole models small enough to enumerate: every latent of every layer, one image.
//!
//! Samples of a model at a high temperature meet every state of its latents sooner or later, and with each come its log q,
//! its log weight and the pieces of the ELBO. From these, all in f64: probabilities sum to 1, the analytic KL is the mean
//! of the log ratio, and ELBO < bound on two samples < exact log-likelihood. The programs' own sampled values must then
//! average to the exact ones.

use rrvq::config::Config;
use rrvq::model::Hierarchy;
use rrvq::programs::Model;
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{Data, Device, Graph, Store, Var};
use std::collections::HashMap;

const BATCH: usize = 256;

/// Name, settings, and how many states its latents have.
const MODELS: [(&str, &[&str], usize); 11] = [
    ("rrvq", &[], 48),
    ("isotropic", &["model.sigma=isotropic"], 48),
    ("as printed", &["model.sigma=printed"], 48),
    (
        "blocks around the latents, growing by steps",
        &[
            "model.size=8",
            "model.data_blocks=1",
            "model.grow_last=steps",
        ],
        48,
    ),
    ("embed, one", &["model.sigma=one"], 48),
    ("direct, learnt", &["model.prior=direct"], 48),
    (
        "direct, one",
        &["model.prior=direct", "model.sigma=one"],
        48,
    ),
    ("uniform top", &["model.top=uniform"], 48),
    (
        "rvq",
        &[
            "model.maps=[2]",
            "model.codes=3",
            "model.top=uniform",
            "model.sigma=one",
        ],
        81,
    ),
    ("mlp", &["model.backbone=mlp"], 48),
    (
        "bernoulli, four layers",
        &[
            "model.latent=bernoulli",
            "model.embed=1",
            "model.maps=[2, 1, 1, 1]",
            "model.codes=2",
        ],
        128,
    ),
];

/// What is known of one state.
#[derive(Clone, Copy, Debug)]
struct State {
    log_q: f64,
    log_weight: f64,
    log_likelihood: f64,
    /// Of the layers together.
    kl: f64,
}

struct Sampler {
    program: Program,
    store: Store,
    images: Vec<u8>,
    layers: usize,
    codes: usize,
}

impl Sampler {
    fn new(settings: &[&str]) -> Self {
        let mut config = Config::default();
        let common = [
            "model.size=4",
            "model.maps=[2, 1]",
            "model.channels=6",
            "model.embed=2",
            "model.codes=[2, 3]",
            // A wide likelihood, so that many states matter.
            "model.log_scale=1.5",
        ];
        for change in common.iter().chain(settings) {
            config.set(change).unwrap();
        }
        config.validate().unwrap();
        let model = Model::new(&config.model);
        let len = model.image_len();
        let image: Vec<u8> = (0..len).map(|i| (i * 71 % 256) as u8).collect();
        let others: Vec<u8> = (0..8 * len).map(|i| (i * i % 251) as u8).collect();
        let mut theta = model
            .initial(&Device::Cpu, 5, &others)
            .unwrap()
            .get("theta")
            .to_vec();
        // Away from the start, where much is zero or equal.
        for (i, v) in theta.iter_mut().enumerate() {
            let word = philox4x32_10([i as u32, 9, 0, 0], [5, 0])[0];
            *v += 0.2 * (word as f32 / 2f32.powi(31) - 1.0);
        }
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, &model.config, BATCH).weighed_elbo();
        let kl = elbo.kl.iter().copied().reduce(|a, b| a + b).unwrap();
        let mut outputs: Vec<(String, Var<'_>)> = vec![
            ("log_q".into(), elbo.log_q.unwrap()),
            ("log_weight".into(), elbo.log_weight.unwrap()),
            ("log_likelihood".into(), elbo.log_likelihood),
            ("kl".into(), kl),
        ];
        let layers = elbo.codes.iter().enumerate();
        outputs.extend(layers.map(|(i, &v)| (format!("code {i}"), v)));
        let layers = elbo.samples.iter().enumerate();
        outputs.extend(layers.map(|(i, &v)| (format!("sample {i}"), v)));
        let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        Sampler {
            program: Program::new(compile(&graph, &model.layout, &named).unwrap()),
            store: Store::with("theta", theta),
            images: image.repeat(BATCH),
            layers: elbo.samples.len(),
            codes: elbo.codes.len(),
        }
    }

    /// A batch of states with what is known of each. The temperature decides which are met, not what is found.
    fn draw(&mut self, seed: u64, temperature: f32) -> Vec<(Vec<u32>, State)> {
        let inputs = [
            ("images", Data::U8(&self.images)),
            ("counter", Data::U32(&counter(seed, 0))),
            ("tau", Data::F32(&[1.0])),
            ("noise_scale", Data::F32(&[temperature])),
        ];
        self.program.run(&mut self.store, &inputs).unwrap();
        let latents: Vec<Vec<u32>> = (0..self.layers)
            .map(|i| match self.codes > 0 {
                true => self.program.output_u32(&format!("code {i}")).to_vec(),
                false => {
                    let bits = self.program.output(&format!("sample {i}"));
                    bits.iter().map(|&v| (v > 0.0) as u32).collect()
                }
            })
            .collect();
        let at = |name: &str, i: usize| self.program.output(name)[i] as f64;
        (0..BATCH)
            .map(|i| {
                let own = latents.iter().flat_map(|all| {
                    let each = all.len() / BATCH;
                    all[i * each..(i + 1) * each].iter().copied()
                });
                let state = State {
                    log_q: at("log_q", i),
                    log_weight: at("log_weight", i),
                    log_likelihood: at("log_likelihood", i),
                    kl: at("kl", i),
                };
                (own.collect(), state)
            })
            .collect()
    }
}

/// Mean and standard error.
fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all: Vec<f64> = values.collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / all.len() as f64;
    (mean, (variance / all.len() as f64).sqrt())
}

fn log_mean_exp(a: f64, b: f64) -> f64 {
    let largest = a.max(b);
    largest + (((a - largest).exp() + (b - largest).exp()) / 2.0).ln()
}

#[test]
fn elbo_importance_bound_and_likelihood_stand_in_order() {
    for (name, settings, count) in MODELS {
        let mut sampler = Sampler::new(settings);
        let mut states: HashMap<Vec<u32>, State> = HashMap::new();
        let mut seed = 0;
        while states.len() < count {
            assert!(
                seed < 3000,
                "{name}: only {} states of {count}",
                states.len()
            );
            // Hotter and hotter: where noise is all there is, all states are alike likely.
            let temperature = 2f32.powi(seed as i32 % 12);
            states.extend(sampler.draw(seed, temperature));
            seed += 1;
        }
        assert_eq!(states.len(), count, "{name}");
        let states: Vec<State> = states.into_values().collect();
        let q = |s: &State| s.log_q.exp();
        let near = |what: &str, found: f64, expected: f64, limit: f64| {
            let off = (found - expected).abs();
            assert!(off < limit, "{name}: {what}: {found}, expected {expected}");
        };
        let sum = |f: &dyn Fn(&State) -> f64| states.iter().map(f).sum::<f64>();
        near("sum of q", sum(&q), 1.0, 1e-4);
        let prior = |s: &State| (s.log_weight + s.log_q - s.log_likelihood).exp();
        near("sum of p", sum(&prior), 1.0, 1e-4);
        let elbo = sum(&|s| q(s) * s.log_weight);
        let analytic = sum(&|s| q(s) * (s.log_likelihood - s.kl));
        near("ELBO by the analytic KL", analytic, elbo, 2e-3);
        let best = states
            .iter()
            .map(|s| s.log_weight + s.log_q)
            .fold(f64::MIN, f64::max);
        let likelihood = best + sum(&|s| (s.log_weight + s.log_q - best).exp()).ln();
        let of_two: f64 = states
            .iter()
            .flat_map(|a| states.iter().map(move |b| (a, b)))
            .map(|(a, b)| q(a) * q(b) * log_mean_exp(a.log_weight, b.log_weight))
            .sum();
        println!("{name}: ELBO {elbo:.4}, of two {of_two:.4}, log-likelihood {likelihood:.4}");
        assert!(
            elbo + 1e-3 < of_two && of_two + 1e-3 < likelihood,
            "{name}: {elbo} {of_two} {likelihood}"
        );
        // What a user's evaluation would average: five standard errors, and a little for f32.
        let drawn: Vec<State> = (0..40)
            .flat_map(|seed| sampler.draw(10_000 + seed, 1.0))
            .map(|(_, state)| state)
            .collect();
        let sampled = |what: &str, (mean, error): (f64, f64), exact: f64| {
            assert!(
                5.0 * error < 0.25 * (likelihood - elbo),
                "{name}: {what}: the limit is a real one: {error}"
            );
            near(what, mean, exact, 5.0 * error + 2e-3);
        };
        let elbos = drawn.iter().map(|s| s.log_likelihood - s.kl);
        sampled("sampled ELBO", moments(elbos), elbo);
        let pairs = drawn.chunks_exact(2);
        let pairs = pairs.map(|p| log_mean_exp(p[0].log_weight, p[1].log_weight));
        sampled("sampled bound of two", moments(pairs), of_two);
    }
}
