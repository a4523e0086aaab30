//! Gradient estimators against the exact gradient of a model small enough to enumerate.
//!
//! The model is whole: two layers of latents, an encoder, a decoder, one image. Samples at a high temperature meet every
//! state of the latents, and with each come log q(s) and the log weight w(s) = log p(x, s) − log q(s). The gradient of a bound
//! is then a sum over states, Σ a(s) ∇w(s) + c(s) ∇log q(s): for the ELBO with a = q and c = q w, for the bound on two samples
//! with sums over pairs. An estimator's mean and variance are measured over many batches of its own training objective.

use crate::framework::{Context, Scale, Section, Study, Verdict};
use crate::report::{Chart, Series};
use rrvq::config::Config;
use rrvq::model::Hierarchy;
use rrvq::model::hierarchy::nats_per_dim;
use rrvq::programs::{Model, objective};
use rrvq::{Device, Error, Result};
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::{DType, Data, Graph, Layout, Program, Store, Var, grad};
use std::collections::BTreeMap;

/// Bias and variance of what training may use.
pub struct Estimators;

/// Samples of a batch.
const BATCH: usize = 256;
/// Batches in which all states must have been met.
const MOST_BATCHES: u64 = 4000;

/// An estimator: its name, what it estimates the gradient of, and its settings.
struct Row {
    name: &'static str,
    bound: Bound,
    settings: &'static [&'static str],
    /// How many states its latents have.
    states: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Bound {
    Elbo,
    /// On two samples of an image.
    Two,
}

const CODES: usize = 48;
const BITS: usize = 32;

const fn row(
    name: &'static str,
    bound: Bound,
    settings: &'static [&'static str],
    states: usize,
) -> Row {
    Row {
        name,
        bound,
        settings,
        states,
    }
}

const ROWS: [Row; 9] = [
    row(
        "straight-through, τ = 0.5",
        Bound::Elbo,
        &["model.sample=straight-through"],
        CODES,
    ),
    row(
        "straight-through, τ = 1",
        Bound::Elbo,
        &[
            "model.sample=straight-through",
            "model.temperature.start=1.0",
        ],
        CODES,
    ),
    row(
        "relaxed, τ = 0.5",
        Bound::Elbo,
        &["model.sample=relaxed"],
        CODES,
    ),
    row(
        "relaxed, τ = 1",
        Bound::Elbo,
        &["model.sample=relaxed", "model.temperature.start=1.0"],
        CODES,
    ),
    row(
        "ReinMax, τ = 1",
        Bound::Elbo,
        &["model.sample=reinmax", "model.temperature.start=1.0"],
        CODES,
    ),
    row(
        "ReinMax, τ = 1.5",
        Bound::Elbo,
        &["model.sample=reinmax", "model.temperature.start=1.5"],
        CODES,
    ),
    row(
        "VIMCO, 2 samples",
        Bound::Two,
        &["train.estimator=vimco", "train.particles=2"],
        CODES,
    ),
    row(
        "FouST, bits as drawn",
        Bound::Elbo,
        &[
            "model.latent=bernoulli",
            "model.embed=1",
            "model.codes=2",
            "model.bit_noise=0.0",
        ],
        BITS,
    ),
    row(
        "FouST, bits moved by noise",
        Bound::Elbo,
        &[
            "model.latent=bernoulli",
            "model.embed=1",
            "model.codes=2",
            "model.bit_noise=1.0",
        ],
        BITS,
    ),
];

/// What is known of a state.
#[derive(Clone, Copy)]
struct State {
    log_q: f64,
    log_weight: f64,
    /// Where it was met: the batch, and its row.
    met: (u64, usize),
}

/// A model with weights and an image.
struct Tiny {
    config: Config,
    model: Model,
    theta: Vec<f32>,
    image: Vec<u8>,
}

impl Tiny {
    fn new(row: &Row, seed: u64) -> Result<Tiny> {
        let mut config = Config::default();
        let common = [
            "model.size=4",
            "model.maps=[2, 1]",
            "model.channels=6",
            "model.embed=2",
            "model.codes=[2, 3]",
            "model.free_bits=0.0",
            // A wide likelihood, so that many states matter.
            "model.log_scale=-0.5",
        ];
        for change in common.iter().chain(row.settings) {
            config.set(change)?;
        }
        config.train.batch = BATCH;
        config.validate()?;
        let model = Model::new(&config.model);
        let image: Vec<u8> = (0..48).map(|i| (i * 71 % 256) as u8).collect();
        let others: Vec<u8> = (0..8 * 48).map(|i| (i * i % 251) as u8).collect();
        let first = model.initial(&Device::Cpu, seed, &others)?;
        let mut theta = first.get("theta").to_vec();
        // Away from the start, where much is zero or equal.
        for (i, v) in theta.iter_mut().enumerate() {
            let word = philox4x32_10([i as u32, 9, 0, 0], [seed as u32, 0])[0];
            *v += 0.2 * (word as f32 / 2f32.powi(31) - 1.0);
        }
        Ok(Tiny {
            config,
            model,
            theta,
            image,
        })
    }

