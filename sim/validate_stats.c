#include "sim/validate_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/sample.h"

const char *const validate_by_names[] = {"group", "accelerator", "model", "stack", NULL};

void spread_of(double *errors, int n, struct spread *ret)
{
    *ret = (struct spread){n, (double)NAN, (double)NAN, (double)NAN};
    if (n == 0)
        return;
    sample_sort(errors, n);
    ret->signed_median = sample_quantile(errors, n, 0.5);
    for (int i = 0; i < n; i++)
        errors[i] = fabs(errors[i]);
    sample_sort(errors, n);
    ret->median = sample_quantile(errors, n, 0.5);
    ret->p90 = sample_quantile(errors, n, 0.9);
}

const char *validate_group_of(const struct outcome *o, enum validate_by by)
{
    switch (by) {
    case BY_ACCELERATOR: return o->run->accelerator;
    case BY_MODEL: return o->run->model;
    case BY_STACK: return o->mapped.plan.stack;
    default: return *o->run->group ? o->run->group : "(no group)";
    }
}

static bool counts(const struct outcome *o, const char *trust)
{
    return !*trust || strcmp(o->run->trust, trust) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct group_stats *)a)->name, ((const struct group_stats *)b)->name);
}

static void name_groups(const struct validation *v, enum validate_by by, const char *trust, struct arena *arena, struct validate_stats *ret)
{
    ret->group = arena_array(arena, (size_t)v->table.n + 1, sizeof *ret->group);
    for (int row = 0; row < v->table.n; row++) {
        const char *name = validate_group_of(&v->outcome[row], by);
        int i = 0;
        if (!counts(&v->outcome[row], trust))
            continue;
        while (i < ret->n_groups && strcmp(ret->group[i].name, name) != 0)
            i++;
        if (i == ret->n_groups)
            ret->group[ret->n_groups++].name = name;
    }
    qsort(ret->group, (size_t)ret->n_groups, sizeof *ret->group, compare_names);
}

/* name NULL = all. */
static void fill_group(const struct validation *v, enum validate_by by, const char *trust, const char *name, double *errors, struct group_stats *g)
{
    int n = 0;
    for (int row = 0; row < v->table.n; row++) {
        const struct outcome *o = &v->outcome[row];
        if (!counts(o, trust) || (name && strcmp(validate_group_of(o, by), name) != 0))
            continue;
        g->runs++;
        g->not_predicted += !o->predicted;
        if (o->predicted && isfinite(o->error)) {
            errors[n++] = o->error;
            g->within += o->measured_s >= o->low_s && o->measured_s <= o->high_s;
        }
    }
    spread_of(errors, n, &g->time);
    for (int counter = 0; counter < RUN_COUNTERS; counter++) {
        n = 0;
        for (int row = 0; row < v->table.n; row++) {
            const struct outcome *o = &v->outcome[row];
            if (counts(o, trust) && (!name || strcmp(validate_group_of(o, by), name) == 0) && o->predicted && isfinite(o->memory_error) &&
                (int)o->counter == counter)
                errors[n++] = o->memory_error;
        }
        spread_of(errors, n, &g->memory[counter]);
    }
}

static void count_fits(const struct validation *v, const char *trust, struct validate_stats *ret)
{
    for (int row = 0; row < v->table.n; row++) {
        const struct outcome *o = &v->outcome[row];
        if (!o->predicted || !counts(o, trust) || o->run->result == RUN_ERROR)
            continue;
        bool ran = o->run->result == RUN_OK;
        ret->fits_fits += ran && o->fits;
        ret->fits_oom += ran && !o->fits;
        ret->oom_fits += !ran && o->fits;
        ret->oom_oom += !ran && !o->fits;
    }
}

double validate_balanced_accuracy(const struct validate_stats *s)
{
    int fit = s->fits_fits + s->fits_oom, oom = s->oom_fits + s->oom_oom;
    return fit > 0 && oom > 0 ? 0.5 * ((double)s->fits_fits / fit + (double)s->oom_oom / oom) : (double)NAN;
}

/* ---- ranking ---- */

