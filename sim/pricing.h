/* A schedule, or a program from a file, priced in the user's own units
 * (`plansim schedule`, `plansim compare`).
 *
 * Costs are numbers without unit: F, B, W of one rank's whole work for one
 * micro-batch (a chunk takes its share of it; each module of a bidirectional
 * schedule is a whole stage), comm of one hop. Inside they are integer ticks. */
#ifndef SIM_PRICING_H
#define SIM_PRICING_H

#include <stddef.h>

#include "sim/engine.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"

struct arena;
struct err;

struct pricing {
    double cost[3]; /* F, B, W */
    double comm;
    enum engine_slot slot;
    double slot_cost; /* > 0: an F_BW slot of a whole stage takes this, whatever slot says */
    /* --stage-cost: by pipeline stage, not shared out further; NULL = cost. In the caller's arena. */
    double *stage_cost[3];
    int n_stage_costs;
    const char *stage_cost_file;
    bool blocking_sends;
    int iterations; /* 0 = 1 */
    enum engine_sync sync;
};

struct priced {
    const struct schedule *schedule; /* NULL = a program from a file */
    struct program program;
    struct engine_costs costs;
    struct timeline timeline; /* recorded when asked for */
    double ticks_per_unit;
    double stages_per_chunk; /* whole-stage units of one (micro-batch, chunk) */
};

/* F = B = W = 1, comm 0, overlap sum. */
void pricing_defaults(struct pricing *pricing);
/* "F=1,B=1,W=1[,comm=0][,overlap=max|sum|half|NUMBER]": what is named is set. */
int pricing_parse_cost(const char *text, struct pricing *pricing, struct err *err);
/* "max", ... or the number; returns buffer or a constant. */
const char *pricing_overlap(const struct pricing *pricing, char *buffer, size_t size);
/* CSV "stage,F,B,W", one line per stage. */
int pricing_load_stage_costs(const char *path, struct arena *arena, struct pricing *pricing, struct err *err);

int pricing_schedule(const struct pricing *pricing, enum plan_schedule schedule, const struct schedule_request *request,
                     bool record, struct arena *arena, struct priced *ret, struct err *err);
int pricing_program(const struct pricing *pricing, const struct program *program, bool record, struct arena *arena,
                    struct priced *ret, struct err *err);

static inline double priced_units(const struct priced *priced, int64_t ticks)
{
    return (double)ticks / priced->ticks_per_unit;
}
/* Largest number of activations that a rank holds, in whole stages. */
double priced_peak_activations(const struct priced *priced);

#endif
