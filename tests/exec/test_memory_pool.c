/* The allocator of a GPU's buffers over ordinary memory: no two buffers overlap, all comes back, reserved memory is
 * taken again before the source is asked. Usage: test_memory_pool [SEED] */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "exec/memory_pool.h"

enum { BUFFERS = 200, TURNS = 20000 };

struct source {
    int64_t bytes, most_bytes, limit_bytes;
    int takes;
};

struct piece {
    size_t bytes;
    char rest[512 - sizeof(size_t)];
};

static void *take(void *context, size_t bytes)
{
    struct source *source = context;
    if (source->bytes + (int64_t)bytes > source->limit_bytes)
        return NULL;
    struct piece *piece = aligned_alloc(512, sizeof *piece + bytes);
    if (!piece)
        abort();
    piece->bytes = bytes;
    source->bytes += (int64_t)bytes;
    source->most_bytes = source->bytes > source->most_bytes ? source->bytes : source->most_bytes;
    source->takes++;
    return piece + 1;
}

static void give(void *context, void *memory)
{
    struct source *source = context;
    struct piece *piece = (struct piece *)memory - 1;
    source->bytes -= (int64_t)piece->bytes;
    free(piece);
}

static struct memory_pool *pool_of(struct source *source, int64_t limit_bytes)
{
    *source = (struct source){.limit_bytes = limit_bytes};
    return memory_pool_new(&(struct memory_source){take, give, source});
}

static uint32_t state = 1;

static size_t random_size(void)
{
    state = state * 1664525u + 1013904223u;
    uint32_t kind = state >> 8 & 15, size = state >> 12;
    return kind < 10 ? size % 5000 : kind < 15 ? size % (600 << 10) : size % (13 << 20);
}

/* Each buffer is filled with its number, and must still hold it when it is put back. */
static void check_many(void)
{
    struct source source;
    struct memory_pool *pool = pool_of(&source, INT64_MAX);
    unsigned char *buffer[BUFFERS] = {NULL};
    size_t bytes[BUFFERS] = {0};
    int damaged = 0, misplaced = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        int i = (int)(random_size() % BUFFERS);
        if (buffer[i]) {
            for (size_t at = 0; at<bytes[i]; at += bytes[i]> 100000 ? 4099 : 1)
                damaged += buffer[i][at] != i % 251;
            memory_pool_put(pool, buffer[i]);
            buffer[i] = NULL;
        } else {
            bytes[i] = random_size();
            buffer[i] = memory_pool_get(pool, bytes[i]);
            misplaced += (uintptr_t)buffer[i] % 512 != 0;
            memset(buffer[i], i % 251, bytes[i]);
        }
    }
    CHECK_INT(damaged, 0);
    CHECK_INT(misplaced, 0);
    CHECK_INT(memory_pool_reserved_bytes(pool), source.bytes);
    for (int i = 0; i < BUFFERS; i++)
        if (buffer[i])
            memory_pool_put(pool, buffer[i]);
    CHECK_INT(memory_pool_used_bytes(pool), 0);
    memory_pool_free(pool);
    CHECK_INT(source.bytes, 0);
}

static void check_reuse(void)
{
    struct source source;
    struct memory_pool *pool = pool_of(&source, INT64_MAX);
    for (int step = 0; step < 10; step++) { /* the same buffers every step: asked for once */
        void *a = memory_pool_get(pool, 30 << 20), *b = memory_pool_get(pool, 100), *c = memory_pool_get(pool, 3 << 20);
        memory_pool_put(pool, a);
        void *d = memory_pool_get(pool, 12 << 20); /* behind c: there it fits best */
        CHECK(d == (char *)c + (3 << 20));
        memory_pool_put(pool, c);
        memory_pool_put(pool, b);
        memory_pool_put(pool, d);
    }
    CHECK_INT(source.takes, 3);
    CHECK_INT(source.most_bytes, (30 << 20) + (2 << 20) + (20 << 20));
    memory_pool_free(pool);
    CHECK_INT(source.bytes, 0);
}

static void check_limit(void)
{
    struct source source;
    struct memory_pool *pool = pool_of(&source, 64 << 20);
    void *a = memory_pool_get(pool, 40 << 20);
    CHECK(a != NULL);
    CHECK(memory_pool_get(pool, 40 << 20) == NULL);
    memory_pool_put(pool, a);
    void *b = memory_pool_get(pool, 60 << 20); /* a's piece is given back for it */
    CHECK(b != NULL);
    CHECK_INT(memory_pool_reserved_bytes(pool), 60 << 20);
    memory_pool_free(pool); /* with b still out */
    CHECK_INT(source.bytes, 0);
}

int main(int argc, char **argv)
{
    state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    printf("seed %u\n", (unsigned)state);
    check_many();
    check_reuse();
    check_limit();
    return test_report();
}
