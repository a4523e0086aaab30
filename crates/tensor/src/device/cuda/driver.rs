//! One GPU through the CUDA driver: memory, kernels, events and recorded graphs, each freed when it is dropped.
//!
//! The context is the device's primary one, shared with cuDNN and cuBLASLt, and is made current wherever it is
//! used, so that all of this may be called from any thread. Everything holds on to its [`Gpu`]; the context goes
//! away with the last of them. Copies and fills without a stream of their own are in order with [`Gpu::stream`].

mod graph;
mod memory;
mod module;
mod stream;

pub use graph::{Capture, GraphExec};
pub use memory::Buffer;
pub use module::{Kernel, Module};
pub use stream::{Event, Stream, StreamRef};

use super::library;
use crate::device::GpuInfo;
use crate::{Error, Result};
use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute as Attribute, CUresult, CUstream,
};
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

/// The least compute capability: bf16 arithmetic and asynchronous copies begin here.
pub const LEAST_COMPUTE: (u32, u32) = (8, 0);

/// An opened GPU; clones are the same one.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    device: CUdevice,
    context: CUcontext,
    stream: CUstream,
    info: GpuInfo,
}

// SAFETY: the driver's handles may be used from any thread once the context is current there.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last user is gone; errors in a destructor cannot be returned.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            if !self.stream.is_null() {
                let _ = sys::cuStreamDestroy_v2(self.stream);
            }
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

impl Gpu {
    /// Opens a GPU by its number. Says which there are when there is none of that number.
    pub fn open(ordinal: usize) -> Result<Gpu> {
        let count = count()?;
        if ordinal >= count {
            let all: Vec<String> = (0..count)
                .filter_map(|o| describe(o).ok().map(|(_, info)| info.to_string()))
                .collect();
            return Err(Error::new(format!(
                "there is no GPU cuda:{ordinal}; there is {}",
                match all.is_empty() {
                    true => "none".into(),
                    false => all.join(", "),
                }
            )));
        }
        let (device, info) = describe(ordinal)?;
        if info.compute < LEAST_COMPUTE {
            let (major, minor) = LEAST_COMPUTE;
            return Err(Error::new(format!(
                "{info} is too old: compute capability {major}.{minor} (Ampere) or newer is needed"
            )));
        }
        let mut inner = Inner {
            device,
            context: retain(device, &info)?,
            stream: std::ptr::null_mut(),
            info,
        };
        // SAFETY: the context is ours from here on, and released by `inner` also when a later line fails.
        unsafe {
            check(sys::cuCtxSetCurrent(inner.context), "use the GPU")?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check(
                sys::cuStreamCreate(&mut inner.stream, flags),
                "create a stream",
            )?;
        }
        inner.info.memory_free = memory().ok().map(|(free, _)| free);
        Ok(Gpu(Arc::new(inner)))
    }

    /// Every GPU of this machine, with what is free on it now. An error says why there is none to be had.
    pub fn list() -> Result<Vec<GpuInfo>> {
        (0..count()?)
            .map(|ordinal| {
                let (device, mut info) = describe(ordinal)?;
                if let Ok(context) = retain(device, &info) {
                    // SAFETY: the context is held between the two calls and let go of afterwards.
                    unsafe {
                        if sys::cuCtxPushCurrent_v2(context).result().is_ok() {
                            info.memory_free = memory().ok().map(|(free, _)| free);
                            let mut popped = std::ptr::null_mut();
                            let _ = sys::cuCtxPopCurrent_v2(&mut popped);
                        }
                        let _ = sys::cuDevicePrimaryCtxRelease_v2(device);
                    }
                }
                Ok(info)
            })
            .collect()
    }

    pub fn info(&self) -> &GpuInfo {
        &self.0.info
    }

    /// As NVRTC wants it, "sm_90".
    pub fn arch(&self) -> String {
        let (major, minor) = self.0.info.compute;
        format!("sm_{major}{minor}")
    }

