//! Where programs run: the CPU, with the same bits everywhere, or a CUDA device, for speed.
//!
//! A [`Device`] is chosen once and handed down; [`Program`] and [`Store`] hide which one it was.

pub mod cost;
pub mod cpu;
pub mod cuda;
mod program;
mod store;

pub use cuda::nvrtc::cache_dir;
pub use cuda::program::{Frame, Timed};
pub use program::{Bank, MIRRORED, Program, mirror};
pub(crate) use store::find_input;
pub use store::{Data, Store, counter};

/// How a CUDA device stores maps and kernels. Parameters, sums and responsibilities are f32 in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    F32,
    Bf16,
}

impl Precision {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }
}

/// What computes.
#[derive(Clone)]
pub enum Device {
    Cpu,
    Cuda(cuda::driver::Gpu, Precision),
}

impl Device {
    /// As it is typed.
    pub fn name(&self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Cuda(..) => "cuda",
        }
    }

    /// How maps are stored.
    pub fn precision(&self) -> Precision {
        match self {
            Device::Cpu => Precision::F32,
            Device::Cuda(_, precision) => *precision,
        }
    }

    pub fn is_cpu(&self) -> bool {
        matches!(self, Device::Cpu)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
