//! A compiled graph on whichever device was chosen, behind one set of calls.
//!
//! Code that trains or samples does not ask where it runs: the same graph becomes a CPU program or a CUDA one.
//! Besides single runs there is [`replay`](Program::replay), many runs in a row that gather an input from a
//! [`RowBank`] beside the program, so that a fast device never waits for the host.

use super::backend::Executable;
use super::{Data, Device, Frame, RowBank, Store, cost, cpu};
use crate::Result;
use crate::compile::compile;
use crate::graph::{Graph, Var};
use crate::limit::check_room;
use crate::params::Layout;
use std::borrow::Cow;

/// A graph that is compiled for a device and ready to run, many times: fusion, order and memory are decided.
///
/// ```
/// use rrvq_tensor::{DType, Data, Device, Graph, Layout, Program, Store};
/// let g = Graph::new();
/// let x = g.input("x", &[2, 3], DType::F32);
/// let outputs = [("softmax", x.softmax()), ("largest", x.max_last())];
/// let mut program = Program::new(&Device::Cpu, &g, &Layout::default(), &outputs)?;
/// let values = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0];
/// program.run(&mut Store::default(), &[("x", Data::F32(&values))])?;
/// assert_eq!(*program.output("largest")?, [0.0, 3.0]);
/// // An input that is missing or has another size is an error that names it.
/// let error = program.run(&mut Store::default(), &[]).unwrap_err();
/// assert_eq!(error.to_string(), "input x was not given");
/// # Ok::<(), rrvq_tensor::Error>(())
/// ```
pub struct Program(Box<dyn Executable>);

