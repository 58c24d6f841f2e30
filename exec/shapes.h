/* What the steps of some plans are made of, as shapes to measure: those of the very ops that are priced (cost/ops.h).
 * Equal ones are kept once. */
#ifndef EXEC_SHAPES_H
#define EXEC_SHAPES_H

#include <stdbool.h>

#include "exec/bench.h"

struct err;
struct model;
struct plan;

enum { SHAPES_LINEAR_MAX = 512, SHAPES_ATTENTION_MAX = 64, SHAPES_PLANS_MAX = 64 };

struct shape_linear {
    bool expert;     /* one of `products` routed experts of a rank */
    int m, n, k;     /* y[m x n] = x[m x k] weight */
    double products;
};

struct shapes {
    int n_linears, n_attentions, n_plans;
    struct shape_linear linear[SHAPES_LINEAR_MAX];
    struct bench_attention attention[SHAPES_ATTENTION_MAX];
    struct bench_pointwise plan[SHAPES_PLANS_MAX];
};

/* ret starts with zeros. The plan is valid for the model. */
int shapes_add(struct shapes *shapes, const struct model *model, const struct plan *plan, struct err *err);

/* Elements of the largest matrix among them. */
int64_t shapes_largest(const struct shapes *shapes);

#endif
