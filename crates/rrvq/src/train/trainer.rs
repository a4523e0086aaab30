//! The one loop of training, for models and for priors over their codes.

use super::checkpoint::{Due, Progress, load_state, save};
use super::due::{is_early, next_stop, sample_every};
use super::log::{DivergedRecord, Log, Record, TrainRecord};
use super::model_task::ModelTask;
use super::pace::Pace;
use super::start::first_images;
use super::task::Task;
use super::tensorboard::EventWriter;
use super::together::{agreed, any, check_agreement, group_of};
use super::{Finished, Started, Watch, scalars, schedule};
use crate::config::Config;
use crate::dataset::{Batches, Dataset, Split, check_held_out, check_shape};
use crate::error::{Error, Remedy, Result};
use crate::evaluate::{EvalRecord, Extent};
use crate::files::{Lock, write_atomic};
use crate::interrupt::undisturbed;
use crate::model::hierarchy::nats_per_dim;
use crate::picture::{comfortable_scale, grid};
use crate::programs::{Model, StepInput, StepOutcome};
use crate::run::{Existing, Run};
use crate::trained::Trained;
use rrvq_tensor::{Collective, Device, Group, Store};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Most steps of a burst, and about how many seconds it may take: a run is told to stop in between.
const BURST: u64 = 256;
const BURST_SECONDS: f64 = 1.0;

/// A run that skips this many steps in a row has come to a stop.
const MOST_SKIPPED: usize = 100;

/// Where a training goes besides memory, and how long it may take.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// The run folder; without one, nothing is written.
    pub out: Option<PathBuf>,
    /// What to do with a run that is there already.
    pub existing: Existing,
    /// Whether TensorBoard's events are written beside the log.
    pub tensorboard: bool,
    /// Seconds of steps after which it evaluates, saves and ends.
    pub seconds: Option<f64>,
    /// The processes that train together ([`crate::cluster`]); the first of them writes the run folder.
    pub together: Option<Arc<dyn Collective>>,
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions {
            out: None,
            existing: Existing::Refuse,
            tensorboard: false,
            seconds: None,
            together: None,
        }
    }
}

/// What happened in a training.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step was made.
    Step {
        /// Steps made so far.
        step: usize,
        /// What it tells.
        outcome: StepOutcome,
    },
    /// An evaluation; early in a run, of a few training images.
    Evaluated(EvalRecord),
    /// A checkpoint was written after so many steps.
    Saved(usize),
}

/// The files of a run.
struct Folder {
    run: Run,
    log: Log,
    events: Option<EventWriter>,
    /// Step of the newest checkpoint.
    saved: Option<u64>,
    /// Keeps other processes out.
    _lock: Lock,
}

/// Trains a model step by step, on anybody's images.
///
/// ```
/// use rrvq::{Config, Device, Event, Trainer, dataset::Swatches};
///
/// let mut config = Config::preset("tiny-swatches")?;
/// config.set("train.steps=20")?;
/// let data = Swatches::new(config.model.size, 256, 64);
/// let mut trainer = Trainer::new(&config, &data, Device::Cpu)?;
/// let mut steps = 0;
/// while let Some(event) = trainer.step()? {
///     if let Event::Step { step, .. } = event {
///         steps = step;
///     }
/// }
/// assert_eq!(steps, 20);
/// let model = trainer.finish()?;
/// assert_eq!(model.step(), 20);
/// # Ok::<(), rrvq::Error>(())
/// ```
pub struct Trainer<'a> {
    task: Box<dyn Task + 'a>,
    config: Config,
    device: Device,
    group: Option<Group>,
    folder: Option<Folder>,
    store: Store,
    /// The weights that are looked at: averaged ones, or raw ones on trial. Always this store, so that a device
    /// finds them at the same address.
    shown: Store,
    progress: Progress,
    pending: VecDeque<Event>,
    last: Option<EvalRecord>,
    setup: f64,
    /// Seconds of the last step, once there was one.
    pace: Option<f64>,
    /// What a run that has minutes plans by.
    steady: Pace,
    /// Seconds of steps, all runs together, after which it ends.
    end: Option<f64>,
    stopped: bool,
    /// Steps since the last record, and the seconds they took: evaluations, pictures and saves do not count.
    since: usize,
    spent: f64,
    /// Steps that were skipped since the last record, and in a row.
    skipped: usize,
    skipped_in_a_row: usize,
}

