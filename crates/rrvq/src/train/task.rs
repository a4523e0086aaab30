//! What a [`super::Trainer`] trains: a model, or a prior over the codes of one.

use super::checkpoint::Kept;
use super::log::SplitRecord;
use crate::config::{ModelConfig, TrainConfig};
use crate::error::Result;
use crate::evaluate::{EvalRecord, Extent};
use crate::picture::Picture;
use crate::programs::{StepInput, StepOutcome};
use rrvq_tensor::Store;

/// Samples in a picture drawn while training.
pub(crate) const SAMPLES: usize = 64;

/// The part of training that differs between models and priors. `store` holds everything a step keeps; `shown` holds,
/// as `theta`, the weights that are to be looked at.
pub(crate) trait Task {
    /// How it is trained.
    fn settings(&self) -> &TrainConfig;

    /// Has it make so many steps in all.
    fn set_steps(&mut self, steps: usize);

    /// The model's settings.
    fn model(&self) -> &ModelConfig;

    /// What a checkpoint holds.
    fn kept(&self) -> Kept<'_>;

    /// Bytes a step works in.
    fn bytes(&self) -> usize;

    /// Makes one step for each input.
    fn burst(&mut self, store: &mut Store, inputs: &[StepInput]) -> Result<Vec<StepOutcome>>;

    /// Temperature of the samples at a step.
    fn temperature(&self, _step: usize) -> f64 {
        1.0
    }

    /// Splits codes that hardly any image uses, where that is due after `step` steps.
    fn split(
        &mut self,
        _store: &mut Store,
        _shown: &mut Store,
        _step: u64,
    ) -> Result<Option<SplitRecord>> {
        Ok(None)
    }

    /// The images that evaluations look at.
    fn extent(&self) -> Extent;

    /// Judges weights by images.
    fn evaluate(&mut self, shown: &mut Store, extent: Extent) -> Result<EvalRecord>;

    /// What is not finite when one more step is tried with these weights, on a few images.
    fn not_finite(&mut self, shown: &mut Store) -> Result<Option<String>>;

    /// [`SAMPLES`] pictures.
    fn samples(&mut self, shown: &mut Store) -> Result<Vec<Picture>>;

    /// What is written beside the weights.
    fn notes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What to try when training diverges.
    fn advice(&self) -> String;
}
