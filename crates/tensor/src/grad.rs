//! Reverse mode: graph in, graph out.
//!
//! Walks the nodes a loss depends on from last to first and adds, for each, what its inputs receive
//! ([`Op::gradient`]). The gradient is ordinary nodes: it is fused, planned and run like the rest, and
//! can be differentiated again where the operations allow it.

use crate::graph::{Graph, NodeId, Var};
use crate::op::Op;
use std::collections::HashMap;

/// Gradients of the scalar `loss` with respect to each of `wrt`. A variable the loss does not depend on gets zeros.
///
/// ```
/// use rrvq_tensor::{DType, Graph, grad};
/// let g = Graph::new();
/// let x = g.input("x", &[3], DType::F32);
/// let dx = grad(x.square().sum(), &[x]);
/// assert_eq!(dx[0].shape(), vec![3]);
/// ```
pub fn grad<'g>(loss: Var<'g>, wrt: &[Var<'g>]) -> Vec<Var<'g>> {
    assert_eq!(
        loss.size(),
        1,
        "a gradient starts at a scalar, not at {:?}",
        loss.shape()
    );
    let g = loss.graph();
    let needed = leads_to(g, loss.id(), wrt);
    let mut adjoints: HashMap<NodeId, Vec<Option<Var<'g>>>> = HashMap::new();
    adjoints.insert(loss.id(), vec![Some(g.full(1.0, &loss.shape()))]);
    for index in (0..=loss.id().index()).rev() {
        let id = NodeId(index as u32);
        if !needed[index] || wrt.iter().any(|v| v.id() == id) {
            continue;
        }
        let Some(dy) = adjoints.remove(&id) else {
            continue;
        };
        let (op, inputs) = {
            let inner = g.inner();
            (
                inner.nodes[index].op.clone(),
                inner.nodes[index].inputs.clone(),
            )
        };
        if let Op::Part { index: part, .. } = op {
            // A further result hands its gradient to the node that made it.
            accumulate(&mut adjoints, inputs[0], part, dy[0]);
            continue;
        }
        let x: Vec<Var<'g>> = inputs.iter().map(|&i| g.var(i)).collect();
        for (input, d) in inputs.iter().zip(op.gradient(&x, g.var(id), &dy)) {
            if needed[input.index()] {
                accumulate(&mut adjoints, *input, 0, d);
            }
        }
    }
    wrt.iter()
        .map(|v| match adjoints.get(&v.id()).and_then(|d| d[0]) {
            Some(d) => d,
            None => g.full(0.0, &v.shape()),
        })
        .collect()
}

fn accumulate<'g>(
    adjoints: &mut HashMap<NodeId, Vec<Option<Var<'g>>>>,
    id: NodeId,
    part: usize,
    d: Option<Var<'g>>,
) {
    let Some(d) = d else { return };
    let slots = adjoints.entry(id).or_insert_with(|| vec![None]);
    if slots.len() <= part {
        slots.resize(part + 1, None);
    }
    slots[part] = Some(match slots[part] {
        Some(sum) => sum + d,
        None => d,
    });
}

/// For every node up to `loss`: whether it depends on one of `wrt`, so that a gradient must pass it.
fn leads_to(g: &Graph, loss: NodeId, wrt: &[Var<'_>]) -> Vec<bool> {
    let inner = g.inner();
    let mut needed = vec![false; loss.index() + 1];
    for v in wrt {
        if v.id().index() < needed.len() {
            needed[v.id().index()] = true;
        }
    }
    for index in 0..needed.len() {
        let node = &inner.nodes[index];
        let cut = matches!(node.op, Op::Detach | Op::ArgMax | Op::Cast);
        needed[index] |= !cut && node.inputs.iter().any(|i| needed[i.index()]);
    }
    needed
}
