/* AdamW and the sum of squares over many parts of flat buffers (formulas: ref/optimizer.c). The parts travel as an
 * argument of the kernel; each is cut into chunks, a block's work. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/cuda_common.cuh"

enum {
    PARTS_MOST = 128,             /* of one launch: a kernel's arguments have 4 KiB */
    CHUNK = 2 * THREADS * VECTOR, /* elements */
    SQUARES_BLOCKS = 1024,        /* each goes on over chunks; as many partial sums */
};

struct part_list {
    int parts;
    int64_t first[PARTS_MOST], n[PARTS_MOST];
    int chunk[PARTS_MOST + 1]; /* of all parts before; the last entry: of all */
    float weight_decay[PARTS_MOST];
};

/* Takes parts until the list is full; returns how many. */
static int take_parts(int parts, const struct adamw_part *part, part_list &list)
{
    list.parts = list.chunk[0] = 0;
    int i = 0;
    for (; i < parts && list.parts < PARTS_MOST; i++) {
        if (part[i].n == 0)
            continue;
        int p = list.parts++;
        list.first[p] = part[i].first;
        list.n[p] = part[i].n;
        list.weight_decay[p] = part[i].weight_decay;
        list.chunk[p + 1] = list.chunk[p] + (int)divide_up<int64_t>(part[i].n, CHUNK);
    }
    return i;
}

static __device__ __forceinline__ int part_of(const part_list &list, int chunk)
{
    int low = 0, high = list.parts - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (list.chunk[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct adamw_buffers {
    const float *gradient;
    float *weight, *m, *v;
    element_t *copy;
};

template <bool ALIGNED>
static __device__ __forceinline__ void update(const struct adamw &a, const adamw_buffers &b, float weight_decay,
                                              int64_t at, int left)
{
    float g[VECTOR], w[VECTOR], m[VECTOR], v[VECTOR];
    load_floats<ALIGNED>(b.gradient + at, left, g);
    load_floats<ALIGNED>(b.weight + at, left, w);
    load_floats<ALIGNED>(b.m + at, left, m);
    load_floats<ALIGNED>(b.v + at, left, v);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float gradient = g[i] * a.gradient_scale;
        m[i] = a.beta1 * m[i] + (1 - a.beta1) * gradient;
        v[i] = a.beta2 * v[i] + (1 - a.beta2) * gradient * gradient;
        float step = m[i] / a.correction1 / (sqrtf(v[i] / a.correction2) + a.epsilon);
        w[i] -= a.learning_rate * (weight_decay * w[i] + step);
    }
    store_floats<ALIGNED>(b.weight + at, left, w);
    store_floats<ALIGNED>(b.m + at, left, m);
    store_floats<ALIGNED>(b.v + at, left, v);
    if (b.copy)
        store_vector<ALIGNED>(b.copy + at, left, pack(w));
}

/* aligned: the buffers themselves; a part may still start anywhere, and its end may be odd. */
static __global__ void __launch_bounds__(THREADS)
    adamw_kernel(const __grid_constant__ part_list list, struct adamw a, adamw_buffers b, bool aligned)
{
    int part = part_of(list, (int)blockIdx.x);
    int64_t first = list.first[part], n = list.n[part];
    float weight_decay = list.weight_decay[part];
    int64_t at = (int64_t)((int)blockIdx.x - list.chunk[part]) * CHUNK + (int)threadIdx.x * VECTOR;
    aligned = aligned && first % VECTOR == 0;
    for (int i = 0; i < CHUNK / (THREADS * VECTOR) && at < n; i++, at += THREADS * VECTOR) {
        int left = n - at < VECTOR ? (int)(n - at) : VECTOR;
        if (aligned && left == VECTOR)
            update<true>(a, b, weight_decay, first + at, left);
        else
            update<false>(a, b, weight_decay, first + at, left);
    }
}

void cuda_adamw(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
                float *weight, float *m, float *v, void *copy)
{
    adamw_buffers b = {gradient, weight, m, v, static_cast<element_t *>(copy)};
    bool aligned =
        is_aligned(gradient, 0) && is_aligned(weight, 0) && is_aligned(m, 0) && is_aligned(v, 0) && is_aligned(copy, 0);
    part_list list;
    while (parts > 0) {
        int taken = take_parts(parts, part, list);
        if (list.parts > 0)
            LAUNCH(adamw_kernel, (unsigned)list.chunk[list.parts], THREADS, 0, stream_of(queue), list, *a, b, aligned);
        parts -= taken;
        part += taken;
    }
    check_launch("adamw");
}

/* -- sum of squares --------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ double warp_sum_double(double x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

static __device__ __forceinline__ double block_sum_double(double x, double (&partial)[WARP])
{
    x = warp_sum_double(x);
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = x;
    __syncthreads();
    int lane = (int)threadIdx.x % WARP;
    return warp_sum_double(lane < (int)blockDim.x / WARP ? partial[lane] : 0);
}

template <bool ALIGNED> static __device__ __forceinline__ double squares_of(const float *x, int left)
{
    float value[VECTOR];
    double sum = 0;
    load_floats<ALIGNED>(x, left, value);
    for (int i = 0; i < VECTOR; i++)
        sum += (double)value[i] * (double)value[i];
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    squares_kernel(const __grid_constant__ part_list list, const float *x, bool aligned, double *partial)
{
    SHARED(double, sums, [WARP]);
    double sum = 0;
    for (int chunk = (int)blockIdx.x; chunk < list.chunk[list.parts]; chunk += (int)gridDim.x) {
        int part = part_of(list, chunk);
        int64_t first = list.first[part], n = list.n[part];
        int64_t at = (int64_t)(chunk - list.chunk[part]) * CHUNK + (int)threadIdx.x * VECTOR;
        for (int i = 0; i < CHUNK / (THREADS * VECTOR) && at < n; i++, at += THREADS * VECTOR) {
            int left = n - at < VECTOR ? (int)(n - at) : VECTOR;
            sum += aligned && first % VECTOR == 0 && left == VECTOR ? squares_of<true>(x + first + at, left)
                                                                    : squares_of<false>(x + first + at, left);
        }
    }
    sum = block_sum_double(sum, sums);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS) add_doubles_kernel(int n, const double *partial, double *sum)
{
    SHARED(double, sums, [WARP]);
    double total = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        total += partial[i];
    total = block_sum_double(total, sums);
    if (threadIdx.x == 0)
        *sum += total;
}

void cuda_sum_squares(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum)
{
    double *partial = static_cast<double *>(cuda_workspace(queue, SQUARES_BLOCKS * sizeof(double)));
    part_list list;
    while (parts > 0) {
        int taken = take_parts(parts, part, list);
        int blocks = list.chunk[list.parts] < SQUARES_BLOCKS ? list.chunk[list.parts] : SQUARES_BLOCKS;
        if (blocks > 0) {
            LAUNCH(squares_kernel, (unsigned)blocks, THREADS, 0, stream_of(queue), list, x, is_aligned(x, 0), partial);
            LAUNCH(add_doubles_kernel, 1u, THREADS, 0, stream_of(queue), blocks, partial, sum);
        }
        parts -= taken;
        part += taken;
    }
    check_launch("sum_squares");
}
