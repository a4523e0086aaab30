//! Rewrites applied while a graph is built: what a node can be replaced with before it exists.
//!
//! Kept to rules that never change a result's bits by more than the algebra says: identities, constants of
//! scalars, chains of views. Everything else is left to fusion.

use crate::graph::{Graph, NodeId, Var};
use crate::op::{BinaryOp, Op, UnaryOp};

/// A node that already says the same, or a simpler way to compute it.
pub(crate) fn rewrite<'g>(g: &'g Graph, op: &Op, inputs: &[NodeId]) -> Option<Var<'g>> {
    let var = |i: usize| g.var(inputs[i]);
    match op {
        Op::Reshape { shape } => {
            if var(0).shape() == *shape {
                return Some(var(0));
            }
            match op_of(g, inputs[0]) {
                Op::Reshape { .. } => Some(g.var(input_of(g, inputs[0])).reshape(shape)),
                Op::Const { bits, .. } => Some(g.full(f32::from_bits(bits), shape)),
                _ => None,
            }
        }
        Op::Broadcast { shape } => match op_of(g, inputs[0]) {
            Op::Const { bits, .. } => Some(g.full(f32::from_bits(bits), shape)),
            Op::Broadcast { .. } => Some(g.var(input_of(g, inputs[0])).broadcast(shape)),
            _ if var(0).shape() == *shape => Some(var(0)),
            _ => None,
        },
        Op::Slice { axis, start, len } if *start == 0 && var(0).dim(*axis) == *len => Some(var(0)),
        Op::Pad {
            before: 0,
            after: 0,
            ..
        } => Some(var(0)),
        Op::Upsample { factor: 1 } | Op::SumPool { factor: 1 } => Some(var(0)),
        Op::SpaceToDepth { factor: 1 } | Op::DepthToSpace { factor: 1 } => Some(var(0)),
        Op::Concat { .. } if inputs.len() == 1 => Some(var(0)),
        Op::Reduce { from, to, .. } if var(0).shape()[*from..*to].iter().all(|&d| d == 1) => {
            Some(var(0))
        }
        Op::Detach if constant(g, inputs[0]).is_some() => Some(var(0)),
        Op::Unary(op) => unary(g, *op, inputs[0]),
        Op::Binary(op) => binary(g, *op, inputs[0], inputs[1]),
        _ => None,
    }
}

fn op_of(g: &Graph, id: NodeId) -> Op {
    g.inner().nodes[id.index()].op.clone()
}

fn input_of(g: &Graph, id: NodeId) -> NodeId {
    g.inner().nodes[id.index()].inputs[0]
}

/// The value of a constant node.
fn constant(g: &Graph, id: NodeId) -> Option<f32> {
    match &g.inner().nodes[id.index()].op {
        Op::Const { bits, .. } => Some(f32::from_bits(*bits)),
        _ => None,
    }
}

fn unary<'g>(g: &'g Graph, op: UnaryOp, x: NodeId) -> Option<Var<'g>> {
    let var = g.var(x);
    if let Some(c) = constant(g, x) {
        // Only exact operations: the device's own exp and log decide the rest.
        let value = match op {
            UnaryOp::Neg => -c,
            UnaryOp::Abs => c.abs(),
            UnaryOp::Square => c * c,
            UnaryOp::Recip => 1.0 / c,
            _ => return None,
        };
        return Some(g.full(value, &var.shape()));
    }
    match (op, op_of(g, x)) {
        (UnaryOp::Neg, Op::Unary(UnaryOp::Neg)) => Some(g.var(input_of(g, x))),
        _ => None,
    }
}

fn binary<'g>(g: &'g Graph, op: BinaryOp, a: NodeId, b: NodeId) -> Option<Var<'g>> {
    let (va, vb) = (g.var(a), g.var(b));
    match (op, constant(g, a), constant(g, b)) {
        (_, Some(x), Some(y)) => {
            let value = match op {
                BinaryOp::Add => x + y,
                BinaryOp::Sub => x - y,
                BinaryOp::Mul => x * y,
                BinaryOp::Div => x / y,
                BinaryOp::Max => {
                    if x > y {
                        x
                    } else {
                        y
                    }
                }
                BinaryOp::Min => {
                    if x < y {
                        x
                    } else {
                        y
                    }
                }
                BinaryOp::Eq => (x == y) as u8 as f32,
                BinaryOp::Gt => (x > y) as u8 as f32,
            };
            Some(g.full(value, &va.shape()))
        }
        (BinaryOp::Add, Some(0.0), _) | (BinaryOp::Mul, Some(1.0), _) => Some(vb),
        (BinaryOp::Add | BinaryOp::Sub, _, Some(0.0)) => Some(va),
        (BinaryOp::Mul | BinaryOp::Div, _, Some(1.0)) => Some(va),
        (BinaryOp::Mul, _, Some(-1.0)) => Some(-va),
        (BinaryOp::Mul, Some(0.0), _) | (BinaryOp::Mul, _, Some(0.0)) => {
            Some(g.full(0.0, &va.shape()))
        }
        // (x · c) · d = x · (c · d): scalars gather in one place.
        (BinaryOp::Mul, None, Some(d)) => match op_of(g, a) {
            Op::Binary(BinaryOp::Mul) => {
                let inner = g.inner().nodes[a.index()].inputs.clone();
                constant(g, inner[1]).map(|c| g.var(inner[0]) * (c * d))
            }
            _ => None,
        },
        (BinaryOp::Mul, Some(_), None) => Some(vb * va),
        (BinaryOp::Add, _, _) => match (op_of(g, a), op_of(g, b)) {
            (_, Op::Unary(UnaryOp::Neg)) => Some(va - g.var(input_of(g, b))),
            (Op::Unary(UnaryOp::Neg), _) => Some(vb - g.var(input_of(g, a))),
            _ => None,
        },
        _ => None,
    }
}
