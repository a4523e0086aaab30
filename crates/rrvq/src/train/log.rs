//! The log of a run: `log.jsonl`, one JSON object a line.
//!
//! Lines are appended and flushed one by one, so the file can be followed while training. A run that was killed may
//! leave a torn last line and lines past its last save; resuming drops both, so that no step is logged twice.

use crate::error::{Error, Result};
use crate::evaluate::record::{number, numbers};
use crate::evaluate::{EvalRecord, Usage};
use crate::files::write_atomic;
use crate::limits::read_file;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// Means of the steps since the last record.
    Train(TrainRecord),
    /// An evaluation.
    Eval(EvalRecord),
    /// An evaluation on a few training images, for how the codes of a young run are used.
    Early(EvalRecord),
    /// Codes that were split.
    Split(SplitRecord),
    /// The last record of a run that diverged; resuming from the checkpoint before it drops it.
    Diverged(DivergedRecord),
}

impl Record {
    /// How many steps had been made.
    pub fn step(&self) -> usize {
        match self {
            Record::Train(record) => record.step,
            Record::Eval(record) | Record::Early(record) => record.step,
            Record::Split(record) => record.step,
            Record::Diverged(record) => record.step,
        }
    }

    /// The evaluation, if it is one.
    pub fn evaluation(&self) -> Option<&EvalRecord> {
        match self {
            Record::Eval(record) => Some(record),
            _ => None,
        }
    }

    /// What tells how codes are used: an evaluation, or an early one.
    pub fn code_use(&self) -> Option<&EvalRecord> {
        match self {
            Record::Eval(record) | Record::Early(record) => Some(record),
            Record::Train(_) | Record::Split(_) | Record::Diverged(_) => None,
        }
    }
}

/// How training goes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TrainRecord {
    /// Steps made.
    pub step: usize,
    /// What the optimiser lowers, in nats an image, free bits included.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Negative ELBO, in bits a dimension.
    #[serde(deserialize_with = "number")]
    pub bits_per_dim: f64,
    /// The reconstruction's part of it, in bits a dimension.
    #[serde(deserialize_with = "number")]
    pub reconstruction: f64,
    /// Each layer's KL, in bits a dimension, bottom first.
    #[serde(deserialize_with = "numbers")]
    pub kl: Vec<f64>,
    /// Global norm of the gradient before clipping.
    #[serde(deserialize_with = "number")]
    pub grad_norm: f64,
    /// Steps since the last record whose gradient was too large to be made; older logs have none.
    #[serde(default)]
    pub skipped: usize,
    /// Learning rate.
    pub lr: f64,
    /// Temperature of the Gumbel-softmax.
    pub temperature: f64,
    /// Speed since the last record.
    #[serde(deserialize_with = "number")]
    pub images_per_second: f64,
    /// Seconds of training since the run began.
    pub seconds: f64,
}

/// Codes that were hardly used, each now half of another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SplitRecord {
    /// Steps made.
    pub step: usize,
    /// How many of each layer, bottom first.
    pub codes: Vec<usize>,
    /// How each layer's codes were used before, bottom first; older logs have none.
    #[serde(default)]
    pub usage: Vec<Usage>,
    /// Seconds of counting and splitting.
    pub seconds: f64,
}

/// Where a run diverged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DivergedRecord {
    /// Steps made, the one that failed included.
    pub step: usize,
    /// What was not finite first, such as "the KL of layer 2".
    pub place: String,
    /// The whole sentence, with what may be done.
    pub said: String,
}

/// Appends to a log.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Begins a new log; an old one at `path` is lost.
    pub fn create(path: impl Into<PathBuf>) -> Result<Log> {
        let path = path.into();
        let file = File::create(&path).map_err(|error| Error::io("create", &path, error))?;
        Ok(Log { path, file })
    }

    /// Goes on with a log, dropping what was written after `step` steps, and where evaluations of that step are made
    /// again, those too.
    pub fn resume(path: impl Into<PathBuf>, step: usize, evaluated: bool) -> Result<Log> {
        let path = path.into();
        let mut kept = String::new();
        let stays = |record: &&Record| {
            let again = record.step() == step && !evaluated && record.code_use().is_some();
            record.step() <= step && !again
        };
        for record in read(&path)?.iter().filter(stays) {
            kept.push_str(&line(record)?);
        }
        write_atomic(&path, |out| out.write_all(kept.as_bytes()))?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|error| Error::io("open", &path, error))?;
        Ok(Log { path, file })
    }

    /// Appends one record.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        // One call for the whole line, so that a reader seldom meets half of one.
        self.file
            .write_all(line(record)?.as_bytes())
            .map_err(|error| Error::io("write", &self.path, error))
    }
}

fn line(record: &Record) -> Result<String> {
    let text = serde_json::to_string(record);
    text.map(|text| text + "\n")
        .map_err(|error| Error::new(format!("cannot write a record as JSON: {error}")))
}

