//! Convolutions in the layout that a target asks for, as plain operations before anything is fused.
//!
//! - Kernels are turned to [outputs, height, width, inputs], their gradients back.
//! - Channels are padded with zeros to a multiple of [`ConvLayout::channels`].
//! - Convolutions that read one map with kernels of one size become one with joined outputs; so do their
//!   gradients: the weight gradients that read one map, and the data gradients that are added up.
//! - Convolutions that are added up become one with joined inputs where that costs little, that is where all maps
//!   but one are narrow; so do the gradients that begin where the sum was.
//!
//! It runs after differentiation, so the graph a model builds stays the one the CPU runs.

use super::ConvLayout;
use crate::graph::{Graph, Node, NodeId, Var};
use crate::op::{BinaryOp, Filter, Op, Window};
use std::collections::HashMap;

/// Copies what `outputs` and the assignments of `from` need to `to`; gives the outputs there.
pub(crate) fn rewrite<'g>(
    layout: ConvLayout,
    from: &Graph,
    to: &'g Graph,
    outputs: &[NodeId],
) -> Vec<Var<'g>> {
    let inner = from.inner();
    let nodes = &inner.nodes;
    let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); nodes.len()];
    let mut live = vec![false; nodes.len()];
    let mut stack: Vec<NodeId> = outputs.iter().chain(&inner.assignments).copied().collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut live[id.index()], true) {
            for &input in &nodes[id.index()].inputs {
                users[input.index()].push(id);
                stack.push(input);
            }
        }
    }
    for &id in outputs {
        // An output must not vanish into a sum: somebody looks at it.
        users[id.index()].push(id);
    }
    let mut rewriter = Rewriter {
        layout,
        nodes,
        to,
        done: vec![None; nodes.len()],
        users,
        siblings: HashMap::new(),
        partners: HashMap::new(),
    };
    rewriter.find_siblings(&live);
    rewriter.find_partners(&live);
    for id in (0..nodes.len() as u32)
        .map(NodeId)
        .filter(|id| live[id.index()])
    {
        rewriter.map(id);
    }
    for &assign in &inner.assignments {
        let var = rewriter.map(assign);
        to.note_assignment(var);
    }
    outputs.iter().map(|&id| rewriter.map(id)).collect()
}

struct Rewriter<'a, 'g> {
    layout: ConvLayout,
    nodes: &'a [Node],
    to: &'g Graph,
    done: Vec<Option<Var<'g>>>,
    users: Vec<Vec<NodeId>>,
    /// Convolutions, or weight gradients, that become one with this one, itself included.
    siblings: HashMap<NodeId, Vec<NodeId>>,
    /// Gradients of convolutions that were added up, and how often each counted in the sum.
    partners: HashMap<NodeId, Vec<(NodeId, f32)>>,
}

/// Terms of a sum and how often each counts.
type Terms = Vec<(NodeId, f32)>;

