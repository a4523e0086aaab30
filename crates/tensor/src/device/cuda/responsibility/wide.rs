//! Training with embeddings too wide, or codes too many, for [`super::tiles`]: the codebook passes through shared memory,
//! and the backward pass goes through the rows chunk by chunk. What follows from the scores is rounded to bf16 once, as
//! in [`super::quick`].
//!
//! Gradients of a chunk's scores lie in memory, K to a row, which costs less than making them three times: the chunk is
//! small enough for the GPU's cache, and its size bounds the scratch memory whatever the number of rows.

use super::tiles::{PROCESSORS, SHARED_LIMIT, TILE, TILES};
use super::{Case, Scratch, dtype, function, pointer};
use crate::compile::Place;
use crate::device::cuda::launch::{Arg, Launch, Launches};
use crate::graph::DType;

const SOURCE: &str = include_str!("../kernels/responsibility_wide.cu");
/// bf16 pieces of a float of the codebook.
const PIECES: usize = 2;
/// Rows of a chunk, at most.
const CHUNK: usize = 16384;
/// Rows of a block that makes the embeddings' gradients.
const EMBEDDING_ROWS: usize = 128;
/// Codes of a block that sums the codebook's gradients.
const BLOCK_CODES: usize = 64;

/// Whether the kernels are made for this: not too many dimensions, whole blocks of noise, maps moved in pairs.
fn suits(case: &Case, maps: &[Option<Place>]) -> bool {
    let of_case = [Some(case.inputs[3]), case.e_p()];
    !case.exact
        && case.dim.is_multiple_of(32)
        && case.dim <= 128
        && case.codes.is_multiple_of(BLOCK_CODES)
        && of_case
            .iter()
            .chain(maps)
            .flatten()
            .all(|p| p.offset.is_multiple_of(2))
        && case.inputs[4].offset.is_multiple_of(2)
}

/// Numbers of a unit of codes: mu iv, iv and mu of each, in pieces.
fn unit(case: &Case) -> usize {
    PIECES * TILE * (3 * case.dim + 8)
}

/// Bytes of `slice` columns of all codes, as the embeddings' gradients need them.
fn columns(case: &Case, slice: usize) -> usize {
    PIECES * case.codes * (2 * slice + 8) * 2
}

/// Columns of the embeddings' gradients a block makes: as many as shared memory holds.
fn slice(case: &Case) -> Option<usize> {
    let fits = |slice: &usize| columns(case, *slice) <= SHARED_LIMIT;
    [32, 16, 8].into_iter().find(fits)
}

/// Warps of a block that goes through the codebook: fewer where rows are few, so that more blocks share the work.
fn warps(rows: usize) -> usize {
    let enough = |warps: &usize| rows.div_ceil(warps * TILE) >= PROCESSORS;
    [8, 4].into_iter().find(enough).unwrap_or(2)
}

/// Rows of a chunk, a multiple of those of any block; the last chunk may have fewer.
fn chunk(rows: usize) -> usize {
    let chunks = rows.div_ceil(CHUNK).max(1);
    rows.div_ceil(chunks).next_multiple_of(EMBEDDING_ROWS)
}

struct Book {
    launch: Launch,
    lines: Arg,
    constants: Arg,
}

/// The codebook as the kernels read it.
fn book(case: &Case, source: &str, scratch: &mut Scratch) -> Book {
    let lines = scratch.take(case.codes / TILE * unit(case) * 2);
    let constants = scratch.take(case.codes * 4);
    let launch = Launch {
        function: function("responsibility_wide_tables", source),
        grid: [(case.codes / 8) as u32, 1, 1],
        block: 256,
        shared: 0,
        args: vec![case.arg(4), case.arg(5), lines, constants],
    };
    Book {
        launch,
        lines,
        constants,
    }
}

fn source(
    case: &Case,
    backward: bool,
    warps: usize,
    slice: usize,
    stored: &[(&str, DType)],
) -> String {
    let pieces = |dtype| if dtype == DType::Bf16 { 1 } else { PIECES };
    let (e_q, e_p) = (case.inputs[3].dtype, dtype(case.e_p()));
    let defines = [
        ("EXACT", 0),
        ("PIECES", PIECES),
        ("Q_PIECES", pieces(e_q)),
        ("P_PIECES", pieces(e_p)),
        ("WARPS", warps),
        ("SLICE", slice),
        ("BACKWARD", backward as usize),
    ];
    let stored: Vec<_> = [("E_Q", e_q), ("E_P", e_p)]
        .iter()
        .chain(stored)
        .copied()
        .collect();
    case.source(&defines, &stored, &[TILES, SOURCE])
}

