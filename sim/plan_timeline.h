/* One step of a plan, op by op: the program, when each op ran, and what it cost,
 * for traces and Gantt charts. */
#ifndef SIM_PLAN_TIMELINE_H
#define SIM_PLAN_TIMELINE_H

#include "sim/engine.h"
#include "sim/predict.h"
#include "sim/program.h"
#include "sim/timeline.h"

struct arena;

struct plan_timeline {
    struct program program;
    struct timeline timeline; /* recorded */
    struct engine_costs costs;
    int64_t micro_batches; /* drawn: fewer than the plan's where the step is very long (sim/pipeline.h) */
};

/* Everything lives in the arena. The plan must keep the launch rules. */
int plan_timeline_make(const struct question *question, const struct plan *plan, struct arena *arena, struct plan_timeline *ret, struct err *err);

/* A Chrome trace, a Gantt chart, activation memory over time; see sim/writers. title: model and cluster. */
int plan_timeline_trace(const struct plan_timeline *timeline, const char *path, const char *title, struct err *err);
int plan_timeline_gantt(const struct plan_timeline *timeline, const char *path, const char *title, struct err *err);

#endif
