// Embeddings too wide, or codes too many, for a codebook in shared memory.
//
// A warp takes 16 rows and keeps their embeddings in registers, while the codebook passes through shared memory a unit
// of 16 codes at a time, the next one on its way. Squares of embeddings are made anew for each unit: what that costs is
// hidden by the products.
//
// Backward goes through the rows in chunks that fit into the GPU's cache. For each chunk, `slopes` leaves the gradients
// of all scores as bf16, from which `embeddings` and `moments` make theirs as plain products; the codebook's are summed
// from chunk to chunk by the same blocks, and put together at the end.
//
// Also given: WARPS, of the blocks that go through the codebook; Q_PIECES and P_PIECES, of the embeddings; SLICE; BACKWARD.

// A row of the codebook: mu iv, iv and mu, in pieces.
#define LINE (3 * DIM)
#define LINE_STRIDE (LINE + 8)
#define UNIT_WORDS (PIECES * 16 * LINE_STRIDE)

// The codebook as it is read: [UNITS][PIECES][16][LINE_STRIDE]. A warp to a code.
extern "C" __global__ void __launch_bounds__(256) responsibility_wide_tables(const float* mu, const float* logvar, u16* lines,
                                                                             float* constants) {
    u32 code = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, slot = slot_of(code);
    float sum = 0.0f;
#pragma unroll
    for (int d = lane; d < DIM; d += 32) {
        float m = mu[code * DIM + d], lv = logvar[code * DIM + d];
        // 2^0.5287663729 = log2 e
        float iv = power_of_two(fmaf(lv, -LOG2_E, 0.5287663729f)), scaled = m * iv;
        sum += fmaf(scaled, m, LOG2_E * lv);
        u32 both[PIECES], mean[PIECES];
        split<PIECES>(scaled, iv, both);
        split<PIECES>(m, 0.0f, mean);
#pragma unroll
        for (int n = 0; n < PIECES; n++) {
            u16* line = lines + ((slot / 16 * PIECES + n) * 16 + slot % 16) * LINE_STRIDE;
            line[d] = (u16)both[n];
            line[DIM + d] = (u16)(both[n] >> 16);
            line[2 * DIM + d] = (u16)mean[n];
        }
    }
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    if (lane == 0) constants[slot] = -0.5f * sum;
}

// Two units in shared memory: one that is read, and one that arrives.
struct Stream {
    u16 unit[2][UNIT_WORDS];
};

__device__ __forceinline__ void ask_for_unit(Stream& s, const u16* lines, u32 unit) {
    const u16* from = lines + (u64)unit * UNIT_WORDS;
    u32 to = (u32)__cvta_generic_to_shared(s.unit[unit % 2]);
    // Not unrolled: for one of the sizes ptxas 13.0 otherwise makes an address of a counter it has already moved on, and
    // copies past the end of shared memory.
#pragma unroll 1
    for (u32 i = threadIdx.x; i < UNIT_WORDS / 8; i += 32 * WARPS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 16 * i), "l"(from + 8 * i));
    asm volatile("cp.async.commit_group;");
}

// Where a unit is that all of the block may read now; the next one is asked for.
__device__ __forceinline__ const u16* take_unit(Stream& s, const u16* lines, u32 unit) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (unit + 1 < UNITS) ask_for_unit(s, lines, unit + 1);
    return s.unit[unit % 2];
}

// Pieces of B for 16 columns of a unit: tile 0 in registers 0 and 1, tile 1 in 2 and 3.
template <int N>
__device__ __forceinline__ void load_lines(u32 (&b)[N][4], const u16* unit, u32 column) {
    u32 lane = threadIdx.x % 32, slot = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int n = 0; n < N; n++) load_matrices(b[n], unit + (n * 16 + slot) * LINE_STRIDE + column + lane / 8 % 2 * 8);
}

// 16 rows of a map as A, in pieces.
template <int N>
struct Fragments {
    u32 e[DIM / 16][N][4];
};

// Rows past the last one are read as the last one, or as 0.
template <bool ZERO, int N, typename T>
__device__ __forceinline__ void read_rows(Fragments<N>& to, const T* e, u32 first, u32 rows) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < DIM / 16; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 row = first + lane / 4 + i % 2 * 8, column = 16 * s + i / 2 * 8 + 2 * (lane % 4);
            float2 x = widen_pair(raw_pair(e + (u64)min(row, rows - 1) * DIM + column));
            if (ZERO && row >= rows) x = make_float2(0.0f, 0.0f);
            u32 piece[N];
            split<N>(x.x, x.y, piece);
