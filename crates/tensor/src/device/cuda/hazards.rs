//! Which jobs must wait for which: read after write, write after read, write after write, by bytes of memory.
//!
//! The plan's order is one way to run it. On a GPU many kernels of a deep hierarchy are too small to fill the
//! machine, so jobs run as soon as what they really wait for is done: [`lanes`] spreads them over streams, and
//! what is left of the order are the waits between streams.

use crate::compile::{Access, Base, Chain, ConvGeometry, Kernel, Movement, Place, StepOp};
use crate::graph::DType;
use std::ops::Range;

/// Bytes of one memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    base: Base,
    first: usize,
    end: usize,
}

/// What a job reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Touch {
    pub reads: Vec<Span>,
    pub writes: Vec<Span>,
}

fn span(place: Place, len: usize) -> Span {
    let size = place.dtype.bytes();
    Span {
        base: place.base,
        first: place.offset * size,
        end: (place.offset + len) * size,
    }
}

impl Span {
    fn meets(&self, other: &Span) -> bool {
        self.base == other.base && self.first < other.end && other.first < self.end
    }

    fn covers(&self, other: &Span) -> bool {
        self.base == other.base && self.first <= other.first && other.end <= self.end
    }
}

impl Touch {
    pub fn of(kernel: &Kernel) -> Touch {
        let mut touch = Touch::default();
        touch.add(kernel);
        touch
    }

    fn read(&mut self, place: Place, len: usize) {
        self.reads.push(span(place, len));
    }

    fn write(&mut self, place: Place, len: usize) {
        self.writes.push(span(place, len));
    }

    fn chain(&mut self, chain: &Chain) {
        for (i, load) in chain.loads.iter().enumerate() {
            let reads =
                |s: &&crate::compile::Step| s.args.contains(&crate::compile::Operand::Load(i));
            let by_row = chain.steps.iter().filter(reads).all(|s| s.row_wise);
            let used = chain.steps.iter().any(|s| reads(&s));
            let len = match load.access {
                Access::Flat if by_row && used => chain.rows,
                Access::Flat => chain.rows * chain.cols,
                Access::Scalar => 1,
                Access::Rows {
                    modulo,
                    stride,
                    spread,
                    ..
                } => (modulo - 1) * stride + if spread { chain.cols } else { 1 },
            };
            self.read(load.place, len);
        }
        for step in &chain.steps {
            if let StepOp::Noise { counter, .. } = step.op {
                self.read(counter, 4);
            }
        }
        for store in &chain.stores {
            let len = if store.row_wise {
                chain.rows
            } else {
                chain.rows * chain.cols
            };
            self.write(store.place, len);
        }
    }

    fn add(&mut self, kernel: &Kernel) {
        let input = |g: &ConvGeometry| g.n * g.h * g.w * g.ci;
        let output = |g: &ConvGeometry| g.n * g.oh * g.ow * g.co;
        let weight = |g: &ConvGeometry| g.kh * g.kw * g.ci * g.co;
        match kernel {
            Kernel::Batch(kernels) => kernels.iter().for_each(|k| self.add(k)),
            Kernel::AllSum { len, from, to, .. } => {
                self.read(*from, *len);
                self.write(*to, *len);
            }
            Kernel::Map(chain) => self.chain(chain),
            Kernel::Reduce {
                chain,
                outer,
                inner,
                out,
                ..
            } => {
                self.chain(chain);
                self.write(*out, outer * inner);
            }
            Kernel::Conv {
                geometry: g,
                x,
                w,
                chain,
            } => {
                self.chain(chain);
                self.read(*x, input(g));
                self.read(*w, weight(g));
            }
            Kernel::ConvGradInput {
                geometry: g,
                dy,
                w,
                chain,
            } => {
                self.chain(chain);
                self.read(*dy, output(g));
                self.read(*w, weight(g));
            }
            Kernel::ConvGradWeight {
                geometry: g,
                x,
                dy,
                out,
            } => {
                self.read(*x, input(g));
                self.read(*dy, output(g));
                self.write(*out, weight(g));
            }
            Kernel::Matmul {
                product,
                a,
                b,
                chain,
                ..
            } => {
                self.chain(chain);
                self.read(*a, product.first());
                self.read(*b, product.second());
                // cuBLASLt has one workspace, so products run one after another.
                let workspace = Place {
                    base: Base::Scratch,
                    offset: 0,
                    dtype: DType::F32,
                };
                self.write(workspace, 1);
            }
            Kernel::Move { movement, from, to } => {
                let (read, written) = extent(movement);
                self.read(*from, read);
                self.write(*to, written);
            }
            Kernel::Fill { to, len, .. } => self.write(*to, *len),
            Kernel::ArgMax { rows, cols, x, out } => {
                self.read(*x, rows * cols);
                self.write(*out, *rows);
            }
            Kernel::Gather {
                rows,
                cols,
                codes,
                table,
                index,
                out,
            } => {
                self.read(*table, codes * cols);
                self.read(*index, *rows);
                self.write(*out, rows * cols);
            }
            Kernel::ScatterAdd {
                rows,
                cols,
                codes,
                index,
                x,
                out,
            } => {
                self.read(*index, *rows);
                self.read(*x, rows * cols);
                self.write(*out, codes * cols);
            }
            Kernel::Responsibility {
                rows,
                dim,
                codes,
                inputs,
                z,
                index,
                kl,
                ..
            } => {
                self.embeddings([*rows, *dim, *codes], inputs);
                self.write(*z, rows * dim);
                index.iter().for_each(|p| self.write(*p, *rows));
                kl.iter().for_each(|p| self.write(*p, *rows));
            }
            Kernel::ResponsibilityGrad {
                rows,
                dim,
                codes,
                inputs,
                outputs,
                ..
            } => {
                self.embeddings([*rows, *dim, *codes], inputs);
                let lens = [rows * dim, codes * dim, codes * dim, rows * dim];
                for (place, len) in outputs.iter().zip(lens) {
                    place.iter().for_each(|p| self.write(*p, len));
                }
            }
        }
    }

