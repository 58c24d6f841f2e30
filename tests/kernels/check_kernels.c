/* Fast kernels against the plain ones: odd sizes, strides, extremes, guard bands. Usage: check_kernels [SEED]
 *
 * Tolerance of an element: k u sqrt(n) times the largest expected magnitude, u = 2^-24, n = the longest sum behind it,
 * k = 16 (single-precision sums in another order; exp within 2 ulp). Written down here before any run. */
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

enum { GUARD = 32, SIZE = 1 << 17, BUFFERS = 8 };
static const float guard_value = 12345.5f;
static uint32_t state = 1;

static float uniform(float scale)
{
    state = state * 1664525u + 1013904223u;
    return ((float)(state >> 8) * 0x1p-23f - 1) * scale;
}

/* Two sets of the same buffers, one per table. */
static float memory[2][BUFFERS][SIZE + 2 * GUARD];

static float *at(int side, int buffer)
{
    return memory[side][buffer] + GUARD;
}

static void fill(int buffer, int64_t n, float scale)
{
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < SIZE + 2 * GUARD; i++)
            memory[side][buffer][i] = guard_value;
    for (int64_t i = 0; i < n; i++)
        at(0, buffer)[i] = at(1, buffer)[i] = uniform(scale);
}

/* Same within tolerance, and nothing written beyond n. */
static void same(const char *what, int buffer, int64_t n, double longest_sum)
{
    double largest = 0, worst = 0;
    int64_t where = -1;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)at(0, buffer)[i]));
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)at(0, buffer)[i] - (double)at(1, buffer)[i]);
        if (!(off <= worst) && !(isinf(at(0, buffer)[i]) && at(0, buffer)[i] == at(1, buffer)[i])) {
            worst = off;
            where = i;
        }
    }
    bool holds = worst <= 16 * 0x1p-24 * sqrt(longest_sum) * largest;
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < GUARD; i++)
            holds = holds && at(side, buffer)[-1 - i] == guard_value && at(side, buffer)[n + i] == guard_value;
    if (!holds)
        printf("%s: element %lld is %g, reference %g (largest %g), or something was written outside\n", what,
               (long long)where, where >= 0 ? (double)at(1, buffer)[where] : 0,
               where >= 0 ? (double)at(0, buffer)[where] : 0, largest);
    test_count(holds);
}

static const struct kernels *table(int side)
{
    return side == 0 ? &kernels_ref : &kernels_cpu;
}

static void check_gemm(int m, int n, int k)
{
    char what[96];
    for (int layout = 0; layout < 8; layout++) {
        bool ta = layout & 1, tb = layout & 2, accumulate = layout & 4;
        fill(0, (int64_t)m * k, 1);
        fill(1, (int64_t)n * k, 1);
        fill(2, (int64_t)m * n, 1);
        for (int side = 0; side < 2; side++) {
            struct gemm gemm = {ta,         tb,          accumulate, m,           n, k,          at(side, 0),
                                ta ? m : k, at(side, 1), tb ? k : n, at(side, 2), n, ELEMENT_F32};
            table(side)->gemm(NULL, 1, &gemm);
        }
        snprintf(what, sizeof what, "gemm %d x %d x %d, layout %d", m, n, k, layout);
        same(what, 2, (int64_t)m * n, k);
    }
}

