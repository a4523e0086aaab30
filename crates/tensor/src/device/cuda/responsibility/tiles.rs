//! The sizes models train with, on tensor cores: which pieces, how many blocks, how much shared memory.
//!
//! A float is a sum of bf16 pieces and a product of floats the sum of the products that matter: two pieces and
//! three products keep 16 bits, which suits maps stored as bf16; three pieces and six products keep what f32
//! keeps. The codebook lies in shared memory, filled by every block for itself.

use super::{Case, Scratch, dtype, function, pointer};
use crate::compile::Place;
use crate::device::cuda::launch::{Arg, Launch, Launches};
use crate::graph::DType;
use crate::op::SampleMode;

pub(super) const TILES: &str = include_str!("../kernels/responsibility_tiles.cu");
const FORWARD: &str = include_str!("../kernels/responsibility_forward.cu");
pub(super) const ROWS: &str = include_str!("../kernels/responsibility_rows.cu");
const BACKWARD: &str = include_str!("../kernels/responsibility_backward.cu");

/// Multiprocessors of the GPU the grids are made for; others run the same launches.
pub(super) const PROCESSORS: usize = 132;
/// Dynamic shared memory a block may ask for on every GPU from the A100 on that is made for such work.
pub(super) const SHARED_LIMIT: usize = 163 * 1024;
/// Rows of a tile, and codes of a unit.
pub(super) const TILE: usize = 16;
/// Warps of a forward block.
const WARPS: usize = 8;
/// Bytes of what noise starts from.
pub(super) const NOISE: usize = 24;
/// Bytes of the running sums of one row.
const STATE: usize = 28;

pub(super) struct Pieces {
    all: usize,
    q: [usize; 2],
    p: [usize; 2],
    pub dz: usize,
}

impl Pieces {
    pub fn new(case: &Case, dz: DType) -> Self {
        let all = if case.exact { 3 } else { 2 };
        // What is stored as bf16 is one piece, and its square two, without loss.
        let of = |dtype| match dtype {
            DType::Bf16 => [1, 2],
            _ => [all, all],
        };
        Pieces {
            all,
            q: of(case.inputs[3].dtype),
            p: of(dtype(case.e_p())),
            dz: of(dz)[0],
        }
    }

