/* A GPU as a device (device.h): one queue for computing, others of a higher priority beside it, memory from a pool.
 *
 * Copies between host and device go through pinned buffers, so that an upload need not wait. A CUDA call that fails
 * ends the job through the device's `fail`, with the call and where it stands. In a program built without CUDA
 * device_cuda_open says so.
 *
 * Memory comes from a pool (memory_pool.h), the kernels' workspaces too. When the GPU has no more, pieces that are wholly
 * free are given back and it is asked again. That waits until all queues are empty, because cudaFree waits for whatever
 * the GPU has, and for ever: a message that has been asked for, and whose sender waits for what this rank has not
 * queued yet, would never come. So queues are waited for by event, while `poll` is called, and after patience_s without
 * an end the job fails with a sentence that says what to do. It happens to plans that hardly fit, and in the first step:
 * later ones ask for the same pieces again, but for experts with new numbers of rows. */
#ifndef EXEC_DEVICE_CUDA_H
#define EXEC_DEVICE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/device.h"

struct err;

struct device_cuda_options {
    int local_rank, local_size; /* of the ranks on this host: the GPU is number local_rank */
    bool share;                 /* more ranks than GPUs are fine, rank r has GPU r mod GPUs */
    void (*fail)(void *context, const char *sentence);
    void *fail_context;
    double patience_s; /* 0 = 120 */
};

/* 0, or -1 with a sentence (no driver, no GPU, more ranks than GPUs). The limit of its memory is what is free on the
 * GPU now, divided by the ranks that share it. */
int device_cuda_open(struct device *ret, const struct device_cuda_options *options, struct err *err);
void device_cuda_close(struct device *device); /* after the last copy of it was used */
/* Its name as the driver says, and what a profile needs to know of it. */
struct device_cuda_facts {
    char name[64];
    int64_t memory_bytes;
    int processors, major, minor;
};
void device_cuda_facts(const struct device *device, struct device_cuda_facts *ret);

#endif
