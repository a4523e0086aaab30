//! Codecs that are programs of their own: found on the path, called with files in a temporary folder.
//!
//! Their times include the start of the program and the PNG (or PPM) it reads or writes. Each is told to use one thread,
//! where it can be told.

use super::rivals::{LeftOut, Rival, read};
use rrvq::error::{Error, Result};
use rrvq::image_file::Samples;
use rrvq_codec::{Image, png};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A codec and the programs that make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// As it is by itself, or at its most: on tiny images that is not the smaller one.
    WebpLossless(bool),
    /// With an effort: 7 is the default, 9 the most.
    JxlLossless(u8),
    AvifLossless,
    Cjpeg,
    Webp,
    Jxl,
    Avif,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::WebpLossless(_) => "WebP lossless",
            Tool::JxlLossless(_) => "JPEG XL lossless",
            Tool::AvifLossless => "AVIF lossless",
            Tool::Cjpeg => "JPEG, cjpeg",
            Tool::Webp => "WebP",
            Tool::Jxl => "JPEG XL",
            Tool::Avif => "AVIF",
        }
    }

    /// The encoder, and the decoder where this program cannot read the format.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Tool::JxlLossless(_) | Tool::Jxl => &["cjxl", "djxl"],
            Tool::AvifLossless | Tool::Avif => &["avifenc", "avifdec"],
            Tool::Cjpeg => &["cjpeg"],
            Tool::Webp | Tool::WebpLossless(_) => &["cwebp"],
        }
    }

    /// How hard it is told to try.
    fn effort(self) -> String {
        match self {
            Tool::WebpLossless(most) => if most { "-z 9" } else { "default" }.into(),
            Tool::JxlLossless(effort) => format!("effort {effort}"),
            Tool::Jxl => "effort 7".into(),
            Tool::AvifLossless | Tool::Avif => "speed 6".into(),
            Tool::Cjpeg => "-optimize".into(),
            Tool::Webp => "-m 6".into(),
        }
    }

    /// The argument that makes it say its version.
    fn asks_version(self) -> &'static str {
        match self {
            Tool::WebpLossless(_) | Tool::Webp | Tool::Cjpeg => "-version",
            _ => "--version",
        }
    }

    /// The ending by which the decoder knows the format.
    fn ending(self) -> &'static str {
        match self {
            Tool::JxlLossless(_) | Tool::Jxl => "jxl",
            Tool::AvifLossless | Tool::Avif => "avif",
            Tool::Cjpeg => "jpg",
            Tool::Webp | Tool::WebpLossless(_) => "webp",
        }
    }
}

/// A codec whose programs were found.
pub struct Program {
    tool: Tool,
    paths: Vec<PathBuf>,
    folder: Folder,
    version: String,
}

impl Program {
    pub fn find(tool: Tool) -> std::result::Result<Program, LeftOut> {
        Program::find_in(tool, &std::env::var_os("PATH").unwrap_or_default())
    }

    fn find_in(tool: Tool, folders: &std::ffi::OsStr) -> std::result::Result<Program, LeftOut> {
        let left_out = |why: String| LeftOut {
            name: tool.name().into(),
            why,
        };
        let mut paths = Vec::new();
        for program in tool.programs() {
            let file = format!("{program}{}", std::env::consts::EXE_SUFFIX);
            let found = std::env::split_paths(folders)
                .map(|folder| folder.join(&file))
                .find(|path| path.is_file());
            match found {
                Some(path) => paths.push(path),
                None => return Err(left_out(format!("{program} was not found on PATH"))),
            }
        }
        let folder = Folder::new().map_err(|error| left_out(error.to_string()))?;
        Ok(Program {
            version: version_of(&paths[0], tool.asks_version()),
            tool,
            paths,
            folder,
        })
    }

