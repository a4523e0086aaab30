// What the tensor-core kernels share: numbers as sums of bf16 pieces, the codebook in shared memory, the scores.
//
// Scores are one matrix product of inner length 2 DIM, [e, -½e²]·[mu iv ; iv] + c. A product of floats is the sum
// of products of their pieces, small ones first; two pieces keep 16 bits, three keep all 24. Embeddings stored as
// bf16 are one piece, their squares two, without loss.
//
// Codes are taken in units of 16, two tiles of 8 columns. Column 2t + c of tile i of unit u is code
// 64 (u / 4) + 16 (2i + c) + 4 (u % 4) + t: the four codes of a thread take the four words of one block of noise.
//
// Also given: PIECES, and the numbers of pieces of the embeddings, of their squares and of dz: Q_PIECES, Q_SQUARES,
// P_PIECES, P_SQUARES, DZ_PIECES.

#define WIDE (2 * DIM)
// Rows in shared memory start 16 bytes apart modulo 128, so that eight of them meet no bank twice.
#define STRIDE (WIDE + 8)
#define MEAN_STRIDE (DIM + 8)
#define UNITS (CODES / 16)
#define TABLE (PIECES * CODES * STRIDE)
// Two ones as bf16: a column of them as B sums the rows of A.
#define ONES 0x3f803f80u

__device__ __forceinline__ u32 code_of(u32 unit, u32 tile, u32 column) {
    return 64 * (unit / 4) + 16 * (2 * tile + column % 2) + 4 * (unit % 4) + column / 2;
}

// Where a code's row is in the tables.
__device__ __forceinline__ u32 slot_of(u32 code) {
    u32 word = code / 16 % 4, lane = code % 16;
    return 16 * (4 * (code / 64) + lane / 4) + 8 * (word / 2) + 2 * (lane % 4) + word % 2;
}

__device__ __forceinline__ float low_half(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Two numbers as N pairs of pieces, the largest first.
template <int N>
__device__ __forceinline__ void split(float x, float y, u32 (&piece)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        piece[i] = bf16_pair(x, y);
        x -= low_half(piece[i]);
        y -= high_half(piece[i]);
    }
}

// C += A B for numbers in pieces.
template <int NA, int NB>
__device__ __forceinline__ void multiply_pieces(float (&c)[4], const u32 (&a)[NA][4], const u32 (&b)[NB][4], int at) {
#pragma unroll
    for (int order = PIECES - 1; order >= 0; order--) {
#pragma unroll
        for (int i = 0; i < NA; i++) {
            int j = order - i;
            if (j >= 0 && j < NB) multiply(c, a[i], b[j][at], b[j][at + 1]);
        }
    }
}

// Two neighbours as they are stored, and as floats.
__device__ __forceinline__ float2 raw_pair(const float* at) { return *(const float2*)at; }
__device__ __forceinline__ u32 raw_pair(const bf16* at) { return *(const u32*)at; }
__device__ __forceinline__ float2 widen_pair(float2 pair) { return pair; }
__device__ __forceinline__ float2 widen_pair(u32 pair) { return make_float2(low_half(pair), high_half(pair)); }

