/* Activations and cross-entropy with a vectorised exp, AdamW (formulas: ref/pointwise.c, ref/loss.c, ref/optimizer.c).
 * */
#include "kernels/cpu/cpu.h"

#include <math.h>

#include "kernels/cpu/vector.h"
#include "kernels/ref/ref.h"

VECTOR_INLINE float sigmoid(float x)
{
    return x < -87.3f ? 0 : 1 / (1 + vector_exp(-x)); /* vector_exp stops short of infinity */
}

/* Where the gate is 0 or 1 for good, and the cube of x finite. */
VECTOR_INLINE float near_zero(float x)
{
    return x < -30.0f ? -30.0f : x > 30.0f ? 30.0f : x;
}

/* tanh(u) = 2 sigmoid(2u) - 1, so 0.5 (1 + tanh(u)) = sigmoid(2u). */
VECTOR_INLINE float gelu_gate(float far)
{
    float x = near_zero(far);
    return sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
}

VECTOR_INLINE float value_of(enum activation kind, float x)
{
    return kind == ACTIVATION_SILU ? x * sigmoid(x) : x * gelu_gate(x);
}

/* d(x s(u(x)))/dx = s + x s (1 - s) u'. */
VECTOR_INLINE float slope_of(enum activation kind, float x, float *ret_value)
{
    float s = kind == ACTIVATION_SILU ? sigmoid(x) : gelu_gate(x);
    float near = near_zero(x), inner = kind == ACTIVATION_SILU ? 1.0f : 1.5957691216f * (1 + 0.134145f * near * near);
    *ret_value = x * s;
    return s + (kind == ACTIVATION_SILU ? x : near) * s * (1 - s) * inner;
}

VECTOR_INLINE void forward_row(enum activation kind, bool gated, int n, const float *x, float *y)
{
    for (int c = 0; c < n; c++)
        y[c] = value_of(kind, x[c]) * (gated ? x[n + c] : 1.0f);
}

VECTOR_INLINE void backward_row(enum activation kind, bool gated, int n, const float *restrict x,
                                const float *restrict dy, float *restrict dx)
{
    for (int c = 0; c < n; c++) {
        float value, slope = slope_of(kind, x[c], &value);
        dx[c] = dy[c] * slope * (gated ? x[n + c] : 1.0f);
        if (gated)
            dx[n + c] = dy[c] * value;
    }
}

/* The branches are taken outside the loops. */
VECTOR_VERSIONS static void forward_rows(enum activation kind, bool gated, int rows, int n, const float *x, float *y)
{
    for (int r = 0; r < rows; r++, x += gated ? 2 * n : n, y += n) {
        if (kind == ACTIVATION_SILU && gated)
            forward_row(ACTIVATION_SILU, true, n, x, y);
        else if (kind == ACTIVATION_SILU)
            forward_row(ACTIVATION_SILU, false, n, x, y);
        else if (gated)
            forward_row(ACTIVATION_GELU_TANH, true, n, x, y);
        else
            forward_row(ACTIVATION_GELU_TANH, false, n, x, y);
    }
}

VECTOR_VERSIONS static void backward_rows(enum activation kind, bool gated, int rows, int n, const float *x,
                                          const float *dy, float *dx)
{
    int step = gated ? 2 * n : n;
    for (int r = 0; r < rows; r++, x += step, dx += step, dy += n) {
        if (kind == ACTIVATION_SILU && gated)
            backward_row(ACTIVATION_SILU, true, n, x, dy, dx);
        else if (kind == ACTIVATION_SILU)
            backward_row(ACTIVATION_SILU, false, n, x, dy, dx);
        else if (gated)
            backward_row(ACTIVATION_GELU_TANH, true, n, x, dy, dx);
        else
            backward_row(ACTIVATION_GELU_TANH, false, n, x, dy, dx);
    }
}

void cpu_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x_data,
                            void *y_data)
{
    const float *x = x_data;
    float *y = y_data;
    if (kind == ACTIVATION_SILU || kind == ACTIVATION_GELU_TANH)
        forward_rows(kind, gated, rows, columns, x, y);
    else
        ref_activation_forward(queue, kind, gated, rows, columns, x, y);
}

