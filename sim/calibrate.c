#include "sim/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/names.h"
#include "sim/calibrate_solve.h"
#include "sim/validate_stats.h"

/* ---- which numbers ---- */

static const struct fitted_field {
    enum profile_section section;
    const char *key, *field;
    bool logarithmic;
} fitted[] = {
    {SECTION_STACK, "", "gemm_speed", true},        {SECTION_STACK, "", "attention_speed", true},
    {SECTION_STACK, "", "pointwise", true},         {SECTION_STACK, "", "host_launch_s", true},
    {SECTION_STACK, "", "collective_speed", true},  {SECTION_STACK, "", "permute", true},
    {SECTION_STACK, "", "step_overhead_s", false},  {SECTION_STACK, "", "micro_batch_overhead_s", false},
    {SECTION_ACCELERATOR, "", "sustained", true},   {SECTION_ACCELERATOR, "", "mem_eff", true},
    {SECTION_ACCELERATOR, "", "fp8_cast", false},   {SECTION_ACCELERATOR, "", "sustained_low", true},
};

void calibrate_defaults(struct calibrate_options *ret)
{
    *ret = (struct calibrate_options){.noise = 0.05, .freedom = 0.25, .trust = "", .only = ""};
}

/* The name in the chain of bases whose row a stack or accelerator takes this field from; NULL = it has none. */
static const struct profile_row *stated_row(const struct profile *profile, enum profile_section section, const char *name, const char *field)
{
    const char *chain[PROFILE_CHAIN_MAX];
    int n = profile_chain(profile, section, name, chain, NULL);
    for (int i = 0; i < n; i++) {
        const struct profile_row *row = profile_rows_find(profile_rows_of(profile), section, chain[i], "", field);
        if (row)
            return row;
    }
    return NULL;
}

/* Whether a row's prediction depends on the parameter. */
static bool depends(const struct calibration *c, const struct calibrate_parameter *p, const struct outcome *o)
{
    if (p->section == SECTION_STACK)
        return strcmp(o->mapped.plan.stack, p->name) == 0;
    const struct profile_row *row = stated_row(c->validation->profile, p->section, o->run->accelerator, p->field->name);
    return row && strcmp(row->name, p->name) == 0;
}

static void set_member(const struct calibrate_parameter *p, void *object, double value)
{
    profile_field_set(p->field, object, value, NULL);
}

/* Writes a value into every struct that holds it. */
static void set_value(const struct calibration *c, const struct calibrate_parameter *p, double value)
{
    struct validation *v = c->validation;
    for (int i = 0; p->section == SECTION_STACK && i < v->n_stacks; i++)
        if (strcmp(v->stacks[i].name, p->name) == 0)
            set_member(p, &v->stacks[i], value);
    for (int i = 0; p->section == SECTION_ACCELERATOR && i < v->n_clusters; i++) {
        struct cluster *cluster = &v->clusters[i].cluster;
        if (*v->clusters[i].reason)
            continue;
        const struct profile_row *row = stated_row(v->profile, p->section, cluster->accelerator.name, p->field->name);
        if (row && strcmp(row->name, p->name) == 0) { /* the clusters of runs have one group */
            set_member(p, &cluster->accelerator, value);
            set_member(p, &cluster->group[0].accelerator, value);
        }
    }
}

static bool chosen(const struct calibrate_options *o, enum profile_section section, const char *name)
{
    return !*o->only || strcmp(o->only, profile_section_names[section]) == 0 || strcmp(o->only, name) == 0;
}

/* x of a value and back. */
static double to_x(const struct calibrate_parameter *p, double value)
{
    return p->logarithmic ? log(value) : value;
}

static double from_x(const struct calibrate_parameter *p, double x)
{
    return p->logarithmic ? exp(x) : x;
}

