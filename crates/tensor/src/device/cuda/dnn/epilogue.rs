//! What follows a convolution in the same kernel: a chain of element-wise steps, in cuDNN's terms.
//!
//! [`Epilogue::from_chain`] takes the chains that are simple enough: maps, one value per channel and constants go
//! in, a handful of operations follow, maps come out. Registers, which a chain uses again and again, become
//! values that are written once; unused steps are left out, since cuDNN refuses them.

use super::problem::short;
use crate::compile::{Access, Chain, Operand, StepOp};
use crate::graph::DType;
use crate::op::{BinaryOp, UnaryOp};
use std::collections::HashMap;
use std::fmt;

/// How much of a tensor there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    One,
    Channels,
    Full,
}

/// A tensor the epilogue reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its number among the chain's loads.
    pub load: usize,
    pub extent: Extent,
    /// Elements from pixel to pixel, where that is more than the channels: a slice of a wider map.
    pub pitch: Option<usize>,
    pub dtype: DType,
    /// Bytes its address is a multiple of.
    pub align: usize,
}

/// A map the epilogue writes; outputs are in the order of the chain's stores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    pub value: Value,
    pub dtype: DType,
    pub align: usize,
}

/// A value of the epilogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The convolution's result.
    Anchor,
    /// One of [`Epilogue::inputs`].
    Input(usize),
    Const(f32),
    /// The result of one of [`Epilogue::steps`].
    Step(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointOp {
    Add,
    Sub,
    Mul,
    Max,
    Min,
    Neg,
    Elu,
}

/// One element-wise operation; `b` is there for those with two operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointStep {
    pub op: PointOp,
    pub a: Value,
    pub b: Option<Value>,
}

/// The steps after a convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    pub inputs: Vec<Input>,
    pub steps: Vec<PointStep>,
    pub outputs: Vec<Output>,
}

impl Epilogue {
    /// `chain` as an epilogue of a convolution whose result has `channels`, or nothing where it asks for more
    /// than cuDNN can follow a convolution with.
    pub fn from_chain(chain: &Chain, channels: usize) -> Option<Epilogue> {
        if chain.result.is_some() || chain.stores.is_empty() {
            return None;
        }
        let mut builder = Builder::default();
        for (at, load) in chain.loads.iter().enumerate() {
            let mut pitch = None;
            let extent = match load.access {
                Access::Flat => Extent::Full,
                Access::Scalar => Extent::One,
                Access::Rows {
                    modulo: 1,
                    spread: true,
                    ..
                } if chain.cols == channels => Extent::Channels,
                Access::Rows {
                    div: 1,
                    modulo,
                    stride,
                    spread: true,
                } if chain.cols == channels && modulo == chain.rows => {
                    pitch = Some(stride);
                    Extent::Full
                }
                Access::Rows { .. } => return None,
            };
            if !matches!(load.dtype, DType::F32 | DType::Bf16) {
                return None;
            }
            builder.epilogue.inputs.push(Input {
                load: at,
                extent,
                pitch,
                dtype: load.dtype,
                align: align(load.place.offset, load.dtype),
            });
        }
        for step in &chain.steps {
            if step.row_wise {
                return None;
            }
            let args: Vec<Value> = step
                .args
                .iter()
                .map(|&arg| builder.value(arg))
                .collect::<Option<_>>()?;
            let value = match (step.op, args.as_slice()) {
                (StepOp::Copy, &[a]) => a,
                (StepOp::Unary(op), &[a]) => builder.unary(op, a)?,
                (StepOp::Binary(op), &[a, b]) => builder.binary(op, a, b)?,
                _ => return None,
            };
            match step.to {
                Operand::Reg(r) => builder.regs.insert(r, value),
                Operand::Store(s) => builder.stores.insert(s, value),
                _ => return None,
            };
        }
        for (at, store) in chain.stores.iter().enumerate() {
            let value = *builder.stores.get(&at)?;
            let dtype = store.place.dtype;
            // What the convolution has no part in is no epilogue of it.
            if store.row_wise
                || builder.epilogue.extent(value) != Extent::Full
                || !matches!(dtype, DType::F32 | DType::Bf16)
                || !matches!(value, Value::Anchor | Value::Step(_))
            {
                return None;
            }
            builder.epilogue.outputs.push(Output {
                value,
                dtype,
                align: align(store.place.offset, dtype),
            });
        }
        builder.epilogue.without_loose_ends()
    }

    pub fn extent(&self, value: Value) -> Extent {
        match value {
            Value::Anchor => Extent::Full,
            Value::Const(_) => Extent::One,
            Value::Input(i) => self.inputs[i].extent,
            Value::Step(s) => {
                let step = &self.steps[s];
                let b = step.b.map_or(Extent::One, |b| self.extent(b));
                self.extent(step.a).max(b)
            }
        }
    }

