//! A problem as cuDNN's operation graph: tensors, one convolution, the pointwise operations after it.
//!
//! Tensors are known by numbers. The same problem always gets the same numbers, so a plan read back from disk
//! fits the pointers of a graph that was never built.

use super::descriptor::{Descriptor, Kind, Name, Target, Type};
use super::epilogue::{Extent, Output, PointOp, Value};
use super::problem::{Direction, Problem};
use crate::graph::DType;
use crate::{Error, Result};
use cudarc::cudnn::sys;
use std::collections::HashMap;

/// How the results of a graph reach memory. Not every engine takes every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The operation that computes a result writes it.
    Direct,
    /// Results stay f32 inside the kernel; an identity operation stores each.
    Identity,
}

/// Numbers of tensors: the operands and the result, in the order x, w, y.
pub const X: i64 = 1;
pub const W: i64 = 2;
pub const Y: i64 = 3;
const INPUTS: i64 = 100;
const OUTPUTS: i64 = 200;
const CONSTS: i64 = 300;
const INNER: i64 = 1000;

/// A tensor whose address a run has to give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    X,
    W,
    Y,
    Input(usize),
    Output(usize),
    /// A number that is passed by value.
    Const(f32),
}

/// The tensors of a problem's graph that live outside of it, by number.
pub fn slots(problem: &Problem) -> Vec<(i64, Slot)> {
    let plain = problem.epilogue.is_none();
    let mut slots = Vec::new();
    for (number, slot, side) in [
        (X, Slot::X, Direction::Data),
        (W, Slot::W, Direction::Weight),
        (Y, Slot::Y, Direction::Forward),
    ] {
        if plain || problem.direction != side {
            slots.push((number, slot));
        }
    }
    if let Some(epilogue) = &problem.epilogue {
        let numbered = |base: i64, at: usize| base + at as i64;
        slots.extend((0..epilogue.inputs.len()).map(|i| (numbered(INPUTS, i), Slot::Input(i))));
        slots.extend((0..epilogue.outputs.len()).map(|i| (numbered(OUTPUTS, i), Slot::Output(i))));
        for (i, c) in consts(problem).into_iter().enumerate() {
            slots.push((numbered(CONSTS, i), Slot::Const(c)));
        }
    }
    slots
}

/// The different constants of a problem, in order of use.
fn consts(problem: &Problem) -> Vec<f32> {
    let mut consts: Vec<f32> = Vec::new();
    let steps = problem.epilogue.iter().flat_map(|e| &e.steps);
    for value in steps.flat_map(|s| [Some(s.a), s.b]).flatten() {
        if let Value::Const(c) = value
            && !consts.iter().any(|k| k.to_bits() == c.to_bits())
        {
            consts.push(c);
        }
    }
    consts
}

/// A finalized operation graph and all it is made of.
pub struct Graph {
    pub graph: Descriptor,
    _parts: Vec<Descriptor>,
}

