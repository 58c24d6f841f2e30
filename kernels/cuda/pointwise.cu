/* Sums, copies, conversions, rows by index, rotary embedding (formulas: ref/pointwise.c, ref/moe.c). A thread has eight
 * elements: 16 bytes of each array that it reads or writes. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/cuda_common.cuh"

/* -- flat arrays ------------------------------------------------------------------------------------------------------ */

/* launch(aligned, first, n): what can be read as vectors, and the rest. */
template <class Launch> static void in_vectors(int64_t n, bool aligned, Launch launch)
{
    int64_t whole = aligned ? n / VECTOR * VECTOR : 0;
    if (whole > 0)
        launch(true, (int64_t)0, whole);
    if (whole < n)
        launch(false, whole, n - whole);
}

static unsigned flat_blocks(int64_t n)
{
    return (unsigned)divide_up<int64_t>(n, (int64_t)THREADS * VECTOR);
}

/* First of this thread's elements. */
static __device__ __forceinline__ int64_t flat_index()
{
    return ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR;
}

/* How many of the elements from `at` on there are: 8 unless it is the end. */
static __device__ __forceinline__ int flat_left(int64_t n, int64_t at)
{
    return n - at < VECTOR ? (int)(n - at) : VECTOR;
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS) add_kernel(int64_t n, const element_t *x, element_t *y)
{
    int64_t at = flat_index();
    int left = flat_left(n, at);
    float value[VECTOR], more[VECTOR];
    if (left <= 0)
        return;
    unpack(load_vector<ALIGNED>(x + at, left), more);
    unpack(load_vector<ALIGNED>(y + at, left), value);
    for (int i = 0; i < VECTOR; i++)
        value[i] += more[i];
    store_vector<ALIGNED>(y + at, left, pack(value));
}

void cuda_add(void *queue, int64_t n, const void *x, void *y)
{
    const element_t *from = static_cast<const element_t *>(x);
    element_t *to = static_cast<element_t *>(y);
    in_vectors(n, is_aligned(x, 0) && is_aligned(y, 0), [=](bool aligned, int64_t first, int64_t count) {
        LAUNCH_ALIGNED(aligned, add_kernel, flat_blocks(count), THREADS, 0, stream_of(queue), count, from + first,
                       to + first);
    });
    check_launch("add");
}

