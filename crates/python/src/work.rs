//! Computing without the interpreter: a thread works, the calling one waits and listens to Python.

use crate::{Error, told};
use pyo3::prelude::*;
use rrvq::interrupt::Interrupt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long Ctrl-C may wait to be seen.
const PATIENCE: Duration = Duration::from_millis(50);

/// Whether this process has computed, and whether it was forked after that: the threads it would compute with are gone.
static COMPUTED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Called in the child of every fork.
#[pyfunction]
pub fn forked() {
    FORKED.store(COMPUTED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// What a working thread says.
enum Said<M, T> {
    Progress(M),
    Done(rrvq::Result<T>),
}

/// Where a working thread reports progress.
pub struct Reports<M, T>(Sender<Said<M, T>>);

impl<M, T> Reports<M, T> {
    pub fn send(&self, message: M) {
        // The other end waits until the work is done.
        let _ = self.0.send(Said::Progress(message));
    }
}

/// The result of `work`, computed without the interpreter. Ctrl-C, or an exception of `listen`, ends it at its next
/// batch and is raised.
pub fn compute<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> rrvq::Result<T> + Send,
) -> PyResult<T> {
    let quiet = |_: Python<'_>, (): ()| Ok(());
    follow(py, |_, interrupt| interrupt.scope(work), quiet)
}

/// The same with progress: `listen` gets what the work reports, on Python's thread. The work decides what an interrupt
/// means.
pub fn follow<M: Send, T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Reports<M, T>, &Interrupt) -> rrvq::Result<T> + Send,
    mut listen: impl FnMut(Python<'_>, M) -> PyResult<()>,
) -> PyResult<T> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Error::new_err(
            "this process was forked from one that had computed with rrvq, and its threads are gone; start processes with \
             multiprocessing's \"spawn\"",
        ));
    }
    COMPUTED.store(true, Ordering::Relaxed);
    let interrupt = Interrupt::default();
    let mut raised = None;
    let mut done = None;
    let finished = std::thread::scope(|scope| -> PyResult<std::thread::Result<()>> {
        let (sender, mut receiver) = channel();
        let reports = Reports(sender);
        let noticed = &interrupt;
        let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
            let result = work(&reports, noticed);
            let _ = reports.0.send(Said::Done(result));
        });
        let thread =
            thread.map_err(|error| Error::new_err(format!("cannot start a thread: {error}")))?;
        loop {
            // Receivers are not shared between threads, but may be handed over.
            let receiver = &mut receiver;
            let said = py.detach(move || receiver.recv_timeout(PATIENCE));
            let listened = match said {
                Ok(Said::Done(result)) => {
                    done = Some(result);
                    Ok(())
                }
                // After the last word the sender is gone; without one, the thread panicked.
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(Said::Progress(message)) if raised.is_none() => listen(py, message),
                Ok(Said::Progress(_)) => Ok(()),
                Err(RecvTimeoutError::Timeout) => Ok(()),
            };
            if let Err(error) = listened.and_then(|()| py.check_signals()) {
                interrupt.set();
                raised.get_or_insert(error);
            }
        }
        Ok(py.detach(|| thread.join()))
    })?;
    match (finished, raised, done) {
        (Err(panic), ..) => std::panic::resume_unwind(panic),
        (_, Some(error), _) => Err(error),
        (_, None, Some(result)) => result.map_err(told),
        (_, None, None) => Err(Error::new_err("the work ended without a result")),
    }
}
