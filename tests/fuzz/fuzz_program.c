/* Any bytes as a program, ours or PyTorch's: refused with a sentence, or priced; what is written reads back the
 * same. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/program_csv.h"
#include "sim/timeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void price(const struct program *program, struct arena *arena)
{
    size_t n = (size_t)program->stages;
    int64_t *costs = arena_array(arena, n, sizeof *costs);
    for (size_t s = 0; s < n; s++)
        costs[s] = (int64_t)(s % 5 + 1);
    struct engine_costs engine = {
        .forward_ps = costs, .backward_ps = costs, .wgrad_ps = costs, .p2p_ps = costs, .record = true};
    struct timeline timeline;
    struct err err = {0};
    int result = engine_run(program, &engine, arena, &timeline, &err);
    assert(result == 0); /* program_check promised it */
    assert(timeline.makespan_ps > 0);
}

static void round_trip(const struct program *program, char *text, struct arena *arena)
{
    struct program again;
    struct err err = {0};
    if (!text)
        return;
    int result = program_parse(text, strlen(text), "again", arena, &again, &err);
    assert(result == 0);
    assert(program_equal(program, &again));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct program program;
    struct err err = {0};
    if (program_parse((const char *)data, size, "fuzz", &arena, &program, &err) == 0) {
        price(&program, &arena);
        round_trip(&program, program_to_torch_csv(&program, NULL), &arena);
        program_strip(&program);
        round_trip(&program, program_to_csv(&program), &arena);
    } else {
        assert(err.count > 0);
    }
    arena_release(&arena);
    return 0;
}
