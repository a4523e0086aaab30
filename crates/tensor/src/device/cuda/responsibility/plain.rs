//! Any size, without tensor cores: how many warps, rows and chunks.
//!
//! Forward: the codebook turned so that neighbouring lanes read neighbouring codes, then a warp to a few rows.
//! Backward: the same for the embeddings' gradients, with the sums of each row left in memory; from those a block
//! to 32 codes and a chunk of rows recomputes the scores once more for the codebook's.

use super::{Case, Scratch, dtype, function, pointer};
use crate::compile::Place;
use crate::device::cuda::launch::{Arg, Launch, Launches};
use crate::graph::DType;

const SOURCE: &str = include_str!("../kernels/responsibility_plain.cu");
const WARPS: usize = 8;
/// Blocks that keep a large GPU busy.
const BUSY: usize = 264;
/// Floats the backward pass keeps of a row.
const ROW_FLOATS: usize = 8;

/// Rows of a warp: as many as registers and shared memory hold well.
fn rows_of_warp(dim: usize) -> usize {
    if dim <= 64 { 4 } else { 1 }
}

fn launch(name: &str, source: &str, grid: [usize; 2], shared: usize, args: Vec<Arg>) -> Launch {
    Launch {
        function: function(name, source),
        grid: [grid[0] as u32, grid[1] as u32, 1],
        block: 32 * WARPS as u32,
        shared: shared as u32,
        args,
    }
}

fn source(case: &Case, backward: bool, stored: &[(&str, DType)]) -> String {
    let defines = [
        ("EXACT", 1),
        ("ROWS", rows_of_warp(case.dim)),
        ("BACKWARD", backward as usize),
    ];
    case.source(&defines, stored, &[SOURCE])
}

/// How embeddings are stored.
fn embeddings(case: &Case) -> [(&'static str, DType); 2] {
    [("E_Q", case.inputs[3].dtype), ("E_P", dtype(case.e_p()))]
}

fn tables(case: &Case, source: &str, scratch: &mut Scratch) -> (Launch, Arg) {
    let columns = scratch.take((2 * case.dim + 1) * case.codes * 4);
    let args = vec![case.arg(4), case.arg(5), columns];
    let grid = [case.codes.div_ceil(256), 1];
    (
        launch("responsibility_tables", source, grid, 0, args),
        columns,
    )
}

pub fn forward(case: &Case, z: Place, index: Option<Place>, kl: Option<Place>) -> Launches {
    let [e_q, e_p] = embeddings(case);
    let source = source(case, false, &[e_q, e_p, ("Z_OUT", z.dtype)]);
    let mut scratch = Scratch::default();
    let (first, columns) = tables(case, &source, &mut scratch);
    let per_warp = rows_of_warp(case.dim);
    let floats = WARPS * per_warp * (2 * case.dim + 32);
    let grid = [case.rows.div_ceil(WARPS * per_warp), 1];
    let args = vec![
        case.arg(0),
        case.arg(1),
        case.arg(2),
        case.arg(3),
        case.arg(4),
        pointer(case.e_p()),
        columns,
        Arg::Place(z),
        pointer(index),
        pointer(kl),
        Arg::U32(case.rows as u32),
        Arg::U32(case.op.stream),
    ];
    let second = launch(
        "responsibility_plain_forward",
        &source,
        grid,
        4 * floats,
        args,
    );
    Launches {
        list: vec![first, second],
        scratch: scratch.bytes,
        counters: 0,
    }
}

pub fn backward(case: &Case, outputs: &[Option<Place>; 4]) -> Launches {
    let [de_q, dmu, dlogvar, de_p] = *outputs;
    let (rows, dim, codes) = (case.rows, case.dim, case.codes);
    let [e_q, e_p] = embeddings(case);
    let stored = [
        e_q,
        e_p,
        ("DZ", case.dz().dtype),
        ("DE_Q", dtype(de_q)),
        ("DE_P", dtype(de_p)),
    ];
    let source = source(case, true, &stored);
    let mut scratch = Scratch::default();
    let (first, columns) = tables(case, &source, &mut scratch);
    let sums = scratch.take(rows * ROW_FLOATS * 4);
    let chosen = scratch.take(rows * 4);
    let code_tiles = codes.div_ceil(32);
    let chunk_rows = rows
        .div_ceil(BUSY.div_ceil(code_tiles))
        .next_multiple_of(WARPS);
    let chunks = rows.div_ceil(chunk_rows);
    let partial = scratch.take(chunks * 2 * codes * dim * 4);

    let both = vec![
        case.arg(0),
        case.arg(1),
        case.arg(2),
        case.arg(3),
        pointer(case.e_p()),
        Arg::Place(case.dz()),
        Arg::Place(case.dkl()),
        case.arg(4),
        case.arg(5),
        columns,
        sums,
        chosen,
    ];
    let numbers = [Arg::U32(rows as u32), Arg::U32(case.op.stream)];
    let mut args = both.clone();
    args.extend([pointer(de_q), pointer(de_p)]);
    args.extend(numbers);
    let per_warp = rows_of_warp(dim);
    let floats = WARPS * per_warp * (3 * dim + 64);
    let grid = [rows.div_ceil(WARPS * per_warp), 1];
    let by_row = launch("responsibility_plain_rows", &source, grid, 4 * floats, args);

    let mut args = both;
    args.push(partial);
    args.extend(numbers);
    args.push(Arg::U32(chunk_rows as u32));
    let grid = [code_tiles, chunks];
    let by_code = launch("responsibility_plain_codes", &source, grid, 0, args);

    let args = vec![
        partial,
        pointer(dmu),
        pointer(dlogvar),
        Arg::U32(chunks as u32),
    ];
    let grid = [(2 * codes * dim).div_ceil(256), 1];
    let sum = launch("responsibility_plain_sum", &source, grid, 0, args);
    Launches {
        list: vec![first, by_row, by_code, sum],
        scratch: scratch.bytes,
        counters: 0,
    }
}
