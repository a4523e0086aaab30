// Any number of codes and dimensions, without tensor cores: a warp takes ROWS rows, its lanes the codes.
//
// Scores are summed as squares of differences, which loses nothing to cancellation, and RUN dimensions at a time: a sum that
// grows over a hundred of them loses digits to rounding. They are large numbers still, so Σ q (a_q - a_p) is of scores less
// the largest ones; the gradients of a row's scores sum to 0 only as well as it is known, and what is left over meets the
// embedding. Also given: ROWS and BACKWARD.

#define WARPS 8
#define RUN 16
#define STRIPES ((DIM + 31) / 32)

// mu and e^-logvar with codes along memory, then -½ Σ_d logvar: [2 DIM + 1][CODES].
extern "C" __global__ void __launch_bounds__(256) responsibility_tables(const float* mu, const float* logvar, float* columns) {
    u32 k = blockIdx.x * 256 + threadIdx.x;
    if (k >= CODES) return;
    float sum = 0.0f;
    for (int d = 0; d < DIM; d++) {
        float lv = logvar[(u64)k * DIM + d];
        columns[(u64)d * CODES + k] = mu[(u64)k * DIM + d];
        columns[(u64)(DIM + d) * CODES + k] = expf(-lv);
        sum += lv;
    }
    columns[(u64)2 * DIM * CODES + k] = -0.5f * sum;
}

__device__ __forceinline__ float plain_gumbel(const Noise& n, u64 element) {
    u32 word[4];
#if SHARDED
    element += n.before;
#endif
    philox(n, (u32)(element >> 6) * 16 + (u32)(element & 15), word);
    u32 j = (u32)(element >> 4) & 3;
    return gumbel(j == 0 ? word[0] : j == 1 ? word[1] : j == 2 ? word[2] : word[3]);
}

