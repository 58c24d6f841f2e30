/* c = op(a) op(b) by cuBLASLt: bf16 or 8 bits in, bf16 or fp32 out, sums in fp32.
 *
 * Row-major matrices are the transposes of column-major ones, so c^T = op(b)^T op(a)^T is asked for: b comes first, and
 * c has n rows. What a shape needs - descriptors, layouts and the algorithm that cuBLASLt's heuristics put first - is
 * kept. Several products of one shape at equal distances are one batched call; others (experts with different numbers
 * of rows) are spread over a few streams, as small products alone do not fill a GPU. Those numbers are new in every step,
 * and heuristics take longer than a small product: such products take the algorithm of their rows rounded up to one of
 * eight sizes between powers of two, at least 16; should cuBLASLt refuse it for the very shape, that shape's own. */
#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_kernels.h"

enum {
    STREAMS = 4,               /* beside the queue itself; TransformerEngine uses as many for experts */
    SHAPES = 1024,             /* kept, */
    WAYS = 8,                  /* each in one of as many places */
    BESIDE = 1 << 8,           /* in a key's flags: of products that run beside one another */
    WORKSPACE_BYTES = 32 << 20 /* what NVIDIA recommends for Hopper (cuBLAS documentation, cublasSetWorkspace) */
};

/* --- the library, loaded when a GPU is opened ----------------------------------------- */

static struct {
    void *handle;
    cublasStatus_t (*create)(cublasLtHandle_t *);
    cublasStatus_t (*destroy)(cublasLtHandle_t);
    cublasStatus_t (*desc_create)(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
    cublasStatus_t (*desc_destroy)(cublasLtMatmulDesc_t);
    cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t);
    cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t);
    cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t);
    cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t);
    cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *);
    cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t);
    cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *,
                                     size_t);
    cublasStatus_t (*heuristic)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                cublasLtMatmulHeuristicResult_t *, int *);
    cublasStatus_t (*matmul)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t,
                             const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,
                             void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,
                             cudaStream_t);
    const char *(*status_name)(cublasStatus_t);
} lt;

static int load(const char **ret_why)
{
    static char why[256];
    static const struct {
        const char *name;
        void *function; /* where its address goes */
    } symbols[] = {
        {"cublasLtCreate", &lt.create},
        {"cublasLtDestroy", &lt.destroy},
        {"cublasLtMatmulDescCreate", &lt.desc_create},
        {"cublasLtMatmulDescDestroy", &lt.desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &lt.desc_set},
        {"cublasLtMatrixLayoutCreate", &lt.layout_create},
        {"cublasLtMatrixLayoutDestroy", &lt.layout_destroy},
        {"cublasLtMatrixLayoutSetAttribute", &lt.layout_set},
        {"cublasLtMatmulPreferenceCreate", &lt.preference_create},
        {"cublasLtMatmulPreferenceDestroy", &lt.preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &lt.preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic},
        {"cublasLtMatmul", &lt.matmul},
        {"cublasLtGetStatusName", &lt.status_name},
    };
    char name[64], path[128];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
    lt.handle = dlopen(name, RTLD_NOW);
    if (!lt.handle)
        lt.handle = dlopen(path, RTLD_NOW);
    snprintf(why, sizeof why, "%s", lt.handle ? "" : dlerror());
    for (size_t i = 0; lt.handle && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(lt.handle, symbols[i].name);
        if (!address)
            snprintf(why, sizeof why, "%s has no %s", name, symbols[i].name);
        memcpy(symbols[i].function, &address, sizeof address);
    }
    *ret_why = why;
    return why[0] ? -1 : 0;
}

static void check(cublasStatus_t status, const char *call, int line)
{
    char what[256];
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    snprintf(what, sizeof what, "%s at gemm.c:%d", call, line);
    cuda_kernels_fail(what, lt.status_name(status));
}
#define LT_CHECK(call) check((call), #call, __LINE__)

static void check_cuda(cudaError_t error, const char *call, int line)
{
    char what[256];
    if (error == cudaSuccess)
        return;
    snprintf(what, sizeof what, "%s at gemm.c:%d", call, line);
    cuda_kernels_fail(what, cudaGetErrorString(error));
}
#define CUDA_CHECK(call) check_cuda((call), #call, __LINE__)

/* --- shapes ------------------------------------------------------------------------------ */

/* All that decides how a product is computed; no padding, compared as bytes. Alignments are those of the addresses,
 * which cuBLASLt takes for 256 bytes when it isn't told. */
struct key {
    int32_t m, n, k, stride_a, stride_b, stride_c, batch, flags, a_type, b_type, c_type, alignment_a, alignment_b,
        alignment_c, unused;
    int64_t batch_a, batch_b, batch_c; /* elements from one product of the batch to the next */
};

