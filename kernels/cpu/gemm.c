/* Products by OpenBLAS (the one place that includes cblas.h, with cpu/attention.c). */
#include "kernels/cpu/cpu.h"

#include <cblas.h>

void cpu_gemm(void *queue, bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int stride_a,
              const float *b, int stride_b, bool accumulate, float *c, int stride_c)
{
    (void)queue;
    if (m > 0 && n > 0)
        cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans, m,
                    n, k, 1, a, stride_a, b, stride_b, accumulate ? 1 : 0, c, stride_c);
}

void kernels_cpu_threads(int threads)
{
    openblas_set_num_threads(threads);
}
