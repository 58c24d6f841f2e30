/* Streams, events and memory of the emulated device (cuda_runtime_api.h). An event is a place in a stream's queue. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "emulator.h"

using emulator::fail;

enum { BAND_BYTES = 256, ALIGNMENT = 256, PAGE_BYTES = 4096 };

struct operation {
    std::function<void()> run;
    std::function<bool()> ready; /* asked until it says true: what other processes take part in */
    CUstream_st *after = nullptr; /* runs when that stream has done `place` operations */
    uint64_t place = 0;
};

struct CUstream_st {
    std::deque<operation> queue;
    uint64_t queued = 0, done = 0;
    bool blocking = true, destroyed = false;
};

struct CUevent_st {
    CUstream_st *stream = nullptr; /* of the last record; NULL = never recorded */
    uint64_t place = 0;
    bool timing = true;
    double time_s = 0;
};

struct allocation {
    size_t bytes;
    bool device;
};

static struct runtime_state {
    CUstream_st zero;
    std::vector<CUstream_st *> streams; /* all but `zero`; destroyed ones stay until they are empty */
    std::vector<CUstream_st *> empty;   /* destroyed: an event may still name them */
    std::map<uintptr_t, allocation> memory;
    size_t device_bytes = 0;
    cudaError_t last = cudaSuccess;
    int device = 0;
    uint64_t random = 0;

    ~runtime_state()
    {
        for (CUstream_st *stream : streams)
            delete stream;
        for (CUstream_st *stream : empty)
            delete stream;
    }
} state;

static cudaError_t set_error(cudaError_t error)
{
    if (error != cudaSuccess)
        state.last = error;
    return error;
}

static long setting(const char *name, long standard)
{
    const char *text = getenv(name);
    return text ? strtol(text, nullptr, 10) : standard;
}

extern "C" void emulator_seed(unsigned seed)
{
    state.random = seed * 0x9e3779b97f4a7c15u + 1;
}

uint32_t emulator::random_bits()
{
    if (state.random == 0)
        emulator_seed((unsigned)setting("EMULATOR_SEED", 1));
    state.random ^= state.random << 13;
    state.random ^= state.random >> 7;
    state.random ^= state.random << 17;
    return (uint32_t)(state.random >> 16);
}

static double now_s()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* -- memory --------------------------------------------------------------------------------------------------------- */

void *emulator::map_memory(size_t bytes)
{
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory");
    return memory;
}

static size_t memory_limit()
{
    return (size_t)setting("EMULATOR_MEMORY_MIB", 4096) << 20;
}

