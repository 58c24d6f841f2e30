/* Norms in single precision with VECTOR_LANES partial sums (formulas: ref/norm.c). */
#include "kernels/cpu/cpu.h"

#include <math.h>

#include "kernels/cpu/vector.h"

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

void cpu_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const float *x,
                      const float *weight, const float *bias, float *y, float *mean, float *rstd)
{
    (void)queue;
    for (int r = 0; r < rows; r++) {
        const float *row = x + (int64_t)r * stride;
        mean[r] = centred ? sum_of(columns, row) / (float)columns : 0;
        rstd[r] = 1 / sqrtf(squares_of(columns, row, mean[r]) / (float)columns + epsilon);
        apply(columns, row, weight, bias, mean[r], rstd[r], y + (int64_t)r * stride);
    }
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

void cpu_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const float *x,
                       const float *weight, const float *mean, const float *rstd, const float *dy, bool accumulate,
                       float *dx, float *dweight, float *dbias)
{
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
