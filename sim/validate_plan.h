/* A measured run -> the plan and cluster that were launched.
 *
 * The words of the row are read as their authors write them ("interleaved-1f1b",
 * "full (every layer)", "FP8-CS"). What a row does not state gets the default of
 * its stack and is named in `assumed`; a row that states too little, or nothing
 * that plansim can price, gets a reason instead. */
#ifndef SIM_VALIDATE_PLAN_H
#define SIM_VALIDATE_PLAN_H

#include "cost/model.h"
#include "cost/plan.h"
#include "sim/validate_table.h"

struct json;

enum { RUN_TEXT_MAX = 400 };

struct run_plan {
    struct plan plan;
    int accelerators_per_node; /* of one NVLink domain */
    int64_t nodes;
    int nics_per_node; /* 0 = the accelerator's usual */
    double nic_gbps;
    char assumed[RUN_TEXT_MAX]; /* "recompute none; zero 1", "" = all stated */
    char reason[RUN_TEXT_MAX];  /* why it cannot be predicted, "" = it can */
};

/* Fills ret; reason is set where the row cannot be mapped. The model is that of the row. */
void run_plan_of(const struct run *run, const struct model *model, struct run_plan *ret);

/* Whether tables have this word for a stack, and not (only) the profile as a name. */
bool run_stack_is_word(const char *name);
/* The profile's stack for the row's words and date ("megatron" of 2021 is "megatron-2022"). */
const char *run_stack_name(const struct run *run);

/* hw.json of the cluster; caller frees. */
struct json *run_plan_cluster(const struct run *run, const struct run_plan *plan);

/* Heaviest stage under the counter that the row names: "allocated", "reserved" or "device". */
const char *run_memory_counter(const struct run *run);
/* The row's memory in GiB; NaN = not stated. */
double run_memory_gib(const struct run *run);

#endif
