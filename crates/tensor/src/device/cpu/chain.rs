//! Fused element-wise programs, run block by block.
//!
//! A block is about a thousand elements: every register of it stays in the first-level cache, and the cost of
//! choosing an instruction is spread over many vectors. A block is `rows` × `cols` elements; an operand is
//! whole (its own elements), a value per row, a row repeated, or a constant, and [`View`] is all of them.

use super::for_ranges;
use super::memory::Memory;
use super::scratch::with_scratch;
use crate::compile::{Access, Chain, Operand, Step, StepOp};
use crate::graph::DType;
use crate::lanes::{Lanes, WIDTH, dispatch};
use crate::math;
use crate::op::{BinaryOp, ReduceOp, UnaryOp};
use crate::rng;
use crate::simd::Isa;

/// Elements of a block.
pub(crate) const BLOCK: usize = 1024;
/// Elements below which a second thread costs more than it helps.
pub(crate) const GRAIN: usize = 16 * 1024;

/// The whole chain over all its elements.
///
/// # Safety
/// As [`Runner::new`].
pub(crate) unsafe fn run_map(isa: Isa, chain: &Chain, m: &Memory) {
    // SAFETY: as the caller says; ranges are disjoint.
    let runner = unsafe { Runner::new(isa, chain, m) };
    let total = chain.rows * chain.cols;
    let unit = runner.unit();
    let grain = GRAIN.next_multiple_of(unit);
    for_ranges(total, grain, |from, to| {
        runner.range(from, to, None, |_| {})
    });
}

/// A chain bound to memory that it was checked to fit in.
pub(crate) struct Runner<'a> {
    isa: Isa,
    chain: &'a Chain,
    memory: &'a Memory,
}

/// One block with its registers.
pub(crate) struct Block {
    pub first: usize,
    pub rows: usize,
    pub cols: usize,
    first_row: usize,
    anchor: *const f32,
    regs: *mut f32,
    row_regs: *mut f32,
    stride: usize,
}

/// An operand, resolved for one block: row r starts at `base` + its step, and advances along the row or not.
#[derive(Clone, Copy)]
pub(crate) struct View {
    base: *const f32,
    rows: RowStep,
    spread: bool,
}

#[derive(Clone, Copy)]
enum RowStep {
    Stride(usize),
    Mapped {
        first: usize,
        div: usize,
        modulo: usize,
        stride: usize,
    },
}

impl View {
    #[inline(always)]
    pub fn row(&self, r: usize) -> *const f32 {
        self.base.wrapping_add(match self.rows {
            RowStep::Stride(s) => r * s,
            RowStep::Mapped {
                first,
                div,
                modulo,
                stride,
            } => ((first + r) / div % modulo) * stride,
        })
    }

    /// Whether the rows of a block follow each other, or are all the same constant.
    fn is_flat(&self, cols: usize) -> bool {
        match (self.rows, self.spread) {
            (RowStep::Stride(0), false) => true,
            (RowStep::Stride(s), true) => s == cols,
            _ => false,
        }
    }

    /// # Safety
    /// `row` is one of this view's, and sixteen of its elements from `at` on are inside it.
    #[inline(always)]
    pub unsafe fn lanes<L: Lanes>(&self, row: *const f32, at: usize, fixed: L) -> L {
        match self.spread {
            // SAFETY: as the caller says.
            true => unsafe { L::load_ptr(row.wrapping_add(at)) },
            false => fixed,
        }
    }

    /// # Safety
    /// `row` is one of this view's, and `n` of its elements from `at` on are inside it.
    #[inline(always)]
    pub unsafe fn tail<L: Lanes>(&self, row: *const f32, at: usize, n: usize, fixed: L) -> L {
        match self.spread {
            // SAFETY: as the caller says.
            true => unsafe { L::load_prefix_ptr(row.wrapping_add(at), n) },
            false => fixed,
        }
    }

    /// # Safety
    /// `row` is one of this view's.
    #[inline(always)]
    pub unsafe fn fixed<L: Lanes>(&self, row: *const f32) -> L {
        match self.spread {
            true => L::zero(),
            // SAFETY: an operand that does not advance has at least one element a row.
            false => L::splat(unsafe { *row }),
        }
    }
}

