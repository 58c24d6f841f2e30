/* How many bytes per second each kernel moves, of those that it must read and write, beside those of a plain copy.
 * Usage: bench_kernels [ROWS COLUMNS [SECONDS]], standard 16384 4096 0.05: buffers of 128 MiB in bf16, which no cache
 * holds. Prints one line a kernel: name, bytes of a call, seconds of a call, GB/s, share of the copy's GB/s. Where the
 * table's device is not there: exit 77. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/kernels/compare.h"
#include "tests/unit/test.h"

enum { EXPERTS = 128, CHOICES = 8, HEAD_DIM = 128 };

static struct {
    struct place place;
    int rows, columns;
    double least_s; /* a measurement takes this long */
    double copy_bytes_per_s;
    void *x, *y, *z; /* rows x 2 columns elements */
    float *f[4];     /* rows x columns floats */
    float *small[2]; /* rows + columns floats */
    int *index, *first;
    double *sum;
} b;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void wait_all(void)
{
    int word;
    b.place.download(b.place.queue, &word, b.index, sizeof word);
}

/* -- kernels, one call each ----------------------------------------------------------------------------------------- */

#define K (b.place.kernels)
#define Q (b.place.queue)
#define N ((int64_t)b.rows * b.columns)

static const struct adamw adamw = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.05f, 1};

static void run_copy(void)
{
    K->copy_block(Q, b.rows, b.columns, b.x, b.columns, false, b.y, b.columns);
}
static void run_add(void)
{
    K->add(Q, N, b.x, b.y);
}
static void run_narrow(void)
{
    K->convert(Q, N, ELEMENT_F32, b.f[0], K->type, b.y);
}
static void run_norm(void)
{
    K->norm_forward(Q, b.rows, b.columns, b.columns, 1e-5f, false, b.x, b.z, NULL, b.y, b.small[0], b.small[1]);
}
static void run_layer_norm(void)
{
    K->norm_forward(Q, b.rows, b.columns, b.columns, 1e-5f, true, b.x, b.z, b.z, b.y, b.small[0], b.small[1]);
}
static void run_add_norm(void)
{
    K->add_norm_forward(Q, b.rows, b.columns, b.columns, 1e-5f, false, b.z, b.x, b.z, NULL, b.y, b.small[0],
                        b.small[1]);
}
static void run_norm_backward(void)
{
    K->norm_backward(Q, b.rows, b.columns, b.columns, false, b.x, b.z, b.small[0], b.small[0], b.y, true, b.z, b.f[0],
                     NULL);
}
static void run_layer_norm_backward(void)
{
    K->norm_backward(Q, b.rows, b.columns, b.columns, true, b.x, b.z, b.small[0], b.small[0], b.y, true, b.z, b.f[0],
                     b.f[1]);
}
static void run_rotary(void)
{
    K->rotary(Q, b.rows, b.columns / HEAD_DIM, HEAD_DIM, b.columns, b.f[0], b.f[1], false, b.x);
}
static void run_swiglu(void)
{
    K->activation_forward(Q, ACTIVATION_SILU, true, b.rows, b.columns, b.x, b.y);
}
static void run_swiglu_backward(void)
{
    K->activation_backward(Q, ACTIVATION_SILU, true, b.rows, b.columns, b.x, b.y, b.z);
}
static void run_gelu(void)
{
    K->activation_forward(Q, ACTIVATION_GELU, false, b.rows, b.columns, b.x, b.y);
}
static void run_column_sum(void)
{
    K->column_sum(Q, b.rows, b.columns, b.x, b.f[0]);
}
static void run_embedding(void)
{
    K->embedding_forward(Q, b.rows, b.columns, b.index, 0, b.rows, b.x, b.y);
}
static void run_embedding_backward(void)
{
    K->embedding_backward(Q, b.rows, b.columns, b.index, 0, b.rows, b.y, b.f[0]);
}
static void run_logits_max(void)
{
    K->logits_max(Q, b.rows, b.columns, b.columns, b.x, b.small[0]);
}
static void run_logits_sum(void)
{
    K->logits_sum(Q, b.rows, b.columns, b.columns, b.x, b.small[0], b.index, 0, b.f[0], b.f[1]);
}
static void run_logits_gradient(void)
{
    K->logits_gradient(Q, b.rows, b.columns, b.columns, b.y, b.small[0], b.small[0], b.index, 0, 1e-4f);
}
static void run_gather(void)
{
    K->gather_rows(Q, b.rows, b.columns, b.index, b.small[0], b.x, b.y);
}
static void run_combine(void)
{
    K->combine_rows(Q, b.rows / CHOICES, b.columns, b.first, b.index, b.small[0], b.x, false, b.y);
}
static void run_dot(void)
{
    K->dot_rows(Q, b.rows, b.columns, b.index, b.x, b.y, b.f[0]);
}
static void run_router(void)
{
    K->router_forward(Q, b.rows, EXPERTS, CHOICES, true, b.f[0], (int *)b.f[1], b.f[2]);
}
static void run_adamw(void)
{
    struct adamw_part part = {0, N, 0.1f};
    K->adamw(Q, &adamw, 1, &part, b.f[0], b.f[1], b.f[2], b.f[3], b.y);
}
static void run_squares(void)
{
    struct adamw_part part = {0, N, 0};
    K->sum_squares(Q, 1, &part, b.f[0], b.sum);
}

static void cast_to(void *transposed)
{
    struct fp8_cast cast = {ELEMENT_E4M3, b.rows, b.columns, b.x, b.small[0], b.y, transposed, b.small[1]};
    K->fp8_cast(Q, &cast);
}

