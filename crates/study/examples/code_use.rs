//! Where a step of training moves the use of codes, by estimator, at the same weights.
//!
//! For each layer: the entropy of the mean responsibilities of a few hundred training images (how many codes are in use), that of single
//! positions (how undecided a position is), and by how much a step of AdaMax moves both, to first order: the step that the gradient of
//! the reconstruction asks for, which only estimators differ in, and the whole one, KL included.
//!
//! cargo run --release -p rrvq-study --example code_use -- RUN DATA

use rrvq::config::Config;
use rrvq::dataset::Split;
use rrvq::latent::codebook;
use rrvq::latent::responsibility::Codebook;
use rrvq::programs::{Model, objective};
use rrvq::{Device, Error, Result, Trained};
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Data, Graph, Program, Store, Var, grad};
use std::path::PathBuf;

/// Images of a batch, and batches.
const BATCH: usize = 32;
const BATCHES: usize = 16;
/// The learning rate of the steps.
const RATE: f64 = 0.01;
const ESTIMATORS: [(&str, f32); 6] = [
    ("straight-through", 0.5),
    ("straight-through", 1.0),
    ("straight-through", 2.0),
    ("reinmax", 1.0),
    ("reinmax", 1.5),
    ("reinmax", 2.0),
];

/// Entropies of a layer's responsibilities in nats: of their mean over all positions, and the mean of each position's.
fn entropies<'g>(book: Codebook<'g>, embeddings: Var<'g>) -> [Var<'g>; 2] {
    let log_q = book.log_responsibilities(embeddings);
    let rows = log_q.dim(0) as f32;
    let mean = log_q.exp().sum_to(&[1, log_q.dim(1)]) * (1.0 / rows);
    let of_mean = -(mean * (mean + 1e-12).log()).sum();
    let of_each = -(log_q.exp() * log_q).sum() * (1.0 / rows);
    [of_mean, of_each]
}

/// What a program of one estimator found over all batches.
struct Found {
    /// Entropies of each layer, of the mean and of each position.
    entropies: Vec<[f64; 2]>,
    /// Their gradients.
    slopes: Vec<[Vec<f64>; 2]>,
    /// Steps of a rate of 1: of the reconstruction, of all.
    steps: [Vec<f64>; 2],
}