impl<'a> Trainer<'a> {
    /// Trains in memory: nothing is written.
    pub fn new(config: &Config, data: &'a dyn Dataset, device: Device) -> Result<Self> {
        Trainer::with(config, data, device, TrainOptions::default())
    }

    /// Trains into a run folder, or on from one.
    pub fn with(
        config: &Config,
        data: &'a dyn Dataset,
        device: Device,
        options: TrainOptions,
    ) -> Result<Self> {
        config.validate()?;
        check_shape(data, &config.model)?;
        check_held_out(data, &config.data)?;
        let begin = Instant::now();
        let group = group_of(config, &device, &options)?;
        let group = group.as_ref();
        let first = group.is_none_or(|group| group.rank() == 0);
        let mut run = match &options.out {
            Some(out) if first => Some(Run::create(out, options.existing)?),
            _ => None,
        };
        // What the first process removes or refuses is not read by the others.
        group.map(|group| group.gather(&[])).transpose()?;
        let opened = match (&options.out, first) {
            (Some(out), false) => Run::open(out).ok(),
            _ => run.as_ref().map(|(run, _)| run.clone()),
        };
        let model = Model::new(&config.model);
        let train = &config.train;
        let mut batches = Batches::new(data, train.seed, train.batch, config.data.flip);
        if let Some(group) = group {
            let (each, own) = (train.batch / group.shards(), group.own());
            batches = batches.only(own.start * each..own.end * each);
        }
        let (store, progress) = match resuming(opened.as_ref(), options.existing)? {
            Some(run) => load_state(run, model.kept())?,
            None => {
                let images = first_images(config, &mut batches, group);
                let store = model.initial_in_group(&device, train.seed, &images, group)?;
                (store, Progress::default())
            }
        };
        check_agreement(group, &progress)?;
        let folder = open_folder(run.take(), config, &options, &progress)?;
        let task = ModelTask::new(config, model, batches, data, &device, group)?;
        let state = (store, progress);
        let setup = begin.elapsed().as_secs_f64();
        let trainer = Trainer::of(
            Box::new(task),
            config,
            device,
            folder,
            state,
            (setup, options.seconds),
        )?;
        Ok(Trainer {
            group: group.cloned(),
            ..trainer
        })
    }

    pub(crate) fn of_task(
        task: Box<dyn Task + 'a>,
        config: &Config,
        device: Device,
        (run, options): ((Run, Lock), &TrainOptions),
        state: (Store, Progress),
        begin: Instant,
    ) -> Result<Self> {
        let folder = open_folder(Some(run), config, options, &state.1)?;
        let setup = begin.elapsed().as_secs_f64();
        let times = (setup, options.seconds);
        Trainer::of(task, config, device, folder, state, times)
    }

    fn of(
        task: Box<dyn Task + 'a>,
        config: &Config,
        device: Device,
        folder: Option<Folder>,
        (store, progress): (Store, Progress),
        (setup, seconds): (f64, Option<f64>),
    ) -> Result<Self> {
        let mut trainer = Trainer {
            end: seconds.map(|s| progress.seconds + s),
            task,
            config: config.clone(),
            device,
            group: None,
            folder,
            store,
            shown: Store::default(),
            progress,
            pending: VecDeque::new(),
            last: None,
            setup,
            pace: None,
            steady: Pace::default(),
            stopped: false,
            since: 0,
            spent: 0.0,
            skipped: 0,
            skipped_in_a_row: 0,
        };
        // Killed after the state and before the model of the first checkpoint.
        let folder = trainer.folder.as_ref();
        if folder.is_some_and(|folder| folder.saved.is_some() && !folder.run.model().exists()) {
            trainer.write_checkpoint()?;
        }
        Ok(trainer)
    }

