/* RMSNorm and LayerNorm, backward (formulas: ref/norm.c). Up to 8,192 columns blocks go over rows one after another and
 * keep the sums for the weights' gradients in registers; their partial rows are added by a second kernel. The next row is
 * loaded while this one is summed. Wider rows are read twice, and the weights' gradients are a kernel of their own. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/norm.cuh"

struct norm_gradient {
    const element_t *dy;
    element_t *dx;
    bool accumulate;
    float *dweight, *dbias; /* partial rows; dbias NULL = none */
};

/* Sums over the row of g = dy weight and of g xhat; the weights' sums on the way. */
template <int V, bool BIAS>
static __device__ __forceinline__ float2 row_sums(const uint4 (&x)[V], const uint4 (&dy)[V], const uint4 (&weight)[V],
                                                  float mean, float rstd, float (&dweight)[V][VECTOR],
                                                  float (&dbias)[V][VECTOR])
{
    float2 sums = make_float2(0, 0);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float value[VECTOR], gradient[VECTOR], scale[VECTOR];
        unpack(x[k], value);
        unpack(dy[k], gradient);
        unpack(weight[k], scale);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            float xhat = (value[i] - mean) * rstd, g = gradient[i] * scale[i];
            sums.x += g;
            sums.y += g * xhat;
            dweight[k][i] += gradient[i] * xhat;
            if (BIAS)
                dbias[k][i] += gradient[i];
        }
    }
    return sums;
}

/* rstd (g - mean of g - xhat mean of g xhat). */
static __device__ __forceinline__ uint4 row_gradient(uint4 x, uint4 dy, uint4 weight, uint4 before, float mean,
                                                     float rstd, float2 means)
{
    float value[VECTOR], gradient[VECTOR], scale[VECTOR], sum[VECTOR];
    unpack(x, value);
    unpack(dy, gradient);
    unpack(weight, scale);
    unpack(before, sum);
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        sum[i] += rstd * (gradient[i] * scale[i] - means.x - (value[i] - mean) * rstd * means.y);
    return pack(sum);
}

template <int V, bool ALIGNED>
static __device__ __forceinline__ void store_sums(float *row, int columns, const float (&sum)[V][VECTOR])
{
#pragma unroll
    for (int k = 0; k < V; k++) {
        int c = ((int)threadIdx.x + k * (int)blockDim.x) * VECTOR;
        store_floats<ALIGNED>(row + c, columns - c, sum[k]);
    }
}

template <int V, bool ALIGNED, bool BIAS>
static __global__ void __launch_bounds__(V == 1 ? THREADS : THREADS_MOST, V == 1 ? 3 : 1)
    norm_backward_kernel(norm_rows n, norm_gradient d)
{
    SHARED(row_partials, partial, [1]);
    int first = (int)(blockIdx.x * blockDim.y + threadIdx.y), step = (int)(gridDim.x * blockDim.y), phase = 0;
    uint4 x[V] = {}, dy[V] = {}, weight[V] = {};
    float dweight[V][VECTOR] = {}, dbias[V][VECTOR] = {};
    float mean = 0, rstd = 0;
    if (!BIAS)
        load_row<V, ALIGNED>(n.weight, n.columns, weight);
    if (first < n.rows) {
        load_row<V, ALIGNED>(n.x + (int64_t)first * n.stride, n.columns, x);
        load_row<V, ALIGNED>(d.dy + (int64_t)first * n.stride, n.columns, dy);
        mean = n.mean[first];
        rstd = n.rstd[first];
    }
    for (int row = first; row < n.rows; row += step, phase ^= 1) {
        uint4 next_x[V] = {}, next_dy[V] = {}, before[V] = {};
        float next_mean = 0, next_rstd = 0;
        int64_t start = (int64_t)row * n.stride, next = start + (int64_t)step * n.stride;
        if (row + step < n.rows) {
            load_row<V, ALIGNED>(n.x + next, n.columns, next_x);
            load_row<V, ALIGNED>(d.dy + next, n.columns, next_dy);
            next_mean = n.mean[row + step];
            next_rstd = n.rstd[row + step];
        }
        if (BIAS) /* their sums need the registers: the weights stay in the cache */
            load_row<V, ALIGNED>(n.weight, n.columns, weight);
        if (d.accumulate)
            load_row<V, ALIGNED>(d.dx + start, n.columns, before);
        float2 sums = row_sums<V, BIAS>(x, dy, weight, mean, rstd, dweight, dbias);
        sums = block_sum2<V == 1>(sums, partial[0], phase);
        sums.x = n.centred ? sums.x / (float)n.columns : 0;
        sums.y /= (float)n.columns;
#pragma unroll
        for (int k = 0; k < V; k++) {
            int c = ((int)threadIdx.x + k * (int)blockDim.x) * VECTOR;
            store_vector<ALIGNED>(d.dx + start + c, n.columns - c,
                                  row_gradient(x[k], dy[k], weight[k], before[k], mean, rstd, sums));
            x[k] = next_x[k];
            dy[k] = next_dy[k];
        }
        mean = next_mean;
        rstd = next_rstd;
    }
    int64_t at = (int64_t)blockIdx.x * n.columns;
    if constexpr (V == 1) {
        if (blockDim.y > 1) {
            add_block_rows(n.columns, dweight[0], d.dweight + at);
            if (BIAS)
                add_block_rows(n.columns, dbias[0], d.dbias + at);
            return;
        }
    }
    store_sums<V, ALIGNED>(d.dweight + at, n.columns, dweight);
    if (BIAS)
        store_sums<V, ALIGNED>(d.dbias + at, n.columns, dbias);
}

