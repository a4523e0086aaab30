//! The CPU: strict arithmetic on fixed buffers.
//!
//! **The same bits for any thread count and on any machine.** A dot product is one chain of fused
//! multiply-adds in increasing k; sums have one fixed shape; exp and log are ours. Speed comes from
//! vectorising over outputs and from work that is split the same way for any number of threads.
//!
//! A [`Program`] owns the arena its plan asked for and runs on it again and again; parameters and optimiser
//! state live in a [`Store`] that several programs share. Threads are rayon's current pool.

mod chain;
pub mod conv;
mod executable;
pub mod gemm;
mod memory;
mod movement;
mod reduce;
pub mod responsibility;
pub mod scratch;

use super::cost::assigns;
use super::{Data, Store, find_input};
use crate::compile::{Base, ConvGeometry, Kernel, Named, Place, Plan};
use crate::graph::DType;
use crate::group::Group;
use crate::op::Filter;
use crate::rng::Noise;
use crate::simd::{self, Isa};
use crate::{Error, Result};
use chain::Runner;
use conv::ConvShape;
use memory::{Memory, States};
use rayon::prelude::*;
use scratch::Aligned;
use std::collections::BTreeMap;

/// A plan with its memory, ready to run.
pub struct Program {
    plan: Plan,
    /// One for each shard of this process.
    arenas: Vec<Aligned>,
    group: Option<Group>,
    isa: Isa,
    /// Copies of outputs that are inputs or states, which the arena does not hold.
    outside: BTreeMap<String, Vec<f32>>,
}

impl Program {
    pub fn new(plan: Plan) -> Self {
        Self::with_isa(plan, simd::isa())
    }

    /// For tests that compare instruction sets.
    pub fn with_isa(plan: Plan, isa: Isa) -> Self {
        Program {
            arenas: vec![arena(&plan)],
            plan,
            group: None,
            isa: isa.clamp_to_machine(),
            outside: BTreeMap::new(),
        }
    }

