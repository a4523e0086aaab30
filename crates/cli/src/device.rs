//! `--device` and `--precision`: what computes, and how numbers are stored there.
//!
//! The flags are the same for every command that computes. A GPU is opened before anything else is done, so that
//! a machine without one says so at once and not after the data has been read.

use clap::{Args as Arguments, ValueEnum};
use rrvq::device::cuda::driver::Gpu;
use rrvq::device::cuda::library;
use rrvq::{Error, Result};
use std::str::FromStr;

#[derive(Arguments, Clone, Copy)]
pub struct Compute {
    /// What computes: cpu, cuda (the first GPU) or cuda:N; `rrvq doctor` says what there is
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: Choice,
    /// How maps are stored: bf16 or f32; parameters and sums are always f32 [default: bf16 on cuda, f32 on cpu]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub precision: Option<Format>,
}

/// A device as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Cpu,
    Cuda(usize),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let choice = match text {
            "cpu" => Some(Choice::Cpu),
            "cuda" => Some(Choice::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(number)
                .map(Choice::Cuda),
        };
        choice.ok_or_else(|| {
            "expected cpu, cuda, or cuda:N for the GPU of number N, counted from 0".into()
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Bf16,
    F32,
}

impl Compute {
    /// The GPU and the format asked for; `None` for the CPU.
    pub fn open(&self) -> Result<Option<(Gpu, Format)>> {
        let Choice::Cuda(ordinal) = self.device else {
            return match self.precision {
                Some(Format::Bf16) => Err(Error::new(
                    "--precision bf16 needs --device cuda: the CPU computes in f32; leave --precision out, or \
                     choose --device cuda",
                )),
                Some(Format::F32) | None => Ok(None),
            };
        };
        let opened = match library::missing_sentence(library::find()) {
            Some(sentence) => Err(sentence),
            None => Gpu::open(ordinal).map_err(|error| error.to_string()),
        };
        match opened {
            Ok(gpu) => Ok(Some((gpu, self.precision.unwrap_or(Format::Bf16)))),
            Err(reason) => Err(Error::new(format!(
                "--device {} cannot be used: {reason}; `rrvq doctor` says what was found, and --device cpu works \
                 without",
                self.device
            ))),
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Choice::Cpu => f.write_str("cpu"),
            Choice::Cuda(0) => f.write_str("cuda"),
            Choice::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_typed() {
        for (text, choice) in [
            ("cpu", Choice::Cpu),
            ("cuda", Choice::Cuda(0)),
            ("cuda:0", Choice::Cuda(0)),
            ("cuda:12", Choice::Cuda(12)),
        ] {
            assert_eq!(text.parse(), Ok(choice));
        }
        for text in [
            "",
            "tpu",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:x",
            "cuda:99999999999999999999",
            "cuda0",
        ] {
            let error = text.parse::<Choice>().unwrap_err();
            assert!(error.contains("cpu, cuda, or cuda:N"), "{text}: {error}");
        }
    }

    #[test]
    fn the_cpu_computes_in_f32() {
        let on_cpu = |precision| Compute {
            device: Choice::Cpu,
            precision,
        };
        assert!(matches!(on_cpu(None).open(), Ok(None)));
        assert!(matches!(on_cpu(Some(Format::F32)).open(), Ok(None)));
        let error = on_cpu(Some(Format::Bf16)).open().err().unwrap().to_string();
        assert!(error.contains("--precision bf16 needs --device cuda"));
    }
}
