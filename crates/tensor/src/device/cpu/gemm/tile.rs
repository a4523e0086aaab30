//! The two register tiles that every product of the CPU device goes through.
//!
//! Both keep a tile of outputs in registers, sixteen columns a vector, and walk the sum once per tile:
//! each output is one chain of fused multiply-adds in the order of the sum, whatever the tile. Sums are
//! cut into passes that keep their operands in the first-level cache; the tile is stored and reloaded
//! between passes, which leaves the chain as it was.
//!
//! - [`product`]: rows of A at arbitrary offsets times packed panels of B. Matrix product, convolution
//!   and its data gradient differ only in their row and segment lists.
//! - [`outer`]: sums of outer products over points. Weight gradients and AᵀB.

// Index loops over constant bounds are what unrolls into registers.
#![allow(clippy::needless_range_loop)]

use super::panels::Panels;
use crate::lanes::{Lanes, WIDTH, dispatch};

/// One row of outputs: where its operands and its results start.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub a: usize,
    pub c: usize,
}

/// A run of the sum: `len` floats of A from `row.a + a` against as many rows of B from `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub a: usize,
    pub b: usize,
    pub len: usize,
}

/// One term of an outer-product sum: where the vectors of A and of B start.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub a: usize,
    pub b: usize,
}

/// Floats of B that a pass may touch: half of a first-level cache of 48 KB.
const PASS_FLOATS: usize = 6144;

/// The segments of a sum, cut into passes.
#[derive(Debug, Default)]
pub struct Passes {
    segments: Vec<Segment>,
    /// End of each pass in `segments`.
    ends: Vec<usize>,
    reach_a: usize,
    reach_b: usize,
}

impl Passes {
    /// Segments that continue one another are joined before they are cut. `width`: columns of a panel.
    pub fn new(width: usize, parts: impl IntoIterator<Item = Segment>) -> Self {
        let depth = (PASS_FLOATS / width.max(1)).max(16);
        let mut joined: Vec<Segment> = Vec::new();
        for s in parts {
            match joined.last_mut() {
                Some(l) if l.a + l.len == s.a && l.b + l.len == s.b => l.len += s.len,
                _ => joined.push(s),
            }
        }
        let mut passes = Passes::default();
        let total: usize = joined.iter().map(|s| s.len).sum();
        let depth = total.div_ceil(total.div_ceil(depth).max(1)).max(1);
        let mut room = depth;
        for mut s in joined {
            passes.reach_a = passes.reach_a.max(s.a + s.len);
            passes.reach_b = passes.reach_b.max(s.b + s.len);
            while s.len > 0 {
                let len = s.len.min(room);
                passes.segments.push(Segment { len, ..s });
                s = Segment {
                    a: s.a + len,
                    b: s.b + len,
                    len: s.len - len,
                };
                room -= len;
                if room == 0 {
                    passes.ends.push(passes.segments.len());
                    room = depth;
                }
            }
        }
        if room < depth {
            passes.ends.push(passes.segments.len());
        }
        passes
    }
}

dispatch! {
    /// c[row.c + j] = Σ a[row.a + s.a + k] · b[s.b + k][j], over the segments s and k < s.len, for every
    /// row and column; with `accumulate`, the chains start from what c holds, otherwise from +0.
    pub fn product(isa, a: &[f32], rows: &[Row], passes: &Passes, b: &Panels, c: &mut [f32], accumulate: bool)
        => product_lanes;
}

#[inline(always)]
pub fn product_lanes<L: Lanes>(
    a: &[f32],
    rows: &[Row],
    passes: &Passes,
    b: &Panels,
    c: &mut [f32],
    accumulate: bool,
) {
    let (mut last_a, mut last_c) = (0, 0);
    for r in rows {
        last_a = last_a.max(r.a);
        last_c = last_c.max(r.c);
    }
    if rows.is_empty() || b.cols == 0 {
        return;
    }
    assert!(last_a + passes.reach_a <= a.len());
    assert!(last_c + b.cols <= c.len());
    assert!(passes.reach_b <= b.depth);
    if passes.ends.is_empty() && !accumulate {
        for r in rows {
            c[r.c..r.c + b.cols].fill(0.0);
        }
    }
    for panel in b.iter() {
        let mut start = 0;
        for end in &passes.ends {
            let segments = &passes.segments[start..*end];
            let fresh = start == 0 && !accumulate;
            start = *end;
            let task = RowTask {
                a: a.as_ptr(),
                segments,
                b: panel.data.as_ptr(),
                c: c.as_mut_ptr().wrapping_add(panel.first),
                cols: panel.cols,
                fresh,
            };
            // SAFETY: the asserts above bound every row, segment and column.
            unsafe { task.run::<L>(panel.vectors, rows) };
        }
    }
}

