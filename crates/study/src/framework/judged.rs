//! Evaluations of a study's models, kept beside their runs in `judged.jsonl`.
//!
//! To judge a large model takes as long as hundreds of its steps, and a study judges many. So a process that has trained a model for
//! a study judges it at once, while the others still train ([`Study::extents`](super::Study::extents)), and whoever asks again, this
//! study or another, finds the numbers. They are of the same weights, images and device, or they are not taken.

use rrvq::dataset::{Dataset, Split};
use rrvq::evaluate::EvalRecord;
use rrvq::fingerprint::{of_images, of_weights};
use rrvq::{Error, Result, Trained};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const FILE: &str = "judged.jsonl";
/// Images of a split that stand for all of them.
const LOOKED_AT: usize = 16;

/// One evaluation, and what it was of.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Images that were asked for; 0 is all.
    asked: usize,
    device: String,
    weights: u64,
    data: u64,
    found: EvalRecord,
}

/// Where a run's evaluations are kept, and those on one device.
pub struct Judged {
    path: PathBuf,
    device: String,
}

impl Judged {
    /// Those of a run folder.
    pub fn of(run: &Path, device: &str) -> Judged {
        Judged {
            path: run.join(FILE),
            device: device.into(),
        }
    }

    /// What is kept, or what `evaluate` finds, which is then kept.
    pub fn or_else(
        &self,
        trained: &Trained,
        data: &dyn Dataset,
        (split, asked): (Split, usize),
        evaluate: impl FnOnce() -> Result<EvalRecord>,
    ) -> Result<EvalRecord> {
        let (weights, images) = (
            of_weights(trained.theta()),
            of_images(data, split, LOOKED_AT),
        );
        let same = |line: &Line| {
            line.found.split == split.to_string()
                && (line.asked, line.weights, line.data) == (asked, weights, images)
                && line.device == self.device
        };
        if let Some(line) = self.lines()?.into_iter().find(same) {
            return Ok(line.found);
        }
        let found = evaluate()?;
        let line = Line {
            asked,
            device: self.device.clone(),
            weights,
            data: images,
            found,
        };
        self.keep(&line)?;
        Ok(line.found)
    }

    fn lines(&self) -> Result<Vec<Line>> {
        match std::fs::read_to_string(&self.path) {
            // What was cut off in the middle is evaluated again.
            Ok(text) => Ok(text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }

    /// One write, so that lines of several processes do not mix.
    fn keep(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line)
            .map_err(|error| Error::new(format!("cannot write an evaluation as JSON: {error}")))?;
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|error| Error::io("write", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::TrainOptions;
    use rrvq::config::Config;
    use rrvq::train::Silent;
    use std::cell::Cell;

    #[test]
    fn an_evaluation_is_made_once_for_the_same_weights_images_and_device() {
        let scratch = tempfile::tempdir().unwrap();
        let mut config = Config::preset("tiny-swatches").unwrap();
        let mut trained = |seed: u64| {
            config.train.seed = seed;
            (config.train.steps, config.train.early_images) = (1, 0);
            let data = rrvq_data::open_for(&config).unwrap();
            let out = scratch.path().join(format!("run-{seed}"));
            let options = TrainOptions {
                out: Some(out.clone()),
                ..TrainOptions::default()
            };
            let mut trainer =
                rrvq::Trainer::with(&config, data.as_ref(), rrvq::Device::Cpu, options).unwrap();
            trainer.run(&mut Silent).unwrap();
            drop(trainer);
            (Trained::open(&out).unwrap(), data)
        };
        let ((first, data), (second, _)) = (trained(0), trained(1));
        let calls = Cell::new(0);
        let ask = |device: &str, trained: &Trained, split: Split, asked: usize| {
            let judged = Judged::of(scratch.path(), device);
            let found = judged.or_else(trained, data.as_ref(), (split, asked), || {
                calls.set(calls.get() + 1);
                Ok(EvalRecord {
                    split: split.to_string(),
                    bits_per_dim: calls.get() as f64,
                    ..EvalRecord::default()
                })
            });
            found.unwrap().bits_per_dim
        };
        assert_eq!(ask("cpu", &first, Split::Test, 8), 1.0);
        assert_eq!(ask("cpu", &first, Split::Test, 8), 1.0);
        assert_eq!(ask("cpu", &first, Split::Train, 8), 2.0);
        assert_eq!(ask("cpu", &first, Split::Test, 9), 3.0);
        assert_eq!(ask("cuda", &first, Split::Test, 8), 4.0);
        assert_eq!(ask("cpu", &second, Split::Test, 8), 5.0);
        // A line that was cut off is no harm, and no number.
        let path = scratch.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert_eq!(ask("cpu", &first, Split::Test, 8), 1.0);
        assert_eq!(ask("cpu", &second, Split::Test, 8), 6.0);
    }
}
