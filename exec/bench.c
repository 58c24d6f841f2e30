#include "exec/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cost/base/sample.h"
#include "exec/bench_internal.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/world.h"
#include "kernels/kernels.h"

enum { SAMPLES_MAX = 400, SMALL_POOL = 4 << 20, POOL = 16 << 20, GPU_POOL = 128 << 20 }; /* elements: more than caches hold */

/* --- one number ------------------------------------------------------------------ */

double bench_trimmed_mean(double *samples, int n, double from, double to)
{
    sample_sort(samples, n);
    int first = (int)(from * n), end = (int)(to * n) > first ? (int)(to * n) : first + 1;
    double sum = 0;
    for (int i = first; i < end; i++)
        sum += samples[i];
    return sum / (end - first);
}

double bench_slowest(const struct bench *bench, double value)
{
    comm_all_reduce_doubles(bench->world->comm[WORLD_ALL], COMM_MAX, 1, &value);
    return value;
}

static double thread_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void bench_mark_new(const struct bench *bench, struct bench_mark *ret)
{
    *ret = (struct bench_mark){.event = bench->own_time ? NULL : bench->device->event_new(bench->device)};
}

void bench_mark_free(const struct bench *bench, struct bench_mark *mark)
{
    if (!bench->own_time)
        bench->device->event_free(bench->device, mark->event);
}

void bench_mark_set(const struct bench *bench, struct bench_mark *mark)
{
    if (bench->own_time)
        mark->thread_s = thread_now_s();
    else
        bench->device->event_record(bench->device, mark->event, bench->device->queue);
}

double bench_mark_gap_s(const struct bench *bench, const struct bench_mark *start, const struct bench_mark *end)
{
    if (bench->own_time)
        return end->thread_s - start->thread_s;
    return bench->device->event_gap_s(bench->device, start->event, end->event);
}

static double timed(const struct bench *bench, const struct bench_call *call, int turn, int calls)
{
    struct bench_mark start, end;
    bench_mark_new(bench, &start);
    bench_mark_new(bench, &end);
    bench_mark_set(bench, &start);
    for (int i = 0; i < calls; i++)
        call->run(call->context, turn * calls + i);
    bench_mark_set(bench, &end);
    double seconds = bench_mark_gap_s(bench, &start, &end);
    bench_mark_free(bench, &start);
    bench_mark_free(bench, &end);
    return seconds / calls;
}

double bench_call_s(const struct bench *bench, const struct bench_call *call)
{
    double samples[SAMPLES_MAX], first = bench_slowest(bench, timed(bench, call, 0, 1));
    first = bench_slowest(bench, fmin(first, timed(bench, call, 1, 1)));
    int calls = first < 50e-6 ? (int)(50e-6 / fmax(first, 1e-7)) + 1 : 1;
    int n = (int)(bench->budget_s / fmax(first * calls, 1e-7));
    n = n < 3 ? 3 : n > SAMPLES_MAX ? SAMPLES_MAX : n;
    for (int i = 0; i < n; i++)
        samples[i] = timed(bench, call, i + 2, calls);
    return bench_slowest(bench, bench_trimmed_mean(samples, n, 0.25, 0.75));
}

/* The numbers come again after as many: a host writes no 100 M of them in the time of a measurement. */
enum { PATTERN = 1 << 20 };

