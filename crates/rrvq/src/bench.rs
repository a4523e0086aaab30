//! Measurements of speed that RESULTS.md quotes: training steps, evaluation, and where a step's time goes.
//!
//! Images lie on the device and steps follow each other as in training, so that what is measured is what a run gets.

use crate::config::{Codes, Config, Grow, ModelConfig, Optimiser};
use crate::dataset::Batches;
use crate::dataset::{Dataset, Split, bank};
use crate::error::Result;
use crate::evaluate::EVALUATION_SEED;
use crate::model::hierarchy::nats_per_dim;
use crate::programs::{Model, Scorer, Scores, Step, StepInput, StepOutcome};
use crate::validate::check_shards;
use rrvq_tensor::device::{SumTimes, Timed};
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::{Device, Group, Store};
use std::time::Instant;

/// The yardstick's model: L layers over 16², 8², 4² and 2², nearest-neighbour growth, no free bits.
#[derive(Clone, Copy, Debug)]
pub struct StepBench {
    /// Layers of latents.
    pub layers: usize,
    /// Channels of the networks.
    pub channels: usize,
    /// Numbers of an embedding, d_e.
    pub embed: usize,
    /// Codes of a layer, K.
    pub codes: usize,
    /// Images of a step.
    pub batch: usize,
    /// Steps or batches to measure.
    pub steps: usize,
    /// How parameters are updated.
    pub optimiser: Optimiser,
}

/// What a benchmark of the training step, or of evaluation, found.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Milliseconds of a step, the median.
    pub ms_per_step: f64,
    /// Images trained on in a second.
    pub images_per_second: f64,
    /// Seconds from the start of the program to the end of the first step: drawing, compiling, initialising, running.
    pub first_step_seconds: f64,
    /// Parameters of the model.
    pub parameters: usize,
    /// Bytes the program works in, on its device.
    pub plan_bytes: usize,
    /// Kernels of a step.
    pub kernels: usize,
    /// Bits a dimension at the last step; the images are noise, so this only shows that it learns.
    pub loss: f64,
    /// Multiply-adds of convolutions and products, two operations each, a step.
    pub flops: f64,
}

/// Where the time of a training step goes.
#[derive(Clone, Debug)]
pub struct Profile {
    /// By kind of kernel, the slowest first.
    pub kinds: Vec<Timed>,
    /// Kernels of a step.
    pub kernels: usize,
    /// When sums over processes run in a step, on a GPU with others.
    pub sums: Option<SumTimes>,
}

/// Steps before the measured ones.
const WARM: u64 = 4;
/// Steps handed to the device at once.
const AT_ONCE: usize = 64;
/// Steps a profile averages over.
const PROFILED: usize = 3;

/// A model about to be measured.
struct Bench<'a> {
    config: Config,
    model: Model,
    batches: Batches<'a>,
    store: Store,
    step: Step,
}

impl<'a> Bench<'a> {
    fn new(
        device: &Device,
        config: Config,
        data: &'a Noise,
        group: Option<&Group>,
    ) -> Result<Self> {
        let model = Model::new(&config.model);
        let mut batches = Batches::new(data, 0, config.train.batch, false);
        if let Some(group) = group {
            check_shards(&config.train, group.shards())?;
            let (each, own) = (config.train.batch / group.shards(), group.own());
            batches = batches.only(own.start * each..own.end * each);
        }
        let store = model.initial_in_group(device, 0, batches.at(0), group)?;
        let step = Step::in_group(device, &model, &config.train, group)?;
        batches.put_on(device)?;
        Ok(Bench {
            config,
            model,
            batches,
            store,
            step,
        })
    }

    fn input(&self, step: u64) -> StepInput {
        StepInput {
            seed: 0,
            step,
            lr: self.config.train.lr,
            tau: 0.5,
            kl_weight: 1.0,
        }
    }

    /// Makes the steps from `first` on.
    fn burst(&mut self, first: u64, count: usize) -> Result<Vec<StepOutcome>> {
        let inputs: Vec<StepInput> = (first..first + count as u64)
            .map(|step| self.input(step))
            .collect();
        self.step.burst(&mut self.store, &mut self.batches, &inputs)
    }

    fn profile(&mut self, at: u64) -> Result<Profile> {
        let input = self.input(at);
        let images = self.batches.at(at);
        let kinds = self
            .step
            .profile(&mut self.store, images, &input, PROFILED)?;
        let sums = self.step.sum_times(&mut self.store, images, &input)?;
        Ok(Profile {
            kinds,
            kernels: self.step.program().kernels(),
            sums,
        })
    }
}

