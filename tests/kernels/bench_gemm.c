/* Products as the executor asks for them, beside cuBLAS's own cublasGemmEx on the same operands, in turns.
 * Usage: bench_gemm [DIVISOR [SECONDS]]: sizes divided by 1 (standard), so long each time (0.02). Prints one line a product:
 * phase, tokens, outputs, inputs, seconds, TFLOP/s, cuBLAS's TFLOP/s (0 where there is no libcublas). Exit 77 without a
 * device. cuBLAS is loaded by name: planexec itself needs cuBLASLt alone. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/kernels/compare.h"
#include "tests/unit/test.h"

enum { ROUNDS = 3, FORWARD = 0, DGRAD, WGRAD, PHASES };

static struct place place;

/* -- cuBLAS ---------------------------------------------------------------------------- */

/* cublas_api.h, library_types.h */
enum { OP_N = 0, OP_T = 1, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, GEMM_DEFAULT = -1 };
enum { WORKSPACE_BYTES = 32 << 20 };

static struct {
    void *handle;
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*gemm)(void *handle, int first, int second, int m, int n, int k, const void *alpha, const void *a, int a_type,
                int stride_a, const void *b, int b_type, int stride_b, const void *beta, void *c, int c_type,
                int stride_c, int compute, int algorithm);
} cublas;

static void *opened(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                                        "/usr/local/cuda/lib64/libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW);
    return library;
}

static void open_cublas(void)
{
    static const struct {
        const char *name;
        void *function; /* where its address goes */
    } symbols[] = {{"cublasCreate_v2", &cublas.create},
                   {"cublasSetStream_v2", &cublas.set_stream},
                   {"cublasSetWorkspace_v2", &cublas.set_workspace},
                   {"cublasGemmEx", &cublas.gemm}};
    void *library = opened();
    for (size_t i = 0; library && i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address)
            return;
        memcpy(symbols[i].function, &address, sizeof address);
    }
    if (!library || cublas.create(&cublas.handle) != 0)
        cublas.handle = NULL;
    else if (cublas.set_stream(cublas.handle, place.queue) != 0 ||
             cublas.set_workspace(cublas.handle, place.allocate(WORKSPACE_BYTES), WORKSPACE_BYTES) != 0)
        cublas.handle = NULL;
}

/* Row-major matrices are transposes of column-major ones: b comes first. */
static void run_cublas(const struct gemm *g)
{
    const float one = 1, zero = 0;
    int status =
        cublas.gemm(cublas.handle, g->transpose_b ? OP_T : OP_N, g->transpose_a ? OP_T : OP_N, g->n, g->m, g->k, &one,
                    g->b, R_16BF, g->stride_b, g->a, R_16BF, g->stride_a, g->accumulate ? &one : &zero, g->c,
                    g->c_type == ELEMENT_F32 ? R_32F : R_16BF, g->stride_c, COMPUTE_32F, GEMM_DEFAULT);
    if (status != 0) {
        printf("cublasGemmEx: status %d\n", status);
        exit(1);
    }
}

static void run_ours(const struct gemm *g)
{
    place.kernels->gemm(place.queue, 1, g);
}

/* -- measuring --------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double seconds_of(void (*run)(const struct gemm *g), const struct gemm *g, double least_s)
{
    char byte;
    run(g); /* the first call chooses an algorithm */
    place.download(place.queue, &byte, g->a, 1);
    for (int calls = 1;; calls *= 2) {
        double start = now_s();
        for (int i = 0; i < calls; i++)
            run(g);
        place.download(place.queue, &byte, g->a, 1);
        double took = now_s() - start;
        if (took >= least_s || calls >= 1 << 20)
            return took / calls;
    }
}

