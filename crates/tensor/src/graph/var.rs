//! What can be done with a [`Var`]: each method adds a node to its graph.

use super::{DType, Graph, NodeId, Var};
use crate::op::{BinaryOp, Op, ReduceOp, UnaryOp, Window};

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

    /// Matrix product, or the products of as many pairs of matrices as two tensors of rank 3 have; each side may be read
    /// transposed.
    pub fn matmul(self, other: Var<'g>, ta: bool, tb: bool) -> Var<'g> {
        let tf32 = false;
        self.graph.push(Op::Matmul { ta, tb, tf32 }, &[self, other])
    }

    /// The same where three digits will do: a GPU that computes in bf16 rounds the factors to TF32.
    pub fn matmul_tf32(self, other: Var<'g>, ta: bool, tb: bool) -> Var<'g> {
        let tf32 = true;
        self.graph.push(Op::Matmul { ta, tb, tf32 }, &[self, other])
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
