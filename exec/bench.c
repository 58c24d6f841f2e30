#include "exec/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "exec/world.h"
#include "kernels/kernels.h"

enum { SAMPLES_MAX = 400, ROTATION_FLOATS = 8 << 20 };

/* --- one number ------------------------------------------------------------------ */

struct call {
    void (*run)(void *context, int turn);
    void *context;
    bool together; /* a collective: all ranks make the same number of calls */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double timed(const struct bench *bench, const struct call *call, int turn, int calls)
{
    double start_s = device_now_s();
    for (int i = 0; i < calls; i++)
        call->run(call->context, turn * calls + i);
    bench->device->wait(bench->device);
    return (device_now_s() - start_s) / calls;
}

static double mean_of_ranks(const struct bench *bench, double value)
{
    comm_all_reduce_doubles(bench->world->comm[WORLD_ALL], COMM_SUM, 1, &value);
    return value / bench->world->size;
}

/* Short calls are timed in packs of about 50 us. */
static double measure(const struct bench *bench, const struct call *call)
{
    double samples[SAMPLES_MAX], first = mean_of_ranks(bench, timed(bench, call, 0, 1));
    first = mean_of_ranks(bench, fmin(first, timed(bench, call, 1, 1)));
    int calls = first < 50e-6 ? (int)(50e-6 / fmax(first, 1e-7)) + 1 : 1;
    int n = (int)(bench->budget_s / fmax(first * calls, 1e-7));
    n = n < 5 ? 5 : n > SAMPLES_MAX ? SAMPLES_MAX : n;
    for (int i = 0; i < n; i++)
        samples[i] = timed(bench, call, i, calls);
    qsort(samples, (size_t)n, sizeof *samples, by_value);
    return mean_of_ranks(bench, samples[n / 4]);
}

/* n values of the type, no two neighbours alike. */
static void *filled_as(struct device *device, enum element type, int64_t n)
{
    void *x = type == ELEMENT_F32 ? device_floats(device, n) : device_elements(device, n);
    size_t bytes = (size_t)n * element_bytes(type);
    float *host = malloc((size_t)n * sizeof *host);
    void *elements = malloc(bytes);
    if (!host || !elements)
        abort();
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    kernels_ref.convert(NULL, n, ELEMENT_F32, host, type, elements);
    device->upload(device, x, elements, bytes);
    free(host);
    free(elements);
    return x;
}

static void *filled(struct device *device, int64_t n)
{
    return filled_as(device, device->kernels->type, n);
}

static float *filled_floats(struct device *device, int64_t n)
{
    return filled_as(device, ELEMENT_F32, n);
}

/* --- products --------------------------------------------------------------------- */

/* Copies of one product's matrices, taken in turn. */
struct gemm_call {
    const struct bench *bench;
    struct gemm gemm;
    int64_t copies, a, b, c; /* elements of each matrix */
};

static void run_gemm(void *context, int turn)
{
    const struct gemm_call *g = context;
    const struct kernels *kernels = g->bench->device->kernels;
    int64_t at = turn % g->copies;
    struct gemm gemm = g->gemm;
    gemm.a = element_at(kernels->type, gemm.a, at * g->a);
    gemm.b = element_at(kernels->type, gemm.b, at * g->b);
    gemm.c = element_at(gemm.c_type, gemm.c, at * g->c);
    kernels->gemm(g->bench->device->queue, 1, &gemm);
}

double bench_gemm_s(struct bench *bench, bool transpose_a, bool transpose_b, int m, int n, int k)
{
    struct device *device = bench->device;
    struct gemm_call g = {bench, .a = (int64_t)m * k, .b = (int64_t)n * k, .c = (int64_t)m * n};
    struct call call = {run_gemm, &g, false};
    g.copies = ROTATION_FLOATS / (g.a + g.b + g.c) + 1;
    g.copies = g.copies > 16 ? 16 : g.copies;
    bool weights = transpose_a; /* a gradient of weights: fp32, added to */
    void *c = weights ? device_floats(device, g.copies * g.c) : device_elements(device, g.copies * g.c);
    g.gemm = (struct gemm){.transpose_a = transpose_a,
                           .transpose_b = transpose_b,
                           .accumulate = weights,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a = filled(device, g.copies * g.a),
                           .stride_a = transpose_a ? m : k,
                           .b = filled(device, g.copies * g.b),
                           .stride_b = transpose_b ? k : n,
                           .c = c,
                           .stride_c = n,
                           .c_type = weights ? ELEMENT_F32 : device->kernels->type};
    double seconds = measure(bench, &call);
    device_free_elements(device, (void *)(uintptr_t)g.gemm.a, g.copies * g.a);
    device_free_elements(device, (void *)(uintptr_t)g.gemm.b, g.copies * g.b);
    if (weights)
        device_free(device, c, g.copies * g.c);
    else
        device_free_elements(device, c, g.copies * g.c);
    return seconds;
}

/* Minimises the mean squared log error by trying steps up and down, one parameter at a time, ever smaller. */
struct fit {
    double (*time)(const double *parameter, const void *point);
    const char *points; /* n of `stride` bytes */
    size_t stride;
    const double *measured;
    int n, parameters;
};

static double loss(const struct fit *fit, const double *parameter)
{
    double sum = 0;
    for (int i = 0; i < fit->n; i++) {
        double ratio = log(fit->time(parameter, fit->points + (size_t)i * fit->stride) / fit->measured[i]);
        sum += ratio * ratio / (fabs(ratio) + 0.1); /* outliers count linearly */
    }
    return sum / fit->n;
}

static double search(const struct fit *fit, double *parameter)
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
    qsort(errors, (size_t)fit->n, sizeof *errors, by_value);
    return errors[fit->n / 2];
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
    static const int rows[] = {64, 256, 1024}, widths[] = {64, 256, 704, 2048};
    struct gemm_point points[64];
    double measured[64], ratios[64], parameter[5] = {0, 1e-6, 4, 4, 4};
    int n = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 4; l++) {
                if (j + l > 4)
                    continue;
                points[n] = (struct gemm_point){rows[i], widths[j], widths[l]};
                double forward = bench_gemm_s(bench, false, true, rows[i], widths[j], widths[l]);
                double dgrad = bench_gemm_s(bench, false, false, rows[i], widths[j], widths[l]);
                double wgrad = bench_gemm_s(bench, true, false, widths[j], widths[l], rows[i]);
                measured[n] = 0.5 * (forward + dgrad);
                ratios[n] = wgrad / measured[n];
                parameter[0] = fmax(parameter[0], 2 * points[n].m * points[n].n * points[n].k / fmin(forward, dgrad));
                n++;
            }
    double peak = parameter[0];
    struct fit fit = {gemm_time, (const char *)points, sizeof *points, measured, n, 5};
    *ret_error = search(&fit, parameter);
    qsort(ratios, (size_t)n, sizeof *ratios, by_value);
    *ret = (struct gemm_form){.eff = parameter[0] / peak,
                              .t0_s = parameter[1],
                              .pad_m = parameter[2],
                              .pad_n = parameter[3],
                              .pad_k = parameter[4],
                              .wgrad = ratios[n / 2]};
    *ret_peak_flop_per_s = peak;
}

