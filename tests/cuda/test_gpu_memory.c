/* Memory of device cuda on the emulator: workspaces come from and go back to the pool; what is unused is given back when
 * the GPU has no more, once messages that come late have come, and not for ever for one that never comes. */
#include "tests/unit/test.h"

#include <setjmp.h>

#include <cuda_runtime_api.h>

#include "cost/base/err.h"
#include "exec/device.h"
#include "exec/device_cuda.h"
#include "kernels/cuda/cuda_kernels.h"

enum { MIB = 1 << 20 };

static jmp_buf failed;
static char sentence[512];

static void fail(void *context, const char *text)
{
    (void)context;
    snprintf(sentence, sizeof sentence, "%s", text);
    longjmp(failed, 1);
}

/* An operation of a queue that ends after so many questions, or never (-1). */
struct message {
    int questions;
    bool released;
};

static int has_come(void *argument)
{
    struct message *message = argument;
    if (message->questions > 0)
        message->questions--;
    return message->questions == 0;
}

static void release(void *argument)
{
    struct message *message = argument;
    message->released = true;
}

static int polls;

static void count_poll(void *context)
{
    (void)context;
    polls++;
}

static void open_device(struct device *device, double patience_s)
{
    struct err err = {0};
    struct device_cuda_options options = {.local_size = 1, .fail = fail, .patience_s = patience_s};
    CHECK_INT(device_cuda_open(device, &options, &err), 0);
    CHECK_STR(err.text, "");
}

/* 40 of 64 MiB are unused in a piece of their own; 50 are asked for. */
static void *ask_for_most(struct device *device)
{
    void *first = device_new(device, 40 * MIB / 4, ELEMENT_F32);
    device_free(device, first, 40 * MIB / 4);
    return device_new(device, 50 * MIB / 4, ELEMENT_F32);
}

static void check_late(void)
{
    struct device device;
    struct message message = {.questions = 3000};
    open_device(&device, 60);
    device.poll = count_poll;
    void *queue = device.queue_new(&device);
    emulator_enqueue_asked(queue, has_come, &message, release);
    if (setjmp(failed) == 0) {
        void *most = ask_for_most(&device);
        CHECK(most != NULL);
        CHECK(message.released);
        device_free(&device, most, 50 * MIB / 4);
    } else {
        CHECK_STR(sentence, "");
    }
    device.queue_free(&device, queue);
    device_cuda_close(&device);
}

static void check_never(void)
{
    struct device device;
    struct message message = {.questions = -1};
    open_device(&device, 0.3);
    device.poll = count_poll;
    polls = 0;
    void *queue = device.queue_new(&device), *other = device.queue_new(&device);
    device.queue_free(&device, other);
    emulator_enqueue_asked(queue, has_come, &message, release);
    if (setjmp(failed) == 0) {
        ask_for_most(&device);
        CHECK(!"it must not come back");
    } else {
        CHECK(strstr(sentence, "cannot be given back") != NULL);
        CHECK(polls > 10);
    }
    message.questions = 0;
    device.wait(&device);
}

static int taken, given;
static size_t live_bytes;

static void *take(void *context, size_t bytes)
{
    void *memory = NULL;
    (void)context;
    taken++;
    live_bytes += bytes;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : NULL;
}

static void give(void *context, void *memory)
{
    (void)context;
    given++;
    cudaFree(memory);
}

static void check_workspace(void)
{
    cudaStream_t queue = NULL, plain = NULL;
    CHECK(cudaStreamCreate(&queue) == cudaSuccess && cudaStreamCreate(&plain) == cudaSuccess);
    size_t before = cuda_workspace_bytes();
    cuda_workspace_from(queue, &(struct cuda_workspace_source){take, give, NULL});
    void *first = cuda_workspace(queue, 1000);
    CHECK(cuda_workspace(queue, MIB) == first);
    cuda_workspace(queue, 5 * MIB);
    cuda_workspace(queue, 30 * MIB);
    CHECK_INT(taken, 3);
    CHECK_INT(given, 2); /* the one in use stays */
    CHECK_INT(cuda_workspace_bytes() - before, 30 * MIB);
    cuda_workspace_release(queue);
    CHECK_INT(given, 3);
    CHECK_INT(cuda_workspace_bytes(), before);
    cuda_workspace(plain, 5 * MIB); /* the runtime's: kept */
    cuda_workspace(plain, 15 * MIB);
    CHECK_INT(cuda_workspace_bytes() - before, 20 * MIB);
    cuda_workspace_release(plain);
    CHECK_INT(given, 3);
    cudaStreamDestroy(queue);
    cudaStreamDestroy(plain);
}

/* A device's workspace is part of its pool: no byte beside it. */
static void check_pool(void)
{
    struct device device;
    open_device(&device, 1);
    size_t before = emulator_allocated_bytes();
    void *buffer = device_new(&device, 6 * MIB / 4, ELEMENT_F32); /* a piece of 20 MiB */
    size_t with = emulator_allocated_bytes();
    cuda_workspace(device.queue, 2 * MIB);
    CHECK(with > before);
    CHECK_INT(emulator_allocated_bytes(), with);
    device_free(&device, buffer, 6 * MIB / 4);
    device_cuda_close(&device);
}

int main(void)
{
    setenv("EMULATOR_MEMORY_MIB", "64", 1);
    check_workspace();
    check_pool();
    check_late();
    check_never();
    return test_report();
}
