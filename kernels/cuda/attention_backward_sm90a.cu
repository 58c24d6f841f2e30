/* Causal attention backward with products of warpgroups (Hopper), in the two passes of attention_backward.cu: a block owns
 * 128 rows (queries, then keys), each of its two warpgroups 64, and walks over tiles of 64 of the others. The products
 * that end a tile run beside those that begin the next one; tiles are in three buffers for that.
 *
 * Only in code for sm_90a; anywhere else the kernels are empty and are not launched. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/warpgroup.cuh"

static constexpr int ROWS = 128, N = 64, STAGES = 3, BLOCK_THREADS = 2 * WARPGROUP;

/* Two tiles of rows, then the pairs of tiles that pass by, then what is known of the queries among them. */
template <int D> struct shared_tiles {
    static constexpr uint32_t rows = tile<D, ROWS>::bytes, passing = tile<D, N>::bytes, pairs = 2 * rows;
    static constexpr uint32_t numbers = pairs + STAGES * 2 * passing;
    static constexpr uint32_t bytes = numbers + STAGES * sizeof(query_numbers<N>);
};

#if HAVE_WARPGROUPS
/* c = 64 rows of a tile of rows, from a on, times all rows of the passing tile b. */
template <int D> static __device__ __forceinline__ void start_rows(uint32_t a, uint32_t b, float (&c)[1][N / 8][4])
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        warpgroup_product<N>(c, warpgroup_rows(a + i / 4 * (ROWS * 128) + i % 4 * 32),
                             warpgroup_rows(b + i / 4 * (N * 128) + i % 4 * 32), i > 0);
    warpgroup_commit();
}

/* c += p times the passing tile b. */
template <int D>
static __device__ __forceinline__ void start_columns(const uint32_t (&p)[1][N / 16][4], uint32_t b,
                                                     float (&c)[1][D / 8][4])
{
#pragma unroll
    for (int i = 0; i < N / 16; i++)
        warpgroup_product<D>(c, p[0][i], warpgroup_columns(b + i * (16 * 128), N * 128));
    warpgroup_commit();
}

static __device__ __forceinline__ int next_stage(int stage)
{
    return stage + 1 < STAGES ? stage + 1 : 0;
}
#endif

/* grid: heads, tiles of queries (the last first), batch. */
template <int D>
__global__ void __launch_bounds__(BLOCK_THREADS) attention_backward_queries_warpgroup_tiles(const backward_call b)
{
#if HAVE_WARPGROUPS
    using tiles = shared_tiles<D>;
    const struct attention &a = b.call.a;
    DYNAMIC_SHARED(char, memory);
    uint32_t start = shared_address(memory), own = start + warpgroup_index() * 64 * 128;
    int head = blockIdx.x, batch = blockIdx.z, first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int head_kv = head * a.kv_heads / a.heads, row = first + (int)threadIdx.x / WARP * 16 + lane_index() / 4;
    tile_range range = key_tiles(a, first, first + ROWS < a.queries ? first + ROWS : a.queries, N);
    if (range.begin >= range.end)
        return;
    head_rows<const element_t> k = rows_of((const element_t *)a.k, a.stride_kv, b.call.step_kv, a, batch, head_kv),
                               v = rows_of((const element_t *)a.v, a.stride_kv, b.call.step_kv, a, batch, head_kv);
    load_pair<D, ROWS, BLOCK_THREADS>(
        memory, 0, rows_of((const element_t *)a.q, a.stride_q, b.call.step_q, a, batch, head),
        rows_of(b.dout, a.stride_o, b.call.step_o, a, batch, head), first, a.queries, a.head_dim);
    load_pair<D, N, BLOCK_THREADS>(memory, tiles::pairs, k, v, range.begin * N, a.keys, a.head_dim);
    cp_async_commit();
    int64_t rows_before = ((int64_t)batch * a.heads + head) * a.queries;
    float sum[1][D / 8][4], s[1][N / 8][4], dp[1][N / 8][4], shift[2], delta[2];
    uint32_t ds[1][N / 16][4];
    clear<D>(sum);
    warpgroup_hold(sum);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        shift[r] = shift_of(a.lse + rows_before, row + r * 8, a.queries);
        delta[r] = row + r * 8 < a.queries ? b.delta[rows_before + row + r * 8] : 0;
    }
    for (int t = range.begin, stage = 0; t < range.end; t++, stage = next_stage(stage)) {
        uint32_t tile_k = start + tiles::pairs + (uint32_t)stage * 2 * tiles::passing;
        tiles_arrive();
        if (t + 1 < range.end)
            load_pair<D, N, BLOCK_THREADS>(memory, tiles::pairs + (uint32_t)next_stage(stage) * 2 * tiles::passing, k,
                                           v, (t + 1) * N, a.keys, a.head_dim);
        cp_async_commit();
        warpgroup_begin();
        start_rows<D>(own, tile_k, s);
        start_rows<D>(own + tiles::rows, tile_k + tiles::passing, dp);
        warpgroup_wait<1>();
        warpgroup_hold(s);
        if (t < range.full_begin || t >= range.full_end)
            mask_keys<1, N>(a, row, t * N, s);
        query_softmax<N>(b.call.scale_log2, shift, s);
        warpgroup_wait<0>();
        warpgroup_hold(dp);
        query_gradient<N>(s, delta, dp);
        pack_rows<1, N>(dp, ds);
        warpgroup_hold(ds);
        warpgroup_begin();
        start_columns<D>(ds, tile_k, sum);
    }
    warpgroup_wait<0>();
    warpgroup_hold(sum);
    cp_async_wait<0>();
    add_rows<D>(rows_of(b.dq, a.stride_q, b.call.step_q, a, batch, head), row - lane_index() / 4, a.queries, a.head_dim,
                a.scale, sum);
