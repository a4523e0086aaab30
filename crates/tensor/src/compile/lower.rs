//! Groups to kernels, and where every tensor lives.

use super::chain::ChainBuilder;
use super::fuse::{Group, Groups, Kind};
use super::layout::Live;
use super::memory::{Span, assign};
use super::*;
use crate::op::Window;
use crate::params::PARAMETERS;
use std::collections::HashMap;

pub(super) struct Lowering<'a, 'g> {
    pub live: &'a Live<'g>,
    pub groups: &'a Groups,
    params: &'a Layout,
    /// Group of each computed node.
    pub of: HashMap<NodeId, usize>,
    pub places: HashMap<NodeId, Place>,
    schedule: Schedule,
    inputs: Vec<Named>,
    states: Vec<Named>,
}

/// Moments that what a weight gradient reads is kept for longer than the order of kernels asks for.
const PATIENCE: usize = 24;

/// When groups run and how tensors are kept.
pub(crate) struct Schedule {
    /// Of each group; groups of one moment are independent of each other.
    pub moments: Vec<usize>,
    /// Kernels of one moment form a batch.
    pub batches: bool,
    /// Nodes that are stored in another type than the graph has.
    pub storage: HashMap<NodeId, DType>,
}

pub(crate) fn lower(
    live: &Live<'_>,
    groups: &Groups,
    params: &Layout,
    schedule: Schedule,
    outputs: &[(String, NodeId)],
) -> Plan {
    let mut of = HashMap::new();
    for (index, group) in groups.order.iter().enumerate() {
        of.extend(group.nodes.iter().map(|&n| (n, index)));
    }
    let (inputs, states, places) = (Vec::new(), Vec::new(), HashMap::new());
    let mut low = Lowering {
        live,
        groups,
        params,
        of,
        places,
        schedule,
        inputs,
        states,
    };
    low.place_outside();
    let arena = low.place_inside(outputs);
    let kernels = low.all_kernels();
    let outputs = outputs
        .iter()
        .map(|(name, id)| {
            let node = live.node(*id);
            Named {
                name: name.clone(),
                shape: node.shape.clone(),
                dtype: node.dtype,
                place: low.place(*id),
            }
        })
        .collect();
    Plan {
        kernels,
        arena,
        inputs: low.inputs,
        states: low.states,
        outputs,
    }
}

/// The start of memory that is not the plan's own.
fn outside(base: Base, dtype: DType) -> Place {
    Place {
        base,
        offset: 0,
        dtype,
    }
}

impl Lowering<'_, '_> {
    fn state(&mut self, name: &str, len: usize) -> usize {
        if let Some(index) = self.states.iter().position(|s| s.name == name) {
            return index;
        }
        let index = self.states.len();
        let place = outside(Base::State(index), DType::F32);
        self.states.push(Named {
            name: name.into(),
            shape: vec![len],
            dtype: DType::F32,
            place,
        });
        index
    }

    /// Inputs, parameters and states have their own memory.
    fn place_outside(&mut self) {
        let ids: Vec<NodeId> = self.live.ids().collect();
        for id in ids {
            let node = self.live.node(id).clone();
            let place = match &node.op {
                Op::Input { name, .. } => {
                    let place = outside(Base::Input(self.inputs.len()), node.dtype);
                    let (shape, dtype) = (node.shape.clone(), node.dtype);
                    self.inputs.push(Named {
                        name: name.clone(),
                        shape,
                        dtype,
                        place,
                    });
                    place
                }
                Op::Param { name, .. } => {
                    let base = Base::State(self.state(PARAMETERS, self.params.len()));
                    let offset = self.params.get(name).map_or(0, |e| e.offset);
                    outside(base, DType::F32).at(offset)
                }
                Op::State { name, len } => outside(Base::State(self.state(name, *len)), DType::F32),
                Op::Assign { name } => {
                    outside(Base::State(self.state(name, node.len())), DType::F32)
                }
                _ => continue,
            };
            self.places.insert(id, place);
        }
    }

    /// What a node reads, seen through views, folded broadcasts and slices.
    pub fn root(&self, id: NodeId, input: NodeId) -> NodeId {
        self.live.read_root(id, input)
    }

