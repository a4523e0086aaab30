//! What a command would train, without training anything.

use super::runs::Wanted;
use super::{Context, Follow, Scale, Settings, Study, able, check_runs, check_seeds, folders};
use rrvq::train::Watch;
use rrvq::{Result, Trained};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A model that a study asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The study.
    pub study: &'static str,
    /// The name of its run folder.
    pub run: String,
    /// How long it is trained.
    pub budget: Budget,
    /// What there is of it.
    pub state: State,
}

/// How long a model is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Until so many steps are made.
    Steps(usize),
    /// About so many minutes.
    Minutes(f64),
}

/// What there is of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nothing yet.
    Missing,
    /// Some of its steps.
    Interrupted {
        /// Steps made.
        step: usize,
        /// Steps in all.
        of: usize,
    },
    /// All of it.
    Finished,
    /// A model that was trained elsewhere takes its place.
    Given(PathBuf),
    /// A study before this one asks for it too.
    Shared(&'static str),
}

/// The models of all studies that have their data, in the order they would be trained.
pub fn plan(studies: &[&dyn Study], settings: &Settings) -> Result<Vec<Planned>> {
    let folders = folders(&settings.data)?;
    let able = able(studies, &folders).0;
    check_seeds(&able, settings)?;
    check_runs(&able, settings, &folders)?;
    let mut first: BTreeMap<String, &'static str> = BTreeMap::new();
    let mut all = Vec::new();
    for study in able {
        let mut nobody = Nobody;
        let mut context = Context::new(settings, &folders, &mut nobody);
        let models = study.models(&context)?;
        context.settle_share(&models);
        for model in models {
            let run = model.folder();
            let state = match first.get(&run) {
                Some(&other) if other != study.name() => State::Shared(other),
                Some(_) => continue,
                None => context.state(&model)?,
            };
            first.entry(run.clone()).or_insert(study.name());
            let budget = context.budget(&model, context.share);
            all.push(Planned {
                study: study.name(),
                run,
                budget,
                state,
            });
        }
    }
    Ok(all)
}

impl Context<'_> {
    /// How long a model is trained, where a study's minutes were settled or not.
    pub(super) fn budget(&self, wanted: &Wanted, minutes: Option<f64>) -> Budget {
        let (steps, planned) = match self.settings.scale {
            Scale::Smoke => (None, None),
            Scale::Quick => (None, wanted.quick_minutes),
            Scale::Full => (wanted.full_steps, wanted.full_minutes),
        };
        let part = self.settings.budget;
        let of = |steps: usize| ((steps as f64 * part).round() as usize).max(1);
        match (self.settings.scale, minutes, planned) {
            (_, Some(minutes), _) => Budget::Minutes(minutes),
            (_, None, Some(minutes)) => Budget::Minutes(minutes * part),
            (Scale::Smoke, ..) => Budget::Steps(super::runs::SMOKE_STEPS),
            (Scale::Quick, ..) => Budget::Steps(of(wanted.config.train.steps)),
            // What is small at the full scale too takes seconds there.
            (Scale::Full, ..) => Budget::Steps(steps.map_or(wanted.config.train.steps, of)),
        }
    }

    fn state(&self, wanted: &Wanted) -> Result<State> {
        if let Some((_, dir)) = self.given_for(wanted) {
            // What is no model is told before hours of training.
            Trained::open(&dir)?;
            return Ok(State::Given(dir));
        }
        Ok(match self.steps_of(wanted) {
            None => State::Missing,
            Some(_) if self.is_finished(wanted) => State::Finished,
            Some((step, of)) => State::Interrupted { step, of },
        })
    }
}

/// Where nothing is trained, nobody follows.
pub(super) struct Nobody;

impl Follow for Nobody {
    fn training(&mut self, run: &str) -> Box<dyn Watch> {
        unreachable!("a plan trains nothing, not even {run}")
    }

    fn side_by_side(&mut self, _jobs: &[PathBuf], _at_a_time: usize) -> Result<()> {
        unreachable!("a plan trains nothing")
    }
}