static void check_norm(int rows, int columns, int stride, bool centred)
{
    char what[96];
    int64_t n = (int64_t)(rows - 1) * stride + columns;
    for (int i = 0; i < 3; i++) /* x, y, dx: strided */
        fill(i, n, i == 1 ? 0 : 3);
    fill(3, columns, 1); /* weight */
    fill(4, columns, 1); /* bias, its gradient */
    fill(5, 2 * rows, 0);
    fill(6, columns, 1);
    for (int side = 0; side < 2; side++) {
        table(side)->norm_forward(NULL, rows, columns, stride, 1e-5f, centred, at(side, 0), at(side, 3),
                                  centred ? at(side, 4) : NULL, at(side, 1), at(side, 5), at(side, 5) + rows);
        table(side)->norm_backward(NULL, rows, columns, stride, centred, at(side, 0), at(side, 3), at(side, 5),
                                   at(side, 5) + rows, at(side, 1), true, at(side, 2), at(side, 6),
                                   centred ? at(side, 4) : NULL);
    }
    snprintf(what, sizeof what, "norm %d x %d, stride %d, centred %d", rows, columns, stride, centred);
    same(what, 1, n, columns);
    same(what, 2, n, columns);
    same(what, 5, 2 * rows, columns);
    same(what, 6, columns, rows);
    same(what, 4, columns, rows);
}

static void check_activation(int rows, int columns, float scale)
{
    for (int kind = 0; kind < ACTIVATIONS; kind++)
        for (int gated = 0; gated < 2; gated++) {
            int64_t wide = (int64_t)rows * columns * (1 + gated), n = (int64_t)rows * columns;
            fill(0, wide, scale);
            fill(1, n, 0);
            fill(2, n, 1);
            fill(3, wide, 0);
            for (int side = 0; side < 2; side++) {
                table(side)->activation_forward(NULL, (enum activation)kind, gated, rows, columns, at(side, 0),
                                                at(side, 1));
                table(side)->activation_backward(NULL, (enum activation)kind, gated, rows, columns, at(side, 0),
                                                 at(side, 2), at(side, 3));
            }
            same(activation_names[kind], 1, n, 16);
            same(activation_names[kind], 3, wide, 16);
        }
}

static void check_loss(int rows, int columns, int stride, float scale)
{
    int target[64];
    fill(0, (int64_t)rows * stride, scale);
    for (int i = 1; i < 4; i++)
        fill(i, rows, 0);
    for (int r = 0; r < rows; r++)
        target[r] = r * 7 % (2 * columns) + 5; /* some in the shard, some not */
    for (int side = 0; side < 2; side++) {
        table(side)->logits_max(NULL, rows, columns, stride, at(side, 0), at(side, 1));
        table(side)->logits_sum(NULL, rows, columns, stride, at(side, 0), at(side, 1), target, 5, at(side, 2),
                                at(side, 3));
        table(side)->logits_gradient(NULL, rows, columns, stride, at(side, 0), at(side, 1), at(side, 2), target, 5,
                                     0.25f);
    }
    same("logits max", 1, rows, 1);
    same("logits sum", 2, rows, columns);
    same("logits picked", 3, rows, 1);
    same("logits gradient", 0, (int64_t)rows * stride, columns);
}

struct attention_case {
    int batch, heads, kv_heads, head_dim, queries, keys, first_key, window;
};

