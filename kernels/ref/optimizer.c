/* AdamW (Loshchilov and Hutter 2019), decay decoupled as in PyTorch: w -= lr (decay w + mhat / (sqrt(vhat) + eps)). */
#include "kernels/ref/ref.h"

#include <math.h>

void ref_adamw(void *queue, int64_t n, const struct adamw *a, const float *gradient, float *weight, float *m, float *v)
{
    (void)queue;
    for (int64_t i = 0; i < n; i++) {
        float g = gradient[i] * a->gradient_scale;
        m[i] = a->beta1 * m[i] + (1 - a->beta1) * g;
        v[i] = a->beta2 * v[i] + (1 - a->beta2) * g * g;
        float step = m[i] / a->correction1 / (sqrtf(v[i] / a->correction2) + a->epsilon);
        weight[i] -= a->learning_rate * (a->weight_decay * weight[i] + step);
    }
}

double ref_sum_squares(void *queue, int64_t n, const float *x)
{
    (void)queue;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}
