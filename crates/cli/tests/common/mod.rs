//! Runs the real program in a folder of its own and looks at what it said.
//!
//! Paths given to the program are relative to that folder, as a person would type them. `RRVQ_CHECK` names a folder
//! with the program in it, for tests that run where they were not built.
#![allow(dead_code)] // every test program uses a part

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where tests work, and the program they run.
fn place() -> (PathBuf, PathBuf) {
    match std::env::var_os("RRVQ_CHECK") {
        Some(folder) => {
            let folder = fs::canonicalize(&folder).unwrap_or_else(|e| panic!("RRVQ_CHECK: {e}"));
            (folder.join("scratch"), folder.join("rrvq"))
        }
        None => (
            env!("CARGO_TARGET_TMPDIR").into(),
            env!("CARGO_BIN_EXE_rrvq").into(),
        ),
    }
}

/// A fresh folder that goes away with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("scratch-{}-{number}", std::process::id());
        let dir = place().0.join(name);
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// The program, ready to be given more.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(place().1);
        command.args(args).current_dir(&self.0);
        command.env_remove("RRVQ_SIMD").stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().unwrap())
    }

    /// The same through a shell, `$rrvq` being the program.
    pub fn shell(&self, script: &str) -> Said {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&self.0);
        command.env("rrvq", place().1);
        Said::from(command.output().unwrap())
    }

    pub fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// A small finished run in `name`: ten steps with checkpoints at 5 and 10.
    pub fn trained(&self, name: &str) {
        self.run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--out",
            name,
            "--steps",
            "10",
            "--set",
            "train.save_every=5",
        ])
        .done();
    }

    /// The files of a run that a checkpoint consists of.
    pub fn checkpoint(&self, run: &str) -> [Vec<u8>; 2] {
        ["model", "state"].map(|file| self.read(&format!("{run}/{file}.safetensors")))
    }

    /// The records of a run's log, in their order.
    pub fn records(&self, run: &str) -> Vec<Value> {
        let text = String::from_utf8(self.read(&format!("{run}/log.jsonl"))).unwrap();
        let record = |line| serde_json::from_str(line).unwrap();
        text.lines().map(record).collect()
    }

    /// Steps of the records of `kind` in a run's log, in their order.
    pub fn logged(&self, run: &str, kind: &str) -> Vec<u64> {
        let records = self.records(run).into_iter().filter(|r| r["kind"] == kind);
        records.map(|r| r["step"].as_u64().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the program said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Said {
    /// It went well: gives what was printed.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// One JSON object and nothing else.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.done();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// It was refused with one sentence that has all of `words`, and exit code 2.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert!(self.err.starts_with("rrvq: "), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err);
        }
    }
}

/// Waits for a file to be there; a renamed file is whole.
#[track_caller]
pub fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} never came",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a file has this text in it.
#[track_caller]
pub fn wait_for_text(path: &Path, text: &str) {
    let start = Instant::now();
    while !fs::read_to_string(path).is_ok_and(|found| found.contains(text)) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} never had {text}",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Width and height of a PNG file, from its first bytes.
#[track_caller]
pub fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

/// Two picture files of the same kind, pixel for pixel.
pub fn same_pictures(back: &Path, wanted: &Path) {
    let open = |path: &Path| image::open(path).unwrap();
    let (back, wanted, name) = (open(back), open(wanted), wanted.display());
    assert_eq!(back.color(), wanted.color(), "{name}");
    assert!(back.as_bytes() == wanted.as_bytes(), "{name}");
}
