//! The clock: how long a plan takes, on real memory with real numbers.
//!
//! Plans run from a CUDA graph later, so they are timed inside one; a plan that cannot be captured drops out
//! here. Inputs are random numbers that are never written again: zeros would draw less power and flatter
//! everything, and results fed back in would overflow.

use super::{Direction, Plan, Pointers, Problem, bytes};
use crate::device::cuda::driver::{Event, Gpu, Stream, StreamRef};
use crate::{Error, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

/// An error when the driver did not do what `action` names.
fn cuda<T>(result: std::result::Result<T, DriverError>, action: &str) -> Result<T> {
    result.map_err(|e| Error::new(format!("the CUDA driver could not {action}: {e}")))
}

/// Device memory, freed when dropped.
pub struct Memory(pub sys::CUdeviceptr);

impl Memory {
    /// `bytes` for what `purpose` names.
    pub fn new(bytes: usize, purpose: &str) -> Result<Memory> {
        // SAFETY: a context is current; the memory is written before it is read.
        let made = unsafe { result::malloc_sync(bytes.max(256)) };
        if made == Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) {
            let (free, total) = cuda(result::mem_get_info(), "measure its memory")?;
            return Err(Error::new(too_little(bytes, purpose, free, total)));
        }
        let mib = bytes.div_ceil(1 << 20);
        let action = format!("find {mib} MiB of GPU memory {purpose}");
        Ok(Memory(cuda(made, &action)?))
    }
}

/// A single convolution that does not fit is a batch far too large.
fn too_little(bytes: usize, purpose: &str, free: usize, total: usize) -> String {
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    format!(
        "{} MiB are needed {purpose} and the GPU has {} MiB free of {}; lower train.batch or close what else uses it",
        mib(bytes),
        mib(free),
        mib(total)
    )
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once. A context that is gone has freed it already.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

/// Memory, a stream and two events.
pub struct Bench {
    read: Memory,
    written: Memory,
    workspace: Memory,
    stream: Stream,
    start: Event,
    end: Event,
}

/// Tensors start on 256 bytes, one after the other.
fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(256)
}

/// Launches that one measurement takes the time of, and how long they should take together.
const GROUP: f32 = 10.0;
const GROUP_MICROS: f32 = 1500.0;

const PURPOSE: &str = "to time convolutions in";

impl Bench {
    /// Enough memory for each of the problems, which need so much workspace.
    pub fn new(gpu: &Gpu, problems: &[(&Problem, usize)]) -> Result<Bench> {
        let most = |size: &dyn Fn(&Problem) -> usize| {
            problems.iter().map(|(p, _)| size(p)).max().unwrap_or(0)
        };
        let total = |sizes: Vec<usize>| sizes.into_iter().map(padded).sum::<usize>();
        let read = most(&|p| total(bytes(p).0));
        let written = most(&|p| total(bytes(p).1));
        let workspace = problems.iter().map(|p| p.1).max().unwrap_or(0);
        gpu.make_current()?;
        let bench = Bench {
            read: Memory::new(read, PURPOSE)?,
            written: Memory::new(written, PURPOSE)?,
            workspace: Memory::new(workspace, PURPOSE)?,
            stream: gpu.new_stream(true)?,
            start: Event::new(gpu)?,
            end: Event::new(gpu)?,
        };
        bench.fill(read)?;
        Ok(bench)
    }

