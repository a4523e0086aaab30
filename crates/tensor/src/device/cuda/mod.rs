//! The CUDA device: the same plans as the CPU's, on one NVIDIA GPU.
//!
//! Nothing of CUDA is needed to build it; driver, NVRTC, cuDNN and cuBLASLt are loaded at run time.
//! Everything but the last step is plain data and needs no GPU to be tested:
//!
//! ```text
//! Plan ─► launches (sources, grids, arguments) ─► NVRTC ─► one CUDA graph ─► replay, replay, replay …
//! ```

pub mod launch;
pub mod responsibility;
