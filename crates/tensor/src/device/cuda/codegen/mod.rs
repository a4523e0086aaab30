//! CUDA C++ for the element-wise programs, reductions and movements of a plan.
//!
//! Sizes are written into the source, addresses are arguments: the kernels of all layers of one size share a
//! function, and kernels of one form that may run together share a launch ([`Draft::together`]).

pub mod direct;
pub mod elementwise;
pub mod movement;
pub mod reduce;

use super::launch::{Arg, Function, Launch};
use crate::compile::Place;
use crate::graph::DType;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Put in front of every generated function.
pub const PRELUDE: &str = include_str!("../kernels/prelude.cuh");

/// A kernel that is written but not yet bound to a launch of its own or a shared one.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Type and address of each pointer `p0`, `p1`, … of the body.
    pub params: Vec<(&'static str, Arg)>,
    pub body: String,
    pub grid: [u32; 2],
    pub block: u32,
    pub scratch: usize,
    pub counters: usize,
    /// Blocks a multiprocessor should be able to hold, which bounds the registers.
    pub resident: u32,
}

/// The C++ name of a stored element.
pub fn ctype(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::Bf16 => "bf16",
        DType::U8 => "u8",
        DType::U32 => "u32",
    }
}

/// A float without loss.
pub fn literal(value: f32) -> String {
    format!("__uint_as_float(0x{:08x}u)", value.to_bits())
}

impl Draft {
    pub fn new(block: u32) -> Self {
        Draft {
            params: Vec::new(),
            body: String::new(),
            grid: [1, 1],
            block,
            scratch: 0,
            counters: 0,
            resident: 1,
        }
    }

    /// The name of a pointer to a tensor.
    pub fn pointer(&mut self, place: Place) -> String {
        self.argument(ctype(place.dtype), Arg::Place(place))
    }

    pub fn argument(&mut self, ctype: &'static str, arg: Arg) -> String {
        self.params.push((ctype, arg));
        format!("p{}", self.params.len() - 1)
    }

    /// Whether one function serves both.
    pub fn same_form(&self, other: &Draft) -> bool {
        self.body == other.body
            && (self.grid, self.block) == (other.grid, other.block)
            && self.params.len() == other.params.len()
            && self
                .params
                .iter()
                .zip(&other.params)
                .all(|(a, b)| a.0 == b.0)
    }

    /// A launch of its own.
    pub fn single(&self) -> Launch {
        let list: Vec<String> = self
            .params
            .iter()
            .enumerate()
            .map(|(i, (ctype, _))| format!("{ctype}* p{i}"))
            .collect();
        Launch {
            function: self.function(&list.join(", "), ""),
            grid: [self.grid[0], self.grid[1], 1],
            block: self.block,
            shared: 0,
            args: self.params.iter().map(|p| p.1).collect(),
        }
    }

    /// One launch for kernels of one form, and the addresses of each: a table that is its only argument.
    pub fn together(drafts: &[Draft]) -> (Launch, Vec<Arg>) {
        let first = &drafts[0];
        let count = first.params.len();
        let pointers: String = first
            .params
            .iter()
            .enumerate()
            .map(|(i, (c, _))| {
                format!("    {c}* p{i} = ({c}*)table[blockIdx.z * {count} + {i}];\n")
            })
            .collect();
        let table = drafts.iter().flat_map(|d| &d.params).map(|p| p.1).collect();
        let launch = Launch {
            function: first.function("const u64* table", &pointers),
            grid: [first.grid[0], first.grid[1], drafts.len() as u32],
            block: first.block,
            shared: 0,
            args: Vec::new(),
        };
        (launch, table)
    }

    /// Moves the draft's scratch memory and counters behind those of others.
    pub fn shift(&mut self, scratch: usize, counters: usize) {
        for (_, arg) in &mut self.params {
            match arg {
                Arg::Scratch(at) => *at += scratch,
                Arg::Counter(at) => *at += counters,
                _ => {}
            }
        }
    }

    fn function(&self, params: &str, head: &str) -> Function {
        let (block, resident, body) = (self.block, self.resident, &self.body);
        let text = format!("({params}) {{\n{head}{body}}}\n");
        let mut hasher = DefaultHasher::new();
        (block, resident, &text).hash(&mut hasher);
        let name = format!("k{:016x}", hasher.finish());
        let source = format!(
            "{PRELUDE}\nextern \"C\" __global__ void __launch_bounds__({block}, {resident}) {name}{text}"
        );
        Function { name, source }
    }
}

/// Translation units for all functions, each once: those that share the prelude many in one.
pub fn sources<'a>(functions: &[&'a Function]) -> Vec<(String, Vec<&'a Function>)> {
    let different: HashSet<&Function> = functions.iter().copied().collect();
    let (mut generated, mut written): (Vec<&Function>, Vec<&Function>) = different
        .into_iter()
        .partition(|function| function.source.starts_with(PRELUDE));
    generated.sort_by(|a, b| a.name.cmp(&b.name));
    written.sort_by(|a, b| a.source.cmp(&b.source));
    let mut sources: Vec<(String, Vec<&Function>)> = Vec::new();
    // A handful in one source spares the fixed cost of each; too many would leave cores idle.
    let share = generated.len().div_ceil(16).clamp(1, 12);
    for chunk in generated.chunks(share) {
        let bodies = chunk.iter().map(|f| &f.source[PRELUDE.len()..]);
        let source = PRELUDE.to_string() + &bodies.collect::<String>();
        sources.push((source, chunk.to_vec()));
    }
    for function in written {
        match sources.iter_mut().find(|(s, _)| *s == function.source) {
            Some((_, group)) => group.push(function),
            None => sources.push((function.source.clone(), vec![function])),
        }
    }
    sources
}
