/* c = op(a) op(b), sums in double. */
#include "kernels/ref/ref.h"

float ref_operand(enum element type, const void *x, int64_t i)
{
    return type == ELEMENT_F32 ? ((const float *)x)[i] : fp8_value(type, ((const unsigned char *)x)[i]);
}

static void product(const struct gemm *g)
{
    float *c = g->c;
    double scale = g->scale_a ? (double)*g->scale_a * (double)*g->scale_b : 1;
    enum element a_type = g->scale_a ? g->a_type : ELEMENT_F32, b_type = g->scale_a ? g->b_type : ELEMENT_F32;
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            double sum = 0;
            for (int l = 0; l < g->k; l++) {
                float left = ref_operand(a_type, g->a,
                                         g->transpose_a ? (int64_t)l * g->stride_a + i : (int64_t)i * g->stride_a + l);
                float right = ref_operand(b_type, g->b,
                                          g->transpose_b ? (int64_t)j * g->stride_b + l : (int64_t)l * g->stride_b + j);
                sum += (double)left * (double)right;
            }
            float *at = &c[(int64_t)i * g->stride_c + j];
            *at = (float)(sum * scale + (g->accumulate ? (double)*at : 0));
        }
}

void ref_gemm(void *queue, int n, const struct gemm *gemm)
{
    (void)queue;
    for (int i = 0; i < n; i++)
        product(&gemm[i]);
}
