//! Where results go, by one rule for all commands: a file that is there is replaced with --force only, `-` is standard
//! output, and pipes and devices are written to as they are.

use crate::terminal;
use rrvq::files::write_atomic;
use rrvq::{Error, Result};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

/// Flags that all commands have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    pub force: bool,
    pub quiet: bool,
    pub verbose: bool,
    /// One of several processes, of which another one speaks.
    pub one_of_many: bool,
}

static MANNER: OnceLock<Manner> = OnceLock::new();

/// How this program was asked to behave.
pub fn manner() -> Manner {
    MANNER.get().copied().unwrap_or_default()
}

/// Said once, before any command.
pub fn set_manner(manner: Manner) {
    let _ = MANNER.set(manner);
}

/// Whether a path stands for standard input or output.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses to replace what is there, unless --force says so. Said before the work whose result goes there.
pub fn check_free(path: &Path) -> Result<()> {
    let taken = match std::fs::symlink_metadata(path) {
        Ok(found) => found.is_file() && !manner().force,
        Err(_) => false,
    };
    match taken && !is_stream(path) {
        true => Err(Error::new(format!(
            "{} is there already; choose another name or replace it with --force",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Writes a file whole or not at all, or standard output. What is not written by the disk's fault and what is not by the
/// image's need different sentences.
pub fn write<T: Default>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    if is_stream(path) {
        // Whole or not at all, here too.
        let mut bytes = Vec::new();
        let done = write(&mut bytes)?;
        let mut out = io::stdout().lock();
        let written = out.write_all(&bytes).and_then(|()| out.flush());
        return written
            .map(|()| done)
            .map_err(|error| Error::io("write", "standard output", error));
    }
    let mut outcome = Ok(T::default());
    let written = write_atomic(path, |file| {
        outcome = write(file);
        match &outcome {
            Ok(_) => Ok(()),
            Err(_) => Err(io::ErrorKind::Other.into()),
        }
    });
    outcome.and_then(|done| written.map(|()| done))
}

/// Refuses to fill a terminal's screen with bytes.
pub fn check_stream(path: &Path) -> Result<()> {
    match is_stream(path) && io::stdout().is_terminal() {
        true => Err(Error::new(
            "standard output is a terminal; send it to a file or a pipe, or name a place with --out",
        )),
        false => Ok(()),
    }
}

/// A line about a result that goes to `path`: on standard error where standard output has the result itself.
pub fn tell(path: &Path, text: impl AsRef<str>) {
    match is_stream(path) {
        true if manner().quiet => {}
        true => terminal::aside(text),
        false => terminal::note(text),
    }
}

/// One JSON object about it, the same way.
pub fn tell_json(path: &Path, value: &serde_json::Value) {
    match is_stream(path) {
        true => terminal::aside(value.to_string()),
        false => terminal::json(value),
    }
}
