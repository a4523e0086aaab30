//! Encoded images: where each one is, what it is called in a message, and its bytes.
//!
//! An image may be a file, a file inside a zip archive, or a row of a parquet file. Rows of one group are unpacked
//! together, so images are always read in runs, and a run is whatever must be unpacked at once.

use super::archive::Zip;
use super::parquet::Table;
use bytes::Bytes;
use rrvq::error::{Error, Result};
use rrvq::limits::read_file;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Endings of the files that count as images.
const ENDINGS: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// An encoded image.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Its path below the folder or in the archive, with `/` on every system; decides splits and random crops.
    pub below: String,
    pub place: Place,
    pub label: Option<u32>,
}

/// Where the bytes of an encoded image are.
#[derive(Debug, Clone)]
pub(super) enum Place {
    File(PathBuf),
    /// A file of a zip archive, by its number there.
    Zipped(Arc<Zip>, usize),
    Row {
        table: Arc<Table>,
        group: usize,
        row: usize,
    },
}

impl Item {
    /// Whether the other is unpacked with this one.
    pub fn goes_with(&self, other: &Item) -> bool {
        let group = |item: &Item| match &item.place {
            Place::Row { table, group, .. } => Some((Arc::as_ptr(table), *group)),
            _ => None,
        };
        group(self).is_some() && group(self) == group(other)
    }

    /// What the image is called without its folders and its ending.
    pub fn stem(&self) -> &str {
        let name = self.below.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(stem, _)| stem)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path) => write!(f, "{}", path.display()),
            Place::Zipped(zip, _) => write!(f, "{} in {}", self.below, zip.path().display()),
            Place::Row { table, group, row } => {
                let row = table.rows()[..*group].iter().sum::<usize>() + row;
                write!(f, "row {row} of {}", table.path().display())
            }
        }
    }
}

/// The bytes of the images of a run.
pub(super) fn read(run: &[Item]) -> Result<Vec<Bytes>> {
    let Some(first) = run.first() else {
        return Ok(Vec::new());
    };
    if let Place::Row { table, group, .. } = &first.place {
        let mut images = table.images(*group)?;
        return run
            .iter()
            .map(|item| {
                let image = match &item.place {
                    Place::Row { row, .. } => images.get_mut(*row).and_then(Option::take),
                    _ => None,
                };
                image.ok_or_else(|| {
                    Error::new(format!(
                        "{item} has no image; expected one in every row, so take it out"
                    ))
                })
            })
            .collect();
    }
    run.iter().map(alone).collect()
}

fn alone(item: &Item) -> Result<Bytes> {
    match &item.place {
        Place::File(path) => Ok(read_file(path)?.into()),
        Place::Zipped(zip, number) => zip.read(*number).map(Bytes::from).map_err(|problem| {
            let (name, path) = (&item.below, zip.path().display());
            Error::new(format!(
                "cannot unpack {name} from {path}: {problem}; fetch the archive again"
            ))
        }),
        Place::Row { .. } => unreachable!("rows are read by their group"),
    }
}

/// The images in a zip archive, sorted by path; hidden ones and those of hidden folders are left out.
pub(super) fn images_in_zip(path: &Path) -> Result<Vec<Item>> {
    let zip = Arc::new(Zip::open(path)?);
    let hidden = |name: &str| name.split('/').any(|part| part.starts_with(['.', '_']));
    let mut items: Vec<Item> = zip
        .files()
        .into_iter()
        .filter(|(_, name)| is_image(Path::new(name)) && !hidden(name))
        .map(|(number, below)| Item {
            below,
            place: Place::Zipped(zip.clone(), number),
            label: None,
        })
        .collect();
    items.sort_by(|a, b| a.below.cmp(&b.below));
    Ok(items)
}

/// The images in `dir` and its folders, sorted by path; hidden files are left out.
pub(super) fn images_in(dir: &Path) -> Result<Vec<Item>> {
    let item = |(below, path)| Item {
        below,
        place: Place::File(path),
        label: None,
    };
    Ok(files_in(dir, &is_image)?.into_iter().map(item).collect())
}

/// The `wanted` files in `dir` and its folders: path below it, with `/`, and whole path, sorted.
pub(super) fn files_in(
    dir: &Path,
    wanted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<(String, PathBuf)>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut folders = vec![(String::new(), dir.to_path_buf())];
    while let Some((prefix, folder)) = folders.pop() {
        // A link to a folder that was listed already would never end.
        let real = folder
            .canonicalize()
            .map_err(|error| Error::io("open", &folder, error))?;
        if !seen.insert(real) {
            continue;
        }
        let listed = std::fs::read_dir(&folder).map_err(|e| Error::io("open", &folder, e))?;
        for entry in listed {
            let entry = entry.map_err(|error| Error::io("list", &folder, error))?;
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            // Asking each of many files for more than its kind takes long; links are followed.
            let kind = match entry.file_type() {
                Ok(kind) if !kind.is_symlink() => Some(kind),
                _ => path.metadata().ok().map(|found| found.file_type()),
            };
            if kind.is_some_and(|kind| kind.is_dir()) {
                folders.push((format!("{prefix}{name}/"), path));
            } else if wanted(&path) {
                // Whoever opens a pipe waits for somebody to write to it.
                if kind.is_some_and(|kind| !kind.is_file()) {
                    return Err(Error::new(format!(
                        "{} is a pipe or a device; expected regular files, so move it elsewhere",
                        path.display()
                    )));
                }
                found.push((format!("{prefix}{name}"), path));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    ENDINGS.contains(&ending.to_lowercase().as_str())
}
