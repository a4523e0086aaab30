//! The responsibility op: embeddings of q and p in; sampled code mean, index and divergence out.
//!
//! Scores against K codes exist only as tiles of some tens of rows in scratch memory of the thread that
//! works on them; the backward pass recomputes them, as attention kernels do with theirs. Sums over
//! rows (the gradient of the codebook) are taken over a fixed set of chunks, a function of the number of
//! rows alone, and combined in order, so threads do not show in the bits.
//!
//! log q = log-softmax_k of -½ Σ_d [(e_d - mu_kd)² / σ²_kd + log σ²_kd], the paper's `eq:rr_q`; p likewise,
//! `eq:rr_p`.

use crate::device::cpu::gemm::panels::{Layout, Panels, panel_width};
use crate::device::cpu::gemm::tile::{Passes, Point, Row, Segment, Terms, outer, product};
use crate::device::cpu::scratch::with_scratch;
use crate::lanes::WIDTH;
use crate::op::SampleMode;
use crate::rng::{Distribution, Noise, fill};
use crate::simd::Isa;
use codebook::{Codebook, Sums, codebook_gradient, take, with_codebook};
use rayon::prelude::*;
use rows::{Flow, Tile};

mod codebook;
mod rows;

/// Rows of scores at work at a time.
const TILE_ROWS: usize = 48;
/// Most partial sums of the codebook gradient.
const CHUNKS: usize = 16;
/// Rows worth a chunk.
const CHUNK_ROWS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Responsibility {
    pub rows: usize,
    pub dim: usize,
    pub codes: usize,
    pub mode: SampleMode,
    pub tau: f32,
    pub noise_scale: f32,
    /// The Gumbel noise of row r and code k is element (first + r)·codes + k.
    pub noise: Noise,
    /// Rows of the whole batch before these.
    pub first: u64,
}

impl Responsibility {
    /// Whether z = Σ_k y_k mu_k rather than the mean of the chosen code.
    fn mixes(&self) -> bool {
        self.mode == SampleMode::Relaxed
    }

    fn chunk_rows(&self) -> usize {
        self.rows.div_ceil(CHUNKS).max(CHUNK_ROWS)
    }

    fn check(&self, e_q: &[f32], e_p: Option<&[f32]>, mu: &[f32], logvar: &[f32]) {
        assert!(self.codes > 0 && self.dim > 0);
        assert_eq!(e_q.len(), self.rows * self.dim);
        assert!(e_p.is_none_or(|e| e.len() == e_q.len()));
        assert_eq!(mu.len(), self.codes * self.dim);
        assert_eq!(logvar.len(), mu.len());
    }
}

/// z, the chosen codes and KL(q‖p), a row each. `e_p` none: a uniform prior.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    isa: Isa,
    r: &Responsibility,
    e_q: &[f32],
    e_p: Option<&[f32]>,
    mu: &[f32],
    logvar: &[f32],
    z: &mut [f32],
    index: &mut [u32],
    kl: &mut [f32],
) {
    r.check(e_q, e_p, mu, logvar);
    assert_eq!(z.len(), e_q.len());
    assert_eq!((index.len(), kl.len()), (r.rows, r.rows));
    let d = r.dim;
    with_codebook(isa, r, mu, logvar, false, |book| {
        Panels::with(isa, r.codes, d, Layout::Straight, mu, |mean_rows| {
            let plan = Plan::new(isa, r, book);
            let z = z.par_chunks_mut(TILE_ROWS * d);
            let outs = z
                .zip(index.par_chunks_mut(TILE_ROWS))
                .zip(kl.par_chunks_mut(TILE_ROWS));
            outs.enumerate().for_each(|(i, ((z, index), kl))| {
                let first = i * TILE_ROWS;
                plan.with_scores(first, index.len(), e_q, e_p, |tile, s| {
                    rows::forward(isa, tile, s.a_q, s.a_p, index, kl, s.row);
                    if r.mixes() {
                        let lines = plan.lines(index.len(), book.stride, d);
                        product(isa, s.a_q, &lines, &plan.over_codes, mean_rows, z, false);
                    } else {
                        for (z, k) in z.chunks_mut(d).zip(&*index) {
                            z.copy_from_slice(&mu[*k as usize * d..][..d]);
                        }
                    }
                });
            });
        });
    });
}

