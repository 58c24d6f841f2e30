/* Cases of 8-bit casts, transposes, factors and products. Casts are the same on both sides to the last bit: a product
 * in fp32, rounded once. */
#include <float.h>
#include <math.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/compare.h"

enum { NUMBERS = 128 };

/* What a format makes of all its numbers, of what lies between two of them (ties to even) and beside that, of what is
 * below all and above all. */
static float special(enum element format, int i)
{
    const float others[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-40f};
    int number = i / 3 % NUMBERS, count = 3 * NUMBERS;
    if (i >= count && i - count < (int)(sizeof others / sizeof others[0]))
        return others[i - count];
    float low = fp8_value(format, (unsigned char)number), high = fp8_value(format, (unsigned char)(number + 1) & 0x7f);
    if (!isfinite(low))
        return 1.5f * fp8_limit(format);
    if (!isfinite(high) || high < low)
        high = low * 17 / 16; /* of e4m3: above 448, below what would be the next */
    const float parts[] = {low, 0.5f * (low + high), 0.5f * (low + high) + 0.125f * (high - low)};
    return number % 2 ? -parts[i % 3] : parts[i % 3];
}

/* Which outputs: 1 rows, 2 transposed, 3 both, 0 the largest magnitude alone. */
static void check_cast(enum element format, int rows, int columns, float scale, int outputs, bool specials)
{
    int64_t n = (int64_t)rows * columns;
    start_case("cast to %s, %d x %d, factor %g, outputs %d%s", element_names[format], rows, columns, (double)scale,
               outputs, specials ? ", special" : "");
    int x = elements(n, 2), factor = floats(1, 1), amax = floats(1, 1);
    int y = eights_unset(n, format), transposed = eights_unset(n, format);
    set(factor, 0, scale);
    set(amax, 0, specials ? 0 : 0.25f * (float)(rows % 9)); /* what came before may be larger */
    for (int64_t i = 0; specials && i < n; i++)
        set(x, i, special(format, (int)i));
    FOR_SIDES
    {
        struct fp8_cast cast = {.format = format,
                                .rows = rows,
                                .columns = columns,
                                .x = at(side, x),
                                .scale = at(side, factor),
                                .y = outputs & 1 ? at(side, y) : NULL,
                                .transposed = outputs & 2 ? at(side, transposed) : NULL,
                                .amax = at(side, amax)};
        table(side)->fp8_cast(queue(side), &cast);
    }
    same(y, 0);
    same(transposed, 0);
    same(amax, 0);
    end_case();
}

static void check_casts(enum element format)
{
    static const int sizes[][2] = {{1, 1}, {3, 5}, {17, 33}, {16, 64}, {128, 64}, {129, 65}, {40, 208}, {272, 16}};
    static const float scales[] = {1, 37.3f, 1e-3f, 1e30f};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
        for (int outputs = 0; outputs < 4; outputs++)
            check_cast(format, sizes[i][0], sizes[i][1], scales[(i + outputs) % 4], outputs, false);
    check_cast(format, 1, 3 * NUMBERS + 9, 1, 3, true);
    check_cast(format, 3, NUMBERS, 1, 3, true);
    check_cast(format, 3 * NUMBERS / 16, 16, 0.75f, 3, true);
    check_cast(format, 0, 16, 1, 3, false);
}

static void check_transpose(int rows, int columns)
{
    int64_t n = (int64_t)rows * columns;
    start_case("transpose of 8 bits, %d x %d", rows, columns);
    int x = eights(n, ELEMENT_E4M3), y = eights_unset(n, ELEMENT_E4M3);
    FOR_SIDES
    table(side)->fp8_transpose(queue(side), rows, columns, at(side, x), at(side, y));
    same(y, 0);
    end_case();
}

