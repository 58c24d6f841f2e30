/* Shared by plan_check*.c only: what a sentence about a broken rule needs. */
#ifndef COST_PLAN_CHECK_H
#define COST_PLAN_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "cost/plan.h"

struct plan_check {
    const struct plan *plan;
    const struct model *model;
    const struct cluster *cluster; /* may be NULL */
    struct err *err;
};

/* Numbers in words, cut with "..." where there are too many. */
enum { PLAN_LIST_MAX = 160 };
struct plan_list {
    char text[PLAN_LIST_MAX];
    size_t used;
    int count;
};

void plan_list_add(struct plan_list *list, const char *between, int64_t value);
struct plan_list plan_divisors(int64_t n); /* increasing */
struct plan_list plan_multiples_around(int64_t value, int64_t unit);
int64_t plan_greatest_common_divisor(int64_t a, int64_t b);
int64_t plan_least_common_multiple(int64_t a, int64_t b);

/* For %lld. */
static inline long long ll(int64_t n)
{
    return (long long)n;
}

/* Layers, pipeline, batch: plan_check_pipeline.c. */
void plan_say_layers_split(const struct plan_check *c);
void plan_say_layers_list(const struct plan_check *c);
void plan_say_pp_layers(const struct plan_check *c);
void plan_say_recompute(const struct plan_check *c);
void plan_say_vp_needs_pp(const struct plan_check *c);
void plan_say_vp_schedule(const struct plan_check *c);
void plan_say_micro_batches(const struct plan_check *c);
void plan_say_batch(const struct plan_check *c);
void plan_say_dp_batch(const struct plan_check *c);
void plan_say_schedule(const struct plan_check *c);

/* Fields without effect on this model, as warnings into c->err: plan_check_idle.c. */
void plan_warn_idle(const struct plan_check *c);
/* The names whose bits are set: "a, b". */
const char *plan_join_bits(const char *const *names, uint32_t bits, char *buffer, size_t size);

#endif
