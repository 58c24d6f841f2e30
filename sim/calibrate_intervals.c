#include "sim/calibrate_intervals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/sample.h"
#include "sim/calibrate_solve.h"

enum { RUNS_MIN = 8 };
static const char *const situations[] = {"dense/one-node", "dense/nodes", "moe/one-node", "moe/nodes"};
enum { SITUATIONS = 4 };

static int situation_of(const struct validation *v, const struct outcome *o)
{
    bool moe = v->models[o->model].model.experts > 0, nodes = plan_world(&o->mapped.plan) > o->mapped.accelerators_per_node;
    return 2 * moe + nodes;
}

/* The share q of sorted values, between neighbours. A small sample's own extremes lie inside the population's: the share
 * is moved out by 1/(n+1). */
static double quantile(const double *sorted, int n, double q)
{
    return sample_at(sorted, n, (n + 1) * q - 1);
}

static bool measured(const struct outcome *o)
{
    return o->predicted && isfinite(o->error) && o->measured_s > 0;
}

/* measured / predicted of one stack ("any" = all) in one situation. */
static int gather(const struct validation *v, const char *stack, int situation, double *factors)
{
    int n = 0;
    for (int i = 0; i < v->table.n; i++) {
        const struct outcome *o = &v->outcome[i];
        if (measured(o) && situation_of(v, o) == situation && (strcmp(stack, "any") == 0 || strcmp(o->mapped.plan.stack, stack) == 0))
            factors[n++] = 1 / (1 + o->error);
    }
    sample_sort(factors, n);
    return n;
}

struct target {
    const char *date, *source;
    struct profile_rows *rows;
    struct err *err;
};

static int add(const struct target *t, enum profile_section section, const char *name, const char *key, const char *field, double value, int runs)
{
    char source[PROFILE_SOURCE_MAX];
    snprintf(source, sizeof source, "%d runs of %s", runs, t->source);
    struct profile_row row = {.section = section, .name = name, .key = key, .field = field, .value = strtod_rounded(value), .unit = "1", .low = (double)NAN,
                              .high = (double)NAN, .provenance = PROVENANCE_MEASURED, .date = t->date, .source = source};
    return profile_rows_add(t->rows, &row, t->err);
}

static int add_stack(const struct target *t, const struct validation *v, const char *stack, double *factors)
{
    int result = 0;
    for (int s = 0; s < SITUATIONS && result == 0; s++) {
        int n = gather(v, stack, s, factors);
        if (n < RUNS_MIN)
            continue;
        result = add(t, SECTION_RESIDUAL, stack, situations[s], "low", fmin(quantile(factors, n, 0.09), 0.99), n);
        if (result == 0)
            result = add(t, SECTION_RESIDUAL, stack, situations[s], "high", fmax(quantile(factors, n, 0.91), 1.01), n);
    }
    return result;
}

static int add_accelerators(const struct target *t, const struct validation *v)
{
    for (int i = 0; i < v->table.n; i++) {
        const char *name = v->outcome[i].run->accelerator;
        int runs = 0;
        bool first = measured(&v->outcome[i]);
        for (int k = 0; k < v->table.n && first; k++) {
            bool same = measured(&v->outcome[k]) && strcmp(v->outcome[k].run->accelerator, name) == 0;
            first = !(same && k < i);
            runs += same;
        }
        if (first && add(t, SECTION_ACCELERATOR, name, "", "calibrated_runs", runs, runs) < 0)
            return -1;
    }
    return 0;
}

int calibrate_interval_rows(const struct validation *v, const char *date, const char *source, struct arena *arena, struct profile_rows *rows,
                            struct err *err)
{
    struct target t = {date, source, rows, err};
    double *factors = arena_array(arena, (size_t)v->table.n, sizeof *factors);
    int result = add_stack(&t, v, "any", factors);
    for (int i = 0; i < v->n_stacks && result == 0; i++)
        result = add_stack(&t, v, v->stacks[i].name, factors);
    result = result == 0 ? add_accelerators(&t, v) : result;
    if (result == 0 && rows->n == 0)
        return err_add(err, "no run of the table has both a prediction and a measured step time");
    return result;
}