    /// For graphs of a group, where there is one.
    pub fn in_group(mut self, group: Option<&Group>) -> Self {
        let shards = group.map_or(1, |group| group.own().len());
        self.arenas.resize_with(shards, || arena(&self.plan));
        self.group = group.cloned();
        self
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs once. Inputs are matched by name; states are read from and written to `store`.
    pub fn run(&mut self, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()> {
        self.run_timed(store, inputs, |_, _| {})
    }

    /// Runs once and tells how long each kernel took.
    pub fn run_timed(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
        observe: impl FnMut(&Kernel, std::time::Duration) + Send,
    ) -> Result<()> {
        self.run_observed(store, &[inputs], observe)
    }

    /// The same for all shards of this process, each with its inputs.
    ///
    /// All of them run up to a sum, first shard last, the sum is made, and so on. Everything is summed before it
    /// changes a state, so every shard would change it in the same way, and the first one alone does: no other reads
    /// a state in the kernels after that.
    pub fn run_observed(
        &mut self,
        store: &mut Store,
        shards: &[&[(&str, Data<'_>)]],
        mut observe: impl FnMut(&Kernel, std::time::Duration) + Send,
    ) -> Result<()> {
        if shards.len() != self.arenas.len() {
            let (have, want) = (shards.len(), self.arenas.len());
            return Err(Error::new(format!(
                "inputs of {have} shards were given to a program of {want}"
            )));
        }
        let mut given = Vec::new();
        for inputs in shards {
            let find = |want| find_input(want, inputs);
            given.push(
                self.plan
                    .inputs
                    .iter()
                    .map(find)
                    .collect::<Result<Vec<_>>>()?,
            );
        }
        for want in &self.plan.states {
            let have = store.vectors.get(&want.name).map(Vec::len);
            if have != Some(want.shape[0]) {
                let (name, len) = (&want.name, want.shape[0]);
                return Err(Error::new(format!(
                    "state {name} should have {len} values, the store has {have:?}"
                )));
            }
        }
        // Each vector once, in the plan's order.
        let mut vectors: BTreeMap<&str, &mut Vec<f32>> = store
            .vectors
            .iter_mut()
            .map(|(name, vector)| (name.as_str(), vector))
            .collect();
        let states = self.plan.states.iter();
        let states = states.map(|s| {
            let found = vectors.remove(s.name.as_str());
            found.unwrap_or_else(|| panic!("two states are called {}", s.name))
        });
        let states = States::new(states);
        let arenas = self.arenas.iter_mut().zip(given);
        let memories: Vec<Memory> = arenas
            .map(|(arena, given)| Memory::new(arena.floats_mut(), given.into_iter(), &states))
            .collect();
        let (isa, kernels) = (self.isa, &self.plan.kernels);
        let is_sum = |kernel: &Kernel| matches!(kernel, Kernel::AllSum { .. });
        for part in kernels.chunk_by(|a, b| !is_sum(a) && !is_sum(b)) {
            if let [Kernel::AllSum { len, from, to, .. }] = part {
                let start = crate::clock::Instant::now();
                self.sum(&memories, *len, *from, *to)?;
                observe(&part[0], start.elapsed());
                continue;
            }
            // On a thread of the pool: handing each kernel over from outside would cost two wake-ups.
            rayon::scope(|_| {
                for (shard, memory) in memories.iter().enumerate().rev() {
                    let skips = |kernel: &&Kernel| shard == 0 || !assigns(kernel);
                    for kernel in part.iter().filter(skips) {
                        let start = crate::clock::Instant::now();
                        // SAFETY: the plan gives every tensor its own place for as long as it lives, `memory` borrows all,
                        // and one shard runs at a time.
                        unsafe { execute(isa, kernel, memory) };
                        observe(kernel, start.elapsed());
                    }
                }
            });
        }
        let memory = &memories[0];
        self.outside.clear();
        for out in self
            .plan
            .outputs
            .iter()
            .filter(|o| o.place.base != Base::Arena)
        {
            let len = out.shape.iter().product();
            // SAFETY: no kernel runs any more.
            let values = unsafe { memory.slice(out.place, len) };
            self.outside.insert(out.name.clone(), values.to_vec());
        }
        Ok(())
    }

    /// The sum over all shards, in each of this process.
    fn sum(&self, memories: &[Memory], len: usize, from: Place, to: Place) -> Result<()> {
        let Some(group) = &self.group else {
            return Err(Error::new("a sum over shards needs a group of them"));
        };
        let mut parts = Vec::with_capacity(memories.len());
        for memory in memories {
            // SAFETY: no kernel runs meanwhile; both places lie in the shard's own arena.
            unsafe {
                if from != to {
                    let values = memory.slice(from, len).to_vec();
                    memory.slice_mut(to, len).copy_from_slice(&values);
                }
                parts.push(memory.slice_mut(to, len));
            }
        }
        group.sum(&mut parts)
    }

    fn find_output(&self, name: &str) -> &Named {
        let found = self.plan.outputs.iter().find(|o| o.name == name);
        found.unwrap_or_else(|| panic!("the program has no output {name}"))
    }

    /// An f32 output of the last run. Asking for one that was not compiled is a mistake in the program.
    pub fn output(&self, name: &str) -> &[f32] {
        let out = self.find_output(name);
        assert_eq!(out.dtype, DType::F32, "output {name} holds indices");
        match out.place.base {
            Base::Arena => {
                &self.arenas[0].floats()[out.place.offset..][..out.shape.iter().product()]
            }
            _ => &self.outside[name],
        }
    }

    /// An output of indices.
    pub fn output_u32(&self, name: &str) -> Vec<u32> {
        let out = self.find_output(name);
        assert_eq!(out.dtype, DType::U32, "output {name} holds floats");
        let len = out.shape.iter().product();
        self.arenas[0].floats()[out.place.offset..][..len]
            .iter()
            .map(|v| v.to_bits())
            .collect()
    }

    /// A scalar output.
    pub fn scalar(&self, name: &str) -> f32 {
        self.output(name)[0]
    }
}

/// What a plan's intermediate tensors share.
fn arena(plan: &Plan) -> Aligned {
    let mut arena = Aligned::zeroed(plan.arena);
    // What is read before it was written shows in tests.
    if cfg!(debug_assertions) {
        arena.floats_mut().fill(f32::NAN);
    }
    arena
}

/// Work is cut by size alone, never by the number of threads; small work stays on this one.
pub(crate) fn for_ranges(total: usize, grain: usize, work: impl Fn(usize, usize) + Sync) {
    let grain = grain.max(1);
    let pieces = total.div_ceil(grain);
    if pieces <= 1 || rayon::current_num_threads() == 1 {
        work(0, total);
        return;
    }
    (0..pieces)
        .into_par_iter()
        .for_each(|i| work(i * grain, ((i + 1) * grain).min(total)));
}

fn conv_shape(g: &ConvGeometry) -> ConvShape {
    let ConvGeometry {
        n,
        h,
        w,
        ci,
        oh,
        ow,
        co,
        kh,
        kw,
        stride,
        pad,
        filter: _,
    } = *g;
    ConvShape {
        n,
        h,
        w,
        ci,
        co,
        kh,
        kw,
        stride,
        pad,
        oh,
        ow,
    }
}

/// # Safety
/// Nobody else uses the tensors of the kernel meanwhile, and none that it writes is one that it reads in another order.
unsafe fn execute(isa: Isa, kernel: &Kernel, m: &Memory) {
    // SAFETY: a kernel's tensors have places of their own, which are checked to lie inside the memory as they are taken.
    unsafe {
        let floats = |place: Place, len: usize| m.slice(place, len);
        match kernel {
            Kernel::Map(chain) => chain::run_map(isa, chain, m),
            Kernel::Reduce {
                chain,
                op,
                outer,
                len,
                inner,
                out,
            } => {
                reduce::run(
                    isa,
                    chain,
                    m,
                    *op,
                    [*outer, *len, *inner],
                    m.slice_mut(*out, outer * inner),
                );
            }
            Kernel::Conv {
                geometry: g,
                x,
                w,
                chain,
            } => {
                let runner = Runner::new(isa, chain, m);
                let (x, w) = (floats(*x, g.n * g.h * g.w * g.ci), hwio(g, m, *w));
                conv::conv(isa, &conv_shape(g), x, &w, &|first, block| {
                    runner.finish(first, block)
                });
            }
            Kernel::ConvGradInput {
                geometry: g,
                dy,
                w,
                chain,
            } => {
                let runner = Runner::new(isa, chain, m);
                let (dy, w) = (floats(*dy, g.n * g.oh * g.ow * g.co), hwio(g, m, *w));
                conv::conv_grad_input(isa, &conv_shape(g), dy, &w, &|first, block| {
                    runner.finish(first, block)
                });
            }
            Kernel::ConvGradWeight {
                geometry: g,
                x,
                dy,
                out,
            } => {
                let (x, dy) = (
                    floats(*x, g.n * g.h * g.w * g.ci),
                    floats(*dy, g.n * g.oh * g.ow * g.co),
                );
                let dw = m.slice_mut(*out, g.kh * g.kw * g.ci * g.co);
                conv::conv_grad_weight(isa, &conv_shape(g), x, dy, dw);
                if g.filter == Filter::Ohwi {
                    let turned = transposed(dw, g.co);
                    dw.copy_from_slice(&turned);
                }
            }
            Kernel::Matmul {
                product,
                a,
                b,
                chain,
                ..
            } => {
                let runner = Runner::new(isa, chain, m);
                let (a, b) = (floats(*a, product.first()), floats(*b, product.second()));
                gemm::matmuls(isa, product, a, b, &|first, block| {
                    runner.finish(first, block)
                });
            }
            Kernel::Move { movement, from, to } => movement::run(movement, m, *from, *to),
            Kernel::Fill { to, len, value } => m.slice_mut(*to, *len).fill(*value),
            Kernel::Batch(kernels) => kernels.iter().for_each(|k| execute(isa, k, m)),
            Kernel::AllSum { .. } => unreachable!("sums are made between the runs of kernels"),
            Kernel::ArgMax { rows, cols, x, out } => {
                movement::argmax(floats(*x, rows * cols), *cols, m.words_mut(*out, *rows));
            }
            Kernel::Gather {
                rows,
                cols,
                codes,
                table,
                index,
                out,
            } => {
                let (table, index) = (floats(*table, codes * cols), m.words(*index, *rows));
                movement::gather(table, index, *cols, m.slice_mut(*out, rows * cols));
            }
            Kernel::ScatterAdd {
                rows,
                cols,
                codes,
                index,
                x,
                out,
            } => {
                let (index, x) = (m.words(*index, *rows), floats(*x, rows * cols));
                movement::scatter_add(index, x, *cols, m.slice_mut(*out, codes * cols));
            }
            Kernel::Responsibility {
                op,
                rows,
                dim,
                codes,
                inputs,
                z,
                index,
                kl,
            } => {
                let r = describe(op, [*rows, *dim, *codes], inputs, m);
                let [e_q, mu, logvar] = embeddings(inputs, [*rows, *dim, *codes], m);
                let e_p = op.prior.then(|| m.slice(inputs[6], rows * dim));
                let (mut no_index, mut no_kl) = (Vec::new(), Vec::new());
                let index = match index {
                    Some(place) => m.words_mut(*place, *rows),
                    None => {
                        no_index.resize(*rows, 0);
                        &mut no_index[..]
                    }
                };
                let kl = match kl {
                    Some(place) => m.slice_mut(*place, *rows),
                    None => {
                        no_kl.resize(*rows, 0.0);
                        &mut no_kl[..]
                    }
                };
                responsibility::forward(
                    isa,
                    &r,
                    e_q,
                    e_p,
                    mu,
                    logvar,
                    m.slice_mut(*z, rows * dim),
                    index,
                    kl,
                );
            }
            Kernel::ResponsibilityGrad {
                op,
                rows,
                dim,
                codes,
                inputs,
                outputs,
            } => {
                let (rows, dim, codes) = (*rows, *dim, *codes);
                let r = describe(op, [rows, dim, codes], inputs, m);
                let [e_q, mu, logvar] = embeddings(inputs, [rows, dim, codes], m);
                let e_p = op.prior.then(|| m.slice(inputs[6], rows * dim));
                let after = 6 + op.prior as usize;
                let (dz, dkl) = (
                    m.slice(inputs[after], rows * dim),
                    m.slice(inputs[after + 1], rows),
                );
                let mut spare: [Vec<f32>; 4] = Default::default();
                let lens = [rows * dim, codes * dim, codes * dim, rows * dim];
                let mut targets = spare.iter_mut().zip(outputs).zip(lens).map(
                    |((spare, place), len)| match place {
                        Some(place) => m.slice_mut(*place, len),
                        None => {
                            spare.resize(len, 0.0);
                            &mut spare[..]
                        }
                    },
                );
                let mut next = || targets.next().expect("four gradients");
                let (de_q, dmu, dlogvar, de_p) = (next(), next(), next(), next());
                let de_p = op.prior.then_some(de_p);
                responsibility::backward(
                    isa, &r, e_q, e_p, mu, logvar, dz, dkl, de_q, de_p, dmu, dlogvar,
                );
            }
        }
    }
}

/// A kernel in the order the CPU computes with. Only plans made for another device have others, in tests.
///
/// # Safety
/// Nobody writes the kernel meanwhile.
unsafe fn hwio<'a>(g: &ConvGeometry, m: &'a Memory, place: Place) -> std::borrow::Cow<'a, [f32]> {
    // SAFETY: as the caller says.
    let kernel = unsafe { m.slice(place, g.kh * g.kw * g.ci * g.co) };
    match g.filter {
        Filter::Hwio => kernel.into(),
        Filter::Ohwi => transposed(kernel, g.kh * g.kw * g.ci).into(),
    }
}

fn transposed(matrix: &[f32], cols: usize) -> Vec<f32> {
    let columns = (0..cols).map(|col| matrix[col..].iter().step_by(cols));
    columns.flatten().copied().collect()
}

/// # Safety
/// Nobody writes the inputs meanwhile.
unsafe fn describe(
    op: &crate::op::ResponsibilityOp,
    [rows, dim, codes]: [usize; 3],
    inputs: &[Place],
    m: &Memory,
) -> responsibility::Responsibility {
    // SAFETY: as the caller says.
    unsafe {
        let noise = m.noise(inputs[0], op.stream);
        let (tau, noise_scale) = (m.slice(inputs[1], 1)[0], m.slice(inputs[2], 1)[0]);
        responsibility::Responsibility {
            rows,
            dim,
            codes,
            mode: op.mode,
            tau,
            noise_scale,
            noise,
            first: match op.sharded {
                true => m.shard(inputs[0]) * rows as u64,
                false => 0,
            },
        }
    }
}

/// # Safety
/// Nobody writes the inputs meanwhile.
unsafe fn embeddings<'a>(
    inputs: &[Place],
    [rows, dim, codes]: [usize; 3],
    m: &'a Memory,
) -> [&'a [f32]; 3] {
    // SAFETY: as the caller says.
    unsafe {
        [
            m.slice(inputs[3], rows * dim),
            m.slice(inputs[4], codes * dim),
            m.slice(inputs[5], codes * dim),
        ]
    }
}

impl Memory {
    /// The noise a counter in memory addresses.
    ///
    /// # Safety
    /// Nobody writes the counter meanwhile.
    unsafe fn noise(&self, counter: Place, stream: u32) -> Noise {
        // SAFETY: as the caller says.
        let w = unsafe { self.words(counter, 4) };
        let join = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        Noise {
            seed: join(w[0], w[1]),
            stream,
            step: join(w[2], w[3]),
        }
    }

    /// The shard a counter in memory is for.
    ///
    /// # Safety
    /// As [`Memory::noise`].
    unsafe fn shard(&self, counter: Place) -> u64 {
        // SAFETY: as the caller says.
        unsafe { self.words(counter, 5)[4].into() }
    }
}
