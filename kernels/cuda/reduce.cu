/* Sums over rows, in a fixed order: blocks sum some rows each, a second kernel sums theirs. Gradients of embedding
 * tables: rows are ranked by token, and each token's run of rows is summed by one block. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/cuda_common.cuh"

/* -- partial rows ----------------------------------------------------------------------------------------------------- */

/* A block has 32 columns; its 32 warps share the rows. */
static __global__ void __launch_bounds__(1024)
    add_partial_rows_kernel(int rows, int columns, const float *partial, float *out)
{
    SHARED(float, sums, [WARP][WARP + 1]);
    int c = (int)(blockIdx.x * WARP + threadIdx.x);
    float sum = 0;
    if (c < columns)
#pragma unroll 4
        for (int r = (int)threadIdx.y; r < rows; r += WARP)
            sum += partial[(int64_t)r * columns + c];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(sums[threadIdx.x][threadIdx.y]); /* warp y sums column y */
    c = (int)(blockIdx.x * WARP + threadIdx.y);
    if (threadIdx.x == 0 && c < columns)
        out[c] += sum;
}

void add_partial_rows(cudaStream_t stream, int rows, int columns, const float *partial, float *out)
{
    LAUNCH(add_partial_rows_kernel, (unsigned)divide_up<int>(columns, WARP), dim3(WARP, WARP), 0, stream, rows, columns,
           partial, out);
    check_launch("add_partial_rows");
}

/* Blocks x own columns, y every gridDim.y-th row. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    column_sum_kernel(int rows, int columns, const element_t *x, float *partial)
{
    int c = tile_vector() * VECTOR, left = columns - c;
    float sum[VECTOR] = {}, value[VECTOR];
    if (left <= 0)
        return;
#pragma unroll 4
    for (int r = tile_row(); r < rows; r += tile_step()) {
        unpack(load_vector<ALIGNED>(x + (int64_t)r * columns + c, left), value);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            sum[i] += value[i];
    }
    if (tile_row() < rows)
        store_floats<ALIGNED>(partial + (int64_t)tile_row() * columns + c, left, sum);
}

void cuda_column_sum(void *queue, int rows, int columns, const void *x, float *sum)
{
    if (rows == 0 || columns == 0)
        return;
    bool aligned = is_aligned(x, columns);
    tiling t = tile_rows(rows, divide_up<int>(columns, VECTOR));
    unsigned enough =
        divide_up<unsigned>(6 * (unsigned)cuda_processors(), t.grid.x); /* blocks of 256 that fill a processor */
    t.grid.y = t.grid.y < enough ? t.grid.y : enough;
    int partial_rows = (int)(t.grid.y * t.block.y) < rows ? (int)(t.grid.y * t.block.y) : rows;
    float *partial =
        static_cast<float *>(cuda_workspace(queue, (size_t)partial_rows * (size_t)columns * sizeof(float)));
    LAUNCH_ALIGNED(aligned, column_sum_kernel, t.grid, t.block, 0, stream_of(queue), rows, columns,
                   static_cast<const element_t *>(x), partial);
    check_launch("column_sum");
    add_partial_rows(stream_of(queue), partial_rows, columns, partial, sum);
}

/* -- embedding -------------------------------------------------------------------------------------------------------- */

/* order[rank] = row, rows ranked by (token, row): each thread counts who comes before its row. Quadratic in the rows,
 * but of four compares for each 16 bytes of shared memory: microseconds for the tokens of a micro-batch. */
static __global__ void __launch_bounds__(THREADS) rank_rows_kernel(int rows, const int *token, int *order)
{
    SHARED(int4, others, [THREADS]);
    int row = (int)(blockIdx.x * THREADS + threadIdx.x), own = row < rows ? token[row] : 0, rank = 0;
    for (int first = 0; first < rows; first += 4 * THREADS) {
        int at = first + 4 * (int)threadIdx.x;
        const int4 none = make_int4(INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX);
        others[threadIdx.x] = none;
        if (at < rows)
            others[threadIdx.x] =
                make_int4(token[at], at + 1 < rows ? token[at + 1] : INT32_MAX,
                          at + 2 < rows ? token[at + 2] : INT32_MAX, at + 3 < rows ? token[at + 3] : INT32_MAX);
        __syncthreads();
        for (int i = 0; i < THREADS; i++) {
            int4 o = others[i];
            int r = first + 4 * i;
            rank += (o.x < own || (o.x == own && r < row)) + (o.y < own || (o.y == own && r + 1 < row)) +
                    (o.z < own || (o.z == own && r + 2 < row)) + (o.w < own || (o.w == own && r + 3 < row));
        }
        __syncthreads();
    }
    if (row < rows)
        order[rank] = row;
}

enum { RUN_STEP = 4 };

/* Blocks x own columns; y is a rank, and the first of its token's run sums the run. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    embedding_backward_kernel(int rows, int columns, const int *token, const int *order, int first, int count,
                              const element_t *dy, float *dtable)
{
    int c = tile_vector() * VECTOR, left = columns - c;
    if (left <= 0)
        return;
    for (int rank = tile_row(); rank < rows; rank += tile_step()) {
        int own = token[order[rank]], at = own - first;
        if (at < 0 || at >= count || (rank > 0 && token[order[rank - 1]] == own))
            continue;
        float sum[VECTOR], value[VECTOR];
        float *out = dtable + (int64_t)at * columns + c;
        load_floats<ALIGNED>(out, left, sum);
        bool more = true;
        for (int r = rank; more; r += RUN_STEP) { /* some rows at a time, so that their loads overlap */
            uint4 row[RUN_STEP];
#pragma unroll
            for (int i = 0; i < RUN_STEP; i++) {
                int from = r + i < rows ? order[r + i] : -1;
                more = more && from >= 0 && token[from] == own;
                row[i] = load_vector<ALIGNED>(dy + (int64_t)from * columns + c, more ? left : 0);
            }
#pragma unroll
            for (int i = 0; i < RUN_STEP; i++) {
                unpack(row[i], value);
                for (int k = 0; k < VECTOR; k++)
                    sum[k] += value[k];
            }
        }
        store_floats<ALIGNED>(out, left, sum);
    }
}

void cuda_embedding_backward(void *queue, int rows, int columns, const int *token, int first, int count, const void *dy,
                             float *dtable)
{
    if (rows == 0 || columns == 0)
        return;
    bool aligned = is_aligned(dy, columns) && is_aligned(dtable, 0);
    tiling t = tile_rows(rows, divide_up<int>(columns, VECTOR));
    int *order = static_cast<int *>(cuda_workspace(queue, (size_t)rows * sizeof(int)));
    LAUNCH(rank_rows_kernel, (unsigned)divide_up<int>(rows, THREADS), THREADS, 0, stream_of(queue), rows, token, order);
    LAUNCH_ALIGNED(aligned, embedding_backward_kernel, t.grid, t.block, 0, stream_of(queue), rows, columns, token,
                   order, first, count, static_cast<const element_t *>(dy), dtable);
    check_launch("embedding_backward");
}
