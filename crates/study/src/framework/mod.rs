//! What every study of the paper shares: where things go, how much is spent, training, sections of one page.
//!
//! A study ([`Study`]) trains what it needs through [`Context::train`], which reuses finished runs and resumes
//! interrupted ones, and writes figures, numbers and claims to a [`Section`]. Sections are files of their own, so that
//! studies can be run one at a time; the page is assembled from all that are there.

mod judged;
mod page;
mod plan;
mod runs;
mod section;
mod side_by_side;

pub use page::PAGE;
pub use plan::{Budget, Planned, State, plan};
pub use runs::{Attempt, Trial, Wanted, first_images};
pub use section::{Claim, Section, Stored, Verdict};
pub use side_by_side::do_job;

use crate::studies::STUDIES;
use rrvq::config::Config;
use rrvq::dataset::{Dataset, Split};
use rrvq::train::Watch;
use rrvq::{Device, Error, Remedy, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// How much is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds: everything runs and is drawn, and the numbers mean nothing.
    Smoke,
    /// Minutes a study on two CPU cores, with small models.
    Quick,
    /// Minutes a model on a large GPU, with the paper's models.
    Full,
}

impl Scale {
    /// All of them, cheapest first.
    pub const ALL: [Scale; 3] = [Scale::Smoke, Scale::Quick, Scale::Full];

    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Smoke => "smoke",
            Scale::Quick => "quick",
            Scale::Full => "full",
        }
    }
}

/// One table, figure or theorem of the paper, measured.
pub trait Study: Sync {
    /// Its name on the command line, and its folder.
    fn name(&self) -> &'static str;

    /// What comes out of it, in one line.
    fn about(&self) -> &'static str;

    /// What the paper has: the figure or the numbers ours stand beside.
    fn paper(&self) -> &'static str;

    /// The data sets it can use, by their names in a configuration; it needs one of them, or none where it lists none.
    fn data(&self) -> &'static [&'static str] {
        &[]
    }

    /// About how many minutes it takes on the hardware that the scale is made for.
    fn minutes(&self, scale: Scale) -> f64;

    /// The models that [`Study::run`] asks for, all of them: their number decides what each gets of a study's minutes.
    fn models(&self, _context: &Context<'_>) -> Result<Vec<Wanted>> {
        Ok(Vec::new())
    }

    /// Splits, and how many of their images (0 is all), that every model of it is judged by, so that this can be done where it was
    /// trained.
    fn extents(&self, _context: &Context<'_>) -> Vec<(Split, usize)> {
        Vec::new()
    }

    /// Whether `--seeds` says how many of each model it trains.
    fn takes_seeds(&self) -> bool {
        false
    }

    /// Measures, draws and judges.
    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()>;
}

/// What a command asks for.
#[derive(Clone)]
pub struct Settings {
    /// Folder of the page, the sections and the runs.
    pub out: PathBuf,
    /// Folders of data sets; which is which is found out.
    pub data: Vec<PathBuf>,
    /// How much is spent.
    pub scale: Scale,
    /// What computes.
    pub device: Device,
    /// Minutes of training for each study, shared by its runs, instead of what the scale says.
    pub minutes: Option<f64>,
    /// Seeds of each model, instead of what the scale says.
    pub seeds: Option<usize>,
    /// Models that were trained elsewhere (run folders, packed files, built-in ones), by the name that a study has for the run, with its
    /// seed or without.
    pub runs: BTreeMap<String, PathBuf>,
    /// What all budgets of the scale are multiplied by, where no minutes are named.
    pub budget: f64,
    /// Models of a study that are trained at a time, each by a process of its own if there are several.
    pub jobs: usize,
}

impl Settings {
    /// Where runs go.
    fn runs_folder(&self) -> PathBuf {
        self.out.join("runs").join(self.scale.name())
    }

    /// Whether a study's models get less training than the scale has for them.
    fn cuts_short(&self, study: &dyn Study) -> bool {
        match self.minutes {
            Some(minutes) => minutes < study.minutes(self.scale),
            None => self.budget < 1.0,
        }
    }

    /// The command that runs a study with these settings, wherever the folders are.
    fn command(&self, study: &dyn Study) -> String {
        let mut words = vec![format!("rrvq study {}", study.name())];
        if !study.data().is_empty() {
            words.push("--data DIR".into());
        }
        words.push(format!("--scale {}", self.scale.name()));
        if !self.device.is_cpu() {
            words.push(format!("--device {}", self.device.name()));
        }
        words.extend(self.minutes.map(|m| format!("--minutes {m}")));
        let seeds = self.seeds.filter(|_| study.takes_seeds());
        words.extend(seeds.map(|n| format!("--seeds {n}")));
        words.extend((self.budget != 1.0).then(|| format!("--budget {}", self.budget)));
        words.extend((self.jobs > 1).then(|| format!("--jobs {}", self.jobs)));
        words.extend(self.runs.keys().map(|name| format!("--run {name}=MODEL")));
        words.push("--out DIR".into());
        words.join(" ")
    }
}

