//! Files are written whole: under a temporary name beside their place, synced, then renamed; and folders that one process
//! at a time may write to.
//!
//! A program that is killed, or a disk that fills up, leaves the old file or the new one, never half of one. What it was
//! writing stays behind under a name that ends in `.rrvq-tmp` and goes with the next write to the same place.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// How names of files that are being written end.
const TEMPORARY: &str = ".rrvq-tmp";

/// Writes the file at `path` whole or not at all. Replaces a regular file or nothing: pipes, terminals and the like are written
/// to, folders, links and disks are refused.
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
    if streams(path) {
        let device = File::options().write(true).open(path);
        let written = device.and_then(|device| fill(device, write));
        return written
            .map(drop)
            .map_err(|error| Error::io("write", path, error));
    }
    check_replaceable(path)?;
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    remove_abandoned(folder_of(path), &prefix);
    let written = temporary(folder_of(path), &prefix).and_then(|file| {
        let file = fill(file, write)?;
        file.as_file().sync_all()?;
        // A file that could not be moved is removed again.
        file.persist(path).map_err(|failed| failed.error)
    });
    written.map_err(|error| Error::io("write", path, error))?;
    sync_folder(path);
    Ok(())
}

/// Writes everything, the buffer's rest included.
fn fill<F: Write>(file: F, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<F> {
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    Ok(writer.into_inner()?)
}

/// Whether `path` is, or leads to, something that takes bytes as they come, such as /dev/stdout.
#[cfg(unix)]
fn streams(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_char_device() || kind.is_fifo()
    })
}

#[cfg(not(unix))]
fn streams(_: &Path) -> bool {
    false
}

/// Refuses what must not be replaced by a file.
fn check_replaceable(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let what = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        kind if kind.is_symlink() => "a link",
        _ => "a device",
    };
    Err(Error::new(format!(
        "cannot write {}: it is {what}, and only a regular file is replaced; choose another name",
        path.display()
    )))
}

/// A new file in `folder` that nobody else knows the name of, locked as long as it is written.
fn temporary(folder: &Path, prefix: &OsString) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(TEMPORARY);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let file = builder.tempfile_in(folder)?;
    // Where a file system has no locks, an unfinished file may be taken for an abandoned one by a second writer of the
    // same name; its write then fails as a whole.
    let _ = file.as_file().try_lock();
    Ok(file)
}

/// Removes what writers of the same name left that were killed: nobody holds its lock.
fn remove_abandoned(folder: &Path, prefix: &OsString) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes())
            && name.as_encoded_bytes().ends_with(TEMPORARY.as_bytes());
        let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
        if ours
            && is_file()
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Makes the rename itself lasting; not every system can, and the file is whole either way.
fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
}

/// A folder held by this process, until dropped. The system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    /// Open as long as it is held.
    _file: File,
    path: PathBuf,
}

impl Lock {
    /// The name of the file that is locked.
    const NAME: &str = ".lock";

    /// Takes `folder`, or says which process has it.
    pub fn take(folder: &Path) -> Result<Lock> {
        let path = folder.join(Self::NAME);
        Lock::try_file(&path)?.ok_or_else(|| {
            let who = fs::read_to_string(&path).unwrap_or_default();
            Error::new(format!(
                "{} is in use by {}; wait until it ends, or choose another folder",
                folder.display(),
                match who.trim() {
                    "" => "another process",
                    who => who,
                }
            ))
        })
    }

    /// Takes the file at `path`, which is made for it and removed after; nothing if another process has it.
    pub fn try_file(path: &Path) -> Result<Option<Lock>> {
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let failed = |error| Error::io("write", path, error);
            let file = options.open(path).map_err(failed)?;
            match file.try_lock() {
                // Some file systems have no locks; a run there is not worse off than without one.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
            }
            // The holder before us may have removed the file between our opening and locking it.
            if same_file(&file, path) {
                let who = format!("process {}\n", std::process::id());
                file.set_len(0).map_err(failed)?;
                (&file).write_all(who.as_bytes()).map_err(failed)?;
                let path = path.into();
                return Ok(Some(Lock { _file: file, path }));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked: nobody else can have taken it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Elsewhere a file that is open cannot be removed.
#[cfg(not(unix))]
fn same_file(_: &File, path: &Path) -> bool {
    path.exists()
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

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_replaced() {
        use std::os::unix::{fs::symlink, net::UnixListener};
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("mine"), "kept").unwrap();
        symlink(at("mine"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (name, what) in [
            ("link", "it is a link"),
            ("dangling", "it is a link"),
            ("folder", "it is a folder"),
            ("socket", "it is a device"),
        ] {
            let said = write_atomic(at(name), |out| out.write_all(b"x")).unwrap_err();
            assert!(said.to_string().contains(what), "{said}");
        }
        assert_eq!(fs::read(at("mine")).unwrap(), b"kept");
        assert!(!at("nowhere").exists());
        // A link to a device, in the scratch folder: it is written to and stays what it is.
        symlink("/dev/null", at("null")).unwrap();
        write_atomic(at("null"), |out| out.write_all(b"x")).unwrap();
        assert!(fs::symlink_metadata(at("null")).unwrap().is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_has_the_usual_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let (ours, plain) = (scratch.path().join("ours"), scratch.path().join("plain"));
        write_atomic(&ours, |out| out.write_all(b"x")).unwrap();
        fs::write(&plain, "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn what_killed_writers_left_goes_and_what_others_write_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at(".model.17.rrvq-tmp"), "abandoned").unwrap();
        fs::write(at(".other.17.rrvq-tmp"), "of another name").unwrap();
        let writing = File::create(at(".model.18.rrvq-tmp")).unwrap();
        writing.lock().unwrap();
        write_atomic(at("model"), |out| out.write_all(b"new")).unwrap();
        assert_eq!(
            names(scratch.path()),
            [".model.18.rrvq-tmp", ".other.17.rrvq-tmp", "model"]
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_reported_when_the_buffer_is_flushed() {
        let device = File::options().write(true).open("/dev/full").unwrap();
        let full = fill(device, |out| {
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
            said.contains("no/file: there is no folder ") && said.contains("/no; make it first"),
            "{said}"
        );
    }

    #[test]
    fn one_process_at_a_time_holds_a_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let held = Lock::take(scratch.path()).unwrap();
        let said = Lock::take(scratch.path()).unwrap_err().to_string();
        let who = format!("in use by process {}", std::process::id());
        assert!(said.contains(&who), "{said}");
        drop(held);
        assert!(names(scratch.path()).is_empty());
        // What a killed process leaves is taken over.
        fs::write(scratch.path().join(".lock"), "process 17\n").unwrap();
        drop(Lock::take(scratch.path()).unwrap());
    }
}
