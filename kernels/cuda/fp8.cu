/* Casts to 8 bits, transposes of 8 bits, factors (formulas: ref/fp8.c). A block has 128 rows and 64 columns; a thread
 * eight columns of four rows: 16 bytes of each row come in, 8 go out, and what stands below one another in the four rows
 * is one word of the transposed tile, whose columns then leave 16 bytes at a time. */
#include "kernels/cuda/cuda_kernels.h"

#include <cuda_fp8.h>

#include "kernels/cuda/cuda_common.cuh"

enum { TILE_ROWS = 128, TILE_COLUMNS = 64, ROWS_EACH = 4, ACROSS = TILE_COLUMNS / VECTOR };
static_assert(THREADS / ACROSS * ROWS_EACH == TILE_ROWS, "a block has its rows in one go");

struct cast_job {
    int rows, columns;
    const void *x; /* elements, or 8 bits */
    const float *scale;
    unsigned char *y, *transposed;
    float *amax;
};

/* Eight times 8 bits; bytes from n on are not written. */
template <bool ALIGNED> static __device__ __forceinline__ void store_bytes(unsigned char *to, int n, uint2 v)
{
    if constexpr (ALIGNED) {
        if (n > 0)
            *reinterpret_cast<uint2 *>(to) = v;
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            if (i < n)
                to[i] = (unsigned char)((i < 4 ? v.x : v.y) >> 8 * (i % 4));
    }
}

template <bool ALIGNED> static __device__ __forceinline__ uint2 load_bytes(const unsigned char *from, int n)
{
    if constexpr (ALIGNED) {
        return n > 0 ? *reinterpret_cast<const uint2 *>(from) : make_uint2(0, 0);
    } else {
        uint32_t word[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            word[i / 4] |= i < n ? (uint32_t)from[i] << 8 * (i % 4) : 0;
        return make_uint2(word[0], word[1]);
    }
}

template <bool WIDE> static __device__ __forceinline__ uint32_t two_in_8_bits(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, WIDE ? __NV_E5M2 : __NV_E4M3);
}

/* Eight elements, scaled; *most grows. */
template <bool ALIGNED, bool WIDE>
static __device__ __forceinline__ uint2 cast_eight(const element_t *x, int left, float scale, float *most)
{
    float value[VECTOR];
    unpack(load_vector<ALIGNED>(x, left), value);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        *most = fmaxf(*most, fabsf(value[i]));
        value[i] *= scale;
    }
    return make_uint2(two_in_8_bits<WIDE>(value[0], value[1]) | two_in_8_bits<WIDE>(value[2], value[3]) << 16,
                      two_in_8_bits<WIDE>(value[4], value[5]) | two_in_8_bits<WIDE>(value[6], value[7]) << 16);
}

struct byte_tile {
    uint32_t word[TILE_COLUMNS][TILE_ROWS / ROWS_EACH + 1];
};

/* Columns of the tile become rows of `transposed`. All threads of the block. */
template <bool ALIGNED>
static __device__ __forceinline__ void store_transposed(const cast_job &j, const uint2 (&eight)[ROWS_EACH],
                                                        byte_tile &tile)
{
    int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        uint32_t word = 0;
#pragma unroll
        for (int r = 0; r < ROWS_EACH; r++)
            word |= ((i < 4 ? eight[r].x : eight[r].y) >> 8 * (i % 4) & 0xff) << 8 * r;
        tile.word[across * VECTOR + i][down] = word;
    }
    __syncthreads();
    const int pieces = TILE_ROWS / 8;
    for (int i = (int)threadIdx.x; i < TILE_COLUMNS * pieces; i += THREADS) {
        int column = i / pieces, piece = i % pieces, c = (int)blockIdx.x * TILE_COLUMNS + column;
        int r = (int)blockIdx.y * TILE_ROWS + piece * 8;
        const uint32_t *from = &tile.word[column][piece * 2];
        if (c < j.columns)
            store_bytes<ALIGNED>(j.transposed + (int64_t)c * j.rows + r, j.rows - r, make_uint2(from[0], from[1]));
    }
}

template <bool ALIGNED, bool WIDE> static __global__ void __launch_bounds__(THREADS) cast_kernel(cast_job j)
{
    SHARED(byte_tile, tile, [1]);
    SHARED(row_partials, partial, [1]);
    int c = (int)blockIdx.x * TILE_COLUMNS + (int)threadIdx.x % ACROSS * VECTOR;
    int first = (int)blockIdx.y * TILE_ROWS + (int)threadIdx.x / ACROSS * ROWS_EACH;
    float scale = *j.scale, most = 0;
    uint2 eight[ROWS_EACH];
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        int64_t at = (int64_t)(first + i) * j.columns + c;
        int left = first + i < j.rows ? j.columns - c : 0;
        eight[i] = cast_eight<ALIGNED, WIDE>(static_cast<const element_t *>(j.x) + at, left, scale, &most);
        if (j.y)
            store_bytes<ALIGNED>(j.y + at, left, eight[i]);
    }
    if (j.transposed)
        store_transposed<ALIGNED>(j, eight, tile[0]);
    most = block_max(most, partial[0], 0);
    if (threadIdx.x == 0) /* no sign: floats are in the order of their bits */
        atomicMax(reinterpret_cast<unsigned *>(j.amax), __float_as_uint(most));
}