    /// The stream that everything without a stream of its own is in order with.
    pub fn stream(&self) -> StreamRef<'_> {
        // SAFETY: the stream is destroyed with the last clone of `self`.
        unsafe { StreamRef::new(self.0.stream) }
    }

    /// Another stream, in no order with the first one but by events: for work that can wait, or for work that goes
    /// first where both are ready.
    pub fn new_stream(&self, can_wait: bool) -> Result<Stream> {
        Stream::new(self, if can_wait { 0 } else { -1 })
    }

    /// Memory on the GPU, with whatever was in it.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer> {
        Buffer::new(self, bytes)
    }

    /// Memory on the GPU, with these bytes in it.
    pub fn alloc_with(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.alloc(bytes.len())?;
        buffer.upload(bytes)?;
        Ok(buffer)
    }

    /// Free and total bytes, now.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.make_current()?;
        memory()
    }

    /// Waits for everything on every stream of this GPU.
    pub fn sync(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the stream is ours. Others may be recording graphs on theirs meanwhile.
        unsafe { check(sys::cuStreamSynchronize(self.0.stream), "finish its work") }
    }

    /// Makes the context this thread's; cheap when it is already.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { check(sys::cuCtxSetCurrent(self.0.context), "use the GPU") }
    }
}

/// The driver's library with the driver behind it, once for the program.
fn start() -> Result<()> {
    static STARTED: OnceLock<Result<()>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        library::cuda()?;
        // SAFETY: the library is there; 0 is the only flag there is.
        let result = unsafe { sys::cuInit(0) };
        match result {
            CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::new(
                "the NVIDIA driver sees no GPU; check that there is one, that CUDA_VISIBLE_DEVICES does not \
                 hide it and that a container is given it",
            )),
            _ => check(result, "start the driver"),
        }
    });
    started.clone()
}

fn count() -> Result<usize> {
    start()?;
    let mut count = 0;
    // SAFETY: the driver has been started.
    unsafe { check(sys::cuDeviceGetCount(&mut count), "count the GPUs")? };
    Ok(usize::try_from(count).unwrap_or(0))
}

/// What can be told of a GPU without a context on it.
fn describe(ordinal: usize) -> Result<(CUdevice, GpuInfo)> {
    let (mut device, mut name, mut total) = (0, [0 as std::ffi::c_char; 256], 0);
    let attribute = |device, which| {
        let mut value = 0;
        // SAFETY: a device the driver gave, and a place for the answer.
        unsafe {
            let result = sys::cuDeviceGetAttribute(&mut value, which, device);
            check(result, "describe the GPU").map(|()| value as u32)
        }
    };
    // SAFETY: places that live through the calls; the name is cut to its array and ended by a zero.
    let name = unsafe {
        check(
            sys::cuDeviceGet(&mut device, ordinal as i32),
            "find the GPU",
        )?;
        let length = name.len() as i32;
        check(
            sys::cuDeviceGetName(name.as_mut_ptr(), length, device),
            "name the GPU",
        )?;
        check(
            sys::cuDeviceTotalMem_v2(&mut total, device),
            "measure the GPU",
        )?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let info = GpuInfo {
        ordinal,
        name,
        compute: (
            attribute(
                device,
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            )?,
            attribute(
                device,
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )?,
        ),
        memory_total: total,
        memory_free: None,
        multiprocessors: attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_limit: attribute(
            device,
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
    };
    Ok((device, info))
}

fn retain(device: CUdevice, info: &GpuInfo) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    // SAFETY: a device the driver gave.
    let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
    check(result, &format!("open {info}"))?;
    Ok(context)
}

/// Free and total bytes of the current context's GPU.
fn memory() -> Result<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: asks the current context; without one the driver gives an error.
    unsafe {
        check(
            sys::cuMemGetInfo_v2(&mut free, &mut total),
            "measure its memory",
        )?
    };
    Ok((free, total))
}

/// The driver's answer as a sentence: what could not be done, and the driver's own words.
fn check(result: CUresult, what: &str) -> Result<()> {
    result.result().map_err(|error| {
        let text = |found: std::result::Result<&CStr, _>| {
            found.map_or("unknown".into(), |text| text.to_string_lossy().into_owned())
        };
        Error::new(format!(
            "CUDA cannot {what}: {} ({})",
            text(error.error_string()),
            text(error.error_name())
        ))
    })
}

#[cfg(test)]
mod tests;
