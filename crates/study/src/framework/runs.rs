//! The models a study trains: once each, whichever study asks first.

use super::Context;
use super::judged::Judged;
use super::plan::Budget;
use rrvq::config::{Config, Schedule};
use rrvq::dataset::{Dataset, Split};
use rrvq::evaluate::{EvalRecord, Extent};
use rrvq::files::Lock;
use rrvq::latent::codebook;
use rrvq::picture::Picture;
use rrvq::run::{Existing, Run};
use rrvq::train::log::{Record, read};
use rrvq::{Error, Event, Result, TrainOptions, Trained, Trainer};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Steps of a smoke run.
pub(super) const SMOKE_STEPS: usize = 4;
/// How often a model that diverges is tried again at half the rate.
const HALVINGS: usize = 2;
/// Evaluations in a run whose steps follow from minutes.
const EVALUATIONS: usize = 8;

/// A model to be trained.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of its run folder, without the seed; the same name is the same model for all studies.
    pub name: String,
    /// Its settings; `train.steps` is what it takes at the quick scale.
    pub config: Config,
    /// Its steps at the full scale, where they are others.
    pub full_steps: Option<usize>,
    /// Minutes of training at the full scale in place of steps, for comparisons at equal cost.
    pub full_minutes: Option<f64>,
    /// Minutes of training at the quick scale in place of steps, for comparisons at equal cost.
    pub quick_minutes: Option<f64>,
    /// Whether diverging is a result; otherwise it is trained again at half the rate.
    pub may_diverge: bool,
}

impl Wanted {
    /// The model of a preset, called like it.
    pub fn preset(name: &str) -> Result<Wanted> {
        Ok(Wanted {
            name: name.into(),
            config: Config::preset(name)?,
            full_steps: None,
            full_minutes: None,
            quick_minutes: None,
            may_diverge: false,
        })
    }

    /// The same with other settings, under another name.
    pub fn with(mut self, name: &str, settings: &[&str]) -> Result<Wanted> {
        self.name = name.into();
        for setting in settings {
            self.config.set(setting)?;
        }
        Ok(self)
    }

    /// The same, on another data set.
    pub fn on(mut self, data: &str) -> Wanted {
        if self.config.data.name != data {
            let old = self.config.data.name.clone();
            self.name = match self.name.strip_suffix(&old) {
                Some(stem) => format!("{stem}{data}"),
                None => format!("{}-{data}", self.name),
            };
            self.config.data.name = data.into();
        }
        self
    }

    /// The same from another seed.
    pub fn seed(mut self, seed: u64) -> Wanted {
        self.config.train.seed = seed;
        self
    }

    /// The same with so many steps at the quick scale and at the full one.
    pub fn budget(mut self, quick_steps: usize, full_steps: usize) -> Wanted {
        (self.config.train.steps, self.full_steps) = (quick_steps, Some(full_steps));
        self
    }

    /// The name of its run folder.
    pub(super) fn folder(&self) -> String {
        format!("{}-seed{}", self.name, self.config.train.seed)
    }
}

/// A trained model.
pub struct Trial {
    /// What it was asked for as.
    pub name: String,
    /// The model.
    pub trained: Trained,
    /// What it was trained on.
    pub data: Rc<dyn Dataset>,
    /// Its log; empty where the model came without one.
    pub records: Vec<Record>,
    /// Seconds of its training, where its log tells.
    pub seconds: Option<f64>,
    /// Where its evaluations are kept: beside a run of the studies' own, and nowhere for a model from elsewhere.
    judged: Option<Judged>,
}

/// What became of a model: trained, or the sentence that says how it diverged.
pub type Attempt = std::result::Result<Trial, String>;

impl Trial {
    /// Bits per dim and use of codes on at most so many images of a split; 0 takes all.
    pub fn evaluate(&self, split: Split, images: usize) -> Result<EvalRecord> {
        let data = self.data.as_ref();
        let evaluate = || self.trained.evaluate(data, Extent { split, images });
        match &self.judged {
            Some(judged) => judged.or_else(&self.trained, data, (split, images), evaluate),
            None => evaluate(),
        }
    }

    /// Minutes of its training, where its log tells.
    pub fn minutes(&self) -> String {
        match self.seconds.map(|seconds| seconds / 60.0) {
            None => "–".into(),
            Some(short) if short < 10.0 => format!("{short:.2}"),
            Some(long) => format!("{long:.1}"),
        }
    }

    /// The first images of a split.
    pub fn images(&self, split: Split, count: usize) -> Result<Vec<Picture>> {
        first_images(self.data.as_ref(), split, count)
    }

