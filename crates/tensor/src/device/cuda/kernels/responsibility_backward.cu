// Exact backward on tensor cores. A block has one warp for each unit of 16 codes and goes from tile to tile of 16 rows:
// scores again, sums of the rows through shared memory, gradients of the scores in registers. Those meet the
// codebook on the way to the embeddings (summed over warps in shared memory) and the embeddings on the way to the
// codebook (summed in registers from tile to tile, written once at the end).

// Floats of one warp's share of the gradient of 16 embeddings, and of what rows tell of themselves.
#define SHARE (16 * DIM)
#define FIELD_STRIDE (16 * (WARPS + 1))
#define ROW_FLOATS 12
// Floats a block leaves: Σ G e, Σ G (-½e²), what reaches mu through z, Σ G.
#define LEFT (3 * CODES * DIM + CODES)

// Column of a share, moved so that eight rows meet no bank twice.
__device__ __forceinline__ u32 share_at(u32 row, u32 column) { return row * DIM + (column ^ (row * 8 % DIM)); }

// One unit's part of de = G·(mu iv) - e (G·iv).
template <int N, int BOTH>
__device__ __forceinline__ void leave_share(float* share, const u32 (&g)[PIECES][4], const u16* table, u32 unit,
                                            const u16 (&tile)[BOTH][16][STRIDE]) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < DIM / 8; j++) {
        u32 b[PIECES][4];
        float linear[4] = {0.0f, 0.0f, 0.0f, 0.0f}, square[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        load_unit_back(b, table, STRIDE, unit, 8 * j, DIM + 8 * j);
        multiply_pieces(linear, g, b, 0);
        multiply_pieces(square, g, b, 2);
        u32 column = 8 * j + 2 * (lane % 4);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 row = lane / 4 + 8 * h;
            float2 e = make_float2(0.0f, 0.0f);
#pragma unroll
            for (int n = N - 1; n >= 0; n--) {
                u32 pair = *(const u32*)&tile[n][row][column];
                e.x += low_half(pair);
                e.y += high_half(pair);
            }
            float2 de = make_float2(linear[2 * h] - e.x * square[2 * h], linear[2 * h + 1] - e.y * square[2 * h + 1]);
            *(float2*)(share + share_at(row, column)) = de;
        }
    }
}

template <typename T>
__device__ __forceinline__ void sum_shares(const float* shares, T* to, u32 first, u32 rows) {
    for (u32 i = threadIdx.x; i < 16 * DIM; i += THREADS) {
        u32 row = i / DIM, column = i % DIM;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += shares[w * SHARE + share_at(row, column)];
        if (to && first + row < rows) put(to + (u64)(first + row) * DIM + column, sum);
    }
}

