//! The one error of this library: a sentence for a person.
//!
//! Whoever meets it can rarely do more than show it and stop, so there are no variants to match on.
//! The sentence names the file or key at fault, what was expected, and what to do about it.

use std::fmt;
use std::path::Path;

/// What went wrong, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
}

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Error {
            message: message.into(),
        }
    }

    /// A failed attempt to `action` (a verb: "read", "write", "create") the file or folder at `path`.
    pub fn io(action: &str, path: impl AsRef<Path>, error: std::io::Error) -> Self {
        let path = path.as_ref().display();
        Error::new(format!("cannot {action} {path}: {}", reason(&error)))
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
        NotADirectory => "a part of the path is a file, not a folder".into(),
        _ => error.to_string(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_name_the_path_and_the_reason() {
        let error = std::fs::read("no/such/file").unwrap_err();
        let said = Error::io("read", "no/such/file", error).to_string();
        assert_eq!(
            said,
            "cannot read no/such/file: there is no such file or folder"
        );
    }
}
