//! A GPU for tests, with memory that numbers go to and come back from.

use crate::device::cuda::driver::Gpu;
use crate::device::cuda::library;
use crate::graph::DType;
use cudarc::driver::{result, sys};

/// The first GPU, or nothing where there is none or a library is missing.
pub fn find() -> Option<Gpu> {
    library::cudnn().ok()?;
    library::cublaslt().ok()?;
    let gpu = Gpu::open(0).ok()?;
    gpu.make_current().ok()?;
    Some(gpu)
}

/// Numbers on the GPU.
pub struct Buffer {
    start: sys::CUdeviceptr,
    /// The address of the first number.
    pub at: sys::CUdeviceptr,
    len: usize,
    dtype: DType,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        let _ = unsafe { result::free_sync(self.start) };
    }
}

impl Buffer {
    /// `values` as `dtype`, `offset` elements into an allocation.
    pub fn new(values: &[f32], dtype: DType, offset: usize) -> Buffer {
        let bytes = dtype.bytes();
        let mut raw = vec![0u8; (values.len() + offset) * bytes];
        for (to, v) in raw[offset * bytes..].chunks_exact_mut(bytes).zip(values) {
            match dtype {
                DType::Bf16 => to.copy_from_slice(&bf16_bits(*v).to_le_bytes()),
                _ => to.copy_from_slice(&v.to_le_bytes()),
            }
        }
        // SAFETY: the new allocation is as long as what is copied.
        unsafe {
            let start = result::malloc_sync(raw.len().max(16)).expect("memory");
            result::memcpy_htod_sync(start, &raw).expect("copy");
            Buffer {
                start,
                at: start + (offset * bytes) as u64,
                len: values.len(),
                dtype,
            }
        }
    }

    pub fn blank(len: usize, dtype: DType) -> Buffer {
        Buffer::new(&vec![f32::NAN; len], dtype, 0)
    }

    pub fn read(&self) -> Vec<f32> {
        let mut raw = vec![0u8; self.len * self.dtype.bytes()];
        // SAFETY: the allocation has `len` elements.
        unsafe { result::memcpy_dtoh_sync(&mut raw, self.at) }.expect("copy");
        match self.dtype {
            DType::Bf16 => raw
                .chunks_exact(2)
                .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
                .collect(),
            _ => raw
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
        }
    }
}

fn bf16_bits(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return 0x7fc0;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// `v` as `dtype` keeps it.
pub fn rounded(v: f32, dtype: DType) -> f32 {
    match dtype {
        DType::Bf16 => f32::from_bits(u32::from(bf16_bits(v)) << 16),
        _ => v,
    }
}

/// Numbers between -1 and 1, as `dtype` keeps them.
pub fn random(len: usize, seed: u64, dtype: DType) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| rounded(next(), dtype)).collect()
}
