/* Cases of functions that go over flat arrays and rows. */
#include <math.h>
#include <stdlib.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/compare.h"

static const struct {
    int rows, columns;
} shapes[] = {{1, 1}, {3, 5}, {17, 33}, {64, 64}, {129, 31}, {5, 264}, {2, 4104}, {40, 1032}, {1100, 24}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* One of the odd places is NaN: nobody may lose it, or pass it on. */
static void spoil(int buffer, int64_t n)
{
    if (n > 2)
        set(buffer, n / 2, NAN);
}

static void check_flat_n(int64_t n)
{
    start_case("add, add_floats, scale_floats, round_bf16 of %lld", (long long)n);
    int x = elements(n, 3), y = elements(n, 3), fx = floats(n, 3), fy = floats(n, 3), scaled = floats(n, 1e30f);
    int rounded = floats(n, 1e-3f);
    spoil(x, n);
    spoil(scaled, n);
    spoil(rounded, n);
    FOR_SIDES
    {
        table(side)->add(queue(side), n, at(side, x), at(side, y));
        table(side)->add_floats(queue(side), n, at(side, fx), at(side, fy));
        table(side)->scale_floats(queue(side), n, -0.37f, at(side, scaled));
        table(side)->round_bf16(queue(side), n, at(side, rounded));
    }
    same(y, 2);
    same(fy, 2);
    same(scaled, 1);
    same(rounded, 0);
    end_case();
}

static void check_convert(int64_t n)
{
    start_case("convert %lld", (long long)n);
    int from = floats(n, 100), to = elements_unset(n), back = floats_unset(n), more = elements_unset(n);
    spoil(from, n);
    FOR_SIDES
    {
        enum element type = table(side)->type;
        table(side)->convert(queue(side), n, ELEMENT_F32, at(side, from), type, at(side, to));
        table(side)->convert(queue(side), n, type, at(side, to), ELEMENT_F32, at(side, back));
        table(side)->convert(queue(side), n, type, at(side, to), type, at(side, more));
    }
    same(to, 1);
    same_rounded(back, 1, is_bf16() ? 1.01 : 0);
    same(more, 1);
    end_case();
}

static void check_by_index(int n)
{
    int *index = calloc((size_t)n, sizeof *index);
    for (int i = 0; i < n; i++) /* some twice */
        index[i] = i % 7 == 3 ? i / 2 : n - 1 - i;
    start_case("gather_floats, scatter_floats of %d", n);
    int x = floats(n, 0), order = ints(n, index), gathered = floats_unset(n), sums = floats(n, 0);
    for (int i = 0; i < n; i++) /* whole numbers: the same in any order */
        set(x, i, (float)(i % 100));
    FOR_SIDES
    {
        table(side)->gather_floats(queue(side), n, at(side, order), at(side, x), at(side, gathered));
        table(side)->scatter_floats(queue(side), n, at(side, order), at(side, x), at(side, sums));
    }
    same(gathered, 0);
    same(sums, 0);
    end_case();
    free(index);
}

void check_flat(void)
{
    static const int sizes[] = {1, 7, 8, 9, 255, 2048, 2056, 4099};
    for (int shift = 0; shift < 2; shift++) {
        set_shift(shift);
        for (int i = 0; i < 8; i++) {
            check_flat_n(sizes[i]);
            check_convert(sizes[i]);
            check_by_index(sizes[i]);
        }
    }
    set_shift(0);
}

/* -- rows ----------------------------------------------------------------------------------------------------------- */

static void check_copies(int rows, int columns, int stride_x, int stride_y)
{
    int64_t n_x = (int64_t)rows * stride_x, n_y = (int64_t)rows * stride_y, n = (int64_t)rows * columns;
    start_case("copy_block, bias_add, column_sum %d x %d, strides %d, %d", rows, columns, stride_x, stride_y);
    int x = elements(n_x, 3), y = elements(n_y, 3), z = elements(n_y, 3);
    int bias = elements(columns, 2), biased = elements(n, 2), sum = floats(columns, 1);
    spoil(x, n_x);
    spoil(bias, columns);
    FOR_SIDES
    {
        table(side)->copy_block(queue(side), rows, columns, at(side, x), stride_x, true, at(side, y), stride_y);
        table(side)->copy_block(queue(side), rows, columns, at(side, x), stride_x, false, at(side, z), stride_y);
        table(side)->column_sum(queue(side), rows, columns, at(side, biased), at(side, sum));
        table(side)->bias_add(queue(side), rows, columns, at(side, bias), at(side, biased));
    }
    same(y, 2);
    same(z, 0);
    same(sum, rows + 1);
    same(biased, 2);
    end_case();
}

/* Rows of x by index, some never, some twice; and their sums, of none to many. */
static void check_indexed(int rows, int columns, bool weighted)
{
    int *index = calloc((size_t)rows, sizeof *index), *first = calloc((size_t)rows + 1, sizeof *first);
    for (int i = 0; i < rows; i++) {
        index[i] = (i * 5 + 3) % rows / 2;
        first[i + 1] = first[i] + (i % 3 == 1 ? 0 : i % 3 == 2 ? 2 : 1);
        first[i + 1] = first[i + 1] < rows ? first[i + 1] : rows;
    }
    int *padded = calloc((size_t)rows, sizeof *padded); /* some rows of none */
    for (int i = 0; i < rows; i++)
        padded[i] = i % 4 == 1 ? -1 : index[i];
    int64_t n = (int64_t)rows * columns;
    start_case("gather_rows, combine_rows, dot_rows %d x %d, weighted %d", rows, columns, weighted);
    int order = ints(rows, index), starts = ints(rows + 1, first), x = elements(n, 2), weight = floats(rows, 1);
    int order_padded = ints(rows, padded), y_padded = elements_unset(n);
    int y = elements_unset(n), combined = elements_unset(n), added = elements(n, 1), dot = floats_unset(rows);
    spoil(x, n);
    FOR_SIDES
    {
        const float *w = weighted ? at(side, weight) : NULL;
        const int *at_order = at(side, order), *at_first = at(side, starts);
        const struct kernels *k = table(side);
        k->gather_rows(queue(side), rows, columns, at_order, w, at(side, x), at(side, y));
        k->gather_rows(queue(side), rows, columns, at(side, order_padded), w, at(side, x), at(side, y_padded));
        k->combine_rows(queue(side), rows, columns, at_first, at_order, w, at(side, x), false, at(side, combined));
        k->combine_rows(queue(side), rows, columns, at_first, at_order, w, at(side, x), true, at(side, added));
        k->dot_rows(queue(side), rows, columns, at_order, at(side, x), at(side, added), at(side, dot));
    }
    same(y, 1);
    same(y_padded, 1);
    same(combined, 3);
    same(added, 3);
    same_rounded(dot, columns, sqrt(columns)); /* of sums that were rounded */
    end_case();
    free(index);
    free(padded);
    free(first);
}

/* A shard of a table, tokens in it and not, many times the same. */
static void check_embedding(int rows, int columns)
{
    enum { FIRST = 3, COUNT = 11 };
    int *token = calloc((size_t)rows, sizeof *token);
    for (int i = 0; i < rows; i++)
        token[i] = i % 5 == 0 ? 7 : i * 11 % 17;
    int64_t n = (int64_t)rows * columns;
    start_case("embedding %d x %d", rows, columns);
    int tokens = ints(rows, token), entries = elements((int64_t)COUNT * columns, 1), y = elements_unset(n);
    int dy = elements(n, 1), gradient = floats((int64_t)COUNT * columns, 1);
    spoil(dy, n);
    FOR_SIDES
    {
        table(side)->embedding_forward(queue(side), rows, columns, at(side, tokens), FIRST, COUNT, at(side, entries),
                                       at(side, y));
        table(side)->embedding_backward(queue(side), rows, columns, at(side, tokens), FIRST, COUNT, at(side, dy),
                                        at(side, gradient));
    }
    same(y, 0);
    same(gradient, rows + 1);
    end_case();
    free(token);
}

void check_rows(void)
{
    for (int shift = 0; shift < 2; shift++) {
        set_shift(shift);
        for (int i = 0; i < SHAPES; i++) {
            int rows = shapes[i].rows, columns = shapes[i].columns;
            check_copies(rows, columns, columns, columns);
            check_copies(rows, columns, columns + 8, columns + 16);
            check_copies(rows, columns, columns + 3, columns + 5);
            check_indexed(rows, columns, shift);
            check_embedding(rows, columns);
        }
    }
    set_shift(0);
}

/* -- rotary embedding, activations ---------------------------------------------------------------------------------- */

static void check_rotary_of(int rows, int heads, int head_dim, int stride, bool inverse)
{
    int half = head_dim / 2;
    int64_t n = (int64_t)(rows - 1) * stride + (int64_t)heads * head_dim;
    start_case("rotary %d x %d x %d, stride %d, inverse %d", rows, heads, head_dim, stride, inverse);
    int cosine = floats((int64_t)rows * half, 1), sine = floats((int64_t)rows * half, 1), x = elements(n, 2);
    spoil(x, n);
    FOR_SIDES
    table(side)->rotary(queue(side), rows, heads, head_dim, stride, at(side, cosine), at(side, sine), inverse,
                        at(side, x));
    same(x, 2);
    end_case();
}

void check_rotary(void)
{
    for (int shift = 0; shift < 2; shift++) {
        set_shift(shift);
        check_rotary_of(1, 1, 2, 2, false);
        check_rotary_of(5, 3, 6, 20, true);
        check_rotary_of(9, 4, 64, 256, false);
        check_rotary_of(70, 2, 128, 512, true);
        check_rotary_of(3, 40, 96, 40 * 96, false);
    }
    set_shift(0);
}

/* Far out, where intermediate results overflow or vanish, but no infinities: their slopes are NaN or not by chance. */
static void set_extremes(int buffer, int64_t n)
{
    static const float extremes[] = {0.0f,   -0.0f, 1e-40f, -1e-30f, 3e38f, -3e38f, 1e20f,
                                     -1e20f, 88,    -88,    30,      -30,   6,      NAN};
    enum { EXTREMES = sizeof extremes / sizeof extremes[0] };
    for (int64_t i = 0; i < EXTREMES && i < n; i++)
        set(buffer, i, extremes[i]);
}

static void check_activation(enum activation kind, bool gated, int rows, int columns, float scale, bool extremes)
{
    int64_t n = (int64_t)rows * columns, wide = gated ? 2 * n : n;
    start_case("%s, gated %d, %d x %d, scale %g", activation_names[kind], gated, rows, columns, (double)scale);
    int x = elements(wide, scale), y = elements_unset(n), dy = elements(n, 1), dx = elements_unset(wide);
    if (extremes)
        set_extremes(x, columns);
    FOR_SIDES
    {
        table(side)->activation_forward(queue(side), kind, gated, rows, columns, at(side, x), at(side, y));
        table(side)->activation_backward(queue(side), kind, gated, rows, columns, at(side, x), at(side, dy),
                                         at(side, dx));
    }
    same(y, 16);
    same(dx, 16);
    end_case();
}

void check_activations(void)
{
    for (int kind = 0; kind < ACTIVATIONS; kind++)
        for (int gated = 0; gated < 2; gated++)
            for (int shift = 0; shift < 2; shift++) {
                set_shift(shift);
                for (int i = 0; i < SHAPES; i++)
                    check_activation((enum activation)kind, gated, shapes[i].rows, shapes[i].columns, 4, false);
                check_activation((enum activation)kind, gated, 3, 40, 80, false);
                check_activation((enum activation)kind, gated, 2, 24, 4, true);
            }
    set_shift(0);
}
