/* Plan -> step time, memory, where both go (contract.md "Prediction JSON").
 *
 * predict_plan prices the very program that the schedule emits with the engine;
 * predict_fast is the same physics with the schedule's closed form and no
 * allocation (the search's inner loop). Both are pure functions: same input,
 * same result, any thread. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/cluster.h"
#include "cost/memory.h"
#include "cost/model.h"
#include "cost/plan.h"

struct err;
struct pipeline_memo;
struct timeline;

enum time_part { TIME_COMPUTE, TIME_RECOMPUTE, TIME_TP, TIME_CP, TIME_EP, TIME_PP, TIME_DP, TIME_BUBBLE, TIME_OPTIMIZER, TIME_OTHER, TIME_PARTS };
extern const char *const time_part_names[]; /* "compute","recompute","tp_exposed",... as in contract.md, NULL */

enum { PREDICT_STAGES_MAX = 256 };

struct stage_memory {
    double bytes[MEMORY_PARTS];
    double total;
};

struct prediction {
    struct plan plan;
    bool fits;
    double step_time_s, step_time_low_s, step_time_high_s;
    double tokens_per_s_per_gpu, model_flop_per_s_per_gpu, mfu;
    double bubble_fraction;
    double cost_per_step; /* < 0 = no price given */
    double time_s[TIME_PARTS]; /* adds up to step_time_s */
    double phase_s[3]; /* F, B, W of all micro-batches, with the collectives inside them; mean over pipeline ranks */
    double wait_s, end_s; /* between them, mean; after them: gradients, optimizer */
    double inside_s[TIME_PARTS]; /* of phase_s: recompute and exposed collectives, mean over pipeline ranks */
    double reduction_s, gather_s, overhead_s; /* of end_s, beside the optimizer: gradients, parameters, the stack's own */
    int n_chunks; /* pp * vp, 0 where there are more than the array holds */
    double chunk_s[PREDICT_STAGES_MAX][3]; /* F, B, W of one micro-batch, stage by stage */
    double peak_bytes, limit_bytes;
    int worst_stage; /* pipeline rank with the highest peak */
    int n_stages;
    struct stage_memory stage[PREDICT_STAGES_MAX];
    enum provenance provenance;
};

/* What stays the same for all plans of one question. Plain pointers, owned by the caller. */
struct question {
    const struct model *model;
    const struct cluster *cluster;
    const struct profile *profile;
    const struct stack *stacks; /* resolved stacks by plan->stack name */
    int n_stacks;
    double memory_limit_bytes; /* per accelerator */
    struct pipeline_memo *memo; /* the owner's, for one plan priced again and again (sim/pipeline.h); NULL = none; never shared by threads */
};

/* err: only for plans that break a rule (use plan_check first for the sentences). */
int predict_plan(const struct question *question, const struct plan *plan, struct prediction *ret, struct err *err);

/* The same with layer prices at hand (sim/stages.h), for the search; arena: scratch,
 * rewound. A step whose pipeline alone takes longer than give_up_s is priced, but
 * its messages and bubbles are not told apart. */
struct arena;
struct layer_prices;
int predict_priced(const struct question *question, const struct plan *plan, const struct layer_prices *prices, double give_up_s,
                   struct arena *arena, struct prediction *ret, struct err *err);

#endif