/* Two blocks of keys, the second merged into the first, some rows seeing nothing of one of them. */
static void check_attention(const struct attention_case *c)
{
    int q[512], k[512], step_q = c->heads * c->head_dim, step_kv = c->kv_heads * c->head_dim;
    int64_t n_q = (int64_t)c->queries * c->batch * step_q, n_kv = (int64_t)c->keys * c->batch * step_kv;
    int64_t n_lse = (int64_t)c->batch * c->heads * c->queries;
    for (int i = 0; i < c->queries; i++)
        q[i] = c->keys + i;
    for (int i = 0; i < c->keys; i++)
        k[i] = c->first_key + 2 * i;
    for (int i = 0; i < 3; i++)
        fill(i, i == 0 ? n_q : n_kv, 2);
    fill(3, n_q, 1); /* o, then dout in 4 */
    fill(4, n_q, 1);
    fill(5, n_lse, 0);
    fill(6, n_q, 1);
    fill(7, 2 * n_kv, 1);
    for (int side = 0; side < 2; side++) {
        struct attention a = {.batch = c->batch,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_dim = c->head_dim,
                              .queries = c->queries,
                              .keys = c->keys / 2,
                              .position_q = q,
                              .position_k = k,
                              .window = c->window,
                              .scale = 0.3f,
                              .q = at(side, 0),
                              .k = at(side, 1),
                              .v = at(side, 2),
                              .stride_q = step_q,
                              .stride_kv = step_kv,
                              .stride_o = step_q,
                              .o = at(side, 3),
                              .lse = at(side, 5)};
        int64_t half = (int64_t)a.keys * c->batch * step_kv;
        table(side)->attention_forward(NULL, &a);
        struct attention rest = a;
        rest.keys = c->keys - a.keys;
        rest.position_k += a.keys;
        rest.k += half;
        rest.v += half;
        rest.merge = true;
        table(side)->attention_forward(NULL, &rest);
        struct attention_gradient g = {a, at(side, 4), at(side, 6), at(side, 7), at(side, 7) + n_kv};
        table(side)->attention_backward(NULL, &g);
        struct attention_gradient h = {rest, at(side, 4), at(side, 6), at(side, 7) + half, at(side, 7) + n_kv + half};
        table(side)->attention_backward(NULL, &h);
    }
    same("attention output", 3, n_q, c->keys * c->head_dim);
    same("attention lse", 5, n_lse, c->keys * c->head_dim);
    same("attention dq", 6, n_q, c->keys * c->head_dim);
    same("attention dk, dv", 7, 2 * n_kv, c->queries * c->head_dim);
}

static void check_sums(int64_t n)
{
    fill(0, n, 3);
    double sum[2] = {0, 0};
    struct adamw_part part = {0, n, 0};
    for (int side = 0; side < 2; side++)
        table(side)->sum_squares(NULL, 1, &part, at(side, 0), &sum[side]);
    CHECK_DOUBLE(sum[1], sum[0], 1e-12);
}

static void check_adamw(int64_t n)
{
    const struct adamw a = {.learning_rate = 0.01f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .epsilon = 1e-8f,
                            .correction1 = 0.19f,
                            .correction2 = 0.0975f,
                            .gradient_scale = 0.5f};
    const struct adamw_part part[2] = {{0, n / 2, 0.1f}, {n / 2, n - n / 2, 0}};
    for (int i = 0; i < 5; i++)
        fill(i, n, 1);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            at(side, 3)[i] *= at(side, 3)[i]; /* v is not negative */
        table(side)->adamw(NULL, &a, 2, part, at(side, 0), at(side, 1), at(side, 2), at(side, 3), at(side, 4));
    }
    same("adamw weight", 1, n, 1);
    same("adamw m", 2, n, 1);
    same("adamw v", 3, n, 1);
    same("adamw copy", 4, n, 1);
}

int main(int argc, char **argv)
{
    static const struct attention_case cases[] = {
        {1, 1, 1, 8, 5, 7, 0, 0},      {2, 4, 2, 16, 65, 66, 0, 0},     {1, 6, 1, 12, 130, 64, 0, 9},
        {3, 2, 2, 32, 64, 128, 60, 0}, {1, 2, 1, 64, 33, 200, 100, 64},
    };
    state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    printf("seed %u\n", (unsigned)state);
    static const int odd[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {64, 64, 64}, {129, 31, 257}};
    for (int i = 0; i < 5; i++) {
        check_gemm(odd[i][0], odd[i][1], odd[i][2]);
        check_norm(odd[i][0], odd[i][1], odd[i][1] + 3 * (i % 2), i % 2);
        check_norm(odd[i][0], odd[i][1], odd[i][1], false);
        check_activation(odd[i][0], odd[i][1], i == 4 ? 80.0f : 4.0f);
        check_attention(&cases[i]);
        check_sums(odd[i][0] * odd[i][2]);
        check_adamw(odd[i][0] * odd[i][2]);
    }
    check_loss(1, 1, 1, 1);
    check_loss(13, 97, 128, 5);
    check_loss(7, 33, 33, 90);
    check_loss(64, 257, 260, 1);
    return test_report();
}
