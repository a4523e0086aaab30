//! Groups of nodes that become one kernel.
//!
//! Every node starts as a group of its own. Then edges are contracted, from the last node to the first, as
//! long as both ends run over the same elements (or one is a value per row of the other) and no third group
//! lies on a path between them. Going backwards matters: what a gradient needs of a forward value (a slope, a
//! mask) sinks into the gradient that uses it and is recomputed there instead of being kept in memory.
//!
//! A group has at most one *anchor*, a convolution or product whose result the rest of the group finishes
//! while it is in cache, or one *closing* reduction, whose summands the rest computes.

use super::layout::{Live, Run, Source, row_constraint};
use crate::graph::NodeId;
use crate::op::Op;
use crate::params::PARAMETERS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Element-wise operations and row reductions.
    Chain,
    /// The same after a convolution or product.
    Anchored(NodeId),
    /// The same before a reduction that is not by short rows.
    Closing(NodeId),
    /// Any other operation, by itself.
    Standalone(NodeId),
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// In the order they have to be computed.
    pub nodes: Vec<NodeId>,
    pub kind: Kind,
    /// Elements the chain runs over.
    pub full: usize,
    /// Elements of a row, where the chain has row reductions.
    pub row: Option<usize>,
    /// Elements of a row as broadcasts ask for it; `None` when any block will do.
    pub cols: Option<usize>,
}

pub(crate) struct Groups {
    /// In an order they can run.
    pub order: Vec<Group>,
    /// Whether a node has one value for each row of its group.
    pub row_wise: Vec<bool>,
}

struct Fuser<'a, 'g> {
    live: &'a Live<'g>,
    groups: Vec<Option<Group>>,
    of: Vec<usize>,
    row_wise: Vec<bool>,
    /// Who must come after a node.
    users: Vec<Vec<NodeId>>,
    merges: usize,
    /// Whether what closes with a sum may read by rows.
    rows_close: bool,
    /// Whether detours are looked for up to the last node of the group they lead to.
    near: bool,
}

const NONE: usize = usize::MAX;

pub(crate) fn fuse(live: &Live<'_>, rows_close: bool) -> Groups {
    // Looking no farther than a group's last node is quick, and misses a detour only through groups that reach across it;
    // the graph is then fused again with a look at everything.
    let fused = attempt(live, rows_close, true).or_else(|| attempt(live, rows_close, false));
    fused.expect("no detour was missed, so there is no cycle")
}

/// Groups in an order in which they can run; none if a missed detour made a cycle.
fn attempt(live: &Live<'_>, rows_close: bool, near: bool) -> Option<Groups> {
    let count = live.count();
    let mut fuser = Fuser {
        live,
        groups: Vec::new(),
        of: vec![NONE; count],
        row_wise: vec![false; count],
        users: vec![Vec::new(); count],
        merges: 0,
        rows_close,
        near,
    };
    fuser.start();
    fuser.connect();
    let ids: Vec<NodeId> = live.ids().collect();
    // A contraction can clear the way for an edge that was refused before: the end of a softmax joins only
    // once its middle is one group.
    loop {
        let before = fuser.merges;
        for &id in ids.iter().rev() {
            if fuser.of[id.index()] != NONE {
                fuser.contract_inputs(id);
            }
        }
        if fuser.merges == before {
            break;
        }
    }
    fuser.finish()
}

/// Whether a node is computed by a kernel (not a view, not folded into its readers, not given from outside).
pub(crate) fn is_computed(live: &Live<'_>, id: NodeId) -> bool {
    match live.node(id).op {
        Op::Input { .. } | Op::Param { .. } | Op::State { .. } => false,
        _ if live.is_view(id) => false,
        Op::Const { .. } | Op::Broadcast { .. } | Op::Slice { .. } => live.is_materialised(id),
        _ => true,
    }
}