static bool same_sweep(const struct outcome *a, const struct outcome *b)
{
    const struct run *x = a->run, *y = b->run;
    return strcmp(x->group, y->group) == 0 && a->model == b->model && x->gpus == y->gpus && x->gbs == y->gbs && x->seq_len == y->seq_len &&
           strcmp(x->accelerator, y->accelerator) == 0 && strcmp(x->precision, y->precision) == 0 && strcmp(x->container, y->container) == 0;
}

static void add_sweep(const struct validation *v, const bool *usable, bool *done, int first, double *regrets, struct regret *ret)
{
    double best = (double)INFINITY, fastest = (double)INFINITY, taken = 0;
    int plans = 0;
    for (int row = first; row < v->table.n; row++) {
        const struct outcome *o = &v->outcome[row];
        if (!usable[row] || done[row] || !same_sweep(o, &v->outcome[first]))
            continue;
        done[row] = true;
        plans++;
        best = fmin(best, o->measured_s);
        if (o->step_time_s <= fastest) { /* one plan measured more than once, by other software: its best counts on both sides */
            taken = o->step_time_s < fastest ? o->measured_s : fmin(taken, o->measured_s);
            fastest = o->step_time_s;
        }
    }
    if (plans < 2)
        return;
    ret->plans += plans;
    regrets[ret->sweeps++] = taken / best - 1;
}

static void rank_sweeps(const struct validation *v, const char *trust, struct arena *arena, struct regret *ret)
{
    size_t n = (size_t)v->table.n;
    bool *done = arena_array(arena, n, sizeof *done), *usable = arena_array(arena, n, sizeof *usable);
    double *regrets = arena_array(arena, n, sizeof *regrets), sum = 0;
    for (int row = 0; row < v->table.n; row++)
        usable[row] = v->outcome[row].predicted && isfinite(v->outcome[row].error) && counts(&v->outcome[row], trust);
    for (int row = 0; row < v->table.n; row++)
        if (usable[row] && !done[row])
            add_sweep(v, usable, done, row, regrets, ret);
    if (ret->sweeps == 0)
        return;
    sample_sort(regrets, ret->sweeps);
    for (int i = 0; i < ret->sweeps; i++)
        sum += regrets[i];
    ret->mean = sum / ret->sweeps;
    ret->median = sample_quantile(regrets, ret->sweeps, 0.5);
    ret->max = regrets[ret->sweeps - 1];
}

/* ---- reasons ---- */

static void count_reasons(const struct validation *v, const char *trust, struct validate_stats *ret)
{
    enum { ROOM = sizeof ret->reason / sizeof *ret->reason };
    for (int row = 0; row < v->table.n; row++) {
        const struct outcome *o = &v->outcome[row];
        int i = 0;
        if (o->predicted || !counts(o, trust))
            continue;
        while (i < ret->n_reasons && strcmp(ret->reason[i].text, o->mapped.reason) != 0)
            i++;
        if (i == ROOM)
            ret->reason[--i].text = "other reasons";
        if (i == ret->n_reasons)
            ret->reason[ret->n_reasons++].text = o->mapped.reason;
        ret->reason[i].n++;
    }
    for (int i = 1; i < ret->n_reasons; i++)
        for (int k = i; k > 0 && ret->reason[k].n > ret->reason[k - 1].n; k--) {
            int more = ret->reason[k].n;
            const char *text = ret->reason[k].text;
            ret->reason[k] = ret->reason[k - 1];
            ret->reason[k - 1].text = text;
            ret->reason[k - 1].n = more;
        }
}

void validate_stats(const struct validation *v, enum validate_by by, const char *trust, struct arena *arena, struct validate_stats *ret)
{
    memset(ret, 0, sizeof *ret);
    double *errors = arena_array(arena, (size_t)v->table.n + 1, sizeof *errors);
    name_groups(v, by, trust, arena, ret);
    for (int i = 0; i < ret->n_groups; i++)
        fill_group(v, by, trust, ret->group[i].name, errors, &ret->group[i]);
    ret->all.name = "all";
    fill_group(v, by, trust, NULL, errors, &ret->all);
    count_fits(v, trust, ret);
    rank_sweeps(v, trust, arena, &ret->regret);
    count_reasons(v, trust, ret);
}
