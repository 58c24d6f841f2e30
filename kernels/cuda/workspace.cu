/* Scratch memory of queues, what the device is, and the end when something is refused (cuda_kernels.h). */
#include "kernels/cuda/cuda_kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_common.cuh"

enum { QUEUES_MOST = 64, PIECES_MOST = 32 };
static const size_t smallest_bytes = 1 << 20; /* so that it seldom grows */

/* The last piece is in use; those before stay where they cannot be given back (cuda_kernels.h). */
static struct {
    void *queue, *piece[PIECES_MOST];
    int pieces;
    size_t bytes, all_bytes; /* of the last piece, of all */
    struct cuda_workspace_source source;
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

void cuda_workspace_from(void *queue, const struct cuda_workspace_source *source)
{
    workspaces[workspace_of(queue)].source = *source;
}

static void *take(const struct cuda_workspace_source &source, size_t bytes)
{
    void *memory = nullptr;
    cudaError_t error = cudaSuccess;
    if (source.take)
        memory = source.take(source.context, bytes);
    else
        error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess || !memory)
        cuda_kernels_fail("a workspace of the kernels", error != cudaSuccess ? cudaGetErrorString(error) : "no room");
    return memory;
}

void *cuda_workspace(void *queue, size_t bytes)
{
    auto &w = workspaces[workspace_of(queue)];
    if (w.bytes >= bytes && w.pieces > 0)
        return w.piece[w.pieces - 1];
    bytes = bytes > 2 * w.bytes ? bytes : 2 * w.bytes; /* all together twice the largest at most */
    bytes = bytes > smallest_bytes ? divide_up(bytes, smallest_bytes) * smallest_bytes : smallest_bytes;
    if (w.source.take && w.pieces > 0) { /* first, so that the larger one may have its place */
        w.source.give(w.source.context, w.piece[--w.pieces]);
        w.all_bytes = 0;
    }
    if (w.pieces == PIECES_MOST)
        cuda_kernels_fail("a workspace of the kernels", "it grew too often");
    w.piece[w.pieces] = take(w.source, bytes);
    w.bytes = bytes;
    w.all_bytes += bytes;
    return w.piece[w.pieces++];
}

size_t cuda_workspace_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < workspace_count; i++)
        bytes += workspaces[i].all_bytes;
    return bytes;
}

void cuda_workspace_release(void *queue)
{
    for (int i = 0; i < workspace_count; i++)
        if (workspaces[i].queue == queue) {
            const struct cuda_workspace_source &source = workspaces[i].source;
            cudaStreamSynchronize(stream_of(queue));
            for (int piece = 0; piece < workspaces[i].pieces; piece++)
                if (source.take)
                    source.give(source.context, workspaces[i].piece[piece]);
                else
                    cudaFree(workspaces[i].piece[piece]);
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