/// Every record of the log at `path`; none if there is no file. A torn last line is passed over.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Record>> {
    let path = path.as_ref();
    let bytes = match read_file(path) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let mut records = Vec::new();
    for (number, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        match serde_json::from_slice(line) {
            Ok(record) => records.push(record),
            // Only what follows the last line break can be torn.
            Err(_) if number + 1 == lines.len() => {}
            Err(error) => {
                return Err(Error::new(format!(
                    "{}, line {}: expected a record of a run, but {error}; remove the line",
                    path.display(),
                    number + 1
                )));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(step: usize) -> Record {
        Record::Train(TrainRecord {
            step,
            loss: 0.1 + 0.2,
            kl: vec![0.25, 1e-9],
            ..Default::default()
        })
    }

    fn eval(step: usize) -> Record {
        let usage = vec![Usage::of(&[4, 4, 0])];
        Record::Eval(EvalRecord {
            step,
            split: "test".into(),
            images: 64,
            usage,
            ..Default::default()
        })
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let scratch = tempfile::tempdir().unwrap();
        let mut log = Log::create(scratch.path().join("log.jsonl")).unwrap();
        let records = [train(10), eval(10), train(20)];
        records.iter().for_each(|record| log.write(record).unwrap());
        assert_eq!(read(scratch.path().join("log.jsonl")).unwrap(), records);
        assert_eq!(read(scratch.path().join("none.jsonl")).unwrap(), []);
        let text = std::fs::read_to_string(scratch.path().join("log.jsonl")).unwrap();
        assert!(
            text.starts_with("{\"kind\":\"train\",\"step\":10,"),
            "{text}"
        );
    }

    #[test]
    fn logs_of_before_a_field_can_still_be_read() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log.jsonl");
        let eval = r#"{"kind":"eval","step":10,"split":"test","images":64,"bits_per_dim":1.5,"reconstruction":1.0,
            "kl":[0.5],"usage":[{"used":3,"perplexity":2.5,"dead":1}],"seconds":0.1}"#;
        let split = r#"{"kind":"split","step":20,"codes":[2],"seconds":0.1}"#;
        let eval = eval.replace('\n', " ");
        std::fs::write(&path, format!("{eval}\n{split}\n")).unwrap();
        let records = read(&path).unwrap();
        let found = records[0].code_use().unwrap();
        assert_eq!(found.codes_in_use(), Some((3, 4)));
        assert!(found.position_bits.is_empty());
        assert_eq!(records[1].step(), 20);
    }

    #[test]
    fn an_early_evaluation_is_not_a_result() {
        let early = Record::Early(EvalRecord {
            step: 100,
            ..EvalRecord::default()
        });
        assert!(early.evaluation().is_none() && early.code_use().is_some());
        assert_eq!(early.step(), 100);
        assert_eq!(EvalRecord::default().codes_in_use(), None);
    }

    #[test]
    fn a_diverged_run_can_still_be_read() {
        let scratch = tempfile::tempdir().unwrap();
        let mut log = Log::create(scratch.path().join("log.jsonl")).unwrap();
        let kl = vec![f64::INFINITY, 1.0];
        log.write(&Record::Train(TrainRecord {
            loss: f64::NAN,
            kl,
            ..Default::default()
        }))
        .unwrap();
        let records = read(scratch.path().join("log.jsonl")).unwrap();
        let [Record::Train(record)] = records.as_slice() else {
            panic!("{records:?}")
        };
        assert!(record.loss.is_nan() && record.kl[0].is_nan() && record.kl[1] == 1.0);
    }

    #[test]
    fn resuming_drops_later_steps_and_a_torn_line() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log.jsonl");
        let mut log = Log::create(&path).unwrap();
        [train(10), eval(10), train(20), eval(20)]
            .iter()
            .for_each(|record| log.write(record).unwrap());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\":\"train\",\"st").unwrap();
        assert_eq!(read(&path).unwrap().len(), 4);
        let mut log = Log::resume(&path, 10, true).unwrap();
        log.write(&train(15)).unwrap();
        assert_eq!(read(&path).unwrap(), [train(10), eval(10), train(15)]);
        Log::resume(&path, 10, false).unwrap();
        assert_eq!(read(&path).unwrap(), [train(10)]);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log.jsonl");
        let mut log = Log::create(&path).unwrap();
        log.write(&train(1)).unwrap();
        log.file.write_all(b"oops\n").unwrap();
        log.write(&train(2)).unwrap();
        let said = read(&path).unwrap_err().to_string();
        assert!(
            said.contains("log.jsonl, line 2: expected a record"),
            "{said}"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_a_sentence() {
        let mut log = Log::create("/dev/full").unwrap();
        assert!(
            log.write(&train(1))
                .unwrap_err()
                .to_string()
                .contains("the disk is full")
        );
    }

    #[test]
    fn usage_counts_codes() {
        let usage = Usage::of(&[5, 5, 0, 5, 5]);
        assert_eq!((usage.used, usage.dead), (4, 1));
        assert!((usage.perplexity - 4.0).abs() < 1e-12);
        assert_eq!(
            Usage::of(&[0, 0]),
            Usage {
                used: 0,
                perplexity: 1.0,
                dead: 2
            }
        );
    }
}
