/* When every op of a program ran, and what follows from it: busy and idle
 * time, spans, memory. The same type for simulated and for measured runs.
 *
 * Times are int64 picoseconds from the start of the step; memory is bytes of
 * activations. All arrays live in the arena that was given to engine_run or
 * timeline_init. */
#ifndef SIM_TIMELINE_H
#define SIM_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct engine_costs;
struct err;
struct program;

struct timeline_rank {
    int64_t start_ps, end_ps; /* first start and last end of its ops */
    int64_t busy_ps;          /* time in compute ops */
    int64_t peak_bytes;       /* activations: F allocates at its start, B and W free at their end */
    int peak_in_flight;       /* (micro-batch, chunk) pairs between the start of F and the end of W */
    int peak_in_flight_b;     /* ... and the end of B */
    double in_flight_ps;      /* sum over pairs of the time in flight until W; / makespan = mean in flight */
};

struct timeline {
    int ranks;
    int iterations;
    int64_t makespan_ps; /* last end of a compute op, from time 0 */
    int64_t finish_ps;   /* ... of an optimizer step */
    int64_t period_ps;   /* from one iteration to the next in the steady state; iterations = 1: makespan + optimizer */
    int64_t span_ps;     /* the longest end - start of one rank, over one iteration */
    struct timeline_rank *rank; /* [ranks], of the last iteration */
    /* Recorded on request, else NULL: [rank][iteration * n_ops + index]. */
    int64_t **start_ps, **end_ps;
    int64_t *optimizer_start_ps; /* [iteration * ranks + rank], always there */
};

/* Mean busy time per rank: what the makespan would be without bubbles. */
double timeline_ideal_ps(const struct timeline *timeline);
/* Idle time of all ranks / (ranks * makespan), over all iterations. */
double timeline_bubble_fraction(const struct timeline *timeline);
int64_t timeline_peak_bytes(const struct timeline *timeline, int *ret_rank); /* ret_rank may be NULL */

/* Room for recorded times of one iteration (a measured run fills start_ps and end_ps itself) ... */
void timeline_init(struct timeline *timeline, const struct program *program, struct arena *arena);
/* ... and everything else computed from them. act_bytes, act_b_bytes as in struct engine_costs, may be NULL. */
void timeline_summarize(struct timeline *timeline, const struct program *program, const struct engine_costs *costs);

#endif
