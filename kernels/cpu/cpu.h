/* What the fast CPU table replaces of the plain versions; the same contracts (kernels.h). */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

void cpu_gemm(void *queue, int n, const struct gemm *gemm);
void cpu_attention_forward(void *queue, const struct attention *a);
void cpu_attention_backward(void *queue, const struct attention_gradient *a);
void cpu_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x,
                      const void *weight, const void *bias, void *y, float *mean, float *rstd);
void cpu_add_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                          const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                          float *rstd);
void cpu_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const void *x, const void *weight,
                       const float *mean, const float *rstd, const void *dy, bool accumulate, void *dx, float *dweight,
                       float *dbias);
void cpu_head_norm_forward(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y);
void cpu_head_norm_backward(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                            float *dq_weight, float *dk_weight);
void cpu_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                            void *y);
void cpu_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                             const void *dy, void *dx);
void cpu_logits_max(void *queue, int rows, int columns, int stride, const void *logits, float *max);
void cpu_adamw(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
               float *weight, float *m, float *v, void *copy);
void cpu_logits_sum(void *queue, int rows, int columns, int stride, const void *logits, const float *max,
                    const int *target, int first, float *sum, float *picked);
void cpu_logits_gradient(void *queue, int rows, int columns, int stride, void *logits, const float *max,
                         const float *sum, const int *target, int first, float factor);
void cpu_sum_squares(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum);

#endif
