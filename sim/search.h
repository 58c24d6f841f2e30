/* The best plans for a model on a cluster.
 *
 * Enumerates tp, sp, cp, pp, vp, dp, ep, etp, ZeRO, micro-batch, schedule,
 * recompute, layer split and rank order under the launch rules (cost/plan.h);
 * prices them with closed forms (no allocation, SQL or strings per plan), or a few
 * periods by the engine where those flatter a schedule, skips what a lower bound
 * proves slower than what is kept, and re-prices the leaders with the engine. One
 * entry is kept per layout (tp sp cp pp ep etp mbs schedule): its fastest combination
 * of vp, ZeRO, recompute, split and rank order that fits.
 * The result is a pure function of the input: threads and bounds change nothing
 * but the time it takes and the count of plans that were priced. */
#ifndef SIM_SEARCH_H
#define SIM_SEARCH_H

#include "sim/predict.h"

struct err;
struct model_words;

enum search_objective { OBJECTIVE_TIME, OBJECTIVE_COST, OBJECTIVE_MEMORY };
extern const char *const objective_names[]; /* "time", "cost", "memory", NULL */

/* Fields that the user pinned; 0 or -1 = free. */
struct search_fix {
    int tp, cp, pp, vp, dp, ep, etp, micro_batch;          /* 0 = free */
    int sequence_parallel, zero, recompute, recompute_layers; /* -1 = free */
    int context_parallel, overlap_ep;                         /* -1 = free */
    int order;                                                /* -1 = free, else index of search_orders */
};

struct search_options {
    struct plan base;      /* whatever the search does not vary: global_batch, seq_len, precision, stack, attention, ... */
    struct search_fix fix;
    uint32_t schedules;    /* bit per enum plan_schedule */
    enum search_objective objective;
    int launch;            /* enum export_target: only plans that this framework can run; -1 = any */
    const struct model_words *words; /* beside launch: what else the model's file says; NULL = nothing */
    int top, threads;
    void (*progress)(const char *what, int done, int all); /* told of "layouts", then of "leaders", by the caller's thread; NULL = nobody */
    bool exhaustive;       /* no bounds; same answer */
    bool pareto;           /* instead of the best: those that no other beats in both time and memory, fastest first;
                              more than top are thinned out evenly, both ends kept */
};

/* Why plans were left out, beside the rules of cost/plan.h. */
enum search_reason { REASON_MEMORY = RULES, REASON_BOUND, REASON_LAUNCH, REASONS };
extern const char *const search_reason_names[]; /* of REASON_MEMORY.. */

struct search_result {
    int n;                    /* predictions, best first */
    struct prediction *plans; /* malloc'd; search_release */
    int64_t candidates;       /* plans looked at = rejected + feasible */
    int64_t evaluated;        /* priced by closed form */
    int64_t feasible;         /* that keep the rules and fit */
    int64_t repriced;         /* by the engine */
    int64_t rejected[REASONS];
    struct plan example[REASONS]; /* one of each reason that has a count; bounds and rules alike */
    bool has_nearest;         /* nothing fits: the plan that misses by least */
    struct prediction nearest;
    double elapsed_s;
};

/* Ready defaults: all free, every schedule, top 10, one thread. */
void search_defaults(struct search_options *options);
/* "tp=8,recompute=full,cuda_graph=partial": any field of plan.json but layers_per_stage, onto fix, schedules and base; all
 * problems at once, options untouched then. taken: fields that other options state (NULL-terminated), or NULL. */
int search_parse_fix(const char *text, const char *const *taken, struct search_options *options, struct err *err);
/* Does memory decide, not only whether it fits? */
bool search_weighs_memory(const struct search_options *options);
int search_run(const struct question *question, const struct search_options *options, struct search_result *ret, struct err *err);
void search_release(struct search_result *result);

/* Layers per chunk that keep the slowest chunk as fast as can be, when embedding
 * and head weigh as many layers as first and last say; false = no such split. */
bool search_balanced_split(int layers, int chunks, double first, double last, uint16_t *ret_layers);

/* Why a plan was left out, as text: rules first. */
const char *search_reason_text(int reason);

#endif
