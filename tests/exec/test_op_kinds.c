/* Rows of a step's time: they add up, ops are priced by their stage, slots take what is left, parts of ops are apart. */
#include "tests/unit/test.h"

#include "cost/base/err.h"
#include "exec/measure.h"
#include "exec/op_kinds.h"
#include "exec/pipeline_run.h"
#include "exec/predicted.h"
#include "cost/plan.h"

static const struct op_kind_row *row_of(const struct op_kind_row *row, int n, const char *name)
{
    static const struct op_kind_row none;
    for (int i = 0; i < n; i++)
        if (strcmp(row[i].name, name) == 0)
            return &row[i];
    return &none;
}

static bool has(const struct op_kind_row *row, int n, const char *name)
{
    return row_of(row, n, name)->name != NULL;
}

static void check_sums(const struct op_kind_row *row, int n)
{
    double measured_s = 0, predicted_s = 0;
    for (int i = 0; i + 1 < n; i++) {
        measured_s += row[i].inside ? 0 : row[i].measured_s;
        predicted_s += row[i].inside ? 0 : row[i].predicted_s;
    }
    CHECK_STR(row[n - 1].name, "step");
    CHECK_DOUBLE(row[n - 1].measured_s, measured_s, 1e-12);
    CHECK_DOUBLE(row[n - 1].predicted_s, predicted_s, 1e-12);
}

static struct measurement measured(void)
{
    struct measurement m = {.kind_s = {[MEASURE_F] = 1,
                                       [MEASURE_B] = 1.1,
                                       [MEASURE_W] = 0.9,
                                       [MEASURE_BW] = 0.5,
                                       [MEASURE_F_BW] = 3,
                                       [MEASURE_WAIT] = 0.3,
                                       [MEASURE_OPTIMIZER] = 0.6},
                            .part_s = {[STOPWATCH_CLEAR] = 0.1,
                                       [STOPWATCH_RECOMPUTE] = 0.2,
                                       [STOPWATCH_REDUCTION] = 0.15,
                                       [STOPWATCH_OPTIMIZER] = 0.25,
                                       [STOPWATCH_GATHER] = 0.08}};
    m.group[WORLD_TP].waited_s = 0.04;
    m.group[WORLD_KV].waited_s = 0.01;
    m.group[WORLD_DP_CP].waited_s = 0.5;
    m.group[WORLD_EXPERT_DP].waited_s = 0.03;
    m.group[WORLD_EP].waited_s = 0.07;
    return m;
}

static void emit(enum plan_schedule schedule, int pp, int micro_batches, struct arena *arena, struct program *ret)
{
    struct plan plan;
    struct err err = {0};
    plan_defaults(&plan);
    plan.pp = pp;
    plan.schedule = schedule;
    plan.micro_batch = 1;
    plan.global_batch = micro_batches;
    CHECK_INT(pipeline_program(&plan, arena, ret, &err), 0);
    CHECK_STR(err.text, "");
}

/* Two stages of different prices. */
static struct predicted predicted(void)
{
    return (struct predicted){.step_time_s = 10,
                              .wait_s = 1,
                              .end_s = 0.9,
                              .reduction_s = 0.3,
                              .optimizer_s = 0.4,
                              .gather_s = 0.15,
                              .overhead_s = 0.05,
                              .recompute_s = 0.25,
                              .cp_s = 0.02,
                              .n_chunks = 2,
                              .chunk_s = {{0.5, 0.6, 0.4}, {0.7, 0.8, 0.5}}};
}

static void check_fused(void)
{
    struct op_kind_row row[OP_KIND_ROWS_MAX];
    struct arena arena = {0};
    struct program program;
    struct measurement m = measured();
    struct predicted p = predicted();
    m.kind_s[MEASURE_B] = m.kind_s[MEASURE_W] = m.kind_s[MEASURE_F_BW] = 0;
    emit(SCHEDULE_1F1B, 2, 4, &arena, &program);
    p.step_time_s = 4 * (0.5 + 0.7 + 1.0 + 1.3) / 2 + p.wait_s + p.end_s;
    int n = op_kinds_fill(&m, &program, 0, &p, row);
    check_sums(row, n);
    CHECK_DOUBLE(row_of(row, n, "F")->predicted_s, 4 * (0.5 + 0.7) / 2, 1e-12);
    CHECK_DOUBLE(row_of(row, n, "BW")->predicted_s, 4 * (1.0 + 1.3) / 2, 1e-12);
    CHECK(!has(row, n, "B") && !has(row, n, "W") && !has(row, n, "F&BW"));
    CHECK_DOUBLE(row_of(row, n, "optimizer")->measured_s, 0.35, 1e-12); /* with the clearing, which wait is without */
    CHECK_DOUBLE(row_of(row, n, "wait")->measured_s, 0.2, 1e-12);
    CHECK_DOUBLE(row_of(row, n, "other")->measured_s, 0.6 - 0.15 - 0.25 - 0.08, 1e-12);
    CHECK_DOUBLE(row_of(row, n, "tp")->measured_s, 0.05, 1e-12);
    CHECK(row_of(row, n, "recompute")->inside && row_of(row, n, "tp")->inside && !row_of(row, n, "wait")->inside);
    CHECK(has(row, n, "cp")); /* predicted, not measured */
    CHECK(!has(row, n, "dp"));
    n = op_kinds_fill(&m, &program, 3, &p, row);
    CHECK_DOUBLE(row_of(row, n, "dp")->measured_s, 0.53 - 0.15 - 0.08, 1e-12);
    n = op_kinds_fill(&m, &program, 0, NULL, row);
    CHECK_DOUBLE(row_of(row, n, "F")->measured_s, 1, 0);
    CHECK_DOUBLE(row_of(row, n, "step")->predicted_s, 0, 0);
    arena_release(&arena);
}

static void check_apart(void)
{
    struct op_kind_row row[OP_KIND_ROWS_MAX];
    struct arena arena = {0};
    struct program program;
    struct measurement m = measured();
    struct predicted p = predicted();
    emit(SCHEDULE_ZB_H1, 2, 4, &arena, &program);
    int n = op_kinds_fill(&m, &program, 0, &p, row);
    double ops_s = 0;
    for (int i = 0; i < 4; i++)
        ops_s += row_of(row, n, ((const char *const[]){"F", "B", "W", "BW"})[i])->predicted_s;
    CHECK_DOUBLE(ops_s, 4 * (0.5 + 0.7 + 1.0 + 1.3) / 2, 1e-12);
    CHECK(has(row, n, "B") && has(row, n, "W"));
    arena_release(&arena);
}

static void check_slots(void)
{
    struct op_kind_row row[OP_KIND_ROWS_MAX];
    struct arena arena = {0};
    struct program program;
    struct measurement m = measured();
    struct predicted p = predicted();
    emit(SCHEDULE_DUALPIPE, 2, 8, &arena, &program);
    int n = op_kinds_fill(&m, &program, 0, &p, row);
    CHECK(has(row, n, "F&BW"));
    check_sums(row, n); /* slots take what is left of step - wait - end */
    arena_release(&arena);
}

int main(void)
{
    check_fused();
    check_apart();
    check_slots();
    return test_report();
}
