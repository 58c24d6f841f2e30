/* Causal attention forward with products of warpgroups (Hopper; Shah et al. 2024, FlashAttention-3, algorithm 2): a
 * block owns 128 queries of one head, each of its two warpgroups 64. While the product of a tile's probabilities with
 * its values runs, the next tile's scores are made and go through softmax. Keys are in two buffers, values in three,
 * since those of the tile before are still in use when the next ones are asked for.
 *
 * Only in code for sm_90a; anywhere else the kernel is empty and is not launched. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/attention_forward.cuh"
#include "kernels/cuda/warpgroup.cuh"

static constexpr int ROWS = 128, KEYS = 128, BLOCK_THREADS = 2 * WARPGROUP;

/* Queries, two tiles of keys, three of values, then a word of each thread. */
template <int D> struct shared_tiles {
    static constexpr uint32_t key = tile<D, KEYS>::bytes, q = 0, k = tile<D, ROWS>::bytes, v = k + 2 * key;
    static constexpr uint32_t words = v + 3 * key, bytes = words + BLOCK_THREADS * 4;
};

#if HAVE_WARPGROUPS
/* s = scores of the 64 queries from q on and the keys in tile k. */
template <int D> static __device__ __forceinline__ void start_scores(uint32_t q, uint32_t k, float (&s)[1][KEYS / 8][4])
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        warpgroup_product<KEYS>(s, warpgroup_rows(q + i / 4 * (ROWS * 128) + i % 4 * 32),
                                warpgroup_rows(k + i / 4 * (KEYS * 128) + i % 4 * 32), i > 0);
    warpgroup_commit();
}

/* o += p v */
template <int D>
static __device__ __forceinline__ void start_output(const uint32_t (&p)[1][KEYS / 16][4], uint32_t v,
                                                    float (&o)[1][D / 8][4])
{
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        warpgroup_product<D>(o, p[0][i], warpgroup_columns(v + i * (16 * 128), KEYS * 128));
    warpgroup_commit();
}

/* Tile t of the keys and values into its buffers. */
template <int D>
static __device__ __forceinline__ void load_tile(const attention_call &call, char *memory, head_rows<const element_t> k,
                                                 head_rows<const element_t> v, int t, int end)
{
    using tiles = shared_tiles<D>;
    if (t < end) {
        tile_load<D, KEYS, BLOCK_THREADS>(memory, tiles::k + (uint32_t)t % 2 * tiles::key, k, t * KEYS, call.a.keys,
                                          call.a.head_dim);
        tile_load<D, KEYS, BLOCK_THREADS>(memory, tiles::v + (uint32_t)t % 3 * tiles::key, v, t * KEYS, call.a.keys,
                                          call.a.head_dim);
    }
    cp_async_commit();
}

/* The scores of tile t, which have just been made, through mask and softmax. */
template <int D>
static __device__ __forceinline__ void tile_softmax(const attention_call &call, int row, int t, const tile_range &range,
                                                    float (&s)[1][KEYS / 8][4], running<D, 1> &run, float (&kept)[1][2])
{
    warpgroup_hold(s);
    if (t < range.full_begin || t >= range.full_end)
        mask_keys<1, KEYS>(call.a, row, t * KEYS, s);
    running_softmax<D, 1, KEYS>(run, call.scale_log2, s, kept);
}
#endif