// Scores of code k for N rows of q and p, `e` holding q's rows and then p's, DIM apart; and dy = dz·mu.
template <int N, bool FLOW>
__device__ __forceinline__ void plain_scores(const float* columns, u32 k, const float* e_q, const float* e_p, const float* dz,
                                             float (&q)[N], float (&p)[N], float (&dy)[N]) {
#pragma unroll
    for (int r = 0; r < N; r++) q[r] = p[r] = dy[r] = 0.0f;
    for (int at = 0; at < DIM; at += RUN) {
        float q_run[N] = {}, p_run[N] = {}, dy_run[N] = {};
#pragma unroll 4
        for (int d = at; d < min(at + RUN, DIM); d++) {
            float m = columns[(u64)d * CODES + k], v = columns[(u64)(DIM + d) * CODES + k];
#pragma unroll
            for (int r = 0; r < N; r++) {
                float x = e_q[r * DIM + d] - m;
                q_run[r] = fmaf(x * v, x, q_run[r]);
#if PRIOR
                float w = e_p[r * DIM + d] - m;
                p_run[r] = fmaf(w * v, w, p_run[r]);
#endif
                if (FLOW) dy_run[r] = fmaf(dz[r * DIM + d], m, dy_run[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < N; r++) {
            q[r] += q_run[r];
            p[r] += p_run[r];
            dy[r] += dy_run[r];
        }
    }
    float c = columns[(u64)2 * DIM * CODES + k];
#pragma unroll
    for (int r = 0; r < N; r++) {
        q[r] = fmaf(-0.5f, q[r], c);
        p[r] = PRIOR ? fmaf(-0.5f, p[r], c) : 0.0f;
    }
}

// Rows past the last one are read as the last one and never written.
template <typename T>
__device__ __forceinline__ void plain_load(float* to, const T* from, u32 first, u32 rows) {
    for (int i = threadIdx.x % 32; i < ROWS * DIM; i += 32) {
        u32 row = min(first + i / DIM, rows - 1);
        to[i] = widen(from[(u64)row * DIM + i % DIM]);
    }
}

// Makes `cross`, which is of scores less the largest seen, one of scores less these.
__device__ __forceinline__ void less(Running& s, float max_q, float max_p) {
    s.cross = fmaf((s.max_q - max_q) - (PRIOR ? s.max_p - max_p : 0.0f), s.sum_q, s.cross);
}

__device__ __forceinline__ void see(Running& s, float q, float p, float t, u32 k) {
    float max_q = fmaxf(s.max_q, q), max_p = fmaxf(s.max_p, p);
    less(s, max_q, max_p);
    float keep = expf(s.max_q - max_q), now = expf(q - max_q);
    s.sum_q = fmaf(s.sum_q, keep, now);
    s.cross = fmaf(s.cross, keep, now * ((q - max_q) - (PRIOR ? p - max_p : 0.0f)));
    s.max_q = max_q;
#if PRIOR
    s.sum_p = fmaf(s.sum_p, expf(s.max_p - max_p), expf(p - max_p));
    s.max_p = max_p;
#endif
    if (t > s.best) {
        s.best = t;
        s.code = k;
    }
}

// What all lanes have seen.
__device__ __forceinline__ void together(Running& s) {
    float max_q = s.max_q, max_p = s.max_p;
    for (int bit = 16; bit > 0; bit /= 2) {
        max_q = fmaxf(max_q, __shfl_xor_sync(~0u, max_q, bit));
        if (PRIOR) max_p = fmaxf(max_p, __shfl_xor_sync(~0u, max_p, bit));
    }
    less(s, max_q, max_p);
    for (int bit = 16; bit > 0; bit /= 2) merge_lanes(s, bit);
}

#if !BACKWARD

// Floats of dynamic shared memory: WARPS × (ROWS × DIM × 2 + ROWS × 32).
extern "C" __global__ void __launch_bounds__(256) responsibility_plain_forward(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const float* mu, const E_P* e_p,
    const float* columns, Z_OUT* z, u32* index, float* kl, u32 rows, u32 stream) {
    extern __shared__ float4 shared_memory[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* q_rows = (float*)shared_memory + warp * (ROWS * DIM * 2 + ROWS * 32);
    float* p_rows = q_rows + ROWS * DIM;
    u32 first = (blockIdx.x * WARPS + warp) * ROWS;
    if (first >= rows) return;
    plain_load(q_rows, e_q, first, rows);
#if PRIOR
    plain_load(p_rows, e_p, first, rows);
#endif
    __syncwarp();
    Noise noise = noise_of(counter, stream, rows);
    float scale = noise_scale[0];
    Running state[ROWS];
    float q[ROWS], p[ROWS], dy[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) state[r] = nothing();
    for (u32 k = lane; k < CODES; k += 32) {
        plain_scores<ROWS, false>(columns, k, q_rows, p_rows, 0, q, p, dy);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float g = scale == 0.0f ? 0.0f : plain_gumbel(noise, (u64)(first + r) * CODES + k);
            see(state[r], q[r], p[r], fmaf(scale, g, q[r]), k);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        together(state[r]);
        if (lane == 0 && first + r < rows) {
            Running all = state[r];
            all.max_q = all.max_p = 0.0f;
            if (index) index[first + r] = all.code;
            if (kl) kl[first + r] = divergence(all);
        }
    }
#if RELAXED
    // A second look at the codes: weights of 32 at a time go through shared memory, then lanes are dimensions.
    float* y_rows = p_rows + ROWS * DIM;
    float inverse_tau = 1.0f / tau[0];
    float sum[ROWS], mean[ROWS][STRIPES];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        sum[r] = 0.0f;
        for (int i = 0; i < STRIPES; i++) mean[r][i] = 0.0f;
    }
    for (u32 at = 0; at < CODES; at += 32) {
        u32 k = at + lane;
        if (k < CODES) plain_scores<ROWS, false>(columns, k, q_rows, p_rows, 0, q, p, dy);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float y = 0.0f;
            if (k < CODES) {
                float g = scale == 0.0f ? 0.0f : plain_gumbel(noise, (u64)(first + r) * CODES + k);
                y = expf((fmaf(scale, g, q[r]) - state[r].best) * inverse_tau);
            }
            sum[r] += y;
            y_rows[r * 32 + lane] = y;
        }
        __syncwarp();
        for (u32 k = at; k < min(at + 32, (u32)CODES); k++) {
#pragma unroll
            for (int i = 0; i < STRIPES; i++) {
                int d = i * 32 + lane;
                float m = d < DIM ? mu[(u64)k * DIM + d] : 0.0f;
#pragma unroll
                for (int r = 0; r < ROWS; r++) mean[r][i] = fmaf(y_rows[r * 32 + k - at], m, mean[r][i]);
            }
        }
        __syncwarp();
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        for (int bit = 16; bit > 0; bit /= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], bit);
        if (first + r >= rows) continue;
#pragma unroll
        for (int i = 0; i < STRIPES; i++) {
            int d = i * 32 + lane;
            if (d < DIM) put(z + (u64)(first + r) * DIM + d, mean[r][i] / sum[r]);
        }
    }
#else
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= rows) continue;
        for (int d = lane; d < DIM; d += 32) put(z + (u64)(first + r) * DIM + d, mu[(u64)state[r].code * DIM + d]);
    }
