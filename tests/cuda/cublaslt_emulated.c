/* cuBLASLt for kernels/cuda/gemm.c where no GPU is: column-major products by loops, at once. What its documentation
 * asks of a caller is checked: a leading dimension not below the rows, C in the place of D, addresses as aligned as was
 * declared, for each matrix of a batch, and a workspace that only one stream uses. The runtime's calls do nothing. */
#include "tests/cuda/cublaslt_emulated.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

enum { ALIGNMENTS = 4, WORKSPACES_MOST = 16 };

struct layout {
    cudaDataType type;
    int64_t rows, columns, stride, distance;
    int32_t batch;
};

/* Of a product. */
struct desc {
    int32_t transposed[2];
    int8_t fast;
    const float *scale[2]; /* of A and B, of 8 bits */
};

struct preference {
    uint32_t alignment[ALIGNMENTS];
    uint64_t workspace_bytes;
};

static struct {
    const void *workspace;
    cudaStream_t stream;
} owners[WORKSPACES_MOST];
static int n_owners, choices, strict;

/* The algorithm is what was declared, and for how large a product. */
struct algorithm {
    struct preference preference;
    int64_t rows, columns, depth;
};

static void demand(int held, const char *what)
{
    if (held)
        return;
    printf("FAILED: %s\n", what);
    exit(1);
}

static void *made(size_t bytes)
{
    void *memory = calloc(1, bytes);
    demand(memory != NULL, "memory");
    return memory;
}

void cublaslt_emulated_be_strict(int be_strict)
{
    strict = be_strict;
}

int cublaslt_emulated_choices(void)
{
    return choices;
}

/* --- descriptors ----------------------------------------------------------------------- */

