/* The emulator of CUDA itself: what it computes, and that it finds what it promises to find (each fault in a child). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/primitives.cuh"
#include "tests/unit/test.h"

static void *device_bytes(size_t bytes)
{
    void *memory;
    CHECK(cudaMalloc(&memory, bytes) == cudaSuccess);
    return memory;
}

/* -- kernels ---------------------------------------------------------------------------------------------------------- */

__global__ void block_sum(int n, const float *x, float *sum)
{
    SHARED(float, partial, [32]);
    DYNAMIC_SHARED(float, tile);
    int t = (int)threadIdx.x, at = (int)(blockIdx.x * blockDim.x) + t;
    tile[t] = at < n ? x[at] : 0;
    __syncthreads();
    float value = warp_sum(tile[blockDim.x - 1 - t]);
    if (t % WARP == 0)
        partial[t / WARP] = value;
    __syncthreads();
    if (t < WARP) {
        value = warp_sum(t < (int)blockDim.x / WARP ? partial[t] : 0);
        if (t == 0)
            sum[blockIdx.x] = value;
    }
}

__global__ void lanes(int *out)
{
    int lane = (int)threadIdx.x;
    int *own = out + 8 * lane;
    own[0] = __shfl_sync(ALL_LANES, lane * 10, 5);
    own[1] = __shfl_xor_sync(ALL_LANES, lane, 3);
    own[2] = __shfl_down_sync(ALL_LANES, lane, 4);
    own[3] = __shfl_up_sync(ALL_LANES, lane, 4, 8);
    own[4] = (int)__ballot_sync(ALL_LANES, lane % 3 == 0);
    own[5] = __any_sync(ALL_LANES, lane == 31) + 2 * __all_sync(ALL_LANES, lane < 31);
    own[6] = lane < 8 ? __shfl_xor_sync(0xffu, lane, 1) : __shfl_xor_sync(0xffffff00u, lane, 2);
    own[7] = __syncthreads_count(lane < 7) + 100 * __syncthreads_or(lane == 9);
}

/* d[16 x 8] = a[16 x 16] b[16 x 8], a and b by ldmatrix from shared memory where they came by cp.async. */
__global__ void product(const element_t *a, const element_t *b, float *d)
{
    DYNAMIC_SHARED(element_t, tile); /* a: 16 rows of 16, b: 16 rows of 8 */
    int lane = (int)threadIdx.x;
    cp_async_16(tile + 8 * lane, a + 8 * lane);
    cp_async_commit();
    cp_async_16(tile + 256 + 8 * lane, b + 8 * (lane % 16), lane < 16);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    uint32_t left[4], right[2];
    float sum[4] = {0, 0, 0, 0};
    ldmatrix_x4(left, tile + (lane % 16) * 16 + lane / 16 * 8);
    ldmatrix_x2_trans(right, tile + 256 + (lane % 16) * 8);
    mma_16816(sum, left, right);
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = sum[i];
}

__global__ void add_one(int *x)
{
    if (threadIdx.x == 0)
        *x += 1;
}

__global__ void copy_word(const int *from, int *to)
{
    if (threadIdx.x == 0)
        *to = *from;
}

__global__ void wait_for_word(int *flag)
{
    SHARED(int, word, [1]);
    if (threadIdx.x == 40)
        word[0] = 7;
    else if (threadIdx.x == 3)
        while (*(volatile int *)word != 7)
            emulator::yield();
    __syncthreads();
    *flag = word[0];
}

