//! Where programs run: the CPU, with the same bits everywhere, or a CUDA device, for speed.
//!
//! A [`Device`] is chosen once and handed down; [`Program`] and [`Store`] hide which one it was.

mod backend;
pub(crate) mod cost;
// The insides of devices are seen from outside by tests alone, through `testing`.
#[allow(missing_docs)]
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
#[allow(missing_docs)]
pub(crate) mod cuda;
mod name;
mod program;
mod report;
mod rows;
mod store;

use crate::{Error, Result};

#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use name::DeviceName;
pub use program::{Program, SumTimes, Timed};
pub use report::{CudaReport, GpuInfo, GpuReport, LibraryReport, bytes_text, cuda_report};
pub use rows::{FLIPPED, Frame, RowBank, RowLayout};
pub(crate) use store::find_input;
pub use store::{Data, Store};

/// How a CUDA device stores maps and kernels. Parameters, sums and responsibilities are f32 in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits everywhere.
    F32,
    /// 16 bits with the exponent of f32: about twice as fast, with a rounding of 2⁻⁹.
    Bf16,
}

impl Precision {
    /// "f32" or "bf16".
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }
}

/// What computes: chosen once, given to every [`Program`] and [`RowBank`]. Clones are the same device.
///
/// ```
/// use rrvq_tensor::{Device, Precision};
/// let device: Device = "cpu".parse()?; // or "cuda", "cuda:1", "auto"
/// assert_eq!(device.precision(), Precision::F32);
/// // A GPU where there is one and the build has the feature `cuda`.
/// println!("{}", Device::auto(Precision::Bf16).name());
/// # Ok::<(), rrvq_tensor::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Device {
    /// The processor: the same bits for any number of threads and any instruction set.
    Cpu,
    /// A GPU; made by [`Device::cuda`].
    #[cfg(feature = "cuda")]
    Cuda(CudaDevice),
}

impl Device {
    /// The GPU of number `ordinal`, counted from 0. The error says what is missing: CUDA support in this build, a
    /// library, or the GPU itself.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    pub fn cuda(ordinal: usize, precision: Precision) -> Result<Device> {
        #[cfg(feature = "cuda")]
        return Ok(Device::Cuda(CudaDevice::open(ordinal, precision)?));
        #[cfg(not(feature = "cuda"))]
        return Err(Error::new(report::NO_CUDA));
    }

    /// The first GPU if it can be used, else the CPU; `precision` is the GPU's.
    pub fn auto(precision: Precision) -> Device {
        Device::cuda(0, precision).unwrap_or(Device::Cpu)
    }

    /// "cpu" or "cuda".
    pub fn name(&self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            #[cfg(feature = "cuda")]
            Device::Cuda(_) => "cuda",
        }
    }

    /// How maps are stored.
    pub fn precision(&self) -> Precision {
        match self {
            Device::Cpu => Precision::F32,
            #[cfg(feature = "cuda")]
            Device::Cuda(on) => on.precision,
        }
    }

    /// The same device, storing maps in another way. The CPU stores them in f32 only.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    pub fn with_precision(&self, precision: Precision) -> Device {
        match self {
            Device::Cpu => Device::Cpu,
            #[cfg(feature = "cuda")]
            Device::Cuda(on) => Device::Cuda(CudaDevice {
                precision,
                ..on.clone()
            }),
        }
    }

    /// Whether this is the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Device::Cpu)
    }

    /// Free and total bytes of the device's own memory; `None` for the CPU, which shares the host's.
    pub fn memory(&self) -> Result<Option<(usize, usize)>> {
        match self {
            Device::Cpu => Ok(None),
            #[cfg(feature = "cuda")]
            Device::Cuda(on) => on.gpu.memory().map(Some),
        }
    }
}

/// Opens a device by [name](DeviceName), in its default precision.
impl std::str::FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device> {
        text.parse::<DeviceName>()?.open(None)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
