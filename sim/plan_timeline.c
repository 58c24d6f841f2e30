#include "sim/plan_timeline.h"

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/pipeline.h"
#include "sim/stages.h"
#include "sim/writers/gantt_chart.h"
#include "sim/writers/trace.h"

int plan_timeline_make(const struct question *question, const struct plan *plan, struct arena *arena, struct plan_timeline *ret, struct err *err)
{
    const struct stack *stack = question_stack(question, plan->stack);
    struct layer_prices *prices = arena_alloc(arena, sizeof *prices);
    struct stage_price *stage = arena_array(arena, PLAN_CHUNKS_MAX, sizeof *stage);
    struct stage_places places;
    struct stages stages;
    if (!stack)
        return err_add(err, "plan: stack '%s' is not among the loaded ones", plan->stack);
    layer_prices_fill(prices, question, plan, stack);
    stages_place(question, plan, &places);
    stages_fill(&stages, question, plan, prices, &places, stage);
    if (pipeline_record(&stages, arena, &ret->program, &ret->timeline, &ret->costs, err) < 0)
        return -1;
    ret->micro_batches = ret->program.micro_batches;
    return 0;
}

int plan_timeline_trace(const struct plan_timeline *t, const char *path, const char *title, struct err *err)
{
    struct trace_options options = {.title = title, .us_per_tick = 1e-6, .stages_per_chunk = 1.0 / t->program.chunks};
    return trace_write(path, &t->program, &t->timeline, &t->costs, &options, err);
}

int plan_timeline_gantt(const struct plan_timeline *t, const char *path, const char *title, struct err *err)
{
    struct gantt_chart options = {.title = title, .unit = "ms", .per_tick = 1e-9, .stages_per_chunk = 1.0 / t->program.chunks, .costs = &t->costs};
    return gantt_chart_draw(path, &t->program, &t->timeline, &options, err);
}
