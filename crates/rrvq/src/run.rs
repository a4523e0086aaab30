//! A run folder: where the files of one training run are, and how they are written.
//!
//! Files that are replaced as a run goes on are written under a temporary name beside their place, synced, then
//! renamed: a run that is killed, or a disk that fills up, leaves the old file or the new one, never half of one.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
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
    /// Makes the folder for a run, or takes the one that is there as `existing` says.
    pub fn create(dir: impl Into<PathBuf>, existing: Existing) -> Result<Run> {
        let run = Run { dir: dir.into() };
        let shown = run.dir.display();
        if run.dir.exists() && !run.dir.is_dir() {
            return Err(Error::new(format!(
                "{shown} is a file; a run needs a folder, so choose another name"
            )));
        }
        match existing {
            Existing::Refuse if run.holds_a_run() => {
                return Err(Error::new(format!(
                    "{shown} already holds a run; choose another folder, resume that run, or ask to overwrite it"
                )));
            }
            Existing::Overwrite => run.clear()?,
            Existing::Resume if !run.holds_a_run() => return Err(run.missing()),
            _ => {}
        }
        let samples = run.samples();
        fs::create_dir_all(&samples).map_err(|error| Error::io("create", &samples, error))?;
        Ok(run)
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

/// Writes the file at `path` whole or not at all.
pub fn write_atomic(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let Some(name) = path.file_name() else {
        return Err(Error::new(format!(
            "cannot write {}: it is not the name of a file",
            path.display()
        )));
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.rrvq-tmp", std::process::id()));
    let temporary = path.with_file_name(hidden);
    let written = write_and_sync(&temporary, write).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The first error is the one to tell; a leftover temporary is harmless.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io("write", path, error));
    }
    sync_folder(path);
    Ok(())
}

fn write_and_sync(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(File::create(path)?);
    write(&mut writer)?;
    writer.into_inner()?.sync_all()
}

/// Makes the rename itself lasting; not every system can, and the file is whole either way.
fn sync_folder(path: &Path) {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A fresh folder that goes away with the value.
    pub(crate) struct Scratch(PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Scratch {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let dir =
                std::env::temp_dir().join(format!("rrvq-test-{}-{number}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Scratch(dir)
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        pub(crate) fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_whole_file_replaces_the_old_one() {
        let scratch = Scratch::new();
        let path = scratch.path("model");
        write_atomic(&path, |out| out.write_all(b"old")).unwrap();
        write_atomic(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(scratch.names(), ["model"]);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_litter() {
        let scratch = Scratch::new();
        let path = scratch.path("model");
        write_atomic(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_atomic(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        let said = failed.unwrap_err().to_string();
        assert!(
            said.contains("cannot write") && said.contains("model: the disk is full"),
            "{said}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(scratch.names(), ["model"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_reported_when_the_buffer_is_flushed() {
        let full = write_and_sync(Path::new("/dev/full"), |out| {
            out.write_all(b"few bytes, so the buffer holds them")
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let scratch = Scratch::new();
        let said = write_atomic(scratch.path("no/file"), |_| Ok(()))
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("no/file: there is no such file or folder"),
            "{said}"
        );
    }

    #[test]
    fn a_folder_with_a_run_is_not_taken_silently() {
        let scratch = Scratch::new();
        let dir = scratch.path("run");
        assert!(
            Run::open(&dir)
                .unwrap_err()
                .to_string()
                .contains("is not a folder")
        );
        assert!(Run::create(&dir, Existing::Resume).is_err());
        let run = Run::create(&dir, Existing::Refuse).unwrap();
        assert!(
            Run::open(&dir)
                .unwrap_err()
                .to_string()
                .contains("has no config.toml")
        );
        fs::write(run.config(), "x").unwrap();
        fs::write(run.sample(7), "x").unwrap();
        fs::write(dir.join("notes.txt"), "mine").unwrap();
        assert!(
            Run::create(&dir, Existing::Refuse)
                .unwrap_err()
                .to_string()
                .contains("already holds a run")
        );
        assert_eq!(
            Run::create(&dir, Existing::Resume).unwrap(),
            Run::open(&dir).unwrap()
        );
        Run::create(&dir, Existing::Overwrite).unwrap();
        assert!(!run.config().exists() && !run.sample(7).exists());
        assert_eq!(fs::read(dir.join("notes.txt")).unwrap(), b"mine");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let scratch = Scratch::new();
        fs::write(scratch.path("run"), "x").unwrap();
        let said = Run::create(scratch.path("run"), Existing::Refuse)
            .unwrap_err()
            .to_string();
        assert!(said.contains("is a file"), "{said}");
    }
}