/// What the tiles of one pass over one panel share.
struct RowTask<'a> {
    a: *const f32,
    segments: &'a [Segment],
    b: *const f32,
    c: *mut f32,
    cols: usize,
    fresh: bool,
}

/// Calls `$f::<L, M, V>` for the number of rows and vectors at hand.
macro_rules! by_size {
    ($m:expr, $v:expr, [$($V:literal: $($M:literal)*;)*], $task:ident.$f:ident $args:tt) => {
        match ($v, $m) {
            $($(($V, $M) => $task.$f::<L, $M, $V> $args,)*)*
            _ => unreachable!("no tile of {} rows and {} vectors", $m, $v),
        }
    };
}

/// Most rows of a tile, by its vectors: as many accumulators as the registers hold.
#[inline(always)]
const fn most_rows<L: Lanes>(vectors: usize) -> usize {
    match (L::WIDE, vectors) {
        (true, 4) => 6,
        (true, 3) => 8,
        (true, 2) => 8,
        (true, _) => 12,
        (false, _) => 6,
    }
}

/// Tiles of equal height, give or take one: (how many, rows of the first, how many are one higher).
#[inline(always)]
fn split(rows: usize, most: usize) -> (usize, usize, usize) {
    let tiles = rows.div_ceil(most);
    (tiles, rows / tiles.max(1), rows % tiles.max(1))
}

