//! What a device implements: compiled programs, and copies of a store's vectors in its own memory.

use super::{Data, Frame, RowBank, Store, SumTimes, Timed};
use crate::Result;
use crate::compile::Plan;
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A plan that is ready to run on one device; [`Program`](super::Program) documents the methods.
pub(crate) trait Executable: Send + Sync {
    fn plan(&self) -> &Plan;
    fn bytes(&self) -> usize;
    fn run(&mut self, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()>;
    fn run_shards(&mut self, store: &mut Store, shards: &[&[(&str, Data<'_>)]]) -> Result<()>;
    fn replay(
        &mut self,
        store: &mut Store,
        bank: &RowBank,
        frames: &[Frame<'_>],
    ) -> Result<Vec<Vec<f32>>>;
    fn output(&self, name: &str) -> Result<Cow<'_, [f32]>>;
    fn output_u32(&self, name: &str) -> Result<Vec<u32>>;
    /// Times by kind of kernel, in any order.
    fn profile(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
        repeats: usize,
    ) -> Result<Vec<Timed>>;
    /// When sums over processes run; nothing where they do not run beside anything.
    fn sum_times(
        &mut self,
        _store: &mut Store,
        _inputs: &[(&str, Data<'_>)],
    ) -> Result<Option<SumTimes>> {
        Ok(None)
    }
}

/// The vectors of a [`Store`] in the memory of a device.
pub(crate) trait DeviceCopy: Any + Send + Sync {
    /// Copies what the device has changed to the host.
    fn fetch(&mut self, vectors: &mut BTreeMap<String, Vec<f32>>) -> Result<()>;
    /// Whether the device has `name`, no older than the host's.
    fn holds(&self, name: &str) -> bool;
    /// Reads values of `name` from `first` on, as they are on the device.
    fn read(&self, name: &str, first: usize, values: &mut [f32]) -> Result<()>;
    /// Writes them; the host's are older then.
    fn write(&mut self, name: &str, first: usize, values: &[f32]) -> Result<()>;
    /// The host's `name` has changed: it is uploaded again before the next run.
    fn invalidate(&mut self, name: &str);
    /// Makes `name` in another store's copy what `from` is here, without passing through the host. What is there
    /// already keeps its address.
    fn copy_to(&self, from: &str, to: &mut Option<Box<dyn DeviceCopy>>, name: &str) -> Result<()>;
}
