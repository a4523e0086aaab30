//! Training a prior: from a finished run to its folder `prior`.
//!
//! The codes of a step's images are found anew each time, by the encoder that no longer changes; mirrored images need
//! no list of their own, and a resumed run needs no history. Evaluations add the reconstruction, which was measured
//! once, so that the bits told are those of both stages.

use super::programs::{PriorModel, PriorSampler, PriorScorer, PriorStep};
use super::{CODES_OF, check_kind, fingerprint};
use crate::config::{Config, ModelConfig, TrainConfig};
use crate::dataset::{Batches, Dataset, check_held_out, check_shape};
use crate::error::{Error, Remedy, Result};
use crate::evaluate::{EvalRecord, Evaluator, Extent, each_batch};
use crate::likelihood::PixelValues;
use crate::model::hierarchy::{dims, nats_per_dim};
use crate::picture::Picture;
use crate::programs::{Decoder, Encoder, Model, StepInput, StepOutcome};
use crate::run::Run;
use crate::sample::pictures_of;
use crate::train::checkpoint::{Kept, Progress, load_state};
use crate::train::task::{SAMPLES, Task};
use crate::train::{TrainOptions, Trainer, batches_to_start, resuming};
use crate::weights::{load_weights, read};
use rrvq_tensor::{Device, Store};
use std::path::Path;
use std::time::Instant;

impl<'a> Trainer<'a> {
    /// Trains a prior over the codes of the run in the folder `run`, as the section `prior` of `config` says, into that
    /// folder; `options.out` is not read.
    pub fn prior(
        run: impl AsRef<Path>,
        config: &Config,
        data: &'a dyn Dataset,
        device: Device,
        options: TrainOptions,
    ) -> Result<Trainer<'a>> {
        config.validate()?;
        check_shape(data, &config.model)?;
        check_held_out(data, &config.data)?;
        let begin = Instant::now();
        let run = Run::open(run.as_ref())?;
        check_kind(&run, config)?;
        let model = Model::new(&config.model);
        let fixed = load_weights(&run, &model.layout)?.store;
        let folder = Run::create(run.prior().dir(), options.existing)?;
        let mut task = PriorTask::new(config, data, &device, (model, fixed))?;
        let state = match resuming(Some(&folder.0), options.existing)? {
            Some(folder) => {
                same_codes(folder, &task.prior, &task.codes_of)?;
                load_state(folder, task.kept())?
            }
            None => {
                let codes = task.first_codes()?;
                let first = task.prior.initial(&device, task.train.seed, &codes)?;
                (first, Progress::default())
            }
        };
        let place = (folder, &options);
        Trainer::of_task(Box::new(task), config, device, place, state, begin)
    }
}

/// A prior's programs, and the model whose codes it learns.
struct PriorTask<'a> {
    config: Config,
    train: TrainConfig,
    /// The model whose codes are learnt, and its weights.
    model: Model,
    fixed: Store,
    prior: PriorModel,
    batches: Batches<'a>,
    encoder: Encoder,
    decoder: Decoder,
    step: PriorStep,
    scorer: PriorScorer,
    sampler: PriorSampler,
    /// What the model itself does on the images of evaluations, and their codes.
    base: EvalRecord,
    eval_codes: Vec<u32>,
    codes_of: String,
}

impl<'a> PriorTask<'a> {
    /// The codes that gains and biases start by.
    fn first_codes(&mut self) -> Result<Vec<u32>> {
        let count = batches_to_start(self.train.batch, self.prior.map.positions());
        let mut codes = Vec::new();
        for step in 0..count {
            let images = self.batches.at(step as u64);
            codes.extend(self.encoder.bottom(&mut self.fixed, images)?);
        }
        Ok(codes)
    }