impl<'a> Runner<'a> {
    /// Binds a chain to memory; panics where one of its tensors would not lie inside.
    ///
    /// # Safety
    /// While it lives, nobody else uses what the chain writes or writes what it reads, and no two calls at the same time
    /// are given ranges that overlap.
    pub unsafe fn new(isa: Isa, chain: &'a Chain, memory: &'a Memory) -> Self {
        check_chain(chain, memory);
        Runner { isa, chain, memory }
    }

    /// Blocks start at multiples of this.
    pub fn unit(&self) -> usize {
        if self.chain.flat { 1 } else { self.chain.cols }
    }

    /// Finishes a block of a convolution or product.
    pub fn finish(&self, first: usize, block: &mut [f32]) {
        self.range(first, first + block.len(), Some(block), |_| {});
    }

    /// Elements `from..to`, block by block; `anchor` is what the chain finishes, where there is such a thing.
    pub fn range(
        &self,
        from: usize,
        to: usize,
        anchor: Option<&[f32]>,
        mut each: impl FnMut(&Block),
    ) {
        let chain = self.chain;
        let unit = self.unit();
        let inside = from <= to && to <= chain.rows * chain.cols;
        assert!(inside && from.is_multiple_of(unit), "{from}..{to}");
        assert!(anchor.is_none_or(|anchor| anchor.len() == to - from));
        let anchor = anchor.map_or(std::ptr::null(), <[f32]>::as_ptr);
        // Without steps there are no registers to keep in cache: one block will do.
        let size = match (chain.flat, chain.steps.is_empty()) {
            (true, true) => to - from,
            (true, false) => BLOCK,
            (false, _) => (BLOCK / unit).max(1) * unit,
        };
        let stride = size.min(to - from).next_multiple_of(WIDTH);
        with_scratch(stride * (chain.regs + chain.row_regs), |scratch| {
            let regs = scratch.as_mut_ptr();
            let row_regs = regs.wrapping_add(stride * chain.regs);
            let mut first = from;
            while first < to {
                let len = size.min(to - first);
                let (rows, cols) = if chain.flat {
                    (1, len)
                } else {
                    (len / unit, unit)
                };
                let first_row = if chain.flat { 0 } else { first / unit };
                let anchor = if anchor.is_null() {
                    anchor
                } else {
                    anchor.wrapping_add(first - from)
                };
                let block = Block {
                    first,
                    rows,
                    cols,
                    first_row,
                    anchor,
                    regs,
                    row_regs,
                    stride,
                };
                for step in &chain.steps {
                    self.step(step, &block);
                }
                each(&block);
                first += len;
            }
        });
    }

    /// An operand of a step over whole rows.
    pub fn view(&self, operand: Operand, b: &Block) -> View {
        let whole = |p: *const f32| View {
            base: p,
            rows: RowStep::Stride(b.cols),
            spread: true,
        };
        let per_row = |p: *const f32| View {
            base: p,
            rows: RowStep::Stride(1),
            spread: false,
        };
        match operand {
            Operand::Reg(r) => whole(b.regs.wrapping_add(r * b.stride)),
            Operand::Row(r) => per_row(b.row_regs.wrapping_add(r * b.stride)),
            Operand::Anchor => whole(b.anchor),
            Operand::Store(i) => {
                let store = &self.chain.stores[i];
                let p = self.memory.start(store.place);
                if store.row_wise {
                    per_row(p.wrapping_add(b.first_row))
                } else {
                    whole(p.wrapping_add(b.first))
                }
            }
            Operand::Load(i) => {
                let load = &self.chain.loads[i];
                let p = self.memory.start(load.place).cast_const();
                match load.access {
                    Access::Flat => whole(p.wrapping_add(b.first)),
                    Access::Scalar => View {
                        base: p,
                        rows: RowStep::Stride(0),
                        spread: false,
                    },
                    Access::Rows {
                        div,
                        modulo,
                        stride,
                        spread,
                    } => {
                        let rows = RowStep::Mapped {
                            first: b.first_row,
                            div,
                            modulo,
                            stride,
                        };
                        View {
                            base: p,
                            rows,
                            spread,
                        }
                    }
                }
            }
            Operand::Const(_) => View {
                base: std::ptr::null(),
                rows: RowStep::Stride(0),
                spread: false,
            },
        }
    }

