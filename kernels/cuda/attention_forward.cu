/* Causal attention forward by tiles of keys with running maximum and sum (Dao 2023, FlashAttention-2, algorithm 1):
 * a block owns 16 * M * WARPS queries of one head, a warp 16 * M of them; scores live in registers only. The next tile
 * of keys and values is copied while this one is worked on. Earlier blocks of keys are merged by their log-sum-exp at the end (ref/attention.c). */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/attention_forward.cuh"

/* A tile of keys, and behind it one of values. */
template <int D, int N, int THREADS>
static __device__ void load_keys(const attention_call &call, char *memory, uint32_t to, head_rows<const element_t> k,
                                 head_rows<const element_t> v, int t)
{
    tile_load<D, N, THREADS>(memory, to, k, t * N, call.a.keys, call.a.head_dim);
    tile_load<D, N, THREADS>(memory, to + tile<D, N>::bytes, v, t * N, call.a.keys, call.a.head_dim);
}

/* grid: heads, tiles of queries (the last ones, with the most keys, first), batch. */
template <int D, int WARPS, int M, int N>
__global__ void __launch_bounds__(WARP *WARPS) attention_forward_tiles(const attention_call call)
{
    constexpr int ROWS = 16 * M * WARPS, THREADS = WARP * WARPS;
    constexpr uint32_t tile_q = 0, tiles_kv = tile<D, ROWS>::bytes, tile_kv = tile<D, N>::bytes;
    const struct attention &a = call.a;
    DYNAMIC_SHARED(char, memory);
    int head = blockIdx.x, batch = blockIdx.z, first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int head_kv = head * a.kv_heads / a.heads, warp_row = (int)threadIdx.x / WARP * 16 * M;
    tile_range range = key_tiles(a, first, first + ROWS < a.queries ? first + ROWS : a.queries, N);
    if (a.merge && range.begin >= range.end)
        return;
    head_rows<const element_t> k = rows_of((const element_t *)a.k, a.stride_kv, call.step_kv, a, batch, head_kv),
                               v = rows_of((const element_t *)a.v, a.stride_kv, call.step_kv, a, batch, head_kv);
    tile_load<D, ROWS, THREADS>(memory, tile_q,
                                rows_of((const element_t *)a.q, a.stride_q, call.step_q, a, batch, head), first,
                                a.queries, a.head_dim);
    if (range.begin < range.end)
        load_keys<D, N, THREADS>(call, memory, tiles_kv, k, v, range.begin);
    cp_async_commit();
    running<D, M> run;
    running_clear(run);
    uint32_t now = tiles_kv, next = tiles_kv + 2 * tile_kv;
    for (int t = range.begin; t < range.end; t++) {
        float s[M][N / 8][4], kept[M][2];
        uint32_t p[M][N / 16][4];
        cp_async_wait<0>();
        __syncthreads();
        if (t + 1 < range.end)
            load_keys<D, N, THREADS>(call, memory, next, k, v, t + 1);
        cp_async_commit();
        if (first + warp_row < a.queries) {
            product_rows<D, ROWS, N, M>(memory, tile_q, warp_row, now, s);
            if (t < range.full_begin || t >= range.full_end)
                mask_keys<M, N>(a, first + warp_row + lane_index() / 4, t * N, s);
            running_softmax<D, M, N>(run, call.scale_log2, s, kept);
            running_scale(run, kept);
            pack_rows<M, N>(s, p);
            product_columns<D, N, M>(p, memory, now + tile_kv, run.o);
        }
        uint32_t swap = now;
        now = next;
        next = swap;
    }
    cp_async_wait<0>();
    __syncthreads(); /* all of the queries have come, where no key has */
    forward_finish<D, ROWS, M>(call, batch, head, first, run, memory);
}

/* One warp a query, one key after the other. */
__global__ void __launch_bounds__(WARP *PLAIN_WARPS) attention_forward_plain(const attention_call call)
{
    const struct attention &a = call.a;
    int lane = lane_index(), row = blockIdx.y * PLAIN_WARPS + threadIdx.x / WARP, head = blockIdx.x, batch = blockIdx.z;
    if (row >= a.queries)
        return;
    int head_kv = head * a.kv_heads / a.heads, position = a.position_q[row];
    head_rows<const element_t> q = rows_of((const element_t *)a.q, a.stride_q, call.step_q, a, batch, head),
                               k = rows_of((const element_t *)a.k, a.stride_kv, call.step_kv, a, batch, head_kv),
                               v = rows_of((const element_t *)a.v, a.stride_kv, call.step_kv, a, batch, head_kv);
    float query[PLAIN_COLUMNS], o[PLAIN_COLUMNS] = {0}, max = -INFINITY, sum = 0;
    plain_row(query, q, row, a.head_dim);
    for (int j = 0; j < a.keys; j++) {
        if ((uint32_t)position - (uint32_t)a.position_k[j] >= sight(a))
            continue;
        float key[PLAIN_COLUMNS], value[PLAIN_COLUMNS];
        plain_row(key, k, j, a.head_dim);
        plain_row(value, v, j, a.head_dim);
        float score = plain_dot(query, key) * call.scale_log2, top = fmaxf(max, score);
        float shift = top == -INFINITY ? 0 : top, kept = exp2f(max - shift), p = exp2f(score - shift);
        for (int i = 0; i < PLAIN_COLUMNS; i++)
            o[i] = o[i] * kept + p * value[i];
        sum = sum * kept + p;
        max = top;
    }
    float *lse = a.lse + ((int64_t)batch * a.heads + head) * a.queries + row;
    merged w = merge(a.merge ? *lse : -INFINITY, max, sum);
    element_t *out = (element_t *)a.o + ((int64_t)row * a.batch + batch) * a.stride_o + head * a.head_dim;
    for (int i = 0, c = lane; c < a.head_dim; i++, c += WARP)
        out[c] = __float2bfloat16(o[i] * w.share + (w.kept != 0 ? __bfloat162float(out[c]) * w.kept : 0));
    __syncwarp();
    if (lane == 0)
        *lse = w.lse;
}

template <int D, int WARPS, int M, int N> static void forward_tiles(void *queue, const struct attention *a)
{
    constexpr int ROWS = 16 * M * WARPS, bytes = tile<D, ROWS>::bytes + 4 * tile<D, N>::bytes;
    dim3 grid(a->heads, divide_up(a->queries, ROWS), a->batch);
    auto kernel = attention_forward_tiles<D, WARPS, M, N>;
    shared_memory_limit(kernel, bytes);
    LAUNCH(kernel, grid, dim3(WARP * WARPS), bytes, stream_of(queue), call_of(a));
    check_launch("attention_forward");
}

void cuda_attention_forward(void *queue, const struct attention *a)
{
    attention_check(a);
    if (a->batch == 0 || a->heads == 0 || a->queries == 0)
        return;
    if (!attention_fits_tiles(a)) {
        dim3 grid(a->heads, divide_up(a->queries, PLAIN_WARPS), a->batch);
        LAUNCH(attention_forward_plain, grid, dim3(WARP * PLAIN_WARPS), 0, stream_of(queue), call_of(a));
        check_launch("attention_forward");
    } else if (attention_forward_warpgroups(stream_of(queue), a)) {
        return;
    } else if (a->head_dim <= 64) {
        forward_tiles<64, 4, 2, 64>(queue, a);
    } else if (a->head_dim <= 96) {
        forward_tiles<96, 4, 2, 64>(queue, a);
    } else if (a->head_dim <= 128) {
        forward_tiles<128, 4, 2, 32>(queue, a);
    } else {
        forward_tiles<192, 8, 1, 64>(queue, a);
    }
}
