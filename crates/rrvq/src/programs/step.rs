//! The whole training step, and many of them in a row.
//!
//! A fast device makes a step sooner than the host can prepare the next. So steps come in bursts: where the training
//! images lie on the device, a burst says which of them each step sees, and no step waits for the host.

use super::{Model, Shard, one};
use crate::config::{Estimator, Objective, Reduce, TrainConfig};
use crate::dataset::Batches;
use crate::error::Result;
use crate::model::{Elbo, Hierarchy};
use rrvq_tensor::device::{Frame, SumTimes, Timed};
use rrvq_tensor::optim::{Exceptions, RATES};
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Data, Device, Graph, Group, Program, Store, Var};

/// What one training step tells, in nats averaged over the batch where it is not a norm.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// What `train.objective` lowers, in bits a dimension, free bits included; of the K-sample bound, under VIMCO.
    pub loss: f64,
    /// log p(x | z), mean of the batch, in nats an image.
    pub log_likelihood: f64,
    /// Of each layer, bottom first.
    pub kl: Vec<f64>,
    /// Global norm of the gradient, before clipping.
    pub grad_norm: f64,
    /// Whether the gradient was too large, or not finite, and the step changed nothing (`train.skip_norm`).
    pub skipped: bool,
}

impl StepOutcome {
    /// What is not finite first, in the order the step computes: "KL in layer 3", "likelihood", "loss" or "gradient".
    pub fn not_finite(&self) -> Option<String> {
        if let Some(layer) = self.kl.iter().rposition(|v| !v.is_finite()) {
            return Some(format!("KL in layer {}", layer + 1));
        }
        if !self.log_likelihood.is_finite() {
            return Some("likelihood".into());
        }
        if !self.loss.is_finite() {
            return Some("loss".into());
        }
        (!self.grad_norm.is_finite()).then(|| "gradient".into())
    }
}

/// Forward, backward, clipping, update, average.
pub struct Step {
    program: Program,
    shards: Vec<Shard>,
    batch: usize,
    skip_norm: f32,
    /// Factors of the learning rate for each value, where some are not 1.
    rates: Option<Vec<f32>>,
}

/// What changes from step to step, besides the images.
#[derive(Clone, Copy, Debug)]
pub struct StepInput {
    /// Seed of the noise.
    pub seed: u64,
    /// Steps made so far.
    pub step: u64,
    /// Learning rate.
    pub lr: f64,
    /// Temperature of the samples.
    pub tau: f64,
    /// How often the KL counts; read only where the configuration has a warm-up of it.
    pub kl_weight: f64,
}

/// The same, as the program reads it.
struct Words {
    counter: Vec<u32>,
    lr: [f32; 1],
    t: [f32; 1],
    tau: [f32; 1],
    kl_weight: [f32; 1],
}

impl Words {
    fn new(input: &StepInput, shard: Option<u32>) -> Self {
        let noise = counter(input.seed, input.step);
        Words {
            counter: noise.into_iter().chain(shard).collect(),
            lr: [input.lr as f32],
            t: [(input.step + 1) as f32],
            tau: [input.tau as f32],
            kl_weight: [input.kl_weight as f32],
        }
    }

    fn named(&self) -> Vec<(&str, Data<'_>)> {
        vec![
            ("counter", Data::U32(&self.counter)),
            ("lr", Data::F32(&self.lr)),
            ("t", Data::F32(&self.t)),
            ("tau", Data::F32(&self.tau)),
            ("noise_scale", one()),
            ("kl_weight", Data::F32(&self.kl_weight)),
        ]
    }
}

/// In the order they are compiled in, which [`Step::outcome`] relies on.
const OUTPUTS: [&str; 4] = ["loss", "log_likelihood", "norm", "kl"];

