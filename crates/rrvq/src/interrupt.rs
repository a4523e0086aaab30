//! Ending a long computation from another thread, between two of its batches.
//!
//! Whoever starts the work holds an [`Interrupt`] and has the work done inside [`Interrupt::scope`]; encoding, decoding,
//! sampling, evaluating and compressing ask [`check`] before every batch. Training ends its evaluations so, and saves; between
//! them it asks [`crate::train::Watch::stop`].

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CURRENT: RefCell<Interrupt> = RefCell::default();
}

/// Ends the work inside its scope.
///
/// ```
/// use rrvq::interrupt::{Interrupt, check};
///
/// let interrupt = Interrupt::default();
/// assert!(interrupt.scope(|| check()).is_ok());
/// interrupt.set(); // from any thread
/// assert!(matches!(interrupt.scope(|| check()), Err(rrvq::Error::Interrupted)));
/// ```
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// The one whose scope this thread is in; never set outside of all scopes.
    pub fn current() -> Interrupt {
        CURRENT.with_borrow(Interrupt::clone)
    }

    /// Has the work end at its next batch.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it was set.
    pub fn check(&self) -> Result<()> {
        match self.is_set() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// Does work that can be interrupted, on this thread. Threads it starts take [`Interrupt::current`] along.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Also after a panic, the thread is where it was.
        struct Outer(Interrupt);
        impl Drop for Outer {
            fn drop(&mut self) {
                CURRENT.replace(std::mem::take(&mut self.0));
            }
        }
        let _outer = Outer(CURRENT.replace(self.clone()));
        work()
    }
}

/// Does work that has to be finished, whether or not the interrupt of this thread's scope is set.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    Interrupt::default().scope(work)
}

/// An error once the interrupt of this thread's scope is set.
pub fn check() -> Result<()> {
    Interrupt::current().check()
}