    /// Everything else that must be seen by another kernel gets a part of the arena.
    fn place_inside(&mut self, outputs: &[(String, NodeId)]) -> usize {
        let moments = &self.schedule.moments;
        let end = moments.last().map_or(0, |m| m + 1);
        let mut spans: HashMap<NodeId, Span> = HashMap::new();
        let touch = |spans: &mut HashMap<NodeId, Span>, root: NodeId, born: usize, last: usize| {
            let len = (self.live.node(root).len() * self.stored(root).bytes()).div_ceil(4);
            let span = spans.entry(root).or_insert(Span {
                len,
                first: born,
                last: born,
            });
            span.last = span.last.max(last);
        };
        for (index, group) in self.groups.order.iter().enumerate() {
            let now = moments[index];
            // A device that runs several kernels at once lets weight gradients wait; what they read waits too.
            let gradient =
                |id: &NodeId| matches!(self.live.node(*id).op, Op::ConvGradWeight { .. });
            let patience = match self.schedule.batches && group.nodes.iter().any(gradient) {
                true => PATIENCE.min(end - 1 - now),
                false => 0,
            };
            for &id in &group.nodes {
                if matches!(group.kind, Kind::Standalone(_)) || group.kind == Kind::Closing(id) {
                    touch(&mut spans, id, now, now);
                }
                for &input in &self.live.node(id).inputs {
                    let root = self.root(id, input);
                    match self.of.get(&root) {
                        Some(&born) if born != index => {
                            touch(&mut spans, root, moments[born], now + patience);
                        }
                        _ => {}
                    }
                }
            }
        }
        for (_, id) in outputs {
            let root = self.live.resolve(*id).0;
            if let Some(&born) = self.of.get(&root) {
                touch(&mut spans, root, moments[born], end);
            }
        }
        spans.retain(|id, _| !self.places.contains_key(id));
        let homes = self.pack_in_place(&mut spans, end);
        let mut ids: Vec<NodeId> = spans.keys().copied().collect();
        ids.sort();
        let list: Vec<Span> = ids.iter().map(|id| spans[id]).collect();
        let (offsets, total) = assign(&list);
        for (id, offset) in ids.into_iter().zip(offsets) {
            let dtype = self.stored(id);
            let place = outside(Base::Arena, dtype).at(offset * 4 / dtype.bytes());
            self.places.insert(id, place);
        }
        for &(mut id) in homes.keys() {
            let (part, mut at) = (id, 0);
            while let Some(&(whole, offset)) = homes.get(&id) {
                (id, at) = (whole, at + offset);
            }
            self.places.insert(part, self.places[&id].at(at));
        }
        total
    }

    /// What is only made to be packed is made where it will lie, and what is only made to be summed over shards becomes the sum.
    fn pack_in_place(
        &self,
        spans: &mut HashMap<NodeId, Span>,
        end: usize,
    ) -> HashMap<NodeId, (NodeId, usize)> {
        let mut homes = HashMap::new();
        for (index, group) in self.groups.order.iter().enumerate() {
            let Kind::Standalone(whole) = group.kind else {
                continue;
            };
            let node = self.live.node(whole);
            // A sum overwrites what it reads, so nobody may read that at the same time or later.
            let (offsets, last) = match &node.op {
                Op::Pack { offsets, .. } => (offsets.as_slice(), end - 1),
                Op::AllSum { .. } if self.alone(index) => (&[0][..], self.schedule.moments[index]),
                _ => continue,
            };
            for (&input, &at) in node.inputs.iter().zip(offsets) {
                let (root, _) = self.live.resolve(input);
                let fits = self.live.node(root).len() == self.live.node(input).len()
                    && self.stored(root) == DType::F32;
                let Some(&span) = spans.get(&root).filter(|s| fits && s.last <= last) else {
                    continue;
                };
                spans.remove(&root);
                homes.insert(root, (whole, at));
                let home = spans.get_mut(&whole).expect("packs and sums lie in memory");
                home.first = home.first.min(span.first);
                home.last = home.last.max(span.last);
            }
        }
        homes
    }

