/* What the forward kernels of attention share: running maximum and sum of a row, and the end, where a block of keys is
 * merged into earlier ones. */
#ifndef KERNELS_CUDA_ATTENTION_FORWARD_CUH
#define KERNELS_CUDA_ATTENTION_FORWARD_CUH

#include "kernels/cuda/attention.cuh"

/* Sum, maximum and output of this thread's rows. */
template <int D, int M> struct running {
    float o[M][D / 8][4], max[M][2], sum[M][2];
};

template <int D, int M> static __device__ __forceinline__ void running_clear(running<D, M> &run)
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

/* s = exp(score - maximum). What was summed before counts `kept` times from here on: o has to be scaled by it. The sums
 * stay one thread's share of a row until the end. */
template <int D, int M, int N>
static __device__ __forceinline__ void running_softmax(running<D, M> &run, float scale_log2, float (&s)[M][N / 8][4],
                                                       float (&kept)[M][2])
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
            kept[m][r] = exp2_approx(run.max[m][r] * scale_log2 - shift);
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 2 * r; c < 2 * r + 2; c++) {
                    s[m][n][c] = exp2_approx(s[m][n][c] * scale_log2 - shift);
                    sum += s[m][n][c];
                }
            run.sum[m][r] = run.sum[m][r] * kept[m][r] + sum;
            run.max[m][r] = top;
        }
}

template <int D, int M>
static __device__ __forceinline__ void running_scale(running<D, M> &run, const float (&kept)[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                run.o[m][n][c] *= kept[m][c / 2];
}

/* o = o before * kept + sums of this block * share. */
struct merged {
    float kept, share, lse;
};

static __device__ __forceinline__ merged merge(float before, float max_log2, float sum)
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

static __device__ __forceinline__ uint32_t merge_pair(const merged &w, float x, float y, const element_t *before)
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
static __device__ __forceinline__ void row_finish(const attention_call &call, head_rows<element_t> o, float *lse,
                                                  int row, int in_tile, running<D, M> &run, int m, int r, char *tile_q)
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
static __device__ __forceinline__ void forward_finish(const attention_call &call, int batch, int head, int first,
                                                      running<D, M> &run, char *tile_q)
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

/* The kernel of warpgroups (attention_forward_sm90a.cu): false, and nothing done, where there is none for this call. */
bool attention_forward_warpgroups(cudaStream_t stream, const struct attention *a);

#endif
