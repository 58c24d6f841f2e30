/* Plain C versions of kernels.h, shared by the tables: what the fast ones do not replace is taken from here. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/kernels.h"

void ref_gemm(void *queue, int n, const struct gemm *gemm);
void ref_convert(void *queue, int64_t n, enum element from, const void *x, enum element to, void *y);
void ref_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x,
                      const void *weight, const void *bias, void *y, float *mean, float *rstd);
void ref_add_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                          const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                          float *rstd);
void ref_norm_apply(void *queue, int rows, int columns, int stride, const void *x, const void *weight, const void *bias,
                    const float *mean, const float *rstd, void *y);
void ref_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const void *x, const void *weight,
                       const float *mean, const float *rstd, const void *dy, bool accumulate, void *dx, float *dweight,
                       float *dbias);
void ref_head_norm_forward(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y);
void ref_head_norm_backward(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                            float *dq_weight, float *dk_weight);
void ref_rotary(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                bool inverse, void *x);
void ref_attention_forward(void *queue, const struct attention *a);
void ref_attention_backward(void *queue, const struct attention_gradient *a);
void ref_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                            void *y);
void ref_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                             const void *dy, void *dx);
void ref_add(void *queue, int64_t n, const void *x, void *y);
void ref_add_floats(void *queue, int64_t n, const float *x, float *y);
void ref_scale_floats(void *queue, int64_t n, float factor, float *x);
void ref_copy_block(void *queue, int rows, int columns, const void *x, int stride_x, bool accumulate, void *y,
                    int stride_y);
void ref_round_bf16(void *queue, int64_t n, float *x);
void ref_bias_add(void *queue, int rows, int columns, const void *bias, void *x);
void ref_column_sum(void *queue, int rows, int columns, const void *x, float *sum);
void ref_embedding_forward(void *queue, int rows, int columns, const int *token, int first, int count,
                           const void *table, void *y);
void ref_embedding_backward(void *queue, int rows, int columns, const int *token, int first, int count, const void *dy,
                            float *dtable);
void ref_logits_max(void *queue, int rows, int columns, int stride, const void *logits, float *max);
void ref_logits_sum(void *queue, int rows, int columns, int stride, const void *logits, const float *max,
                    const int *target, int first, float *sum, float *picked);
void ref_logits_gradient(void *queue, int rows, int columns, int stride, void *logits, const float *max,
                         const float *sum, const int *target, int first, float factor);
void ref_router_forward(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                        float *weight);
void ref_router_backward(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                         const int *choice, const float *dweight, const float *bias_gradient, float *dlogits);
void ref_gather_rows(void *queue, int rows, int columns, const int *index, const float *weight, const void *x, void *y);
void ref_combine_rows(void *queue, int rows, int columns, const int *first, const int *index, const float *weight,
                      const void *x, bool accumulate, void *y);
void ref_gather_floats(void *queue, int64_t n, const int *index, const float *x, float *y);
void ref_scatter_floats(void *queue, int64_t n, const int *index, const float *x, float *y);
void ref_dot_rows(void *queue, int rows, int columns, const int *index, const void *x, const void *y, float *dot);
void ref_adamw(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
               float *weight, float *m, float *v, void *copy);
void ref_sum_squares(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum);
void ref_fp8_cast(void *queue, const struct fp8_cast *cast);
void ref_fp8_transpose(void *queue, int rows, int columns, const void *x, void *y);
void ref_fp8_update(void *queue, const struct fp8_update *update);

/* Element i of an operand of a product, without its factor. */
float ref_operand(enum element type, const void *x, int64_t i);

/* Keys [*ret_first, *ret_end) of the block that queries [first, end) may see (of any of them). */
void attention_key_range(const struct attention *a, int first, int end, int *ret_first, int *ret_end);

#endif
