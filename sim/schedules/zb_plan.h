/* The published heuristic behind zb-auto: fills a one-chunk pipeline with F, B
 * and W round by round. Integer ticks, so ties are exact. */
#ifndef SIM_SCHEDULES_ZB_PLAN_H
#define SIM_SCHEDULES_ZB_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/program.h"

struct arena;

/* What stays the same for all ways of planning one request. Memory in units of 2^-20 of F's. */
struct zb_problem {
    int pp, micro_batches;
    const int64_t *cost[3]; /* [OP_F, OP_B, OP_W][stage] */
    int64_t comm;
    int64_t mem[3]; /* what F, B and W add: F > 0, B <= 0, W <= 0, sum 0 */
    int64_t mem_limit;
    int64_t makespan_limit; /* of zb_better; INT64_MAX = none */
};

/* The three yes-or-no choices of the heuristic. */
struct zb_choices {
    bool bubble_before_first_b; /* warm-up: only forwards that end before the first B arrives */
    bool prioritize_b;          /* skip a round's F where it would delay the next rank's B */
    bool greedy;                /* put W into gaps that are shorter than W even where idling would not hurt */
};

struct zb_plan {
    uint8_t *kind; /* [stage][3 * micro_batches] OP_F, OP_B or OP_W; micro-batches count up by kind */
    int64_t span;  /* longest stage: first start to last end */
    int64_t makespan;
};

/* 0, or -1 when the memory limit does not allow it. plan->kind must have room. */
int zb_plan_make(const struct zb_problem *problem, struct zb_choices choices, struct arena *arena,
                 struct zb_plan *plan);
/* span and makespan of plan->kind, or -1 when it deadlocks or breaks the memory limit. */
int zb_plan_price(const struct zb_problem *problem, struct arena *arena, struct zb_plan *plan);

/* Plans with span = INT64_MAX are none. A shorter span is better, then a shorter makespan; but one beyond the makespan
 * limit is worse than one within. */
bool zb_better(const struct zb_problem *problem, const struct zb_plan *a, const struct zb_plan *b);

/* Dispatching: every rank, when free, runs B before F before W among what could start first; with patience it waits for
 * a B or F that would start before a W has ended. Always finds a plan. */
void zb_plan_dispatch(const struct zb_problem *problem, bool patience, struct arena *arena, struct zb_plan *plan);

/* Small problems: replaces the plan by the best there is (zb_search.c). True: proven; false: the problem is too large,
 * or the search was cut short. */
bool zb_search(const struct zb_problem *problem, struct zb_plan *plan);
enum { ZB_SEARCH_RANKS_MAX = 8, ZB_SEARCH_OPS_MAX = 30, ZB_SEARCH_TOTAL_MAX = 48 };

#endif