impl Fuser<'_, '_> {
    fn start(&mut self) {
        for id in self.live.ids() {
            if !is_computed(self.live, id) {
                continue;
            }
            let node = self.live.node(id);
            if let Op::Part { .. } = node.op {
                let parent = self.of[node.inputs[0].index()];
                self.of[id.index()] = parent;
                self.groups[parent]
                    .as_mut()
                    .expect("parents come first")
                    .nodes
                    .push(id);
                continue;
            }
            let input_len = || self.live.node(node.inputs[0]).len();
            let (kind, full, row) = match &node.op {
                _ if self.live.is_elementwise(id) => (Kind::Chain, node.len(), None),
                Op::Reduce { .. } if self.live.is_row_reduce(id) => {
                    self.row_wise[id.index()] = true;
                    (Kind::Chain, input_len(), Some(self.live.row_len(id)))
                }
                Op::Reduce { .. } => (Kind::Closing(id), input_len(), None),
                Op::Conv { .. } | Op::ConvGradInput { .. } | Op::Matmul { .. } => {
                    (Kind::Anchored(id), node.len(), None)
                }
                _ => (Kind::Standalone(id), node.len(), None),
            };
            self.of[id.index()] = self.groups.len();
            let mut group = Group {
                nodes: vec![id],
                kind,
                full,
                row,
                cols: None,
            };
            group.cols = self.columns(&group).expect("a single node fits itself");
            self.groups.push(Some(group));
        }
    }

    /// The computed nodes an input stands for.
    fn root(&self, id: NodeId, input: NodeId) -> NodeId {
        self.live.read_root(id, input)
    }

    fn connect(&mut self) {
        let mut readers: Vec<(String, NodeId)> = Vec::new();
        for id in self.live.ids().filter(|&id| self.of[id.index()] != NONE) {
            for &input in &self.live.node(id).inputs {
                let root = self.root(id, input);
                if self.of[root.index()] != NONE {
                    self.users[root.index()].push(id);
                }
                match &self.live.node(root).op {
                    Op::Param { .. } => readers.push((PARAMETERS.into(), id)),
                    Op::State { name, .. } => readers.push((name.clone(), id)),
                    _ => {}
                }
            }
        }
        // A state changes after everybody has read it.
        for &assign in &self.live.assignments {
            let Op::Assign { name } = &self.live.node(assign).op else {
                continue;
            };
            for (state, reader) in &readers {
                if state == name && *reader != assign {
                    self.users[reader.index()].push(assign);
                }
            }
        }
    }

    /// Where a node stands among the others; assignments stand last.
    fn rank(&self, id: NodeId) -> usize {
        match self.live.node(id).op {
            Op::Assign { .. } => self.live.count() + id.index(),
            _ => id.index(),
        }
    }

    fn group(&self, index: usize) -> &Group {
        self.groups[index].as_ref().expect("group was merged away")
    }

    fn contract_inputs(&mut self, id: NodeId) {
        if matches!(self.live.node(id).op, Op::Part { .. }) {
            return;
        }
        let inputs = self.live.node(id).inputs.clone();
        for input in inputs {
            let root = self.root(id, input);
            let (a, b) = (self.of[root.index()], self.of[id.index()]);
            if a != NONE && a != b && !matches!(self.group(a).kind, Kind::Standalone(_)) {
                self.try_merge(a, b, root, id, input);
            }
        }
    }