/// Draws `problem` for `target`.
pub fn graph(target: Target<'_>, problem: &Problem, form: Form) -> Result<Graph> {
    let outputs = outputs(problem)?;
    let mut draft = Draft {
        problem,
        form,
        outputs,
        consts: consts(problem),
        known: HashMap::new(),
        written: Vec::new(),
        parts: Vec::new(),
        operations: Vec::new(),
    };
    draft.convolution()?;
    for at in 0..problem.epilogue.as_ref().map_or(0, |e| e.steps.len()) {
        draft.step(at)?;
    }
    draft.stores()?;
    let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
    let graph = target.apply(graph, Some(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?;
    let graph = graph
        .links(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &draft.operations)?
        .finalize()?;
    let mut parts = draft.parts;
    parts.extend(draft.operations);
    Ok(Graph {
        graph,
        _parts: parts,
    })
}

/// What reaches memory: the epilogue's outputs, or the convolution's result.
fn outputs(problem: &Problem) -> Result<Vec<(i64, Output)>> {
    let Some(epilogue) = &problem.epilogue else {
        let number = match problem.direction {
            Direction::Forward => Y,
            Direction::Data => X,
            Direction::Weight => W,
        };
        let output = Output {
            value: Value::Anchor,
            dtype: problem.out,
            align: problem.align,
        };
        return Ok(vec![(number, output)]);
    };
    if problem.direction == Direction::Weight {
        return Err(Error::new(
            "a weight gradient has no epilogue; plan it without one",
        ));
    }
    let numbers = OUTPUTS..;
    Ok(numbers.zip(epilogue.outputs.iter().copied()).collect())
}

/// What cuDNN calls a type.
fn data_type(dtype: DType) -> Result<u32> {
    match dtype {
        DType::F32 => Ok(sys::cudnnDataType_t::CUDNN_DATA_FLOAT as u32),
        DType::Bf16 => Ok(sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16 as u32),
        other => Err(Error::new(format!(
            "convolutions take f32 and bf16 maps, not {other:?}; keep others out of their epilogues"
        ))),
    }
}

/// A tensor's description before it is one.
struct Tensor {
    number: i64,
    shape: [usize; 4],
    /// Elements from pixel to pixel, where those are more than the channels.
    pitch: Option<usize>,
    dtype: DType,
    align: usize,
    /// Never in memory.
    inner: bool,
    by_value: bool,
}

struct Draft<'a> {
    problem: &'a Problem,
    form: Form,
    outputs: Vec<(i64, Output)>,
    consts: Vec<f32>,
    /// Where in `parts` the tensor with a number is.
    known: HashMap<i64, usize>,
    /// Which outputs their own operation writes.
    written: Vec<usize>,
    parts: Vec<Descriptor>,
    operations: Vec<Descriptor>,
}

impl Draft<'_> {
    fn tensor(&mut self, t: Tensor) -> Result<usize> {
        if let Some(&at) = self.known.get(&t.number) {
            return Ok(at);
        }
        let [n, c, h, w] = t.shape.map(|d| d as i64);
        let pitch = t.pitch.map_or(c, |p| p as i64);
        let made = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .code(
                Name::CUDNN_ATTR_TENSOR_DATA_TYPE,
                Type::CUDNN_TYPE_DATA_TYPE,
                data_type(t.dtype)?,
            )?
            .ints(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
            .ints(
                Name::CUDNN_ATTR_TENSOR_STRIDES,
                &[h * w * pitch, 1, w * pitch, pitch],
            )?
            .ints(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[t.number])?
            .ints(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[t.align as i64])?
            .flag(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.inner)?
            .flag(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.by_value)?
            .finalize()?;
        self.parts.push(made);
        self.known.insert(t.number, self.parts.len() - 1);
        Ok(self.parts.len() - 1)
    }

    fn operand(&mut self, number: i64, shape: [usize; 4]) -> Result<usize> {
        self.tensor(Tensor {
            pitch: None,
            number,
            shape,
            dtype: self.problem.maps,
            align: self.problem.align,
            inner: false,
            by_value: false,
        })
    }

    /// The number a value has when nothing outside the kernel sees it.
    fn inner(value: Value) -> i64 {
        match value {
            Value::Step(s) => INNER + 1 + s as i64,
            _ => INNER,
        }
    }

    /// The tensor an operation writes a value to: the output itself where the form allows.
    fn produced(&mut self, value: Value, shape: [usize; 4]) -> Result<usize> {
        let output = self.outputs.iter().position(|(_, o)| o.value == value);
        match (self.form, output) {
            (Form::Direct, Some(at)) => {
                self.written.push(at);
                self.output(at)
            }
            _ => self.tensor(Tensor {
                number: Self::inner(value),
                shape,
                pitch: None,
                dtype: DType::F32,
                align: 16,
                inner: true,
                by_value: false,
            }),
        }
    }

    fn output(&mut self, at: usize) -> Result<usize> {
        let (number, output) = self.outputs[at];
        self.tensor(Tensor {
            pitch: None,
            number,
            shape: self.problem.result(),
            dtype: output.dtype,
            align: output.align,
            inner: false,
            by_value: false,
        })
    }

    fn shape(&self, extent: Extent) -> [usize; 4] {
        let result = self.problem.result();
        match extent {
            Extent::One => [1; 4],
            Extent::Channels => [1, result[1], 1, 1],
            Extent::Full => result,
        }
    }

    /// The tensor a value is read from.
    fn value(&mut self, value: Value) -> Result<usize> {
        let epilogue = self.problem.epilogue.as_ref();
        match value {
            Value::Anchor | Value::Step(_) => {
                let shape = self.shape(epilogue.map_or(Extent::Full, |e| e.extent(value)));
                match self.outputs.iter().position(|(_, o)| o.value == value) {
                    Some(at) if self.form == Form::Direct => self.output(at),
                    _ => self.tensor(Tensor {
                        number: Self::inner(value),
                        shape,
                        pitch: None,
                        dtype: DType::F32,
                        align: 16,
                        inner: true,
                        by_value: false,
                    }),
                }
            }
            Value::Input(i) => {
                let Some(input) = epilogue.and_then(|e| e.inputs.get(i)).copied() else {
                    return Err(Error::new("an epilogue reads a tensor it does not list"));
                };
                self.tensor(Tensor {
                    number: INPUTS + i as i64,
                    shape: self.shape(input.extent),
                    pitch: input.pitch,
                    dtype: input.dtype,
                    align: input.align,
                    inner: false,
                    by_value: false,
                })
            }
            Value::Const(c) => {
                let same = |k: &f32| k.to_bits() == c.to_bits();
                let at = self.consts.iter().position(same).unwrap_or(0);
                self.tensor(Tensor {
                    number: CONSTS + at as i64,
                    shape: [1; 4],
                    pitch: None,
                    dtype: DType::F32,
                    align: 4,
                    inner: false,
                    by_value: true,
                })
            }
        }
    }

    fn convolution(&mut self) -> Result<()> {
        let p = self.problem;
        let g = &p.geometry;
        let pads = [g.pad as i64; 2];
        let window = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .ints(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?
            .code(
                Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                Type::CUDNN_TYPE_DATA_TYPE,
                sys::cudnnDataType_t::CUDNN_DATA_FLOAT as u32,
            )?
            .code(
                Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                Type::CUDNN_TYPE_CONVOLUTION_MODE,
                sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as u32,
            )?
            .ints(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pads)?
            .ints(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pads)?
            .ints(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[1, 1])?
            .ints(
                Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                &[g.stride as i64; 2],
            )?
            .finalize()?;
        let result = self.produced(Value::Anchor, p.result())?;
        let (kind, names, [x, w, y]) = match p.direction {
            Direction::Forward => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                ],
                [self.operand(X, p.x())?, self.operand(W, p.w())?, result],
            ),
            Direction::Data => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                ],
                [result, self.operand(W, p.w())?, self.operand(Y, p.y())?],
            ),
            Direction::Weight => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                ],
                [self.operand(X, p.x())?, result, self.operand(Y, p.y())?],
            ),
        };
        let operation = Descriptor::new(kind)?
            .link(names[0], &window)?
            .link(names[1], &self.parts[x])?
            .link(names[2], &self.parts[w])?
            .link(names[3], &self.parts[y])?
            .float(names[4], 1.0)?
            .float(names[5], 0.0)?
            .finalize()?;
        self.parts.push(window);
        self.operations.push(operation);
        Ok(())
    }

    fn step(&mut self, at: usize) -> Result<()> {
        let Some(epilogue) = &self.problem.epilogue else {
            return Ok(());
        };
        let step = epilogue.steps[at];
        let shape = self.shape(epilogue.extent(Value::Step(at)));
        let a = self.value(step.a)?;
        let b = step.b.map(|b| self.value(b)).transpose()?;
        let y = self.produced(Value::Step(at), shape)?;
        use sys::cudnnPointwiseMode_t as Mode;
        let mode = match step.op {
            PointOp::Add => Mode::CUDNN_POINTWISE_ADD,
            PointOp::Sub => Mode::CUDNN_POINTWISE_SUB,
            PointOp::Mul => Mode::CUDNN_POINTWISE_MUL,
            PointOp::Max => Mode::CUDNN_POINTWISE_MAX,
            PointOp::Min => Mode::CUDNN_POINTWISE_MIN,
            PointOp::Neg => Mode::CUDNN_POINTWISE_NEG,
            PointOp::Elu => Mode::CUDNN_POINTWISE_ELU_FWD,
        };
        self.pointwise(mode, a, b, y)
    }

    /// Identity operations for the outputs no other operation writes.
    fn stores(&mut self) -> Result<()> {
        for at in 0..self.outputs.len() {
            if self.written.contains(&at) {
                continue;
            }
            let from = self.value(self.outputs[at].1.value)?;
            let to = self.output(at)?;
            let mode = sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_IDENTITY;
            self.pointwise(mode, from, None, to)?;
        }
        Ok(())
    }

    fn pointwise(
        &mut self,
        mode: sys::cudnnPointwiseMode_t,
        a: usize,
        b: Option<usize>,
        y: usize,
    ) -> Result<()> {
        let what = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .code(
                Name::CUDNN_ATTR_POINTWISE_MODE,
                Type::CUDNN_TYPE_POINTWISE_MODE,
                mode as u32,
            )?
            .code(
                Name::CUDNN_ATTR_POINTWISE_MATH_PREC,
                Type::CUDNN_TYPE_DATA_TYPE,
                sys::cudnnDataType_t::CUDNN_DATA_FLOAT as u32,
            )?
            .finalize()?;
        let mut operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
            .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &what)?
            .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &self.parts[a])?
            .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &self.parts[y])?;
        if let Some(b) = b {
            operation =
                operation.link(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &self.parts[b])?;
        }
        self.parts.push(what);
        self.operations.push(operation.finalize()?);
        Ok(())
    }
}
