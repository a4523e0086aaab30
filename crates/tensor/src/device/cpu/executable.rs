//! The CPU's programs behind the interface that all devices share.

use super::Program;
use crate::Result;
use crate::compile::{Kernel, Named, Plan};
use crate::device::backend::Executable;
use crate::device::{Data, FLIPPED, Frame, RowBank, Store, Timed, cost};
use crate::graph::DType;
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Executable for Program {
    fn plan(&self) -> &Plan {
        Program::plan(self)
    }

    fn bytes(&self) -> usize {
        self.plan.arena_bytes()
    }

    fn run(&mut self, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()> {
        Program::run(self, store, inputs)
    }

    fn run_shards(&mut self, store: &mut Store, shards: &[&[(&str, Data<'_>)]]) -> Result<()> {
        self.run_observed(store, shards, |_, _| {})
    }

    fn replay(
        &mut self,
        store: &mut Store,
        bank: &RowBank,
        frames: &[Frame<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        let bytes: &Vec<u8> = bank.stored()?;
        let size = bank.layout.bytes;
        let mut results = Vec::with_capacity(frames.len());
        for frame in frames {
            let mut rows = Vec::with_capacity(frame.rows.len() * size);
            for &row in frame.rows {
                let start = rows.len();
                rows.extend_from_slice(&bytes[bank.index(row)? * size..][..size]);
                if row & FLIPPED != 0 {
                    bank.layout.flip(&mut rows[start..]);
                }
            }
            let mut inputs = frame.inputs.to_vec();
            inputs.push((frame.gathered, Data::U8(&rows)));
            self.run(store, &inputs)?;
            let floats = |named: &&Named| named.dtype != DType::U32;
            let outputs = self.plan.outputs.iter().filter(floats);
            let values = outputs.flat_map(|named| Program::output(self, &named.name));
            results.push(values.copied().collect());
        }
        Ok(results)
    }

    fn output(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        Ok(Program::output(self, name).into())
    }

    fn output_u32(&self, name: &str) -> Result<Vec<u32>> {
        Ok(Program::output_u32(self, name))
    }

    fn profile(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
        repeats: usize,
    ) -> Result<Vec<Timed>> {
        let repeats = repeats.max(1);
        let mut kinds: BTreeMap<&'static str, Timed> = BTreeMap::new();
        for round in 0..repeats {
            self.run_timed(store, inputs, |kernel: &Kernel, time| {
                let kind = cost::kind(kernel);
                let row = kinds.entry(kind).or_insert(Timed::new(kind));
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
}