#endif
}

#else

// Gradients of one score of q and one of p; y is the weight with which dz reaches the mean of the code.
__device__ __forceinline__ void plain_slopes(const Row& s, u32 chosen, u32 k, float dkl, float inverse_tau, float q, float p, float t,
                                             float dy, float& to_q, float& to_p, float& y) {
    float prob = expf(q - s.max_q) * s.inverse_q;
#if REINMAX
    float drawn = k == chosen ? 1.0f : 0.0f, soft = expf((q - s.max_q) * inverse_tau) * s.inverse_y;
    float through_kl = prob * ((q - s.max_q) - (PRIOR ? p - s.max_p : 0.0f) - s.cross) * dkl;
    to_q = fmaf(drawn + soft, dy - s.flow, fmaf(-0.5f * prob, dy - s.mean, through_kl));
#else
    float weight = expf((t - s.best) * inverse_tau) * s.inverse_y;
    to_q = fmaf(weight * (dy - s.flow), inverse_tau, prob * ((q - s.max_q) - (PRIOR ? p - s.max_p : 0.0f) - s.cross) * dkl);
#endif
    to_p = PRIOR ? (expf(p - s.max_p) * s.inverse_p - prob) * dkl : 0.0f;
#if REINMAX
    y = drawn;
#else
    y = RELAXED ? weight : (k == chosen ? 1.0f : 0.0f);
#endif
}

// The sums of each row, kept for the codebook's kernel, and the gradients of the embeddings.
// Floats of dynamic shared memory: WARPS × (ROWS × DIM × 3 + ROWS × 64).
extern "C" __global__ void __launch_bounds__(256) responsibility_plain_rows(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const E_P* e_p, const DZ* dz, const float* dkl,
    const float* mu, const float* logvar, const float* columns, Row* sums, u32* chosen, DE_Q* de_q, DE_P* de_p, u32 rows, u32 stream) {
    extern __shared__ float4 shared_memory[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* q_rows = (float*)shared_memory + warp * (ROWS * DIM * 3 + ROWS * 64);
    float* p_rows = q_rows + ROWS * DIM;
    float* z_rows = p_rows + ROWS * DIM;
    float* q_slopes = z_rows + ROWS * DIM;
    float* p_slopes = q_slopes + ROWS * 32;
    u32 first = (blockIdx.x * WARPS + warp) * ROWS;
    if (first >= rows) return;
    plain_load(q_rows, e_q, first, rows);
    plain_load(z_rows, dz, first, rows);
#if PRIOR
    plain_load(p_rows, e_p, first, rows);
#endif
    __syncwarp();
    Noise noise = noise_of(counter, stream, rows);
    float scale = noise_scale[0], inverse_tau = 1.0f / tau[0];
    Running state[ROWS];
    float sum_y[ROWS], flow[ROWS], best[ROWS], q[ROWS], p[ROWS], dy[ROWS];
#if REINMAX
    // Σ e^(a_q - max_q) dy, and dy of the best code.
    float mean[ROWS], drawn[ROWS];
#endif
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        state[r] = nothing();
        sum_y[r] = flow[r] = 0.0f;
#if REINMAX
        mean[r] = drawn[r] = 0.0f;
#endif
    }
    for (u32 k = lane; k < CODES; k += 32) {
        plain_scores<ROWS, true>(columns, k, q_rows, p_rows, z_rows, q, p, dy);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float g = scale == 0.0f ? 0.0f : plain_gumbel(noise, (u64)(first + r) * CODES + k);
            float t = fmaf(scale, g, q[r]);
#if REINMAX
            float before = state[r].max_q, score = q[r];
#else
            float before = state[r].best, score = t;
#endif
            float top = fmaxf(before, score);
            float keep = expf((before - top) * inverse_tau), now = expf((score - top) * inverse_tau);
            sum_y[r] = fmaf(sum_y[r], keep, now);
            flow[r] = fmaf(flow[r], keep, now * dy[r]);
#if REINMAX
            mean[r] = fmaf(mean[r], expf(before - top), expf(score - top) * dy[r]);
            if (t > state[r].best) drawn[r] = dy[r];
#endif
            see(state[r], q[r], p[r], t, k);
        }
    }
    Row row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#if REINMAX
        best[r] = state[r].max_q;
        together(state[r]);
        float factor = expf((best[r] - state[r].max_q) * inverse_tau);
        mean[r] *= expf(best[r] - state[r].max_q);
        drawn[r] = __shfl_sync(~0u, drawn[r], state[r].code % 32);
