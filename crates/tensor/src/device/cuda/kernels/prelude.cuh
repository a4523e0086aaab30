// What every generated kernel may use: bf16, vector accesses, element-wise functions, reductions, noise.
typedef unsigned char u8;
typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v << 16); }

// Two floats rounded to nearest even; the first in the low half.
__device__ __forceinline__ u32 narrow2(float a, float b) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}

template <int V> __device__ __forceinline__ void load(const float* p, float (&r)[V]) {
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V / 4; i++) {
            float4 q = ((const float4*)p)[i];
            r[4 * i] = q.x; r[4 * i + 1] = q.y; r[4 * i + 2] = q.z; r[4 * i + 3] = q.w;
        }
    } else if constexpr (V == 2) {
        float2 q = *(const float2*)p;
        r[0] = q.x; r[1] = q.y;
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) r[i] = p[i];
    }
}

__device__ __forceinline__ void spread2(u32 q, float& a, float& b) {
    a = __uint_as_float(q << 16);
    b = __uint_as_float(q & 0xffff0000u);
}

template <int V> __device__ __forceinline__ void load(const bf16* p, float (&r)[V]) {
    if constexpr (V == 8) {
        uint4 q = *(const uint4*)p;
        spread2(q.x, r[0], r[1]); spread2(q.y, r[2], r[3]); spread2(q.z, r[4], r[5]); spread2(q.w, r[6], r[7]);
    } else if constexpr (V == 4) {
        uint2 q = *(const uint2*)p;
        spread2(q.x, r[0], r[1]); spread2(q.y, r[2], r[3]);
    } else if constexpr (V == 2) {
        spread2(*(const u32*)p, r[0], r[1]);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) r[i] = widen(p[i]);
    }
}

template <int V> __device__ __forceinline__ void load(const u8* p, float (&r)[V]) {
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V / 4; i++) {
            u32 q = ((const u32*)p)[i];
#pragma unroll
            for (int j = 0; j < 4; j++) r[4 * i + j] = (float)((q >> (8 * j)) & 255u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) r[i] = (float)p[i];
    }
}

template <int V> __device__ __forceinline__ void load(const u32* p, float (&r)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) r[i] = (float)p[i];
}

template <int V> __device__ __forceinline__ void store(float* p, const float (&r)[V]) {
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V / 4; i++)
            ((float4*)p)[i] = make_float4(r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]);
    } else if constexpr (V == 2) {
        *(float2*)p = make_float2(r[0], r[1]);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) p[i] = r[i];
    }
}

template <int V> __device__ __forceinline__ void store(bf16* p, const float (&r)[V]) {
    if constexpr (V == 8) {
        *(uint4*)p = make_uint4(narrow2(r[0], r[1]), narrow2(r[2], r[3]), narrow2(r[4], r[5]), narrow2(r[6], r[7]));
    } else if constexpr (V == 4) {
        *(uint2*)p = make_uint2(narrow2(r[0], r[1]), narrow2(r[2], r[3]));
    } else if constexpr (V == 2) {
        *(u32*)p = narrow2(r[0], r[1]);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) p[i] = (bf16)(narrow2(r[i], 0.0f) & 0xffffu);
    }
}

template <class T> __device__ __forceinline__ float load1(const T* p) {
    float r[1];
    load<1>(p, r);
    return r[0];
}
template <class T> __device__ __forceinline__ void store1(T* p, float v) {
    float r[1] = {v};
    store<1>(p, r);
}

__device__ __forceinline__ float f_elu(float x) { return x > 0.0f ? x : expm1f(x); }
__device__ __forceinline__ float f_slope(float y) { return y > 0.0f ? 1.0f : y + 1.0f; }
__device__ __forceinline__ float f_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float f_softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// Philox 4x32-10: a block of four words for a counter and a key.
__device__ __forceinline__ uint4 philox(uint4 c, u32 k0, u32 k1) {
#pragma unroll
    for (int i = 0; i < 10; i++) {
        u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// The noise of element e: word e / 16 % 4 of block 16 (e / 64) + e % 16. Kind 0 is uniform, 1 normal, 2 Gumbel.
__device__ __forceinline__ float noise(const u32* counter, u32 stream, u64 e, int kind) {
    u32 block = (u32)(e / 64 * 16 + e % 16), word = (u32)(e / 16 % 4);
    uint4 w = philox(make_uint4(block, stream, counter[2], counter[3]), counter[0], counter[1]);
    u32 a = word == 0 ? w.x : word == 1 ? w.y : word == 2 ? w.z : w.w;
    float u = ((float)(a >> 9) + 0.5f) * (1.0f / 8388608.0f);
    if (kind == 0) return u;
    if (kind == 2) return -logf(-logf(u));
    u32 p = word < 2 ? w.x : w.z, q = word < 2 ? w.y : w.w;
    float up = ((float)(p >> 9) + 0.5f) * (1.0f / 8388608.0f), uq = ((float)(q >> 9) + 0.5f) * (1.0f / 8388608.0f);
    float r = sqrtf(-2.0f * logf(up)), s, t;
    sincospif(2.0f * uq, &s, &t);
    return word % 2 == 0 ? r * t : r * s;
}

struct Sum {
    static __device__ __forceinline__ float start() { return 0.0f; }
    static __device__ __forceinline__ float join(float a, float b) { return a + b; }
};
struct Max {
    static __device__ __forceinline__ float start() { return __int_as_float(0xff800000); }
    static __device__ __forceinline__ float join(float a, float b) { return fmaxf(a, b); }
};

// One value for T threads that stand side by side (32, or a whole block of T), the same in all of them.
template <class R, int T> __device__ __forceinline__ float join_threads(float v) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) v = R::join(v, __shfl_xor_sync(0xffffffffu, v, i));
    if constexpr (T > 32) {
        __shared__ float parts[T / 32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
        __syncthreads();
        v = parts[0];
#pragma unroll
        for (int i = 1; i < T / 32; i++) v = R::join(v, parts[i]);
    }
    return v;
}