#pragma unroll
            for (int n = 0; n < N; n++) to.e[s][n][i] = piece[n];
        }
}

template <int N>
__device__ __forceinline__ void add_product(float (&s)[2][4], const u32 (&e)[N][4], const u32 (&b)[PIECES][4]) {
    multiply_pieces(s[0], e, b, 0);
    multiply_pieces(s[1], e, b, 2);
}

// The same for -½e², in two pieces.
template <int N>
__device__ __forceinline__ void add_squares(float (&s)[2][4], const u32 (&e)[N][4], const u32 (&b)[PIECES][4]) {
    u32 square[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = 0.0f, y = 0.0f;
#pragma unroll
        for (int n = N - 1; n >= 0; n--) {
            x += low_half(e[n][i]);
            y += high_half(e[n][i]);
        }
        u32 piece[2];
        split<2>(-0.5f * x * x, -0.5f * y * y, piece);
        square[0][i] = piece[0];
        square[1][i] = piece[1];
    }
    add_product(s, square, b);
}

// Says that the registers may have changed, so that the compiler does not keep their squares from unit to unit: there
// is no room for those.
template <int N>
__device__ __forceinline__ void renew(Fragments<N>& f) {
#pragma unroll
    for (int s = 0; s < DIM / 16; s++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) asm volatile("" : "+r"(f.e[s][n][i]));
}

// Scores of q and p for one unit.
__device__ __forceinline__ void unit_scores(float (&q)[2][4], float (&p)[2][4], Fragments<Q_PIECES>& of_q, Fragments<P_PIECES>& of_p,
                                            const u16* lines, const float* constants, u32 unit) {
    renew(of_q);
#if PRIOR
    renew(of_p);
#endif
    start_scores(q, constants, unit);
#if PRIOR
    start_scores(p, constants, unit);
#endif
#pragma unroll
    for (int s = 0; s < DIM / 16; s++) {
        u32 b[PIECES][4];
        load_lines(b, lines, 16 * s);
        add_product(q, of_q.e[s], b);
#if PRIOR
        add_product(p, of_p.e[s], b);
#endif
        load_lines(b, lines, DIM + 16 * s);
        add_squares(q, of_q.e[s], b);
#if PRIOR
        add_squares(p, of_p.e[s], b);
#endif
    }
}

// What a thread knows of its four codes of a unit in one of its two rows: scores, and perturbed ones.
__device__ __forceinline__ void codes_of_row(float (&one_q)[4], float (&one_p)[4], float (&t)[4], const float (&q)[2][4],
                                             const float (&p)[2][4], const Noise& noise, float scale, u32 first, u32 unit, int h) {
    float g[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (scale != 0.0f) unit_noise(noise, first + threadIdx.x % 32 / 4 + 8 * h, unit, g);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        one_q[j] = q[j / 2][2 * h + j % 2];
        one_p[j] = PRIOR ? p[j / 2][2 * h + j % 2] : 0.0f;
        t[j] = fmaf(scale, g[j], one_q[j]);
    }
}

#if !BACKWARD

