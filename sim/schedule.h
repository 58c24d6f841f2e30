/* Every pipeline schedule behind one small interface.
 *
 * A schedule turns (pp, vp, micro-batches) into a program. Each lives in its
 * own file of schedules/ with claim, formula, source and a drawing. What the
 * original refuses is refused with the reason and the nearest valid value;
 * where the mathematics allows more (fewer micro-batches than ranks), it works.
 *
 * schedule_makespan_s and schedule_in_flight are closed forms for the search's
 * inner loop: no allocation, no state; tested against the engine. */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cost/plan.h"
#include "sim/program.h"

struct arena;
struct err;

struct schedule_request {
    int pp;            /* ranks */
    int vp;            /* chunks per rank; 0 = the schedule's own */
    int micro_batches; /* of both directions together */
    int group;         /* interleaved: micro-batches per group; 0 = the smallest valid one from pp on */
    int variant;       /* index into the schedule's variants; 0 = its usual form */
    /* zb-auto, zb-v-auto: activations that a rank may hold, in whole-stage units, from F to W; 0 = pp. */
    double memory_limit;
    double freed_by_b; /* share of F's memory that B frees already, 0..1 (W frees the rest) */
    /* For the automatic schedules: integer ticks by global stage; NULL = 1 each. */
    const int64_t *forward_ticks, *backward_ticks, *wgrad_ticks;
    int64_t comm_ticks;
};

/* One rank's whole work for one micro-batch, equal stages (a chunk takes 1/vp of it; for dualpipe each of the two
 * modules is a whole stage; slot_s is the F_BW slot of a whole stage, 0 = forward + backward + wgrad). */
struct schedule_times {
    double forward_s, backward_s, wgrad_s, slot_s;
    double comm_s; /* one hop, asynchronous */
};

struct schedule {
    const char *name;  /* contract.md's word */
    const char *title; /* in the words people use */
    const char *cite;
    const char *const *variants; /* names of published forms, NULL-terminated, [0] the usual one; NULL = one form */
    enum placement placement;
    int vp_min, vp_max, vp_default;
    bool splits_w;     /* B and W are apart somewhere */
    bool overlaps;     /* has F_BW slots */
    int weight_copies; /* parameters held per rank, relative to its share: 2 for dualpipe */
    /* Beyond what holds for all (sizes, vp range); NULL = nothing. */
    int (*validate)(const struct schedule_request *request, struct err *err);
    /* The request was validated and vp resolved. */
    int (*emit)(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err);
    /* Closed forms; NULL = none (then schedule_makespan_s returns its lower bound). */
    double (*makespan_s)(int pp, int vp, int micro_batches, const struct schedule_times *times);
    /* Is makespan_s exact here? NULL = always. */
    bool (*exact)(int pp, int micro_batches, const struct schedule_times *times);
    int (*in_flight)(int pp, int vp, int micro_batches, int group, int rank);
};

/* The table, by enum plan_schedule. Never NULL. */
const struct schedule *schedule_of(enum plan_schedule schedule);

/* 0, or -1 with sentences that name the nearest valid value. */
int schedule_validate(enum plan_schedule schedule, const struct schedule_request *request, struct err *err);
int schedule_emit(enum plan_schedule schedule, const struct schedule_request *request, struct arena *arena,
                  struct program *ret, struct err *err);

/* Interleaved: the group that group = 0 stands for: the smallest G >= min(pp, micro_batches) with
 * micro_batches mod G = 0 or >= pp. It is pp where pp divides micro_batches and PyTorch's M / max(1, M/pp) where that
 * divides. */
int schedule_group(int pp, int micro_batches);

/* Makespan of equal stages. At comm_s = 0 it is exact where *ret_exact (may be NULL) is set, else a lower bound. With
 * comm_s > 0 the schedule's own communication terms are added where they are known (good while comm_s is small beside
 * an op), and *ret_exact is false. */
double schedule_makespan_s(enum plan_schedule schedule, int pp, int vp, int micro_batches,
                           const struct schedule_times *times, bool *ret_exact);
/* Peak number of (micro-batch, chunk) pairs held from the start of F to the end of W on a rank; group 0 as above.
 * Exact, but for zb-auto and zb-v-auto (not more than this with the default memory limit), and v-min with fewer
 * micro-batches than ranks (not more). */
int schedule_in_flight(enum plan_schedule schedule, int pp, int vp, int micro_batches, int group, int rank);

#endif