/// What the products of one call share.
struct Plan<'a> {
    isa: Isa,
    op: &'a Responsibility,
    book: &'a Codebook<'a>,
    /// [e, e²] against the codes; dz against the means; codes against 2D or D columns.
    over_squares: Passes,
    over_dim: Passes,
    over_codes: Passes,
}

/// Scratch of one tile, scores computed.
struct Scores<'a> {
    /// [rows × 2D]: e beside e².
    squares_q: &'a [f32],
    squares_p: &'a [f32],
    a_q: &'a mut [f32],
    /// Empty where the prior is uniform.
    a_p: &'a mut [f32],
    /// Room for three rows.
    row: &'a mut [f32],
    /// Room for a tile of products with the codes.
    dy: &'a mut [f32],
    /// Room for a tile of responsibilities.
    y: &'a mut [f32],
    /// Room for a tile of 2D columns.
    back: &'a mut [f32],
}

impl<'a> Plan<'a> {
    fn new(isa: Isa, op: &'a Responsibility, book: &'a Codebook<'a>) -> Self {
        let width = panel_width(isa, book.stride);
        let whole = |width, len| Passes::new(width, [Segment { a: 0, b: 0, len }]);
        Plan {
            isa,
            op,
            book,
            over_squares: whole(width, 2 * op.dim),
            over_dim: whole(width, op.dim),
            over_codes: whole(panel_width(isa, 2 * op.dim), op.codes),
        }
    }

    /// Rows at fixed distances in both operands.
    fn lines(&self, rows: usize, a: usize, c: usize) -> Vec<Row> {
        (0..rows).map(|r| Row { a: r * a, c: r * c }).collect()
    }

    fn with_scores(
        &self,
        first: usize,
        rows: usize,
        e_q: &[f32],
        e_p: Option<&[f32]>,
        body: impl FnOnce(&Tile, Scores),
    ) {
        let (op, n, d) = (self.op, self.book.stride, self.op.dim);
        let wide = rows * n;
        let p = usize::from(e_p.is_some());
        let noisy = usize::from(op.noise_scale != 0.0);
        let sizes = [
            rows * 2 * d,
            p * rows * 2 * d,
            wide,
            p * wide,
            3 * n,
            wide,
            usize::from(op.mixes()) * wide,
            rows * 2 * d,
            noisy * rows * op.codes,
        ];
        let total = sizes.iter().map(|s| s.next_multiple_of(WIDTH)).sum();
        with_scratch(total, |room| {
            let mut room = room;
            let [squares_q, squares_p, a_q, a_p, row, dy, y, back, gumbel] =
                sizes.map(|len| take(&mut room, len));
            let part = first * d..(first + rows) * d;
            self.score(&e_q[part.clone()], squares_q, a_q);
            if let Some(e_p) = e_p {
                self.score(&e_p[part], squares_p, a_p);
            }
            let element = (op.first + first as u64) * op.codes as u64;
            fill(self.isa, op.noise, Distribution::Gumbel, element, gumbel);
            let tile = Tile {
                op,
                stride: n,
                gumbel,
            };
            body(
                &tile,
                Scores {
                    squares_q,
                    squares_p,
                    a_q,
                    a_p,
                    row,
                    dy,
                    y,
                    back,
                },
            );
        });
    }

