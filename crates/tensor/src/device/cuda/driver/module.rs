//! Compiled kernels: loaded in modules, launched on streams.
// A stream is a handle of the driver's, handed to cuDNN and cuBLASLt as well; nothing here looks behind it.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

use super::{Gpu, StreamRef, check};
use crate::device::bytes_text;
use crate::{Error, Result};
use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Compiled kernels on the GPU. Lives as long as one of its kernels does.
pub struct Module(Arc<Loaded>);

struct Loaded {
    gpu: Gpu,
    raw: CUmodule,
}

// SAFETY: as for streams.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, unloaded once, after the last kernel of it is gone.
        let _ = unsafe { sys::cuModuleUnload(self.raw) };
    }
}

impl Module {
    /// Takes what [`nvrtc::compile`](crate::device::cuda::nvrtc::compile) gave.
    pub fn load(gpu: &Gpu, cubin: &[u8]) -> Result<Module> {
        // The driver reads as far as the file's own header says, so that header must be there.
        if !cubin.starts_with(b"\x7fELF") || cubin.len() < 64 {
            return Err(Error::new(
                "a compiled kernel is damaged: expected an ELF file; delete the cache (`rrvq doctor` names its folder)",
            ));
        }
        gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current and the bytes live through the call.
        unsafe {
            let loaded = sys::cuModuleLoadData(&mut raw, cubin.as_ptr().cast());
            check(loaded, &format!("load kernels on {}", gpu.info()))?;
        }
        Ok(Module(Arc::new(Loaded {
            gpu: gpu.clone(),
            raw,
        })))
    }

    /// By its `extern "C"` name.
    pub fn function(&self, name: &str) -> Result<Kernel> {
        let c_name = CString::new(name)
            .map_err(|_| Error::new(format!("the kernel name {name:?} has a zero byte")))?;
        self.0.gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name lives through the call.
        unsafe {
            let found = sys::cuModuleGetFunction(&mut raw, self.0.raw, c_name.as_ptr());
            check(found, &format!("find the kernel {name}"))?;
        }
        Ok(Kernel {
            // SAFETY: a function of the module that `self` keeps loaded.
            parameters: unsafe { parameters(raw) },
            module: self.0.clone(),
            raw,
            name: name.into(),
            shared: Arc::new(AtomicU32::new(48 << 10)),
        })
    }
}

/// How many parameters a kernel has.
///
/// # Safety
/// The function's module is loaded.
unsafe fn parameters(function: CUfunction) -> usize {
    let exists = |&index: &usize| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: as the caller says; past the last parameter the driver gives an error.
        let told = unsafe { sys::cuFuncGetParamInfo(function, index, &mut offset, &mut size) };
        told == CUresult::CUDA_SUCCESS
    };
    (0..4096).take_while(exists).count()
}

/// A function of a module; clones are the same one.
#[derive(Clone)]
pub struct Kernel {
    module: Arc<Loaded>,
    raw: CUfunction,
    name: String,
    parameters: usize,
    /// The most dynamic shared memory it has been allowed so far.
    shared: Arc<AtomicU32>,
}

// SAFETY: as for streams.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Allows launches with this many bytes of dynamic shared memory; launches do it themselves when need be.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        if bytes <= self.shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let limit = self.module.gpu.info().shared_limit;
        if bytes > limit {
            return Err(Error::new(format!(
                "the kernel {} needs {} of shared memory and {} has {}",
                self.name,
                bytes_text(bytes as usize),
                self.module.gpu.info(),
                bytes_text(limit as usize)
            )));
        }
        self.module.gpu.make_current()?;
        let which = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a function of a loaded module.
        let set = unsafe { sys::cuFuncSetAttribute(self.raw, which, bytes as i32) };
        check(
            set,
            &format!("give shared memory to the kernel {}", self.name),
        )?;
        self.shared.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Queues one launch. Each argument is one slot, of which the kernel reads as many bytes as its parameter
    /// has: addresses fill it, a `u32` or the bits of an `f32` lie in its low half.
    ///
    /// # Safety
    /// Addresses among the arguments are those of memory that is as large as the kernel takes it to be, and that stays allocated
    /// until the launch, or the last launch of the graph it is recorded in, is done.
    pub unsafe fn launch(
        &self,
        stream: StreamRef<'_>,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        args: &[u64],
    ) -> Result<()> {
        assert_eq!(args.len(), self.parameters, "arguments of {}", self.name);
        self.allow_shared(shared)?;
        self.module.gpu.make_current()?;
        let mut slots: Vec<*mut c_void> = args
            .iter()
            .map(|arg| std::ptr::from_ref(arg).cast_mut().cast())
            .collect();
        // SAFETY: as many slots as parameters, none wider than its slot, copied by the driver before it returns; the caller
        // vouches for the addresses.
        let launched = unsafe {
            sys::cuLaunchKernel(
                self.raw,
                grid[0],
                grid[1],
                grid[2],
                block,
                1,
                1,
                shared,
                stream.raw(),
                slots.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        if launched == CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        check(
            launched,
            &format!(
                "launch the kernel {} on {grid:?} blocks of {block} threads with {} of shared memory",
                self.name,
                bytes_text(shared as usize)
            ),
        )
    }
}
