//! A compiled graph on whichever device was chosen, behind one set of calls.
//!
//! Whoever trains or samples does not ask where: the same drawing becomes a CPU program or a CUDA one. Besides
//! single runs there is [`replay`](Program::replay), many runs in a row whose images are picked from a [`Bank`]
//! beside the program, so that a fast device never waits for the host.

use super::cuda::program::{self as cuda, Frame, Timed};
use super::{Device, cost, cpu};
use crate::compile::{Kernel, Plan, compile};
use crate::graph::{DType, Graph, Var};
use crate::params::Layout;
use crate::{Data, Error, Result, Store};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A graph that is ready to run.
pub struct Program {
    on: On,
}

enum On {
    Cpu(Box<cpu::Program>),
    Cuda(Box<cuda::Program>),
}

impl Program {
    /// Compiles what `outputs` and the graph's assignments need.
    pub fn new(
        device: &Device,
        graph: &Graph,
        layout: &Layout,
        outputs: &[(&str, Var<'_>)],
    ) -> Result<Self> {
        let on = match device {
            Device::Cpu => On::Cpu(Box::new(cpu::Program::new(compile(
                graph, layout, outputs,
            )?))),
            Device::Cuda(gpu, precision) => On::Cuda(Box::new(cuda::Program::new(
                gpu, *precision, graph, layout, outputs,
            )?)),
        };
        Ok(Program { on })
    }

    pub fn plan(&self) -> &Plan {
        match &self.on {
            On::Cpu(program) => program.plan(),
            On::Cuda(program) => program.plan(),
        }
    }

    /// Bytes the program works in, on its device.
    pub fn bytes(&self) -> usize {
        match &self.on {
            On::Cpu(program) => program.plan().arena_bytes(),
            On::Cuda(program) => program.bytes(),
        }
    }

    /// Runs once. Inputs are matched by name; states are read from and written to `store`.
    pub fn run(&mut self, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()> {
        match &mut self.on {
            On::Cpu(program) => program.run(store, inputs),
            On::Cuda(program) => program.run(store, inputs),
        }
    }

    /// Runs once for each frame, in order, and gives the f32 outputs of each, one after another in the order they
    /// were compiled in.
    pub fn replay(
        &mut self,
        store: &mut Store,
        bank: &Bank,
        frames: &[Frame<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        match (&mut self.on, &bank.on) {
            (On::Cpu(program), Stored::Cpu(bytes)) => frames
                .iter()
                .map(|frame| replay_one(program, store, bank, bytes, frame))
                .collect(),
            (On::Cuda(program), Stored::Cuda(there)) => program.replay(store, there, frames),
            _ => Err(Error::new(
                "the images were put on another device than the program; put them on the same",
            )),
        }
    }

    /// An f32 output of the last run. Asking for one that was not compiled is a mistake in the program.
    pub fn output(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        match &self.on {
            On::Cpu(program) => Ok(program.output(name).into()),
            On::Cuda(program) => Ok(program.output(name)?.into()),
        }
    }

    /// An output of indices.
    pub fn output_u32(&self, name: &str) -> Result<Vec<u32>> {
        match &self.on {
            On::Cpu(program) => Ok(program.output_u32(name)),
            On::Cuda(program) => program.output_u32(name),
        }
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
        let mut kinds = match &mut self.on {
            On::Cpu(program) => profile_here(program, store, inputs, repeats)?,
            On::Cuda(program) => {
                program.run(store, inputs)?;
                program.profile(store, repeats)?
            }
        };
        kinds.sort_by(|a, b| b.micros.total_cmp(&a.micros));
        Ok(kinds)
    }
}

fn profile_here(
    program: &mut cpu::Program,
    store: &mut Store,
    inputs: &[(&str, Data<'_>)],
    repeats: usize,
) -> Result<Vec<Timed>> {
    let repeats = repeats.max(1);
    let mut kinds: BTreeMap<&'static str, Timed> = BTreeMap::new();
    for round in 0..repeats {
        program.run_timed(store, inputs, |kernel: &Kernel, time| {
            let kind = cost::kind(kernel);
            let row = kinds.entry(kind).or_insert(Timed {
                kind,
                micros: 0.0,
                flops: 0.0,
                bytes: 0.0,
                launches: 0,
            });
            row.micros += time.as_secs_f64() * 1e6 / repeats as f64;
            if round == 0 {
                row.flops += cost::flops(kernel);
                row.bytes += cost::bytes(kernel);
                row.launches += 1;
            }
        })?;
    }
    Ok(kinds.into_values().collect())
}

/// A bit of a row's number that asks for the mirrored image.
pub const MIRRORED: u32 = 1 << 31;

/// Many images as bytes, where a device picks from them by number.
pub struct Bank {
    on: Stored,
    item: usize,
    width: usize,
    channels: usize,
}

enum Stored {
    Cpu(Vec<u8>),
    Cuda(cuda::Bank),
}

impl Bank {
    /// Puts images of `item` bytes each on the device; rows of `width` pixels of `channels` bytes.
    pub fn new(
        device: &Device,
        bytes: Vec<u8>,
        item: usize,
        width: usize,
        channels: usize,
    ) -> Result<Self> {
        let on = match device {
            Device::Cpu => Stored::Cpu(bytes),
            Device::Cuda(gpu, _) => {
                Stored::Cuda(cuda::Bank::new(gpu, &bytes, item, width, channels)?)
            }
        };
        Ok(Bank {
            on,
            item,
            width,
            channels,
        })
    }
}

fn replay_one(
    program: &mut cpu::Program,
    store: &mut Store,
    bank: &Bank,
    bytes: &[u8],
    frame: &Frame<'_>,
) -> Result<Vec<f32>> {
    let mut images = Vec::with_capacity(frame.rows.len() * bank.item);
    for row in frame.rows {
        let index = (row & !MIRRORED) as usize;
        let start = images.len();
        let Some(image) = bytes.chunks_exact(bank.item).nth(index) else {
            let have = bytes.len() / bank.item;
            return Err(Error::new(format!(
                "image {index} was asked for, but the device has {have}"
            )));
        };
        images.extend_from_slice(image);
        if row & MIRRORED != 0 {
            mirror(&mut images[start..], bank.width, bank.channels);
        }
    }
    let mut inputs = frame.inputs.to_vec();
    inputs.push((frame.gathered, Data::U8(&images)));
    program.run(store, &inputs)?;
    let floats = |named: &&crate::compile::Named| named.dtype != DType::U32;
    let outputs = program.plan().outputs.iter().filter(floats);
    Ok(outputs
        .flat_map(|named| program.output(&named.name))
        .copied()
        .collect())
}

/// Left becomes right.
pub fn mirror(image: &mut [u8], width: usize, channels: usize) {
    for row in image.chunks_exact_mut(width * channels) {
        for x in 0..width / 2 {
            for c in 0..channels {
                row.swap(x * channels + c, (width - 1 - x) * channels + c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of each image weighted by column, and a counter of runs in the store.
    fn drawn(device: &Device) -> Program {
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
    fn replaying_picks_and_mirrors_and_keeps_states() {
        let device = Device::Cpu;
        let mut program = drawn(&device);
        let bank = Bank::new(&device, vec![1, 2, 3, 10, 20, 30], 3, 3, 1).unwrap();
        let mut store = Store::with("runs", vec![0.0]);
        let columns = [100.0, 10.0, 1.0];
        let inputs = [("columns", Data::F32(&columns))];
        let frame = |rows| Frame {
            inputs: &inputs,
            rows,
            gathered: "images",
        };
        let frames = [frame(&[0, 1]), frame(&[1, MIRRORED])];
        let found = program.replay(&mut store, &bank, &frames).unwrap();
        assert_eq!(found, [vec![1.0, 123.0, 1230.0], vec![2.0, 1230.0, 321.0]]);
        assert_eq!(store.get("runs"), [2.0]);
        let said = program.replay(&mut store, &bank, &[frame(&[0, 2])]);
        assert!(said.unwrap_err().to_string().contains("image 2"));
        let said = program.replay(&mut store, &bank, &[frame(&[0])]);
        assert!(said.unwrap_err().to_string().contains("images"));
    }

    #[test]
    fn a_profile_counts_every_kernel_once() {
        let mut program = drawn(&Device::Cpu);
        let columns = [1.0; 3];
        let inputs = [
            ("columns", Data::F32(&columns[..])),
            ("images", Data::U8(&[0; 6])),
        ];
        let mut store = Store::with("runs", vec![0.0]);
        let rows = program.profile(&mut store, &inputs, 3).unwrap();
        let launches: usize = rows.iter().map(|row| row.launches).sum();
        assert_eq!(launches, program.plan().kernels.len());
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
