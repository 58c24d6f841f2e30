/* Arenas: alignment, zeroing, marks, sizes beyond a block. */
#include "cost/base/arena.h"

#include "tests/unit/test.h"

static bool all_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

static void test_alloc(void)
{
    struct arena arena = {0};
    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *memory = arena_alloc(&arena, bytes);
        CHECK(((uintptr_t)memory & 15) == 0);
        CHECK(all_zero(memory, bytes));
        memset(memory, 0xAA, bytes);
    }
    unsigned char *large = arena_alloc(&arena, 1 << 20); /* larger than a block */
    CHECK(all_zero(large, 1 << 20));
    memset(large, 0xAA, 1 << 20);
    CHECK(all_zero(arena_alloc(&arena, 100), 100));
    CHECK_STR(arena_strdup(&arena, "text"), "text");
    int *numbers = arena_array(&arena, 10, sizeof(*numbers));
    CHECK_INT(numbers[9], 0);
    arena_release(&arena);
    CHECK(arena.head == NULL);
    CHECK_STR(arena_strdup(&arena, "again"), "again");
    arena_release(&arena);
    arena_release(&arena);
}

static void test_marks(void)
{
    struct arena arena = {.block_bytes = 256};
    struct arena_mark empty = arena_mark(&arena);
    char *kept = arena_strdup(&arena, "kept");
    struct arena_mark mark = arena_mark(&arena);
    unsigned char *first = arena_alloc(&arena, 64);
    memset(first, 0xAA, 64);
    for (int i = 0; i < 100; i++)
        memset(arena_alloc(&arena, 100), 0xAA, 100);
    arena_rewind(&arena, mark);
    unsigned char *second = arena_alloc(&arena, 64);
    CHECK(first == second); /* the same memory again */
    CHECK(all_zero(second, 64));
    CHECK_STR(kept, "kept");
    arena_rewind(&arena, empty);
    CHECK(arena.head == NULL);
    arena_release(&arena);
}

int main(void)
{
    test_alloc();
    test_marks();
    return test_report();
}
