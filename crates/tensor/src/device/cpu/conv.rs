//! Convolutions of NHWC maps: forward, data gradient, weight gradient.
//!
//! All three are matrix products whose rows lie at arbitrary offsets, so nothing is unfolded or padded:
//! a list of rows and a list of segments per class of outputs (see [`axis`]) drives the register tiles
//! over the maps where they lie. The data gradient is the same walk with flipped, transposed weights;
//! it is also the transposed convolution.
//!
//! Per output, the sum is one chain from +0: forward over (ky, kx, ci); data gradient over the output
//! position (oy, ox, co); weight gradient over (n, oy, ox). Terms outside the map are not in the chain.

use crate::device::cpu::gemm::panels::{Layout, Panels, panel_width};
use crate::device::cpu::gemm::tile::{Passes, Point, Row, Segment, Terms, outer, product};
use crate::device::cpu::gemm::{BLOCKS, Finish, POINTS, block_rows};
use crate::device::cpu::scratch::with_scratch;
use crate::simd::Isa;
use axis::Class;
use rayon::prelude::*;

mod axis;

/// A convolution: x is [n, h, w, ci], the weights [kh, kw, ci, co], y [n, oh, ow, co].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    pub n: usize,
    pub h: usize,
    pub w: usize,
    pub ci: usize,
    pub co: usize,
    pub kh: usize,
    pub kw: usize,
    pub stride: usize,
    pub pad: usize,
    pub oh: usize,
    pub ow: usize,
}

impl ConvShape {
    fn x_len(&self) -> usize {
        self.n * self.h * self.w * self.ci
    }
    fn y_len(&self) -> usize {
        self.n * self.oh * self.ow * self.co
    }
    fn w_len(&self) -> usize {
        self.kh * self.kw * self.ci * self.co
    }
}

/// y = x ∗ w.
pub fn conv(isa: Isa, s: &ConvShape, x: &[f32], w: &[f32], finish: Finish) {
    assert_eq!(x.len(), s.x_len());
    assert_eq!(w.len(), s.w_len());
    let walk = Walk {
        images: s.n,
        from: Map {
            h: s.h,
            w: s.w,
            c: s.ci,
        },
        to: Map {
            h: s.oh,
            w: s.ow,
            c: s.co,
        },
        kw: s.kw,
        rows: axis::forward(s.h, s.oh, s.kh, s.stride, s.pad),
        cols: axis::forward(s.w, s.ow, s.kw, s.stride, s.pad),
    };
    Panels::with(isa, s.kh * s.kw * s.ci, s.co, Layout::Straight, w, |b| {
        walk.run(isa, x, b, finish);
    });
}

/// dx, [n, h, w, ci], from dy.
pub fn conv_grad_input(isa: Isa, s: &ConvShape, dy: &[f32], w: &[f32], finish: Finish) {
    assert_eq!(dy.len(), s.y_len());
    assert_eq!(w.len(), s.w_len());
    let walk = Walk {
        images: s.n,
        from: Map {
            h: s.oh,
            w: s.ow,
            c: s.co,
        },
        to: Map {
            h: s.h,
            w: s.w,
            c: s.ci,
        },
        kw: s.kw,
        rows: axis::backward(s.h, s.oh, s.kh, s.stride, s.pad),
        cols: axis::backward(s.w, s.ow, s.kw, s.stride, s.pad),
    };
    let taps = s.kh * s.kw;
    Panels::with(
        isa,
        taps * s.co,
        s.ci,
        Layout::FlippedTaps { taps },
        w,
        |b| {
            walk.run(isa, dy, b, finish);
        },
    );
}

#[derive(Clone, Copy)]
struct Map {
    h: usize,
    w: usize,
    c: usize,
}

/// From one map to another, output by output.
struct Walk {
    images: usize,
    from: Map,
    to: Map,
    kw: usize,
    rows: Vec<Class>,
    cols: Vec<Class>,
}

