/* Cross-entropy over shards of the vocabulary (formulas: ref/loss.c): a block a row, 16 bytes a thread and step. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/cuda_common.cuh"

enum { LOSS_THREADS = 512 };

static unsigned loss_threads(int columns)
{
    int threads = divide_up<int>(divide_up<int>(columns, VECTOR), WARP) * WARP;
    return (unsigned)(threads < WARP ? WARP : threads < LOSS_THREADS ? threads : LOSS_THREADS);
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(LOSS_THREADS)
    logits_max_kernel(int columns, int stride, const element_t *logits, float *max)
{
    SHARED(row_partials, partial, [1]);
    const element_t *row = logits + (int64_t)blockIdx.x * stride;
    float largest = -INFINITY, value[VECTOR];
#pragma unroll 4
    for (int c = (int)threadIdx.x * VECTOR; c < columns; c += (int)blockDim.x * VECTOR) {
        unpack(load_vector<ALIGNED>(row + c, columns - c), value);
        for (int i = 0; i < VECTOR; i++)
            largest = c + i < columns ? fmaxf(largest, value[i]) : largest;
    }
    largest = block_max(largest, partial[0], 0);
    if (threadIdx.x == 0)
        max[blockIdx.x] = largest;
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(LOSS_THREADS)
    logits_sum_kernel(int columns, int stride, const element_t *logits, const float *max, const int *target, int first,
                      float *sum, float *picked)
{
    SHARED(row_partials, partial, [1]);
    const element_t *row = logits + (int64_t)blockIdx.x * stride;
    float shift = max[blockIdx.x], total = 0, value[VECTOR];
#pragma unroll 4
    for (int c = (int)threadIdx.x * VECTOR; c < columns; c += (int)blockDim.x * VECTOR) {
        unpack(load_vector<ALIGNED>(row + c, columns - c), value);
        for (int i = 0; i < VECTOR; i++)
            total += c + i < columns ? __expf(value[i] - shift) : 0;
    }
    total = block_sum<false>(total, partial[0], 0);
    if (threadIdx.x == 0) {
        int at = target[blockIdx.x] - first;
        sum[blockIdx.x] = total;
        picked[blockIdx.x] = at >= 0 && at < columns ? __bfloat162float(row[at]) - shift : 0;
    }
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(LOSS_THREADS)
    logits_gradient_kernel(int columns, int stride, element_t *logits, const float *max, const float *sum,
                           const int *target, int first, float factor)
{
    element_t *row = logits + (int64_t)blockIdx.x * stride;
    float shift = max[blockIdx.x], scale = factor / sum[blockIdx.x], value[VECTOR];
    int at = target[blockIdx.x] - first;
#pragma unroll 2
    for (int c = (int)threadIdx.x * VECTOR; c < stride; c += (int)blockDim.x * VECTOR) {
        unpack(load_vector<ALIGNED>(row + c, stride - c), value);
        for (int i = 0; i < VECTOR; i++) {
            value[i] = c + i < columns ? __expf(value[i] - shift) * scale : 0;
            value[i] -= c + i == at && at < columns ? factor : 0;
        }
        store_vector<ALIGNED>(row + c, stride - c, pack(value));
    }
}

void cuda_logits_max(void *queue, int rows, int columns, int stride, const void *logits, float *max)
{
    if (rows > 0)
        LAUNCH_ALIGNED(is_aligned(logits, stride) && columns % VECTOR == 0, logits_max_kernel, (unsigned)rows,
                       loss_threads(columns), 0, stream_of(queue), columns, stride,
                       static_cast<const element_t *>(logits), max);
    check_launch("logits_max");
}

void cuda_logits_sum(void *queue, int rows, int columns, int stride, const void *logits, const float *max,
                     const int *target, int first, float *sum, float *picked)
{
    if (rows > 0)
        LAUNCH_ALIGNED(is_aligned(logits, stride) && columns % VECTOR == 0, logits_sum_kernel, (unsigned)rows,
                       loss_threads(columns), 0, stream_of(queue), columns, stride,
                       static_cast<const element_t *>(logits), max, target, first, sum, picked);
    check_launch("logits_sum");
}

void cuda_logits_gradient(void *queue, int rows, int columns, int stride, void *logits, const float *max,
                          const float *sum, const int *target, int first, float factor)
{
    if (rows > 0 && stride > 0)
        LAUNCH_ALIGNED(is_aligned(logits, stride), logits_gradient_kernel, (unsigned)rows, loss_threads(stride), 0,
                       stream_of(queue), columns, stride, static_cast<element_t *>(logits), max, sum, target, first,
                       factor);
    check_launch("logits_gradient");
}
