/* The rooms behind sim/schedule.h: one struct per file of this directory, and
 * what they share. Included by sim/schedule.c and sim/schedules/ only. */
#ifndef SIM_SCHEDULES_SCHEDULES_H
#define SIM_SCHEDULES_SCHEDULES_H

#include "sim/program.h"
#include "sim/schedule.h"

extern const struct schedule schedule_gpipe, schedule_looped_bfs, schedule_one_f_one_b, schedule_interleaved;
extern const struct schedule schedule_zb_h1, schedule_zb_h2, schedule_zb_auto, schedule_interleaved_zb;
extern const struct schedule schedule_zb_v, schedule_zb_v_auto, schedule_v_half, schedule_v_min, schedule_one_f_one_b_v;
extern const struct schedule schedule_dualpipe, schedule_dualpipe_v;

/* request->group of the interleaved schedules (interleaved.c). */
int schedule_check_group(const struct schedule_request *request, struct err *err);

static inline int schedule_min(int a, int b)
{
    return a < b ? a : b;
}
static inline int schedule_max(int a, int b)
{
    return a > b ? a : b;
}

/* F + B + W of a rank's whole work for one micro-batch. */
static inline double schedule_unit_s(const struct schedule_times *times)
{
    return times->forward_s + times->backward_s + times->wgrad_s;
}

/* F = B = W, but for rounding. */
static inline bool schedule_is_unit(const struct schedule_times *t)
{
    double least_s = t->forward_s * (1 - 1e-12), most_s = t->forward_s * (1 + 1e-12);
    return t->backward_s >= least_s && t->backward_s <= most_s && t->wgrad_s >= least_s && t->wgrad_s <= most_s;
}

static inline double schedule_larger_s(double a, double b)
{
    return a > b ? a : b;
}

/* Interleaved: chunk and micro-batch of the k-th forward: groups of micro-batches, in a group chunk after chunk. The
 * k-th backward is the same with chunks reversed. The last group may be smaller. */
static inline void schedule_virtual_at(int k, int micro_batches, int vp, int group, int *ret_chunk,
                                       int *ret_micro_batch)
{
    int first = k / (group * vp) * group; /* first micro-batch of k's group */
    int size = schedule_min(group, micro_batches - first);
    int within = k - first * vp;
    *ret_chunk = within / size;
    *ret_micro_batch = first + within % size;
}

#endif
