//! From a graph to a [`Plan`]: everything that can be decided before the first run.
//!
//! 1. What is live: the nodes that outputs and assignments depend on ([`Live`]).
//! 2. [`fuse`]: nodes become groups, one kernel each. Edges between element-wise operations, row reductions
//!    and the epilogues of convolutions and products are contracted as long as no cycle arises.
//! 3. [`lower`]: each group becomes a [`Kernel`]; element-wise parts become a small [`Chain`] program
//!    ([`chain`]).
//! 4. [`memory`]: lifetimes, then offsets in one arena.
//!
//! A plan is plain data and knows no device.

mod chain;
mod conv_layout;
mod fuse;
mod layout;
mod lower;
mod memory;
mod schedule;
mod standalone;
mod storage;

use crate::graph::{DType, Graph, NodeId, Var};
use crate::op::{BinaryOp, Filter, MatrixProduct, Op, ReduceOp, ResponsibilityOp, UnaryOp};
use crate::params::Layout;
use crate::rng::Distribution;
use crate::{Error, Result};

#[cfg(feature = "cuda")]
pub(crate) use fuse::gcd;
pub(crate) use layout::Live;

/// Which memory a tensor lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Arena,
    Input(usize),
    State(usize),
    /// Memory a device lends to one kernel; no plan has it.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    Scratch,
}

/// Where a tensor starts, in its own elements, and how those are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) base: Base,
    pub(crate) offset: usize,
    pub(crate) dtype: DType,
}

impl Place {
    /// The place `elements` further on.
    pub fn at(self, elements: usize) -> Place {
        Place {
            offset: self.offset + elements,
            ..self
        }
    }
}

/// How an element-wise chain reads a tensor. Elements are numbered row by row, `cols` to a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// Element i at i.
    Flat,
    /// One value for all.
    Scalar,
    /// Row r starts at ((r / div) % modulo) · stride; along the row it advances (`spread`) or stays.
    Rows {
        div: usize,
        modulo: usize,
        stride: usize,
        spread: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub place: Place,
    pub dtype: DType,
    pub access: Access,
}

/// Where a step of a chain finds a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A block-sized register.
    Reg(usize),
    /// A register with one value a row.
    Row(usize),
    Load(usize),
    /// What another step of this chain has stored already.
    Store(usize),
    Const(f32),
    /// The convolution's or product's result this chain finishes.
    Anchor,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOp {
    Copy,
    Unary(UnaryOp),
    Binary(BinaryOp),
    Select,
    /// Bytes or indices to f32.
    Cast(DType),
    Noise {
        distribution: Distribution,
        stream: u32,
        counter: Place,
        /// Elements of a shard, where these are those of its rows in the whole batch.
        shard: Option<usize>,
    },
    /// A row to one value.
    Reduce(ReduceOp),
}

/// One element-wise instruction over a block of rows.
#[derive(Clone, Debug)]
pub struct Step {
    pub op: StepOp,
    pub args: Vec<Operand>,
    /// `Reg`, `Row` or `Store`.
    pub to: Operand,
    /// Works on one value a row, not on whole rows.
    pub row_wise: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct StorePlace {
    pub place: Place,
    /// One value a row.
    pub row_wise: bool,
}

/// A fused element-wise program over `rows` × `cols` elements.
#[derive(Clone, Debug)]
pub struct Chain {
    pub rows: usize,
    pub cols: usize,
    /// No access and no step depends on rows: any range of elements may be a block.
    pub flat: bool,
    pub loads: Vec<Load>,
    pub stores: Vec<StorePlace>,
    pub steps: Vec<Step>,
    pub regs: usize,
    pub row_regs: usize,
    /// The value a closing reduction takes.
    pub result: Option<Operand>,
}

/// Geometry of a convolution from [n, h, w, ci] to [n, oh, ow, co].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    pub n: usize,
    pub h: usize,
    pub w: usize,
    pub ci: usize,
    pub oh: usize,
    pub ow: usize,
    pub co: usize,
    pub kh: usize,
    pub kw: usize,
    pub stride: usize,
    pub pad: usize,
    pub filter: Filter,
}

