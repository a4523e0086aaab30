//! What the device will do, as plain data: which function of which source, on what grid, with what arguments.
//!
//! Writing kernels down before any GPU is asked for keeps them testable everywhere NVRTC is.

use crate::compile::Place;

/// A function in CUDA C++. Equal sources are compiled once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its `extern "C"` name in the source.
    pub name: String,
    /// A whole translation unit, without any `#include`.
    pub source: String,
}

/// What a kernel is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// The address of a tensor.
    Place(Place),
    /// The address of memory the launches of one kernel share, so many bytes from its start. A multiple of 256.
    Scratch(usize),
    /// The address of counters of the kernel's own, so many bytes from their start.
    Counter(usize),
    U32(u32),
    F32(f32),
    /// A null pointer.
    Null,
}

/// One launch.
#[derive(Clone, Debug)]
pub struct Launch {
    pub function: Function,
    pub grid: [u32; 3],
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    pub args: Vec<Arg>,
}

/// The launches of one kernel of a plan, in order, and the memory they need.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    pub list: Vec<Launch>,
    /// Bytes that need not be cleared before and are not kept after.
    pub scratch: usize,
    /// Bytes of counters: zero before the first run, and left zero by every run.
    pub counters: usize,
}