struct shape {
    uint64_t asked_for; /* when last, in calls; 0 = nothing is here */
    struct key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

static struct {
    cublasLtHandle_t handle;
    cudaStream_t queue, stream[STREAMS];
    cudaEvent_t before, after[STREAMS];
    void *workspace[1 + STREAMS]; /* those of the streams when first used */
    size_t bytes;
    uint64_t calls;
    struct shape shape[SHAPES];
} state;

/* Of every matrix of a batch. */
static int32_t alignment_of(const void *first, int64_t distance, enum element type)
{
    uintptr_t bits = (uintptr_t)first | (uintptr_t)distance * element_bytes(type) | 256;
    return (int32_t)(bits & ~(bits - 1));
}

static enum element type_of_a(const struct gemm *g)
{
    return g->scale_a ? g->a_type : ELEMENT_BF16;
}

static enum element type_of_b(const struct gemm *g)
{
    return g->scale_b ? g->b_type : ELEMENT_BF16;
}

static struct key key_of(const struct gemm *g, int batch, const int64_t *distance)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.m = g->m;
    key.n = g->n;
    key.k = g->k;
    key.stride_a = g->stride_a;
    key.stride_b = g->stride_b;
    key.stride_c = g->stride_c;
    key.batch = batch;
    key.flags = g->transpose_a | g->transpose_b << 1 | g->accumulate << 2 | g->fast_sums << 3;
    key.a_type = type_of_a(g);
    key.b_type = type_of_b(g);
    key.c_type = g->c_type;
    if (batch > 1) {
        key.batch_a = distance[0];
        key.batch_b = distance[1];
        key.batch_c = distance[2];
    }
    key.alignment_a = alignment_of(g->a, key.batch_a, type_of_a(g));
    key.alignment_b = alignment_of(g->b, key.batch_b, type_of_b(g));
    key.alignment_c = alignment_of(g->c, key.batch_c, g->c_type);
    return key;
}

static uint64_t hash_of(const struct key *key)
{
    const unsigned char *at = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static cudaDataType type_of(enum element type)
{
    static const cudaDataType types[ELEMENT_TYPES] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2};
    return types[type];
}

static cublasLtMatrixLayout_t layout(cudaDataType type, int rows, int columns, int stride, int batch, int64_t distance)
{
    cublasLtMatrixLayout_t made;
    LT_CHECK(lt.layout_create(&made, type, (uint64_t)rows, (uint64_t)columns, stride));
    if (batch > 1) {
        int32_t count = batch;
        LT_CHECK(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
        LT_CHECK(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &distance, sizeof distance));
    }
    return made;
}

static void refuse(const struct key *key, cublasStatus_t status)
{
    char what[256];
    snprintf(
        what, sizeof what,
        "cuBLASLt has no way for %d products of %d x %d x %d in %s, rows %d, %d, %d apart, aligned to %d, %d, %d bytes",
        key->batch, key->m, key->n, key->k, element_names[key->a_type], key->stride_a, key->stride_b, key->stride_c,
        key->alignment_a, key->alignment_b, key->alignment_c);
    cuda_kernels_fail(what, lt.status_name(status));
}

static void choose_algorithm(struct shape *s)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    size_t most = WORKSPACE_BYTES;
    int found = 0;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        int32_t bytes;
    } alignment[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->key.alignment_b}, /* cuBLAS's A is b */
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->key.alignment_a},
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->key.alignment_c},
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->key.alignment_c}};
    LT_CHECK(lt.preference_create(&preference));
    LT_CHECK(lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    for (int i = 0; i < 4; i++) {
        uint32_t bytes = (uint32_t)alignment[i].bytes;
        LT_CHECK(lt.preference_set(preference, alignment[i].attribute, &bytes, sizeof bytes));
    }
    cublasStatus_t status = lt.heuristic(state.handle, s->desc, s->b, s->a, s->c, s->c, preference, 1, &result, &found);
    lt.preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
        refuse(&s->key, status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_NOT_SUPPORTED);
    s->algorithm = result.algo;
}

static void forget(struct shape *s)
{
    if (s->asked_for == 0)
        return;
    lt.desc_destroy(s->desc);
    lt.layout_destroy(s->a);
    lt.layout_destroy(s->b);
    lt.layout_destroy(s->c);
    s->asked_for = 0;
}

static bool is_of(const struct shape *s, const struct key *key)
{
    return s->asked_for > 0 && memcmp(&s->key, key, sizeof *key) == 0;
}

/* Where it is, or is to be: in the place that was not asked for for longest. */
static struct shape *place_of(const struct key *key)
{
    struct shape *set = &state.shape[hash_of(key) % (SHAPES / WAYS) * WAYS], *oldest = set;
    for (int way = 0; way < WAYS; way++) {
        if (is_of(&set[way], key))
            return &set[way];
        if (set[way].asked_for < oldest->asked_for)
            oldest = &set[way];
    }
    return oldest;
}

