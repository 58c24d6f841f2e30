/* Everything of one training run on one rank, put together: world, device, parameters, program, optimizer, data. */
#ifndef EXEC_TRAINER_H
#define EXEC_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/base/arena.h"
#include "cost/plan.h"
#include "exec/device.h"
#include "exec/executor.h"
#include "exec/optimizer.h"
#include "sim/program.h"

struct arch;
struct data;
struct err;
struct model;
struct pacing;
struct pipeline_run;
struct world;

struct trainer {
    struct plan plan;
    struct device device;
    struct executor executor;
    struct arena arena;
    struct program program;
    struct pipeline_run *run;
    bool paced; /* sleeps: no weights, no optimizer */
    struct optimizer_state optimizer;
    const struct data *data;
    int64_t sequences;       /* taken from the data so far */
    double *start_s, *end_s; /* of this rank's ops in the last step */
};

struct step_result {
    double loss, aux_loss; /* of the global batch, the same on every rank; loss has aux_loss in it */
    double step_time_s, backward_s, optimizer_s; /* whole; until the last W; the rest */
    double part_s[STOPWATCH_PARTS];
    struct optimizer_result optimizer;
};

/* What a trainer is made of; everything outlives it. world: built for the plan. */
struct trainer_parts {
    const struct model *model;
    const struct arch *arch;
    const struct plan *plan;
    struct world *world;
    const struct data *data;
    const struct device *device; /* copied: each trainer counts its own memory */
    uint64_t seed;               /* of the first weights */
    bool balanced;               /* experts in turn */
    bool bf16;                   /* weights and activations are rounded to bfloat16 where they are stored */
    bool fp8;                    /* linears of layers in 8 bits (fp8.h) */
};
/* On failure nothing needs to be freed. After it: trainer_start. */
int trainer_init(struct trainer *ret, const struct trainer_parts *parts, struct err *err);
void trainer_start(struct trainer *trainer,
                   const struct pacing *pacing); /* builds the stages; pacing NULL = computes */
void trainer_release(struct trainer *trainer);

/* Forward, backward, sums of gradients ... */
void trainer_gradients(struct trainer *trainer, struct step_result *ret);
/* ... and the update. */
void trainer_update(struct trainer *trainer, struct step_result *result);

#endif