extern "C" __global__ void __launch_bounds__(32 * WARPS) responsibility_wide_forward(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const float* mu, const E_P* e_p,
    const u16* lines, const float* constants, Z_OUT* z, u32* index, float* kl, u32 rows, u32 stream) {
    extern __shared__ float4 shared_memory[];
    Stream& s = *(Stream*)shared_memory;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    u32 first = (blockIdx.x * WARPS + warp) * 16;
    ask_for_unit(s, lines, 0);
    Fragments<Q_PIECES> of_q;
    Fragments<P_PIECES> of_p;
    read_rows<false>(of_q, e_q, first, rows);
#if PRIOR
    read_rows<false>(of_p, e_p, first, rows);
#endif
    Noise noise = noise_of(counter, stream, rows);
    float scale = noise_scale[0];
    Running state[2] = {nothing(), nothing()};
#if RELAXED
    float inverse_tau = 1.0f / tau[0];
    float top[2] = {LOWEST, LOWEST}, sum_y[2] = {0.0f, 0.0f}, mix[DIM / 8][4];
#pragma unroll
    for (int j = 0; j < DIM / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) mix[j][i] = 0.0f;
#endif
#pragma unroll 1
    for (u32 unit = 0; unit < UNITS; unit++) {
        const u16* here = take_unit(s, lines, unit);
        float q[2][4], p[2][4];
        unit_scores(q, p, of_q, of_p, here, constants, unit);
        u32 code = code_of(unit, 0, 2 * t);
#if RELAXED
        u32 weights[PIECES][4];
#endif
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float one_q[4], one_p[4], y[4];
            codes_of_row(one_q, one_p, y, q, p, noise, scale, first, unit, h);
            see(state[h], one_q, one_p, y, code);
#if RELAXED
            weigh(y, top[h], sum_y[h], mix, weights, h, inverse_tau);
#endif
        }
#if RELAXED
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            u32 b[PIECES][4];
#pragma unroll
            for (int n = 0; n < PIECES; n++)
                load_transposed(b[n], here + (n * 16 + lane % 16) * LINE_STRIDE + 2 * DIM + 16 * j + lane / 16 * 8);
            multiply_pieces(mix[2 * j], weights, b, 0);
            multiply_pieces(mix[2 * j + 1], weights, b, 2);
        }
#endif
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        merge_lanes(state[h], 1);
        merge_lanes(state[h], 2);
        u32 row = first + lane / 4 + 8 * h;
        if (t == 0 && row < rows) {
            if (index) index[row] = state[h].code;
            if (kl) kl[row] = divergence(state[h]);
        }
#if RELAXED
        float inverse = 1.0f / quad_sum(sum_y[h]);
        if (row >= rows) continue;
#pragma unroll
        for (int j = 0; j < DIM / 8; j++)
            put_pair(z + (u64)row * DIM + 8 * j + 2 * t, mix[j][2 * h] * inverse, mix[j][2 * h + 1] * inverse);
#else
        // Four lanes know the code of a row; the whole warp writes its mean.
#pragma unroll
        for (int r = 0; r < 8; r++) {
            u32 chosen = __shfl_sync(~0u, state[h].code, 4 * r), at = first + r + 8 * h;
            if (at >= rows) continue;
            for (u32 d = 2 * lane; d < DIM; d += 64) {
                float2 mean = *(const float2*)(mu + chosen * DIM + d);
                put_pair(z + (u64)at * DIM + d, mean.x, mean.y);
            }
        }
#endif
    }
}

#else

// The sums of a row over the codes a thread has seen, then over all.
struct Sums {
    Running seen;
    // Σ 2^((t - best) / tau), and the same of dy; with ReinMax Σ 2^((a_q - max_q) / tau).
    float sum_y, flow;
#if REINMAX
    // Σ 2^(a_q - max_q) dy, and dy of the best code.
    float mean, drawn;
#endif
};

// What y is relative to.
__device__ __forceinline__ float top_of(const Running& seen) { return REINMAX ? seen.max_q : seen.best; }

__device__ __forceinline__ void merge_sums(Sums& s, int bit, float inverse_tau) {
    float before = top_of(s.seen), sum = __shfl_xor_sync(~0u, s.sum_y, bit), flow = __shfl_xor_sync(~0u, s.flow, bit);
    float other = __shfl_xor_sync(~0u, before, bit);
#if REINMAX
    float mean = __shfl_xor_sync(~0u, s.mean, bit), drawn = __shfl_xor_sync(~0u, s.drawn, bit);
    u32 code = s.seen.code;
#endif
    merge_lanes(s.seen, bit);
    float top = top_of(s.seen);
#if REINMAX
    s.mean = s.mean * power_of_two(before - top) + mean * power_of_two(other - top);
    if (s.seen.code != code) s.drawn = drawn;
#endif
    float of_mine = power_of_two((before - top) * inverse_tau), of_other = power_of_two((other - top) * inverse_tau);
    s.sum_y = s.sum_y * of_mine + sum * of_other;
    s.flow = s.flow * of_mine + flow * of_other;
}

