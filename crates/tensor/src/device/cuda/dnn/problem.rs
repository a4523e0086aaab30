//! What a convolution is asked to do, as plain data.
//!
//! Two problems with the same [`Problem::key`] are the same to cuDNN: one plan serves both, and the key is what
//! the cache on disk knows a plan by.

use super::epilogue::Epilogue;
use crate::compile::ConvGeometry;
use crate::graph::DType;

/// Which of the three convolutions of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    Data,
    /// dw from x and dy.
    Weight,
}

/// A convolution, the way its numbers are stored, and what follows it.
///
/// Maps are NHWC in memory, filters are [co, kh, kw, ci]. Sums are always f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub geometry: ConvGeometry,
    pub direction: Direction,
    /// How the two operands are stored: F32 or Bf16.
    pub maps: DType,
    /// How the result is stored: F32 or Bf16. An epilogue's outputs say so themselves.
    pub out: DType,
    /// Bytes the addresses of operands and result are multiples of.
    pub align: usize,
    pub epilogue: Option<Epilogue>,
}

impl Problem {
    /// A plain convolution on tensors that start on 16 bytes.
    pub fn new(geometry: ConvGeometry, direction: Direction, maps: DType, out: DType) -> Problem {
        Problem {
            geometry,
            direction,
            maps,
            out,
            align: 16,
            epilogue: None,
        }
    }

    /// The same with steps after it, whose outputs take the place of the result.
    pub fn with(self, epilogue: Epilogue) -> Problem {
        Problem {
            out: self.maps,
            epilogue: Some(epilogue),
            ..self
        }
    }

    /// Floating-point operations of the convolution.
    #[cfg(test)]
    pub fn flops(&self) -> f64 {
        let g = &self.geometry;
        let taps = g.kh * g.kw * g.ci * g.co;
        2.0 * taps as f64 * (g.n * g.oh * g.ow) as f64
    }

    /// One line that names the problem.
    pub fn key(&self) -> String {
        let g = &self.geometry;
        let direction = match self.direction {
            Direction::Forward => "forward",
            Direction::Data => "data",
            Direction::Weight => "weight",
        };
        let mut key = format!(
            "{direction} {}>{} n{} {}x{}x{}>{}x{}x{} k{}x{} s{} p{} a{}",
            short(self.maps),
            short(self.out),
            g.n,
            g.h,
            g.w,
            g.ci,
            g.oh,
            g.ow,
            g.co,
            g.kh,
            g.kw,
            g.stride,
            g.pad,
            self.align
        );
        if let Some(epilogue) = &self.epilogue {
            key.push_str(" | ");
            key.push_str(&epilogue.to_string());
        }
        key
    }

    /// Whether only engines that compile their kernels take it.
    pub(super) fn is_compiled(&self) -> bool {
        self.epilogue.is_some() || self.maps != self.out
    }

    pub(super) fn x(&self) -> [usize; 4] {
        let g = &self.geometry;
        [g.n, g.ci, g.h, g.w]
    }

    pub(super) fn w(&self) -> [usize; 4] {
        let g = &self.geometry;
        [g.co, g.ci, g.kh, g.kw]
    }

    pub(super) fn y(&self) -> [usize; 4] {
        let g = &self.geometry;
        [g.n, g.co, g.oh, g.ow]
    }

    /// The shape of what the convolution gives, as cuDNN orders it: outer, channels, height, width.
    pub(super) fn result(&self) -> [usize; 4] {
        match self.direction {
            Direction::Forward => self.y(),
            Direction::Data => self.x(),
            Direction::Weight => self.w(),
        }
    }

    /// The shapes of its two operands, in the order x, w, y.
    pub(super) fn operands(&self) -> [[usize; 4]; 2] {
        match self.direction {
            Direction::Forward => [self.x(), self.w()],
            Direction::Data => [self.w(), self.y()],
            Direction::Weight => [self.x(), self.y()],
        }
    }
}

/// How keys write a type.
pub(super) fn short(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::Bf16 => "bf16",
        DType::U32 => "u32",
        DType::U8 => "u8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn geometry() -> ConvGeometry {
        ConvGeometry {
            n: 4,
            h: 16,
            w: 16,
            ci: 8,
            oh: 8,
            ow: 8,
            co: 24,
            kh: 3,
            kw: 3,
            stride: 2,
            pad: 1,
            filter: crate::op::Filter::Ohwi,
        }
    }

    #[test]
    fn keys_tell_problems_apart() {
        let a = Problem::new(geometry(), Direction::Forward, DType::Bf16, DType::Bf16);
        assert_eq!(
            a.key(),
            "forward bf16>bf16 n4 16x16x8>8x8x24 k3x3 s2 p1 a16"
        );
        let mut others = [(); 5].map(|()| a.clone());
        others[0].direction = Direction::Data;
        others[1].out = DType::F32;
        others[2].align = 4;
        others[3].geometry.n = 5;
        others[4].maps = DType::F32;
        let mut keys: Vec<String> = others.iter().map(Problem::key).collect();
        keys.push(a.key());
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 6);
    }

    #[test]
    fn shapes_follow_the_direction() {
        let p = Problem::new(geometry(), Direction::Weight, DType::F32, DType::F32);
        assert_eq!(p.result(), [24, 8, 3, 3]);
        assert_eq!(p.operands(), [[4, 8, 16, 16], [4, 24, 8, 8]]);
        assert_eq!(p.flops(), 2.0 * (4 * 8 * 8 * 24 * 9 * 8) as f64);
    }
}