    /// Whether no other group runs at the moment of this one.
    fn alone(&self, index: usize) -> bool {
        let moments = &self.schedule.moments;
        let same = |other: Option<&usize>| other == Some(&moments[index]);
        !(same(moments.get(index + 1)) || index > 0 && same(moments.get(index - 1)))
    }

    pub fn place(&self, id: NodeId) -> Place {
        let (root, at) = self.live.resolve(id);
        let place = self
            .places
            .get(&root)
            .unwrap_or_else(|| panic!("{:?} has no memory", self.live.node(root).op));
        place.at(at)
    }

    /// Kernels in the order they run, those of one moment as a batch where the target wants that.
    fn all_kernels(&self) -> Vec<Kernel> {
        let mut kernels = Vec::new();
        let mut at = 0;
        while at < self.groups.order.len() {
            let moment = self.schedule.moments[at];
            let mut together = Vec::new();
            while self.schedule.moments.get(at) == Some(&moment) {
                self.kernels(&self.groups.order[at], &mut together);
                at += 1;
            }
            match self.schedule.batches && together.len() > 1 {
                true => kernels.push(Kernel::Batch(together)),
                false => kernels.append(&mut together),
            }
        }
        kernels
    }

    /// How a node's elements lie in memory.
    fn stored(&self, id: NodeId) -> DType {
        self.schedule
            .storage
            .get(&id)
            .copied()
            .unwrap_or(self.live.node(id).dtype)
    }

    fn kernels(&self, group: &Group, out: &mut Vec<Kernel>) {
        match group.kind {
            Kind::Chain => out.push(Kernel::Map(self.chain(group))),
            Kind::Anchored(anchor) => out.push(self.anchored(group, anchor)),
            Kind::Closing(id) => {
                let node = self.live.node(id);
                let Op::Reduce { op, from, to } = node.op else {
                    unreachable!("only reductions close a chain")
                };
                let shape = &self.live.node(node.inputs[0]).shape;
                let outer = shape[..from].iter().product();
                let (len, inner) = (
                    shape[from..to].iter().product(),
                    shape[to..].iter().product(),
                );
                out.push(Kernel::Reduce {
                    chain: self.chain(group),
                    op,
                    outer,
                    len,
                    inner,
                    out: self.place(id),
                });
            }
            Kind::Standalone(id) => self.standalone(id, group, out),
        }
    }

    pub(super) fn geometry(&self, x: &[usize], w: &[usize], window: Window) -> ConvGeometry {
        let [kh, kw, ci, co] = window.kernel(w);
        let (oh, ow) = (window.out(x[1], kh), window.out(x[2], kw));
        ConvGeometry {
            n: x[0],
            h: x[1],
            w: x[2],
            ci,
            oh,
            ow,
            co,
            kh,
            kw,
            stride: window.stride,
            pad: window.pad,
            filter: window.filter,
        }
    }

    fn anchored(&self, group: &Group, anchor: NodeId) -> Kernel {
        let node = self.live.node(anchor);
        let (a, b) = (self.place(node.inputs[0]), self.place(node.inputs[1]));
        let (sa, sb) = (
            &self.live.node(node.inputs[0]).shape,
            &self.live.node(node.inputs[1]).shape,
        );
        let chain = self.chain(group);
        match node.op {
            Op::Conv { window } => Kernel::Conv {
                geometry: self.geometry(sa, sb, window),
                x: a,
                w: b,
                chain,
            },
            Op::ConvGradInput { window, .. } => Kernel::ConvGradInput {
                geometry: self.geometry(&node.shape, sb, window),
                dy: a,
                w: b,
                chain,
            },
            Op::Matmul { ta, tb, tf32 } => Kernel::Matmul {
                product: MatrixProduct::of(sa, sb, ta, tb),
                tf32,
                a,
                b,
                chain,
            },
            _ => unreachable!("not an anchor"),
        }
    }

    /// The element-wise program of a group.
    fn chain(&self, group: &Group) -> Chain {
        ChainBuilder::new(self, group).build()
    }
}
