/* What the attention kernels share: tiles in shared memory, products of tiles on tensor cores, and the range of tiles
 * that a block has to look at.
 *
 * A tile is ROWS x D bf16 in shared memory, cut into panels of 64 columns (32 where D is no multiple of 64); within a
 * panel the 16-byte chunks of a row are permuted by the row, so that eight rows at one column lie in eight different
 * bank groups, for ldmatrix as for the 16-byte stores.
 *
 * Products have the m16n8k16 shape: a warp owns 16 * M rows, c[m][n][0..1] are row lane / 4, columns
 * 2 * (lane % 4) + 0..1 of the 8-column group n, c[m][n][2..3] eight rows below. */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include <math.h>
#include <stdint.h>

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/primitives.cuh"
#include "kernels/kernels.h"

static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* A call, with what all threads would work out again. */
struct attention_call {
    struct attention a;
    float scale_log2;            /* scale * log2(e): exponentials are powers of two */
    int step_q, step_kv, step_o; /* elements from a row of a sequence to its next */
};

static inline attention_call call_of(const struct attention *a)
{
    return {*a, a->scale * LOG2_E, a->batch * a->stride_q, a->batch * a->stride_kv, a->batch * a->stride_o};
}

template <int D, int ROWS> struct tile {
    static constexpr int panel = D % 64 == 0 ? 64 : 32, chunks = panel / 8, bytes = ROWS * D * 2;
    /* Byte offset of the 16-byte chunk (8 columns) of a row. */
    static __device__ uint32_t at(int row, int chunk)
    {
        int within = chunk % chunks ^ (panel == 64 ? row & 7 : row >> 1 & 3);
        return chunk / chunks * (ROWS * panel * 2) + row * (panel * 2) + within * 16;
    }
    /* From the address of chunk 0 or 1 of a row to that of an even number of chunks further: one instruction. */
    static __device__ uint32_t further(uint32_t address, int chunk)
    {
        return (address ^ chunk % chunks * 16) + chunk / chunks * (ROWS * panel * 2);
    }
};

/* Rows of one head of one sequence in memory: row r starts at first + r * step. */
template <typename T> struct head_rows {
    T *first;
    int step;
};

template <typename T>
static __device__ __forceinline__ head_rows<T> rows_of(T *base, int stride, int step, const struct attention &a,
                                                       int batch, int head)
{
    return {base + (int64_t)batch * stride + (int64_t)head * a.head_dim, step};
}

static __device__ __forceinline__ int lane_index()
{
    return (int)threadIdx.x % WARP;
}

/* Starts copying rows [row, row + ROWS); beyond the last of `rows` rows come copies of that one, which a mask has to
 * hide; columns from width on become 0. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_load(char *memory, uint32_t to, head_rows<const element_t> from, int row,
                                                 int rows, int width)
{
    constexpr int across = D / 8 & -(D / 8), down = THREADS / across; /* threads by chunks and by rows */
    static_assert(ROWS % down == 0 && down % 8 == 0, "the permutation of chunks must not depend on i");
    int chunk = (int)threadIdx.x % across, r = (int)threadIdx.x / across;
    to += tile<D, ROWS>::at(r, chunk);
#pragma unroll
    for (int i = 0; i < ROWS; i += down) {
        int source = row + r + i < rows ? row + r + i : rows - 1;
#pragma unroll
        for (int c = 0; c < D / 8; c += across)
            cp_async_16(memory + tile<D, ROWS>::further(to, c) + i * tile<D, ROWS>::panel * 2,
                        from.first + (int64_t)source * from.step + (chunk + c) * 8, (chunk + c) * 8 < width);
    }
}

/* c = a b^T: rows [row, row + 16 M) of tile a against all N rows of tile b. */
template <int D, int ROWS_A, int N, int M>
static __device__ __forceinline__ void product_rows(const char *memory, uint32_t a, int row, uint32_t b,
                                                    float (&c)[M][N / 8][4])
{
    int lane = lane_index();
    a += tile<D, ROWS_A>::at(row + lane % 16, lane / 16);
    b += tile<D, N>::at(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            ldmatrix_x4(fa[m], memory + tile<D, ROWS_A>::further(a, 2 * k) + m * 16 * tile<D, ROWS_A>::panel * 2);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t fb[4];
            ldmatrix_x4(fb, memory + tile<D, N>::further(b, 2 * k) + n * 16 * tile<D, N>::panel * 2);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816(c[m][2 * n], fa[m], {fb[0], fb[1]});
                mma_16816(c[m][2 * n + 1], fa[m], {fb[2], fb[3]});
            }
        }
    }
}

/* The result of a product as bf16, as the left side of the next one. */
template <int M, int N>
static __device__ __forceinline__ void pack_rows(const float (&p)[M][N / 8][4], uint32_t (&packed)[M][N / 16][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                packed[m][n / 2][n % 2 * 2 + r] = pack_elements(p[m][n][2 * r], p[m][n][2 * r + 1]);
}

/* c += p b: p (16 M rows x K columns) from registers, as bf16: p[m][k] is the fragment of 16 columns; b K x D. */
template <int D, int K, int M>
static __device__ __forceinline__ void product_columns(const uint32_t (&p)[M][K / 16][4], const char *memory,
                                                       uint32_t b, float (&c)[M][D / 8][4])
{
    b += tile<D, K>::at(lane_index() % 16, lane_index() / 16);
#pragma unroll
    for (int k = 0; k < K / 16; k++)
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t fb[4];
            ldmatrix_x4_trans(fb, memory + tile<D, K>::further(b, 2 * n) + k * 16 * tile<D, K>::panel * 2);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816(c[m][2 * n], p[m][k], {fb[0], fb[1]});
                mma_16816(c[m][2 * n + 1], p[m][k], {fb[2], fb[3]});
            }
        }
}