    /// a = c + [e, e²]·B.
    fn score(&self, e: &[f32], squares: &mut [f32], a: &mut [f32]) {
        let (n, d) = (self.book.stride, self.op.dim);
        for (e, s) in e.chunks(d).zip(squares.chunks_mut(2 * d)) {
            let (linear, square) = s.split_at_mut(d);
            linear.copy_from_slice(e);
            for (s, e) in square.iter_mut().zip(e) {
                *s = e * e;
            }
        }
        for row in a.chunks_mut(n) {
            row.copy_from_slice(self.book.constant);
        }
        let lines = self.lines(a.len() / n, 2 * d, n);
        product(
            self.isa,
            squares,
            &lines,
            &self.over_squares,
            &self.book.scores,
            a,
            true,
        );
    }

    /// de = da·(mu iv) - e · (da·iv), from score gradients.
    fn back_to_embedding(&self, da: &[f32], e: &[f32], back: &mut [f32], de: &mut [f32]) {
        let (n, d) = (self.book.stride, self.op.dim);
        let lines = self.lines(da.len() / n, n, 2 * d);
        product(
            self.isa,
            da,
            &lines,
            &self.over_codes,
            &self.book.back,
            back,
            false,
        );
        for ((de, e), b) in de.chunks_mut(d).zip(e.chunks(d)).zip(back.chunks(2 * d)) {
            let (linear, square) = b.split_at(d);
            for i in 0..d {
                de[i] = linear[i] - e[i] * square[i];
            }
        }
    }
}

/// Partial sums of a chunk: G0, then [G1, G2], then what reaches mu through z.
struct Partial {
    sizes: [usize; 3],
}

impl Partial {
    fn new(r: &Responsibility) -> Self {
        let n = r.codes.next_multiple_of(WIDTH);
        Partial {
            sizes: [n, n * 2 * r.dim, n * r.dim],
        }
    }

    fn floats(&self) -> usize {
        self.sizes.iter().sum()
    }

    fn split<'a>(&self, floats: &'a mut [f32]) -> [&'a mut [f32]; 3] {
        let mut room = floats;
        self.sizes.map(|len| take(&mut room, len))
    }
}

/// One chunk of rows and the outputs that are its own.
struct Chunk<'a> {
    first: usize,
    de_q: &'a mut [f32],
    de_p: Option<&'a mut [f32]>,
    partial: &'a mut [f32],
}

/// Gradients from those of z and the divergence. Straight through, dz reaches the embeddings as if z were
/// relaxed and the codebook at the chosen code.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    isa: Isa,
    r: &Responsibility,
    e_q: &[f32],
    e_p: Option<&[f32]>,
    mu: &[f32],
    logvar: &[f32],
    dz: &[f32],
    dkl: &[f32],
    de_q: &mut [f32],
    de_p: Option<&mut [f32]>,
    dmu: &mut [f32],
    dlogvar: &mut [f32],
) {
    r.check(e_q, e_p, mu, logvar);
    assert_eq!((dz.len(), de_q.len()), (e_q.len(), e_q.len()));
    assert_eq!(dkl.len(), r.rows);
    assert_eq!(de_p.as_ref().map(|d| d.len()), e_p.map(<[f32]>::len));
    assert_eq!((dmu.len(), dlogvar.len()), (mu.len(), mu.len()));
    let d = r.dim;
    let partial = Partial::new(r);
    let chunk_rows = r.chunk_rows();
    let count = r.rows.div_ceil(chunk_rows).max(1);
    with_codebook(isa, r, mu, logvar, true, |book| {
        with_scratch(count * partial.floats(), |partials| {
            let plan = Plan::new(isa, r, book);
            let mut de_p = de_p.map(|d_p| d_p.chunks_mut(chunk_rows * d));
            let mut de_q = de_q.chunks_mut(chunk_rows * d);
            let parts = partials.chunks_mut(partial.floats()).enumerate();
            let chunks: Vec<Chunk> = parts
                .map(|(i, part)| Chunk {
                    first: i * chunk_rows,
                    de_q: de_q.next().unwrap_or_default(),
                    de_p: de_p.as_mut().map(|d_p| d_p.next().unwrap_or_default()),
                    partial: part,
                })
                .collect();
            chunks.into_par_iter().for_each(|chunk| {
                plan.chunk_backward(&partial, chunk, e_q, e_p, dz, dkl);
            });
            combine(partials, partial.floats());
            let [total, moments, through_z] = partial.split(&mut partials[..partial.floats()]);
            let sums = Sums {
                total,
                moments,
                through_z,
            };
            codebook_gradient(isa, d, 0, mu, logvar, sums, dmu, dlogvar);
        });
    });
}