#else
    (void)b;
#endif
}

/* grid: key heads, tiles of keys (the first, which most queries see, first), batch. */
template <int D>
__global__ void __launch_bounds__(BLOCK_THREADS) attention_backward_keys_warpgroup_tiles(const backward_call b)
{
#if HAVE_WARPGROUPS
    using tiles = shared_tiles<D>;
    const struct attention &a = b.call.a;
    DYNAMIC_SHARED(char, memory);
    uint32_t start = shared_address(memory), own = start + warpgroup_index() * 64 * 128;
    query_numbers<N> *numbers = reinterpret_cast<query_numbers<N> *>(memory + tiles::numbers);
    int head_kv = blockIdx.x, batch = blockIdx.z, first = (int)blockIdx.y * ROWS;
    int row = first + (int)threadIdx.x / WARP * 16 + lane_index() / 4, end_head = first_head(a, head_kv + 1);
    tile_range range = query_tiles(a, first, first + ROWS < a.keys ? first + ROWS : a.keys, N);
    query_walk now = {first_head(a, head_kv), range.begin};
    if (range.begin >= range.end || now.head >= end_head)
        return;
    load_pair<D, ROWS, BLOCK_THREADS>(
        memory, 0, rows_of((const element_t *)a.k, a.stride_kv, b.call.step_kv, a, batch, head_kv),
        rows_of((const element_t *)a.v, a.stride_kv, b.call.step_kv, a, batch, head_kv), first, a.keys, a.head_dim);
    load_queries<D, N, BLOCK_THREADS>(b, memory, tiles::pairs, batch, now);
    cp_async_commit();
    number_store(numbers[0], number_of(b, batch, now.head, now.t * N + (int)threadIdx.x % N));
    int key[2] = {position_of(a.position_k, row, a.keys, NO_KEY), position_of(a.position_k, row + 8, a.keys, NO_KEY)};
    float dk[1][D / 8][4], dv[1][D / 8][4], p[1][N / 8][4], ds[1][N / 8][4];
    uint32_t packed_p[1][N / 16][4], packed_ds[1][N / 16][4];
    clear<D>(dk);
    clear<D>(dv);
    warpgroup_hold(dk);
    warpgroup_hold(dv);
    for (int stage = 0; now.head < end_head; stage = next_stage(stage)) {
        uint32_t tile_q = start + tiles::pairs + (uint32_t)stage * 2 * tiles::passing,
                 tile_dout = tile_q + tiles::passing;
        query_walk next = walk_next(now, range);
        query_number number = {0, 0, 0};
        tiles_arrive();
        if (next.head < end_head) {
            load_queries<D, N, BLOCK_THREADS>(
                b, memory, tiles::pairs + (uint32_t)next_stage(stage) * 2 * tiles::passing, batch, next);
            number = number_of(b, batch, next.head, next.t * N + (int)threadIdx.x % N);
        }
        cp_async_commit();
        warpgroup_begin();
        start_rows<D>(own, tile_q, p);
        start_rows<D>(own + tiles::rows, tile_dout, ds);
        warpgroup_wait<1>();
        warpgroup_hold(p);
        key_softmax<N>(numbers[stage], now.t >= range.full_begin && now.t < range.full_end, sight(a), key,
                       b.call.scale_log2, p);
        pack_rows<1, N>(p, packed_p);
        warpgroup_hold(packed_p);
        warpgroup_begin();
        start_columns<D>(packed_p, tile_dout, dv);
        warpgroup_wait<1>();
        warpgroup_hold(ds);
        key_gradient<N>(numbers[stage], p, ds);
        pack_rows<1, N>(ds, packed_ds);
        warpgroup_hold(packed_ds);
        warpgroup_begin();
        start_columns<D>(packed_ds, tile_q, dk);
        number_store(numbers[next_stage(stage)], number);
        now = next;
    }
    warpgroup_wait<0>();
    warpgroup_hold(dk);
    warpgroup_hold(dv);
    cp_async_wait<0>();
    row -= lane_index() / 4;
    add_rows<D>(rows_of(b.dv, a.stride_kv, b.call.step_kv, a, batch, head_kv), row, a.keys, a.head_dim, 1, dv);
    add_rows<D>(rows_of(b.dk, a.stride_kv, b.call.step_kv, a, batch, head_kv), row, a.keys, a.head_dim, a.scale, dk);
#else
    (void)b;
#endif
}

template <int D> static void backward_warpgroups(cudaStream_t stream, const backward_call &b)
{
    constexpr int bytes = shared_tiles<D>::bytes;
    const struct attention &a = b.call.a;
    auto queries = attention_backward_queries_warpgroup_tiles<D>;
    shared_memory_limit(queries, bytes);
    LAUNCH(queries, dim3(a.heads, divide_up(a.queries, ROWS), a.batch), dim3(BLOCK_THREADS), bytes, stream, b);
    check_launch("attention_backward_queries_warpgroups");
    auto keys = attention_backward_keys_warpgroup_tiles<D>;
    shared_memory_limit(keys, bytes);
    LAUNCH(keys, dim3(a.kv_heads, divide_up(a.keys, ROWS), a.batch), dim3(BLOCK_THREADS), bytes, stream, b);
    check_launch("attention_backward_keys_warpgroups");
}

bool attention_backward_warpgroups(cudaStream_t stream, const backward_call &b)
{
    const struct attention &a = b.call.a;
    if (!attention_warpgroups() || a.queries <= ROWS / 2 || (a.head_dim > 64 && (a.head_dim <= 96 || a.head_dim > 128)))
        return false;
    if (a.head_dim <= 64)
        backward_warpgroups<64>(stream, b);
    else
        backward_warpgroups<128>(stream, b);
    return true;
}
