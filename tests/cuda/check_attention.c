/* Attention in bf16 on a device against the plain one on the same rounded inputs: every instance and what falls between
 * them, grouped heads, odd sizes, windows, rings of blocks, rows without keys, padded rows, large scores, NaN.
 * All of it twice: with the kernels of Hopper's warpgroups where there are any, and without.
 * Usage: check_attention [SEED] | --bench [QUERIES [HEADS]]: TFLOP/s of causal attention, 5/2 of the forward's operations
 * for the backward. Exit 77 without a device.
 *
 * Tolerances, written down before any run, with u = 2^-8 (bf16: 8 bits, to nearest) and e = 2^-24 (fp32). The error of a
 * score of D products is E = 4 e D scale max|q| max|k|, which covers the rounding of its exponential as well.
 *   lse     E + 4 e (1 + |lse|) for every block merged
 *   o       (u (1 + blocks) + 2 E) sum p |v|: p is rounded before its product, o once per block
 *   ds      |ds| (u + E) + 4 e D p max|dout| (max|v| + max|o|)
 *   dv      (u + E) sum p |dout|;   dq  scale sum tol(ds) |k|;   dk  scale sum tol(ds) |q|
 * and 4 e sqrt(n) of the magnitudes added for sums of n terms in fp32. */
#include "kernels/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>
#include <math.h>

#include "tests/unit/test.h"

enum { GUARD = 64, BLOCKS = 3 };
static const double U = 0x1p-8, E = 0x1p-24;

struct shape {
    int head_dim, heads, kv_heads, batch, queries, keys, window, pad;
    int first;     /* position of query 0; keys begin at 0 */
    int ranks;     /* > 1: this many blocks in a zigzag ring, queries and keys are one rank's */
    float scale_q; /* 1 gives scores about 1 */
};

static char name[160];
static uint32_t state = 1;

static float uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1;
}

/* A matrix on the host as floats and on the device as elements between guard bands. */
struct tensor {
    enum element type;
    int64_t n;
    float *host, *got;
    unsigned char *device;
};

static struct tensor tensor_new(enum element type, int rows, int stride, int width, float scale)
{
    struct tensor t = {.type = type, .n = (int64_t)rows * stride};
    t.host = calloc((size_t)t.n + 1, sizeof *t.host);
    t.got = calloc((size_t)t.n + 1, sizeof *t.got);
    for (int64_t i = 0; i < t.n; i++)
        t.host[i] = i % stride < width ? uniform() * scale : NAN; /* what is read between rows shows */
    if (type == ELEMENT_BF16)
        kernels_ref.round_bf16(NULL, t.n, t.host);
    size_t bytes = ((size_t)t.n + 2 * GUARD) * element_bytes(type);
    void *device;
    CHECK(cudaMalloc(&device, bytes) == cudaSuccess);
    t.device = device;
    return t;
}

static void *tensor_start(const struct tensor *t)
{
    return t->device + GUARD * element_bytes(t->type);
}

static void tensor_upload(struct tensor *t)
{
    size_t guard = GUARD * element_bytes(t->type), bytes = (size_t)t->n * element_bytes(t->type);
    unsigned char *all = malloc(bytes + 2 * guard);
    memset(all, 0x7b, bytes + 2 * guard);
    kernels_ref.convert(NULL, t->n, ELEMENT_F32, t->host, t->type, all + guard);
    cudaMemcpy(t->device, all, bytes + 2 * guard, cudaMemcpyHostToDevice);
    free(all);
}

/* Into t->got; checks the guard bands. */
static void tensor_download(struct tensor *t)
{
    size_t guard = GUARD * element_bytes(t->type), bytes = (size_t)t->n * element_bytes(t->type);
    unsigned char *all = malloc(bytes + 2 * guard);
    cudaMemcpy(all, t->device, bytes + 2 * guard, cudaMemcpyDeviceToHost);
    kernels_ref.convert(NULL, t->n, t->type, all + guard, ELEMENT_F32, t->got);
    bool kept = true;
    for (size_t i = 0; i < guard; i++)
        kept = kept && all[i] == 0x7b && all[guard + bytes + i] == 0x7b;
    if (!test_count(kept))
        printf("%s: written outside of a buffer\n", name);
    free(all);
}