    /// An operand of a step that has one value a row: rows lie one after another.
    fn row_view(&self, operand: Operand, b: &Block) -> View {
        let line = |p: *const f32| View {
            base: p,
            rows: RowStep::Stride(0),
            spread: true,
        };
        match operand {
            Operand::Row(r) => line(b.row_regs.wrapping_add(r * b.stride)),
            Operand::Store(i) => line(
                self.memory
                    .start(self.chain.stores[i].place)
                    .wrapping_add(b.first_row),
            ),
            Operand::Load(i) if self.chain.loads[i].access == Access::Flat => line(
                self.memory
                    .start(self.chain.loads[i].place)
                    .wrapping_add(b.first_row),
            ),
            other => self.view(other, b),
        }
    }

    fn step(&self, step: &Step, b: &Block) {
        let out = match step.to {
            Operand::Reg(r) => b.regs.wrapping_add(r * b.stride),
            Operand::Row(r) => b.row_regs.wrapping_add(r * b.stride),
            Operand::Store(i) => {
                let store = &self.chain.stores[i];
                let first = if store.row_wise { b.first_row } else { b.first };
                self.memory.start(store.place).wrapping_add(first)
            }
            _ => unreachable!("steps write to registers and memory"),
        };
        let (mut rows, mut cols) = if step.row_wise {
            (1, b.rows)
        } else {
            (b.rows, b.cols)
        };
        match step.op {
            StepOp::Noise {
                distribution,
                stream,
                counter,
                shard,
            } => {
                let first = if step.row_wise { b.first_row } else { b.first };
                // SAFETY: the output has rows · cols elements, as `check_chain` saw; nobody writes the counter.
                unsafe {
                    let noise = self.memory.noise(counter, stream);
                    let before = shard.map_or(0, |len| self.memory.shard(counter) * len as u64);
                    let out = std::slice::from_raw_parts_mut(out, rows * cols);
                    rng::fill(self.isa, noise, distribution, before + first as u64, out);
                }
                return;
            }
            StepOp::Cast(dtype) => return self.cast(step, dtype, b, out),
            _ => {}
        }
        let mut constants = [0f32; 3];
        let mut views = [View {
            base: std::ptr::null(),
            rows: RowStep::Stride(0),
            spread: false,
        }; 3];
        for (i, &arg) in step.args.iter().enumerate() {
            views[i] = if step.row_wise {
                self.row_view(arg, b)
            } else {
                self.view(arg, b)
            };
            if let Operand::Const(c) = arg {
                constants[i] = c;
                views[i].base = &constants[i];
            }
        }
        if let StepOp::Reduce(op) = step.op {
            // SAFETY: the views and the output are of this block, whose tensors `check_chain` saw inside the memory.
            return unsafe { reduce_rows(self.isa, op, &views[0], rows, cols, out) };
        }
        let views = &views[..step.args.len()];
        if views.iter().all(|v| v.is_flat(cols)) {
            (rows, cols) = (1, rows * cols);
        }
        // SAFETY: the views and the output are of this block, whose tensors `check_chain` saw inside the memory.
        unsafe { elementwise(self.isa, step.op, views, rows, cols, out) };
    }

    fn cast(&self, step: &Step, dtype: DType, b: &Block, out: *mut f32) {
        let Operand::Load(i) = step.args[0] else {
            unreachable!("bytes and indices lie in memory")
        };
        let load = &self.chain.loads[i];
        assert!(
            load.access == Access::Flat,
            "bytes and indices are read whole"
        );
        let (first, len) = if step.row_wise {
            (b.first_row, b.rows)
        } else {
            (b.first, b.rows * b.cols)
        };
        // SAFETY: the block lies inside the tensor, which `check_chain` saw inside the memory.
        unsafe {
            let out = std::slice::from_raw_parts_mut(out, len);
            match dtype {
                DType::U8 => {
                    let from = std::slice::from_raw_parts(
                        self.memory.start_of_bytes(load.place).wrapping_add(first),
                        len,
                    );
                    out.iter_mut().zip(from).for_each(|(o, &v)| *o = v as f32);
                }
                DType::U32 => {
                    let from: *const u32 = self.memory.start(load.place).wrapping_add(first).cast();
                    let from = std::slice::from_raw_parts(from, len);
                    out.iter_mut().zip(from).for_each(|(o, &v)| *o = v as f32);
                }
                DType::F32 | DType::Bf16 => unreachable!("f32 needs no cast"),
            }
        }
    }
}