static void *filled(struct device *device, enum element type, int64_t n)
{
    void *x = type == ELEMENT_F32 ? device_floats(device, n) : device_elements(device, n);
    int64_t first = n < PATTERN ? n : PATTERN;
    size_t bytes = (size_t)first * element_bytes(type);
    float *host = malloc((size_t)first * sizeof *host + 1);
    void *elements = malloc(bytes + 1);
    if (!host || !elements)
        abort();
    uint32_t state = 12345;
    for (int64_t i = 0; i < first; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    kernels_ref.convert(NULL, first, ELEMENT_F32, host, type, elements);
    device->upload(device, x, elements, bytes);
    for (int64_t at = first; at < n; at *= 2)
        device->copy(device, element_at(type, x, at), x, (size_t)(at < n - at ? at : n - at) * element_bytes(type));
    free(host);
    free(elements);
    return x;
}

void *bench_elements(struct device *device, int64_t n)
{
    return filled(device, device->kernels->type, n);
}

float *bench_floats(struct device *device, int64_t n)
{
    return filled(device, ELEMENT_F32, n);
}

/* --- memory ------------------------------------------------------------------------ */

void bench_begin(struct bench *bench, int64_t largest)
{
    static const int64_t pools[BENCH_SIZES] = {SMALL_POOL, POOL, GPU_POOL};
    int64_t least = pools[bench->size];
    bench->pool = largest > least ? largest : least;
    bench->inputs = bench_elements(bench->device, bench->pool);
    bench->outputs = device_floats(bench->device, bench->pool);
    bench->next_input = bench->next_output = 0;
}

void bench_end(struct bench *bench)
{
    device_free_elements(bench->device, bench->inputs, bench->pool);
    device_free(bench->device, bench->outputs, bench->pool);
}

static int64_t next(const struct bench *bench, int64_t *at, int64_t n)
{
    enum { LINE = 32 }; /* elements, so that rows begin where cache lines do */
    int64_t first = *at + n <= bench->pool ? *at : 0;
    *at = first + (n + LINE - 1) / LINE * LINE;
    return first;
}

void *bench_input(struct bench *bench, int64_t n)
{
    return element_at(bench->device->kernels->type, bench->inputs, next(bench, &bench->next_input, n));
}

void *bench_output(struct bench *bench, enum element type, int64_t n)
{
    return element_at(type, bench->outputs, next(bench, &bench->next_output, n));
}

static double loss(const struct bench_fit *fit, const double *parameter)
{
    double sum = 0;
    for (int i = 0; i < fit->n; i++) {
        double ratio = log(fit->time(parameter, fit->points + (size_t)i * fit->stride) / fit->measured[i]);
        sum += ratio * ratio / (fabs(ratio) + 0.1);
    }
    return sum / fit->n;
}

double bench_search(const struct bench_fit *fit, double *parameter)
{
    double best = loss(fit, parameter);
    for (double step = 2; step > 1.002; step = sqrt(step) + (step > 1.2 ? 0.1 : 0)) {
        for (int round = 0; round < 20; round++) {
            double before = best;
            for (int p = 0; p < fit->parameters; p++)
                for (int way = 0; way < 2; way++) {
                    double old = parameter[p];
                    parameter[p] = way ? old * step : old / step;
                    double now = loss(fit, parameter);
                    if (now < best)
                        best = now;
                    else
                        parameter[p] = old;
                }
            if (best >= before * 0.999)
                break;
        }
    }
    double errors[256];
    for (int i = 0; i < fit->n && i < 256; i++)
        errors[i] = fabs(fit->time(parameter, fit->points + (size_t)i * fit->stride) / fit->measured[i] - 1);
    return sample_median(errors, fit->n);
}

/* --- products --------------------------------------------------------------------- */

/* a, activations or their gradients, was just written. b: weights, or the x of a weight's gradient, as old as the
 * forward pass. c is new memory, or a gradient, but in backward, where buffers come back soon. */
static void run_gemm(void *context, int turn)
{
    struct gemm_call *g = context;
    (void)turn;
    g->gemm.b = bench_input(g->bench, (int64_t)g->gemm.n * g->gemm.k);
    if (g->phase != PHASE_B)
        g->gemm.c = bench_output(g->bench, g->gemm.c_type, (int64_t)g->gemm.m * g->gemm.n);
    g->bench->device->kernels->gemm(g->bench->device->queue, 1, &g->gemm);
}

/* The product itself: m x n, over k. */
static struct gemm gemm_of(enum phase phase, enum element type, int m, int n, int k)
{
    switch (phase) {
    case PHASE_F:
        return (struct gemm){.transpose_b = true, .m = m, .n = n, .k = k, .stride_a = k, .stride_b = k, .stride_c = n,
                             .c_type = type};
    case PHASE_B:
        return (struct gemm){.m = m, .n = k, .k = n, .stride_a = n, .stride_b = k, .stride_c = k, .c_type = type};
    default:
        return (struct gemm){.transpose_a = true, .accumulate = true, .m = n, .n = k, .k = m, .stride_a = n,
                             .stride_b = k, .stride_c = k, .c_type = ELEMENT_F32};
    }
}

static int64_t size_a(const struct gemm *g)
{
    return (int64_t)g->m * g->k;
}

static int64_t size_c(const struct gemm *g)
{
    return (int64_t)g->m * g->n;
}

void bench_product_open(struct bench *bench, enum phase phase, int m, int n, int k, struct bench_product *ret)
{
    struct gemm gemm = gemm_of(phase, bench->device->kernels->type, m, n, k);
    *ret = (struct bench_product){.gemm = {bench, phase, gemm},
                                  .a = bench_elements(bench->device, size_a(&gemm)),
                                  .c = device_elements(bench->device, size_c(&gemm))};
    ret->gemm.gemm.a = ret->a;
    ret->gemm.gemm.c = ret->c;
    ret->call = (struct bench_call){run_gemm, &ret->gemm};
}

void bench_product_close(struct bench *bench, struct bench_product *product)
{
    device_free_elements(bench->device, product->a, size_a(&product->gemm.gemm));
    device_free_elements(bench->device, product->c, size_c(&product->gemm.gemm));
}

double bench_product_s(struct bench *bench, enum phase phase, int m, int n, int k)
{
    if (bench->eight)
        return bench_product_8_bits_s(bench, phase, m, n, k);
    struct bench_product product;
    bench_product_open(bench, phase, m, n, k, &product);
    double seconds = bench_call_s(bench, &product.call);
    bench_product_close(bench, &product);
    return seconds;
}

struct gemm_point {
    double m, n, k;
};

/* parameter: rate, t0, pads */
static double gemm_time(const double *p, const void *point)
{
    const struct gemm_point *g = point;
    return p[1] + 2 * (g->m + p[2]) * (g->n + p[3]) * (g->k + p[4]) / p[0];
}

void bench_fit_gemm(struct bench *bench, struct gemm_form *ret, double *ret_peak_flop_per_s, double *ret_error)
{
    static const int all_rows[BENCH_SIZES][3] = {{16, 64, 128}, {64, 256, 1024}, {1024, 4096, 8192}};
    static const int all_widths[BENCH_SIZES][4] = {{32, 64, 96, 128}, {64, 256, 704, 2048}, {1024, 2048, 4096, 8192}};
    const int *rows = all_rows[bench->size], *widths = all_widths[bench->size];
    struct gemm_point points[64];
    double measured[64], ratios[64], parameter[5] = {0, 1e-6, 4, 4, 4};
    int n = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 4; l++) {
                if (j + l > 4)
                    continue;
                double seconds[PHASES];
                points[n] = (struct gemm_point){rows[i], widths[j], widths[l]};
                for (int phase = 0; phase < PHASES; phase++)
                    seconds[phase] = bench_product_s(bench, (enum phase)phase, rows[i], widths[j], widths[l]);
                double best = fmin(seconds[PHASE_F], seconds[PHASE_B]);
                measured[n] = 0.5 * (seconds[PHASE_F] + seconds[PHASE_B]);
                ratios[n] = seconds[PHASE_W] / measured[n];
                parameter[0] = fmax(parameter[0], 2 * points[n].m * points[n].n * points[n].k / best);
                n++;
            }
    double peak = parameter[0];
    struct bench_fit fit = {gemm_time, (const char *)points, sizeof *points, measured, n, 5};
    *ret_error = bench_search(&fit, parameter);
    *ret = (struct gemm_form){.eff = parameter[0] / peak,
                              .t0_s = parameter[1],
                              .pad_m = parameter[2],
                              .pad_n = parameter[3],
                              .pad_k = parameter[4],
                              .wgrad = sample_median(ratios, n)};
    *ret_peak_flop_per_s = peak;
}

