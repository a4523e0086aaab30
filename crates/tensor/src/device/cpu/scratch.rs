//! Scratch memory that outlives the call.
//!
//! Kernels need a few hundred kilobytes for the length of one work unit. Each thread keeps the buffers
//! it has used and lends them again, so a step allocates nothing once warm. Buffers start on a cache
//! line: a 64-byte load that crosses lines costs two.

use std::cell::RefCell;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Lends `floats` floats of unspecified content.
pub fn with_scratch<R>(floats: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    let lines = floats.div_ceil(16);
    if buffer.len() < lines {
        buffer.resize(lines, Line([0.0; 16]));
    }
    // SAFETY: a line is sixteen floats without padding, and there are enough of them.
    let view = unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), floats) };
    let result = body(view);
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