template <bool ALIGNED> static __global__ void __launch_bounds__(THREADS) transpose_kernel(cast_job j)
{
    SHARED(byte_tile, tile, [1]);
    int c = (int)blockIdx.x * TILE_COLUMNS + (int)threadIdx.x % ACROSS * VECTOR;
    int first = (int)blockIdx.y * TILE_ROWS + (int)threadIdx.x / ACROSS * ROWS_EACH;
    uint2 eight[ROWS_EACH];
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++)
        eight[i] = load_bytes<ALIGNED>(static_cast<const unsigned char *>(j.x) + (int64_t)(first + i) * j.columns + c,
                                       first + i < j.rows ? j.columns - c : 0);
    store_transposed<ALIGNED>(j, eight, tile[0]);
}

static dim3 tiles_of(int rows, int columns)
{
    return dim3((unsigned)divide_up<int>(columns, TILE_COLUMNS), (unsigned)divide_up<int>(rows, TILE_ROWS));
}

static bool is_whole(const cast_job &j)
{
    return j.rows % VECTOR == 0 && j.columns % VECTOR == 0 && is_aligned(j.x, 0) && is_aligned(j.y, 0) &&
           is_aligned(j.transposed, 0);
}

template <bool WIDE> static void launch_cast(cudaStream_t stream, const cast_job &j)
{
    if (is_whole(j))
        LAUNCH((cast_kernel<true, WIDE>), tiles_of(j.rows, j.columns), THREADS, 0, stream, j);
    else
        LAUNCH((cast_kernel<false, WIDE>), tiles_of(j.rows, j.columns), THREADS, 0, stream, j);
}

void cuda_fp8_cast(void *queue, const struct fp8_cast *cast)
{
    if (cast->rows == 0 || cast->columns == 0)
        return;
    cast_job j = {cast->rows,
                  cast->columns,
                  cast->x,
                  cast->scale,
                  static_cast<unsigned char *>(cast->y),
                  static_cast<unsigned char *>(cast->transposed),
                  cast->amax};
    if (cast->format == ELEMENT_E5M2)
        launch_cast<true>(stream_of(queue), j);
    else
        launch_cast<false>(stream_of(queue), j);
    check_launch("fp8_cast");
}

void cuda_fp8_transpose(void *queue, int rows, int columns, const void *x, void *y)
{
    if (rows == 0 || columns == 0)
        return;
    cast_job j = {rows, columns, x, nullptr, nullptr, static_cast<unsigned char *>(y), nullptr};
    LAUNCH_ALIGNED(is_whole(j), transpose_kernel, tiles_of(rows, columns), THREADS, 0, stream_of(queue), j);
    check_launch("fp8_transpose");
}

/* -- factors ---------------------------------------------------------------------------------------------------------- */

/* A block has 32 matrices; its 32 warps share the rows of the history. */
static __global__ void __launch_bounds__(WARP *WARP) update_kernel(fp8_update u)
{
    SHARED(float, most, [WARP][WARP + 1]);
    int i = (int)(blockIdx.x * WARP + threadIdx.x);
    float largest = 0;
    if (i < u.n && threadIdx.y == 0) {
        largest = isfinite(u.amax[i]) ? u.amax[i] : 0;
        u.history[(int64_t)u.row * u.n + i] = largest;
        u.amax[i] = 0;
    }
    for (int r = (int)threadIdx.y; i < u.n && r < u.rows; r += WARP)
        if (r != u.row)
            largest = fmaxf(largest, u.history[(int64_t)r * u.n + i]);
    most[threadIdx.y][threadIdx.x] = largest;
    __syncthreads();
    largest = warp_max(most[threadIdx.x][threadIdx.y]); /* warp y has matrix y */
    i = (int)(blockIdx.x * WARP + threadIdx.y);
    if (threadIdx.x > 0 || i >= u.n || largest == 0)
        return;
    float scale = ldexpf(u.limit[i] / largest, -u.margin);
    scale = isfinite(scale) ? scale : 0x1.fffffep127f;
    if (u.power_of_two)
        scale = __uint_as_float(__float_as_uint(scale) & 0x7f800000u);
    u.scale[i] = scale;
    u.inverse[i] = 1 / scale;
}

void cuda_fp8_update(void *queue, const struct fp8_update *update)
{
    if (update->n > 0)
        LAUNCH(update_kernel, (unsigned)divide_up<int>(update->n, WARP), dim3(WARP, WARP), 0, stream_of(queue),
               *update);
    check_launch("fp8_update");
}
