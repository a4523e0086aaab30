// What both backward kernels share: tiles of 16 rows in shared memory, and sums over the warps that know a row.
//
// A block has one warp for each unit of 16 codes.

#define WARPS UNITS
#define THREADS (32 * WARPS)
// Pairs in 16 rows of a map, and how many of them a thread moves.
#define PAIRS (16 * DIM / 2)
#define MINE ((PAIRS + THREADS - 1) / THREADS)
// Numbers a warp tells the others of each row: nine, and with ReinMax Σ q dy and dy of its best code.
#define FIELDS (9 + 2 * REINMAX)

// A tile of embeddings [e, -½e²] and of dz, in pieces.
struct Tile {
    u16 q[Q_PIECES > Q_SQUARES ? Q_PIECES : Q_SQUARES][16][STRIDE];
#if PRIOR
    u16 p[P_PIECES > P_SQUARES ? P_PIECES : P_SQUARES][16][STRIDE];
#endif
    u16 dz[DZ_PIECES][16][MEAN_STRIDE];
    float dkl[16];
};

// What of the next tile a thread has read already, as it is stored.
struct Ahead {
    decltype(raw_pair((const E_Q*)0)) q[MINE];
#if PRIOR
    decltype(raw_pair((const E_P*)0)) p[MINE];
#endif
    decltype(raw_pair((const DZ*)0)) dz[MINE];
    float dkl;
};

// Rows past the last one are read as the last one; nothing flows back into them.
template <typename T, typename Raw>
__device__ __forceinline__ void read_pairs(Raw (&to)[MINE], const T* from, u32 first, u32 rows) {
#pragma unroll
    for (int n = 0; n < MINE; n++) {
        u32 i = n * THREADS + threadIdx.x;
        if (i < PAIRS) to[n] = raw_pair(from + (u64)min(first + i / (DIM / 2), rows - 1) * DIM + i % (DIM / 2) * 2);
    }
}

__device__ __forceinline__ void read_tile(Ahead& a, const E_Q* e_q, const E_P* e_p, const DZ* dz, const float* dkl, u32 first, u32 rows) {
    read_pairs(a.q, e_q, first, rows);
#if PRIOR
    read_pairs(a.p, e_p, first, rows);
#endif
    read_pairs(a.dz, dz, first, rows);
    if (threadIdx.x < 16) a.dkl = dkl[min(first + threadIdx.x, rows - 1)];
}

template <int N, int SQUARES, int BOTH>
__device__ __forceinline__ void write_pair(u16 (&to)[BOTH][16][STRIDE], u32 row, u32 column, float2 x) {
    u32 piece[N], square[SQUARES];
    split<N>(x.x, x.y, piece);
    split<SQUARES>(-0.5f * x.x * x.x, -0.5f * x.y * x.y, square);
#pragma unroll
    for (int n = 0; n < N; n++) *(u32*)&to[n][row][column] = piece[n];
#pragma unroll
    for (int n = 0; n < SQUARES; n++) *(u32*)&to[n][row][DIM + column] = square[n];
}

__device__ __forceinline__ void write_tile(Tile* tile, const Ahead& a, u32 first, u32 rows) {
#pragma unroll
    for (int n = 0; n < MINE; n++) {
        u32 i = n * THREADS + threadIdx.x;
        if (i >= PAIRS) continue;
        u32 row = i / (DIM / 2), column = i % (DIM / 2) * 2;
        write_pair<Q_PIECES, Q_SQUARES>(tile->q, row, column, widen_pair(a.q[n]));
#if PRIOR
        write_pair<P_PIECES, P_SQUARES>(tile->p, row, column, widen_pair(a.p[n]));
#endif
        float2 dz = first + row < rows ? widen_pair(a.dz[n]) : make_float2(0.0f, 0.0f);
        u32 piece[DZ_PIECES];
        split<DZ_PIECES>(dz.x, dz.y, piece);
#pragma unroll
        for (int k = 0; k < DZ_PIECES; k++) *(u32*)&tile->dz[k][row][column] = piece[k];
    }
    if (threadIdx.x < 16) tile->dkl[threadIdx.x] = first + threadIdx.x < rows ? a.dkl : 0.0f;
}

// Pieces of A: 16 rows and 16 columns of a tile.
template <int N, int BOTH, int LINE>
__device__ __forceinline__ void load_rows(u32 (&a)[N][4], const u16 (&from)[BOTH][16][LINE], u32 column) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) load_matrices(a[n], &from[n][lane % 16][column + lane / 16 * 8]);
}

// Pieces of B: the sum over 16 rows of a tile, 16 columns.
template <int N, int BOTH, int LINE>
__device__ __forceinline__ void load_rows_back(u32 (&b)[N][4], const u16 (&from)[BOTH][16][LINE], u32 column) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) load_transposed(b[n], &from[n][lane % 16][column + lane / 16 * 8]);
}

template <int N, int BOTH>
__device__ __forceinline__ void add_scores(float (&s)[2][4], const u16 (&tile)[BOTH][16][STRIDE], const u32 (&b)[PIECES][4], u32 column) {
    u32 a[N][4];
    load_rows(a, tile, column);
    multiply_pieces(s[0], a, b, 0);
    multiply_pieces(s[1], a, b, 2);
}

// Σ over the rows of the tile of G [e, -½e²], `g` holding G transposed in pieces.
template <int N, int SQUARES, int NG, int BOTH>
__device__ __forceinline__ void add_moments(float (&sum)[WIDE / 8][4], const u32 (&g)[NG][4], const u16 (&tile)[BOTH][16][STRIDE]) {
#pragma unroll
    for (int j = 0; j < DIM / 16; j++) {
        u32 b[N][4], square[SQUARES][4];
        load_rows_back(b, tile, 16 * j);
        multiply_pieces(sum[2 * j], g, b, 0);
        multiply_pieces(sum[2 * j + 1], g, b, 2);
        load_rows_back(square, tile, DIM + 16 * j);
        multiply_pieces(sum[DIM / 8 + 2 * j], g, square, 0);
        multiply_pieces(sum[DIM / 8 + 2 * j + 1], g, square, 2);
    }
}

__device__ __forceinline__ float warps_sum(float x) {
#pragma unroll
    for (int bit = WARPS / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
    return x;
}

__device__ __forceinline__ float warps_max(float x) {
#pragma unroll
    for (int bit = WARPS / 2; bit > 0; bit /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, bit));
    return x;
}