/// Adds the later partial sums to the first, in order.
fn combine(partials: &mut [f32], floats: usize) {
    let (sum, others) = partials.split_at_mut(floats);
    let band = 4096;
    sum.par_chunks_mut(band).enumerate().for_each(|(i, sum)| {
        for other in others.chunks(floats) {
            for (s, o) in sum.iter_mut().zip(&other[i * band..]) {
                *s += o;
            }
        }
    });
}

impl Plan<'_> {
    fn chunk_backward(
        &self,
        partial: &Partial,
        chunk: Chunk,
        e_q: &[f32],
        e_p: Option<&[f32]>,
        dz: &[f32],
        dkl: &[f32],
    ) {
        let (isa, op, d, n) = (self.isa, self.op, self.op.dim, self.book.stride);
        chunk.partial.fill(0.0);
        let [total, moments, through_z] = partial.split(chunk.partial);
        let mut de_p = chunk.de_p.map(|d_p| d_p.chunks_mut(TILE_ROWS * d));
        for (i, de_q) in chunk.de_q.chunks_mut(TILE_ROWS * d).enumerate() {
            let first = chunk.first + i * TILE_ROWS;
            let rows = de_q.len() / d;
            let part = first * d..(first + rows) * d;
            let dz = &dz[part.clone()];
            self.with_scores(first, rows, e_q, e_p, |tile, s| {
                let lines = self.lines(rows, d, n);
                product(
                    isa,
                    dz,
                    &lines,
                    &self.over_dim,
                    &self.book.means,
                    s.dy,
                    false,
                );
                let mut index = [0; TILE_ROWS];
                let flow = Flow {
                    dy: s.dy,
                    dkl: &dkl[first..first + rows],
                    total: &mut *total,
                    y: &mut *s.y,
                    index: &mut index[..rows],
                };
                rows::backward(isa, tile, s.a_q, s.a_p, flow, s.row);
                if op.mixes() {
                    let points = self.points(rows, n, d);
                    let terms = Terms {
                        a: s.y,
                        b: dz,
                        points: &points,
                        next: [&[], &[]],
                    };
                    outer(isa, &terms, op.codes, d, through_z, d);
                } else {
                    for (dz, k) in dz.chunks(d).zip(&index[..rows]) {
                        let k = *k as usize;
                        for (sum, dz) in through_z[k * d..][..d].iter_mut().zip(dz) {
                            *sum += dz;
                        }
                    }
                }
                let points = self.points(rows, n, 2 * d);
                self.back_to_embedding(s.a_q, &e_q[part.clone()], s.back, de_q);
                let (points, next) = (&points, [&[][..], &[][..]]);
                let terms = Terms {
                    a: s.a_q,
                    b: s.squares_q,
                    points,
                    next,
                };
                outer(isa, &terms, op.codes, 2 * d, moments, 2 * d);
                if let (Some(e_p), Some(de_p)) = (e_p, de_p.as_mut().and_then(Iterator::next)) {
                    self.back_to_embedding(s.a_p, &e_p[part.clone()], s.back, de_p);
                    let terms = Terms {
                        a: s.a_p,
                        b: s.squares_p,
                        points,
                        next,
                    };
                    outer(isa, &terms, op.codes, 2 * d, moments, 2 * d);
                }
            });
        }
    }

    fn points(&self, rows: usize, a: usize, b: usize) -> Vec<Point> {
        (0..rows).map(|r| Point { a: r * a, b: r * b }).collect()
    }
}

#[cfg(test)]
mod tests;