__global__ void half_barrier(int *)
{
    if (threadIdx.x < 40)
        __syncthreads();
    __syncthreads();
}
__global__ void half_warp(int *x)
{
    if (threadIdx.x < 16)
        x[threadIdx.x] = (int)warp_sum(1);
    else
        __syncthreads();
}
__global__ void two_masks(int *x)
{
    *x = __shfl_sync(threadIdx.x < 16 ? ALL_LANES : 0xfffffffeu, 1, 3);
}
__global__ void beyond_dynamic(int *x)
{
    DYNAMIC_SHARED(int, tile);
    tile[x[0] == -1 ? 256 + threadIdx.x : 0] = 1;
}
__global__ void slightly_beyond_dynamic(int *)
{
    DYNAMIC_SHARED(int, tile);
    tile[17] = 1;
}
__global__ void beyond_static(int *x)
{
    SHARED(int, few, [3]);
    few[x[0] == -1 ? 3 : 0] = 1;
}
__global__ void uninitialised(float *y)
{
    SHARED(float, few, [3]);
    *y = few[1];
}
__global__ void beyond_global(int *x)
{
    x[16 + threadIdx.x] = 0;
}
__global__ void read_beyond_global(int *x)
{
    x[0] = x[64]; /* where the next allocation might begin */
}
__global__ void misaligned(int *x)
{
    *reinterpret_cast<float4 *>(x + 1) = make_float4(0, 0, 0, 0);
}
__global__ void forgotten_copy(int *x)
{
    DYNAMIC_SHARED(int, tile);
    cp_async_16(tile, x);
}
__global__ void missing_barrier(int *x)
{
    SHARED(int, word, [64]);
    word[threadIdx.x] = (int)threadIdx.x;
    x[threadIdx.x] = word[63 - threadIdx.x];
}

/* -- what is right ---------------------------------------------------------------------------------------------------- */

static void check_sums()
{
    enum { N = 1000, THREADS = 256 };
    static float x[N], sums[4];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 7);
    float *dx = (float *)device_bytes(sizeof x), *dsums = (float *)device_bytes(sizeof sums);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    LAUNCH(block_sum, 4, THREADS, THREADS * sizeof(float), nullptr, N, dx, dsums);
    cudaMemcpy(sums, dsums, sizeof sums, cudaMemcpyDeviceToHost);
    for (int b = 0; b < 4; b++) {
        float expected = 0;
        for (int i = b * THREADS; i < (b + 1) * THREADS && i < N; i++)
            expected += x[i];
        CHECK_DOUBLE(sums[b], expected, 0);
    }
    cudaFree(dx);
    cudaFree(dsums);
}

static void check_lanes()
{
    static int out[32][8];
    int *device = (int *)device_bytes(sizeof out);
    LAUNCH(lanes, 1, 32, 0, nullptr, device);
    cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost);
    for (int l = 0; l < 32; l++) {
        CHECK_INT(out[l][0], 50);
        CHECK_INT(out[l][1], l ^ 3);
        CHECK_INT(out[l][2], l < 28 ? l + 4 : l);
        CHECK_INT(out[l][3], l % 8 >= 4 ? l - 4 : l);
        CHECK_INT((unsigned)out[l][4], 0x49249249u);
        CHECK_INT(out[l][5], 1);
        CHECK_INT(out[l][6], l < 8 ? l ^ 1 : l ^ 2);
        CHECK_INT(out[l][7], 107);
    }
    cudaFree(device);
}

static void check_product()
{
    static element_t a[16][16], b[16][8];
    static float d[16][8];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            a[i][j] = __float2bfloat16((float)((i * 5 + j * 3) % 11 - 5));
            if (j < 8)
                b[i][j] = __float2bfloat16((float)((i * 7 + j * 2) % 13 - 6));
        }
    element_t *da = (element_t *)device_bytes(sizeof a), *db = (element_t *)device_bytes(sizeof b);
    float *dd = (float *)device_bytes(sizeof d);
    cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice);
    LAUNCH(product, 1, 32, 1024, nullptr, da, db, dd);
    cudaMemcpy(d, dd, sizeof d, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int l = 0; l < 16; l++)
                sum += __bfloat162float(a[i][l]) * __bfloat162float(b[l][j]);
            CHECK_DOUBLE(d[i][j], sum, 0);
        }
    cudaFree(da);
    cudaFree(db);
    cudaFree(dd);
}

