//! Lifetimes to offsets: one arena for every intermediate tensor.
//!
//! Largest first, each at the lowest place that is free during its whole life. That is within a few per cent
//! of the lower bound (the largest sum of tensors alive at once) on the graphs of deep hierarchies.

/// A tensor's size and the kernels it lives through, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub len: usize,
    pub first: usize,
    pub last: usize,
}

/// Offsets are multiples of this many floats: a cache line.
const ALIGN: usize = 16;

/// Offset of each span, and the size of the arena.
pub(crate) fn assign(spans: &[Span]) -> (Vec<usize>, usize) {
    let mut by_size: Vec<usize> = (0..spans.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(spans[i].len), spans[i].first));
    let mut offsets = vec![0; spans.len()];
    let mut placed: Vec<usize> = Vec::new(); // sorted by offset
    let mut total = 0;
    for i in by_size {
        let span = spans[i];
        let len = span.len.next_multiple_of(ALIGN);
        let mut at = 0;
        for &other in &placed {
            let o = spans[other];
            if o.first > span.last || o.last < span.first {
                continue;
            }
            if offsets[other] >= at + len {
                break;
            }
            at = at.max(offsets[other] + o.len.next_multiple_of(ALIGN));
        }
        offsets[i] = at;
        total = total.max(at + len);
        let position = placed.partition_point(|&o| offsets[o] <= at);
        placed.insert(position, i);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_alive_together_never_overlap_and_dead_ones_are_reused() {
        let spans: Vec<Span> = (0..200)
            .map(|i| {
                let first = (i * 37) % 100;
                Span {
                    len: 1 + (i * 7919) % 500,
                    first,
                    last: first + (i * 31) % 20,
                }
            })
            .collect();
        let (offsets, total) = assign(&spans);
        for (i, a) in spans.iter().enumerate() {
            for (j, b) in spans.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let apart = offsets[i] + a.len <= offsets[j] || offsets[j] + b.len <= offsets[i];
                assert!(!together || apart, "{i} and {j} overlap");
            }
        }
        let peak = (0..120)
            .map(|t| {
                spans
                    .iter()
                    .filter(|s| s.first <= t && t <= s.last)
                    .map(|s| s.len.next_multiple_of(16))
                    .sum()
            })
            .max()
            .unwrap_or(0usize);
        assert!(
            total >= peak && total < peak * 5 / 4,
            "{total} floats for a peak of {peak}"
        );
    }
}
