/* Products by OpenBLAS (the one place that includes cblas.h, with cpu/attention.c). */
#include "kernels/cpu/cpu.h"

#include <cblas.h>

static void product(const struct gemm *g)
{
    if (g->m > 0 && g->n > 0)
        cblas_sgemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
                    g->transpose_b ? CblasTrans : CblasNoTrans, g->m, g->n, g->k, 1, g->a, g->stride_a, g->b,
                    g->stride_b, g->accumulate ? 1 : 0, g->c, g->stride_c);
}

void cpu_gemm(void *queue, int n, const struct gemm *gemm)
{
    (void)queue;
    for (int i = 0; i < n; i++)
        product(&gemm[i]);
}

void kernels_cpu_threads(int threads)
{
    openblas_set_num_threads(threads);
}
