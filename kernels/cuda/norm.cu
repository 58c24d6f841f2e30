/* RMSNorm and LayerNorm, forward (formulas: ref/norm.c). A row stays in the registers of the threads that share it: it is
 * read once, and from 16,385 columns on three times. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/norm.cuh"

struct norm_output {
    float epsilon;
    bool given;                /* mean and rstd are read, not made */
    const element_t *residual; /* added to x first, which is stored; NULL = none */
    element_t *x, *y;
};

template <int V, bool ALIGNED>
static __device__ __forceinline__ void normalise(const norm_rows &n, float mean, float rstd, const uint4 (&packed)[V],
                                                 element_t *y)
{
#pragma unroll
    for (int k = 0; k < V; k++) {
        int c = ((int)threadIdx.x + k * (int)blockDim.x) * VECTOR, left = n.columns - c;
        float value[VECTOR], weight[VECTOR], bias[VECTOR] = {};
        if (left <= 0)
            break; /* and one vector at a time, with the fewer registers */
        unpack(packed[k], value);
        unpack(load_vector<ALIGNED>(n.weight + c, left), weight); /* in the cache, from the blocks before */
        if (n.bias)
            unpack(load_vector<ALIGNED>(n.bias + c, left), bias);
        for (int i = 0; i < VECTOR; i++)
            value[i] = (value[i] - mean) * rstd * weight[i] + bias[i];
        store_vector<ALIGNED>(y + c, left, pack(value));
    }
}

static __device__ __forceinline__ uint4 add_vectors(uint4 x, uint4 y)
{
    float value[VECTOR], more[VECTOR];
    unpack(x, value);
    unpack(y, more);
    for (int i = 0; i < VECTOR; i++)
        value[i] += more[i];
    return pack(value);
}

/* Mean, and the sum of squares of what is left of it, as the plain version: the mean first. */
template <int V>
static __device__ __forceinline__ float2 statistics(const norm_rows &n, const uint4 (&packed)[V], row_partials &partial)
{
    float sum = 0, squares = 0, value[VECTOR];
    if (n.centred) {
#pragma unroll
        for (int k = 0; k < V; k++) { /* beyond the row there are zeros */
            unpack(packed[k], value);
            for (int i = 0; i < VECTOR; i++)
                sum += value[i];
        }
        sum = block_sum<V == 1>(sum, partial, 0) / (float)n.columns;
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        int left = n.columns - ((int)threadIdx.x + k * (int)blockDim.x) * VECTOR;
        unpack(packed[k], value);
        for (int i = 0; i < VECTOR; i++)
            squares += i < left ? (value[i] - sum) * (value[i] - sum) : 0;
    }
    return make_float2(sum, block_sum<V == 1>(squares, partial, 1));
}

template <int V, bool ALIGNED>
static __global__ void __launch_bounds__(V == 1 ? THREADS : THREADS_MOST)
    norm_forward_kernel(norm_rows n, norm_output out)
{
    SHARED(row_partials, partial, [1]);
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y);
    if (row >= n.rows) /* all lanes of a row, in blocks of several rows */
        return;
    int64_t start = (int64_t)row * n.stride;
    uint4 packed[V];
    load_row<V, ALIGNED>(n.x + start, n.columns, packed);
    if (out.residual) {
#pragma unroll
        for (int k = 0; k < V; k += 2) { /* two loads before the first store */
            int c[2] = {((int)threadIdx.x + k * (int)blockDim.x) * VECTOR,
                        ((int)threadIdx.x + (k + 1) * (int)blockDim.x) * VECTOR};
            uint4 residual[2];
            for (int i = 0; i < 2 && k + i < V; i++)
                residual[i] = load_vector<ALIGNED>(out.residual + start + c[i], n.columns - c[i]);
            for (int i = 0; i < 2 && k + i < V; i++) {
                packed[k + i] = add_vectors(packed[k + i], residual[i]);
                store_vector<ALIGNED>(out.x + start + c[i], n.columns - c[i], packed[k + i]);
            }
        }
    }
    float mean, rstd;
    if (out.given) {
        mean = n.mean[row];
        rstd = n.rstd[row];
    } else {
        float2 found = statistics<V>(n, packed, partial[0]);
        mean = found.x;
        rstd = 1 / sqrtf(found.y / (float)n.columns + out.epsilon);
        if (threadIdx.x == 0) {
            n.mean[row] = mean;
            n.rstd[row] = rstd;
        }
    }
    normalise<V, ALIGNED>(n, mean, rstd, packed, out.y + start);
}