// [mu iv, iv] in pieces, a row a code, and c = -½ Σ (mu² iv + logvar), in the scores' unit; if wanted, mu itself.
#if EXACT
template <int WARP_COUNT, int MEANS>
__device__ __forceinline__ void fill_tables(const float* mu, const float* logvar, u16* table, float* constants, u16* means) {
    u32 lane = threadIdx.x % 32;
#pragma unroll 4
    for (u32 code = threadIdx.x / 32; code < CODES; code += WARP_COUNT) {
        u32 slot = slot_of(code);
        float sum = 0.0f;
        if (lane < DIM) {
            float m = mu[code * DIM + lane], lv = logvar[code * DIM + lane];
            float iv = expf(-lv);
            float scaled = m * iv;
            sum = fmaf(scaled, m, lv);
            u32 piece[PIECES];
            split<PIECES>(scaled, iv, piece);
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                u16* row = table + (i * CODES + slot) * STRIDE;
                row[lane] = (u16)piece[i];
                row[DIM + lane] = (u16)(piece[i] >> 16);
            }
            if (MEANS) {
                split<PIECES>(m, 0.0f, piece);
#pragma unroll
                for (int i = 0; i < PIECES; i++) means[(i * CODES + slot) * MEAN_STRIDE + lane] = (u16)piece[i];
            }
        }
#pragma unroll
        for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (lane == 0) constants[slot] = -0.5f * sum;
    }
}
#else
// A lane takes four neighbours, and asks for those of several codes before it needs the first.
template <int WARP_COUNT, int MEANS>
__device__ __forceinline__ void fill_tables(const float* mu, const float* logvar, u16* table, float* constants, u16* means) {
    const int LANES = DIM / 4, AT_ONCE = 32 / LANES, STEPS = CODES / (WARP_COUNT * AT_ONCE), AHEAD = STEPS < 4 ? STEPS : 4;
    u32 lane = threadIdx.x % 32, column = 4 * (lane % LANES), group = lane / LANES;
    // Codes two apart first: their rows share no banks.
    u32 first = threadIdx.x / 32 * AT_ONCE + group / 4 * 4 + group % 2 * 2 + group / 2 % 2;
#pragma unroll 1
    for (u32 step = 0; step < STEPS; step += AHEAD) {
        float4 m[AHEAD], lv[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 at = (first + (step + i) * WARP_COUNT * AT_ONCE) * DIM + column;
            m[i] = *(const float4*)(mu + at);
            lv[i] = *(const float4*)(logvar + at);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 slot = slot_of(first + (step + i) * WARP_COUNT * AT_ONCE);
            float mean[4] = {m[i].x, m[i].y, m[i].z, m[i].w}, spread[4] = {lv[i].x, lv[i].y, lv[i].z, lv[i].w};
            float iv[4], scaled[4], sum = 0.0f;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                // 2^0.5287663729 = log2 e
                iv[k] = power_of_two(fmaf(spread[k], -LOG2_E, 0.5287663729f));
                scaled[k] = mean[k] * iv[k];
                sum += fmaf(scaled[k], mean[k], LOG2_E * spread[k]);
            }
            u32 low[PIECES], high[PIECES];
            split<PIECES>(scaled[0], scaled[1], low);
            split<PIECES>(scaled[2], scaled[3], high);
#pragma unroll
            for (int n = 0; n < PIECES; n++) *(uint2*)(table + (n * CODES + slot) * STRIDE + column) = make_uint2(low[n], high[n]);
            split<PIECES>(iv[0], iv[1], low);
            split<PIECES>(iv[2], iv[3], high);
#pragma unroll
            for (int n = 0; n < PIECES; n++) *(uint2*)(table + (n * CODES + slot) * STRIDE + DIM + column) = make_uint2(low[n], high[n]);
            if (MEANS) {
                split<PIECES>(mean[0], mean[1], low);
                split<PIECES>(mean[2], mean[3], high);
#pragma unroll
                for (int n = 0; n < PIECES; n++) *(uint2*)(means + (n * CODES + slot) * MEAN_STRIDE + column) = make_uint2(low[n], high[n]);
            }
#pragma unroll
            for (int bit = LANES / 2; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
            if (lane % LANES == 0) constants[slot] = -0.5f * sum;
        }
    }
}
#endif

// Starts the scores of a unit at its constants.
__device__ __forceinline__ void start_scores(float (&s)[2][4], const float* constants, u32 unit) {
    u32 t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 c = *(const float2*)(constants + 16 * unit + 8 * i + 2 * t);
        s[i][0] = s[i][2] = c.x;
        s[i][1] = s[i][3] = c.y;
    }
}

