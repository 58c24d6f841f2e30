#include "cost/base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_BLOCK_DEFAULT = 64 << 10 };

struct arena_block {
    struct arena_block *next; /* the block that was newest before this one */
    size_t size, used;        /* bytes of data */
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

void arena_out_of_memory(size_t bytes)
{
    fprintf(stderr, "out of memory: %zu bytes could not be allocated\n", bytes);
    abort();
}

static struct arena_block *block_new(size_t size)
{
    if (size > SIZE_MAX - sizeof(struct arena_block))
        arena_out_of_memory(size);
    struct arena_block *block = malloc(sizeof(struct arena_block) + size);
    if (block == NULL)
        arena_out_of_memory(size);
    block->next = NULL;
    block->size = size;
    block->used = 0;
    return block;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - ARENA_ALIGN)
        arena_out_of_memory(bytes);
    size_t rounded = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    struct arena_block *block = arena->head;
    if (block == NULL || block->size - block->used < rounded) {
        size_t size = arena->block_bytes != 0 ? arena->block_bytes : ARENA_BLOCK_DEFAULT;
        block = block_new(rounded > size ? rounded : size);
        block->next = arena->head;
        arena->head = block;
    }
    void *memory = block->data + block->used;
    block->used += rounded;
    memset(memory, 0, rounded);
    return memory;
}

void *arena_array(struct arena *arena, size_t n, size_t elem_bytes)
{
    if (elem_bytes != 0 && n > SIZE_MAX / elem_bytes)
        arena_out_of_memory(SIZE_MAX);
    return arena_alloc(arena, n * elem_bytes);
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t length = strlen(text) + 1;
    char *copy = arena_alloc(arena, length);
    memcpy(copy, text, length);
    return copy;
}

struct arena_mark arena_mark(const struct arena *arena)
{
    struct arena_mark mark = {arena->head, arena->head != NULL ? arena->head->used : 0};
    return mark;
}

void arena_rewind(struct arena *arena, struct arena_mark mark)
{
    while (arena->head != mark.block) {
        struct arena_block *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
    if (arena->head != NULL)
        arena->head->used = mark.used;
}

void arena_release(struct arena *arena)
{
    struct arena_mark start = {NULL, 0};
    arena_rewind(arena, start);
}
