/* A growing region of memory that is released as a whole.
 *
 * One arena per owner (a program, a worker of the search); no call frees a
 * single allocation. Memory is zeroed. Not thread-safe: one arena, one thread.
 * arena_alloc aborts the process with one line on stderr only when the system
 * is out of memory (the one place in the libraries that does). */
#ifndef COST_BASE_ARENA_H
#define COST_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head; /* newest block first; NULL when empty */
    size_t block_bytes;       /* size of the next block to request, 0 = default (64 KiB) */
};

struct arena_mark {
    struct arena_block *block;
    size_t used;
};

void *arena_alloc(struct arena *arena, size_t bytes);              /* aligned to 16 bytes, zeroed */
void *arena_array(struct arena *arena, size_t n, size_t elem_bytes); /* overflow-checked n*elem_bytes */
char *arena_strdup(struct arena *arena, const char *text);
struct arena_mark arena_mark(const struct arena *arena);
void arena_rewind(struct arena *arena, struct arena_mark mark); /* frees all that came after the mark */
void arena_release(struct arena *arena);                        /* frees all; the arena may be used again */
/* The one line and the abort; for the other places that cannot go on without memory. */
void arena_out_of_memory(size_t bytes) __attribute__((noreturn));

#endif
