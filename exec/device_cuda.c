#include "exec/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "exec/memory_pool.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gemm.h"

static const double POLL_S = 1e-3, PATIENCE_S = 120;

/* Pinned buffers that copies take in turn: 8 x 1 MiB keep a link of 50 GB/s busy for the 20 us of a call. */
enum { STAGES = 8, STAGE_BYTES = 1 << 20 };

struct stage {
    void *memory;
    cudaEvent_t used; /* when the copy out of it has been done */
};

/* Host memory to fetch into, kept for the next time. */
struct pinned {
    struct pinned *next;
    void *memory;
    size_t bytes;
};

struct cuda {
    int gpu;
    cudaStream_t stream;
    struct memory_pool *pool;
    struct stage stage[STAGES];
    int next_stage;
    struct pinned *pinned;  /* not in use */
    cudaEvent_t empty;      /* recorded by wait */
    cudaStream_t *queue;    /* beside stream */
    int n_queues;
    double patience_s;
    struct device *asking; /* who asks the pool for memory */
    cudaEvent_t base_event; /* passed at base_s of clock_s */
    double base_s;
    void (*fail)(void *context, const char *sentence);
    void *fail_context;
};

static void check(const struct cuda *cuda, cudaError_t error, const char *call, int line)
{
    char sentence[512];
    if (error == cudaSuccess)
        return;
    snprintf(sentence, sizeof sentence, "%s at device_cuda.c:%d: %s (%s)", call, line, cudaGetErrorString(error),
             cudaGetErrorName(error));
    if (cuda->fail)
        cuda->fail(cuda->fail_context, sentence);
    abort();
}
#define CUDA_CHECK(cuda, call) check((cuda), (call), #call, __LINE__)

static struct cuda *cuda_of(struct device *device)
{
    return device->state;
}

/* --- memory --------------------------------------------------------------------- */

static void *take_piece(void *context, size_t bytes)
{
    struct cuda *cuda = context;
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess)
        return memory;
    cudaGetLastError(); /* it is no error for the next call */
    if (error != cudaErrorMemoryAllocation)
        check(cuda, error, "cudaMalloc(&memory, bytes)", __LINE__);
    return NULL;
}

static void poll(struct device *device, double *polled_s)
{
    if (!device->poll || clock_s() - *polled_s <= POLL_S)
        return;
    device->poll(device->poll_context);
    *polled_s = clock_s();
}

static void lose_patience(struct cuda *cuda)
{
    char sentence[320];
    snprintf(sentence, sizeof sentence,
             "no room on the GPU but in unused memory, which cannot be given back: for %.0f s it has been busy, probably "
             "with a message of a rank that waits for this one; smaller micro-batches or more recomputation leave room",
             cuda->patience_s);
    if (cuda->fail)
        cuda->fail(cuda->fail_context, sentence);
    abort();
}

/* All queues become empty, or it ends here. Those that products run on are waited for in the stream itself. */
static void drain(struct cuda *cuda)
{
    double start_s = clock_s(), polled_s = start_s;
    for (int i = -1; i < cuda->n_queues; i++) {
        cudaError_t state = cudaErrorNotReady;
        CUDA_CHECK(cuda, cudaEventRecord(cuda->empty, i < 0 ? cuda->stream : cuda->queue[i]));
        while ((state = cudaEventQuery(cuda->empty)) == cudaErrorNotReady) {
            if (cuda->asking)
                poll(cuda->asking, &polled_s);
            if (clock_s() - start_s > cuda->patience_s)
                lose_patience(cuda);
        }
        check(cuda, state, "cudaEventQuery(cuda->empty)", __LINE__);
    }
}

static void give_piece(void *context, void *memory)
{
    struct cuda *cuda = context;
    drain(cuda);
    CUDA_CHECK(cuda, cudaFree(memory));
}

static void *take_workspace(void *context, size_t bytes)
{
    struct cuda *cuda = context;
    return memory_pool_get(cuda->pool, bytes);
}

static void give_workspace(void *context, void *memory)
{
    struct cuda *cuda = context;
    memory_pool_put(cuda->pool, memory);
}

