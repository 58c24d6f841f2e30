/* Rotary embedding (Su et al. 2021, halves as in Hugging Face), activations, sums, embedding tables. */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

const char *const element_names[] = {"f32", "bf16", "e4m3", "e5m2", NULL};
const char *const activation_names[] = {"silu", "gelu_tanh", "gelu", "relu", NULL};

void ref_rotary(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                bool inverse, void *x_data)
{
    float *x = x_data;
    (void)queue;
    int half = head_dim / 2;
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) {
            float *low = x + (int64_t)r * stride + h * head_dim, *high = low + half;
            const float *c = cosine + (int64_t)r * half, *s = sine + (int64_t)r * half;
            for (int i = 0; i < half; i++) {
                float a = low[i], b = high[i], sign = inverse ? -s[i] : s[i];
                low[i] = a * c[i] - b * sign;
                high[i] = b * c[i] + a * sign;
            }
        }
}

static const double sqrt_2_over_pi = 0.79788456080286535588, cubic = 0.044715, sqrt_half = 0.70710678118654752440;

/* act(x), and its derivative. */
static double activate(enum activation kind, double x, double *ret_slope)
{
    double s, t;
    switch (kind) {
    case ACTIVATION_SILU:
        s = 1 / (1 + exp(-x));
        *ret_slope = s * (1 + x * (1 - s));
        return x * s;
    case ACTIVATION_GELU_TANH:
        t = tanh(sqrt_2_over_pi * (x + cubic * x * x * x));
        *ret_slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * cubic * x * x);
        return 0.5 * x * (1 + t);
    case ACTIVATION_GELU:
        s = 0.5 * (1 + erf(x * sqrt_half));
        *ret_slope = s + x * exp(-0.5 * x * x) * 0.5 * sqrt_2_over_pi;
        return x * s;
    default:
        *ret_slope = x > 0;
        return x > 0 ? x : 0;
    }
}

void ref_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x_data,
                            void *y_data)
{
    const float *x = x_data;
    float *y = y_data;
    (void)queue;
    double slope;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const float *in = x + (int64_t)r * (gated ? 2 : 1) * columns + c;
            y[(int64_t)r * columns + c] =
                (float)(activate(kind, (double)in[0], &slope) * (gated ? (double)in[columns] : 1));
        }
}

void ref_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x_data,
                             const void *dy_data, void *dx_data)
{
    const float *x = x_data;
    const float *dy = dy_data;
    float *dx = dx_data;
    (void)queue;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            int64_t at = (int64_t)r * (gated ? 2 : 1) * columns + c;
            double slope, value = activate(kind, (double)x[at], &slope), g = (double)dy[(int64_t)r * columns + c];
            dx[at] = (float)(g * slope * (gated ? (double)x[at + columns] : 1));
            if (gated)
                dx[at + columns] = (float)(g * value);
        }
}

void ref_add(void *queue, int64_t n, const void *x_data, void *y_data)
{
    const float *x = x_data;
    float *y = y_data;
    (void)queue;
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

void ref_add_floats(void *queue, int64_t n, const float *x, float *y)
{
    ref_add(queue, n, x, y);
}

void ref_scale_floats(void *queue, int64_t n, float factor, float *x)
{
    (void)queue;
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

void ref_copy_block(void *queue, int rows, int columns, const void *x_data, int stride_x, bool accumulate, void *y_data,
                    int stride_y)
{
    const float *x = x_data;
    float *y = y_data;
    for (int r = 0; r < rows; r++, x += stride_x, y += stride_y) {
        if (accumulate)
            ref_add(queue, columns, x, y);
        else
            memcpy(y, x, (size_t)columns * sizeof *y);
    }
}

/* Infinities and NaN stay; of these the upper half alone says which. */
static uint32_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bool number = (bits & 0x7f800000u) != 0x7f800000u;
    return number ? (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u : bits;
}

void ref_round_bf16(void *queue, int64_t n, float *x)
{
    (void)queue;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = rounded(x[i]);
        memcpy(&x[i], &bits, sizeof bits);
    }
}

void ref_convert(void *queue, int64_t n, enum element from, const void *x, enum element to, void *y)
{
    (void)queue;
    for (int64_t i = 0; i < n; i++) {
        float value;
        uint32_t bits = from == ELEMENT_BF16 ? (uint32_t)((const uint16_t *)x)[i] << 16 : 0;
        memcpy(&value, from == ELEMENT_BF16 ? (const void *)&bits : (const float *)x + i, sizeof value);
        if (to == ELEMENT_F32)
            ((float *)y)[i] = value;
        else
            ((uint16_t *)y)[i] = (uint16_t)(rounded(value) >> 16 | (isnan(value) ? 0x40u : 0)); /* stays a NaN */
    }
}

void ref_bias_add(void *queue, int rows, int columns, const void *bias_data, void *x_data)
{
    const float *bias = bias_data;
    float *x = x_data;
    for (int r = 0; r < rows; r++)
        ref_add(queue, columns, bias, x + (int64_t)r * columns);
}

void ref_column_sum(void *queue, int rows, int columns, const void *x_data, float *sum)
{
    const float *x = x_data;
    for (int r = 0; r < rows; r++)
        ref_add(queue, columns, x + (int64_t)r * columns, sum);
}

void ref_embedding_forward(void *queue, int rows, int columns, const int *token, int first, int count,
                           const void *table_data, void *y_data)
{
    const float *table = table_data;
    float *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++) {
        int at = token[r] - first;
        if (at >= 0 && at < count)
            memcpy(y + (int64_t)r * columns, table + (int64_t)at * columns, (size_t)columns * sizeof *y);
        else
            memset(y + (int64_t)r * columns, 0, (size_t)columns * sizeof *y);
    }
}

void ref_embedding_backward(void *queue, int rows, int columns, const int *token, int first, int count,
                            const void *dy_data, float *dtable)
{
    const float *dy = dy_data;
    for (int r = 0; r < rows; r++) {
        int at = token[r] - first;
        if (at >= 0 && at < count)
            ref_add(queue, columns, dy + (int64_t)r * columns, dtable + (int64_t)at * columns);
    }
}