static void add_parameter(struct calibration *c, const struct fitted_field *f, const char *user)
{
    const struct profile *profile = c->validation->profile;
    const struct profile_row *row = stated_row(profile, f->section, user, f->field);
    const struct profile_field *field = profile_field_find(f->section, f->field);
    const char *name = row && f->section == SECTION_ACCELERATOR ? row->name : user; /* stacks keep their own numbers */
    if (!field || !chosen(&c->options, f->section, name) || c->n == CALIBRATE_PARAMETERS_MAX || (!row && f->section == SECTION_ACCELERATOR))
        return;
    for (int i = 0; i < c->n; i++)
        if (c->parameter[i].field == field && strcmp(c->parameter[i].name, name) == 0)
            return;
    struct calibrate_parameter *p = &c->parameter[c->n];
    double unit = row ? profile_unit_factor(row->unit, field->dimension) : 1;
    *p = (struct calibrate_parameter){.section = f->section, .name = name, .key = "", .field = field, .logarithmic = f->logarithmic};
    p->prior = p->value = row ? row->value * unit : field->fallback;
    p->low = row && isfinite(row->low) ? row->low * unit : f->logarithmic ? p->prior / 2 : 0;
    p->high = row && isfinite(row->high) ? row->high * unit : f->logarithmic ? p->prior * 2 : fmax(2 * p->prior, 1e-3);
    if (!(p->prior > 0 || !f->logarithmic) || !(p->low < p->high))
        return;
    p->sigma = c->options.freedom * (to_x(p, p->high) - to_x(p, p->low));
    for (int i = 0; i < c->validation->table.n; i++)
        p->runs += c->weight[i] > 0 && depends(c, p, &c->validation->outcome[i]);
    c->n += p->runs > 0;
}

/* ---- which runs ---- */

static void weigh_runs(struct calibration *c)
{
    const struct validation *v = c->validation;
    for (int i = 0; i < v->table.n; i++) {
        const struct outcome *o = &v->outcome[i];
        bool counts = o->predicted && isfinite(o->error) && o->measured_s > 0 && (!*c->options.trust || strcmp(o->run->trust, c->options.trust) == 0);
        c->weight[i] = !counts ? 0 : !c->options.by_group || strcmp(o->run->trust, "A") == 0 ? 1 : strcmp(o->run->trust, "B") == 0 ? 0.5 : 0.2;
        c->runs += counts;
    }
    for (int i = 0; c->options.by_group && i < v->table.n; i++) {
        int n = 0;
        for (int k = 0; k < v->table.n && c->weight[i] > 0; k++)
            n += c->weight[k] > 0 && strcmp(v->outcome[k].run->group, v->outcome[i].run->group) == 0;
        if (n > 20)
            c->weight[i] = sqrt(20.0 / n);
    }
}

int calibrate_init(struct calibration *ret, struct validation *v, const struct calibrate_options *options, struct arena *arena, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    ret->validation = v;
    ret->options = *options;
    ret->weight = arena_array(arena, (size_t)v->table.n, sizeof *ret->weight);
    weigh_runs(ret);
    if (ret->runs == 0)
        return err_add(err, "no run of the table has both a prediction and a measured step time");
    for (int i = 0; i < v->table.n; i++) {
        const struct outcome *o = &v->outcome[i];
        for (size_t f = 0; ret->weight[i] > 0 && f < sizeof fitted / sizeof *fitted; f++)
            add_parameter(ret, &fitted[f], fitted[f].section == SECTION_STACK ? o->mapped.plan.stack : o->run->accelerator);
    }
    return ret->n > 0 ? 0 : err_add(err, "nothing to fit: '%s' names no stack or accelerator of these runs", options->only);
}

/* ---- the fit ---- */

void calibrate_apply(struct calibration *c, bool prior)
{
    for (int p = 0; p < c->n; p++)
        set_value(c, &c->parameter[p], prior ? c->parameter[p].prior : c->parameter[p].value);
    validation_price_all(c->validation);
}

static double huber(double z)
{
    return fabs(z) <= 1 ? z * z : 2 * fabs(z) - 1;
}

static double residual(const struct calibration *c, int row)
{
    return log1p(c->validation->outcome[row].error) / c->options.noise;
}

/* Of the values that are set. */
static double cost_of(const struct calibration *c)
{
    double sum = 0;
    for (int i = 0; i < c->validation->table.n; i++)
        if (c->weight[i] > 0)
            sum += c->weight[i] * huber(residual(c, i));
    for (int p = 0; p < c->n; p++) {
        const struct calibrate_parameter *q = &c->parameter[p];
        double z = (to_x(q, q->value) - to_x(q, q->prior)) / q->sigma;
        sum += z * z;
    }
    return sum;
}

/* Derivatives of the residuals by one parameter: jacobian[rows of the table]. */
static void differentiate(struct calibration *c, int p, const double *at, double *jacobian)
{
    struct calibrate_parameter *q = &c->parameter[p];
    double x = to_x(q, q->value), step = 0.02 * (to_x(q, q->high) - to_x(q, q->low));
    if (x + step > to_x(q, q->high))
        step = -step;
    set_value(c, q, from_x(q, x + step));
    for (int i = 0; i < c->validation->table.n; i++) {
        jacobian[i] = 0;
        if (c->weight[i] <= 0 || !depends(c, q, &c->validation->outcome[i]))
            continue;
        validation_price(c->validation, i);
        jacobian[i] = (residual(c, i) - at[i]) / step;
    }
    set_value(c, q, q->value);
}