    /// The means of a layer's codes, one after another, and the dimensions of each.
    pub fn code_means(&self, layer: usize) -> Result<(&[f32], usize)> {
        let name = codebook::mean_name(&codebook::name(layer));
        let entry = self.trained.model().layout.get(&name).ok_or_else(|| {
            let run = &self.name;
            Error::new(format!("{run} has no codebook {name}; please report this"))
        })?;
        let means = &self.trained.theta()[entry.offset..entry.offset + entry.len()];
        let codes = self.trained.config().model.codes.at(layer);
        Ok((means, means.len() / codes))
    }

    /// Steps it was trained.
    pub fn steps(&self) -> usize {
        self.trained.step() as usize
    }
}

/// The first images of a split.
pub fn first_images(data: &dyn Dataset, split: Split, count: usize) -> Result<Vec<Picture>> {
    let mut bytes = vec![0; data.shape().iter().product()];
    (0..count.min(data.len(split)))
        .map(|i| {
            data.read(split, i, &mut bytes);
            Picture::new(data.shape(), bytes.clone())
        })
        .collect()
}

impl Context<'_> {
    /// Trains models, or finds them trained; one that diverges at every rate that is tried is an error.
    pub fn train(&mut self, wanted: Vec<Wanted>) -> Result<Vec<Trial>> {
        let trials = self.attempt(wanted)?.into_iter();
        trials.map(|trial| trial.map_err(Error::new)).collect()
    }

    /// The same where diverging is a result.
    pub fn attempt(&mut self, wanted: Vec<Wanted>) -> Result<Vec<Attempt>> {
        let mut trials = Vec::new();
        for one in &wanted {
            self.asked.insert(one.folder());
            if let Some(said) = self.diverged.get(&one.folder()) {
                trials.push(Err(said.clone()));
                continue;
            }
            trials.push(match self.one(one, self.share) {
                Ok(trial) => {
                    self.trained += trial.seconds.unwrap_or(0.0);
                    Ok(trial)
                }
                Err(Error::Diverged { message, .. }) => Err(message),
                Err(error) => return Err(error),
            });
        }
        Ok(trials)
    }

    /// Settles what each of a study's models gets, and trains them where several are trained at a time.
    pub(super) fn prepare(&mut self, models: &[Wanted]) -> Result<()> {
        self.planned = models.iter().map(Wanted::folder).collect();
        let missing: BTreeMap<String, &Wanted> = models
            .iter()
            .filter(|model| !self.is_finished(model))
            .map(|model| (model.folder(), model))
            .collect();
        self.settle_share(models);
        if self.settings.jobs > 1 && missing.len() > 1 {
            let mut missing: Vec<&Wanted> = missing.into_values().collect();
            // The longest first, so that none is left to run alone at the end.
            let length = |model: &&Wanted| match self.budget(model, self.share) {
                Budget::Steps(steps) => steps as f64,
                Budget::Minutes(minutes) => minutes,
            };
            missing.sort_by(|a, b| length(b).total_cmp(&length(a)));
            self.diverged = self.side_by_side(&missing)?;
        }
        Ok(())
    }

    /// Shares the study's minutes among the models that are not finished, where the command has some for it.
    pub(super) fn settle_share(&mut self, models: &[Wanted]) {
        let missing: BTreeSet<String> = models
            .iter()
            .filter(|model| !self.is_finished(model))
            .map(Wanted::folder)
            .collect();
        let in_turn = missing.len().div_ceil(self.settings.jobs.max(1)).max(1);
        self.share = self.settings.minutes.map(|m| m / in_turn as f64);
    }

    /// Steps that were made of a run, and of how many; none where there is nothing of it.
    pub(super) fn steps_of(&self, wanted: &Wanted) -> Option<(usize, usize)> {
        let trained = Trained::of_run(self.run_of(wanted)?).ok()?;
        Some((trained.step() as usize, trained.config().train.steps))
    }

    fn run_of(&self, wanted: &Wanted) -> Option<Run> {
        Run::open(self.settings.runs_folder().join(wanted.folder())).ok()
    }

    /// The folder of a run that was trained elsewhere, and the name it was given by.
    pub(super) fn given_for(&self, wanted: &Wanted) -> Option<(String, PathBuf)> {
        let (seeded, plain) = (wanted.folder(), &wanted.name);
        let names = [(&seeded, true), (plain, wanted.config.train.seed == 0)];
        names.into_iter().find_map(|(name, counts)| {
            let dir = self.settings.runs.get(name).filter(|_| counts)?;
            Some((name.clone(), dir.clone()))
        })
    }

    pub(super) fn is_finished(&self, wanted: &Wanted) -> bool {
        if self.given_for(wanted).is_some() {
            return true;
        }
        let Some(run) = self.run_of(wanted) else {
            return false;
        };
        // The last evaluation may have been interrupted.
        let records = read(run.log()).unwrap_or_default();
        let last = records.iter().rev().find_map(Record::evaluation);
        matches!(Trained::of_run(run), Ok(t) if t.step() as usize >= t.config().train.steps
            && last.is_some_and(|last| last.step as u64 >= t.step()))
    }

    /// Trains a model, or finds it trained; at half the rate where it diverges and that is no result, and again.
    pub(super) fn one(&mut self, wanted: &Wanted, minutes: Option<f64>) -> Result<Trial> {
        let _claim = self.claim(wanted)?;
        let mut rate = wanted.config.train.lr;
        for _ in 0..HALVINGS {
            match self.at_rate(wanted, minutes, rate) {
                Err(Error::Diverged { .. }) if !wanted.may_diverge => {
                    rate /= 2.0;
                    let dir = self.settings.runs_folder().join(wanted.folder());
                    match std::fs::remove_dir_all(&dir) {
                        // It diverged while its pace was measured.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        removed => removed.map_err(|error| Error::io("remove", &dir, error))?,
                    }
                }
                other => return other,
            }
        }
        self.at_rate(wanted, minutes, rate)
    }

    /// Keeps other processes from training the same model; waits for one that does.
    fn claim(&mut self, wanted: &Wanted) -> Result<Option<Lock>> {
        if self.given_for(wanted).is_some() {
            return Ok(None);
        }
        let folder = self.settings.runs_folder();
        std::fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
        let path = folder.join(format!("{}.claim", wanted.folder()));
        let mut told = false;
        loop {
            if let Some(lock) = Lock::try_file(&path)? {
                return Ok(Some(lock));
            }
            if !told {
                self.follow.waiting(&wanted.folder());
                told = true;
            }
            rrvq::interrupt::check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn at_rate(&mut self, wanted: &Wanted, minutes: Option<f64>, rate: f64) -> Result<Trial> {
        let data = self.open(&wanted.config)?;
        if let Some((name, dir)) = self.given_for(wanted) {
            let trained = Trained::open(&dir)?;
            let said = told_of_given(trained.config(), wanted, &dir)?;
            self.given.insert(name, said);
            return self.trial(wanted, trained, data, None);
        }
        let dir = self.settings.runs_folder().join(wanted.folder());
        let there = self.run_of(wanted);
        let (mut config, existing) = match &there {
            Some(run) => {
                let config = Config::load(run.config())?;
                check_same(&config, wanted, run)?;
                (config, Existing::Resume)
            }
            None => (wanted.config.clone(), Existing::Refuse),
        };
        config.data.dir = self.folders.get(config.data.name.as_str()).cloned();
        if there.is_none() {
            config.train.lr = rate;
            self.plan(&mut config, wanted, minutes, data.as_ref())?;
        }
        if !self.is_finished(wanted) {
            let options = TrainOptions {
                out: Some(dir.clone()),
                existing,
                ..TrainOptions::default()
            };
            let mut watch = self.follow.training(&wanted.folder());
            let device = self.settings.device.clone();
            let mut trainer = Trainer::with(&config, data.as_ref(), device, options)?;
            let finished = trainer.run(watch.as_mut())?;
            if finished.interrupted {
                self.stopped = true;
                return Err(Error::new(format!(
                    "{} was stopped and saved at step {} of {}; give the same command again to go on",
                    dir.display(),
                    finished.step,
                    config.train.steps
                )));
            }
        }
        let run = Run::open(&dir)?;
        // Three times the weights, and nobody trains on from here: dozens of runs may fill a disk.
        if self.is_finished(wanted) && run.state().exists() {
            std::fs::remove_file(run.state())
                .map_err(|error| Error::io("remove", run.state(), error))?;
        }
        let judged = Judged::of(&dir, self.settings.device.name());
        let trial = self.trial(wanted, Trained::of_run(run)?, data, Some(judged))?;
        let found = trial.trained.config().train.lr;
        let own = wanted.config.train.lr;
        let halved = |times: usize| own / (1 << times) as f64;
        if (1..=HALVINGS).any(|times| found == halved(times)) {
            let said = format!(
                "{} diverged at a rate of {own} and was trained at {found}.",
                wanted.name
            );
            self.slowed.insert(wanted.folder(), said);
        }
        Ok(trial)
    }

    /// A model as a study sees it.
    fn trial(
        &self,
        wanted: &Wanted,
        trained: Trained,
        data: Rc<dyn Dataset>,
        judged: Option<Judged>,
    ) -> Result<Trial> {
        // Packed models have no log.
        let records = match trained.run() {
            Some(run) => read(run.log())?,
            None => Vec::new(),
        };
        let seconds = records.iter().rev().find_map(|record| match record {
            Record::Train(train) => Some(train.seconds),
            _ => None,
        });
        Ok(Trial {
            name: wanted.name.clone(),
            trained: trained.on(self.settings.device.clone()),
            data,
            records,
            seconds,
            judged,
        })
    }

    /// Settles the steps of a new run, and how often it looks at itself.
    fn plan(
        &self,
        config: &mut Config,
        wanted: &Wanted,
        minutes: Option<f64>,
        data: &dyn Dataset,
    ) -> Result<()> {
        // A plateau is found in epochs, which a run of minutes does not have.
        if config.train.schedule == Schedule::Plateau {
            config.train.schedule = Schedule::Cosine;
        }
        match self.budget(wanted, minutes) {
            Budget::Steps(steps) => config.train.steps = steps,
            Budget::Minutes(minutes) => {
                // A first guess, for how often it looks at itself; then steps follow the pace.
                let pace = self.seconds_a_step(config, data)?;
                config.train.steps = ((minutes * 60.0 / pace) as usize).max(SMOKE_STEPS);
                config.train.minutes = minutes;
            }
        }
        let train = &mut config.train;
        // In a handful of steps the whole rate would be there at once, which not every model stands.
        if train.steps >= 10 * SMOKE_STEPS {
            train.warmup = train.warmup.min(train.steps / 10);
        }
        train.eval_every = train.steps.div_ceil(EVALUATIONS);
        train.eval_images = self.by_scale(16, 256, 2000);
        train.early_images = self.by_scale(0, 256, 1024);
        train.save_every = train.eval_every;
        train.log_every = (train.steps / 200).max(1);
        train.sample_every = train.steps;
        Ok(())
    }

    /// Seconds of a step here, measured in memory.
    fn seconds_a_step(&self, config: &Config, data: &dyn Dataset) -> Result<f64> {
        let config = without_records(config);
        let least = self.by_scale(0.05, 1.0, 5.0);
        let mut trainer = Trainer::new(&config, data, self.settings.device.clone())?;
        let (mut begin, mut steps) = (Instant::now(), 0);
        // The first steps warm caches and settle the length of bursts.
        let mut warm = false;
        while steps == 0 || begin.elapsed().as_secs_f64() < least || !warm {
            if let Some(Event::Step { .. }) = trainer.step()? {
                steps += 1;
            }
            if !warm && begin.elapsed().as_secs_f64() > least / 2.0 {
                (warm, begin, steps) = (true, Instant::now(), 0);
            }
        }
        Ok(begin.elapsed().as_secs_f64() / steps as f64)
    }
}

/// What the page says of a run that was trained elsewhere, which may have been trained otherwise; one of other images is
/// refused.
fn told_of_given(found: &Config, wanted: &Wanted, model: &Path) -> Result<String> {
    let want = &wanted.config;
    let images = |config: &Config| {
        let model = &config.model;
        (config.data.name.clone(), model.size, model.image_channels)
    };
    if images(found) != images(want) {
        let ((name, size, _), own) = (images(want), found.model.size);
        return Err(Error::new(format!(
            "{} holds a run on {} of {own}×{own}, but {} needs one on {name} of {size}×{size}; give it another run",
            model.display(),
            found.data.name,
            wanted.name
        )));
    }
    let keys = want.keys().into_iter().zip(found.keys());
    let other = keys.filter(|(want, found)| {
        want.default != found.default && !NOT_TOLD.contains(&want.path.as_str())
    });
    let other: Vec<String> = other
        .map(|(want, found)| format!("{} = {}", found.path, shown(&found.default, &want.default)))
        .collect();
    let differs = match other.is_empty() {
        true => "with the study's own settings".into(),
        false => format!("with other settings than the study's: {}", other.join(", ")),
    };
    Ok(format!("{} was trained by itself, {differs}.", wanted.name))
}

/// A setting beside the study's.
fn shown(found: &str, want: &str) -> String {
    match want {
        "" => found.into(),
        want => format!("{found} ({want})"),
    }
}

/// The same training, which only makes steps.
fn without_records(config: &Config) -> Config {
    let mut config = config.clone();
    let train = &mut config.train;
    (train.steps, train.eval_every, train.save_every) = (100_000, 0, 0);
    (train.log_every, train.early_images, train.sample_every) = (0, 0, 0);
    // A plateau would be looked for in evaluations.
    train.schedule = Schedule::Constant;
    config
}

/// Settings that decide nothing about what a run learns.
const NOT_TOLD: [&str; 7] = [
    "data.dir",
    "train.minutes",
    "train.eval_every",
    "train.eval_images",
    "train.log_every",
    "train.save_every",
    "train.sample_every",
];

/// Refuses a run folder whose model is another than the one that is wanted.
fn check_same(found: &Config, wanted: &Wanted, run: &Run) -> Result<()> {
    let want = &wanted.config;
    let same = found.model == want.model
        && found.data.name == want.data.name
        && found.train.batch == want.train.batch
        && found.train.seed == want.train.seed;
    match same {
        true => Ok(()),
        false => Err(Error::new(format!(
            "{} holds a run with other settings than {} has now; remove it, or choose another folder for the studies",
            run.dir().display(),
            wanted.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    struct Nobody;

    impl super::super::Follow for Nobody {
        fn training(&mut self, run: &str) -> Box<dyn rrvq::train::Watch> {
            unreachable!("{run} is not trained here")
        }

        fn side_by_side(&mut self, _jobs: &[PathBuf], _at_a_time: usize) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_model_that_diverges_is_tried_at_half_the_rate_unless_that_is_a_result() {
        struct Quiet;
        impl super::super::Follow for Quiet {
            fn training(&mut self, _run: &str) -> Box<dyn rrvq::train::Watch> {
                Box::new(rrvq::train::Silent)
            }
            fn side_by_side(&mut self, _jobs: &[PathBuf], _at_a_time: usize) -> Result<()> {
                Ok(())
            }
        }
        let scratch = tempfile::tempdir().unwrap();
        let settings = super::super::Settings {
            out: scratch.path().into(),
            data: Vec::new(),
            scale: Scale::Quick,
            device: rrvq::Device::Cpu,
            minutes: None,
            seeds: None,
            runs: BTreeMap::new(),
            budget: 1.0,
            jobs: 1,
        };
        let folders = BTreeMap::new();
        let mut quiet = Quiet;
        let mut context = Context::new(&settings, &folders, &mut quiet);
        // At no quarter of this rate is a step finite.
        let hopeless = |name: &str| {
            let settings = ["train.lr=1e30", "train.steps=60", "train.clip=0"];
            Wanted::preset("tiny-swatches")?.with(name, &settings)
        };
        let tried = |name: &str| {
            let run = scratch.path().join("runs/quick").join(name);
            Config::load(run.join("config.toml")).unwrap().train.lr
        };
        let told = context
            .attempt(vec![hopeless("given-up").unwrap()])
            .unwrap();
        assert!(told[0].is_err());
        assert_eq!(tried("given-up-seed0"), 1e30 / 4.0);
        let mut result = hopeless("result").unwrap();
        result.may_diverge = true;
        assert!(context.attempt(vec![result]).unwrap()[0].is_err());
        assert_eq!(tried("result-seed0"), 1e30);
    }

    #[test]
    fn all_models_of_a_study_share_its_minutes_whenever_they_are_asked_for() {
        let scratch = tempfile::tempdir().unwrap();
        let share = |jobs: usize| {
            let settings = super::super::Settings {
                out: scratch.path().into(),
                data: Vec::new(),
                scale: Scale::Full,
                device: rrvq::Device::Cpu,
                minutes: Some(30.0),
                seeds: None,
                runs: BTreeMap::new(),
                budget: 1.0,
                jobs,
            };
            let folders = ["cifar10", "svhn"]
                .map(|name| (name, PathBuf::new()))
                .into();
            let mut nobody = Nobody;
            let mut context = Context::new(&settings, &folders, &mut nobody);
            let study = crate::studies::named("table1").unwrap()[0];
            context.prepare(&study.models(&context).unwrap()).unwrap();
            context.share
        };
        // Six systems on CIFAR-10 and three on SVHN.
        assert_eq!(share(1), Some(30.0 / 9.0));
        // Four at a time are three turns.
        assert_eq!(share(4), Some(10.0));
    }

    #[test]
    fn the_pace_of_every_preset_can_be_measured() {
        for (name, _) in rrvq::config::presets() {
            let config = without_records(&Config::preset(name).unwrap());
            let valid = config.validate().map_err(|error| error.to_string());
            assert_eq!(valid, Ok(()), "{name}");
        }
    }
}