// Pieces of B for one unit and 16 columns of a table: tile 0 in registers 0 and 1, tile 1 in 2 and 3.
__device__ __forceinline__ void load_unit(u32 (&b)[PIECES][4], const u16* table, u32 stride, u32 unit, u32 column) {
    u32 lane = threadIdx.x % 32;
    u32 slot = 16 * unit + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int i = 0; i < PIECES; i++) load_matrices(b[i], table + (i * CODES + slot) * stride + column + lane / 8 % 2 * 8);
}

// Pieces of B for the sum over the codes of one unit: columns `first` in registers 0 and 1, `second` in 2 and 3.
__device__ __forceinline__ void load_unit_back(u32 (&b)[PIECES][4], const u16* table, u32 stride, u32 unit, u32 first, u32 second) {
    u32 lane = threadIdx.x % 32;
    u32 slot = 16 * unit + lane % 16;
#pragma unroll
    for (int i = 0; i < PIECES; i++) load_transposed(b[i], table + (i * CODES + slot) * stride + (lane < 16 ? first : second));
}

// Standard noise of a thread's four codes of a unit.
__device__ __forceinline__ void unit_noise(const Noise& noise, u32 row, u32 unit, float (&g)[4]) {
    u32 word[4];
    u32 block = 16 * (row * (CODES / 64) + unit / 4) + 4 * (unit % 4) + threadIdx.x % 4;
#if SHARDED
    block += (u32)(noise.before / 4);
#endif
    philox(noise, block, word);
#pragma unroll
    for (int j = 0; j < 4; j++) g[j] = gumbel_of(word[j]);
}

// Takes four codes, 16 apart from `code` on, into the sums.
__device__ __forceinline__ void see(Running& s, const float (&q)[4], const float (&p)[4], const float (&t)[4], u32 code) {
    float max_q = fmaxf(fmaxf(fmaxf(q[0], q[1]), fmaxf(q[2], q[3])), s.max_q);
    float keep = exponential(s.max_q - max_q);
    s.sum_q *= keep;
    s.cross *= keep;
    s.max_q = max_q;
#if PRIOR
    float max_p = fmaxf(fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3])), s.max_p);
    s.sum_p *= exponential(s.max_p - max_p);
    s.max_p = max_p;
#endif
    float best = t[0];
    u32 at = code;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float weight = exponential(q[j] - max_q);
        s.sum_q += weight;
        s.cross = fmaf(weight, q[j] - p[j], s.cross);
#if PRIOR
        s.sum_p += exponential(p[j] - max_p);
#endif
        if (t[j] > best) {
            best = t[j];
            at = code + 16 * j;
        }
    }
    if (better(best, at, s.best, s.code)) {
        s.best = best;
        s.code = at;
    }
}

// Over the four lanes that know a row.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Turns a thread's perturbed scores in row `h` of its two into relaxed weights, relative to the largest seen so far, to
// which what was mixed before is turned as well. `pieces` are the weights as A.
__device__ __forceinline__ void weigh(float (&t)[4], float& top, float& sum, float (&mix)[DIM / 8][4], u32 (&pieces)[PIECES][4], int h,
                                      float inverse_tau) {
    float now = quad_max(fmaxf(fmaxf(fmaxf(t[0], t[1]), fmaxf(t[2], t[3])), top));
    float keep = exponential((top - now) * inverse_tau);
    top = now;
    sum *= keep;
#pragma unroll
    for (int j = 0; j < DIM / 8; j++) {
        mix[j][2 * h] *= keep;
        mix[j][2 * h + 1] *= keep;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        t[j] = exponential((t[j] - now) * inverse_tau);
        sum += t[j];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 piece[PIECES];
        split<PIECES>(t[2 * i], t[2 * i + 1], piece);
#pragma unroll
        for (int n = 0; n < PIECES; n++) pieces[n][2 * i + h] = piece[n];
    }
}
