//! Static tensor graphs: **drawn once, differentiated, fused and planned once, run many times.**
//!
//! ```text
//! Graph ─► grad ─► compile (fuse, plan memory) ─► Plan ─► Program on a Device ─► run, run, run …
//! ```
//!
//! - [`graph`]: the drawing surface and the methods a model author writes with.
//! - [`op`]: every operation, its shape rule and its gradient rule side by side.
//! - [`grad()`]: reverse mode, graph in, graph out.
//! - [`compile`]: element-wise chains and row reductions become one kernel; lifetimes become one arena.
//! - [`params`], [`optim`]: named parameters in one flat vector; AdaMax, Adam, clipping, EMA in the graph.
//! - [`rng`]: counter-based noise, the same on every device.
//! - [`device`]: where a [`Program`] runs. On the [CPU](device::cpu) the bits are the same for any thread count and
//!   machine; [CUDA](device::cuda) is for speed.
//!
//! The crate knows tensors, not images or VAEs; the one operation of a domain is the fused responsibility
//! ([`op::Embeddings`]).

mod cache;
mod compile;
pub mod device;
mod error;
mod grad;
mod graph;
mod math;
mod op;
pub mod optim;
pub mod params;
pub mod rng;
pub mod simd;
mod simplify;
#[doc(hidden)]
pub mod testing;

pub use cache::cache_dir;
pub use device::{Data, Device, Precision, Program, Store};
pub use error::{Error, Result};
pub use grad::grad;
pub use graph::{DType, Graph, Var};
pub use op::{Embeddings, ReduceOp, SampleMode, Sampled};
pub use params::{Init, Layout};
