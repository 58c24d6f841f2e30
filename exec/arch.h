/* What arithmetic needs of a config.json beyond struct model (which holds what costs time): constants, which
 * activation. Read from the same file. What the executor cannot run is refused here, each with one sentence. */
#ifndef EXEC_ARCH_H
#define EXEC_ARCH_H

#include <stdbool.h>

#include "exec/rope.h"
#include "kernels/kernels.h"

struct err;
struct model;
struct plan;

struct arch {
    float norm_epsilon;
    bool rotary;
    struct rope rope; /* where rotary */
    enum activation activation;
    bool renormalise;      /* the weights of the chosen experts sum to 1 */
    float aux_coefficient; /* of the load-balancing loss, 0 = none */
    float init_std;
};

int arch_load(const char *path, const struct model *model, struct arch *ret, struct err *err);
/* Plans that the rules of cost/plan.h allow and this executor does not run; and models. 0 or -1. */
int arch_check(const struct model *model, const struct plan *plan, struct err *err);

#endif