static void run_cast(void)
{
    cast_to(NULL);
}

static void run_cast_both_ways(void)
{
    cast_to(b.z);
}

static void run_transpose(void)
{
    K->fp8_transpose(Q, b.rows, b.columns, b.y, b.z);
}

/* elements and floats: reads and writes for each of the rows x columns; the backward table's gradient is touched once
 * for each distinct token, which are half of the rows here. */
static const struct {
    const char *name;
    void (*run)(void);
    double elements, floats;
} benches[] = {
    {"copy", run_copy, 2, 0},
    {"add", run_add, 3, 0},
    {"convert_f32_bf16", run_narrow, 1, 1},
    {"rms_norm", run_norm, 2, 0},
    {"layer_norm", run_layer_norm, 2, 0},
    {"add_rms_norm", run_add_norm, 4, 0},
    {"rms_norm_backward", run_norm_backward, 4, 0},
    {"layer_norm_backward", run_layer_norm_backward, 4, 0},
    {"rotary", run_rotary, 2, 0},
    {"swiglu", run_swiglu, 3, 0},
    {"swiglu_backward", run_swiglu_backward, 5, 0},
    {"gelu", run_gelu, 2, 0},
    {"column_sum", run_column_sum, 1, 0},
    {"embedding", run_embedding, 1.5, 0},
    {"embedding_backward", run_embedding_backward, 1, 1},
    {"logits_max", run_logits_max, 1, 0},
    {"logits_sum", run_logits_sum, 1, 0},
    {"logits_gradient", run_logits_gradient, 2, 0},
    {"gather_rows", run_gather, 1.5, 0},
    {"combine_rows", run_combine, 0.5 + 1.0 / CHOICES, 0},
    {"dot_rows", run_dot, 1.5, 0},
    {"router", run_router, 0, 0},
    {"adamw", run_adamw, 1, 7},
    {"sum_squares", run_squares, 0, 1},
    {"fp8_cast", run_cast, 1, 0.25},
    {"fp8_cast_both_ways", run_cast_both_ways, 1, 0.5},
    {"fp8_transpose", run_transpose, 0, 0.5},
};

/* -- measuring ------------------------------------------------------------------------------------------------------ */

static void *filled(size_t bytes, bool whole, int largest)
{
    char *host = malloc(bytes), *memory = b.place.allocate(bytes);
    if (!host || !memory) {
        printf("no room for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        float value = uniform(1);
        int number = (int)((i / 4 * 7919) % (size_t)largest);
        memcpy(host + i, whole ? (void *)&number : (void *)&value, 4);
    }
    b.place.upload(b.place.queue, memory, host, bytes); /* pageable: read when the call returns */
    free(host);
    return memory;
}

static void open_buffers(void)
{
    size_t n = (size_t)N, small = (size_t)(b.rows + b.columns) * 4;
    b.index = filled((size_t)b.rows * 4, true, (b.rows + 1) / 2);
    b.first = filled((size_t)(b.rows + 1) * 4, true, b.rows);
    int *first = calloc((size_t)b.rows + 1, sizeof *first);
    for (int r = 0; first && r <= b.rows / CHOICES; r++)
        first[r] = r * CHOICES;
    b.place.upload(b.place.queue, b.first, first, (size_t)(b.rows + 1) * 4);
    free(first);
    b.x = filled(2 * n * element_bytes(K->type), false, 1);
    b.y = filled(2 * n * element_bytes(K->type), false, 1);
    b.z = filled(2 * n * element_bytes(K->type), false, 1);
    for (int i = 0; i < 4; i++)
        b.f[i] = filled((n > (size_t)b.rows * EXPERTS ? n : (size_t)b.rows * EXPERTS) * 4, false, 1);
    b.small[0] = filled(small, false, 1);
    b.small[1] = filled(small, false, 1);
    b.sum = filled(8, false, 1);
}

static double seconds_of(void (*run)(void))
{
    run(); /* the first call may allocate */
    wait_all();
    for (int calls = 1;; calls *= 2) {
        double start = now_s();
        for (int i = 0; i < calls; i++)
            run();
        wait_all();
        double took = now_s() - start;
        if (took >= b.least_s || calls >= 1 << 20)
            return took / calls;
    }
}

int main(int argc, char **argv)
{
    const char *why = NULL;
    if (!place_open(&b.place, &why)) {
        test_skip(why);
        return test_report();
    }
    b.rows = argc > 2 ? atoi(argv[1]) : 16384;
    b.columns = argc > 2 ? atoi(argv[2]) : 4096;
    b.least_s = argc > 3 ? strtod(argv[3], NULL) : 0.05;
    if (b.rows < CHOICES || b.columns < HEAD_DIM) {
        printf("bench_kernels: at least %d rows and %d columns\n", CHOICES, HEAD_DIM);
        return 2;
    }
    compare_open(&b.place, 1);
    open_buffers();
    printf("table %s, %d x %d: kernel, bytes, seconds, GB/s, share of copy\n", K->name, b.rows, b.columns);
    for (int i = 0; i < (int)(sizeof benches / sizeof benches[0]); i++) {
        double bytes = (double)N * (benches[i].elements * (double)element_bytes(K->type) + benches[i].floats * 4);
        if (benches[i].run == run_router)
            bytes = (double)b.rows * (2 * EXPERTS + 2 * CHOICES) * 4;
        double s = seconds_of(benches[i].run);
        if (i == 0)
            b.copy_bytes_per_s = bytes / s;
        printf("%s %.0f %.3e %.1f %.3f\n", benches[i].name, bytes, s, bytes / s * 1e-9, bytes / s / b.copy_bytes_per_s);
    }
    return 0;
}