    /// What is known before the first step.
    pub fn started(&self) -> Started {
        Started {
            parameters: self.task.kept().layout.count(),
            arena_bytes: self.task.bytes(),
            seconds: self.setup,
            from: self.progress.step as usize,
            steps: self.task.settings().steps,
        }
    }

    /// Makes the next step, or tells the next thing that happened after one; nothing once training has ended.
    ///
    /// On a GPU several steps are made at once, and then told one by one.
    pub fn step(&mut self) -> Result<Option<Event>> {
        if self.pending.is_empty() && self.is_going() {
            self.advance()?;
        }
        Ok(self.pending.pop_front())
    }

    /// Ends training before its last step: evaluations that are due at the end are left out, a checkpoint is written.
    pub fn stop(&mut self) -> Result<()> {
        if self.is_going() {
            self.stopped = true;
            self.save()?;
        }
        Ok(())
    }

    /// Trains to the end, or until the watcher says stop, which saves first.
    pub fn run(&mut self, watch: &mut dyn Watch) -> Result<Finished> {
        watch.started(&self.started());
        while self.is_going() {
            match any(self.group.as_ref(), watch.stop())? {
                true => self.stop()?,
                false => self.advance()?,
            }
            if self.task.settings().minutes > 0.0 {
                watch.planned(self.task.settings().steps);
            }
            for event in self.pending.drain(..) {
                match event {
                    Event::Step { step, outcome } => watch.stepped(step, &outcome),
                    Event::Evaluated(record) => watch.evaluated(&record),
                    Event::Saved(step) => watch.saved(step),
                }
            }
        }
        Ok(Finished {
            run: self.folder.as_ref().map(|folder| folder.run.clone()),
            step: self.progress.step as usize,
            interrupted: self.stopped,
            last: self.last.clone(),
        })
    }

    /// The trained model: averaged weights.
    pub fn finish(mut self) -> Result<Trained> {
        self.store.fetch()?;
        let theta = self.store.get("ema").to_vec();
        let run = self.folder.map(|folder| folder.run);
        Trained::new(self.config, theta, self.progress.step, run).map(|t| t.on(self.device))
    }

    fn is_going(&self) -> bool {
        let left = self.progress.step < self.task.settings().steps as u64;
        !self.stopped && (left || self.progress.due.is_some())
    }

    /// Makes a burst of steps and does what is due after it, or what was left of that when the run was stopped.
    fn advance(&mut self) -> Result<()> {
        match self.progress.due.take() {
            Some(left) => self.follow_up(left, false),
            None => {
                let over = self.make_steps()?;
                self.follow_up(Due::Evaluation, over)
            }
        }
    }

    /// Makes a burst of steps; whether the time is over.
    fn make_steps(&mut self) -> Result<bool> {
        let begin = Instant::now();
        let outcomes = self.burst()?;
        let seconds = agreed(self.group.as_ref(), begin.elapsed().as_secs_f64())?;
        self.pace = Some(seconds / outcomes.len() as f64);
        self.progress.seconds += seconds;
        self.since += outcomes.len();
        self.spent += seconds;
        for outcome in &outcomes {
            self.progress.step += 1;
            self.follow(outcome)?;
            self.pending.push_back(Event::Step {
                step: self.progress.step as usize,
                outcome: outcome.clone(),
            });
        }
        self.follow_pace(seconds, outcomes.len());
        let train = self.task.settings().clone();
        let done = self.progress.step as usize;
        let over = self.end.is_some_and(|end| self.progress.seconds >= end);
        self.stopped = over && done < train.steps;
        let due =
            |every: usize| over || done == train.steps || (every > 0 && done.is_multiple_of(every));
        undisturbed(|| self.split_if_due())?;
        if due(train.save_every) {
            self.check_finite()?;
        }
        if due(train.log_every) {
            let speed = (self.since * train.batch) as f64 / self.spent;
            if let Some(outcome) = outcomes.last() {
                self.record(outcome, speed)?;
            }
            (self.since, self.spent) = (0, 0.0);
        }
        Ok(over)
    }

