/* AdamW (Loshchilov and Hutter 2019), decay decoupled as in PyTorch: w -= lr (decay w + mhat / (sqrt(vhat) + eps)). */
#include "kernels/ref/ref.h"

#include <math.h>

void ref_adamw(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
               float *weight, float *m, float *v, void *copy)
{
    (void)queue;
    float *copied = copy;
    for (int p = 0; p < parts; p++)
        for (int64_t i = part[p].first; i < part[p].first + part[p].n; i++) {
            float g = gradient[i] * a->gradient_scale;
            m[i] = a->beta1 * m[i] + (1 - a->beta1) * g;
            v[i] = a->beta2 * v[i] + (1 - a->beta2) * g * g;
            float step = m[i] / a->correction1 / (sqrtf(v[i] / a->correction2) + a->epsilon);
            weight[i] -= a->learning_rate * (part[p].weight_decay * weight[i] + step);
            if (copied)
                copied[i] = weight[i];
        }
}

void ref_sum_squares(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum)
{
    (void)queue;
    for (int p = 0; p < parts; p++) {
        double squares = 0;
        for (int64_t i = part[p].first; i < part[p].first + part[p].n; i++)
            squares += (double)x[i] * (double)x[i];
        *sum += squares;
    }
}
