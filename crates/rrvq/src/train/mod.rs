//! Training: from a configuration to a run folder.
//!
//! Everything a step does is a function of the configuration, the seed and the step's number, so that a run
//! which is stopped and resumed writes the same bytes as one that was not.

pub mod batches;
pub mod checkpoint;
mod due;
pub mod log;
mod scalars;
pub mod schedule;
mod split;
pub mod tensorboard;

use crate::config::Config;
use crate::dataset::{Dataset, Split, check_held_out, check_shape};
use crate::error::{Error, Result};
use crate::evaluate::{Evaluator, Extent};
use crate::files::write_atomic;
use crate::latent;
use crate::model::hierarchy::nats_per_dim;
use crate::picture::{Picture, comfortable_scale, grid};
use crate::programs::{Model, Sampler, Step, StepInput, StepOutcome};
use crate::run::{Existing, Run};
use crate::sample::samples_with;
use batches::Batches;
use checkpoint::{Progress, load_state, save};
use due::{is_early, next_stop, sample_every};
use log::{DivergedRecord, EvalRecord, Log, Record, SplitRecord, TrainRecord, Usage};
use rrvq_tensor::{Device, Store};
use split::Splitter;
use std::path::PathBuf;
use std::time::Instant;
use tensorboard::EventWriter;

/// What to train and where.
#[derive(Clone, Debug)]
pub struct Job {
    pub config: Config,
    pub out: PathBuf,
    pub existing: Existing,
    pub tensorboard: bool,
    /// What computes. Only the CPU gives the same bits again.
    pub device: Device,
    /// Seconds of steps after which it evaluates, saves and ends.
    pub seconds: Option<f64>,
}

/// Who follows a run: a terminal, a test, a notebook.
pub trait Watch {
    /// Before the first step.
    fn started(&mut self, _start: &Started) {}
    /// After every step.
    fn stepped(&mut self, _step: usize, _outcome: &StepOutcome) {}
    /// After an evaluation; early in a run, of a few training images.
    fn evaluated(&mut self, _record: &EvalRecord) {}
    fn saved(&mut self, _step: usize) {}
    /// Asked after every step, or every second where steps come in bursts; a run that is told to stop saves first.
    fn stop(&self) -> bool {
        false
    }
}

/// Follows nothing.
pub struct Silent;
impl Watch for Silent {}

/// What is known before the first step.
#[derive(Clone, Debug)]
pub struct Started {
    pub parameters: usize,
    /// Bytes of the one allocation a step works in.
    pub arena_bytes: usize,
    /// Seconds of drawing, compiling and initialising.
    pub seconds: f64,
    /// Steps made before, when resuming.
    pub from: usize,
    pub steps: usize,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Finished {
    pub run: Run,
    pub step: usize,
    /// Told to stop before the last step.
    pub interrupted: bool,
    pub last: Option<EvalRecord>,
}

/// Trains as the job says; ends early, saved, when the watcher says so.
pub fn train(job: &Job, data: &dyn Dataset, watch: &mut dyn Watch) -> Result<Finished> {
    job.config.validate()?;
    check_shape(data, &job.config.model)?;
    check_held_out(data, &job.config.data)?;
    let run = Run::create(&job.out, job.existing)?;
    let mut trainer = Trainer::new(job, data, run)?;
    watch.started(&trainer.started());
    trainer.go_on(watch)
}

/// Whether there is a checkpoint to go on from. A run that was killed before its first one starts again; one that
/// has a model but lost its state must not, as that would replace the model.
pub(crate) fn goes_on(existing: Existing, run: &Run) -> Result<bool> {
    if existing != Existing::Resume || run.state().exists() {
        return Ok(existing == Existing::Resume);
    }
    match run.model().exists() {
        false => Ok(false),
        true => Err(Error::new(format!(
            "{} is missing, so the run cannot go on; restore it from a copy, or start again with --overwrite",
            run.state().display()
        ))),
    }
}

struct Trainer<'a> {
    device: &'a Device,
    seconds: Option<f64>,
    config: &'a Config,
    run: Run,
    model: Model,
    step: Step,
    evaluator: Evaluator<'a>,
    sampler: Sampler,
    batches: Batches<'a>,
    /// Where codes are split.
    splitter: Option<Splitter>,
    store: Store,
    /// The weights that are looked at: averaged ones, or raw ones on trial. Always this store, so that a device
    /// finds them at the same address.
    shown: Store,
    progress: Progress,
    log: Log,
    events: Option<EventWriter>,
    /// Step of the newest checkpoint.
    saved: Option<u64>,
    last: Option<EvalRecord>,
    setup: f64,
    /// Seconds of the last step, once there was one.
    pace: Option<f64>,
    /// Steps that were skipped since the last record, and in a row.
    skipped: usize,
    skipped_in_a_row: usize,
}

