//! `rrvq doctor`: what this machine can compute with, what is missing, and what brings it.
//!
//! It answers the questions people have when `--device cuda` is refused, so it never fails itself: everything it
//! looks at may be absent. Its last line says what works.

use crate::args;
use crate::terminal::line;
use rrvq::Result;
use rrvq::device::cpu::simd::{Isa, isa};
use rrvq::device::cuda::driver::{Gpu, Info, size};
use rrvq::device::cuda::library::{self, Found, Library};
use rrvq::device::cuda::{nvrtc, trial};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Why CUDA cannot be used, in the libraries' and the driver's own sentences.
type Reason = String;

struct Machine {
    found: &'static Found,
    /// The number of the driver's release, where the system tells.
    driver_release: Option<String>,
    /// Each with the reason it cannot be used, if there is one.
    gpus: Vec<(Info, Option<Reason>)>,
    /// Why there is no GPU to list.
    no_gpu: Option<Reason>,
    cache: Option<(PathBuf, Contents)>,
}

/// What is in a folder.
#[derive(Default)]
struct Contents {
    files: usize,
    bytes: usize,
}

pub fn doctor(args: &args::Doctor) -> Result<()> {
    let machine = Machine::look();
    match args.json {
        true => line(machine.json().to_string()),
        false => machine.print(),
    }
    Ok(())
}

impl Machine {
    fn look() -> Machine {
        let found = library::find();
        let complete = library::missing_sentence(found).is_none();
        let listed = Gpu::list();
        let no_gpu = listed.as_ref().err().map(|error| error.to_string());
        let gpus = listed.unwrap_or_default().into_iter().map(|info| {
            // Opened even when libraries are missing, so that a GPU that is too old is told apart.
            let opened = Gpu::open(info.ordinal);
            let tried = opened.and_then(|gpu| match complete {
                true => trial::run(&gpu),
                false => Ok(()),
            });
            (info, tried.err().map(|error| error.to_string()))
        });
        Machine {
            gpus: gpus.collect(),
            no_gpu,
            found,
            driver_release: std::fs::read_to_string("/sys/module/nvidia/version")
                .ok()
                .map(|text| text.trim().to_string()),
            cache: nvrtc::cache_dir().map(|folder| {
                let contents = contents(&folder);
                (folder, contents)
            }),
        }
    }

    /// The numbers of the GPUs that can be used, or why there is none.
    fn cuda(&self) -> std::result::Result<Vec<usize>, Reason> {
        if let Some(sentence) = library::missing_sentence(self.found) {
            return Err(sentence);
        }
        if let Some(reason) = &self.no_gpu {
            return Err(reason.clone());
        }
        let ready: Vec<usize> = self
            .gpus
            .iter()
            .filter(|(_, reason)| reason.is_none())
            .map(|(info, _)| info.ordinal)
            .collect();
        match ready.is_empty() {
            false => Ok(ready),
            true => {
                let first = self.gpus.iter().find_map(|(_, reason)| reason.clone());
                Err(first.unwrap_or_else(|| "the NVIDIA driver lists no GPU".into()))
            }
        }
    }

    fn print(&self) {
        let say = |what: &str, text: String| line(format!("{what:<10}{text}"));
        let threads = rayon::current_num_threads();
        say("CPU", format!("{}, {threads} threads", simd_title()));
        for (info, reason) in &self.gpus {
            let mut text = info.to_string();
            if let Some(free) = info.memory_free {
                text.push_str(&format!(", {} free", size(free)));
            }
            if let Some(reason) = reason {
                text.push_str(&format!("; cannot be used: {reason}"));
            }
            say("GPU", text);
        }
        if let Some(reason) = &self.no_gpu {
            say("GPU", format!("none: {reason}"));
        }
        let titles = ["driver", "NVRTC", "cuBLASLt", "cuDNN"];
        for (title, part) in titles.into_iter().zip(self.found.parts()) {
            let text = match part.found {
                Some(library) if title == "driver" => {
                    let release = self.driver_release.as_ref();
                    let release = release.map_or(String::new(), |r| format!("{r}, "));
                    let path = library.path.display();
                    format!("{release}CUDA {} at most ({path})", library.version)
                }
                Some(library) => format!("{} ({})", library.version, library.path.display()),
                None => format!("not found ({})", part.packages),
            };
            say(title, text);
        }
        for reason in &self.found.refused {
            say("refused", reason.clone());
        }
        match &self.cache {
            Some((folder, held)) => say(
                "cache",
                format!(
                    "{}, {} files, {}",
                    folder.display(),
                    held.files,
                    size(held.bytes)
                ),
            ),
            None => say("cache", "none: kernels are compiled anew each time".into()),
        }
        match self.cuda() {
            Ok(ready) => {
                let names: Vec<String> = ready.iter().map(|n| format!("cuda:{n}")).collect();
                line(format!(
                    "--device cpu is ready; --device cuda is ready ({})",
                    names.join(", ")
                ));
            }
            Err(reason) => line(format!(
                "--device cpu is ready; --device cuda is not ready: {reason}"
            )),
        }
    }

    fn json(&self) -> Value {
        let cuda = self.cuda();
        let library = |library: &Option<Library>| match library {
            Some(library) => json!({
                "path": library.path.display().to_string(), "version": library.version.to_string(),
            }),
            None => Value::Null,
        };
        let mut driver = library(&self.found.cuda);
        if let Some(fields) = driver.as_object_mut() {
            fields.insert("release".into(), json!(self.driver_release));
        }
        let gpus: Vec<Value> = self
            .gpus
            .iter()
            .map(|(info, reason)| {
                json!({
                    "device": format!("cuda:{}", info.ordinal), "name": info.name,
                    "compute_capability": format!("{}.{}", info.compute.0, info.compute.1),
                    "memory_bytes": info.memory_total, "memory_free_bytes": info.memory_free,
                    "multiprocessors": info.multiprocessors, "ready": reason.is_none(), "reason": reason,
                })
            })
            .collect();
        let cache = self.cache.as_ref().map(|(folder, held)| {
            json!({ "folder": folder.display().to_string(), "files": held.files, "bytes": held.bytes })
        });
        json!({
            "cpu": { "ready": true, "simd": simd_name(), "threads": rayon::current_num_threads() },
            "cuda": { "ready": cuda.is_ok(), "reason": cuda.err() },
            "gpus": gpus,
            "libraries": {
                "driver": driver, "nvrtc": library(&self.found.nvrtc),
                "cublaslt": library(&self.found.cublaslt), "cudnn": library(&self.found.cudnn),
                "refused": self.found.refused,
            },
            "cache": cache,
        })
    }
}

/// As `RRVQ_SIMD` wants it.
fn simd_name() -> &'static str {
    match isa() {
        Isa::Portable => "portable",
        Isa::Avx2 => "avx2",
        Isa::Avx512 => "avx512",
    }
}

fn simd_title() -> &'static str {
    match isa() {
        Isa::Portable => "portable vectors",
        Isa::Avx2 => "AVX2",
        Isa::Avx512 => "AVX-512",
    }
}

/// Everything below a folder; nothing where there is none.
fn contents(folder: &Path) -> Contents {
    let mut all = Contents::default();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links are not followed: what they lead to is not in the folder.
        match entry.metadata() {
            Ok(about) if about.is_dir() => {
                let below = contents(&entry.path());
                all.files += below.files;
                all.bytes += below.bytes;
            }
            Ok(about) => {
                all.files += 1;
                all.bytes += about.len() as usize;
            }
            Err(_) => {}
        }
    }
    all
}
