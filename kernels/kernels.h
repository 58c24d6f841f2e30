/* Arithmetic on buffers: one table of functions per kind of device.
 *
 * All matrices are row-major fp32; a stride is the distance between rows in
 * elements. Rows are tokens, columns features, unless said otherwise. Nothing
 * allocates device memory, nothing fails; sizes may be 0. A call may return
 * before it has run: calls of one queue run in order (queue is NULL on the CPU,
 * where they run at once). "+=" marks outputs that are added to.
 *
 * kernels_ref is the definition of right: plain loops, double sums.
 * kernels_cpu is fast: OpenBLAS for products, loops that compilers vectorise. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH, ACTIVATION_GELU, ACTIVATION_RELU, ACTIVATIONS };
extern const char *const activation_names[]; /* "silu", "gelu_tanh", "gelu", "relu", NULL */

/* One block of causal attention: `queries` rows against `keys` rows of the same sequences. Row s of sequence b is at
 * (s * batch + b) * stride; head h starts at column h * head_dim, and reads key/value head h * kv_heads / heads.
 * Positions increase within each block; query i sees key j when 0 <= position_q[i] - position_k[j] < window. */
struct attention {
    int batch, heads, kv_heads, head_dim, queries, keys;
    const int *position_q, *position_k;
    int window; /* 0 = all */
    float scale;
    const float *q, *k, *v;
    int stride_q, stride_kv, stride_o;
    float *o;   /* output, normalised over the keys seen so far */
    float *lse; /* [batch][heads][queries] log of the sum of exponentials over the keys seen so far */
    bool merge; /* o and lse hold earlier blocks and this one is merged in; else they are overwritten */
};

/* dq += , dk +=, dv += with the final o and lse; strides as q, k and v; dout as o. */
struct attention_gradient {
    struct attention forward;
    const float *dout;
    float *dq, *dk, *dv;
};

struct adamw {
    float learning_rate, beta1, beta2, epsilon, weight_decay;
    float correction1, correction2; /* 1 - beta^step */
    float gradient_scale;           /* clipping */
};

struct kernels {
    const char *name;
    /* c[m x n] = op(a) op(b), or +=. op transposes where asked: a is k x m then, b is n x k. */
    void (*gemm)(void *queue, bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int stride_a,
                 const float *b, int stride_b, bool accumulate, float *c, int stride_c);

    /* y = (x - mean) * rstd * weight + bias; RMSNorm (not centred): mean 0, bias NULL. x and y may be strided rows. */
    void (*norm_forward)(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const float *x,
                         const float *weight, const float *bias, float *y, float *mean, float *rstd);
    /* y again from x, mean, rstd. */
    void (*norm_apply)(void *queue, int rows, int columns, int stride, const float *x, const float *weight,
                       const float *bias, const float *mean, const float *rstd, float *y);
    /* dx = or +=; dweight +=, dbias += (NULL = none). dx may be dy when it is not added to. */
    void (*norm_backward)(void *queue, int rows, int columns, int stride, bool centred, const float *x,
                          const float *weight, const float *mean, const float *rstd, const float *dy, bool accumulate,
                          float *dx, float *dweight, float *dbias);

    /* Rotates pairs (i, i + head_dim/2) of every head in place by the angles of the row; inverse = backward. */
    void (*rotary)(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                   bool inverse, float *x);
    void (*attention_forward)(void *queue, const struct attention *a);
    void (*attention_backward)(void *queue, const struct attention_gradient *a);

    /* gated: x is [gate | up], 2 * columns wide, y = act(gate) * up. */
    void (*activation_forward)(void *queue, enum activation kind, bool gated, int rows, int columns, const float *x,
                               float *y);
    void (*activation_backward)(void *queue, enum activation kind, bool gated, int rows, int columns, const float *x,
                                const float *dy, float *dx);

    void (*add)(void *queue, int64_t n, const float *x, float *y); /* y += x */
    void (*scale)(void *queue, int64_t n, float factor, float *x); /* x *= factor */
    /* y = or += x, both strided: columns are cut out and put together. */
    void (*copy_block)(void *queue, int rows, int columns, const float *x, int stride_x, bool accumulate, float *y,
                       int stride_y);
    void (*round_bf16)(void *queue, int64_t n, float *x); /* to the nearest bfloat16, ties to even; kept as fp32 */
    void (*bias_add)(void *queue, int rows, int columns, const float *bias, float *x);
    void (*column_sum)(void *queue, int rows, int columns, const float *x, float *sum); /* sum += */

    /* A shard of a table: rows first .. first + count - 1 of it; other tokens give zeros. */
    void (*embedding_forward)(void *queue, int rows, int columns, const int *token, int first, int count,
                              const float *table, float *y);
    void (*embedding_backward)(void *queue, int rows, int columns, const int *token, int first, int count,
                               const float *dy, float *dtable); /* += */

    /* Cross-entropy over a vocabulary that is cut into shards; this one holds `columns` real entries from `first` on.
     * */
    void (*logits_max)(void *queue, int rows, int columns, int stride, const float *logits, float *max);
    /* sum of exp(logit - max), and target logit - max where the target is in this shard, else 0. */
    void (*logits_sum)(void *queue, int rows, int columns, int stride, const float *logits, const float *max,
                       const int *target, int first, float *sum, float *picked);
    /* logits becomes its gradient, (softmax - onehot) * factor; columns .. stride - 1 become 0. */
    void (*logits_gradient)(void *queue, int rows, int columns, int stride, float *logits, const float *max,
                            const float *sum, const int *target, int first, float factor);

    /* logits become probabilities; the top k per row with weights, renormalised to sum 1 where asked. Ties: lower
     * index. */
    void (*router_forward)(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                           float *weight);
    /* bias_gradient[experts]: added to the gradient of every row's probabilities (load balancing). */
    void (*router_backward)(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                            const int *choice, const float *dweight, const float *bias_gradient, float *dlogits);
    /* y[i] = x[index[i]] * weight[i] (weight NULL = 1). */
    void (*gather_rows)(void *queue, int rows, int columns, const int *index, const float *weight, const float *x,
                        float *y);
    /* y[index[i]] += x[i] * weight[i]. */
    void (*scatter_rows)(void *queue, int rows, int columns, const int *index, const float *weight, const float *x,
                         float *y);
    /* dot[i] = x[i] . y[index[i]] */
    void (*dot_rows)(void *queue, int rows, int columns, const int *index, const float *x, const float *y, float *dot);

    void (*adamw)(void *queue, int64_t n, const struct adamw *a, const float *gradient, float *weight, float *m,
                  float *v);
    double (*sum_squares)(void *queue, int64_t n, const float *x); /* waits for the queue */
};

extern const struct kernels kernels_ref, kernels_cpu;

/* Threads of OpenBLAS and of the loops (the latter always 1). */
void kernels_cpu_threads(int threads);

#endif
