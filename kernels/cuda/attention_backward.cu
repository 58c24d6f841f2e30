/* Causal attention backward in two passes (formulas: ref/attention.c). One gives dq, a block per tile of queries over
 * the tiles of keys; the other dk and dv, a block per tile of keys over the tiles of queries of all heads that read
 * them. Each makes the scores again, so that there are seven products instead of the five of one pass, 1.4 times the
 * operations; in return nothing is added by atomics (two runs give the same bits), and p and ds never leave the
 * registers: keys are the rows of the second pass, which makes p and ds transposed. For head_dim 192 the second pass is
 * done for dv and dk apart, since both sums together do not fit into registers: eight products. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/attention_backward.cuh"

/* grid: heads, rows by WARPS, batch. */
__global__ void __launch_bounds__(WARP *PLAIN_WARPS)
    attention_delta(const attention_call call, const element_t *dout_data, float *delta)
{
    const struct attention &a = call.a;
    int row = (int)(blockIdx.y * PLAIN_WARPS + threadIdx.x / WARP), head = blockIdx.x, batch = blockIdx.z;
    if (row >= a.queries)
        return;
    float o[PLAIN_COLUMNS], dout[PLAIN_COLUMNS];
    plain_row(o, rows_of((const element_t *)a.o, a.stride_o, call.step_o, a, batch, head), row, a.head_dim);
    plain_row(dout, rows_of(dout_data, a.stride_o, call.step_o, a, batch, head), row, a.head_dim);
    float dot = plain_dot(o, dout);
    if (lane_index() == 0)
        delta[((int64_t)batch * a.heads + head) * a.queries + row] = dot;
}

/* grid: heads, tiles of queries (the last first), batch. */
template <int D, int WARPS, int N>
__global__ void __launch_bounds__(WARP *WARPS) attention_backward_queries_tiles(const backward_call b)
{
    constexpr int ROWS = 16 * WARPS, THREADS = WARP * WARPS;
    constexpr uint32_t tile_q = 0, tile_dout = tile<D, ROWS>::bytes, pairs = 2 * tile<D, ROWS>::bytes;
    const struct attention &a = b.call.a;
    DYNAMIC_SHARED(char, memory);
    int head = blockIdx.x, batch = blockIdx.z, first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int head_kv = head * a.kv_heads / a.heads, warp_row = (int)threadIdx.x / WARP * 16;
    tile_range range = key_tiles(a, first, first + ROWS < a.queries ? first + ROWS : a.queries, N);
    if (range.begin >= range.end)
        return;
    head_rows<const element_t> k = rows_of((const element_t *)a.k, a.stride_kv, b.call.step_kv, a, batch, head_kv),
                               v = rows_of((const element_t *)a.v, a.stride_kv, b.call.step_kv, a, batch, head_kv);
    tile_load<D, ROWS, THREADS>(memory, tile_q,
                                rows_of((const element_t *)a.q, a.stride_q, b.call.step_q, a, batch, head), first,
                                a.queries, a.head_dim);
    tile_load<D, ROWS, THREADS>(memory, tile_dout, rows_of(b.dout, a.stride_o, b.call.step_o, a, batch, head), first,
                                a.queries, a.head_dim);
    load_pair<D, N, THREADS>(memory, pairs, k, v, range.begin * N, a.keys, a.head_dim);
    cp_async_commit();
    int64_t rows_before = ((int64_t)batch * a.heads + head) * a.queries;
    float sum[1][D / 8][4], shift[2], delta[2];
    clear<D>(sum);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = first + warp_row + r * 8 + lane_index() / 4;
        shift[r] = shift_of(a.lse + rows_before, row, a.queries);
        delta[r] = row < a.queries ? b.delta[rows_before + row] : 0;
    }
    uint32_t now = pairs, next = pairs + 2 * tile<D, N>::bytes;
    for (int t = range.begin; t < range.end; t++) {
        float s[1][N / 8][4], dp[1][N / 8][4];
        uint32_t ds[1][N / 16][4];
        cp_async_wait<0>();
        __syncthreads();
        if (t + 1 < range.end)
            load_pair<D, N, THREADS>(memory, next, k, v, (t + 1) * N, a.keys, a.head_dim);
        cp_async_commit();
        if (first + warp_row < a.queries) {
            product_rows<D, ROWS, N, 1>(memory, tile_q, warp_row, now, s);
            product_rows<D, ROWS, N, 1>(memory, tile_dout, warp_row, now + tile<D, N>::bytes, dp);
            if (t < range.full_begin || t >= range.full_end)
                mask_keys<1, N>(a, first + warp_row + lane_index() / 4, t * N, s);
            query_softmax<N>(b.call.scale_log2, shift, s);
            query_gradient<N>(s, delta, dp);
            pack_rows<1, N>(dp, ds);
            product_columns<D, N, 1>(ds, memory, now, sum);
        }
        uint32_t swap = now;
        now = next;
        next = swap;
    }
    cp_async_wait<0>();
    add_rows<D>(rows_of(b.dq, a.stride_q, b.call.step_q, a, batch, head), first + warp_row, a.queries, a.head_dim,
                a.scale, sum);
}

