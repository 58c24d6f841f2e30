/* Products by OpenBLAS (the one place that includes cblas.h, with cpu/attention.c); operands of 8 bits become floats
 * first. */
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <stdlib.h>

static void product(const struct gemm *g, float scale)
{
    cblas_sgemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans, g->transpose_b ? CblasTrans : CblasNoTrans,
                g->m, g->n, g->k, scale, g->a, g->stride_a, g->b, g->stride_b, g->accumulate ? 1 : 0, g->c,
                g->stride_c);
}

/* Without gaps between rows. */
static float *floats_of(enum element type, const unsigned char *x, int rows, int columns, int stride)
{
    float *y = malloc((size_t)rows * (size_t)columns * sizeof *y + 1), value[256];
    if (!y)
        abort();
    for (int bits = 0; bits < 256; bits++)
        value[bits] = fp8_value(type, (unsigned char)bits);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            y[(int64_t)r * columns + c] = value[x[(int64_t)r * stride + c]];
    return y;
}

static void product_of_8_bits(const struct gemm *g)
{
    struct gemm f = *g;
    float *a = floats_of(g->a_type, g->a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->stride_a);
    float *b = floats_of(g->b_type, g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->stride_b);
    f.a = a;
    f.b = b;
    f.stride_a = g->transpose_a ? g->m : g->k;
    f.stride_b = g->transpose_b ? g->k : g->n;
    product(&f, *g->scale_a * *g->scale_b);
    free(a);
    free(b);
}

void cpu_gemm(void *queue, int n, const struct gemm *gemm)
{
    (void)queue;
    for (int i = 0; i < n; i++) {
        if (gemm[i].m == 0 || gemm[i].n == 0)
            continue;
        if (gemm[i].scale_a)
            product_of_8_bits(&gemm[i]);
        else
            product(&gemm[i], 1);
    }
}

void kernels_cpu_threads(int threads)
{
    openblas_set_num_threads(threads);
}
