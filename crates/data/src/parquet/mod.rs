//! Parquet files with a column of images, as Hugging Face hands data sets out.
//!
//! Files may lie in the folder or below it. A file's split is told by its name or by the folder it is in: `train…`,
//! `test…` (or, where there is none, `validation…`). Files that say neither are split row by row, one in ten for
//! testing, as a folder of images is. Labels and other columns are not read.
//!
//! The reader is our own and small: it knows what such files are made of (plain and dictionary pages, snappy and gzip)
//! and says what it met where a file has something else.

mod file;
mod page;
mod snappy;
mod thrift;

use super::folder::split;
use super::items::{Item, Place, files_in};
use super::listing::Listing;
use super::mapped::map;
use file::Layout;
use memmap2::Mmap;
use rrvq::error::{Error, Result};
use rrvq::picture::Part;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const HOLDING: &str = "parquet files with a column of images";

/// A parquet file with images.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    bytes: Mmap,
    layout: Layout,
}

impl Table {
    fn open(path: &Path) -> Result<Table> {
        let bytes = map(path)?;
        let layout = file::layout(&bytes).map_err(|problem| {
            let path = path.display();
            Error::new(format!(
                "{path} cannot be read as a parquet file of images: {problem}"
            ))
        })?;
        Ok(Table {
            path: path.to_path_buf(),
            bytes,
            layout,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rows in the groups before this one.
    pub fn rows_before(&self, group: usize) -> usize {
        let groups = &self.layout.groups[..group];
        groups.iter().map(|group| group.rows).sum()
    }

    /// The encoded images of a group of rows.
    pub fn images(&self, group: usize) -> Result<Vec<Option<Vec<u8>>>> {
        file::images(&self.bytes, &self.layout, group).map_err(|problem| {
            let path = self.path.display();
            Error::new(format!("{path} is damaged: {problem}; fetch it again"))
        })
    }
}

/// Whether there is a parquet file in `dir` or below.
pub(super) fn is_there(dir: &Path) -> bool {
    tables_in(dir).is_ok_and(|files| !files.is_empty())
}

pub(super) fn list(dir: &Path) -> Result<Listing> {
    let files = tables_in(dir)?;
    let (mut train, mut test, mut valid, mut other) = (vec![], vec![], vec![], vec![]);
    for (below, path) in &files {
        let table = Arc::new(Table::open(path)?);
        let rows = (0..table.layout.groups.len())
            .flat_map(|group| (0..table.layout.groups[group].rows).map(move |row| (group, row)));
        let item = |(number, (group, row)): (usize, (usize, usize))| Item {
            below: format!("{below}/{number}"),
            place: Place::Row {
                table: table.clone(),
                group,
                row,
            },
        };
        let items = rows.enumerate().map(item);
        match split_of(below) {
            Some("train") => train.extend(items),
            Some("test") => test.extend(items),
            Some(_) => valid.extend(items),
            None => other.extend(items),
        }
    }
    if test.is_empty() {
        test = valid;
    }
    // What has no name of its own goes where nothing is named, and is one more part to train on otherwise.
    match (train.is_empty(), test.is_empty()) {
        (_, false) => train.append(&mut other),
        (false, true) => (test, train) = split([train, other].concat()),
        (true, true) => (test, train) = split(other),
    }
    if train.is_empty() || test.is_empty() {
        return Err(Error::new(format!(
            "{} has {} rows to train on and {} to test with in its {} parquet files; expected some of each",
            dir.display(),
            train.len(),
            test.len(),
            files.len()
        )));
    }
    Ok(Listing {
        name: "parquet",
        train,
        test,
        part: Part::Centre,
        dir: dir.to_path_buf(),
        files: files.into_iter().map(|(_, path)| path).collect(),
    })
}

fn tables_in(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let wanted = |path: &Path| path.extension().is_some_and(|ending| ending == "parquet");
    files_in(dir, &wanted)
}

/// The split a file belongs to by its name or else by its folders, the innermost first.
fn split_of(below: &str) -> Option<&'static str> {
    below.rsplit('/').find_map(|part| {
        let part = part.to_lowercase();
        let begins = |words: &[&str]| words.iter().any(|word| part.starts_with(word));
        match () {
            () if begins(&["train"]) => Some("train"),
            () if begins(&["test"]) => Some("test"),
            () if begins(&["valid", "val-", "val.", "dev"]) || part == "val" => Some("valid"),
            () => None,
        }
    })
}

#[cfg(test)]
mod tests;