static void *cuda_allocate(struct device *device, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    cuda->asking = device;
    void *memory = memory_pool_get(cuda->pool, bytes);
    cuda->asking = NULL;
    int64_t reserved = memory_pool_reserved_bytes(cuda->pool);
    if (reserved > device->bytes_reserved_peak)
        device->bytes_reserved_peak = reserved;
    return memory;
}

static void cuda_release(struct device *device, void *memory, size_t bytes)
{
    (void)bytes;
    memory_pool_put(cuda_of(device)->pool, memory);
}

static void *cuda_host_allocate(struct device *device, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    void *memory = NULL;
    for (struct pinned **at = &cuda->pinned; *at; at = &(*at)->next)
        if ((*at)->bytes == bytes) {
            struct pinned *found = *at;
            *at = found->next;
            memory = found->memory;
            free(found);
            return memory;
        }
    CUDA_CHECK(cuda, cudaMallocHost(&memory, bytes > 0 ? bytes : 1));
    return memory;
}

static void cuda_host_release(struct device *device, void *memory, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    struct pinned *kept = malloc(sizeof *kept);
    if (!kept)
        abort();
    *kept = (struct pinned){cuda->pinned, memory, bytes};
    cuda->pinned = kept;
}

/* --- copies --------------------------------------------------------------------- */

static void cuda_copy(struct device *device, void *to, const void *from, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    if (bytes > 0)
        CUDA_CHECK(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream));
}

static void cuda_zero(struct device *device, void *memory, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    if (bytes > 0)
        CUDA_CHECK(cuda, cudaMemsetAsync(memory, 0, bytes, cuda->stream));
}

static bool cuda_event_done(struct device *device, void *event)
{
    cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady)
        check(cuda_of(device), state, "cudaEventQuery(event)", __LINE__);
    return state == cudaSuccess;
}

/* Waits for an event; meanwhile somebody may look whether the other ranks are still there. */
static void await(struct device *device, cudaEvent_t event)
{
    double polled_s = clock_s();
    while (!cuda_event_done(device, event))
        poll(device, &polled_s);
}

/* The next one, when nothing reads it any more. */
static struct stage *free_stage(struct device *device)
{
    struct cuda *cuda = cuda_of(device);
    struct stage *stage = &cuda->stage[cuda->next_stage++ % STAGES];
    await(device, stage->used);
    return stage;
}

static size_t piece_of(size_t bytes, size_t at)
{
    return bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
}

static void cuda_upload(struct device *device, void *to, const void *from, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
        struct stage *stage = free_stage(device);
        size_t n = piece_of(bytes, at);
        memcpy(stage->memory, (const char *)from + at, n);
        CUDA_CHECK(cuda, cudaMemcpyAsync((char *)to + at, stage->memory, n, cudaMemcpyHostToDevice, cuda->stream));
        CUDA_CHECK(cuda, cudaEventRecord(stage->used, cuda->stream));
    }
}

/* Pieces are under way in all stages; each is taken out when it has come. */
static void cuda_download(struct device *device, void *to, const void *from, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    struct stage *under_way[STAGES];
    size_t asked = 0, taken = 0;
    while (taken < bytes) {
        while (asked < bytes && asked < taken + (size_t)STAGES * STAGE_BYTES) {
            struct stage *stage = free_stage(device);
            CUDA_CHECK(cuda, cudaMemcpyAsync(stage->memory, (const char *)from + asked, piece_of(bytes, asked),
                                             cudaMemcpyDeviceToHost, cuda->stream));
            CUDA_CHECK(cuda, cudaEventRecord(stage->used, cuda->stream));
            under_way[asked / STAGE_BYTES % STAGES] = stage;
            asked += STAGE_BYTES;
        }
        struct stage *stage = under_way[taken / STAGE_BYTES % STAGES];
        await(device, stage->used);
        memcpy((char *)to + taken, stage->memory, piece_of(bytes, taken));
        taken += STAGE_BYTES;
    }
}

static void cuda_fetch(struct device *device, void *to, const void *from, size_t bytes)
{
    struct cuda *cuda = cuda_of(device);
    if (bytes > 0)
        CUDA_CHECK(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda->stream));
}

/* --- queues and events ------------------------------------------------------------ */

