/* The rooms behind sim/schedule.h: one struct per file of this directory, and
 * what they share. Included by sim/schedule.c and sim/schedules/ only. */
#ifndef SIM_SCHEDULES_SCHEDULES_H
#define SIM_SCHEDULES_SCHEDULES_H

#include "sim/program.h"
#include "sim/schedule.h"

extern const struct schedule schedule_gpipe, schedule_looped_bfs, schedule_one_f_one_b, schedule_interleaved;

static inline int schedule_min(int a, int b) { return a < b ? a : b; }
static inline int schedule_max(int a, int b) { return a > b ? a : b; }

/* F + B + W of a rank's whole work for one micro-batch. */
static inline double schedule_unit_s(const struct schedule_times *times)
{
    return times->forward_s + times->backward_s + times->wgrad_s;
}

#endif
