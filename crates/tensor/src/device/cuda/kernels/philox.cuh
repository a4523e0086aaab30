// Random numbers by address, the same words as on the CPU: the key is the seed, the counter is
// (block, stream, step low, step high), and element 64c + 16j + l takes word j of block 16c + l.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Noise {
    u32 seed[2];
    u32 stream;
    u32 step[2];
};

__device__ __forceinline__ Noise noise_of(const u32* counter, u32 stream) {
    Noise n;
    n.seed[0] = counter[0];
    n.seed[1] = counter[1];
    n.step[0] = counter[2];
    n.step[1] = counter[3];
    n.stream = stream;
    return n;
}

// The four words of one block.
__device__ __forceinline__ void philox(const Noise& n, u32 block, u32 (&word)[4]) {
    u32 a = block, b = n.stream, c = n.step[0], d = n.step[1];
    u32 key0 = n.seed[0], key1 = n.seed[1];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 low = (u64)a * 0xd2511f53u;
        u64 high = (u64)c * 0xcd9e8d57u;
        a = (u32)(high >> 32) ^ b ^ key0;
        b = (u32)high;
        c = (u32)(low >> 32) ^ d ^ key1;
        d = (u32)low;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    word[0] = a;
    word[1] = b;
    word[2] = c;
    word[3] = d;
}

// The middle of one of 2^23 equal cells of (0, 1). Bits under an exponent of one, less 1 - 2^-24: exact.
__device__ __forceinline__ float uniform(u32 bits) {
    return __uint_as_float(0x3f800000u | (bits >> 9)) - 0.99999994f;
}

// -ln(-ln u).
__device__ __forceinline__ float gumbel(u32 bits) {
    float u = uniform(bits);
    return -logf(-logf(u));
}

// The same within some millionths. The quick logarithm has an absolute error, so -ln u near u = 1 is a series.
__device__ __forceinline__ float quick_gumbel(u32 bits) {
    float u = uniform(bits);
    float v = 1.0f - u;
    float series = v * fmaf(v, fmaf(v, fmaf(v, fmaf(v, fmaf(v, 0.16666667f, 0.2f), 0.25f), 0.33333334f), 0.5f), 1.0f);
    float e = u > 0.875f ? series : -__logf(u);
    return -__logf(e);
}
