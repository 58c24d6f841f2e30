/* Arithmetic on buffers: one table of functions per kind of device.
 *
 * "Elements" are activations and the weights that products read; they are passed as void * and are of the table's
 * type: fp32 on the CPU, bf16 on a GPU. Statistics, router values, gradients of weights, of q, k and v, optimizer
 * state and master weights are float whatever the type. Sums are made in fp32 or better and rounded once, when they
 * are stored.
 *
 * All matrices are row-major; a stride is the distance between rows in elements. Rows are tokens, columns features,
 * unless said otherwise. Every buffer is the device's, but arrays of structs are the host's (and may be forgotten when
 * the call returns). Nothing allocates memory that it does not release, nothing fails; sizes may be 0. A call may
 * return before it has run: calls of one queue run in order (queue is NULL on the CPU, where they run at once). "+="
 * marks outputs that are added to.
 *
 * kernels_ref is the definition of right: plain loops, double sums.
 * kernels_cpu is fast: OpenBLAS for products, loops that compilers vectorise. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The 8-bit ones (OCP 8-bit floating point: E4M3, whose largest number is 448 and which has no infinity, and E5M2,
 * 57344) are operands of products, each with one factor for the whole matrix. */
enum element { ELEMENT_F32, ELEMENT_BF16, ELEMENT_E4M3, ELEMENT_E5M2, ELEMENT_TYPES };
extern const char *const element_names[]; /* "f32", "bf16", "e4m3", "e5m2", NULL */

static inline size_t element_bytes(enum element type)
{
    return type == ELEMENT_F32 ? 4 : type == ELEMENT_BF16 ? 2 : 1;
}

/* Address of element i. */
static inline void *element_at(enum element type, const void *x, int64_t i)
{
    return (char *)(uintptr_t)x + i * (int64_t)element_bytes(type);
}

enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH, ACTIVATION_GELU, ACTIVATION_RELU, ACTIVATIONS };
extern const char *const activation_names[]; /* "silu", "gelu_tanh", "gelu", "relu", NULL */

/* c[m x n] = op(a) op(b), or +=. op transposes where asked: a is k x m then, b is n x k. a and b are elements; c is of
 * c_type: the table's, or float (gradients of weights, router logits).
 *
 * With scale_a and scale_b a and b are of 8 bits, of a_type and b_type (not both e5m2), and stand for a * *scale_a and
 * b * *scale_b (floats of the device). Tensor cores of Hopper take such matrices along their rows only, in pieces of 16
 * bytes: transpose_b and not transpose_a; m, n, k, stride_a, stride_b and the addresses are multiples of 16. fast_sums:
 * sums may be kept in fewer bits than fp32's on the way. */
struct gemm {
    bool transpose_a, transpose_b, accumulate, fast_sums;
    int m, n, k;
    const void *a;
    int stride_a;
    const void *b;
    int stride_b;
    void *c;
    int stride_c;
    enum element c_type, a_type, b_type;
    const float *scale_a, *scale_b; /* NULL: a and b are elements */
};

/* y = x * *scale in 8 bits, rounded to the nearest, ties to even; what is too large becomes the format's largest number,
 * NaN stays NaN. *amax = max(*amax, |x|) over what is no NaN. */
struct fp8_cast {
    enum element format;
    int rows, columns;
    const void *x; /* elements, no gaps between rows */
    const float *scale;
    void *y, *transposed; /* [rows][columns]; [columns][rows]; NULL = not wanted */
    float *amax;
};

/* The end of a step for n matrices: its largest magnitudes enter the history (those that are not finite as 0), and give
 * the next factors,
 *     scale = limit / max over the history / 2^margin, inverse = 1 / scale,
 * where that maximum is above 0; amax becomes 0. power_of_two: scale is rounded down to one. */
struct fp8_update {
    int n, rows, row; /* history: [rows][n], `row` is written */
    int margin;
    bool power_of_two;
    const float *limit; /* largest number of each matrix's format */
    float *amax, *history, *scale, *inverse;
};

