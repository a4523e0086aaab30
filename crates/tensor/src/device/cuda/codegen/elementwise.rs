//! Element-wise programs: straight-line code over a few neighbouring elements a thread.
//!
//! Without row reductions a thread takes up to eight elements, 16 bytes of bf16. With them a warp or a block
//! takes a row and keeps it in registers.

use super::{Draft, literal};
use crate::compile::{Access, Chain, Operand, Place, Step, StepOp};
use crate::op::{BinaryOp, ReduceOp, UnaryOp};
use crate::rng::Distribution;
use std::fmt::Write;

const BLOCK: u32 = 256;

/// A kernel for `chain`; `anchor` is where the result it finishes lies, if it is an epilogue.
pub fn map(chain: &Chain, anchor: Option<Place>) -> Draft {
    let reduces = |s: &Step| matches!(s.op, StepOp::Reduce(_));
    if chain.steps.iter().any(|s| reduces(s) || s.row_wise) {
        return by_rows(chain, anchor);
    }
    let width = width(chain, anchor, chain.cols);
    let mut draft = Draft::new(BLOCK);
    let total = chain.rows * chain.cols;
    let threads = total / width;
    draft.grid[0] = threads.div_ceil(BLOCK as usize) as u32;
    let _ = writeln!(
        draft.body,
        "    const size_t i = (size_t)blockIdx.x * {BLOCK} + threadIdx.x;\n    if (i >= {threads}u) return;\n    const size_t e = i * {width};"
    );
    let mut elements = Elements::new(chain, anchor, width);
    elements.write(&mut draft, "    ");
    draft
}

/// How many neighbouring elements every access of the chain allows a thread to take at once.
pub fn width(chain: &Chain, anchor: Option<Place>, run: usize) -> usize {
    let aligned = |place: &Place, stride: usize, width: usize| {
        let bytes = (width * place.dtype.bytes()).min(16);
        (place.offset * place.dtype.bytes()).is_multiple_of(bytes) && stride.is_multiple_of(width)
    };
    let fits = |width: usize| {
        let loads = chain.loads.iter().all(|l| match l.access {
            Access::Flat => aligned(&l.place, 0, width),
            Access::Rows {
                stride,
                spread: true,
                ..
            } => aligned(&l.place, stride, width),
            _ => true,
        });
        let stores = chain.stores.iter().all(|s| aligned(&s.place, 0, width));
        let anchors = anchor.is_none_or(|p| aligned(&p, 0, width));
        run.is_multiple_of(width) && loads && stores && anchors
    };
    [8, 4, 2].into_iter().find(|&w| fits(w)).unwrap_or(1)
}

/// Code for `width` elements from `e` on, for kernels that are not reductions by rows.
pub struct Elements<'a> {
    chain: &'a Chain,
    anchor: Option<Place>,
    width: usize,
}

impl<'a> Elements<'a> {
    pub fn new(chain: &'a Chain, anchor: Option<Place>, width: usize) -> Self {
        Elements {
            chain,
            anchor,
            width,
        }
    }

    /// Pointers first, so that code inside a loop can use them.
    pub fn pointers(&self, draft: &mut Draft) -> Pointers {
        Pointers {
            loads: self
                .chain
                .loads
                .iter()
                .map(|l| draft.pointer(l.place))
                .collect(),
            stores: self
                .chain
                .stores
                .iter()
                .map(|s| draft.pointer(s.place))
                .collect(),
            anchor: self.anchor.map(|p| draft.pointer(p)),
            counters: counters(self.chain, draft),
        }
    }

    /// Loads, steps and stores.
    pub fn write(&mut self, draft: &mut Draft, indent: &str) {
        let pointers = self.pointers(draft);
        let code = self.code(&pointers, indent);
        draft.body.push_str(&code);
    }

    pub fn code(&self, p: &Pointers, indent: &str) -> String {
        let (chain, width) = (self.chain, self.width);
        let mut out = String::new();
        let by_row = |a: &Access| matches!(a, Access::Rows { .. });
        if chain.loads.iter().any(|l| by_row(&l.access)) {
            let cols = chain.cols;
            let _ = writeln!(
                out,
                "{indent}const u32 row = (u32)(e / {cols}u), col = (u32)(e % {cols}u);"
            );
        }
        for (i, load) in chain.loads.iter().enumerate() {
            let name = &p.loads[i];
            let _ = match load.access {
                Access::Flat => writeln!(
                    out,
                    "{indent}float l{i}[{width}]; load<{width}>({name} + e, l{i});"
                ),
                Access::Scalar => writeln!(out, "{indent}const float l{i} = load1({name});"),
                Access::Rows {
                    div,
                    modulo,
                    stride,
                    spread,
                } => {
                    let at = format!("row / {div}u % {modulo}u * {stride}u");
                    match spread {
                        true => writeln!(
                            out,
                            "{indent}float l{i}[{width}]; load<{width}>({name} + ({at} + col), l{i});"
                        ),
                        false => {
                            writeln!(out, "{indent}const float l{i} = load1({name} + ({at}));")
                        }
                    }
                }
            };
        }
        if let Some(anchor) = &p.anchor {
            let _ = writeln!(
                out,
                "{indent}float anchor[{width}]; load<{width}>({anchor} + e, anchor);"
            );
        }
        for r in 0..chain.regs {
            let _ = writeln!(out, "{indent}float r{r}[{width}];");
        }
        for s in 0..chain.stores.len() {
            let _ = writeln!(out, "{indent}float s{s}[{width}];");
        }
        for step in &chain.steps {
            let args: Vec<String> = step.args.iter().map(|a| self.operand(*a)).collect();
            let to = self.operand(step.to);
            let value = expression(step, &args, p, "e + j");
            let _ = writeln!(
                out,
                "{indent}_Pragma(\"unroll\") for (int j = 0; j < {width}; j++) {to} = {value};"
            );
        }
        for (s, name) in p.stores.iter().enumerate() {
            let _ = writeln!(out, "{indent}store<{width}>({name} + e, s{s});");
        }
        out
    }