/// Most steps of a burst, and about how many seconds it may take: a run is told to stop in between.
const BURST: u64 = 256;
const BURST_SECONDS: f64 = 1.0;

/// A run that skips this many steps in a row has come to a stop.
const MOST_SKIPPED: usize = 100;

/// Samples in a picture drawn while training.
const SAMPLES: usize = 64;

impl<'a> Trainer<'a> {
    fn new(job: &'a Job, data: &'a dyn Dataset, run: Run) -> Result<Self> {
        let begin = Instant::now();
        let (config, device) = (&job.config, &job.device);
        let model = Model::new(&config.model);
        let train = &config.train;
        let mut batches = Batches::new(data, train.seed, train.batch, config.data.flip);
        let resuming = goes_on(job.existing, &run)?;
        let (store, progress) = match resuming {
            true => load_state(&run, model.kept())?,
            false => (
                model.initial(device, train.seed, batches.at(0))?,
                Progress::default(),
            ),
        };
        let text = config.to_toml()?;
        write_atomic(run.config(), |file| file.write_all(text.as_bytes()))?;
        let log = match resuming {
            true => Log::resume(run.log(), progress.step as usize)?,
            false => Log::create(run.log())?,
        };
        let events = match job.tensorboard {
            true => Some(EventWriter::create(run.dir())?),
            false => None,
        };
        let step = Step::new(device, &model, train)?;
        let evaluator = Evaluator::new(device, &model, data, train.batch)?;
        // On a GPU, maps of the step's own size: their engines are chosen already. The first pictures are the same.
        let pictures = match device.is_cpu() {
            true => SAMPLES,
            false => train.batch.max(SAMPLES),
        };
        let sampler = Sampler::new(device, &model, pictures)?;
        // Last: what the programs leave of the device's memory is the images'.
        batches.put_on_if_useful(device)?;
        Ok(Trainer {
            device,
            seconds: job.seconds,
            step,
            evaluator,
            sampler,
            saved: resuming.then_some(progress.step),
            last: None,
            splitter: (train.split_every > 0).then(|| Splitter::new(&model)),
            setup: begin.elapsed().as_secs_f64(),
            config,
            run,
            model,
            batches,
            store,
            shown: Store::default(),
            pace: None,
            skipped: 0,
            skipped_in_a_row: 0,
            progress,
            log,
            events,
        })
    }

    fn started(&self) -> Started {
        Started {
            parameters: self.model.layout.count(),
            arena_bytes: self.step.bytes(),
            seconds: self.setup,
            from: self.progress.step as usize,
            steps: self.config.train.steps,
        }
    }

    fn go_on(&mut self, watch: &mut dyn Watch) -> Result<Finished> {
        let train = &self.config.train;
        let steps = train.steps as u64;
        // Steps since the last record, and the seconds they took: evaluations, pictures and saves do not count.
        let (mut since, mut spent, mut interrupted) = (0, 0.0, false);
        let end = self.seconds.map(|s| self.progress.seconds + s);
        while self.progress.step < steps && !interrupted {
            let begin = Instant::now();
            let outcomes = self.burst()?;
            let seconds = begin.elapsed().as_secs_f64();
            self.pace = Some(seconds / outcomes.len() as f64);
            self.progress.seconds += seconds;
            since += outcomes.len();
            spent += seconds;
            for outcome in &outcomes {
                self.progress.step += 1;
                self.follow(outcome)?;
                watch.stepped(self.progress.step as usize, outcome);
            }
            let done = self.progress.step as usize;
            let over = end.is_some_and(|end| self.progress.seconds >= end);
            interrupted = (over || watch.stop()) && self.progress.step < steps;
            let due = |every: usize| {
                over || done == train.steps || (every > 0 && done.is_multiple_of(every))
            };
            self.split_if_due()?;
            let save_now = due(train.save_every) || interrupted;
            if save_now {
                self.prove()?;
            }
            if due(train.log_every) {
                let speed = (since * train.batch) as f64 / spent;
                if let Some(outcome) = outcomes.last() {
                    self.record(outcome, speed)?;
                }
                (since, spent) = (0, 0.0);
            }
            if due(train.eval_every) {
                let record = self.evaluate()?;
                watch.evaluated(&record);
            } else if is_early(train, self.progress.step) {
                let record = self.evaluate_early()?;
                watch.evaluated(&record);
            }
            if due(sample_every(train)) {
                self.draw_samples()?;
            }
            if save_now {
                save(
                    &self.run,
                    self.model.kept(),
                    &mut self.store,
                    &self.progress,
                    &[],
                )?;
                self.saved = Some(self.progress.step);
                watch.saved(done);
            }
        }
        let step = self.progress.step as usize;
        Ok(Finished {
            run: self.run.clone(),
            step,
            interrupted,
            last: self.last.clone(),
        })
    }

