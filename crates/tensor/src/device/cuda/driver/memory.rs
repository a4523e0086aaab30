//! Memory on the GPU.

use super::{Gpu, check};
use crate::device::bytes_text;
use crate::{Error, Result};
use cudarc::driver::sys::{self, CUresult};

/// Bytes on the GPU; freed when dropped.
pub struct Buffer {
    gpu: Gpu,
    address: u64,
    len: usize,
}

impl Buffer {
    pub(super) fn new(gpu: &Gpu, len: usize) -> Result<Buffer> {
        gpu.make_current()?;
        let mut address = 0;
        // SAFETY: the context is current. Nothing is given no address, so at least a byte is taken.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, len.max(1)) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, total) = gpu.memory()?;
            return Err(Error::new(format!(
                "cuda:{} ({}) has {} free of {}, and {} more are needed; use a smaller batch, or end what else \
                 runs on it",
                gpu.info().ordinal,
                gpu.info().name,
                bytes_text(free),
                bytes_text(total),
                bytes_text(len)
            )));
        }
        check(result, &format!("allocate {}", bytes_text(len)))?;
        Ok(Buffer {
            gpu: gpu.clone(),
            address,
            len,
        })
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes to the start, in order with the GPU's stream, and waits until `bytes` may be changed again.
    pub fn upload(&self, bytes: &[u8]) -> Result<()> {
        self.upload_at(0, bytes)
    }

    /// The same, `offset` bytes from the start.
    pub fn upload_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let address = self.part(offset, bytes.len());
        self.gpu.make_current()?;
        let stream = self.gpu.stream().raw();
        // SAFETY: both ends are long enough, and `bytes` is borrowed until the stream is done.
        unsafe {
            let copied =
                sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), stream);
            check(copied, "copy to the GPU")?;
            check(sys::cuStreamSynchronize(stream), "copy to the GPU")
        }
    }

    /// Reads from the start what the GPU's stream has written, and waits for it.
    pub fn download(&self, bytes: &mut [u8]) -> Result<()> {
        self.download_at(0, bytes)
    }

    /// The same, `offset` bytes from the start.
    pub fn download_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let address = self.part(offset, bytes.len());
        self.gpu.make_current()?;
        let stream = self.gpu.stream().raw();
        // SAFETY: both ends are long enough, and `bytes` is borrowed until the stream is done.
        unsafe {
            let into = bytes.as_mut_ptr().cast();
            let copied = sys::cuMemcpyDtoHAsync_v2(into, address, bytes.len(), stream);
            check(copied, "copy from the GPU")?;
            check(sys::cuStreamSynchronize(stream), "copy from the GPU")
        }
    }

    /// Makes every byte zero, in order with the GPU's stream; does not wait.
    pub fn fill_zero(&self) -> Result<()> {
        self.gpu.make_current()?;
        let stream = self.gpu.stream().raw();
        // SAFETY: the buffer's own bytes.
        let filled = unsafe { sys::cuMemsetD8Async(self.address, 0, self.len, stream) };
        check(filled, "clear memory")
    }

    /// Copies all of `from` to the start, in order with the GPU's stream; does not wait.
    pub fn copy_from(&self, from: &Buffer) -> Result<()> {
        let address = self.part(0, from.len);
        self.gpu.make_current()?;
        let stream = self.gpu.stream().raw();
        // SAFETY: both ends are long enough.
        let copied = unsafe { sys::cuMemcpyDtoDAsync_v2(address, from.address, from.len, stream) };
        check(copied, "copy on the GPU")
    }

    /// The address of a part, which must lie inside.
    fn part(&self, offset: usize, len: usize) -> u64 {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} of {}",
            self.len
        );
        self.address + offset as u64
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, freed once; the driver waits for what still uses it.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}