    /// Has a run that has minutes make as many steps as they still have room for, at the pace it has lately.
    fn follow_pace(&mut self, seconds: f64, steps: usize) {
        let budget = self.task.settings().minutes * 60.0;
        if budget == 0.0 {
            return;
        }
        self.steady.made(steps, seconds, budget);
        let left = self.steady.room(budget - self.progress.seconds);
        let steps = self.progress.step as usize + left;
        self.task.set_steps(steps);
        self.config.train.steps = steps;
    }

    /// Does what is due after a step: an evaluation, samples, a checkpoint. An interrupt ends the run here; what it left
    /// comes first when the run goes on.
    fn follow_up(&mut self, from: Due, over: bool) -> Result<()> {
        let train = self.task.settings().clone();
        let done = self.progress.step as usize;
        let planned =
            |every: usize| done == train.steps || (every > 0 && done.is_multiple_of(every));
        let early = is_early(&train, self.progress.step);
        let together = self.group.as_ref().is_some_and(|group| group.world() > 1);
        let plan = [
            (Due::Evaluation, planned(train.eval_every) || early),
            (Due::Samples, planned(sample_every(&train))),
        ];
        for (due, planned_here) in plan.into_iter().skip_while(|(due, _)| *due != from) {
            let mut work = || match due {
                Due::Evaluation if over || planned(train.eval_every) => self.evaluate(),
                Due::Evaluation if early => self.evaluate_early(),
                Due::Samples if over || planned_here => self.draw_samples(),
                _ => Ok(()),
            };
            // Processes that share the work agree between two pieces of it when to stop.
            let outcome = match together {
                true => undisturbed(work),
                false => work(),
            };
            if let Err(Error::Interrupted) = outcome {
                let left = plan.iter().skip_while(|(other, _)| *other != due);
                self.progress.due = left
                    .clone()
                    .find(|(_, planned)| *planned)
                    .map(|(due, _)| *due);
                self.stopped = true;
                return self.save();
            }
            outcome?;
        }
        if over || planned(train.save_every) {
            self.write_checkpoint()?;
        }
        Ok(())
    }

    /// Makes the next steps, up to the next one that something is due after.
    fn burst(&mut self) -> Result<Vec<StepOutcome>> {
        let first = self.progress.step;
        let most = match (self.device.is_cpu(), self.pace) {
            (false, Some(pace)) => ((BURST_SECONDS / pace) as u64).clamp(1, BURST),
            _ => 1,
        };
        let end = (first + most).min(next_stop(self.task.settings(), first));
        let inputs: Vec<StepInput> = (first..end).map(|step| self.input(step)).collect();
        self.task.burst(&mut self.store, &inputs)
    }

    fn input(&self, step: u64) -> StepInput {
        let (train, at) = (self.task.settings(), step as usize);
        StepInput {
            seed: train.seed,
            step,
            lr: schedule::learning_rate(train, &self.progress.plateau, at),
            kl_weight: schedule::kl_weight(train, at),
            tau: self.task.temperature(at),
        }
    }

