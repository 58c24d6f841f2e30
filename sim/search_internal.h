/* Shared by the files of the search; not for others. */
#ifndef SIM_SEARCH_INTERNAL_H
#define SIM_SEARCH_INTERNAL_H

#include "cost/base/arena.h"
#include "sim/pipeline.h"
#include "sim/schedule.h"
#include "sim/search.h"
#include "sim/stages.h"

/* A layout before pipeline chunks, schedule, ZeRO and recompute are chosen. */
struct search_unit {
    int tp, cp, pp, dp, ep, etp, micro_batch, order;
    bool sequence_parallel;
    bool ulysses;    /* context parallelism by all-to-all instead of a ring */
    bool overlap_ep; /* expert all-to-all beside another micro-batch's compute */
    double bound_s;  /* no plan of this unit is faster */
    bool hopeless;   /* none fits */
};

/* One plan in few bytes. */
struct search_choice {
    struct search_unit unit;
    int vp, zero;
    enum plan_schedule schedule;
    bool balanced;
    enum recompute recompute;
    int recompute_layers;
    double time_s, bytes; /* by closed form; time_s refined by the engine where that might flatter */
    bool trusted;         /* time_s is close to the engine's, not a lower bound alone */
};

struct search_counts {
    int64_t candidates, evaluated, feasible, rejected[REASONS];
    bool has_example[REASONS];
    struct search_choice example[REASONS];
};

/* A growing list; choice by choice in the order they were found. */
struct choice_list {
    int n, room;
    struct search_choice *item;
};

/* What the schedules and ZeRO stages of one chunking share. */
struct chunking {
    bool valid, sharded;            /* sharded: filled with per-layer gathers (ZeRO-3) */
    enum placement placement;
    double max_busy_s, mean_busy_s; /* of a rank, one micro-batch */
    int slowest;
    int probe[6], n_probes; /* ranks whose memory and step work are looked at */
    /* By ZeRO stage, filled when first asked for: */
    bool known[4];
    double step_s[4];        /* what is done once per step, the slowest probe */
    double still_bytes[4][6]; /* memory of a probe without activations in flight */
    double per_byte[4];      /* memory per byte in flight (allocator) */
};

/* What a framework says of the plans of one layout, by the fields that its answer can depend on; 0 = not asked yet. */
enum { LAUNCH_RECOMPUTES = 4, LAUNCH_CHUNKS = 3 };
struct launch_memo {
    int8_t verdict[SCHEDULES][4][LAUNCH_RECOMPUTES][LAUNCH_CHUNKS][2];
};

/* One thread's workplace. */
struct search_worker {
    struct question own; /* the question on a cluster that remembers its spans */
    struct cluster cluster;
    struct span_cache spans;
    const struct question *question; /* = &own */
    const struct search_options *options;
    struct layer_prices prices;
    struct stage_price stage[PLAN_CHUNKS_MAX], sum[PREDICT_STAGES_MAX];
    struct stage_places places;
    struct stages stages;
    struct chunking chunking;
    struct plan plan;
    double useful_s; /* slower than this is of no use */
    struct arena arena;
    struct pipeline_memo memo;
    struct launch_memo launch;
    struct search_counts counts;
    struct choice_list found;  /* the fastest of each layout and schedule */
    struct choice_list others; /* of the same layouts: with other chunks, or with room to spare */
    bool has_nearest;
    struct search_choice nearest; /* misses the limit by least */
    double nearest_excess;
};

/* Of one schedule and number of chunks (0: a pinned one beyond SEARCH_VP_MAX): the fastest, and the fastest that fits even if
 * its memory is estimated too low. time_s < 0 = none. */
enum { SEARCH_VP_MAX = 16 };
struct search_family {
    struct search_choice best, roomy;
};

/* Estimates that are trusted are within a few percent of the engine: what is behind by more cannot turn out to be ahead. */
static const double search_estimate_margin = 0.05;

extern const enum axis search_orders[2][AXES];

/* The units of the space, in a fixed order; counts what rules exclude. */
int search_units(const struct question *question, const struct search_options *options, struct search_unit **ret_units, int *ret_n,
                 struct search_counts *counts, struct err *err);
/* Fills bound_s and hopeless. */
void search_unit_bound(struct search_worker *worker, struct search_unit *unit);
void search_unit_run(struct search_worker *worker, const struct search_unit *unit);
/* Stages, step work and memory of worker->plan, afresh. */
void search_fill(struct search_worker *worker);
/* By the objective; than: time_s < 0 = none. */
bool search_is_better(const struct search_worker *worker, const struct search_choice *choice, const struct search_choice *than);
/* The family of the fastest choice of a schedule; NULL = none. */
struct search_family *search_fastest(const struct search_worker *worker, struct search_family *of_schedule);
/* Until the fastest of every schedule is one whose time is known well, or of no use. */
void search_refine(struct search_worker *worker, struct search_family (*family)[SEARCH_VP_MAX + 1]);
/* Total order: objective, then the fields. */
int search_choice_compare(const struct search_choice *a, const struct search_choice *b, enum search_objective objective);
/* prices NULL: without the layers of an uneven split. */
void search_choice_plan(const struct question *question, const struct search_options *options, const struct search_choice *choice,
                        const struct layer_prices *prices, struct plan *ret);
void search_count_rejected(struct search_counts *counts, int reason, const struct search_choice *choice);
/* Keeps the list free of choices that another of the same schedule clearly beats: no worse in time and memory, and better in
 * one of them by the margin of the estimates (the first by search_choice_compare of two equals). The same set in whatever order
 * they come. */
void choice_list_push_front(struct choice_list *list, const struct search_choice *choice);
void choice_list_push(struct choice_list *list, const struct search_choice *choice);

#endif