/// Who follows: a terminal, a test.
pub trait Follow {
    /// A study begins: its number from 1, how many there are, and about how many minutes the whole still takes.
    fn started(&mut self, _number: usize, _all: usize, _study: &dyn Study, _minutes_left: f64) {}
    /// A model is about to be trained.
    fn training(&mut self, run: &str) -> Box<dyn Watch>;
    /// Another process trains the model; it is waited for.
    fn waiting(&mut self, _run: &str) {}
    /// Has each of these files given to [`do_job`] by a process of its own, with the same settings, so many at a time.
    fn side_by_side(&mut self, jobs: &[PathBuf], at_a_time: usize) -> Result<()>;
    /// A study has written its section.
    fn finished(&mut self, _stored: &Stored) {}
    /// A study was not run, and why.
    fn left_out(&mut self, _study: &dyn Study, _why: &str) {}
}

/// What a study works with.
pub struct Context<'a> {
    settings: &'a Settings,
    folders: &'a BTreeMap<&'static str, PathBuf>,
    follow: &'a mut dyn Follow,
    opened: BTreeMap<String, Rc<dyn Dataset>>,
    /// Seconds of training in the runs the study used, whenever they were made.
    trained: f64,
    /// Whether somebody stopped a run.
    stopped: bool,
    /// Runs from elsewhere that were used, and what the page says of each.
    given: BTreeMap<String, String>,
    /// Minutes of each model that has to be trained, where the command has some for the study.
    share: Option<f64>,
    /// The folders of the models that the study said it would ask for, and of those it asked for.
    planned: BTreeSet<String>,
    asked: BTreeSet<String>,
    /// Models that diverged when they were trained side by side, by their folders, and how.
    diverged: BTreeMap<String, String>,
    /// What each of the study's models is judged by ([`Study::extents`]).
    extents: Vec<(Split, usize)>,
    /// Models that were trained at a lower rate than they were meant to, and what the page says of each.
    slowed: BTreeMap<String, String>,
}

impl<'a> Context<'a> {
    fn new(
        settings: &'a Settings,
        folders: &'a BTreeMap<&'static str, PathBuf>,
        follow: &'a mut dyn Follow,
    ) -> Self {
        Context {
            settings,
            folders,
            follow,
            opened: BTreeMap::new(),
            trained: 0.0,
            stopped: false,
            given: BTreeMap::new(),
            share: settings.minutes,
            planned: BTreeSet::new(),
            asked: BTreeSet::new(),
            diverged: BTreeMap::new(),
            extents: Vec::new(),
            slowed: BTreeMap::new(),
        }
    }