    /// Counts a step that was skipped, and ends a run that cannot go on.
    fn follow(&mut self, outcome: &StepOutcome) -> Result<()> {
        if !outcome.skipped {
            self.skipped_in_a_row = 0;
            return match outcome.not_finite() {
                Some(place) => Err(self.diverged(&place)),
                None => Ok(()),
            };
        }
        self.skipped += 1;
        self.skipped_in_a_row += 1;
        if self.skipped_in_a_row < MOST_SKIPPED {
            return Ok(());
        }
        let limit = self.task.settings().skip_norm;
        let what = format!(
            "{MOST_SKIPPED} steps in a row had a gradient norm of at least train.skip_norm = {limit}, the last one {}, and \
             were skipped",
            outcome.grad_norm
        );
        let advice = "raise train.skip_norm, lower train.lr or lengthen train.warmup";
        Err(self.ended("the gradient", &what, advice))
    }

    fn split_if_due(&mut self) -> Result<()> {
        let (store, shown, step) = (&mut self.store, &mut self.shown, self.progress.step);
        let Some(record) = self.task.split(store, shown, step)? else {
            return Ok(());
        };
        self.progress.seconds += record.seconds;
        let all = record.codes.iter().sum::<usize>() as f64;
        self.scalars(&[("train/split_codes".into(), all)])?;
        self.log(&Record::Split(record))
    }

    /// Refuses weights that cannot make one more step: a step tells of the weights before it, and those after it
    /// are about to be saved.
    fn check_finite(&mut self) -> Result<()> {
        self.show("theta")?;
        match undisturbed(|| self.task.not_finite(&mut self.shown))? {
            None => Ok(()),
            Some(place) => Err(self.diverged(&place)),
        }
    }

    fn save(&mut self) -> Result<()> {
        self.check_finite()?;
        self.write_checkpoint()
    }

    fn write_checkpoint(&mut self) -> Result<()> {
        let Some(folder) = &mut self.folder else {
            return Ok(());
        };
        if self.task.settings().minutes > 0.0 {
            // How many steps there are is known now, or better than before.
            let text = self.config.to_toml()?;
            write_atomic(folder.run.config(), |file| file.write_all(text.as_bytes()))?;
        }
        let notes = self.task.notes();
        let notes: Vec<(&str, &str)> = notes.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let (store, progress) = (&mut self.store, &self.progress);
        save(&folder.run, self.task.kept(), store, progress, &notes)?;
        folder.saved = Some(progress.step);
        self.pending.push_back(Event::Saved(progress.step as usize));
        Ok(())
    }

