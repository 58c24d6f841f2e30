#include "exec/optimizer.h"

#include <math.h>

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
                comm_all_reduce(ex->world->comm[sum == SUM_TP ? WORLD_TP : WORLD_KV], COMM_SUM, n,
                                unit->owned_gradient + first);
        }
        if (unit->shared)
            comm_all_reduce(ex->world->comm[WORLD_PAIR], COMM_SUM, unit->owned, unit->owned_gradient);
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

double optimizer_norm(struct executor *ex)
{
    double sum = 0;
    for (int i = 0; i < ex->params.n; i++)
        for (int p = 0; p < ex->params.unit[i]->n_params; p++) {
            const struct unit *unit = ex->params.unit[i];
            int64_t first, n = optimizer_part(unit, &unit->param[p], &first);
            if (n > 0 && optimizer_counts(ex, unit, &unit->param[p]))
                sum += ex->kernels->sum_squares(ex->queue, n, unit->owned_gradient + first);
        }
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
    for (int p = 0; p < unit->n_params; p++) {
        struct adamw adamw = *base;
        int64_t first, n = optimizer_part(unit, &unit->param[p], &first);
        adamw.weight_decay = unit->param[p].decays ? (float)weight_decay : 0;
        ex->kernels->adamw(ex->queue, n, &adamw, unit->owned_gradient + first, unit->owned_weight + first,
                           unit->m + first, unit->v + first);
    }
    unit_publish(&ex->params, unit);
}

void optimizer_step(struct executor *ex, struct optimizer_state *o, struct optimizer_result *ret)
{
    double norm = optimizer_norm(ex), rate = rate_at(o, o->step);
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