/* --- attention ---------------------------------------------------------------------- */

struct attention_call {
    const struct bench *bench;
    struct attention_gradient gradient;
    bool backward;
};

static void run_attention(void *context, int turn)
{
    const struct attention_call *a = context;
    (void)turn;
    if (a->backward)
        a->bench->device->kernels->attention_backward(a->bench->device->queue, &a->gradient);
    else
        a->bench->device->kernels->attention_forward(a->bench->device->queue, &a->gradient.forward);
}

static double attention_seconds(struct bench *bench, int head_dim, int sequence, int heads, bool backward)
{
    struct device *device = bench->device;
    int width = heads * head_dim, columns = 3 * width;
    int64_t n = (int64_t)sequence * columns;
    enum element type = device->kernels->type;
    void *qkv = filled(device, n), *o = filled(device, n / 3), *dout = filled(device, n / 3);
    float *dqkv = device_floats(device, n);
    float *lse = device_floats(device, (int64_t)heads * sequence);
    int *position = device_ints(device, sequence), *host = malloc((size_t)sequence * sizeof *host);
    if (!host)
        abort();
    for (int i = 0; i < sequence; i++)
        host[i] = i;
    device->upload(device, position, host, (size_t)sequence * sizeof *host);
    free(host);
    struct attention forward = {.batch = 1,
                                .heads = heads,
                                .kv_heads = heads,
                                .head_dim = head_dim,
                                .queries = sequence,
                                .keys = sequence,
                                .position_q = position,
                                .position_k = position,
                                .scale = 1 / sqrtf((float)head_dim),
                                .q = qkv,
                                .k = element_at(type, qkv, width),
                                .v = element_at(type, qkv, 2 * width),
                                .stride_q = columns,
                                .stride_kv = columns,
                                .stride_o = width,
                                .o = o,
                                .lse = lse};
    struct attention_call a = {bench, {forward, dout, dqkv, dqkv + width, dqkv + 2 * width}, false};
    struct call call = {run_attention, &a, false};
    run_attention(&a, 0); /* lse for backward */
    a.backward = backward;
    double seconds = measure(bench, &call);
    device_free_elements(device, qkv, n);
    device_free(device, dqkv, n);
    device_free_elements(device, o, n / 3);
    device_free_elements(device, dout, n / 3);
    device_free(device, lse, (int64_t)heads * sequence);
    device_free(device, position, sequence);
    return seconds;
}