/// What moves or picks data without arithmetic; shapes are the input's.
#[derive(Clone, Debug, PartialEq)]
pub enum Movement {
    /// Strides of the input along each axis of `shape` (the output's).
    Broadcast {
        shape: Vec<usize>,
        strides: Vec<usize>,
    },
    /// Copies `outer` runs of `len`, `from`/`to` strides apart.
    Runs {
        outer: usize,
        len: usize,
        from: usize,
        to: usize,
    },
    /// `outer` runs of `len` become runs of `wide`, with zeros before (`before` of them) and after.
    Pad {
        outer: usize,
        len: usize,
        before: usize,
        wide: usize,
    },
    Upsample {
        shape: [usize; 4],
        factor: usize,
    },
    SumPool {
        shape: [usize; 4],
        factor: usize,
    },
    EdgePad {
        shape: [usize; 4],
        by: usize,
    },
    EdgeFold {
        shape: [usize; 4],
        by: usize,
    },
    SpaceToDepth {
        shape: [usize; 4],
        factor: usize,
    },
    DepthToSpace {
        shape: [usize; 4],
        factor: usize,
    },
    Transpose {
        rows: usize,
        cols: usize,
    },
}

/// One thing a device does.
#[derive(Clone, Debug)]
pub enum Kernel {
    Map(Chain),
    /// [outer, len, inner] → [outer, inner], after an element-wise chain.
    Reduce {
        chain: Chain,
        op: ReduceOp,
        outer: usize,
        len: usize,
        inner: usize,
        out: Place,
    },
    Conv {
        geometry: ConvGeometry,
        x: Place,
        w: Place,
        chain: Chain,
    },
    ConvGradInput {
        geometry: ConvGeometry,
        dy: Place,
        w: Place,
        chain: Chain,
    },
    ConvGradWeight {
        geometry: ConvGeometry,
        x: Place,
        dy: Place,
        out: Place,
    },
    Matmul {
        product: MatrixProduct,
        tf32: bool,
        a: Place,
        b: Place,
        chain: Chain,
    },
    Move {
        movement: Movement,
        from: Place,
        to: Place,
    },
    Fill {
        to: Place,
        len: usize,
        value: f32,
    },
    ArgMax {
        rows: usize,
        cols: usize,
        x: Place,
        out: Place,
    },
    Gather {
        rows: usize,
        cols: usize,
        codes: usize,
        table: Place,
        index: Place,
        out: Place,
    },
    ScatterAdd {
        rows: usize,
        cols: usize,
        codes: usize,
        index: Place,
        x: Place,
        out: Place,
    },
    Responsibility {
        op: ResponsibilityOp,
        rows: usize,
        dim: usize,
        codes: usize,
        /// The op's inputs in order.
        inputs: Vec<Place>,
        z: Place,
        index: Option<Place>,
        kl: Option<Place>,
    },
    ResponsibilityGrad {
        op: ResponsibilityOp,
        rows: usize,
        dim: usize,
        codes: usize,
        inputs: Vec<Place>,
        /// d e_q, d mu, d logvar, d e_p.
        outputs: [Option<Place>; 4],
    },
    /// A vector becomes its sum over all shards of the group.
    AllSum {
        len: usize,
        from: Place,
        to: Place,
        /// Whether a GPU may send it in bf16.
        bf16: bool,
    },
    /// Kernels that do not depend on each other.
    Batch(Vec<Kernel>),
}

#[derive(Clone, Debug)]
pub struct Named {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    pub(crate) place: Place,
}