    /// Random numbers between -1 and 1. Two bf16 side by side are also a good f32.
    fn fill(&self, bytes: usize) -> Result<()> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let unit = (state >> 40) as f32 / (1u64 << 24) as f32;
            ((2.0 * unit - 1.0).to_bits() >> 16) as u16
        };
        let total = bytes.max(256);
        let mut done = total.min(4 << 20) & !1;
        let pattern: Vec<u16> = (0..done / 2).map(|_| next()).collect();
        // SAFETY: all copies stay within the allocation of `total` bytes.
        unsafe {
            cuda(result::memcpy_htod_sync(self.read.0, &pattern), "copy")?;
            while done < total {
                let more = done.min(total - done);
                let to = self.read.0 + done as u64;
                cuda(result::memcpy_dtod_sync(to, self.read.0, more), "copy")?;
                done += more;
            }
            cuda(result::ctx::synchronize(), "finish copying")
        }
    }

    /// Sets `micros` of each plan, infinite where it does not run, and notes all of them in all.
    pub fn time_all<'a>(
        &self,
        problem: &Problem,
        plans: impl Iterator<Item = &'a mut Plan>,
    ) -> Result<()> {
        let place = |start: u64, sizes: Vec<usize>| -> Vec<u64> {
            let mut next = start;
            let mut at = Vec::with_capacity(sizes.len());
            for size in sizes {
                at.push(next);
                next += padded(size) as u64;
            }
            at
        };
        let (read, written) = bytes(problem);
        let (read, written) = (place(self.read.0, read), place(self.written.0, written));
        let result = written[0];
        let (x, w, y) = match problem.direction {
            Direction::Forward => (read[0], read[1], result),
            Direction::Data => (result, read[0], read[1]),
            Direction::Weight => (read[0], result, read[1]),
        };
        let pointers = Pointers {
            x,
            w,
            y,
            workspace: self.workspace.0,
            inputs: &read[2..],
            outputs: match problem.epilogue {
                Some(_) => &written,
                None => &[],
            },
        };
        let mut plans: Vec<&mut Plan> = plans.collect();
        let mut best = f32::INFINITY;
        for plan in &mut plans {
            plan.micros = self.time(plan, &pointers, best).unwrap_or(f32::INFINITY);
            best = best.min(plan.micros);
        }
        // A candidate may fail; one that broke the context must not pass unseen.
        cuda(
            result::ctx::synchronize(),
            "go on after timing a convolution",
        )?;
        Ok(())
    }

    /// Microseconds of one run.
    fn time(&self, plan: &Plan, pointers: &Pointers<'_>, best: f32) -> Result<f32> {
        let stream = self.stream.borrowed();
        // SAFETY: `time_all` has given every tensor of the problem its part of our memory, and one plan runs at a time.
        let run = || unsafe { plan.run(stream, pointers) };
        // The first run loads the kernel, the second finds it warm.
        for _ in 0..2 {
            run()?;
        }
        let once = self.clock(run)?;
        // Far from the best: not worth a closer look. Short runs are mostly launch, so they always get one.
        if once > 50.0 && once > 3.0 * best {
            return Ok(once);
        }
        let group = (GROUP_MICROS / once.max(1.0)).clamp(2.0, GROUP) as usize;
        let graph = Replay::new(stream, || (0..group).try_for_each(|_| run()))?;
        graph.launch(stream)?;
        let mut times = [0.0f32; 3];
        for time in &mut times {
            *time = self.clock(|| graph.launch(stream))?;
        }
        times.sort_by(f32::total_cmp);
        Ok(times[1] / group as f32)
    }

    /// Microseconds `work` takes on the stream.
    fn clock(&self, work: impl FnOnce() -> Result<()>) -> Result<f32> {
        self.start.record(self.stream.borrowed())?;
        work()?;
        self.end.record(self.stream.borrowed())?;
        Ok(self.end.elapsed_ms(&self.start)? * 1000.0)
    }
}

/// A captured graph that can be launched.
struct Replay {
    graph: sys::CUgraph,
    ready: sys::CUgraphExec,
}

impl Replay {
    fn new(stream: StreamRef<'_>, work: impl FnOnce() -> Result<()>) -> Result<Replay> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live; a capture that was begun is always ended.
        unsafe {
            cuda(
                result::stream::begin_capture(stream.raw(), mode),
                "begin a capture",
            )?;
            let worked = work();
            let graph = result::stream::end_capture(stream.raw());
            worked?;
            let graph = cuda(graph, "capture a convolution")?;
            let flags = sys::CUgraphInstantiate_flags(0);
            match result::graph::instantiate(graph, flags) {
                Ok(ready) => Ok(Replay { graph, ready }),
                Err(e) => {
                    let _ = result::graph::destroy(graph);
                    cuda(Err(e), "make a graph of a convolution")
                }
            }
        }
    }

    fn launch(&self, stream: StreamRef<'_>) -> Result<()> {
        // SAFETY: both are alive; what was recorded uses the memory of `Bench`, which outlives this.
        cuda(
            unsafe { result::graph::launch(self.ready, stream.raw()) },
            "launch a graph",
        )
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = result::graph::exec_destroy(self.ready);
            let _ = result::graph::destroy(self.graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_a_sentence_with_all_numbers() {
        let said = too_little(300 << 30, PURPOSE, 140 << 30, 141 << 30);
        assert_eq!(
            said,
            "307200 MiB are needed to time convolutions in and the GPU has 143360 MiB free of 144384; \
             lower train.batch or close what else uses it"
        );
    }
}
