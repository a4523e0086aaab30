//! Training a prior: from a finished run to its folder `prior`.
//!
//! The codes of a step's images are found anew each time, by the encoder that no longer changes; mirrored images need
//! no list of their own, and a resumed run needs no history. Evaluations add the reconstruction, which was measured
//! once, so that the bits told are those of both stages.

use super::programs::{PriorModel, PriorSampler, PriorScorer, PriorStep};
use super::{CODES_OF, check_kind, fingerprint};
use crate::config::{Config, TrainConfig};
use crate::dataset::{Dataset, check_held_out, check_shape};
use crate::error::{Error, Result};
use crate::evaluate::{Evaluator, Extent, each_batch};
use crate::files::write_atomic;
use crate::model::hierarchy::{dims, nats_per_dim};
use crate::picture::{comfortable_scale, grid};
use crate::programs::{Coder, Decoder, Model, StepOutcome};
use crate::run::{Existing, Run};
use crate::sample::pictures_of;
use crate::train::batches::Batches;
use crate::train::checkpoint::{Kept, Progress, load_state, load_weights, save};
use crate::train::log::{EvalRecord, Log, Record, TrainRecord};
use crate::train::schedule::learning_rate;
use crate::train::{Finished, Started, Watch, diverged, goes_on};
use rrvq_tensor::{Device, Store};
use std::path::PathBuf;
use std::time::Instant;

/// Which run's codes to learn, and how.
#[derive(Clone, Debug)]
pub struct PriorJob {
    /// The run's folder.
    pub run: PathBuf,
    /// The run's configuration; its section `prior` says how.
    pub config: Config,
    /// What to do with a prior that is there already.
    pub existing: Existing,
    pub device: Device,
}

/// Samples in a picture drawn while training.
const SAMPLES: usize = 64;

/// Trains as the job says; ends early, saved, when the watcher says so.
pub fn train(job: &PriorJob, data: &dyn Dataset, watch: &mut dyn Watch) -> Result<Finished> {
    job.config.validate()?;
    check_shape(data, &job.config.model)?;
    check_held_out(data, &job.config.data)?;
    let run = Run::open(&job.run)?;
    check_kind(&run, &job.config)?;
    let model = Model::new(&job.config.model);
    let weights = load_weights(&run, &model.layout)?;
    let folder = Run::create(run.prior().dir(), job.existing)?;
    let mut trainer = Trainer::new(job, data, (model, weights.store), folder)?;
    watch.started(&trainer.started());
    trainer.go_on(watch)
}

struct Trainer<'a> {
    config: &'a Config,
    train: TrainConfig,
    folder: Run,
    /// The model whose codes are learnt, and its weights.
    model: Model,
    fixed: Store,
    prior: PriorModel,
    batches: Batches<'a>,
    coder: Coder,
    decoder: Decoder,
    step: PriorStep,
    scorer: PriorScorer,
    sampler: PriorSampler,
    store: Store,
    /// The averaged weights, for evaluation and samples.
    shown: Store,
    /// What the model itself does on the images of evaluations, and their codes.
    base: EvalRecord,
    eval_codes: Vec<u32>,
    codes_of: String,
    progress: Progress,
    log: Log,
    saved: Option<u64>,
    last: Option<EvalRecord>,
    setup: f64,
}

impl<'a> Trainer<'a> {
    fn new(
        job: &'a PriorJob,
        data: &'a dyn Dataset,
        (model, mut fixed): (Model, Store),
        folder: Run,
    ) -> Result<Self> {
        let begin = Instant::now();
        let (config, device) = (&job.config, &job.device);
        let train = config.prior.training();
        let batch = train.batch;
        let prior = PriorModel::new(&config.model, &config.prior);
        let codes_of = fingerprint(fixed.get("theta"));
        let mut batches = Batches::new(data, train.seed, batch, config.data.flip);
        let mut coder = Coder::new(device, &model, batch)?;
        let resuming = goes_on(job.existing, &folder)?;
        let (store, progress) = match resuming {
            true => {
                same_codes(&folder, &prior, &codes_of)?;
                load_state(&folder, kept(&prior))?
            }
            false => {
                let codes = coder.run(&mut fixed, batches.at(0))?;
                (
                    prior.initial(device, train.seed, &codes)?,
                    Progress::default(),
                )
            }
        };
        let extent = Extent {
            split: config.data.evaluation_split(),
            images: train.eval_images,
        };
        let base = Evaluator::new(device, &model, data, batch)?.evaluate(&mut fixed, extent)?;
        let mut eval_codes = Vec::new();
        each_batch(data, extent, batch, |_, images| {
            eval_codes.extend(coder.run(&mut fixed, images)?);
            Ok(())
        })?;
        let text = config.to_toml()?;
        write_atomic(folder.config(), |file| file.write_all(text.as_bytes()))?;
        let log = match resuming {
            true => Log::resume(folder.log(), progress.step as usize)?,
            false => Log::create(folder.log())?,
        };
        Ok(Trainer {
            decoder: Decoder::new(device, &model, SAMPLES)?,
            step: PriorStep::new(device, &prior)?,
            scorer: PriorScorer::new(device, &prior, batch)?,
            sampler: PriorSampler::new(device, &prior, SAMPLES)?,
            saved: resuming.then_some(progress.step),
            last: None,
            setup: begin.elapsed().as_secs_f64(),
            shown: Store::default(),
            config,
            train,
            folder,
            model,
            fixed,
            prior,
            batches,
            coder,
            store,
            base,
            eval_codes,
            codes_of,
            progress,
            log,
        })
    }

