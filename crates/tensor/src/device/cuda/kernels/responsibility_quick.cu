// Backward for maps stored as bf16. As the exact one, a block has a warp for each unit of 16 codes and goes from tile
// to tile of 16 rows, but the gradients of the scores, G, are rounded to bf16 once.
//
// The gradients of the scores go to shared memory, where warps find those of all codes and make a few columns of the
// embeddings' gradients each; the codebook's are summed in registers from tile to tile. Scores are binary logarithms
// and G their gradient, so that G times the table is the embeddings' gradient, and the codebook's lacks a factor of
// log2 e, which it gets at the end.

#define FIELD_STRIDE (16 * (WARPS + 1))
#define ROW_FLOATS 12
// Floats a block leaves: its part of the gradients of mu and of logvar.
#define LEFT (2 * CODES * DIM)
#define G_STRIDE (CODES + 8)
// Eight columns of the gradient of an embedding are a job. Spare warps share the codes of one, or warps do several.
#define MAPS (1 + PRIOR)
#define JOBS (MAPS * DIM / 8)
#define SLICES (WARPS > JOBS ? WARPS / JOBS : 1)
#define ROUNDS (JOBS > WARPS ? JOBS / WARPS : 1)

struct Space {
    u16 table[PIECES][CODES][STRIDE];
    u16 g[MAPS][16][G_STRIDE];
#if !RELAXED
    // Σ dz of the rows that chose a code.
    float chosen[CODES][DIM];
#endif
    float4 shares[SLICES > 1 ? (SLICES - 1) * JOBS : 1][32];
    float4 row_sums[16][ROW_FLOATS / 4];
    float fields[FIELDS][16][WARPS + 1];
    float constants[CODES];
    Tile tile;
    Noise noise;
};

// What the warps know of a row becomes its sums; lane l brings warp l's part. Lanes under 16 are busy with q, the others
// with y.
__device__ __forceinline__ void finish_row(Space& s, u32 row, float inverse_tau) {
    u32 lane = threadIdx.x % 32, half = lane / 16;
    const float* all = &s.fields[0][row][lane % WARPS];
    const float* mine = all + half * 3 * FIELD_STRIDE;
    float max = mine[0], top = warps_max(max);
#if REINMAX
    float factor = power_of_two((all[0] - __shfl_sync(~0u, top, 0)) * (half ? inverse_tau : 1.0f));
#else
    float factor = power_of_two((max - top) * (half ? inverse_tau : 1.0f));
#endif
    float inverse = __fdividef(1.0f, warps_sum(mine[FIELD_STRIDE] * factor));
    float mean = warps_sum(mine[2 * FIELD_STRIDE] * factor) * inverse;
    u32 code = max == top ? __float_as_uint(all[8 * FIELD_STRIDE]) : ~0u;
#pragma unroll
    for (int bit = WARPS / 2; bit > 0; bit /= 2) code = min(code, __shfl_xor_sync(~0u, code, bit));
    float top_p = 0.0f, inverse_p = 0.0f;
#if PRIOR
    float max_p = all[6 * FIELD_STRIDE];
    top_p = warps_max(max_p);
    inverse_p = __fdividef(1.0f, warps_sum(all[7 * FIELD_STRIDE] * power_of_two(max_p - top_p)));
#endif
#if REINMAX
    float mean_q = warps_sum(all[9 * FIELD_STRIDE] * factor) * inverse;
    // Lanes that know y know the code, and with it the warp that has its dy.
    if (half) mean = 0.5f * (mean + s.fields[10][row][slot_of(code) / 16]);
    if (lane % 16 == 0) s.row_sums[row][half] = make_float4(top, inverse, mean, half ? __uint_as_float(code) : mean_q);
#else
    if (lane % 16 == 0) s.row_sums[row][half] = make_float4(top, inverse, mean, half ? __uint_as_float(code) : 0.0f);
#endif
    if (lane == 0) s.row_sums[row][2] = make_float4(top_p, inverse_p, 0.0f, 0.0f);
}

// A pair of neighbours of an embedding.
template <int N, int BOTH>
__device__ __forceinline__ float2 pair_of(const u16 (&from)[BOTH][16][STRIDE], u32 row, u32 column) {
    float2 e = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int n = N - 1; n >= 0; n--) {
        u32 pair = *(const u32*)&from[n][row][column];
        e.x += low_half(pair);
        e.y += high_half(pair);
    }
    return e;
}

