//! Several processes that train one model: who started them, how they talk, and what happens when one of them is gone.
//!
//! Launchers that clusters have (`torchrun`, `srun`, `mpirun`) tell each process its rank in environment variables
//! ([`launch`]). Under `mpirun` the processes talk through MPI, which is loaded at run time ([`mpi`]); otherwise through TCP
//! with the first of them in the middle ([`tcp`]), which is enough for a few numbers a second: the gradients of GPUs go
//! through NCCL. Beside either there is a second TCP connection on which nothing is said but that a process is alive
//! ([`watch`]).
//!
//! What is above the trait [`Collective`] does not know any of this.

pub mod launch;
pub mod mpi;
mod share;
mod tcp;
mod watch;

pub use launch::{Launch, Launcher};
pub use share::{Made, shared};

use crate::config::Config;
use crate::dataset::{Dataset, Split};
use crate::error::{Error, Result};
use crate::fingerprint::of_images;
use rrvq_tensor::{Collective, Device};
use std::sync::Arc;
use watch::Watcher;

/// The processes of a training, found each other.
pub struct Cluster {
    collective: Arc<dyn Collective>,
    watcher: Arc<Watcher>,
    mpi: Option<Arc<mpi::Mpi>>,
}

impl Cluster {
    /// Finds the others. Waits for those that have not started yet, but not for ever.
    pub fn join(launch: &Launch) -> Result<Cluster> {
        if launch.launcher == Launcher::Mpi {
            let mpi = Arc::new(mpi::Mpi::start(launch)?);
            let watcher = Watcher::through(mpi.as_ref(), launch)?;
            let collective = Arc::new(Watched {
                inner: mpi.clone(),
                watcher: watcher.clone(),
            });
            return Ok(Cluster {
                collective,
                watcher,
                mpi: Some(mpi),
            });
        }
        let (hub, controls) = tcp::meet(launch)?;
        let watcher = Watcher::start(launch.rank, controls);
        let collective = Arc::new(Watched {
            inner: Arc::new(hub),
            watcher: watcher.clone(),
        });
        Ok(Cluster {
            collective,
            watcher,
            mpi: None,
        })
    }

    /// How they talk.
    pub fn collective(&self) -> Arc<dyn Collective> {
        self.collective.clone()
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.collective.rank()
    }

    /// Refuses processes that do not train the same model on the same images with the same program, and names the first
    /// difference.
    pub fn check_same(&self, config: &Config, data: &dyn Dataset, device: &Device) -> Result<()> {
        let own = facts(config, data, device)?;
        let all = self.collective.gather(own.as_bytes())?;
        for (rank, other) in all.iter().enumerate() {
            if *other != all[0] {
                let (first, other) = (
                    String::from_utf8_lossy(&all[0]),
                    String::from_utf8_lossy(other),
                );
                return Err(Error::new(difference(rank, &first, &other)));
            }
        }
        Ok(())
    }

    /// Says that this process has done its work, and waits for the others to have done theirs.
    pub fn finish(self) {
        self.watcher.finish();
        if let Some(mpi) = &self.mpi {
            mpi.finish();
        }
    }

    /// Ends all processes with this one's error.
    pub fn fail(&self, sentence: &str) -> ! {
        self.watcher.fail(sentence)
    }
}

/// Whatever carries the bytes, with every call counted: the watcher sees who does not get on.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn Collective>,
    watcher: Arc<Watcher>,
}

impl Collective for Watched {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn world(&self) -> usize {
        self.inner.world()
    }
    fn gather(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<Vec<u8>>> {
        self.watcher.count();
        self.inner.gather(mine)
    }
    fn exchange(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<u8>> {
        self.watcher.count();
        self.inner.exchange(mine)
    }
    fn fail(&self, sentence: &str) -> ! {
        self.watcher.fail(sentence)
    }
}

/// Images of each split that are compared.
const LOOKED_AT: usize = 64;

/// What must be the same in all processes, a line each. Folders may differ between machines.
fn facts(config: &Config, data: &dyn Dataset, device: &Device) -> Result<String> {
    let mut config = config.clone();
    config.data.dir = None;
    let version = env!("CARGO_PKG_VERSION");
    let (device, precision) = (device.name(), device.precision().name());
    let mut text = format!("program version = {version}\ndevice = {device} {precision}\n");
    for split in [Split::Train, config.data.evaluation_split()] {
        let (count, hash) = (data.len(split), of_images(data, split, LOOKED_AT));
        text += &format!(
            "images of data set {} ({split}) = {count}, hash {hash:016x}\n",
            data.name()
        );
    }
    let mut section = String::new();
    for line in config.to_toml()?.lines() {
        match line.strip_prefix('[') {
            Some(name) => section = name.trim_end_matches(']').to_string(),
            None if line.is_empty() => {}
            None => text += &format!("{section}.{line}\n"),
        }
    }
    Ok(text)
}

/// The first line in which two processes differ.
fn difference(rank: usize, first: &str, other: &str) -> String {
    let lines = first.lines().zip(other.lines());
    let (a, b) = lines
        .into_iter()
        .find(|(a, b)| a != b)
        .unwrap_or(("fewer settings", "more"));
    format!(
        "rank 0 has {a} and rank {rank} has {b}; start all processes with the same program, settings and data"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Swatches;

    #[test]
    fn differences_are_named() {
        let config = Config::preset("tiny-swatches").unwrap();
        let facts_of = |change: &str| {
            let mut config = config.clone();
            config.set(change).unwrap();
            facts(&config, &Swatches::for_config(&config), &Device::Cpu).unwrap()
        };
        let base = facts_of("train.lr=2e-3");
        assert_eq!(base, facts_of("train.lr=2e-3"));
        let said = difference(3, &base, &facts_of("train.lr=1e-3"));
        assert!(
            said.contains("rank 0 has train.lr = 0.002 and rank 3 has train.lr = 0.001"),
            "{said}"
        );
        let said = difference(1, &base, &facts_of("data.train_images=99"));
        assert!(
            said.contains("images of data set swatches (train) = 99"),
            "{said}"
        );
    }
}
