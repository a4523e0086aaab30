//! What this machine has of CUDA, for people who ask why a GPU cannot be used.

use std::fmt;
use std::path::PathBuf;

/// Why nothing of CUDA can be used in a build without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
pub(super) const NO_CUDA: &str = "this build has no CUDA support: rebuild with --features cuda";

/// The state of CUDA on this machine; see [`cuda_report`].
#[derive(Clone, Debug, Default)]
pub struct CudaReport {
    /// Every GPU the driver lists.
    pub gpus: Vec<GpuReport>,
    /// Why there is no GPU to list.
    pub no_gpu: Option<String>,
    /// The libraries that are needed, found or not: driver, NVRTC, cuBLASLt, cuDNN.
    pub libraries: Vec<LibraryReport>,
    /// NCCL's file and version, which only training on several GPUs needs.
    pub nccl: Option<(PathBuf, String)>,
    /// Files with the name of a library that could not be used, each with the reason.
    pub refused: Vec<String>,
    /// What is missing apart from a GPU, as one sentence with what to do.
    pub missing: Option<String>,
}

impl CudaReport {
    /// The numbers of the GPUs that can be used, or the reason that there is none.
    pub fn ready(&self) -> Result<Vec<usize>, String> {
        if let Some(reason) = self.missing.as_ref().or(self.no_gpu.as_ref()) {
            return Err(reason.clone());
        }
        let usable = self.gpus.iter().filter(|gpu| gpu.problem.is_none());
        let ready: Vec<usize> = usable.map(|gpu| gpu.info.ordinal).collect();
        match ready.is_empty() {
            false => Ok(ready),
            true => {
                let first = self.gpus.iter().find_map(|gpu| gpu.problem.clone());
                Err(first.unwrap_or_else(|| "the NVIDIA driver lists no GPU".into()))
            }
        }
    }
}

/// A GPU, and whether it computes.
#[derive(Clone, Debug)]
pub struct GpuReport {
    /// What the driver tells of it.
    pub info: GpuInfo,
    /// Why it cannot be used, if it cannot.
    pub problem: Option<String>,
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number, counted from 0, as in `cuda:0`.
    pub ordinal: usize,
    /// The name its maker gave it.
    pub name: String,
    /// Compute capability, (9, 0) for an H200.
    pub compute: (u32, u32),
    /// Bytes of memory.
    pub memory_total: usize,
    /// Bytes that were free when it was asked; `None` where no context could be created.
    pub memory_free: Option<usize>,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory one block can be given, in bytes.
    pub shared_limit: u32,
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute;
        write!(
            f,
            "cuda:{} {} ({}, compute capability {major}.{minor})",
            self.ordinal,
            self.name,
            bytes_text(self.memory_total)
        )
    }
}

/// A library that CUDA needs, found or not.
#[derive(Clone, Debug)]
pub struct LibraryReport {
    /// What it is called: "driver", "NVRTC", "cuBLASLt" or "cuDNN".
    pub name: &'static str,
    /// The file and its version; for the driver, the newest CUDA that it runs.
    pub found: Option<(PathBuf, String)>,
    /// The packages it comes with.
    pub packages: &'static str,
}

/// Looks for libraries and GPUs, and tries a small computation on each GPU. Never fails: what is missing is part of
/// the report.
pub fn cuda_report() -> CudaReport {
    #[cfg(feature = "cuda")]
    return super::cuda::report();
    #[cfg(not(feature = "cuda"))]
    CudaReport {
        missing: Some(NO_CUDA.into()),
        no_gpu: Some(NO_CUDA.into()),
        ..CudaReport::default()
    }
}

/// A number of bytes in a unit that is easy to read: "1.5 GiB".
pub fn bytes_text(bytes: usize) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b >= (1u64 << 30) as f64 => format!("{:.1} GiB", b / (1u64 << 30) as f64),
        b if b >= (1 << 20) as f64 => format!("{:.1} MiB", b / (1 << 20) as f64),
        b if b >= 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{b} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_units_a_person_would_use() {
        assert_eq!(bytes_text(12), "12 bytes");
        assert_eq!(bytes_text(48 << 10), "48.0 KiB");
        assert_eq!(bytes_text(3 << 19), "1.5 MiB");
        assert_eq!(bytes_text(140 << 30), "140.0 GiB");
    }
}
