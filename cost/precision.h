/* Number formats of a training run, by the names users know. */
#ifndef COST_PRECISION_H
#define COST_PRECISION_H

#include <stdbool.h>

enum precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISION_FP8, PRECISION_FP8_BLOCK, PRECISION_MXFP8, PRECISION_NVFP4, PRECISIONS };

extern const char *const precision_names[]; /* "fp32","bf16","fp16","fp8","fp8-block","mxfp8","nvfp4", NULL */

/* Tensor-core rate classes of an accelerator. */
enum rate { RATE_FP32, RATE_TF32, RATE_16BIT, RATE_FP8, RATE_FP4, RATES };

enum rate precision_rate(enum precision precision);   /* of the linear layers' GEMMs */
double precision_activation_bytes(enum precision precision); /* stored activations: 4 or 2 */
bool precision_is_fp8(enum precision precision);      /* any 8-bit or 4-bit recipe */

#endif
