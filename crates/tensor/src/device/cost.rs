//! What a kernel is called in tables, how much it computes and how much it moves.
//!
//! Counts follow from the plan alone, so that a table of times can say what share of a device's speed was reached.

use crate::compile::{Access, Base, Chain, ConvGeometry, Kernel, Load, Movement};

/// The row a kernel's time is added to.
pub fn kind(kernel: &Kernel) -> &'static str {
    match kernel {
        Kernel::Conv { .. } => "convolution",
        Kernel::ConvGradInput { .. } => "convolution, data gradient",
        Kernel::ConvGradWeight { .. } => "convolution, weight gradient",
        Kernel::Matmul { .. } => "matrix product",
        Kernel::Responsibility { .. } => "responsibility",
        Kernel::ResponsibilityGrad { .. } => "responsibility, gradient",
        Kernel::Map(chain) if writes_states(chain) => "optimiser",
        Kernel::Map(_) => "element-wise",
        Kernel::Reduce { .. } => "reduction",
        Kernel::AllSum { .. } => "all-reduce",
        Kernel::Batch(_) => "weights and metrics",
        _ => "other",
    }
}

/// Whether a kernel gives a state its new value.
pub(crate) fn assigns(kernel: &Kernel) -> bool {
    match kernel {
        Kernel::Map(chain)
        | Kernel::Conv { chain, .. }
        | Kernel::ConvGradInput { chain, .. }
        | Kernel::Matmul { chain, .. }
        | Kernel::Reduce { chain, .. } => writes_states(chain),
        Kernel::Batch(kernels) => kernels.iter().any(assigns),
        _ => false,
    }
}

/// Whether a chain gives a state its new value.
pub(crate) fn writes_states(chain: &Chain) -> bool {
    let is_state = |s: &crate::compile::StorePlace| matches!(s.place.base, Base::State(_));
    chain.stores.iter().any(is_state)
}

/// Multiply-adds of convolutions, products and responsibilities, two operations each.
pub fn flops(kernel: &Kernel) -> f64 {
    match kernel {
        Kernel::Conv { geometry: g, .. }
        | Kernel::ConvGradInput { geometry: g, .. }
        | Kernel::ConvGradWeight { geometry: g, .. } => {
            2.0 * (g.n * g.oh * g.ow * g.co * g.ci * g.kh * g.kw) as f64
        }
        Kernel::Matmul { product, .. } => 2.0 * (product.result() * product.k) as f64,
        // Two embeddings against means and inverse variances.
        Kernel::Responsibility {
            rows, dim, codes, ..
        } => 8.0 * (rows * dim * codes) as f64,
        // Those again, both ways back, and the sample's gradient.
        Kernel::ResponsibilityGrad {
            rows, dim, codes, ..
        } => 26.0 * (rows * dim * codes) as f64,
        Kernel::Batch(kernels) => kernels.iter().map(flops).sum(),
        _ => 0.0,
    }
}