/* An allocation: pages whose last bytes it is, up to its alignment, and one page that nobody can touch. */
static size_t aligned_bytes(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t page_bytes(size_t bytes)
{
    return (aligned_bytes(bytes) + BAND_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static cudaError_t allocate(void **memory, size_t bytes, bool device)
{
    *memory = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (device && (bytes > memory_limit() || state.device_bytes + bytes > memory_limit()))
        return set_error(cudaErrorMemoryAllocation);
    size_t pages = page_bytes(bytes);
    unsigned char *base = (unsigned char *)emulator::map_memory(pages + PAGE_BYTES);
    if (mprotect(base + pages, PAGE_BYTES, PROT_NONE) != 0)
        fail("a page cannot be protected");
    memset(base, 0xff, pages);
    *memory = base + pages - aligned_bytes(bytes);
    state.memory[(uintptr_t)*memory] = {bytes, device};
    state.device_bytes += device ? bytes : 0;
    return cudaSuccess;
}

static void check_bands(uintptr_t at, const allocation &a)
{
    const unsigned char *start = (const unsigned char *)at, *end = start + a.bytes;
    const unsigned char *untouchable = start + aligned_bytes(a.bytes);
    for (int i = 1; i <= BAND_BYTES; i++) {
        bool behind = end + i <= untouchable && end[i - 1] != 0xff;
        if (behind || start[-i] != 0xff) {
            char sentence[160];
            snprintf(sentence, sizeof sentence, "written %d bytes %s an allocation of %zu bytes", i,
                     behind ? "behind" : "before", a.bytes);
            fail(sentence);
        }
    }
}

static cudaError_t release(void *memory, bool device)
{
    if (!memory)
        return cudaSuccess;
    cudaDeviceSynchronize();
    auto found = state.memory.find((uintptr_t)memory);
    if (found == state.memory.end() || found->second.device != device)
        fail("freed what was not allocated");
    check_bands(found->first, found->second);
    state.device_bytes -= device ? found->second.bytes : 0;
    size_t bytes = found->second.bytes;
    munmap((unsigned char *)memory + aligned_bytes(bytes) - page_bytes(bytes), page_bytes(bytes) + PAGE_BYTES);
    state.memory.erase(found);
    return cudaSuccess;
}

extern "C" void emulator_check_guards(void)
{
    cudaDeviceSynchronize();
    for (const auto &one : state.memory)
        check_bands(one.first, one.second);
}

extern "C" size_t emulator_allocated_bytes(void)
{
    return state.device_bytes;
}

/* The allocation around a pointer; its end counts as inside. NULL = pageable memory of the host. */
static const allocation *around(const void *pointer, uintptr_t *ret_start)
{
    auto next = state.memory.upper_bound((uintptr_t)pointer);
    if (next == state.memory.begin())
        return nullptr;
    --next;
    *ret_start = next->first;
    return (uintptr_t)pointer - next->first <= next->second.bytes ? &next->second : nullptr;
}

static void check_range(const void *pointer, size_t bytes, const char *what)
{
    uintptr_t start;
    const allocation *a = around(pointer, &start);
    if (a && (uintptr_t)pointer - start + bytes > a->bytes) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "%s of %zu bytes leaves its allocation of %zu bytes", what, bytes,
                 a->bytes);
        fail(sentence);
    }
}

static bool is_pageable(const void *pointer)
{
    uintptr_t start;
    return !around(pointer, &start);
}

static void check_device(const void *pointer, const char *what)
{
    uintptr_t start;
    const allocation *a = around(pointer, &start);
    if (!a || !a->device)
        fail(what);
}

void emulator::check_pointer(const char *kernel, int argument, const void *pointer)
{
    if (!pointer || !is_pageable(pointer))
        return;
    char sentence[200];
    snprintf(sentence, sizeof sentence, "argument %d of kernel %s points to memory that no device can read", argument,
             kernel);
    fail(sentence);
}

extern "C" cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, true);
}

extern "C" cudaError_t cudaFree(void *memory)
{
    return release(memory, true);
}

extern "C" cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return allocate(memory, bytes, false);
}

extern "C" cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    return allocate(memory, bytes, false);
}

extern "C" cudaError_t cudaFreeHost(void *memory)
{
    return release(memory, false);
}

extern "C" cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = memory_limit();
    *free_bytes = memory_limit() - state.device_bytes;
    return cudaSuccess;
}

/* -- streams ---------------------------------------------------------------------------------------------------------- */

static CUstream_st *stream_of(cudaStream_t stream)
{
    if (stream && stream->destroyed)
        fail("a destroyed stream is used");
    return stream ? stream : &state.zero;
}

static void enqueue(CUstream_st *stream, operation &&o)
{
    stream->queue.push_back(std::move(o));
    stream->queued++;
}

static void wait_for(CUstream_st *stream, CUstream_st *other)
{
    operation o;
    o.after = other;
    o.place = other->queued;
    if (other != stream && other->done < other->queued)
        enqueue(stream, std::move(o));
}

/* The legacy stream comes after everything before it in blocking streams, and before everything behind it. */
static void push(cudaStream_t handle, std::function<void()> run)
{
    CUstream_st *stream = stream_of(handle);
    if (stream == &state.zero) {
        for (CUstream_st *other : state.streams)
            if (other->blocking)
                wait_for(stream, other);
    } else if (stream->blocking) {
        wait_for(stream, &state.zero);
    }
    operation o;
    o.run = std::move(run);
    enqueue(stream, std::move(o));
}