/* --- attention ---------------------------------------------------------------------- */

struct attention_call {
    struct bench *bench;
    struct bench_attention shape;
    struct attention_gradient gradient;
    void *qkv; /* just written, for forward */
    bool backward;
};

static void read_from(struct attention_call *a, void *qkv)
{
    enum element type = a->bench->device->kernels->type;
    struct attention *forward = &a->gradient.forward;
    int64_t width = (int64_t)a->shape.heads * a->shape.head_dim, kv_width = (int64_t)a->shape.kv_heads * a->shape.head_dim;
    forward->q = qkv;
    forward->k = element_at(type, qkv, width);
    forward->v = element_at(type, qkv, width + kv_width);
}

/* Backward reads what forward kept. */
static void run_attention(void *context, int turn)
{
    struct attention_call *a = context;
    struct device *device = a->bench->device;
    struct attention *forward = &a->gradient.forward;
    int64_t rows = (int64_t)a->shape.batch * a->shape.sequence;
    (void)turn;
    if (a->backward) {
        read_from(a, bench_input(a->bench, rows * forward->stride_q));
        forward->o = bench_input(a->bench, rows * forward->stride_o);
        device->kernels->attention_backward(device->queue, &a->gradient);
    } else {
        read_from(a, a->qkv);
        forward->o = bench_output(a->bench, device->kernels->type, rows * forward->stride_o);
        device->kernels->attention_forward(device->queue, forward);
    }
}