    /// Element j of a value.
    pub fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Reg(r) => format!("r{r}[j]"),
            Operand::Store(s) => format!("s{s}[j]"),
            Operand::Anchor => "anchor[j]".into(),
            Operand::Const(c) => literal(c),
            Operand::Load(i) => match self.chain.loads[i].access {
                Access::Scalar | Access::Rows { spread: false, .. } => format!("l{i}"),
                _ => format!("l{i}[j]"),
            },
            Operand::Row(_) => unreachable!("values of rows need a kernel by rows"),
        }
    }
}

/// Names of the pointers of a chain.
pub struct Pointers {
    loads: Vec<String>,
    stores: Vec<String>,
    anchor: Option<String>,
    counters: Vec<(Place, String)>,
}

fn counters(chain: &Chain, draft: &mut Draft) -> Vec<(Place, String)> {
    let mut found: Vec<(Place, String)> = Vec::new();
    for step in &chain.steps {
        if let StepOp::Noise { counter, .. } = step.op
            && found.iter().all(|(place, _)| *place != counter)
        {
            let name = draft.pointer(counter);
            found.push((counter, name));
        }
    }
    found
}

fn expression(step: &Step, a: &[String], p: &Pointers, element: &str) -> String {
    match step.op {
        StepOp::Copy | StepOp::Cast(_) => a[0].clone(),
        StepOp::Unary(op) => unary(op, &a[0]),
        StepOp::Binary(op) => binary(op, &a[0], &a[1]),
        StepOp::Select => format!("{} != 0.0f ? {} : {}", a[0], a[1], a[2]),
        StepOp::Noise {
            distribution,
            stream,
            counter,
            shard,
        } => {
            let name = p.counters.iter().find(|(place, _)| *place == counter);
            let name = &name.expect("every counter has a pointer").1;
            let kind = match distribution {
                Distribution::Uniform => 0,
                Distribution::Normal => 1,
                Distribution::Gumbel => 2,
            };
            let before = shard.map_or(String::new(), |len| format!("(u64){name}[4] * {len}u + "));
            format!("noise({name}, {stream}u, {before}{element}, {kind})")
        }
        StepOp::Reduce(_) => unreachable!("reductions are written by rows"),
    }
}

fn unary(op: UnaryOp, x: &str) -> String {
    match op {
        UnaryOp::Neg => format!("-({x})"),
        UnaryOp::Abs => format!("fabsf({x})"),
        UnaryOp::Exp => format!("expf({x})"),
        UnaryOp::Expm1 => format!("expm1f({x})"),
        UnaryOp::Log => format!("logf({x})"),
        UnaryOp::Sqrt => format!("sqrtf({x})"),
        UnaryOp::Rsqrt => format!("1.0f / sqrtf({x})"),
        UnaryOp::Recip => format!("1.0f / ({x})"),
        UnaryOp::Square => format!("({x}) * ({x})"),
        UnaryOp::Sigmoid => format!("f_sigmoid({x})"),
        UnaryOp::Softplus => format!("f_softplus({x})"),
        UnaryOp::Tanh => format!("tanhf({x})"),
        UnaryOp::Floor => format!("floorf({x})"),
        UnaryOp::Elu => format!("f_elu({x})"),
        UnaryOp::EluSlope => format!("f_slope({x})"),
    }
}

fn binary(op: BinaryOp, a: &str, b: &str) -> String {
    match op {
        BinaryOp::Add => format!("({a}) + ({b})"),
        BinaryOp::Sub => format!("({a}) - ({b})"),
        BinaryOp::Mul => format!("({a}) * ({b})"),
        BinaryOp::Div => format!("({a}) / ({b})"),
        BinaryOp::Max => format!("({a}) > ({b}) ? ({a}) : ({b})"),
        BinaryOp::Min => format!("({a}) < ({b}) ? ({a}) : ({b})"),
        BinaryOp::Eq => format!("({a}) == ({b}) ? 1.0f : 0.0f"),
        BinaryOp::Gt => format!("({a}) > ({b}) ? 1.0f : 0.0f"),
    }
}