static void tensor_free(struct tensor *t)
{
    free(t->host);
    free(t->got);
    cudaFree(t->device);
}

static int *upload_positions(const int *position, int n)
{
    void *device;
    CHECK(cudaMalloc(&device, (size_t)(n + 1) * sizeof *position) == cudaSuccess);
    cudaMemcpy(device, position, (size_t)n * sizeof *position, cudaMemcpyHostToDevice);
    return device;
}

/* Every element of `expected` (float or padding) against what the device made; padding must still be NaN. */
static void same(const char *what, const struct tensor *t, const float *expected, const double *tolerance)
{
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < t->n; i++) {
        float got = t->got[i];
        bool holds = isnan(expected[i]) ? isnan(got)
                                        : got == expected[i] || fabs((double)got - (double)expected[i]) <= tolerance[i];
        if (!holds && wrong++ == 0)
            first = i;
    }
    if (!test_count(wrong == 0))
        printf("%s: %s: %lld of %lld wrong, first %lld: %g, expected %g within %g\n", name, what, (long long)wrong,
               (long long)t->n, (long long)first, (double)t->got[first], (double)expected[first], tolerance[first]);
}

static double largest(const struct tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < t->n; i++)
        most = fmax(most, fabs((double)t->host[i])); /* fmax passes NaN over */
    return most;
}

static float *copy_of(const float *x, int64_t n)
{
    return memcpy(malloc(((size_t)n + 1) * sizeof *x), x, (size_t)n * sizeof *x);
}

struct problem {
    struct shape shape;
    struct attention host, device; /* of block 0 */
    int blocks;
    int *position_q, *position_k[BLOCKS], *device_q, *device_k[BLOCKS];
    struct tensor q, k[BLOCKS], v[BLOCKS], o, lse, dout;
    double score_error, scores_most;
};

/* Two chunks, one from each end: rank r of n holds chunks r and 2 n - 1 - r. */
static void zigzag(int *position, int n, int rank, int ranks)
{
    for (int i = 0; i < n; i++)
        position[i] = i < n / 2 ? rank * (n / 2) + i : (2 * ranks - 1 - rank) * (n - n / 2) + i - n / 2;
}

static void set_positions(struct problem *p)
{
    const struct shape *s = &p->shape;
    p->position_q = malloc((size_t)(s->queries + 1) * sizeof(int));
    for (int i = 0; i < s->queries; i++)
        p->position_q[i] = s->first + i;
    if (s->ranks > 1)
        zigzag(p->position_q, s->queries, 1, s->ranks);
    p->device_q = upload_positions(p->position_q, s->queries);
    for (int b = 0; b < p->blocks; b++) {
        p->position_k[b] = malloc((size_t)(s->keys + 1) * sizeof(int));
        for (int i = 0; i < s->keys; i++)
            p->position_k[b][i] = i;
        if (s->ranks > 1)
            zigzag(p->position_k[b], s->keys, (1 + b) % s->ranks, s->ranks);
        p->device_k[b] = upload_positions(p->position_k[b], s->keys);
    }
}