/* Normal equations of the step: J'WJ + priors, and the gradient. */
static void fill_normal(const struct calibration *c, double *const *jacobian, const double *at, double *matrix, double *gradient)
{
    int n = c->n;
    for (int p = 0; p < n; p++) {
        const struct calibrate_parameter *q = &c->parameter[p];
        double inverse = 1 / (q->sigma * q->sigma);
        for (int r = 0; r <= p; r++) {
            double sum = 0;
            for (int i = 0; i < c->validation->table.n; i++)
                if (c->weight[i] > 0)
                    sum += c->weight[i] / fmax(1, fabs(at[i])) * jacobian[p][i] * jacobian[r][i];
            matrix[p * n + r] = matrix[r * n + p] = sum + (p == r ? inverse : 0);
        }
        gradient[p] = inverse * (to_x(q, q->value) - to_x(q, q->prior));
        for (int i = 0; i < c->validation->table.n; i++)
            if (c->weight[i] > 0)
                gradient[p] += c->weight[i] / fmax(1, fabs(at[i])) * jacobian[p][i] * at[i];
    }
}

static void step_by(struct calibration *c, const double *from, const double *step)
{
    for (int p = 0; p < c->n; p++) {
        struct calibrate_parameter *q = &c->parameter[p];
        double x = fmin(fmax(from[p] - step[p], to_x(q, q->low)), to_x(q, q->high));
        q->value = fmin(fmax(from_x(q, x), q->low), q->high);
    }
    calibrate_apply(c, false);
}

/* One accepted step; returns the new cost, or the old one when none was better. */
static double improve(struct calibration *c, const double *matrix, const double *gradient, double cost, double *damping, struct arena *arena)
{
    size_t n = (size_t)c->n;
    double *from = arena_array(arena, n, sizeof *from), *step = arena_array(arena, n, sizeof *step), *zero = arena_array(arena, n, sizeof *zero);
    for (int p = 0; p < c->n; p++)
        from[p] = to_x(&c->parameter[p], c->parameter[p].value);
    for (int tries = 0; tries < 8; tries++, *damping *= 8) {
        if (!solve_damped(matrix, gradient, c->n, *damping, step, arena))
            continue;
        step_by(c, from, step);
        double now = cost_of(c);
        if (now < cost) {
            *damping = fmax(*damping / 8, 1e-6);
            return now;
        }
    }
    step_by(c, from, zero);
    return cost;
}

int calibrate_fit(struct calibration *c, struct arena *arena, struct err *err)
{
    enum { ITERATIONS_MAX = 80 };
    size_t n = (size_t)c->n, rows = (size_t)c->validation->table.n;
    struct arena_mark mark = arena_mark(arena);
    double **jacobian = arena_array(arena, n, sizeof *jacobian), *at = arena_array(arena, rows, sizeof *at);
    double *matrix = arena_array(arena, n * n, sizeof *matrix), *gradient = arena_array(arena, n, sizeof *gradient), damping = 1e-2;
    for (size_t p = 0; p < n; p++)
        jacobian[p] = arena_array(arena, rows, sizeof **jacobian);
    calibrate_apply(c, false);
    double cost = cost_of(c), before = (double)INFINITY;
    for (c->iterations = 0; c->iterations < ITERATIONS_MAX && cost < before * (1 - 2e-6); c->iterations++) {
        before = cost;
        for (size_t i = 0; i < rows; i++)
            at[i] = c->weight[i] > 0 ? residual(c, (int)i) : 0;
        for (int p = 0; p < c->n; p++)
            differentiate(c, p, at, jacobian[p]);
        fill_normal(c, jacobian, at, matrix, gradient);
        cost = improve(c, matrix, gradient, cost, &damping, arena);
    }
    arena_rewind(arena, mark);
    return isfinite(cost) ? 0 : err_add(err, "the fit found no finite error: are the measured step times in seconds?");
}

/* ---- runs that the fit did not see ---- */

static int collect(const struct calibration *c, const double *weight, int folds, int fold, double *errors)
{
    int n = 0, index = 0;
    for (int i = 0; i < c->validation->table.n; i++)
        if (weight[i] > 0 && index++ % folds == fold)
            errors[n++] = c->validation->outcome[i].error;
    return n;
}