static void check_rounding()
{
    CHECK_INT(__bfloat16_as_ushort(__float2bfloat16(1.00390625f)), 0x3f80); /* a tie goes to the even one */
    CHECK_INT(__bfloat16_as_ushort(__float2bfloat16(1.01171875f)), 0x3f82);
    CHECK_INT(__bfloat16_as_ushort(__float2bfloat16(-INFINITY)), 0xff80);
    CHECK_INT(__bfloat16_as_ushort(__float2bfloat16(3.4e38f)), 0x7f80);
    CHECK(isnan(__bfloat162float(__float2bfloat16(NAN))));
}

/* -- streams ---------------------------------------------------------------------------------------------------------- */

/* What another stream's copy sees of `one`, with and without an event; over seeds. */
static int seen(unsigned seed, bool with_event)
{
    int *words = (int *)device_bytes(2 * sizeof(int)), result = 0;
    cudaStream_t first, second;
    cudaEvent_t event;
    emulator_seed(seed);
    cudaMemset(words, 0, 2 * sizeof(int));
    cudaDeviceSynchronize(); /* the others do not wait for the legacy stream */
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (int i = 0; i < 3; i++)
        LAUNCH(add_one, 1, 32, 0, first, words);
    cudaEventRecord(event, first);
    LAUNCH(add_one, 1, 32, 0, first, words);
    if (with_event)
        cudaStreamWaitEvent(second, event, 0);
    LAUNCH(copy_word, 1, 32, 0, second, words, words + 1);
    cudaStreamSynchronize(second);
    cudaMemcpyAsync(&result, words + 1, sizeof result, cudaMemcpyDeviceToHost, second);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaEventDestroy(event);
    cudaFree(words);
    return result;
}

static void check_streams()
{
    int orders = 0, with_event = 0;
    for (unsigned seed = 1; seed <= 64; seed++) {
        orders |= 1 << seen(seed, false);
        with_event |= 1 << seen(seed, true);
    }
    CHECK_INT(orders, 31);     /* everything is possible, and happens */
    CHECK_INT(with_event, 24); /* 3 or 4 */
}

static void check_pinned()
{
    int *words = (int *)device_bytes(sizeof(int)), *pinned, ordinary = 5, result;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    CHECK(cudaMallocHost((void **)&pinned, sizeof(int)) == cudaSuccess);
    *pinned = 5;
    cudaMemcpyAsync(words, pinned, sizeof(int), cudaMemcpyHostToDevice, stream);
    *pinned = 6; /* too early: the copy has not run */
    cudaMemcpyAsync(&result, words, sizeof(int), cudaMemcpyDeviceToHost, stream);
    CHECK_INT(result, 6);
    cudaMemcpyAsync(words, &ordinary, sizeof(int), cudaMemcpyHostToDevice, stream);
    ordinary = 6;
    cudaMemcpyAsync(&result, words, sizeof(int), cudaMemcpyDeviceToHost, stream);
    CHECK_INT(result, 5);
    LAUNCH(add_one, 1, 32, 0, stream, words);
    cudaMemcpy(&result, words, sizeof(int), cudaMemcpyDeviceToHost); /* the legacy stream waits for blocking ones */
    CHECK_INT(result, 6);
    cudaFreeHost(pinned);
    cudaFree(words);
    cudaStreamDestroy(stream);
}

static void check_events()
{
    cudaEvent_t start, end;
    cudaStream_t stream;
    float ms = -1;
    cudaStreamCreate(&stream);
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    cudaEventRecord(start, stream);
    cudaEventRecord(end, stream);
    CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady && cudaGetLastError() == cudaSuccess);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, start, end) == cudaSuccess && ms >= 0);
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
}

/* -- what is found ------------------------------------------------------------------------------------------------------ */

enum fault {
    HALF_BARRIER,
    HALF_WARP,
    TWO_MASKS,
    BEYOND_DYNAMIC,
    SLIGHTLY_BEYOND,
    BEYOND_STATIC,
    BEYOND_GLOBAL,
    READ_BEYOND_GLOBAL,
    HOST_POINTER,
    MISALIGNED,
    FORGOTTEN_COPY,
    LONG_COPY,
    FAULTS
};

