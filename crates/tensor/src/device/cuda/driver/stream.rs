//! Streams, and events that order them and measure time.

use super::{Gpu, check};
use crate::Result;
use cudarc::driver::sys::{self, CUevent, CUstream};
use std::marker::PhantomData;

/// A stream that is alive for as long as this borrow of its owner.
#[derive(Clone, Copy)]
pub struct StreamRef<'a> {
    raw: CUstream,
    owner: PhantomData<&'a Stream>,
}

impl StreamRef<'_> {
    /// # Safety
    /// The stream is not destroyed before the lifetime ends.
    pub unsafe fn new(raw: CUstream) -> Self {
        StreamRef {
            raw,
            owner: PhantomData,
        }
    }

    /// The driver's handle, for calls of the driver, cuDNN and cuBLASLt.
    pub fn raw(self) -> CUstream {
        self.raw
    }
}

/// A queue of work.
pub struct Stream {
    gpu: Gpu,
    raw: CUstream,
}

// SAFETY: the driver's handles may be used from any thread once the context is current there.
unsafe impl Send for Stream {}
// SAFETY: as above.
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

    pub fn borrowed(&self) -> StreamRef<'_> {
        // SAFETY: the stream is destroyed when `self` is dropped.
        unsafe { StreamRef::new(self.raw) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, destroyed once; queued work is finished first.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
    }
}

/// A point in a stream: others can wait for it, and the time between two can be told.
pub struct Event {
    gpu: Gpu,
    raw: CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as above.
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
    pub fn record(&self, stream: StreamRef<'_>) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: event and stream are alive.
        unsafe {
            check(
                sys::cuEventRecord(self.raw, stream.raw()),
                "record an event",
            )
        }
    }

    /// The same while `stream` is captured: the event is recorded whenever the graph runs.
    pub fn record_in_graph(&self, stream: StreamRef<'_>) -> Result<()> {
        self.gpu.make_current()?;
        let flags = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: the event is ours.
        unsafe {
            check(
                sys::cuEventRecordWithFlags(self.raw, stream.raw(), flags),
                "record an event in a graph",
            )
        }
    }

    /// Lets `stream` go on only when the point has been reached.
    pub fn wait(&self, stream: StreamRef<'_>) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the event is ours.
        unsafe {
            check(
                sys::cuStreamWaitEvent(stream.raw(), self.raw, 0),
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
