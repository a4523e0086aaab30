//! A plan on a CUDA device: the calls the rest of the program makes, before there is anything behind them.

use super::driver::Gpu;
use crate::compile::Plan;
use crate::device::Precision;
use crate::graph::{Graph, Var};
use crate::params::Layout;
use crate::{Data, Error, Result, Store};
use std::collections::BTreeMap;

fn unbuilt<T>() -> Result<T> {
    Err(Error::new(
        "the CUDA device is not built yet; use --device cpu",
    ))
}

/// A plan with its memory on a device, ready to run.
pub struct Program {
    plan: Plan,
}

impl Program {
    pub fn new(
        _gpu: &Gpu,
        _precision: Precision,
        _graph: &Graph,
        _layout: &Layout,
        _outputs: &[(&str, Var<'_>)],
    ) -> Result<Self> {
        unbuilt()
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of device memory the plan takes.
    pub fn bytes(&self) -> usize {
        self.plan.arena_bytes()
    }

    pub fn run(&mut self, _store: &mut Store, _inputs: &[(&str, Data<'_>)]) -> Result<()> {
        unbuilt()
    }

    pub fn output(&self, _name: &str) -> Result<Vec<f32>> {
        unbuilt()
    }

    pub fn output_u32(&self, _name: &str) -> Result<Vec<u32>> {
        unbuilt()
    }

    /// Many runs without the host in between; the f32 outputs of each, in the order given to `new`.
    pub fn replay(
        &mut self,
        _store: &mut Store,
        _bank: &Bank,
        _frames: &[Frame<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        unbuilt()
    }

    /// Where the time of a run with the last inputs goes, by kind of kernel, averaged over `repeats`.
    pub fn profile(&mut self, _store: &mut Store, _repeats: usize) -> Result<Vec<Timed>> {
        unbuilt()
    }
}

/// One run of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Every input but the images.
    pub inputs: &'a [(&'a str, Data<'a>)],
    /// The number of each image in the bank; bit 31 asks for its mirror image.
    pub rows: &'a [u32],
    /// The name of the input the images are.
    pub gathered: &'a str,
}

/// The time of all kernels of a kind in one run.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub kind: &'static str,
    pub micros: f64,
    pub flops: f64,
    pub bytes: f64,
    pub launches: usize,
}

/// Images on the device, as bytes.
pub struct Bank {}

impl Bank {
    pub fn new(
        _gpu: &Gpu,
        _bytes: &[u8],
        _item: usize,
        _width: usize,
        _channels: usize,
    ) -> Result<Self> {
        unbuilt()
    }
}

/// The vectors of a store on the device.
pub struct Resident {}

impl Resident {
    /// Copies what the device has changed to the host.
    pub fn fetch(&mut self, _vectors: &mut BTreeMap<String, Vec<f32>>) -> Result<()> {
        unbuilt()
    }

    /// The host's `name` is new: it is sent again before the next run.
    pub fn forget(&mut self, _name: &str) {}

    /// Makes `name` in another store's copy what `from` is here, without passing through the host. What is there
    /// already keeps its address.
    pub fn copy_to(&self, _from: &str, _to: &mut Option<Resident>, _name: &str) -> Result<()> {
        unbuilt()
    }
}