/* Rows of any width, read twice. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS_MOST) norm_backward_wide_kernel(norm_rows n, norm_gradient d)
{
    SHARED(row_partials, partial, [1]);
    int row = (int)blockIdx.x;
    const element_t *x = n.x + (int64_t)row * n.stride, *dy = d.dy + (int64_t)row * n.stride;
    element_t *dx = d.dx + (int64_t)row * n.stride;
    float mean = n.mean[row], rstd = n.rstd[row];
    float2 sums = make_float2(0, 0);
    int first = (int)threadIdx.x * VECTOR, step = (int)blockDim.x * VECTOR;
    for (int c = first; c < n.columns; c += step) {
        uint4 value[1] = {load_vector<ALIGNED>(x + c, n.columns - c)},
              gradient[1] = {load_vector<ALIGNED>(dy + c, n.columns - c)};
        uint4 weight[1] = {load_vector<ALIGNED>(n.weight + c, n.columns - c)};
        float unused[1][VECTOR] = {};
        float2 more = row_sums<1, false>(value, gradient, weight, mean, rstd, unused, unused);
        sums.x += more.x;
        sums.y += more.y;
    }
    sums = block_sum2<false>(sums, partial[0], 0);
    sums.x = n.centred ? sums.x / (float)n.columns : 0;
    sums.y /= (float)n.columns;
    for (int c = first; c < n.columns; c += step) {
        int left = n.columns - c;
        uint4 before = d.accumulate ? load_vector<ALIGNED>(dx + c, left) : make_uint4(0, 0, 0, 0);
        store_vector<ALIGNED>(dx + c, left,
                              row_gradient(load_vector<ALIGNED>(x + c, left), load_vector<ALIGNED>(dy + c, left),
                                           load_vector<ALIGNED>(n.weight + c, left), before, mean, rstd, sums));
    }
}

/* The weights' gradients alone: blocks x own columns, y rows. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS) norm_weights_kernel(norm_rows n, norm_gradient d)
{
    int c = (int)(blockIdx.x * blockDim.x + threadIdx.x) * VECTOR, left = n.columns - c;
    float dweight[1][VECTOR] = {}, dbias[1][VECTOR] = {};
    if (left <= 0)
        return;
    const uint4 weight[1] = {make_uint4(0, 0, 0, 0)};
    for (int row = (int)blockIdx.y; row < n.rows; row += (int)gridDim.y) {
        const uint4 x[1] = {load_vector<ALIGNED>(n.x + (int64_t)row * n.stride + c, left)};
        const uint4 dy[1] = {load_vector<ALIGNED>(d.dy + (int64_t)row * n.stride + c, left)};
        row_sums<1, true>(x, dy, weight, n.mean[row], n.rstd[row], dweight, dbias);
    }
    int64_t at = (int64_t)blockIdx.y * n.columns + c;
    store_floats<ALIGNED>(d.dweight + at, left, dweight[0]);
    if (d.dbias)
        store_floats<ALIGNED>(d.dbias + at, left, dbias[0]);
}

template <int V, bool BIAS>
static void launch_backward(void *queue, bool aligned, dim3 grid, dim3 block, const norm_rows &n,
                            const norm_gradient &d)
{
    if (aligned)
        LAUNCH((norm_backward_kernel<V, true, BIAS>), grid, block, 0, stream_of(queue), n, d);
    else
        LAUNCH((norm_backward_kernel<V, false, BIAS>), grid, block, 0, stream_of(queue), n, d);
}

static void launch_backward_of(void *queue, bool aligned, int vectors, dim3 grid, dim3 block, const norm_rows &n,
                               const norm_gradient &d)
{
    if (vectors == 1 && d.dbias)
        launch_backward<1, true>(queue, aligned, grid, block, n, d);
    else if (vectors == 1)
        launch_backward<1, false>(queue, aligned, grid, block, n, d);
    else if (d.dbias)
        launch_backward<2, true>(queue, aligned, grid, block, n, d);
    else
        launch_backward<2, false>(queue, aligned, grid, block, n, d);
}

/* Blocks that are resident together: a thread has 80 registers with one vector, 128 with two. */
static int backward_blocks(int rows, const shape &s)
{
    int threads = (int)(s.block.x * s.block.y), resident = (s.vectors == 1 ? 768 : 512) / threads;
    int blocks = cuda_processors() * (resident > 1 ? resident : 1), needed = divide_up<int>(rows, (int)s.block.y);
    return needed < blocks ? needed : blocks;
}