// Adds the other slices' parts and writes the gradient of the embeddings.
__device__ __forceinline__ void send(const Space& s, const float (&de)[ROUNDS][4], DE_Q* de_q, DE_P* de_p, u32 first, u32 rows) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= JOBS) return;
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        u32 job = warp + round * WARPS, column = job % (DIM / 8) * 8 + lane % 4 * 2;
        float4 sum = make_float4(de[round][0], de[round][1], de[round][2], de[round][3]);
#pragma unroll
        for (int slice = 1; slice < SLICES; slice++) {
            float4 part = s.shares[(slice - 1) * JOBS + job][lane];
            sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 row = first + lane / 4 + 8 * h;
            if (row >= rows) continue;
            float x = h ? sum.z : sum.x, y = h ? sum.w : sum.y;
            if (job < DIM / 8) {
                if (de_q) put_pair(de_q + (u64)row * DIM + column, x, y);
            } else {
                if (de_p) put_pair(de_p + (u64)row * DIM + column, x, y);
            }
        }
    }
}

// Noise of a warp's codes in all rows of a tile.
__device__ __forceinline__ void tile_noise(const Space& s, float scale, u32 first, u32 unit, float (&y)[2][4]) {
    Noise noise = s.noise;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float noises[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (scale != 0.0f) unit_noise(noise, first + threadIdx.x % 32 / 4 + 8 * h, unit, noises);
#pragma unroll
        for (int j = 0; j < 4; j++) y[j / 2][2 * h + j % 2] = noises[j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) responsibility_quick(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const float* mu, const float* logvar, const E_P* e_p,
    const DZ* dz, const float* dkl, DE_Q* de_q, DE_P* de_p, float* left, u32 rows, u32 stream) {
    extern __shared__ float4 shared_memory[];
    Space& s = *(Space*)shared_memory;
    Tile& tile = s.tile;
    u32 unit = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32 first = blockIdx.x * 16;
    Ahead ahead;
    read_tile(ahead, e_q, e_p, dz, dkl, first, rows);
    // Kept in memory: the keys of all rounds would otherwise stay in registers the sums below need.
    if (threadIdx.x == 0) s.noise = noise_of(counter, stream, rows);
    fill_tables<WARPS, 0>(mu, logvar, &s.table[0][0][0], s.constants, 0);
    // A warp's own means stay in registers, as B for dz·mu.
    u32 means[DIM / 16][4];
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 mean = *(const float2*)(mu + code_of(unit, i / 2, g) * DIM + 16 * k + i % 2 * 8 + 2 * t);
            means[k][i] = bf16_pair(mean.x, mean.y);
        }
#if !RELAXED
    for (int i = lane; i < 16 * DIM; i += 32) (&s.chosen[16 * unit][0])[i] = 0.0f;
#endif
    write_tile(&tile, ahead, first, rows);
    float scale = noise_scale[0], inverse_tau = 1.0f / tau[0];
    float moments[WIDE / 8][4], total[4], y[2][4], de[ROUNDS][4];
#if RELAXED
    float through_z[DIM / 8][4];
#endif
#pragma unroll
    for (int i = 0; i < 4; i++) {
        total[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++) moments[j][i] = 0.0f;
#if RELAXED
#pragma unroll
        for (int j = 0; j < DIM / 8; j++) through_z[j][i] = 0.0f;
#endif
    }
    __syncthreads();
    tile_noise(s, scale, first, unit, y);
    u32 code = code_of(unit, 0, 2 * t);
#pragma unroll 1
    while (true) {
        u32 next = first + gridDim.x * 16;
        if (next < rows) read_tile(ahead, e_q, e_p, dz, dkl, next, rows);
        float q[2][4], dy[2][4];
        start_scores(q, s.constants, unit);
#if PRIOR
        float p[2][4];
        start_scores(p, s.constants, unit);
#endif
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            u32 b[PIECES][4];
            load_unit(b, &s.table[0][0][0], STRIDE, unit, 16 * k);
            add_scores<Q_PIECES>(q, tile.q, b, 16 * k);
#if PRIOR
            add_scores<P_PIECES>(p, tile.p, b, 16 * k);
#endif
            load_unit(b, &s.table[0][0][0], STRIDE, unit, DIM + 16 * k);
            add_scores<Q_SQUARES>(q, tile.q, b, DIM + 16 * k);
#if PRIOR
            add_scores<P_SQUARES>(p, tile.p, b, DIM + 16 * k);
#endif
        }
#pragma unroll
        for (int i = 0; i < 4; i++) dy[0][i] = dy[1][i] = 0.0f;
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            u32 a[1][4];
            load_rows(a, tile.dz, 16 * k);
            multiply(dy[0], a[0], means[k][0], means[k][1]);
            multiply(dy[1], a[0], means[k][2], means[k][3]);
        }

        // Weights relative to the largest this warp saw in the row; ratio is log2 q/p but for a constant.
        float max_q[2], max_p[2], best[2], ratio[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 at = code;
#if REINMAX
            float drawn = 0.0f, mean = 0.0f;
#endif
            max_q[h] = max_p[h] = best[h] = LOWEST;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = j / 2, c = 2 * h + j % 2;
                y[i][c] = fmaf(scale, y[i][c], q[i][c]);
                max_q[h] = fmaxf(max_q[h], q[i][c]);
#if PRIOR
                max_p[h] = fmaxf(max_p[h], p[i][c]);
                ratio[i][c] = q[i][c] - p[i][c];
#else
                ratio[i][c] = q[i][c];
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
            max_q[h] = quad_max(max_q[h]);
            if (PRIOR) max_p[h] = quad_max(max_p[h]);
            float sum_q = 0.0f, sum_p = 0.0f, sum_y = 0.0f, flow = 0.0f, cross = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = j / 2, c = 2 * h + j % 2;
#if REINMAX
                y[i][c] = power_of_two((q[i][c] - max_q[h]) * inverse_tau);
                q[i][c] = power_of_two(q[i][c] - max_q[h]);
                mean = fmaf(q[i][c], dy[i][c], mean);
#else
                q[i][c] = power_of_two(q[i][c] - max_q[h]);
                y[i][c] = power_of_two((y[i][c] - best[h]) * inverse_tau);
#endif
                sum_q += q[i][c];
                sum_y += y[i][c];
                cross = fmaf(q[i][c], ratio[i][c], cross);
                flow = fmaf(y[i][c], dy[i][c], flow);
#if PRIOR
                p[i][c] = power_of_two(p[i][c] - max_p[h]);
                sum_p += p[i][c];
#endif
            }
            sum_q = quad_sum(sum_q);
            sum_y = quad_sum(sum_y);
            cross = quad_sum(cross);
            flow = quad_sum(flow);
            if (PRIOR) sum_p = quad_sum(sum_p);
#if REINMAX
            mean = quad_sum(mean);
            if (at == mine) s.fields[10][g + 8 * h][unit] = drawn;
#endif
            if (t == 0) {
                float* to = &s.fields[0][g + 8 * h][unit];
                to[0] = max_q[h];
                to[FIELD_STRIDE] = sum_q;
                to[2 * FIELD_STRIDE] = cross;
                to[3 * FIELD_STRIDE] = best[h];
                to[4 * FIELD_STRIDE] = sum_y;
                to[5 * FIELD_STRIDE] = flow;
#if PRIOR
                to[6 * FIELD_STRIDE] = max_p[h];
                to[7 * FIELD_STRIDE] = sum_p;
#endif
                to[8 * FIELD_STRIDE] = __uint_as_float(at);
#if REINMAX
                to[9 * FIELD_STRIDE] = mean;
#endif
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16 / WARPS; i++) finish_row(s, unit + i * WARPS, inverse_tau);
        __syncthreads();

#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 row = g + 8 * h;
            float4 of_q = s.row_sums[row][0], of_y = s.row_sums[row][1];
            float weight = tile.dkl[row] * LN_2;
            float prob = power_of_two(max_q[h] - of_q.x) * of_q.y * weight;
#if PRIOR
            float4 of_p = s.row_sums[row][2];
            float prior = power_of_two(max_p[h] - of_p.x) * of_p.y * weight;
#endif
            float of_cross = prob * LN_2;
#if REINMAX
            float soft = power_of_two((max_q[h] - of_q.x) * inverse_tau) * of_y.y * LN_2;
            float half = power_of_two(max_q[h] - of_q.x) * of_q.y * (0.5f * LN_2);
            u32 chosen = __float_as_uint(of_y.w);
#else
            float relaxed = power_of_two((best[h] - of_y.x) * inverse_tau) * of_y.y;
            float of_flow = relaxed * inverse_tau * LN_2;
#endif
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float of_one[2];
#if PRIOR
                float of_other[2];
#endif
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const int c = 2 * h + k;
#if REINMAX
                    float through_q = q[i][c] * fmaf(of_cross, ratio[i][c] - of_q.z, -half * (dy[i][c] - of_q.w));
                    float of_sample = fmaf(y[i][c], soft, code + 16 * (2 * i + k) == chosen ? LN_2 : 0.0f);
                    of_one[k] = fmaf(of_sample, dy[i][c] - of_y.z, through_q);
#else
                    of_one[k] = fmaf(y[i][c] * of_flow, dy[i][c] - of_y.z, q[i][c] * of_cross * (ratio[i][c] - of_q.z));
#endif
#if PRIOR
                    of_other[k] = fmaf(p[i][c], prior, -q[i][c] * prob);
#endif
#if RELAXED
                    y[i][c] *= relaxed;
#endif
                }
                // The sum of G is that of what was rounded: moments about mu would not forgive the difference.
                u32 pair = bf16_pair(of_one[0], of_one[1]);
                *(u32*)&s.g[0][row][16 * unit + 8 * i + 2 * t] = pair;
                total[2 * i] += low_half(pair);
                total[2 * i + 1] += high_half(pair);
