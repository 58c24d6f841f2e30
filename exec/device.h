/* Where the arithmetic happens: memory, queues of work, events, and a clock.
 *
 * device_cpu.c runs everything at once on ordinary memory. Other devices fill the same struct; callers use nothing
 * else. Calls without a queue of their own go to `queue`, in order with the kernels; only download, wait and event_s
 * make the host wait. Memory that is released may still be in use by what was queued before: what is queued later may
 * get it. Other queues (communication) are ordered by events.
 *
 * Buffers are counted: bytes_now and bytes_peak are the allocator's own, of everything that the executor holds;
 * bytes_reserved_peak is what the allocator took from the system for it. Out of memory ends the process through `fail`
 * (world.h). Not thread-safe. */
#ifndef EXEC_DEVICE_H
#define EXEC_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct device {
    const char *name;
    const struct kernels *kernels;
    void *queue;                                                        /* first argument of every kernel */
    void *state;                                                        /* the device's own */
    void *(*allocate)(struct device *device, size_t bytes);             /* not zeroed; NULL when there is no room */
    void (*release)(struct device *device, void *memory, size_t bytes); /* after all queued calls that use it */
    void (*copy)(struct device *device, void *to, const void *from, size_t bytes);     /* within the device */
    void (*upload)(struct device *device, void *to, const void *from, size_t bytes);   /* `from` is free at once */
    void (*download)(struct device *device, void *to, const void *from, size_t bytes); /* waits */
    void (*fetch)(struct device *device, void *to, const void *from, size_t bytes);    /* `to`: there after a wait */
    void *(*host_allocate)(struct device *device, size_t bytes);                       /* host memory to fetch into */
    void (*host_release)(struct device *device, void *memory, size_t bytes);
    void (*zero)(struct device *device, void *memory, size_t bytes);
    void (*wait)(struct device *device); /* until the queue is empty */

    void *(*queue_new)(struct device *device); /* beside `queue` */
    void (*queue_free)(struct device *device, void *queue);
    void *(*event_new)(struct device *device);
    void (*event_free)(struct device *device, void *event);
    void (*event_record)(struct device *device, void *event, void *queue);
    void (*queue_wait)(struct device *device, void *queue, void *event); /* what follows in the queue waits */
    bool (*event_done)(struct device *device, void *event);
    /* Both wait. When an event was passed by clock_s (of those recorded since the last wait); between two. */
    double (*event_s)(struct device *device, void *event);
    double (*event_gap_s)(struct device *device, void *start, void *end);
    void (*poll)(void *context); /* called now and then while the host waits; NULL = nobody asks for it */
    void *poll_context;

    void (*fail)(void *context, const char *sentence);
    void *fail_context;
    int64_t bytes_now, bytes_peak, bytes_reserved_peak;
    int64_t bytes_limit; /* more is refused as if there were no room */
};

void device_cpu_init(struct device *device, const struct kernels *kernels);
/* What one of this host's `ranks` may take: an equal share of its memory, less a tenth for everything else. A model that
 * is too large then ends with one sentence, not with a machine that swaps. */
int64_t device_cpu_share_bytes(int ranks);

float *device_floats(struct device *device, int64_t n); /* zeroed */
int *device_ints(struct device *device, int64_t n);
void *device_new(struct device *device, int64_t n, enum element type); /* not filled */
void device_free(struct device *device, void *memory, int64_t n); /* n elements of 4 bytes; NULL is fine */
void device_free_typed(struct device *device, void *memory, int64_t n, enum element type);
void *device_elements(struct device *device, int64_t n);          /* of the kernels' type, zeroed */
void device_free_elements(struct device *device, void *memory, int64_t n);

/* A matrix that several owners share: the last drop frees it. */
struct tensor {
    int rows, columns, references;
    enum element type;
    struct device *device;
    void *data;
};
/* One reference, of the kernels' type or of floats; not filled, or zeros to add to. */
struct tensor *tensor_of(struct device *device, int rows, int columns, enum element type); /* not filled */
struct tensor *tensor_new(struct device *device, int rows, int columns);
struct tensor *tensor_zeros(struct device *device, int rows, int columns);
struct tensor *tensor_floats(struct device *device, int rows, int columns);
struct tensor *tensor_zero_floats(struct device *device, int rows, int columns);
struct tensor *tensor_keep(struct tensor *tensor); /* another reference; returns it */
void tensor_drop(struct tensor **tensor);          /* sets it to NULL; NULL is fine */
int64_t tensor_count(const struct tensor *tensor); /* elements */
void *tensor_at(const struct tensor *tensor, int64_t row, int64_t column);
/* The same values as elements, or as floats: the tensor itself (another reference) where it is of that type. */
struct tensor *tensor_as(struct tensor *tensor, enum element type);

#endif