pub fn forward(case: &Case, z: Place, index: Option<Place>, kl: Option<Place>) -> Option<Launches> {
    let slice = slice(case).filter(|_| suits(case, &[Some(z)]))?;
    let warps = warps(case.rows);
    let source = source(case, false, warps, slice, &[("Z_OUT", z.dtype)]);
    let mut scratch = Scratch::default();
    let book = book(case, &source, &mut scratch);
    let rows = Launch {
        function: function("responsibility_wide_forward", &source),
        grid: [case.rows.div_ceil(warps * TILE) as u32, 1, 1],
        block: 32 * warps as u32,
        shared: 2 * 2 * unit(case) as u32,
        args: vec![
            case.arg(0),
            case.arg(1),
            case.arg(2),
            case.arg(3),
            case.arg(4),
            pointer(case.e_p()),
            book.lines,
            book.constants,
            Arg::Place(z),
            pointer(index),
            pointer(kl),
            Arg::U32(case.rows as u32),
            Arg::U32(case.op.stream),
        ],
    };
    Some(Launches {
        list: vec![book.launch, rows],
        scratch: scratch.bytes,
        counters: 0,
    })
}

pub fn backward(case: &Case, outputs: &[Option<Place>; 4]) -> Option<Launches> {
    let [de_q, dmu, dlogvar, de_p] = *outputs;
    let dz = case.dz();
    let slice = slice(case).filter(|_| suits(case, &[Some(dz), de_q, de_p]))?;
    let (rows, dim, codes) = (case.rows, case.dim, case.codes);
    let chunk = chunk(rows);
    let warps = warps(rows.min(chunk));
    let stored = [
        ("DZ", dz.dtype),
        ("DE_Q", dtype(de_q)),
        ("DE_P", dtype(de_p)),
    ];
    let source = source(case, true, warps, slice, &stored);
    let mut scratch = Scratch::default();
    let book = book(case, &source, &mut scratch);
    let slopes = scratch.take((2 + case.op.prior as usize) * chunk * codes * 2);
    let own = scratch.take(chunk * 4);
    // Each range of a chunk's rows adds to its own sums, chunk after chunk.
    let blocks = codes / BLOCK_CODES;
    let range = chunk
        .div_ceil(PROCESSORS.div_ceil(blocks))
        .next_multiple_of(TILE);
    let ranges = chunk.div_ceil(range);
    let left = scratch.take(ranges * (3 * dim + 1) * codes * 4);
    let of_codebook = dmu.is_some() || dlogvar.is_some();

    let mut list = vec![book.launch];
    for begin in (0..rows).step_by(chunk) {
        let here = chunk.min(rows - begin);
        let place = [Arg::U32(begin as u32), Arg::U32(chunk as u32)];
        let mut args = vec![
            case.arg(0),
            case.arg(1),
            case.arg(2),
            case.arg(3),
            pointer(case.e_p()),
            Arg::Place(dz),
            Arg::Place(case.dkl()),
            book.lines,
            book.constants,
            slopes,
            own,
            Arg::U32(rows as u32),
            Arg::U32(case.op.stream),
        ];
        args.extend(place);
        list.push(Launch {
            function: function("responsibility_wide_slopes", &source),
            grid: [here.div_ceil(warps * TILE) as u32, 1, 1],
            block: 32 * warps as u32,
            shared: 2 * 2 * unit(case) as u32,
            args,
        });
        if de_q.is_some() || de_p.is_some() {
            let mut args = vec![
                book.lines,
                slopes,
                own,
                case.arg(3),
                pointer(case.e_p()),
                pointer(de_q),
                pointer(de_p),
                Arg::U32(rows as u32),
            ];
            args.extend(place);
            list.push(Launch {
                function: function("responsibility_wide_embeddings", &source),
                grid: [
                    here.div_ceil(EMBEDDING_ROWS) as u32,
                    (dim / slice) as u32,
                    1,
                ],
                block: 256,
                shared: columns(case, slice) as u32,
                args,
            });
        }
        if of_codebook {
            let mut args = vec![
                case.arg(3),
                pointer(case.e_p()),
                Arg::Place(dz),
                slopes,
                left,
                Arg::U32(rows as u32),
            ];
            args.extend(place);
            args.extend([Arg::U32(range as u32), Arg::U32((begin == 0) as u32)]);
            list.push(Launch {
                function: function("responsibility_wide_moments", &source),
                grid: [blocks as u32, ranges as u32, 1],
                block: 256,
                shared: 0,
                args,
            });
        }
    }
    if of_codebook {
        list.push(Launch {
            function: function("responsibility_wide_codebook", &source),
            grid: [(codes * dim / 128) as u32, 1, 1],
            block: 128,
            shared: 0,
            args: vec![
                left,
                case.arg(4),
                case.arg(5),
                pointer(dmu),
                pointer(dlogvar),
                Arg::U32(ranges as u32),
            ],
        });
    }
    Some(Launches {
        list,
        scratch: scratch.bytes,
        counters: 0,
    })
}
