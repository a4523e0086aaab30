//! The graph a model is built in, and the [`Var`]s a model author writes with.
//!
//! Building costs nothing at run time: every method here adds a node and works out its shape. Gradients
//! ([`crate::grad`]) are nodes of the same graph; the compiler then decides fusion, order and memory once, and a
//! device runs the result many times.
//!
//! A node is its operation and its inputs, so the same expression written twice is one node: common subexpressions
//! are shared while the graph is built, not searched for afterwards.

use crate::group::Group;
use crate::op::{BinaryOp, Op, ReduceOp, UnaryOp, Window};
use crate::params::{Init, Layout};
use crate::rng::Distribution;
use crate::simplify;
use std::cell::RefCell;
use std::collections::HashMap;

/// What the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Numbers; all arithmetic is in this type.
    F32,
    /// Indices and counters.
    U32,
    /// Bytes, such as those of images; only ever an input.
    U8,
    /// Maps and kernels on a device that computes with half the bits; never in a graph, only chosen by the compiler.
    Bf16,
}

impl DType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::Bf16 => 2,
            DType::U8 => 1,
        }
    }
}

/// A node's place in its graph. Inputs of a node always have smaller numbers than the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation with its inputs and the type of its result.
#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<NodeId>,
    pub shape: Vec<usize>,
    pub dtype: DType,
}

impl Node {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

#[derive(Default)]
pub(crate) struct Inner {
    pub nodes: Vec<Node>,
    shared: HashMap<(Op, Vec<NodeId>), NodeId>,
    pub layout: Layout,
    /// `Op::Assign` nodes: what named buffers become at the end of a run.
    pub assignments: Vec<NodeId>,
    streams: u32,
}

/// A tensor program that is being built. Methods take `&self`, so that [`Var`]s can be combined with plain operators.
///
/// Leaves are [inputs](Graph::input), [parameters](Graph::param), [states](Graph::state), constants and
/// [noise](Graph::noise); everything else is a method of [`Var`]. The same expression written twice is one node.
///
/// ```
/// use rrvq_tensor::{DType, Graph};
/// let g = Graph::new();
/// let x = g.input("x", &[4, 3], DType::F32);
/// let y = (x.square() * 0.5).sum_to(&[4, 1]);
/// assert_eq!(y.shape(), [4, 1]);
/// assert!(x.square().same(x.square()));
/// ```
///
/// # Panics
/// A shape that does not fit is a mistake in the code that builds the graph, not in anybody's data, so it panics and
/// names the operation and the shapes.
#[derive(Default)]
pub struct Graph {
    inner: RefCell<Inner>,
    group: Option<Group>,
}

/// A tensor in a [`Graph`]: a handle that is copied freely. It has a shape and a type, but no values until a
/// [`Program`](crate::Program) runs.
///
/// `+`, `-`, `*` and `/` take another `Var` or an `f32` and broadcast: shapes are aligned at the right, and axes of
/// size one are stretched. Maps are [batch, height, width, channels].
///
/// ```
/// use rrvq_tensor::{DType, Graph};
/// let g = Graph::new();
/// let map = g.input("map", &[2, 8, 8, 16], DType::F32);
/// let kernel = g.input("kernel", &[3, 3, 16, 32], DType::F32);
/// let bias = g.input("bias", &[32], DType::F32);
/// let y = (map.conv(kernel, 2) + bias).elu();
/// assert_eq!(y.shape(), [2, 4, 4, 32]);
/// ```
#[derive(Clone, Copy)]
pub struct Var<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) id: NodeId,
}