// Puts together what the warps know of a row; lane l brings warp l's part.
__device__ __forceinline__ void finish_row(const float* fields, float* out, u32 row, float inverse_tau) {
    u32 lane = threadIdx.x % 32;
    const float* mine = fields + row * (WARPS + 1) + lane % WARPS;
    float max_q = mine[0], best = mine[2 * FIELD_STRIDE];
    float top_q = warps_max(max_q), top = warps_max(best);
    float of_q = exponential(max_q - top_q);
#if REINMAX
    float of_y = exponential((max_q - top_q) * inverse_tau);
#else
    float of_y = exponential((best - top) * inverse_tau);
#endif
    float inverse_q = 1.0f / warps_sum(mine[3 * FIELD_STRIDE] * of_q);
    float cross = warps_sum(mine[6 * FIELD_STRIDE] * of_q);
    float inverse_y = 1.0f / warps_sum(mine[5 * FIELD_STRIDE] * of_y);
    float flow = warps_sum(mine[7 * FIELD_STRIDE] * of_y);
    float top_p = 0.0f, inverse_p = 0.0f;
#if PRIOR
    float max_p = mine[FIELD_STRIDE];
    top_p = warps_max(max_p);
    inverse_p = 1.0f / warps_sum(mine[4 * FIELD_STRIDE] * exponential(max_p - top_p));
#endif
    u32 code = best == top ? __float_as_uint(mine[8 * FIELD_STRIDE]) : ~0u;
#pragma unroll
    for (int bit = WARPS / 2; bit > 0; bit /= 2) code = min(code, __shfl_xor_sync(~0u, code, bit));
    flow *= inverse_y;
#if REINMAX
    float mean = warps_sum(mine[9 * FIELD_STRIDE] * of_q) * inverse_q;
    flow = 0.5f * (flow + fields[10 * FIELD_STRIDE + row * (WARPS + 1) + slot_of(code) / 16]);
#endif
    if (lane == 0) {
        float4* to = (float4*)(out + row * ROW_FLOATS);
        to[0] = make_float4(top_q, inverse_q, top_p, inverse_p);
        to[1] = make_float4(top, inverse_y, flow, cross * inverse_q);
        to[2].x = __uint_as_float(code);
#if REINMAX
        to[2].y = mean;
#endif
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) responsibility_backward(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const float* mu, const float* logvar, const E_P* e_p,
    const DZ* dz, const float* dkl, DE_Q* de_q, DE_P* de_p, float* left, u32 rows, u32 stream) {
    extern __shared__ float4 shared_memory[];
    u16* table = (u16*)shared_memory;
    // The shares lie where the fields lay: never both in use.
    float* shares = (float*)(table + TABLE);
    float* fields = shares;
    float* constants = shares + (WARPS * SHARE > FIELDS * FIELD_STRIDE ? WARPS * SHARE : FIELDS * FIELD_STRIDE);
    float* row_sums = constants + CODES;
    Tile* tile = (Tile*)(row_sums + 16 * ROW_FLOATS);
    Noise* kept_noise = (Noise*)(tile + 1);
    u32 unit = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32 first = blockIdx.x * 16;
    Ahead ahead;
    read_tile(ahead, e_q, e_p, dz, dkl, first, rows);
    fill_tables<WARPS, 0>(mu, logvar, table, constants, 0);
    write_tile(tile, ahead, first, rows);
    // Kept in memory: the keys of all rounds would otherwise stay in registers the sums below need.
    if (threadIdx.x == 0) *kept_noise = noise_of(counter, stream, rows);
    __syncthreads();
    float scale = noise_scale[0], inverse_tau = 1.0f / tau[0];
    float moments[WIDE / 8][4], through_z[DIM / 8][4], total[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        total[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++) moments[j][i] = 0.0f;
#pragma unroll
        for (int j = 0; j < DIM / 8; j++) through_z[j][i] = 0.0f;
    }
#pragma unroll 1
    for (; first < rows; first += gridDim.x * 16) {
        // The noise waits for nobody: it is made while other warps still write the tile.
        Noise noise = *kept_noise;
        float y[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float noises[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (scale != 0.0f) unit_noise(noise, first + g + 8 * h, unit, noises);
#pragma unroll
            for (int j = 0; j < 4; j++) y[j / 2][2 * h + j % 2] = noises[j];
        }
        __syncthreads();
        u32 next = first + gridDim.x * 16;
        if (next < rows) read_tile(ahead, e_q, e_p, dz, dkl, next, rows);
        float q[2][4], p[2][4], dy[2][4];
        start_scores(q, constants, unit);
#if PRIOR
        start_scores(p, constants, unit);
#endif
#pragma unroll
        for (int s = 0; s < DIM / 16; s++) {
            u32 b[PIECES][4];
            load_unit(b, table, STRIDE, unit, 16 * s);
            add_scores<Q_PIECES>(q, tile->q, b, 16 * s);
#if PRIOR
            add_scores<P_PIECES>(p, tile->p, b, 16 * s);
#endif
            load_unit(b, table, STRIDE, unit, DIM + 16 * s);
            add_scores<Q_SQUARES>(q, tile->q, b, DIM + 16 * s);
#if PRIOR
            add_scores<P_SQUARES>(p, tile->p, b, DIM + 16 * s);
#endif
        }
#pragma unroll
        for (int i = 0; i < 4; i++) dy[0][i] = dy[1][i] = 0.0f;
#pragma unroll
        for (int s = 0; s < DIM / 16; s++) {
            u32 a[DZ_PIECES][4], b[PIECES][4];
            load_rows(a, tile->dz, 16 * s);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* mean = mu + code_of(unit, i / 2, g) * DIM + 16 * s + i % 2 * 8 + 2 * t;
                u32 piece[PIECES];
                split<PIECES>(mean[0], mean[1], piece);
#pragma unroll
                for (int n = 0; n < PIECES; n++) b[n][i] = piece[n];
            }
            multiply_pieces(dy[0], a, b, 0);
            multiply_pieces(dy[1], a, b, 2);
        }

        // From here on y is the weight of a code relative to the best this warp saw in the row. Weights of q and p
        // are made again below: eight registers are worth more than two exponentials.
        u32 code = code_of(unit, 0, 2 * t);
        float best[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 at = code;
            float max_q = LOWEST, max_p = LOWEST;
#if REINMAX
            float drawn = 0.0f, mean = 0.0f;
#endif
            best[h] = LOWEST;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = j / 2, c = 2 * h + j % 2;
                y[i][c] = fmaf(scale, y[i][c], q[i][c]);
                max_q = fmaxf(max_q, q[i][c]);
#if PRIOR
                max_p = fmaxf(max_p, p[i][c]);
#else
                p[i][c] = 0.0f;
#endif
                if (y[i][c] > best[h]) {
                    best[h] = y[i][c];
                    at = code + 16 * j;
#if REINMAX
                    drawn = dy[i][c];
#endif
                }
            }
#if REINMAX
            u32 mine = at;
#endif
#pragma unroll
            for (int bit = 1; bit < 4; bit *= 2) {
                float other = __shfl_xor_sync(~0u, best[h], bit);
                u32 other_at = __shfl_xor_sync(~0u, at, bit);
                if (better(other, other_at, best[h], at)) {
                    best[h] = other;
                    at = other_at;
                }
            }
            max_q = quad_max(max_q);
            if (PRIOR) max_p = quad_max(max_p);
            float sum_q = 0.0f, sum_p = 0.0f, sum_y = 0.0f, flow = 0.0f, cross = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = j / 2, c = 2 * h + j % 2;
                float weight = exponential(q[i][c] - max_q);
#if REINMAX
                float soft = exponential((q[i][c] - max_q) * inverse_tau);
                mean = fmaf(weight, dy[i][c], mean);
#else
                float soft = y[i][c] = exponential((y[i][c] - best[h]) * inverse_tau);
#endif
                sum_q += weight;
                sum_y += soft;
                cross = fmaf(weight, q[i][c] - p[i][c], cross);
                flow = fmaf(soft, dy[i][c], flow);
                if (PRIOR) sum_p += exponential(p[i][c] - max_p);
            }
            sum_q = quad_sum(sum_q);
            sum_y = quad_sum(sum_y);
            cross = quad_sum(cross);
            flow = quad_sum(flow);
            if (PRIOR) sum_p = quad_sum(sum_p);
#if REINMAX
            mean = quad_sum(mean);
            if (at == mine) fields[10 * FIELD_STRIDE + (g + 8 * h) * (WARPS + 1) + unit] = drawn;
#endif
            if (t == 0) {
                float* to = fields + (g + 8 * h) * (WARPS + 1) + unit;
                to[0] = max_q;
                to[2 * FIELD_STRIDE] = best[h];
                to[3 * FIELD_STRIDE] = sum_q;
                to[5 * FIELD_STRIDE] = sum_y;
                to[6 * FIELD_STRIDE] = cross;
                to[7 * FIELD_STRIDE] = flow;
                to[8 * FIELD_STRIDE] = __uint_as_float(at);
#if REINMAX
                to[9 * FIELD_STRIDE] = mean;
#endif
#if PRIOR
                to[FIELD_STRIDE] = max_p;
                to[4 * FIELD_STRIDE] = sum_p;
#endif
            }
        }
        __syncthreads();
        for (u32 row = unit; row < 16; row += WARPS) finish_row(fields, row_sums, row, inverse_tau);
        __syncthreads();

        // q and p become the gradients of their scores, y the weight with which dz reaches the means.
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 row = g + 8 * h;
            const float4* of_row = (const float4*)(row_sums + row * ROW_FLOATS);
            float4 softmax = of_row[0], sample = of_row[1];
            u32 chosen = __float_as_uint(of_row[2].x);
            float weight = tile->dkl[row];
            float of_q = softmax.y * weight, of_p = softmax.w * weight;
#if REINMAX
            float mean = of_row[2].y;
#else
            float of_y = exponential((best[h] - sample.x) * inverse_tau) * sample.y;
#endif
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = j / 2, c = 2 * h + j % 2;
                float ratio = q[i][c] - p[i][c];
#if REINMAX
                float own = exponential(q[i][c] - softmax.x), prob = own * of_q, drawn = code + 16 * j == chosen ? 1.0f : 0.0f;
                float soft = exponential((q[i][c] - softmax.x) * inverse_tau);
                float through_q = own * softmax.y * (dy[i][c] - mean);
                q[i][c] = fmaf(fmaf(soft, sample.y, drawn), dy[i][c] - sample.z, fmaf(-0.5f, through_q, prob * (ratio - sample.w)));
#else
                float prob = exponential(q[i][c] - softmax.x) * of_q, relaxed = y[i][c] * of_y;
                q[i][c] = fmaf(relaxed * (dy[i][c] - sample.z), inverse_tau, prob * (ratio - sample.w));
#endif
                total[j] += q[i][c];
                if (PRIOR) {
                    p[i][c] = fmaf(exponential(p[i][c] - softmax.z), of_p, -prob);
                    total[j] += p[i][c];
                }
#if REINMAX
                y[i][c] = drawn;
#else
                y[i][c] = RELAXED ? relaxed : (code + 16 * j == chosen ? 1.0f : 0.0f);
#endif
            }
        }
        u32 g_q[PIECES][4], turned[PIECES][4];
