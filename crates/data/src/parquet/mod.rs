//! Parquet files with a column of images, as Hugging Face hands data sets out.
//!
//! Files may lie in the folder or below it. A file's split is told by its name or by the folder it is in: `train…`,
//! `test…` (or, where there is none, `validation…`). Files that say neither are split row by row, one in ten for
//! testing, as a folder of images is. A column `label` of integers is read too; other columns are not.
//!
//! The crate `parquet` reads them, behind the cargo feature `parquet`; without it, such files are refused with a sentence.

#[cfg(feature = "parquet")]
mod footer;
#[cfg(feature = "parquet")]
mod headers;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod table;
#[cfg(not(feature = "parquet"))]
#[path = "without.rs"]
mod table;
#[cfg(feature = "parquet")]
mod thrift;

use super::folder::split;
use super::items::{Item, Place, files_in};
use super::listing::Listing;
use rrvq::error::{Error, Result};
use rrvq::picture::Part;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub(super) use table::Table;

pub(super) const HOLDING: &str = "parquet files with a column of images";

/// Whether there is a parquet file in `dir` or below.
pub(super) fn is_there(dir: &Path) -> bool {
    tables_in(dir).is_ok_and(|files| !files.is_empty())
}

pub(super) fn list(dir: &Path) -> Result<Listing> {
    let files = tables_in(dir)?;
    let (mut train, mut test, mut valid, mut other) = (vec![], vec![], vec![], vec![]);
    let mut classes = vec![];
    for (below, path) in &files {
        let table = Arc::new(Table::open(path)?);
        let rows = table.rows().into_iter().enumerate();
        let rows = rows.flat_map(|(group, rows)| (0..rows).map(move |row| (group, row)));
        let labels = table.labels()?;
        classes = if classes.is_empty() {
            table.classes()
        } else {
            classes
        };
        let item = |(number, (group, row)): (usize, (usize, usize))| Item {
            below: format!("{below}/{number}"),
            label: labels.get(number).copied().flatten(),
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
        classes,
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

#[cfg(all(test, feature = "parquet"))]
mod tests;

#[cfg(all(test, not(feature = "parquet")))]
mod tests {
    #[test]
    fn without_the_feature_a_sentence_says_so() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("train.parquet"), b"PAR1").unwrap();
        assert!(super::is_there(scratch.path()));
        let said = super::list(scratch.path()).unwrap_err().to_string();
        assert!(
            said.contains("train.parquet") && said.contains("feature parquet"),
            "{said}"
        );
    }
}
