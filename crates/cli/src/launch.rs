//! Working with other processes: those a launcher has started, or one a GPU, started on this machine by
//! `rrvq train --gpus N`.
//!
//! Each of the latter is this program with the same arguments and the environment that other launchers set too
//! ([`rrvq::cluster::launch`]). This process waits, hands signals on and ends with their exit code.

use crate::device::Compute;
use crate::terminal::complain;
use rrvq::cluster::{Cluster, Launch};
use rrvq::device::cuda_report;
use rrvq::{Collective, Error, Group, Result};
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What says who started a process, so that it ends when that one is gone.
pub const PARENT: &str = "RRVQ_PARENT";

/// How long those that are left may take to end after one has failed; they end each other long before.
const LEFT: Duration = Duration::from_secs(30);

/// Signals that this process was given.
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// Starts a process for each of these GPUs and waits for all. Does not come back.
pub fn start(gpus: RangeInclusive<usize>) -> Result<()> {
    let ready = cuda_report().ready().map_err(|reason| {
        Error::new(format!(
            "{} GPUs cannot be used: {reason}",
            gpus.clone().count()
        ))
    })?;
    if let Some(missing) = gpus.clone().find(|gpu| !ready.contains(gpu)) {
        let (have, want) = (ready.len(), gpus.clone().count());
        return Err(Error::new(format!(
            "training on {want} GPUs needs cuda:{missing}, and {have} can be used on this machine; ask for fewer with --gpus, or \
             start ranks on several machines with torchrun, srun or mpirun"
        )));
    }
    let handler = || {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    };
    ctrlc::set_handler(handler)
        .map_err(|e| Error::new(format!("cannot listen for Ctrl-C: {e}")))?;
    let mut children = Vec::new();
    let started = spawn(gpus.clone().count(), &mut children);
    if let Err(error) = started {
        children.iter_mut().for_each(end);
        return Err(error);
    }
    std::process::exit(wait(&mut children));
}

fn spawn(world: usize, children: &mut Vec<Child>) -> Result<()> {
    let trouble =
        |error: std::io::Error| Error::new(format!("cannot start a process for each GPU: {error}"));
    let program = std::env::current_exe().map_err(trouble)?;
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let port = port.map_err(trouble)?.port();
    for rank in 0..world {
        let mut command = Command::new(&program);
        command
            .args(std::env::args_os().skip(1))
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", world.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null());
        // Ctrl-C reaches this process, which hands it on once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        children.push(command.spawn().map_err(trouble)?);
    }
    Ok(())
}

/// The exit code of all: that of the first that failed.
fn wait(children: &mut [Child]) -> i32 {
    let mut codes: Vec<Option<i32>> = vec![None; children.len()];
    let (mut handed_on, mut failed) = (0, None);
    while codes.contains(&None) {
        for (child, code) in children.iter_mut().zip(&mut codes) {
            if code.is_none()
                && let Ok(Some(status)) = child.try_wait()
            {
                *code = Some(status.code().unwrap_or(2));
                if *code != Some(0) {
                    failed.get_or_insert((code.unwrap_or(2), Instant::now()));
                }
            }
        }
        let signals = SIGNALS.load(Ordering::SeqCst);
        if signals > handed_on {
            handed_on = signals;
            children.iter().for_each(interrupt);
        }
        if failed.is_some_and(|(_, since)| since.elapsed() > LEFT) {
            complain("some ranks did not end with the others and are killed");
            children.iter_mut().for_each(end);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    failed.map_or(0, |(code, _)| code)
}

/// Kills a process and waits for it.
pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Hands Ctrl-C on.
#[cfg(unix)]
pub fn interrupt(child: &Child) {
    unsafe extern "C" {
        fn kill(process: i32, signal: i32) -> i32;
    }
    const SIGINT: i32 = 2;
    // SAFETY: a child that was not waited for; its number is nobody else's.
    unsafe { kill(child.id() as i32, SIGINT) };
}

#[cfg(not(unix))]
pub fn interrupt(_child: &Child) {}

/// Ends all ranks when the process that started them is gone.
#[cfg(unix)]
pub fn end_with_parent(together: Arc<dyn Collective>) {
    let parent = std::env::var(PARENT).ok().and_then(|id| id.parse().ok());
    let Some(parent): Option<u32> = parent else {
        return;
    };
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_secs(1));
        }
        together.fail("the process that started all ranks has ended, so they end too")
    });
}

#[cfg(not(unix))]
pub fn end_with_parent(_together: Arc<dyn Collective>) {}

/// Whether this process is one of several and not their first, which alone speaks.
pub fn is_other_rank() -> bool {
    Launch::from_environment().is_ok_and(|launch| launch.is_some_and(|launch| launch.rank > 0))
}

/// The other processes that a launcher has started with this one. A single process needs nobody, unless it is to be
/// measured what talking to itself costs.
pub fn joined() -> Result<Option<(Launch, Cluster)>> {
    let asked = std::env::var_os("RRVQ_COLLECTIVE").is_some();
    let launch = Launch::from_environment()?;
    match launch.filter(|launch| launch.world > 1 || asked) {
        None => Ok(None),
        Some(launch) => {
            let cluster = Cluster::join(&launch)?;
            Ok(Some((launch, cluster)))
        }
    }
}

/// Works with other processes, on a GPU of this one's own, and ends with them.
pub fn with(
    launch: Launch,
    cluster: Cluster,
    compute: Compute,
    work: impl FnOnce(Compute, &Cluster) -> Result<()>,
) -> Result<()> {
    end_with_parent(cluster.collective());
    match work(compute.of_process(launch.local), &cluster) {
        Ok(()) => cluster.finish(),
        Err(error) => cluster.fail(&error.tell(crate::flag)),
    }
    Ok(())
}

/// Works alone, or with the other processes that a launcher has started.
pub fn with_others(
    compute: Compute,
    work: impl FnOnce(Compute, Option<&Cluster>) -> Result<()>,
) -> Result<()> {
    match joined()? {
        None => work(compute, None),
        Some((launch, cluster)) => with(launch, cluster, compute, |compute, cluster| {
            work(compute, Some(cluster))
        }),
    }
}

/// How the processes of a cluster talk, and whether another one prints.
pub fn together(cluster: Option<&Cluster>) -> (Option<Arc<dyn Collective>>, bool) {
    let collective = cluster.map(Cluster::collective);
    (
        collective,
        cluster.is_some_and(|cluster| cluster.rank() > 0),
    )
}

/// The same with one part of a batch for each process.
pub fn group_of(cluster: Option<&Cluster>) -> Result<(Option<Group>, bool)> {
    let (collective, silent) = together(cluster);
    let group = collective.map(|collective| {
        let world = collective.world();
        Group::new(collective, world)
    });
    Ok((group.transpose()?, silent))
}