#if PRIOR
                pair = bf16_pair(of_other[0], of_other[1]);
                *(u32*)&s.g[1][row][16 * unit + 8 * i + 2 * t] = pair;
                total[2 * i] += low_half(pair);
                total[2 * i + 1] += high_half(pair);
#endif
            }
        }
        __syncwarp();
        u32 turned[1][4];
        u32 turned_row = lane % 8 + lane / 16 * 8, turned_column = 16 * unit + lane / 8 % 2 * 8;
        load_transposed(turned[0], &s.g[0][turned_row][turned_column]);
        add_moments<Q_PIECES, Q_SQUARES>(moments, turned, tile.q);
#if PRIOR
        load_transposed(turned[0], &s.g[1][turned_row][turned_column]);
        add_moments<P_PIECES, P_SQUARES>(moments, turned, tile.p);
#endif
#if RELAXED
#pragma unroll
        for (int i = 0; i < 4; i++) turned[0][i] = transposed(bf16_pair(y[i % 2][2 * (i / 2)], y[i % 2][2 * (i / 2) + 1]));
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            u32 b[1][4];
            load_rows_back(b, tile.dz, 16 * j);
            multiply(through_z[2 * j], turned[0], b[0][0], b[0][1]);
            multiply(through_z[2 * j + 1], turned[0], b[0][2], b[0][3]);
        }
