/* Measurements of this machine for a profile (cost/profile.h): kernels and collectives, and the forms fitted to them.
 *
 * All ranks measure at the same time, as they will compute at the same time; a result is the mean over ranks. One
 * number is the lower quartile of repeated calls after a warm-up, over buffers that rotate through more memory than
 * caches hold (matrices), with data that are not zero. Seconds, bytes, FLOPs. Collective calls. */
#ifndef EXEC_BENCH_H
#define EXEC_BENCH_H

#include "cost/profile.h"

struct device;
struct world;

struct bench {
    struct world *world;
    struct device *device;
    double budget_s; /* of one number */
};

struct bench_shape {
    int hidden, ffn, heads, kv_heads, head_dim, tokens, batch, vocab; /* what pointwise kernels are measured at */
};

double bench_gemm_s(struct bench *bench, bool transpose_a, bool transpose_b, int m, int n, int k);
/* The form's peak is the fastest product seen; wgrad is the ratio of transposed products. error: median |fit /
 * measured - 1|. */
void bench_fit_gemm(struct bench *bench, struct gemm_form *ret, double *ret_peak_flop_per_s, double *ret_error);
void bench_fit_attention(struct bench *bench, int head_dim, double peak_flop_per_s, struct attention_form *ret,
                         double *ret_error);
double bench_adamw_bytes_per_s(struct bench *bench); /* of the 38 bytes per parameter that the cost model counts */
/* Time of a layer's and the loss's memory-bound kernels / bytes that the cost model counts at that rate. */
double bench_pointwise(struct bench *bench, const struct bench_shape *shape, double bytes_per_s);
/* Three lines through the times of four sizes, in bus bytes; group: the whole world (p2p: ranks 0 and 1 of it). */
void bench_fit_collective(struct bench *bench, enum collective_op op, struct alpha_beta *ret);

#endif