static bool is_next(const CUstream_st *stream)
{
    return !stream->queue.empty() &&
           (!stream->queue.front().after || stream->queue.front().after->done >= stream->queue.front().place);
}

static bool can_run(const CUstream_st *stream)
{
    return is_next(stream) && (!stream->queue.front().ready || stream->queue.front().ready());
}

/* Does some stream wait for another process? */
static bool is_asking()
{
    for (const CUstream_st *stream : state.streams)
        if (is_next(stream) && stream->queue.front().ready)
            return true;
    return false;
}

static void run_head(CUstream_st *stream)
{
    operation o = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (o.run)
        o.run();
    stream->done++;
}

static void forget_destroyed()
{
    for (size_t i = 0; i < state.streams.size();)
        if (state.streams[i]->destroyed && state.streams[i]->queue.empty()) {
            state.empty.push_back(state.streams[i]);
            state.streams.erase(state.streams.begin() + (long)i);
        } else {
            i++;
        }
}

/* Runs operations until `stream` has done `place` of them. Of two waits one prefers some streams to others all along
 * (far ahead, far behind), one takes turns. */
static void run_until(CUstream_st *stream, uint64_t place)
{
    std::vector<CUstream_st *> order(state.streams);
    order.push_back(&state.zero);
    bool turns = emulator::random_bits() % 2;
    auto shuffle = [&order] {
        for (size_t i = order.size(); i > 1; i--)
            std::swap(order[i - 1], order[emulator::random_bits() % i]);
    };
    shuffle();
    while (stream->done < place) {
        if (turns)
            shuffle();
        CUstream_st *next = nullptr;
        for (CUstream_st *one : order)
            if (can_run(one)) {
                next = one;
                break;
            }
        if (next)
            run_head(next);
        else if (!is_asking())
            fail("streams wait for each other for ever");
        else
            sched_yield();
    }
    forget_destroyed();
}

/* One operation of some stream that can run. */
static void run_some()
{
    std::vector<CUstream_st *> order(state.streams);
    order.push_back(&state.zero);
    size_t first = emulator::random_bits() % order.size();
    for (size_t i = 0; i < order.size(); i++) {
        CUstream_st *one = order[(first + i) % order.size()];
        if (can_run(one)) {
            run_head(one);
            return;
        }
    }
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = new CUstream_st;
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    state.streams.push_back(*stream);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    stream_of(stream)->destroyed = true; /* what is queued still runs */
    forget_destroyed();
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CUstream_st *s = stream_of(stream);
    run_until(s, s->queued);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    CUstream_st *s = stream_of(stream);
    run_some(); /* who asks again and again must get on */
    return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    std::vector<CUstream_st *> all(state.streams);
    all.push_back(&state.zero);
    for (CUstream_st *stream : all)
        run_until(stream, stream->queued);
    return cudaSuccess;
}

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    push(stream, [=] { function(argument); });
    return cudaSuccess;
}

extern "C" void emulator_enqueue(cudaStream_t stream, void (*run)(void *), void *argument, void (*release)(void *))
{
    push(stream, [=] {
        run(argument);
        if (release)
            release(argument);
    });
}

extern "C" void emulator_enqueue_asked(cudaStream_t stream, int (*ready)(void *), void *argument,
                                       void (*release)(void *))
{
    CUstream_st *s = stream_of(stream);
    operation o;
    o.ready = [=] { return ready(argument) != 0; };
    o.run = [=] { release(argument); };
    enqueue(s, std::move(o));
}

extern "C" void emulator_progress(void)
{
    run_some();
}

void emulator::queue_kernel(cudaStream_t stream, const char *name, const void *key, dim3 grid, dim3 block,
                            size_t shared_bytes, std::function<void()> body)
{
    auto kernel = std::make_shared<launch>();
    *kernel = launch{name, key, grid, block, shared_bytes, random_bits() % 2 == 0, std::move(body)};
    const char *problem = launch_problem(*kernel);
    if (problem) {
        fprintf(stderr, "launch of %s: %s\n", name, problem);
        set_error(cudaErrorInvalidValue);
        return;
    }
    push(stream, [kernel] { run_kernel(*kernel); });
}

