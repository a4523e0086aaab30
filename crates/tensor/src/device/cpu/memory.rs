//! Views of the memory one run works on, each checked against its length.
//!
//! Kernels read and write disjoint places of one arena at the same time from several threads, which slices
//! cannot express; this is the one place where places become pointers. A place that does not lie inside its memory
//! ends the program with a panic, whoever made the plan: a check or two for each tensor of a kernel.

use crate::compile::{Base, Place};
use crate::device::Data;

/// The start of an allocation, and its bytes.
#[derive(Clone)]
struct Part {
    start: *mut u8,
    bytes: usize,
}

impl Part {
    fn floats(values: &mut [f32]) -> Part {
        Part {
            start: values.as_mut_ptr().cast(),
            bytes: size_of_val(values),
        }
    }
}

/// The states of a run, which all its shards share.
pub(crate) struct States(Vec<Part>);

impl States {
    /// The caller keeps them borrowed for as long as a [`Memory`] of them lives.
    pub fn new<'a>(states: impl Iterator<Item = &'a mut Vec<f32>>) -> Self {
        States(states.map(|state| Part::floats(state)).collect())
    }
}

pub(crate) struct Memory {
    arena: Part,
    inputs: Vec<Part>,
    states: Vec<Part>,
}

// SAFETY: the pointers are those of slices that the run borrows; threads get disjoint ranges to write, and the plan keeps
// readers and writers of a place apart.
unsafe impl Send for Memory {}
// SAFETY: as above; what is written through a shared reference goes through functions that are unsafe themselves.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory of a run; the caller keeps all of it borrowed for as long as this lives.
    pub fn new<'a>(
        arena: &mut [f32],
        inputs: impl Iterator<Item = Data<'a>>,
        states: &States,
    ) -> Self {
        let input = |data: Data<'_>| Part {
            start: data.pointer().cast_mut(),
            bytes: data.len() * data.dtype().bytes(),
        };
        Memory {
            arena: Part::floats(arena),
            inputs: inputs.map(input).collect(),
            states: states.0.clone(),
        }
    }

    fn part(&self, place: Place) -> &Part {
        match place.base {
            Base::Arena => &self.arena,
            Base::State(i) => &self.states[i],
            Base::Input(i) => &self.inputs[i],
            Base::Scratch => unreachable!("kernels of the CPU have their own scratch memory"),
        }
    }

    /// Refuses a tensor of `len` elements of `size` bytes that does not lie inside its memory.
    #[track_caller]
    fn check(&self, place: Place, len: usize, size: usize) {
        let end = place.offset.checked_add(len);
        let end = end.and_then(|end| end.checked_mul(size));
        let bytes = self.part(place).bytes;
        assert!(
            end.is_some_and(|end| end <= bytes),
            "{len} elements at {place:?} of {bytes} bytes"
        );
    }

    /// Refuses a tensor of `len` elements of its own type that does not lie inside its memory.
    #[track_caller]
    pub fn check_inside(&self, place: Place, len: usize) {
        self.check(place, len, place.dtype.bytes());
    }

    /// Where a tensor of four-byte elements starts. Whoever reads or writes there has checked its length.
    pub fn start(&self, place: Place) -> *mut f32 {
        self.part(place)
            .start
            .cast::<f32>()
            .wrapping_add(place.offset)
    }

    /// Where a tensor of bytes starts.
    pub fn start_of_bytes(&self, place: Place) -> *const u8 {
        self.part(place).start.wrapping_add(place.offset)
    }

    #[track_caller]
    fn words_at(&self, place: Place, len: usize) -> *mut f32 {
        self.check(place, len, size_of::<f32>());
        let start = self.start(place);
        assert!(start.is_aligned(), "{place:?} holds bytes");
        start
    }

    /// # Safety
    /// Nobody writes the tensor at `place` meanwhile.
    #[track_caller]
    pub unsafe fn slice(&self, place: Place, len: usize) -> &[f32] {
        let start = self.words_at(place, len);
        // SAFETY: inside its memory, as was just checked; nobody writes it, as the caller says.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// # Safety
    /// As [`Memory::slice`], and nobody else reads it either.
    #[track_caller]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut(&self, place: Place, len: usize) -> &mut [f32] {
        let start = self.words_at(place, len);
        // SAFETY: inside its memory, as was just checked; nobody else touches it, as the caller says.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// # Safety
    /// As [`Memory::slice`].
    #[track_caller]
    pub unsafe fn words(&self, place: Place, len: usize) -> &[u32] {
        let start = self.words_at(place, len);
        // SAFETY: as in `slice`; any four bytes are a number.
        unsafe { std::slice::from_raw_parts(start.cast(), len) }
    }

    /// # Safety
    /// As [`Memory::slice_mut`].
    #[track_caller]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn words_mut(&self, place: Place, len: usize) -> &mut [u32] {
        let start = self.words_at(place, len);
        // SAFETY: as in `slice_mut`; any four bytes are a number.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
    }
}
