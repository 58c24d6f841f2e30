/* Plain C versions of kernels.h, shared by the tables: what the fast ones do not replace is taken from here. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/kernels.h"

void ref_gemm(void *queue, bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int stride_a,
              const float *b, int stride_b, bool accumulate, float *c, int stride_c);
void ref_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const float *x,
                      const float *weight, const float *bias, float *y, float *mean, float *rstd);
void ref_norm_apply(void *queue, int rows, int columns, int stride, const float *x, const float *weight,
                    const float *bias, const float *mean, const float *rstd, float *y);
void ref_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const float *x,
                       const float *weight, const float *mean, const float *rstd, const float *dy, bool accumulate,
                       float *dx, float *dweight, float *dbias);
void ref_rotary(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                bool inverse, float *x);
void ref_attention_forward(void *queue, const struct attention *a);
void ref_attention_backward(void *queue, const struct attention_gradient *a);
void ref_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const float *x,
                            float *y);
void ref_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const float *x,
                             const float *dy, float *dx);
void ref_add(void *queue, int64_t n, const float *x, float *y);
void ref_scale(void *queue, int64_t n, float factor, float *x);
void ref_copy_block(void *queue, int rows, int columns, const float *x, int stride_x, bool accumulate, float *y,
                    int stride_y);
void ref_round_bf16(void *queue, int64_t n, float *x);
void ref_bias_add(void *queue, int rows, int columns, const float *bias, float *x);
void ref_column_sum(void *queue, int rows, int columns, const float *x, float *sum);
void ref_embedding_forward(void *queue, int rows, int columns, const int *token, int first, int count,
                           const float *table, float *y);
void ref_embedding_backward(void *queue, int rows, int columns, const int *token, int first, int count, const float *dy,
                            float *dtable);
void ref_logits_max(void *queue, int rows, int columns, int stride, const float *logits, float *max);
void ref_logits_sum(void *queue, int rows, int columns, int stride, const float *logits, const float *max,
                    const int *target, int first, float *sum, float *picked);
void ref_logits_gradient(void *queue, int rows, int columns, int stride, float *logits, const float *max,
                         const float *sum, const int *target, int first, float factor);
void ref_router_forward(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                        float *weight);
void ref_router_backward(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                         const int *choice, const float *dweight, const float *bias_gradient, float *dlogits);
void ref_gather_rows(void *queue, int rows, int columns, const int *index, const float *weight, const float *x,
                     float *y);
void ref_scatter_rows(void *queue, int rows, int columns, const int *index, const float *weight, const float *x,
                      float *y);
void ref_dot_rows(void *queue, int rows, int columns, const int *index, const float *x, const float *y, float *dot);
void ref_adamw(void *queue, int64_t n, const struct adamw *a, const float *gradient, float *weight, float *m, float *v);
double ref_sum_squares(void *queue, int64_t n, const float *x);

/* Keys [*ret_first, *ret_end) of the block that queries [first, end) may see (of any of them). */
void attention_key_range(const struct attention *a, int first, int end, int *ret_first, int *ret_end);

#endif
