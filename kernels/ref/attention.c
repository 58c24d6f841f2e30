/* Causal attention by blocks of keys: o = softmax(scale q k^T) v. Blocks are merged by their log-sum-exp
 * (Liu et al. 2023, ring attention; Dao 2023): with L = log(e^L1 + e^L2), o = o1 e^(L1-L) + o2 e^(L2-L).
 * Backward with p = exp(scale q k^T - L), D = sum(dout o):  dv += p^T dout, ds = p (dout v^T - D),
 * dq += scale ds k, dk += scale ds^T q. */
#include "kernels/ref/ref.h"

#include <math.h>

void attention_key_range(const struct attention *a, int first, int end, int *ret_first, int *ret_end)
{
    int low = 0, high = a->keys;
    while (high > 0 && a->position_k[high - 1] > a->position_q[end - 1])
        high--;
    while (a->window > 0 && low < high && a->position_k[low] <= a->position_q[first] - a->window)
        low++;
    *ret_first = low;
    *ret_end = high;
}

static bool sees(const struct attention *a, int query, int key)
{
    int distance = a->position_q[query] - a->position_k[key];
    return distance >= 0 && (a->window == 0 || distance < a->window);
}

static double score(const struct attention *a, const float *q, int batch, int head_kv, int key)
{
    const float *k = (const float *)a->k + ((int64_t)key * a->batch + batch) * a->stride_kv + head_kv * a->head_dim;
    double dot = 0;
    for (int d = 0; d < a->head_dim; d++)
        dot += (double)q[d] * (double)k[d];
    return dot * (double)a->scale;
}

static void forward_row(const struct attention *a, int batch, int head, int query)
{
    int head_kv = head * a->kv_heads / a->heads;
    int64_t row = (int64_t)query * a->batch + batch;
    const float *q = (const float *)a->q + row * a->stride_q + head * a->head_dim;
    float *o = (float *)a->o + row * a->stride_o + head * a->head_dim;
    float *lse = a->lse + ((int64_t)batch * a->heads + head) * a->queries + query;
    double before = a->merge ? (double)*lse : -(double)INFINITY, max = before, sum = 0;
    for (int j = 0; j < a->keys; j++)
        if (sees(a, query, j))
            max = fmax(max, score(a, q, batch, head_kv, j));
    double kept = before > -(double)INFINITY ? exp(before - max) : 0;
    for (int d = 0; d < a->head_dim; d++)
        o[d] = a->merge && kept > 0 ? (float)((double)o[d] * kept) : 0;
    for (int j = 0; j < a->keys; j++) {
        if (!sees(a, query, j))
            continue;
        double p = exp(score(a, q, batch, head_kv, j) - max);
        const float *v = (const float *)a->v + ((int64_t)j * a->batch + batch) * a->stride_kv + head_kv * a->head_dim;
        sum += p;
        for (int d = 0; d < a->head_dim; d++)
            o[d] += (float)p * v[d];
    }
    sum += kept;
    for (int d = 0; d < a->head_dim && sum > 0; d++)
        o[d] = (float)((double)o[d] / sum);
    *lse = sum > 0 ? (float)(max + log(sum)) : -INFINITY;
}

void ref_attention_forward(void *queue, const struct attention *a)
{
    (void)queue;
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->queries; i++)
                forward_row(a, b, h, i);
}

static void backward_row(const struct attention_gradient *g, int batch, int head, int query)
{
    const struct attention *a = &g->forward;
    int head_kv = head * a->kv_heads / a->heads, width = a->head_dim;
    int64_t row = (int64_t)query * a->batch + batch;
    const float *q = (const float *)a->q + row * a->stride_q + head * width,
                *o = (const float *)a->o + row * a->stride_o + head * width;
    const float *k = a->k, *v = a->v, *dout = (const float *)g->dout + row * a->stride_o + head * width;
    float *dq = g->dq + row * a->stride_q + head * width;
    double lse = (double)a->lse[((int64_t)batch * a->heads + head) * a->queries + query], delta = 0;
    for (int d = 0; d < width; d++)
        delta += (double)dout[d] * (double)o[d];
    for (int j = 0; j < a->keys; j++) {
        if (!sees(a, query, j))
            continue;
        int64_t at = ((int64_t)j * a->batch + batch) * a->stride_kv + head_kv * width;
        double p = exp(score(a, q, batch, head_kv, j) - lse), dp = 0;
        for (int d = 0; d < width; d++)
            dp += (double)dout[d] * (double)v[at + d];
        float ds = (float)(p * (dp - delta) * (double)a->scale);
        for (int d = 0; d < width; d++) {
            g->dv[at + d] += (float)p * dout[d];
            g->dk[at + d] += ds * q[d];
            dq[d] += ds * k[at + d];
        }
    }
}

void ref_attention_backward(void *queue, const struct attention_gradient *g)
{
    (void)queue;
    for (int b = 0; b < g->forward.batch; b++)
        for (int h = 0; h < g->forward.heads; h++)
            for (int i = 0; i < g->forward.queries; i++)
                backward_row(g, b, h, i);
}