static cublasStatus_t create(cublasLtHandle_t *ret)
{
    *ret = made(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop(void *any)
{
    free(any);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_create(struct desc **ret, cublasComputeType_t compute, cudaDataType_t scale)
{
    demand(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "sums and factors are fp32");
    *ret = made(sizeof **ret);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_set(struct desc *desc, cublasLtMatmulDescAttributes_t attribute, const void *value,
                               size_t bytes)
{
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
        demand(bytes == sizeof desc->transposed[0], "an operation is an int32_t");
        memcpy(&desc->transposed[attribute == CUBLASLT_MATMUL_DESC_TRANSB], value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        demand(bytes == sizeof desc->fast, "fast sums are an int8_t");
        memcpy(&desc->fast, value, bytes);
        break;
    default:
        demand(attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER || attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
               "an attribute that is known here");
        demand(bytes == sizeof desc->scale[0], "an address");
        memcpy(&desc->scale[attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER], value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_create(struct layout **ret, cudaDataType type, uint64_t rows, uint64_t columns,
                                    int64_t stride)
{
    demand(stride >= (int64_t)rows, "the leading dimension is not below the rows");
    *ret = made(sizeof **ret);
    **ret = (struct layout){type, (int64_t)rows, (int64_t)columns, stride, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_set(struct layout *layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                 size_t bytes)
{
    int count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    demand(count || attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, "a batch");
    demand(bytes == (count ? sizeof layout->batch : sizeof layout->distance), "a batch's numbers have their sizes");
    memcpy(count ? (void *)&layout->batch : (void *)&layout->distance, value, bytes);
    demand(layout->distance >= 0, "a batch goes forward");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_create(struct preference **ret)
{
    *ret = made(sizeof **ret);
    for (int i = 0; i < ALIGNMENTS; i++)
        (*ret)->alignment[i] = 256;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_set(struct preference *preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        demand(bytes == sizeof preference->workspace_bytes, "bytes are an uint64_t");
        memcpy(&preference->workspace_bytes, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    int at = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    demand(at >= 0 && at < ALIGNMENTS && bytes == sizeof preference->alignment[0], "an alignment");
    memcpy(&preference->alignment[at], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products ------------------------------------------------------------------------------ */

/* The algorithm is what was declared. */
static cublasStatus_t heuristic(cublasLtHandle_t handle, const struct desc *desc, const struct layout *a,
                                const struct layout *b, const struct layout *c, const struct layout *d,
                                const struct preference *preference, int asked, cublasLtMatmulHeuristicResult_t *ret,
                                int *ret_found)
{
    demand(handle && desc && a && b && c == d && asked == 1, "one algorithm is asked for");
    choices++;
    memset(ret, 0, sizeof *ret);
    struct algorithm algorithm = {*preference, c->rows, c->columns, desc->transposed[0] ? a->rows : a->columns};
    _Static_assert(sizeof algorithm <= sizeof ret->algo.data, "an algorithm has room for it");
    memcpy(ret->algo.data, &algorithm, sizeof algorithm);
    *ret_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static int is_8_bits(const struct layout *layout)
{
    return layout->type == CUDA_R_8F_E4M3 || layout->type == CUDA_R_8F_E5M2;
}

static int64_t bytes_of(const struct layout *layout)
{
    return is_8_bits(layout) ? 1 : layout->type == CUDA_R_32F ? 4 : 2;
}

/* The documentation of cublasLtMatmul on "FP8 kernels", and the table of types: A transposed and B not, dimensions and
 * addresses in whole 16 bytes, not both E5M2. */
static void check_8_bits(const struct desc *desc, const struct layout *a, const struct layout *b,
                         const struct layout *c)
{
    demand(is_8_bits(a) == is_8_bits(b), "both operands are of 8 bits");
    if (!is_8_bits(a))
        return;
    demand(desc->transposed[0] && !desc->transposed[1], "operands of 8 bits lie along the sum");
    demand(a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3, "one operand is E4M3");
    demand(desc->scale[0] && desc->scale[1], "operands of 8 bits have factors");
    demand((a->rows | a->columns | a->stride | b->columns | b->stride) % 16 == 0 && c->stride * bytes_of(c) % 16 == 0,
           "operands of 8 bits come in pieces of 16 bytes");
}

static float element(const struct layout *layout, const void *x, int64_t at)
{
    uint32_t bits;
    float value;
    if (is_8_bits(layout))
        return fp8_value(layout->type == CUDA_R_8F_E4M3 ? ELEMENT_E4M3 : ELEMENT_E5M2, ((const unsigned char *)x)[at]);
    if (layout->type == CUDA_R_32F)
        return ((const float *)x)[at];
    bits = (uint32_t)((const uint16_t *)x)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Values of the test have few bits: what is cut off is zero. */
static void store(const struct layout *layout, void *x, int64_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (layout->type == CUDA_R_32F)
        ((float *)x)[at] = value;
    else
        ((uint16_t *)x)[at] = (uint16_t)(bits >> 16);
}

static void check_address(const struct layout *layout, const void *x, uint32_t alignment)
{
    uintptr_t bytes = (uintptr_t)bytes_of(layout);
    if (is_8_bits(layout))
        demand(alignment % 16 == 0, "8 bits lie in pieces of 16 bytes");
    for (int i = 0; i < layout->batch; i++)
        demand(((uintptr_t)x + (uintptr_t)(i * layout->distance) * bytes) % alignment == 0,
               "a matrix is as aligned as was declared");
}

static void check_workspace(const void *workspace, cudaStream_t stream)
{
    int i = 0;
    while (i < n_owners && owners[i].workspace != workspace)
        i++;
    if (i == n_owners) {
        demand(n_owners < WORKSPACES_MOST, "few workspaces");
        owners[n_owners].workspace = workspace;
        owners[n_owners++].stream = stream;
    }
    demand(workspace && owners[i].stream == stream, "a workspace is of one stream");
}

static int64_t offset(const struct layout *layout, int transposed, int64_t row, int64_t column)
{
    return transposed ? column + row * layout->stride : row + column * layout->stride;
}

static cublasStatus_t matmul(cublasLtHandle_t handle, const struct desc *desc, const float *alpha, const void *a,
                             const struct layout *la, const void *b, const struct layout *lb, const float *beta,
                             const void *c, const struct layout *lc, void *d, const struct layout *ld,
                             const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t stream)
{
    struct algorithm chosen;
    memcpy(&chosen, algorithm->data, sizeof chosen);
    struct preference declared = chosen.preference;
    const int32_t *transposed = desc->transposed;
    int64_t depth = transposed[0] ? la->rows : la->columns;
    if (strict && (lc->rows != chosen.rows || lc->columns != chosen.columns || depth != chosen.depth))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    demand(lc->rows <= chosen.rows && lc->columns <= chosen.columns && depth <= chosen.depth,
           "no algorithm is taken for more than it was chosen for");
    demand(handle && *alpha == 1 && c == d && lc == ld && bytes >= declared.workspace_bytes, "d = a b, or d += a b");
    check_address(la, a, declared.alignment[0]);
    check_address(lb, b, declared.alignment[1]);
    check_address(lc, c, declared.alignment[2]);
    check_address(ld, d, declared.alignment[3]);
    check_workspace(workspace, stream);
    check_8_bits(desc, la, lb, lc);
    float scale = is_8_bits(la) ? *desc->scale[0] * *desc->scale[1] : 1;
    demand(lc->rows == (transposed[0] ? la->columns : la->rows) &&
               lc->columns == (transposed[1] ? lb->rows : lb->columns) &&
               depth == (transposed[1] ? lb->columns : lb->rows) && la->batch == lc->batch && lb->batch == lc->batch,
           "the shapes fit together");
    for (int64_t i = 0; i < lc->batch * lc->rows * lc->columns; i++) {
        int64_t row = i % lc->rows, column = i / lc->rows % lc->columns, one = i / lc->rows / lc->columns;
        int64_t at = one * lc->distance + row + column * lc->stride;
        float sum = 0;
        for (int64_t k = 0; k < depth; k++)
            sum += element(la, a, one * la->distance + offset(la, transposed[0], row, k)) *
                   element(lb, b, one * lb->distance + offset(lb, transposed[1], k, column));
        store(ld, d, at, scale * sum + (*beta == 0 ? 0 : *beta * element(lc, c, at)));
    }
    return CUBLAS_STATUS_SUCCESS;
}

static const char *status_name(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "no error" : "an error";
}

/* --- in place of the library, and of the runtime --------------------------------------------- */

void *cublaslt_emulated_open(const char *file, int mode)
{
    (void)mode;
    return (void *)(uintptr_t)file;
}

void *cublaslt_emulated_symbol(void *restrict handle, const char *restrict name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } symbols[] = {
        {"cublasLtCreate", (void (*)(void))create},
        {"cublasLtDestroy", (void (*)(void))drop},
        {"cublasLtMatmulDescCreate", (void (*)(void))desc_create},
        {"cublasLtMatmulDescDestroy", (void (*)(void))drop},
        {"cublasLtMatmulDescSetAttribute", (void (*)(void))desc_set},
        {"cublasLtMatrixLayoutCreate", (void (*)(void))layout_create},
        {"cublasLtMatrixLayoutDestroy", (void (*)(void))drop},
        {"cublasLtMatrixLayoutSetAttribute", (void (*)(void))layout_set},
        {"cublasLtMatmulPreferenceCreate", (void (*)(void))preference_create},
        {"cublasLtMatmulPreferenceDestroy", (void (*)(void))drop},
        {"cublasLtMatmulPreferenceSetAttribute", (void (*)(void))preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", (void (*)(void))heuristic},
        {"cublasLtMatmul", (void (*)(void))matmul},
        {"cublasLtGetStatusName", (void (*)(void))status_name},
    };
    (void)handle;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        if (strcmp(symbols[i].name, name) == 0) {
            void *address;
            memcpy(&address, &symbols[i].function, sizeof address);
            return address;
        }
    return NULL;
}

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
    *ret = aligned_alloc(256, bytes);
    return *ret ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
    (void)flags;
    *ret = made(1);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags)
{
    (void)flags;
    *ret = made(1);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error";
}

cudaError_t cudaMemset2DAsync(void *memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    (void)stream;
    demand(width <= pitch, "rows are not wider than they are apart");
    for (size_t row = 0; row < height; row++)
        memset((char *)memory + row * pitch, value, width);
    return cudaSuccess;
}
