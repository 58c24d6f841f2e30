/* Cross-entropy over shards of the vocabulary (Shoeybi et al. 2019, section 3). */
#include "kernels/ref/ref.h"

#include <math.h>

void ref_logits_max(void *queue, int rows, int columns, int stride, const void *logits_data, float *max)
{
    const float *logits = logits_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        for (int c = 0; c < columns; c++)
            max[r] = fmaxf(max[r], logits[(int64_t)r * stride + c]);
    }
}

void ref_logits_sum(void *queue, int rows, int columns, int stride, const void *logits_data, const float *max,
                    const int *target, int first, float *sum, float *picked)
{
    const float *logits = logits_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        const float *row = logits + (int64_t)r * stride;
        int at = target[r] - first;
        double total = 0;
        for (int c = 0; c < columns; c++)
            total += exp((double)row[c] - (double)max[r]);
        sum[r] = (float)total;
        picked[r] = at >= 0 && at < columns ? row[at] - max[r] : 0;
    }
}

void ref_logits_gradient(void *queue, int rows, int columns, int stride, void *logits_data, const float *max,
                         const float *sum, const int *target, int first, float factor)
{
    float *logits = logits_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        float *row = logits + (int64_t)r * stride;
        int at = target[r] - first;
        for (int c = 0; c < stride; c++)
            row[c] = c < columns ? (float)(exp((double)row[c] - (double)max[r]) / (double)sum[r]) * factor : 0;
        if (at >= 0 && at < columns)
            row[at] -= factor;
    }
}