impl std::fmt::Debug for Var<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}{:?}", self.id.0, self.shape())
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same for programs that run on one shard of a batch each, in every process of a group: noise is that of the
    /// shard's rows in the whole batch, and [`Var::all_sum`] adds over all shards.
    pub fn in_group(mut self, group: &Group) -> Self {
        self.group = Some(group.clone());
        self
    }

    /// Those who run the programs of this graph together; none where it is one program on whole batches.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Shards of a batch; 1 without a group.
    pub fn shards(&self) -> usize {
        self.group.as_ref().map_or(1, Group::shards)
    }

    /// Adds a node, or finds the one that says the same.
    pub(crate) fn push(&self, op: Op, inputs: &[Var<'_>]) -> Var<'_> {
        let ids: Vec<NodeId> = inputs.iter().map(|v| v.id).collect();
        if let Some(var) = simplify::rewrite(self, &op, &ids) {
            return var;
        }
        let mut inner = self.inner.borrow_mut();
        let key = (op, ids);
        if let Some(&id) = inner.shared.get(&key) {
            return Var { graph: self, id };
        }
        let (op, ids) = &key;
        let types: Vec<&Node> = ids.iter().map(|id| &inner.nodes[id.index()]).collect();
        let (shape, dtype) = op.result(&types);
        let id = NodeId(inner.nodes.len() as u32);
        let node = Node {
            op: op.clone(),
            inputs: ids.clone(),
            shape,
            dtype,
        };
        inner.nodes.push(node);
        inner.shared.insert(key, id);
        Var { graph: self, id }
    }

    /// Makes an assignment added by [`Graph::push`] part of every run.
    pub(crate) fn note_assignment(&self, value: Var<'_>) {
        self.inner.borrow_mut().assignments.push(value.id);
    }

    pub(crate) fn var(&self, id: NodeId) -> Var<'_> {
        Var { graph: self, id }
    }

    pub(crate) fn inner(&self) -> std::cell::Ref<'_, Inner> {
        self.inner.borrow()
    }

    /// A tensor the caller gives anew for every run.
    pub fn input(&self, name: &str, shape: &[usize], dtype: DType) -> Var<'_> {
        self.push(
            Op::Input {
                name: name.into(),
                shape: shape.into(),
                dtype,
            },
            &[],
        )
    }

    /// A scalar input.
    pub fn scalar_input(&self, name: &str) -> Var<'_> {
        self.input(name, &[], DType::F32)
    }

    /// The input `counter` that addresses all noise of a run; [`rng::counter`](crate::rng::counter) makes its four
    /// words of a seed and a step. In a group a fifth word is the number of the shard.
    pub fn counter(&self) -> Var<'_> {
        let words = 4 + self.group.is_some() as usize;
        self.input("counter", &[words], DType::U32)
    }

    /// A trained parameter, part of the vector that [`params`](crate::params) describes. Asking twice for one name
    /// gives the same parameter.
    pub fn param(&self, name: &str, shape: &[usize], init: Init) -> Var<'_> {
        self.inner.borrow_mut().layout.add(name, shape, init);
        self.push(
            Op::Param {
                name: name.into(),
                shape: shape.into(),
            },
            &[],
        )
    }

    /// A named f32 vector of a [`Store`](crate::Store); [`Graph::assign`] gives it a new value at the end of a run.
    pub fn state(&self, name: &str, len: usize) -> Var<'_> {
        self.push(
            Op::State {
                name: name.into(),
                len,
            },
            &[],
        )
    }

    /// At the end of a run, `value` becomes the content of the state `name`.
    pub fn assign(&self, name: &str, value: Var<'_>) {
        let value = self.push(Op::Assign { name: name.into() }, &[value.flatten()]);
        self.inner.borrow_mut().assignments.push(value.id);
    }

    /// A constant of any shape.
    pub fn full(&self, value: f32, shape: &[usize]) -> Var<'_> {
        self.push(
            Op::Const {
                bits: value.to_bits(),
                shape: shape.into(),
            },
            &[],
        )
    }

    /// A constant without axes.
    pub fn scalar(&self, value: f32) -> Var<'_> {
        self.full(value, &[])
    }

    /// Noise of a new stream: every call gives other numbers, and so does every run with another counter.
    pub fn noise(&self, distribution: Distribution, shape: &[usize]) -> Var<'_> {
        let stream = self.new_stream();
        self.noise_stream(distribution, shape, stream)
    }

    /// Noise of a given stream, for programs that must see each other's noise. Of a shard in a [group](Self::in_group)
    /// these are the elements that its rows have in the whole batch.
    pub fn noise_stream(
        &self,
        distribution: Distribution,
        shape: &[usize],
        stream: u32,
    ) -> Var<'_> {
        self.push_noise(distribution, shape, stream, self.group.is_some())
    }

    /// Noise that is the same for all shards: what is not one row an element of the batch.
    pub fn shared_noise(
        &self,
        distribution: Distribution,
        shape: &[usize],
        stream: u32,
    ) -> Var<'_> {
        self.push_noise(distribution, shape, stream, false)
    }

    fn push_noise(
        &self,
        distribution: Distribution,
        shape: &[usize],
        stream: u32,
        sharded: bool,
    ) -> Var<'_> {
        self.push(
            Op::Noise {
                distribution,
                stream,
                shape: shape.into(),
                sharded,
            },
            &[self.counter()],
        )
    }

    /// A stream number not used yet in this graph.
    pub fn new_stream(&self) -> u32 {
        let mut inner = self.inner.borrow_mut();
        inner.streams += 1;
        inner.streams - 1
    }

    /// Joins tensors along an axis.
    pub fn concat<'g>(&'g self, parts: &[Var<'g>], axis: usize) -> Var<'g> {
        self.push(Op::Concat { axis }, parts)
    }

    /// Writes each part, flattened, at its offset of one zeroed vector.
    pub fn pack<'g>(&'g self, parts: &[Var<'g>], offsets: &[usize], len: usize) -> Var<'g> {
        self.push(
            Op::Pack {
                offsets: offsets.into(),
                len,
            },
            parts,
        )
    }

    /// [`Var::all_sum`] of several tensors at once, each in its shape.
    pub fn all_sums<'g>(&'g self, parts: &[Var<'g>]) -> Vec<Var<'g>> {
        if self.group.is_none() {
            return parts.to_vec();
        }
        let flat: Vec<Var<'g>> = parts.iter().map(|part| part.flatten()).collect();
        let sum = self.concat(&flat, 0).all_sum();
        let mut end = 0;
        let slice = |part: &Var<'g>| {
            end += part.size();
            sum.slice(0, end - part.size(), part.size())
                .reshape(&part.shape())
        };
        parts.iter().map(slice).collect()
    }

    /// The parameters added so far: names, shapes, initialisers, places in the flat vector.
    pub fn layout(&self) -> Layout {
        self.inner.borrow().layout.clone()
    }

    /// All parameters added so far, in the order of the layout.
    pub fn params(&self) -> Vec<Var<'_>> {
        let layout = self.layout();
        layout
            .entries()
            .iter()
            .map(|e| self.param(&e.name, &e.shape, e.init))
            .collect()
    }

    /// The number of nodes, shared ones counted once.
    pub fn len(&self) -> usize {
        self.inner.borrow().nodes.len()
    }

    /// Whether nothing has been added yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The shape two operands share, by the usual rule: align at the right, sizes of one stretch.
fn broadcast_shape(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| {
        if i + s.len() >= rank {
            s[i + s.len() - rank]
        } else {
            1
        }
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => panic!("shapes {a:?} and {b:?} do not broadcast"),
        })
        .collect()
}

