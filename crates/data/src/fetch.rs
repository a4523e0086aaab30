//! Data sets from where they are handed out.
//!
//! The transfer itself is left to `curl`, which every system has had for years: encryption, proxies and certificates are
//! the system's own, and the build stays free of them. A file grows under the name `….part`; what is there of it from an
//! earlier attempt is kept and the rest asked for. It takes its own name only once its length and its checksum are right;
//! one that is wrong is put aside as `….wrong`, not used and not lost.

use super::checksums::{Remote, md5_of_file};
use rrvq::error::{Error, Remedy, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Between two looks at the growing file.
const LOOK: Duration = Duration::from_millis(100);

/// How a file came to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was there, and whole.
    There,
    /// It was fetched, so many bytes of it being there from an earlier attempt.
    Fetched {
        /// How many bytes were there already.
        resumed_at: u64,
    },
}

/// Brings `remote` into the folder `dir`, which is made; `follow` is told how many bytes are there, and of how many.
pub fn fetch(remote: &Remote, dir: &Path, follow: &mut dyn FnMut(u64, u64)) -> Result<Outcome> {
    fs::create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
    let path = dir.join(remote.name);
    if path.exists() {
        if is_whole(&path, remote)? {
            return Ok(Outcome::There);
        }
        let (path, name) = (path.display(), remote.name);
        return Err(Error::with_remedy(
            format!(
                "{path} is there, but is not the original {name} (MD5 {}); move it away",
                remote.md5
            ),
            Remedy::Destination,
        ));
    }
    let part = dir.join(format!("{}.part", remote.name));
    let mut resumed_at = len(&part);
    // All may have come, and the program ended before it could say so.
    let complete = is_whole(&part, remote)?;
    if !complete && resumed_at >= remote.bytes {
        // Nothing can be added to what is long enough and wrong.
        fs::remove_file(&part).map_err(|error| Error::io("remove", &part, error))?;
        resumed_at = 0;
    }
    if !complete && transfer_from_any(remote, &part, follow)? == Begun::Anew {
        resumed_at = 0;
    }
    follow(len(&part), remote.bytes);
    if is_whole(&part, remote)? {
        fs::rename(&part, &path).map_err(|error| Error::io("write", &path, error))?;
        return Ok(Outcome::Fetched { resumed_at });
    }
    let (found, bytes) = (md5_of_file(&part)?, len(&part));
    let wrong = dir.join(format!("{}.wrong", remote.name));
    fs::rename(&part, &wrong).map_err(|error| Error::io("write", &wrong, error))?;
    let said = format!(
        "what came as {} is not the original: {bytes} bytes with MD5 {found}, expected {} with {}; it is put aside as {}; \
         try again",
        remote.name,
        remote.bytes,
        remote.md5,
        wrong.display()
    );
    Err(Error::with_remedy(said, Remedy::Source))
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |about| about.len())
}

fn is_whole(path: &Path, remote: &Remote) -> Result<bool> {
    Ok(len(path) == remote.bytes && md5_of_file(path)? == remote.md5)
}

/// Why a transfer did not come to its end.
struct Failure {
    sentence: String,
    /// The rest cannot be had, but the whole may.
    cannot_resume: bool,
}

/// Where a transfer began.
#[derive(PartialEq)]
enum Begun {
    /// Behind what was there.
    There,
    /// At the first byte, since the place gives no parts.
    Anew,
}

/// Tries each place in turn; of several failures the first is told, as the first place is the file's home.
fn transfer_from_any(
    remote: &Remote,
    part: &Path,
    follow: &mut dyn FnMut(u64, u64),
) -> Result<Begun> {
    let (mut first, mut begun) = (None, Begun::There);
    for address in &remote.addresses {
        let mut outcome = transfer(address, part, remote, follow)?;
        if outcome.as_ref().is_err_and(|failure| failure.cannot_resume) && part.exists() {
            fs::remove_file(part).map_err(|error| Error::io("remove", part, error))?;
            begun = Begun::Anew;
            outcome = transfer(address, part, remote, follow)?;
        }
        match outcome {
            Ok(()) => return Ok(begun),
            Err(failure) => first = first.or(Some((address, failure))),
        }
    }
    let (address, why) = match first {
        Some((address, failure)) => (address.as_str(), failure.sentence),
        None => (remote.name, "no place is known".into()),
    };
    let kept = match len(part) {
        0 => String::new(),
        bytes => format!(
            "; {bytes} of {} bytes are kept and the next attempt goes on from there",
            remote.bytes
        ),
    };
    Err(Error::new(format!("cannot fetch {address}: {why}{kept}")))
}

