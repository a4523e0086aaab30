//! The same graph for tensor cores: what cuDNN likes, said in plain operations before anything is fused.
//!
//! - Kernels are turned to [outputs, height, width, inputs], their gradients back.
//! - Channels are padded to a multiple of [`CHANNELS`] with zeros.
//! - Convolutions that read one map with kernels of one size become one with joined outputs; so do their
//!   gradients: the weight gradients that read one map, and the data gradients that are added up.
//!
//! It runs after differentiation, so the graph a model draws stays the one the CPU runs.

use crate::graph::{Graph, Node, NodeId, Var};
use crate::op::{BinaryOp, Filter, Op, Window};
use std::collections::HashMap;

/// Tensor cores take rows of 16 bytes, 8 channels of two bytes.
const CHANNELS: usize = 8;

/// Draws what `outputs` and the assignments of `from` need on `to`; gives the outputs there.
pub(crate) fn for_tensor_cores<'g>(
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
        nodes,
        to,
        done: vec![None; nodes.len()],
        users,
        siblings: HashMap::new(),
    };
    rewriter.find_siblings(&live);
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
    nodes: &'a [Node],
    to: &'g Graph,
    done: Vec<Option<Var<'g>>>,
    users: Vec<Vec<NodeId>>,
    /// Convolutions, or weight gradients, that become one with this one, itself included.
    siblings: HashMap<NodeId, Vec<NodeId>>,
}

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
            } if window.filter == Filter::Hwio => self.back(&[id], *window, [*height, *width]),
            Op::ConvGradWeight { window, kh, kw } if window.filter == Filter::Hwio => {
                self.weight(id, *window, [*kh, *kw])
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
        let outside = matches!(
            self.to.inner().nodes[map.id.index()].op,
            Op::Input { .. } | Op::Param { .. } | Op::State { .. }
        );
        let map = match outside {
            true => self.to.push(Op::Cast, &[map]),
            false => map,
        };
        map.pad(3, 0, fill(map.dim(3)))
    }

    /// A kernel as [outputs, height, width, inputs], both kinds of channels padded.
    fn kernel(&mut self, id: NodeId) -> Var<'g> {
        let kernel = self.input(id, 1);
        let [kh, kw, ci, co] = Window::new(1, 0).kernel(&kernel.shape());
        let turned = kernel.reshape(&[kh * kw * ci, co]).transpose();
        let turned = turned.reshape(&[co, kh, kw, ci]);
        turned.pad(3, 0, fill(ci)).pad(0, 0, fill(co))
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

    /// A sum some of whose terms are data gradients with kernels of one size; `None` if it is nothing special.
    fn sum(&mut self, id: NodeId) -> Option<Var<'g>> {
        let within = |users: &[NodeId]| match users {
            [one] => matches!(self.nodes[one.index()].op, Op::Binary(BinaryOp::Add)),
            _ => false,
        };
        // A sum inside a larger one is taken apart there.
        if within(&self.users[id.index()]) {
            return None;
        }
        let (mut terms, mut stack) = (Vec::new(), vec![id]);
        while let Some(at) = stack.pop() {
            let node = &self.nodes[at.index()];
            let is_sum = matches!(node.op, Op::Binary(BinaryOp::Add));
            if is_sum && (at == id || within(&self.users[at.index()])) {
                stack.extend(node.inputs.iter().rev());
            } else {
                terms.push(at);
            }
        }
        let mut groups: Vec<(Op, Vec<NodeId>)> = Vec::new();
        let mut others = Vec::new();
        for term in terms {
            let node = &self.nodes[term.index()];
            let single = self.users[term.index()].len() == 1;
            let kernel = node.inputs.get(1).map(|k| &self.nodes[k.index()].shape);
            match (&node.op, kernel) {
                (op @ Op::ConvGradInput { window, .. }, Some(kernel))
                    if single && window.filter == Filter::Hwio =>
                {
                    let size = window.kernel(kernel);
                    let alike = |(known, group): &&mut (Op, Vec<NodeId>)| {
                        let first = self.nodes[group[0].index()].inputs[1];
                        let other = window.kernel(&self.nodes[first.index()].shape);
                        known == op && other[..3] == size[..3]
                    };
                    match groups.iter_mut().find(alike) {
                        Some((_, group)) => group.push(term),
                        None => groups.push((op.clone(), vec![term])),
                    }
                }
                _ => others.push(term),
            }
        }
        if groups.iter().all(|(_, group)| group.len() < 2) {
            return None;
        }
        let mut sum: Option<Var<'g>> = None;
        let mut add = |var: Var<'g>| sum = Some(sum.map_or(var, |s| s + var));
        for term in others {
            add(self.map(term));
        }
        for (op, group) in groups {
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
}

fn ohwi(window: Window) -> Window {
    Window {
        filter: Filter::Ohwi,
        ..window
    }
}

/// Channels that are missing to a full multiple.
fn fill(channels: usize) -> usize {
    channels.next_multiple_of(CHANNELS) - channels
}
