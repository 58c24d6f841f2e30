/* Memory-bound kernels: the optimizer's step, and what a layer and the loss are made of beside products. */
#include <stdlib.h>

#include "exec/bench.h"
#include "exec/bench_internal.h"
#include "exec/device.h"
#include "kernels/kernels.h"

/* --- optimizer -------------------------------------------------------------------- */

struct optimizer_call {
    const struct bench *bench;
    int64_t n;
    float *gradient, *weight, *m, *v;
    void *copy; /* NULL where elements are floats: nothing is copied then */
    double *sum;
};

static void run_optimizer(void *context, int turn)
{
    const struct optimizer_call *o = context;
    struct adamw_part part = {0, o->n, 0.1f};
    struct adamw a = {.learning_rate = 1e-3f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .epsilon = 1e-8f,
                      .correction1 = 0.1f,
                      .correction2 = 0.05f,
                      .gradient_scale = 1};
    struct device *d = o->bench->device;
    (void)turn;
    d->kernels->sum_squares(d->queue, 1, &part, o->gradient, o->sum);
    d->kernels->adamw(d->queue, &a, 1, &part, o->gradient, o->weight, o->m, o->v, o->copy);
    d->zero(d, o->gradient, (size_t)o->n * sizeof *o->gradient);
}

double bench_optimizer_bytes_per_s(struct bench *bench, int64_t parameters)
{
    struct device *device = bench->device;
    bool copies = device->kernels->type != ELEMENT_F32;
    struct optimizer_call o = {.bench = bench,
                               .n = parameters,
                               .gradient = bench_floats(device, parameters),
                               .weight = bench_floats(device, parameters),
                               .m = bench_floats(device, parameters),
                               .v = device_floats(device, parameters),
                               .copy = copies ? device_elements(device, parameters) : NULL,
                               .sum = (double *)(void *)device_floats(device, 2)};
    struct bench_call call = {run_optimizer, &o};
    double seconds = bench_call_s(bench, &call);
    float *buffers[] = {o.gradient, o.weight, o.m, o.v};
    for (int i = 0; i < 4; i++)
        device_free(device, buffers[i], parameters);
    device_free_elements(device, o.copy, parameters);
    device_free(device, o.sum, 2);
    return 38.0 * (double)parameters / seconds;
}

/* --- layers ----------------------------------------------------------------------- */

enum {
    NORM,
    NORM_BACK,
    ROTARY,
    RESIDUAL,
    ACTIVATION,
    ACTIVATION_BACK,
    ZERO,
    LOSS,
    LOSS_BACK,
    EMBEDDING,
    EMBEDDING_BACK,
    POINTWISE_KINDS
};

struct pointwise_call {
    struct bench *bench;
    const struct bench_pointwise *shape;
    void *x, *y;                                 /* just written; elements, of the widest rows */
    float *floats, *cosine, *sine, *mean, *rstd; /* gradients of weights; [tokens x head width]; [tokens] */
    int *index;
    int kind;
};

static void *kept(const struct pointwise_call *p, int width)
{
    return bench_input(p->bench, (int64_t)p->shape->tokens * width);
}

static void *fresh(const struct pointwise_call *p, int width)
{
    return bench_output(p->bench, p->bench->device->kernels->type, (int64_t)p->shape->tokens * width);
}

/* Two gradients of a norm's input, one of q, k and v. */
static void run_zero(const struct pointwise_call *p)
{
    const struct bench_pointwise *s = p->shape;
    struct device *device = p->bench->device;
    size_t rows = (size_t)s->tokens * element_bytes(device->kernels->type);
    device->zero(device, p->x, rows * (size_t)s->hidden);
    device->zero(device, p->y, rows * (size_t)s->hidden);
    device->zero(device, p->floats,
                 (size_t)s->tokens * (size_t)((s->heads + 2 * s->kv_heads) * s->head_dim) * sizeof *p->floats);
}

static void run_layer(const struct pointwise_call *p)
{
    const struct bench_pointwise *s = p->shape;
    const struct kernels *k = p->bench->device->kernels;
    void *queue = p->bench->device->queue;
    switch (p->kind) {
    case NORM:
        k->norm_forward(queue, s->tokens, s->hidden, s->hidden, 1e-5f, false, p->x, p->y, NULL, fresh(p, s->hidden),
                        p->mean, p->rstd);
        break;
    case NORM_BACK:
        k->norm_backward(queue, s->tokens, s->hidden, s->hidden, false, kept(p, s->hidden), p->x, p->mean, p->rstd,
                         p->y, true, p->x, p->floats, NULL);
        break;
    case ROTARY:
        k->rotary(queue, s->tokens, s->heads + s->kv_heads, s->head_dim, (s->heads + 2 * s->kv_heads) * s->head_dim,
                  p->cosine, p->sine, false, p->x);
        break;
    case RESIDUAL:
        k->add(queue, (int64_t)s->tokens * s->hidden, p->x, p->y);
        break;
    case ACTIVATION:
        k->activation_forward(queue, ACTIVATION_SILU, true, s->activations, s->ffn, p->x,
                              bench_output(p->bench, k->type, (int64_t)s->activations * s->ffn));
        break;
    case ACTIVATION_BACK:
        k->activation_backward(queue, ACTIVATION_SILU, true, s->activations, s->ffn,
                               bench_input(p->bench, 2 * (int64_t)s->activations * s->ffn), p->y, p->x);
        break;
    default:
        run_zero(p);
        break;
    }
}

