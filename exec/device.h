/* Where the arithmetic happens: memory, a queue of kernel calls, and a clock.
 *
 * device_cpu.c runs kernels at once on ordinary memory. Other devices fill the
 * same struct; callers use nothing else. Buffers are counted: bytes_now and
 * bytes_peak are the allocator's own, of everything that the executor holds.
 * Out of memory ends the process through `fail` (world.h). Not thread-safe. */
#ifndef EXEC_DEVICE_H
#define EXEC_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kernels;

struct device {
    const char *name;
    const struct kernels *kernels;
    void *queue;                                                        /* first argument of every kernel */
    void *(*allocate)(struct device *device, size_t bytes);             /* not zeroed; NULL when there is no room */
    void (*release)(struct device *device, void *memory, size_t bytes); /* after all queued calls that use it */
    void (*copy)(struct device *device, void *to, const void *from, size_t bytes); /* within the device */
    void (*upload)(struct device *device, void *to, const void *from, size_t bytes);
    void (*download)(struct device *device, void *to, const void *from, size_t bytes); /* waits */
    void (*zero)(struct device *device, void *memory, size_t bytes);
    void (*wait)(struct device *device); /* until the queue is empty */
    void (*fail)(void *context, const char *sentence);
    void *fail_context;
    int64_t bytes_now, bytes_peak;
    int64_t bytes_limit; /* more is refused as if there were no room */
};

void device_cpu_init(struct device *device, const struct kernels *kernels);
/* What one of this host's `ranks` may take: an equal share of its memory, less a tenth for everything else. A model that
 * is too large then ends with one sentence, not with a machine that swaps. */
int64_t device_cpu_share_bytes(int ranks);

float *device_floats(struct device *device, int64_t n); /* zeroed */
int *device_ints(struct device *device, int64_t n);
void device_free(struct device *device, void *memory, int64_t n); /* n elements of 4 bytes; NULL is fine */
double device_now_s(void);                                        /* a steady clock */

/* A matrix that several owners share: the last drop frees it. */
struct tensor {
    int rows, columns, references;
    struct device *device;
    float *data;
};
struct tensor *tensor_new(struct device *device, int rows, int columns);   /* one reference, not filled */
struct tensor *tensor_zeros(struct device *device, int rows, int columns); /* to add to */
struct tensor *tensor_keep(struct tensor *tensor);                         /* another reference; returns it */
void tensor_drop(struct tensor **tensor);                                  /* sets it to NULL; NULL is fine */

#endif