impl StepBench {
    /// The configuration of the model that is measured.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        let per_scale = (self.layers / 4).max(1);
        let maps = (0..self.layers)
            .map(|l| 16 >> (l / per_scale).min(3))
            .collect();
        config.model = ModelConfig {
            maps,
            channels: self.channels,
            embed: self.embed,
            codes: Codes::Same(self.codes),
            grow: Grow::Nearest,
            free_bits: 0.0,
            ..config.model
        };
        config.train.batch = self.batch;
        config.train.optimiser = self.optimiser;
        config
    }

    /// Times training steps. `begun` is when the program started. The profile is only taken where `profiled`.
    pub fn step(
        &self,
        device: &Device,
        begun: Instant,
        profiled: bool,
        group: Option<&Group>,
    ) -> Result<(StepReport, Option<Profile>)> {
        let config = self.config();
        config.validate()?;
        let data = Noise::new(&config);
        let mut bench = Bench::new(device, config, &data, group)?;
        bench.burst(0, 1)?;
        let first_step_seconds = begun.elapsed().as_secs_f64();
        bench.burst(1, WARM as usize - 1)?;
        let (mut done, mut loss) = (0, 0.0);
        let begin = Instant::now();
        while done < self.steps {
            let count = AT_ONCE.min(self.steps - done);
            let outcomes = bench.burst(WARM + done as u64, count)?;
            loss = outcomes.last().map_or(loss, |outcome| outcome.loss);
            done += count;
        }
        let seconds = begin.elapsed().as_secs_f64() / self.steps as f64;
        let program = bench.step.program();
        let report = StepReport {
            ms_per_step: seconds * 1e3,
            images_per_second: self.batch as f64 / seconds,
            first_step_seconds,
            parameters: bench.model.layout.count(),
            plan_bytes: bench.step.bytes(),
            kernels: program.kernels(),
            loss,
            flops: program.flops(),
        };
        let profile = match profiled {
            true => Some(bench.profile(WARM + self.steps as u64)?),
            false => None,
        };
        Ok((report, profile))
    }

    /// Times scoring with hard samples, forward only, in batches.
    pub fn eval(&self, device: &Device, begun: Instant) -> Result<StepReport> {
        let config = self.config();
        config.validate()?;
        let data = Noise::new(&config);
        let model = Model::new(&config.model);
        let mut store = Store::with("theta", model.layout.initial(0));
        let mut scorer = Scorer::new(device, &model, self.batch)?;
        let images = bank::put(device, &data, Split::Test, self.batch)?;
        let mut score = |first: usize, count: usize| -> Result<Vec<Scores>> {
            let batches: Vec<(u32, usize, Vec<u32>)> = (first..first + count)
                .map(|i| (0, self.batch, counter(EVALUATION_SEED, i as u64).to_vec()))
                .collect();
            scorer.replay(&mut store, &images, &batches)
        };
        score(0, 1)?;
        let first_step_seconds = begun.elapsed().as_secs_f64();
        score(1, WARM as usize - 1)?;
        let (mut done, mut nats) = (0, 0.0);
        let begin = Instant::now();
        while done < self.steps {
            let count = AT_ONCE.min(self.steps - done);
            nats = score(WARM as usize + done, count)?
                .last()
                .map_or(nats, cost_of);
            done += count;
        }
        let seconds = begin.elapsed().as_secs_f64() / self.steps as f64;
        let program = scorer.program();
        Ok(StepReport {
            ms_per_step: seconds * 1e3,
            images_per_second: self.batch as f64 / seconds,
            first_step_seconds,
            parameters: model.layout.count(),
            plan_bytes: scorer.bytes(),
            kernels: program.kernels(),
            loss: nats / (self.batch as f64 * nats_per_dim(&config.model)),
            flops: program.flops(),
        })
    }

    /// Where the time of a training step goes, kind by kind.
    pub fn profile(&self, device: &Device, group: Option<&Group>) -> Result<Profile> {
        let config = self.config();
        config.validate()?;
        let data = Noise::new(&config);
        let mut bench = Bench::new(device, config, &data, group)?;
        bench.burst(0, WARM as usize)?;
        bench.profile(WARM)
    }
}

/// The negative ELBO of all images of a batch, in nats.
fn cost_of(scores: &Scores) -> f64 {
    let total = |values: &[f32]| values.iter().map(|v| *v as f64).sum::<f64>();
    scores.kl.iter().map(|kl| total(kl)).sum::<f64>() - total(&scores.log_likelihood)
}

/// One batch of images without structure, the same every time.
struct Noise {
    shape: [usize; 3],
    images: Vec<u8>,
}

impl Noise {
    fn new(config: &Config) -> Self {
        let size = config.model.size;
        let shape = [size, size, config.model.image_channels];
        let len = config.train.batch * shape.iter().product::<usize>();
        let byte = |i: usize| philox4x32_10([i as u32, 0, 0, 0], [1, 0])[0] as u8;
        Noise {
            shape,
            images: (0..len).map(byte).collect(),
        }
    }
}

impl Dataset for Noise {
    fn name(&self) -> &str {
        "noise"
    }

    fn len(&self, _: Split) -> usize {
        self.images.len() / self.shape.iter().product::<usize>()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn read(&self, _: Split, index: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.images[index * out.len()..][..out.len()]);
    }

    fn may_flip(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: StepBench = StepBench {
        layers: 4,
        channels: 8,
        embed: 4,
        codes: 8,
        batch: 4,
        steps: 3,
        optimiser: Optimiser::Muon,
    };

    #[test]
    fn every_benchmark_runs_and_tells_numbers_that_fit_together() {
        let begun = Instant::now();
        let (step, profile) = SMALL.step(&Device::Cpu, begun, true, None).unwrap();
        let eval = SMALL.eval(&Device::Cpu, begun).unwrap();
        for report in [&step, &eval] {
            let product = report.ms_per_step * report.images_per_second;
            assert!((product - 4000.0).abs() < 1e-6, "{report:?}");
            assert!(report.loss.is_finite() && report.plan_bytes > 0);
        }
        assert!(eval.flops > 0.0 && eval.flops < step.flops / 2.0);
        assert!(eval.first_step_seconds > step.first_step_seconds);
        for profile in [profile.unwrap(), SMALL.profile(&Device::Cpu, None).unwrap()] {
            let flops: f64 = profile.kinds.iter().map(|kind| kind.flops).sum();
            let launches: usize = profile.kinds.iter().map(|kind| kind.launches).sum();
            assert_eq!((flops, launches), (step.flops, step.kernels));
        }
    }
}
