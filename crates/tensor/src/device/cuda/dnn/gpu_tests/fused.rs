//! The chains that follow convolutions in practice, and what they mean.

use crate::compile::{
    Access, Base, Chain, ConvGeometry, Load, Operand, Place, Step, StepOp, StorePlace,
};
use crate::device::cuda::dnn::Direction;
use crate::graph::DType;
use crate::op::{BinaryOp, UnaryOp};

/// A chain and its meaning: (convolution, bias, first map, second map) to the values of its stores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fused {
    Bias,
    BiasElu,
    /// 0.1 · (convolution + bias) + map.
    Residual,
    /// The same, and ELU of it beside it.
    ResidualElu,
    /// Convolution · ELU's slope at a map.
    Slope,
    /// The same, plus another map.
    SlopeOther,
}

pub const ALL: [Fused; 6] = [
    Fused::Bias,
    Fused::BiasElu,
    Fused::Residual,
    Fused::ResidualElu,
    Fused::Slope,
    Fused::SlopeOther,
];

/// Where the bias starts in its memory: on four bytes, not on sixteen.
pub const BIAS_AT: usize = 3;

impl Fused {
    pub fn direction(self) -> Direction {
        match self {
            Fused::Slope | Fused::SlopeOther => Direction::Data,
            _ => Direction::Forward,
        }
    }

    pub fn meaning(self, conv: f32, bias: f32, one: f32, two: f32) -> Vec<f32> {
        let elu = |v: f32| if v > 0.0 { v } else { v.exp_m1() };
        let slope = |v: f32| if v > 0.0 { 1.0 } else { v + 1.0 };
        match self {
            Fused::Bias => vec![conv + bias],
            Fused::BiasElu => vec![elu(conv + bias)],
            Fused::Residual => vec![0.1 * (conv + bias) + one],
            Fused::ResidualElu => {
                let sum = 0.1 * (conv + bias) + one;
                vec![sum, elu(sum)]
            }
            Fused::Slope => vec![conv * slope(one)],
            Fused::SlopeOther => vec![conv * slope(one) + two],
        }
    }

    /// The chain as a plan would hold it, with registers used again. Loads are the bias, if any, then maps.
    pub fn chain(self, g: &ConvGeometry, dtype: DType) -> Chain {
        let (rows, cols) = match self.direction() {
            Direction::Data => (g.n * g.h * g.w, g.ci),
            _ => (g.n * g.oh * g.ow, g.co),
        };
        let place = |offset, dtype| Place {
            base: Base::Arena,
            offset,
            dtype,
        };
        let bias = Load {
            place: place(BIAS_AT, DType::F32),
            dtype: DType::F32,
            access: Access::Rows {
                div: 1,
                modulo: 1,
                stride: 0,
                spread: true,
            },
        };
        let map = Load {
            place: place(0, dtype),
            dtype,
            access: Access::Flat,
        };
        let step = |op, args: &[Operand], to| Step {
            op,
            args: args.to_vec(),
            to,
            row_wise: false,
        };
        use Operand::{Anchor, Const, Load as From, Reg, Store};
        let add = StepOp::Binary(BinaryOp::Add);
        let mul = StepOp::Binary(BinaryOp::Mul);
        let elu = StepOp::Unary(UnaryOp::Elu);
        let slope = StepOp::Unary(UnaryOp::EluSlope);
        let (loads, steps) = match self {
            Fused::Bias => (vec![bias], vec![step(add, &[Anchor, From(0)], Store(0))]),
            Fused::BiasElu => (
                vec![bias],
                vec![
                    step(add, &[From(0), Anchor], Reg(0)),
                    step(elu, &[Reg(0)], Store(0)),
                ],
            ),
            Fused::Residual | Fused::ResidualElu => {
                let mut steps = vec![
                    step(add, &[Anchor, From(0)], Reg(0)),
                    step(mul, &[Const(0.1), Reg(0)], Reg(0)),
                    step(add, &[From(1), Reg(0)], Store(0)),
                ];
                if self == Fused::ResidualElu {
                    steps.push(step(elu, &[Store(0)], Store(1)));
                }
                (vec![bias, map], steps)
            }
            Fused::Slope => (
                vec![map],
                vec![
                    step(slope, &[From(0)], Reg(0)),
                    step(mul, &[Anchor, Reg(0)], Store(0)),
                ],
            ),
            Fused::SlopeOther => {
                let mut other = map;
                other.place.offset = 1024;
                (
                    vec![map, other],
                    vec![
                        step(slope, &[From(0)], Reg(0)),
                        step(mul, &[Anchor, Reg(0)], Reg(1)),
                        step(add, &[Reg(1), From(1)], Store(0)),
                    ],
                )
            }
        };
        let count = if self == Fused::ResidualElu { 2 } else { 1 };
        Chain {
            rows,
            cols,
            flat: false,
            loads,
            stores: vec![
                StorePlace {
                    place: place(0, dtype),
                    row_wise: false,
                };
                count
            ],
            steps,
            regs: 2,
            row_regs: 0,
            result: None,
        }
    }
}