static struct shape *shape_of(const struct gemm *g, const struct key *key);

/* Whether rows of activations are what is summed over: weights' gradients. Those of 8 bits have both factors turned before. */
static bool sums_rows(const struct gemm *g)
{
    return g->scale_a ? g->c_type == ELEMENT_F32 : g->transpose_a;
}

static int rows_class(int rows)
{
    int step = 16;
    while (step * 16 <= rows)
        step *= 2;
    return (rows + step - 1) / step * step;
}

/* Rows that are summed over lie along a matrix of 8 bits. How far its lines are apart, and where an expert's part of them
 * begins, then are numbers of the step as well: they belong to the class, for pieces of 16 bytes. */
static void widen(int *stride, int32_t *alignment)
{
    *stride = rows_class(*stride);
    *alignment = *alignment < 16 ? *alignment : 16;
}

/* The algorithm of the shape's class, where that is another shape. The class is kept like any shape, and is as young as
 * the youngest that asked for it. */
static void choose_for(struct shape *s, const struct gemm *g)
{
    struct gemm whole = *g;
    struct key key = s->key;
    if (key.flags & BESIDE) {
        int *rows = sums_rows(g) ? &whole.k : &whole.m;
        *rows = rows_class(*rows);
        if (sums_rows(g) && !g->transpose_a)
            widen(&whole.stride_a, &key.alignment_a);
        if (sums_rows(g) && g->transpose_b)
            widen(&whole.stride_b, &key.alignment_b);
    }
    key.m = whole.m;
    key.k = whole.k;
    key.stride_a = whole.stride_a;
    key.stride_b = whole.stride_b;
    if (is_of(s, &key))
        choose_algorithm(s);
    else
        s->algorithm = shape_of(&whole, &key)->algorithm;
}

/* Where the factors are; cuBLAS's A is b. */
static void set_scales(const struct gemm *g, cublasLtMatmulDesc_t desc)
{
    if (!g->scale_a)
        return;
    LT_CHECK(lt.desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->scale_b, sizeof g->scale_b));
    LT_CHECK(lt.desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->scale_a, sizeof g->scale_a));
}

