#include "cost/precision.h"

#include <stddef.h>

const char *const precision_names[] = {"fp32", "bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", NULL};

static const struct {
    enum rate rate;
    double activation_bytes;
} formats[PRECISIONS] = {
    [PRECISION_FP32] = {RATE_TF32, 4}, [PRECISION_BF16] = {RATE_16BIT, 2},    [PRECISION_FP16] = {RATE_16BIT, 2},
    [PRECISION_FP8] = {RATE_FP8, 2},   [PRECISION_FP8_BLOCK] = {RATE_FP8, 2}, [PRECISION_MXFP8] = {RATE_FP8, 2},
    [PRECISION_NVFP4] = {RATE_FP4, 2},
};

enum rate precision_rate(enum precision precision)
{
    return formats[precision].rate;
}

double precision_activation_bytes(enum precision precision)
{
    return formats[precision].activation_bytes;
}

bool precision_is_fp8(enum precision precision)
{
    return formats[precision].rate == RATE_FP8 || formats[precision].rate == RATE_FP4;
}