    /// Merges the groups of producer `root` and consumer `id` when that is sound.
    fn try_merge(&mut self, a: usize, b: usize, root: NodeId, id: NodeId, input: NodeId) {
        let (ga, gb) = (self.group(a), self.group(b));
        let kind = match (ga.kind, gb.kind) {
            (Kind::Chain, k @ (Kind::Chain | Kind::Closing(_) | Kind::Anchored(_))) => k,
            (k @ Kind::Anchored(_), Kind::Chain) => k,
            _ => return,
        };
        let stretched = self.live.is_elementwise(id)
            && matches!(self.live.source(input), Source::Stretched { .. });
        let whole = self.live.node(input).len() == self.live.node(root).len();
        if !stretched && !whole {
            return;
        }
        // Which side, if any, becomes one value a row of the other.
        let (from_rows, to_rows) = (self.row_wise[root.index()], self.row_wise[id.index()]);
        let id_reduces = self.live.is_row_reduce(id);
        let (full, row, demote) = match (from_rows, stretched) {
            (true, false) if !to_rows || id_reduces => (ga.full, ga.row, Some(b)),
            (false, true) => match gb.row {
                Some(r) if ga.full * r == gb.full => (gb.full, gb.row, Some(a)),
                _ => return,
            },
            _ => {
                if ga.full != gb.full || matches!((ga.row, gb.row), (Some(x), Some(y)) if x != y) {
                    return;
                }
                (ga.full, ga.row.or(gb.row), None)
            }
        };
        if let Some(demoted) = demote {
            let d = self.group(demoted);
            let rows = full / row.unwrap_or(1);
            if d.kind != Kind::Chain || d.row.is_some() || d.full != rows || d.cols.is_some() {
                return;
            }
        }
        if row.is_some() && kind != Kind::Chain {
            return;
        }
        if self.touches_anchor(a, b) || self.detour(a, b) || self.detour(b, a) {
            return;
        }
        let mut nodes: Vec<NodeId> = ga.nodes.iter().chain(&gb.nodes).copied().collect();
        nodes.sort_by_key(|&n| self.rank(n));
        let mut merged = Group {
            nodes,
            kind,
            full,
            row,
            cols: None,
        };
        let lowered: Vec<NodeId> = demote
            .map(|d| self.group(d).nodes.clone())
            .unwrap_or_default();
        lowered.iter().for_each(|n| self.row_wise[n.index()] = true);
        match self.columns(&merged) {
            Some(cols) => {
                merged.cols = cols;
                for n in &merged.nodes {
                    self.of[n.index()] = a;
                }
                self.groups[a] = Some(merged);
                self.groups[b] = None;
                self.merges += 1;
            }
            None => lowered
                .iter()
                .for_each(|n| self.row_wise[n.index()] = false),
        }
    }

    /// An anchor's own inputs must be finished before its kernel starts, and a closing reduction's result
    /// exists only after it.
    fn touches_anchor(&self, a: usize, b: usize) -> bool {
        let reads = |from: usize, to: usize| match self.group(to).kind {
            Kind::Anchored(anchor) => self
                .live
                .node(anchor)
                .inputs
                .iter()
                .any(|&i| self.of[self.live.resolve(i).0.index()] == from),
            _ => false,
        };
        let closes = |from: usize, to: usize| match self.group(from).kind {
            Kind::Closing(end) => self.users[end.index()]
                .iter()
                .any(|u| self.of[u.index()] == to),
            _ => false,
        };
        reads(a, b) || reads(b, a) || closes(a, b) || closes(b, a)
    }

    /// Whether a third group lies on a path from `a` to `b`.
    fn detour(&self, a: usize, b: usize) -> bool {
        let last = self
            .group(b)
            .nodes
            .iter()
            .map(|&n| self.rank(n))
            .max()
            .unwrap_or(0);
        let mut seen = vec![false; self.groups.len()];
        (seen[a], seen[b]) = (true, true);
        let mut stack = vec![a];
        while let Some(from) = stack.pop() {
            for node in &self.group(from).nodes {
                for user in &self.users[node.index()] {
                    let to = self.of[user.index()];
                    if to == b && from != a {
                        return true;
                    }
                    let is_near = || self.rank(self.group(to).nodes[0]) <= last;
                    if !seen[to] && (!self.near || is_near()) {
                        seen[to] = true;
                        stack.push(to);
                    }
                }
            }
        }
        false
    }

