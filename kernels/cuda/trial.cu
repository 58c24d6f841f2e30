/* Hopper's attention kernels on trial, before a run trusts them: a small problem through them and through the kernels of
 * all GPUs, which must agree. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/attention.cuh"

/* Two heads that share keys and values; four whole tiles of 128 rows and a part of one, so that every buffer of tiles is
 * filled again while the one before is in use. */
enum { HEADS = 2, ROWS = 584 };

/* Elements, then floats, of one problem; offsets count from the start of each. */
struct trial {
    int dim, n_q, n_kv, elements, floats;
};

static struct trial trial_of(int dim)
{
    struct trial t = {dim, ROWS * HEADS * dim, ROWS * dim, 0, 0};
    t.elements = 3 * t.n_q + 2 * t.n_kv;              /* q, dout, o, k, v */
    t.floats = t.n_q + 2 * t.n_kv + HEADS * ROWS + 1; /* dq, dk, dv, lse */
    return t;
}

static struct attention problem(const struct trial *t, element_t *e, float *f, const int *position)
{
    struct attention a = {};
    a.batch = 1;
    a.heads = HEADS;
    a.kv_heads = 1;
    a.head_dim = t->dim;
    a.queries = a.keys = ROWS;
    a.position_q = a.position_k = position;
    a.scale = 1 / sqrtf((float)t->dim);
    a.q = e;
    a.k = e + 3 * t->n_q;
    a.v = e + 3 * t->n_q + t->n_kv;
    a.stride_q = a.stride_o = HEADS * t->dim;
    a.stride_kv = t->dim;
    a.o = e + 2 * t->n_q;
    a.lse = f + t->n_q + 2 * t->n_kv;
    return a;
}

/* Numbers in -1 .. 1 by a linear congruence (Numerical Recipes' constants). */
static void fill(element_t *e, int n)
{
    uint32_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        e[i] = __float2bfloat16((float)(state >> 8) / 8388608.0f - 1);
    }
}

/* What one way makes of the problem: o, dq, dk, dv, lse as floats. false: CUDA refused something. */
static bool run(void *queue, const struct trial *t, char *device, const element_t *input, float *result)
{
    element_t *e = (element_t *)device, *host = (element_t *)malloc((size_t)t->n_q * sizeof *host);
    float *f = (float *)(device + ((size_t)t->elements * sizeof *e + 255) / 256 * 256);
    int position[ROWS], *on_device = (int *)(f + t->floats);
    for (int i = 0; i < ROWS; i++)
        position[i] = i;
    cudaStream_t stream = stream_of(queue);
    bool fine = host && cudaMemcpyAsync(e, input, (size_t)t->elements * sizeof *e, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
                cudaMemcpyAsync(on_device, position, sizeof position, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
                cudaMemsetAsync(f, 0, (size_t)t->floats * sizeof *f, stream) == cudaSuccess;
    if (fine) {
        struct attention_gradient g = {};
        g.forward = problem(t, e, f, on_device);
        g.dout = e + t->n_q;
        g.dq = f;
        g.dk = f + t->n_q;
        g.dv = f + t->n_q + t->n_kv;
        cuda_attention_forward(queue, &g.forward);
        cuda_attention_backward(queue, &g);
        fine = cudaMemcpyAsync(host, e + 2 * t->n_q, (size_t)t->n_q * sizeof *host, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
               cudaMemcpyAsync(result + t->n_q, f, (size_t)t->floats * sizeof *f, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
               cudaStreamSynchronize(stream) == cudaSuccess;
    }
    for (int i = 0; fine && i < t->n_q; i++)
        result[i] = __bfloat162float(host[i]);
    free(host);
    return fine;
}

/* |a - b| / |b| over n numbers; both are sums in fp32 of the same products, rounded to bf16 on the way at other places. */
static bool near(const float *a, const float *b, int n)
{
    double difference = 0, size = 0;
    for (int i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return size > 0 && sqrt(difference / size) < 4.0 / 256; /* a NaN is not near; 4 roundings of 2^-8 */
}

/* NULL, or why not. */
static const char *disagreement(void *queue, int dim)
{
    struct trial t = trial_of(dim);
    size_t bytes = ((size_t)t.elements * sizeof(element_t) + 255) / 256 * 256 + (size_t)(t.floats + ROWS) * sizeof(float);
    element_t *input = (element_t *)calloc((size_t)t.elements, sizeof *input);
    float *hopper = (float *)calloc((size_t)(t.n_q + t.floats), sizeof *hopper), *all = (float *)calloc((size_t)(t.n_q + t.floats), sizeof *all);
    void *device = NULL;
    bool room = input && hopper && all && cudaMalloc(&device, bytes) == cudaSuccess, fine = room;
    if (room)
        fill(input, t.elements);
    else
        cudaGetLastError(); /* it is no error of the next launch */
    fine = fine && run(queue, &t, (char *)device, input, hopper);
    cuda_attention_warpgroups(false);
    fine = fine && run(queue, &t, (char *)device, input, all);
    cuda_attention_warpgroups(true);
    int at = 0, parts[] = {t.n_q, t.n_q, t.n_kv, t.n_kv, HEADS * ROWS};
    for (int i = 0; i < 5; at += parts[i++])
        fine = fine && near(hopper + at, all + at, parts[i]);
    cudaFree(device);
    free(input);
    free(hopper);
    free(all);
    return !room ? "there is no room for it" : fine ? NULL : "their results are not those of the others";
}

const char *cuda_attention_trial(void *queue)
{
    const char *why = NULL;
    for (int dim = 64; dim <= 128 && attention_warpgroups() && !why; dim *= 2)
        why = disagreement(queue, dim);
    if (why)
        cuda_attention_warpgroups(false);
    return why;
}