/* One block of causal attention: `queries` rows against `keys` rows of the same sequences. Row s of sequence b is at
 * (s * batch + b) * stride; head h starts at column h * head_dim, and reads key/value head h * kv_heads / heads.
 * Positions increase within each block; query i sees key j when 0 <= position_q[i] - position_k[j] < window. */
struct attention {
    int batch, heads, kv_heads, head_dim, queries, keys;
    const int *position_q, *position_k;
    int window; /* 0 = all */
    float scale;
    const void *q, *k, *v;
    int stride_q, stride_kv, stride_o;
    void *o;    /* output, normalised over the keys seen so far */
    float *lse; /* [batch][heads][queries] log of the sum of exponentials over the keys seen so far */
    bool merge; /* o and lse hold earlier blocks and this one is merged in; else they are overwritten */
};

/* dq +=, dk +=, dv += with the final o and lse; strides as q, k and v; dout as o. */
struct attention_gradient {
    struct attention forward;
    const void *dout;
    float *dq, *dk, *dv;
};

/* Heads of q, then of k, in strided rows; q_weight is that of each of q's, k_weight that of k's. */
struct head_norm {
    int rows, heads, kv_heads, head_dim, stride; /* head_dim at most 256 */
    const void *q_weight, *k_weight;
    float *rstd; /* [rows][heads + kv_heads] */
};

struct adamw {
    float learning_rate, beta1, beta2, epsilon;
    float correction1, correction2; /* 1 - beta^step */
    float gradient_scale;           /* clipping */
};

/* Elements [first, first + n) of flat buffers. */
struct adamw_part {
    int64_t first, n;
    float weight_decay;
};

struct kernels {
    const char *name;
    enum element type;
    /* n products; those of one call do not depend on one another. */
    void (*gemm)(void *queue, int n, const struct gemm *gemm);
    void (*convert)(void *queue, int64_t n, enum element from, const void *x, enum element to, void *y);

    /* y = (x - mean) * rstd * weight + bias; RMSNorm (not centred): mean 0, bias NULL. x and y may be strided rows. */
    void (*norm_forward)(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x,
                         const void *weight, const void *bias, void *y, float *mean, float *rstd);
    /* x += residual (both strided rows), then y from x as it was stored. */
    void (*add_norm_forward)(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                             const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                             float *rstd);
    /* y again from x, mean, rstd. */
    void (*norm_apply)(void *queue, int rows, int columns, int stride, const void *x, const void *weight,
                       const void *bias, const float *mean, const float *rstd, void *y);
    /* dx = or +=; dweight +=, dbias += (NULL = none). dx may be dy when it is not added to. */
    void (*norm_backward)(void *queue, int rows, int columns, int stride, bool centred, const void *x,
                          const void *weight, const float *mean, const float *rstd, const void *dy, bool accumulate,
                          void *dx, float *dweight, float *dbias);

    /* RMSNorm of every head, in one go. dx =, and may be dy; the weights' gradients +=. */
    void (*head_norm_forward)(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y);
    void (*head_norm_backward)(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                               float *dq_weight, float *dk_weight);

    /* Rotates pairs (i, i + head_dim/2) of every head in place by the angles of the row; inverse = backward. */
    void (*rotary)(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                   bool inverse, void *x);
    void (*attention_forward)(void *queue, const struct attention *a);
    void (*attention_backward)(void *queue, const struct attention_gradient *a);

    /* gated: x is [gate | up], 2 * columns wide, y = act(gate) * up. */
    void (*activation_forward)(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                               void *y);
    void (*activation_backward)(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                                const void *dy, void *dx);

