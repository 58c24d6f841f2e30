#include "exec/memory_pool.h"

#include <stdbool.h>
#include <stdlib.h>

enum { GRAIN = 512, CHAINS = 4096 };
static const size_t small_bytes = 1 << 20, small_piece_bytes = 2 << 20, middle_bytes = 10 << 20,
                    middle_piece_bytes = 20 << 20, large_grain_bytes = 2 << 20;

/* A place in a piece; before and after are its neighbours by address, NULL at the piece's ends. */
struct block {
    char *memory;
    size_t bytes;
    bool used, small;
    struct block *before, *after;
    struct block *next, *previous; /* of the free list, or next of the used blocks' chain */
};

struct memory_pool {
    struct memory_source source;
    struct block *free[2];       /* [small] */
    struct block *chain[CHAINS]; /* used blocks by address */
    int64_t reserved_bytes, used_bytes;
};

struct memory_pool *memory_pool_new(const struct memory_source *source)
{
    struct memory_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        abort();
    pool->source = *source;
    return pool;
}

static struct block **chain_of(struct memory_pool *pool, const void *memory)
{
    return &pool->chain[(uintptr_t)memory / GRAIN % CHAINS];
}

static void list_free(struct memory_pool *pool, struct block *block)
{
    struct block **first = &pool->free[block->small];
    block->used = false;
    block->previous = NULL;
    block->next = *first;
    if (*first)
        (*first)->previous = block;
    *first = block;
}

static void unlist_free(struct memory_pool *pool, struct block *block)
{
    if (block->previous)
        block->previous->next = block->next;
    else
        pool->free[block->small] = block->next;
    if (block->next)
        block->next->previous = block->previous;
}

static struct block *new_block(char *memory, size_t bytes, bool small)
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        abort();
    block->memory = memory;
    block->bytes = bytes;
    block->small = small;
    return block;
}

static size_t piece_bytes(size_t bytes)
{
    if (bytes <= small_bytes)
        return small_piece_bytes;
    if (bytes < middle_bytes)
        return middle_piece_bytes;
    return (bytes + large_grain_bytes - 1) / large_grain_bytes * large_grain_bytes;
}

static bool is_whole_piece(const struct block *block)
{
    return !block->before && !block->after;
}

static void give_back(struct memory_pool *pool)
{
    for (int small = 0; small < 2; small++)
        for (struct block *block = pool->free[small], *next; block; block = next) {
            next = block->next;
            if (!is_whole_piece(block))
                continue;
            unlist_free(pool, block);
            pool->source.give(pool->source.context, block->memory);
            pool->reserved_bytes -= (int64_t)block->bytes;
            free(block);
        }
}

static struct block *new_piece(struct memory_pool *pool, size_t bytes)
{
    size_t size = piece_bytes(bytes);
    char *memory = pool->source.take(pool->source.context, size);
    if (!memory) {
        give_back(pool);
        memory = pool->source.take(pool->source.context, size);
    }
    if (!memory)
        return NULL;
    pool->reserved_bytes += (int64_t)size;
    struct block *block = new_block(memory, size, bytes <= small_bytes);
    list_free(pool, block);
    return block;
}

static struct block *best_fit(struct memory_pool *pool, size_t bytes)
{
    struct block *best = NULL;
    for (struct block *block = pool->free[bytes <= small_bytes]; block; block = block->next)
        if (block->bytes >= bytes && (!best || block->bytes < best->bytes))
            best = block;
    return best ? best : new_piece(pool, bytes);
}

/* What is over becomes a free block, unless it is too little to be of use. */
static void split(struct memory_pool *pool, struct block *block, size_t bytes)
{
    size_t rest = block->bytes - bytes;
    if (block->small ? rest < GRAIN : rest <= small_bytes)
        return;
    struct block *other = new_block(block->memory + bytes, rest, block->small);
    other->before = block;
    other->after = block->after;
    if (other->after)
        other->after->before = other;
    block->after = other;
    block->bytes = bytes;
    list_free(pool, other);
}

void *memory_pool_get(struct memory_pool *pool, size_t bytes)
{
    size_t rounded = bytes > 0 ? (bytes + GRAIN - 1) / GRAIN * GRAIN : GRAIN;
    struct block *block = best_fit(pool, rounded);
    if (!block)
        return NULL;
    unlist_free(pool, block);
    split(pool, block, rounded);
    struct block **chain = chain_of(pool, block->memory);
    block->used = true;
    block->next = *chain;
    *chain = block;
    pool->used_bytes += (int64_t)block->bytes;
    return block->memory;
}

/* b, which follows a, becomes part of it. */
static void merge(struct block *a, struct block *b)
{
    a->bytes += b->bytes;
    a->after = b->after;
    if (a->after)
        a->after->before = a;
    free(b);
}

void memory_pool_put(struct memory_pool *pool, void *memory)
{
    struct block **at = chain_of(pool, memory), *block;
    while (*at && (*at)->memory != (char *)memory)
        at = &(*at)->next;
    block = *at;
    if (!block)
        abort(); /* not handed out */
    *at = block->next;
    pool->used_bytes -= (int64_t)block->bytes;
    block->used = false;
    if (block->after && !block->after->used) {
        unlist_free(pool, block->after);
        merge(block, block->after);
    }
    if (block->before && !block->before->used) {
        struct block *before = block->before;
        unlist_free(pool, before);
        merge(before, block);
        block = before;
    }
    list_free(pool, block);
}

int64_t memory_pool_reserved_bytes(const struct memory_pool *pool)
{
    return pool->reserved_bytes;
}

int64_t memory_pool_used_bytes(const struct memory_pool *pool)
{
    return pool->used_bytes;
}

void memory_pool_free(struct memory_pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < CHAINS; i++)
        while (pool->chain[i])
            memory_pool_put(pool, pool->chain[i]->memory);
    give_back(pool);
    free(pool);
}