    /// Counter, two scalars, posterior, means, log-variances, then maps and values of rows.
    fn embeddings(&mut self, [rows, dim, codes]: [usize; 3], inputs: &[Place]) {
        let lens = [4, 1, 1, rows * dim, codes * dim, codes * dim];
        for (i, place) in inputs.iter().enumerate() {
            self.read(*place, lens.get(i).copied().unwrap_or(rows * dim));
        }
    }
}

/// Elements from the first to the last that a movement reads and writes.
fn extent(movement: &Movement) -> (usize, usize) {
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    match movement {
        Movement::Broadcast { shape, strides } => {
            let last: usize = shape
                .iter()
                .zip(strides)
                .map(|(n, s)| (n.max(&1) - 1) * s)
                .sum();
            (last + 1, size(shape))
        }
        Movement::Runs {
            outer,
            len,
            from,
            to,
        } => {
            let last = outer.max(&1) - 1;
            (last * from + len, last * to + len)
        }
        Movement::Pad {
            outer, len, wide, ..
        } => (outer * len, outer * wide),
        Movement::Transpose { rows, cols } => (rows * cols, rows * cols),
        Movement::Upsample { shape, factor } => (size(shape), size(shape) * factor * factor),
        Movement::SumPool { shape, factor } => (size(shape), size(shape) / (factor * factor)),
        Movement::SpaceToDepth { shape, .. } | Movement::DepthToSpace { shape, .. } => {
            (size(shape), size(shape))
        }
        Movement::EdgePad {
            shape: [n, h, w, c],
            by,
        } => (n * h * w * c, n * (h + 2 * by) * (w + 2 * by) * c),
        Movement::EdgeFold {
            shape: [n, h, w, c],
            by,
        } => (n * h * w * c, n * (h - 2 * by) * (w - 2 * by) * c),
    }
}

/// Where a job runs and what it waits for there.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pub stream: usize,
    /// Earlier jobs of other streams.
    pub waits: Vec<usize>,
}