#else
        // A row's dz goes to the code it chose, which is one warp's own.
        u32 slot = slot_of(__float_as_uint(s.row_sums[lane % 16][1].w));
        u32 mine = __ballot_sync(~0u, lane < 16 && slot / 16 == unit);
        while (mine) {
            u32 row = __ffs(mine) - 1;
            mine &= mine - 1;
            u32 to = __shfl_sync(~0u, slot, row);
            if (lane < DIM) s.chosen[to][lane] += __uint_as_float((u32)tile.dz[0][row][lane] << 16);
        }
#endif
        float2 e[ROUNDS][2];
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            u32 job = unit % JOBS + round * WARPS, column = job % (DIM / 8) * 8 + 2 * t;
#pragma unroll
            for (int h = 0; h < 2; h++) {
#if PRIOR
                e[round][h] = job < DIM / 8 ? pair_of<Q_PIECES>(tile.q, g + 8 * h, column) : pair_of<P_PIECES>(tile.p, g + 8 * h, column);
#else
                e[round][h] = pair_of<Q_PIECES>(tile.q, g + 8 * h, column);
#endif
            }
        }
        __syncthreads();

        // G is complete, and nobody reads the tile any more.
        if (next < rows) write_tile(&tile, ahead, next, rows);
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            u32 job = unit % JOBS + round * WARPS, slice = unit / JOBS, column = job % (DIM / 8) * 8;
            const u16* from = &s.g[job / (DIM / 8)][lane % 16][lane / 16 * 8];
            const u16* by = &s.table[0][lane % 16][lane < 16 ? column : DIM + column];
            float linear[4] = {0.0f, 0.0f, 0.0f, 0.0f}, square[4] = {0.0f, 0.0f, 0.0f, 0.0f}, excess[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int k = 0; k < UNITS / SLICES; k++) {
                u32 a[4], u = slice * (UNITS / SLICES) + k;
                load_matrices(a, from + 16 * u);
                multiply(excess, a, ONES, ONES);
#pragma unroll
                for (int n = PIECES - 1; n >= 0; n--) {
                    u32 b[4];
                    load_transposed(b, by + (n * CODES + 16 * u) * STRIDE);
                    multiply(linear, a, b[0], b[1]);
                    multiply(square, a, b[2], b[3]);
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                // G sums to 0 over the codes, and what was rounded does not: left alone, a row would be pulled along or
                // against its own embedding. What is too much is taken from the row's own code.
                u32 own = slot_of(__float_as_uint(s.row_sums[g + 8 * h][1].w));
                float too_much = excess[2 * h];
#pragma unroll
                for (int n = 0; n < PIECES; n++) {
                    u32 scaled = *(const u32*)&s.table[n][own][column + 2 * t], iv = *(const u32*)&s.table[n][own][DIM + column + 2 * t];
                    linear[2 * h] = fmaf(-too_much, low_half(scaled), linear[2 * h]);
                    linear[2 * h + 1] = fmaf(-too_much, high_half(scaled), linear[2 * h + 1]);
                    square[2 * h] = fmaf(-too_much, low_half(iv), square[2 * h]);
                    square[2 * h + 1] = fmaf(-too_much, high_half(iv), square[2 * h + 1]);
                }
                de[round][2 * h] = fmaf(-e[round][h].x, square[2 * h], linear[2 * h]);
                de[round][2 * h + 1] = fmaf(-e[round][h].y, square[2 * h + 1], linear[2 * h + 1]);
            }
            if (slice > 0) s.shares[(slice - 1) * JOBS + job][lane] = make_float4(de[round][0], de[round][1], de[round][2], de[round][3]);
        }
        // The noise waits for nobody.
        if (next < rows) tile_noise(s, scale, next, unit, y);
        __syncthreads();
        send(s, de, de_q, de_p, first, rows);
        if (next >= rows) break;
        first = next;
    }

    float* mine = left + (u64)blockIdx.x * LEFT;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int bit = 4; bit < 32; bit *= 2) total[j] += __shfl_xor_sync(~0u, total[j], bit);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float even = __shfl_sync(~0u, total[2 * h], g / 2), odd = __shfl_sync(~0u, total[2 * h + 1], g / 2);
        float sum = g % 2 ? odd : even;
