/* kernels/cuda/gemm.c against kernels_ref, over cuBLASLt as its documentation describes it (cublaslt_emulated.c): all
 * transpositions, strides, odd addresses, batches, products beside one another, empty ones; operands of 8 bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gemm.h"
#include "tests/cuda/cublaslt_emulated.h"

enum { ROUNDS = 5000, PRODUCTS_MOST = 5, LONGEST = 7, APART = 100, ELEMENTS = 1000 };

static _Alignas(256) uint16_t a[ELEMENTS], b[ELEMENTS];
static _Alignas(256) float c[ELEMENTS], c_first[ELEMENTS]; /* or bf16 */
static uint32_t state = 1;

void cuda_kernels_fail(const char *what, const char *why)
{
    printf("FAILED: %s: %s\n", what, why);
    exit(1);
}

/* 0 .. n - 1 (Numerical Recipes' constants) */
static int below(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)n);
}

/* Small whole numbers: sums are exact, in bf16 too. */
static void fill(void *x, enum element type)
{
    for (int i = 0; i < ELEMENTS; i++) {
        float value = (float)(below(5) - 2);
        kernels_ref.convert(NULL, 1, ELEMENT_F32, &value, type, element_at(type, x, i));
    }
}

static struct gemm random_product(enum element type)
{
    struct gemm g = {.transpose_a = below(2), .transpose_b = below(2), .accumulate = below(2), .c_type = type};
    g.m = below(LONGEST);
    g.n = below(LONGEST);
    g.k = below(LONGEST);
    g.stride_a = (g.transpose_a ? g.m : g.k) + 1 + below(3) - (g.m > 0 && g.k > 0);
    g.stride_b = (g.transpose_b ? g.k : g.n) + 1 + below(3) - (g.k > 0 && g.n > 0);
    g.stride_c = g.n + 1 + below(3) - (g.n > 0);
    return g;
}

static float at(enum element type, const void *x, int64_t i)
{
    float value;
    kernels_ref.convert(NULL, 1, type, element_at(type, x, i), ELEMENT_F32, &value);
    return value;
}

static int is_right(const struct gemm *g)
{
    const void *before = (const char *)c_first + ((const char *)g->c - (const char *)c);
    for (int row = 0; row < g->m; row++)
        for (int column = 0; column < g->n; column++) {
            int place = row * g->stride_c + column;
            float sum = g->accumulate ? at(g->c_type, before, place) : 0;
            for (int k = 0; k < g->k; k++)
                sum += at(ELEMENT_BF16, g->a, g->transpose_a ? k * g->stride_a + row : row * g->stride_a + k) *
                       at(ELEMENT_BF16, g->b, g->transpose_b ? column * g->stride_b + k : k * g->stride_b + column);
            if (at(g->c_type, g->c, place) != sum)
                return 0;
        }
    return 1;
}

/* What lies between rows and between matrices is as it was. */
static int is_rest_untouched(int n, const struct gemm *g)
{
    size_t bytes = element_bytes(g[0].c_type);
    for (int i = 0; i < n; i++)
        for (int row = 0; row < g[i].m; row++) {
            char *from = (char *)g[i].c + (size_t)(row * g[i].stride_c) * bytes;
            memcpy((char *)c_first + (from - (char *)c), from, (size_t)g[i].n * bytes);
        }
    return memcmp(c, c_first, sizeof c) == 0;
}

static int check_round(void *queue)
{
    struct gemm g[PRODUCTS_MOST];
    int n = 1 + below(PRODUCTS_MOST), same = below(2), backward = below(2), right = 1;
    enum element type = below(2) ? ELEMENT_F32 : ELEMENT_BF16;
    int first[3] = {below(9), below(9), below(9)};
    fill(a, ELEMENT_BF16);
    fill(b, ELEMENT_BF16);
    fill(c, type);
    memcpy(c_first, c, sizeof c);
    for (int i = 0; i < n; i++) {
        int place = backward ? n - 1 - i : i;
        g[i] = i > 0 && same ? g[0] : random_product(type);
        g[i].a = a + first[0] + i * APART;
        g[i].b = b + first[1] + i * APART;
        g[i].c = element_at(type, c, first[2] + place * APART);
    }
    cuda_gemm(queue, n, g);
    for (int i = 0; i < n; i++)
        right = right && is_right(&g[i]);
    return right && is_rest_untouched(n, g);
}

/* --- operands of 8 bits ---------------------------------------------------------------- */

enum { EIGHTS = 48 * 64, EIGHT_PRODUCTS = 3, EIGHT_ROUNDS = 200 };
static _Alignas(256) unsigned char a8[EIGHT_PRODUCTS * EIGHTS], b8[EIGHT_PRODUCTS * EIGHTS];
static _Alignas(256) float c8[EIGHT_PRODUCTS * EIGHTS], c8_first[EIGHT_PRODUCTS * EIGHTS];
static const float factors[4] = {0.5f, 4, 2, 0.25f};