/* Rows of any width, read once for each of: mean, squares, result. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS_MOST) norm_forward_wide_kernel(norm_rows n, norm_output out)
{
    SHARED(row_partials, partial, [1]);
    int row = (int)blockIdx.x, first = (int)threadIdx.x * VECTOR, step = (int)blockDim.x * VECTOR;
    int64_t start = (int64_t)row * n.stride;
    float sum = 0, squares = 0, value[VECTOR];
    for (int c = first; c < n.columns && out.residual; c += step) {
        int left = n.columns - c;
        uint4 residual = load_vector<ALIGNED>(out.residual + start + c, left);
        store_vector<ALIGNED>(out.x + start + c, left,
                              add_vectors(load_vector<ALIGNED>(n.x + start + c, left), residual));
    }
    for (int c = first; c < n.columns && n.centred && !out.given; c += step) {
        unpack(load_vector<ALIGNED>(n.x + start + c, n.columns - c), value);
        for (int i = 0; i < VECTOR; i++)
            sum += value[i];
    }
    float mean = out.given ? n.mean[row] : block_sum<false>(sum, partial[0], 0) / (float)n.columns;
    for (int c = first; c < n.columns && !out.given; c += step) {
        unpack(load_vector<ALIGNED>(n.x + start + c, n.columns - c), value);
        for (int i = 0; i < VECTOR; i++)
            squares += c + i < n.columns ? (value[i] - mean) * (value[i] - mean) : 0;
    }
    float rstd =
        out.given ? n.rstd[row] : 1 / sqrtf(block_sum<false>(squares, partial[0], 1) / (float)n.columns + out.epsilon);
    for (int c = first; c < n.columns; c += step) {
        int left = n.columns - c;
        float weight[VECTOR], bias[VECTOR] = {};
        unpack(load_vector<ALIGNED>(n.x + start + c, left), value);
        unpack(load_vector<ALIGNED>(n.weight + c, left), weight);
        if (n.bias)
            unpack(load_vector<ALIGNED>(n.bias + c, left), bias);
        for (int i = 0; i < VECTOR; i++)
            value[i] = (value[i] - mean) * rstd * weight[i] + bias[i];
        store_vector<ALIGNED>(out.y + start + c, left, pack(value));
    }
    if (threadIdx.x == 0 && !out.given) {
        n.mean[row] = mean;
        n.rstd[row] = rstd;
    }
}

template <int V>
static void launch_forward(void *queue, bool aligned, dim3 block, const norm_rows &n, const norm_output &out)
{
    dim3 grid(divide_up<unsigned>((unsigned)n.rows, block.y));
    if (aligned)
        LAUNCH((norm_forward_kernel<V, true>), grid, block, 0, stream_of(queue), n, out);
    else
        LAUNCH((norm_forward_kernel<V, false>), grid, block, 0, stream_of(queue), n, out);
}

static void forward(void *queue, const norm_rows &n, const norm_output &out)
{
    if (n.rows == 0 || n.columns == 0)
        return;
    bool aligned = n.columns % VECTOR == 0 && is_aligned(n.x, n.stride) && is_aligned(n.weight, 0) &&
                   is_aligned(n.bias, 0) && is_aligned(out.y, 0) && is_aligned(out.residual, 0);
    shape s = shape_of(n.columns);
    if (n.columns > FORWARD_COLUMNS)
        LAUNCH_ALIGNED(aligned, norm_forward_wide_kernel, (unsigned)n.rows, THREADS_MOST, 0, stream_of(queue), n, out);
    else if (s.vectors == 1)
        launch_forward<1>(queue, aligned, s.block, n, out);
    else if (s.vectors == 2)
        launch_forward<2>(queue, aligned, s.block, n, out);
    else
        launch_forward<4>(queue, aligned, s.block, n, out);
    check_launch("norm_forward");
}

void cuda_add_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                           const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                           float *rstd)
{
    norm_rows n = {rows,
                   columns,
                   stride,
                   centred,
                   static_cast<const element_t *>(x),
                   static_cast<const element_t *>(weight),
                   static_cast<const element_t *>(bias),
                   mean,
                   rstd};
    norm_output out = {epsilon, false, static_cast<const element_t *>(residual), static_cast<element_t *>(x),
                       static_cast<element_t *>(y)};
    forward(queue, n, out);
}

void cuda_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x,
                       const void *weight, const void *bias, void *y, float *mean, float *rstd)
{
    norm_rows n = {rows,
                   columns,
                   stride,
                   centred,
                   static_cast<const element_t *>(x),
                   static_cast<const element_t *>(weight),
                   static_cast<const element_t *>(bias),
                   mean,
                   rstd};
    norm_output out = {epsilon, false, nullptr, nullptr, static_cast<element_t *>(y)};
    forward(queue, n, out);
}

void cuda_norm_apply(void *queue, int rows, int columns, int stride, const void *x, const void *weight,
                     const void *bias, const float *mean, const float *rstd, void *y)
{
    norm_rows n = {rows,
                   columns,
                   stride,
                   true,
                   static_cast<const element_t *>(x),
                   static_cast<const element_t *>(weight),
                   static_cast<const element_t *>(bias),
                   const_cast<float *>(mean),
                   const_cast<float *>(rstd)};
    norm_output out = {0, true, nullptr, nullptr, static_cast<element_t *>(y)};
    forward(queue, n, out);
}
