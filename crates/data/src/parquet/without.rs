//! In place of the reader of parquet files in a build without it.

use rrvq::error::{Error, Result};
use std::path::Path;

/// No parquet file can be opened, so there is none.
#[derive(Debug)]
pub(crate) enum Table {}

impl Table {
    pub fn open(path: &Path) -> Result<Table> {
        let path = path.display();
        Err(Error::new(format!(
            "{path} cannot be read, since parquet files are not part of this build; build it with the cargo feature \
             parquet"
        )))
    }

    pub fn path(&self) -> &Path {
        match *self {}
    }

    pub fn rows(&self) -> Vec<usize> {
        match *self {}
    }

    pub fn labels(&self) -> Result<Vec<Option<u32>>> {
        match *self {}
    }

    pub fn classes(&self) -> Vec<String> {
        match *self {}
    }

    pub fn images(&self, _: usize) -> Result<Vec<Option<bytes::Bytes>>> {
        match *self {}
    }
}