/* -1, 0, 1, 2 of the format */
static void fill_8_bits(unsigned char *x, enum element type)
{
    for (int i = 0; i < EIGHT_PRODUCTS * EIGHTS; i++) {
        int power = type == ELEMENT_E4M3 ? 0x38 : 0x3c, step = type == ELEMENT_E4M3 ? 8 : 4, what = below(4);
        x[i] = (unsigned char)(what == 0 ? 0 : what == 1 ? power : what == 2 ? power | 0x80 : power + step);
    }
}

static struct gemm random_product_of_8_bits(enum element a_type, enum element b_type, enum element c_type)
{
    struct gemm g = {.transpose_b = true,
                     .accumulate = below(2),
                     .fast_sums = below(2),
                     .m = 16 * (1 + below(3)),
                     .n = 16 * (1 + below(3)),
                     .k = 16 * (1 + below(3)),
                     .a_type = a_type,
                     .b_type = b_type,
                     .c_type = c_type,
                     .scale_a = &factors[below(4)],
                     .scale_b = &factors[below(4)]};
    g.stride_a = g.k + 16 * below(2);
    g.stride_b = g.k + 16 * below(2);
    g.stride_c = g.n + 16 * below(2);
    return g;
}

static int is_right_of_8_bits(const struct gemm *g)
{
    const void *before = (const char *)c8_first + ((const char *)g->c - (const char *)c8);
    const unsigned char *x = g->a, *y = g->b;
    for (int row = 0; row < g->m; row++)
        for (int column = 0; column < g->n; column++) {
            int place = row * g->stride_c + column;
            float sum = 0;
            for (int k = 0; k < g->k; k++)
                sum +=
                    fp8_value(g->a_type, x[row * g->stride_a + k]) * fp8_value(g->b_type, y[column * g->stride_b + k]);
            sum = sum * *g->scale_a * *g->scale_b + (g->accumulate ? at(g->c_type, before, place) : 0);
            if (g->c_type == ELEMENT_BF16) /* as many bits as that has */
                kernels_ref.round_bf16(NULL, 1, &sum);
            float got = at(g->c_type, g->c, place), off = got - sum;
            if ((off < 0 ? -off : off) > (g->c_type == ELEMENT_F32 ? 0 : 0x1p-7f * (sum < 0 ? -sum : sum)))
                return 0;
        }
    return 1;
}

static int check_round_of_8_bits(void *queue)
{
    struct gemm g[EIGHT_PRODUCTS];
    int n = 1 + below(EIGHT_PRODUCTS), same = below(2), right = 1, wide = below(3);
    enum element type = below(2) ? ELEMENT_F32 : ELEMENT_BF16, a_type = wide == 1 ? ELEMENT_E5M2 : ELEMENT_E4M3,
                 b_type = wide == 2 ? ELEMENT_E5M2 : ELEMENT_E4M3;
    fill_8_bits(a8, a_type);
    fill_8_bits(b8, b_type);
    for (int i = 0; i < EIGHT_PRODUCTS * EIGHTS; i++) {
        float value = (float)(below(5) - 2);
        kernels_ref.convert(NULL, 1, ELEMENT_F32, &value, type, element_at(type, c8, i));
    }
    memcpy(c8_first, c8, sizeof c8);
    for (int i = 0; i < n; i++) {
        g[i] = i > 0 && same ? g[0] : random_product_of_8_bits(a_type, b_type, type);
        g[i].a = a8 + i * EIGHTS;
        g[i].b = b8 + i * EIGHTS;
        g[i].c = element_at(type, c8, (int64_t)i * EIGHTS);
    }
    cuda_gemm(queue, n, g);
    for (int i = 0; i < n; i++)
        right = right && is_right_of_8_bits(&g[i]);
    return right;
}

/* As many shapes as a step has are chosen once each. */
static int check_choices(void *queue)
{
    enum { SHAPES = 60, STEPS = 10 };
    int before = cublaslt_emulated_choices();
    for (int i = 0; i < SHAPES * STEPS; i++) {
        struct gemm g = {
            .m = 1 + i % SHAPES, .n = 8, .k = 8, .a = a, .b = b, .c = c, .stride_a = 8, .stride_b = 8, .stride_c = 8};
        cuda_gemm(queue, 1, &g);
    }
    return cublaslt_emulated_choices() - before == SHAPES;
}