/* a and b as column-major matrices: their transposes. */
static struct shape *shape_of(const struct gemm *g, const struct key *key)
{
    struct shape *s = place_of(key);
    bool known = is_of(s, key);
    if (!known)
        forget(s);
    s->asked_for = ++state.calls;
    if (known)
        return s;
    s->key = *key;
    cublasOperation_t first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, /* cuBLAS's A is b */
        second = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_CHECK(lt.desc_create(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_CHECK(lt.desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    LT_CHECK(lt.desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (g->fast_sums) {
        int8_t fast = 1;
        LT_CHECK(lt.desc_set(s->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
    }
    set_scales(g, s->desc); /* some ways to multiply are for such matrices only */
    s->a = layout(type_of(type_of_a(g)), g->transpose_a ? g->m : g->k, g->transpose_a ? g->k : g->m, g->stride_a,
                  key->batch, key->batch_a);
    s->b = layout(type_of(type_of_b(g)), g->transpose_b ? g->k : g->n, g->transpose_b ? g->n : g->k, g->stride_b,
                  key->batch, key->batch_b);
    s->c = layout(type_of(g->c_type), g->n, g->m, g->stride_c, key->batch, key->batch_c);
    choose_for(s, g);
    return s;
}

static bool is_empty(const struct gemm *g)
{
    return g->m == 0 || g->n == 0 || g->k == 0;
}

/* A sum of nothing: an expert without rows. */
static void clear(const struct gemm *g, cudaStream_t stream)
{
    size_t element = element_bytes(g->c_type);
    if (!g->accumulate && g->m > 0 && g->n > 0)
        CUDA_CHECK(
            cudaMemset2DAsync(g->c, (size_t)g->stride_c * element, 0, (size_t)g->n * element, (size_t)g->m, stream));
}

/* place: 0 = the queue itself, else 1 + stream. */
static void multiply(const struct gemm *g, int batch, const int64_t *distance, int place)
{
    cudaStream_t stream = place == 0 ? state.queue : state.stream[place - 1];
    if (is_empty(g)) {
        clear(g, stream);
        return;
    }
    const float one = 1, zero = 0;
    struct key key = key_of(g, batch, distance);
    key.flags |= place > 0 ? BESIDE : 0;
    struct shape *s = shape_of(g, &key);
    set_scales(g, s->desc);
    if (!state.workspace[place]) {
        CUDA_CHECK(cudaMalloc(&state.workspace[place], WORKSPACE_BYTES));
        state.bytes += WORKSPACE_BYTES;
    }
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int again = 0; again < 2; again++) {
        status = lt.matmul(state.handle, s->desc, &one, g->b, s->b, g->a, s->a, g->accumulate ? &one : &zero, g->c,
                           s->c, g->c, s->c, &s->algorithm, state.workspace[place], WORKSPACE_BYTES, stream);
        if (status == CUBLAS_STATUS_SUCCESS || place == 0)
            break;
        choose_algorithm(s); /* nothing was queued */
    }
    check(status, "cublasLtMatmul", __LINE__);
}

/* --- several products ----------------------------------------------------------------------- */

static int64_t distance_of(const void *from, const void *to, enum element type)
{
    return ((const char *)to - (const char *)from) / (int64_t)element_bytes(type);
}

static bool is_same_shape(const struct gemm *a, const struct gemm *b)
{
    return a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b && a->accumulate == b->accumulate &&
           a->m == b->m && a->n == b->n && a->k == b->k && a->stride_a == b->stride_a && a->stride_b == b->stride_b &&
           a->stride_c == b->stride_c && a->c_type == b->c_type && a->scale_a == b->scale_a &&
           a->scale_b == b->scale_b && type_of_a(a) == type_of_a(b) && type_of_b(a) == type_of_b(b) &&
           a->fast_sums == b->fast_sums;
}

/* All of one shape, each as far behind the one before. */
static bool is_batch(int n, const struct gemm *g, int64_t ret_distance[3])
{
    if (n < 2 || is_empty(&g[0]))
        return false;
    for (int i = 1; i < n; i++) {
        const int64_t distance[3] = {distance_of(g[i - 1].a, g[i].a, type_of_a(&g[i])),
                                     distance_of(g[i - 1].b, g[i].b, type_of_b(&g[i])),
                                     distance_of(g[i - 1].c, g[i].c, g[i].c_type)};
        if (!is_same_shape(&g[0], &g[i]) || (i > 1 && memcmp(distance, ret_distance, sizeof distance) != 0))
            return false;
        memcpy(ret_distance, distance, sizeof distance);
    }
    return ret_distance[0] >= 0 && ret_distance[1] >= 0 && ret_distance[2] >= 0;
}

static void multiply_beside(int n, const struct gemm *g)
{
    CUDA_CHECK(cudaEventRecord(state.before, state.queue));
    for (int i = 0; i < STREAMS; i++)
        CUDA_CHECK(cudaStreamWaitEvent(state.stream[i], state.before, 0));
    for (int i = 0; i < n; i++)
        multiply(&g[i], 1, NULL, 1 + i % STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        CUDA_CHECK(cudaEventRecord(state.after[i], state.stream[i]));
        CUDA_CHECK(cudaStreamWaitEvent(state.queue, state.after[i], 0));
    }
}

void cuda_gemm(void *queue, int n, const struct gemm *gemm)
{
    int64_t distance[3];
    if (queue != state.queue)
        cuda_kernels_fail("cuda_gemm", "not the queue that it was started with");
    if (is_batch(n, gemm, distance))
        multiply(gemm, n, distance, 0);
    else if (n > 1)
        multiply_beside(n, gemm);
    else if (n == 1)
        multiply(gemm, 1, NULL, 0);
}

/* --- life --------------------------------------------------------------------------------------- */

int cuda_gemm_start(void *queue, const char **ret_why)
{
    if (load(ret_why) < 0)
        return -1;
    cublasStatus_t status = lt.create(&state.handle);
    *ret_why = lt.status_name(status);
    if (status != CUBLAS_STATUS_SUCCESS)
        return -1;
    state.queue = queue;
    CUDA_CHECK(cudaEventCreateWithFlags(&state.before, cudaEventDisableTiming));
    for (int i = 0; i < STREAMS; i++) {
        CUDA_CHECK(cudaStreamCreateWithFlags(&state.stream[i], cudaStreamNonBlocking));
        CUDA_CHECK(cudaEventCreateWithFlags(&state.after[i], cudaEventDisableTiming));
    }
    return 0;
}

void cuda_gemm_stop(void)
{
    if (!state.handle)
        return;
    for (int i = 0; i < SHAPES; i++)
        forget(&state.shape[i]);
    for (int i = 0; i < STREAMS; i++) {
        cudaStreamDestroy(state.stream[i]);
        cudaEventDestroy(state.after[i]);
    }
    for (int i = 0; i < 1 + STREAMS; i++)
        cudaFree(state.workspace[i]);
    cudaEventDestroy(state.before);
    lt.destroy(state.handle);
    memset(&state, 0, sizeof state);
}

size_t cuda_gemm_bytes(void)
{
    return state.bytes;
}
