// Forward on tensor cores. A warp takes 16 rows and, one unit after the other, its share of the codes; `parts`
// warps share the codes of the same rows. Embeddings stay in registers as A fragments, the codebook in shared
// memory; sums are kept by thread and put together at the end.

#define WARPS 8

// One row of the A operand of all steps, in pieces: e, then -½e².
template <int N, int SQUARES>
struct Fragments {
    u32 e[DIM / 16][N][4];
    u32 square[DIM / 16][SQUARES][4];
};

// The same as it is stored, asked for before it is needed. Rows past the last one are read as the last one.
template <typename Raw>
struct Ahead {
    Raw e[DIM / 16][4];
};

template <typename T, typename Raw>
__device__ __forceinline__ void read_rows(Ahead<Raw>& to, const T* e, u32 first, u32 rows) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < DIM / 16; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 row = min(first + lane / 4 + i % 2 * 8, rows - 1);
            to.e[s][i] = raw_pair(e + (u64)row * DIM + 16 * s + i / 2 * 8 + 2 * (lane % 4));
        }
}

template <int N, int SQUARES, typename Raw>
__device__ __forceinline__ void make_fragments(Fragments<N, SQUARES>& f, const Ahead<Raw>& from) {
#pragma unroll
    for (int s = 0; s < DIM / 16; s++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 x = widen_pair(from.e[s][i]);
            u32 piece[N], square[SQUARES];
            split<N>(x.x, x.y, piece);
            split<SQUARES>(-0.5f * x.x * x.x, -0.5f * x.y * x.y, square);
#pragma unroll
            for (int n = 0; n < N; n++) f.e[s][n][i] = piece[n];
#pragma unroll
            for (int n = 0; n < SQUARES; n++) f.square[s][n][i] = square[n];
        }
    }
}

