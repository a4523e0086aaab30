//! Training a model on images.

use super::checkpoint::Kept;
use super::log::SplitRecord;
use super::schedule;
use super::split::Splitter;
use super::task::{SAMPLES, Task};
use crate::config::{Config, ModelConfig, TrainConfig};
use crate::dataset::{Batches, Dataset, Split};
use crate::error::Result;
use crate::evaluate::{EvalRecord, Evaluator, Extent, Usage};
use crate::latent;
use crate::picture::Picture;
use crate::programs::{Model, Sampler, Step, StepInput, StepOutcome};
use crate::sample::samples_with;
use crate::trained::SampleOptions;
use rrvq_tensor::{Device, Group, Store};
use std::time::Instant;

/// A model's programs, and the images it sees.
pub(super) struct ModelTask<'a> {
    config: Config,
    pub model: Model,
    step: Step,
    evaluator: Evaluator<'a>,
    sampler: Sampler,
    batches: Batches<'a>,
    splitter: Option<Splitter>,
}

impl<'a> ModelTask<'a> {
    /// `model` with its programs compiled.
    pub fn new(
        config: &Config,
        model: Model,
        mut batches: Batches<'a>,
        data: &'a dyn Dataset,
        device: &Device,
        group: Option<&Group>,
    ) -> Result<Self> {
        let train = &config.train;
        let step = Step::in_group(device, &model, train, group)?;
        let evaluator =
            Evaluator::for_objective(device, &model, data, train.batch, train.objective, group)?;
        // On a GPU, maps of the step's own size: their engines are chosen already. The first pictures are the same.
        let pictures = match device.is_cpu() {
            true => SAMPLES,
            false => (train.batch / group.map_or(1, Group::shards)).max(SAMPLES),
        };
        let shows = SampleOptions::default().shown(&model.config);
        let sampler = Sampler::new(device, &model, pictures, shows)?;
        // Last: what the programs leave of the device's memory is the images'.
        batches.put_on_if_useful(device)?;
        Ok(ModelTask {
            splitter: (train.split_every > 0).then(|| Splitter::new(&model)),
            config: config.clone(),
            model,
            step,
            evaluator,
            sampler,
            batches,
        })
    }
}

impl Task for ModelTask<'_> {
    fn settings(&self) -> &TrainConfig {
        &self.config.train
    }

    fn set_steps(&mut self, steps: usize) {
        self.config.train.steps = steps;
    }

    fn model(&self) -> &ModelConfig {
        &self.config.model
    }

    fn kept(&self) -> Kept<'_> {
        self.model.kept()
    }

    fn bytes(&self) -> usize {
        self.step.bytes()
    }

    fn burst(&mut self, store: &mut Store, inputs: &[StepInput]) -> Result<Vec<StepOutcome>> {
        self.step.burst(store, &mut self.batches, inputs)
    }

    fn temperature(&self, step: usize) -> f64 {
        schedule::temperature(
            &self.config.model.temperature,
            self.config.train.steps,
            step,
        )
    }

    /// Every so many steps of the first three quarters: the last one is for the halves of codes to settle in.
    fn split(
        &mut self,
        store: &mut Store,
        shown: &mut Store,
        step: u64,
    ) -> Result<Option<SplitRecord>> {
        let (train, done) = (&self.config.train, step as usize);
        let Some(splitter) = &self.splitter else {
            return Ok(None);
        };
        if !done.is_multiple_of(train.split_every) || 4 * done > 3 * train.steps {
            return Ok(None);
        }
        let begin = Instant::now();
        let extent = Extent {
            split: Split::Train,
            images: splitter.images,
        };
        shown.copy_from("theta", store, "theta")?;
        let tally = self.evaluator.tally(shown, extent, |_| {})?;
        let codes = splitter.split(store, &tally, train.seed, step)?;
        Ok(Some(SplitRecord {
            step: done,
            codes,
            usage: tally.iter().map(|counts| Usage::of(counts)).collect(),
            seconds: begin.elapsed().as_secs_f64(),
        }))
    }

    fn extent(&self) -> Extent {
        Extent {
            split: self.config.data.evaluation_split(),
            images: self.config.train.eval_images,
        }
    }

    fn evaluate(&mut self, shown: &mut Store, extent: Extent) -> Result<EvalRecord> {
        self.evaluator.evaluate(shown, extent)
    }

    fn not_finite(&mut self, shown: &mut Store) -> Result<Option<String>> {
        let extent = Extent {
            images: self.config.train.batch,
            ..self.extent()
        };
        let found = self.evaluator.evaluate(shown, extent)?;
        let outcome = StepOutcome {
            loss: found.bits_per_dim,
            log_likelihood: -found.reconstruction,
            kl: found.kl,
            grad_norm: 0.0,
            skipped: false,
        };
        Ok(outcome.not_finite())
    }

    fn samples(&mut self, shown: &mut Store) -> Result<Vec<Picture>> {
        let options = SampleOptions {
            seed: self.config.train.seed,
            ..SampleOptions::default()
        };
        samples_with(
            &mut self.sampler,
            &self.model,
            shown,
            SAMPLES,
            options,
            None,
        )
    }

    fn advice(&self) -> String {
        let model = &self.config.model;
        let known = latent::of(model).instability(model);
        let besides = known.map(|known| format!("; {known}")).unwrap_or_default();
        format!("lower train.lr or train.clip, or lengthen train.warmup{besides}")
    }
}
