//! The fused responsibility on the GPU: sums over K codes that no memory ever holds.
//!
//! Three roads lead to the same numbers. [`tiles`] does the matrix products on tensor cores, floats as sums of
//! bf16 pieces, with the codebook in shared memory, and is made for the sizes most models train with ([`quick`] is its
//! backward pass where maps are bf16); [`wide`] is for training where the codebook is larger than shared memory;
//! [`plain`] takes any size, a warp to a few rows.
//! All address the noise as the CPU does and add in a fixed order: running again gives the same bits.
//! The backward pass recomputes the scores and leaves one partial sum of the codebook's gradient a block, which
//! a last launch adds.

use crate::compile::Place;
use crate::device::cuda::launch::{Arg, Function, Launches};
use crate::graph::DType;
use crate::op::{ResponsibilityOp, SampleMode};

mod plain;
mod quick;
mod tiles;
mod wide;

const PHILOX: &str = include_str!("kernels/philox.cuh");
const PTX: &str = include_str!("kernels/responsibility_ptx.cu");
const COMMON: &str = include_str!("kernels/responsibility_common.cu");

/// What one call is about.
#[derive(Clone, Copy)]
struct Case<'a> {
    op: &'a ResponsibilityOp,
    rows: usize,
    dim: usize,
    codes: usize,
    /// counter, tau, noise scale, e_q, mu, logvar, and e_p where there is a prior; backward also dz and dkl.
    inputs: &'a [Place],
    /// As close to the CPU as f32 allows, rather than as close as bf16 maps deserve.
    exact: bool,
}

impl Case<'_> {
    fn is(&self, mode: SampleMode) -> bool {
        self.op.mode == mode
    }

    fn e_p(&self) -> Option<Place> {
        self.op.prior.then(|| self.inputs[6])
    }

    fn dz(&self) -> Place {
        self.inputs[6 + self.op.prior as usize]
    }

    fn dkl(&self) -> Place {
        self.inputs[7 + self.op.prior as usize]
    }

    fn arg(&self, input: usize) -> Arg {
        Arg::Place(self.inputs[input])
    }

    /// What the tensor-core kernels of the gradient are given; `left` is where blocks leave their parts.
    fn gradient_args(&self, de_q: Option<Place>, de_p: Option<Place>, left: Arg) -> Vec<Arg> {
        let mut args: Vec<Arg> = (0..6).map(|input| self.arg(input)).collect();
        args.extend([
            pointer(self.e_p()),
            Arg::Place(self.dz()),
            Arg::Place(self.dkl()),
            pointer(de_q),
            pointer(de_p),
            left,
            Arg::U32(self.rows as u32),
            Arg::U32(self.op.stream),
        ]);
        args
    }

    /// A translation unit: definitions, then `parts`. `stored` names the types of tensors.
    fn source(
        &self,
        defines: &[(&str, usize)],
        stored: &[(&str, DType)],
        parts: &[&str],
    ) -> String {
        let mut text = String::new();
        let own = [
            ("DIM", self.dim),
            ("CODES", self.codes),
            ("PRIOR", self.op.prior as usize),
            ("RELAXED", self.is(SampleMode::Relaxed) as usize),
            ("REINMAX", self.is(SampleMode::ReinMax) as usize),
            ("SHARDED", self.op.sharded as usize),
        ];
        for (name, value) in own.iter().chain(defines) {
            text += &format!("#define {name} {value}\n");
        }
        for (name, dtype) in stored {
            let name_of_type = if *dtype == DType::Bf16 {
                "bf16"
            } else {
                "float"
            };
            text += &format!("#define {name} {name_of_type}\n");
        }
        for part in [PHILOX, PTX, COMMON].iter().chain(parts) {
            text += "\n";
            text += part;
        }
        text
    }
}

fn function(name: &str, source: &str) -> Function {
    Function {
        name: name.into(),
        source: source.into(),
    }
}

fn pointer(place: Option<Place>) -> Arg {
    place.map_or(Arg::Null, Arg::Place)
}

fn dtype(place: Option<Place>) -> DType {
    place.map_or(DType::F32, |p| p.dtype)
}

/// Hands out scratch memory in steps of 256 bytes.
#[derive(Default)]
struct Scratch {
    bytes: usize,
}

impl Scratch {
    fn take(&mut self, bytes: usize) -> Arg {
        let at = self.bytes;
        self.bytes += bytes.next_multiple_of(256);
        Arg::Scratch(at)
    }
}

/// z, the chosen codes and KL(q‖p) of each row.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    op: &ResponsibilityOp,
    rows: usize,
    dim: usize,
    codes: usize,
    inputs: &[Place],
    z: Place,
    index: Option<Place>,
    kl: Option<Place>,
    exact: bool,
) -> Launches {
    let case = Case {
        op,
        rows,
        dim,
        codes,
        inputs,
        exact,
    };
    tiles::forward(&case, z, index, kl)
        .or_else(|| wide::forward(&case, z, index, kl))
        .unwrap_or_else(|| plain::forward(&case, z, index, kl))
}

/// Gradients of e_q, mu, logvar and e_p, those that are wanted.
pub fn backward(
    op: &ResponsibilityOp,
    rows: usize,
    dim: usize,
    codes: usize,
    inputs: &[Place],
    outputs: &[Option<Place>; 4],
    exact: bool,
) -> Launches {
    let case = Case {
        op,
        rows,
        dim,
        codes,
        inputs,
        exact,
    };
    let on_tensor_cores = if exact {
        tiles::backward(&case, outputs)
    } else {
        quick::backward(&case, outputs).or_else(|| wide::backward(&case, outputs))
    };
    on_tensor_cores.unwrap_or_else(|| plain::backward(&case, outputs))
}

#[cfg(test)]
mod tests;