void cpu_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x_data,
                             const void *dy_data, void *dx_data)
{
    const float *x = x_data;
    const float *dy = dy_data;
    float *dx = dx_data;
    if (kind == ACTIVATION_SILU || kind == ACTIVATION_GELU_TANH)
        backward_rows(kind, gated, rows, columns, x, dy, dx);
    else
        ref_activation_backward(queue, kind, gated, rows, columns, x, dy, dx);
}

VECTOR_VERSIONS static float exp_sum(int n, float shift, const float *x)
{
    float lanes[VECTOR_LANES] = {0}, rest = 0;
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++)
            lanes[l] += vector_exp(x[i + l] - shift);
    for (; i < n; i++)
        rest += vector_exp(x[i] - shift);
    return rest + vector_total(lanes);
}

VECTOR_VERSIONS static float max_of(int n, const float *x)
{
    float lanes[VECTOR_LANES], max = -INFINITY;
    for (int l = 0; l < VECTOR_LANES; l++)
        lanes[l] = -INFINITY;
    int i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++)
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l]; /* NaN is passed over */
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int l = 0; l < VECTOR_LANES; l++)
        max = max > lanes[l] ? max : lanes[l];
    return max;
}

void cpu_logits_max(void *queue, int rows, int columns, int stride, const void *logits_data, float *max)
{
    const float *logits = logits_data;
    (void)queue;
    for (int r = 0; r < rows; r++)
        max[r] = max_of(columns, logits + (int64_t)r * stride);
}

void cpu_logits_sum(void *queue, int rows, int columns, int stride, const void *logits_data, const float *max,
                    const int *target, int first, float *sum, float *picked)
{
    const float *logits = logits_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        const float *row = logits + (int64_t)r * stride;
        int at = target[r] - first;
        sum[r] = exp_sum(columns, max[r], row);
        picked[r] = at >= 0 && at < columns ? row[at] - max[r] : 0;
    }
}

VECTOR_VERSIONS static void gradient_row(int n, float shift, float factor, float *x)
{
    for (int i = 0; i < n; i++)
        x[i] = vector_exp(x[i] - shift) * factor;
}

void cpu_logits_gradient(void *queue, int rows, int columns, int stride, void *logits_data, const float *max,
                         const float *sum, const int *target, int first, float factor)
{
    float *logits = logits_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        float *row = logits + (int64_t)r * stride;
        int at = target[r] - first;
        gradient_row(columns, max[r], factor / sum[r], row);
        if (stride > columns)
            memset(row + columns, 0, (size_t)(stride - columns) * sizeof *row);
        if (at >= 0 && at < columns)
            row[at] -= factor;
    }
}

VECTOR_VERSIONS static double squares_of(int64_t n, const float *x)
{
    double lanes[VECTOR_LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int l = 0; l < VECTOR_LANES; l++)
            lanes[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int l = 0; l < VECTOR_LANES; l++)
        sum += lanes[l];
    return sum;
}

void cpu_sum_squares(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum)
{
    (void)queue;
    for (int p = 0; p < parts; p++)
        *sum += squares_of(part[p].n, x + part[p].first);
}

VECTOR_VERSIONS static void update(int64_t n, const struct adamw *a, float weight_decay, const float *restrict gradient,
                                   float *restrict weight, float *restrict m, float *restrict v)
{
    const struct adamw o = *a;
    for (int64_t i = 0; i < n; i++) {
        float g = gradient[i] * o.gradient_scale;
        m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
        v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
        float step = m[i] / o.correction1 / (sqrtf(v[i] / o.correction2) + o.epsilon);
        weight[i] -= o.learning_rate * (weight_decay * weight[i] + step);
    }
}

void cpu_adamw(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
               float *weight, float *m, float *v, void *copy)
{
    (void)queue;
    for (int p = 0; p < parts; p++) {
        int64_t at = part[p].first;
        update(part[p].n, a, part[p].weight_decay, gradient + at, weight + at, m + at, v + at);
        if (copy)
            memcpy((float *)copy + at, weight + at, (size_t)part[p].n * sizeof *weight);
    }
}