/* grid: heads, tiles of queries (the last first), batch. */
template <int D>
__global__ void __launch_bounds__(BLOCK_THREADS) attention_forward_warpgroup_tiles(const attention_call call)
{
#if HAVE_WARPGROUPS
    using tiles = shared_tiles<D>;
    const struct attention &a = call.a;
    DYNAMIC_SHARED(char, memory);
    uint32_t start = shared_address(memory), own_q = start + tiles::q + warpgroup_index() * 64 * 128;
    int head = blockIdx.x, batch = blockIdx.z, first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int head_kv = head * a.kv_heads / a.heads, row = first + (int)threadIdx.x / WARP * 16 + lane_index() / 4;
    tile_range range = key_tiles(a, first, first + ROWS < a.queries ? first + ROWS : a.queries, KEYS);
    if (a.merge && range.begin >= range.end)
        return;
    head_rows<const element_t> k = rows_of((const element_t *)a.k, a.stride_kv, call.step_kv, a, batch, head_kv),
                               v = rows_of((const element_t *)a.v, a.stride_kv, call.step_kv, a, batch, head_kv);
    tile_load<D, ROWS, BLOCK_THREADS>(memory, tiles::q,
                                      rows_of((const element_t *)a.q, a.stride_q, call.step_q, a, batch, head), first,
                                      a.queries, a.head_dim);
    load_tile<D>(call, memory, k, v, range.begin, range.end);
    running<D, 1> run;
    running_clear(run);
    float s[1][KEYS / 8][4], kept[1][2];
    uint32_t p[1][KEYS / 16][4];
    if (range.begin < range.end) {
        tiles_arrive();
        load_tile<D>(call, memory, k, v, range.begin + 1, range.end);
        warpgroup_begin();
        start_scores<D>(own_q, start + tiles::k + (uint32_t)range.begin % 2 * tiles::key, s);
        warpgroup_wait<0>();
        tile_softmax<D>(call, row, range.begin, range, s, run, kept);
        pack_rows<1, KEYS>(s, p);
        for (int t = range.begin + 1; t < range.end; t++) {
            tiles_arrive();
            load_tile<D>(call, memory, k, v, t + 1, range.end);
            warpgroup_hold(run.o);
            warpgroup_hold(p);
            warpgroup_begin();
            start_scores<D>(own_q, start + tiles::k + (uint32_t)t % 2 * tiles::key, s);
            start_output<D>(p, start + tiles::v + (uint32_t)(t - 1) % 3 * tiles::key, run.o);
            warpgroup_wait<1>();
            tile_softmax<D>(call, row, t, range, s, run, kept);
            warpgroup_wait_after(run.sum[0][0] + run.sum[0][1], start + tiles::words + threadIdx.x * 4);
            warpgroup_wait<0>();
            warpgroup_hold(run.o);
            running_scale(run, kept);
            pack_rows<1, KEYS>(s, p);
        }
        warpgroup_hold(run.o);
        warpgroup_hold(p);
        warpgroup_begin();
        start_output<D>(p, start + tiles::v + (uint32_t)(range.end - 1) % 3 * tiles::key, run.o);
        warpgroup_wait<0>();
        warpgroup_hold(run.o);
    }
    tiles_arrive(); /* and no warp reads queries any more */
    forward_finish<D, ROWS, 1>(call, batch, head, first, run, memory);
#else
    (void)call;
#endif
}

template <int D> static void forward_warpgroups(cudaStream_t stream, const struct attention *a)
{
    constexpr int bytes = shared_tiles<D>::bytes;
    auto kernel = attention_forward_warpgroup_tiles<D>;
    shared_memory_limit(kernel, bytes);
    LAUNCH(kernel, dim3(a->heads, divide_up(a->queries, ROWS), a->batch), dim3(BLOCK_THREADS), bytes, stream,
           call_of(a));
    check_launch("attention_forward_warpgroups");
}

bool attention_forward_warpgroups(cudaStream_t stream, const struct attention *a)
{
    if (!attention_warpgroups() || a->queries <= ROWS / 2 ||
        (a->head_dim > 64 && (a->head_dim <= 96 || a->head_dim > 128)))
        return false;
    if (a->head_dim <= 64)
        forward_warpgroups<64>(stream, a);
    else
        forward_warpgroups<128>(stream, a);
    return true;
}

/* Is there code for this GPU, and is it wanted? */
static bool unwanted;

void cuda_attention_warpgroups(bool use)
{
    unwanted = !use;
}

#ifdef CUDA_EMULATED
static int compiled()
{
    return 1;
}
#else
static __device__ const int code_has_warpgroups = HAVE_WARPGROUPS;

static int compiled()
{
    int has = 0;
    if (cudaMemcpyFromSymbol(&has, code_has_warpgroups, sizeof has) != cudaSuccess)
        cudaGetLastError(); /* no code for this GPU: as good as empty kernels */
    return has;
}
#endif

bool attention_warpgroups()
{
    static int known = -1;
    int device = 0, major = 0;
    if (known < 0)
        known = cudaGetDevice(&device) == cudaSuccess &&
                cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                major == 9 && compiled();
    return known && !unwanted;
}
