#include "exec/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/model.h"
#include "exec/comm.h"
#include "exec/fp8.h"
#include "exec/trainer.h"
#include "exec/world.h"

struct check_bounds {
    struct trainer *trainer, *reference;
    double tolerance;         /* of step 1 */
    double eight, eight_loss; /* with linears in 8 bits, where their roundings part; 0 = never */
    bool apart;               /* that is from the first step on */
    int64_t step;
    float **bound; /* rank 0: [unit] one per element of the reference's unit: what the weight may differ by */
};

static double longest_sum(const struct trainer *t)
{
    const struct model *model = t->executor.model;
    double n = fmax((double)(t->plan.global_batch * t->plan.seq_len), (double)model->vocab);
    for (int i = 0; i < model->n_kinds; i++)
        n = fmax(n, (double)(model->kinds[i].ffn + model->kinds[i].shared_ffn));
    return fmax(n, (double)model->hidden);
}

/* Relative error of one rounding: of e4m3, whose numbers are 2^-3 apart or less, and of e5m2, 2^-2 (check.h). */
static const double e4m3_error = 0.0266, e5m2_error = 0.0532;

static void set_8_bits(struct check_bounds *b, const struct trainer *t)
{
    double layers = (double)t->executor.model->layers + 2, tokens = (double)(t->plan.global_batch * t->plan.seq_len);
    double forward = sqrt(2 * layers * 8) * e4m3_error;
    b->eight = sqrt(2 * layers * (12 * e4m3_error * e4m3_error + 4 * e5m2_error * e5m2_error));
    b->eight_loss = forward / sqrt(tokens) + forward * forward / 2;
    b->apart = t->plan.tp * t->plan.cp * t->plan.ep > 1 || t->program.directions == 2;
}

/* At this step; *ret_loss, *ret_norm: of the loss, of the gradient's norm. */
static double tolerance_of(const struct check_bounds *b, double *ret_loss, double *ret_norm)
{
    if (b->eight > 0 && (b->apart || b->step > 1)) {
        *ret_loss = b->eight_loss;
        *ret_norm = b->eight * b->eight / 2;
        return b->eight;
    }
    *ret_loss = *ret_norm = b->tolerance * (double)b->step;
    return *ret_loss;
}

struct check_bounds *check_begin(struct trainer *trainer, struct trainer *reference)
{
    struct check_bounds *b = calloc(1, sizeof *b);
    if (!b)
        abort();
    b->trainer = trainer;
    b->reference = reference;
    b->tolerance = 16 * 0x1p-24 * sqrt(longest_sum(trainer)) * (double)(trainer->executor.model->layers + 2);
    if (trainer->executor.params.rounded || trainer->executor.kernels->type == ELEMENT_BF16)
        b->tolerance = 4 * 0x1p-9 * sqrt(10 * (double)(trainer->executor.model->layers + 2));
    if (trainer->executor.fp8)
        set_8_bits(b, trainer);
    if (!reference)
        return b;
    const struct params *params = &reference->executor.params;
    b->bound = calloc((size_t)params->n, sizeof *b->bound);
    for (int i = 0; b->bound && i < params->n; i++)
        b->bound[i] = calloc((size_t)params->unit[i]->size, sizeof(float));
    return b;
}

void check_end(struct check_bounds *b)
{
    for (int i = 0; b->reference && i < b->reference->executor.params.n; i++)
        free(b->bound[i]);
    free(b->bound);
    free(b);
}

/* --- one parameter: rank 0 shows the whole, the others compare what they own --------- */

/* n floats of the device on the host; the caller frees. */
static float *host_copy(const struct trainer *t, const float *x, int64_t n)
{
    float *host = malloc((size_t)n * sizeof *host + 1);
    if (!host)
        abort();
    t->executor.device->download(t->executor.device, host, x, (size_t)n * sizeof *host);
    return host;
}

static double largest(const struct trainer *t, const float *x, int64_t n)
{
    double max = 0;
    float *host = host_copy(t, x, n);
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, fabs((double)host[i]));
    free(host);
    return max;
}

struct shown {
    struct param param;   /* the reference's */
    double scale;         /* gradient's tolerance */
    float *value, *bound; /* [rows x columns]; bound NULL = scale for all */
};

struct compared {
    double ratio;
    int64_t elements;
    double *taken; /* all values, those of others 0; NULL = nobody asks */
};

static void compare_element(const struct shown *shown, int64_t at, float mine, struct compared *ret)
{
    double bound = shown->bound ? (double)shown->bound[at] : shown->scale;
    double off = fabs((double)mine - (double)shown->value[at]);
    double ratio = !isfinite(off) ? (double)INFINITY : off > 0 ? off / fmax(bound, 1e-30) : 0;
    ret->ratio = fmax(ret->ratio, ratio);
}