// dz·mu for one unit.
__device__ __forceinline__ void unit_flow(float (&dy)[2][4], const Fragments<1>& of_z, const u16* lines) {
#pragma unroll
    for (int i = 0; i < 4; i++) dy[0][i] = dy[1][i] = 0.0f;
#pragma unroll
    for (int s = 0; s < DIM / 16; s++) {
        u32 b[1][4];
        load_lines(b, lines, 2 * DIM + 16 * s);
        multiply(dy[0], of_z.e[s][0], b[0][0], b[0][1]);
        multiply(dy[1], of_z.e[s][0], b[0][2], b[0][3]);
    }
}

// For the rows from `begin` on, a chunk: gradients of the scores of q, of p, and the weights with which dz reaches the
// means, [1 + PRIOR + 1][chunk][CODES], the codes of a unit beside each other, and where the code of each row is among
// them. What rows past the last one leave is 0.
extern "C" __global__ void __launch_bounds__(32 * WARPS) responsibility_wide_slopes(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const E_P* e_p, const DZ* dz, const float* dkl,
    const u16* lines, const float* constants, u16* slopes, u32* own, u32 rows, u32 stream, u32 begin, u32 chunk) {
    extern __shared__ float4 shared_memory[];
    Stream& s = *(Stream*)shared_memory;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    u32 local = (blockIdx.x * WARPS + warp) * 16, first = begin + local;
    ask_for_unit(s, lines, 0);
    Fragments<Q_PIECES> of_q;
    Fragments<P_PIECES> of_p;
    Fragments<1> of_z;
    read_rows<false>(of_q, e_q, first, rows);
#if PRIOR
    read_rows<false>(of_p, e_p, first, rows);
#endif
    read_rows<true>(of_z, dz, first, rows);
    Noise noise = noise_of(counter, stream, rows);
    float scale = noise_scale[0], inverse_tau = 1.0f / tau[0];
    Sums sums[2] = {{nothing()}, {nothing()}};
#pragma unroll 1
    for (u32 unit = 0; unit < UNITS; unit++) {
        const u16* here = take_unit(s, lines, unit);
        float q[2][4], p[2][4], dy[2][4];
        unit_scores(q, p, of_q, of_p, here, constants, unit);
        unit_flow(dy, of_z, here);
        u32 code = code_of(unit, 0, 2 * t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float one_q[4], one_p[4], y[4];
            codes_of_row(one_q, one_p, y, q, p, noise, scale, first, unit, h);
            float before = top_of(sums[h].seen);
            see(sums[h].seen, one_q, one_p, y, code);
            float top = top_of(sums[h].seen), keep = power_of_two((before - top) * inverse_tau);
            sums[h].sum_y *= keep;
            sums[h].flow *= keep;
#if REINMAX
            sums[h].mean *= power_of_two(before - top);
#endif
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float flow = dy[j / 2][2 * h + j % 2];
#if REINMAX
                float weight = power_of_two((one_q[j] - top) * inverse_tau);
                sums[h].mean = fmaf(power_of_two(one_q[j] - top), flow, sums[h].mean);
                if (sums[h].seen.code == code + 16 * j) sums[h].drawn = flow;
#else
                float weight = power_of_two((y[j] - top) * inverse_tau);
#endif
                sums[h].sum_y += weight;
                sums[h].flow = fmaf(weight, flow, sums[h].flow);
            }
        }
    }
    // All units again: the first may arrive once everybody is done with its place.
    __syncthreads();
    ask_for_unit(s, lines, 0);
    Row row[2];
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        merge_sums(sums[h], 1, inverse_tau);
        merge_sums(sums[h], 2, inverse_tau);
        const Running& seen = sums[h].seen;
        row[h].max_q = seen.max_q;
        row[h].inverse_q = 1.0f / seen.sum_q;
        row[h].cross = seen.cross / seen.sum_q;
        row[h].max_p = seen.max_p;
        row[h].inverse_p = PRIOR ? 1.0f / seen.sum_p : 0.0f;
        row[h].inverse_y = 1.0f / sums[h].sum_y;
        row[h].flow = sums[h].flow / sums[h].sum_y;
#if REINMAX
        row[h].mean = sums[h].mean / seen.sum_q;
        row[h].flow = 0.5f * (row[h].flow + sums[h].drawn);
#else
        row[h].best = seen.best;
#endif
        u32 at = lane / 4 + 8 * h;
        weight[h] = first + at < rows ? dkl[first + at] * LN_2 : 0.0f;
        if (t == 0) own[local + at] = slot_of(seen.code);
    }