static void run_pointwise(void *context, int turn)
{
    const struct pointwise_call *p = context;
    const struct bench_pointwise *s = p->shape;
    const struct kernels *k = p->bench->device->kernels;
    void *queue = p->bench->device->queue;
    (void)turn;
    switch (p->kind) {
    case LOSS:
        k->logits_max(queue, s->tokens, s->vocab, s->vocab, p->x, p->mean);
        k->logits_sum(queue, s->tokens, s->vocab, s->vocab, p->x, p->mean, p->index, 0, p->rstd, p->cosine);
        break;
    case LOSS_BACK:
        k->logits_gradient(queue, s->tokens, s->vocab, s->vocab, fresh(p, s->vocab), p->mean, p->rstd, p->index, 0, 1e-3f);
        break;
    case EMBEDDING:
        k->embedding_forward(queue, s->tokens, s->hidden, p->index, 0, s->vocab,
                             bench_input(p->bench, (int64_t)s->vocab * s->hidden), fresh(p, s->hidden));
        break;
    case EMBEDDING_BACK:
        k->embedding_backward(queue, s->tokens, s->hidden, p->index, 0, s->vocab, p->y,
                              bench_output(p->bench, ELEMENT_F32, (int64_t)s->vocab * s->hidden));
        break;
    default:
        run_layer(p);
        break;
    }
}

static int *spread_words(struct device *device, int tokens, int vocab)
{
    int *index = device_ints(device, tokens), *host = malloc((size_t)tokens * sizeof *host);
    if (!host)
        abort();
    for (int t = 0; t < tokens; t++)
        host[t] = (int)((int64_t)t * 7919 % vocab);
    device->upload(device, index, host, (size_t)tokens * sizeof *host);
    free(host);
    return index;
}

/* Calls per layer, and bytes per call as cost/ops*.c count them (fused loss: 10 per logit each way; zeros are
 * not counted apart); the ends of the model are spread over its layers. */
double bench_pointwise(struct bench *bench, const struct bench_pointwise *s, double bytes_per_s, double latency_s)
{
    double element = (double)element_bytes(bench->device->kernels->type), t = s->tokens, logits = t * s->vocab;
    double hidden = t * s->hidden * element, ffn = (double)s->activations * s->ffn * element, end = 1.0 / s->layers;
    double qk = t * (s->heads + s->kv_heads) * s->head_dim * element;
    const double bytes[POINTWISE_KINDS] = {2 * hidden, 3 * hidden, 2 * qk,      2.5 * hidden, 3 * ffn,   5 * ffn,
                                           0,          10 * logits, 10 * logits, 2 * hidden,   3 * hidden};
    const double calls[POINTWISE_KINDS] = {2, 2, 2, 4, 1, 1, 1, end, end, end, end};
    struct device *device = bench->device;
    int64_t gates = 2 * (int64_t)s->activations * s->ffn, angles = (int64_t)s->tokens * s->head_dim;
    int64_t n = (int64_t)s->tokens * (s->vocab > 4 * s->hidden ? s->vocab : 4 * s->hidden);
    n = n > gates ? n : gates;
    struct pointwise_call p = {.bench = bench,
                               .shape = s,
                               .x = bench_elements(device, n),
                               .y = bench_elements(device, n),
                               .floats = bench_floats(device, n),
                               .cosine = bench_floats(device, angles),
                               .sine = bench_floats(device, angles),
                               .mean = bench_floats(device, s->tokens),
                               .rstd = bench_floats(device, s->tokens),
                               .index = spread_words(device, s->tokens, s->vocab)};
    struct bench_call call = {run_pointwise, &p};
    double seconds = 0, counted = 0;
    for (p.kind = 0; p.kind < POINTWISE_KINDS; p.kind++) {
        seconds += calls[p.kind] * (bench_call_s(bench, &call) - (bytes[p.kind] > 0 ? latency_s : 0));
        counted += calls[p.kind] * bytes[p.kind] / bytes_per_s;
    }
    device_free_elements(device, p.x, n);
    device_free_elements(device, p.y, n);
    device_free(device, p.floats, n);
    device_free(device, p.cosine, angles);
    device_free(device, p.sine, angles);
    device_free(device, p.mean, s->tokens);
    device_free(device, p.rstd, s->tokens);
    device_free(device, p.index, s->tokens);
    return seconds / counted;
}

