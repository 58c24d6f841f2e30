/* The CUDA table on the machine's first GPU, or on the emulator where it is linked with that. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gemm.h"
#include "tests/kernels/compare.h"

static void must_succeed(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return;
    printf("%s: %s\n", call, cudaGetErrorString(error));
    exit(1);
}

static void *cuda_allocate(size_t bytes)
{
    void *memory;
    must_succeed(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

static void cuda_release(void *memory)
{
    must_succeed(cudaFree(memory), "cudaFree");
}

static void cuda_upload(void *queue, void *to, const void *from, size_t bytes)
{
    must_succeed(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue), "upload");
}

static void cuda_download(void *queue, void *to, const void *from, size_t bytes)
{
    must_succeed(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue), "download");
    must_succeed(cudaStreamSynchronize(queue), "kernels");
}

static void say(void *context, const char *sentence)
{
    (void)context;
    printf("%s\n", sentence);
    exit(1);
}

bool place_open(struct place *place, const char **ret_why)
{
    int devices = 0;
    cudaStream_t stream;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        *ret_why = "there is no GPU here";
        return false;
    }
    must_succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda_kernels_on_failure(say, NULL);
    if (cuda_gemm_start(stream, ret_why) < 0)
        return false;
    *place = (struct place){.kernels = &kernels_cuda,
                            .queue = stream,
                            .allocate = cuda_allocate,
                            .release = cuda_release,
                            .upload = cuda_upload,
                            .download = cuda_download};
    return true;
}

void place_close(struct place *place)
{
    cuda_gemm_stop();
    cuda_workspace_release(place->queue);
    must_succeed(cudaStreamDestroy(place->queue), "cudaStreamDestroy");
}