static void commit(int fault)
{
    int *x = (int *)device_bytes(16 * sizeof(int)), host[32] = {0};
    cudaMemset(x, 0xff, 16 * sizeof(int));
    switch ((enum fault)fault) {
    case HALF_BARRIER:
        LAUNCH(half_barrier, 1, 64, 0, nullptr, x);
        break;
    case HALF_WARP:
        LAUNCH(half_warp, 1, 32, 0, nullptr, x);
        break;
    case TWO_MASKS:
        LAUNCH(two_masks, 1, 32, 0, nullptr, x);
        break;
    case BEYOND_DYNAMIC:
        LAUNCH(beyond_dynamic, 1, 32, 1024, nullptr, x);
        break;
    case SLIGHTLY_BEYOND:
        LAUNCH(slightly_beyond_dynamic, 1, 32, 68, nullptr, x);
        break;
    case BEYOND_STATIC:
        LAUNCH(beyond_static, 1, 32, 0, nullptr, x);
        break;
    case BEYOND_GLOBAL:
        LAUNCH(beyond_global, 1, 32, 0, nullptr, x);
        break;
    case READ_BEYOND_GLOBAL:
        LAUNCH(read_beyond_global, 1, 32, 0, nullptr, x);
        break;
    case HOST_POINTER:
        LAUNCH(add_one, 1, 32, 0, nullptr, host);
        break;
    case MISALIGNED:
        LAUNCH(misaligned, 1, 1, 0, nullptr, x);
        break;
    case FORGOTTEN_COPY:
        LAUNCH(forgotten_copy, 1, 1, 16, nullptr, x);
        break;
    case LONG_COPY:
        cudaMemcpy(x, host, 17 * sizeof(int), cudaMemcpyHostToDevice);
        break;
    case FAULTS:
        break;
    }
    cudaFree(x);
}

static void check_faults()
{
    for (int fault = 0; fault <= FAULTS; fault++) {
        fflush(nullptr);
        pid_t child = fork();
        if (child == 0) {
            fclose(stderr);
            commit(fault);
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (fault < FAULTS ? 3 : 0))
            printf("fault %d was not found\n", fault);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (fault < FAULTS ? 3 : 0));
    }
}

/* A missing barrier and memory that nobody wrote show in the results. */
static void check_wrong_results()
{
    float nothing = 0;
    int words[64], wrong = 0;
    void *memory = device_bytes(sizeof words);
    LAUNCH(uninitialised, 1, 32, 0, nullptr, (float *)memory);
    cudaMemcpy(&nothing, memory, sizeof nothing, cudaMemcpyDeviceToHost);
    CHECK(isnan(nothing));
    LAUNCH(missing_barrier, 1, 64, 0, nullptr, (int *)memory);
    cudaMemcpy(words, memory, sizeof words, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++)
        wrong += words[i] != 63 - i;
    CHECK(wrong > 0);
    LAUNCH(wait_for_word, 1, 64, 0, nullptr, (int *)memory);
    cudaMemcpy(words, memory, sizeof words, cudaMemcpyDeviceToHost);
    CHECK_INT(words[0], 7);
    cudaFree(memory);
}

/* What a launch may ask for. */
static void check_limits()
{
    void *memory = device_bytes(sizeof(int));
    LAUNCH(add_one, 0, 32, 0, nullptr, (int *)memory);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    LAUNCH(add_one, 1, 32, 49 << 10, nullptr, (int *)memory);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 49 << 10) == cudaSuccess);
    LAUNCH(add_one, 1, 32, 49 << 10, nullptr, (int *)memory);
    CHECK(cudaGetLastError() == cudaSuccess);
    cudaFree(memory);
}

int main(void)
{
    for (unsigned seed = 1; seed <= 5; seed++) {
        emulator_seed(seed);
        check_sums();
        check_lanes();
        check_product();
        check_wrong_results();
    }
    check_rounding();
    check_limits();
    check_streams();
    check_pinned();
    check_events();
    check_faults();
    CHECK_INT(emulator_allocated_bytes(), 0);
    return test_report();
}