// Shared memory: the table, the constants, 16 states a warp; relaxed, the means and 16 × DIM + 16 floats a warp.
extern "C" __global__ void __launch_bounds__(32 * WARPS, FORWARD_BLOCKS) responsibility_forward(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const float* mu, const float* logvar, const E_P* e_p,
    Z_OUT* z, u32* index, float* kl, u32 rows, u32 stream, u32 parts) {
    extern __shared__ float4 shared_memory[];
    u16* table = (u16*)shared_memory;
    float* constants = (float*)(table + TABLE);
    Running* states = (Running*)(constants + CODES);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#if RELAXED
    u16* means = (u16*)(states + 16 * WARPS);
    float* mixtures = (float*)(means + PIECES * CODES * MEAN_STRIDE);
    float* mixture = mixtures + warp * (16 * DIM + 16);
    float inverse_tau = 1.0f / tau[0];
#else
    u16* means = 0;
#endif
    u32 groups = (rows + 15) / 16, together = WARPS / parts;
    Ahead<decltype(raw_pair((const E_Q*)0))> ahead_q;
    read_rows(ahead_q, e_q, (blockIdx.x * together + warp / parts) * 16, rows);
#if PRIOR
    Ahead<decltype(raw_pair((const E_P*)0))> ahead_p;
    read_rows(ahead_p, e_p, (blockIdx.x * together + warp / parts) * 16, rows);
#endif
    Noise noise = noise_of(counter, stream, rows);
    float scale = noise_scale[0];
    fill_tables<WARPS, RELAXED>(mu, logvar, table, constants, means);
    __syncthreads();
    u32 units = UNITS / parts, first_unit = warp % parts * units;
    for (u32 tile = blockIdx.x; tile * together < groups; tile += gridDim.x) {
        u32 first = (tile * together + warp / parts) * 16;
        if (tile != blockIdx.x) {
            read_rows(ahead_q, e_q, first, rows);
#if PRIOR
            read_rows(ahead_p, e_p, first, rows);
#endif
        }
        Fragments<Q_PIECES, Q_SQUARES> of_q;
        make_fragments(of_q, ahead_q);
#if PRIOR
        Fragments<P_PIECES, P_SQUARES> of_p;
        make_fragments(of_p, ahead_p);
#endif
        Running state[2] = {nothing(), nothing()};
#if RELAXED
        float top[2] = {LOWEST, LOWEST}, sum_y[2] = {0.0f, 0.0f}, mix[DIM / 8][4];
#pragma unroll
        for (int j = 0; j < DIM / 8; j++)
            for (int i = 0; i < 4; i++) mix[j][i] = 0.0f;
#endif
#pragma unroll 1
        for (u32 unit = first_unit; unit < first_unit + units; unit++) {
            float q[2][4], p[2][4];
            start_scores(q, constants, unit);
#if PRIOR
            start_scores(p, constants, unit);
#endif
#pragma unroll
            for (int s = 0; s < DIM / 16; s++) {
                u32 b[PIECES][4];
                load_unit(b, table, STRIDE, unit, 16 * s);
                multiply_pieces(q[0], of_q.e[s], b, 0);
                multiply_pieces(q[1], of_q.e[s], b, 2);
#if PRIOR
                multiply_pieces(p[0], of_p.e[s], b, 0);
                multiply_pieces(p[1], of_p.e[s], b, 2);
#endif
                load_unit(b, table, STRIDE, unit, DIM + 16 * s);
                multiply_pieces(q[0], of_q.square[s], b, 0);
                multiply_pieces(q[1], of_q.square[s], b, 2);
#if PRIOR
                multiply_pieces(p[0], of_p.square[s], b, 0);
                multiply_pieces(p[1], of_p.square[s], b, 2);
#endif
            }
            u32 code = code_of(unit, 0, 2 * (lane % 4));
#if RELAXED
            u32 y_pieces[PIECES][4];
#endif
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float one_q[4], one_p[4], t[4], g[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (scale != 0.0f) unit_noise(noise, first + lane / 4 + 8 * h, unit, g);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    one_q[j] = q[j / 2][2 * h + j % 2];
                    one_p[j] = PRIOR ? p[j / 2][2 * h + j % 2] : 0.0f;
                    t[j] = fmaf(scale, g[j], one_q[j]);
                }
                see(state[h], one_q, one_p, t, code);
#if RELAXED
                weigh(t, top[h], sum_y[h], mix, y_pieces, h, inverse_tau);
#endif
            }
#if RELAXED
#pragma unroll
            for (int j = 0; j < DIM / 16; j++) {
                u32 b[PIECES][4];
                load_unit_back(b, means, MEAN_STRIDE, unit, 16 * j, 16 * j + 8);
                multiply_pieces(mix[2 * j], y_pieces, b, 0);
                multiply_pieces(mix[2 * j + 1], y_pieces, b, 2);
            }
#endif
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            merge_lanes(state[h], 1);
            merge_lanes(state[h], 2);
            if (lane % 4 == 0) states[16 * warp + lane / 4 + 8 * h] = state[h];
#if RELAXED
            sum_y[h] += __shfl_xor_sync(~0u, sum_y[h], 1);
            sum_y[h] += __shfl_xor_sync(~0u, sum_y[h], 2);
            u32 row = lane / 4 + 8 * h;
            if (lane % 4 == 0) mixture[16 * DIM + row] = sum_y[h];
#pragma unroll
            for (int j = 0; j < DIM / 8; j++)
                *(float2*)(mixture + row * DIM + 8 * j + 2 * (lane % 4)) = make_float2(mix[j][2 * h], mix[j][2 * h + 1]);
#endif
        }
        if (parts == 1) {
            __syncwarp();
        } else {
            __syncthreads();
        }
        // All warps of the rows put the parts together, the two halves of a warp every other one, and write their rows.
        u32 from = warp - warp % parts;
        Running all = states[16 * (from + (parts > 1 ? lane / 16 : 0)) + lane % 16];
        if (parts > 1) {
            for (u32 i = 2 + lane / 16; i < parts; i += 2) merge(all, states[16 * (from + i) + lane % 16]);
            merge_lanes(all, 16);
        }
        if (warp == from && lane < 16 && first + lane < rows) {
            if (index) index[first + lane] = all.code;
            if (kl) kl[first + lane] = divergence(all);
        }
        u32 until = (warp - from + 1) * (16 / parts);
#if RELAXED
        for (u32 r = until - 16 / parts; r < until; r++) {
            float best = __shfl_sync(~0u, all.best, r);
            float value = 0.0f, sum = 0.0f;
            for (u32 i = 0; i < parts; i++) {
                float factor = exponential((states[16 * (from + i) + r].best - best) * inverse_tau);
                const float* part = mixtures + (from + i) * (16 * DIM + 16);
                sum = fmaf(factor, part[16 * DIM + r], sum);
                if (lane < DIM) value = fmaf(factor, part[r * DIM + lane], value);
            }
            if (first + r < rows && lane < DIM) put(z + (u64)(first + r) * DIM + lane, value / sum);
        }
#else
        // Several means are asked for before the first is written.
        const u32 LANES = DIM / 2, AT_ONCE = 32 / LANES, BATCH = 4;
        for (u32 r = until - 16 / parts; r < until; r += BATCH * AT_ONCE) {
            u32 row = r + lane / LANES, column = lane % LANES * 2;
            float2 mean[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                u32 code = __shfl_sync(~0u, all.code, (row + i * AT_ONCE) % 16);
                mean[i] = *(const float2*)(mu + code * DIM + column);
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                u32 at = row + i * AT_ONCE;
                if (at < until && first + at < rows) put_pair(z + (u64)(first + at) * DIM + column, mean[i].x, mean[i].y);
            }
        }
#endif
        // The states are written again by the next tile.
        if (parts == 1) {
            __syncwarp();
        } else {
            __syncthreads();
        }
    }
}