/// Bytes read and written, each tensor once.
pub fn bytes(kernel: &Kernel) -> f64 {
    let count = match kernel {
        Kernel::Map(chain) => chain_bytes(chain),
        Kernel::Reduce {
            chain,
            outer,
            inner,
            out,
            ..
        } => chain_bytes(chain) + outer * inner * out.dtype.bytes(),
        Kernel::Conv {
            geometry: g,
            x,
            w,
            chain,
        } => input(g) * x.dtype.bytes() + weight(g) * w.dtype.bytes() + chain_bytes(chain),
        Kernel::ConvGradInput {
            geometry: g,
            dy,
            w,
            chain,
        } => output(g) * dy.dtype.bytes() + weight(g) * w.dtype.bytes() + chain_bytes(chain),
        Kernel::ConvGradWeight {
            geometry: g,
            x,
            dy,
            out,
        } => {
            input(g) * x.dtype.bytes()
                + output(g) * dy.dtype.bytes()
                + weight(g) * out.dtype.bytes()
        }
        Kernel::Matmul {
            product,
            a,
            b,
            chain,
            ..
        } => {
            product.first() * a.dtype.bytes()
                + product.second() * b.dtype.bytes()
                + chain_bytes(chain)
        }
        Kernel::Move { movement, from, to } => {
            let (read, written) = moved(movement);
            read * from.dtype.bytes() + written * to.dtype.bytes()
        }
        Kernel::Fill { to, len, .. } => len * to.dtype.bytes(),
        Kernel::Batch(kernels) => return kernels.iter().map(bytes).sum(),
        Kernel::AllSum { len, from, to, .. } => len * (from.dtype.bytes() + to.dtype.bytes()),
        Kernel::ArgMax { rows, cols, x, out } => {
            rows * cols * x.dtype.bytes() + rows * out.dtype.bytes()
        }
        Kernel::Gather {
            rows,
            cols,
            codes,
            table,
            index,
            out,
        } => {
            codes * cols * table.dtype.bytes()
                + rows * index.dtype.bytes()
                + rows * cols * out.dtype.bytes()
        }
        Kernel::ScatterAdd {
            rows,
            cols,
            codes,
            index,
            x,
            out,
        } => {
            rows * index.dtype.bytes()
                + rows * cols * x.dtype.bytes()
                + codes * cols * out.dtype.bytes()
        }
        Kernel::Responsibility {
            op,
            rows,
            dim,
            codes,
            inputs,
            z,
            ..
        } => {
            let embeddings = (1 + op.prior as usize) * rows * dim * inputs[3].dtype.bytes();
            embeddings + rows * dim * z.dtype.bytes() + 8 * rows + 8 * codes * dim
        }
        Kernel::ResponsibilityGrad {
            op,
            rows,
            dim,
            codes,
            inputs,
            ..
        } => {
            // Embeddings in and their gradients out, the sample's gradient in.
            let maps = 3 + 2 * op.prior as usize;
            maps * rows * dim * inputs[3].dtype.bytes() + 4 * rows + 16 * codes * dim
        }
    };
    count as f64
}

fn input(g: &ConvGeometry) -> usize {
    g.n * g.h * g.w * g.ci
}

fn output(g: &ConvGeometry) -> usize {
    g.n * g.oh * g.ow * g.co
}

fn weight(g: &ConvGeometry) -> usize {
    g.kh * g.kw * g.ci * g.co
}

pub(crate) fn chain_bytes(chain: &Chain) -> usize {
    let load = |load: &Load| {
        let elements = match load.access {
            Access::Flat => chain.rows * chain.cols,
            Access::Scalar => 1,
            Access::Rows {
                div,
                modulo,
                spread,
                ..
            } => {
                let rows = chain.rows.div_ceil(div.max(1)).min(modulo);
                rows * if spread { chain.cols } else { 1 }
            }
        };
        elements * load.dtype.bytes()
    };
    let stores = chain.stores.iter().map(|store| {
        let cols = if store.row_wise { 1 } else { chain.cols };
        chain.rows * cols * store.place.dtype.bytes()
    });
    chain.loads.iter().map(load).sum::<usize>() + stores.sum::<usize>()
}

/// Elements read and written.
fn moved(movement: &Movement) -> (usize, usize) {
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    match movement {
        Movement::Broadcast { shape, strides } => {
            let read = shape.iter().zip(strides).filter(|(_, s)| **s > 0);
            (read.map(|(n, _)| n).product(), size(shape))
        }
        Movement::Runs { outer, len, .. } => (outer * len, outer * len),
        Movement::Pad {
            outer, len, wide, ..
        } => (outer * len, outer * wide),
        Movement::Transpose { rows, cols } => (rows * cols, rows * cols),
        Movement::Upsample { shape, factor } => (size(shape), size(shape) * factor * factor),
        Movement::SumPool { shape, factor } => (size(shape), size(shape) / (factor * factor)),
        Movement::EdgePad { shape, .. }
        | Movement::EdgeFold { shape, .. }
        | Movement::SpaceToDepth { shape, .. }
        | Movement::DepthToSpace { shape, .. } => (size(shape), size(shape)),
    }
}
