//! `rrvq doctor`: what this machine can compute with, what is missing, and what brings it.
//!
//! It answers the questions people have when `--device cuda` is refused, so it never fails itself: everything it
//! looks at may be absent. Its last line says what works.

use crate::args;
use crate::terminal::{self, line};
use rrvq::cluster::mpi;
use rrvq::device::{CudaReport, LibraryReport, bytes_text, cuda_report};
use rrvq::simd::{Isa, isa};
use rrvq::{Result, cache_dir};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

struct Machine {
    cuda: CudaReport,
    /// The number of the driver's release, where the system tells.
    driver_release: Option<String>,
    /// MPI's file and what it calls itself.
    mpi: Option<(PathBuf, String)>,
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
        true => terminal::json(&machine.json()),
        false => machine.print(),
    }
    Ok(())
}

impl Machine {
    fn look() -> Machine {
        Machine {
            cuda: cuda_report(),
            driver_release: std::fs::read_to_string("/sys/module/nvidia/version")
                .ok()
                .map(|text| text.trim().to_string()),
            mpi: mpi::found(),
            cache: cache_dir().map(|folder| {
                let contents = contents(&folder);
                (folder, contents)
            }),
        }
    }

    fn print(&self) {
        let say = |what: &str, text: String| line(format!("{what:<10}{text}"));
        let threads = rayon::current_num_threads();
        say("CPU", format!("{}, {threads} threads", simd_title()));
        for gpu in &self.cuda.gpus {
            let mut text = gpu.info.to_string();
            if let Some(free) = gpu.info.memory_free {
                text.push_str(&format!(", {} free", bytes_text(free)));
            }
            if let Some(reason) = &gpu.problem {
                text.push_str(&format!("; cannot be used: {reason}"));
            }
            say("GPU", text);
        }
        if let Some(reason) = &self.cuda.no_gpu {
            say("GPU", format!("none: {reason}"));
        }
        for library in &self.cuda.libraries {
            let text = match &library.found {
                Some((path, version)) if library.name == "driver" => {
                    let release = self.driver_release.as_ref();
                    let release = release.map_or(String::new(), |r| format!("{r}, "));
                    format!("{release}CUDA {version} at most ({})", path.display())
                }
                Some((path, version)) => format!("{version} ({})", path.display()),
                None => format!("not found ({})", library.packages),
            };
            say(library.name, text);
        }
        let packages = "pip: nvidia-nccl-cu13; Debian and Ubuntu: libnccl2";
        let told = |found: &Option<(PathBuf, String)>, packages: &str| match found {
            Some((path, version)) => format!("{version} ({})", path.display()),
            None => format!("not found, and needed for several {packages}"),
        };
        say(
            "NCCL",
            told(&self.cuda.nccl, &format!("GPUs alone ({packages})")),
        );
        let packages =
            "processes under mpirun alone (Debian and Ubuntu: libopenmpi3 or libmpich12)";
        say("MPI", told(&self.mpi, packages));
        for reason in &self.cuda.refused {
            say("refused", reason.clone());
        }
        match &self.cache {
            Some((folder, held)) => say(
                "cache",
                format!(
                    "{}, {} files, {}",
                    folder.display(),
                    held.files,
                    bytes_text(held.bytes)
                ),
            ),
            None => say("cache", "none: kernels are compiled anew each time".into()),
        }
        match self.cuda.ready() {
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
        let cuda = self.cuda.ready();
        let library = |name: &str| {
            let named = |library: &&LibraryReport| library.name == name;
            let found = self.cuda.libraries.iter().find(named);
            match found.and_then(|library| library.found.as_ref()) {
                Some((path, version)) => {
                    json!({ "path": path.display().to_string(), "version": version })
                }
                None => Value::Null,
            }
        };
        let optional = |found: &Option<(PathBuf, String)>| match found {
            Some((path, version)) => {
                json!({ "path": path.display().to_string(), "version": version })
            }
            None => Value::Null,
        };
        let mut driver = library("driver");
        if let Some(fields) = driver.as_object_mut() {
            fields.insert("release".into(), json!(self.driver_release));
        }
        let gpus: Vec<Value> = self
            .cuda
            .gpus
            .iter()
            .map(|gpu| {
                let (info, reason) = (&gpu.info, &gpu.problem);
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
                "driver": driver, "nvrtc": library("NVRTC"),
                "cublaslt": library("cuBLASLt"), "cudnn": library("cuDNN"),
                "nccl": optional(&self.cuda.nccl), "mpi": optional(&self.mpi),
                "refused": self.cuda.refused,
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

pub fn simd_title() -> &'static str {
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
