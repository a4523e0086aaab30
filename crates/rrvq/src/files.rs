//! Files are written whole: under a temporary name beside their place, synced, then renamed.
//!
//! A program that is killed, or a disk that fills up, leaves the old file or the new one, never half of one.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes the file at `path` whole or not at all.
pub fn write_atomic(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let Some(name) = path.file_name() else {
        return Err(Error::new(format!(
            "cannot write {}: it is not the name of a file",
            path.display()
        )));
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.rrvq-tmp", std::process::id()));
    let temporary = path.with_file_name(hidden);
    let written = write_and_sync(&temporary, write).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The first error is the one to tell; a leftover temporary is harmless.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io("write", path, error));
    }
    sync_folder(path);
    Ok(())
}

fn write_and_sync(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(File::create(path)?);
    write(&mut writer)?;
    writer.into_inner()?.sync_all()
}

/// Makes the rename itself lasting; not every system can, and the file is whole either way.
fn sync_folder(path: &Path) {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_whole_file_replaces_the_old_one() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("model");
        write_atomic(&path, |out| out.write_all(b"old")).unwrap();
        write_atomic(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(scratch.path()), ["model"]);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_litter() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("model");
        write_atomic(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_atomic(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        let said = failed.unwrap_err().to_string();
        assert!(
            said.contains("cannot write") && said.contains("model: the disk is full"),
            "{said}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(scratch.path()), ["model"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_reported_when_the_buffer_is_flushed() {
        let full = write_and_sync(Path::new("/dev/full"), |out| {
            out.write_all(b"few bytes, so the buffer holds them")
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let said = write_atomic(scratch.path().join("no/file"), |_| Ok(()))
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("no/file: there is no such file or folder"),
            "{said}"
        );
    }
}
