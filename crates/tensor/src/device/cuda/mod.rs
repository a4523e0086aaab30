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
pub mod tools;
pub mod trial;