int calibrate_cross_validate(struct calibration *c, int folds, struct arena *arena, struct spread *ret_before, struct spread *ret_after, struct err *err)
{
    size_t rows = (size_t)c->validation->table.n;
    double *weight = arena_array(arena, rows, sizeof *weight), *errors = arena_array(arena, rows, sizeof *errors), kept[CALIBRATE_PARAMETERS_MAX];
    int n = 0, result = 0;
    folds = folds < c->runs ? folds : c->runs;
    memcpy(weight, c->weight, rows * sizeof *weight);
    for (int p = 0; p < c->n; p++)
        kept[p] = c->parameter[p].value;
    calibrate_apply(c, true);
    spread_of(errors, collect(c, weight, 1, 0, errors), ret_before);
    for (int fold = 0; folds > 1 && fold < folds && result == 0; fold++) {
        int index = 0;
        for (size_t i = 0; i < rows; i++)
            c->weight[i] = weight[i] > 0 && index++ % folds == fold ? 0 : weight[i];
        for (int p = 0; p < c->n; p++)
            c->parameter[p].value = c->parameter[p].prior;
        result = calibrate_fit(c, arena, err);
        n += collect(c, weight, folds, fold, errors + n);
    }
    spread_of(errors, n, ret_after);
    memcpy(c->weight, weight, rows * sizeof *weight);
    for (int p = 0; p < c->n; p++)
        c->parameter[p].value = kept[p];
    calibrate_apply(c, false);
    return result;
}

/* Errors of a group's runs under the values that are set. */
static void group_errors(const struct calibration *c, const double *weight, const char *group, double *errors, struct spread *ret)
{
    int n = 0;
    for (int i = 0; i < c->validation->table.n; i++)
        if (weight[i] > 0 && strcmp(c->validation->outcome[i].run->group, group) == 0)
            errors[n++] = c->validation->outcome[i].error;
    spread_of(errors, n, ret);
}

static int list_groups(const struct calibration *c, const double *weight, struct left_out *groups)
{
    int n = 0;
    for (int i = 0; i < c->validation->table.n; i++) {
        int k = 0;
        while (weight[i] > 0 && k < n && strcmp(groups[k].group, c->validation->outcome[i].run->group) != 0)
            k++;
        if (weight[i] > 0 && k == n)
            groups[n++].group = c->validation->outcome[i].run->group;
    }
    return n;
}

int calibrate_leave_groups_out(struct calibration *c, struct arena *arena, struct left_out **ret_groups, struct err *err)
{
    size_t rows = (size_t)c->validation->table.n;
    double *weight = arena_array(arena, rows, sizeof *weight), *errors = arena_array(arena, rows, sizeof *errors), kept[CALIBRATE_PARAMETERS_MAX];
    struct left_out *groups = *ret_groups = arena_array(arena, rows, sizeof *groups);
    memcpy(weight, c->weight, rows * sizeof *weight);
    int n = list_groups(c, weight, groups), result = 0;
    for (int p = 0; p < c->n; p++)
        kept[p] = c->parameter[p].value;
    calibrate_apply(c, false);
    for (int g = 0; g < n; g++)
        group_errors(c, weight, groups[g].group, errors, &groups[g].fitted);
    for (int g = 0; g < n && result == 0; g++) {
        for (size_t i = 0; i < rows; i++)
            c->weight[i] = strcmp(c->validation->outcome[i].run->group, groups[g].group) == 0 ? 0 : weight[i];
        for (int p = 0; p < c->n; p++)
            c->parameter[p].value = kept[p];
        result = calibrate_fit(c, arena, err);
        group_errors(c, weight, groups[g].group, errors, &groups[g].unseen);
    }
    memcpy(c->weight, weight, rows * sizeof *weight);
    for (int p = 0; p < c->n; p++)
        c->parameter[p].value = kept[p];
    calibrate_apply(c, false);
    return result == 0 ? n : -1;
}

/* ---- the answer as rows ---- */

int calibrate_rows(const struct calibration *c, const char *date, const char *source, struct profile_rows *rows, struct err *err)
{
    int result = 0;
    for (int p = 0; p < c->n; p++) {
        const struct calibrate_parameter *q = &c->parameter[p];
        const struct profile_row *row = stated_row(c->validation->profile, q->section, q->name, q->field->name);
        const char *unit = row ? row->unit : profile_unit_si(q->field->dimension);
        double factor = profile_unit_factor(unit, q->field->dimension);
        char from[PROFILE_SOURCE_MAX];
        snprintf(from, sizeof from, "fit over %d runs of %s", q->runs, source);
        struct profile_row out = {.section = q->section, .name = q->name, .key = q->key, .field = q->field->name, .unit = unit,
                                  .value = strtod_rounded(q->value / factor), .low = q->low / factor, .high = q->high / factor,
                                  .provenance = PROVENANCE_MEASURED, .date = date, .source = from};
        if (profile_rows_add(rows, &out, err) < 0)
            result = -1;
    }
    return result;
}