    fn run(&self, program: &mut Program, noise: [u32; 4], more: &[(&str, Data<'_>)]) -> Result<()> {
        let images = self.image.repeat(BATCH);
        let tau = [self.config.model.temperature.start as f32];
        let mut inputs = vec![
            ("images", Data::U8(&images)),
            ("counter", Data::U32(&noise)),
            ("tau", Data::F32(&tau)),
        ];
        inputs.extend_from_slice(more);
        program.run(&mut Store::with("theta", self.theta.clone()), &inputs)?;
        Ok(())
    }

    /// The gradient of a scalar by all parameters, in the order of the model's layout.
    fn gradient<'g>(&self, graph: &'g Graph, of: Var<'g>) -> Var<'g> {
        let places: Vec<usize> = offsets(&graph.layout(), &self.model.layout);
        graph.pack(&grad(of, &graph.params()), &places, self.model.layout.len())
    }

    /// The exact gradient of the loss, by all states.
    fn exact(&self, row: &Row) -> Result<Vec<f64>> {
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, &self.model.config, BATCH).scored_elbo();
        let (Some(log_q), Some(weight)) = (elbo.log_q, elbo.log_weight) else {
            return Err(Error::new(
                "a scored ELBO has log weights; please report this",
            ));
        };
        let share = |name: &str| graph.input(name, &[BATCH, 1], DType::F32);
        let (a, c) = (share("a"), share("c"));
        let slope = self.gradient(&graph, (a * weight + c * log_q).sum());
        let names: Vec<String> = (0..elbo.samples.len()).map(|l| format!("z{l}")).collect();
        let mut outputs = vec![("log_q", log_q), ("weight", weight), ("slope", slope)];
        outputs.extend(
            names
                .iter()
                .map(String::as_str)
                .zip(elbo.samples.iter().copied()),
        );
        let mut program = Program::new(&Device::Cpu, &graph, &self.model.layout, &outputs)?;
        let none = vec![0.0f32; BATCH];
        // Hotter and hotter: where noise is all there is, all states are alike likely.
        let heat = |batch: u64| [2f32.powi(batch as i32 % 12)];
        let mut states: BTreeMap<Vec<u32>, State> = BTreeMap::new();
        for batch in 0..MOST_BATCHES {
            if states.len() == row.states {
                break;
            }
            let given = [
                ("noise_scale", Data::F32(&heat(batch)[..])),
                ("a", Data::F32(&none)),
                ("c", Data::F32(&none)),
            ];
            self.run(&mut program, counter(batch, 0), &given)?;
            let (log_q, weight) = (program.output("log_q")?, program.output("weight")?);
            let layers: Result<Vec<_>> = names
                .iter()
                .map(|name| Ok(program.output(name)?.into_owned()))
                .collect();
            let layers = layers?;
            for i in 0..BATCH {
                let own = layers.iter().flat_map(|all| {
                    let each = all.len() / BATCH;
                    all[i * each..(i + 1) * each].iter().map(|v| v.to_bits())
                });
                states.entry(own.collect()).or_insert(State {
                    log_q: log_q[i] as f64,
                    log_weight: weight[i] as f64,
                    met: (batch, i),
                });
            }
        }
        if states.len() != row.states {
            return Err(Error::new(format!(
                "{}: {} states of {} were met in {MOST_BATCHES} batches; please report this",
                row.name,
                states.len(),
                row.states
            )));
        }
        let states: Vec<State> = states.into_values().collect();
        let mut slope = vec![0.0; self.model.layout.len()];
        let batches: std::collections::BTreeSet<u64> = states.iter().map(|s| s.met.0).collect();
        for batch in batches {
            let (mut a, mut c) = (none.clone(), none.clone());
            for state in states.iter().filter(|s| s.met.0 == batch) {
                let (by_weight, by_score) = shares(&states, state, row.bound);
                (a[state.met.1], c[state.met.1]) = (by_weight as f32, by_score as f32);
            }
            let given = [
                ("noise_scale", Data::F32(&heat(batch)[..])),
                ("a", Data::F32(&a)),
                ("c", Data::F32(&c)),
            ];
            self.run(&mut program, counter(batch, 0), &given)?;
            let found = program.output("slope")?;
            slope
                .iter_mut()
                .zip(found.iter())
                .for_each(|(s, v)| *s += *v as f64);
        }
        // The loss is minus the bound, in bits a dimension.
        let per_dim = -1.0 / nats_per_dim(&self.model.config);
        Ok(slope.into_iter().map(|v| v * per_dim).collect())
    }

    /// Mean of the estimate over batches, and the variance of a single sample's, number by number.
    fn estimated(&self, batches: u64) -> Result<(Vec<f64>, Vec<f64>)> {
        let graph = Graph::new();
        let (_, loss) = objective(&graph, &self.model, &self.config.train);
        let slope = self.gradient(&graph, loss);
        let outputs = [("slope", slope)];
        let mut program = Program::new(&Device::Cpu, &graph, &self.model.layout, &outputs)?;
        let len = self.model.layout.len();
        let (mut sum, mut squares) = (vec![0.0; len], vec![0.0; len]);
        for batch in 0..batches {
            let given = [("noise_scale", Data::F32(&[1.0]))];
            self.run(&mut program, counter(77, batch), &given)?;
            for (i, &v) in program.output("slope")?.iter().enumerate() {
                sum[i] += v as f64;
                squares[i] += (v as f64).powi(2);
            }
        }
        let n = batches as f64;
        let mean: Vec<f64> = sum.iter().map(|s| s / n).collect();
        let spread = squares
            .iter()
            .zip(&mean)
            .map(|(s, m)| (s / n - m * m).max(0.0));
        let variance = spread.map(|v| v * n / (n - 1.0) * BATCH as f64).collect();
        Ok((mean, variance))
    }
}

/// The places in `all` of the parameters of `some`, in their order.
fn offsets(some: &Layout, all: &Layout) -> Vec<usize> {
    let entries = some.entries().iter();
    entries
        .filter_map(|entry| all.get(&entry.name).map(|place| place.offset))
        .collect()
}

/// How much ∇w and ∇log q of a state count in the gradient of a bound.
fn shares(states: &[State], state: &State, bound: Bound) -> (f64, f64) {
    let q = state.log_q.exp();
    match bound {
        Bound::Elbo => (q, q * state.log_weight),
        // Of a pair of samples, this state is the first or the second.
        Bound::Two => states.iter().fold((0.0, 0.0), |(a, c), other| {
            let pair = 2.0 * q * other.log_q.exp();
            let (w, v) = (state.log_weight, other.log_weight);
            let most = w.max(v);
            let sum = (w - most).exp() + (v - most).exp();
            let log_mean = most + (sum / 2.0).ln();
            (a + pair * (w - most).exp() / sum, c + pair * log_mean)
        }),
    }
}

/// Bias, its standard error, and the standard deviation of a sample, as shares of the exact gradient's length.
#[derive(Clone, Copy, Default)]
struct Quality {
    bias: f64,
    error: f64,
    deviation: f64,
}

fn judge(exact: &[f64], mean: &[f64], variance: &[f64], batches: u64, of: &[bool]) -> Quality {
    let sum = |f: &dyn Fn(usize) -> f64| {
        let chosen = (0..exact.len()).filter(|&i| of[i]);
        chosen.map(f).sum::<f64>()
    };
    let length = sum(&|i| exact[i].powi(2)).sqrt();
    let noise = sum(&|i| variance[i]) / (batches as f64 * BATCH as f64);
    let off = sum(&|i| (mean[i] - exact[i]).powi(2));
    Quality {
        // What noise adds to the square is known, and taken off.
        bias: (off - noise).max(0.0).sqrt() / length,
        error: noise.sqrt() / length,
        deviation: sum(&|i| variance[i]).sqrt() / length,
    }
}

/// Whether each number of θ belongs to the posterior alone: what only an estimator of the samples can teach.
fn of_posterior(layout: &Layout) -> Vec<bool> {
    let mut own = vec![false; layout.len()];
    for entry in layout.entries() {
        let name = &entry.name;
        let is = name.starts_with("enc.") || name.contains("qladder") || name.contains("qstrap");
        own[entry.offset..entry.offset + entry.len()].fill(is);
    }
    own
}

impl Study for Estimators {
    fn name(&self) -> &'static str {
        "estimators"
    }

