/* Products on the emulator, in place of kernels/cuda/gemm.c: when their turn in the stream comes, elements become
 * floats, are multiplied by the CPU's kernels, and are rounded as they are stored. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gemm.h"

/* What cuBLASLt asks of 8-bit operands on Hopper (kernels.h). */
static void check_8_bits(const struct gemm *g)
{
    const uintptr_t address[] = {(uintptr_t)g->a, (uintptr_t)g->b, (uintptr_t)g->c};
    bool right = !g->transpose_a && g->transpose_b && !(g->a_type == ELEMENT_E5M2 && g->b_type == ELEMENT_E5M2);
    for (int i = 0; i < 3; i++)
        right = right && address[i] % 16 == 0;
    if (!right || (g->m | g->n | g->k | g->stride_a | g->stride_b) % 16 != 0)
        cuda_kernels_fail("cuda_gemm", "no way for these operands of 8 bits");
}

/* rows x columns of a strided matrix, without gaps. */
static float *floats_of(const void *x, enum element type, int rows, int columns, int stride)
{
    float *y = malloc((size_t)rows * (size_t)columns * sizeof *y + 1);
    if (!y)
        abort();
    for (int r = 0; r < rows && element_bytes(type) == 1; r++)
        for (int c = 0; c < columns; c++)
            y[(int64_t)r * columns + c] = fp8_value(type, ((const unsigned char *)x)[(int64_t)r * stride + c]);
    for (int r = 0; r < rows && element_bytes(type) > 1; r++)
        kernels_ref.convert(NULL, columns, type, element_at(type, x, (int64_t)r * stride), ELEMENT_F32,
                            y + (int64_t)r * columns);
    return y;
}

static void multiply(void *argument)
{
    const struct gemm *g = argument;
    struct gemm f = *g;
    float *a = floats_of(g->a, g->scale_a ? g->a_type : ELEMENT_BF16, g->transpose_a ? g->k : g->m,
                         g->transpose_a ? g->m : g->k, g->stride_a);
    float *b = floats_of(g->b, g->scale_b ? g->b_type : ELEMENT_BF16, g->transpose_b ? g->n : g->k,
                         g->transpose_b ? g->k : g->n, g->stride_b);
    float *c = floats_of(g->c, g->c_type, g->m, g->n, g->stride_c);
    f.a = a;
    f.b = b;
    f.c = c;
    f.stride_a = g->transpose_a ? g->m : g->k;
    f.stride_b = g->transpose_b ? g->k : g->n;
    f.stride_c = g->n;
    f.c_type = ELEMENT_F32;
    f.scale_a = f.scale_b = NULL;
    for (int64_t i = 0; g->scale_a && i < (int64_t)g->m * g->k; i++)
        a[i] *= *g->scale_a * *g->scale_b;
    kernels_cpu.gemm(NULL, 1, &f);
    for (int r = 0; r < g->m; r++)
        kernels_ref.convert(NULL, g->n, ELEMENT_F32, c + (int64_t)r * g->n, g->c_type,
                            element_at(g->c_type, g->c, (int64_t)r * g->stride_c));
    free(a);
    free(b);
    free(c);
}

void cuda_gemm(void *queue, int n, const struct gemm *gemm)
{
    for (int i = 0; i < n; i++) {
        struct gemm *later = malloc(sizeof *later);
        if (!later)
            abort();
        *later = gemm[i];
        if (gemm[i].scale_a && gemm[i].m > 0 && gemm[i].n > 0 && gemm[i].k > 0)
            check_8_bits(&gemm[i]);
        emulator_enqueue(queue, multiply, later, free);
    }
}

int cuda_gemm_start(void *queue, const char **ret_why)
{
    (void)queue;
    (void)ret_why;
    return 0;
}

void cuda_gemm_stop(void) {}

size_t cuda_gemm_bytes(void)
{
    return 0;
}