    /// Calls one of the programs and waits for its end; it must end well.
    fn call(&self, number: usize, arguments: &[&str], files: &[&Path]) -> Result<()> {
        let program = &self.paths[number];
        let ended = Command::new(program)
            .args(arguments)
            .args(files)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::io("run", program, error))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        Err(Error::new(format!(
            "{} failed ({}): {}",
            program.display(),
            ended.status,
            last.unwrap_or("it said nothing").trim()
        )))
    }
}

/// The version a program says it has: the first word with a digit and a dot.
fn version_of(program: &Path, argument: &str) -> String {
    let asked = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output();
    let said = asked.map_or(Vec::new(), |said| [said.stdout, said.stderr].concat());
    let said = String::from_utf8_lossy(&said);
    let mut words = said
        .split_whitespace()
        .map(|word| word.trim_matches(['v', ',']));
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    words
        .find(is_version)
        .unwrap_or("of unknown version")
        .into()
}

impl Rival for Program {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn encoder(&self) -> String {
        let (program, effort) = (self.tool.programs()[0], self.tool.effort());
        format!("{program} {}, {effort}", self.version)
    }

    fn knob(&self) -> &str {
        match self.tool {
            Tool::Jxl | Tool::JxlLossless(_) => "distance",
            Tool::Avif | Tool::AvifLossless => "quantizer",
            Tool::Cjpeg | Tool::Webp | Tool::WebpLossless(_) => "quality",
        }
    }

    fn settings(&self) -> &[f64] {
        match self.tool {
            Tool::WebpLossless(_) | Tool::JxlLossless(_) | Tool::AvifLossless => &[0.0],
            Tool::Cjpeg => &super::rivals::JPEG_QUALITIES,
            Tool::Webp => &[0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 98.0],
            Tool::Jxl => &[15.0, 10.0, 7.0, 5.0, 3.0, 2.0, 1.0, 0.5],
            Tool::Avif => &[63.0, 56.0, 48.0, 40.0, 32.0, 24.0, 16.0, 8.0],
        }
    }

    fn encode(&self, image: &Image, setting: f64) -> Result<Vec<u8>> {
        let input = self.folder.file(if self.tool == Tool::Cjpeg {
            "ppm"
        } else {
            "png"
        });
        let output = self.folder.file(self.tool.ending());
        let bytes = match self.tool {
            Tool::Cjpeg => portable_map(image),
            _ => png::encode(image, png::Effort::Quick),
        };
        input.write(&bytes)?;
        let setting = setting.to_string();
        let (from, to) = (input.path(), output.path());
        let out = Path::new("-o");
        match self.tool {
            Tool::WebpLossless(most) => {
                let effort: &[&str] = if most { &["-z", "9"] } else { &[] };
                let fixed = [&["-quiet", "-lossless", "-exact"], effort].concat();
                self.call(0, &fixed, &[from, out, to])
            }
            Tool::JxlLossless(effort) => {
                let effort = effort.to_string();
                let fixed = ["-d", "0", "-e", &effort, "--num_threads=0", "--quiet"];
                self.call(0, &fixed, &[from, to])
            }
            Tool::Jxl => {
                let fixed = ["-d", &setting, "-e", "7", "--num_threads=0", "--quiet"];
                self.call(0, &fixed, &[from, to])
            }
            Tool::AvifLossless => self.call(0, &["--lossless", "-s", "6", "-j", "1"], &[from, to]),
            Tool::Avif => {
                let fixed = ["--min", &setting, "--max", &setting, "-s", "6", "-j", "1"];
                self.call(0, &fixed, &[from, to])
            }
            Tool::Cjpeg => self.call(
                0,
                &["-quality", &setting, "-baseline", "-optimize", "-outfile"],
                &[to, from],
            ),
            Tool::Webp => self.call(0, &["-quiet", "-m", "6", "-q", &setting], &[from, out, to]),
        }?;
        output.read()
    }

