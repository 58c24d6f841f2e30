/* What the fast CPU table replaces of the plain versions; the same contracts (kernels.h). */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

void cpu_gemm(void *queue, bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int stride_a,
              const float *b, int stride_b, bool accumulate, float *c, int stride_c);
void cpu_attention_forward(void *queue, const struct attention *a);
void cpu_attention_backward(void *queue, const struct attention_gradient *a);
void cpu_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const float *x,
                      const float *weight, const float *bias, float *y, float *mean, float *rstd);
void cpu_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const float *x,
                       const float *weight, const float *mean, const float *rstd, const float *dy, bool accumulate,
                       float *dx, float *dweight, float *dbias);
void cpu_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const float *x,
                            float *y);
void cpu_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const float *x,
                             const float *dy, float *dx);
void cpu_logits_max(void *queue, int rows, int columns, int stride, const float *logits, float *max);
void cpu_adamw(void *queue, int64_t n, const struct adamw *a, const float *gradient, float *weight, float *m, float *v);
void cpu_logits_sum(void *queue, int rows, int columns, int stride, const float *logits, const float *max,
                    const int *target, int first, float *sum, float *picked);
void cpu_logits_gradient(void *queue, int rows, int columns, int stride, float *logits, const float *max,
                         const float *sum, const int *target, int first, float factor);
double cpu_sum_squares(void *queue, int64_t n, const float *x);

#endif