static void run_little(void *context, int turn)
{
    const struct bench *bench = context;
    (void)turn;
    bench->device->kernels->add_floats(bench->device->queue, 1, bench->outputs, bench->outputs);
}

double bench_latency_s(struct bench *bench)
{
    struct bench_call call = {run_little, bench};
    return bench_call_s(bench, &call);
}

/* --- routed experts ---------------------------------------------------------------- */

struct permute_call {
    struct bench *bench;
    const struct bench_pointwise *shape;
    int pairs;
    int *token, *order, *first; /* of every pair; a permutation of the pairs; [routed + 1] */
    float *weight, *dots;       /* [pairs] */
    void *x, *dy;
};

static void *rows_of(const struct permute_call *p, int rows)
{
    return bench_output(p->bench, p->bench->device->kernels->type, (int64_t)rows * p->shape->hidden);
}

/* To the experts' order: as sent, as received, expert by expert (exec/layer_moe.c). */
static void *travel_out(const struct permute_call *p, const int *index, const void *from)
{
    struct device *device = p->bench->device;
    int width = p->shape->hidden;
    void *sent = rows_of(p, p->pairs), *received = rows_of(p, p->pairs), *ordered = rows_of(p, p->pairs);
    device->kernels->gather_rows(device->queue, p->pairs, width, index, NULL, from, sent);
    if (p->shape->alone)
        device->copy(device, received, sent, (size_t)p->pairs * (size_t)width * element_bytes(device->kernels->type));
    device->kernels->gather_rows(device->queue, p->pairs, width, p->order, NULL, received, ordered);
    return ordered;
}

static void *travel_home(const struct permute_call *p, const void *from)
{
    struct device *device = p->bench->device;
    int width = p->shape->hidden;
    void *ordered = rows_of(p, p->pairs), *home = rows_of(p, p->pairs);
    device->kernels->gather_rows(device->queue, p->pairs, width, p->order, NULL, from, ordered);
    if (p->shape->alone)
        device->copy(device, home, ordered, (size_t)p->pairs * (size_t)width * element_bytes(device->kernels->type));
    return home;
}

static void run_permute(void *context, int turn)
{
    const struct permute_call *p = context;
    const struct kernels *k = p->bench->device->kernels;
    void *queue = p->bench->device->queue;
    int width = p->shape->hidden, tokens = p->shape->routed;
    (void)turn;
    void *home = travel_home(p, travel_out(p, p->token, p->x));
    k->combine_rows(queue, tokens, width, p->first, p->order, p->weight, home, false, rows_of(p, tokens));
    k->dot_rows(queue, p->pairs, width, p->token, bench_input(p->bench, (int64_t)p->pairs * width), p->dy, p->dots);
    home = travel_home(p, travel_out(p, p->token, p->dy));
    k->combine_rows(queue, tokens, width, p->first, p->order, NULL, home, true, rows_of(p, tokens));
}

static int *uploaded(struct device *device, int n, int (*value)(int i, int n, int k), int k)
{
    int *index = device_ints(device, n), *host = malloc((size_t)n * sizeof *host);
    if (!host)
        abort();
    for (int i = 0; i < n; i++)
        host[i] = value(i, n, k);
    device->upload(device, index, host, (size_t)n * sizeof *host);
    free(host);
    return index;
}

/* Pairs of a token lie far apart, with neighbours of their expert. */
static int pair_at(int i, int n, int k)
{
    return i % (n / k) * k + i / (n / k);
}

static int token_at(int i, int n, int k)
{
    return i % (n / k);
}

static int first_at(int i, int n, int k)
{
    (void)n;
    return i * k;
}

double bench_permute(struct bench *bench, const struct bench_pointwise *s, double bytes_per_s)
{
    struct device *device = bench->device;
    int pairs = s->routed * s->choices;
    struct permute_call p = {.bench = bench,
                             .shape = s,
                             .pairs = pairs,
                             .token = uploaded(device, pairs, token_at, s->choices),
                             .order = uploaded(device, pairs, pair_at, s->choices),
                             .first = uploaded(device, s->routed + 1, first_at, s->choices),
                             .weight = bench_floats(device, pairs),
                             .dots = device_floats(device, pairs),
                             .x = bench_elements(device, (int64_t)s->routed * s->hidden),
                             .dy = bench_elements(device, (int64_t)s->routed * s->hidden)};
    struct bench_call call = {run_permute, &p};
    double seconds = bench_call_s(bench, &call);
    device_free(device, p.token, pairs);
    device_free(device, p.order, pairs);
    device_free(device, p.first, s->routed + 1);
    device_free(device, p.weight, pairs);
    device_free(device, p.dots, pairs);
    device_free_elements(device, p.x, (int64_t)s->routed * s->hidden);
    device_free_elements(device, p.dy, (int64_t)s->routed * s->hidden);
    /* permute and unpermute, forward and backward */
    double counted = 4 * (s->routed + 3.0 * pairs) * s->hidden * (double)element_bytes(device->kernels->type);
    return seconds / (counted / bytes_per_s);
}