/* y[m x n] = x[m x k] weight[n x k], its dx, its dweight. */
static struct gemm product(int phase, int m, int n, int k, void *a, void *b, void *c)
{
    enum element type = place.kernels->type;
    if (phase == FORWARD)
        return (struct gemm){.transpose_b = true,
                             .m = m,
                             .n = n,
                             .k = k,
                             .a = a,
                             .stride_a = k,
                             .b = b,
                             .stride_b = k,
                             .c = c,
                             .stride_c = n,
                             .c_type = type};
    if (phase == DGRAD)
        return (struct gemm){.m = m,
                             .n = k,
                             .k = n,
                             .a = a,
                             .stride_a = n,
                             .b = b,
                             .stride_b = k,
                             .c = c,
                             .stride_c = k,
                             .c_type = type};
    return (struct gemm){.transpose_a = true,
                         .accumulate = true,
                         .m = n,
                         .n = k,
                         .k = m,
                         .a = a,
                         .stride_a = n,
                         .b = b,
                         .stride_b = k,
                         .c = c,
                         .stride_c = k,
                         .c_type = ELEMENT_F32};
}

/* Numbers below 1, the same again after PATTERN: zeros take less power, as many random ones too long on the host. */
static void *filled(int64_t n)
{
    enum { PATTERN = 1 << 20 };
    size_t element = element_bytes(place.kernels->type);
    float *host = malloc(PATTERN * sizeof *host);
    void *elements = malloc(PATTERN * element);
    char *memory = place.allocate((size_t)n * element);
    if (!host || !elements || !memory) {
        printf("no room for %lld elements\n", (long long)n);
        exit(1);
    }
    uint32_t state = 12345;
    for (int i = 0; i < PATTERN; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    kernels_ref.convert(NULL, PATTERN, ELEMENT_F32, host, place.kernels->type, elements);
    for (int64_t at = 0; at < n; at += PATTERN) /* pageable: read when the call returns */
        place.upload(place.queue, memory + (size_t)at * element, elements,
                     (size_t)(n - at < PATTERN ? n - at : PATTERN) * element);
    free(host);
    free(elements);
    return memory;
}

/* Elements of the largest of the matrices of a product. */
static int64_t largest_of(int m, int n, int k)
{
    int64_t y = (int64_t)m * n, x = (int64_t)m * k, weight = (int64_t)n * k, most = y > x ? y : x;
    return most > weight ? most : weight;
}

static void measure(int phase, const struct gemm *g, int m, int n, int k, double least_s)
{
    static const char *const names[PHASES] = {"forward", "dgrad", "wgrad"};
    double ours_s = 1e9, cublas_s = 1e9, flop = 2.0 * m * n * k;
    for (int round = 0; round < ROUNDS; round++) {
        double s = seconds_of(run_ours, g, least_s);
        ours_s = s < ours_s ? s : ours_s;
        s = cublas.handle ? seconds_of(run_cublas, g, least_s) : cublas_s;
        cublas_s = s < cublas_s ? s : cublas_s;
    }
    printf("%s %d %d %d %.3e %.3f %.3f\n", names[phase], m, n, k, ours_s, flop / ours_s * 1e-12,
           cublas.handle ? flop / cublas_s * 1e-12 : 0);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    /* tokens, outputs, inputs: squares; a layer of 2048 x 16384 and one of 4096 x 14336 */
    static const int sizes[][3] = {{8192, 8192, 8192},   {4096, 4096, 4096},  {16384, 4096, 2048},
                                   {16384, 16384, 2048}, {16384, 2048, 8192}, {8192, 28672, 4096}};
    const char *why = NULL;
    int divisor = argc > 1 ? atoi(argv[1]) : 1;
    double least_s = argc > 2 ? strtod(argv[2], NULL) : 0.02;
    if (!place_open(&place, &why)) {
        test_skip(why);
        return test_report();
    }
    if (divisor < 1 || divisor > 512) {
        printf("bench_gemm: the divisor is 1 to 512\n");
        return 2;
    }
    open_cublas();
    int64_t largest = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t one = largest_of(sizes[i][0] / divisor, sizes[i][1] / divisor, sizes[i][2] / divisor);
        largest = one > largest ? one : largest;
    }
    void *a = filled(largest), *b = filled(largest), *c = filled(2 * largest); /* c may be floats */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int phase = 0; phase < PHASES; phase++) {
            int m = sizes[i][0] / divisor, n = sizes[i][1] / divisor, k = sizes[i][2] / divisor;
            struct gemm g = product(phase, m, n, k, a, b, c);
            measure(phase, &g, m, n, k, least_s);
        }
    place_close(&place);
    return 0;
}
