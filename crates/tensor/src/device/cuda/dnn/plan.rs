//! A plan that is ready to run, and the handle it runs on.
//!
//! A plan stays with the handle it was made with: cuDNN asks that no two threads use one at once, and says
//! nothing about a plan on another handle than its own.

use super::descriptor::{Descriptor, Kind, Name, check};
use super::engines::{Ready, Recipe};
use super::operation::{self, Form, Slot};
use super::{Problem, locked};
use crate::device::cuda::driver::{Gpu, StreamRef};
use crate::{Error, Result};
use cudarc::cudnn::sys;
use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// A handle to cuDNN; one thread uses it at a time.
pub struct Handle {
    pub(super) raw: sys::cudnnHandle_t,
    /// The stream it was last given; whoever holds the lock uses the handle.
    pub(super) stream: Mutex<usize>,
    /// Its stream and context live as long as the handle.
    _gpu: Gpu,
}

// SAFETY: a handle is bound to a context, not to a thread, and its use is behind the lock.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(super) fn new(gpu: &Gpu) -> Result<Handle> {
        gpu.make_current()?;
        let stream = gpu.stream().raw();
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the calls, and the handle keeps its GPU with the stream.
        unsafe {
            check(sys::cudnnCreate(&mut raw), "start on this GPU")?;
            let handle = Handle {
                raw,
                stream: Mutex::new(stream as usize),
                _gpu: gpu.clone(),
            };
            check(sys::cudnnSetStream(raw, stream.cast()), "take the stream")?;
            Ok(handle)
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once, after every plan that uses it.
        unsafe { sys::cudnnDestroy(self.raw) };
    }
}

/// A convolution that is ready to run.
pub struct Plan {
    /// Bytes of scratch memory a run needs.
    pub workspace: usize,
    /// How long one run takes.
    pub micros: f32,
    pub recipe: Recipe,
    pub form: Form,
    /// Whether its kernel was compiled for it.
    pub compiled: bool,
    slots: Vec<(i64, Slot)>,
    /// What the slots' constants point at.
    consts: Vec<f32>,
    inputs: usize,
    outputs: usize,
    pub(super) plan: Descriptor,
    handle: Arc<Handle>,
}

/// The addresses of a run. What the direction computes is written to x (`Data`), w (`Weight`) or y (`Forward`),
/// unless there is an epilogue, whose outputs are written instead.
#[derive(Clone, Debug, Default)]
pub struct Pointers<'a> {
    /// x, or dx.
    pub x: CUdeviceptr,
    /// w, or dw.
    pub w: CUdeviceptr,
    /// y, or dy.
    pub y: CUdeviceptr,
    pub workspace: CUdeviceptr,
    /// In the order of the epilogue's inputs.
    pub inputs: &'a [CUdeviceptr],
    /// In the order of the epilogue's outputs.
    pub outputs: &'a [CUdeviceptr],
}

impl Plan {
    /// A plan whose time is not known yet.
    pub(super) fn new(
        handle: &Arc<Handle>,
        problem: &Problem,
        ready: Ready,
        recipe: Recipe,
        form: Form,
        compiled: bool,
    ) -> Plan {
        let slots = operation::slots(problem);
        let consts = slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Const(c) => Some(*c),
            _ => None,
        });
        let epilogue = problem.epilogue.as_ref();
        Plan {
            workspace: ready.workspace,
            micros: f32::INFINITY,
            recipe,
            form,
            compiled,
            consts: consts.collect(),
            slots,
            inputs: epilogue.map_or(0, |e| e.inputs.len()),
            outputs: epilogue.map_or(0, |e| e.outputs.len()),
            plan: ready.plan,
            handle: handle.clone(),
        }
    }

    /// Runs on `stream`; may be captured.
    ///
    /// # Safety
    /// The addresses are those of whole tensors of the problem and of `workspace` bytes that nothing else uses meanwhile, and stay
    /// allocated until the run, or the last launch of the graph it is recorded in, is done.
    pub unsafe fn run(&self, stream: StreamRef<'_>, pointers: &Pointers<'_>) -> Result<()> {
        if pointers.inputs.len() != self.inputs || pointers.outputs.len() != self.outputs {
            return Err(Error::new(format!(
                "an epilogue with {} inputs and {} outputs was given {} and {} addresses",
                self.inputs,
                self.outputs,
                pointers.inputs.len(),
                pointers.outputs.len()
            )));
        }
        let mut numbers = Vec::with_capacity(self.slots.len());
        let mut addresses = Vec::with_capacity(self.slots.len());
        let mut consts = self.consts.iter();
        for &(number, slot) in &self.slots {
            numbers.push(number);
            addresses.push(match slot {
                Slot::X => pointers.x as *mut c_void,
                Slot::W => pointers.w as *mut c_void,
                Slot::Y => pointers.y as *mut c_void,
                Slot::Input(i) => pointers.inputs[i] as *mut c_void,
                Slot::Output(i) => pointers.outputs[i] as *mut c_void,
                Slot::Const(_) => consts.next().map_or(std::ptr::null_mut(), |c| {
                    std::ptr::from_ref(c).cast_mut().cast()
                }),
            });
        }
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .ints(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &numbers)?
            .addresses(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
            .addresses(
                Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                &[pointers.workspace as *mut c_void],
            )?
            .finalize()?;
        let stream = stream.raw();
        let mut last = locked(&self.handle.stream);
        // SAFETY: the caller vouches for the addresses; constants live in `self`.
        unsafe {
            if *last != stream as usize {
                check(
                    sys::cudnnSetStream(self.handle.raw, stream.cast()),
                    "take the stream",
                )?;
                *last = stream as usize;
            }
            check(
                sys::cudnnBackendExecute(self.handle.raw, self.plan.raw(), pack.raw()),
                "run a convolution",
            )
        }
    }
}
