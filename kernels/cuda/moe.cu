/* Top-k routing (formulas: ref/moe.c), a warp a row; the row's probabilities stay in shared memory. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/cuda_common.cuh"

enum { SHARED_FLOATS = 8192 /* of a block: 32 KiB */ };

/* Warps to a block: as many as have room for their rows. */
static unsigned rows_per_block(int experts)
{
    int rows = SHARED_FLOATS / experts;
    return (unsigned)(rows < 1 ? 1 : rows > THREADS / WARP ? THREADS / WARP : rows);
}

/* Softmax of a row that the warp shares. */
static __device__ __forceinline__ void softmax(int n, float *x, float *probability)
{
    int lane = (int)threadIdx.x;
    float max = -INFINITY, sum = 0;
    for (int e = lane; e < n; e += WARP)
        max = fmaxf(max, x[e]);
    max = warp_max(max);
    for (int e = lane; e < n; e += WARP) {
        probability[e] = expf(x[e] - max);
        sum += probability[e];
    }
    sum = warp_sum(sum);
    for (int e = lane; e < n; e += WARP)
        x[e] = probability[e] = probability[e] / sum;
}

/* The largest and where it is, of all lanes; of equals the lower index. */
static __device__ __forceinline__ int warp_largest(float value, int at)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, value, step);
        int other_at = __shfl_xor_sync(ALL_LANES, at, step);
        if (other_at >= 0 && (at < 0 || other > value || (other == value && other_at < at))) {
            value = other;
            at = other_at;
        }
    }
    return at;
}

static __global__ void __launch_bounds__(THREADS)
    router_forward_kernel(int rows, int experts, int k, bool renormalise, float *logits, int *choice, float *weight)
{
    DYNAMIC_SHARED(float, tile);
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y), lane = (int)threadIdx.x;
    if (row >= rows)
        return;
    float *p = tile + (int)threadIdx.y * experts, *x = logits + (int64_t)row * experts, total = 0;
    int *chosen = choice + (int64_t)row * k;
    softmax(experts, x, p);
    for (int i = 0; i < k; i++) {
        int best = -1;
        float largest = 0;
        for (int e = lane; e < experts; e += WARP) { /* a chosen one is -1; of NaN, which are all, the first */
            float value = p[e] == p[e] ? p[e] : 0;
            if (value >= 0 && (best < 0 || value > largest)) {
                best = e;
                largest = value;
            }
        }
        best = warp_largest(largest, best);
        __syncwarp();
        float own = p[best];
        total += own;
        __syncwarp();
        if (lane == 0) {
            p[best] = -1;
            chosen[i] = best;
            weight[(int64_t)row * k + i] = own;
        }
        __syncwarp();
    }
    for (int i = lane; i < k && renormalise; i += WARP)
        weight[(int64_t)row * k + i] /= total;
}

void cuda_router_forward(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                         float *weight)
{
    if (rows == 0)
        return;
    unsigned height = rows_per_block(experts);
    size_t bytes = height * (size_t)experts * sizeof(float);
    LAUNCH(router_forward_kernel, divide_up<unsigned>((unsigned)rows, height), dim3(WARP, height), bytes,
           stream_of(queue), rows, experts, k, renormalise, logits, choice, weight);
    check_launch("router_forward");
}

/* dp of expert e: the load balance's gradient, and its choice's where it was chosen. */
static __device__ __forceinline__ float probability_gradient(int k, const int *choice, const float *dw, int e,
                                                             float bias, float common, float total)
{
    for (int i = 0; i < k; i++)
        if (choice[i] == e)
            bias += (dw[i] - common) / total;
    return bias;
}

static __global__ void __launch_bounds__(THREADS)
    router_backward_kernel(int rows, int experts, int k, bool renormalise, const float *probability, const int *choice,
                           const float *dweight, const float *bias_gradient, float *dlogits)
{
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y), lane = (int)threadIdx.x;
    if (row >= rows)
        return;
    const float *p = probability + (int64_t)row * experts, *dw = dweight + (int64_t)row * k;
    const int *c = choice + (int64_t)row * k;
    float *dl = dlogits + (int64_t)row * experts;
    float total = 0, common = 0, dot = 0;
    for (int i = 0; i < k; i++) { /* the same in every lane */
        total += p[c[i]];
        common += dw[i] * p[c[i]];
    }
    common = renormalise ? common / total : 0;
    total = renormalise ? total : 1;
    for (int e = lane; e < experts; e += WARP)
        dot += probability_gradient(k, c, dw, e, bias_gradient[e], common, total) * p[e];
    dot = warp_sum(dot);
    for (int e = lane; e < experts; e += WARP)
        dl[e] = p[e] * (probability_gradient(k, c, dw, e, bias_gradient[e], common, total) - dot);
}

void cuda_router_backward(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                          const int *choice, const float *dweight, const float *bias_gradient, float *dlogits)
{
    if (rows == 0)
        return;
    const unsigned height = THREADS / WARP;
    LAUNCH(router_backward_kernel, divide_up<unsigned>((unsigned)rows, height), dim3(WARP, height), 0, stream_of(queue),
           rows, experts, k, renormalise, probability, choice, dweight, bias_gradient, dlogits);
    check_launch("router_backward");
}
