//! Every operation in one enum: the shape it gives and the gradient it has, side by side.
//!
//! Adding an operation means: a variant, an arm in [`Op::result`], an arm in [`Op::gradient`], a home in
//! `compile` (an element-wise instruction, or a kernel of its own), and a line in the finite-difference test.
//!
//! The set is closed under differentiation where that is cheap to have: the three convolution operations are
//! each other's gradients, so a transposed convolution is just the data gradient used forwards.

use crate::graph::{DType, Node, Var};
pub use crate::product::MatrixProduct;
use crate::rng::Distribution;

/// Element-wise, one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    Neg,
    Abs,
    Exp,
    Expm1,
    Log,
    Sqrt,
    Rsqrt,
    Recip,
    Square,
    Sigmoid,
    Softplus,
    Tanh,
    Floor,
    Elu,
    /// ELU's derivative from ELU's *output*: 1 above 0, y + 1 below. Inputs of an ELU need not be kept.
    EluSlope,
}

/// Element-wise, two operands of one shape. Comparisons give 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Eq,
    Gt,
}

/// What [`Var::reduce`] computes over axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum, through one fixed tree.
    Sum,
    /// The largest element.
    Max,
}

/// How a kernel moves over a map: its steps, the zeros around the map, and how the kernel itself lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    pub stride: usize,
    pub pad: usize,
    pub filter: Filter,
}

/// The order of a kernel's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// [height, width, inputs, outputs]: the order models are built with.
    #[default]
    Hwio,
    /// [outputs, height, width, inputs]: the order a target may ask for.
    Ohwi,
}

/// What a sample of the responsibilities is, and which gradient flows back through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleMode {
    /// Forward the mean of the drawn code, backward the gradient of the Gumbel-softmax mixture.
    StraightThrough,
    /// The Gumbel-softmax mixture of code means, forward and backward.
    Relaxed,
    /// Forward the mean of the drawn code, backward a gradient of second order (Liu et al. 2023).
    ReinMax,
}

/// How the fused responsibility operation treats a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponsibilityOp {
    pub mode: SampleMode,
    /// Stream of the Gumbel noise.
    pub stream: u32,
    /// Whether the last input is the prior's embedding; without one the prior is uniform.
    pub prior: bool,
    /// Whether the noise is that of a shard's rows in the whole batch.
    pub sharded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Input {
        name: String,
        shape: Vec<usize>,
        dtype: DType,
    },
    Param {
        name: String,
        shape: Vec<usize>,
    },
    State {
        name: String,
        len: usize,
    },
    Const {
        bits: u32,
        shape: Vec<usize>,
    },
    Noise {
        distribution: Distribution,
        stream: u32,
        shape: Vec<usize>,
        /// Whether these are the elements of a shard's rows in the whole batch.
        sharded: bool,
    },

    Unary(UnaryOp),
    Binary(BinaryOp),
    Select,
    Cast,
    Detach,
    /// The value a state gets at the end of the run.
    Assign {
        name: String,
    },

    Reshape {
        shape: Vec<usize>,
    },
    Broadcast {
        shape: Vec<usize>,
    },
    Slice {
        axis: usize,
        start: usize,
        len: usize,
    },
    Pad {
        axis: usize,
        before: usize,
        after: usize,
    },
    Concat {
        axis: usize,
    },
    Pack {
        offsets: Vec<usize>,
        len: usize,
    },
    Upsample {
        factor: usize,
    },
    SumPool {
        factor: usize,
    },
    /// Repeats the border of a map outwards.
    EdgePad {
        by: usize,
    },
    /// Adds what lies around a map to its border: the transpose of `EdgePad`.
    EdgeFold {
        by: usize,
    },
    SpaceToDepth {
        factor: usize,
    },
    DepthToSpace {
        factor: usize,
    },
    /// Rows of a matrix become columns.
    Transpose,

    Reduce {
        op: ReduceOp,
        from: usize,
        to: usize,
    },
    ArgMax,
    /// Over all shards of a group; what a GPU sends may be rounded.
    AllSum {
        bf16: bool,
    },
    Gather,
    ScatterAdd {
        rows: usize,
    },

    /// Of two matrices, or of as many pairs as two tensors of rank 3 have.
    Matmul {
        ta: bool,
        tb: bool,
        /// Whether a GPU may round the factors to TF32.
        tf32: bool,
    },
    Conv {
        window: Window,
    },
    ConvGradInput {
        window: Window,
        height: usize,
        width: usize,
    },
    ConvGradWeight {
        window: Window,
        kh: usize,
        kw: usize,
    },

    /// counter, tau, noise scale, e_q, mu, logvar[, e_p] → z; parts 1 and 2 are the indices and the KL.
    Responsibility(ResponsibilityOp),
    /// The same inputs, dz, dkl → d e_q; parts 1, 2, 3 are d mu, d logvar, d e_p.
    ResponsibilityGrad(ResponsibilityOp),
    /// A further result of a node with several.
    Part {
        index: usize,
        shape: Vec<usize>,
        dtype: DType,
    },
}

