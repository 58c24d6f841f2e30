/* The steps that DualPipe and DualPipeV share. */
#ifndef SIM_SCHEDULES_DUAL_H
#define SIM_SCHEDULES_DUAL_H

#include "sim/schedules/schedules.h"

struct arena;

/* One of a rank's two modules; phase 0 is the one whose forwards come first. */
struct dual_module {
    int direction, stage;
    int next_f, next_b; /* micro-batches */
};

struct dual {
    struct program *program;
    int rank;
    struct dual_module module[2];
    struct op *waiting; /* W's that are due, oldest first */
    int n_waiting, next_waiting;
};

/* depth: ranks from the entry to the turn (P/2, or P for DualPipeV); h: this rank's distance from the entry;
 * micro_batches: of one module. The turn is at h = depth - 1. */
void dual_emit(struct dual *dual, int depth, int h, int micro_batches, struct arena *arena);

#endif