/* parameter: rate, s0; FLOPs of the causal half. */
static double attention_time(const double *p, const void *point)
{
    const struct gemm_point *g = point; /* m = FLOPs, n = sequence */
    return g->m * (1 + p[1] / g->n) / p[0];
}

void bench_fit_attention(struct bench *bench, int head_dim, double peak_flop_per_s, struct attention_form *ret,
                         double *ret_error)
{
    static const int lengths[] = {64, 128, 256, 512, 1024};
    struct gemm_point points[5];
    double measured[5], ratios[5], parameter[2] = {peak_flop_per_s, 32};
    for (int i = 0; i < 5; i++) {
        int s = lengths[i], heads = 4;
        points[i] = (struct gemm_point){2.0 * heads * s * (s + 1) / 2 * 2 * head_dim, s, 0};
        measured[i] = attention_seconds(bench, head_dim, s, heads, false);
        ratios[i] = attention_seconds(bench, head_dim, s, heads, true) / measured[i];
    }
    struct fit fit = {attention_time, (const char *)points, sizeof *points, measured, 5, 2};
    *ret_error = search(&fit, parameter);
    qsort(ratios, 5, sizeof *ratios, by_value);
    *ret = (struct attention_form){.head_dim = head_dim,
                                   .eff = parameter[0] / peak_flop_per_s,
                                   .s0 = parameter[1],
                                   .mem_eff = 10,
                                   .backward = ratios[2]};
}

/* --- memory-bound kernels ------------------------------------------------------------ */

struct adamw_call {
    const struct bench *bench;
    int64_t n;
    float *gradient, *weight, *m, *v;
    void *copy; /* NULL where elements are floats: nothing is copied then */
    double *sum;
};

static void run_adamw(void *context, int turn)
{
    const struct adamw_call *c = context;
    struct adamw_part part = {0, c->n, 0.1f};
    struct adamw a = {.learning_rate = 1e-3f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .epsilon = 1e-8f,
                      .correction1 = 0.1f,
                      .correction2 = 0.05f,
                      .gradient_scale = 1};
    const struct device *d = c->bench->device;
    (void)turn;
    d->kernels->sum_squares(d->queue, 1, &part, c->gradient, c->sum);
    d->kernels->adamw(d->queue, &a, 1, &part, c->gradient, c->weight, c->m, c->v, c->copy);
}

double bench_adamw_bytes_per_s(struct bench *bench)
{
    int64_t n = 1 << 20;
    struct device *device = bench->device;
    bool copies = device->kernels->type != ELEMENT_F32;
    struct adamw_call c = {.bench = bench,
                           .n = n,
                           .gradient = filled_floats(device, n),
                           .weight = filled_floats(device, n),
                           .m = filled_floats(device, n),
                           .v = device_floats(device, n),
                           .copy = copies ? device_elements(device, n) : NULL,
                           .sum = (double *)(void *)device_floats(device, 2)};
    struct call call = {run_adamw, &c, false};
    double seconds = measure(bench, &call);
    float *const floats[] = {c.gradient, c.weight, c.m, c.v};
    for (int i = 0; i < 4; i++)
        device_free(device, floats[i], n);
    device_free_elements(device, c.copy, n);
    device_free(device, c.sum, 2);
    return 38.0 * (double)n / seconds;
}

