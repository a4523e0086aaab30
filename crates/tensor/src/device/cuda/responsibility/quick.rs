//! The backward pass of training in bf16: the sizes of [`super::tiles`], with products of pieces for the scores alone.
//!
//! What the scores' gradients meet is rounded to bf16 once, which errs by some thousandths as the maps themselves
//! do. Shared memory then has room for these gradients, so that embeddings' need no sums over warps; blocks leave
//! their parts of the codebook's gradients already put together.

use super::tiles::{
    NOISE, PROCESSORS, Pieces, ROWS, SHARED_LIMIT, TILE, TILES, blocks, fields, suits,
};
use super::{Case, Scratch, dtype, function, pointer};
use crate::compile::Place;
use crate::device::cuda::launch::{Arg, Launch, Launches};
use crate::op::SampleMode;

const QUICK: &str = include_str!("../kernels/responsibility_quick.cu");

/// Bytes of the kernel's `Space`.
fn shared(case: &Case, pieces: &Pieces) -> usize {
    let (dim, codes, warps) = (case.dim, case.codes, case.codes / TILE);
    let maps = 1 + case.op.prior as usize;
    let jobs = maps * dim / 8;
    let slices = (warps / jobs).max(1);
    let chosen = !case.is(SampleMode::Relaxed) as usize * codes * dim * 4;
    let gradients = maps * TILE * (codes + 8) * 2;
    let shares = ((slices - 1) * jobs).max(1) * 32 * 16;
    let sums = (TILE * 12 + fields(case) * TILE * (warps + 1) + codes) * 4;
    let all = pieces.table(case) + gradients + chosen + shares + sums + pieces.tile(case) + NOISE;
    all.next_multiple_of(16)
}

pub fn backward(case: &Case, outputs: &[Option<Place>; 4]) -> Option<Launches> {
    let [de_q, dmu, dlogvar, de_p] = *outputs;
    let (dim, codes) = (case.dim, case.codes);
    let dz = case.dz();
    if !suits(case, &[Some(dz), de_q, de_p]) {
        return None;
    }
    let mut pieces = Pieces::new(case, dz.dtype);
    pieces.dz = 1;
    let shared = shared(case, &pieces);
    if shared > SHARED_LIMIT {
        return None;
    }
    let defines: Vec<_> = pieces.defines().into_iter().chain([("EXACT", 0)]).collect();
    let stored = [
        ("E_Q", case.inputs[3].dtype),
        ("E_P", dtype(case.e_p())),
        ("DZ", dz.dtype),
        ("DE_Q", dtype(de_q)),
        ("DE_P", dtype(de_p)),
    ];
    let source = case.source(&defines, &stored, &[TILES, ROWS, QUICK]);
    let blocks = blocks(case.rows.div_ceil(TILE), PROCESSORS);
    let mut scratch = Scratch::default();
    let left = scratch.take(blocks * 2 * codes * dim * 4);
    let mut list = vec![Launch {
        function: function("responsibility_quick", &source),
        grid: [blocks as u32, 1, 1],
        block: 32 * (codes / TILE) as u32,
        shared: shared as u32,
        args: case.gradient_args(de_q, de_p, left),
    }];
    if dmu.is_some() || dlogvar.is_some() {
        list.push(Launch {
            function: function("responsibility_sum", &source),
            grid: [(2 * codes * dim / 128) as u32, 1, 1],
            block: 256,
            shared: 0,
            args: vec![
                left,
                pointer(dmu),
                pointer(dlogvar),
                Arg::U32(blocks as u32),
            ],
        });
    }
    Some(Launches {
        list,
        scratch: scratch.bytes,
        counters: 0,
    })
}
