/* Norms in single precision with VECTOR_LANES partial sums (formulas: ref/norm.c). */
#include "kernels/cpu/cpu.h"

#include <math.h>

#include "kernels/cpu/vector.h"
#include "kernels/ref/ref.h"

VECTOR_VERSIONS static float sum_of(int n, const float *x)
{
    float lanes[VECTOR_LANES] = {0}, rest = 0;
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++)
            lanes[l] += x[i + l];
    for (; i < n; i++)
        rest += x[i];
    return rest + vector_total(lanes);
}

VECTOR_VERSIONS static float squares_of(int n, const float *x, float mean)
{
    float lanes[VECTOR_LANES] = {0}, rest = 0;
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++)
            lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (; i < n; i++)
        rest += (x[i] - mean) * (x[i] - mean);
    return rest + vector_total(lanes);
}

VECTOR_VERSIONS static void apply(int n, const float *x, const float *weight, const float *bias, float mean, float rstd,
                                  float *y)
{
    if (bias)
        for (int c = 0; c < n; c++)
            y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
    else
        for (int c = 0; c < n; c++)
            y[c] = (x[c] - mean) * rstd * weight[c];
}

void cpu_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x_data,
                      const void *weight_data, const void *bias_data, void *y_data, float *mean, float *rstd)
{
    const float *x = x_data;
    const float *weight = weight_data;
    const float *bias = bias_data;
    float *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        const float *row = x + (int64_t)r * stride;
        mean[r] = centred ? sum_of(columns, row) / (float)columns : 0;
        rstd[r] = 1 / sqrtf(squares_of(columns, row, mean[r]) / (float)columns + epsilon);
        apply(columns, row, weight, bias, mean[r], rstd[r], y + (int64_t)r * stride);
    }
}

void cpu_add_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                          const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                          float *rstd)
{
    ref_copy_block(queue, rows, columns, residual, stride, true, x, stride);
    cpu_norm_forward(queue, rows, columns, stride, epsilon, centred, x, weight, bias, y, mean, rstd);
}

/* Sums of g = dy weight and of g xhat; adds to the weights' gradients on the way. */
VECTOR_VERSIONS static void gather(int n, const float *x, const float *dy, const float *weight, float mean, float rstd,
                                   float *dweight, float *ret_sum, float *ret_dot)
{
    float sums[VECTOR_LANES] = {0}, dots[VECTOR_LANES] = {0};
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++) {
            float xhat = (x[i + l] - mean) * rstd, g = dy[i + l] * weight[i + l];
            dweight[i + l] += dy[i + l] * xhat;
            sums[l] += g;
            dots[l] += g * xhat;
        }
    for (; i < n; i++) {
        float xhat = (x[i] - mean) * rstd, g = dy[i] * weight[i];
        dweight[i] += dy[i] * xhat;
        sums[0] += g;
        dots[0] += g * xhat;
    }
    *ret_sum = vector_total(sums);
    *ret_dot = vector_total(dots);
}

VECTOR_VERSIONS static void spread(int n, const float *x, const float *dy, const float *weight, float mean, float rstd,
                                   float sum, float dot, bool accumulate, float *dx)
{
    if (accumulate)
        for (int c = 0; c < n; c++)
            dx[c] += rstd * (dy[c] * weight[c] - sum - (x[c] - mean) * rstd * dot);
    else
        for (int c = 0; c < n; c++)
            dx[c] = rstd * (dy[c] * weight[c] - sum - (x[c] - mean) * rstd * dot);
}

void cpu_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const void *x_data,
                       const void *weight_data, const float *mean, const float *rstd, const void *dy_data,
                       bool accumulate, void *dx_data, float *dweight, float *dbias)
{
    const float *x = x_data;
    const float *weight = weight_data;
    const float *dy = dy_data;
    float *dx = dx_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        const float *row = x + (int64_t)r * stride, *drow = dy + (int64_t)r * stride;
        float sum, dot;
        for (int c = 0; c < columns && dbias; c++)
            dbias[c] += drow[c];
        gather(columns, row, drow, weight, mean[r], rstd[r], dweight, &sum, &dot);
        spread(columns, row, drow, weight, mean[r], rstd[r], centred ? sum / (float)columns : 0, dot / (float)columns,
               accumulate, dx + (int64_t)r * stride);
    }
}

/* Head by head. */
void cpu_head_norm_forward(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y)
{
    float mean;
    int all = n->heads + n->kv_heads;
    for (int i = 0; i < n->rows * all; i++) {
        int64_t at = (int64_t)(i / all) * n->stride + i % all * n->head_dim;
        cpu_norm_forward(queue, 1, n->head_dim, n->head_dim, epsilon, false, (const float *)x + at,
                         i % all < n->heads ? n->q_weight : n->k_weight, NULL, (float *)y + at, &mean, &n->rstd[i]);
    }
}

void cpu_head_norm_backward(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                            float *dq_weight, float *dk_weight)
{
    const float mean = 0;
    int all = n->heads + n->kv_heads;
    for (int i = 0; i < n->rows * all; i++) {
        int64_t at = (int64_t)(i / all) * n->stride + i % all * n->head_dim;
        bool is_q = i % all < n->heads;
        cpu_norm_backward(queue, 1, n->head_dim, n->head_dim, false, (const float *)x + at,
                          is_q ? n->q_weight : n->k_weight, &mean, &n->rstd[i], (const float *)dy + at, false,
                          (float *)dx + at, is_q ? dq_weight : dk_weight, NULL);
    }
}