    fn about(&self) -> &'static str {
        "bias and variance of gradient estimators against exact gradients, by enumeration of a tiny model"
    }

    fn paper(&self) -> &'static str {
        "no such measurement: it trains through Gumbel-softmax samples, and sets its models beside ones trained with VIMCO and FouST."
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.1,
            Scale::Quick => 0.6,
            Scale::Full => 4.0,
        }
    }

    fn takes_seeds(&self) -> bool {
        true
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let batches = context.by_scale(8, 600, 3000);
        let seeds = context.seeds(4, 8);
        section.seeds = seeds.len();
        let (mut rows, mut found) = (Vec::new(), Vec::new());
        for row in &ROWS {
            let mut means = [Quality::default(); 2];
            for &seed in &seeds {
                let tiny = Tiny::new(row, seed + 1)?;
                let exact = tiny.exact(row)?;
                let (mean, variance) = tiny.estimated(batches)?;
                let posterior = of_posterior(&tiny.model.layout);
                let all = vec![true; posterior.len()];
                for (into, of) in means.iter_mut().zip([&posterior, &all]) {
                    let one = judge(&exact, &mean, &variance, batches, of);
                    let share = 1.0 / seeds.len() as f64;
                    into.bias += one.bias * share;
                    into.error += one.error * share;
                    into.deviation += one.deviation * share;
                }
            }
            let [posterior, all] = means;
            let number = |v: f64| format!("{v:.3}");
            rows.push(vec![
                row.name.to_string(),
                number(posterior.bias),
                number(posterior.error),
                number(posterior.deviation),
                number(all.bias),
                number(all.deviation),
            ]);
            found.push((row.name, posterior));
        }
        section.paragraph(&format!(
            "Two layers of latents on 2 × 2 and 1 × 1 positions, {CODES} states of codes or {BITS} of bits, {} random models, {batches} batches of {BATCH} samples each. All numbers are shares of the length of the exact gradient: of the posterior's parameters, which learn through samples alone, and of all parameters. VIMCO's is the gradient of the bound on two samples, which costs two.",
            seeds.len()
        ));
        section.table(
            "numbers",
            &[
                "estimator",
                "bias, posterior",
                "its standard error",
                "standard deviation of a sample",
                "bias, all",
                "standard deviation, all",
            ],
            &rows,
        )?;
        let points = found
            .iter()
            .map(|(name, quality)| Series::new(*name, vec![(quality.deviation, quality.bias)]));
        section.chart(
            "bias-variance",
            &Chart {
                title: "Bias against standard deviation of a sample, shares of the exact gradient"
                    .into(),
                x_label: "standard deviation".into(),
                y_label: "bias".into(),
                dots: true,
                series: points.collect(),
                ..Chart::default()
            },
        )?;
        let of = |name: &str| {
            let one = found.iter().find(|(n, _)| *n == name);
            one.map_or(Quality::default(), |(_, quality)| *quality)
        };
        let (reinmax, through) = (of("ReinMax, τ = 1"), of("straight-through, τ = 1"));
        section.claim(
            "ReinMax has less bias than straight-through samples at the same temperature.",
            "–",
            format!("{:.3} against {:.3}", reinmax.bias, through.bias),
            Verdict::below(
                reinmax.bias,
                through.bias,
                3.0 * (reinmax.error + through.error),
            ),
        );
        let vimco = of("VIMCO, 2 samples");
        section.claim(
            "VIMCO has no bias, and pays for it in variance.",
            "–",
            format!(
                "bias {:.3} ± {:.3}, standard deviation {:.1} against {:.1}",
                vimco.bias, vimco.error, vimco.deviation, through.deviation
            ),
            match vimco.bias < 3.0 * vimco.error {
                true => Verdict::below(through.deviation, vimco.deviation, 0.0),
                false => Verdict::DoesNotHold,
            },
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vimco_and_scores_agree_with_the_enumeration() {
        let row = &ROWS[6];
        let tiny = Tiny::new(row, 3).unwrap();
        let exact = tiny.exact(row).unwrap();
        let (mean, variance) = tiny.estimated(200).unwrap();
        let all = vec![true; exact.len()];
        let found = judge(&exact, &mean, &variance, 200, &all);
        // It has no bias: what is found is noise, and noise is small enough to see one.
        assert!(found.error < 0.15, "{}", found.error);
        assert!(
            found.bias < 2.0 * found.error,
            "{} ± {}",
            found.bias,
            found.error
        );
        let wrong: Vec<f64> = exact.iter().map(|v| v * 1.5).collect();
        assert!(judge(&wrong, &mean, &variance, 200, &all).bias > 0.2);
    }
}