    /// Drops what no output depends on; nothing where an output does not depend on the convolution.
    fn without_loose_ends(self) -> Option<Epilogue> {
        let mut step_used = vec![false; self.steps.len()];
        let mut input_used = vec![false; self.inputs.len()];
        let mut anchored = vec![false; self.steps.len()];
        for (at, step) in self.steps.iter().enumerate() {
            anchored[at] = [Some(step.a), step.b].iter().flatten().any(|v| match *v {
                Value::Anchor => true,
                Value::Step(s) => anchored[s],
                _ => false,
            });
        }
        let mut pending: Vec<Value> = Vec::new();
        for output in &self.outputs {
            if let Value::Step(s) = output.value
                && !anchored[s]
            {
                return None;
            }
            pending.push(output.value);
        }
        while let Some(value) = pending.pop() {
            match value {
                Value::Step(s) if !step_used[s] => {
                    step_used[s] = true;
                    pending.push(self.steps[s].a);
                    pending.extend(self.steps[s].b);
                }
                Value::Input(i) => input_used[i] = true,
                _ => {}
            }
        }
        let renumber = |used: &[bool]| -> Vec<usize> {
            used.iter()
                .scan(0, |next, &u| {
                    let at = *next;
                    *next += u as usize;
                    Some(at)
                })
                .collect()
        };
        let (steps, inputs) = (renumber(&step_used), renumber(&input_used));
        let moved = |value: Value| match value {
            Value::Step(s) => Value::Step(steps[s]),
            Value::Input(i) => Value::Input(inputs[i]),
            other => other,
        };
        Some(Epilogue {
            inputs: kept(&self.inputs, &input_used),
            steps: kept(&self.steps, &step_used)
                .into_iter()
                .map(|step| PointStep {
                    op: step.op,
                    a: moved(step.a),
                    b: step.b.map(moved),
                })
                .collect(),
            outputs: self
                .outputs
                .iter()
                .map(|output| Output {
                    value: moved(output.value),
                    ..*output
                })
                .collect(),
        })
    }
}

fn kept<T: Copy>(all: &[T], used: &[bool]) -> Vec<T> {
    let pairs = all.iter().zip(used);
    pairs.filter(|(_, u)| **u).map(|(t, _)| *t).collect()
}

/// What a tensor's address is a multiple of, up to 16 bytes; the memories themselves start on more.
fn align(offset: usize, dtype: DType) -> usize {
    let bytes = offset * dtype.bytes();
    [16, 8, 4]
        .into_iter()
        .find(|a| bytes.is_multiple_of(*a))
        .unwrap_or(dtype.bytes())
}

struct Builder {
    regs: HashMap<usize, Value>,
    stores: HashMap<usize, Value>,
    epilogue: Epilogue,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            regs: HashMap::new(),
            stores: HashMap::new(),
            epilogue: Epilogue {
                inputs: Vec::new(),
                steps: Vec::new(),
                outputs: Vec::new(),
            },
        }
    }
}

impl Builder {
    fn value(&self, operand: Operand) -> Option<Value> {
        match operand {
            Operand::Reg(r) => self.regs.get(&r).copied(),
            Operand::Store(s) => self.stores.get(&s).copied(),
            Operand::Load(l) => Some(Value::Input(l)),
            Operand::Const(c) => Some(Value::Const(c)),
            Operand::Anchor => Some(Value::Anchor),
            Operand::Row(_) => None,
        }
    }

    fn push(&mut self, op: PointOp, a: Value, b: Option<Value>) -> Value {
        self.epilogue.steps.push(PointStep { op, a, b });
        Value::Step(self.epilogue.steps.len() - 1)
    }

    fn unary(&mut self, op: UnaryOp, a: Value) -> Option<Value> {
        Some(match op {
            UnaryOp::Neg => self.push(PointOp::Neg, a, None),
            UnaryOp::Elu => self.push(PointOp::Elu, a, None),
            UnaryOp::EluSlope => {
                // 1 above 0 and y + 1 below is min(y, 0) + 1.
                let below = self.push(PointOp::Min, a, Some(Value::Const(0.0)));
                self.push(PointOp::Add, below, Some(Value::Const(1.0)))
            }
            _ => return None,
        })
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Option<Value> {
        // cuDNN stretches the second operand, so the larger one goes first.
        let larger_first = match self.epilogue.extent(a) >= self.epilogue.extent(b) {
            true => (a, b),
            false => (b, a),
        };
        let op = match op {
            BinaryOp::Add => PointOp::Add,
            BinaryOp::Mul => PointOp::Mul,
            BinaryOp::Max => PointOp::Max,
            BinaryOp::Min => PointOp::Min,
            BinaryOp::Sub => {
                return Some(match (b, larger_first.0 == a) {
                    (Value::Const(c), _) => self.push(PointOp::Add, a, Some(Value::Const(-c))),
                    (_, true) => self.push(PointOp::Sub, a, Some(b)),
                    (_, false) => {
                        let negative = self.push(PointOp::Neg, b, None);
                        self.push(PointOp::Add, negative, Some(a))
                    }
                });
            }
            BinaryOp::Div | BinaryOp::Eq | BinaryOp::Gt => return None,
        };
        Some(self.push(op, larger_first.0, Some(larger_first.1)))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Anchor => f.write_str("conv"),
            Value::Input(i) => write!(f, "in{i}"),
            Value::Const(c) => write!(f, "{c}"),
            Value::Step(s) => write!(f, "t{s}"),
        }
    }
}

/// The whole epilogue in one line: part of a problem's key.
impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, input) in self.inputs.iter().enumerate() {
            let extent = match input.extent {
                Extent::One => "one",
                Extent::Channels => "channels",
                Extent::Full => "full",
            };
            write!(
                f,
                "in{at}={extent}:{}:a{} ",
                short(input.dtype),
                input.align
            )?;
            if let Some(pitch) = input.pitch {
                write!(f, "pitch {pitch} ")?;
            }
        }
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "t{at}={:?}({}", step.op, step.a)?;
            if let Some(b) = step.b {
                write!(f, ",{b}")?;
            }
            f.write_str(") ")?;
        }
        f.write_str(">")?;
        for output in &self.outputs {
            write!(
                f,
                " {}:{}:a{}",
                output.value,
                short(output.dtype),
                output.align
            )?;
        }
        Ok(())
    }
}
