//! Training on arrays or data sets.

use crate::arrays::{Batch, device};
use crate::model::{Model, json};
use crate::work::{Reports, follow};
use crate::{Error, told};
use numpy::PyReadonlyArray4;
use pyo3::prelude::*;
use rrvq::dataset::{Dataset, Images, hold_out};
use rrvq::evaluate::EvalRecord;
use rrvq::interrupt::Interrupt;
use rrvq::programs::StepOutcome;
use rrvq::run::{Existing, Run};
use rrvq::train::{Started, Watch};
use rrvq::{Config, TrainOptions, Trained, Trainer};
use std::path::PathBuf;

/// Share of an array's images that is held out where there are no test images.
const HELD_OUT: f64 = 0.1;

/// What is told while training.
enum Progress {
    Started {
        parameters: usize,
        from: usize,
        steps: usize,
    },
    Step {
        step: usize,
        loss: f64,
    },
    Evaluated(EvalRecord),
}

struct Follow<'a>(&'a Reports<Progress, Trained>, &'a Interrupt);

impl Watch for Follow<'_> {
    fn started(&mut self, start: &Started) {
        self.0.send(Progress::Started {
            parameters: start.parameters,
            from: start.from,
            steps: start.steps,
        });
    }

    fn stepped(&mut self, step: usize, outcome: &StepOutcome) {
        let loss = outcome.loss;
        self.0.send(Progress::Step { step, loss });
    }

    fn evaluated(&mut self, record: &EvalRecord) {
        self.0.send(Progress::Evaluated(record.clone()));
    }

    fn stop(&self) -> bool {
        self.1.is_set()
    }
}

/// The settings to start from, by what they are: the name of a "preset", a "file", or the folder of a "run".
fn config(kind: &str, of: &str, changes: &[String]) -> rrvq::Result<Config> {
    let mut config = match kind {
        "preset" => Config::preset(of)?,
        "run" => Config::load(Run::open(of)?.config())?,
        _ => Config::load(of)?,
    };
    changes.iter().try_for_each(|change| config.set(change))?;
    config.validate()?;
    Ok(config)
}

/// Those settings with changes, as JSON.
#[pyfunction]
pub fn settings(kind: &str, of: &str, changes: Vec<String>) -> PyResult<String> {
    json(&config(kind, of, &changes).map_err(told)?)
}

/// The images to train on: an array, with another to judge by or a share of its own held out, or the data set of the
/// settings, which may lie in another folder.
#[derive(FromPyObject)]
pub struct Source<'py> {
    #[pyo3(item)]
    train: Option<PyReadonlyArray4<'py, u8>>,
    #[pyo3(item)]
    test: Option<PyReadonlyArray4<'py, u8>>,
    #[pyo3(item)]
    folder: Option<PathBuf>,
    #[pyo3(item)]
    flip: bool,
}

impl Source<'_> {
    /// The images of the arrays, if it is arrays.
    fn images(&self, config: &mut Config) -> PyResult<Option<Images>> {
        let Some(train) = &self.train else {
            config.data.dir = self.folder.clone().or(config.data.dir.take());
            return Ok(None);
        };
        let train = Batch::of(train)?;
        let test = self.test.as_ref().map(Batch::of).transpose()?;
        if let Some(test) = test.as_ref().filter(|test| test.shape != train.shape) {
            return Err(Error::new_err(format!(
                "test images are {:?} and training images {:?}; expected one shape",
                test.shape, train.shape
            )));
        }
        if test.is_none() && config.data.holdout == 0.0 {
            config.data.holdout = HELD_OUT;
        }
        // Whoever opens the run is told that its images were an array, not those of the preset.
        config.data.name = "array".into();
        config.data.dir = None;
        Ok(Some(Images {
            name: "array".into(),
            shape: train.shape,
            train: train.bytes,
            test: test.map_or(Vec::new(), |test| test.bytes),
            flip: self.flip,
        }))
    }
}

/// What a run does besides computing.
#[derive(FromPyObject)]
pub struct Output {
    #[pyo3(item)]
    out: Option<PathBuf>,
    #[pyo3(item)]
    resume: bool,
    #[pyo3(item)]
    overwrite: bool,
    #[pyo3(item)]
    minutes: Option<f64>,
}

/// Trains; `listen` is told what happens as ("started", parameters, first step, steps), ("step", step, loss) and
/// ("evaluated", JSON). At Ctrl-C the run is saved first, where it has a folder.
#[pyfunction]
pub fn train(
    py: Python<'_>,
    start: (String, String),
    changes: Vec<String>,
    source: Source<'_>,
    output: Output,
    device_name: &str,
    listen: Bound<'_, PyAny>,
) -> PyResult<Model> {
    let device = device(device_name)?;
    let mut config = config(&start.0, &start.1, &changes).map_err(told)?;
    let arrays = source.images(&mut config)?;
    let options = TrainOptions {
        existing: match (output.resume, output.overwrite) {
            (true, _) => Existing::Resume,
            (_, true) => Existing::Overwrite,
            _ => Existing::Refuse,
        },
        out: output.out,
        tensorboard: false,
        seconds: output.minutes.map(|minutes| minutes * 60.0),
        together: None,
    };
    let work = |reports: &Reports<Progress, Trained>, interrupt: &Interrupt| {
        let data: Box<dyn Dataset> = match arrays {
            Some(images) => hold_out(Box::new(images), &config.data)?,
            None => rrvq_data::open_for(&config)?,
        };
        let mut trainer = Trainer::with(&config, data.as_ref(), device, options)?;
        // In its scope, so that an evaluation ends, too.
        interrupt.scope(|| trainer.run(&mut Follow(reports, interrupt)))?;
        trainer.finish()
    };
    let hear = |_: Python<'_>, progress: Progress| {
        match progress {
            Progress::Started {
                parameters,
                from,
                steps,
            } => listen.call1(("started", parameters, from, steps)),
            Progress::Step { step, loss } => listen.call1(("step", step, loss)),
            Progress::Evaluated(record) => listen.call1(("evaluated", json(&record)?)),
        }
        .map(|_| ())
    };
    let trained = follow(py, work, hear)?;
    Ok(Model { trained })
}
