//! The processes of `rrvq study --jobs N`: this program with the same arguments and the file of a model to train.

use crate::launch::{end, interrupt};
use crate::terminal;
use rrvq::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A model that is being trained.
struct Job {
    name: String,
    process: Child,
    /// What the process says when it fails.
    said: PathBuf,
    begun: Instant,
}

impl Drop for Job {
    fn drop(&mut self) {
        end(&mut self.process);
        let _ = std::fs::remove_file(&self.said);
    }
}

impl Job {
    fn start(file: &Path, at_a_time: usize) -> Result<Job> {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        // Behind the model's name is the process that wants it.
        let name = stem.rsplit_once('.').map_or(&*stem, |(name, _)| name);
        let name = name.to_string();
        let trouble =
            |error| Error::new(format!("cannot start a process to train {name}: {error}"));
        let said = file.with_extension("said");
        let log = File::create(&said).map_err(|error| Error::io("write", &said, error))?;
        // They share the cores, unless --threads says how many each may use.
        let threads = (rayon::current_num_threads() / at_a_time).max(1);
        let mut command = Command::new(std::env::current_exe().map_err(trouble)?);
        command
            .args(std::env::args_os().skip(1))
            .arg("--job")
            .arg(file)
            .env("RAYON_NUM_THREADS", threads.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        // Ctrl-C reaches this process, which hands it on once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = command.spawn().map_err(trouble)?;
        Ok(Job {
            name,
            process,
            said,
            begun: Instant::now(),
        })
    }

    /// Why it failed, in its own words.
    fn failed(&self, status: ExitStatus) -> Error {
        let text = std::fs::read_to_string(&self.said).unwrap_or_default();
        let own = text.lines().rev().find_map(|l| l.strip_prefix("rrvq: "));
        let why = own.map_or_else(|| format!("its process ended with {status}"), String::from);
        Error::new(format!("{} could not be trained: {why}", self.name))
    }
}

/// Trains the models of these files, so many at a time. One that fails keeps no other from being trained, and is told at the
/// end; the runs of the others stay.
pub fn train(files: &[PathBuf], at_a_time: usize) -> Result<()> {
    let (mut waiting, mut running) = (files.iter().enumerate(), Vec::new());
    let (mut failed, mut handed_on) = (None, false);
    loop {
        let stopped = terminal::interrupt().is_set();
        while running.len() < at_a_time && !stopped {
            let Some((number, file)) = waiting.next() else {
                break;
            };
            let job = Job::start(file, at_a_time)?;
            let (name, all) = (&job.name, files.len());
            terminal::line(format!("  {name}: training, {} of {all}", number + 1));
            running.push(job);
        }
        if running.is_empty() {
            break;
        }
        if stopped && !handed_on {
            handed_on = true;
            running.iter().for_each(|job: &Job| interrupt(&job.process));
        }
        running.retain_mut(|job| match job.process.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let minutes = job.begun.elapsed().as_secs_f64() / 60.0;
                if status.success() {
                    terminal::line(format!("  {}: done in {minutes:.1} minutes", job.name));
                } else if !stopped {
                    failed.get_or_insert(job.failed(status));
                }
                false
            }
            Err(error) => {
                let why = format!("{} was lost sight of: {error}", job.name);
                failed.get_or_insert(Error::new(why));
                false
            }
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    terminal::interrupt().check()?;
    failed.map_or(Ok(()), Err)
}

/// In such a process: saves and ends when the one that started it is gone.
pub fn end_with_parent() {
    #[cfg(unix)]
    {
        use std::os::unix::process::parent_id;
        let parent = parent_id();
        std::thread::spawn(move || {
            while parent_id() == parent {
                std::thread::sleep(Duration::from_secs(1));
            }
            terminal::interrupt().set();
        });
    }
}