/* x += y, or x *= factor where y is NULL; then x = bf16(x) where asked. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    floats_kernel(int64_t n, float factor, const float *y, bool round, float *x)
{
    int64_t at = flat_index();
    int left = flat_left(n, at);
    float value[VECTOR], more[VECTOR] = {};
    if (left <= 0)
        return;
    load_floats<ALIGNED>(x + at, left, value);
    if (y)
        load_floats<ALIGNED>(y + at, left, more);
    for (int i = 0; i < VECTOR; i++) {
        value[i] = y ? value[i] + more[i] : value[i] * factor;
        value[i] = round ? __bfloat162float(__float2bfloat16_rn(value[i])) : value[i];
    }
    store_floats<ALIGNED>(x + at, left, value);
}

static void launch_floats(void *queue, int64_t n, float factor, const float *y, bool round, float *x)
{
    in_vectors(n, is_aligned(x, 0) && is_aligned(y, 0), [=](bool aligned, int64_t first, int64_t count) {
        LAUNCH_ALIGNED(aligned, floats_kernel, flat_blocks(count), THREADS, 0, stream_of(queue), count, factor,
                       y ? y + first : y, round, x + first);
    });
    check_launch("floats");
}

void cuda_add_floats(void *queue, int64_t n, const float *x, float *y)
{
    launch_floats(queue, n, 1, x, false, y);
}

void cuda_scale_floats(void *queue, int64_t n, float factor, float *x)
{
    launch_floats(queue, n, factor, nullptr, false, x);
}

void cuda_round_bf16(void *queue, int64_t n, float *x)
{
    launch_floats(queue, n, 1, nullptr, true, x);
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS) widen_kernel(int64_t n, const element_t *x, float *y)
{
    int64_t at = flat_index();
    float value[VECTOR];
    if (at >= n)
        return;
    unpack(load_vector<ALIGNED>(x + at, flat_left(n, at)), value);
    store_floats<ALIGNED>(y + at, flat_left(n, at), value);
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS) narrow_kernel(int64_t n, const float *x, element_t *y)
{
    int64_t at = flat_index();
    float value[VECTOR];
    if (at >= n)
        return;
    load_floats<ALIGNED>(x + at, flat_left(n, at), value);
    store_vector<ALIGNED>(y + at, flat_left(n, at), pack(value));
}

void cuda_convert(void *queue, int64_t n, enum element from, const void *x, enum element to, void *y)
{
    bool vectors = is_aligned(x, 0) && is_aligned(y, 0);
    cudaStream_t stream = stream_of(queue);
    if (n > 0 && from == to)
        cudaMemcpyAsync(y, x, (size_t)n * element_bytes(from), cudaMemcpyDeviceToDevice, stream);
    else if (from == ELEMENT_BF16)
        in_vectors(n, vectors, [=](bool aligned, int64_t first, int64_t count) {
            LAUNCH_ALIGNED(aligned, widen_kernel, flat_blocks(count), THREADS, 0, stream, count,
                           static_cast<const element_t *>(x) + first, static_cast<float *>(y) + first);
        });
    else
        in_vectors(n, vectors, [=](bool aligned, int64_t first, int64_t count) {
            LAUNCH_ALIGNED(aligned, narrow_kernel, flat_blocks(count), THREADS, 0, stream, count,
                           static_cast<const float *>(x) + first, static_cast<element_t *>(y) + first);
        });
    check_launch("convert");
}

/* y[i] = x[index[i]], or y[index[i]] += x[i]. */
static __global__ void __launch_bounds__(THREADS)
    gather_floats_kernel(int64_t n, const int *index, const float *x, float *y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        y[i] = x[index[i]];
}

static __global__ void __launch_bounds__(THREADS)
    scatter_floats_kernel(int64_t n, const int *index, const float *x, float *y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        atomicAdd(&y[index[i]], x[i]);
}

void cuda_gather_floats(void *queue, int64_t n, const int *index, const float *x, float *y)
{
    if (n > 0)
        LAUNCH(gather_floats_kernel, (unsigned)divide_up<int64_t>(n, THREADS), THREADS, 0, stream_of(queue), n, index,
               x, y);
    check_launch("gather_floats");
}

void cuda_scatter_floats(void *queue, int64_t n, const int *index, const float *x, float *y)
{
    if (n > 0)
        LAUNCH(scatter_floats_kernel, (unsigned)divide_up<int64_t>(n, THREADS), THREADS, 0, stream_of(queue), n, index,
               x, y);
    check_launch("scatter_floats");
}

/* -- rows ------------------------------------------------------------------------------------------------------------- */

/* Row r of y = or += row from[r] of x (r where `from` is NULL, the same row always where stride_x is 0) times weight[r];
 * zeros where from[r] - first is not in [0, count). */
struct row_copy {
    int rows, columns;
    const int *from;
    int first, count;
    const float *weight;
    const element_t *x;
    int stride_x;
    bool accumulate;
    element_t *y;
    int stride_y;
};

