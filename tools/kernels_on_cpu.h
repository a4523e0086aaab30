// Enough of CUDA to run a kernel's source on a CPU, slowly: each thread of a block is a coroutine, and whatever a warp does
// together waits until all its lanes are there. Included by what kernels_on_cpu.py writes.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    u32 number;
    bool done;
};
static ucontext_t scheduler;
static std::vector<Thread> threads;
static Thread* now;
static u32 block_size;
static float4* shared_memory;
struct Dim { u32 x, y, z; };
static Dim blockIdx, gridDim;
static struct { struct { operator u32() const { return now->number; } } x; } threadIdx;

static u32 lane() { return now->number % 32; }

// A barrier: the last to come lets all go.
struct Barrier { u32 waiting, round; };
static Barrier of_block, of_warp[32];
static void wait(Barrier& barrier, u32 count) {
    u32 round = barrier.round;
    if (++barrier.waiting == count) {
        barrier.waiting = 0;
        barrier.round++;
    }
    while (barrier.round == round) swapcontext(&now->context, &scheduler);
}
static void __syncthreads() { wait(of_block, block_size); }
static void __syncwarp() { wait(of_warp[now->number / 32], 32); }

// What the lanes of a warp show each other.
struct Shown {
    u32 word[32], a[32][4], b[32][2];
    const u16* row[32];
};
static Shown shown_by[32];
static Shown& shown() { return shown_by[now->number / 32]; }

static u32 bits_of(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
static float float_of(u32 bits) { float x; memcpy(&x, &bits, 4); return x; }
static float __uint_as_float(u32 x) { return float_of(x); }
static u32 __float_as_uint(float x) { return bits_of(x); }
static float __fdividef(float x, float y) { return x / y; }
static int __ffs(u32 x) { return __builtin_ffs(x); }
template <typename T> static T min(T x, T y) { return x < y ? x : y; }

static u32 word_of(u32 word, u32 from) {
    shown().word[lane()] = word;
    __syncwarp();
    u32 got = shown().word[from % 32];
    __syncwarp();
    return got;
}
static u32 __shfl_sync(u32, u32 x, u32 from) { return word_of(x, from); }
static float __shfl_sync(u32, float x, u32 from) { return float_of(word_of(bits_of(x), from)); }
static u32 __shfl_xor_sync(u32, u32 x, int bit) { return word_of(x, lane() ^ bit); }
static float __shfl_xor_sync(u32, float x, int bit) { return float_of(word_of(bits_of(x), lane() ^ bit)); }
static u32 __ballot_sync(u32, bool yes) {
    shown().word[lane()] = yes;
    __syncwarp();
    u32 votes = 0;
    for (int i = 0; i < 32; i++) votes |= shown().word[i] << i;
    __syncwarp();
    return votes;
}

// The instructions of responsibility_ptx.cu.
static u16 bf16_bits(float x) {
    u32 bits = bits_of(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static u32 bf16_pair(float low, float high) { return bf16_bits(low) | (u32)bf16_bits(high) << 16; }
static float half_of(u32 pair, u32 which) { return float_of(which ? pair & 0xffff0000u : pair << 16); }
static void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    Shown& s = shown();
    for (int i = 0; i < 4; i++) s.a[lane()][i] = a[i];
    s.b[lane()][0] = b0;
    s.b[lane()][1] = b1;
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        u32 row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
        for (u32 k = 0; k < 16; k++) {
            u32 of_a = s.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], of_b = s.b[column * 4 + k % 8 / 2][k / 8];
            c[i] += half_of(of_a, k % 2) * half_of(of_b, k % 2);
        }
    }
    __syncwarp();
}
static void matrices(u32 (&r)[4], const u16* row, bool turned) {
    if ((size_t)row % 16) {
        fprintf(stderr, "a row of a matrix is not aligned\n");
        exit(1);
    }
    Shown& s = shown();
    s.row[lane()] = row;
    __syncwarp();
    u32 g = lane() / 4, t = lane() % 4;
    for (int m = 0; m < 4; m++) {
        u32 low = turned ? s.row[8 * m + 2 * t][g] : s.row[8 * m + g][2 * t];
        u32 high = turned ? s.row[8 * m + 2 * t + 1][g] : s.row[8 * m + g][2 * t + 1];
        r[m] = low | high << 16;
    }
    __syncwarp();
}
static void load_matrices(u32 (&r)[4], const u16* row) { matrices(r, row, false); }
static void load_transposed(u32 (&r)[4], const u16* row) { matrices(r, row, true); }
static u32 transposed(u32 x) {
    shown().word[lane()] = x;
    __syncwarp();
    u32 g = lane() / 4, t = lane() % 4;
    u32 one = shown().word[2 * t * 4 + g / 2], other = shown().word[(2 * t + 1) * 4 + g / 2];
    __syncwarp();
    return g % 2 ? one >> 16 | (other & 0xffff0000u) : (one & 0xffffu) | other << 16;
}
static float power_of_two(float x) { return exp2f(x); }
static float binary_logarithm(float x) { return log2f(x); }
static void copy_16(void* to, const void* from) { memcpy(to, from, 16); }

template <typename Kernel> struct Entry {
    static Kernel* kernel;
    static void run() {
        (*kernel)();
        now->done = true;
        while (true) swapcontext(&now->context, &scheduler);
    }
};
template <typename Kernel> Kernel* Entry<Kernel>::kernel;

// All blocks, one after the other.
template <typename Kernel> static void launch(u32 columns, u32 rows, u32 count, u32 shared, Kernel kernel) {
    gridDim = {columns, rows, 1};
    block_size = count;
    free(shared_memory);
    shared_memory = (float4*)aligned_alloc(16, (shared + 16) / 16 * 16);
    memset(shared_memory, 0xff, shared);
    if (threads.size() < count) threads.resize(count);
    Entry<Kernel>::kernel = &kernel;
    for (u32 block = 0; block < columns * rows; block++) {
        blockIdx = {block % columns, block / columns, 0};
        of_block = {};
        for (Barrier& warp : of_warp) warp = {};
        for (u32 i = 0; i < count; i++) {
            Thread& thread = threads[i];
            thread.number = i;
            thread.done = false;
            thread.stack.resize(1 << 17);
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.data();
            thread.context.uc_stack.ss_size = thread.stack.size();
            makecontext(&thread.context, Entry<Kernel>::run, 0);
        }
        for (u32 running = count; running > 0;) {
            running = 0;
            for (u32 i = 0; i < count; i++) {
                if (threads[i].done) continue;
                running++;
                now = &threads[i];
                swapcontext(&scheduler, &now->context);
            }
        }
    }
}

static std::vector<char> read_all(const char* name) {
    FILE* file = fopen(name, "rb");
    if (!file) {
        fprintf(stderr, "%s is missing\n", name);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    std::vector<char> bytes(ftell(file));
    rewind(file);
    if (fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) exit(1);
    fclose(file);
    return bytes;
}
static void write_all(const char* name, const std::vector<char>& bytes) {
    FILE* file = fopen(name, "wb");
    if (!file || fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) exit(1);
    fclose(file);
}
