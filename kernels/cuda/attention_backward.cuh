/* What the backward kernels of attention share: the numbers of a query, gradients of scores, the walk over queries. */
#ifndef KERNELS_CUDA_ATTENTION_BACKWARD_CUH
#define KERNELS_CUDA_ATTENTION_BACKWARD_CUH

#include "kernels/cuda/attention.cuh"

struct backward_call {
    attention_call call;
    const element_t *dout;
    const float *delta; /* [batch][heads][queries]: row sums of dout o */
    float *dq, *dk, *dv;
};

/* What exponentials are shifted by: nothing is seen by a row without keys, nor by one that does not exist. */
static __device__ __forceinline__ float shift_of(const float *lse, int row, int rows)
{
    float x = row < rows ? lse[row] * LOG2_E : INFINITY;
    return x == -INFINITY ? 0 : x;
}

/* Adds this warp's 16 rows, scaled, to memory. */
template <int D>
static __device__ __forceinline__ void add_rows(head_rows<float> to, int row, int rows, int width, float scale,
                                                const float (&sum)[1][D / 8][4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int at = row + r * 8 + lane_index() / 4;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (at < rows && n * 8 < width) {
                float2 *pair = reinterpret_cast<float2 *>(to.first + (int64_t)at * to.step + n * 8) + lane_index() % 4;
                float2 x = *pair;
                x.x += scale * sum[0][n][2 * r];
                x.y += scale * sum[0][n][2 * r + 1];
                *pair = x;
            }
    }
}

template <int D> static __device__ __forceinline__ void clear(float (&sum)[1][D / 8][4])
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        sum[0][n][0] = sum[0][n][1] = sum[0][n][2] = sum[0][n][3] = 0;
}

/* Two tiles of N rows of the same rows of two matrices, one behind the other. */
template <int D, int N, int THREADS>
static __device__ __forceinline__ void load_pair(char *memory, uint32_t to, head_rows<const element_t> x,
                                                 head_rows<const element_t> y, int row, int rows, int width)
{
    tile_load<D, N, THREADS>(memory, to, x, row, rows, width);
    tile_load<D, N, THREADS>(memory, to + tile<D, N>::bytes, y, row, rows, width);
}

/* s = p of rows that are queries. */
template <int N>
static __device__ __forceinline__ void query_softmax(float scale_log2, const float (&shift)[2], float (&s)[1][N / 8][4])
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[0][n][i] = exp2_approx(s[0][n][i] * scale_log2 - shift[i / 2]);
}

/* dp = ds = p (dp - delta) of rows that are queries. */
template <int N>
static __device__ __forceinline__ void query_gradient(const float (&p)[1][N / 8][4], const float (&delta)[2],
                                                      float (&dp)[1][N / 8][4])
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[0][n][i] = p[0][n][i] * (dp[0][n][i] - delta[i / 2]);
}

/* Of the queries of a tile. */
template <int N> struct query_numbers {
    float shift[N], delta[N];
    int position[N];
};

/* One query's, on its way to shared memory. */
struct query_number {
    float shift, delta;
    int position;
};

static __device__ __forceinline__ query_number number_of(const backward_call &b, int batch, int head, int row)
{
    const struct attention &a = b.call.a;
    int64_t rows_before = ((int64_t)batch * a.heads + head) * a.queries;
    return {shift_of(a.lse + rows_before, row, a.queries), row < a.queries ? b.delta[rows_before + row] : 0,
            position_of(a.position_q, row, a.queries, NO_QUERY)};
}

template <int N> static __device__ __forceinline__ void number_store(query_numbers<N> &to, const query_number &x)
{
    if (threadIdx.x < N) {
        to.shift[threadIdx.x] = x.shift;
        to.delta[threadIdx.x] = x.delta;
        to.position[threadIdx.x] = x.position;
    }
}

/* s = p of rows that are keys; masked where the tile is not full. */
template <int N>
static __device__ __forceinline__ void key_softmax(const query_numbers<N> &query, bool full, uint32_t limit,
                                                   const int (&key)[2], float scale_log2, float (&s)[1][N / 8][4])
{
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        int column = n * 8 + lane_index() % 4 * 2;
        if (!full)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if ((uint32_t)query.position[column + i % 2] - (uint32_t)key[i / 2] >= limit)
                    s[0][n][i] = -INFINITY;
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[0][n][i] = exp2_approx(s[0][n][i] * scale_log2 - query.shift[column + i % 2]);
    }
}

/* dp = ds = p (dp - delta) of rows that are keys. */
template <int N>
static __device__ __forceinline__ void key_gradient(const query_numbers<N> &query, const float (&p)[1][N / 8][4],
                                                    float (&dp)[1][N / 8][4])
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[0][n][i] = p[0][n][i] * (dp[0][n][i] - query.delta[n * 8 + lane_index() % 4 * 2 + i % 2]);
}

/* Where a block that walks over the queries of its heads is. */
struct query_walk {
    int head, t;
};

static __device__ __forceinline__ query_walk walk_next(query_walk w, const tile_range &range)
{
    w.t++;
    if (w.t == range.end) {
        w.t = range.begin;
        w.head++;
    }
    return w;
}

/* First head that reads key head `head_kv`: head * kv_heads / heads is at least it. */
static __device__ __forceinline__ int first_head(const struct attention &a, int head_kv)
{
    return (head_kv * a.heads + a.kv_heads - 1) / a.kv_heads;
}

template <int D, int N, int THREADS>
static __device__ __forceinline__ void load_queries(const backward_call &b, char *memory, uint32_t to, int batch,
                                                    query_walk w)
{
    const struct attention &a = b.call.a;
    load_pair<D, N, THREADS>(memory, to, rows_of((const element_t *)a.q, a.stride_q, b.call.step_q, a, batch, w.head),
                             rows_of(b.dout, a.stride_o, b.call.step_o, a, batch, w.head), w.t * N, a.queries,
                             a.head_dim);
}

/* The kernels of warpgroups (attention_backward_sm90a.cu): false, and nothing done, where there are none for this call. */
bool attention_backward_warpgroups(cudaStream_t stream, const backward_call &b);

#endif