    fn new(
        config: &Config,
        data: &'a dyn Dataset,
        device: &Device,
        (model, mut fixed): (Model, Store),
    ) -> Result<Self> {
        let train = config.prior.training();
        let batch = train.batch;
        let prior = PriorModel::new(&config.model, &config.prior);
        let mut encoder = Encoder::new(device, &model, batch)?;
        let extent = extent(config, &train);
        let base = Evaluator::new(device, &model, data, batch)?.evaluate(&mut fixed, extent)?;
        let mut eval_codes = Vec::new();
        each_batch(data, extent, batch, |_, images| {
            eval_codes.extend(encoder.bottom(&mut fixed, images)?);
            Ok(())
        })?;
        Ok(PriorTask {
            decoder: Decoder::new(device, &model, SAMPLES, 1, PixelValues::Means)?,
            step: PriorStep::new(device, &prior)?,
            scorer: PriorScorer::new(device, &prior, batch)?,
            sampler: PriorSampler::new(device, &prior, SAMPLES)?,
            batches: Batches::new(data, train.seed, batch, config.data.flip),
            codes_of: fingerprint(fixed.get("theta")),
            config: config.clone(),
            train,
            model,
            fixed,
            prior,
            encoder,
            base,
            eval_codes,
        })
    }
}

fn extent(config: &Config, train: &TrainConfig) -> Extent {
    Extent {
        split: config.data.evaluation_split(),
        images: train.eval_images,
    }
}

impl Task for PriorTask<'_> {
    fn settings(&self) -> &TrainConfig {
        &self.train
    }

    fn set_steps(&mut self, steps: usize) {
        self.train.steps = steps;
    }

    fn model(&self) -> &ModelConfig {
        &self.config.model
    }

    fn kept(&self) -> Kept<'_> {
        Kept {
            layout: &self.prior.layout,
            memories: &[],
        }
    }

    fn bytes(&self) -> usize {
        self.step.bytes()
    }

    fn burst(&mut self, store: &mut Store, inputs: &[StepInput]) -> Result<Vec<StepOutcome>> {
        let likelihood = -self.base.reconstruction * nats_per_dim(&self.config.model);
        let mut one = |input: &StepInput| {
            let images = self.batches.at(input.step);
            let codes = self.encoder.bottom(&mut self.fixed, images)?;
            let outcome = self.step.run(store, &codes, input.step, input.lr)?;
            Ok(StepOutcome {
                log_likelihood: likelihood,
                ..outcome
            })
        };
        inputs.iter().map(&mut one).collect()
    }

    fn extent(&self) -> Extent {
        extent(&self.config, &self.train)
    }

    /// On the images that codes were found of once; early looks at training images are not for priors.
    fn evaluate(&mut self, shown: &mut Store, _extent: Extent) -> Result<EvalRecord> {
        let begin = Instant::now();
        let nats = self.scorer.run(shown, &self.eval_codes)?;
        let total: f64 = nats.iter().map(|&v| v as f64).sum();
        let kl = total / (nats.len() as f64 * nats_per_dim(&self.config.model));
        let positions = self.prior.map.positions() as f64;
        Ok(EvalRecord {
            bits_per_dim: self.base.reconstruction + kl,
            kl: vec![kl],
            position_bits: vec![kl * dims(&self.config.model) as f64 / positions],
            seconds: begin.elapsed().as_secs_f64(),
            ..self.base.clone()
        })
    }

    fn not_finite(&mut self, shown: &mut Store) -> Result<Option<String>> {
        let few = self.eval_codes.len().min(self.prior.map.positions());
        let nats = self.scorer.run(shown, &self.eval_codes[..few])?;
        let finite = nats.iter().all(|v| v.is_finite());
        Ok((!finite).then(|| "probability of the codes".into()))
    }

    fn samples(&mut self, shown: &mut Store) -> Result<Vec<Picture>> {
        let seed = self.train.seed;
        let codes = self.sampler.run(shown, seed, 0, 1.0, &mut |_| {})?;
        let found = self.decoder.run(&mut self.fixed, &[&codes], [0; 4], 1.0)?;
        pictures_of(&self.model, &found)
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![(CODES_OF, self.codes_of.clone())]
    }

    fn advice(&self) -> String {
        "lower prior.lr or lengthen prior.warmup".into()
    }
}

/// Refuses to go on with a prior that knows the codes of other weights.
fn same_codes(folder: &Run, prior: &PriorModel, codes_of: &str) -> Result<()> {
    let notes = match folder.model().exists() {
        true => load_weights(folder, &prior.layout)?.notes,
        // Killed between the two files of the first checkpoint; both have the notes.
        false => read(&folder.state())?.metadata,
    };
    match notes.get(CODES_OF).is_some_and(|noted| noted == codes_of) {
        true => Ok(()),
        false => Err(Error::with_remedy(
            format!(
                "{} was trained on the codes of other weights than the run has now",
                folder.dir().display()
            ),
            Remedy::TrainPrior,
        )),
    }
}
