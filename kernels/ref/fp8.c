/* 8-bit floating point (OCP 8-bit Floating Point Specification, revision 1.0): sign, exponent with a bias, mantissa;
 * exponent 0 is of numbers below the smallest normal one. E4M3: 4 and 3 bits, bias 7, all ones is NaN. E5M2: 5 and 2,
 * bias 15, the largest exponent is of infinity and NaN. Factors by delayed scaling, as Transformer Engine's recipe
 * DelayedScaling (margin 0, history of 1024, "max") has them. */
#include "kernels/ref/ref.h"

#include <float.h>
#include <math.h>

struct format {
    int mantissa_bits, bias;
    float limit;
};

static struct format format_of(enum element type)
{
    return type == ELEMENT_E4M3 ? (struct format){3, 7, 448} : (struct format){2, 15, 57344};
}

float fp8_limit(enum element type)
{
    return format_of(type).limit;
}

float fp8_value(enum element type, unsigned char bits)
{
    struct format f = format_of(type);
    int mantissa = bits & ((1 << f.mantissa_bits) - 1), exponent = (bits & 0x7f) >> f.mantissa_bits;
    float sign = bits & 0x80 ? -1.0f : 1.0f;
    if (type == ELEMENT_E4M3 && (bits & 0x7f) == 0x7f)
        return NAN;
    if (type == ELEMENT_E5M2 && exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)mantissa, 1 - f.bias - f.mantissa_bits);
    return sign * ldexpf((float)(mantissa + (1 << f.mantissa_bits)), exponent - f.bias - f.mantissa_bits);
}

/* Numbers between two powers of two are as far apart as those above the smallest normal number's power are, or wider. */
static unsigned char rounded(enum element type, float x)
{
    struct format f = format_of(type);
    unsigned char sign = signbit(x) ? 0x80 : 0;
    int exponent;
    if (isnan(x))
        return 0x7f;
    float size = fminf(fabsf(x), 2 * f.limit); /* infinity, too, is too large */
    frexpf(size, &exponent);
    exponent = size > 0 && exponent - 1 > 1 - f.bias ? exponent - 1 : 1 - f.bias;
    int steps = (int)rintf(ldexpf(size, f.mantissa_bits - exponent)); /* of this size; ties to even */
    if (ldexpf((float)steps, exponent - f.mantissa_bits) > f.limit)
        return sign | (type == ELEMENT_E4M3 ? 0x7e : 0x7b);
    /* The bits count up through the powers of two: a normal number's hidden bit adds 1 to the exponent. */
    return (unsigned char)(sign | (((exponent + f.bias - 1) << f.mantissa_bits) + steps));
}

void ref_fp8_cast(void *queue, const struct fp8_cast *cast)
{
    const float *x = cast->x;
    unsigned char *y = cast->y, *transposed = cast->transposed;
    (void)queue;
    for (int r = 0; r < cast->rows; r++)
        for (int c = 0; c < cast->columns; c++) {
            int64_t at = (int64_t)r * cast->columns + c;
            unsigned char bits = rounded(cast->format, x[at] * *cast->scale);
            if (y)
                y[at] = bits;
            if (transposed)
                transposed[(int64_t)c * cast->rows + r] = bits;
            if (fabsf(x[at]) > *cast->amax)
                *cast->amax = fabsf(x[at]);
        }
}

void ref_fp8_transpose(void *queue, int rows, int columns, const void *x_data, void *y_data)
{
    const unsigned char *x = x_data;
    unsigned char *y = y_data;
    (void)queue;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            y[(int64_t)c * rows + r] = x[(int64_t)r * columns + c];
}

static float factor(const struct fp8_update *u, float limit, float largest)
{
    float scale = ldexpf(limit / largest, -u->margin);
    int exponent;
    if (isinf(scale))
        scale = FLT_MAX;
    if (!u->power_of_two)
        return scale;
    frexpf(scale, &exponent);
    return ldexpf(1, exponent - 1);
}

void ref_fp8_update(void *queue, const struct fp8_update *u)
{
    (void)queue;
    for (int i = 0; i < u->n; i++) {
        float largest = 0;
        u->history[(int64_t)u->row * u->n + i] = isfinite(u->amax[i]) ? u->amax[i] : 0;
        u->amax[i] = 0;
        for (int r = 0; r < u->rows; r++)
            largest = fmaxf(largest, u->history[(int64_t)r * u->n + i]);
        if (largest > 0) {
            u->scale[i] = factor(u, u->limit[i], largest);
            u->inverse[i] = 1 / u->scale[i];
        }
    }
}
