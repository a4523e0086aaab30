//! The order of groups on a device where a launch costs more than the work of a small kernel.
//!
//! What depends on parameters alone (normalised, turned kernels) runs first, what only leads to the update
//! (gradients through the normalisation, sums of metrics) runs last. Both are layered: groups of one layer do not
//! depend on each other and run as one batch, in which kernels of one form share a launch.

use super::fuse::{Group, Groups, Kind};
use super::layout::Live;
use crate::graph::NodeId;
use crate::op::Op;
use std::collections::HashMap;

/// Largest tensor that may stay in memory to the end of a step so that the sum over it can run in a batch.
const LARGEST_DEFERRED: usize = 1 << 20;

/// Reorders `groups` and gives each its moment; groups with the same moment are independent of each other.
pub(crate) fn layered(live: &Live<'_>, groups: Groups) -> (Groups, Vec<usize>) {
    let Groups { order, row_wise } = groups;
    // An assignment in the epilogue of a product cannot wait for the last reader of its state.
    if order.iter().any(|g| assigns(live, g) && !is_light(live, g)) {
        let moments = (0..order.len()).collect();
        return (Groups { order, row_wise }, moments);
    }
    let of: HashMap<NodeId, usize> = order
        .iter()
        .enumerate()
        .flat_map(|(i, g)| g.nodes.iter().map(move |&n| (n, i)))
        .collect();
    let edges = Edges::new(live, &order, &of);
    let first = edges.early(live, &order);
    let last = edges.late(live, &order, &first);
    let sums = edges.before_sums(live, &order, &first);
    let key = |i: usize| match (first[i], sums[i], last[i]) {
        (Some(level), ..) => (0, level, 0),
        (None, Some((after, level)), _) => (1, after, 1 + level),
        (None, None, None) => (1, i, 0),
        (None, None, Some(level)) => (2, level, 0),
    };
    let mut indices: Vec<usize> = (0..order.len()).collect();
    indices.sort_by_key(|&i| (key(i), i));
    let mut moments = Vec::with_capacity(order.len());
    let (mut moment, mut previous) = (0, None);
    for &i in &indices {
        if previous.is_some_and(|p| p != key(i)) {
            moment += 1;
        }
        previous = Some(key(i));
        moments.push(moment);
    }
    let mut order: Vec<Option<Group>> = order.into_iter().map(Some).collect();
    let order = indices
        .into_iter()
        .map(|i| order[i].take().expect("each index once"))
        .collect();
    (Groups { order, row_wise }, moments)
}

struct Edges {
    /// Groups whose results a group reads, and the nodes it reads.
    reads: Vec<Vec<(usize, NodeId)>>,
    users: Vec<Vec<usize>>,
    /// Reads something other than parameters, states and results of groups.
    reads_inputs: Vec<bool>,
}

impl Edges {
    fn new(live: &Live<'_>, order: &[Group], of: &HashMap<NodeId, usize>) -> Self {
        let count = order.len();
        let mut edges = Edges {
            reads: vec![Vec::new(); count],
            users: vec![Vec::new(); count],
            reads_inputs: vec![false; count],
        };
        for (index, group) in order.iter().enumerate() {
            for &id in &group.nodes {
                for &input in &live.node(id).inputs {
                    let root = live.read_root(id, input);
                    match of.get(&root) {
                        Some(&from) if from != index => {
                            edges.reads[index].push((from, root));
                            edges.users[from].push(index);
                        }
                        Some(_) => {}
                        None if matches!(live.node(root).op, Op::Input { .. }) => {
                            edges.reads_inputs[index] = true;
                        }
                        None => {}
                    }
                }
            }
        }
        edges
    }

    /// The layer of each group that depends on parameters alone.
    fn early(&self, live: &Live<'_>, order: &[Group]) -> Vec<Option<usize>> {
        let mut level: Vec<Option<usize>> = vec![None; order.len()];
        for (index, group) in order.iter().enumerate() {
            let movable =
                !self.reads_inputs[index] && is_light(live, group) && !assigns(live, group);
            let depth = self.reads[index]
                .iter()
                .try_fold(0, |depth, &(from, _)| level[from].map(|l| depth.max(l + 1)));
            level[index] = depth.filter(|_| movable);
        }
        level
    }

    /// The groups that change a state, and all that need something else such a group computes on its way.
    fn closing(&self, live: &Live<'_>, order: &[Group]) -> Vec<bool> {
        let mut closing = vec![false; order.len()];
        for (index, group) in order.iter().enumerate() {
            let follows = self.reads[index].iter().any(|&(from, _)| closing[from]);
            closing[index] = follows || assigns(live, group);
        }
        closing
    }