#if PRIOR
        u32 g_p[PIECES][4];
#endif
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 piece[PIECES];
                split<PIECES>(q[i][2 * h], q[i][2 * h + 1], piece);
#pragma unroll
                for (int n = 0; n < PIECES; n++) g_q[n][2 * i + h] = piece[n];
#if PRIOR
                split<PIECES>(p[i][2 * h], p[i][2 * h + 1], piece);
#pragma unroll
                for (int n = 0; n < PIECES; n++) g_p[n][2 * i + h] = piece[n];
#endif
            }
        }
        leave_share<Q_PIECES>(shares + unit * SHARE, g_q, table, unit, tile->q);
#pragma unroll
        for (int n = 0; n < PIECES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) turned[n][i] = transposed(g_q[n][i / 2 + i % 2 * 2]);
        add_moments<Q_PIECES, Q_SQUARES, PIECES>(moments, turned, tile->q);
#if PRIOR
#pragma unroll
        for (int n = 0; n < PIECES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) turned[n][i] = transposed(g_p[n][i / 2 + i % 2 * 2]);
        add_moments<P_PIECES, P_SQUARES, PIECES>(moments, turned, tile->p);
#endif
        u32 weights[RELAXED ? PIECES : 1][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 piece[RELAXED ? PIECES : 1];
            split<RELAXED ? PIECES : 1>(y[i % 2][2 * (i / 2)], y[i % 2][2 * (i / 2) + 1], piece);
#pragma unroll
            for (int n = 0; n < (RELAXED ? PIECES : 1); n++) weights[n][i] = transposed(piece[n]);
        }
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            u32 b[DZ_PIECES][4];
            load_rows_back(b, tile->dz, 16 * j);
            multiply_pieces(through_z[2 * j], weights, b, 0);
            multiply_pieces(through_z[2 * j + 1], weights, b, 2);
        }
        __syncthreads();
        sum_shares(shares, de_q, first, rows);
