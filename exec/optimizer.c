#include "exec/optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "exec/executor.h"
#include "exec/world.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

void optimizer_defaults(struct optimizer_state *optimizer)
{
    *optimizer = (struct optimizer_state){
        .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1};
}

int64_t optimizer_part(const struct unit *unit, const struct param *param, int64_t *ret_first)
{
    int64_t first = param->offset, end = first + (int64_t)param->rows * param->columns;
    first = first > unit->owned_first ? first : unit->owned_first;
    end = end < unit->owned_first + unit->owned ? end : unit->owned_first + unit->owned;
    *ret_first = first - unit->owned_first;
    return end > first ? end - first : 0;
}

void optimizer_reduce(struct executor *ex)
{
    for (int i = 0; i < ex->params.n; i++) {
        struct unit *unit = ex->params.unit[i];
        if (!ex->plan->overlap.dp_grad)
            unit_reduce_start(&ex->params, unit);
        unit_reduce_end(&ex->params, unit);
        for (int p = 0; p < unit->n_params; p++) {
            int64_t first, n = optimizer_part(unit, &unit->param[p], &first);
            enum param_sum sum = unit->param[p].sum;
            if (n > 0 && sum != SUM_NONE)
                comm_all_reduce(ex->world->comm[sum == SUM_TP ? WORLD_TP : WORLD_KV], COMM_SUM, ELEMENT_F32, n,
                                unit->owned_gradient + first);
        }
        if (unit->shared)
            comm_all_reduce(ex->world->comm[WORLD_PAIR], COMM_SUM, ELEMENT_F32, unit->owned, unit->owned_gradient);
    }
}

bool optimizer_counts(const struct executor *ex, const struct unit *unit, const struct param *param)
{
    if (unit->shared && comm_rank(ex->world->comm[WORLD_PAIR]) != 0)
        return false;
    if (ex->params.zero == 0 && comm_rank(unit->group) != 0)
        return false;
    if (param->copies == COPIES_KV)
        return comm_rank(ex->world->comm[WORLD_KV]) == 0;
    return param->copies == COPIES_NONE || ex->world->tp == 0;
}

static struct adamw_part *new_parts(const struct unit *unit)
{
    struct adamw_part *part = malloc((size_t)(unit->n_params + 1) * sizeof *part);
    if (!part)
        abort();
    return part;
}

/* Adds the squares of what this rank counts of the unit. */
static void add_squares(struct executor *ex, const struct unit *unit, double *sum)
{
    struct adamw_part *part = new_parts(unit);
    int parts = 0;
    for (int p = 0; p < unit->n_params; p++) {
        struct adamw_part *at = &part[parts];
        at->n = optimizer_part(unit, &unit->param[p], &at->first);
        parts += at->n > 0 && optimizer_counts(ex, unit, &unit->param[p]);
    }
    ex->kernels->sum_squares(ex->queue, parts, part, unit->owned_gradient, sum);
    free(part);
}

double optimizer_norm(struct executor *ex)
{
    struct device *device = ex->device;
    double sum = 0, *squares = (double *)(void *)device_floats(device, 2);
    for (int i = 0; i < ex->params.n; i++)
        add_squares(ex, ex->params.unit[i], squares);
    device->download(device, &sum, squares, sizeof sum);
    device_free(device, squares, 2);
    comm_all_reduce_doubles(ex->world->comm[WORLD_ALL], COMM_SUM, 1, &sum);
    return sqrt(sum);
}

static double rate_at(const struct optimizer_state *o, int64_t step)
{
    if (step < o->warmup_steps)
        return o->learning_rate * (double)(step + 1) / (double)o->warmup_steps;
    if (o->decay_steps <= 0)
        return o->learning_rate;
    double done = (double)(step - o->warmup_steps) / (double)o->decay_steps;
    return o->min_learning_rate +
           (o->learning_rate - o->min_learning_rate) * 0.5 * (1 + cos(acos(-1.0) * (done < 1 ? done : 1)));
}

static void update(struct executor *ex, struct unit *unit, const struct adamw *base, double weight_decay)
{
    struct adamw_part *part = new_parts(unit);
    for (int p = 0; p < unit->n_params; p++) {
        part[p].n = optimizer_part(unit, &unit->param[p], &part[p].first);
        part[p].weight_decay = unit->param[p].decays ? (float)weight_decay : 0;
    }
    int lap = stopwatch_start(&ex->watch, ex->device, STOPWATCH_OPTIMIZER);
    void *copy = unit_copy(&ex->params, unit);
    ex->kernels->adamw(ex->queue, base, unit->n_params, part, unit->owned_gradient, unit->owned_weight, unit->m,
                       unit->v, copy);
    free(part);
    if (!copy)
        unit_refresh(&ex->params, unit);
    stopwatch_end(&ex->watch, ex->device, lap);
    lap = stopwatch_start(&ex->watch, ex->device, STOPWATCH_GATHER);
    unit_publish(&ex->params, unit);
    stopwatch_end(&ex->watch, ex->device, lap);
}

void optimizer_step(struct executor *ex, struct optimizer_state *o, struct optimizer_result *ret)
{
    int lap = stopwatch_start(&ex->watch, ex->device, STOPWATCH_OPTIMIZER);
    double norm = optimizer_norm(ex), rate = rate_at(o, o->step);
    stopwatch_end(&ex->watch, ex->device, lap);
    *ret = (struct optimizer_result){norm, rate, !isfinite(norm)};
    if (ret->skipped) {
        o->skipped++;
        return;
    }
    o->step++;
    struct adamw adamw = {
        .learning_rate = (float)rate,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .correction1 = (float)(1 - pow(o->beta1, (double)o->step)),
        .correction2 = (float)(1 - pow(o->beta2, (double)o->step)),
        .gradient_scale = o->clip > 0 && norm > o->clip ? (float)(o->clip / norm) : 1,
    };
    for (int i = 0; i < ex->params.n; i++)
        update(ex, ex->params.unit[i], &adamw, o->weight_decay);
}

void optimizer_clear(struct executor *ex)
{
    for (int i = 0; i < ex->params.n; i++) {
        struct unit *unit = ex->params.unit[i];
        if (ex->params.zero < 2)
            ex->device->zero(ex->device, unit->gradient, (size_t)unit->size * 4);
        else
            ex->device->zero(ex->device, unit->owned_gradient, (size_t)unit->owned * 4);
    }
}
