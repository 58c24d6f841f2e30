/* Causal attention forward by tiles of keys with running maximum and sum (Dao 2023, FlashAttention-2, algorithm 1):
 * a block owns 16 * M * WARPS queries of one head, a warp 16 * M of them; scores live in registers only. The next tile
 * of keys and values is copied while this one is worked on. Earlier blocks of keys are merged by their log-sum-exp at the end (ref/attention.c). */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/attention.cuh"

/* Sum, maximum and output of this thread's rows. */
template <int D, int M> struct running {
    float o[M][D / 8][4], max[M][2], sum[M][2];
};

template <int D, int M> static __device__ void running_clear(running<D, M> &run)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            run.o[m][n][0] = run.o[m][n][1] = run.o[m][n][2] = run.o[m][n][3] = 0;
        run.max[m][0] = run.max[m][1] = -INFINITY;
        run.sum[m][0] = run.sum[m][1] = 0;
    }
}

/* p = exp(score - maximum), as bf16 for the next product; what was summed before is scaled to the new maximum. The sums stay one thread's
 * share of a row until the end. */
template <int D, int M, int N>
static __device__ void running_softmax(running<D, M> &run, float scale_log2, const float (&s)[M][N / 8][4],
                                       uint32_t (&p)[M][N / 16][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = run.max[m][r], sum = 0;
#pragma unroll
            for (int n = 0; n < N / 8; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
            top = quad_max(top);
            float shift = top == -INFINITY ? 0 : top * scale_log2;
            float kept = exp2_approx(run.max[m][r] * scale_log2 - shift);
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float x = exp2_approx(s[m][n][2 * r] * scale_log2 - shift);
                float y = exp2_approx(s[m][n][2 * r + 1] * scale_log2 - shift);
                sum += x + y;
                p[m][n / 2][n % 2 * 2 + r] = pack_elements(x, y);
            }
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                run.o[m][n][2 * r] *= kept;
                run.o[m][n][2 * r + 1] *= kept;
            }
            run.sum[m][r] = run.sum[m][r] * kept + sum;
            run.max[m][r] = top;
        }
}

/* o = o before * kept + sums of this block * share. */
struct merged {
    float kept, share, lse;
};

static __device__ merged merge(float before, float max_log2, float sum)
{
    float inverse = sum == 0 ? 0 : 1 / sum, now = sum == 0 ? -INFINITY : (max_log2 + log2f(sum)) * LN_2;
    if (before == -INFINITY)
        return {0, inverse, now};
    if (now == -INFINITY)
        return {1, 0, before};
    float together = fmaxf(before, now) + log1pf(expf(-fabsf(before - now)));
    if (isnan(before) || isnan(now))
        together = NAN;
    return {expf(before - together), expf(now - together) * inverse, together};
}

static __device__ uint32_t merge_pair(const merged &w, float x, float y, const element_t *before)
{
    x *= w.share;
    y *= w.share;
    if (w.kept != 0) {
        x += __bfloat162float(before[0]) * w.kept;
        y += __bfloat162float(before[1]) * w.kept;
    }
    return pack_elements(x, y);
}

/* Puts one row's output into the tile of the queries, which this warp has read for the last time. */
template <int D, int ROWS, int M>
static __device__ void row_finish(const attention_call &call, head_rows<element_t> o, float *lse, int row, int in_tile,
                                  running<D, M> &run, int m, int r, char *tile_q)
{
    const struct attention &a = call.a;
    int lane = lane_index();
    bool there = row < a.queries;
    float sum = quad_sum(run.sum[m][r]), before_lse = a.merge && there ? lse[row] : -INFINITY;
    __syncwarp(); /* all four lanes of the row have read it */
    merged w = merge(before_lse, run.max[m][r] * call.scale_log2, sum);
    const element_t *before = o.first + (int64_t)row * o.step;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        int column = n * 8 + lane % 4 * 2;
        merged here = w;
        if (column >= a.head_dim)
            here.kept = 0;
        uint32_t pair = merge_pair(here, run.o[m][n][2 * r], run.o[m][n][2 * r + 1], before + column);
        *(uint32_t *)(tile_q + tile<D, ROWS>::at(in_tile, n) + lane % 4 * 4) = pair;
    }
    if (there && lane % 4 == 0)
        lse[row] = w.lse;
}

template <int D, int ROWS, int M>
static __device__ void forward_finish(const attention_call &call, int batch, int head, int first, running<D, M> &run,
                                      char *tile_q)
{
    const struct attention &a = call.a;
    int lane = lane_index(), warp_row = (int)threadIdx.x / WARP * 16 * M;
    head_rows<element_t> o = rows_of((element_t *)a.o, a.stride_o, call.step_o, a, batch, head);
    float *lse = a.lse + ((int64_t)batch * a.heads + head) * a.queries;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int in_tile = warp_row + m * 16 + r * 8 + lane / 4;
            row_finish<D, ROWS, M>(call, o, lse, first + in_tile, in_tile, run, m, r, tile_q);
        }
    __syncwarp();
    for (int i = lane; i < 16 * M * (D / 8); i += WARP) {
        int in_tile = warp_row + i / (D / 8), chunk = i % (D / 8), row = first + in_tile;
        if (row < a.queries && chunk * 8 < a.head_dim)
            *(uint4 *)(o.first + (int64_t)row * o.step + chunk * 8) =
                *(uint4 *)(tile_q + tile<D, ROWS>::at(in_tile, chunk));
    }
}

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
        float s[M][N / 8][4];
        uint32_t p[M][N / 16][4];
        cp_async_wait<0>();
        __syncthreads();
        if (t + 1 < range.end)
            load_keys<D, N, THREADS>(call, memory, next, k, v, t + 1);
        cp_async_commit();
        product_rows<D, ROWS, N, M>(memory, tile_q, warp_row, now, s);
        if (t < range.full_begin || t >= range.full_end)
            mask_keys<M, N>(a, first + warp_row + lane_index() / 4, t * N, s);
        running_softmax<D, M, N>(run, call.scale_log2, s, p);
        product_columns<D, N, M>(p, memory, now + tile_kv, run.o);
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
    if (a->batch == 0 || a->heads == 0 || a->queries == 0)
        return;
    if (!attention_fits_tiles(a)) {
        dim3 grid(a->heads, divide_up(a->queries, PLAIN_WARPS), a->batch);
        LAUNCH(attention_forward_plain, grid, dim3(WARP * PLAIN_WARPS), 0, stream_of(queue), call_of(a));
        check_launch("attention_forward");
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
