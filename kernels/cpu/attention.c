/* Attention by blocks of queries: scores of one block against all the keys it sees, as products (formulas:
 * ref/attention.c). */
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/vector.h"
#include "kernels/ref/ref.h"

enum { BLOCK = 64 };

/* One block of queries of one head against the keys [low, low + keys). */
struct tile {
    const struct attention *a;
    int batch, head, head_kv, query, queries, low, keys;
    float *scores; /* [queries][keys] */
};

static const float *tile_q(const struct tile *t, const void *base, int stride)
{
    return (const float *)base + ((int64_t)t->query * t->a->batch + t->batch) * stride + t->head * t->a->head_dim;
}

static int64_t tile_kv(const struct tile *t)
{
    return ((int64_t)t->low * t->a->batch + t->batch) * t->a->stride_kv + t->head_kv * t->a->head_dim;
}

static void product(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                    int ldb, float beta, float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, alpha, a, lda,
                b, ldb, beta, c, ldc);
}

static void tile_scores(const struct tile *t)
{
    const struct attention *a = t->a;
    product(false, true, t->queries, t->keys, a->head_dim, a->scale, tile_q(t, a->q, a->stride_q),
            a->batch * a->stride_q, (const float *)a->k + tile_kv(t), a->batch * a->stride_kv, 0, t->scores, t->keys);
}

/* Keys [*ret_first, *ret_end) of the tile that query i sees. */
static void tile_row(const struct tile *t, int i, int *ret_first, int *ret_end)
{
    attention_key_range(t->a, t->query + i, t->query + i + 1, ret_first, ret_end);
    *ret_first -= t->low;
    *ret_end -= t->low;
    if (*ret_end < *ret_first)
        *ret_end = *ret_first;
}

VECTOR_VERSIONS static float row_max(int n, const float *x)
{
    float lanes[VECTOR_LANES];
    for (int l = 0; l < VECTOR_LANES; l++)
        lanes[l] = -INFINITY;
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++)
            lanes[l] = lanes[l] > x[i + l] ? lanes[l] : x[i + l];
    float max = -INFINITY;
    for (; i < n; i++)
        max = max > x[i] ? max : x[i];
    for (int l = 0; l < VECTOR_LANES; l++)
        max = max > lanes[l] ? max : lanes[l];
    return max;
}

/* x = exp(x - shift); returns the sum. */
VECTOR_VERSIONS static float row_exp(int n, float shift, float *x)
{
    float lanes[VECTOR_LANES] = {0}, rest = 0;
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++) {
            x[i + l] = vector_exp(x[i + l] - shift);
            lanes[l] += x[i + l];
        }
    for (; i < n; i++) {
        x[i] = vector_exp(x[i] - shift);
        rest += x[i];
    }
    return rest + vector_total(lanes);
}

static void zero_outside(float *row, int first, int end, int n)
{
    memset(row, 0, (size_t)first * sizeof *row);
    memset(row + end, 0, (size_t)(n - end) * sizeof *row);
}

/* o of one row: earlier * kept + block * share. */
static void merge_row(int n, float kept, float share, const float *block, float *o)
{
    for (int d = 0; d < n; d++)
        o[d] = (kept > 0 ? o[d] * kept : 0) + block[d] * share;
}

static void tile_forward(const struct tile *t, float *block)
{
    const struct attention *a = t->a;
    float *lse = a->lse + ((int64_t)t->batch * a->heads + t->head) * a->queries + t->query, max[BLOCK], sum[BLOCK];
    tile_scores(t);
    for (int i = 0; i < t->queries; i++) {
        float *row = t->scores + (int64_t)i * t->keys;
        int first, end;
        tile_row(t, i, &first, &end);
        max[i] = row_max(end - first, row + first);
        sum[i] = end > first ? row_exp(end - first, max[i], row + first) : 0;
        zero_outside(row, first, end, t->keys);
    }
    product(false, false, t->queries, a->head_dim, t->keys, 1, t->scores, t->keys, (const float *)a->v + tile_kv(t),
            a->batch * a->stride_kv, 0, block, a->head_dim);
    for (int i = 0; i < t->queries; i++) {
        float now = sum[i] > 0 ? max[i] + logf(sum[i]) : -INFINITY, before = a->merge ? lse[i] : -INFINITY;
        float top = now > before ? now : before;
        float together = top > -INFINITY ? top + logf(expf(now - top) + expf(before - top)) : -INFINITY;
        float *o =
            (float *)a->o + ((int64_t)(t->query + i) * a->batch + t->batch) * a->stride_o + t->head * a->head_dim;
        merge_row(a->head_dim, before > -INFINITY ? expf(before - together) : 0,
                  sum[i] > 0 ? expf(now - together) / sum[i] : 0, block + (int64_t)i * a->head_dim, o);
        lse[i] = together;
    }
}

