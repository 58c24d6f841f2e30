/* What the norms' kernels share: how a row is spread over threads. Rows of up to 256 columns take 8, 16 or 32 lanes each, as
 * many as fill a block; longer ones a block. */
#ifndef KERNELS_CUDA_NORM_CUH
#define KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/cuda_common.cuh"

enum {
    THREADS_MOST = 512,      /* so that each may have 128 registers */
    FORWARD_COLUMNS = 16384, /* THREADS_MOST threads of four vectors */
    BACKWARD_COLUMNS = 8192, /* of two */
};

/* What the kernels of one call share. */
struct norm_rows {
    int rows, columns, stride;
    bool centred;
    const element_t *x, *weight, *bias;
    float *mean, *rstd;
};

struct shape {
    int vectors; /* per thread: 1, 2 or 4 */
    dim3 block;
};

static inline shape shape_of(int columns)
{
    int vectors = divide_up<int>(columns, VECTOR);
    unsigned lanes = vectors <= WARP / 4 ? WARP / 4 : vectors <= WARP / 2 ? WARP / 2 : WARP;
    if (vectors <= WARP)
        return shape{1, dim3(lanes, THREADS / lanes)};
    int each = vectors <= 256 ? 1 : vectors <= 2 * THREADS_MOST ? 2 : 4;
    return shape{each, dim3((unsigned)(divide_up<int>(divide_up<int>(vectors, each), WARP) * WARP))};
}

/* This thread's vectors of a row. */
template <int V, bool ALIGNED>
static __device__ __forceinline__ void load_row(const element_t *row, int columns, uint4 (&to)[V])
{
#pragma unroll
    for (int k = 0; k < V; k++) {
        int c = ((int)threadIdx.x + k * (int)blockDim.x) * VECTOR;
        to[k] = load_vector<ALIGNED>(row + c, columns - c);
    }
}

/* The sums of a block's rows of lanes, added. */
static __device__ __forceinline__ void add_block_rows(int columns, const float (&sum)[VECTOR], float *out)
{
    SHARED(float, tile, [THREADS * VECTOR]);
    int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), width = (int)blockDim.x * VECTOR;
    __syncthreads(); /* an earlier call has read the tile */
    store_floats<true>(tile + thread * VECTOR, VECTOR, sum);
    __syncthreads();
    for (int c = thread; c < columns; c += THREADS) {
        float total = 0;
        for (int y = 0; y < (int)blockDim.y; y++)
            total += tile[y * width + c];
        out[c] = total;
    }
}

#endif