impl RowTask<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(&self, vectors: usize, rows: &[Row]) {
        let (tiles, low, higher) = split(rows.len(), most_rows::<L>(vectors));
        let mut first = 0;
        let task = self;
        for t in 0..tiles {
            let m = low + usize::from(t < higher);
            let rows = &rows[first..first + m];
            first += m;
            // SAFETY: the task was made of slices that hold the whole tile.
            unsafe {
                if L::WIDE {
                    by_size!(m, vectors, [
                        4: 1 2 3 4 5 6;
                        3: 1 2 3 4 5 6 7 8;
                        2: 1 2 3 4 5 6 7 8;
                        1: 1 2 3 4 5 6 7 8 9 10 11 12;
                    ], task.tile(rows));
                } else {
                    by_size!(m, vectors, [1: 1 2 3 4 5 6;], task.tile(rows));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<L: Lanes, const M: usize, const V: usize>(&self, rows: &[Row]) {
        let rows: &[Row; M] = rows.try_into().expect("as many rows as the tile has");
        let last = self.cols - (V - 1) * WIDTH;
        let mut acc = [[L::zero(); V]; M];
        let mut a = [self.a; M];
        // SAFETY: the task was made of slices that hold the whole tile.
        unsafe {
            for r in 0..M {
                a[r] = self.a.wrapping_add(rows[r].a);
                if !self.fresh {
                    acc[r] = load_row::<L, V>(self.c.wrapping_add(rows[r].c), last);
                }
            }
            for s in self.segments {
                let mut at = a;
                for p in &mut at {
                    *p = p.wrapping_add(s.a);
                }
                let mut b = self.b.wrapping_add(s.b * V * WIDTH);
                for k in 0..s.len {
                    let mut vb = [L::zero(); V];
                    for v in 0..V {
                        vb[v] = L::load_ptr(b.wrapping_add(v * WIDTH));
                    }
                    b = b.wrapping_add(V * WIDTH);
                    for r in 0..M {
                        let va = L::splat(at[r].wrapping_add(k).read());
                        for v in 0..V {
                            acc[r][v] = va.fma(vb[v], acc[r][v]);
                        }
                    }
                }
            }
            for r in 0..M {
                store_row(self.c.wrapping_add(rows[r].c), last, acc[r]);
            }
        }
    }
}

/// V vectors, the last with `last` lanes.
#[inline(always)]
unsafe fn load_row<L: Lanes, const V: usize>(p: *const f32, last: usize) -> [L; V] {
    let mut row = [L::zero(); V];
    // SAFETY: V vectors, the last with `last` lanes, are there, as the caller says.
    unsafe {
        for v in 0..V {
            let p = p.wrapping_add(v * WIDTH);
            row[v] = if v + 1 < V || last == WIDTH {
                L::load_ptr(p)
            } else {
                L::load_prefix_ptr(p, last)
            };
        }
    }
    row
}

#[inline(always)]
unsafe fn store_row<L: Lanes, const V: usize>(p: *mut f32, last: usize, row: [L; V]) {
    // SAFETY: V vectors, the last with `last` lanes, are there, as the caller says.
    unsafe {
        for v in 0..V {
            let p = p.wrapping_add(v * WIDTH);
            if v + 1 < V || last == WIDTH {
                row[v].store_ptr(p)
            } else {
                row[v].store_prefix_ptr(p, last)
            }
        }
    }
}

/// The operands of a sum of outer products.
pub struct Terms<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
    /// Few enough (some tens) for their vectors to stay in the first-level cache.
    pub points: &'a [Point],
    /// What the next sum will read of a and of b: fetched meanwhile.
    pub next: [&'a [f32]; 2],
}

impl Terms<'_> {
    /// Where tile `t` starts fetching, a line a point.
    #[inline(always)]
    fn fetch_from(&self, t: usize) -> *const f32 {
        let [a, b] = self.next;
        let at = t * self.points.len() * WIDTH;
        if at < b.len() {
            b.as_ptr().wrapping_add(at)
        } else if at < b.len() + a.len() {
            a.as_ptr().wrapping_add(at - b.len())
        } else {
            self.b.as_ptr()
        }
    }
}

dispatch! {
    /// c[i·stride + j] += Σ a[p.a + i] · b[p.b + j] over the points p, for i < m and j < n.
    pub fn outer(isa, terms: &Terms, m: usize, n: usize, c: &mut [f32], stride: usize)
        => outer_lanes;
}

#[inline(always)]
pub fn outer_lanes<L: Lanes>(terms: &Terms, m: usize, n: usize, c: &mut [f32], stride: usize) {
    if m == 0 || n == 0 || terms.points.is_empty() {
        return;
    }
    let (mut last_a, mut last_b) = (0, 0);
    for p in terms.points {
        last_a = last_a.max(p.a);
        last_b = last_b.max(p.b);
    }
    assert!(last_a + m <= terms.a.len() && last_b + n <= terms.b.len());
    assert!((m - 1) * stride + n <= c.len());
    let mut first = 0;
    let mut number = 0;
    for vectors in super::panels::split_columns(L::WIDE, n) {
        let cols = (n - first).min(vectors * WIDTH);
        let (tiles, low, higher) = split(m, most_rows::<L>(vectors));
        let mut row = 0;
        for t in 0..tiles {
            let m = low + usize::from(t < higher);
            let task = OuterTask {
                a: terms.a.as_ptr().wrapping_add(row),
                b: terms.b.as_ptr().wrapping_add(first),
                points: terms.points,
                c: c.as_mut_ptr().wrapping_add(row * stride + first),
                stride,
                cols,
                fetch: terms.fetch_from(number),
            };
            row += m;
            number += 1;
            // SAFETY: the asserts above bound every point, row and column.
            unsafe {
                if L::WIDE {
                    by_size!(m, vectors, [
                        4: 1 2 3 4 5 6;
                        3: 1 2 3 4 5 6 7 8;
                        2: 1 2 3 4 5 6 7 8;
                        1: 1 2 3 4 5 6 7 8 9 10 11 12;
                    ], task.run());
                } else {
                    by_size!(m, vectors, [1: 1 2 3 4 5 6;], task.run());
                }
            }
        }
        first += cols;
    }
}

struct OuterTask<'a> {
    a: *const f32,
    b: *const f32,
    points: &'a [Point],
    c: *mut f32,
    stride: usize,
    cols: usize,
    fetch: *const f32,
}

impl OuterTask<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes, const M: usize, const V: usize>(&self) {
        // SAFETY: the task was made of slices that hold the whole tile.
        unsafe {
            if self.cols == V * WIDTH {
                self.tile::<L, M, V>(WIDTH);
            } else {
                self.tile::<L, M, V>(self.cols - (V - 1) * WIDTH);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<L: Lanes, const M: usize, const V: usize>(&self, last: usize) {
        let mut acc = [[L::zero(); V]; M];
        // SAFETY: the task was made of slices that hold the whole tile.
        unsafe {
            for r in 0..M {
                acc[r] = load_row::<L, V>(self.c.wrapping_add(r * self.stride), last);
            }
            let mut fetch = self.fetch;
            for p in self.points {
                L::prefetch(fetch);
                fetch = fetch.wrapping_add(WIDTH);
                let a = self.a.wrapping_add(p.a);
                let vb = load_row::<L, V>(self.b.wrapping_add(p.b), last);
                for r in 0..M {
                    let va = L::splat(a.wrapping_add(r).read());
                    for v in 0..V {
                        acc[r][v] = va.fma(vb[v], acc[r][v]);
                    }
                }
            }
            for r in 0..M {
                store_row(self.c.wrapping_add(r * self.stride), last, acc[r]);
            }
        }
    }
}