    /// The row length all broadcasts of a group can live with: `Some(None)` if there are none, `None` if
    /// there is no such length.
    fn columns(&self, group: &Group) -> Option<Option<usize>> {
        let mut wanted: Vec<(usize, bool)> = Vec::new();
        for &id in group
            .nodes
            .iter()
            .filter(|&&id| self.live.is_elementwise(id))
        {
            for &input in &self.live.node(id).inputs {
                let (root, runs) = match self.live.source(input) {
                    Source::Stretched { root, runs, .. } => (root, runs),
                    Source::Sliced { root, row, .. } => {
                        if group.nodes.contains(&root) || self.row_wise[id.index()] {
                            return None;
                        }
                        wanted.push((row, true));
                        continue;
                    }
                    _ => continue,
                };
                let inside = group.nodes.contains(&root);
                if inside
                    && !(self.row_wise[root.index()]
                        && !self.row_wise[id.index()]
                        && by_row(&runs, group))
                {
                    return None;
                }
                if inside {
                    continue;
                }
                match row_constraint(&runs) {
                    Some(_) if self.row_wise[id.index()] => return None,
                    Some(constraint) => wanted.push(constraint),
                    None => {}
                }
            }
        }
        if matches!(group.kind, Kind::Closing(_)) && !wanted.is_empty() && !self.rows_close {
            return None;
        }
        let mut cols = group.row;
        if let Kind::Anchored(anchor) = group.kind
            && !wanted.is_empty()
        {
            cols = self.live.node(anchor).shape.last().copied();
        }
        for &(len, _) in &wanted {
            cols = Some(cols.map_or(len, |c| gcd(c, len)));
        }
        let fits = |&(len, exact): &(usize, bool)| {
            cols.is_some_and(|c| len % c == 0 && (!exact || len == c))
        };
        let row_kept = group.row.is_none() || group.row == cols;
        (row_kept && wanted.iter().all(fits)).then_some(cols)
    }

    fn finish(self) -> Option<Groups> {
        let Fuser {
            live,
            groups,
            of,
            row_wise,
            users,
            ..
        } = self;
        let rank = |id: NodeId| match live.node(id).op {
            Op::Assign { .. } => live.count() + id.index(),
            _ => id.index(),
        };
        // Ready groups run in the order of their last node, so that values live shortly.
        let mut waiting = vec![0usize; groups.len()];
        let mut edges: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        for (index, group) in groups.iter().enumerate() {
            let Some(group) = group else { continue };
            for node in &group.nodes {
                for user in &users[node.index()] {
                    let to = of[user.index()];
                    if to != index {
                        edges[index].push(to);
                        waiting[to] += 1;
                    }
                }
            }
        }
        let key = |index: usize| {
            let group = groups[index].as_ref().expect("only live groups are queued");
            std::cmp::Reverse((
                group.nodes.iter().map(|&n| rank(n)).max().unwrap_or(0),
                index,
            ))
        };
        let ready = (0..groups.len()).filter(|&i| groups[i].is_some() && waiting[i] == 0);
        let mut queue: std::collections::BinaryHeap<_> = ready.map(key).collect();
        let mut order = Vec::new();
        while let Some(std::cmp::Reverse((_, index))) = queue.pop() {
            order.push(index);
            for &to in &edges[index] {
                waiting[to] -= 1;
                if waiting[to] == 0 {
                    queue.push(key(to));
                }
            }
        }
        if waiting.iter().any(|&w| w > 0) {
            return None;
        }
        let mut groups = groups;
        let order = order
            .into_iter()
            .map(|i| groups[i].take().expect("each group runs once"))
            .collect();
        Some(Groups { order, row_wise })
    }
}

/// A row's value repeated along its row.
fn by_row(runs: &[Run], group: &Group) -> bool {
    let Some(row) = group.row else { return false };
    match *runs {
        [a, b] => a.kept && !b.kept && b.len == row,
        [a] => (a.kept && row == 1) || (!a.kept && a.len == row && group.full == row),
        [] => group.full == 1,
        _ => false,
    }
}

pub(crate) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