void cuda_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const void *x, const void *weight,
                        const float *mean, const float *rstd, const void *dy, bool accumulate, void *dx, float *dweight,
                        float *dbias)
{
    if (rows == 0 || columns == 0)
        return;
    norm_rows n = {rows,
                   columns,
                   stride,
                   centred,
                   static_cast<const element_t *>(x),
                   static_cast<const element_t *>(weight),
                   nullptr,
                   const_cast<float *>(mean),
                   const_cast<float *>(rstd)};
    shape s = shape_of(columns);
    bool wide = columns > BACKWARD_COLUMNS;
    bool aligned = columns % VECTOR == 0 && is_aligned(x, stride) && is_aligned(weight, 0) && is_aligned(dy, 0) &&
                   is_aligned(dx, 0);
    int blocks = wide ? divide_up<int>(columns, THREADS * VECTOR) : backward_blocks(rows, s);
    int partial_rows = wide ? divide_up<int>(4 * cuda_processors(), blocks) : blocks;
    partial_rows = partial_rows < rows ? partial_rows : rows;
    int64_t floats = (int64_t)partial_rows * columns;
    float *partial = static_cast<float *>(cuda_workspace(queue, (size_t)floats * (dbias ? 2 : 1) * sizeof(float)));
    norm_gradient d = {static_cast<const element_t *>(dy), static_cast<element_t *>(dx), accumulate, partial,
                       dbias ? partial + floats : nullptr};
    if (wide) { /* the weights first: dx may be dy */
        dim3 grid((unsigned)blocks, (unsigned)partial_rows);
        LAUNCH_ALIGNED(aligned, norm_weights_kernel, grid, THREADS, 0, stream_of(queue), n, d);
        LAUNCH_ALIGNED(aligned, norm_backward_wide_kernel, rows, THREADS_MOST, 0, stream_of(queue), n, d);
    } else {
        launch_backward_of(queue, aligned, s.vectors, dim3((unsigned)blocks), s.block, n, d);
    }
    check_launch("norm_backward");
    add_partial_rows(stream_of(queue), partial_rows, columns, d.dweight, dweight);
    if (dbias)
        add_partial_rows(stream_of(queue), partial_rows, columns, d.dbias, dbias);
}
