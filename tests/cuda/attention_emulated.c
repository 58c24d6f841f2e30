/* The gradient of attention on the emulator by the reference, when its turn in the stream comes. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_kernels.h"

static float *floats_of(const void *x, int64_t n)
{
    float *y = malloc((size_t)n * sizeof *y + 1);
    if (!y)
        abort();
    kernels_ref.convert(NULL, n, ELEMENT_BF16, x, ELEMENT_F32, y);
    return y;
}

/* Elements from the start of the first row to the end of the last. */
static int64_t span(int rows, int stride, int columns)
{
    return rows > 0 ? (int64_t)(rows - 1) * stride + columns : 0;
}

struct copies {
    float *q, *k, *v, *o;
    int64_t n_o;
};

static struct copies widen(struct attention *a)
{
    int wide_q = a->heads * a->head_dim, wide_kv = a->kv_heads * a->head_dim;
    int64_t n_q = span(a->queries * a->batch, a->stride_q, wide_q),
            n_kv = span(a->keys * a->batch, a->stride_kv, wide_kv),
            n_o = span(a->queries * a->batch, a->stride_o, wide_q);
    struct copies c = {floats_of(a->q, n_q), floats_of(a->k, n_kv), floats_of(a->v, n_kv), floats_of(a->o, n_o), n_o};
    a->q = c.q;
    a->k = c.k;
    a->v = c.v;
    a->o = c.o;
    return c;
}

static void drop(struct copies *c)
{
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->o);
}

static void backward(void *argument)
{
    struct attention_gradient *g = argument;
    struct copies c = widen(&g->forward);
    float *dout = floats_of(g->dout, c.n_o);
    g->dout = dout;
    kernels_ref.attention_backward(NULL, g);
    free(dout);
    drop(&c);
}

void cuda_attention_backward(void *queue, const struct attention_gradient *a)
{
    struct attention_gradient *later = malloc(sizeof *later);
    if (!later)
        abort();
    *later = *a;
    emulator_enqueue(queue, backward, later, free);
}
