/* Ops per second of the engine on one core, P = 64, M = 512 (meson test --benchmark); fails below 20 million. */
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/arena.h"
#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"

enum { PP = 64, MICRO_BATCHES = 512, STAGES_MAX = 4 * PP };

/* Best of several runs, so that a busy machine does not count. */
static double price(const struct program *program, const struct engine_costs *costs, struct arena *arena)
{
    double best_s = 1e9;
    struct timeline timeline;
    struct err err = {0};
    for (int i = 0; i < 20; i++) {
        struct arena_mark mark = arena_mark(arena);
        double start_s = clock_s();
        if (engine_run(program, costs, arena, &timeline, &err) < 0) {
            printf("%s\n", err.text);
            exit(1);
        }
        double spent_s = clock_s() - start_s;
        best_s = spent_s < best_s ? spent_s : best_s;
        arena_rewind(arena, mark);
    }
    return best_s;
}

int main(void)
{
    static int64_t duration[STAGES_MAX], hop[STAGES_MAX], bytes[STAGES_MAX];
    double slowest = 1e18;
    for (int s = 0; s < STAGES_MAX; s++) {
        duration[s] = 1000 + s % 7;
        hop[s] = 20;
        bytes[s] = 1 << 20;
    }
    printf("%-16s %10s %12s %14s %14s\n", "schedule", "ops", "emit ms", "engine ms", "million ops/s");
    for (int i = 0; i < SCHEDULES; i++) {
        struct arena arena = {0}, scratch = {0};
        struct err err = {0};
        struct program program;
        struct engine_costs costs = {
            .forward_ps = duration, .backward_ps = duration, .wgrad_ps = duration, .p2p_ps = hop, .act_bytes = bytes};
        struct schedule_request request = {.pp = PP, .micro_batches = MICRO_BATCHES};
        double start_s = clock_s();
        if (schedule_emit((enum plan_schedule)i, &request, &arena, &program, &err) < 0) {
            printf("%s\n", err.text);
            return 1;
        }
        double emit_s = clock_s() - start_s, engine_s = price(&program, &costs, &scratch);
        double rate = (double)program_count_ops(&program) / engine_s;
        printf("%-16s %10lld %12.2f %14.3f %14.1f\n", schedule_names[i], (long long)program_count_ops(&program),
               1e3 * emit_s, 1e3 * engine_s, rate / 1e6);
        slowest = rate < slowest ? rate : slowest;
        arena_release(&arena);
        arena_release(&scratch);
    }
    printf("slowest: %.1f million ops/s\n", slowest / 1e6);
    return slowest < 20e6;
}