impl Window {
    pub fn new(stride: usize, pad: usize) -> Self {
        Window {
            stride,
            pad,
            filter: Filter::Hwio,
        }
    }

    /// Output size of a convolution along one axis.
    pub fn out(self, size: usize, kernel: usize) -> usize {
        (size + 2 * self.pad - kernel) / self.stride + 1
    }

    /// Height, width, inputs and outputs of a kernel of this shape.
    pub fn kernel(self, shape: &[usize]) -> [usize; 4] {
        match self.filter {
            Filter::Hwio => [shape[0], shape[1], shape[2], shape[3]],
            Filter::Ohwi => [shape[1], shape[2], shape[3], shape[0]],
        }
    }

    /// The shape of a kernel.
    pub fn kernel_shape(self, [kh, kw, ci, co]: [usize; 4]) -> [usize; 4] {
        match self.filter {
            Filter::Hwio => [kh, kw, ci, co],
            Filter::Ohwi => [co, kh, kw, ci],
        }
    }
}

impl Op {
    /// Shape and type of the result.
    pub fn result(&self, inputs: &[&Node]) -> (Vec<usize>, DType) {
        let shape = |i: usize| -> &[usize] { &inputs[i].shape };
        let maps = |i: usize| -> [usize; 4] {
            let s = shape(i);
            s.try_into()
                .unwrap_or_else(|_| panic!("{self:?} wants a rank 4 tensor, not {s:?}"))
        };
        let f32s = |s: Vec<usize>| (s, DType::F32);
        match self {
            Op::Input { shape, dtype, .. } => (shape.clone(), *dtype),
            Op::Param { shape, .. } | Op::Const { shape, .. } | Op::Noise { shape, .. } => {
                f32s(shape.clone())
            }
            Op::State { len, .. } => f32s(vec![*len]),
            Op::Unary(_) | Op::Cast | Op::Assign { .. } | Op::AllSum { .. } => {
                f32s(shape(0).to_vec())
            }
            Op::Detach => (shape(0).to_vec(), inputs[0].dtype),
            Op::Binary(_) => {
                assert_eq!(shape(0), shape(1), "{self:?}");
                f32s(shape(0).to_vec())
            }
            Op::Select => {
                assert!(shape(0) == shape(1) && shape(1) == shape(2), "{self:?}");
                f32s(shape(0).to_vec())
            }
            Op::Reshape { shape: to } => {
                let (from, count) = (shape(0), to.iter().product::<usize>());
                assert_eq!(inputs[0].len(), count, "reshape {from:?} to {to:?}");
                (to.clone(), inputs[0].dtype)
            }
            Op::Broadcast { shape: to } => {
                let from = shape(0);
                let fits =
                    from.len() == to.len() && from.iter().zip(to).all(|(&a, &b)| a == b || a == 1);
                assert!(fits, "broadcast {from:?} to {to:?}");
                f32s(to.clone())
            }
            Op::Slice { axis, start, len } => {
                let mut s = shape(0).to_vec();
                assert!(start + len <= s[*axis], "{self:?} of {s:?}");
                s[*axis] = *len;
                (s, inputs[0].dtype)
            }
            Op::Pad {
                axis,
                before,
                after,
            } => {
                let mut s = shape(0).to_vec();
                s[*axis] += before + after;
                f32s(s)
            }
            Op::Concat { axis } => {
                let mut s = shape(0).to_vec();
                s[*axis] = inputs.iter().map(|n| n.shape[*axis]).sum();
                for n in inputs {
                    let same = n
                        .shape
                        .iter()
                        .zip(&s)
                        .enumerate()
                        .all(|(i, (a, b))| i == *axis || a == b);
                    assert!(
                        same && n.shape.len() == s.len(),
                        "{self:?} of {:?}",
                        n.shape
                    );
                }
                f32s(s)
            }
            Op::Pack { offsets, len } => {
                assert_eq!(offsets.len(), inputs.len());
                assert!(
                    inputs.iter().zip(offsets).all(|(n, o)| o + n.len() <= *len),
                    "pack does not fit"
                );
                f32s(vec![*len])
            }
            Op::Upsample { factor } => {
                let [n, h, w, c] = maps(0);
                f32s(vec![n, h * factor, w * factor, c])
            }
            Op::SumPool { factor } => {
                let [n, h, w, c] = maps(0);
                assert!(
                    h % factor == 0 && w % factor == 0,
                    "{self:?} of {:?}",
                    shape(0)
                );
                f32s(vec![n, h / factor, w / factor, c])
            }
            Op::EdgePad { by } => {
                let [n, h, w, c] = maps(0);
                f32s(vec![n, h + 2 * by, w + 2 * by, c])
            }
            Op::EdgeFold { by } => {
                let [n, h, w, c] = maps(0);
                assert!(h > 2 * by && w > 2 * by, "{self:?} of {:?}", shape(0));
                f32s(vec![n, h - 2 * by, w - 2 * by, c])
            }
            Op::SpaceToDepth { factor } => {
                let [n, h, w, c] = maps(0);
                assert!(
                    h % factor == 0 && w % factor == 0,
                    "{self:?} of {:?}",
                    shape(0)
                );
                f32s(vec![n, h / factor, w / factor, c * factor * factor])
            }
            Op::DepthToSpace { factor } => {
                let [n, h, w, c] = maps(0);
                assert!(c % (factor * factor) == 0, "{self:?} of {:?}", shape(0));
                f32s(vec![n, h * factor, w * factor, c / (factor * factor)])
            }
            Op::Transpose => {
                assert_eq!(shape(0).len(), 2, "{self:?} of {:?}", shape(0));
                f32s(vec![shape(0)[1], shape(0)[0]])
            }
            Op::Reduce { from, to, .. } => {
                let mut s = shape(0).to_vec();
                s[*from..*to].fill(1);
                f32s(s)
            }
            Op::ArgMax => {
                let mut s = shape(0).to_vec();
                *s.last_mut().expect("argmax needs an axis") = 1;
                (s, DType::U32)
            }
            Op::Gather => {
                assert!(
                    shape(0).len() == 2 && shape(1).len() == 2 && shape(1)[1] == 1,
                    "{self:?}"
                );
                f32s(vec![shape(1)[0], shape(0)[1]])
            }
            Op::ScatterAdd { rows } => f32s(vec![*rows, shape(1)[1]]),
            Op::Matmul { ta, tb, .. } => {
                let product = MatrixProduct::of(shape(0), shape(1), *ta, *tb);
                let MatrixProduct { m, n, .. } = product;
                let pairs = &shape(0)[..shape(0).len() - 2];
                f32s([pairs, &[m, n]].concat())
            }
            Op::Conv { window } => {
                let ([n, h, w, c], [kh, kw, ci, co]) = (maps(0), window.kernel(&maps(1)));
                assert_eq!(c, ci, "convolution of {:?} with {:?}", shape(0), shape(1));
                f32s(vec![n, window.out(h, kh), window.out(w, kw), co])
            }
            Op::ConvGradInput {
                window,
                height,
                width,
            } => {
                let ([n, h, w, c], [kh, kw, ci, co]) = (maps(0), window.kernel(&maps(1)));
                let back = [window.out(*height, kh), window.out(*width, kw), co];
                assert_eq!(
                    [h, w, c],
                    back,
                    "transposed convolution of {:?} with {:?}",
                    shape(0),
                    shape(1)
                );
                f32s(vec![n, *height, *width, ci])
            }
            Op::ConvGradWeight { window, kh, kw } => {
                let kernel = [*kh, *kw, maps(0)[3], maps(1)[3]];
                f32s(window.kernel_shape(kernel).to_vec())
            }
            Op::Responsibility(r) => {
                let (e, mu) = (shape(3), shape(4));
                assert!(
                    e.len() == 2 && mu.len() == 2 && e[1] == mu[1],
                    "{self:?} of {e:?} and {mu:?}"
                );
                assert_eq!(mu, shape(5), "codebook means and log-variances");
                assert!(!r.prior || shape(6) == e, "embeddings of p and q");
                f32s(e.to_vec())
            }
            Op::ResponsibilityGrad(_) => f32s(shape(3).to_vec()),
            Op::Part { shape, dtype, .. } => (shape.clone(), *dtype),
        }
    }
}

