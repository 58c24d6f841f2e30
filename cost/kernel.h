/* One kernel on one accelerator -> seconds of device time.
 *
 * Pure functions of an accelerator's fitted forms (cost/profile.h); bf16/fp16
 * unless a rate says otherwise; sizes in elements, times in seconds. Host launch
 * cost is not in here (cost/ops.h adds it per layer). */
#ifndef COST_KERNEL_H
#define COST_KERNEL_H

#include <stdint.h>

#include "cost/profile.h"

/* The rate that stands in for one the accelerator lacks: fp32's own for tf32 where it is the slower one, else 16 bit. */
enum rate kernel_rate(const struct accelerator *accelerator, enum rate rate);

/* What a form says of a burst (struct gemm_form); peak: FLOP/s of its rate class. */
double kernel_form_s(const struct gemm_form *form, double peak, double multiprocessors, double m, double n, double k);

/* GEMM of m x n x k; 0 when a size is 0. A rate without a fitted form uses the
 * 16-bit form scaled to its peak. */
double kernel_gemm_s(const struct accelerator *accelerator, enum rate rate, double m, double n, double k);

/* Gradient of an m x n weight over k tokens: where that very shape was not measured, factor times the product. */
double kernel_wgrad_s(const struct accelerator *accelerator, enum rate rate, double m, double n, double k, double factor);

/* What one attention core works on, on one rank. */
struct attention_shape {
    double batch, heads, kv_heads; /* of this rank */
    double queries, keys;          /* length of q and of k/v on this rank (context parallelism cuts queries) */
    double span;                   /* mean number of keys a query sees; causal: (keys+1)/2 */
    double qk_dim, v_dim;
};
/* Flash attention forward (fits.md section 4: t0 + F(1+s0/s)(1+w/W)/(P e) + bytes/(m BW)). */
double kernel_attention_s(const struct accelerator *accelerator, const struct attention_shape *shape);
/* Backward / forward time ratio for this head width (3.0; MLA 3.3). */
double kernel_attention_backward(const struct accelerator *accelerator, const struct attention_shape *shape);

/* A pass over memory: bytes / (mem_eff * HBM) + kernel latency. */
double kernel_pointwise_s(const struct accelerator *accelerator, double bytes);

/* Routed experts' linear layers on one rank: `experts` local experts, each
 * `tokens` x width_in -> width_out (one of the grouped GEMMs). */
double kernel_grouped_gemm_s(const struct accelerator *accelerator, enum rate rate, double experts, double tokens, double width_in,
                             double width_out);
/* The same experts' weight gradients, added to what is there: gradient_bytes per element, read and written. */
double kernel_gradient_stream_s(const struct accelerator *accelerator, double elements, double gradient_bytes);
double kernel_grouped_wgrad_s(const struct accelerator *accelerator, enum rate rate, double experts, double tokens, double width_in,
                              double width_out, double gradient_bytes);

#endif