    fn decode(&self, file: &[u8]) -> Result<Samples> {
        if self.paths.len() == 1 {
            return read(file, self.name());
        }
        let (input, output) = (
            self.folder.file(self.tool.ending()),
            self.folder.file("png"),
        );
        input.write(file)?;
        let alone: &[&str] = match self.tool {
            Tool::Jxl | Tool::JxlLossless(_) => &["--num_threads=0", "--quiet"],
            _ => &["-j", "1"],
        };
        self.call(1, alone, &[input.path(), output.path()])?;
        read(&output.read()?, self.name())
    }
}

/// A binary PPM or PGM file.
fn portable_map(image: &Image) -> Vec<u8> {
    let kind = if image.channels() == 1 { "P5" } else { "P6" };
    let mut bytes = format!("{kind}\n{} {}\n255\n", image.width, image.height).into_bytes();
    bytes.extend(&image.colour);
    bytes
}

/// A temporary folder that goes away with the value.
struct Folder {
    path: PathBuf,
    files: AtomicUsize,
}

impl Folder {
    fn new() -> Result<Folder> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rrvq-compare-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| Error::io("create", &path, error))?;
        Ok(Folder {
            path,
            files: AtomicUsize::new(0),
        })
    }

    /// A name that no other file in it has.
    fn file(&self, ending: &str) -> Scratch {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        Scratch(self.path.join(format!("{number}.{ending}")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A file that goes away with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        std::fs::write(&self.0, bytes).map_err(|error| Error::io("write", &self.0, error))
    }

    fn read(&self) -> Result<Vec<u8>> {
        std::fs::read(&self.0).map_err(|error| Error::io("read", &self.0, error))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        for tool in [
            Tool::JxlLossless(7),
            Tool::WebpLossless(true),
            Tool::Avif,
            Tool::Cjpeg,
        ] {
            let said = Program::find_in(tool, "/nowhere".as_ref()).err().unwrap();
            assert_eq!(said.name, tool.name());
            assert!(said.why.contains(tool.programs()[0]), "{said:?}");
        }
    }

    /// Programs of a few lines, which stand for the real ones.
    #[cfg(unix)]
    #[test]
    fn programs_are_called_with_files_and_leave_none_behind() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str, script: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        // The last argument but one into the last.
        make(
            "cjxl",
            "[ \"$1\" = --version ] && echo cjxl v0.7.0 [AVX2] && exit\n\
             for last; do from=$to; to=$last; done; cp \"$from\" \"$to\"",
        );
        let folders = place.path();
        let said = Program::find_in(Tool::JxlLossless(9), folders.as_os_str());
        assert!(said.err().unwrap().why.contains("djxl"));
        make(
            "djxl",
            "for last; do from=$to; to=$last; done; cp \"$from\" \"$to\"",
        );
        make(
            "cwebp",
            "echo something >&2; echo no such setting >&2; exit 3",
        );
        let image = Image {
            name: "x".into(),
            width: 3,
            height: 2,
            colour: (0..18).collect(),
            alpha: None,
            profile: Vec::new(),
            orientation: 1,
            metadata: Vec::new(),
        };
        let program = Program::find_in(Tool::JxlLossless(9), folders.as_os_str())
            .ok()
            .unwrap();
        assert_eq!(program.encoder(), "cjxl 0.7.0, effort 9");
        let file = program.encode(&image, 0.0).unwrap();
        let back = program.decode(&file).unwrap();
        assert!(super::super::rivals::is_same(&back, &image));
        let folder = program.folder.path.clone();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        drop(program);
        assert!(!folder.exists());
        let failing = Program::find_in(Tool::Webp, folders.as_os_str())
            .ok()
            .unwrap();
        assert_eq!(failing.encoder(), "cwebp of unknown version, -m 6");
        let said = failing.encode(&image, 50.0).unwrap_err().to_string();
        assert!(
            said.contains("cwebp failed") && said.contains("no such setting"),
            "{said}"
        );
    }
}
