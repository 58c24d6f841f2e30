/* Products on the emulator, in place of kernels/cuda/gemm.c: when their turn in the stream comes, elements become
 * floats, are multiplied by the CPU's kernels, and are rounded as they are stored. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gemm.h"

/* rows x columns of a strided matrix, without gaps. */
static float *floats_of(const void *x, enum element type, int rows, int columns, int stride)
{
    float *y = malloc((size_t)rows * (size_t)columns * sizeof *y + 1);
    if (!y)
        abort();
    for (int r = 0; r < rows; r++)
        kernels_ref.convert(NULL, columns, type, element_at(type, x, (int64_t)r * stride), ELEMENT_F32,
                            y + (int64_t)r * columns);
    return y;
}

static void multiply(void *argument)
{
    const struct gemm *g = argument;
    struct gemm f = *g;
    float *a = floats_of(g->a, ELEMENT_BF16, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->stride_a);
    float *b = floats_of(g->b, ELEMENT_BF16, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->stride_b);
    float *c = floats_of(g->c, g->c_type, g->m, g->n, g->stride_c);
    f.a = a;
    f.b = b;
    f.c = c;
    f.stride_a = g->transpose_a ? g->m : g->k;
    f.stride_b = g->transpose_b ? g->k : g->n;
    f.stride_c = g->n;
    f.c_type = ELEMENT_F32;
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
        emulator_enqueue(queue, multiply, later, free);
    }
}

int cuda_gemm_start(void *queue, const char **ret_why)
{
    (void)queue;
    (void)ret_why;
    return 0;
}

void cuda_gemm_stop(void)
{
}

size_t cuda_gemm_bytes(void)
{
    return 0;
}