/// The reduction's type in the prelude.
pub fn reduction(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "Sum",
        ReduceOp::Max => "Max",
    }
}

/// A chain with values of rows: a warp takes a short row, a block a long one; lane t holds columns t, t + T, ….
fn by_rows(chain: &Chain, anchor: Option<Place>) -> Draft {
    let (rows, cols) = (chain.rows, chain.cols);
    let threads = if cols <= 512 { 32 } else { BLOCK as usize };
    let held = cols.div_ceil(threads);
    let mut draft = Draft::new(BLOCK);
    let rows_a_block = BLOCK as usize / threads;
    draft.grid[0] = rows.div_ceil(rows_a_block) as u32;
    let elements = Elements::new(chain, anchor, 1);
    let p = elements.pointers(&mut draft);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "    const u32 row = blockIdx.x * {rows_a_block}u + threadIdx.x / {threads}u, t = threadIdx.x % {threads}u;\n    if (row >= {rows}u) return;"
    );
    for r in 0..chain.regs {
        let _ = writeln!(out, "    float r{r}[{held}];");
    }
    for r in 0..chain.row_regs {
        let _ = writeln!(out, "    float q{r} = 0.0f;");
    }
    for (s, store) in chain.stores.iter().enumerate() {
        let _ = match store.row_wise {
            true => writeln!(out, "    float s{s} = 0.0f;"),
            false => writeln!(out, "    float s{s}[{held}];"),
        };
    }
    let each = format!(
        "    _Pragma(\"unroll\") for (int j = 0; j < {held}; j++) {{ const u32 c = t + j * {threads}u; const size_t e = (size_t)row * {cols}u + c; if (c < {cols}u)"
    );
    for step in &chain.steps {
        let arg = |a: &Operand| row_operand(chain, &p, *a, step.row_wise);
        let args: Vec<String> = step.args.iter().map(arg).collect();
        let to = match step.to {
            Operand::Reg(r) => format!("r{r}[j]"),
            Operand::Row(r) => format!("q{r}"),
            Operand::Store(s) if chain.stores[s].row_wise => format!("s{s}"),
            Operand::Store(s) => format!("s{s}[j]"),
            _ => unreachable!("steps write to registers and memory"),
        };
        let _ = match step.op {
            StepOp::Reduce(op) => {
                let kind = reduction(op);
                writeln!(
                    out,
                    "    {{ float v = {kind}::start();\n{each} v = {kind}::join(v, {}); }}\n    {to} = join_threads<{kind}, {threads}>(v); }}",
                    args[0]
                )
            }
            _ if step.row_wise => {
                writeln!(out, "    {to} = {};", expression(step, &args, &p, "row"))
            }
            _ => writeln!(
                out,
                "{each} {to} = {}; }}",
                expression(step, &args, &p, "e")
            ),
        };
    }
    for (s, store) in chain.stores.iter().enumerate() {
        let name = &p.stores[s];
        let _ = match store.row_wise {
            true => writeln!(out, "    if (t == 0) store1({name} + row, s{s});"),
            false => writeln!(out, "{each} store1({name} + e, s{s}[j]); }}"),
        };
    }
    draft.body = out;
    draft
}

fn row_operand(chain: &Chain, p: &Pointers, operand: Operand, row_wise: bool) -> String {
    match operand {
        Operand::Reg(r) => format!("r{r}[j]"),
        Operand::Row(r) => format!("q{r}"),
        Operand::Store(s) if chain.stores[s].row_wise => format!("s{s}"),
        Operand::Store(s) => format!("s{s}[j]"),
        Operand::Const(c) => literal(c),
        Operand::Anchor => match &p.anchor {
            Some(name) => format!("load1({name} + e)"),
            None => unreachable!("an epilogue has an anchor"),
        },
        Operand::Load(i) => {
            let name = &p.loads[i];
            match chain.loads[i].access {
                Access::Flat if row_wise => format!("load1({name} + row)"),
                Access::Flat => format!("load1({name} + e)"),
                Access::Scalar => format!("load1({name})"),
                Access::Rows {
                    div,
                    modulo,
                    stride,
                    spread,
                } => {
                    let col = if spread && !row_wise { " + c" } else { "" };
                    format!("load1({name} + (row / {div}u % {modulo}u * {stride}u{col}))")
                }
            }
        }
    }
}

/// Whether a chain does nothing but put its anchor in memory.
pub fn is_copy(chain: &Chain) -> Option<Place> {
    match (&chain.steps[..], &chain.stores[..]) {
        ([step], [store])
            if step.op == StepOp::Copy && step.args == [Operand::Anchor] && !store.row_wise =>
        {
            Some(store.place)
        }
        _ => None,
    }
}