/// What training lowers, and the pieces it tells of.
pub fn objective<'g>(
    graph: &'g Graph,
    model: &'g Model,
    train: &TrainConfig,
) -> (Elbo<'g>, Var<'g>) {
    let hierarchy = Hierarchy::new(graph, &model.config, train.batch / graph.shards());
    if train.estimator == Estimator::Vimco {
        return hierarchy.with_particles(train.particles).vimco();
    }
    let elbo = hierarchy.training_elbo();
    let weight = match train.kl_warmup {
        0 => graph.scalar(1.0),
        _ => graph.scalar_input("kl_weight"),
    };
    let loss = match train.objective {
        Objective::Elbo => elbo.weighted_loss(&model.config, weight),
        Objective::RateDistortion => elbo.rate_distortion(&model.config, weight, train),
    };
    let more = [
        elbo.decoder_share(&model.config, train.decoder_share),
        elbo.norm_penalty(train),
    ];
    let loss = more.into_iter().flatten().fold(loss, |sum, v| sum + v);
    (elbo, loss)
}

impl Step {
    /// Compiles a step of training for `device`.
    pub fn new(device: &Device, model: &Model, train: &TrainConfig) -> Result<Self> {
        Self::in_group(device, model, train, None)
    }

    /// The same for one of the processes that train together.
    pub fn in_group(
        device: &Device,
        model: &Model,
        train: &TrainConfig,
        group: Option<&Group>,
    ) -> Result<Self> {
        let graph = super::graph(group);
        let (elbo, loss) = objective(&graph, model, train);
        let skip_norm = train.skip_norm as f32;
        let (rates, matrices) = (train.rates(&model.layout), train.matrices(&model.layout));
        let except = Exceptions {
            skip_norm,
            rates: rates.is_some(),
            matrices: &matrices,
            bf16_sums: train.reduce == Reduce::Bf16,
            ..Exceptions::default()
        };
        let norm = elbo.descend_with(&train.update(), loss, except);
        let (likelihood, kl) = elbo.sums();
        // Averages over the samples of an image, where there are several.
        let images = train.batch / graph.shards();
        let share = images as f32 / elbo.log_likelihood.dim(0) as f32;
        let values = [loss, likelihood * share, norm, graph.concat(&kl, 0) * share];
        let outputs: Vec<(&str, Var<'_>)> = OUTPUTS.into_iter().zip(values).collect();
        Ok(Step {
            program: Program::new(device, &graph, &model.layout, &outputs)?,
            shards: Shard::own(group, train.batch),
            batch: train.batch,
            skip_norm,
            rates,
        })
    }

    /// What it was compiled to.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Bytes a step works in, on its device.
    pub fn bytes(&self) -> usize {
        self.program.bytes()
    }

    /// What the shards of this process read of `input`.
    fn words(&self, input: &StepInput) -> Vec<Words> {
        let of_shard = |shard: &Shard| Words::new(input, shard.number);
        self.shards.iter().map(of_shard).collect()
    }

    /// Gives `store` what the step reads besides the states that a run keeps.
    fn prepare(&self, store: &mut Store) {
        if let Some(rates) = &self.rates
            && store.get(RATES).is_empty()
        {
            store.insert(RATES, rates.clone());
        }
    }

    /// Makes one step on the vectors of `store`; `images` are those of this process's shards.
    pub fn run(
        &mut self,
        store: &mut Store,
        images: &[u8],
        input: &StepInput,
    ) -> Result<StepOutcome> {
        self.prepare(store);
        let words = self.words(input);
        let images = images.chunks_exact(images.len() / self.shards.len());
        let inputs = words.iter().zip(&self.shards).zip(images);
        let inputs = inputs.map(|((words, shard), images)| {
            let mut inputs = words.named();
            inputs.extend([("images", Data::U8(images)), shard.rows()]);
            inputs
        });
        let inputs: Vec<Vec<(&str, Data<'_>)>> = inputs.collect();
        let inputs: Vec<&[(&str, Data<'_>)]> = inputs.iter().map(Vec::as_slice).collect();
        self.program.run_shards(store, &inputs)?;
        let mut values = Vec::new();
        for name in OUTPUTS {
            values.extend_from_slice(&self.program.output(name)?);
        }
        Ok(self.outcome(&values))
    }

    /// Makes one step for each input, in order, on the images that `batches` has for it.
    pub fn burst(
        &mut self,
        store: &mut Store,
        batches: &mut Batches<'_>,
        inputs: &[StepInput],
    ) -> Result<Vec<StepOutcome>> {
        if batches.bank().is_none() {
            return inputs
                .iter()
                .map(|input| self.run(store, batches.at(input.step), input))
                .collect();
        }
        self.prepare(store);
        let rows: Vec<Vec<u32>> = inputs.iter().map(|i| batches.rows(i.step)).collect();
        let words: Vec<Words> = inputs.iter().flat_map(|input| self.words(input)).collect();
        let shard_rows = self.shards.iter().map(Shard::rows);
        let named = words.iter().zip(shard_rows.cycle());
        let named = named.map(|(words, rows)| [words.named(), vec![rows]].concat());
        let named: Vec<Vec<(&str, Data<'_>)>> = named.collect();
        let frames: Vec<Frame<'_>> = named
            .iter()
            .zip(&rows)
            .map(|(inputs, rows)| Frame {
                inputs,
                rows,
                gathered: "images",
            })
            .collect();
        let bank = batches.bank().expect("looked for above");
        let found = self.program.replay(store, bank, &frames)?;
        Ok(found.iter().map(|values| self.outcome(values)).collect())
    }

    /// Where the time of a step goes. The steps it takes are real ones: they change `store`.
    pub fn profile(
        &mut self,
        store: &mut Store,
        images: &[u8],
        input: &StepInput,
        repeats: usize,
    ) -> Result<Vec<Timed>> {
        self.prepare(store);
        let words = self.words(input);
        let mut inputs = words[0].named();
        inputs.extend([("images", Data::U8(images)), self.shards[0].rows()]);
        Ok(self.program.profile(store, &inputs, repeats)?)
    }

    /// When sums over processes run in a step, which is a real one.
    pub fn sum_times(
        &mut self,
        store: &mut Store,
        images: &[u8],
        input: &StepInput,
    ) -> Result<Option<SumTimes>> {
        self.prepare(store);
        let words = self.words(input);
        let mut inputs = words[0].named();
        inputs.extend([("images", Data::U8(images)), self.shards[0].rows()]);
        Ok(self.program.sum_times(store, &inputs)?)
    }

    /// All outputs, one after another.
    fn outcome(&self, values: &[f32]) -> StepOutcome {
        let per_image = |sum: f32| sum as f64 / self.batch as f64;
        let (scalars, kl) = values.split_at(OUTPUTS.len() - 1);
        let (norm, limit) = (scalars[2], self.skip_norm);
        StepOutcome {
            loss: scalars[0] as f64,
            log_likelihood: per_image(scalars[1]),
            kl: kl.iter().map(|&v| per_image(v)).collect(),
            grad_norm: norm as f64,
            // The program's own comparison.
            skipped: limit > 0.0 && (norm.is_nan() || norm >= limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::dataset::{Dataset, Split, Swatches};

    #[test]
    fn a_burst_from_the_device_makes_the_same_steps_as_one_by_one() {
        let config = Config::preset("tiny-swatches").unwrap();
        let (device, data) = (Device::Cpu, Swatches::for_config(&config));
        let model = Model::new(&config.model);
        let inputs: Vec<StepInput> = (0..5)
            .map(|step| StepInput {
                seed: 3,
                step,
                lr: 1e-3 * (step + 1) as f64,
                tau: 0.5,
                kl_weight: 1.0,
            })
            .collect();
        let made = |banked: bool| {
            let mut batches = Batches::new(&data, 3, config.train.batch, true);
            if banked {
                batches.put_on(&device).unwrap();
            }
            assert_eq!(batches.bank().is_some(), banked);
            let mut store = model.initial(&device, 3, batches.at(0)).unwrap();
            let mut step = Step::new(&device, &model, &config.train).unwrap();
            let outcomes = step.burst(&mut store, &mut batches, &inputs).unwrap();
            (outcomes, store.get("theta").to_vec())
        };
        let (one_by_one, replayed) = (made(false), made(true));
        assert_eq!(one_by_one.0.len(), 5);
        assert!(one_by_one.0[4].loss < one_by_one.0[0].loss);
        assert!(data.len(Split::Train) > 5 * config.train.batch);
        assert_eq!(one_by_one, replayed);
    }
}
