/* The end of a step: gradients summed over the ranks that share them, clipped by their global norm, AdamW on what a
 * rank owns, weights gathered (ZeRO 0-3: params.h). */
#ifndef EXEC_OPTIMIZER_H
#define EXEC_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

struct executor;
struct param;
struct unit;

struct optimizer_state {
    double learning_rate, min_learning_rate;
    int64_t warmup_steps, decay_steps; /* linear up, then a cosine down to min over decay_steps; 0 = constant */
    double beta1, beta2, epsilon, weight_decay;
    double clip;     /* global norm; 0 = none */
    int64_t step;    /* updates done */
    int64_t skipped; /* steps whose gradients were not finite */
};

struct optimizer_result {
    double gradient_norm, learning_rate;
    bool skipped;
};

void optimizer_defaults(struct optimizer_state *optimizer);
/* Sums over dp (which the pipeline has begun, if the plan's overlap.dp_grad says so), tp, copies: after it
 * owned_gradient is the gradient of the whole batch. */
void optimizer_reduce(struct executor *ex);
/* The part of a parameter that this rank owns, as [*ret_first, +count) of the unit's owned_*; returns count. */
int64_t optimizer_part(const struct unit *unit, const struct param *param, int64_t *ret_first);
/* Of the ranks with a copy of it, is this the one that counts? */
bool optimizer_counts(const struct executor *ex, const struct unit *unit, const struct param *param);
double optimizer_norm(struct executor *ex);
void optimizer_step(struct executor *ex, struct optimizer_state *optimizer,
                    struct optimizer_result *ret); /* after optimizer_reduce */
void optimizer_clear(struct executor *ex);         /* gradients to zero */

#endif
