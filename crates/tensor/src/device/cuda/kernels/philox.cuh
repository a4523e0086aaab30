// Random numbers by address, the same words as on the CPU: the key is the seed, the counter is
// (block, stream, step low, step high), and element 64c + 16j + l takes word j of block 16c + l.

typedef unsigned int u32;
typedef unsigned long long u64;

// Two of the four products of the first two rounds know nothing of the block: what is left of those rounds.
struct Noise {
    u32 third, first, fourth, last;
    u32 key0, key1;
#if SHARDED
    // Elements of the shards before this one.
    u64 before;
#endif
};

#define PHILOX_M0 0xd2511f53u
#define PHILOX_M1 0xcd9e8d57u
#define PHILOX_W0 0x9e3779b9u
#define PHILOX_W1 0xbb67ae85u

// Of a shard, `rows` rows of CODES elements each.
__device__ __forceinline__ Noise noise_of(const u32* counter, u32 stream, u32 rows) {
    u32 key0 = counter[0], key1 = counter[1];
    u64 high = (u64)counter[2] * PHILOX_M1;
    u32 a = (u32)(high >> 32) ^ stream ^ key0;
    u64 low = (u64)a * PHILOX_M0;
    Noise n;
    n.third = counter[3] ^ key1;
    n.first = (u32)high ^ (key0 + PHILOX_W0);
    n.fourth = (u32)(low >> 32) ^ (key1 + PHILOX_W1);
    n.last = (u32)low;
    n.key0 = key0 + 2 * PHILOX_W0;
    n.key1 = key1 + 2 * PHILOX_W1;
#if SHARDED
    n.before = (u64)counter[4] * rows * CODES;
#endif
    return n;
}

// The four words of one block.
__device__ __forceinline__ void philox(const Noise& n, u32 block, u32 (&word)[4]) {
    u64 low = (u64)block * PHILOX_M0;
    u64 high = (u64)((u32)(low >> 32) ^ n.third) * PHILOX_M1;
    u32 a = (u32)(high >> 32) ^ n.first, b = (u32)high, c = n.fourth ^ (u32)low, d = n.last;
    u32 key0 = n.key0, key1 = n.key1;
#pragma unroll
    for (int round = 2; round < 10; round++) {
        low = (u64)a * PHILOX_M0;
        high = (u64)c * PHILOX_M1;
        a = (u32)(high >> 32) ^ b ^ key0;
        b = (u32)high;
        c = (u32)(low >> 32) ^ d ^ key1;
        d = (u32)low;
        key0 += PHILOX_W0;
        key1 += PHILOX_W1;
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