impl<'g> Rewriter<'_, 'g> {
    /// Convolutions of one map with kernels of one size, both ways.
    fn find_siblings(&mut self, live: &[bool]) {
        let mut found: HashMap<(NodeId, Window, [usize; 2], bool), Vec<NodeId>> = HashMap::new();
        let mut fixed = vec![false; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            // Kernels must be there before the first of the convolutions: made of parameters alone.
            fixed[index] = match node.op {
                Op::Param { .. } | Op::Const { .. } => true,
                Op::Input { .. } | Op::State { .. } => false,
                _ => node.inputs.iter().all(|i| fixed[i.index()]),
            };
            if !live[index] {
                continue;
            }
            let id = NodeId(index as u32);
            match node.op {
                Op::Conv { window } if fixed[node.inputs[1].index()] => {
                    let [kh, kw, ..] = window.kernel(&self.nodes[node.inputs[1].index()].shape);
                    let key = (node.inputs[0], window, [kh, kw], true);
                    found.entry(key).or_default().push(id);
                }
                Op::ConvGradWeight { window, kh, kw } => {
                    let key = (node.inputs[0], window, [kh, kw], false);
                    found.entry(key).or_default().push(id);
                }
                _ => {}
            }
        }
        for ((_, window, ..), group) in found {
            if group.len() > 1 && window.filter == Filter::Hwio {
                for &id in &group {
                    self.siblings.insert(id, group.clone());
                }
            }
        }
    }

    /// The factor of a product with a constant, and what it multiplies.
    fn scaled(&self, id: NodeId) -> Option<(f32, NodeId)> {
        let node = &self.nodes[id.index()];
        let constant = |id: NodeId| match self.nodes[id.index()].op {
            Op::Const { bits, .. } => Some(f32::from_bits(bits)),
            _ => None,
        };
        match node.op {
            Op::Binary(BinaryOp::Mul) => match (constant(node.inputs[0]), constant(node.inputs[1]))
            {
                (None, Some(c)) => Some((c, node.inputs[0])),
                (Some(c), None) => Some((c, node.inputs[1])),
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts convolutions or their gradients in the order of the maps they read or lead to, the widest first, and
    /// tells whether joining those maps costs little.
    fn worth_joining(&self, group: &mut [(NodeId, f32)]) -> bool {
        let channels = |id: NodeId| {
            let node = &self.nodes[id.index()];
            let map = match node.op {
                Op::ConvGradInput { .. } => &node.shape,
                _ => &self.nodes[node.inputs[0].index()].shape,
            };
            map[3]
        };
        group.sort_by_key(|&(id, _)| {
            (
                std::cmp::Reverse(channels(id)),
                self.nodes[id.index()].inputs[0],
            )
        });
        let mut sizes = group.iter().map(|&(id, _)| channels(id));
        let wide = sizes.next().unwrap_or(0);
        let narrow: usize = sizes.sum();
        narrow > 0 && narrow * self.layout.narrow <= wide
    }

    /// Data gradients, and weight gradients, that begin at one map, each counting it so many times.
    fn find_partners(&mut self, live: &[bool]) {
        type Key = (NodeId, Op, Vec<usize>);
        let mut found: Vec<(Key, Vec<(NodeId, f32)>)> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
            let id = NodeId(index as u32);
            let shape = |i: usize| &self.nodes[node.inputs[i].index()].shape;
            let (gradient, window, sizes) = match &node.op {
                Op::ConvGradInput { window, .. } => {
                    let [kh, kw, ..] = window.kernel(shape(1));
                    (node.inputs[0], *window, vec![kh, kw])
                }
                Op::ConvGradWeight { window, .. } => {
                    (node.inputs[1], *window, shape(0)[..3].to_vec())
                }
                _ => continue,
            };
            let adds =
                |user: &NodeId| matches!(self.nodes[user.index()].op, Op::Binary(BinaryOp::Add));
            let busy = self.siblings.contains_key(&id) || self.users[index].iter().any(adds);
            if window.filter != Filter::Hwio || busy {
                continue;
            }
            let (factor, start) = self.scaled(gradient).unwrap_or((1.0, gradient));
            let key = (start, node.op.clone(), sizes);
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push((id, factor)),
                None => found.push((key, vec![(id, factor)])),
            }
        }
        for (_, mut group) in found {
            if self.worth_joining(&mut group) {
                for &(id, _) in &group {
                    self.partners.insert(id, group.clone());
                }
            }
        }
    }

    fn map(&mut self, id: NodeId) -> Var<'g> {
        if let Some(var) = self.done[id.index()] {
            return var;
        }
        let node = &self.nodes[id.index()];
        let var = match &node.op {
            Op::Conv { window } if window.filter == Filter::Hwio => self.conv(id, *window),
            Op::ConvGradInput {
                window,
                height,
                width,
            } if window.filter == Filter::Hwio => match self.partners.get(&id).cloned() {
                Some(group) => self.back_apart(id, &group, *window, [*height, *width]),
                None => self.back(&[id], *window, [*height, *width]),
            },
            Op::ConvGradWeight { window, kh, kw } if window.filter == Filter::Hwio => {
                match self.partners.get(&id).cloned() {
                    Some(group) => self.weight_apart(id, &group, *window, [*kh, *kw]),
                    None => self.weight(id, *window, [*kh, *kw]),
                }
            }
            Op::Binary(BinaryOp::Add) => match self.sum(id) {
                Some(var) => var,
                None => self.copy(id),
            },
            _ => self.copy(id),
        };
        self.done[id.index()] = Some(var);
        var
    }

    fn copy(&mut self, id: NodeId) -> Var<'g> {
        let node = &self.nodes[id.index()];
        let inputs: Vec<Var<'g>> = node.inputs.iter().map(|&i| self.map(i)).collect();
        self.to.push(node.op.clone(), &inputs)
    }

    fn input(&mut self, id: NodeId, which: usize) -> Var<'g> {
        let input = self.nodes[id.index()].inputs[which];
        self.map(input)
    }

    /// A map with its channels padded, in memory of the plan's own.
    fn wide(&mut self, id: NodeId, which: usize) -> Var<'g> {
        let map = self.input(id, which);
        self.own(map)
    }

    fn own(&self, map: Var<'g>) -> Var<'g> {
        let outside = matches!(
            self.to.inner().nodes[map.id.index()].op,
            Op::Input { .. } | Op::Param { .. } | Op::State { .. }
        );
        let map = match outside {
            true => self.to.push(Op::Cast, &[map]),
            false => map,
        };
        map.pad(3, 0, self.fill(map.dim(3)))
    }

    /// Channels that are missing to a full multiple.
    fn fill(&self, channels: usize) -> usize {
        channels.next_multiple_of(self.layout.channels) - channels
    }

    /// A kernel as [outputs, height, width, inputs], both kinds of channels padded.
    fn kernel(&mut self, id: NodeId) -> Var<'g> {
        self.kernel_times(id, 1.0)
    }

    fn kernel_times(&mut self, id: NodeId, factor: f32) -> Var<'g> {
        let kernel = self.input(id, 1);
        let kernel = if factor == 1.0 {
            kernel
        } else {
            kernel * factor
        };
        let [kh, kw, ci, co] = Window::new(1, 0).kernel(&kernel.shape());
        let turned = kernel.reshape(&[kh * kw * ci, co]).transpose();
        let turned = turned.reshape(&[co, kh, kw, ci]);
        turned.pad(3, 0, self.fill(ci)).pad(0, 0, self.fill(co))
    }

    fn conv(&mut self, id: NodeId, window: Window) -> Var<'g> {
        let group = self.siblings.get(&id).cloned().unwrap_or(vec![id]);
        let map = self.wide(id, 0);
        let kernels: Vec<Var<'g>> = group.iter().map(|&sibling| self.kernel(sibling)).collect();
        let joined = map.conv_forth(self.to.concat(&kernels, 0), ohwi(window));
        let mut start = 0;
        for (&sibling, kernel) in group.iter().zip(&kernels) {
            let channels = self.nodes[sibling.index()].shape[3];
            self.done[sibling.index()] = Some(joined.slice(3, start, channels));
            start += kernel.dim(0);
        }
        self.done[id.index()].expect("a convolution is its own sibling")
    }

    /// The sum of data gradients that lead to one map.
    fn back(&mut self, group: &[NodeId], window: Window, [height, width]: [usize; 2]) -> Var<'g> {
        let kernels: Vec<Var<'g>> = group.iter().map(|&id| self.kernel(id)).collect();
        let maps: Vec<Var<'g>> = group.iter().map(|&id| self.wide(id, 0)).collect();
        let (map, kernel) = (self.to.concat(&maps, 3), self.to.concat(&kernels, 0));
        let channels = self.nodes[group[0].index()].shape[3];
        map.conv_back(kernel, ohwi(window), height, width)
            .slice(3, 0, channels)
    }

    fn weight(&mut self, id: NodeId, window: Window, [kh, kw]: [usize; 2]) -> Var<'g> {
        let group = self.siblings.get(&id).cloned().unwrap_or(vec![id]);
        let map = self.wide(id, 0);
        let gradients: Vec<Var<'g>> = group.iter().map(|&sibling| self.wide(sibling, 1)).collect();
        let op = Op::ConvGradWeight {
            window: ohwi(window),
            kh,
            kw,
        };
        let joined = self.to.push(op, &[map, self.to.concat(&gradients, 3)]);
        let mut start = 0;
        for (&sibling, gradient) in group.iter().zip(&gradients) {
            let [_, _, ci, co] = window.kernel(&self.nodes[sibling.index()].shape);
            let own = joined.slice(0, start, co).slice(3, 0, ci);
            let turned = own.reshape(&[co, kh * kw * ci]).transpose();
            self.done[sibling.index()] = Some(turned.reshape(&[kh, kw, ci, co]));
            start += gradient.dim(3);
        }
        self.done[id.index()].expect("a gradient is its own sibling")
    }

    /// The sum of convolutions of several maps.
    fn conv_of_many(&mut self, group: &[(NodeId, f32)], window: Window) -> Var<'g> {
        let maps: Vec<Var<'g>> = group.iter().map(|&(id, _)| self.wide(id, 0)).collect();
        let kernels: Vec<Var<'g>> = group
            .iter()
            .map(|&(id, factor)| self.kernel_times(id, factor))
            .collect();
        let (map, kernel) = (self.to.concat(&maps, 3), self.to.concat(&kernels, 3));
        let channels = self.nodes[group[0].0.index()].shape[3];
        map.conv_forth(kernel, ohwi(window)).slice(3, 0, channels)
    }

    /// The gradients of several maps whose convolutions were added up.
    fn back_apart(
        &mut self,
        id: NodeId,
        group: &[(NodeId, f32)],
        window: Window,
        [height, width]: [usize; 2],
    ) -> Var<'g> {
        let gradient = self.start_of(id, 0);
        let kernels: Vec<Var<'g>> = group
            .iter()
            .map(|&(id, factor)| self.kernel_times(id, factor))
            .collect();
        let joined = gradient.conv_back(self.to.concat(&kernels, 3), ohwi(window), height, width);
        let mut start = 0;
        for (&(member, _), kernel) in group.iter().zip(&kernels) {
            let channels = self.nodes[member.index()].shape[3];
            self.done[member.index()] = Some(joined.slice(3, start, channels));
            start += kernel.dim(3);
        }
        self.done[id.index()].expect("a gradient is its own partner")
    }

    fn weight_apart(
        &mut self,
        id: NodeId,
        group: &[(NodeId, f32)],
        window: Window,
        [kh, kw]: [usize; 2],
    ) -> Var<'g> {
        let gradient = self.start_of(id, 1);
        let maps: Vec<Var<'g>> = group.iter().map(|&(id, _)| self.wide(id, 0)).collect();
        let op = Op::ConvGradWeight {
            window: ohwi(window),
            kh,
            kw,
        };
        let joined = self.to.push(op, &[self.to.concat(&maps, 3), gradient]);
        let mut start = 0;
        for (&(member, factor), map) in group.iter().zip(&maps) {
            let [_, _, ci, co] = window.kernel(&self.nodes[member.index()].shape);
            let own = joined.slice(0, 0, co).slice(3, start, ci);
            let turned = own.reshape(&[co, kh * kw * ci]).transpose();
            let turned = turned.reshape(&[kh, kw, ci, co]);
            let turned = if factor == 1.0 {
                turned
            } else {
                turned * factor
            };
            self.done[member.index()] = Some(turned);
            start += map.dim(3);
        }
        self.done[id.index()].expect("a gradient is its own partner")
    }

    /// The map a gradient begins at, without the factor it may have there.
    fn start_of(&mut self, id: NodeId, which: usize) -> Var<'g> {
        let gradient = self.nodes[id.index()].inputs[which];
        let start = self.scaled(gradient).map_or(gradient, |(_, start)| start);
        let map = self.map(start);
        self.own(map)
    }

    /// A sum some of whose terms are convolutions that can be joined; `None` if it is nothing special.
    fn sum(&mut self, id: NodeId) -> Option<Var<'g>> {
        // A sum inside a larger one is taken apart there.
        if self.is_term(id) {
            return None;
        }
        let (mut terms, mut stack) = (Vec::new(), vec![(id, 1.0f32)]);
        while let Some((at, factor)) = stack.pop() {
            let node = &self.nodes[at.index()];
            let open = at == id || self.is_term(at);
            match (&node.op, self.scaled(at)) {
                (Op::Binary(BinaryOp::Add), _) if open => {
                    stack.extend(node.inputs.iter().rev().map(|&i| (i, factor)));
                }
                (_, Some((by, inner))) if open => stack.push((inner, factor * by)),
                _ => terms.push((at, factor)),
            }
        }
        let mut back: Vec<(Op, [usize; 3], Vec<NodeId>)> = Vec::new();
        let mut forth: Vec<(Window, [usize; 3], Terms)> = Vec::new();
        let mut others = Vec::new();
        for (term, factor) in terms {
            let node = &self.nodes[term.index()];
            let unshared = self.users[term.index()].len() == 1;
            let kernel = node
                .inputs
                .get(1)
                .map(|k| self.nodes[k.index()].shape.clone());
            match (&node.op, kernel) {
                (op @ Op::ConvGradInput { window, .. }, Some(kernel))
                    if unshared && factor == 1.0 && window.filter == Filter::Hwio =>
                {
                    let [kh, kw, ci, _] = window.kernel(&kernel);
                    let size = [kh, kw, ci];
                    match back.iter_mut().find(|g| g.0 == *op && g.1 == size) {
                        Some((_, _, group)) => group.push(term),
                        None => back.push((op.clone(), size, vec![term])),
                    }
                }
                (Op::Conv { window }, Some(kernel))
                    if unshared
                        && window.filter == Filter::Hwio
                        && !self.siblings.contains_key(&term) =>
                {
                    let [kh, kw, _, co] = window.kernel(&kernel);
                    let size = [kh, kw, co];
                    match forth.iter_mut().find(|g| g.0 == *window && g.1 == size) {
                        Some((_, _, group)) => group.push((term, factor)),
                        None => forth.push((*window, size, vec![(term, factor)])),
                    }
                }
                _ => others.push((term, factor)),
            }
        }
        let (forth, single): (Vec<_>, Vec<_>) = forth
            .into_iter()
            .map(|(window, _, mut group)| (self.worth_joining(&mut group), window, group))
            .partition(|(joins, ..)| *joins);
        if forth.is_empty() && back.iter().all(|g| g.2.len() < 2) {
            return None;
        }
        others.extend(single.into_iter().flat_map(|(_, _, group)| group));
        let mut sum: Option<Var<'g>> = None;
        let mut add = |var: Var<'g>| sum = Some(sum.map_or(var, |s| s + var));
        for (term, factor) in others {
            let var = self.map(term);
            add(if factor == 1.0 { var } else { var * factor });
        }
        for (_, window, group) in forth {
            add(self.conv_of_many(&group, window));
        }
        for (op, _, group) in back {
            let Op::ConvGradInput {
                window,
                height,
                width,
            } = op
            else {
                unreachable!("only data gradients are grouped")
            };
            add(self.back(&group, window, [height, width]));
        }
        sum
    }

    /// Whether a node is only a term, or a multiple of a term, of one sum.
    fn is_term(&self, id: NodeId) -> bool {
        match self.users[id.index()][..] {
            [user] => match self.nodes[user.index()].op {
                Op::Binary(BinaryOp::Add) => user != id,
                _ => user != id && self.scaled(user).is_some() && self.is_term(user),
            },
            _ => false,
        }
    }
}

fn ohwi(window: Window) -> Window {
    Window {
        filter: Filter::Ohwi,
        ..window
    }
}