/* values: what this rank owns of the unit, on the device. */
static void compare_unit(const struct trainer *t, const struct unit *unit, const float *values,
                         const struct shown *shown, struct compared *ret)
{
    for (int p = 0; p < unit->n_params; p++) {
        const struct param *param = &unit->param[p];
        if (strcmp(param->name, shown->param.name) != 0)
            continue;
        int64_t first, n = optimizer_part(unit, param, &first), inside = first + unit->owned_first - param->offset;
        bool counted = optimizer_counts(&t->executor, unit, param);
        float *mine = host_copy(t, values + first, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t row = param->first_row + (inside + i) / param->columns,
                    column = param->first_column + (inside + i) % param->columns;
            if (row >= shown->param.all_rows)
                continue;
            int64_t at = row * shown->param.columns + column;
            compare_element(shown, at, mine[i], ret);
            ret->elements += counted;
            if (counted && ret->taken)
                ret->taken[at] = (double)mine[i];
        }
        free(mine);
    }
}

static void compare(const struct trainer *t, const struct shown *shown, bool weights, struct compared *ret)
{
    const struct params *params = &t->executor.params;
    ret->ratio = 0;
    ret->elements = 0;
    for (int i = 0; i < params->n; i++) {
        const struct unit *unit = params->unit[i];
        compare_unit(t, unit, weights ? unit->owned_weight : unit->owned_gradient, shown, ret);
    }
}

/* Rank 0 fills shown->value (and bound); then all have them. */
static void broadcast(const struct trainer *t, struct shown *shown)
{
    struct comm *all = t->executor.world->comm[WORLD_ALL];
    int64_t n = (int64_t)shown->param.rows * shown->param.columns;
    comm_broadcast(all, 0, n, shown->value);
    comm_broadcast(all, 0, n, shown->bound);
}

static void note(const struct trainer *t, const struct shown *shown, const struct compared *mine,
                 struct check_worst *worst, struct check_result *result)
{
    struct comm *all = t->executor.world->comm[WORLD_ALL];
    double ratio = mine->ratio, elements = (double)mine->elements;
    comm_all_reduce_doubles(all, COMM_MAX, 1, &ratio);
    comm_all_reduce_doubles(all, COMM_SUM, 1, &elements);
    int64_t whole = shown->param.all_rows * shown->param.all_columns;
    result->elements += (int64_t)elements;
    result->missing += llabs(whole - (int64_t)elements);
    if (ratio > worst->ratio || !worst->name[0]) {
        worst->ratio = ratio;
        memcpy(worst->name, shown->param.name, sizeof worst->name);
    }
}

/* Rank 0: the reference's parameter p of unit u; the header goes to all as floats. */
static void show(struct check_bounds *b, int u, int p, double scale, struct shown *shown)
{
    struct {
        struct param param;
        double scale;
    } header = {.scale = scale};
    _Static_assert(sizeof header % sizeof(float) == 0, "sent as floats");
    if (b->reference)
        header.param = b->reference->executor.params.unit[u]->param[p];
    comm_broadcast(b->trainer->executor.world->comm[WORLD_ALL], 0, sizeof header / sizeof(float), (float *)&header);
    shown->param = header.param;
    shown->scale = header.scale;
    size_t n = (size_t)header.param.rows * (size_t)header.param.columns;
    shown->value = calloc(n, sizeof(float));
    shown->bound = calloc(n, sizeof(float));
    if (!shown->value || !shown->bound)
        abort();
}

static void unshow(struct shown *shown)
{
    free(shown->value);
    free(shown->bound);
}