#pragma unroll 1
    for (u32 unit = 0; unit < UNITS; unit++) {
        const u16* here = take_unit(s, lines, unit);
        float q[2][4], p[2][4], dy[2][4];
        unit_scores(q, p, of_q, of_p, here, constants, unit);
        unit_flow(dy, of_z, here);
        u32 code = code_of(unit, 0, 2 * t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float one_q[4], one_p[4], y[4], to_q[4], to_p[4];
            // With ReinMax the code is all that noise was for.
            codes_of_row(one_q, one_p, y, q, p, noise, REINMAX ? 0.0f : scale, first, unit, h);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float of_dy = dy[j / 2][2 * h + j % 2];
#if REINMAX
                float own = power_of_two(one_q[j] - row[h].max_q) * row[h].inverse_q, prob = own * weight[h];
                float soft = power_of_two((one_q[j] - row[h].max_q) * inverse_tau) * row[h].inverse_y;
                float drawn = code + 16 * j == sums[h].seen.code ? 1.0f : 0.0f;
                float through_q = fmaf(-0.5f * own, of_dy - row[h].mean, prob * (one_q[j] - one_p[j] - row[h].cross));
                to_q[j] = LN_2 * fmaf(drawn + soft, of_dy - row[h].flow, through_q);
                if (PRIOR) to_p[j] = power_of_two(one_p[j] - row[h].max_p) * row[h].inverse_p * weight[h] - prob;
                y[j] = drawn;
#else
                float prob = power_of_two(one_q[j] - row[h].max_q) * row[h].inverse_q * weight[h];
                float relaxed = power_of_two((y[j] - row[h].best) * inverse_tau) * row[h].inverse_y;
                to_q[j] = LN_2 * fmaf(relaxed * (of_dy - row[h].flow), inverse_tau, prob * (one_q[j] - one_p[j] - row[h].cross));
                if (PRIOR) to_p[j] = power_of_two(one_p[j] - row[h].max_p) * row[h].inverse_p * weight[h] - prob;
                y[j] = RELAXED ? relaxed : (code + 16 * j == sums[h].seen.code ? 1.0f : 0.0f);
#endif
            }
            u16* to = slopes + (u64)(local + lane / 4 + 8 * h) * CODES + 16 * unit + 2 * t;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                *(u32*)(to + 8 * i) = bf16_pair(to_q[2 * i], to_q[2 * i + 1]);
#if PRIOR
                *(u32*)(to + (u64)chunk * CODES + 8 * i) = bf16_pair(to_p[2 * i], to_p[2 * i + 1]);
#endif
                *(u32*)(to + (u64)(1 + PRIOR) * chunk * CODES + 8 * i) = bf16_pair(y[2 * i], y[2 * i + 1]);
            }
        }
    }
}

// A block makes SLICE columns of the embeddings' gradients, for 128 rows.
#define SLICE_STRIDE (2 * SLICE + 8)