static void problem_init(struct problem *p, const struct shape *s)
{
    snprintf(name, sizeof name,
             "head_dim %d, heads %d/%d, batch %d, %d queries from %d, %d keys, window %d, pad %d, ranks %d, scale %g",
             s->head_dim, s->heads, s->kv_heads, s->batch, s->queries, s->first, s->keys, s->window, s->pad, s->ranks,
             (double)s->scale_q);
    *p = (struct problem){.shape = *s, .blocks = s->ranks > 1 ? s->ranks : 1};
    int wide = s->heads * s->head_dim, narrow = s->kv_heads * s->head_dim;
    int rows = s->queries * s->batch, rows_kv = s->keys * s->batch, stride = wide + s->pad, stride_kv = narrow + s->pad;
    set_positions(p);
    p->q = tensor_new(ELEMENT_BF16, rows, stride, wide, s->scale_q);
    p->o = tensor_new(ELEMENT_BF16, rows, stride, wide, 1);
    p->dout = tensor_new(ELEMENT_BF16, rows, stride, wide, 1);
    p->lse = tensor_new(ELEMENT_F32, s->batch * s->heads, s->queries > 0 ? s->queries : 1, s->queries, 1);
    for (int b = 0; b < p->blocks; b++) {
        p->k[b] = tensor_new(ELEMENT_BF16, rows_kv, stride_kv, narrow, 1);
        p->v[b] = tensor_new(ELEMENT_BF16, rows_kv, stride_kv, narrow, 1);
    }
    p->host = (struct attention){.batch = s->batch,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .queries = s->queries,
                                 .keys = s->keys,
                                 .window = s->window,
                                 .scale = 1 / sqrtf((float)s->head_dim),
                                 .stride_q = stride,
                                 .stride_kv = stride_kv,
                                 .stride_o = stride,
                                 .position_q = p->position_q,
                                 .q = p->q.host,
                                 .o = p->o.host,
                                 .lse = p->lse.host};
    p->device = p->host;
    p->device.position_q = p->device_q;
    p->device.q = tensor_start(&p->q);
    p->device.o = tensor_start(&p->o);
    p->device.lse = tensor_start(&p->lse);
    p->scores_most = s->head_dim * (double)p->host.scale * largest(&p->q) * largest(&p->k[0]);
    p->score_error = 4 * E * p->scores_most;
}

static void problem_upload(struct problem *p)
{
    tensor_upload(&p->q);
    tensor_upload(&p->o);
    tensor_upload(&p->dout);
    tensor_upload(&p->lse);
    for (int b = 0; b < p->blocks; b++) {
        tensor_upload(&p->k[b]);
        tensor_upload(&p->v[b]);
    }
}

static void problem_free(struct problem *p)
{
    tensor_free(&p->q);
    tensor_free(&p->o);
    tensor_free(&p->dout);
    tensor_free(&p->lse);
    free(p->position_q);
    cudaFree(p->device_q);
    for (int b = 0; b < p->blocks; b++) {
        tensor_free(&p->k[b]);
        tensor_free(&p->v[b]);
        free(p->position_k[b]);
        cudaFree(p->device_k[b]);
    }
}

static struct attention block_of(const struct problem *p, bool device, int block)
{
    struct attention a = device ? p->device : p->host;
    a.k = device ? tensor_start(&p->k[block]) : p->k[block].host;
    a.v = device ? tensor_start(&p->v[block]) : p->v[block].host;
    a.position_k = device ? p->device_k[block] : p->position_k[block];
    a.merge = block > 0;
    return a;
}

/* sum p |v| over all blocks, as an output. */
static float *magnitude_of_o(const struct problem *p)
{
    float *o = copy_of(p->o.host, p->o.n), *lse = copy_of(p->lse.host, p->lse.n);
    for (int b = 0; b < p->blocks; b++) {
        struct attention a = block_of(p, false, b);
        float *v = copy_of(a.v, p->v[b].n);
        for (int64_t i = 0; i < p->v[b].n; i++)
            v[i] = fabsf(v[i]);
        a.v = v;
        a.o = o;
        a.lse = lse;
        kernels_ref.attention_forward(NULL, &a);
        free(v);
    }
    free(lse);
    return o;
}

