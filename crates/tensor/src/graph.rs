//! The graph a model is built in, and the [`Var`]s a model author writes with.
//!
//! Building costs nothing at run time: every method here adds a node and works out its shape. Gradients
//! ([`crate::grad`]) are nodes of the same graph; the compiler then decides fusion, order and memory once, and a
//! device runs the result many times.
//!
//! A node is its operation and its inputs, so the same expression written twice is one node: common subexpressions
//! are shared while the graph is built, not searched for afterwards.

mod var;

use crate::group::Group;
use crate::op::Op;
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