// de = G·(mu iv) - e (G·iv), for some columns and one map; `columns` are those of all codes, [PIECES][CODES].
//
// G sums to 0 over the codes, and what was rounded does not: left alone, a row would be pulled along or against its own
// embedding. What is too much is taken from the row's own code.
template <typename E, typename T>
__device__ __forceinline__ void embed_back(const u16* g, const u32* own, const u16* columns, const E* e, T* to, u32 first, u32 local,
                                           u32 rows) {
    u32 lane = threadIdx.x % 32, t = lane % 4, slice = blockIdx.y * SLICE;
    float linear[SLICE / 8][4], square[SLICE / 8][4], excess[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < SLICE / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) linear[j][i] = square[j][i] = 0.0f;
    const u16* from = g + (u64)(local + lane / 4) * CODES + 2 * t;
#pragma unroll 4
    for (u32 unit = 0; unit < UNITS; unit++) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = *(const u32*)(from + i % 2 * 8 * CODES + 16 * unit + i / 2 * 8);
#pragma unroll
        for (int j = 0; j < SLICE / 8; j++)
#pragma unroll
            for (int n = PIECES - 1; n >= 0; n--) {
                u32 b[4];
                load_transposed(b, columns + (n * CODES + 16 * unit + lane % 16) * SLICE_STRIDE + 8 * j + lane / 16 * SLICE);
                multiply(linear[j], a, b[0], b[1]);
                multiply(square[j], a, b[2], b[3]);
            }
        multiply(excess, a, ONES, ONES);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 row = first + lane / 4 + 8 * h;
        if (row >= rows) continue;
        const u16* of_own = columns + own[local + lane / 4 + 8 * h] * SLICE_STRIDE + 2 * t;
        float too_much = excess[2 * h];
#pragma unroll
        for (int j = 0; j < SLICE / 8; j++) {
            u64 at = (u64)row * DIM + slice + 8 * j + 2 * t;
            float2 x = widen_pair(raw_pair(e + at));
            float2 by_mean = make_float2(linear[j][2 * h], linear[j][2 * h + 1]);
            float2 by_iv = make_float2(square[j][2 * h], square[j][2 * h + 1]);
#pragma unroll
            for (int n = 0; n < PIECES; n++) {
                const u16* piece = of_own + n * CODES * SLICE_STRIDE + 8 * j;
                u32 scaled = *(const u32*)piece, iv = *(const u32*)(piece + SLICE);
                by_mean = make_float2(fmaf(-too_much, low_half(scaled), by_mean.x), fmaf(-too_much, high_half(scaled), by_mean.y));
                by_iv = make_float2(fmaf(-too_much, low_half(iv), by_iv.x), fmaf(-too_much, high_half(iv), by_iv.y));
            }
            put_pair(to + at, fmaf(-x.x, by_iv.x, by_mean.x), fmaf(-x.y, by_iv.y, by_mean.y));
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) responsibility_wide_embeddings(const u16* lines, const u16* slopes, const u32* own, const E_Q* e_q,
                                                                                 const E_P* e_p, DE_Q* de_q, DE_P* de_p, u32 rows,
                                                                                 u32 begin, u32 chunk) {
    extern __shared__ float4 shared_memory[];
    u16* columns = (u16*)shared_memory;
    // Eight numbers at a time, of mu iv and then of iv.
    const u32 GROUPS_OF_CODE = SLICE / 4;
    for (u32 i = threadIdx.x; i < PIECES * CODES * GROUPS_OF_CODE; i += 256) {
        u32 code = i / GROUPS_OF_CODE, slot = code % CODES, part = i % GROUPS_OF_CODE;
        u32 half = part / (SLICE / 8), at = part % (SLICE / 8) * 8;
        const u16* line = lines + ((u64)(slot / 16) * PIECES * 16 + code / CODES * 16 + slot % 16) * LINE_STRIDE;
        *(uint4*)(columns + code * SLICE_STRIDE + half * SLICE + at) = *(const uint4*)(line + half * DIM + blockIdx.y * SLICE + at);
    }
    __syncthreads();
    u32 local = (blockIdx.x * 8 + threadIdx.x / 32) * 16, first = begin + local;
    if (first >= rows) return;
    if (de_q) embed_back(slopes, own, columns, e_q, de_q, first, local, rows);
#if PRIOR
    if (de_p) embed_back(slopes + (u64)chunk * CODES, own, columns, e_p, de_p, first, local, rows);
#endif
}

// Floats a range of rows leaves: Σ G e, Σ G (-½e²), what reaches mu through z, Σ G.
#define LEFT (3 * CODES * DIM + CODES)
// Codes of a block, in four units; its other half of warps takes the other half of the columns.
#define BLOCK_CODES 64
#define G_STRIDE (BLOCK_CODES + 8)
#define E_STRIDE (DIM + 8)
#define MAPS (1 + PRIOR)
// Tiles of eight columns a warp sums.
#define TILES (DIM / 16)
// Pairs of a tile of 16 rows and groups of eight slopes a thread moves.
#define PAIRS (16 * DIM / 2 / 256)
#define GROUPS ((MAPS + 1) * 16 * BLOCK_CODES / 8)

// Tiles of a map: the embeddings in pieces, then -½e² in two.
struct alignas(16) Rows {
    u16 q[Q_PIECES + 2][16][E_STRIDE];
#if PRIOR
    u16 p[P_PIECES + 2][16][E_STRIDE];
#endif
    u16 dz[16][E_STRIDE];
    u16 g[MAPS + 1][16][G_STRIDE];
};

// 16 rows on their way, as they are stored.
struct Arriving {
    decltype(raw_pair((const E_Q*)0)) q[PAIRS];
#if PRIOR
    decltype(raw_pair((const E_P*)0)) p[PAIRS];
#endif
    decltype(raw_pair((const DZ*)0)) dz[PAIRS];
    uint4 g[(GROUPS + 255) / 256];
};

__device__ __forceinline__ void ask_for_rows(Arriving& a, const E_Q* e_q, const E_P* e_p, const DZ* dz, const u16* slopes, u32 rows,
                                             u32 begin, u32 local, u32 chunk) {
#pragma unroll
    for (int n = 0; n < PAIRS; n++) {
        u32 i = n * 256 + threadIdx.x, row = min(begin + local + i / (DIM / 2), rows - 1);
        u64 at = (u64)row * DIM + i % (DIM / 2) * 2;
        a.q[n] = raw_pair(e_q + at);
#if PRIOR
        a.p[n] = raw_pair(e_p + at);
#endif
        a.dz[n] = raw_pair(dz + at);
    }
#pragma unroll
    for (int n = 0; n < (GROUPS + 255) / 256; n++) {
        u32 i = n * 256 + threadIdx.x, part = i % (BLOCK_CODES / 8), row = i / (BLOCK_CODES / 8) % 16, map = i / (2 * BLOCK_CODES);
        if (i < GROUPS) a.g[n] = *(const uint4*)(slopes + ((u64)map * chunk + local + row) * CODES + blockIdx.x * BLOCK_CODES + 8 * part);
    }
}

template <int ALL>
__device__ __forceinline__ void place_pair(u16 (&to)[ALL][16][E_STRIDE], u32 row, u32 column, float2 x) {
    u32 piece[ALL - 2], square[2];
    split<ALL - 2>(x.x, x.y, piece);
    split<2>(-0.5f * x.x * x.x, -0.5f * x.y * x.y, square);
#pragma unroll
    for (int n = 0; n < ALL; n++) *(u32*)&to[n][row][column] = n < ALL - 2 ? piece[n % (ALL - 2)] : square[n % 2];
}

// Rows past the last one bring slopes of 0; their weights are not, so their dz must be.
__device__ __forceinline__ void place_rows(Rows& s, const Arriving& a, u32 left) {
#pragma unroll
    for (int n = 0; n < PAIRS; n++) {
        u32 i = n * 256 + threadIdx.x, row = i / (DIM / 2), column = i % (DIM / 2) * 2;
        place_pair(s.q, row, column, widen_pair(a.q[n]));
#if PRIOR
        place_pair(s.p, row, column, widen_pair(a.p[n]));
#endif
        float2 of_row = row < left ? widen_pair(a.dz[n]) : make_float2(0.0f, 0.0f);
        *(u32*)&s.dz[row][column] = bf16_pair(of_row.x, of_row.y);
    }
#pragma unroll
    for (int n = 0; n < (GROUPS + 255) / 256; n++) {
        u32 i = n * 256 + threadIdx.x, part = i % (BLOCK_CODES / 8), row = i / (BLOCK_CODES / 8) % 16, map = i / (2 * BLOCK_CODES);
        if (i < GROUPS) *(uint4*)&s.g[map][row][8 * part] = a.g[n];
    }
}

// sum += G·tile for half of the columns.
__device__ __forceinline__ void add_tile(float (&sum)[TILES][4], const u32 (&g)[4], const u16 (&tile)[16][E_STRIDE], u32 half) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < TILES / 2; j++) {
        u32 b[4];
        load_transposed(b, &tile[lane % 16][half + 16 * j + lane / 16 * 8]);
        multiply(sum[2 * j], g, b[0], b[1]);
        multiply(sum[2 * j + 1], g, b[2], b[3]);
    }
}