    pub fn defines(&self) -> [(&'static str, usize); 6] {
        [
            ("PIECES", self.all),
            ("Q_PIECES", self.q[0]),
            ("Q_SQUARES", self.q[1]),
            ("P_PIECES", self.p[0]),
            ("P_SQUARES", self.p[1]),
            ("DZ_PIECES", self.dz),
        ]
    }

    /// Bytes of the codebook's scores.
    pub fn table(&self, case: &Case) -> usize {
        self.all * case.codes * (2 * case.dim + 8) * 2
    }

    /// Bytes of a tile of rows: the embeddings and their squares, dz and the weights of the divergence.
    pub fn tile(&self, case: &Case) -> usize {
        let most = |of: [usize; 2]| of[0].max(of[1]);
        let maps = most(self.q) + case.op.prior as usize * most(self.p);
        maps * TILE * (2 * case.dim + 8) * 2 + self.dz * TILE * (case.dim + 8) * 2 + TILE * 4
    }

    /// Bytes of the codebook's means.
    fn means(&self, case: &Case) -> usize {
        self.all * case.codes * (case.dim + 8) * 2
    }
}

/// Whether the kernels are made for these sizes, and elements can be moved in twos, those of the codebook in fours.
pub(super) fn suits(case: &Case, maps: &[Option<Place>]) -> bool {
    let of_case = [Some(case.inputs[3]), case.e_p()];
    let mut maps = of_case.iter().chain(maps).flatten();
    [16, 32].contains(&case.dim)
        && [64, 128, 256].contains(&case.codes)
        && maps.all(|p| p.offset.is_multiple_of(2))
        && case.inputs[4..6].iter().all(|p| p.offset.is_multiple_of(4))
}

/// Blocks for `tiles` of them where `resident` run at a time: no more than give the same number of rounds.
pub(super) fn blocks(tiles: usize, resident: usize) -> usize {
    let rounds = tiles.div_ceil(resident).max(1);
    tiles.div_ceil(rounds)
}

/// Numbers a warp of a backward block tells the others of each row.
pub(super) fn fields(case: &Case) -> usize {
    9 + 2 * case.is(SampleMode::ReinMax) as usize
}

pub fn forward(case: &Case, z: Place, index: Option<Place>, kl: Option<Place>) -> Option<Launches> {
    let pieces = Pieces::new(case, DType::F32);
    let mut shared = pieces.table(case) + case.codes * 4 + WARPS * TILE * STATE;
    if case.is(SampleMode::Relaxed) {
        shared += pieces.means(case) + WARPS * (TILE * case.dim + TILE) * 4;
    }
    if !suits(case, &[Some(z)]) || shared > SHARED_LIMIT {
        return None;
    }
    // Two blocks share a multiprocessor where 128 registers a thread are enough.
    let of_p = case.op.prior as usize * pieces.p.iter().sum::<usize>();
    let fragments = case.dim / 16 * 4 * (pieces.q.iter().sum::<usize>() + of_p);
    let together = if fragments <= 48 && 2 * shared <= SHARED_LIMIT {
        2
    } else {
        1
    };
    let defines: Vec<_> = pieces
        .defines()
        .into_iter()
        .chain([("EXACT", case.exact as usize), ("FORWARD_BLOCKS", together)])
        .collect();
    let stored = [
        ("E_Q", case.inputs[3].dtype),
        ("E_P", dtype(case.e_p())),
        ("Z_OUT", z.dtype),
    ];
    let source = case.source(&defines, &stored, &[TILES, FORWARD]);
    let groups = case.rows.div_ceil(TILE);
    let resident = PROCESSORS * together;
    let mut parts = 1;
    while 2 * parts <= WARPS.min(case.codes / TILE) && groups * parts * 2 <= resident * WARPS {
        parts *= 2;
    }
    let args = vec![
        case.arg(0),
        case.arg(1),
        case.arg(2),
        case.arg(3),
        case.arg(4),
        case.arg(5),
        pointer(case.e_p()),
        Arg::Place(z),
        pointer(index),
        pointer(kl),
        Arg::U32(case.rows as u32),
        Arg::U32(case.op.stream),
        Arg::U32(parts as u32),
    ];
    let launch = Launch {
        function: function("responsibility_forward", &source),
        grid: [
            blocks(groups.div_ceil(WARPS / parts), resident) as u32,
            1,
            1,
        ],
        block: 32 * WARPS as u32,
        shared: shared as u32,
        args,
    };
    Some(Launches {
        list: vec![launch],
        ..Launches::default()
    })
}

/// The exact one.
pub fn backward(case: &Case, outputs: &[Option<Place>; 4]) -> Option<Launches> {
    let [de_q, dmu, dlogvar, de_p] = *outputs;
    let (dim, codes) = (case.dim, case.codes);
    let dz = case.dz();
    let pieces = Pieces::new(case, dz.dtype);
    let warps = codes / TILE;
    let shares = (warps * TILE * dim).max(fields(case) * TILE * (warps + 1)) * 4;
    let shared =
        pieces.table(case) + shares + codes * 4 + TILE * 12 * 4 + pieces.tile(case) + NOISE;
    if !suits(case, &[Some(dz)]) || shared > SHARED_LIMIT {
        return None;
    }
    let defines: Vec<_> = pieces.defines().into_iter().chain([("EXACT", 1)]).collect();
    let stored = [
        ("E_Q", case.inputs[3].dtype),
        ("E_P", dtype(case.e_p())),
        ("DZ", dz.dtype),
        ("DE_Q", dtype(de_q)),
        ("DE_P", dtype(de_p)),
    ];
    let source = case.source(&defines, &stored, &[TILES, ROWS, BACKWARD]);
    let blocks = blocks(case.rows.div_ceil(TILE), PROCESSORS);
    let mut scratch = Scratch::default();
    let left = scratch.take(blocks * (3 * codes * dim + codes) * 4);
    let rows = Launch {
        function: function("responsibility_backward", &source),
        grid: [blocks as u32, 1, 1],
        block: 32 * warps as u32,
        shared: shared as u32,
        args: case.gradient_args(de_q, de_p, left),
    };
    let mut list = vec![rows];
    if dmu.is_some() || dlogvar.is_some() {
        list.push(Launch {
            function: function("responsibility_codebook", &source),
            grid: [codes as u32, 1, 1],
            block: 256,
            shared: 0,
            args: vec![
                left,
                case.arg(4),
                case.arg(5),
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
