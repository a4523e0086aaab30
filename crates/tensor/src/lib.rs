//! Static tensor graphs: **built once, differentiated, fused and planned once, run many times.**
//!
//! ```text
//! Graph ─► grad ─► compiler (fusion, order, memory) ─► Program on a Device ─► run, run, run …
//! ```
//!
//! A model author writes ordinary expressions; nothing is computed yet. Here is a line fitted to points by gradient
//! descent, from the graph to the result:
//!
//! ```
//! use rrvq_tensor::params::PARAMETERS;
//! use rrvq_tensor::{DType, Data, Device, Graph, Init, Program, Store, grad};
//!
//! // 1. Build a graph: inputs, parameters, a loss.
//! let g = Graph::new();
//! let x = g.input("x", &[4], DType::F32);
//! let y = g.input("y", &[4], DType::F32);
//! let slope = g.param("slope", &[], Init::Constant(0.0));
//! let offset = g.param("offset", &[], Init::Constant(0.0));
//! let loss = (x * slope + offset - y).square().mean();
//!
//! // 2. Take gradients, which are nodes of the same graph, and assign the updated parameters. All parameters lie in one
//! //    flat vector, so that an update is one pass over it; `optim` has Adam and AdaMax ready.
//! let layout = g.layout();
//! let offsets: Vec<usize> = layout.entries().iter().map(|entry| entry.offset).collect();
//! let gradient = g.pack(&grad(loss, &g.params()), &offsets, layout.len());
//! g.assign(PARAMETERS, g.state(PARAMETERS, layout.len()) - gradient * 0.1);
//!
//! // 3. Compile for a device.
//! let mut program = Program::new(&Device::Cpu, &g, &layout, &[("loss", loss)])?;
//!
//! // 4. Run. A store holds what outlives a run; inputs are given anew.
//! let mut store = Store::with(PARAMETERS, layout.initial(0));
//! let points = [("x", Data::F32(&[0.0, 1.0, 2.0, 3.0])), ("y", Data::F32(&[1.0, 3.0, 5.0, 7.0]))];
//! for _ in 0..300 {
//!     program.run(&mut store, &points)?;
//! }
//! assert!(program.scalar("loss")? < 1e-4);
//! store.fetch()?; // from the device, where it has memory of its own
//! let found = store.get(PARAMETERS)[layout.get("slope").unwrap().offset];
//! assert!((found - 2.0).abs() < 0.02);
//! # Ok::<(), rrvq_tensor::Error>(())
//! ```
//!
//! - [`Graph`] and [`Var`]: building; every operation is a method of `Var`.
//! - [`grad()`]: reverse mode, graph in, graph out.
//! - [`params`] and [`optim`]: named parameters in one flat vector, safetensors in and out; AdaMax, Adam, clipping and EMA.
//! - [`rng`]: noise addressed by (seed, stream, step, element), the same on every device.
//! - [`Device`], [`Program`], [`Store`]: where it runs, what runs, and what outlives a run. [`device`] has more:
//!   replays without the host in between, profiles, and a report of what CUDA lacks on a machine.
//!
//! On the CPU the bits are the same for any number of threads and any machine. CUDA is for speed; it is the cargo feature
//! `cuda`, and without it nothing of CUDA is compiled.
//!
//! The crate knows tensors, not images or VAEs; the one operation of a domain is the fused responsibility
//! ([`Embeddings`]).

#![warn(missing_docs)]

mod cache;
pub mod clock;
// Plans are seen from outside by tests alone, through `testing`.
#[allow(missing_docs)]
mod compile;
pub mod device;
mod error;
mod grad;
mod graph;
mod group;
mod lanes;
pub mod limit;
#[doc(hidden)]
pub mod loader;
mod math;
mod op;
pub mod optim;
pub mod params;
mod product;
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
pub use group::{Collective, Group, abort_all};
pub use op::{Embeddings, ReduceOp, SampleMode, Sampled};
pub use params::{Init, Layout};
