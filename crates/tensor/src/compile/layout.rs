//! What is live in a graph, which nodes are only views, and how a broadcast looks from inside a fused chain.

use super::Access;
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use std::cell::Ref;

/// The live part of a graph.
pub(crate) struct Live<'g> {
    inner: Ref<'g, crate::graph::Inner>,
    live: Vec<bool>,
    /// Broadcasts, constants and slices that some kernel needs in memory.
    materialised: Vec<bool>,
    pub assignments: Vec<NodeId>,
}

/// What an element-wise node reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Const(f32),
    /// The same elements of `root`, from `offset` on.
    Direct {
        root: NodeId,
        offset: usize,
    },
    /// Rows of `row` elements out of `root`'s longer rows of `stride`, from `offset` on.
    Sliced {
        root: NodeId,
        offset: usize,
        row: usize,
        stride: usize,
    },
    /// `root` stretched: alternating runs of kept and repeated axes, outermost first.
    Stretched {
        root: NodeId,
        offset: usize,
        runs: Vec<Run>,
    },
}

/// Neighbouring axes that a broadcast all keeps or all repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub kept: bool,
    pub len: usize,
}

impl<'g> Live<'g> {
    pub fn new(graph: &'g Graph, outputs: &[(String, NodeId)]) -> Self {
        let inner = graph.inner();
        let assignments = inner.assignments.clone();
        let mut live = vec![false; inner.nodes.len()];
        let mut stack: Vec<NodeId> = outputs
            .iter()
            .map(|o| o.1)
            .chain(assignments.iter().copied())
            .collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut live[id.index()], true) {
                stack.extend(&inner.nodes[id.index()].inputs);
            }
        }
        let count = inner.nodes.len();
        let mut this = Live {
            inner,
            live,
            materialised: vec![false; count],
            assignments,
        };
        this.find_materialised(outputs);
        this
    }

    /// Constants, broadcasts and slices of rows are folded into the chains that read them; everybody else needs them in memory.
    fn find_materialised(&mut self, outputs: &[(String, NodeId)]) {
        let ids: Vec<NodeId> = self.ids().collect();
        let mut needed: Vec<NodeId> = outputs.iter().map(|o| o.1).collect();
        for id in ids {
            let node = self.node(id);
            if self.is_view(id) {
                continue;
            }
            if let Op::Slice { axis, .. } = node.op
                && axis + 1 != node.shape.len()
            {
                needed.push(id);
            }
            if matches!(node.op, Op::Broadcast { .. } | Op::Slice { .. }) {
                // Stretching or cutting something that is itself folded would fold twice.
                needed.push(node.inputs[0]);
            } else if self.is_elementwise(id) || self.is_row_reduce(id) {
                for &input in &node.inputs {
                    let (root, offset) = self.resolve(input);
                    let foldable = match &self.node(root).op {
                        Op::Broadcast { .. } => {
                            let whole =
                                offset == 0 && self.node(input).len() == self.node(root).len();
                            whole && representable(&self.runs(root)) && self.is_elementwise(id)
                        }
                        Op::Const { .. } => self.is_elementwise(id),
                        Op::Slice { .. } => {
                            let whole = self.node(input).len() == self.node(root).len();
                            whole && self.is_elementwise(id)
                        }
                        _ => true,
                    };
                    if !foldable {
                        needed.push(input);
                    }
                }
            } else {
                needed.extend(&node.inputs);
            }
        }
        for id in needed {
            let (root, _) = self.resolve(id);
            if matches!(
                self.node(root).op,
                Op::Broadcast { .. } | Op::Const { .. } | Op::Slice { .. }
            ) {
                self.materialised[root.index()] = true;
            }
        }
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.inner.nodes[id.index()]
    }

    pub fn count(&self) -> usize {
        self.inner.nodes.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.live.len() as u32)
            .map(NodeId)
            .filter(|id| self.live[id.index()])
    }

    /// A node that is another's memory seen differently.
    pub fn is_view(&self, id: NodeId) -> bool {
        let node = self.node(id);
        match &node.op {
            Op::Reshape { .. } | Op::Detach => true,
            Op::Slice { axis, .. } => self.node(node.inputs[0]).shape[..*axis]
                .iter()
                .all(|&d| d == 1),
            _ => false,
        }
    }

    /// The node whose memory `id` shows, and where in it.
    pub fn resolve(&self, mut id: NodeId) -> (NodeId, usize) {
        let mut offset = 0;
        while self.is_view(id) {
            let node = self.node(id);
            if let Op::Slice { axis, start, .. } = &node.op {
                offset += start * node.shape[axis + 1..].iter().product::<usize>();
            }
            id = node.inputs[0];
        }
        (id, offset)
    }

    pub fn is_elementwise(&self, id: NodeId) -> bool {
        use Op::*;
        matches!(
            self.node(id).op,
            Unary(_) | Binary(_) | Select | Cast | Noise { .. } | Assign { .. }
        )
    }

    /// A reduction of whole rows that are short enough to stay in cache.
    pub fn is_row_reduce(&self, id: NodeId) -> bool {
        let node = self.node(id);
        match &node.op {
            Op::Reduce { to, .. } => {
                let shape = &self.node(node.inputs[0]).shape;
                let inner: usize = shape[*to..].iter().product();
                inner == 1 && self.row_len(id) <= ROW_LIMIT
            }
            _ => false,
        }
    }

    /// Number of elements a reduction sums for one output.
    pub fn row_len(&self, id: NodeId) -> usize {
        let node = self.node(id);
        self.node(node.inputs[0]).len() / node.len().max(1)
    }

    /// Constants and broadcasts that have to exist in memory.
    pub fn is_materialised(&self, id: NodeId) -> bool {
        self.materialised[id.index()]
    }

    pub fn source(&self, input: NodeId) -> Source {
        let (root, offset) = self.resolve(input);
        match &self.node(root).op {
            Op::Const { bits, .. } => Source::Const(f32::from_bits(*bits)),
            Op::Broadcast { .. } if !self.is_materialised(root) => {
                let (src, at) = self.resolve(self.node(root).inputs[0]);
                Source::Stretched {
                    root: src,
                    offset: at,
                    runs: self.runs(root),
                }
            }
            Op::Slice { axis, start, len } if !self.is_materialised(root) => {
                let parent = self.node(root).inputs[0];
                let (src, at) = self.resolve(parent);
                Source::Sliced {
                    root: src,
                    offset: at + start,
                    row: *len,
                    stride: self.node(parent).shape[*axis],
                }
            }
            _ => Source::Direct { root, offset },
        }
    }

    /// The node whose memory reading `input` from `id` comes down to.
    pub fn read_root(&self, id: NodeId, input: NodeId) -> NodeId {
        match self.source(input) {
            Source::Stretched { root, .. } | Source::Sliced { root, .. }
                if self.is_elementwise(id) =>
            {
                root
            }
            _ => self.resolve(input).0,
        }
    }

    fn runs(&self, broadcast: NodeId) -> Vec<Run> {
        let node = self.node(broadcast);
        let from = &self.node(node.inputs[0]).shape;
        let mut runs: Vec<Run> = Vec::new();
        for (&a, &b) in from.iter().zip(&node.shape) {
            if b == 1 {
                continue;
            }
            let kept = a == b;
            match runs.last_mut() {
                Some(run) if run.kept == kept => run.len *= b,
                _ => runs.push(Run { kept, len: b }),
            }
        }
        runs
    }
}