/// A contiguous piece of the output: some images, or some rows of one.
struct Unit {
    images: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
}

impl Walk {
    fn run(&self, isa: Isa, x: &[f32], b: &Panels, finish: Finish) {
        let width = panel_width(isa, self.to.c);
        let mut classes = Vec::new();
        for r in &self.rows {
            for c in &self.cols {
                classes.push((r, c, Passes::new(width, self.segments(r, c))));
            }
        }
        let row = self.to.w * self.to.c;
        self.units().into_par_iter().for_each(|unit| {
            let first = (unit.images.start * self.to.h + unit.rows.start) * row;
            let len = unit.images.len() * unit.rows.len() * row;
            with_scratch(len, |y| {
                let mut rows = Vec::new();
                for (r, c, passes) in &classes {
                    self.list_rows(&unit, r, c, &mut rows);
                    product(isa, x, &rows, passes, b, y, false);
                }
                finish(first, y);
            });
        });
    }

    fn units(&self) -> Vec<Unit> {
        let pixels = self.to.h * self.to.w;
        if self.images * pixels * self.to.c == 0 {
            return Vec::new();
        }
        let block = block_rows(self.images * pixels, self.to.c);
        if pixels <= block {
            let step = block / pixels;
            let starts = (0..self.images).step_by(step);
            return starts
                .map(|i| Unit {
                    images: i..(i + step).min(self.images),
                    rows: 0..self.to.h,
                })
                .collect();
        }
        let step = (block / self.to.w).max(1);
        let mut units = Vec::new();
        for i in 0..self.images {
            for y in (0..self.to.h).step_by(step) {
                units.push(Unit {
                    images: i..i + 1,
                    rows: y..(y + step).min(self.to.h),
                });
            }
        }
        units
    }

    fn segments(&self, rows: &Class, cols: &Class) -> Vec<Segment> {
        let depth = self.from.c;
        let mut out = Vec::new();
        for (ky, y) in &rows.terms {
            for (kx, x) in &cols.terms {
                let (a, b) = ((y * self.from.w + x) * depth, (ky * self.kw + kx) * depth);
                out.push(Segment { a, b, len: depth });
            }
        }
        out
    }

    /// The outputs of a class in a unit.
    fn list_rows(&self, unit: &Unit, rows: &Class, cols: &Class, out: &mut Vec<Row>) {
        out.clear();
        let (from, to) = (self.from, self.to);
        for image in unit.images.clone() {
            let local = (image - unit.images.start) * unit.rows.len();
            for &(y, sy) in rows.members.iter().filter(|m| unit.rows.contains(&m.0)) {
                let a = (image * from.h + sy) * from.w;
                let c = (local + y - unit.rows.start) * to.w;
                for &(x, sx) in &cols.members {
                    out.push(Row {
                        a: (a + sx) * from.c,
                        c: (c + x) * to.c,
                    });
                }
            }
        }
    }
}

/// Fewest rows of dw worth a work unit: each unit reads the maps once.
const GRADIENT_ROWS: usize = 48;
/// Most floats of dw in a work unit, for it to stay in a second-level cache beside the maps.
const GRADIENT_FLOATS: usize = 32 * 1024;