/// A gradient that may be nothing.
pub type Adjoint<'g> = Option<Var<'g>>;

impl Op {
    /// What each input receives, given what the results received (`dy[0]` for the node itself, the others for
    /// its further parts). Inputs without a gradient get `None`.
    pub fn gradient<'g>(&self, x: &[Var<'g>], y: Var<'g>, dy: &[Adjoint<'g>]) -> Vec<Adjoint<'g>> {
        if let Op::Responsibility(r) = self {
            return responsibility_gradient(*r, x, y, dy);
        }
        let Some(d) = dy[0] else {
            return vec![None; x.len()];
        };
        let g = y.graph();
        let some = |v: Var<'g>| vec![Some(v)];
        match self {
            Op::Input { .. } | Op::Param { .. } | Op::State { .. } | Op::Const { .. } => vec![],
            Op::Noise { .. } | Op::Cast | Op::Detach | Op::ArgMax | Op::Assign { .. } => vec![None],
            Op::Unary(op) => match op {
                UnaryOp::Neg => some(-d),
                UnaryOp::Abs => {
                    let sign = x[0].greater(g.scalar(0.0)) - g.scalar(0.0).greater(x[0]);
                    some(d * sign)
                }
                UnaryOp::Exp => some(d * y),
                UnaryOp::Expm1 => some(d * (y + 1.0)),
                UnaryOp::Log => some(d / x[0]),
                UnaryOp::Sqrt => some(d * 0.5 / y),
                UnaryOp::Rsqrt => some(d * -0.5 * y * y * y),
                UnaryOp::Recip => some(-(d * y * y)),
                UnaryOp::Square => some(d * 2.0 * x[0]),
                UnaryOp::Sigmoid => some(d * y * (1.0 - y)),
                UnaryOp::Softplus => some(d * x[0].sigmoid()),
                UnaryOp::Tanh => some(d * (1.0 - y.square())),
                UnaryOp::Floor => vec![None],
                UnaryOp::Elu => some(d * y.unary(UnaryOp::EluSlope)),
                UnaryOp::EluSlope => some(d * g.scalar(0.0).greater(x[0])),
            },
            Op::Binary(op) => {
                let (a, b) = (x[0], x[1]);
                match op {
                    BinaryOp::Add => vec![Some(d), Some(d)],
                    BinaryOp::Sub => vec![Some(d), Some(-d)],
                    BinaryOp::Mul => vec![Some(d * b), Some(d * a)],
                    BinaryOp::Div => vec![Some(d / b), Some(-(d * y / b))],
                    // On a tie the whole gradient goes to the second operand, as the forward pass takes it.
                    BinaryOp::Max => vec![Some(d * a.greater(b)), Some(d * (1.0 - a.greater(b)))],
                    BinaryOp::Min => vec![Some(d * b.greater(a)), Some(d * (1.0 - b.greater(a)))],
                    BinaryOp::Eq | BinaryOp::Gt => vec![None, None],
                }
            }
            Op::Select => {
                let zero = g.scalar(0.0);
                vec![None, Some(x[0].select(d, zero)), Some(x[0].select(zero, d))]
            }
            Op::AllSum { .. } => some(d),
            Op::Reshape { .. } => some(d.reshape(&x[0].shape())),
            Op::Broadcast { .. } => some(d.sum_to(&x[0].shape())),
            Op::Slice { axis, start, len } => {
                some(d.pad(*axis, *start, x[0].dim(*axis) - start - len))
            }
            Op::Pad { axis, before, .. } => some(d.slice(*axis, *before, x[0].dim(*axis))),
            Op::Concat { axis } => {
                let mut start = 0;
                x.iter()
                    .map(|part| {
                        let len = part.dim(*axis);
                        start += len;
                        Some(d.slice(*axis, start - len, len))
                    })
                    .collect()
            }
            Op::Pack { offsets, .. } => x
                .iter()
                .zip(offsets)
                .map(|(part, &at)| Some(d.slice(0, at, part.size()).reshape(&part.shape())))
                .collect(),
            Op::Upsample { factor } => some(g.push(Op::SumPool { factor: *factor }, &[d])),
            Op::SumPool { factor } => some(d.upsample(*factor)),
            Op::EdgePad { by } => some(g.push(Op::EdgeFold { by: *by }, &[d])),
            Op::EdgeFold { by } => some(d.edge_pad(*by)),
            Op::SpaceToDepth { factor } => some(d.depth_to_space(*factor)),
            Op::DepthToSpace { factor } => some(d.space_to_depth(*factor)),
            Op::Transpose => some(d.transpose()),
            Op::Reduce {
                op: ReduceOp::Sum, ..
            } => some(d.broadcast(&x[0].shape())),
            Op::Reduce {
                op: ReduceOp::Max, ..
            } => some(d * x[0].equal(y)),
            Op::Gather => vec![
                Some(g.push(Op::ScatterAdd { rows: x[0].dim(0) }, &[x[1], d])),
                None,
            ],
            Op::ScatterAdd { .. } => vec![None, Some(d.gather(x[0]))],
            Op::Matmul { ta, tb, .. } => {
                let (a, b) = (x[0], x[1]);
                let da = if *ta {
                    b.matmul(d, *tb, true)
                } else {
                    d.matmul(b, false, !tb)
                };
                let db = if *tb {
                    d.matmul(a, true, *ta)
                } else {
                    a.matmul(d, !ta, false)
                };
                vec![Some(da), Some(db)]
            }
            Op::Conv { window } => {
                let (map, kernel) = (x[0], x[1]);
                let dx = d.conv_back(kernel, *window, map.dim(1), map.dim(2));
                vec![Some(dx), Some(conv_grad_weight(map, d, kernel, *window))]
            }
            Op::ConvGradInput { window, .. } => {
                let (map, kernel) = (x[0], x[1]);
                vec![
                    Some(d.conv_forth(kernel, *window)),
                    Some(conv_grad_weight(d, map, kernel, *window)),
                ]
            }
            Op::ConvGradWeight { window, .. } => {
                let (map, dy) = (x[0], x[1]);
                let dmap = dy.conv_back(d, *window, map.dim(1), map.dim(2));
                vec![Some(dmap), Some(map.conv_forth(d, *window))]
            }
            Op::Part { .. } | Op::Responsibility(_) => unreachable!("handled with its parent"),
            Op::ResponsibilityGrad(_) => panic!("the responsibility has no second derivative"),
        }
    }
}

