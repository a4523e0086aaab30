//! The CUDA device: the same plans as the CPU's, on one NVIDIA GPU.
//!
//! Nothing of CUDA is needed to build it; driver, NVRTC, cuDNN and cuBLASLt are loaded at run time.
//! Everything but the last step is plain data and needs no GPU to be tested:
//!
//! ```text
//! Plan ─► jobs (sources, grids, arguments) ─► NVRTC, cuDNN ─► one CUDA graph ─► replay, replay, replay …
//! ```
//!
//! - [`lower`], [`codegen`], [`responsibility`]: from kernels of a plan to launches.
//! - [`dnn`], [`blas`], [`tools`]: convolutions and products, the fastest engine chosen once.
//! - [`hazards`]: which jobs may run side by side.
//! - [`sums`]: over the processes that train together.
//! - [`program`], [`feed`], [`resident`]: memory, the graph, steps without the host.
//! - [`library`], [`driver`], [`nvrtc`]: the ground all of it stands on.

pub mod blas;
pub mod codegen;
pub mod dnn;
pub mod driver;
pub mod feed;
pub mod hazards;
pub mod launch;
pub mod library;
pub mod lower;
pub mod nvrtc;
mod prepare;
pub mod program;
pub mod resident;
pub mod responsibility;
pub mod sums;
pub mod tools;
pub mod trial;

use super::Precision;
use super::report::{CudaReport, GpuReport, LibraryReport};
use crate::compile::{ConvLayout, Target};
use crate::{Error, Result};
use driver::Gpu;

/// An opened GPU, and how it stores maps.
#[derive(Clone)]
pub struct CudaDevice {
    pub(crate) gpu: Gpu,
    pub(crate) precision: Precision,
}

impl CudaDevice {
    pub(super) fn open(ordinal: usize, precision: Precision) -> Result<Self> {
        if let Some(sentence) = library::missing_sentence(library::find()) {
            return Err(Error::new(sentence));
        }
        let gpu = Gpu::open(ordinal)?;
        Ok(CudaDevice { gpu, precision })
    }
}

/// What the compiler makes for a GPU. cuDNN's tensor cores take rows of 16 bytes, 8 channels of two bytes.
pub fn target(precision: Precision) -> Target {
    Target {
        conv_layout: Some(ConvLayout {
            channels: 8,
            narrow: 4,
        }),
        bf16: precision == Precision::Bf16,
        batches: true,
        sums_by_rows: true,
    }
}

/// Libraries, GPUs, and whether they work together.
pub(super) fn report() -> CudaReport {
    let found = library::find();
    let missing = library::missing_sentence(found);
    let listed = Gpu::list();
    let no_gpu = listed.as_ref().err().map(|error| error.to_string());
    let gpus = listed.unwrap_or_default().into_iter().map(|info| {
        // Opened even when libraries are missing, so that a GPU that is too old is told apart.
        let opened = Gpu::open(info.ordinal);
        let tried = opened.and_then(|gpu| match missing {
            None => trial::run(&gpu),
            Some(_) => Ok(()),
        });
        let problem = tried.err().map(|error| error.to_string());
        GpuReport { info, problem }
    });
    let names = ["driver", "NVRTC", "cuBLASLt", "cuDNN"];
    let parts = names.into_iter().zip(found.parts());
    let libraries = parts.map(|(name, part)| LibraryReport {
        name,
        found: part
            .found
            .map(|library| (library.path.clone(), library.version.to_string())),
        packages: part.packages,
    });
    CudaReport {
        gpus: gpus.collect(),
        no_gpu,
        libraries: libraries.collect(),
        nccl: sums::found(),
        refused: found.refused.clone(),
        missing,
    }
}
