/* Measurements of this machine for a profile (cost/profile.h): kernels and collectives, and the forms fitted to them.
 *
 * All ranks measure at the same time, as they will compute at the same time; the slowest rank counts, which sets the
 * pace of the others. One number is the mean of the middle half of repeated calls after a warm-up, with data that are
 * not zero: what was just written lies in a cache; weights, their gradients, and what is kept from forward to backward
 * lie in memory (buffers are taken in turn from more than caches hold). Seconds, bytes, FLOPs. Collective calls. */
#ifndef EXEC_BENCH_H
#define EXEC_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/ops.h"
#include "cost/profile.h"

struct comm;
struct device;
struct world;

/* Of what is measured where no plan says it: seconds on an emulated device; for a core; what keeps a GPU busy, and
 * exceeds its cache. */
enum bench_size { BENCH_SMALL, BENCH_USUAL, BENCH_LARGE, BENCH_SIZES };

struct bench {
    struct world *world;
    struct device *device;
    double budget_s; /* of one number */
    bool gpu;        /* the device is one */
    enum bench_size size;
    bool own_time;   /* kernels run in this thread: its own clock, which stands while others have the core */
    void *inputs, *outputs; /* bench_begin; elements, floats */
    int64_t pool, next_input, next_output;
    void (*pause)(void *context, double seconds); /* NULL = sleeps; a test's own clock */
    void *pause_context;
    bool eight;     /* products are of 8 bits: between the two calls for that */
    void *eights;   /* numbers of 8 bits, as many */
    float *factors; /* [2] */
    int64_t next_eight;
};

/* largest: elements of a matrix. */
void bench_begin(struct bench *bench, int64_t largest);
void bench_end(struct bench *bench);

/* Operands for products of 8 bits (bench->eight), whose sizes are multiples of 16. Between bench_begin and bench_end. */
void bench_begin_8_bits(struct bench *bench);
void bench_end_8_bits(struct bench *bench);
/* Of a matrix just written, both ways: between the two. */
double bench_cast_s(struct bench *bench, int rows, int columns);

/* A linear layer y[m x n] = x[m x k] weight[n x k]: forward, the gradient of x, or that of the weight, added to it. */
double bench_product_s(struct bench *bench, enum phase phase, int m, int n, int k);
/* Over a grid. The form's peak is the fastest product seen; wgrad is the ratio of the third phase. error: median |fit /
 * measured - 1|. */
void bench_fit_gemm(struct bench *bench, struct gemm_form *ret, double *ret_peak_flop_per_s, double *ret_error);

struct bench_attention {
    int batch, heads, kv_heads, head_dim, sequence;
};
/* To n shapes of one head width (at most 64); shapes of one sequence length leave s0 at its usual value. */
void bench_fit_attention(struct bench *bench, int n, const struct bench_attention *shape, double peak_flop_per_s,
                         struct attention_form *ret, double *ret_error);

/* What memory-bound kernels are measured at: one rank's micro-batch, its share of widths, layers and parameters. */
struct bench_pointwise {
    int hidden, ffn, heads, kv_heads, head_dim, tokens, vocab, layers;
    int64_t parameters;
    int activations;            /* rows of the activation function */
    int routed, choices;        /* tokens that this rank routes, to so many experts each; 0 = dense */
    bool alone;                 /* all experts are its own: rows are copied instead of sent */
};
/* Of the 38 bytes per parameter that the cost model counts for an optimizer's step, the norm and clearing. */
double bench_optimizer_bytes_per_s(struct bench *bench, int64_t parameters);
/* Time of a layer's and the loss's memory-bound kernels / bytes that the cost model counts at that rate. */
double bench_pointwise(struct bench *bench, const struct bench_pointwise *shape, double bytes_per_s, double latency_s);
/* Time of putting rows into the order of experts and back, forward and backward / bytes that the cost model counts. */
double bench_permute(struct bench *bench, const struct bench_pointwise *shape, double bytes_per_s);

/* A large product in bursts, and back to back for limit_s (bench_sustained.c). ratio, 1 at most: of the rates. A device
 * that wakes up slowly seems to be faster in the long run: that counts as 1. */
struct bench_sustained {
    int size; /* of the product, n x n x n */
    double flop, burst_s, sustained_s, ratio, ran_s;
};
struct bench_progress {
    void (*tell)(void *context, double ran_s, double call_s); /* about every second */
    void *context;
};
double bench_sustained_flop(const struct bench *bench); /* of one call */
void bench_measure_sustained(struct bench *bench, double limit_s, const struct bench_progress *progress,
                             struct bench_sustained *ret);

/* Of a kernel that has nothing to do: between bench_begin and bench_end. */
double bench_latency_s(struct bench *bench);

/* Lines through the times of sizes from 1 KiB to 16 MiB, in bus bytes. Every member computes in between, so that what
 * they wait for each other counts. p2p: between ranks 2i and 2i + 1. */
void bench_fit_collective(struct bench *bench, struct comm *comm, enum collective_op op, struct alpha_beta *ret,
                          double *ret_error);

#endif