fn conv_grad_weight<'g>(map: Var<'g>, dy: Var<'g>, kernel: Var<'g>, window: Window) -> Var<'g> {
    let [kh, kw, ..] = window.kernel(&kernel.shape());
    let op = Op::ConvGradWeight { window, kh, kw };
    map.graph().push(op, &[map, dy])
}

fn responsibility_gradient<'g>(
    r: ResponsibilityOp,
    x: &[Var<'g>],
    y: Var<'g>,
    dy: &[Adjoint<'g>],
) -> Vec<Adjoint<'g>> {
    let g = y.graph();
    let rows = y.dim(0);
    if dy.iter().all(Option::is_none) {
        return vec![None; x.len()];
    }
    let dz = dy[0].unwrap_or_else(|| g.full(0.0, &y.shape()));
    let dkl = dy
        .get(2)
        .copied()
        .flatten()
        .unwrap_or_else(|| g.full(0.0, &[rows, 1]));
    let mut inputs = x.to_vec();
    inputs.extend([dz, dkl]);
    let d_e_q = g.push(Op::ResponsibilityGrad(r), &inputs);
    let mut out = vec![None, None, None, Some(d_e_q)];
    for (index, input) in (1..).zip(&x[4..]) {
        out.push(Some(d_e_q.part(index, &input.shape(), DType::F32)));
    }
    out
}