/// Runs `curl` until it is done, looking at the file meanwhile.
fn transfer(
    address: &str,
    part: &Path,
    remote: &Remote,
    follow: &mut dyn FnMut(u64, u64),
) -> Result<std::result::Result<(), Failure>> {
    let mut curl = start(address, part)?;
    let status = loop {
        let ended = curl.0.try_wait();
        match ended.map_err(|error| Error::new(format!("cannot wait for curl: {error}")))? {
            Some(status) => break status,
            None => std::thread::sleep(LOOK),
        }
        follow(len(part), remote.bytes);
    };
    if status.success() {
        return Ok(Ok(()));
    }
    let mut said = String::new();
    if let Some(mut errors) = curl.0.stderr.take() {
        // What cannot be read cannot be told.
        let _ = std::io::Read::read_to_string(&mut errors, &mut said);
    }
    Ok(Err(failure(status.code(), &said)))
}

/// A running `curl`, which does not outlive whoever waits for it.
struct Curl(Child);

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(address: &str, part: &Path) -> Result<Curl> {
    let mut command = Command::new("curl");
    // Without the user's own settings; an error page is a failure, not a file.
    command.args([
        "--disable",
        "--fail",
        "--location",
        "--silent",
        "--show-error",
    ]);
    command.args(["--proto", "=http,https", "--connect-timeout", "20"]);
    // A line that stands still for a minute is dead.
    command.args(["--speed-limit", "1", "--speed-time", "60", "--retry", "2"]);
    command.args(["--continue-at", "-", "--output"]).arg(part);
    // This machine is not behind a proxy of its own.
    if ["http://127.0.0.1", "http://localhost"]
        .iter()
        .any(|own| address.starts_with(own))
    {
        command.args(["--noproxy", "*"]);
    }
    command.arg("--").arg(address);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped());
    command.spawn().map(Curl).map_err(|error| {
        let folder = part.parent().map_or(PathBuf::new(), Path::to_path_buf);
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "the program curl is not there".to_string(),
            _ => format!("the program curl cannot be started ({error})"),
        };
        Error::new(format!(
            "{why}; install it, or fetch {address} by other means into {}",
            folder.display()
        ))
    })
}

/// What an exit code of `curl` means to a person.
fn failure(code: Option<i32>, said: &str) -> Failure {
    // Its own words are "curl: (7) Failed to connect to …".
    let words = said.lines().rev().find(|line| !line.trim().is_empty());
    let words = words.unwrap_or_default();
    let words = words.split_once(") ").map_or(words, |(_, words)| words);
    let status = words.rsplit(' ').find_map(|word| word.parse::<u16>().ok());
    let sentence = match code {
        Some(5 | 6) => "the network is not there, or the address is not known to it".to_string(),
        Some(7) => format!("no connection ({words}); is the network there?"),
        Some(22) => match status {
            Some(404) => "the place no longer has it (404); try another".into(),
            _ => format!("the place refused ({words})"),
        },
        Some(18) => "the transfer broke off; try again".into(),
        Some(23) => "it cannot be written; is the disk full?".into(),
        Some(28) => "no answer in time; try again".into(),
        Some(35 | 60) => format!("no safe connection ({words})"),
        Some(code) => format!("curl ended with code {code} ({words})"),
        None => "curl was stopped".into(),
    };
    Failure {
        // 33: the server does not do parts; 36: nor does the file; 416: there is nothing after what is there.
        cannot_resume: matches!(code, Some(33 | 36)) || (code == Some(22) && status == Some(416)),
        sentence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_become_sentences() {
        let told = |code, said| failure(Some(code), said).sentence;
        let refused = "curl: (22) The requested URL returned error: 404";
        assert!(told(22, refused).contains("no longer has it"));
        assert!(told(22, "curl: (22) The requested URL returned error: 503").contains("503"));
        assert!(told(6, "curl: (6) Could not resolve host: x").contains("network"));
        assert!(told(7, "curl: (7) Failed to connect to x").contains("Failed to connect to x"));
        assert!(told(99, "").contains("code 99"));
        assert!(!failure(Some(22), refused).cannot_resume);
        let past = "curl: (22) The requested URL returned error: 416";
        assert!(failure(Some(22), past).cannot_resume);
        assert!(failure(Some(33), "").cannot_resume);
        assert!(failure(None, "").sentence.contains("stopped"));
    }
}