static void check_forward(struct problem *p)
{
    problem_upload(p);
    float *magnitude = magnitude_of_o(p);
    for (int b = 0; b < p->blocks; b++) {
        struct attention device = block_of(p, true, b), host = block_of(p, false, b);
        cuda_attention_forward(NULL, &device);
        kernels_ref.attention_forward(NULL, &host);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    double *tolerance = malloc((size_t)(p->o.n + p->lse.n + 1) * sizeof *tolerance);
    for (int64_t i = 0; i < p->o.n; i++)
        tolerance[i] = (U * (1 + p->blocks) + 2 * p->score_error + 4 * E * sqrt(p->shape.keys)) * (double)magnitude[i];
    tensor_download(&p->o);
    same("o", &p->o, p->o.host, tolerance);
    for (int64_t i = 0; i < p->lse.n; i++)
        tolerance[i] = p->score_error + p->blocks * 4 * E * (1 + fabs((double)p->lse.host[i]));
    tensor_download(&p->lse);
    same("lse", &p->lse, p->lse.host, tolerance);
    free(tolerance);
    free(magnitude);
}

/* Tolerances of one block's gradients; those of dq are added to. */
struct bounds {
    double *dq, *dk, *dv;
};

static bool sees(const struct attention *a, int i, int j)
{
    int distance = a->position_q[i] - a->position_k[j];
    return distance >= 0 && (a->window == 0 || distance < a->window);
}

static double dot(int n, const float *x, const float *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* What query i of a head lets dq, dk and dv be off by. */
static void bound_row(const struct problem *p, const struct attention *a, int batch, int head, int i, double dp_error,
                      struct bounds *bounds)
{
    int width = a->head_dim, head_kv = head * a->kv_heads / a->heads;
    int64_t row = (int64_t)i * a->batch + batch, q_at = row * a->stride_q + head * width,
            o_at = row * a->stride_o + head * width;
    const float *q = (const float *)a->q + q_at, *o = (const float *)a->o + o_at, *dout = p->dout.host + o_at;
    double lse = (double)a->lse[((int64_t)batch * a->heads + head) * a->queries + i], scale = (double)a->scale;
    double delta = dot(width, dout, o), terms = 4 * E * sqrt(a->keys + a->queries * a->heads);
    for (int j = 0; j < a->keys; j++) {
        if (!sees(a, i, j))
            continue;
        int64_t at = ((int64_t)j * a->batch + batch) * a->stride_kv + head_kv * width;
        const float *k = (const float *)a->k + at, *v = (const float *)a->v + at;
        double prob = exp(dot(width, q, k) * scale - lse), off_p = prob * (p->score_error + 4 * E * (1 + fabs(lse)));
        double ds = prob * fabs(dot(width, dout, v) - delta);
        double off_ds = ds * (U + p->score_error + 4 * E * (1 + fabs(lse))) + prob * dp_error + terms * ds;
        for (int d = 0; d < width; d++) {
            bounds->dv[at + d] += (prob * (U + terms) + off_p) * fabs((double)dout[d]);
            bounds->dk[at + d] += scale * off_ds * fabs((double)q[d]);
            bounds->dq[q_at + d] += scale * off_ds * fabs((double)k[d]);
        }
    }
}

static void bound_block(const struct problem *p, const struct attention *a, double v_most, struct bounds *bounds)
{
    double dp_error = 4 * E * a->head_dim * largest(&p->dout) * (v_most + largest(&p->o));
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->queries; i++)
                bound_row(p, a, b, h, i, dp_error, bounds);
}

/* Gradients start at something, are added to, and come to the same bits when made again. */
static double *bounds_of(const struct tensor *t)
{
    double *bounds = calloc((size_t)t->n + 1, sizeof *bounds);
    for (int64_t i = 0; i < t->n; i++)
        bounds[i] = 4 * E * fabs((double)t->host[i]);
    return bounds;
}

struct gradients {
    struct tensor dq, dk[BLOCKS], dv[BLOCKS];
};

static struct gradients gradients_new(const struct problem *p)
{
    const struct shape *s = &p->shape;
    struct gradients g;
    g.dq = tensor_new(ELEMENT_F32, s->queries * s->batch, p->host.stride_q, s->heads * s->head_dim, 1);
    for (int b = 0; b < p->blocks; b++) {
        g.dk[b] = tensor_new(ELEMENT_F32, s->keys * s->batch, p->host.stride_kv, s->kv_heads * s->head_dim, 1);
        g.dv[b] = tensor_new(ELEMENT_F32, s->keys * s->batch, p->host.stride_kv, s->kv_heads * s->head_dim, 1);
    }
    return g;
}

static void gradients_free(struct gradients *g, int blocks)
{
    tensor_free(&g->dq);
    for (int b = 0; b < blocks; b++) {
        tensor_free(&g->dk[b]);
        tensor_free(&g->dv[b]);
    }
}

static void device_backward(struct problem *p, struct gradients *g)
{
    tensor_upload(&g->dq);
    for (int b = 0; b < p->blocks; b++) {
        tensor_upload(&g->dk[b]);
        tensor_upload(&g->dv[b]);
        struct attention_gradient call = {block_of(p, true, b), tensor_start(&p->dout), tensor_start(&g->dq),
                                          tensor_start(&g->dk[b]), tensor_start(&g->dv[b])};
        cuda_attention_backward(NULL, &call);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    tensor_download(&g->dq);
    for (int b = 0; b < p->blocks; b++) {
        tensor_download(&g->dk[b]);
        tensor_download(&g->dv[b]);
    }
}

/* With the plain forward's o, rounded, and lse on both sides. */
static void check_backward(struct problem *p)
{
    kernels_ref.round_bf16(NULL, p->o.n, p->o.host);
    problem_upload(p);
    struct gradients g = gradients_new(p);
    device_backward(p, &g);
    float *once = copy_of(g.dq.got, g.dq.n);
    device_backward(p, &g);
    CHECK(memcmp(once, g.dq.got, (size_t)g.dq.n * sizeof *once) == 0);
    free(once);
    struct bounds bounds = {.dq = bounds_of(&g.dq)};
    for (int b = 0; b < p->blocks; b++) {
        struct attention_gradient host = {block_of(p, false, b), p->dout.host, g.dq.host, g.dk[b].host, g.dv[b].host};
        bounds.dk = bounds_of(&g.dk[b]);
        bounds.dv = bounds_of(&g.dv[b]);
        bound_block(p, &host.forward, largest(&p->v[b]), &bounds);
        kernels_ref.attention_backward(NULL, &host);
        same("dk", &g.dk[b], g.dk[b].host, bounds.dk);
        same("dv", &g.dv[b], g.dv[b].host, bounds.dv);
        free(bounds.dk);
        free(bounds.dv);
    }
    same("dq", &g.dq, g.dq.host, bounds.dq);
    free(bounds.dq);
    gradients_free(&g, p->blocks);
}

static void check_shape(const struct shape *shape)
{
    struct problem p;
    problem_init(&p, shape);
    check_forward(&p);
    check_backward(&p);
    problem_free(&p);
}

static void check_instances(void)
{
    static const int head_dims[] = {64, 96, 128, 192, 8, 80, 160, 33, 256};
    static const int sizes[][2] = {{1, 1}, {17, 17}, {63, 63}, {65, 65}, {129, 129}, {200, 75}};
    for (size_t d = 0; d < sizeof head_dims / sizeof *head_dims; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_shape(&(struct shape){head_dims[d], 2, 1, 1, sizes[i][0], sizes[i][1], 0, 0, 0, 0, 1});
}

/* {head_dim, heads, kv_heads, batch, queries, keys, window, pad, first, ranks, scale_q} */
static const struct shape shapes[] = {
    {64, 6, 2, 2, 70, 70, 0, 8, 0, 0, 1},     /* groups, batch, padded rows */
    {128, 4, 4, 2, 65, 65, 0, 24, 0, 0, 1},   /* a key head each */
    {128, 5, 5, 1, 33, 90, 0, 0, 57, 0, 1},   /* the last queries of a sequence */
    {64, 2, 1, 2, 130, 130, 0, 3, 0, 0, 1},   /* rows at odd addresses */
    {64, 3, 1, 1, 300, 300, 1, 0, 0, 0, 1},   /* each sees itself */
    {64, 2, 1, 1, 300, 300, 37, 0, 0, 0, 1},  /* within a tile */
    {96, 2, 1, 1, 300, 300, 129, 0, 0, 0, 1}, /* over tiles */
    {128, 2, 2, 1, 150, 400, 64, 0, 230, 0, 1}, {192, 2, 1, 1, 200, 200, 65, 8, 0, 0, 1},
    {64, 2, 1, 1, 100, 100, 1000, 0, 0, 0, 1}, /* wider than the sequence */
    {64, 2, 1, 1, 100, 50, 20, 0, 30, 0, 1},   /* the last queries see no key */
    {33, 2, 1, 1, 100, 50, 20, 1, 30, 0, 1},    {64, 2, 1, 1, 40, 40, 5, 0, 500, 0, 1}, /* no query sees a key */
    {64, 4, 2, 2, 130, 130, 0, 0, 0, 2, 1},                                             /* rings */
    {96, 2, 2, 1, 96, 96, 0, 0, 0, 3, 1},       {128, 4, 2, 1, 200, 200, 0, 8, 0, 3, 1},
    {192, 2, 1, 1, 130, 130, 150, 0, 0, 2, 1},  {128, 2, 1, 1, 130, 130, 90, 0, 0, 3, 1},
    {36, 2, 1, 1, 50, 50, 0, 0, 0, 3, 1},       {64, 2, 1, 1, 129, 129, 0, 0, 0, 0, 100}, /* one key takes all */
    {128, 2, 1, 1, 129, 129, 0, 0, 0, 0, 1000}, {192, 2, 1, 1, 65, 65, 0, 0, 0, 0, 0},    /* all the same */
    {64, 2, 1, 1, 1, 300, 0, 0, 299, 0, 1},                                               /* one query */
    {128, 2, 1, 1, 300, 1, 0, 0, 0, 0, 1},                                                /* one key */
    {128, 2, 1, 1, 5, 0, 0, 0, 0, 0, 1},                                                  /* nothing */
    {128, 2, 1, 1, 0, 5, 0, 0, 0, 0, 1},
};

/* Not a number in a query reaches that row alone, in a key those that see it. */
static void check_nan(int head_dim)
{
    struct problem p;
    problem_init(&p, &(struct shape){head_dim, 2, 1, 1, 140, 140, 0, 0, 0, 0, 1});
    int stride = p.host.stride_q, narrow = p.host.stride_kv, row = 70, key = 130;
    p.q.host[row * stride + head_dim + 3] = NAN; /* head 1 */
    p.k[0].host[key * narrow + 5] = NAN;
    problem_upload(&p);
    struct attention a = block_of(&p, true, 0);
    cuda_attention_forward(NULL, &a);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    tensor_download(&p.o);
    tensor_download(&p.lse);
    int wrong = 0;
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 140; i++) {
            bool lost = (h == 1 && i == row) || i >= key;
            wrong += (isnan(p.lse.got[h * 140 + i]) != 0) != lost;
            for (int d = 0; d < head_dim; d++)
                wrong += (isnan(p.o.got[i * stride + h * head_dim + d]) != 0) != lost;
        }
    CHECK_INT(wrong, 0);
    problem_free(&p);
}

/* Not a number in dout reaches its dq and the keys that the row sees; no other query, and no key beyond the tile (a
 * product of tiles multiplies it by p = 0 where it is masked). */
static void check_nan_backward(int head_dim)
{
    struct problem p;
    problem_init(&p, &(struct shape){head_dim, 2, 1, 1, 140, 140, 0, 0, 0, 0, 1});
    struct attention a = block_of(&p, false, 0);
    int row = 70, wrong = 0;
    kernels_ref.attention_forward(NULL, &a);
    kernels_ref.round_bf16(NULL, p.o.n, p.o.host);
    p.dout.host[row * a.stride_o + 3] = NAN; /* head 0 */
    problem_upload(&p);
    struct gradients g = gradients_new(&p);
    device_backward(&p, &g);
    for (int i = 0; i < 140; i++) {
        for (int d = 0; d < a.stride_q; d++)
            wrong += (isnan(g.dq.got[i * a.stride_q + d]) != 0) != (i == row && d < head_dim);
        for (int d = 0; d < head_dim; d++) {
            wrong += (isnan(g.dk[0].got[i * a.stride_kv + d]) != 0) && i >= 128;
            wrong += !isnan(g.dk[0].got[i * a.stride_kv + d]) && i <= row;
            wrong += !isnan(g.dv[0].got[i * a.stride_kv + d]) && i <= row && d == 3;
        }
    }
    CHECK_INT(wrong, 0);
    gradients_free(&g, p.blocks);
    problem_free(&p);
}

static void check_all(void)
{
    check_instances();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
    check_nan(64);
    check_nan(128);
    check_nan(192);
    check_nan(20);
    check_nan_backward(64);
    check_nan_backward(128);
    check_nan_backward(20);
}

/* Seconds of a call, the shortest of some. */
static double seconds_of(const struct problem *p, struct gradients *g)
{
    struct attention a = block_of(p, true, 0);
    struct attention_gradient gradient = {a, tensor_start(&p->dout), NULL, NULL, NULL};
    cudaEvent_t start, end;
    float shortest_ms = INFINITY, ms = 0;
    if (g != NULL) {
        gradient.dq = tensor_start(&g->dq);
        gradient.dk = tensor_start(&g->dk[0]);
        gradient.dv = tensor_start(&g->dv[0]);
    }
    CHECK(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
    for (int i = 0; i < 10; i++) {
        cudaEventRecord(start, NULL);
        if (g != NULL)
            cuda_attention_backward(NULL, &gradient);
        else
            cuda_attention_forward(NULL, &a);
        cudaEventRecord(end, NULL);
        CHECK(cudaEventSynchronize(end) == cudaSuccess && cudaEventElapsedTime(&ms, start, end) == cudaSuccess);
        shortest_ms = fminf(shortest_ms, ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    return (double)shortest_ms * 1e-3;
}

static void bench(int queries, int heads, int head_dim, bool warpgroups)
{
    struct problem p;
    problem_init(&p, &(struct shape){head_dim, heads, heads > 4 ? heads / 4 : 1, 1, queries, queries, 0, 0, 0, 0, 1});
    problem_upload(&p);
    struct gradients g = gradients_new(&p);
    tensor_upload(&g.dq);
    tensor_upload(&g.dk[0]);
    tensor_upload(&g.dv[0]);
    cuda_attention_warpgroups(warpgroups);
    double flop = 2.0 * heads * queries * (queries + 1.0) * head_dim;
    double forward_s = seconds_of(&p, NULL), backward_s = seconds_of(&p, &g);
    printf("%s head_dim %d, %d heads, %d queries: forward %.6f s %.1f TFLOP/s, backward %.6f s %.1f TFLOP/s\n",
           warpgroups ? "wgmma" : "mma", head_dim, heads, queries, forward_s, flop / forward_s * 1e-12, backward_s,
           2.5 * flop / backward_s * 1e-12);
    gradients_free(&g, 1);
    problem_free(&p);
}

static int bench_all(int queries, int heads)
{
    static const int head_dims[] = {64, 128, 96, 192};
    for (int i = 0; i < 4; i++) {
        bench(queries, heads, head_dims[i], false);
        if (i < 2) /* the only ones that have such kernels */
            bench(queries, heads, head_dims[i], true);
    }
    cuda_workspace_release(NULL);
    return test_failed > 0;
}

int main(int argc, char **argv)
{
    int devices = 0;
    bool only_bench = argc > 1 && strcmp(argv[1], "--bench") == 0;
    if (argc > 1 && !only_bench)
        state = (uint32_t)strtoul(argv[1], NULL, 10);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        test_skip("no device");
        return test_report();
    }
    if (only_bench)
        return bench_all(argc > 2 ? atoi(argv[2]) : 4096, argc > 3 ? atoi(argv[3]) : 32);
    CHECK(!cuda_attention_trial(NULL));
    check_all();
    cuda_attention_warpgroups(false);
    check_all();
    cuda_workspace_release(NULL);
    return test_report();
}