/// Refuses a chain whose tensors do not lie inside the memory or whose registers are not there.
fn check_chain(chain: &Chain, memory: &Memory) {
    let whole = chain.rows * chain.cols;
    let operand = |operand: Operand, row_wise: bool| match operand {
        Operand::Reg(r) => assert!(r < chain.regs, "register {r}"),
        Operand::Row(r) => assert!(r < chain.row_regs, "register {r} of rows"),
        Operand::Store(i) => {
            let store = &chain.stores[i];
            let len = if store.row_wise { chain.rows } else { whole };
            memory.check_inside(store.place, len);
        }
        Operand::Load(i) => {
            let load = &chain.loads[i];
            let len = match load.access {
                Access::Flat if row_wise => chain.rows,
                Access::Flat => whole,
                Access::Scalar => 1,
                Access::Rows {
                    div,
                    modulo,
                    stride,
                    spread,
                } => {
                    let last = (chain.rows.max(1) - 1) / div;
                    last.min(modulo - 1) * stride + if spread { chain.cols } else { 1 }
                }
            };
            memory.check_inside(load.place, if whole == 0 { 0 } else { len });
        }
        Operand::Const(_) | Operand::Anchor => {}
    };
    for step in &chain.steps {
        for &arg in step.args.iter().chain([&step.to]) {
            operand(arg, step.row_wise);
        }
        if let StepOp::Noise { counter, shard, .. } = step.op {
            memory.check_inside(counter, 4 + shard.is_some() as usize);
        }
    }
    if let Some(result) = chain.result {
        operand(result, false);
    }
}

dispatch! {
    /// # Safety
    /// The views and the output have `rows` × `cols` elements, and nobody else uses the output.
    unsafe fn elementwise(isa, op: StepOp, views: &[View], rows: usize, cols: usize, out: *mut f32) => elementwise_lanes;
}

/// One loop over a block for each operation; `$x` are the operands' lanes.
macro_rules! each {
    ($views:ident, $rows:ident, $cols:ident, $out:ident, [$($x:ident = $i:literal),+], $body:expr) => {
        for r in 0..$rows {
            // SAFETY: a row of the view.
            $(let $x = ($views[$i].row(r), unsafe { $views[$i].fixed::<L>($views[$i].row(r)) });)+
            let to = $out.wrapping_add(r * $cols);
            let rows = ($($x,)+);
            let mut c = 0;
            while c + WIDTH <= $cols {
                let ($($x,)+) = rows;
                // SAFETY: sixteen elements are left in the row.
                $(let $x = unsafe { $views[$i].lanes::<L>($x.0, c, $x.1) };)+
                // SAFETY: sixteen elements are left in the row.
                unsafe { $body.store_ptr(to.wrapping_add(c)) };
                c += WIDTH;
            }
            if c < $cols {
                let n = $cols - c;
                let ($($x,)+) = rows;
                // SAFETY: n elements are left in the row.
                $(let $x = unsafe { $views[$i].tail::<L>($x.0, c, n, $x.1) };)+
                // SAFETY: n elements are left in the row.
                unsafe { $body.store_prefix_ptr(to.wrapping_add(c), n) };
            }
        }
    };
}