static int *positions(struct device *device, int sequence)
{
    int *position = device_ints(device, sequence), *host = malloc((size_t)sequence * sizeof *host);
    if (!host)
        abort();
    for (int i = 0; i < sequence; i++)
        host[i] = i;
    device->upload(device, position, host, (size_t)sequence * sizeof *host);
    free(host);
    return position;
}

/* ret: forward, backward */
static void attention_seconds(struct bench *bench, const struct bench_attention *s, double ret[2])
{
    struct device *device = bench->device;
    int width = s->heads * s->head_dim, kv_width = s->kv_heads * s->head_dim, columns = width + 2 * kv_width;
    int64_t rows = (int64_t)s->batch * s->sequence, scalars = rows * s->heads;
    void *qkv = bench_elements(device, rows * columns), *dout = bench_elements(device, rows * width);
    float *dqkv = device_floats(device, rows * columns), *lse = device_floats(device, scalars);
    int *position = positions(device, s->sequence);
    struct attention forward = {.batch = s->batch,
                                .heads = s->heads,
                                .kv_heads = s->kv_heads,
                                .head_dim = s->head_dim,
                                .queries = s->sequence,
                                .keys = s->sequence,
                                .position_q = position,
                                .position_k = position,
                                .scale = 1 / sqrtf((float)s->head_dim),
                                .stride_q = columns,
                                .stride_kv = columns,
                                .stride_o = width,
                                .lse = lse};
    struct attention_call a = {
        bench, *s, {.forward = forward, .dout = dout, .dq = dqkv, .dk = dqkv + width, .dv = dqkv + width + kv_width}, qkv, false};
    struct bench_call call = {run_attention, &a};
    ret[0] = bench_call_s(bench, &call); /* leaves lse for backward */
    a.backward = true;
    ret[1] = bench_call_s(bench, &call);
    device_free_elements(device, qkv, rows * columns);
    device_free(device, dqkv, rows * columns);
    device_free_elements(device, dout, rows * width);
    device_free(device, lse, scalars);
    device_free(device, position, s->sequence);
}

/* parameter: rate, s0; FLOPs of the causal half. */
static double attention_time(const double *p, const void *point)
{
    const struct gemm_point *g = point; /* m = FLOPs, n = sequence */
    return g->m * (1 + p[1] / g->n) / p[0];
}

void bench_fit_attention(struct bench *bench, int n, const struct bench_attention *shape, double peak_flop_per_s,
                         struct attention_form *ret, double *ret_error)
{
    struct gemm_point points[64];
    double measured[64], parameter[2] = {peak_flop_per_s, 32}, sums[2] = {0};
    bool lengths = false;
    for (int i = 0; i < n; i++) {
        const struct bench_attention *a = &shape[i];
        double seconds[2], s = a->sequence;
        attention_seconds(bench, a, seconds);
        points[i] = (struct gemm_point){2.0 * a->batch * a->heads * s * (s + 1) / 2 * 2 * a->head_dim, s, 0};
        measured[i] = seconds[0];
        sums[0] += seconds[0];
        sums[1] += seconds[1];
        lengths |= a->sequence != shape[0].sequence;
    }
    struct bench_fit fit = {attention_time, (const char *)points, sizeof *points, measured, n, lengths ? 2 : 1};
    *ret_error = bench_search(&fit, parameter);
    *ret = (struct attention_form){.head_dim = shape[0].head_dim,
                                   .eff = parameter[0] / peak_flop_per_s,
                                   .s0 = parameter[1],
                                   .mem_eff = 10,
                                   .backward = sums[1] / sums[0]};
}
