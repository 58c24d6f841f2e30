/* Products of 8 bits as the executor makes them (exec/fp8.c), and the casts before them. */
#include <stdlib.h>

#include "exec/bench_internal.h"
#include "exec/device.h"
#include "exec/fp8.h"
#include "kernels/kernels.h"

void bench_begin_8_bits(struct bench *bench)
{
    struct device *device = bench->device;
    const float one[2] = {1, 1};
    enum { COLUMNS = 1024 };
    bench->factors = device_floats(device, 3); /* two, and a largest magnitude */
    device->upload(device, bench->factors, one, sizeof one);
    bench->eights = device_new(device, bench->pool, ELEMENT_E4M3);
    bench->next_eight = 0;
    struct fp8_cast cast = {.format = ELEMENT_E4M3,
                            .rows = (int)(bench->pool / COLUMNS),
                            .columns = COLUMNS,
                            .x = bench->inputs,
                            .scale = bench->factors,
                            .y = bench->eights,
                            .amax = bench->factors + 2};
    device->kernels->fp8_cast(device->queue, &cast);
}

void bench_end_8_bits(struct bench *bench)
{
    device_free(bench->device, bench->factors, 3);
    device_free_typed(bench->device, bench->eights, bench->pool, ELEMENT_E4M3);
    bench->factors = NULL;
    bench->eights = NULL;
}

/* n numbers that were long not read; of e4m3, and below 1, so that they are of e5m2 as well. */
static void *input(struct bench *bench, int64_t n)
{
    int64_t whole = bench->pool / 1024 * 1024, first = bench->next_eight + n <= whole ? bench->next_eight : 0;
    bench->next_eight = first + (n + 255) / 256 * 256;
    return element_at(ELEMENT_E4M3, bench->eights, first);
}

/* What is old and what is new as with 16 bits (bench.c). */
static void run_product(void *context, int turn)
{
    struct gemm_call *e = context;
    (void)turn;
    e->gemm.b = input(e->bench, (int64_t)e->gemm.n * e->gemm.k);
    if (e->phase != PHASE_B)
        e->gemm.c = bench_output(e->bench, e->gemm.c_type, (int64_t)e->gemm.m * e->gemm.n);
    e->bench->device->kernels->gemm(e->bench->device->queue, 1, &e->gemm);
}

/* The product itself: m x n, over k. */
static struct gemm product_of(const struct bench *bench, enum phase phase, int m, int n, int k)
{
    const int sizes[PHASES][3] = {[PHASE_F] = {m, n, k}, [PHASE_B] = {m, k, n}, [PHASE_W] = {n, k, m}};
    const int *s = sizes[phase];
    return (struct gemm){.transpose_b = true,
                         .accumulate = phase == PHASE_W,
                         .fast_sums = phase == PHASE_F,
                         .m = s[0],
                         .n = s[1],
                         .k = s[2],
                         .stride_a = s[2],
                         .stride_b = s[2],
                         .stride_c = s[1],
                         .c_type = phase == PHASE_W ? ELEMENT_F32 : bench->device->kernels->type,
                         .a_type = phase == PHASE_F ? ELEMENT_E4M3 : ELEMENT_E5M2,
                         .b_type = ELEMENT_E4M3,
                         .scale_a = bench->factors,
                         .scale_b = bench->factors + 1};
}

double bench_product_8_bits_s(struct bench *bench, enum phase phase, int m, int n, int k)
{
    struct gemm_call e = {bench, phase, product_of(bench, phase, m, n, k)};
    struct bench_call call = {run_product, &e};
    int64_t size_c = (int64_t)e.gemm.m * e.gemm.n;
    void *c = device_elements(bench->device, size_c);
    e.gemm.a = input(bench, (int64_t)e.gemm.m * e.gemm.k);
    e.gemm.c = c;
    double seconds = bench_call_s(bench, &call);
    device_free_elements(bench->device, c, size_c);
    return seconds;
}

struct cast_call {
    struct bench *bench;
    struct fp8_cast cast;
};

static void run_cast(void *context, int turn)
{
    struct cast_call *c = context;
    (void)turn;
    c->bench->device->kernels->fp8_cast(c->bench->device->queue, &c->cast);
}

double bench_cast_s(struct bench *bench, int rows, int columns)
{
    struct device *device = bench->device;
    int64_t n = (int64_t)rows * columns;
    void *x = bench_elements(device, n), *y = device_new(device, n, ELEMENT_E4M3),
         *t = device_new(device, n, ELEMENT_E4M3);
    struct cast_call c = {bench, {ELEMENT_E4M3, rows, columns, x, bench->factors, y, t, bench->factors + 2}};
    double seconds = bench_call_s(bench, &(struct bench_call){run_cast, &c});
    device_free_elements(device, x, n);
    device_free_typed(device, y, n, ELEMENT_E4M3);
    device_free_typed(device, t, n, ELEMENT_E4M3);
    return seconds;
}
