/* What a run took: times of ops, communication and memory, added up over its steps and over the ranks. Collective
 * calls. */
#ifndef EXEC_MEASURE_H
#define EXEC_MEASURE_H

#include <stdint.h>

#include "cost/base/arena.h"
#include "exec/stopwatch.h"
#include "exec/world.h"
#include "sim/timeline.h"

struct step_result;
struct trainer;

/* Mean over ranks of the seconds of one step in each, without the first step where there are more; they add up to the
 * step. wait: between ops (bubble, late messages), and clearing gradients before them; optimizer: all that comes after
 * them. */
enum measure_kind {
    MEASURE_F,
    MEASURE_B,
    MEASURE_W,
    MEASURE_BW,
    MEASURE_F_BW,
    MEASURE_WAIT,
    MEASURE_OPTIMIZER,
    MEASURE_KINDS
};
extern const char *const measure_kind_names[];

struct measure_group {
    double seconds, waited_s, sent_bytes, received_bytes; /* mean of a rank and step, as kind_s (comm_counters) */
};

struct measurement {
    int ranks;
    int64_t steps, max_steps;
    double *step_time_s;       /* [max_steps] */
    double median_step_time_s; /* without the first step where there are more */
    double kind_s[MEASURE_KINDS];
    double part_s[STOPWATCH_PARTS]; /* of kind_s */
    double cpu_share;       /* of the time between steps' start and end that a rank ran, the least; 1 = undisturbed */
    double cpu_start_s, wall_start_s;
    double bubble_fraction; /* of the last step: idle between the step's start and the last op's end */
    struct measure_group group[WORLD_GROUPS];
    double unmatched_bytes; /* sent - received, all groups: 0 */
    int64_t peak_bytes;
    int peak_rank;
    int loss_spikes; /* loss above the mean of the last 20 by more than 6 standard deviations, and 10 % */
    double recent[20]; /* of `losses` that are numbers */
    int64_t losses;
    struct arena arena;
    struct timeline timeline; /* last step, pipeline of rank 0's group */
};

double measure_cpu_s(void); /* that this process has run */
void measure_begin(struct measurement *m, const struct trainer *trainer, int64_t steps);
void measure_step(struct measurement *m, const struct trainer *trainer, const struct step_result *result);
void measure_end(struct measurement *m, const struct trainer *trainer);
void measure_release(struct measurement *m);

#endif