#if PRIOR
        __syncthreads();
        leave_share<P_PIECES>(shares + unit * SHARE, g_p, table, unit, tile->p);
        __syncthreads();
        sum_shares(shares, de_p, first, rows);
#endif
        if (next < rows) write_tile(tile, ahead, next, rows);
    }

    float* mine = left + (u64)blockIdx.x * LEFT;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 at = code_of(unit, h, g) * DIM + 2 * t;
#pragma unroll
        for (int j = 0; j < DIM / 8; j++) {
            *(float2*)(mine + at + 8 * j) = make_float2(moments[j][2 * h], moments[j][2 * h + 1]);
            *(float2*)(mine + CODES * DIM + at + 8 * j) = make_float2(moments[DIM / 8 + j][2 * h], moments[DIM / 8 + j][2 * h + 1]);
            *(float2*)(mine + 2 * CODES * DIM + at + 8 * j) = make_float2(through_z[j][2 * h], through_z[j][2 * h + 1]);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int bit = 4; bit < 32; bit *= 2) total[j] += __shfl_xor_sync(~0u, total[j], bit);
        if (g == 0) mine[3 * CODES * DIM + code_of(unit, 0, 2 * t) + 16 * j] = total[j];
    }
}

// Adds what the blocks left, in a fixed order, and turns it into the gradients of one code.
extern "C" __global__ void __launch_bounds__(256) responsibility_codebook(const float* left, const float* mu, const float* logvar,
                                                                          float* dmu, float* dlogvar, u32 blocks) {
    __shared__ float parts[8][4][32];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, code = blockIdx.x;
    u32 at = code * DIM + lane % DIM;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (u32 b = warp; b < blocks; b += 8) {
        const float* from = left + (u64)b * LEFT;
#pragma unroll
        for (int i = 0; i < 3; i++) sum[i] += from[i * CODES * DIM + at];
        sum[3] += from[3 * CODES * DIM + code];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) parts[warp][i][lane] = sum[i];
    __syncthreads();
    if (warp > 0 || lane >= DIM) return;
    for (int w = 1; w < 8; w++)
        for (int i = 0; i < 4; i++) sum[i] += parts[w][i][lane];
    float m = mu[at], iv = expf(-logvar[at]);
    float centred = fmaf(-m, sum[3], sum[0]);
    if (dmu) dmu[at] = fmaf(iv, centred, sum[2]);
    // Σ G (e - mu)² = -2 Σ G (-½e²) - mu Σ G e - mu (Σ G e - mu Σ G)
    float spread = fmaf(-m, centred, fmaf(-m, sum[0], -2.0f * sum[1]));
    if (dlogvar) dlogvar[at] = 0.5f * fmaf(iv, spread, -sum[3]);
}
