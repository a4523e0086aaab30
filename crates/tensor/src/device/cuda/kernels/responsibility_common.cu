// What every kernel of the responsibility shares: how elements are stored, and the running sums of a row.
//
// Given by #define: DIM, CODES, PRIOR, RELAXED or REINMAX or neither, EXACT, the types E_Q, E_P and, by direction, Z_OUT or DZ, DE_Q, DE_P.

typedef unsigned short u16;

struct bf16 {
    u16 bits;
};

// A score below all others, finite so that differences of scores stay numbers.
#define LOWEST (-3.0e38f)

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ void put(float* at, float x) { *at = x; }
__device__ __forceinline__ void put(bf16* at, float x) { at->bits = bf16_bits(x); }
__device__ __forceinline__ void put_pair(float* at, float x, float y) { *(float2*)at = make_float2(x, y); }
__device__ __forceinline__ void put_pair(bf16* at, float x, float y) { *(u32*)at = bf16_pair(x, y); }

// Scores are natural logarithms where exact, else binary ones: the powers then take one instruction.
#define LOG2_E 1.44269504f
#define LN_2 0.693147181f
#if EXACT
#define NATS 1.0f
#else
#define NATS LN_2
#endif

__device__ __forceinline__ float exponential(float x) {
#if EXACT
    return expf(x);
#else
    return power_of_two(x);
#endif
}

__device__ __forceinline__ float logarithm(float x) {
#if EXACT
    return logf(x);
#else
    return binary_logarithm(x);
#endif
}

// Standard Gumbel noise in the scores' unit; not exact, all of it moved by the same constant, which no choice and no
// softmax sees. The quick logarithm has an absolute error, so -log u near u = 1 is a series.
__device__ __forceinline__ float gumbel_of(u32 word) {
#if EXACT
    return gumbel(word);
#else
    float u = uniform(word);
    float v = 1.0f - u;
    float series = v * fmaf(v, fmaf(v, LOG2_E / 3.0f, 0.5f * LOG2_E), LOG2_E);
    return -binary_logarithm(v < 0.015625f ? series : -binary_logarithm(u));
#endif
}

// Sums over the codes seen so far, relative to the largest scores seen so far.
struct Running {
    float max_q, sum_q;
    float max_p, sum_p;
    // Σ e^(a_q - max_q) (a_q - a_p)
    float cross;
    // The largest perturbed score and the first code that has it.
    float best;
    u32 code;
};

__device__ __forceinline__ Running nothing() {
    Running r;
    r.max_q = r.max_p = r.best = LOWEST;
    r.sum_q = r.sum_p = r.cross = 0.0f;
    r.code = 0;
    return r;
}

__device__ __forceinline__ bool better(float value, u32 code, float than, u32 than_code) {
    return value > than || (value == than && code < than_code);
}

__device__ __forceinline__ void merge(Running& a, const Running& b) {
    float max_q = fmaxf(a.max_q, b.max_q);
    float of_a = exponential(a.max_q - max_q), of_b = exponential(b.max_q - max_q);
    a.sum_q = a.sum_q * of_a + b.sum_q * of_b;
    a.cross = a.cross * of_a + b.cross * of_b;
    a.max_q = max_q;
#if PRIOR
    float max_p = fmaxf(a.max_p, b.max_p);
    a.sum_p = a.sum_p * exponential(a.max_p - max_p) + b.sum_p * exponential(b.max_p - max_p);
    a.max_p = max_p;
#endif
    if (better(b.best, b.code, a.best, a.code)) {
        a.best = b.best;
        a.code = b.code;
    }
}

// Merges with the lane whose number differs in `bit`.
__device__ __forceinline__ void merge_lanes(Running& a, int bit) {
    Running b;
    b.max_q = __shfl_xor_sync(~0u, a.max_q, bit);
    b.sum_q = __shfl_xor_sync(~0u, a.sum_q, bit);
    b.cross = __shfl_xor_sync(~0u, a.cross, bit);
#if PRIOR
    b.max_p = __shfl_xor_sync(~0u, a.max_p, bit);
    b.sum_p = __shfl_xor_sync(~0u, a.sum_p, bit);
#endif
    b.best = __shfl_xor_sync(~0u, a.best, bit);
    b.code = __shfl_xor_sync(~0u, a.code, bit);
    merge(a, b);
}

// KL(q‖p) = Σ q (a_q - a_p) - ln Σ e^a_q + ln Σ e^a_p, in nats; without a prior's scores a_p = 0 for all codes.
__device__ __forceinline__ float divergence(const Running& r) {
    float of_q = r.max_q + logarithm(r.sum_q);
#if PRIOR
    float of_p = r.max_p + logarithm(r.sum_p);
#else
    float of_p = logarithm((float)CODES);
#endif
    return NATS * (r.cross / r.sum_q - (of_q - of_p));
}

// What the gradient of a score needs to know of its row.
//
// Through the sample a score has y (dy - <y, dy>) / tau with y the Gumbel-softmax, or with ReinMax
// (D + s)(dy - ½ <D + s, dy>) - ½ q (dy - <q, dy>), where D is the one-hot sample and s = softmax(a_q / tau), without noise.
struct Row {
    float max_q, inverse_q;
    float max_p, inverse_p;
#if REINMAX
    // Σ q dy, 1 / Σ e^((a_q - max_q) / tau), ½ <D + s, dy>
    float mean, inverse_y, flow;
#else
    float best, inverse_y;
    // Σ y dy
    float flow;
#endif
    // Σ q (a_q - a_p)
    float cross;
};