/* A new base now and then: times from it come in floats of milliseconds. */
static void set_base(struct cuda *cuda)
{
    CUDA_CHECK(cuda, cudaEventRecord(cuda->base_event, cuda->stream));
    CUDA_CHECK(cuda, cudaEventSynchronize(cuda->base_event));
    cuda->base_s = clock_s();
}

static void cuda_wait(struct device *device)
{
    struct cuda *cuda = cuda_of(device);
    CUDA_CHECK(cuda, cudaEventRecord(cuda->empty, cuda->stream));
    await(device, cuda->empty);
    if (clock_s() - cuda->base_s > 1)
        set_base(cuda);
}

static void *cuda_queue_new(struct device *device)
{
    int least = 0, greatest = 0;
    cudaStream_t stream;
    struct cuda *cuda = cuda_of(device);
    CUDA_CHECK(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_CHECK(cuda, cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    cuda->queue = realloc(cuda->queue, (size_t)(cuda->n_queues + 1) * sizeof(cudaStream_t));
    if (!cuda->queue)
        abort();
    cuda->queue[cuda->n_queues++] = stream;
    return stream;
}

static void cuda_queue_free(struct device *device, void *queue)
{
    struct cuda *cuda = cuda_of(device);
    for (int i = 0; i < cuda->n_queues; i++)
        if (cuda->queue[i] == queue) {
            cuda->queue[i] = cuda->queue[--cuda->n_queues];
            break;
        }
    CUDA_CHECK(cuda, cudaStreamDestroy(queue));
}

static void *cuda_event_new(struct device *device)
{
    cudaEvent_t event;
    CUDA_CHECK(cuda_of(device), cudaEventCreate(&event));
    return event;
}

static void cuda_event_free(struct device *device, void *event)
{
    CUDA_CHECK(cuda_of(device), cudaEventDestroy(event));
}

static void cuda_event_record(struct device *device, void *event, void *queue)
{
    CUDA_CHECK(cuda_of(device), cudaEventRecord(event, queue));
}

static void cuda_queue_wait(struct device *device, void *queue, void *event)
{
    CUDA_CHECK(cuda_of(device), cudaStreamWaitEvent(queue, event, 0));
}

static double cuda_event_s(struct device *device, void *event)
{
    float ms = 0;
    struct cuda *cuda = cuda_of(device);
    await(device, event);
    CUDA_CHECK(cuda, cudaEventElapsedTime(&ms, cuda->base_event, event));
    return cuda->base_s + (double)ms * 1e-3;
}

static double cuda_event_gap_s(struct device *device, void *start, void *end)
{
    float ms = 0;
    await(device, end);
    CUDA_CHECK(cuda_of(device), cudaEventElapsedTime(&ms, start, end));
    return (double)ms * 1e-3;
}

/* --- life ------------------------------------------------------------------------- */

/* Commands of many queues wait for one another when they share one of the GPU's 8 default connections: a message that
 * has not come would hold up the kernels that its sender waits for. Read when CUDA starts. */
static void ask_for_connections(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static int choose_gpu(const struct device_cuda_options *options, struct err *err)
{
    int gpus = 0;
    ask_for_connections();
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess || gpus == 0)
        return err_add(err, "device 'cuda' is not there: %s", error ? cudaGetErrorString(error) : "no GPU");
    if (options->local_size > gpus && !options->share)
        return err_add(err, "%d ranks on this host for %d GPU%s; --share-gpu lets ranks share one", options->local_size,
                       gpus, gpus == 1 ? "" : "s");
    error = cudaSetDevice(options->local_rank % gpus);
    if (error != cudaSuccess)
        return err_add(err, "GPU %d cannot be used: %s", options->local_rank % gpus, cudaGetErrorString(error));
    return gpus;
}

static void fill_functions(struct device *device)
{
    *device = (struct device){
        .name = "cuda",
        .kernels = &kernels_cuda,
        .allocate = cuda_allocate,
        .release = cuda_release,
        .copy = cuda_copy,
        .upload = cuda_upload,
        .download = cuda_download,
        .fetch = cuda_fetch,
        .host_allocate = cuda_host_allocate,
        .host_release = cuda_host_release,
        .zero = cuda_zero,
        .wait = cuda_wait,
        .queue_new = cuda_queue_new,
        .queue_free = cuda_queue_free,
        .event_new = cuda_event_new,
        .event_free = cuda_event_free,
        .event_record = cuda_event_record,
        .queue_wait = cuda_queue_wait,
        .event_done = cuda_event_done,
        .event_s = cuda_event_s,
        .event_gap_s = cuda_event_gap_s,
    };
}

static void open_stream(struct cuda *cuda)
{
    CUDA_CHECK(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking));
    for (int i = 0; i < STAGES; i++) {
        CUDA_CHECK(cuda, cudaMallocHost(&cuda->stage[i].memory, STAGE_BYTES));
        CUDA_CHECK(cuda, cudaEventCreateWithFlags(&cuda->stage[i].used, cudaEventDisableTiming));
    }
    CUDA_CHECK(cuda, cudaEventCreateWithFlags(&cuda->empty, cudaEventDisableTiming));
    CUDA_CHECK(cuda, cudaEventCreate(&cuda->base_event));
    set_base(cuda);
    cuda->pool = memory_pool_new(&(struct memory_source){take_piece, give_piece, cuda});
    cuda_workspace_from(cuda->stream, &(struct cuda_workspace_source){take_workspace, give_workspace, cuda});
}

int device_cuda_open(struct device *ret, const struct device_cuda_options *options, struct err *err)
{
    size_t free_bytes = 0, total_bytes = 0;
    const char *why = "";
    int gpus = choose_gpu(options, err);
    if (gpus < 0)
        return -1;
    struct cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        abort();
    cuda->gpu = options->local_rank % gpus;
    cuda->fail = options->fail;
    cuda->fail_context = options->fail_context;
    cuda->patience_s = options->patience_s > 0 ? options->patience_s : PATIENCE_S;
    cuda_kernels_on_failure(options->fail, options->fail_context);
    CUDA_CHECK(cuda, cudaMemGetInfo(&free_bytes, &total_bytes));
    open_stream(cuda);
    if (cuda_gemm_start(cuda->stream, &why) < 0)
        return err_add(err, "device 'cuda' has no products: %s", why);
    const char *why_not = cuda_attention_trial(cuda->stream);
    if (why_not)
        fprintf(stderr, "planexec: warning: this GPU's own attention kernels fail their trial (%s): those of all GPUs run "
                        "instead\n", why_not);
    int sharers = (options->local_size - 1 - cuda->gpu) / gpus + 1;
    fill_functions(ret);
    ret->state = cuda;
    ret->queue = cuda->stream;
    ret->bytes_limit = (int64_t)(free_bytes / (size_t)sharers);
    ret->fail = options->fail;
    ret->fail_context = options->fail_context;
    return 0;
}

void device_cuda_close(struct device *device)
{
    struct cuda *cuda = cuda_of(device);
    CUDA_CHECK(cuda, cudaDeviceSynchronize());
    cuda_gemm_stop();
    cuda_workspace_release(cuda->stream);
    memory_pool_free(cuda->pool);
    for (struct pinned *at = cuda->pinned, *next; at; at = next) {
        next = at->next;
        CUDA_CHECK(cuda, cudaFreeHost(at->memory));
        free(at);
    }
    for (int i = 0; i < STAGES; i++) {
        CUDA_CHECK(cuda, cudaFreeHost(cuda->stage[i].memory));
        CUDA_CHECK(cuda, cudaEventDestroy(cuda->stage[i].used));
    }
    CUDA_CHECK(cuda, cudaEventDestroy(cuda->empty));
    CUDA_CHECK(cuda, cudaEventDestroy(cuda->base_event));
    CUDA_CHECK(cuda, cudaStreamDestroy(cuda->stream));
    free(cuda->queue);
    free(cuda);
}

void device_cuda_facts(const struct device *device, struct device_cuda_facts *ret)
{
    const struct cuda *cuda = device->state;
    struct cudaDeviceProp properties;
    CUDA_CHECK(cuda, cudaGetDeviceProperties(&properties, cuda->gpu));
    *ret = (struct device_cuda_facts){.memory_bytes = (int64_t)properties.totalGlobalMem,
                                      .processors = properties.multiProcessorCount,
                                      .major = properties.major,
                                      .minor = properties.minor};
    snprintf(ret->name, sizeof ret->name, "%.63s", properties.name);
}