#else
        best[r] = state[r].best;
        together(state[r]);
        float factor = expf((best[r] - state[r].best) * inverse_tau);
#endif
        sum_y[r] *= factor;
        flow[r] *= factor;
        for (int bit = 16; bit > 0; bit /= 2) {
            sum_y[r] += __shfl_xor_sync(~0u, sum_y[r], bit);
            flow[r] += __shfl_xor_sync(~0u, flow[r], bit);
#if REINMAX
            mean[r] += __shfl_xor_sync(~0u, mean[r], bit);
#endif
        }
        row[r].max_q = state[r].max_q;
        row[r].inverse_q = 1.0f / state[r].sum_q;
        row[r].max_p = state[r].max_p;
        row[r].inverse_p = PRIOR ? 1.0f / state[r].sum_p : 0.0f;
        row[r].inverse_y = 1.0f / sum_y[r];
#if REINMAX
        row[r].mean = mean[r] / state[r].sum_q;
        row[r].flow = 0.5f * (flow[r] / sum_y[r] + drawn[r]);
#else
        row[r].best = state[r].best;
        row[r].flow = flow[r] / sum_y[r];
#endif
        row[r].cross = state[r].cross / state[r].sum_q;
        if (lane == 0 && first + r < rows) {
            sums[first + r] = row[r];
            chosen[first + r] = state[r].code;
        }
    }
    float to_q[ROWS][STRIPES], to_p[ROWS][STRIPES];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < STRIPES; i++) to_q[r][i] = to_p[r][i] = 0.0f;
    for (u32 at = 0; at < CODES; at += 32) {
        u32 k = at + lane;
        if (k < CODES) plain_scores<ROWS, true>(columns, k, q_rows, p_rows, z_rows, q, p, dy);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float slope_q = 0.0f, slope_p = 0.0f, y;
            if (k < CODES) {
                float g = scale == 0.0f ? 0.0f : plain_gumbel(noise, (u64)(first + r) * CODES + k);
                float weight = dkl[min(first + r, rows - 1)];
                plain_slopes(row[r], state[r].code, k, weight, inverse_tau, q[r], p[r], fmaf(scale, g, q[r]), dy[r], slope_q, slope_p, y);
            }
            q_slopes[r * 32 + lane] = slope_q;
            p_slopes[r * 32 + lane] = slope_p;
        }
        __syncwarp();
        for (u32 k = at; k < min(at + 32, (u32)CODES); k++) {
#pragma unroll
            for (int i = 0; i < STRIPES; i++) {
                int d = i * 32 + lane;
                if (d >= DIM) continue;
                float m = mu[(u64)k * DIM + d], v = expf(-logvar[(u64)k * DIM + d]);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    to_q[r][i] = fmaf(q_slopes[r * 32 + k - at] * v, m - q_rows[r * DIM + d], to_q[r][i]);
#if PRIOR
                    to_p[r][i] = fmaf(p_slopes[r * 32 + k - at] * v, m - p_rows[r * DIM + d], to_p[r][i]);
#endif
                }
            }
        }
        __syncwarp();
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= rows) continue;
#pragma unroll
        for (int i = 0; i < STRIPES; i++) {
            int d = i * 32 + lane;
            if (d >= DIM) continue;
            if (de_q) put(de_q + (u64)(first + r) * DIM + d, to_q[r][i]);
#if PRIOR
            if (de_p) put(de_p + (u64)(first + r) * DIM + d, to_p[r][i]);
#endif
        }
    }
}