/// A set of jobs.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }
    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
    fn join(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// Jobs in order over streams: each over those that its `pools` has for it.
pub fn lanes(jobs: &[Touch], pools: &[Range<usize>], streams: usize) -> Vec<Lane> {
    let needs = needs(jobs);
    let count = jobs.len();
    let mut before: Vec<Set> = Vec::with_capacity(count);
    let mut tails: Vec<Option<usize>> = vec![None; streams];
    let mut lanes: Vec<Lane> = Vec::with_capacity(count);
    for job in 0..count {
        let mut set = Set(vec![0; count.div_ceil(64)]);
        for &need in &needs[job] {
            set.join(&before[need]);
            set.insert(need);
        }
        let pool = pools[job].clone();
        // Best: behind a job it waits for anyway, the latest of them. Next: behind nothing it would not wait for.
        let rank = |&stream: &usize| match tails[stream] {
            Some(tail) if needs[job].contains(&tail) => (2, tail),
            Some(tail) if set.has(tail) => (1, tail),
            None => (1, 0),
            Some(tail) => (0, count - tail),
        };
        let stream = pool.max_by_key(rank).unwrap_or(0);
        if let Some(tail) = tails[stream] {
            let earlier = before[tail].clone();
            set.join(&earlier);
            set.insert(tail);
        }
        // What another wait, or the stream's own order, already implies is no wait.
        let implied = |need: usize| {
            let by_stream = tails[stream].is_some_and(|t| t == need || before[t].has(need));
            by_stream || needs[job].iter().any(|&other| before[other].has(need))
        };
        let waits = needs[job]
            .iter()
            .copied()
            .filter(|&n| !implied(n))
            .collect();
        lanes.push(Lane { stream, waits });
        tails[stream] = Some(job);
        before.push(set);
    }
    lanes
}

/// The jobs each job must wait for.
fn needs(jobs: &[Touch]) -> Vec<Vec<usize>> {
    // Accesses that a later one may still collide with.
    let mut readers: Vec<(Span, usize)> = Vec::new();
    let mut writers: Vec<(Span, usize)> = Vec::new();
    let mut all = Vec::with_capacity(jobs.len());
    for (job, touch) in jobs.iter().enumerate() {
        let mut needs: Vec<usize> = Vec::new();
        for read in &touch.reads {
            needs.extend(writers.iter().filter(|(s, _)| s.meets(read)).map(|w| w.1));
        }
        for write in &touch.writes {
            let meets = |(s, _): &&(Span, usize)| s.meets(write);
            needs.extend(writers.iter().filter(meets).map(|w| w.1));
            needs.extend(readers.iter().filter(meets).map(|r| r.1));
        }
        for write in &touch.writes {
            writers.retain(|(s, _)| !write.covers(s));
            readers.retain(|(s, _)| !write.covers(s));
        }
        writers.extend(touch.writes.iter().map(|&s| (s, job)));
        readers.extend(touch.reads.iter().map(|&s| (s, job)));
        needs.retain(|&n| n != job);
        needs.sort_unstable();
        needs.dedup();
        all.push(needs);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::MatrixProduct;

    fn touch(reads: &[(usize, usize)], writes: &[(usize, usize)]) -> Touch {
        let spans = |list: &[(usize, usize)]| {
            let place = |&(offset, len): &(usize, usize)| {
                let place = Place {
                    base: Base::Arena,
                    offset,
                    dtype: DType::F32,
                };
                span(place, len)
            };
            list.iter().map(place).collect()
        };
        Touch {
            reads: spans(reads),
            writes: spans(writes),
        }
    }

    #[test]
    fn readers_wait_for_writers_and_writers_for_readers() {
        let jobs = [
            touch(&[], &[(0, 10)]),
            touch(&[(0, 5)], &[(20, 5)]),
            touch(&[(5, 5)], &[(30, 5)]),
            touch(&[(40, 1)], &[(0, 5)]),
            touch(&[(30, 5)], &[(50, 1)]),
        ];
        assert_eq!(
            needs(&jobs),
            [vec![], vec![0], vec![0], vec![0, 1], vec![2]]
        );
    }

    #[test]
    fn products_share_a_workspace() {
        let product = |at: usize| {
            let place = |offset| Place {
                base: Base::Arena,
                offset,
                dtype: DType::F32,
            };
            let chain = Chain {
                rows: 1,
                cols: 4,
                flat: true,
                loads: Vec::new(),
                stores: Vec::new(),
                steps: Vec::new(),
                regs: 0,
                row_regs: 0,
                result: None,
            };
            let (a, b) = (place(at), place(at + 4));
            Touch::of(&Kernel::Matmul {
                product: MatrixProduct::of(&[2, 2], &[2, 2], false, false),
                tf32: false,
                a,
                b,
                chain,
            })
        };
        assert_eq!(needs(&[product(0), product(100)]), [vec![], vec![0]]);
    }

    #[test]
    fn every_wait_is_kept_by_a_stream_or_an_event() {
        // Pseudo-random jobs on few places; the lanes must imply every need.
        let mut state = 1u32;
        let mut next = |n: u32| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 16) % n
        };
        let jobs: Vec<Touch> = (0..200)
            .map(|_| {
                let mut place = || (next(40) as usize, 1 + next(3) as usize);
                touch(&[place(), place()], &[place()])
            })
            .collect();
        let pool = |i: usize| if i.is_multiple_of(5) { 3..5 } else { 0..3 };
        let pools: Vec<_> = (0..200).map(pool).collect();
        let lanes = lanes(&jobs, &pools, 5);
        let mut done: Vec<Set> = Vec::new();
        let mut tails = [None; 5];
        for (job, needs) in needs(&jobs).iter().enumerate() {
            let lane = &lanes[job];
            assert!(pools[job].contains(&lane.stream));
            let mut set = Set(vec![0; 4]);
            for &before in lane.waits.iter().chain(tails[lane.stream].iter()) {
                set.join(&done[before]);
                set.insert(before);
            }
            assert!(needs.iter().all(|&n| set.has(n)), "job {job}");
            tails[lane.stream] = Some(job);
            done.push(set);
        }
        let waits: usize = lanes.iter().map(|l| l.waits.len()).sum();
        assert!(waits < 400, "{waits} waits");
    }
}