    /// The value for the scale.
    pub fn by_scale<T>(&self, smoke: T, quick: T, full: T) -> T {
        match self.settings.scale {
            Scale::Smoke => smoke,
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// The preset of the scale: a small one, or the one for a GPU.
    pub fn preset<'p>(&self, small: &'p str, large: &'p str) -> &'p str {
        self.by_scale(small, small, large)
    }

    /// Whether the data set's folder was given; made-up data needs none.
    pub fn has(&self, name: &str) -> bool {
        name == "swatches" || self.folders.contains_key(name)
    }

    /// Those of `names` whose folders were given.
    pub fn available<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        names.iter().copied().filter(|n| self.has(n)).collect()
    }

    /// The seeds of a model: as many as were asked for, or as the scale has.
    pub fn seeds(&self, quick: usize, full: usize) -> Vec<u64> {
        let count = self.settings.seeds.unwrap_or(self.by_scale(1, quick, full));
        (0..count.max(1) as u64).collect()
    }

    /// What computes.
    pub fn device(&self) -> &Device {
        &self.settings.device
    }

    /// The data set of a configuration, opened once.
    pub fn open(&mut self, config: &Config) -> Result<Rc<dyn Dataset>> {
        let (data, model) = (&config.data, &config.model);
        let key = format!("{} {} {}", data.name, model.size, data.train_images);
        if let Some(known) = self.opened.get(&key) {
            return Ok(known.clone());
        }
        let mut config = config.clone();
        config.data.dir = self.folders.get(data.name.as_str()).cloned();
        let opened: Rc<dyn Dataset> = rrvq_data::open_for(&config)?.into();
        self.opened.insert(key, opened.clone());
        Ok(opened)
    }
}

/// Those of the studies that have their data, and those that do not.
fn able<'s>(
    studies: &[&'s dyn Study],
    folders: &BTreeMap<&'static str, PathBuf>,
) -> (Vec<&'s dyn Study>, Vec<&'s dyn Study>) {
    studies.iter().partition(|study| {
        let wants = study.data();
        let has = |name: &&str| *name == "swatches" || folders.contains_key(name);
        wants.is_empty() || wants.iter().any(has)
    })
}

/// Runs studies in turn and assembles the page after each. One that fails does not keep the others from running; what
/// failed is told at the end.
pub fn run(studies: &[&dyn Study], settings: &Settings, follow: &mut dyn Follow) -> Result<()> {
    let folders = folders(&settings.data)?;
    let (able, unable) = able(studies, &folders);
    for study in unable {
        let why = format!("it needs {}", study.data().join(" or "));
        if studies.len() == 1 {
            let what = format!("study {}: {why}", study.name());
            return Err(Error::with_remedy(what, Remedy::DataFolder));
        }
        follow.left_out(study, &why);
    }
    check_seeds(&able, settings)?;
    check_runs(&able, settings, &folders)?;
    let expected = |study: &dyn Study| {
        let minutes = study.minutes(settings.scale);
        let part = settings.budget;
        settings
            .minutes
            .map_or(minutes * part.max(0.2), |m| m.max(minutes * 0.2))
    };
    let (mut spent, mut planned, mut failed) = (0.0, 0.0, Vec::new());
    for (number, study) in able.iter().enumerate() {
        let left: f64 = able[number..].iter().map(|s| expected(*s)).sum();
        // What came before tells how fast this machine is, unless its runs were there already.
        let pace: f64 = if planned > 0.0 { spent / planned } else { 1.0 };
        follow.started(number + 1, able.len(), *study, left * pace.max(0.5));
        let begin = Instant::now();
        match one(*study, settings, &folders, follow) {
            (Ok(stored), _) => follow.finished(&stored),
            (Err(error), true) => return Err(error),
            (Err(error), false) => failed.push((study.name(), error)),
        }
        page::write(&settings.out, STUDIES)?;
        spent += begin.elapsed().as_secs_f64() / 60.0;
        planned += expected(*study);
    }
    match failed.len() {
        0 => Ok(()),
        1 if studies.len() == 1 => Err(failed.remove(0).1),
        _ => {
            let told = failed
                .iter()
                .map(|(name, error)| format!("{name}: {error}"));
            let told = told.collect::<Vec<_>>().join("; ");
            Err(Error::new(format!("some studies failed; {told}")))
        }
    }
}

/// Runs one study; with what became of it, whether somebody stopped it.
fn one(
    study: &dyn Study,
    settings: &Settings,
    folders: &BTreeMap<&'static str, PathBuf>,
    follow: &mut dyn Follow,
) -> (Result<Stored>, bool) {
    let begin = Instant::now();
    let mut context = Context::new(settings, folders, follow);
    let mut made = || {
        let mut section = Section::begin(&settings.out, study.name())?;
        let models = study.models(&context)?;
        section.cut_short = !models.is_empty() && settings.cuts_short(study);
        context.extents = study.extents(&context);
        context.prepare(&models)?;
        study.run(&mut context, &mut section)?;
        if context.asked != context.planned {
            return Err(Error::new(format!(
                "study {} lists other models than it uses; please report this",
                study.name()
            )));
        }
        for said in context.given.values().chain(context.slowed.values()) {
            section.paragraph(said);
        }
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        section.store(
            settings,
            settings.command(study),
            [minutes, context.trained / 60.0],
        )
    };
    let stored = made();
    let stopped = context.stopped || matches!(stored, Err(Error::Interrupted));
    (stored, stopped)
}

/// Refuses a number of seeds for a study that has none to choose; of several studies, those take it that can.
fn check_seeds(studies: &[&dyn Study], settings: &Settings) -> Result<()> {
    match studies {
        [study] if settings.seeds.is_some_and(|n| n > 1) && !study.takes_seeds() => {
            let others = STUDIES.iter().filter(|study| study.takes_seeds());
            let others: Vec<&str> = others.map(|study| study.name()).collect();
            Err(Error::new(format!(
                "study {} is of one seed; --seeds is for {}",
                study.name(),
                others.join(", ")
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses runs from elsewhere that no study will ask for, before hours of training.
fn check_runs(
    studies: &[&dyn Study],
    settings: &Settings,
    folders: &BTreeMap<&'static str, PathBuf>,
) -> Result<()> {
    let mut known = BTreeSet::new();
    let mut nobody = plan::Nobody;
    let context = Context::new(settings, folders, &mut nobody);
    for study in studies {
        for model in study.models(&context)? {
            known.extend(context.given_for(&model).map(|(name, _)| name));
        }
    }
    let unknown = settings.runs.keys().filter(|name| !known.contains(*name));
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(Error::new(format!(
            "no study asks for a run called {}; names are those of the folders in {}, which --plan lists",
            unknown.join(" or "),
            settings.runs_folder().display()
        ))),
    }
}

/// Which data set is in which folder.
fn folders(given: &[PathBuf]) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut folders = BTreeMap::new();
    for dir in given {
        let name = rrvq_data::kind_in(dir)?;
        if let Some(first) = folders.insert(name, dir.clone()) {
            return Err(Error::new(format!(
                "{} and {} both hold {name}; name one of them",
                first.display(),
                dir.display()
            )));
        }
    }
    Ok(folders)
}