    /// Gives codes that are hardly used a half of others, every so many steps of the first three quarters: the last one
    /// is for twins to settle in.
    fn split_if_due(&mut self) -> Result<()> {
        let (train, done) = (&self.config.train, self.progress.step as usize);
        let Some(splitter) = &self.splitter else {
            return Ok(());
        };
        if !done.is_multiple_of(train.split_every) || 4 * done > 3 * train.steps {
            return Ok(());
        }
        let begin = Instant::now();
        let extent = Extent {
            split: Split::Train,
            images: splitter.images,
        };
        self.shown.copy_from("theta", &self.store, "theta")?;
        let tally = self.evaluator.tally(&mut self.shown, extent, |_| {})?;
        let codes = splitter.split(&mut self.store, &tally, train.seed, self.progress.step)?;
        if let Some(events) = &mut self.events {
            let all = codes.iter().sum::<usize>() as f64;
            events.scalars(done, [("train/split_codes", all)])?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.progress.seconds += seconds;
        self.log.write(&Record::Split(SplitRecord {
            step: done,
            codes,
            usage: tally.iter().map(|counts| Usage::of(counts)).collect(),
            seconds,
        }))
    }

    /// Makes the next steps, up to the next one that something is due after.
    fn burst(&mut self) -> Result<Vec<StepOutcome>> {
        let (first, train) = (self.progress.step, &self.config.train);
        let most = match (self.device.is_cpu(), self.pace) {
            (false, Some(pace)) => ((BURST_SECONDS / pace) as u64).clamp(1, BURST),
            _ => 1,
        };
        let end = (first + most).min(next_stop(train, first));
        let inputs: Vec<StepInput> = (first..end).map(|step| self.input(step)).collect();
        self.step.burst(&mut self.store, &mut self.batches, &inputs)
    }

    fn input(&self, step: u64) -> StepInput {
        let (train, at) = (&self.config.train, step as usize);
        StepInput {
            seed: train.seed,
            step,
            lr: schedule::learning_rate(train, &self.progress.plateau, at),
            kl_weight: schedule::kl_weight(train, at),
            tau: schedule::temperature(&self.config.model.temperature, train.steps, at),
        }
    }

    /// Counts a step that was skipped, and ends a run that cannot go on.
    fn follow(&mut self, outcome: &StepOutcome) -> Result<()> {
        if !outcome.skipped {
            self.skipped_in_a_row = 0;
            return match outcome.trouble() {
                Some(place) => Err(self.diverged(&place)),
                None => Ok(()),
            };
        }
        self.skipped += 1;
        self.skipped_in_a_row += 1;
        if self.skipped_in_a_row < MOST_SKIPPED {
            return Ok(());
        }
        let limit = self.config.train.skip_norm;
        let what = format!(
            "{MOST_SKIPPED} steps in a row had a gradient norm of at least train.skip_norm = {limit}, the last one {}, and \
             were skipped",
            outcome.grad_norm
        );
        let advice = "raise train.skip_norm, lower train.lr or lengthen train.warmup";
        let (step, saved) = (self.progress.step, self.saved);
        Err(stopped(
            &mut self.log,
            &self.run,
            (step, saved),
            "the gradient",
            &what,
            advice,
        ))
    }

    /// Refuses weights that cannot make one more step: a step tells of the weights before it, and those after it
    /// are about to be saved.
    fn prove(&mut self) -> Result<()> {
        let extent = Extent {
            split: self.config.data.evaluation_split(),
            images: self.config.train.batch,
        };
        self.show("theta")?;
        let found = self.evaluator.evaluate(&mut self.shown, extent)?;
        let outcome = StepOutcome {
            loss: found.bits_per_dim,
            log_likelihood: -found.reconstruction,
            kl: found.kl,
            grad_norm: 0.0,
            skipped: false,
        };
        match outcome.trouble() {
            None => Ok(()),
            Some(place) => Err(self.diverged(&place)),
        }
    }

    /// The sentence that ends a run.
    fn diverged(&mut self, place: &str) -> Error {
        let model = &self.config.model;
        let known = latent::of(model).instability(model);
        let besides = known.map(|known| format!("; {known}")).unwrap_or_default();
        let advice = format!("lower train.lr or train.clip, or lengthen train.warmup{besides}");
        diverged(
            &mut self.log,
            &self.run,
            self.progress.step,
            self.saved,
            place,
            &advice,
        )
    }

    fn record(&mut self, outcome: &StepOutcome, images_per_second: f64) -> Result<()> {
        let unit = nats_per_dim(&self.config.model);
        let kl: Vec<f64> = outcome.kl.iter().map(|v| v / unit).collect();
        let reconstruction = -outcome.log_likelihood / unit;
        let made = self.progress.step as usize;
        let record = TrainRecord {
            step: made,
            loss: outcome.loss,
            bits_per_dim: reconstruction + kl.iter().sum::<f64>(),
            reconstruction,
            kl,
            grad_norm: outcome.grad_norm,
            skipped: std::mem::take(&mut self.skipped),
            lr: schedule::learning_rate(&self.config.train, &self.progress.plateau, made - 1),
            temperature: schedule::temperature(
                &self.config.model.temperature,
                self.config.train.steps,
                made - 1,
            ),
            images_per_second,
            seconds: self.progress.seconds,
        };
        if let Some(events) = &mut self.events {
            let scalars = scalars::of_training(&record);
            events.scalars(made, scalars.iter().map(|(tag, v)| (tag.as_str(), *v)))?;
        }
        self.log.write(&Record::Train(record))
    }

    /// Takes the raw weights (`theta`) or the averaged ones (`ema`) as those that evaluation and sampling read.
    fn show(&mut self, which: &str) -> Result<()> {
        Ok(self.shown.copy_from("theta", &self.store, which)?)
    }

    fn evaluate(&mut self) -> Result<EvalRecord> {
        let (split, images) = (
            self.config.data.evaluation_split(),
            self.config.train.eval_images,
        );
        let record = self.evaluate_on("eval", Extent { split, images })?;
        self.progress
            .plateau
            .observe(&self.config.train, record.bits_per_dim);
        self.log.write(&Record::Eval(record.clone()))?;
        self.last = Some(record.clone());
        Ok(record)
    }

    /// What becomes of each layer, on a few training images.
    fn evaluate_early(&mut self) -> Result<EvalRecord> {
        let (split, images) = (Split::Train, self.config.train.early_images);
        let record = self.evaluate_on("early", Extent { split, images })?;
        self.log.write(&Record::Early(record.clone()))?;
        Ok(record)
    }

    /// An evaluation of the averaged weights; `name` begins the tags of its events.
    fn evaluate_on(&mut self, name: &str, extent: Extent) -> Result<EvalRecord> {
        self.show("ema")?;
        let mut record = self.evaluator.evaluate(&mut self.shown, extent)?;
        record.step = self.progress.step as usize;
        if let Some(events) = &mut self.events {
            let scalars = scalars::of_evaluation(name, &record);
            let scalars = scalars.iter().map(|(tag, v)| (tag.as_str(), *v));
            events.scalars(record.step, scalars)?;
        }
        Ok(record)
    }

    fn draw_samples(&mut self) -> Result<()> {
        self.show("ema")?;
        let seed = self.config.train.seed;
        let pictures = samples_with(
            &mut self.sampler,
            &self.model,
            &mut self.shown,
            SAMPLES,
            seed,
            1.0,
        )?;
        let sheet: Picture = grid(&pictures, 8, 2, comfortable_scale(self.config.model.size))?;
        let step = self.progress.step as usize;
        sheet.save(self.run.sample(step))?;
        if let Some(events) = &mut self.events {
            events.image(step, "samples", &sheet)?;
        }
        Ok(())
    }
}

/// Says that a run left the finite numbers, and where; the log gets the sentence too. `saved` is the step of its newest
/// checkpoint.
pub(crate) fn diverged(
    log: &mut Log,
    run: &Run,
    step: u64,
    saved: Option<u64>,
    place: &str,
    advice: &str,
) -> Error {
    let what = format!("training left the finite numbers at step {step}, first in {place}");
    stopped(log, run, (step, saved), place, &what, advice)
}

/// The same for any reason, `what`.
fn stopped(
    log: &mut Log,
    run: &Run,
    (step, saved): (u64, Option<u64>),
    place: &str,
    what: &str,
    advice: &str,
) -> Error {
    let kept = match saved {
        Some(saved) => format!(
            "the checkpoint of step {saved} in {} is untouched",
            run.state().display()
        ),
        None => "no checkpoint had been written yet".into(),
    };
    let said = format!("{what}; {kept}; {advice}");
    // Whether or not the log can be written, the sentence is what must be said.
    let _ = log.write(&Record::Diverged(DivergedRecord {
        step: step as usize,
        place: place.into(),
        said: said.clone(),
    }));
    Error::new(said)
}
