//! Operations that are kernels of their own: movements, codes, weight gradients, responsibilities, packing.

use super::fuse::Group;
use super::lower::Lowering;
use super::*;

impl Lowering<'_, '_> {
    pub(super) fn standalone(&self, id: NodeId, group: &Group, out: &mut Vec<Kernel>) {
        let node = self.live.node(id);
        let to = self.place(id);
        let from = |i: usize| self.place(node.inputs[i]);
        let shape = |i: usize| &self.live.node(node.inputs[i]).shape;
        let map = |s: &[usize]| [s[0], s[1], s[2], s[3]];
        let mut step = |movement| {
            out.push(Kernel::Move {
                movement,
                from: from(0),
                to,
            })
        };
        match &node.op {
            Op::Const { bits, .. } => out.push(Kernel::Fill {
                to,
                len: node.len(),
                value: f32::from_bits(*bits),
            }),
            Op::Broadcast { shape: wide } => {
                let narrow = shape(0);
                let mut strides = vec![0; wide.len()];
                let mut stride = 1;
                for axis in (0..wide.len()).rev() {
                    strides[axis] = if narrow[axis] == 1 { 0 } else { stride };
                    stride *= narrow[axis];
                }
                step(Movement::Broadcast {
                    shape: wide.clone(),
                    strides,
                });
            }
            Op::Upsample { factor } => step(Movement::Upsample {
                shape: map(shape(0)),
                factor: *factor,
            }),
            Op::SumPool { factor } => step(Movement::SumPool {
                shape: map(shape(0)),
                factor: *factor,
            }),
            Op::EdgePad { by } => step(Movement::EdgePad {
                shape: map(shape(0)),
                by: *by,
            }),
            Op::EdgeFold { by } => step(Movement::EdgeFold {
                shape: map(shape(0)),
                by: *by,
            }),
            Op::SpaceToDepth { factor } => step(Movement::SpaceToDepth {
                shape: map(shape(0)),
                factor: *factor,
            }),
            Op::DepthToSpace { factor } => step(Movement::DepthToSpace {
                shape: map(shape(0)),
                factor: *factor,
            }),
            Op::Transpose => step(Movement::Transpose {
                rows: shape(0)[0],
                cols: shape(0)[1],
            }),
            Op::Slice { axis, start, len } => {
                let s = shape(0);
                let (outer, inner): (usize, usize) =
                    (s[..*axis].iter().product(), s[axis + 1..].iter().product());
                let mut from = from(0);
                from.offset += start * inner;
                let movement = Movement::Runs {
                    outer,
                    len: len * inner,
                    from: s[*axis] * inner,
                    to: len * inner,
                };
                out.push(Kernel::Move { movement, from, to });
            }
            Op::Pad { axis, before, .. } => {
                let s = shape(0);
                let (outer, inner): (usize, usize) =
                    (s[..*axis].iter().product(), s[axis + 1..].iter().product());
                step(Movement::Pad {
                    outer,
                    len: s[*axis] * inner,
                    before: before * inner,
                    wide: node.shape[*axis] * inner,
                });
            }
            Op::Concat { axis } => {
                let inner: usize = node.shape[axis + 1..].iter().product();
                let outer: usize = node.shape[..*axis].iter().product();
                let mut start = 0;
                for i in 0..node.inputs.len() {
                    let len = shape(i)[*axis] * inner;
                    let at = to.at(start);
                    let movement = Movement::Runs {
                        outer,
                        len,
                        from: len,
                        to: node.shape[*axis] * inner,
                    };
                    out.push(Kernel::Move {
                        movement,
                        from: from(i),
                        to: at,
                    });
                    start += len;
                }
            }
            Op::Pack { offsets, len } => self.pack(node, offsets, *len, to, out),
            Op::ArgMax => {
                let cols = *shape(0).last().expect("argmax has an axis");
                out.push(Kernel::ArgMax {
                    rows: node.len(),
                    cols,
                    x: from(0),
                    out: to,
                });
            }
            Op::AllSum { bf16 } => out.push(Kernel::AllSum {
                len: node.len(),
                from: from(0),
                to,
                bf16: *bf16,
            }),
            Op::Gather => {
                let (codes, cols) = (shape(0)[0], shape(0)[1]);
                let rows = node.shape[0];
                out.push(Kernel::Gather {
                    rows,
                    cols,
                    codes,
                    table: from(0),
                    index: from(1),
                    out: to,
                });
            }
            Op::ScatterAdd { rows: codes } => {
                let (rows, cols) = (shape(1)[0], shape(1)[1]);
                out.push(Kernel::ScatterAdd {
                    rows,
                    cols,
                    codes: *codes,
                    index: from(0),
                    x: from(1),
                    out: to,
                });
            }
            Op::ConvGradWeight { window, kh, kw } => {
                let kernel = window.kernel_shape([*kh, *kw, shape(0)[3], shape(1)[3]]);
                let geometry = self.geometry(shape(0), &kernel, *window);
                out.push(Kernel::ConvGradWeight {
                    geometry,
                    x: from(0),
                    dy: from(1),
                    out: to,
                });
            }
            Op::Responsibility(op) => {
                let inputs = (0..node.inputs.len()).map(from).collect();
                let (rows, dim, codes) = (node.shape[0], node.shape[1], shape(4)[0]);
                let (index, kl) = (self.part(group, 1), self.part(group, 2));
                out.push(Kernel::Responsibility {
                    op: *op,
                    rows,
                    dim,
                    codes,
                    inputs,
                    z: to,
                    index,
                    kl,
                });
            }
            Op::ResponsibilityGrad(op) => {
                let inputs = (0..node.inputs.len()).map(from).collect();
                let (rows, dim, codes) = (node.shape[0], node.shape[1], shape(4)[0]);
                let outputs = [
                    Some(to),
                    self.part(group, 1),
                    self.part(group, 2),
                    self.part(group, 3),
                ];
                out.push(Kernel::ResponsibilityGrad {
                    op: *op,
                    rows,
                    dim,
                    codes,
                    inputs,
                    outputs,
                });
            }
            op => unreachable!("{op:?} is not a kernel of its own"),
        }
    }

    /// Where a further result of a group's node goes, if anybody wants it.
    fn part(&self, group: &Group, wanted: usize) -> Option<Place> {
        let is = |id: &&NodeId| matches!(self.live.node(**id).op, Op::Part { index, .. } if index == wanted);
        group.nodes.iter().find(is).map(|&id| self.place(id))
    }

    /// Copies what does not lie in its place yet and clears the gaps.
    fn pack(
        &self,
        node: &crate::graph::Node,
        offsets: &[usize],
        len: usize,
        to: Place,
        out: &mut Vec<Kernel>,
    ) {
        let mut parts: Vec<(usize, NodeId)> = offsets
            .iter()
            .copied()
            .zip(node.inputs.iter().copied())
            .collect();
        parts.sort_by_key(|p| p.0);
        let mut end = 0;
        for (at, input) in parts {
            let size = self.live.node(input).len();
            let here = to.at(at);
            if at > end {
                let gap = to.at(end);
                out.push(Kernel::Fill {
                    to: gap,
                    len: at - end,
                    value: 0.0,
                });
            }
            let from = self.place(input);
            if from != here {
                let movement = Movement::Runs {
                    outer: 1,
                    len: size,
                    from: size,
                    to: size,
                };
                out.push(Kernel::Move {
                    movement,
                    from,
                    to: here,
                });
            }
            end = at + size;
        }
        if end < len {
            let gap = to.at(end);
            out.push(Kernel::Fill {
                to: gap,
                len: len - end,
                value: 0.0,
            });
        }
    }
}