impl Program {
    /// Compiles what `outputs` and the graph's assignments need. Parameters are found by name in `layout`, which may
    /// come from another graph of the same model, and their values in the store's vector
    /// [`PARAMETERS`](crate::params::PARAMETERS).
    pub fn new(
        device: &Device,
        graph: &Graph,
        layout: &Layout,
        outputs: &[(&str, Var<'_>)],
    ) -> Result<Self> {
        Ok(Program(match device {
            Device::Cpu => {
                let plan = compile(graph, layout, outputs)?;
                let own = graph.group().map_or(1, |group| group.own().len());
                check_room::<f32>("running the model", plan.arena.saturating_mul(own))?;
                Box::new(cpu::Program::new(plan).in_group(graph.group()))
            }
            #[cfg(feature = "cuda")]
            Device::Cuda(on) => Box::new(super::cuda::program::Program::new(
                on, graph, layout, outputs,
            )?),
        }))
    }

    /// The number of kernels a run executes.
    pub fn kernels(&self) -> usize {
        self.0.plan().kernels.len()
    }

    /// Arithmetic operations of convolutions, products and responsibilities in a run; a multiplication with its
    /// addition counts as two.
    pub fn flops(&self) -> f64 {
        self.0.plan().kernels.iter().map(cost::flops).sum()
    }

    /// Whether the program was compiled with an output of this name.
    pub fn has_output(&self, name: &str) -> bool {
        self.0.plan().outputs.iter().any(|out| out.name == name)
    }

    /// Bytes the program works in, on its device.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Runs once. Inputs are matched by name; states are read from and written to `store`.
    pub fn run(&mut self, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()> {
        self.0.run(store, inputs)
    }

    /// Runs once on each shard of this process, in their order: for graphs of a [group](Graph::in_group), in all of its
    /// processes at once. Outputs are those of the first shard.
    pub fn run_shards(&mut self, store: &mut Store, shards: &[&[(&str, Data<'_>)]]) -> Result<()> {
        self.0.run_shards(store, shards)
    }

    /// Runs once for each frame, in order, and gives the f32 outputs of each, one after another in the order they
    /// were compiled in.
    pub fn replay(
        &mut self,
        store: &mut Store,
        bank: &RowBank,
        frames: &[Frame<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        self.0.replay(store, bank, frames)
    }

    /// An f32 output of the last run. Asking for one that was not compiled is a mistake in the program.
    pub fn output(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        self.0.output(name)
    }

    /// An output of indices.
    pub fn output_u32(&self, name: &str) -> Result<Vec<u32>> {
        self.0.output_u32(name)
    }

    /// A scalar output.
    pub fn scalar(&self, name: &str) -> Result<f32> {
        Ok(self.output(name)?[0])
    }

    /// Where the time of a run goes, by kind of kernel, the slowest first; averages of `repeats` runs.
    pub fn profile(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
        repeats: usize,
    ) -> Result<Vec<Timed>> {
        let mut kinds = self.0.profile(store, inputs, repeats)?;
        kinds.sort_by(|a, b| b.micros.total_cmp(&a.micros));
        Ok(kinds)
    }

    /// When sums over processes run in a run, on a device where they run beside other kernels.
    pub fn sum_times(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
    ) -> Result<Option<SumTimes>> {
        self.0.sum_times(store, inputs)
    }
}

/// When the sums over processes run within one run, in milliseconds from its start.
#[derive(Clone, Debug)]
pub struct SumTimes {
    /// Values, beginning and end of each.
    pub sums: Vec<(usize, f64, f64)>,
    /// When the last weight gradient of a convolution was complete.
    pub last_gradient: f64,
    /// When everything was.
    pub end: f64,
}

/// The time of all kernels of a kind in one run.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// The kind of kernel, such as "convolution".
    pub kind: &'static str,
    /// Microseconds of a run.
    pub micros: f64,
    /// Arithmetic operations of a run; a multiplication with its addition counts as two.
    pub flops: f64,
    /// Bytes that are read and written in a run, each tensor once.
    pub bytes: f64,
    /// Kernels of this kind in a run.
    pub launches: usize,
}

impl Timed {
    /// Nothing counted yet.
    pub(crate) fn new(kind: &'static str) -> Self {
        Timed {
            kind,
            micros: 0.0,
            flops: 0.0,
            bytes: 0.0,
            launches: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{FLIPPED, RowLayout};
    use crate::graph::DType;

    /// The sum of each image weighted by column, and a counter of runs in the store.
    fn compiled(device: &Device) -> Program {
        let graph = Graph::new();
        let images = graph.input("images", &[2, 1, 3, 1], DType::U8).to_f32();
        let columns = graph.input("columns", &[3], DType::F32);
        let sums = (images.reshape(&[2, 3]) * columns).sum_last();
        let runs = graph.state("runs", 1) + 1.0;
        graph.assign("runs", runs);
        Program::new(
            device,
            &graph,
            &graph.layout(),
            &[("runs", runs), ("sums", sums)],
        )
        .unwrap()
    }

    #[test]
    fn replaying_gathers_and_flips_and_updates_states() {
        let device = Device::Cpu;
        let mut program = compiled(&device);
        let layout = RowLayout {
            bytes: 3,
            axis: 3,
            element: 1,
        };
        let bank = RowBank::new(&device, vec![1, 2, 3, 10, 20, 30], layout).unwrap();
        let mut store = Store::with("runs", vec![0.0]);
        let columns = [100.0, 10.0, 1.0];
        let inputs = [("columns", Data::F32(&columns))];
        let frame = |rows| Frame {
            inputs: &inputs,
            rows,
            gathered: "images",
        };
        let frames = [frame(&[0, 1]), frame(&[1, FLIPPED])];
        let found = program.replay(&mut store, &bank, &frames).unwrap();
        assert_eq!(found, [vec![1.0, 123.0, 1230.0], vec![2.0, 1230.0, 321.0]]);
        assert_eq!(store.get("runs"), [2.0]);
        let said = program.replay(&mut store, &bank, &[frame(&[0, 2])]);
        assert!(said.unwrap_err().to_string().contains("row 2"));
        let said = program.replay(&mut store, &bank, &[frame(&[0])]);
        assert!(said.unwrap_err().to_string().contains("images"));
    }

    #[test]
    fn a_profile_counts_every_kernel_once() {
        let mut program = compiled(&Device::Cpu);
        let columns = [1.0; 3];
        let inputs = [
            ("columns", Data::F32(&columns[..])),
            ("images", Data::U8(&[0; 6])),
        ];
        let mut store = Store::with("runs", vec![0.0]);
        let rows = program.profile(&mut store, &inputs, 3).unwrap();
        let launches: usize = rows.iter().map(|row| row.launches).sum();
        assert_eq!(launches, program.kernels());
        assert!(rows.iter().all(|row| row.micros > 0.0 && row.bytes > 0.0));
        assert!(rows.is_sorted_by(|a, b| a.micros >= b.micros));
        assert_eq!(store.get("runs"), [3.0]);
    }

    #[test]
    fn a_copied_vector_is_the_other_stores() {
        let other = Store::with("ema", vec![1.0, 2.0]);
        let mut store = Store::with("theta", vec![0.0; 3]);
        store.copy_from("theta", &other, "ema").unwrap();
        assert_eq!(store.get("theta"), [1.0, 2.0]);
        store.fetch().unwrap();
        assert_eq!(store.get("theta"), [1.0, 2.0]);
        assert!(store.copy_from("theta", &other, "none").is_err());
    }
}
