/* The CPU as a device, and what all devices share: counting, tensors, the clock. */
#include "exec/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { ALIGNMENT = 64 };

static void *cpu_allocate(struct device *device, size_t bytes)
{
    (void)device;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return aligned_alloc(ALIGNMENT, rounded > 0 ? rounded : ALIGNMENT);
}

static void cpu_release(struct device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)bytes;
    free(memory);
}

static void cpu_copy(struct device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
}

static void cpu_zero(struct device *device, void *memory, size_t bytes)
{
    (void)device;
    memset(memory, 0, bytes);
}

static void cpu_wait(struct device *device)
{
    (void)device;
}

void device_cpu_init(struct device *device, const struct kernels *kernels)
{
#ifdef __GLIBC__ /* buffers come and go all the time: keep their pages instead of giving them back to the system */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 2000000000);
    mallopt(M_TOP_PAD, 64 << 20);
#endif
    *device = (struct device){
        .bytes_limit = INT64_MAX,
        .name = "cpu",
        .kernels = kernels,
        .allocate = cpu_allocate,
        .release = cpu_release,
        .copy = cpu_copy,
        .upload = cpu_copy,
        .download = cpu_copy,
        .zero = cpu_zero,
        .wait = cpu_wait,
    };
}

int64_t device_cpu_share_bytes(int ranks)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? pages * page_bytes / 10 * 9 / ranks : INT64_MAX;
}

static void *counted(struct device *device, int64_t n)
{
    size_t bytes = (size_t)n * 4;
    bool fits = device->bytes_now + (int64_t)bytes <= device->bytes_limit;
    void *memory = fits ? device->allocate(device, bytes) : NULL;
    if (!memory) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "no room for %lld bytes on device %s, which holds %lld of %lld",
                 (long long)bytes, device->name, (long long)device->bytes_now, (long long)device->bytes_limit);
        if (device->fail)
            device->fail(device->fail_context, sentence);
        abort();
    }
    device->bytes_now += (int64_t)bytes;
    if (device->bytes_now > device->bytes_peak)
        device->bytes_peak = device->bytes_now;
    return memory;
}

float *device_floats(struct device *device, int64_t n)
{
    float *memory = counted(device, n);
    device->zero(device, memory, (size_t)n * sizeof *memory);
    return memory;
}

int *device_ints(struct device *device, int64_t n)
{
    return counted(device, n);
}

void device_free(struct device *device, void *memory, int64_t n)
{
    if (!memory)
        return;
    device->bytes_now -= n * 4;
    device->release(device, memory, (size_t)n * 4);
}

double device_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct tensor *tensor_new(struct device *device, int rows, int columns)
{
    struct tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor)
        abort();
    *tensor = (struct tensor){rows, columns, 1, device, counted(device, (int64_t)rows * columns)};
    return tensor;
}

struct tensor *tensor_zeros(struct device *device, int rows, int columns)
{
    struct tensor *tensor = tensor_new(device, rows, columns);
    device->zero(device, tensor->data, (size_t)rows * (size_t)columns * sizeof *tensor->data);
    return tensor;
}

struct tensor *tensor_keep(struct tensor *tensor)
{
    tensor->references++;
    return tensor;
}

void tensor_drop(struct tensor **tensor)
{
    struct tensor *t = *tensor;
    *tensor = NULL;
    if (!t || --t->references > 0)
        return;
    device_free(t->device, t->data, (int64_t)t->rows * t->columns);
    free(t);
}
