/* c = op(a) op(b), sums in double. */
#include "kernels/ref/ref.h"

static void product(const struct gemm *g)
{
    const float *a = g->a, *b = g->b;
    float *c = g->c;
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            double sum = g->accumulate ? (double)c[(int64_t)i * g->stride_c + j] : 0;
            for (int l = 0; l < g->k; l++) {
                float left = g->transpose_a ? a[(int64_t)l * g->stride_a + i] : a[(int64_t)i * g->stride_a + l];
                float right = g->transpose_b ? b[(int64_t)j * g->stride_b + l] : b[(int64_t)l * g->stride_b + j];
                sum += (double)left * (double)right;
            }
            c[(int64_t)i * g->stride_c + j] = (float)sum;
        }
}

void ref_gemm(void *queue, int n, const struct gemm *gemm)
{
    (void)queue;
    for (int i = 0; i < n; i++)
        product(&gemm[i]);
}
