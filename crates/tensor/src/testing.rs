//! What tests of the crates above look into: plans, and kernels before a GPU sees them. No part of the interface.

pub use crate::compile::{ConvLayout, Kernel, Plan, Target, compile, compile_for};
pub use crate::device::cpu::Program as CpuProgram;
#[cfg(feature = "cuda")]
pub use crate::device::cuda::{
    codegen::sources,
    hazards::{Lane, Touch, lanes},
    launch::Function,
    library::nvrtc as find_nvrtc,
    lower::{functions, jobs},
    nvrtc::compile_all,
    target as cuda_target,
};