/* Tiles [begin, end) hold all pairs that see one another; those in [full_begin, full_end) need no mask. */
struct tile_range {
    int begin, full_begin, full_end, end;
};

/* How many of the tiles have a first (last) position below a limit; the whole warp counts. */
static __device__ __forceinline__ int tiles_below(const int *position, int n, int size, bool last, int64_t limit)
{
    int count = 0;
    for (int t = lane_index(); t * size < n; t += WARP) {
        int at = !last ? t * size : (t + 1) * size <= n ? (t + 1) * size - 1 : n - 1;
        count += position[at] < limit;
    }
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        count += __shfl_xor_sync(ALL_LANES, count, offset);
    return __shfl_sync(ALL_LANES, count, 0); /* the compiler then knows that all lanes have the same */
}

/* Tiles of `size` keys for the queries [first, end). */
static __device__ __forceinline__ tile_range key_tiles(const struct attention &a, int first, int end, int size)
{
    int64_t low = a.position_q[first], high = a.position_q[end - 1];
    tile_range r = {0, 0, 0, 0};
    r.end = tiles_below(a.position_k, a.keys, size, false, high + 1);
    r.full_end = tiles_below(a.position_k, a.keys, size, true, low + 1);
    if (r.full_end > a.keys / size)
        r.full_end = a.keys / size;
    if (a.window > 0) {
        r.begin = tiles_below(a.position_k, a.keys, size, true, low - a.window + 1);
        r.full_begin = tiles_below(a.position_k, a.keys, size, false, high - a.window + 1);
    }
    return r;
}

/* Tiles of `size` queries for the keys [first, end). */
static __device__ __forceinline__ tile_range query_tiles(const struct attention &a, int first, int end, int size)
{
    int64_t low = a.position_k[first], high = a.position_k[end - 1];
    int tiles = (a.queries + size - 1) / size;
    tile_range r = {0, 0, a.queries / size, tiles};
    r.begin = tiles_below(a.position_q, a.queries, size, true, low);
    r.full_begin = tiles_below(a.position_q, a.queries, size, false, high);
    if (a.window > 0) {
        int full = tiles_below(a.position_q, a.queries, size, true, low + a.window);
        r.end = tiles_below(a.position_q, a.queries, size, false, high + a.window);
        r.full_end = full < r.full_end ? full : r.full_end;
    }
    return r;
}

/* query - key as unsigned is below this where the query sees the key. */
static __device__ __forceinline__ uint32_t sight(const struct attention &a)
{
    return a.window > 0 ? (uint32_t)a.window : 0x80000000u;
}

/* Positions (they are not negative) of rows that do not exist: nothing sees them, they see nothing. */
static constexpr int NO_KEY = INT32_MAX, NO_QUERY = -1;

static __device__ __forceinline__ int position_of(const int *position, int index, int n, int none)
{
    return index < n ? position[index] : none;
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* Scores of this thread's rows, the queries row, row + 8, ..., against the keys from `first` on: -infinity where not
 * seen. */
template <int M, int N>
static __device__ __forceinline__ void mask_keys(const struct attention &a, int row, int first, float (&s)[M][N / 8][4])
{
    uint32_t limit = sight(a);
    int query[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++)
        query[i / 2][i % 2] = position_of(a.position_q, row + i * 8, a.queries, NO_QUERY);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int key = position_of(a.position_k, first + n * 8 + lane_index() % 4 * 2 + c, a.keys, NO_KEY);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    if ((uint32_t)query[m][r] - (uint32_t)key >= limit)
                        s[m][n][2 * r + c] = -INFINITY;
        }
}

/* More than 48 KiB a block have to be asked for. */
template <class Kernel> static inline void shared_memory_limit(Kernel kernel, int bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/* The tensor-core kernels copy 16 bytes at a time and take the maximum before scaling; head_dim is padded to an
 * instance. Everything else runs on the plain kernels. */
static inline bool attention_fits_tiles(const struct attention *a)
{
    uintptr_t pointers = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->o;
    return a->head_dim % 8 == 0 && a->head_dim <= 192 && a->scale > 0 && pointers % 16 == 0 && a->stride_q % 8 == 0 &&
           a->stride_kv % 8 == 0 && a->stride_o % 8 == 0;
}

/* Do this GPU and this build have products of warpgroups, and are they wanted? (attention_forward_sm90a.cu) */
bool attention_warpgroups();

/* Plain kernels: a warp a row, lane l the columns l, l + 32, ... */
static constexpr int PLAIN_COLUMNS = 8; /* of a lane: head_dim up to 256 */
static constexpr int PLAIN_WARPS = 4;

static inline void attention_check(const struct attention *a)
{
    if (a->head_dim > PLAIN_COLUMNS * WARP)
        cuda_kernels_fail("attention", "head_dim above 256");
}

static __device__ __forceinline__ void plain_row(float (&x)[PLAIN_COLUMNS], head_rows<const element_t> from, int row,
                                                 int width)
{
    for (int i = 0; i < PLAIN_COLUMNS; i++) {
        int column = lane_index() + i * WARP;
        x[i] = column < width ? __bfloat162float(from.first[(int64_t)row * from.step + column]) : 0;
    }
}

static __device__ __forceinline__ float plain_dot(const float (&x)[PLAIN_COLUMNS], const float (&y)[PLAIN_COLUMNS])
{
    float sum = 0;
    for (int i = 0; i < PLAIN_COLUMNS; i++)
        sum += x[i] * y[i];
    return warp_sum(sum);
}

#endif
