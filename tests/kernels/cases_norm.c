/* Cases of the norms: rows of one warp, of a block, and wide ones; a plain row among spoilt ones. */
#include <math.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/compare.h"

static const float epsilon = 1e-5f;

struct shape {
    int rows, columns, stride;
    bool centred;
};

static int64_t items(const struct shape *s)
{
    return (int64_t)(s->rows - 1) * s->stride + s->columns;
}

/* The second row holds NaN, the third only zeros, the fourth large values. */
static void spoil_rows(int x, const struct shape *s)
{
    if (s->rows > 1)
        set(x, s->stride + s->columns / 2, NAN);
    for (int c = 0; c < s->columns && s->rows > 3; c++) {
        set(x, 2 * (int64_t)s->stride + c, 0);
        set(x, 3 * (int64_t)s->stride + c, 1e4f + uniform(1e4f));
    }
}

static void check_forward(const struct shape *s)
{
    start_case("norm_forward %d x %d, stride %d, centred %d", s->rows, s->columns, s->stride, s->centred);
    int x = elements(items(s), 3), weight = elements(s->columns, 1), bias = elements(s->columns, 1);
    int y = elements(items(s), 1), again = elements(items(s), 1), mean = floats_unset(s->rows);
    int rstd = floats_unset(s->rows);
    spoil_rows(x, s);
    FOR_SIDES
    {
        const void *shift = s->centred ? at(side, bias) : NULL;
        table(side)->norm_forward(queue(side), s->rows, s->columns, s->stride, epsilon, s->centred, at(side, x),
                                  at(side, weight), shift, at(side, y), at(side, mean), at(side, rstd));
        table(side)->norm_apply(queue(side), s->rows, s->columns, s->stride, at(side, x), at(side, weight), shift,
                                at(side, mean), at(side, rstd), at(side, again));
    }
    same(mean, s->columns);
    same(rstd, s->columns);
    same(y, s->columns);
    same(again, s->columns);
    end_case();
}

/* The sum of x and residual is stored as an element, and y is of what was stored. */
static void check_add_forward(const struct shape *s)
{
    start_case("add_norm_forward %d x %d, stride %d, centred %d", s->rows, s->columns, s->stride, s->centred);
    int x = elements(items(s), 3), residual = elements(items(s), 3), weight = elements(s->columns, 1);
    int bias = elements(s->columns, 1), y = elements(items(s), 1), mean = floats_unset(s->rows);
    int rstd = floats_unset(s->rows);
    spoil_rows(residual, s);
    FOR_SIDES
    {
        const struct kernels *k = table(side);
        const void *shift = s->centred ? at(side, bias) : NULL;
        if (side == REFERENCE) {
            k->copy_block(NULL, s->rows, s->columns, at(side, residual), s->stride, true, at(side, x), s->stride);
            if (is_bf16())
                k->round_bf16(NULL, items(s), at(side, x));
            k->norm_forward(NULL, s->rows, s->columns, s->stride, epsilon, s->centred, at(side, x), at(side, weight),
                            shift, at(side, y), at(side, mean), at(side, rstd));
        } else {
            k->add_norm_forward(queue(side), s->rows, s->columns, s->stride, epsilon, s->centred, at(side, residual),
                                at(side, x), at(side, weight), shift, at(side, y), at(side, mean), at(side, rstd));
        }
    }
    same(x, 0);
    same(mean, s->columns);
    same(rstd, s->columns);
    same(y, s->columns);
    end_case();
}

static void check_backward(const struct shape *s, bool accumulate)
{
    start_case("norm_backward %d x %d, stride %d, centred %d, accumulate %d", s->rows, s->columns, s->stride,
               s->centred, accumulate);
    int x = elements(items(s), 3), weight = elements(s->columns, 1), mean = floats(s->rows, s->centred ? 0.3f : 0);
    int rstd = floats(s->rows, 1), dy = elements(items(s), 1), dx = elements(items(s), 1);
    int dweight = floats(s->columns, 1), dbias = floats(s->columns, 1);
    if (s->rows > 1)
        set(x, s->stride + s->columns / 2, NAN);
    FOR_SIDES
    table(side)->norm_backward(queue(side), s->rows, s->columns, s->stride, s->centred, at(side, x), at(side, weight),
                               at(side, mean), at(side, rstd), at(side, dy), accumulate,
                               accumulate ? at(side, dx) : at(side, dy), at(side, dweight),
                               s->centred ? at(side, dbias) : NULL);
    same(dx, s->columns);
    same(dy, s->columns);
    same(dweight, s->rows);
    same(dbias, s->rows);
    end_case();
}

