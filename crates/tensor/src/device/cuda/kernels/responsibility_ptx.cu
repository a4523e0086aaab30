// The instructions CUDA C++ has no name for. Fragments are those of m16n8k16: with g = lane / 4 and t = lane % 4,
// A is (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), two neighbours in k to a register; B is (k 2t, n g) and
// (k 2t + 8, n g); C is (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

__device__ __forceinline__ unsigned short bf16_bits(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// `low` in the lower half.
__device__ __forceinline__ u32 bf16_pair(float low, float high) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// C += A B.
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 × 8; lane 8m + r holds the address of row r of matrix m. A thread gets (g, 2t) of each.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], const unsigned short* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

// The same, each matrix transposed: a thread gets (2t, g) and (2t + 1, g).
__device__ __forceinline__ void load_transposed(u32 (&r)[4], const unsigned short* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

// A matrix of 8 × 8 across the warp, transposed.
__device__ __forceinline__ u32 transposed(u32 x) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}

__device__ __forceinline__ float power_of_two(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ float binary_logarithm(float x) {
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