/* -- copies ----------------------------------------------------------------------------------------------------------- */

static void copy_rows(void *to, size_t pitch_to, const void *from, size_t pitch_from, size_t width, size_t height)
{
    for (size_t r = 0; r < height; r++)
        memmove((char *)to + r * pitch_to, (const char *)from + r * pitch_from, width);
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *to, size_t pitch_to, const void *from, size_t pitch_from, size_t width,
                                         size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (width == 0 || height == 0)
        return cudaSuccess;
    if (width > pitch_to || width > pitch_from)
        return set_error(cudaErrorInvalidValue);
    check_range(to, (height - 1) * pitch_to + width, "the target of a copy");
    check_range(from, (height - 1) * pitch_from + width, "the source of a copy");
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
        check_device(to, "a copy to the device goes to other memory");
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)
        check_device(from, "a copy from the device comes from other memory");
    if (is_pageable(from)) { /* staged before the call returns */
        auto staged = std::make_shared<std::vector<char>>(width * height);
        copy_rows(staged->data(), width, from, pitch_from, width, height);
        push(stream, [=] { copy_rows(to, pitch_to, staged->data(), width, width, height); });
        return cudaSuccess;
    }
    push(stream, [=] { copy_rows(to, pitch_to, from, pitch_from, width, height); });
    if (is_pageable(to)) /* there when the call returns */
        return cudaStreamSynchronize(stream);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                       cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return error ? error : cudaStreamSynchronize(nullptr);
}

extern "C" cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0)
        return cudaSuccess;
    check_range(memory, bytes, "a memset");
    check_device(memory, "a memset outside of the device's memory");
    push(stream, [=] { memset(memory, value, bytes); });
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    return cudaMemsetAsync(memory, value, bytes, nullptr);
}

/* -- events ----------------------------------------------------------------------------------------------------------- */

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new CUevent_st;
    (*event)->timing = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event->stream)
        run_until(event->stream, event->place); /* its operation writes the time */
    delete event;
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    push(stream, [event] { event->time_s = now_s(); });
    event->stream = stream_of(stream);
    event->place = event->stream->queued;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
    CUstream_st *stream = stream_of(handle);
    operation o;
    o.after = event->stream;
    o.place = event->place;
    if (event->stream && event->stream != stream)
        enqueue(stream, std::move(o));
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->stream)
        run_until(event->stream, event->place);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (!event->stream || event->stream->done >= event->place)
        return cudaSuccess;
    run_some(); /* who asks again and again must get on */
    return event->stream->done >= event->place ? cudaSuccess : cudaErrorNotReady;
}

extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (!start->timing || !end->timing || !start->stream || !end->stream)
        return set_error(cudaErrorInvalidValue);
    if (start->stream->done < start->place || end->stream->done < end->place)
        return set_error(cudaErrorNotReady);
    *ms = (float)((end->time_s - start->time_s) * 1e3);
    return cudaSuccess;
}

/* -- the device ------------------------------------------------------------------------------------------------------- */

static int device_count()
{
    return (int)setting("EMULATOR_DEVICES", 1);
}

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count > 0 ? cudaSuccess : set_error(cudaErrorNoDevice);
}

extern "C" cudaError_t cudaGetDevice(int *device)
{
    *device = state.device;
    return cudaSuccess;
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return set_error(device_count() > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    state.device = device;
    return cudaSuccess;
}

static const int processors = 3; /* few, so that small inputs take more than one round */

extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= device_count())
        return set_error(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "emulated device");
    properties->totalGlobalMem = memory_limit();
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    int capability = (int)setting("EMULATOR_CAPABILITY", 90);
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->multiProcessorCount = processors;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 48 << 10;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 227 << 10;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = processors;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    default:
        return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

extern "C" cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

extern "C" cudaError_t cudaPeekAtLastError(void)
{
    return state.last;
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t last = state.last;
    state.last = cudaSuccess;
    return last;
}

extern "C" const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    }
    return "cudaErrorUnknown";
}

extern "C" const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNotReady:
        return "device not ready";
    }
    return "unknown error";
}