// Gradients of 32 codes from one chunk of rows: [chunks][2][CODES][DIM], those of mu and then those of logvar.
extern "C" __global__ void __launch_bounds__(256) responsibility_plain_codes(
    const u32* counter, const float* tau, const float* noise_scale, const E_Q* e_q, const E_P* e_p, const DZ* dz, const float* dkl,
    const float* mu, const float* logvar, const float* columns, const Row* sums, const u32* chosen, float* partial, u32 rows, u32 stream,
    u32 chunk_rows) {
    __shared__ float q_rows[WARPS * DIM], p_rows[PRIOR ? WARPS * DIM : 1], z_rows[WARPS * DIM];
    __shared__ float q_slopes[WARPS][32], p_slopes[WARPS][32], weights[WARPS][32];
    const int PAIRS = (32 * DIM + 255) / 256;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 first_code = blockIdx.x * 32;
    u32 k = first_code + lane;
    u32 begin = blockIdx.y * chunk_rows, end = min(begin + chunk_rows, rows);
    Noise noise = noise_of(counter, stream, rows);
    float scale = noise_scale[0], inverse_tau = 1.0f / tau[0];
    float once[PAIRS], twice[PAIRS], through_z[PAIRS], total[PAIRS], mean[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        u32 pair = i * 256 + threadIdx.x;
        u32 code = first_code + pair / DIM;
        once[i] = twice[i] = through_z[i] = total[i] = 0.0f;
        mean[i] = pair < 32 * DIM && code < CODES ? mu[(u64)code * DIM + pair % DIM] : 0.0f;
    }
    for (u32 at = begin; at < end; at += WARPS) {
        u32 row = at + warp;
        for (int d = lane; d < DIM; d += 32) {
            u64 i = (u64)min(row, rows - 1) * DIM + d;
            q_rows[warp * DIM + d] = widen(e_q[i]);
            z_rows[warp * DIM + d] = widen(dz[i]);
#if PRIOR
            p_rows[warp * DIM + d] = widen(e_p[i]);
#endif
        }
        __syncwarp();
        float slope_q = 0.0f, slope_p = 0.0f, y = 0.0f;
        if (row < end && k < CODES) {
            float q[1], p[1], dy[1];
            plain_scores<1, true>(columns, k, q_rows + warp * DIM, p_rows + (PRIOR ? warp * DIM : 0), z_rows + warp * DIM, q, p, dy);
            float g = scale == 0.0f ? 0.0f : plain_gumbel(noise, (u64)row * CODES + k);
            plain_slopes(sums[row], chosen[row], k, dkl[row], inverse_tau, q[0], p[0], fmaf(scale, g, q[0]), dy[0], slope_q, slope_p, y);
        }
        q_slopes[warp][lane] = slope_q;
        p_slopes[warp][lane] = slope_p;
        weights[warp][lane] = y;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            u32 pair = i * 256 + threadIdx.x;
            if (pair >= 32 * DIM) continue;
            u32 code = pair / DIM, d = pair % DIM;
            for (int r = 0; r < WARPS; r++) {
                float x = q_rows[r * DIM + d] - mean[i], slope = q_slopes[r][code];
                total[i] += slope;
                once[i] = fmaf(slope, x, once[i]);
                twice[i] = fmaf(slope * x, x, twice[i]);
                through_z[i] = fmaf(weights[r][code], z_rows[r * DIM + d], through_z[i]);
#if PRIOR
                x = p_rows[r * DIM + d] - mean[i];
                slope = p_slopes[r][code];
                total[i] += slope;
                once[i] = fmaf(slope, x, once[i]);
                twice[i] = fmaf(slope * x, x, twice[i]);
#endif
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        u32 pair = i * 256 + threadIdx.x;
        u32 code = first_code + pair / DIM, d = pair % DIM;
        if (pair >= 32 * DIM || code >= CODES) continue;
        float v = expf(-logvar[(u64)code * DIM + d]);
        u64 to = (u64)blockIdx.y * 2 * CODES * DIM + (u64)code * DIM + d;
        partial[to] = fmaf(v, once[i], through_z[i]);
        partial[to + (u64)CODES * DIM] = 0.5f * fmaf(v, twice[i], -total[i]);
    }
}

// Adds the chunks in order.
extern "C" __global__ void __launch_bounds__(256) responsibility_plain_sum(const float* partial, float* dmu, float* dlogvar, u32 chunks) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    const u64 wide = (u64)CODES * DIM;
    if (i >= 2 * wide) return;
    float sum = 0.0f;
    for (u32 c = 0; c < chunks; c++) sum += partial[(u64)c * 2 * wide + i];
    if (i < wide) {
        if (dmu) dmu[i] = sum;
    } else if (dlogvar) {
        dlogvar[i - wide] = sum;
    }
}

#endif
