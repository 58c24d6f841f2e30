/* RMSNorm of every head of q and k, forward and backward (formulas: ref/norm.c): one launch over the heads of all rows, 8, 16
 * or 32 lanes each. The backward kernel's threads keep sums for both weights, whichever a head belongs to. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/norm.cuh"

enum { RESIDENT = 3 }; /* blocks of the backward kernel on a multiprocessor: up to 80 registers a thread */

struct head_rows {
    int items, all, heads, columns, stride; /* items: heads of all rows; all: heads of a row */
    const element_t *x, *q_weight, *k_weight;
    float *rstd;
};

struct head_gradient {
    const element_t *dy;
    element_t *dx;
    float *dq_weight, *dk_weight; /* partial rows */
};

static __device__ __forceinline__ int64_t place_of(const head_rows &n, int item)
{
    return (int64_t)(item / n.all) * n.stride + item % n.all * n.columns;
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS) head_norm_forward_kernel(head_rows n, float epsilon, element_t *y)
{
    int item = (int)(blockIdx.x * blockDim.y + threadIdx.y), c = (int)threadIdx.x * VECTOR, left = n.columns - c;
    if (item >= n.items) /* all lanes of a head */
        return;
    int64_t at = place_of(n, item) + c;
    float value[VECTOR], weight[VECTOR], squares = 0;
    unpack(load_vector<ALIGNED>(n.x + at, left), value); /* zeros beyond the head */
    unpack(load_vector<ALIGNED>((item % n.all < n.heads ? n.q_weight : n.k_weight) + c, left), weight);
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        squares += value[i] * value[i];
    float rstd = 1 / sqrtf(row_lanes_sum<true>(squares) / (float)n.columns + epsilon);
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        value[i] *= rstd * weight[i];
    store_vector<ALIGNED>(y + at, left, pack(value));
    if (threadIdx.x == 0)
        n.rstd[item] = rstd;
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS, RESIDENT) head_norm_backward_kernel(head_rows n, head_gradient d)
{
    int c = (int)threadIdx.x * VECTOR, left = n.columns - c, step = (int)(gridDim.x * blockDim.y);
    float dq_weight[VECTOR] = {}, dk_weight[VECTOR] = {};
    for (int item = (int)(blockIdx.x * blockDim.y + threadIdx.y); item < n.items; item += step) {
        int64_t at = place_of(n, item) + c;
        bool is_q = item % n.all < n.heads;
        float value[VECTOR], gradient[VECTOR], weight[VECTOR], rstd = n.rstd[item], dot = 0;
        unpack(load_vector<ALIGNED>(n.x + at, left), value);
        unpack(load_vector<ALIGNED>(d.dy + at, left), gradient);
        unpack(load_vector<ALIGNED>((is_q ? n.q_weight : n.k_weight) + c, left), weight);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            value[i] *= rstd;
            dq_weight[i] += is_q ? gradient[i] * value[i] : 0;
            dk_weight[i] += is_q ? 0 : gradient[i] * value[i];
            gradient[i] *= weight[i];
            dot += gradient[i] * value[i];
        }
        dot = row_lanes_sum<true>(dot) / (float)n.columns;
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            gradient[i] = rstd * (gradient[i] - value[i] * dot);
        store_vector<ALIGNED>(d.dx + at, left, pack(gradient));
    }
    add_block_rows(n.columns, dq_weight, d.dq_weight + (int64_t)blockIdx.x * n.columns);
    add_block_rows(n.columns, dk_weight, d.dk_weight + (int64_t)blockIdx.x * n.columns);
}

static head_rows rows_of(const struct head_norm *n, const void *x)
{
    if (n->head_dim > WARP * VECTOR)
        cuda_kernels_fail("head_norm", "heads are wider than 256");
    int all = n->heads + n->kv_heads;
    return head_rows{n->rows * all,
                     all,
                     n->heads,
                     n->head_dim,
                     n->stride,
                     static_cast<const element_t *>(x),
                     static_cast<const element_t *>(n->q_weight),
                     static_cast<const element_t *>(n->k_weight),
                     n->rstd};
}

static bool all_aligned(const head_rows &n, const void *a, const void *b)
{
    return n.columns % VECTOR == 0 && is_aligned(n.x, n.stride) && is_aligned(n.q_weight, 0) &&
           is_aligned(n.k_weight, 0) && is_aligned(a, 0) && is_aligned(b, 0);
}

void cuda_head_norm_forward(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y)
{
    head_rows rows = rows_of(n, x);
    if (rows.items == 0 || rows.columns == 0)
        return;
    shape s = shape_of(rows.columns);
    LAUNCH_ALIGNED(all_aligned(rows, y, nullptr), head_norm_forward_kernel,
                   divide_up<unsigned>((unsigned)rows.items, s.block.y), s.block, 0, stream_of(queue), rows, epsilon,
                   static_cast<element_t *>(y));
    check_launch("head_norm_forward");
}

void cuda_head_norm_backward(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                             float *dq_weight, float *dk_weight)
{
    head_rows rows = rows_of(n, x);
    if (rows.items == 0 || rows.columns == 0)
        return;
    shape s = shape_of(rows.columns);
    int blocks = divide_up<int>(rows.items, (int)s.block.y), most = RESIDENT * cuda_processors();
    blocks = blocks < most ? blocks : most;
    int64_t floats = (int64_t)blocks * rows.columns;
    float *partial = static_cast<float *>(cuda_workspace(queue, (size_t)floats * 2 * sizeof(float)));
    head_gradient d = {static_cast<const element_t *>(dy), static_cast<element_t *>(dx), partial, partial + floats};
    LAUNCH_ALIGNED(all_aligned(rows, dy, dx), head_norm_backward_kernel, (unsigned)blocks, s.block, 0, stream_of(queue),
                   rows, d);
    check_launch("head_norm_backward");
    add_partial_rows(stream_of(queue), blocks, rows.columns, d.dq_weight, dq_weight);
    add_partial_rows(stream_of(queue), blocks, rows.columns, d.dk_weight, dk_weight);
}
