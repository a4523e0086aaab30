//! Memory on cache lines: a program's arena, and scratch that outlives the call.
//!
//! Kernels need a few hundred kilobytes for the length of one work unit. Each thread keeps the buffers
//! it has used and lends them again, so a step allocates nothing once warm. Buffers start on a cache
//! line: a 64-byte load that crosses lines costs two.

use std::cell::RefCell;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Floats that start on a cache line.
#[derive(Default)]
pub struct Aligned {
    lines: Vec<Line>,
}

impl Aligned {
    /// At least `floats` zeros.
    pub fn zeroed(floats: usize) -> Self {
        let lines = vec![Line([0.0; 16]); floats.div_ceil(16)];
        Aligned { lines }
    }

    fn grow(&mut self, floats: usize) {
        let lines = floats.div_ceil(16).max(self.lines.len());
        self.lines.resize(lines, Line([0.0; 16]));
    }

    pub fn floats(&self) -> &[f32] {
        // SAFETY: a line is sixteen floats without padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * 16) }
    }

    pub fn floats_mut(&mut self) -> &mut [f32] {
        let len = self.lines.len() * 16;
        // SAFETY: a line is sixteen floats without padding.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), len) }
    }
}

thread_local! {
    static FREE: RefCell<Vec<Aligned>> = const { RefCell::new(Vec::new()) };
}

/// Lends `floats` floats of unspecified content.
pub fn with_scratch<R>(floats: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    buffer.grow(floats);
    let result = body(&mut buffer.floats_mut()[..floats]);
    // A thread that is ending has no list any more; then the buffer goes too.
    let _ = FREE.try_with(|free| free.borrow_mut().push(buffer));
    result
}

#[cfg(test)]
mod tests {
    use super::with_scratch;

    #[test]
    fn nested_loans_are_apart_and_aligned() {
        with_scratch(100, |a| {
            a.fill(1.0);
            with_scratch(50, |b| {
                b.fill(2.0);
                assert_eq!(a.as_ptr() as usize % 64, 0);
                assert_eq!(b.as_ptr() as usize % 64, 0);
            });
            assert_eq!(a.len(), 100);
            assert!(a.iter().all(|v| *v == 1.0));
        });
    }
}
