/* What is lost by taking the plan that is predicted fastest: sweeps of one model, cluster and batch. */
#include "tests/unit/test.h"

#include <math.h>

#include "cost/base/arena.h"
#include "sim/validate_stats.h"

enum { ROWS = 7 };

/* group, predicted, measured; the plans of a sweep share a group here. */
static const struct { const char *group; double predicted_s, measured_s; } rows[ROWS] = {
    {"wrong", 1.0, 2.0}, {"wrong", 1.5, 1.6},                       /* takes 2.0 where 1.6 was to be had */
    {"twice", 3.0, 4.0}, {"twice", 3.0, 3.3}, {"twice", 5.0, 6.0},  /* one plan, measured twice: no choice was wrong */
    {"right", 1.0, 1.1}, {"alone", 1.0, 9.0},
};

int main(void)
{
    struct arena arena = {0};
    struct run runs[ROWS] = {{0}};
    static struct outcome outcomes[ROWS];
    struct validation v = {.table = {.n = ROWS, .run = runs}, .outcome = outcomes};
    struct validate_stats stats;
    for (int i = 0; i < ROWS; i++) {
        runs[i] = (struct run){.group = rows[i].group, .trust = "A", .accelerator = "x", .precision = "bf16", .container = ""};
        outcomes[i] = (struct outcome){.run = &runs[i], .predicted = true, .measured_s = rows[i].measured_s, .step_time_s = rows[i].predicted_s,
                                       .error = rows[i].predicted_s / rows[i].measured_s - 1, .memory_error = (double)NAN};
    }
    validate_stats(&v, BY_GROUP, "A", &arena, &stats);
    CHECK_INT(stats.regret.sweeps, 2);
    CHECK_INT(stats.regret.plans, 5);
    CHECK_DOUBLE(stats.regret.max, 2.0 / 1.6 - 1, 1e-12);
    CHECK_DOUBLE(stats.regret.mean, (2.0 / 1.6 - 1) / 2, 1e-12);
    arena_release(&arena);
    return test_report();
}
