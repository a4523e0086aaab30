//! What a GPU is told to do: kernels from modules, streams and events, and graphs recorded from a stream.
// A stream is a handle of the driver's, handed to cuDNN and cuBLASLt as well; nothing here looks behind it.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

use super::{CUstream, Gpu, check};
use crate::device::bytes_text;
use crate::{Error, Result};
use cudarc::driver::sys::{
    self, CUevent, CUfunction, CUfunction_attribute, CUgraph, CUgraphExec, CUmodule, CUresult,
};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A queue of work.
pub struct Stream {
    gpu: Gpu,
    raw: CUstream,
}

// SAFETY: the driver's handles may be used from any thread once the context is current there.
unsafe impl Send for Stream {}
unsafe impl Sync for Stream {}

impl Stream {
    /// Smaller numbers go first.
    pub(super) fn new(gpu: &Gpu, priority: i32) -> Result<Stream> {
        gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current.
        unsafe {
            let made = sys::cuStreamCreateWithPriority(&mut raw, flags, priority);
            check(made, "create a stream")?;
        }
        Ok(Stream {
            gpu: gpu.clone(),
            raw,
        })
    }

    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits for what is queued.
    pub fn sync(&self) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { check(sys::cuStreamSynchronize(self.raw), "finish its work") }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, destroyed once; queued work is finished first.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
    }
}

/// Compiled kernels on the GPU. Lives as long as one of its kernels does.
pub struct Module(Arc<Loaded>);

struct Loaded {
    gpu: Gpu,
    raw: CUmodule,
}

// SAFETY: as for streams.
unsafe impl Send for Loaded {}
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
                "a compiled kernel is damaged: expected an ELF file; delete the folder of kept kernels",
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
            parameters: parameters(raw),
            module: self.0.clone(),
            raw,
            name: name.into(),
            shared: Arc::new(AtomicU32::new(48 << 10)),
        })
    }
}

