//! Raw views of the memory one run works on.
//!
//! Kernels read and write disjoint places of one arena at the same time from several threads, which slices
//! cannot express; this is the one place where places become pointers.

use crate::compile::{Base, Place};

pub(crate) struct Memory {
    arena: *mut f32,
    inputs: Vec<*const u8>,
    states: Vec<*mut f32>,
}

// SAFETY: threads get disjoint ranges to write; the plan keeps readers and writers of a place apart.
unsafe impl Send for Memory {}
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(arena: *mut f32, inputs: Vec<*const u8>, states: Vec<*mut f32>) -> Self {
        Memory {
            arena,
            inputs,
            states,
        }
    }

    /// Where a tensor of four-byte elements starts.
    pub fn pointer(&self, place: Place) -> *mut f32 {
        match place.base {
            Base::Arena => self.arena.wrapping_add(place.offset),
            Base::State(i) => self.states[i].wrapping_add(place.offset),
            Base::Scratch => unreachable!("kernels of the CPU have their own scratch memory"),
            Base::Input(i) => self.inputs[i]
                .cast::<f32>()
                .cast_mut()
                .wrapping_add(place.offset),
        }
    }

    /// Where a tensor of bytes starts; bytes are only ever inputs.
    pub fn bytes(&self, place: Place) -> *const u8 {
        match place.base {
            Base::Input(i) => self.inputs[i].wrapping_add(place.offset),
            _ => unreachable!("bytes are inputs"),
        }
    }

    /// # Safety
    /// The tensor at `place` has `len` elements, and nobody writes them meanwhile.
    pub unsafe fn slice(&self, place: Place, len: usize) -> &[f32] {
        unsafe { std::slice::from_raw_parts(self.pointer(place), len) }
    }

    /// # Safety
    /// As [`Memory::slice`], and nobody else reads them either.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut(&self, place: Place, len: usize) -> &mut [f32] {
        unsafe { std::slice::from_raw_parts_mut(self.pointer(place), len) }
    }

    /// # Safety
    /// As [`Memory::slice`].
    pub unsafe fn words(&self, place: Place, len: usize) -> &[u32] {
        unsafe { std::slice::from_raw_parts(self.pointer(place).cast(), len) }
    }

    /// # Safety
    /// As [`Memory::slice_mut`].
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn words_mut(&self, place: Place, len: usize) -> &mut [u32] {
        unsafe { std::slice::from_raw_parts_mut(self.pointer(place).cast(), len) }
    }
}