impl<'g> Var<'g> {
    pub(crate) fn id(self) -> NodeId {
        self.id
    }

    /// The graph this is a node of.
    pub fn graph(self) -> &'g Graph {
        self.graph
    }

    /// Sizes of all axes; none for a scalar.
    pub fn shape(self) -> Vec<usize> {
        self.graph.inner.borrow().nodes[self.id.index()]
            .shape
            .clone()
    }

    /// Size of one axis.
    pub fn dim(self, axis: usize) -> usize {
        self.graph.inner.borrow().nodes[self.id.index()].shape[axis]
    }

    /// The type of its elements.
    pub fn dtype(self) -> DType {
        self.graph.inner.borrow().nodes[self.id.index()].dtype
    }

    /// Number of elements.
    pub fn size(self) -> usize {
        self.shape().iter().product()
    }

    /// Whether both are the same node.
    pub fn same(self, other: Var<'_>) -> bool {
        self.id == other.id && std::ptr::eq(self.graph, other.graph)
    }

    pub(crate) fn unary(self, op: UnaryOp) -> Var<'g> {
        self.graph.push(Op::Unary(op), &[self])
    }

    pub(crate) fn binary(self, op: BinaryOp, other: Var<'g>) -> Var<'g> {
        let shape = broadcast_shape(&self.shape(), &other.shape());
        let (a, b) = (self.broadcast(&shape), other.broadcast(&shape));
        self.graph.push(Op::Binary(op), &[a, b])
    }

    /// e^x.
    pub fn exp(self) -> Var<'g> {
        self.unary(UnaryOp::Exp)
    }
    /// e^x − 1, exact near 0.
    pub fn expm1(self) -> Var<'g> {
        self.unary(UnaryOp::Expm1)
    }
    /// The natural logarithm: −∞ at 0, NaN below.
    pub fn log(self) -> Var<'g> {
        self.unary(UnaryOp::Log)
    }
    /// The absolute value; its gradient at 0 is 0.
    pub fn abs(self) -> Var<'g> {
        self.unary(UnaryOp::Abs)
    }
    /// √x.
    pub fn sqrt(self) -> Var<'g> {
        self.unary(UnaryOp::Sqrt)
    }
    /// 1 / √x.
    pub fn rsqrt(self) -> Var<'g> {
        self.unary(UnaryOp::Rsqrt)
    }
    /// 1 / x.
    pub fn recip(self) -> Var<'g> {
        self.unary(UnaryOp::Recip)
    }
    /// x · x.
    pub fn square(self) -> Var<'g> {
        self.unary(UnaryOp::Square)
    }
    /// 1 / (1 + e^−x).
    pub fn sigmoid(self) -> Var<'g> {
        self.unary(UnaryOp::Sigmoid)
    }
    /// ln(1 + e^x), without overflow for large x.
    pub fn softplus(self) -> Var<'g> {
        self.unary(UnaryOp::Softplus)
    }
    /// The hyperbolic tangent.
    pub fn tanh(self) -> Var<'g> {
        self.unary(UnaryOp::Tanh)
    }
    /// The largest integer not above x; its gradient is 0.
    pub fn floor(self) -> Var<'g> {
        self.unary(UnaryOp::Floor)
    }
    /// x above 0, e^x − 1 below.
    pub fn elu(self) -> Var<'g> {
        self.unary(UnaryOp::Elu)
    }
    /// Bytes or indices as f32.
    pub fn to_f32(self) -> Var<'g> {
        self.graph.push(Op::Cast, &[self])
    }
    /// The same value, through which no gradient flows.
    pub fn detach(self) -> Var<'g> {
        self.graph.push(Op::Detach, &[self])
    }

    /// The larger of both, element by element.
    pub fn max(self, other: Var<'g>) -> Var<'g> {
        self.binary(BinaryOp::Max, other)
    }
    /// The smaller of both, element by element.
    pub fn min(self, other: Var<'g>) -> Var<'g> {
        self.binary(BinaryOp::Min, other)
    }
    /// Limits every element to `low`..=`high`; no gradient passes where a limit holds.
    pub fn clamp(self, low: f32, high: f32) -> Var<'g> {
        self.max(self.graph.scalar(low))
            .min(self.graph.scalar(high))
    }
    /// 1 where equal, else 0.
    pub fn equal(self, other: Var<'g>) -> Var<'g> {
        self.binary(BinaryOp::Eq, other)
    }
    /// 1 where greater, else 0.
    pub fn greater(self, other: Var<'g>) -> Var<'g> {
        self.binary(BinaryOp::Gt, other)
    }
    /// `self` is a 0/1 mask: `yes` where it is not 0, else `no`.
    pub fn select(self, yes: Var<'g>, no: Var<'g>) -> Var<'g> {
        let shape = broadcast_shape(&self.shape(), &broadcast_shape(&yes.shape(), &no.shape()));
        let parts = [
            self.broadcast(&shape),
            yes.broadcast(&shape),
            no.broadcast(&shape),
        ];
        self.graph.push(Op::Select, &parts)
    }

    /// The same elements in the same order, in another shape of the same size. Costs nothing at run time.
    pub fn reshape(self, shape: &[usize]) -> Var<'g> {
        self.graph.push(
            Op::Reshape {
                shape: shape.into(),
            },
            &[self],
        )
    }
    /// All elements along one axis.
    pub fn flatten(self) -> Var<'g> {
        self.reshape(&[self.size()])
    }
    /// Stretches axes of size one (and missing leading ones) to `shape`.
    pub fn broadcast(self, shape: &[usize]) -> Var<'g> {
        let own = self.shape();
        if own == shape {
            return self;
        }
        let mut wide = vec![1; shape.len() - own.len()];
        wide.extend(own);
        self.reshape(&wide).graph.push(
            Op::Broadcast {
                shape: shape.into(),
            },
            &[self.reshape(&wide)],
        )
    }
    /// Elements `start`..`start + len` of an axis.
    pub fn slice(self, axis: usize, start: usize, len: usize) -> Var<'g> {
        self.graph.push(Op::Slice { axis, start, len }, &[self])
    }
    /// Zeros before and after along an axis.
    pub fn pad(self, axis: usize, before: usize, after: usize) -> Var<'g> {
        self.graph.push(
            Op::Pad {
                axis,
                before,
                after,
            },
            &[self],
        )
    }

    /// Reduces neighbouring axes `from..to`; they stay, with size one.
    pub fn reduce(self, op: ReduceOp, from: usize, to: usize) -> Var<'g> {
        self.graph.push(Op::Reduce { op, from, to }, &[self])
    }
    /// Sum of every element, as a scalar.
    pub fn sum(self) -> Var<'g> {
        self.reduce(ReduceOp::Sum, 0, self.shape().len())
            .reshape(&[])
    }
    /// The mean of every element, as a scalar.
    pub fn mean(self) -> Var<'g> {
        self.sum() * (1.0 / self.size() as f32)
    }
    /// Sums the axes in which `shape` has size one (or nothing): the transpose of [`Var::broadcast`].
    pub fn sum_to(self, shape: &[usize]) -> Var<'g> {
        let own = self.shape();
        let mut wide = vec![1; own.len() - shape.len()];
        wide.extend(shape);
        let mut out = self;
        // Trailing runs first: they are rows in memory.
        let mut end = own.len();
        while end > 0 {
            if wide[end - 1] == own[end - 1] {
                end -= 1;
                continue;
            }
            let mut start = end;
            while start > 0 && wide[start - 1] != own[start - 1] {
                assert_eq!(wide[start - 1], 1, "cannot sum {own:?} to {shape:?}");
                start -= 1;
            }
            out = out.reduce(ReduceOp::Sum, start, end);
            end = start;
        }
        out.reshape(shape)
    }
    /// Largest of the last axis, which stays with size one.
    pub fn max_last(self) -> Var<'g> {
        let rank = self.shape().len();
        self.reduce(ReduceOp::Max, rank - 1, rank)
    }
    /// The sum of the last axis, which stays with size one.
    pub fn sum_last(self) -> Var<'g> {
        let rank = self.shape().len();
        self.reduce(ReduceOp::Sum, rank - 1, rank)
    }
    /// log softmax over the last axis.
    pub fn log_softmax(self) -> Var<'g> {
        let shifted = self - self.max_last().detach();
        shifted - shifted.exp().sum_last().log()
    }
    /// softmax over the last axis.
    pub fn softmax(self) -> Var<'g> {
        let e = (self - self.max_last().detach()).exp();
        e / e.sum_last()
    }
    /// Index of the largest of the last axis (the first of equals), axis kept with size one.
    pub fn argmax_last(self) -> Var<'g> {
        self.graph.push(Op::ArgMax, &[self])
    }
    /// Rows of `self` [K, D] at `index` [rows, 1].
    pub fn gather(self, index: Var<'g>) -> Var<'g> {
        self.graph.push(Op::Gather, &[self, index])
    }

    /// Row r of `values` is added to row `self[r]` of a table of `rows` rows, zero at first. `self` holds indices.
    pub fn scatter_add(self, values: Var<'g>, rows: usize) -> Var<'g> {
        self.graph.push(Op::ScatterAdd { rows }, &[self, values])
    }

    /// The sum over all shards of a [group](Graph::in_group), the same in each of them; without a group, `self`.
    ///
    /// Its gradient is the identity: whoever computes a loss from such sums has the whole loss in every shard, and the
    /// gradients of what a shard adds to it are summed afterwards.
    pub fn all_sum(self) -> Var<'g> {
        self.sum_over_shards(false)
    }

    /// The same, of which GPUs may tell each other in bf16 where `bf16` is set: half the bytes, rounded.
    pub fn sum_over_shards(self, bf16: bool) -> Var<'g> {
        match self.graph.group {
            Some(_) => self.graph.push(Op::AllSum { bf16 }, &[self]),
            None => self,
        }
    }

    /// Matrix product; each side may be read transposed.
    pub fn matmul(self, other: Var<'g>, ta: bool, tb: bool) -> Var<'g> {
        self.graph.push(Op::Matmul { ta, tb }, &[self, other])
    }
    /// Convolution of an NHWC map with a [kh, kw, in, out] kernel, zero padding (k − 1) / 2.
    pub fn conv(self, kernel: Var<'g>, stride: usize) -> Var<'g> {
        let pad = (kernel.dim(0) - 1) / 2;
        self.conv_forth(kernel, Window::new(stride, pad))
    }
    /// Convolution without padding: only where the whole kernel lies on the map.
    pub fn conv_valid(self, kernel: Var<'g>, stride: usize) -> Var<'g> {
        self.conv_forth(kernel, Window::new(stride, 0))
    }
    pub(crate) fn conv_forth(self, kernel: Var<'g>, window: Window) -> Var<'g> {
        self.graph.push(Op::Conv { window }, &[self, kernel])
    }
    /// Transposed convolution with a [kh, kw, out, in] kernel: the data gradient of a convolution that would
    /// take a map of `height` × `width` to this one.
    pub fn conv_transposed(
        self,
        kernel: Var<'g>,
        stride: usize,
        height: usize,
        width: usize,
    ) -> Var<'g> {
        let pad = (kernel.dim(0) - 1) / 2;
        self.conv_back(kernel, Window::new(stride, pad), height, width)
    }
    pub(crate) fn conv_back(
        self,
        kernel: Var<'g>,
        window: Window,
        height: usize,
        width: usize,
    ) -> Var<'g> {
        let op = Op::ConvGradInput {
            window,
            height,
            width,
        };
        self.graph.push(op, &[self, kernel])
    }
    /// Repeats the border of a map outwards, `by` pixels on every side.
    pub fn edge_pad(self, by: usize) -> Var<'g> {
        self.graph.push(Op::EdgePad { by }, &[self])
    }
    /// Nearest-neighbour growth by a whole factor.
    pub fn upsample(self, factor: usize) -> Var<'g> {
        self.graph.push(Op::Upsample { factor }, &[self])
    }
    /// Average over factor × factor tiles.
    pub fn avg_pool(self, factor: usize) -> Var<'g> {
        self.graph.push(Op::SumPool { factor }, &[self]) * (1.0 / (factor * factor) as f32)
    }
    pub(crate) fn part(self, index: usize, shape: &[usize], dtype: DType) -> Var<'g> {
        self.graph.push(
            Op::Part {
                index,
                shape: shape.into(),
                dtype,
            },
            &[self],
        )
    }
    /// [n, h, w, c] to [n, h / f, w / f, f · f · c].
    pub fn space_to_depth(self, factor: usize) -> Var<'g> {
        self.graph.push(Op::SpaceToDepth { factor }, &[self])
    }
    /// [n, h, w, f · f · c] to [n, h · f, w · f, c].
    pub fn depth_to_space(self, factor: usize) -> Var<'g> {
        self.graph.push(Op::DepthToSpace { factor }, &[self])
    }
    /// A matrix with its rows as columns.
    pub fn transpose(self) -> Var<'g> {
        self.graph.push(Op::Transpose, &[self])
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:expr) => {
        impl<'g> std::ops::$trait for Var<'g> {
            type Output = Var<'g>;
            fn $method(self, other: Var<'g>) -> Var<'g> {
                self.binary($op, other)
            }
        }
        impl<'g> std::ops::$trait<f32> for Var<'g> {
            type Output = Var<'g>;
            fn $method(self, other: f32) -> Var<'g> {
                self.binary($op, self.graph.scalar(other))
            }
        }
        impl<'g> std::ops::$trait<Var<'g>> for f32 {
            type Output = Var<'g>;
            fn $method(self, other: Var<'g>) -> Var<'g> {
                other.graph.scalar(self).binary($op, other)
            }
        }
    };
}
operator!(Add, add, BinaryOp::Add);
operator!(Sub, sub, BinaryOp::Sub);
operator!(Mul, mul, BinaryOp::Mul);
operator!(Div, div, BinaryOp::Div);

impl<'g> std::ops::Neg for Var<'g> {
    type Output = Var<'g>;
    fn neg(self) -> Var<'g> {
        self.unary(UnaryOp::Neg)
    }
}