fn parameters(function: CUfunction) -> usize {
    let exists = |&index: &usize| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a function of a loaded module; past the last parameter the driver gives an error.
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
unsafe impl Sync for Kernel {}

impl Kernel {
    pub fn name(&self) -> &str {
        &self.name
    }

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
    pub fn launch(
        &self,
        stream: CUstream,
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
        // SAFETY: as many slots as parameters, none wider than its slot, copied by the driver before it returns.
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
                stream,
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

/// A point in a stream: others can wait for it, and the time between two can be told.
pub struct Event {
    gpu: Gpu,
    raw: CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
unsafe impl Sync for Event {}

impl Event {
    pub fn new(gpu: &Gpu) -> Result<Event> {
        gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current.
        unsafe { check(sys::cuEventCreate(&mut raw, 0), "create an event")? };
        Ok(Event {
            gpu: gpu.clone(),
            raw,
        })
    }

    /// Marks the point that `stream` has been queued up to.
    pub fn record(&self, stream: CUstream) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the event is ours.
        unsafe { check(sys::cuEventRecord(self.raw, stream), "record an event") }
    }

    /// The same while `stream` is captured: the event is recorded whenever the graph runs.
    pub fn record_in_graph(&self, stream: CUstream) -> Result<()> {
        self.gpu.make_current()?;
        let flags = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: the event is ours.
        unsafe {
            check(
                sys::cuEventRecordWithFlags(self.raw, stream, flags),
                "record an event in a graph",
            )
        }
    }

    /// Lets `stream` go on only when the point has been reached.
    pub fn wait(&self, stream: CUstream) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the event is ours.
        unsafe {
            check(
                sys::cuStreamWaitEvent(stream, self.raw, 0),
                "wait for an event",
            )
        }
    }

    /// Waits here until the point has been reached.
    pub fn sync(&self) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the event is ours.
        unsafe { check(sys::cuEventSynchronize(self.raw), "finish its work") }
    }

    /// From `start` to this event, once both have been reached.
    pub fn elapsed_ms(&self, start: &Event) -> Result<f32> {
        self.sync()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive.
        unsafe {
            let told = sys::cuEventElapsedTime_v2(&mut milliseconds, start.raw, self.raw);
            check(told, "tell the time between two events")?;
        }
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}

/// A stream that records what it is given instead of doing it.
pub struct Capture {
    gpu: Gpu,
    stream: CUstream,
    open: bool,
}

impl Capture {
    pub fn begin(gpu: &Gpu, stream: CUstream) -> Result<Capture> {
        gpu.make_current()?;
        // Libraries load kernels while they are recorded, which the stricter modes forbid.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of this GPU.
        unsafe { check(sys::cuStreamBeginCapture_v2(stream, mode), "record a graph")? };
        Ok(Capture {
            gpu: gpu.clone(),
            stream,
            open: true,
        })
    }

    /// Everything queued since the beginning, ready to be launched again and again.
    pub fn end(mut self) -> Result<GraphExec> {
        let graph = self.finish()?;
        wait_fully(graph)?;
        let (mut raw, mut nodes) = (std::ptr::null_mut(), 0);
        // SAFETY: the graph is ours until it is destroyed; what is made of it stands alone.
        let made = unsafe {
            let counted = sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes);
            let made = sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            check(counted, "count a graph's nodes").and(check(made, "make a graph of a recording"))
        };
        made?;
        Ok(GraphExec {
            gpu: self.gpu.clone(),
            raw,
            nodes,
        })
    }

    fn finish(&mut self) -> Result<CUgraph> {
        self.open = false;
        self.gpu.make_current()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream has been recording since `begin`.
        unsafe {
            let ended = sys::cuStreamEndCapture(self.stream, &mut graph);
            check(ended, "end a recording")?;
        }
        match graph.is_null() {
            true => Err(Error::new(
                "CUDA cannot end a recording: something in it was not allowed",
            )),
            false => Ok(graph),
        }
    }
}

/// Makes every wait of a recording one for the end of what is waited for. Kernels of libraries may be recorded so
/// that they start before their predecessors end, and then trust that all but the last of these have ended; that
/// holds in one stream, not where streams meet.
fn wait_fully(graph: CUgraph) -> Result<()> {
    let mut count = 0;
    // SAFETY: the graph is ours; the lists have the lengths the driver asked for.
    unsafe {
        let counted = sys::cuGraphGetEdges_v2(
            graph,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &mut count,
        );
        check(counted, "count the waits of a recording")?;
        if count == 0 {
            return Ok(());
        }
        let full = sys::CUgraphEdgeData {
            from_port: 0,
            to_port: 0,
            type_: 0,
            reserved: [0; 5],
        };
        let mut from = vec![std::ptr::null_mut(); count];
        let mut to = vec![std::ptr::null_mut(); count];
        let mut kinds = vec![full; count];
        let listed = sys::cuGraphGetEdges_v2(
            graph,
            from.as_mut_ptr(),
            to.as_mut_ptr(),
            kinds.as_mut_ptr(),
            &mut count,
        );
        check(listed, "list the waits of a recording")?;
        for ((from, to), kind) in from.iter().zip(&to).zip(&kinds) {
            if *kind == full {
                continue;
            }
            let removed = sys::cuGraphRemoveDependencies_v2(graph, from, to, kind, 1);
            check(removed, "change the waits of a recording")?;
            let added = sys::cuGraphAddDependencies_v2(graph, from, to, &full, 1);
            check(added, "change the waits of a recording")?;
        }
        Ok(())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.open
            && let Ok(graph) = self.finish()
        {
            // SAFETY: ours, and nothing was made of it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
    }
}

/// A recorded graph. What its kernels use must outlive it; it does not hold on to it.
pub struct GraphExec {
    gpu: Gpu,
    raw: CUgraphExec,
    nodes: usize,
}

// SAFETY: as for streams; launches of one graph are put in order by the driver.
unsafe impl Send for GraphExec {}
unsafe impl Sync for GraphExec {}

impl GraphExec {
    /// Launches, copies and fills in it.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Moves what the first launch would move, ahead of time.
    pub fn upload(&self, stream: CUstream) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the graph is ours.
        unsafe { check(sys::cuGraphUpload(self.raw, stream), "upload a graph") }
    }

    pub fn launch(&self, stream: CUstream) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the graph is ours.
        unsafe { check(sys::cuGraphLaunch(self.raw, stream), "launch a graph") }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
    }
}
