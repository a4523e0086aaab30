//! CUDA graphs, recorded from a stream and launched as a whole.

use super::{Gpu, StreamRef, check};
use crate::{Error, Result};
use cudarc::driver::sys::{self, CUgraph, CUgraphExec};

/// A stream that records what it is given instead of doing it.
pub struct Capture<'a> {
    gpu: Gpu,
    stream: StreamRef<'a>,
    open: bool,
}

impl<'a> Capture<'a> {
    pub fn begin(gpu: &Gpu, stream: StreamRef<'a>) -> Result<Capture<'a>> {
        gpu.make_current()?;
        // Libraries load kernels while they are recorded, which the stricter modes forbid.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of this GPU.
        unsafe {
            let begun = sys::cuStreamBeginCapture_v2(stream.raw(), mode);
            check(begun, "record a graph")?;
        }
        Ok(Capture {
            gpu: gpu.clone(),
            stream,
            open: true,
        })
    }

    /// Everything queued since the beginning, ready to be launched again and again.
    pub fn end(mut self) -> Result<GraphExec> {
        let graph = self.finish()?;
        // SAFETY: the graph was just recorded and is launched by nobody yet.
        unsafe { wait_fully(graph)? };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is ours until it is destroyed; what is made of it does not need it.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            check(made, "make a graph of a recording")
        };
        made?;
        Ok(GraphExec {
            gpu: self.gpu.clone(),
            raw,
        })
    }

    fn finish(&mut self) -> Result<CUgraph> {
        self.open = false;
        self.gpu.make_current()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream has been recording since `begin`.
        unsafe {
            let ended = sys::cuStreamEndCapture(self.stream.raw(), &mut graph);
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
///
/// # Safety
/// The graph is alive and nobody else uses it.
unsafe fn wait_fully(graph: CUgraph) -> Result<()> {
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

impl Drop for Capture<'_> {
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
}

// SAFETY: as for streams; launches of one graph are put in order by the driver.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

impl GraphExec {
    /// Queues one run of all that was recorded.
    ///
    /// # Safety
    /// All memory that the recorded kernels were given is still allocated, and is used by nothing else until the stream is done.
    pub unsafe fn launch(&self, stream: StreamRef<'_>) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the graph is ours, the stream alive; the caller vouches for the memory.
        unsafe { check(sys::cuGraphLaunch(self.raw, stream.raw()), "launch a graph") }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
    }
}
