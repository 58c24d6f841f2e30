/* DeepSeek-V3's measured chunk through DualPipe at PP16, and the same numbers through 1F1B and ZB-H1.
 *
 * deepseek-ai/profile-data (train.json, commit 4496024; DualPipe with EP64, 4 MoE layers per chunk, 4096 tokens, one
 * H800): busy time of a layer by phase and of its expert all-to-all, and the wall time of one overlapped forward and
 * backward chunk, 129.012 ms. Without overlap F takes compute + all-to-all. Expected here:
 *   - SLOT_COMM predicts the measured slot from its parts within 2 %;
 *   - with the measured slot DualPipe leaves less than a quarter of 1F1B's communication exposed and is 1.5 times as
 *     fast as 1F1B, 1.4 times as ZB-H1, at 120 micro-batches (15,360 sequences, 128 pipelines).
 * The table that is printed is the one of the documentation. */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "tests/unit/test.h"

enum { PP = 16, MICRO_BATCHES = 120, LAYERS = 4 };

/* Microseconds per layer. */
static const double forward_us = 4370 + 4604, backward_us = 9341 + 5306, wgrad_us = 2389 + 5063;
static const double forward_comm_us = 4346 + 5994, backward_comm_us = 3405 + 6368;
static const double slot_us = 129012; /* of the chunk */

struct answer {
    double step_s, bubble, exposed_s; /* exposed: communication that no compute hides, mean of the ranks */
};

static struct answer run(enum plan_schedule schedule, enum engine_slot slot, bool measured, int64_t *ret_slot_ps)
{
    static int64_t forward[PP], backward[PP], wgrad[PP], forward_comm[PP], backward_comm[PP], slots[PP];
    for (int s = 0; s < PP; s++) {
        forward_comm[s] = engine_ps(LAYERS * forward_comm_us * 1e-6);
        backward_comm[s] = engine_ps(LAYERS * backward_comm_us * 1e-6);
        forward[s] = engine_ps(LAYERS * forward_us * 1e-6) + forward_comm[s];
        backward[s] = engine_ps(LAYERS * backward_us * 1e-6) + backward_comm[s];
        wgrad[s] = engine_ps(LAYERS * wgrad_us * 1e-6);
        slots[s] = engine_ps(slot_us * 1e-6);
    }
    struct arena arena = {0};
    struct err err = {0};
    struct program program;
    struct timeline timeline;
    struct schedule_request request = {.pp = PP, .micro_batches = MICRO_BATCHES};
    struct engine_costs costs = {.forward_ps = forward,
                                 .backward_ps = backward,
                                 .wgrad_ps = wgrad,
                                 .slot = slot,
                                 .slot_ps = measured ? slots : NULL,
                                 .forward_comm_ps = forward_comm,
                                 .backward_comm_ps = backward_comm,
                                 .record = true};
    CHECK_INT(schedule_emit(schedule, &request, &arena, &program, &err), 0);
    CHECK_INT(engine_run(&program, &costs, &arena, &timeline, &err), 0);
    for (int i = 0; ret_slot_ps && i < program.n_ops[0]; i++)
        if (program.ops[0][i].kind == OP_F_BW)
            *ret_slot_ps = timeline.end_ps[0][i] - timeline.start_ps[0][i];
    double compute_s = MICRO_BATCHES * LAYERS * (forward_us + backward_us + wgrad_us) * 1e-6;
    struct answer answer = {(double)timeline.makespan_ps * 1e-12, timeline_bubble_fraction(&timeline),
                            timeline_ideal_ps(&timeline) * 1e-12 - compute_s};
    arena_release(&arena);
    return answer;
}

static void print_row(const char *name, const struct answer *a)
{
    printf("%-24s %8.2f s %8.1f %% %12.2f s %8.1f %%\n", name, a->step_s, 100 * a->bubble, a->exposed_s,
           100 * a->exposed_s / a->step_s);
}

int main(void)
{
    int64_t slot_ps = 0;
    struct answer one_f_one_b = run(SCHEDULE_1F1B, SLOT_SUM, false, NULL);
    struct answer zb_h1 = run(SCHEDULE_ZB_H1, SLOT_SUM, false, NULL);
    struct answer predicted = run(SCHEDULE_DUALPIPE, SLOT_COMM, false, &slot_ps);
    struct answer measured = run(SCHEDULE_DUALPIPE, SLOT_COMM, true, NULL);
    printf("%-24s %10s %10s %14s %10s\n", "PP16, 120 micro-batches", "pipeline", "bubble", "exposed comm", "of step");
    print_row("1F1B", &one_f_one_b);
    print_row("ZB-H1", &zb_h1);
    print_row("DualPipe, slot predicted", &predicted);
    print_row("DualPipe, slot measured", &measured);
    CHECK_DOUBLE((double)slot_ps * 1e-6, slot_us, 0.02);
    CHECK(measured.exposed_s < one_f_one_b.exposed_s / 4);
    CHECK(one_f_one_b.step_s > 1.5 * measured.step_s);
    CHECK(zb_h1.step_s > 1.4 * measured.step_s);
    return test_report();
}