    void (*add)(void *queue, int64_t n, const void *x, void *y);          /* y += x */
    void (*add_floats)(void *queue, int64_t n, const float *x, float *y); /* y += x */
    void (*scale_floats)(void *queue, int64_t n, float factor, float *x); /* x *= factor */
    /* y = or += x, both strided: columns are cut out and put together. */
    void (*copy_block)(void *queue, int rows, int columns, const void *x, int stride_x, bool accumulate, void *y,
                       int stride_y);
    void (*round_bf16)(void *queue, int64_t n, float *x); /* to the nearest bfloat16, ties to even; kept as fp32 */
    void (*bias_add)(void *queue, int rows, int columns, const void *bias, void *x);
    void (*column_sum)(void *queue, int rows, int columns, const void *x, float *sum); /* sum += */

    /* A shard of a table: rows first .. first + count - 1 of it; other tokens give zeros. */
    void (*embedding_forward)(void *queue, int rows, int columns, const int *token, int first, int count,
                              const void *table, void *y);
    void (*embedding_backward)(void *queue, int rows, int columns, const int *token, int first, int count,
                               const void *dy, float *dtable); /* += */

    /* Cross-entropy over a vocabulary that is cut into shards; this one holds `columns` real entries from `first` on.
     * */
    void (*logits_max)(void *queue, int rows, int columns, int stride, const void *logits, float *max);
    /* sum of exp(logit - max), and target logit - max where the target is in this shard, else 0. */
    void (*logits_sum)(void *queue, int rows, int columns, int stride, const void *logits, const float *max,
                       const int *target, int first, float *sum, float *picked);
    /* logits becomes its gradient, (softmax - onehot) * factor; columns .. stride - 1 become 0. */
    void (*logits_gradient)(void *queue, int rows, int columns, int stride, void *logits, const float *max,
                            const float *sum, const int *target, int first, float factor);

    /* logits become probabilities; the top k per row with weights, renormalised to sum 1 where asked. Ties: lower
     * index. */
    void (*router_forward)(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                           float *weight);
    /* bias_gradient[experts]: added to the gradient of every row's probabilities (load balancing). */
    void (*router_backward)(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                            const int *choice, const float *dweight, const float *bias_gradient, float *dlogits);
    /* y[i] = x[index[i]] * weight[i] (weight NULL = 1); zeros where index[i] < 0. */
    void (*gather_rows)(void *queue, int rows, int columns, const int *index, const float *weight, const void *x,
                        void *y);
    /* y[r] = or += sum over j in [first[r], first[r + 1]) of x[index[j]] * weight[index[j]] (weight NULL = 1), in that
     * order, in fp32. */
    void (*combine_rows)(void *queue, int rows, int columns, const int *first, const int *index, const float *weight,
                         const void *x, bool accumulate, void *y);
    /* dot[i] = x[i] . y[index[i]] */
    void (*dot_rows)(void *queue, int rows, int columns, const int *index, const void *x, const void *y, float *dot);
    void (*gather_floats)(void *queue, int64_t n, const int *index, const float *x, float *y); /* y[i] = x[index[i]] */
    void (*scatter_floats)(void *queue, int64_t n, const int *index, const float *x,
                           float *y); /* y[index[i]] += x[i] */

    /* All parts in one launch. copy: the same elements of the updated weights (NULL = not wanted). */
    void (*adamw)(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
                  float *weight, float *m, float *v, void *copy);
    /* *sum (the device's) += squares of all parts. */
    void (*sum_squares)(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum);

    void (*fp8_cast)(void *queue, const struct fp8_cast *cast);
    void (*fp8_transpose)(void *queue, int rows, int columns, const void *x, void *y); /* of 8 bits; y[c][r] = x[r][c] */
    void (*fp8_update)(void *queue, const struct fp8_update *update);
};

extern const struct kernels kernels_ref, kernels_cpu;

/* What 8 bits stand for, on the host; the largest finite number. */
float fp8_value(enum element format, unsigned char bits);
float fp8_limit(enum element format);

/* Threads of OpenBLAS and of the loops (the latter always 1). */
void kernels_cpu_threads(int threads);

#endif
