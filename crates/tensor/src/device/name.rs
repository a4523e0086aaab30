//! Devices as people type them.

use super::{Device, Precision};
use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The name of a device: `auto`, `cpu`, `cuda` (the first GPU), `cuda:N` or, for training, `cuda:N-M`. Nothing is opened until
/// [`open`](DeviceName::open).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// The first GPU if it can be used, else the CPU.
    Auto,
    /// The processor.
    Cpu,
    /// The GPU of this number, counted from 0.
    Cuda(usize),
    /// The GPUs from one number to another, for one process each.
    CudaRange(usize, usize),
}

impl DeviceName {
    /// Opens the device. Without a `precision`, a GPU stores maps in bf16; the CPU computes in f32 only.
    pub fn open(self, precision: Option<Precision>) -> Result<Device> {
        let on_gpu = precision.unwrap_or(Precision::Bf16);
        match self {
            DeviceName::Auto => Ok(Device::auto(on_gpu)),
            DeviceName::Cuda(ordinal) => Device::cuda(ordinal, on_gpu),
            DeviceName::CudaRange(..) => Err(Error::new(
                "a process computes on one GPU; several are for training, with a process each",
            )),
            DeviceName::Cpu if precision == Some(Precision::Bf16) => Err(Error::new(
                "the CPU computes in f32; choose f32, or a CUDA device for bf16",
            )),
            DeviceName::Cpu => Ok(Device::Cpu),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let name = match text {
            "auto" => Some(DeviceName::Auto),
            "cpu" => Some(DeviceName::Cpu),
            "cuda" => Some(DeviceName::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|numbers| match numbers.split_once('-') {
                    None => number(numbers).map(DeviceName::Cuda),
                    Some((first, last)) => {
                        let (first, last) = (number(first)?, number(last)?);
                        (first <= last).then_some(DeviceName::CudaRange(first, last))
                    }
                }),
        };
        name.ok_or_else(|| {
            Error::new(
                "expected auto, cpu, cuda, or cuda:N for the GPU of number N, counted from 0",
            )
        })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Auto => f.write_str("auto"),
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Cuda(0) => f.write_str("cuda"),
            DeviceName::Cuda(number) => write!(f, "cuda:{number}"),
            DeviceName::CudaRange(first, last) => write!(f, "cuda:{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_typed() {
        for (text, name) in [
            ("auto", DeviceName::Auto),
            ("cpu", DeviceName::Cpu),
            ("cuda", DeviceName::Cuda(0)),
            ("cuda:0", DeviceName::Cuda(0)),
            ("cuda:12", DeviceName::Cuda(12)),
            ("cuda:0-7", DeviceName::CudaRange(0, 7)),
        ] {
            assert_eq!(text.parse::<DeviceName>().unwrap(), name);
        }
        for text in [
            "",
            "tpu",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:x",
            "cuda:3-1",
            "cuda:1-",
            "cuda:99999999999999999999",
            "cuda0",
        ] {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains("cpu, cuda, or cuda:N"), "{text}: {error}");
        }
    }

    #[test]
    fn the_cpu_is_always_there_and_computes_in_f32() {
        assert!("cpu".parse::<Device>().unwrap().is_cpu());
        assert!("auto".parse::<Device>().is_ok());
        assert!(DeviceName::Cpu.open(Some(Precision::F32)).is_ok());
        let error = DeviceName::Cpu.open(Some(Precision::Bf16)).unwrap_err();
        assert!(error.to_string().contains("computes in f32"));
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_build_without_cuda_says_so() {
        let error = "cuda".parse::<Device>().unwrap_err().to_string();
        assert_eq!(
            error,
            "this build has no CUDA support: rebuild with --features cuda"
        );
        assert!("auto".parse::<Device>().unwrap().is_cpu());
    }
}