#pragma unroll
        for (int j = 0; j < DIM / 8; j++) {
            u32 column = 8 * j + 2 * t, at = code_of(unit, h, g) * DIM + column;
            float2 m = *(const float2*)(mu + at), lv = *(const float2*)(logvar + at);
            float through[2], dmu[2], dlogvar[2];
#if RELAXED
            through[0] = through_z[j][2 * h];
            through[1] = through_z[j][2 * h + 1];
#else
            through[0] = s.chosen[16 * unit + 8 * h + g][column];
            through[1] = s.chosen[16 * unit + 8 * h + g][column + 1];
#endif
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float mean = k ? m.y : m.x, iv = LOG2_E * power_of_two(-LOG2_E * (k ? lv.y : lv.x));
                float linear = moments[j][2 * h + k], square = moments[DIM / 8 + j][2 * h + k];
                float centred = fmaf(-mean, sum, linear);
                dmu[k] = fmaf(iv, centred, through[k]);
                // Σ G (e - mu)² = -2 Σ G (-½e²) - mu Σ G e - mu (Σ G e - mu Σ G)
                dlogvar[k] = 0.5f * fmaf(iv, fmaf(-mean, centred, fmaf(-mean, linear, -2.0f * square)), -LOG2_E * sum);
            }
            *(float2*)(mine + at) = make_float2(dmu[0], dmu[1]);
            *(float2*)(mine + CODES * DIM + at) = make_float2(dlogvar[0], dlogvar[1]);
        }
    }
}

// Adds what the blocks left, in a fixed order: a block to 128 numbers, a warp to every eighth part.
extern "C" __global__ void __launch_bounds__(256) responsibility_sum(const float* left, float* dmu, float* dlogvar, u32 blocks) {
    __shared__ float4 parts[8][32];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, at = blockIdx.x * 128 + 4 * lane;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (u32 b = warp; b < blocks; b += 8) {
        float4 part = *(const float4*)(left + (u64)b * LEFT + at);
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int w = 1; w < 8; w++) {
        float4 part = parts[w][lane];
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    float* to = at < CODES * DIM ? dmu : dlogvar;
    if (!to) return;
    to += at % (CODES * DIM);
    to[0] = sum.x;
    to[1] = sum.y;
    to[2] = sum.z;
    to[3] = sum.w;
}