/* 1 .. 60 rows of two experts: few of the numbers are chosen for, 16, 32, 48 and 64, and all products are right. */
static int check_experts(void *queue, int transpose_a, int *ret_choices)
{
    enum { STEPS = 300, FAR = 512, WIDTH = 4 };
    int before = cublaslt_emulated_choices(), right = 1;
    for (int step = 0; step < STEPS && right; step++) {
        struct gemm g[2];
        fill(a, ELEMENT_BF16);
        fill(b, ELEMENT_BF16);
        for (int i = 0; i < 2; i++) {
            int rows = 1 + below(60);
            rows =
                i == 1 && rows == (transpose_a ? g[0].k : g[0].m) ? rows % 60 + 1 : rows; /* alike they are a batch */
            g[i] = (struct gemm){.transpose_a = transpose_a,
                                 .m = transpose_a ? WIDTH : rows,
                                 .n = WIDTH,
                                 .k = transpose_a ? rows : WIDTH,
                                 .a = a + i * FAR,
                                 .b = b + i * FAR,
                                 .c = c + i * FAR,
                                 .stride_a = WIDTH,
                                 .stride_b = WIDTH,
                                 .stride_c = WIDTH};
        }
        cuda_gemm(queue, 2, g);
        right = is_right(&g[0]) && is_right(&g[1]);
    }
    *ret_choices = cublaslt_emulated_choices() - before;
    return right;
}

/* Weights' gradients of two experts in 8 bits: parts of matrices as wide as all rows, which are new in every step. */
static int check_experts_of_8_bits(void *queue, int *ret_choices)
{
    enum { STEPS = 60, WIDTH = 16, WIDEST = 2 * 640 };
    static _Alignas(256) unsigned char dy[WIDTH * WIDEST], x[WIDTH * WIDEST];
    int before = cublaslt_emulated_choices(), right = 1;
    memset(dy, 0x3c, sizeof dy); /* ones */
    memset(x, 0x38, sizeof x);
    for (int step = 0; step < STEPS && right; step++) {
        int rows[2] = {16 * (30 + below(5)), 16 * (35 + below(5))};
        struct gemm g[2];
        memset(c8, 0, sizeof c8);
        for (int i = 0; i < 2; i++)
            g[i] = (struct gemm){.transpose_b = true,
                                 .accumulate = true,
                                 .m = WIDTH,
                                 .n = WIDTH,
                                 .k = rows[i],
                                 .a = dy + i * rows[0],
                                 .b = x + i * rows[0],
                                 .c = c8 + i * WIDTH * WIDTH,
                                 .stride_a = rows[0] + rows[1],
                                 .stride_b = rows[0] + rows[1],
                                 .stride_c = WIDTH,
                                 .a_type = ELEMENT_E5M2,
                                 .b_type = ELEMENT_E4M3,
                                 .c_type = ELEMENT_F32,
                                 .scale_a = &factors[step % 4],
                                 .scale_b = &factors[1]};
        cuda_gemm(queue, 2, g);
        for (int i = 0; i < 2 * WIDTH * WIDTH; i++)
            right = right && c8[i] == (float)rows[i / (WIDTH * WIDTH)] * factors[step % 4] * factors[1];
    }
    *ret_choices = cublaslt_emulated_choices() - before;
    return right;
}

static int check_classes(void *queue)
{
    int failed = 0, choices;
    /* 480, 512, 576 and 640 of up to 1152 and of up to 1280 */
    if (!check_experts_of_8_bits(queue, &choices) || choices > 8) {
        printf("FAILED: gradients of experts in 8 bits, %d choices\n", choices);
        failed++;
    }
    for (int transpose_a = 0; transpose_a < 2; transpose_a++)
        if (!check_experts(queue, transpose_a, &choices) || choices != 4) {
            printf("FAILED: %s experts, %d choices\n", transpose_a ? "gradients of" : "products of", choices);
            failed++;
        }
    cublaslt_emulated_be_strict(1);
    if (!check_experts(queue, 0, &choices) || choices < 20) {
        printf("FAILED: a refused algorithm, %d choices\n", choices);
        failed++;
    }
    cublaslt_emulated_be_strict(0);
    return failed;
}

int main(void)
{
    const char *why = "";
    int queue = 0, failed = 0;
    if (cuda_gemm_start(&queue, &why) < 0)
        cuda_kernels_fail("cuda_gemm_start", why);
    for (int i = 0; i < ROUNDS && failed < 5; i++)
        if (!check_round(&queue)) {
            printf("FAILED: round %d\n", i);
            failed++;
        }
    for (int i = 0; i < EIGHT_ROUNDS && failed < 5; i++)
        if (!check_round_of_8_bits(&queue)) {
            printf("FAILED: round %d of 8 bits\n", i);
            failed++;
        }
    if (!check_choices(&queue)) {
        puts("FAILED: a shape is chosen more than once");
        failed++;
    }
    failed += check_classes(&queue);
    cuda_gemm_stop();
    printf("%d rounds, %d failed\n", ROUNDS, failed);
    return failed > 0;
}
