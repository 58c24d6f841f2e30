/* A table of measured training runs, one per line: what was launched and what was
 * measured (columns as shared/data/runs/runs.csv; any subset in any order).
 *
 * Facts that a line does not state stay unknown (-1, NaN or ""): it is
 * validate_plan.h that puts a stated default in their place. Text lives as long
 * as the table. */
#ifndef SIM_VALIDATE_TABLE_H
#define SIM_VALIDATE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/base/csv.h"

struct err;

enum run_result { RUN_OK, RUN_OOM, RUN_ERROR };

struct run {
    int line;
    const char *own_stack;     /* a stack of the profile, named as it is there; NULL = by the words of `stack` and the date */
    const char *unknown_stack; /* what no profile knows; `stack` is then the standard one */
    enum run_result result;
    const char *id, *group, *stack, *accelerator, *hardware, *model;
    const char *precision, *recompute, *schedule, *overlap, *kernels, *moe_routing, *offload, *pp_layout, *cuda_graph;
    const char *container, *mem_kind, *trust, *task, *date, *notes;
    int64_t gpus, tp, pp, vp, cp, ep, etp, dp, zero, mbs, gbs, seq_len; /* -1 = not stated */
    int sequence_parallel;                                               /* -1 = not stated */
    double step_time_s, tokens_per_s_per_gpu, mem_gib;                   /* NaN = not stated */
};

struct run_table {
    struct csv csv;
    int n;
    struct run *run; /* in csv.arena */
};

/* warn: columns that are close to a known one, and are ignored. */
int run_table_load(const char *path, struct run_table *ret, struct err *warn, struct err *err);
void run_table_release(struct run_table *table);

/* Step time as stated, else from tokens per second; NaN when neither is there. */
double run_step_time_s(const struct run *run);

#endif
