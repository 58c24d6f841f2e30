/* Scratch memory of queues, what the device is, and the end when something is refused (cuda_kernels.h). */
#include "kernels/cuda/cuda_kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_common.cuh"

enum { QUEUES_MOST = 64 };
static const size_t smallest_bytes = 1 << 20; /* so that it seldom grows */

static struct {
    void *queue, *memory;
    size_t bytes;
} workspaces[QUEUES_MOST];
static int workspace_count;

static void (*failed)(void *context, const char *sentence);
static void *failed_context;

void cuda_kernels_on_failure(void (*fail)(void *context, const char *sentence), void *context)
{
    failed = fail;
    failed_context = context;
}

void cuda_kernels_fail(const char *what, const char *why)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s: %s", what, why);
    if (failed)
        failed(failed_context, sentence);
    abort();
}

static int workspace_of(void *queue)
{
    for (int i = 0; i < workspace_count; i++)
        if (workspaces[i].queue == queue)
            return i;
    if (workspace_count == QUEUES_MOST)
        cuda_kernels_fail("kernels", "more queues than have room for a workspace");
    workspaces[workspace_count].queue = queue;
    return workspace_count++;
}

void *cuda_workspace(void *queue, size_t bytes)
{
    int i = workspace_of(queue);
    if (workspaces[i].bytes >= bytes)
        return workspaces[i].memory;
    bytes = bytes > smallest_bytes ? divide_up(bytes, smallest_bytes) * smallest_bytes : smallest_bytes;
    cudaStreamSynchronize(stream_of(queue));
    cudaFree(workspaces[i].memory);
    cudaError_t error = cudaMalloc(&workspaces[i].memory, bytes);
    if (error != cudaSuccess)
        cuda_kernels_fail("a workspace of the kernels", cudaGetErrorString(error));
    workspaces[i].bytes = bytes;
    return workspaces[i].memory;
}

size_t cuda_workspace_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < workspace_count; i++)
        bytes += workspaces[i].bytes;
    return bytes;
}

void cuda_workspace_release(void *queue)
{
    for (int i = 0; i < workspace_count; i++)
        if (workspaces[i].queue == queue) {
            cudaStreamSynchronize(stream_of(queue));
            cudaFree(workspaces[i].memory);
            workspaces[i] = workspaces[--workspace_count];
            workspaces[workspace_count] = {};
            return;
        }
}

int cuda_processors(void)
{
    static int processors;
    int device = 0;
    if (processors == 0 && (cudaGetDevice(&device) != cudaSuccess ||
                            cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess))
        cuda_kernels_fail("kernels", "no device");
    return processors;
}

void check_launch(const char *kernel)
{
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        cuda_kernels_fail(kernel, cudaGetErrorString(error));
}