// What one map's slopes bring: small pieces first. Ones for the sum of G itself, as it was rounded: moments about mu would
// not forgive the difference.
template <int ALL>
__device__ __forceinline__ void add_map(float (&sum)[3][TILES][4], float (&total)[4], const u16* slopes, const u16 (&tile)[ALL][16][E_STRIDE],
                                        u32 half) {
    u32 g[4];
    load_transposed(g, slopes);
    multiply(total, g, ONES, ONES);
#pragma unroll
    for (int n = ALL - 1; n >= 0; n--) add_tile(sum[n >= ALL - 2], g, tile[n], half);
}

// Adds the rows of a chunk to what a range of rows leaves, for 64 codes. `fresh` starts from nothing.
extern "C" __global__ void __launch_bounds__(256) responsibility_wide_moments(const E_Q* e_q, const E_P* e_p, const DZ* dz,
                                                                              const u16* slopes, float* left, u32 rows, u32 begin,
                                                                              u32 chunk, u32 range, u32 fresh) {
    __shared__ Rows s;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32 unit = warp % 4, half = warp / 4 * (DIM / 2);
    float* mine = left + (u64)blockIdx.y * LEFT;
    u32 code[2] = {code_of(blockIdx.x * 4 + unit, 0, g), code_of(blockIdx.x * 4 + unit, 1, g)};
    float sum[3][TILES][4], total[4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        total[2 * h] = fresh ? 0.0f : mine[3 * CODES * DIM + code[h]];
        total[2 * h + 1] = 0.0f;
#pragma unroll
        for (int k = 0; k < 3; k++)
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                float2 had = make_float2(0.0f, 0.0f);
                if (!fresh) had = *(const float2*)(mine + (k * CODES + code[h]) * DIM + half + 8 * j + 2 * t);
                sum[k][j][2 * h] = had.x;
                sum[k][j][2 * h + 1] = had.y;
            }
    }
    u32 end = min(min((blockIdx.y + 1) * range, chunk), rows - begin);
    Arriving arriving;
    if (blockIdx.y * range < end) ask_for_rows(arriving, e_q, e_p, dz, slopes, rows, begin, blockIdx.y * range, chunk);
