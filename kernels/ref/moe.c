/* Top-k routing by softmax (Shazeer et al. 2017; Mixtral renormalises the chosen weights), and rows by index. */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

static void softmax(int n, float *x)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)x[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    for (int i = 0; i < n; i++)
        x[i] = (float)(exp((double)x[i] - max) / sum);
}

static bool chosen(const int *choice, int n, int expert)
{
    for (int i = 0; i < n; i++)
        if (choice[i] == expert)
            return true;
    return false;
}

void ref_router_forward(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                        float *weight)
{
    (void)queue;
    for (int r = 0; r < rows; r++) {
        float *p = logits + (int64_t)r * experts, total = 0;
        int *chosen_row = choice + (int64_t)r * k;
        softmax(experts, p);
        for (int i = 0; i < k; i++) {
            int best = -1;
            for (int e = 0; e < experts; e++)
                if (!chosen(chosen_row, i, e) && (best < 0 || p[e] > p[best]))
                    best = e;
            chosen_row[i] = best;
            total += p[best];
        }
        for (int i = 0; i < k; i++)
            weight[(int64_t)r * k + i] = p[chosen_row[i]] / (renormalise ? total : 1);
    }
}

/* w_i = p_i / S with S the sum of the chosen: dp_i = (dw_i - sum_j dw_j w_j) / S. Softmax: dl = p (dp - sum dp p). */
void ref_router_backward(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                         const int *choice, const float *dweight, const float *bias_gradient, float *dlogits)
{
    (void)queue;
    for (int r = 0; r < rows; r++) {
        const float *p = probability + (int64_t)r * experts, *dw = dweight + (int64_t)r * k;
        const int *c = choice + (int64_t)r * k;
        float *dl = dlogits + (int64_t)r * experts;
        double total = 0, common = 0, dot = 0;
        for (int i = 0; i < k; i++) {
            total += (double)p[c[i]];
            common += (double)dw[i] * (double)p[c[i]];
        }
        memcpy(dl, bias_gradient, (size_t)experts * sizeof *dl);
        for (int i = 0; i < k; i++)
            dl[c[i]] += (float)(renormalise ? ((double)dw[i] - common / total) / total : (double)dw[i]);
        for (int e = 0; e < experts; e++)
            dot += (double)dl[e] * (double)p[e];
        for (int e = 0; e < experts; e++)
            dl[e] = (float)((double)p[e] * ((double)dl[e] - dot));
    }
}

void ref_gather_rows(void *queue, int rows, int columns, const int *index, const float *weight, const void *x_data,
                     void *y_data)
{
    const float *x = x_data;
    float *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            y[(int64_t)r * columns + c] =
                index[r] < 0 ? 0 : x[(int64_t)index[r] * columns + c] * (weight ? weight[r] : 1);
}

void ref_combine_rows(void *queue, int rows, int columns, const int *first, const int *index, const float *weight,
                      const void *x_data, bool accumulate, void *y_data)
{
    const float *x = x_data;
    float *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            float sum = 0;
            for (int j = first[r]; j < first[r + 1]; j++)
                sum += x[(int64_t)index[j] * columns + c] * (weight ? weight[index[j]] : 1);
            y[(int64_t)r * columns + c] = accumulate ? y[(int64_t)r * columns + c] + sum : sum;
        }
}

void ref_dot_rows(void *queue, int rows, int columns, const int *index, const void *x_data, const void *y_data,
                  float *dot)
{
    const float *x = x_data;
    const float *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int c = 0; c < columns; c++)
            sum += (double)x[(int64_t)r * columns + c] * (double)y[(int64_t)index[r] * columns + c];
        dot[r] = (float)sum;
    }
}

void ref_gather_floats(void *queue, int64_t n, const int *index, const float *x, float *y)
{
    (void)queue;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[index[i]];
}

void ref_scatter_floats(void *queue, int64_t n, const int *index, const float *x, float *y)
{
    (void)queue;
    for (int64_t i = 0; i < n; i++)
        y[index[i]] += x[i];
}
