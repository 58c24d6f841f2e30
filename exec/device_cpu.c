/* The CPU as a device, and what all devices share: counting, tensors, the clock. */
#include "cost/base/clock.h"
#include "exec/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Everything has been done when it returns: an event is the time at which it was recorded. */
static void *cpu_queue_new(struct device *device)
{
    (void)device;
    return NULL;
}

static void cpu_queue_free(struct device *device, void *queue)
{
    (void)device;
    (void)queue;
}

static void *cpu_event_new(struct device *device)
{
    (void)device;
    double *event = calloc(1, sizeof *event);
    if (!event)
        abort();
    return event;
}

static void cpu_event_free(struct device *device, void *event)
{
    (void)device;
    free(event);
}

static void cpu_event_record(struct device *device, void *event, void *queue)
{
    (void)device;
    (void)queue;
    *(double *)event = clock_s();
}

static void cpu_queue_wait(struct device *device, void *queue, void *event)
{
    (void)device;
    (void)queue;
    (void)event;
}

static bool cpu_event_done(struct device *device, void *event)
{
    (void)device;
    (void)event;
    return true;
}

static double cpu_event_s(struct device *device, void *event)
{
    (void)device;
    return *(double *)event;
}

static double cpu_event_gap_s(struct device *device, void *start, void *end)
{
    return cpu_event_s(device, end) - cpu_event_s(device, start);
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
        .fetch = cpu_copy,
        .host_allocate = cpu_allocate,
        .host_release = cpu_release,
        .zero = cpu_zero,
        .wait = cpu_wait,
        .queue_new = cpu_queue_new,
        .queue_free = cpu_queue_free,
        .event_new = cpu_event_new,
        .event_free = cpu_event_free,
        .event_record = cpu_event_record,
        .queue_wait = cpu_queue_wait,
        .event_done = cpu_event_done,
        .event_s = cpu_event_s,
        .event_gap_s = cpu_event_gap_s,
    };
}

int64_t device_cpu_share_bytes(int ranks)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? pages * page_bytes / 10 * 9 / ranks : INT64_MAX;
}

static void *counted(struct device *device, int64_t n, size_t element)
{
    size_t bytes = (size_t)n * element;
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

static void discard(struct device *device, void *memory, int64_t n, size_t element)
{
    if (!memory)
        return;
    device->bytes_now -= n * (int64_t)element;
    device->release(device, memory, (size_t)n * element);
}

float *device_floats(struct device *device, int64_t n)
{
    float *memory = counted(device, n, sizeof *memory);
    device->zero(device, memory, (size_t)n * sizeof *memory);
    return memory;
}

void *device_new(struct device *device, int64_t n, enum element type)
{
    return counted(device, n, element_bytes(type));
}

int *device_ints(struct device *device, int64_t n)
{
    return counted(device, n, sizeof(int));
}

void device_free(struct device *device, void *memory, int64_t n)
{
    discard(device, memory, n, 4);
}

void device_free_typed(struct device *device, void *memory, int64_t n, enum element type)
{
    discard(device, memory, n, element_bytes(type));
}

void *device_elements(struct device *device, int64_t n)
{
    size_t element = element_bytes(device->kernels->type);
    void *memory = counted(device, n, element);
    device->zero(device, memory, (size_t)n * element);
    return memory;
}

void device_free_elements(struct device *device, void *memory, int64_t n)
{
    discard(device, memory, n, element_bytes(device->kernels->type));
}

/* --- tensors ----------------------------------------------------------------- */

struct tensor *tensor_of(struct device *device, int rows, int columns, enum element type)
{
    struct tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor)
        abort();
    *tensor =
        (struct tensor){rows, columns, 1, type, device, counted(device, (int64_t)rows * columns, element_bytes(type))};
    return tensor;
}

static struct tensor *zeroed(struct tensor *tensor)
{
    size_t bytes = (size_t)tensor_count(tensor) * element_bytes(tensor->type);
    tensor->device->zero(tensor->device, tensor->data, bytes);
    return tensor;
}

struct tensor *tensor_new(struct device *device, int rows, int columns)
{
    return tensor_of(device, rows, columns, device->kernels->type);
}

struct tensor *tensor_zeros(struct device *device, int rows, int columns)
{
    return zeroed(tensor_new(device, rows, columns));
}

struct tensor *tensor_floats(struct device *device, int rows, int columns)
{
    return tensor_of(device, rows, columns, ELEMENT_F32);
}

struct tensor *tensor_zero_floats(struct device *device, int rows, int columns)
{
    return zeroed(tensor_floats(device, rows, columns));
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
    discard(t->device, t->data, tensor_count(t), element_bytes(t->type));
    free(t);
}

int64_t tensor_count(const struct tensor *tensor)
{
    return (int64_t)tensor->rows * tensor->columns;
}

void *tensor_at(const struct tensor *tensor, int64_t row, int64_t column)
{
    return element_at(tensor->type, tensor->data, row * tensor->columns + column);
}

struct tensor *tensor_as(struct tensor *tensor, enum element type)
{
    if (tensor->type == type)
        return tensor_keep(tensor);
    struct device *device = tensor->device;
    struct tensor *other = tensor_of(device, tensor->rows, tensor->columns, type);
    device->kernels->convert(device->queue, tensor_count(tensor), tensor->type, tensor->data, type, other->data);
    return other;
}