template <bool ALIGNED> static __global__ void __launch_bounds__(THREADS) copy_rows_kernel(row_copy j)
{
    int c = tile_vector() * VECTOR, left = j.columns - c;
    if (left <= 0)
        return;
    for (int r = tile_row(); r < j.rows; r += tile_step()) {
        int at = j.from ? j.from[r] - j.first : r;
        bool there = at >= 0 && at < j.count;
        element_t *to = j.y + (int64_t)r * j.stride_y + c;
        uint4 v = there ? load_vector<ALIGNED>(j.x + (int64_t)at * j.stride_x + c, left) : make_uint4(0, 0, 0, 0);
        if (j.weight || j.accumulate) {
            float value[VECTOR], before[VECTOR] = {}, weight = j.weight ? j.weight[r] : 1;
            unpack(v, value);
            if (j.accumulate)
                unpack(load_vector<ALIGNED>(to, left), before);
            for (int i = 0; i < VECTOR; i++)
                value[i] = j.accumulate ? before[i] + value[i] * weight : value[i] * weight;
            v = pack(value);
        }
        store_vector<ALIGNED>(to, left, v);
    }
}

static void copy_rows(void *queue, const row_copy &j, const char *name)
{
    if (j.rows == 0 || j.columns == 0)
        return;
    tiling t = tile_rows(j.rows, divide_up<int>(j.columns, VECTOR));
    bool aligned = j.columns % VECTOR == 0 && is_aligned(j.x, j.stride_x) && is_aligned(j.y, j.stride_y);
    LAUNCH_ALIGNED(aligned, copy_rows_kernel, t.grid, t.block, 0, stream_of(queue), j);
    check_launch(name);
}

void cuda_copy_block(void *queue, int rows, int columns, const void *x, int stride_x, bool accumulate, void *y,
                     int stride_y)
{
    copy_rows(queue,
              row_copy{rows, columns, nullptr, 0, rows, nullptr, static_cast<const element_t *>(x), stride_x,
                       accumulate, static_cast<element_t *>(y), stride_y},
              "copy_block");
}

void cuda_bias_add(void *queue, int rows, int columns, const void *bias, void *x)
{
    copy_rows(queue,
              row_copy{rows, columns, nullptr, 0, rows, nullptr, static_cast<const element_t *>(bias), 0, true,
                       static_cast<element_t *>(x), columns},
              "bias_add");
}

void cuda_embedding_forward(void *queue, int rows, int columns, const int *token, int first, int count,
                            const void *table, void *y)
{
    copy_rows(queue,
              row_copy{rows, columns, token, first, count, nullptr, static_cast<const element_t *>(table), columns,
                       false, static_cast<element_t *>(y), columns},
              "embedding_forward");
}