/// A compiled graph. Nobody outside this crate can change where its tensors lie.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) kernels: Vec<Kernel>,
    /// Floats of the one allocation all intermediate tensors share.
    pub(crate) arena: usize,
    pub(crate) inputs: Vec<Named>,
    /// Flat f32 vectors that outlive a run; one of them is [`PARAMETERS`](crate::params::PARAMETERS).
    pub(crate) states: Vec<Named>,
    pub(crate) outputs: Vec<Named>,
}

impl Plan {
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The same with its kernels in another order, each given by its number in this one.
    pub fn in_order(&self, order: &[usize]) -> Plan {
        Plan {
            kernels: order.iter().map(|&i| self.kernels[i].clone()).collect(),
            ..self.clone()
        }
    }

    pub fn arena_bytes(&self) -> usize {
        self.arena * 4
    }
}

/// What a device wants of a plan; the default is the CPU's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// Another layout of convolutions than the one models are built with.
    pub conv_layout: Option<ConvLayout>,
    /// Maps and the kernels of convolutions in bf16.
    pub bf16: bool,
    /// Small independent kernels gathered in batches.
    pub batches: bool,
    /// What ends in a long sum may read by rows, as slices and broadcasts are read.
    pub sums_by_rows: bool,
}

/// A layout of convolutions: kernels as [outputs, height, width, inputs], padded channels, and convolutions of one map,
/// or of one sum, joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvLayout {
    /// Channels are padded to a multiple of this.
    pub channels: usize,
    /// Convolutions of a sum are joined where all maps but the widest have together at most one `narrow`th of its
    /// channels.
    pub narrow: usize,
}

/// Compiles what `outputs` and the graph's assignments need. Parameters are found by name in `layout`, which
/// may come from another graph: a training step and a sampler share one flat vector.
pub fn compile(graph: &Graph, layout: &Layout, outputs: &[(&str, Var<'_>)]) -> Result<Plan> {
    compile_for(Target::default(), graph, layout, outputs)
}

/// The same for another device than the CPU.
pub fn compile_for(
    target: Target,
    graph: &Graph,
    layout: &Layout,
    outputs: &[(&str, Var<'_>)],
) -> Result<Plan> {
    let names = outputs.iter().map(|(name, _)| name.to_string());
    let ids: Vec<NodeId> = outputs.iter().map(|(_, var)| var.id()).collect();
    let Some(convs) = target.conv_layout else {
        return plan(target, graph, layout, names.zip(ids).collect());
    };
    let rewritten = Graph::new();
    let vars = conv_layout::rewrite(convs, graph, &rewritten, &ids);
    let outputs = names.zip(vars.iter().map(|var| var.id())).collect();
    plan(target, &rewritten, layout, outputs)
}

fn plan(
    target: Target,
    graph: &Graph,
    layout: &Layout,
    outputs: Vec<(String, NodeId)>,
) -> Result<Plan> {
    let live = Live::new(graph, &outputs);
    for node in live.ids().map(|id| live.node(id)) {
        if let Op::Param { name, shape } = &node.op {
            match layout.get(name) {
                Some(entry) if entry.shape == *shape => {}
                Some(entry) => {
                    let have = &entry.shape;
                    return Err(Error::new(format!(
                        "parameter {name} has shape {have:?} where the graph has {shape:?}"
                    )));
                }
                None => {
                    return Err(Error::new(format!(
                        "parameter {name} is not in the model's layout"
                    )));
                }
            }
        }
    }
    let groups = fuse::fuse(&live, target.sums_by_rows);
    let count = groups.order.len();
    let (groups, moments) = match target.batches {
        true => schedule::layered(&live, groups),
        false => (groups, (0..count).collect()),
    };
    let storage = match target.bf16 {
        true => {
            let channels = target.conv_layout.map_or(1, |convs| convs.channels);
            storage::bf16(&live, &outputs, channels)
        }
        false => Default::default(),
    };
    let schedule = lower::Schedule {
        moments,
        batches: target.batches,
        storage,
    };
    Ok(lower::lower(&live, &groups, layout, schedule, &outputs))
}

#[cfg(test)]
mod tests;