#pragma unroll 1
    for (u32 local = blockIdx.y * range; local < end; local += 16) {
        place_rows(s, arriving, end - local);
        __syncthreads();
        if (local + 16 < end) ask_for_rows(arriving, e_q, e_p, dz, slopes, rows, begin, local + 16, chunk);
        u32 row = lane % 8 + lane / 16 * 8, column = 16 * unit + lane / 8 % 2 * 8;
        add_map(sum, total, &s.g[0][row][column], s.q, half);
#if PRIOR
        add_map(sum, total, &s.g[1][row][column], s.p, half);
#endif
        u32 weights[4];
        load_transposed(weights, &s.g[MAPS][row][column]);
        add_tile(sum[2], weights, s.dz, half);
        __syncthreads();
    }
    if (blockIdx.y * range >= end && !fresh) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int k = 0; k < 3; k++)
#pragma unroll
            for (int j = 0; j < TILES; j++)
                *(float2*)(mine + (k * CODES + code[h]) * DIM + half + 8 * j + 2 * t) = make_float2(sum[k][j][2 * h], sum[k][j][2 * h + 1]);
        // Every column has the same sum.
        if (half == 0 && t == 0) mine[3 * CODES * DIM + code[h]] = total[2 * h];
    }
}

// Adds what the ranges left, in order, and turns it into the codebook's gradients.
extern "C" __global__ void __launch_bounds__(128) responsibility_wide_codebook(const float* left, const float* mu, const float* logvar,
                                                                               float* dmu, float* dlogvar, u32 ranges) {
    u32 at = blockIdx.x * 128 + threadIdx.x;
    if (at >= CODES * DIM) return;
    float linear = 0.0f, square = 0.0f, through = 0.0f, sum = 0.0f;
#pragma unroll 4
    for (u32 r = 0; r < ranges; r++) {
        const float* from = left + (u64)r * LEFT;
        linear += from[at];
        square += from[CODES * DIM + at];
        through += from[2 * CODES * DIM + at];
        sum += from[3 * CODES * DIM + at / DIM];
    }
    float mean = mu[at], iv = LOG2_E * power_of_two(-LOG2_E * logvar[at]);
    float centred = fmaf(-mean, sum, linear);
    if (dmu) dmu[at] = fmaf(iv, centred, through);
    // Σ G (e - mu)² = -2 Σ G (-½e²) - mu Σ G e - mu (Σ G e - mu Σ G)
    if (dlogvar) dlogvar[at] = 0.5f * fmaf(iv, fmaf(-mean, centred, fmaf(-mean, linear, -2.0f * square)), -LOG2_E * sum);
}

#endif
