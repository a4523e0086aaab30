//! `--device` and `--precision`: what computes, and how numbers are stored there.
//!
//! The flags are the same for every command that computes. A GPU is opened before anything else is done, so that
//! a machine without one says so at once and not after the data has been read.

use clap::{Args as Arguments, ValueEnum};
use rrvq::device::{Device, DeviceName, Precision};
use rrvq::{Error, Result};

#[derive(Arguments, Clone, Copy)]
pub struct Compute {
    /// What computes: cpu, cuda (the first GPU), cuda:N or auto; `rrvq doctor` says what there is
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: DeviceName,
    /// How maps are stored: bf16 or f32; parameters and sums are always f32 [default: bf16 on cuda, f32 on cpu]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub precision: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Bf16,
    F32,
}

impl Compute {
    /// The CPU, for commands that have no choice.
    pub const CPU: Compute = Compute {
        device: DeviceName::Cpu,
        precision: None,
    };

    /// The same for one of several processes on this machine, which is the `local`-th: each takes a GPU of its own.
    pub fn of_process(self, local: usize) -> Compute {
        let device = match self.device {
            DeviceName::Cuda(first) | DeviceName::CudaRange(first, _) => {
                DeviceName::Cuda(first + local)
            }
            other => other,
        };
        Compute { device, ..self }
    }

    /// The device that was asked for.
    pub fn open(&self) -> Result<Device> {
        if self.device == DeviceName::Cpu && self.precision == Some(Format::Bf16) {
            return Err(Error::new(
                "--precision bf16 needs --device cuda: the CPU computes in f32; leave --precision out, or \
                 choose --device cuda",
            ));
        }
        let precision = self.precision.map(|format| match format {
            Format::Bf16 => Precision::Bf16,
            Format::F32 => Precision::F32,
        });
        self.device.open(precision).map_err(|reason| {
            Error::new(format!(
                "--device {} cannot be used: {reason}; `rrvq doctor` says what was found, and --device cpu works \
                 without",
                self.device
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_computes_in_f32() {
        let on_cpu = |precision| Compute {
            device: DeviceName::Cpu,
            precision,
        };
        assert!(on_cpu(None).open().unwrap().is_cpu());
        assert!(on_cpu(Some(Format::F32)).open().unwrap().is_cpu());
        let error = on_cpu(Some(Format::Bf16)).open().err().unwrap().to_string();
        assert!(error.contains("--precision bf16 needs --device cuda"));
    }
}