struct pointwise_call {
    const struct bench *bench;
    const struct bench_shape *shape;
    void *x, *y, *z, *w;           /* elements */
    float *mean, *rstd, *gradient; /* statistics and angles, [tokens x columns of a head]; gradients of weights */
    int *index;
    int kind;
};

enum { NORM, NORM_BACK, ROTARY, RESIDUAL, ACTIVATION, ACTIVATION_BACK, LOSS, LOSS_BACK, POINTWISE_KINDS };

static void run_pointwise(void *context, int turn)
{
    const struct pointwise_call *p = context;
    const struct bench_shape *s = p->shape;
    const struct kernels *k = p->bench->device->kernels;
    void *queue = p->bench->device->queue;
    (void)turn;
    switch (p->kind) {
    case NORM:
        k->norm_forward(queue, s->tokens, s->hidden, s->hidden, 1e-5f, false, p->x, p->w, NULL, p->y, p->mean, p->rstd);
        break;
    case NORM_BACK:
        k->norm_backward(queue, s->tokens, s->hidden, s->hidden, false, p->x, p->w, p->mean, p->rstd, p->y, true, p->x,
                         p->gradient, NULL);
        break;
    case ROTARY:
        k->rotary(queue, s->tokens, s->heads + s->kv_heads, s->head_dim, (s->heads + 2 * s->kv_heads) * s->head_dim,
                  p->mean, p->rstd, false, p->x);
        break;
    case RESIDUAL:
        k->add(queue, (int64_t)s->tokens * s->hidden, p->x, p->y);
        break;
    case ACTIVATION:
        k->activation_forward(queue, ACTIVATION_SILU, true, s->tokens, s->ffn, p->x, p->y);
        break;
    case ACTIVATION_BACK:
        k->activation_backward(queue, ACTIVATION_SILU, true, s->tokens, s->ffn, p->x, p->y, p->z);
        break;
    case LOSS:
        k->logits_max(queue, s->tokens, s->vocab, s->vocab, p->x, p->mean);
        k->logits_sum(queue, s->tokens, s->vocab, s->vocab, p->x, p->mean, p->index, 0, p->rstd, p->gradient);
        break;
    case LOSS_BACK:
        k->logits_gradient(queue, s->tokens, s->vocab, s->vocab, p->x, p->mean, p->rstd, p->index, 0, 1e-3f);
        break;
    default:
        break;
    }
}

/* Calls per layer, and bytes per call in fp32 as cost/ops*.c count them (fused loss: 10 per logit each way); the loss
 * is spread over eight layers. */
double bench_pointwise(struct bench *bench, const struct bench_shape *s, double bytes_per_s)
{
    double t = s->tokens, hidden = t * s->hidden * 4, ffn = t * s->ffn * 4, logits = t * s->vocab;
    double qk = t * (s->heads + s->kv_heads) * s->head_dim * 4;
    const double bytes[POINTWISE_KINDS] = {2 * hidden, 3 * hidden, 2 * qk,      2.5 * hidden,
                                           3 * ffn,    5 * ffn,    10 * logits, 10 * logits};
    const double calls[POINTWISE_KINDS] = {2, 2, 2, 4, 1, 1, 0.125, 0.125};
    int widest = s->vocab > 2 * s->ffn ? s->vocab : 2 * s->ffn;
    int64_t n = (int64_t)s->tokens * (widest > 3 * s->hidden ? widest : 3 * s->hidden);
    int64_t floats = (int64_t)s->tokens * (s->head_dim > s->hidden ? s->head_dim : s->hidden);
    struct device *device = bench->device;
    struct pointwise_call p = {.bench = bench,
                               .shape = s,
                               .x = filled(device, n),
                               .y = filled(device, n),
                               .z = filled(device, n),
                               .w = filled(device, n),
                               .mean = filled_floats(device, floats),
                               .rstd = filled_floats(device, floats),
                               .gradient = filled_floats(device, floats),
                               .index = device_ints(device, s->tokens)};
    device->zero(device, p.index, (size_t)s->tokens * sizeof *p.index);
    struct call call = {run_pointwise, &p, false};
    double seconds = 0, counted = 0;
    for (p.kind = 0; p.kind < POINTWISE_KINDS; p.kind++) {
        seconds += calls[p.kind] * measure(bench, &call);
        counted += calls[p.kind] * bytes[p.kind] / bytes_per_s;
    }
    void *const elements[] = {p.x, p.y, p.z, p.w};
    float *const statistics[] = {p.mean, p.rstd, p.gradient};
    for (int i = 0; i < 4; i++)
        device_free_elements(device, elements[i], n);
    for (int i = 0; i < 3; i++)
        device_free(device, statistics[i], floats);
    device_free(device, p.index, s->tokens);
    return seconds / counted;
}