/* grid: key heads, tiles of keys (the first, which most queries see, first), batch. */
template <int D, int WARPS, int N, bool DK, bool DV>
__global__ void __launch_bounds__(WARP *WARPS) attention_backward_keys_tiles(const backward_call b)
{
    constexpr int ROWS = 16 * WARPS, THREADS = WARP * WARPS;
    constexpr uint32_t tile_k = 0, tile_v = tile<D, ROWS>::bytes, pairs = 2 * tile<D, ROWS>::bytes;
    constexpr uint32_t tile_n = tile<D, N>::bytes;
    const struct attention &a = b.call.a;
    DYNAMIC_SHARED(char, memory);
    query_numbers<N> *numbers = reinterpret_cast<query_numbers<N> *>(memory + pairs + 4 * tile_n);
    int head_kv = blockIdx.x, batch = blockIdx.z, first = (int)blockIdx.y * ROWS;
    int warp_row = (int)threadIdx.x / WARP * 16, end_head = first_head(a, head_kv + 1);
    tile_range range = query_tiles(a, first, first + ROWS < a.keys ? first + ROWS : a.keys, N);
    query_walk now = {first_head(a, head_kv), range.begin};
    if (range.begin >= range.end || now.head >= end_head)
        return;
    load_pair<D, ROWS, THREADS>(
        memory, tile_k, rows_of((const element_t *)a.k, a.stride_kv, b.call.step_kv, a, batch, head_kv),
        rows_of((const element_t *)a.v, a.stride_kv, b.call.step_kv, a, batch, head_kv), first, a.keys, a.head_dim);
    load_queries<D, N, THREADS>(b, memory, pairs, batch, now);
    cp_async_commit();
    number_store(numbers[0], number_of(b, batch, now.head, now.t * N + (int)threadIdx.x));
    int key[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
        key[r] = position_of(a.position_k, first + warp_row + r * 8 + lane_index() / 4, a.keys, NO_KEY);
    float dk[1][D / 8][4], dv[1][D / 8][4];
    clear<D>(dk);
    clear<D>(dv);
    for (int stage = 0; now.head < end_head; stage ^= 1) {
        uint32_t tile_q = pairs + (uint32_t)stage * 2 * tile_n, tile_dout = tile_q + tile_n;
        query_walk next = walk_next(now, range);
        query_number number = {0, 0, 0};
        float p[1][N / 8][4], ds[1][N / 8][4];
        uint32_t packed[1][N / 16][4];
        cp_async_wait<0>();
        __syncthreads();
        if (next.head < end_head) {
            load_queries<D, N, THREADS>(b, memory, pairs + (uint32_t)(stage ^ 1) * 2 * tile_n, batch, next);
            number = number_of(b, batch, next.head, next.t * N + (int)threadIdx.x % N);
        }
        cp_async_commit();
        if (first + warp_row < a.keys) {
            product_rows<D, ROWS, N, 1>(memory, tile_k, warp_row, tile_q, p);
            key_softmax<N>(numbers[stage], now.t >= range.full_begin && now.t < range.full_end, sight(a), key,
                           b.call.scale_log2, p);
            if (DV) {
                pack_rows<1, N>(p, packed);
                product_columns<D, N, 1>(packed, memory, tile_dout, dv);
            }
            if (DK) {
                product_rows<D, ROWS, N, 1>(memory, tile_v, warp_row, tile_dout, ds);
                key_gradient<N>(numbers[stage], p, ds);
                pack_rows<1, N>(ds, packed);
                product_columns<D, N, 1>(packed, memory, tile_q, dk);
            }
        }
        number_store(numbers[stage ^ 1], number);
        now = next;
    }
    cp_async_wait<0>();
    if (DV)
        add_rows<D>(rows_of(b.dv, a.stride_kv, b.call.step_kv, a, batch, head_kv), first + warp_row, a.keys, a.head_dim,
                    1, dv);
    if (DK)
        add_rows<D>(rows_of(b.dk, a.stride_kv, b.call.step_kv, a, batch, head_kv), first + warp_row, a.keys, a.head_dim,
                    a.scale, dk);
}

/* What one pair of rows has to do with one another. */
struct plain_pair {
    float p, ds;
};

static __device__ __forceinline__ plain_pair plain_gradient(const backward_call &b, int64_t row_number,
                                                            const float (&q)[PLAIN_COLUMNS],
                                                            const float (&k)[PLAIN_COLUMNS],
                                                            const float (&v)[PLAIN_COLUMNS],
                                                            const float (&dout)[PLAIN_COLUMNS])
{
    const struct attention &a = b.call.a;
    float p = expf(plain_dot(q, k) * a.scale - a.lse[row_number]);
    return {p, p * (plain_dot(dout, v) - b.delta[row_number]) * a.scale};
}

static __device__ __forceinline__ void plain_add(head_rows<float> to, int row, int width,
                                                 const float (&x)[PLAIN_COLUMNS])
{
    for (int i = 0; i < PLAIN_COLUMNS; i++) {
        int column = lane_index() + i * WARP;
        if (column < width)
            to.first[(int64_t)row * to.step + column] += x[i];
    }
}

/* One warp a query. */
__global__ void __launch_bounds__(WARP *PLAIN_WARPS) attention_backward_queries_plain(const backward_call b)
{
    const struct attention &a = b.call.a;
    int row = (int)(blockIdx.y * PLAIN_WARPS + threadIdx.x / WARP), head = blockIdx.x, batch = blockIdx.z;
    if (row >= a.queries)
        return;
    int head_kv = head * a.kv_heads / a.heads;
    head_rows<const element_t> keys = rows_of((const element_t *)a.k, a.stride_kv, b.call.step_kv, a, batch, head_kv),
                               values = rows_of((const element_t *)a.v, a.stride_kv, b.call.step_kv, a, batch, head_kv);
    float q[PLAIN_COLUMNS], dout[PLAIN_COLUMNS], k[PLAIN_COLUMNS], v[PLAIN_COLUMNS], dq[PLAIN_COLUMNS] = {0};
    plain_row(q, rows_of((const element_t *)a.q, a.stride_q, b.call.step_q, a, batch, head), row, a.head_dim);
    plain_row(dout, rows_of(b.dout, a.stride_o, b.call.step_o, a, batch, head), row, a.head_dim);
    for (int j = 0; j < a.keys; j++) {
        if ((uint32_t)a.position_q[row] - (uint32_t)a.position_k[j] >= sight(a))
            continue;
        plain_row(k, keys, j, a.head_dim);
        plain_row(v, values, j, a.head_dim);
        plain_pair pair = plain_gradient(b, ((int64_t)batch * a.heads + head) * a.queries + row, q, k, v, dout);
        for (int i = 0; i < PLAIN_COLUMNS; i++)
            dq[i] += pair.ds * k[i];
    }
    plain_add(rows_of(b.dq, a.stride_q, b.call.step_q, a, batch, head), row, a.head_dim, dq);
}

/* One warp a key. */
__global__ void __launch_bounds__(WARP *PLAIN_WARPS) attention_backward_keys_plain(const backward_call b)
{
    const struct attention &a = b.call.a;
    int row = (int)(blockIdx.y * PLAIN_WARPS + threadIdx.x / WARP), head_kv = blockIdx.x, batch = blockIdx.z;
    if (row >= a.keys)
        return;
    float q[PLAIN_COLUMNS], dout[PLAIN_COLUMNS], k[PLAIN_COLUMNS], v[PLAIN_COLUMNS], dk[PLAIN_COLUMNS] = {0},
                                                                                     dv[PLAIN_COLUMNS] = {0};
    plain_row(k, rows_of((const element_t *)a.k, a.stride_kv, b.call.step_kv, a, batch, head_kv), row, a.head_dim);
    plain_row(v, rows_of((const element_t *)a.v, a.stride_kv, b.call.step_kv, a, batch, head_kv), row, a.head_dim);
    for (int head = first_head(a, head_kv); head < first_head(a, head_kv + 1); head++)
        for (int i = 0; i < a.queries; i++) {
            if ((uint32_t)a.position_q[i] - (uint32_t)a.position_k[row] >= sight(a))
                continue;
            plain_row(q, rows_of((const element_t *)a.q, a.stride_q, b.call.step_q, a, batch, head), i, a.head_dim);
            plain_row(dout, rows_of(b.dout, a.stride_o, b.call.step_o, a, batch, head), i, a.head_dim);
            plain_pair pair = plain_gradient(b, ((int64_t)batch * a.heads + head) * a.queries + i, q, k, v, dout);
            for (int c = 0; c < PLAIN_COLUMNS; c++) {
                dk[c] += pair.ds * q[c];
                dv[c] += pair.p * dout[c];
            }
        }
    plain_add(rows_of(b.dk, a.stride_kv, b.call.step_kv, a, batch, head_kv), row, a.head_dim, dk);
    plain_add(rows_of(b.dv, a.stride_kv, b.call.step_kv, a, batch, head_kv), row, a.head_dim, dv);
}

template <int D, int N, bool DK, bool DV> static void backward_keys(cudaStream_t stream, const backward_call &b)
{
    constexpr int WARPS = 8, ROWS = 16 * WARPS;
    constexpr int bytes = 2 * tile<D, ROWS>::bytes + 4 * tile<D, N>::bytes + 2 * (int)sizeof(query_numbers<N>);
    auto kernel = attention_backward_keys_tiles<D, WARPS, N, DK, DV>;
    shared_memory_limit(kernel, bytes);
    LAUNCH(kernel, dim3(b.call.a.kv_heads, divide_up(b.call.a.keys, ROWS), b.call.a.batch), dim3(WARP * WARPS), bytes,
           stream, b);
    check_launch("attention_backward_keys");
}

template <int D, int N, int N_KEYS = N> static void backward_tiles(cudaStream_t stream, const backward_call &b)
{
    constexpr int WARPS = 8, ROWS = 16 * WARPS, bytes = 2 * tile<D, ROWS>::bytes + 4 * tile<D, N>::bytes;
    auto kernel = attention_backward_queries_tiles<D, WARPS, N>;
    shared_memory_limit(kernel, bytes);
    LAUNCH(kernel, dim3(b.call.a.heads, divide_up(b.call.a.queries, ROWS), b.call.a.batch), dim3(WARP * WARPS), bytes,
           stream, b);
    check_launch("attention_backward_queries");
    if constexpr (D <= 128) {
        backward_keys<D, N_KEYS, true, true>(stream, b);
    } else {
        backward_keys<D, N_KEYS, true, false>(stream, b);
        backward_keys<D, N_KEYS, false, true>(stream, b);
    }
}

static void backward_plain(cudaStream_t stream, const backward_call &b)
{
    const struct attention *a = &b.call.a;
    dim3 block(WARP * PLAIN_WARPS), queries(a->heads, divide_up(a->queries, PLAIN_WARPS), a->batch);
    LAUNCH(attention_backward_queries_plain, queries, block, 0, stream, b);
    LAUNCH(attention_backward_keys_plain, dim3(a->kv_heads, divide_up(a->keys, PLAIN_WARPS), a->batch), block, 0,
           stream, b);
    check_launch("attention_backward_plain");
}

void cuda_attention_backward(void *queue, const struct attention_gradient *g)
{
    const struct attention *a = &g->forward;
    attention_check(a);
    if (a->batch == 0 || a->heads == 0 || a->queries == 0 || a->keys == 0)
        return;
    cudaStream_t stream = stream_of(queue);
    size_t rows = (size_t)a->batch * (size_t)a->heads * (size_t)a->queries;
    float *delta = static_cast<float *>(cuda_workspace(queue, rows * sizeof *delta));
    backward_call b = {call_of(a), static_cast<const element_t *>(g->dout), delta, g->dq, g->dk, g->dv};
    LAUNCH(attention_delta, dim3(a->heads, divide_up(a->queries, PLAIN_WARPS), a->batch), dim3(WARP * PLAIN_WARPS), 0,
           stream, b.call, b.dout, delta);
    check_launch("attention_delta");
    uintptr_t pointers = (uintptr_t)g->dout | (uintptr_t)g->dq | (uintptr_t)g->dk | (uintptr_t)g->dv;
    if (!attention_fits_tiles(a) || pointers % 16 != 0)
        backward_plain(stream, b);
    else if (attention_backward_warpgroups(stream, b))
        return;
    else if (a->head_dim <= 64)
        backward_tiles<64, 64>(stream, b);
    else if (a->head_dim <= 96)
        backward_tiles<96, 64>(stream, b);
    else if (a->head_dim <= 128)
        backward_tiles<128, 64, 48>(stream, b);
    else
        backward_tiles<192, 32>(stream, b);
}
