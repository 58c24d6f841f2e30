/* How one number is measured; shared by the files of bench.h. */
#ifndef EXEC_BENCH_INTERNAL_H
#define EXEC_BENCH_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "exec/bench.h"
#include "kernels/kernels.h"

struct bench_call {
    void (*run)(void *context, int turn);
    void *context;
};

/* Seconds of one call. Short ones are timed in packs of about 50 us. */
double bench_call_s(const struct bench *bench, const struct bench_call *call);
/* A moment: of the device's queue, or of this thread's own clock (bench.own_time). */
struct bench_mark {
    void *event;
    double thread_s;
};
void bench_mark_new(const struct bench *bench, struct bench_mark *ret);
void bench_mark_free(const struct bench *bench, struct bench_mark *mark);
void bench_mark_set(const struct bench *bench, struct bench_mark *mark);
double bench_mark_gap_s(const struct bench *bench, const struct bench_mark *start, const struct bench_mark *end); /* waits */
/* One product's call, with memory of its own for what was just written. */
struct gemm_call {
    struct bench *bench;
    enum phase phase;
    struct gemm gemm;
};
struct bench_product {
    struct gemm_call gemm;
    struct bench_call call;
    void *a, *c;
};
void bench_product_open(struct bench *bench, enum phase phase, int m, int n, int k, struct bench_product *ret);
void bench_product_close(struct bench *bench, struct bench_product *product);
/* bench_measure_sustained of any call. */
void bench_sustained_call(const struct bench *bench, const struct bench_call *call, double limit_s,
                          const struct bench_progress *progress, struct bench_sustained *ret);
/* Mean of what lies between two quantiles; sorts. */
double bench_trimmed_mean(double *samples, int n, double from, double to);
double bench_product_8_bits_s(struct bench *bench, enum phase phase, int m, int n, int k);
double bench_slowest(const struct bench *bench, double value); /* over all ranks */
/* n of the kernels' type, or floats, that were long not touched: to read; to write or to add to. */
void *bench_input(struct bench *bench, int64_t n);
void *bench_output(struct bench *bench, enum element type, int64_t n);
/* Elements of the kernels' type, or floats: numbers between -0.5 and 0.5. */
void *bench_elements(struct device *device, int64_t n);
float *bench_floats(struct device *device, int64_t n);

/* Minimises the mean squared log error, outliers counting linearly, by trying steps up and down, one parameter at a
 * time, ever smaller. Returns the median of |fit / measured - 1|. */
struct bench_fit {
    double (*time)(const double *parameter, const void *point);
    const char *points; /* n of `stride` bytes */
    size_t stride;
    const double *measured;
    int n, parameters;
};
double bench_search(const struct bench_fit *fit, double *parameter);

#endif