/* Gradients may differ by `scale` everywhere. */
static void check_gradient(struct check_bounds *b, int u, int p, double scale, struct check_result *result)
{
    struct shown shown;
    struct compared mine = {0};
    show(b, u, p, scale, &shown);
    int64_t n = (int64_t)shown.param.rows * shown.param.columns;
    if (b->reference)
        b->reference->device.download(&b->reference->device, shown.value,
                                      b->reference->executor.params.unit[u]->owned_gradient + shown.param.offset,
                                      (size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        shown.bound[i] = (float)shown.scale;
    broadcast(b->trainer, &shown);
    compare(b->trainer, &shown, false, &mine);
    note(b->trainer, &shown, &mine, &result->gradient, result);
    result->parameters++;
    unshow(&shown);
}

/* The reference goes on from the plan's weights: what the bound allowed does not come back as a difference of gradients. */
static void take_weights(struct check_bounds *b, int u, const struct param *param, double *taken)
{
    int64_t n = (int64_t)param->rows * param->columns, part = 1 << 24;
    for (int64_t i = 0; i < n; i += part)
        comm_all_reduce_doubles(b->trainer->executor.world->comm[WORLD_ALL], COMM_SUM, (int)(n - i < part ? n - i : part), taken + i);
    if (!b->reference)
        return;
    struct unit *unit = b->reference->executor.params.unit[u];
    float *host = malloc((size_t)n * sizeof *host + 1);
    if (!host)
        abort();
    for (int64_t i = 0; i < n; i++)
        host[i] = (float)taken[i];
    b->reference->device.upload(&b->reference->device, unit->owned_weight + param->offset, host, (size_t)n * sizeof *host);
    free(host);
    unit_refresh(&b->reference->executor.params, unit);
}

static void check_weight(struct check_bounds *b, int u, int p, double scale, const struct step_result *reference_step,
                         struct check_result *result)
{
    struct shown shown;
    struct compared mine = {0};
    struct check_result ignored = {0};
    show(b, u, p, scale, &shown);
    int64_t n = (int64_t)shown.param.rows * shown.param.columns;
    mine.taken = calloc((size_t)n + 1, sizeof *mine.taken);
    if (!mine.taken)
        abort();
    if (b->reference) {
        const struct unit *unit = b->reference->executor.params.unit[u];
        const struct optimizer_state *o = &b->reference->optimizer;
        double correction = 1 - pow(o->beta2, (double)o->step);
        float *squares = host_copy(b->reference, unit->v + shown.param.offset, n);
        b->reference->device.download(&b->reference->device, shown.value, unit->owned_weight + shown.param.offset,
                                      (size_t)n * 4);
        for (int64_t i = 0; i < n; i++) {
            float *bound = &b->bound[u][shown.param.offset + i];
            double v = sqrt((double)squares[i] / correction) + o->epsilon;
            *bound += (float)(reference_step->optimizer.learning_rate * fmin(2, 2 * shown.scale / v));
            shown.bound[i] = *bound + (float)(8 * 0x1p-24) * fabsf(shown.value[i]);
        }
        free(squares);
    }
    broadcast(b->trainer, &shown);
    compare(b->trainer, &shown, true, &mine);
    note(b->trainer, &shown, &mine, &result->weight, &ignored);
    take_weights(b, u, &shown.param, mine.taken);
    free(mine.taken);
    unshow(&shown);
}

/* The layer's largest gradient, over its dense and expert units. */
static double layer_scale(const struct trainer *reference, int u)
{
    const struct params *params = &reference->executor.params;
    const struct unit *unit = params->unit[u];
    size_t length = strlen(unit->key), experts = strlen(".experts");
    if (length > experts && strcmp(unit->key + length - experts, ".experts") == 0)
        length -= experts;
    double scale = 0;
    for (int i = 0; i < params->n; i++)
        if (strncmp(params->unit[i]->key, unit->key, length) == 0)
            scale = fmax(scale, largest(reference, params->unit[i]->owned_gradient, params->unit[i]->size));
    return scale;
}

static void each_param(struct check_bounds *b, bool weights, const struct step_result *reference_step,
                       struct check_result *ret)
{
    struct comm *all = b->trainer->executor.world->comm[WORLD_ALL];
    const struct params *params = b->reference ? &b->reference->executor.params : NULL;
    double units = params ? params->n : 0, loss, norm, tolerance = tolerance_of(b, &loss, &norm);
    comm_all_reduce_doubles(all, COMM_MAX, 1, &units);
    for (int u = 0; u < (int)units; u++) {
        double n = params ? params->unit[u]->n_params : 0, layer = params ? layer_scale(b->reference, u) : 0;
        comm_all_reduce_doubles(all, COMM_MAX, 1, &n);
        for (int p = 0; p < (int)n; p++) {
            double scale = 0;
            if (params) {
                const struct param *param = &params->unit[u]->param[p];
                scale = largest(b->reference, params->unit[u]->owned_gradient + param->offset,
                                (int64_t)param->rows * param->columns);
                scale = fmax(scale, layer * 1e-3) * tolerance;
            }
            if (weights)
                check_weight(b, u, p, scale, reference_step, ret);
            else
                check_gradient(b, u, p, scale, ret);
        }
    }
}

void check_step(struct check_bounds *b, struct check_result *ret)
{
    struct step_result mine = {0}, reference = {0};
    struct comm *all = b->trainer->executor.world->comm[WORLD_ALL];
    *ret = (struct check_result){0};
    b->step++;
    if (b->reference)
        trainer_gradients(b->reference, &reference);
    trainer_gradients(b->trainer, &mine);
    each_param(b, false, NULL, ret);
    if (b->reference)
        trainer_update(b->reference, &reference);
    trainer_update(b->trainer, &mine);
    each_param(b, true, &reference, ret);
    double shared[2] = {reference.loss, reference.optimizer.gradient_norm};
    comm_all_reduce_doubles(all, COMM_MAX, 2, shared);
    ret->loss = mine.loss;
    ret->norm = mine.optimizer.gradient_norm;
    ret->reference_loss = shared[0];
    ret->reference_norm = shared[1];
    ret->factor_spread = b->trainer->executor.fp8 ? fp8_spread(&b->trainer->executor) : 0;
    comm_all_reduce_doubles(all, COMM_MAX, 1, &ret->factor_spread);
    tolerance_of(b, &ret->loss_tolerance, &ret->norm_tolerance);
}

bool check_passed(const struct check_result *r)
{
    return fabs(r->loss - r->reference_loss) <= r->loss_tolerance * fabs(r->reference_loss) &&
           fabs(r->norm - r->reference_norm) <= r->norm_tolerance * fabs(r->reference_norm) && r->gradient.ratio <= 1 &&
           r->weight.ratio <= 1 && r->factor_spread <= 0 && r->missing == 0 && r->parameters > 0;
}
