/* c = op(a) op(b), sums in double. */
#include "kernels/ref/ref.h"

void ref_gemm(void *queue, bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int stride_a,
              const float *b, int stride_b, bool accumulate, float *c, int stride_c)
{
    (void)queue;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = accumulate ? (double)c[(int64_t)i * stride_c + j] : 0;
            for (int l = 0; l < k; l++) {
                float left = transpose_a ? a[(int64_t)l * stride_a + i] : a[(int64_t)i * stride_a + l];
                float right = transpose_b ? b[(int64_t)j * stride_b + l] : b[(int64_t)l * stride_b + j];
                sum += (double)left * (double)right;
            }
            c[(int64_t)i * stride_c + j] = (float)sum;
        }
}