fn found(config: &Config, theta: &[f32], images: &[u8]) -> Result<Found> {
    let model = Model::new(&config.model);
    let graph = Graph::new();
    let (elbo, _) = objective(&graph, &model, &config.train);
    let (params, layout) = (graph.params(), graph.layout());
    let named = |name: &str| {
        let entries = layout.entries().iter();
        let mut pairs = entries.zip(&params).filter(|(entry, _)| entry.name == name);
        pairs.next().map(|(_, param)| *param)
    };
    let places: Vec<usize> = layout
        .entries()
        .iter()
        .filter_map(|entry| model.layout.get(&entry.name).map(|place| place.offset))
        .collect();
    let len = model.layout.len();
    let (likelihood, kl) = elbo.sums();
    let kl = graph.concat(&kl, 0).sum();
    let packed = |of| graph.pack(&grad(of, &params), &places, len);
    let mut outputs = vec![
        ("reconstruction".to_string(), packed(-likelihood)),
        ("all".to_string(), packed(kl - likelihood)),
    ];
    for (layer, embeddings) in elbo.embeddings.iter().enumerate() {
        let name = codebook::name(layer);
        let of = |what: &str| {
            named(&format!("{name}.{what}")).ok_or_else(|| {
                Error::new("expected a run with codes and diagonal variances; choose another")
            })
        };
        let book = Codebook {
            mu: of("mean")?,
            logvar: of("logvar")?,
        };
        for (which, entropy) in entropies(book, *embeddings).into_iter().enumerate() {
            outputs.push((format!("entropy-{layer}-{which}"), entropy));
            outputs.push((format!("slope-{layer}-{which}"), packed(entropy)));
        }
    }
    let outputs: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let mut program = Program::new(&Device::Cpu, &graph, &model.layout, &outputs)?;
    let mut store = Store::with("theta", theta.to_vec());
    let layers = elbo.embeddings.len();
    let mut found = Found {
        entropies: vec![[0.0; 2]; layers],
        slopes: vec![[vec![0.0; len], vec![0.0; len]]; layers],
        steps: [vec![0.0; len], vec![0.0; len]],
    };
    let mut largest = [vec![0f64; len], vec![0f64; len]];
    let share = 1.0 / BATCHES as f64;
    for batch in images.chunks_exact(images.len() / BATCHES).enumerate() {
        let (number, images) = batch;
        let tau = [config.model.temperature.start as f32];
        let noise = counter(5, number as u64);
        let inputs = [
            ("images", Data::U8(images)),
            ("counter", Data::U32(&noise)),
            ("tau", Data::F32(&tau)),
            ("noise_scale", Data::F32(&[1.0])),
        ];
        program.run(&mut store, &inputs)?;
        for (which, name) in ["reconstruction", "all"].into_iter().enumerate() {
            for (i, &v) in program.output(name)?.iter().enumerate() {
                found.steps[which][i] -= v as f64 * share;
                largest[which][i] = largest[which][i].max((v as f64).abs());
            }
        }
        for layer in 0..layers {
            for which in 0..2 {
                let value = program.output(&format!("entropy-{layer}-{which}"))?[0];
                found.entropies[layer][which] += value as f64 * share;
                let slope = program.output(&format!("slope-{layer}-{which}"))?;
                let sum = &mut found.slopes[layer][which];
                for (sum, v) in sum.iter_mut().zip(slope.iter()) {
                    *sum += *v as f64 * share;
                }
            }
        }
    }
    // AdaMax: the mean of the gradient over the largest it was.
    for (step, largest) in found.steps.iter_mut().zip(&largest) {
        step.iter_mut()
            .zip(largest)
            .for_each(|(step, most)| *step /= most.max(1e-30));
    }
    Ok(found)
}

fn main() -> Result<()> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [run, data] = &folders[..] else {
        return Err(Error::new(
            "expected two folders: a run with codes, and its data",
        ));
    };
    let trained = Trained::open(run)?;
    let mut config = trained.config().clone();
    config.data.dir = Some(data.clone());
    let data = rrvq_data::open_for(&config)?;
    let each = data.shape().iter().product();
    let mut images = vec![0; BATCHES * BATCH * each];
    for (i, image) in images.chunks_exact_mut(each).enumerate() {
        data.read(Split::Train, i, image);
    }
    println!(
        "{} after {} steps, {} training images; entropies in nats, and what a step at a rate of {RATE} adds to them",
        run.display(),
        trained.step(),
        BATCHES * BATCH
    );
    println!(
        "estimator, temperature    layer  of the mean: now, by the reconstruction, by all   of a position: now, by the reconstruction, by all"
    );
    (config.train.batch, config.train.norm_penalty) = (BATCH, 0.0);
    for (sample, tau) in ESTIMATORS {
        config.set(&format!("model.sample={sample}"))?;
        config.set(&format!("model.temperature={{start={tau},end={tau}}}"))?;
        let found = found(&config, trained.theta(), &images)?;
        for (layer, (now, slopes)) in found.entropies.iter().zip(&found.slopes).enumerate() {
            let mut told = String::new();
            for (now, slope) in now.iter().zip(slopes) {
                let moved = |step: &Vec<f64>| {
                    let dot: f64 = step.iter().zip(slope).map(|(a, b)| a * b).sum();
                    RATE * dot
                };
                let [by_sample, by_all] = [0, 1].map(|which| moved(&found.steps[which]));
                told += &format!("   {now:.3} {by_sample:+.3} {by_all:+.3}");
            }
            println!("{sample:<17} {tau:>4} {:>8}{told}", layer + 1);
        }
    }
    Ok(())
}
