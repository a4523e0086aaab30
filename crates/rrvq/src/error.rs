//! What can go wrong: a sentence for a person, and a kind for a program.
//!
//! The sentence names the file or setting at fault, what was expected, and what to do about it. The library speaks of
//! settings; where a program has a flag for the same thing, [`Error::remedy`] tells it which one to name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What went wrong.
///
/// ```
/// use rrvq::{Config, Error};
/// match Config::load("no/such/file.toml") {
///     Err(Error::Io { path, .. }) => assert!(path.ends_with("file.toml")),
///     other => panic!("{other:?}"),
/// }
/// let mut config = Config::default();
/// let said = config.set("train.lr=fast").unwrap_err();
/// assert!(matches!(said, Error::Invalid { .. }));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// Settings, arguments, or the contents of a file that cannot be worked with.
    Invalid {
        /// The sentence, up to what to do about it where `remedy` says that.
        message: String,
        /// What the user can change.
        remedy: Option<Remedy>,
    },
    /// The operating system refused.
    Io {
        /// What was attempted, a verb: "read", "write", "create".
        action: String,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// Training reached numbers that are not finite.
    Diverged {
        /// After this many steps.
        step: usize,
        /// What was not finite, such as "KL in layer 3".
        place: String,
        /// The sentence: where, what is kept, what to try.
        message: String,
    },
    /// The work was told to end before it was done ([`crate::interrupt`]).
    Interrupted,
    /// A device or a compiled program failed.
    Device(rrvq_tensor::Error),
}

/// What a user can change to mend an error, where a program may have a flag for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// The folder that a data set is read from: `data.dir`.
    DataFolder,
    /// What is done about a run that exists: [`crate::run::Existing::Overwrite`].
    Overwrite,
    /// A prior over codes has to be trained anew.
    TrainPrior,
    /// The model that a file was written with.
    Model,
    /// How many images corrections of the codec are fitted to.
    Neighbours,
    /// Leaving out unused codes.
    Prune,
    /// Where a download is put.
    Destination,
    /// Where a download comes from.
    Source,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::DataFolder => "set data.dir to the right folder",
            Remedy::Overwrite => "overwrite the run",
            Remedy::TrainPrior => "train the prior again",
            Remedy::Model => "open the model and pass it",
            Remedy::Neighbours => "ask for more than 0 images",
            Remedy::Prune => "pack it as it is",
            Remedy::Destination => "choose another folder",
            Remedy::Source => "try another address",
        })
    }
}

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Error::Invalid {
            message: message.into(),
            remedy: None,
        }
    }

    /// An error that says `message`, and what to change.
    pub fn with_remedy(message: impl Into<String>, remedy: Remedy) -> Self {
        Error::Invalid {
            message: message.into(),
            remedy: Some(remedy),
        }
    }

    /// A failed attempt to `action` (a verb: "read", "write", "create") the file or folder at `path`.
    pub fn io(action: &str, path: impl AsRef<Path>, error: std::io::Error) -> Self {
        Error::Io {
            action: action.into(),
            path: path.as_ref().into(),
            source: Arc::new(error),
        }
    }

    /// What the user can change, where that is known.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Invalid { remedy, .. } => *remedy,
            _ => None,
        }
    }

    /// The sentence, with what to do about it in the words of `remedy`.
    pub fn tell(&self, remedy: impl Fn(Remedy) -> String) -> String {
        match self {
            Error::Invalid {
                message,
                remedy: Some(change),
            } => format!("{message}; {}", remedy(*change)),
            Error::Invalid { message, .. } | Error::Diverged { message, .. } => message.clone(),
            Error::Io {
                action,
                path,
                source,
            } => {
                let written = matches!(action.as_str(), "write" | "create");
                let reason = match (source.kind(), path.parent()) {
                    (std::io::ErrorKind::NotFound, Some(folder))
                        if written && !folder.as_os_str().is_empty() && !folder.exists() =>
                    {
                        format!("there is no folder {}; make it first", folder.display())
                    }
                    _ => reason(source),
                };
                format!("cannot {action} {}: {reason}", path.display())
            }
            Error::Interrupted => "interrupted before the end; nothing was kept".into(),
            Error::Device(error) => error.to_string(),
        }
    }
}

/// The usual reasons in plain words; the rest as the system tells them.
fn reason(error: &std::io::Error) -> String {
    use std::io::ErrorKind::*;
    match error.kind() {
        NotFound => "there is no such file or folder".into(),
        PermissionDenied => "permission denied".into(),
        StorageFull => "the disk is full; free some space and try again".into(),
        ReadOnlyFilesystem => "the disk is read-only".into(),
        IsADirectory => "it is a folder".into(),
        AlreadyExists => "there is something of that name, which is not a folder".into(),
        NotADirectory => "a part of the path is a file, not a folder".into(),
        _ => error.to_string(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tell(|remedy| remedy.to_string()))
    }
}

/// Errors are equal when they say the same.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Device(error) => Some(error),
            Error::Invalid { .. } | Error::Diverged { .. } | Error::Interrupted => None,
        }
    }
}

impl From<rrvq_tensor::Error> for Error {
    fn from(error: rrvq_tensor::Error) -> Self {
        Error::Device(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn io_errors_name_the_path_and_the_reason() {
        let error = std::fs::read("no/such/file").unwrap_err();
        let error = Error::io("read", "no/such/file", error);
        assert_eq!(
            error.to_string(),
            "cannot read no/such/file: there is no such file or folder"
        );
        let source = error
            .source()
            .unwrap()
            .downcast_ref::<Arc<std::io::Error>>();
        assert_eq!(source.unwrap().kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn a_program_says_what_to_do_in_its_own_words() {
        let error = Error::with_remedy("x has no images", Remedy::DataFolder);
        assert_eq!(
            error.to_string(),
            "x has no images; set data.dir to the right folder"
        );
        assert_eq!(error.remedy(), Some(Remedy::DataFolder));
        assert_eq!(
            error.tell(|_| "use --data".into()),
            "x has no images; use --data"
        );
    }
}