/// The results of [`Embeddings::sample`].
#[derive(Clone, Copy)]
pub struct Sampled<'g> {
    /// Means of the chosen codes, [rows, d_e].
    pub z: Var<'g>,
    /// The chosen codes, [rows, 1].
    pub index: Var<'g>,
    /// KL(q ‖ p) of each row in nats, [rows, 1].
    pub kl: Var<'g>,
}

/// Inputs of the fused responsibility (the paper's eq. rr_q and rr_p): the one operation of a domain in this crate. It
/// chooses one of K codes for every row, with the responsibilities of a mixture of Gaussians as probabilities, and gives
/// the chosen code's mean and the KL between posterior and prior. No tensor with an axis of K is stored, neither forward
/// nor backward.
pub struct Embeddings<'g> {
    /// Posterior embeddings, [rows, d_e].
    pub e_q: Var<'g>,
    /// Prior embeddings; a uniform prior without them.
    pub e_p: Option<Var<'g>>,
    /// Codebook means, [K, d_e].
    pub mu: Var<'g>,
    /// Codebook log-variances, [K, d_e].
    pub logvar: Var<'g>,
    /// Temperature of the Gumbel-softmax, or of ReinMax's softmax without noise.
    pub tau: Var<'g>,
    /// 1 samples, 0 takes the mode, between them is a sharpened sample.
    pub noise_scale: Var<'g>,
}

impl<'g> Embeddings<'g> {
    /// Adds the operation. `mode` decides the sample and its gradient, `stream` addresses its Gumbel noise
    /// ([`Graph::new_stream`](crate::Graph::new_stream)).
    pub fn sample(&self, mode: SampleMode, stream: u32) -> Sampled<'g> {
        let g = self.e_q.graph();
        let op = ResponsibilityOp {
            mode,
            stream,
            prior: self.e_p.is_some(),
            sharded: g.group().is_some(),
        };
        let mut inputs = vec![
            g.counter(),
            self.tau,
            self.noise_scale,
            self.e_q,
            self.mu,
            self.logvar,
        ];
        inputs.extend(self.e_p);
        let z = g.push(Op::Responsibility(op), &inputs);
        let rows = z.dim(0);
        Sampled {
            z,
            index: z.part(1, &[rows, 1], DType::U32),
            kl: z.part(2, &[rows, 1], DType::F32),
        }
    }
}