/// # Safety
/// As [`elementwise`].
#[inline(always)]
unsafe fn elementwise_lanes<L: Lanes>(
    op: StepOp,
    views: &[View],
    rows: usize,
    cols: usize,
    out: *mut f32,
) {
    macro_rules! unary {
        ($x:ident, $body:expr) => {
            each!(views, rows, cols, out, [$x = 0], $body)
        };
    }
    macro_rules! binary {
        ($a:ident, $b:ident, $body:expr) => {
            each!(views, rows, cols, out, [$a = 0, $b = 1], $body)
        };
    }
    let one = L::splat(1.0);
    let zero = L::zero();
    match op {
        StepOp::Copy => unary!(x, x),
        StepOp::Unary(op) => match op {
            UnaryOp::Neg => unary!(x, x.neg()),
            UnaryOp::Abs => unary!(x, x.abs()),
            UnaryOp::Exp => unary!(x, math::exp(x)),
            UnaryOp::Expm1 => unary!(x, math::expm1(x)),
            UnaryOp::Log => unary!(x, math::log(x)),
            UnaryOp::Sqrt => unary!(x, x.sqrt()),
            UnaryOp::Rsqrt => unary!(x, math::rsqrt(x)),
            UnaryOp::Recip => unary!(x, one.div(x)),
            UnaryOp::Square => unary!(x, x.mul(x)),
            UnaryOp::Sigmoid => unary!(x, math::sigmoid(x)),
            UnaryOp::Softplus => unary!(x, math::softplus(x)),
            UnaryOp::Tanh => unary!(x, math::tanh(x)),
            UnaryOp::Floor => unary!(x, x.floor()),
            UnaryOp::Elu => unary!(x, L::select(x.gt(zero), x, math::expm1(x))),
            UnaryOp::EluSlope => unary!(x, L::select(x.gt(zero), one, x.add(one))),
        },
        StepOp::Binary(op) => match op {
            BinaryOp::Add => binary!(a, b, a.add(b)),
            BinaryOp::Sub => binary!(a, b, a.sub(b)),
            BinaryOp::Mul => binary!(a, b, a.mul(b)),
            BinaryOp::Div => binary!(a, b, a.div(b)),
            BinaryOp::Max => binary!(a, b, a.max(b)),
            BinaryOp::Min => binary!(a, b, a.min(b)),
            BinaryOp::Eq => binary!(a, b, L::select(a.eq(b), one, zero)),
            BinaryOp::Gt => binary!(a, b, L::select(a.gt(b), one, zero)),
        },
        StepOp::Select => {
            each!(
                views,
                rows,
                cols,
                out,
                [m = 0, a = 1, b = 2],
                L::select(m.eq(zero), b, a)
            )
        }
        StepOp::Cast(_) | StepOp::Noise { .. } | StepOp::Reduce(_) => {
            unreachable!("not element-wise")
        }
    }
}

dispatch! {
    /// Each row to one value.
    ///
    /// # Safety
    /// The view has `rows` × `cols` elements, the output one for each row, and nobody else uses it.
    unsafe fn reduce_rows(isa, op: ReduceOp, view: &View, rows: usize, cols: usize, out: *mut f32) => reduce_rows_lanes;
}

/// # Safety
/// As [`reduce_rows`].
#[inline(always)]
unsafe fn reduce_rows_lanes<L: Lanes>(
    op: ReduceOp,
    view: &View,
    rows: usize,
    cols: usize,
    out: *mut f32,
) {
    for r in 0..rows {
        // SAFETY: a row of the view.
        let acc = unsafe { accumulate::<L>(op, view, r, cols, start::<L>(op)) };
        let value = match op {
            ReduceOp::Sum => acc.sum(),
            ReduceOp::Max => acc.max_lane(),
        };
        // SAFETY: the output has one element a row.
        unsafe { *out.wrapping_add(r) = value };
    }
}

/// What a reduction starts from.
#[inline(always)]
pub(crate) fn start<L: Lanes>(op: ReduceOp) -> L {
    match op {
        ReduceOp::Sum => L::zero(),
        ReduceOp::Max => L::splat(f32::NEG_INFINITY),
    }
}

/// Element c of a row goes to lane c mod 16.
///
/// # Safety
/// Row `r` of the view has `cols` elements.
#[inline(always)]
pub(crate) unsafe fn accumulate<L: Lanes>(
    op: ReduceOp,
    view: &View,
    r: usize,
    cols: usize,
    mut acc: L,
) -> L {
    let row = view.row(r);
    // SAFETY: the view's own row.
    let fixed = unsafe { view.fixed::<L>(row) };
    let mut c = 0;
    while c + WIDTH <= cols {
        // SAFETY: sixteen elements are left in the row.
        let x = unsafe { view.lanes::<L>(row, c, fixed) };
        acc = match op {
            ReduceOp::Sum => acc.add(x),
            ReduceOp::Max => x.max(acc),
        };
        c += WIDTH;
    }
    if c < cols {
        let mut tail = start::<L>(op).to_array();
        // SAFETY: so many elements are left in the row.
        let x = unsafe { view.tail::<L>(row, c, cols - c, fixed) }.to_array();
        tail[..cols - c].copy_from_slice(&x[..cols - c]);
        let x = L::load(&tail);
        acc = match op {
            ReduceOp::Sum => acc.add(x),
            ReduceOp::Max => x.max(acc),
        };
    }
    acc
}
