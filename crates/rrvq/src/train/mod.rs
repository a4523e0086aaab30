//! Training: from a configuration to a trained model, in memory or in a run folder.
//!
//! [`Trainer`] is the one loop, for models and for priors over their codes. Everything a step does is a function of the
//! configuration, the seed and the step's number, so that a run which is stopped and resumed writes the same bytes as
//! one that was not.

pub mod checkpoint;
mod due;
pub mod log;
mod model_task;
mod pace;
mod scalars;
pub mod schedule;
mod split;
mod start;
pub(crate) mod task;
pub mod tensorboard;
mod together;
mod trainer;

pub(crate) use start::batches_to_start;
pub(crate) use trainer::resuming;
pub use trainer::{Event, TrainOptions, Trainer};

use crate::evaluate::EvalRecord;
use crate::programs::StepOutcome;
use crate::run::Run;

/// Who follows a run: a terminal, a test, a notebook.
pub trait Watch {
    /// Before the first step.
    fn started(&mut self, _start: &Started) {}
    /// Steps in all, as the pace has it now, in a run that has minutes instead.
    fn planned(&mut self, _steps: usize) {}
    /// After every step.
    fn stepped(&mut self, _step: usize, _outcome: &StepOutcome) {}
    /// After an evaluation; early in a run, of a few training images.
    fn evaluated(&mut self, _record: &EvalRecord) {}
    /// After a checkpoint was written.
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
    /// Parameters of what is trained.
    pub parameters: usize,
    /// Bytes of the one allocation a step works in.
    pub arena_bytes: usize,
    /// Seconds of drawing, compiling and initialising.
    pub seconds: f64,
    /// Steps made before, when resuming.
    pub from: usize,
    /// Steps in all.
    pub steps: usize,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its folder, where it has one.
    pub run: Option<Run>,
    /// Steps made.
    pub step: usize,
    /// Told to stop before the last step.
    pub interrupted: bool,
    /// The last evaluation.
    pub last: Option<EvalRecord>,
}
