//! A run folder: where the files of one training run are. They are written whole ([`crate::files`]).

use crate::error::{Error, Result};
use crate::files::Lock;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The paths of a run's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    dir: PathBuf,
}

/// What to do with a folder that already holds a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it alone and say so.
    Refuse,
    /// Remove the old run's files; other files stay.
    Overwrite,
    /// Keep everything: the run goes on.
    Resume,
}

/// How the names of TensorBoard's event files begin.
pub const EVENTS_PREFIX: &str = "events.out.tfevents.";

impl Run {
    /// Makes the folder for a run, or takes the one that is there as `existing` says; nobody else can take it as long as
    /// the lock is held.
    pub fn create(dir: impl Into<PathBuf>, existing: Existing) -> Result<(Run, Lock)> {
        let run = Run { dir: dir.into() };
        let shown = run.dir.display();
        if run.dir.exists() && !run.dir.is_dir() {
            return Err(Error::new(format!(
                "{shown} is a file; a run needs a folder, so choose another name"
            )));
        }
        if existing == Existing::Resume && !run.holds_a_run() {
            return Err(run.missing());
        }
        fs::create_dir_all(&run.dir).map_err(|error| Error::io("create", &run.dir, error))?;
        let lock = Lock::take(&run.dir)?;
        match existing {
            Existing::Refuse if run.holds_a_run() => {
                return Err(Error::new(format!(
                    "{shown} already holds a run; choose another folder, resume that run, or ask to overwrite it"
                )));
            }
            Existing::Overwrite => run.clear()?,
            _ => {}
        }
        let samples = run.samples();
        fs::create_dir_all(&samples).map_err(|error| Error::io("create", &samples, error))?;
        Ok((run, lock))
    }

    /// The run in an existing folder.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Run> {
        let run = Run { dir: dir.into() };
        match run.config().is_file() {
            true => Ok(run),
            false => Err(run.missing()),
        }
    }

    fn missing(&self) -> Error {
        if let Err(error) = std::fs::metadata(self.config())
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            return Error::io("read", self.config(), error);
        }
        let what = if self.dir.is_dir() {
            "has no config.toml"
        } else {
            "is not a folder"
        };
        Error::new(format!(
            "{} {what}; expected the folder of a run, as training makes it",
            self.dir.display()
        ))
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// The averaged weights, for everything but training.
    pub fn model(&self) -> PathBuf {
        self.dir.join("model.safetensors")
    }

    /// Raw weights, optimiser and counters, to go on training.
    pub fn state(&self) -> PathBuf {
        self.dir.join("state.safetensors")
    }

    /// One line of JSON for each record.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log.jsonl")
    }

    /// Pictures drawn while training.
    pub fn samples(&self) -> PathBuf {
        self.dir.join("samples")
    }

    /// The picture of samples drawn at `step`; names sort by step.
    pub fn sample(&self, step: usize) -> PathBuf {
        self.samples().join(format!("step-{step:08}.png"))
    }

    /// The folder of the prior over this run's codes; it looks like a run's own.
    pub fn prior(&self) -> Run {
        Run {
            dir: self.dir.join("prior"),
        }
    }

    fn holds_a_run(&self) -> bool {
        [self.config(), self.model(), self.state(), self.log()]
            .iter()
            .any(|path| path.exists())
    }

    /// Removes what a run writes, and nothing else. A prior goes with the codes it describes.
    fn clear(&self) -> Result<()> {
        let mut old = vec![self.config(), self.model(), self.state(), self.log()];
        if self.prior().holds_a_run() {
            self.prior().clear()?;
        }
        old.extend(entries(&self.dir, |name| name.starts_with(EVENTS_PREFIX))?);
        old.extend(entries(&self.samples(), |name| {
            name.starts_with("step-") && name.ends_with(".png")
        })?);
        for path in old {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The files of a folder whose names are `wanted`; none if there is no such folder.
fn entries(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| Error::io("list", dir, error))? {
        let entry = entry.map_err(|error| Error::io("list", dir, error))?;
        if entry.file_name().to_str().is_some_and(&wanted) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_run_is_not_taken_silently() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("run");
        assert!(
            Run::open(&dir)
                .unwrap_err()
                .to_string()
                .contains("is not a folder")
        );
        assert!(Run::create(&dir, Existing::Resume).is_err());
        let (run, lock) = Run::create(&dir, Existing::Refuse).unwrap();
        assert!(
            Run::open(&dir)
                .unwrap_err()
                .to_string()
                .contains("has no config.toml")
        );
        fs::write(run.config(), "x").unwrap();
        fs::write(run.sample(7), "x").unwrap();
        fs::write(dir.join("notes.txt"), "mine").unwrap();
        let said = Run::create(&dir, Existing::Overwrite).unwrap_err();
        assert!(said.to_string().contains("in use by process"), "{said}");
        drop(lock);
        assert!(
            Run::create(&dir, Existing::Refuse)
                .unwrap_err()
                .to_string()
                .contains("already holds a run")
        );
        assert_eq!(
            Run::create(&dir, Existing::Resume).unwrap().0,
            Run::open(&dir).unwrap()
        );
        Run::create(&dir, Existing::Overwrite).unwrap();
        assert!(!run.config().exists() && !run.sample(7).exists());
        assert_eq!(fs::read(dir.join("notes.txt")).unwrap(), b"mine");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("run"), "x").unwrap();
        let said = Run::create(scratch.path().join("run"), Existing::Refuse)
            .unwrap_err()
            .to_string();
        assert!(said.contains("is a file"), "{said}");
    }
}