struct heads {
    int rows, heads, kv_heads, head_dim, stride;
};

/* A head of the second row holds NaN, the first of the third zeros; what lies behind the heads stays as it is. */
static void check_heads(const struct heads *s)
{
    start_case("head_norm %d rows, heads %d/%d of %d, stride %d", s->rows, s->heads, s->kv_heads, s->head_dim,
               s->stride);
    int all = s->heads + s->kv_heads, width = all * s->head_dim,
        terms = s->rows * (s->heads > s->kv_heads ? s->heads : s->kv_heads);
    int64_t n = (int64_t)(s->rows - 1) * s->stride + width;
    int x = elements(n, 3), y = elements(n, 1), dy = elements(n, 1), dx = elements(n, 1), in_place = elements(n, 1);
    int q = elements(s->head_dim, 1), k = elements(s->head_dim, 1), rstd = floats_unset(s->rows * all),
        given = floats(s->rows * all, 1);
    int dq = floats(s->head_dim, 1), dk = floats(s->head_dim, 1);
    for (int c = 0; c < s->head_dim && s->rows > 2; c++) {
        set(x, s->stride + s->head_dim / 2, NAN);
        set(x, 2 * (int64_t)s->stride + c, 0);
    }
    FOR_SIDES
    {
        const struct kernels *kernels = table(side);
        struct head_norm norm = {s->rows,   s->heads,    s->kv_heads, s->head_dim,
                                 s->stride, at(side, q), at(side, k), at(side, rstd)};
        kernels->head_norm_forward(queue(side), &norm, epsilon, at(side, x), at(side, y));
        norm.rstd = at(side, given);
        kernels->head_norm_backward(queue(side), &norm, at(side, x), at(side, dy), at(side, dx), at(side, dq),
                                    at(side, dk));
        kernels->head_norm_backward(queue(side), &norm, at(side, x), at(side, in_place), at(side, in_place),
                                    at(side, dq), at(side, dk));
    }
    same(rstd, s->head_dim);
    same(y, s->head_dim);
    same(dx, s->head_dim);
    same(in_place, s->head_dim);
    same(dq, 2 * terms);
    same(dk, 2 * terms);
    end_case();
}

void check_norms(void)
{
    static const struct heads heads[] = {{1, 1, 1, 1, 2},      {7, 3, 1, 20, 100},   {40, 4, 2, 32, 256},
                                         {33, 5, 5, 64, 960},  {9, 8, 1, 128, 1280}, {50, 2, 1, 96, 288},
                                         {3, 2, 2, 256, 1536}, {1000, 1, 2, 8, 24}};
    static const struct shape shapes[] = {
        {1, 1, 1, false},        {3, 5, 8, true},       {17, 33, 33, true},    {9, 64, 64, false},
        {700, 96, 96, false},    {150, 200, 200, true}, {300, 64, 640, false}, {5, 128, 384, false},
        {33, 257, 257, true},    {300, 512, 512, true}, {4, 1024, 1024, true}, {5, 2049, 2049, false},
        {40, 4096, 4096, false}, {3, 8192, 8192, true}, {2, 8200, 8208, true}, {2, 16384, 16384, false},
        {2, 16392, 16392, true},
    };
    for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++)
        for (int shift = 0; shift < (shapes[i].columns < 3000 ? 2 : 1); shift++) {
            set_shift(shift);
            check_forward(&shapes[i]);
            check_add_forward(&shapes[i]);
            check_backward(&shapes[i], true);
            check_backward(&shapes[i], false);
        }
    for (int i = 0; i < (int)(sizeof heads / sizeof heads[0]); i++)
        for (int shift = 0; shift < 2; shift++) {
            set_shift(shift);
            check_heads(&heads[i]);
        }
    set_shift(0);
}