    /// The layer of each group that only leads to the end.
    fn late(
        &self,
        live: &Live<'_>,
        order: &[Group],
        early: &[Option<usize>],
    ) -> Vec<Option<usize>> {
        let count = order.len();
        let closing = self.closing(live, order);
        // Whether all that follows may wait, from the last group to the first.
        let mut waits = vec![false; count];
        for index in (0..count).rev() {
            let group = &order[index];
            let follows = self.users[index].iter().all(|&user| waits[user]);
            // What is packed lies in the pack, or is copied there at once.
            let packs = matches!(group.kind, Kind::Standalone(id) if matches!(live.node(id).op, Op::Pack { .. }));
            let keeps_little = packs
                || self.reads[index].iter().all(|&(from, node)| {
                    let node_is_small = live.node(node).len() <= LARGEST_DEFERRED;
                    let gradient = matches!(
                        live.node(node).op,
                        Op::ConvGradWeight { .. } | Op::Part { .. }
                    );
                    early[from].is_some()
                        || node_is_small
                        || gradient
                        || small_producer(live, &order[from])
                });
            let may = early[index].is_none() && follows && keeps_little && is_light(live, group);
            waits[index] = may || closing[index];
        }
        let mut level: Vec<Option<usize>> = vec![None; count];
        for index in (0..count).filter(|&i| waits[i] && !closing[i]) {
            let depth = self.reads[index]
                .iter()
                .filter_map(|&(from, _)| level[from].map(|l| l + 1))
                .max();
            level[index] = Some(depth.unwrap_or(0));
        }
        // States change after everybody has read them: what closes the row keeps the order it came in.
        let end = level.iter().flatten().max().map_or(0, |l| l + 1);
        for (at, index) in (0..count).filter(|&i| closing[i]).enumerate() {
            level[index] = Some(end + at);
        }
        level
    }
}

impl Edges {
    /// What only leads to a sum of gradients over processes runs in batches too, but as soon as it can, so that the sum is made
    /// while other gradients are still computed: for each group of those, and for the sum itself, the group it follows
    /// and its layer.
    fn before_sums(
        &self,
        live: &Live<'_>,
        order: &[Group],
        early: &[Option<usize>],
    ) -> Vec<Option<(usize, usize)>> {
        let count = order.len();
        // The sum that a group leads to and nothing else.
        let mut goal: Vec<Option<usize>> = vec![None; count];
        for index in (0..count).rev() {
            if sums_gradients(live, &order[index]) {
                goal[index] = Some(index);
                continue;
            }
            let first = self.users[index].first().and_then(|&user| goal[user]);
            let alone = self.users[index].iter().all(|&user| goal[user] == first);
            let may = early[index].is_none() && is_light(live, &order[index]) && alone;
            goal[index] = first.filter(|_| may);
        }
        let mut level: Vec<usize> = vec![0; count];
        let mut after: Vec<usize> = vec![0; count];
        for index in 0..count {
            let Some(sum) = goal[index] else {
                continue;
            };
            for &(from, _) in &self.reads[index] {
                if goal[from] == Some(sum) {
                    level[index] = level[index].max(level[from] + 1);
                } else if early[from].is_none() {
                    after[sum] = after[sum].max(from);
                }
            }
        }
        // Sums are alone in their layer, behind all others.
        let deepest = level.iter().max().map_or(0, |deepest| deepest + 1);
        let place = |index: usize| {
            let sum = goal[index]?;
            let layer = if sum == index {
                deepest + sum
            } else {
                level[index]
            };
            Some((after[sum], layer))
        };
        (0..count).map(place).collect()
    }
}

/// A sum over processes of gradients that were packed for it.
fn sums_gradients(live: &Live<'_>, group: &Group) -> bool {
    let Kind::Standalone(id) = group.kind else {
        return false;
    };
    let node = live.node(id);
    let packed = |id: NodeId| matches!(live.node(live.resolve(id).0).op, Op::Pack { .. });
    matches!(node.op, Op::AllSum { .. }) && node.inputs.iter().all(|&input| packed(input))
}

/// Parameters' gradients and their like: large, but only alive near the end anyway.
fn small_producer(live: &Live<'_>, group: &Group) -> bool {
    group.nodes.iter().any(|&n| {
        matches!(
            live.node(n).op,
            Op::Transpose | Op::Pack { .. } | Op::ConvGradWeight { .. } | Op::AllSum { .. }
        )
    })
}

fn assigns(live: &Live<'_>, group: &Group) -> bool {
    group
        .nodes
        .iter()
        .any(|&n| matches!(live.node(n).op, Op::Assign { .. }))
}

/// Not a convolution, product or responsibility: those stay where they are.
fn is_light(live: &Live<'_>, group: &Group) -> bool {
    match group.kind {
        Kind::Chain | Kind::Closing(_) => true,
        Kind::Anchored(_) => false,
        Kind::Standalone(id) => !matches!(
            live.node(id).op,
            Op::ConvGradWeight { .. }
                | Op::Responsibility(_)
                | Op::ResponsibilityGrad(_)
                | Op::AllSum { .. }
        ),
    }
}
