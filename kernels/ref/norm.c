/* LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019). With xhat = (x - mean) rstd and g = dy weight:
 *   dx = rstd (g - mean(g) [centred only] - xhat mean(g xhat)). */
#include "kernels/ref/ref.h"

#include <math.h>

void ref_norm_apply(void *queue, int rows, int columns, int stride, const void *x_data, const void *weight_data,
                    const void *bias_data, const float *mean, const float *rstd, void *y_data)
{
    const float *x = x_data;
    const float *weight = weight_data;
    const float *bias = bias_data;
    float *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            int64_t at = (int64_t)r * stride + c;
            y[at] = (x[at] - mean[r]) * rstd[r] * weight[c] + (bias ? bias[c] : 0);
        }
}

void ref_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x_data,
                      const void *weight_data, const void *bias_data, void *y_data, float *mean, float *rstd)
{
    const float *x = x_data;
    const float *weight = weight_data;
    const float *bias = bias_data;
    float *y = y_data;
    for (int r = 0; r < rows; r++) {
        const float *row = x + (int64_t)r * stride;
        double sum = 0, squares = 0;
        for (int c = 0; c < columns && centred; c++)
            sum += (double)row[c];
        mean[r] = (float)(sum / columns);
        for (int c = 0; c < columns; c++)
            squares += ((double)row[c] - sum / columns) * ((double)row[c] - sum / columns);
        rstd[r] = (float)(1 / sqrt(squares / columns + (double)epsilon));
    }
    ref_norm_apply(queue, rows, columns, stride, x, weight, bias, mean, rstd, y);
}

void ref_add_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                          const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                          float *rstd)
{
    ref_copy_block(queue, rows, columns, residual, stride, true, x, stride);
    ref_norm_forward(queue, rows, columns, stride, epsilon, centred, x, weight, bias, y, mean, rstd);
}

void ref_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const void *x_data,
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
        float *out = dx + (int64_t)r * stride;
        double sum = 0, dot = 0;
        for (int c = 0; c < columns; c++) {
            double xhat = ((double)row[c] - (double)mean[r]) * (double)rstd[r], g = (double)drow[c] * (double)weight[c];
            sum += g;
            dot += g * xhat;
        }
        sum = centred ? sum / columns : 0;
        dot /= columns;
        for (int c = 0; c < columns; c++) {
            float xhat = (row[c] - mean[r]) * rstd[r], gradient = drow[c];
            float value = rstd[r] * (gradient * weight[c] - (float)sum - xhat * (float)dot);
            dweight[c] += gradient * xhat;
            if (dbias)
                dbias[c] += gradient;
            out[c] = accumulate ? out[c] + value : value;
        }
    }
}

/* Head by head. */
void ref_head_norm_forward(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y)
{
    float mean;
    int all = n->heads + n->kv_heads;
    for (int i = 0; i < n->rows * all; i++) {
        int64_t at = (int64_t)(i / all) * n->stride + i % all * n->head_dim;
        ref_norm_forward(queue, 1, n->head_dim, n->head_dim, epsilon, false, (const float *)x + at,
                         i % all < n->heads ? n->q_weight : n->k_weight, NULL, (float *)y + at, &mean, &n->rstd[i]);
    }
}

void ref_head_norm_backward(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                            float *dq_weight, float *dk_weight)
{
    const float mean = 0;
    int all = n->heads + n->kv_heads;
    for (int i = 0; i < n->rows * all; i++) {
        int64_t at = (int64_t)(i / all) * n->stride + i % all * n->head_dim;
        bool is_q = i % all < n->heads;
        ref_norm_backward(queue, 1, n->head_dim, n->head_dim, false, (const float *)x + at,
                          is_q ? n->q_weight : n->k_weight, &mean, &n->rstd[i], (const float *)dy + at, false,
                          (float *)dx + at, is_q ? dq_weight : dk_weight, NULL);
    }
}