static bool tile_next(struct tile *t, int batch, int head, int query)
{
    const struct attention *a = t->a;
    int rows = a->queries - query < BLOCK ? a->queries - query : BLOCK, first, end;
    attention_key_range(a, query, query + rows, &first, &end);
    t->batch = batch;
    t->head = head;
    t->head_kv = head * a->kv_heads / a->heads;
    t->query = query;
    t->queries = rows;
    t->low = first;
    t->keys = end > first ? end - first : 0;
    return t->keys > 0;
}

/* Rows that see no key of a first block. */
static void tile_nothing(const struct tile *t)
{
    const struct attention *a = t->a;
    for (int i = t->query; i < t->query + t->queries && !a->merge; i++) {
        memset((float *)a->o + ((int64_t)i * a->batch + t->batch) * a->stride_o + t->head * a->head_dim, 0,
               (size_t)a->head_dim * sizeof(float));
        a->lse[((int64_t)t->batch * a->heads + t->head) * a->queries + i] = -INFINITY;
    }
}

void cpu_attention_forward(void *queue, const struct attention *a)
{
    (void)queue;
    float *scores = malloc((size_t)BLOCK * (size_t)(a->keys + a->head_dim) * sizeof *scores);
    struct tile tile = {.a = a, .scores = scores};
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->queries; i += BLOCK) {
                if (tile_next(&tile, b, h, i))
                    tile_forward(&tile, scores + (int64_t)BLOCK * a->keys);
                else
                    tile_nothing(&tile);
            }
    free(scores);
}

VECTOR_VERSIONS static void row_gradient(int n, float delta, float scale, const float *p, float *dp)
{
    for (int i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - delta) * scale;
}

VECTOR_VERSIONS static float row_dot(int n, const float *x, const float *y)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void tile_backward(const struct tile *t, const struct attention_gradient *g, float *dp)
{
    const struct attention *a = t->a;
    const float *lse = a->lse + ((int64_t)t->batch * a->heads + t->head) * a->queries + t->query;
    const float *o = tile_q(t, a->o, a->stride_o), *dout = tile_q(t, g->dout, a->stride_o);
    int step_q = a->batch * a->stride_q, step_kv = a->batch * a->stride_kv, step_o = a->batch * a->stride_o,
        width = a->head_dim;
    int64_t kv = tile_kv(t);
    tile_scores(t);
    product(false, true, t->queries, t->keys, width, 1, dout, step_o, (const float *)a->v + kv, step_kv, 0, dp,
            t->keys);
    for (int i = 0; i < t->queries; i++) {
        float *p = t->scores + (int64_t)i * t->keys, *dp_row = dp + (int64_t)i * t->keys;
        int first, end;
        tile_row(t, i, &first, &end);
        if (end > first)
            row_exp(end - first, lse[i], p + first);
        zero_outside(p, first, end, t->keys);
        row_gradient(t->keys, row_dot(width, dout + (int64_t)i * step_o, o + (int64_t)i * step_o), a->scale, p, dp_row);
    }
    float *dq = g->dq + ((int64_t)t->query * a->batch + t->batch) * a->stride_q + t->head * width;
    product(true, false, t->keys, width, t->queries, 1, t->scores, t->keys, dout, step_o, 1, g->dv + kv, step_kv);
    product(false, false, t->queries, width, t->keys, 1, dp, t->keys, (const float *)a->k + kv, step_kv, 1, dq, step_q);
    product(true, false, t->keys, width, t->queries, 1, dp, t->keys, tile_q(t, a->q, a->stride_q), step_q, 1,
            g->dk + kv, step_kv);
}

void cpu_attention_backward(void *queue, const struct attention_gradient *g)
{
    (void)queue;
    const struct attention *a = &g->forward;
    float *scores = malloc((size_t)BLOCK * (size_t)a->keys * 2 * sizeof *scores);
    struct tile tile = {.a = a, .scores = scores};
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->queries; i += BLOCK)
                if (tile_next(&tile, b, h, i))
                    tile_backward(&tile, g, scores + (int64_t)BLOCK * a->keys);
    free(scores);
}
