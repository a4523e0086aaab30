//! The element-wise program of a group: its steps, registers, loads and stores.
//!
//! Nodes are taken in the order they have to be computed. A value others need goes straight to memory and is
//! read back from there, hot in cache; every other value gets a register, which is free again after its last
//! use.

use super::fuse::{Group, Kind};
use super::layout::{Source, access};
use super::lower::Lowering;
use super::*;
use std::collections::HashMap;

pub(super) struct ChainBuilder<'a, 'b, 'g> {
    low: &'a Lowering<'b, 'g>,
    group: &'a Group,
    cols: usize,
    values: HashMap<NodeId, Operand>,
    last_use: HashMap<NodeId, usize>,
    chain: Chain,
    /// Registers whose value nobody needs any more: whole blocks, rows.
    free: [Vec<usize>; 2],
}

impl<'a, 'b, 'g> ChainBuilder<'a, 'b, 'g> {
    pub fn new(low: &'a Lowering<'b, 'g>, group: &'a Group) -> Self {
        let cols = group.cols.unwrap_or(group.full).max(1);
        ChainBuilder {
            low,
            group,
            cols,
            values: HashMap::new(),
            last_use: HashMap::new(),
            chain: Chain {
                rows: group.full / cols,
                cols,
                flat: group.cols.is_none(),
                loads: Vec::new(),
                stores: Vec::new(),
                steps: Vec::new(),
                regs: 0,
                row_regs: 0,
                result: None,
            },
            free: [Vec::new(), Vec::new()],
        }
    }

    pub fn build(mut self) -> Chain {
        let nodes = self.group.nodes.clone();
        for (at, &id) in nodes.iter().enumerate() {
            for &input in &self.low.live.node(id).inputs {
                self.last_use.insert(self.low.root(id, input), at);
            }
        }
        // A closing reduction reads its summands after the last step, whoever else used them before.
        if let Kind::Closing(end) = self.group.kind {
            let (summands, _) = self.low.live.resolve(self.low.live.node(end).inputs[0]);
            self.last_use.remove(&summands);
        }
        for (at, &id) in nodes.iter().enumerate() {
            match self.group.kind {
                Kind::Anchored(anchor) if anchor == id => {
                    self.values.insert(id, Operand::Anchor);
                    if self.is_stored(id) {
                        self.step(id, at, StepOp::Copy, vec![Operand::Anchor]);
                    }
                }
                Kind::Closing(end) if end == id => {
                    let (root, offset) = self.low.live.resolve(self.low.live.node(id).inputs[0]);
                    self.chain.result = Some(self.direct(root, offset));
                }
                _ => self.compute(id, at),
            }
        }
        self.chain
    }

    fn is_stored(&self, id: NodeId) -> bool {
        self.low.places.contains_key(&id)
    }

    fn compute(&mut self, id: NodeId, at: usize) {
        let node = self.low.live.node(id);
        let rows = self.low.groups.row_wise[id.index()];
        let reduces = matches!(node.op, Op::Reduce { .. });
        let op = match &node.op {
            Op::Unary(op) => StepOp::Unary(*op),
            Op::Binary(op) => StepOp::Binary(*op),
            Op::Select => StepOp::Select,
            Op::Cast => StepOp::Cast(self.low.live.node(node.inputs[0]).dtype),
            Op::Assign { .. } => StepOp::Copy,
            Op::Noise {
                distribution,
                stream,
                sharded,
                ..
            } => {
                let counter = self.low.place(node.inputs[0]);
                StepOp::Noise {
                    distribution: *distribution,
                    stream: *stream,
                    counter,
                    shard: sharded.then(|| node.len()),
                }
            }
            Op::Reduce { op, .. } => StepOp::Reduce(*op),
            op => unreachable!("{op:?} is not element-wise"),
        };
        let args = match op {
            StepOp::Noise { .. } => vec![],
            _ => node
                .inputs
                .iter()
                .map(|&i| self.operand(i, rows && !reduces))
                .collect(),
        };
        self.step(id, at, op, args);
    }

    fn operand(&mut self, input: NodeId, row_wise: bool) -> Operand {
        match self.low.live.source(input) {
            Source::Const(c) => Operand::Const(c),
            Source::Direct { root, offset } => self.direct(root, offset),
            Source::Sliced {
                root,
                offset,
                stride,
                ..
            } => {
                let access = Access::Rows {
                    div: 1,
                    modulo: self.chain.rows,
                    stride,
                    spread: true,
                };
                self.load(root, offset, access)
            }
            Source::Stretched { root, offset, runs } => match self.values.get(&root) {
                Some(&value) if self.low.of.get(&root) == self.low.of.get(&self.group.nodes[0]) => {
                    value
                }
                _ => {
                    let access = if row_wise && runs.iter().all(|r| r.kept) && !runs.is_empty() {
                        Access::Flat
                    } else {
                        access(&runs, self.cols)
                    };
                    self.load(root, offset, access)
                }
            },
        }
    }

    fn direct(&mut self, root: NodeId, offset: usize) -> Operand {
        match self.values.get(&root) {
            Some(&value) => value,
            None => self.load(root, offset, Access::Flat),
        }
    }

    fn load(&mut self, root: NodeId, offset: usize, access: Access) -> Operand {
        let place = self.low.place(root).at(offset);
        let dtype = place.dtype;
        let known = self
            .chain
            .loads
            .iter()
            .position(|l| l.place == place && l.access == access && l.dtype == dtype);
        Operand::Load(known.unwrap_or_else(|| {
            self.chain.loads.push(Load {
                place,
                dtype,
                access,
            });
            self.chain.loads.len() - 1
        }))
    }

    /// Appends a step; its result goes to memory where others want it, else to a register.
    fn step(&mut self, id: NodeId, at: usize, op: StepOp, args: Vec<Operand>) {
        let row_wise = self.low.groups.row_wise[id.index()];
        let to = if self.is_stored(id) {
            self.chain.stores.push(StorePlace {
                place: self.low.place(id),
                row_wise,
            });
            Operand::Store(self.chain.stores.len() - 1)
        } else {
            let (free, count) = match row_wise {
                true => (&mut self.free[1], &mut self.chain.row_regs),
                false => (&mut self.free[0], &mut self.chain.regs),
            };
            let reg = free.pop().unwrap_or_else(|| {
                *count += 1;
                *count - 1
            });
            if row_wise {
                Operand::Row(reg)
            } else {
                Operand::Reg(reg)
            }
        };
        let row_step = row_wise && !matches!(op, StepOp::Reduce(_));
        self.chain.steps.push(Step {
            op,
            args,
            to,
            row_wise: row_step,
        });
        // An anchor stays where it is; a copy of it in memory serves the other kernels.
        if self.values.get(&id) != Some(&Operand::Anchor) {
            self.values.insert(id, to);
        }
        self.release(at);
    }

    /// Frees the registers of values that were used for the last time.
    fn release(&mut self, at: usize) {
        let mut dead: Vec<NodeId> = self
            .last_use
            .iter()
            .filter(|&(n, &last)| last == at && self.values.contains_key(n))
            .map(|(&n, _)| n)
            .collect();
        dead.sort();
        for id in dead {
            self.last_use.remove(&id);
            match self.values[&id] {
                Operand::Reg(r) => self.free[0].push(r),
                Operand::Row(r) => self.free[1].push(r),
                _ => {}
            }
        }
    }
}