/// Longest row a fused row reduction takes; longer ones are cut into chunks by their own kernel.
pub(crate) const ROW_LIMIT: usize = 8192;

/// Whether a chain can read such a broadcast at all.
fn representable(runs: &[Run]) -> bool {
    runs.len() <= 3
}

/// The row length a broadcast allows (any divisor of it, or exactly it).
pub(crate) fn row_constraint(runs: &[Run]) -> Option<(usize, bool)> {
    match runs {
        [] | [_] => None,
        [_, last] => Some((last.len, false)),
        [a, _, last] => Some((last.len, a.kept)),
        _ => unreachable!("broadcasts with more runs are materialised"),
    }
}

/// How rows of `cols` elements read such a broadcast.
pub(crate) fn access(runs: &[Run], cols: usize) -> Access {
    match *runs {
        [] => Access::Scalar,
        [one] if one.kept => Access::Flat,
        [_] => Access::Scalar,
        [_, last] if last.kept => Access::Rows {
            div: 1,
            modulo: last.len / cols,
            stride: cols,
            spread: true,
        },
        [first, last] => Access::Rows {
            div: last.len / cols,
            modulo: first.len,
            stride: 1,
            spread: false,
        },
        [first, middle, last] if first.kept => {
            debug_assert_eq!(last.len, cols);
            Access::Rows {
                div: middle.len,
                modulo: first.len,
                stride: cols,
                spread: true,
            }
        }
        [_, middle, last] => Access::Rows {
            div: last.len / cols,
            modulo: middle.len,
            stride: 1,
            spread: false,
        },
        _ => unreachable!("broadcasts with more runs are materialised"),
    }
}