    fn started(&self) -> Started {
        Started {
            parameters: self.prior.layout.count(),
            arena_bytes: self.step.bytes(),
            seconds: self.setup,
            from: self.progress.step as usize,
            steps: self.train.steps,
        }
    }

    fn go_on(&mut self, watch: &mut dyn Watch) -> Result<Finished> {
        let steps = self.train.steps as u64;
        let (mut since, mut spent, mut interrupted) = (0, 0.0, false);
        while self.progress.step < steps && !interrupted {
            let begin = Instant::now();
            let outcome = self.one_step()?;
            let seconds = begin.elapsed().as_secs_f64();
            self.progress.seconds += seconds;
            self.progress.step += 1;
            since += 1;
            spent += seconds;
            if let Some(place) = outcome.trouble() {
                return Err(self.diverged(&place));
            }
            let done = self.progress.step as usize;
            watch.stepped(done, &outcome);
            interrupted = watch.stop() && self.progress.step < steps;
            let due = |every: usize| {
                done == self.train.steps || (every > 0 && done.is_multiple_of(every))
            };
            let evaluate_now = due(self.train.eval_every);
            let save_now = due(self.train.save_every) || interrupted;
            if due(self.train.log_every) {
                let speed = (since * self.train.batch) as f64 / spent;
                self.record(&outcome, speed)?;
                (since, spent) = (0, 0.0);
            }
            if evaluate_now {
                let record = self.evaluate()?;
                watch.evaluated(&record);
                self.draw_samples()?;
            }
            if save_now {
                self.prove()?;
                let note = [(CODES_OF, self.codes_of.as_str())];
                let (store, progress) = (&mut self.store, &self.progress);
                save(&self.folder, kept(&self.prior), store, progress, &note)?;
                self.saved = Some(self.progress.step);
                watch.saved(done);
            }
        }
        Ok(Finished {
            run: self.folder.clone(),
            step: self.progress.step as usize,
            interrupted,
            last: self.last.clone(),
        })
    }

    fn one_step(&mut self) -> Result<StepOutcome> {
        let step = self.progress.step;
        let images = self.batches.at(step);
        let codes = self.coder.run(&mut self.fixed, images)?;
        let lr = learning_rate(&self.train, &self.progress.plateau, step as usize);
        self.step.run(&mut self.store, &codes, step, lr)
    }

    /// Refuses weights that cannot make one more step, before they replace those that could.
    fn prove(&mut self) -> Result<()> {
        self.shown.copy_from("theta", &self.store, "theta")?;
        let few = self.eval_codes.len().min(self.prior.map.positions());
        let nats = self.scorer.run(&mut self.shown, &self.eval_codes[..few])?;
        match nats.iter().all(|v| v.is_finite()) {
            true => Ok(()),
            false => Err(self.diverged("the probabilities of the codes")),
        }
    }

    fn diverged(&mut self, place: &str) -> Error {
        let advice = "lower prior.lr or lengthen prior.warmup";
        let (step, saved) = (self.progress.step, self.saved);
        diverged(&mut self.log, &self.folder, step, saved, place, advice)
    }

    fn record(&mut self, outcome: &StepOutcome, images_per_second: f64) -> Result<()> {
        let made = self.progress.step as usize;
        self.log.write(&Record::Train(TrainRecord {
            step: made,
            loss: outcome.loss,
            bits_per_dim: self.base.reconstruction + outcome.loss,
            reconstruction: self.base.reconstruction,
            kl: vec![outcome.loss],
            grad_norm: outcome.grad_norm,
            skipped: 0,
            lr: learning_rate(&self.train, &self.progress.plateau, made - 1),
            temperature: 1.0,
            images_per_second,
            seconds: self.progress.seconds,
        }))
    }

    fn evaluate(&mut self) -> Result<EvalRecord> {
        let begin = Instant::now();
        self.shown.copy_from("theta", &self.store, "ema")?;
        let nats = self.scorer.run(&mut self.shown, &self.eval_codes)?;
        let total: f64 = nats.iter().map(|&v| v as f64).sum();
        let kl = total / (nats.len() as f64 * nats_per_dim(&self.config.model));
        let positions = self.prior.map.positions() as f64;
        let record = EvalRecord {
            step: self.progress.step as usize,
            bits_per_dim: self.base.reconstruction + kl,
            kl: vec![kl],
            position_bits: vec![kl * dims(&self.config.model) as f64 / positions],
            seconds: begin.elapsed().as_secs_f64(),
            ..self.base.clone()
        };
        self.log.write(&Record::Eval(record.clone()))?;
        self.last = Some(record.clone());
        Ok(record)
    }

    fn draw_samples(&mut self) -> Result<()> {
        self.shown.copy_from("theta", &self.store, "ema")?;
        let (shown, seed) = (&mut self.shown, self.train.seed);
        let codes = self.sampler.run(shown, seed, 0, 1.0, &mut |_| {})?;
        let found = self.decoder.run(&mut self.fixed, &codes)?;
        let pictures = pictures_of(&self.model, &found)?;
        let sheet = grid(&pictures, 8, 2, comfortable_scale(self.config.model.size))?;
        sheet.save(self.folder.sample(self.progress.step as usize))
    }
}

fn kept(prior: &PriorModel) -> Kept<'_> {
    Kept {
        layout: &prior.layout,
        memories: &[],
    }
}

/// Refuses to go on with a prior that knows the codes of other weights.
fn same_codes(folder: &Run, prior: &PriorModel, codes_of: &str) -> Result<()> {
    let notes = load_weights(folder, &prior.layout)?.notes;
    match notes.get(CODES_OF).is_some_and(|noted| noted == codes_of) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "{} was trained on the codes of other weights than the run has now; train it again with --overwrite",
            folder.dir().display()
        ))),
    }
}