/* n matrices with different pasts: some never seen, some not finite, one tiny, one huge. */
static void check_update(int n, int rows, int row, int margin, bool power_of_two)
{
    start_case("factors of %d, history %d of %d, margin %d, power of two %d", n, row, rows, margin, power_of_two);
    int limit = floats(n, 1), amax = floats(n, 1), history = floats((int64_t)n * rows, 1), scale = floats(n, 1),
        inverse = floats(n, 1);
    const float others[] = {0, NAN, INFINITY, 1e-42f, FLT_MAX, 3};
    for (int i = 0; i < n; i++) {
        set(limit, i, fp8_limit(i % 2 ? ELEMENT_E4M3 : ELEMENT_E5M2));
        set(amax, i, i % 3 ? fabsf(get(amax, i)) : others[i / 3 % 6]);
        for (int r = 0; r < rows; r++)
            set(history, (int64_t)r * n + i, i % 4 ? fabsf(get(history, (int64_t)r * n + i)) : 0);
    }
    FOR_SIDES
    {
        struct fp8_update u = {.n = n,
                               .rows = rows,
                               .row = row,
                               .margin = margin,
                               .power_of_two = power_of_two,
                               .limit = at(side, limit),
                               .amax = at(side, amax),
                               .history = at(side, history),
                               .scale = at(side, scale),
                               .inverse = at(side, inverse)};
        table(side)->fp8_update(queue(side), &u);
    }
    same(amax, 0);
    same(history, 0);
    same(scale, 0);
    same(inverse, 0);
    end_case();
}

/* Hopper's tensor cores align what they add of one instruction to the largest of it and keep 13 bits behind its point
 * or more; over 272 / 32 instructions that is below one rounding of bfloat16. */
static void check_product(enum element a_type, enum element b_type, int m, int n, int k, bool accumulate)
{
    start_case("gemm of %s and %s, %d x %d x %d, accumulate %d", element_names[a_type], element_names[b_type], m, n, k,
               accumulate);
    int a = eights((int64_t)m * k, a_type), b = eights((int64_t)n * k, b_type), c = elements((int64_t)m * n, 1),
        wide = floats((int64_t)m * n, 1), factors = floats(8, 1);
    set(factors, 0, 0.003f);
    set(factors, 4, 1.7e-5f);
    FOR_SIDES
    for (int i = 0; i < 2; i++) {
        struct gemm gemm = {.transpose_b = true,
                            .accumulate = accumulate,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = at(side, a),
                            .stride_a = k,
                            .b = at(side, b),
                            .stride_b = k,
                            .c = at(side, i == 0 ? c : wide),
                            .stride_c = n,
                            .c_type = i == 0 ? table(side)->type : ELEMENT_F32,
                            .a_type = a_type,
                            .b_type = b_type,
                            .scale_a = at(side, factors),
                            .scale_b = at_item(side, factors, 4)};
        table(side)->gemm(queue(side), 1, &gemm);
    }
    same_rounded(c, k + 1, 1);
    same_rounded(wide, k + 1, 1);
    end_case();
}

static void check_products_of_8_bits(void)
{
    static const int sizes[][3] = {{16, 16, 16}, {32, 48, 64}, {128, 80, 272}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
        for (int kind = 0; kind < 6; kind++)
            check_product(kind / 2 == 1 ? ELEMENT_E5M2 : ELEMENT_E4M3, kind / 2 == 2 ? ELEMENT_E5M2 : ELEMENT_E4M3,
                          sizes[i][0], sizes[i][1], sizes[i][2], kind % 2);
}

void check_fp8(void)
{
    static const int sizes[][2] = {{1, 1}, {5, 3}, {64, 128}, {130, 67}, {208, 40}};
    for (int shift = 0; shift < 4; shift += 3) {
        set_shift(shift);
        check_casts(ELEMENT_E4M3);
        check_casts(ELEMENT_E5M2);
        for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
            check_transpose(sizes[i][0], sizes[i][1]);
    }
    set_shift(0);
    check_update(1, 1, 0, 1, true);
    check_update(33, 1024, 1023, 0, false);
    check_update(50, 7, 3, 2, false);
    check_update(50, 7, 3, 0, true);
    check_products_of_8_bits();
}