/// dw = Σ over images and positions of x ⊗ dy.
pub fn conv_grad_weight(isa: Isa, s: &ConvShape, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    assert_eq!(x.len(), s.x_len());
    assert_eq!(dy.len(), s.y_len());
    assert_eq!(dw.len(), s.w_len());
    dw.fill(0.0);
    let pixels = s.oh * s.ow;
    if dw.is_empty() || pixels == 0 {
        return;
    }
    // A group is part of an image or several images; its points are the same for each group.
    let images = (POINTS / pixels).clamp(1, s.n.max(1));
    let taps: Vec<TapPoints> = (0..s.kh * s.kw)
        .map(|t| TapPoints::new(s, t / s.kw, t % s.kw, images))
        .collect();
    let group_rows = if images > 1 {
        images * s.oh
    } else {
        group_rows(s)
    };
    let group_dy = group_rows * s.ow * s.co;
    let group_x = if images > 1 {
        images * s.h
    } else {
        group_rows * s.stride
    } * s.w
        * s.ci;
    let rows = s.kh * s.kw * s.ci;
    let share = rows.div_ceil(BLOCKS * rayon::current_num_threads());
    let row_block = share
        .min(GRADIENT_FLOATS / s.co)
        .max(GRADIENT_ROWS)
        .min(rows);
    dw.par_chunks_mut(row_block * s.co)
        .enumerate()
        .for_each(|(i, dw)| {
            let rows = i * row_block..i * row_block + dw.len() / s.co;
            for image in (0..s.n).step_by(images) {
                let part = images.min(s.n - image);
                let x = &x[image * s.h * s.w * s.ci..];
                let dy = &dy[image * pixels * s.co..];
                for group in 0..taps[0].groups() {
                    // What comes after this group, once a group: a hint, so the last one may miss.
                    let mut next = [after(x, group_x, group), after(dy, group_dy, group)];
                    let mut row = rows.start;
                    while row < rows.end {
                        let (tap, c) = (row / s.ci, row % s.ci);
                        let m = (s.ci - c).min(rows.end - row);
                        let points = taps[tap].group(group, part);
                        let dw = &mut dw[(row - rows.start) * s.co..];
                        let terms = Terms {
                            a: &x[c..],
                            b: dy,
                            points,
                            next,
                        };
                        outer(isa, &terms, m, s.co, dw, s.co);
                        next = [&[], &[]];
                        row += m;
                    }
                }
            }
        });
}

/// Rows of outputs in a group that is part of an image.
fn group_rows(s: &ConvShape) -> usize {
    (POINTS / s.ow).clamp(1, s.oh)
}

/// The floats of the group after `group`, as far as they exist.
fn after(map: &[f32], floats: usize, group: usize) -> &[f32] {
    let start = (group + 1) * floats;
    map.get(start..(start + floats).min(map.len()))
        .unwrap_or_default()
}

/// The positions at which one tap falls inside the map, image after image, relative to the first.
struct TapPoints {
    points: Vec<Point>,
    /// Ends of the groups of one image in `points`; one group where several images share it.
    ends: Vec<usize>,
    per_image: usize,
    images: usize,
}

impl TapPoints {
    fn new(s: &ConvShape, ky: usize, kx: usize, images: usize) -> Self {
        let mut points = Vec::new();
        let mut ends = Vec::new();
        let rows = group_rows(s);
        for image in 0..images {
            for oy in 0..s.oh {
                for ox in 0..s.ow {
                    let (y, x) = (oy * s.stride + ky, ox * s.stride + kx);
                    let inside =
                        (s.pad..s.h + s.pad).contains(&y) && (s.pad..s.w + s.pad).contains(&x);
                    if inside {
                        let a = ((image * s.h + y - s.pad) * s.w + x - s.pad) * s.ci;
                        let b = ((image * s.oh + oy) * s.ow + ox) * s.co;
                        points.push(Point { a, b });
                    }
                }
                if images == 1 && ((oy + 1) % rows == 0 || oy + 1 == s.oh) {
                    ends.push(points.len());
                }
            }
        }
        if images > 1 {
            ends.push(points.len());
        }
        let per_image = points.len() / images;
        TapPoints {
            points,
            ends,
            per_image,
            images,
        }
    }

    fn groups(&self) -> usize {
        self.ends.len()
    }

    /// Group `g` where only the first `images` images are there.
    fn group(&self, g: usize, images: usize) -> &[Point] {
        let start = if g == 0 { 0 } else { self.ends[g - 1] };
        let end = if self.images > 1 {
            self.per_image * images
        } else {
            self.ends[g]
        };
        &self.points[start..end]
    }
}

#[cfg(test)]
mod tests;
