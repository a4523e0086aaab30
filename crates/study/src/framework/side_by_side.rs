//! Models that are trained side by side, each by a process of its own.
//!
//! A [`Job`] is written to a file beside the run folders. Whoever follows the studies starts a process for each
//! ([`Follow::side_by_side`]) that does it with [`do_job`]; what became of it is in the file afterwards, and the run in
//! its folder, where the study finds it as one that was there already.

use super::runs::Wanted;
use super::{Context, Follow, Settings, folders};
use rrvq::config::Config;
use rrvq::files::write_atomic;
use rrvq::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A model to be trained by another process.
#[derive(Serialize, Deserialize)]
struct Job {
    name: String,
    /// The settings, as a configuration file.
    config: String,
    full_steps: Option<usize>,
    full_minutes: Option<f64>,
    quick_minutes: Option<f64>,
    may_diverge: bool,
    /// Minutes instead of what the scale has.
    minutes: Option<f64>,
    /// What the model is judged by once it is trained: splits, and how many of their images.
    extents: Vec<(String, usize)>,
    /// Afterwards, the sentence that says how it diverged, if it did.
    diverged: Option<String>,
}

impl Job {
    fn load(path: &Path) -> Result<Job> {
        let text = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
        serde_json::from_slice(&text).map_err(|error| {
            let path = path.display();
            Error::new(format!("{path} is not a model to be trained: {error}"))
        })
    }

    fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))?;
        write_atomic(path, |out| std::io::Write::write_all(out, &text))
    }

    fn wanted(&self, path: &Path) -> Result<Wanted> {
        Ok(Wanted {
            name: self.name.clone(),
            config: Config::read(&self.config, &path.display().to_string())?,
            full_steps: self.full_steps,
            full_minutes: self.full_minutes,
            quick_minutes: self.quick_minutes,
            may_diverge: self.may_diverge,
        })
    }
}

/// Files of jobs, which are gone when the jobs are over, however they ended.
struct Files(Vec<PathBuf>);

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Context<'_> {
    /// Trains models side by side; tells which diverged, by the names of their folders, and how.
    pub(super) fn side_by_side(&mut self, wanted: &[&Wanted]) -> Result<BTreeMap<String, String>> {
        let folder = self.settings.runs_folder();
        std::fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
        let mut files = Files(Vec::new());
        for one in wanted {
            // Several studies may train into one folder at a time.
            let path = folder.join(format!("{}.{}.job", one.folder(), std::process::id()));
            let job = Job {
                name: one.name.clone(),
                config: one.config.to_toml()?,
                full_steps: one.full_steps,
                full_minutes: one.full_minutes,
                quick_minutes: one.quick_minutes,
                may_diverge: one.may_diverge,
                minutes: self.share,
                extents: self
                    .extents
                    .iter()
                    .map(|(split, images)| (split.to_string(), *images))
                    .collect(),
                diverged: None,
            };
            files.0.push(path.clone());
            job.save(&path)?;
        }
        self.follow.side_by_side(&files.0, self.settings.jobs)?;
        let mut diverged = BTreeMap::new();
        for (path, one) in files.0.iter().zip(wanted) {
            if let Some(said) = Job::load(path)?.diverged {
                diverged.insert(one.folder(), said);
            }
        }
        Ok(diverged)
    }
}

/// Trains the model of a job's file, as the study that wrote it would.
pub fn do_job(path: &Path, settings: &Settings, follow: &mut dyn Follow) -> Result<()> {
    let mut job = Job::load(path)?;
    let folders = folders(&settings.data)?;
    let mut context = Context::new(settings, &folders, follow);
    match context.one(&job.wanted(path)?, job.minutes) {
        Ok(trial) => job
            .extents
            .iter()
            .try_for_each(|(split, images)| trial.evaluate(split.parse()?, *images).map(|_| ())),
        Err(Error::Diverged { message, .. }) => {
            job.diverged = Some(message);
            job.save(path)
        }
        Err(error) => Err(error),
    }
}