void cuda_gather_rows(void *queue, int rows, int columns, const int *index, const float *weight, const void *x, void *y)
{
    copy_rows(queue,
              row_copy{rows, columns, index, 0, INT32_MAX, weight, static_cast<const element_t *>(x), columns, false,
                       static_cast<element_t *>(y), columns},
              "gather_rows");
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    combine_rows_kernel(int rows, int columns, const int *first, const int *index, const float *weight,
                        const element_t *x, bool accumulate, element_t *y)
{
    int c = tile_vector() * VECTOR, left = columns - c;
    if (left <= 0)
        return;
    for (int r = tile_row(); r < rows; r += tile_step()) {
        float sum[VECTOR] = {}, value[VECTOR];
        element_t *to = y + (int64_t)r * columns + c;
        if (accumulate)
            unpack(load_vector<ALIGNED>(to, left), sum);
        int end = first[r + 1];
#pragma unroll 4
        for (int j = first[r]; j < end; j++) {
            int from = index[j];
            float w = weight ? weight[from] : 1;
            unpack(load_vector<ALIGNED>(x + (int64_t)from * columns + c, left), value);
            for (int i = 0; i < VECTOR; i++)
                sum[i] += value[i] * w;
        }
        store_vector<ALIGNED>(to, left, pack(sum));
    }
}

void cuda_combine_rows(void *queue, int rows, int columns, const int *first, const int *index, const float *weight,
                       const void *x, bool accumulate, void *y)
{
    if (rows == 0 || columns == 0)
        return;
    tiling t = tile_rows(rows, divide_up<int>(columns, VECTOR));
    bool aligned = is_aligned(x, columns) && is_aligned(y, columns);
    LAUNCH_ALIGNED(aligned, combine_rows_kernel, t.grid, t.block, 0, stream_of(queue), rows, columns, first, index,
                   weight, static_cast<const element_t *>(x), accumulate, static_cast<element_t *>(y));
    check_launch("combine_rows");
}

/* A warp a row. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    dot_rows_kernel(int rows, int columns, const int *index, const element_t *x, const element_t *y, float *dot)
{
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y);
    if (row >= rows)
        return;
    const element_t *left = x + (int64_t)row * columns, *right = y + (int64_t)index[row] * columns;
    float sum = 0, a[VECTOR], b[VECTOR];
#pragma unroll 4
    for (int c = (int)threadIdx.x * VECTOR; c < columns; c += WARP * VECTOR) {
        unpack(load_vector<ALIGNED>(left + c, columns - c), a);
        unpack(load_vector<ALIGNED>(right + c, columns - c), b);
        for (int i = 0; i < VECTOR; i++)
            sum += a[i] * b[i];
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        dot[row] = sum;
}

void cuda_dot_rows(void *queue, int rows, int columns, const int *index, const void *x, const void *y, float *dot)
{
    if (rows == 0)
        return;
    const int rows_per_block = THREADS / WARP;
    bool aligned = is_aligned(x, columns) && is_aligned(y, columns);
    LAUNCH_ALIGNED(aligned, dot_rows_kernel, (unsigned)divide_up<int>(rows, rows_per_block), dim3(WARP, rows_per_block),
                   0, stream_of(queue), rows, columns, index, static_cast<const element_t *>(x),
                   static_cast<const element_t *>(y), dot);
    check_launch("dot_rows");
}

/* -- rotary embedding ------------------------------------------------------------------------------------------------- */

/* x: eight pairs of a head, y: rows and heads; the angles of a row are read once for all heads of a thread. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    rotary_kernel(int rows, int heads, int half, int stride, const float *cosine, const float *sine, float sign,
                  element_t *x)
{
    int i = (int)threadIdx.x * VECTOR, left = half - i;
    if (left <= 0)
        return;
    for (int r = (int)blockIdx.x; r < rows; r += (int)gridDim.x) {
        float c[VECTOR], s[VECTOR];
        load_floats<ALIGNED>(cosine + (int64_t)r * half + i, left, c);
        load_floats<ALIGNED>(sine + (int64_t)r * half + i, left, s);
        for (int h = (int)threadIdx.y; h < heads; h += (int)blockDim.y) {
            element_t *low = x + (int64_t)r * stride + 2 * h * half + i, *high = low + half;
            float a[VECTOR], b[VECTOR], turned[VECTOR];
            unpack(load_vector<ALIGNED>(low, left), a);
            unpack(load_vector<ALIGNED>(high, left), b);
            for (int k = 0; k < VECTOR; k++) {
                turned[k] = a[k] * c[k] - b[k] * s[k] * sign;
                b[k] = b[k] * c[k] + a[k] * s[k] * sign;
            }
            store_vector<ALIGNED>(low, left, pack(turned));
            store_vector<ALIGNED>(high, left, pack(b));
        }
    }
}

void cuda_rotary(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                 bool inverse, void *x)
{
    int half = head_dim / 2;
    if (rows == 0 || heads == 0 || half == 0)
        return;
    bool aligned = half % VECTOR == 0 && is_aligned(x, stride) && is_aligned(cosine, 0) && is_aligned(sine, 0);
    unsigned width = (unsigned)divide_up<int>(half, VECTOR), height = THREADS / width;
    height = height < 1 ? 1 : height > (unsigned)heads ? (unsigned)heads : height;
    LAUNCH_ALIGNED(aligned, rotary_kernel, (unsigned)rows, dim3(width, height), 0, stream_of(queue), rows, heads, half,
                   stride, cosine, sine, inverse ? -1.0f : 1.0f, static_cast<element_t *>(x));
    check_launch("rotary");
}