    fn record(&mut self, outcome: &StepOutcome, images_per_second: f64) -> Result<()> {
        let unit = nats_per_dim(self.task.model());
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
            lr: schedule::learning_rate(self.task.settings(), &self.progress.plateau, made - 1),
            temperature: self.task.temperature(made - 1),
            images_per_second,
            seconds: self.progress.seconds,
        };
        self.scalars(&scalars::of_training(&record))?;
        self.log(&Record::Train(record))
    }

    /// Takes the raw weights (`theta`) or the averaged ones (`ema`) as those that evaluation and sampling read.
    fn show(&mut self, which: &str) -> Result<()> {
        Ok(self.shown.copy_from("theta", &self.store, which)?)
    }

    fn evaluate(&mut self) -> Result<()> {
        let record = self.evaluate_on("eval", self.task.extent())?;
        let train = self.task.settings();
        self.progress
            .plateau
            .observe(train, record.objective(train));
        self.log(&Record::Eval(record.clone()))?;
        self.last = Some(record);
        Ok(())
    }

    /// What becomes of each layer, on a few training images.
    fn evaluate_early(&mut self) -> Result<()> {
        let (split, images) = (Split::Train, self.task.settings().early_images);
        let record = self.evaluate_on("early", Extent { split, images })?;
        self.log(&Record::Early(record))
    }

    /// An evaluation of the averaged weights; `name` begins the tags of its events.
    fn evaluate_on(&mut self, name: &str, extent: Extent) -> Result<EvalRecord> {
        self.show("ema")?;
        let mut record = self.task.evaluate(&mut self.shown, extent)?;
        record.step = self.progress.step as usize;
        self.scalars(&scalars::of_evaluation(name, &record))?;
        self.pending.push_back(Event::Evaluated(record.clone()));
        Ok(record)
    }

    fn draw_samples(&mut self) -> Result<()> {
        if self.folder.is_none() {
            return Ok(());
        }
        self.show("ema")?;
        let pictures = self.task.samples(&mut self.shown)?;
        let sheet = grid(&pictures, 8, 2, comfortable_scale(self.task.model().size))?;
        let step = self.progress.step as usize;
        if let Some(folder) = &mut self.folder {
            sheet.save(folder.run.sample(step))?;
            if let Some(events) = &mut folder.events {
                events.image(step, "samples", &sheet)?;
            }
        }
        Ok(())
    }

    fn log(&mut self, record: &Record) -> Result<()> {
        match &mut self.folder {
            Some(folder) => folder.log.write(record),
            None => Ok(()),
        }
    }

    fn scalars(&mut self, scalars: &[(String, f64)]) -> Result<()> {
        let step = self.progress.step as usize;
        match self.folder.as_mut().and_then(|f| f.events.as_mut()) {
            Some(events) => events.scalars(step, scalars.iter().map(|(t, v)| (t.as_str(), *v))),
            None => Ok(()),
        }
    }

    fn diverged(&mut self, place: &str) -> Error {
        let step = self.progress.step;
        let what = format!("training diverged at step {step}: non-finite {place}");
        let advice = self.task.advice();
        self.ended(place, &what, &advice)
    }

    /// The sentence that ends a run which cannot go on; the log gets it too.
    fn ended(&mut self, place: &str, what: &str, advice: &str) -> Error {
        let kept = match &self.folder {
            Some(Folder {
                run,
                saved: Some(saved),
                ..
            }) => format!(
                "the checkpoint of step {saved} in {} is untouched; ",
                run.state().display()
            ),
            Some(_) => "no checkpoint had been written yet; ".into(),
            None => String::new(),
        };
        let said = format!("{what}; {kept}{advice}");
        // Whether or not the log can be written, the sentence is what must be said.
        let _ = self.log(&Record::Diverged(DivergedRecord {
            step: self.progress.step as usize,
            place: place.into(),
            said: said.clone(),
        }));
        Error::Diverged {
            step: self.progress.step as usize,
            place: place.into(),
            message: said,
        }
    }
}

/// The run to go on from, if there is a checkpoint. A run that was killed before its first one starts again; one that
/// has a model but lost its state must not, as that would replace the model.
pub(crate) fn resuming(run: Option<&Run>, existing: Existing) -> Result<Option<&Run>> {
    let Some(run) = run.filter(|_| existing == Existing::Resume) else {
        return Ok(None);
    };
    match (run.state().exists(), run.model().exists()) {
        (true, _) => Ok(Some(run)),
        (false, false) => Ok(None),
        (false, true) => Err(Error::with_remedy(
            format!(
                "{} is missing, so the run cannot go on; restore it from a copy",
                run.state().display()
            ),
            Remedy::Overwrite,
        )),
    }
}

fn open_folder(
    run: Option<(Run, Lock)>,
    config: &Config,
    options: &TrainOptions,
    progress: &Progress,
) -> Result<Option<Folder>> {
    let Some((run, lock)) = run else {
        return Ok(None);
    };
    let resumed = resuming(Some(&run), options.existing)?.is_some();
    let text = config.to_toml()?;
    write_atomic(run.config(), |file| file.write_all(text.as_bytes()))?;
    Ok(Some(Folder {
        log: match resumed {
            true => {
                let evaluated = progress.due != Some(Due::Evaluation);
                Log::resume(run.log(), progress.step as usize, evaluated)?
            }
            false => Log::create(run.log())?,
        },
        events: match options.tensorboard {
            true => Some(EventWriter::create(run.dir())?),
            false => None,
        },
        saved: resumed.then_some(progress.step),
        run,
        _lock: lock,
    }))
}
