//! One sentence that names the thing, what was expected and what to do.

/// What went wrong: one sentence that names the thing, what was expected and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that reads as this sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Error(sentence.into())
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