/* --- collectives ----------------------------------------------------------------------- */

struct comm_call {
    struct comm *comm;
    enum collective_op op;
    int64_t n; /* floats of the whole array */
    int64_t *counts;
    float *from, *to;
};

static void run_comm(void *context, int turn)
{
    const struct comm_call *c = context;
    int64_t each = c->n / comm_size(c->comm);
    (void)turn;
    switch (c->op) {
    case COLLECTIVE_ALL_REDUCE:
        comm_all_reduce(c->comm, COMM_SUM, ELEMENT_F32, c->n, c->to);
        break;
    case COLLECTIVE_ALL_GATHER:
        comm_all_gather(c->comm, ELEMENT_F32, each, c->from, c->to);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        comm_reduce_scatter(c->comm, ELEMENT_F32, each, c->from, c->to);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        comm_all_to_all(c->comm, ELEMENT_F32, c->counts, c->from, c->counts, c->to);
        break;
    default: { /* there and back: two messages */
        int rank = comm_rank(c->comm);
        struct comm_request r = {0};
        for (int way = 0; way < 2 && rank < 2; way++) {
            r = rank == way ? comm_send(c->comm, 1 - rank, ELEMENT_F32, c->n, c->from)
                            : comm_receive(c->comm, 1 - rank, ELEMENT_F32, c->n, c->to);
            comm_wait(&r);
        }
        break;
    }
    }
}

/* A fixed number of calls, the same on all ranks. */
static double collective_seconds(struct bench *bench, struct comm_call *c)
{
    struct call call = {run_comm, c, true};
    double samples[64];
    int calls = c->n > 65536 ? 1 : 8;
    timed(bench, &call, 0, 2);
    for (int i = 0; i < 40; i++) {
        comm_barrier(c->comm);
        samples[i] = timed(bench, &call, i, calls);
    }
    qsort(samples, 40, sizeof *samples, by_value);
    return mean_of_ranks(bench, samples[10]) * (c->op == COLLECTIVE_P2P ? 0.5 * bench->world->size / 2 : 1);
}

static double bus_bytes(enum collective_op op, int ranks, double bytes)
{
    double n = ranks, share = op == COLLECTIVE_P2P ? 1 : op == COLLECTIVE_ALL_REDUCE ? 2 * (n - 1) / n : (n - 1) / n;
    return bytes * share;
}

void bench_fit_collective(struct bench *bench, enum collective_op op, struct alpha_beta *ret)
{
    static const int64_t sizes[] = {256, 8192, 131072, 2097152}; /* floats */
    int ranks = bench->world->size;
    struct comm_call c = {bench->world->comm[WORLD_ALL],         op, 0, NULL, filled_floats(bench->device, sizes[3]),
                          filled_floats(bench->device, sizes[3])};
    c.counts = calloc((size_t)ranks, sizeof *c.counts);
    if (!c.counts)
        abort();
    double t[4], v[4];
    for (int i = 0; i < 4; i++) {
        c.n = sizes[i] / ranks * ranks;
        for (int r = 0; r < ranks; r++)
            c.counts[r] = c.n / ranks;
        t[i] = collective_seconds(bench, &c);
        v[i] = bus_bytes(op, ranks, 4.0 * (double)c.n);
    }
    *ret = (struct alpha_beta){.ranks = op == COLLECTIVE_P2P ? 2 : ranks, .n_lines = 3};
    for (int i = 0; i < 3; i++) {
        double slope = fmax((t[i + 1] - t[i]) / (v[i + 1] - v[i]), 1e-13);
        ret->line[i].bytes_per_s = 1 / slope;
        ret->line[i].alpha_s = fmax(t[i] - slope * v[i], 0);
    }
    free(c.counts);
    device_free(bench->device, c.from, sizes[3]);
    device_free(bench->device, c.to, sizes[3]);
}
