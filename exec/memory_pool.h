/* Buffers out of larger pieces of memory that are seldom asked for, because asking stalls a GPU.
 *
 * Sizes are rounded up to 512 bytes. Buffers up to 1 MiB share pieces of 2 MiB, those below 10 MiB pieces of 20 MiB,
 * larger ones have a piece in multiples of 2 MiB (the classes of PyTorch's allocator, so that what is reserved
 * compares). The smallest free place that fits is taken and split where enough is left; neighbours that are free become
 * one. When the source has no more, pieces that are wholly free are given back and it is asked again. The pool never
 * touches the memory itself: a buffer that is put back may be handed out while queued work still uses it. Not
 * thread-safe. */
#ifndef EXEC_MEMORY_POOL_H
#define EXEC_MEMORY_POOL_H

#include <stddef.h>
#include <stdint.h>

struct memory_pool;

struct memory_source {
    void *(*take)(void *context, size_t bytes); /* NULL = no more */
    void (*give)(void *context, void *memory);  /* waits for queued work first */
    void *context;
};

struct memory_pool *memory_pool_new(const struct memory_source *source);
void memory_pool_free(struct memory_pool *pool);               /* all pieces; NULL is fine */
void *memory_pool_get(struct memory_pool *pool, size_t bytes); /* aligned to 512; NULL = no room */
void memory_pool_put(struct memory_pool *pool, void *memory);
int64_t memory_pool_reserved_bytes(const struct memory_pool *pool); /* of all pieces now */
int64_t memory_pool_used_bytes(const struct memory_pool *pool);     /* handed out now, rounded */

#endif
