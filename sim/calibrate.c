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

/* One of them for each stack: that of parameters and gradients where it is told apart, which then is what differs most. */
static const char collective_speed[] = "collective_speed", dp_collective_speed[] = "dp_collective_speed";

static const struct fitted_field {
    enum profile_section section;
    const char *key, *field;
    bool logarithmic;
} fitted[] = {
    {SECTION_STACK, "", "gemm_speed", true},        {SECTION_STACK, "", "attention_speed", true},
    {SECTION_STACK, "", "pointwise", true},         {SECTION_STACK, "", "host_launch_s", true},
    {SECTION_STACK, "", collective_speed, true},    {SECTION_STACK, "", "permute", true},
    {SECTION_STACK, "", "step_overhead_s", false},  {SECTION_STACK, "", "micro_batch_overhead_s", false},
    {SECTION_ACCELERATOR, "", "sustained", true},   {SECTION_ACCELERATOR, "", "mem_eff", true},
    {SECTION_ACCELERATOR, "", "fp8_cast", false},   {SECTION_ACCELERATOR, "", "sustained_low", true},
};

/* sigma / range, relative to that of a stack's speeds: of accelerators, whose numbers were measured kernel by kernel, and
 * of overheads, whose ranges are wide because they begin at zero. */
static const double firm = 1.0 / 3;

void calibrate_defaults(struct calibrate_options *ret)
{
    *ret = (struct calibrate_options){.noise = 0.1, .freedom = 0.1, .trust = "", .only = ""};
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

/* Whether the numbers of `user` hold the parameter: stacks keep their own; accelerators share their bases' in a full table. */
static bool holds(const struct calibration *c, const struct calibrate_parameter *p, const char *user)
{
    if (p->section == SECTION_STACK || !c->options.full_table)
        return strcmp(user, p->name) == 0;
    const struct profile_row *row = stated_row(c->validation->profile, p->section, user, p->field->name);
    return row && strcmp(row->name, p->name) == 0;
}

int calibrate_inherited(const struct calibration *c, int parameter)
{
    const struct calibrate_parameter *p = &c->parameter[parameter];
    const struct profile_row *row = stated_row(c->validation->profile, p->section, p->name, p->field->name);
    for (int q = 0; row && strcmp(row->name, p->name) != 0 && q < c->n; q++)
        if (c->parameter[q].section == p->section && c->parameter[q].field == p->field && strcmp(c->parameter[q].name, row->name) == 0)
            return q;
    return -1;
}

/* Whether a row's prediction depends on the parameter. */
static bool depends(const struct calibration *c, const struct calibrate_parameter *p, const struct outcome *o)
{
    return holds(c, p, p->section == SECTION_STACK ? o->mapped.plan.stack : o->run->accelerator);
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
        if (holds(c, p, cluster->accelerator.name)) { /* the clusters of runs have one group */
            set_member(p, &cluster->accelerator, value);
            set_member(p, &cluster->group[0].accelerator, value);
        }
    }
}

static bool chosen(const struct calibrate_options *o, enum profile_section section, const char *name)
{
    return !*o->only || strcmp(o->only, profile_section_names[section]) == 0 || strcmp(o->only, name) == 0;
}

double calibrate_x(const struct calibrate_parameter *p, double value)
{
    return p->logarithmic ? log(value) : value;
}

double calibrate_value(const struct calibrate_parameter *p, double x)
{
    return fmin(fmax(p->logarithmic ? exp(x) : x, p->low), p->high);
}

static void add_parameter(struct calibration *c, const struct fitted_field *f, const char *user)
{
    const struct profile *profile = c->validation->profile;
    const bool dp_apart = f->field == collective_speed && stated_row(profile, f->section, user, dp_collective_speed);
    const char *of = dp_apart ? dp_collective_speed : f->field;
    const struct profile_row *row = stated_row(profile, f->section, user, of);
    const struct profile_field *field = profile_field_find(f->section, of);
    const char *name = row && f->section == SECTION_ACCELERATOR && c->options.full_table ? row->name : user;
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
    double freedom = c->options.freedom * (f->section == SECTION_STACK && f->logarithmic ? 1 : firm);
    p->sigma = freedom * (calibrate_x(p, p->high) - calibrate_x(p, p->low));
    for (int i = 0; i < c->validation->table.n; i++)
        p->runs += c->weight[i] > 0 && depends(c, p, &c->validation->outcome[i]);
    c->n += p->runs > 0;
}

/* ---- which runs ---- */

void calibrate_weigh(struct calibration *c, const bool *left_out)
{
    const struct validation *v = c->validation;
    c->runs = 0;
    for (int i = 0; i < v->table.n; i++) {
        const struct outcome *o = &v->outcome[i];
        bool counts = o->predicted && isfinite(o->error) && o->measured_s > 0 && (!*c->options.trust || strcmp(o->run->trust, c->options.trust) == 0) &&
                      !(left_out && left_out[i]);
        c->weight[i] = !counts ? 0 : !c->options.full_table || strcmp(o->run->trust, "A") == 0 ? 1 : strcmp(o->run->trust, "B") == 0 ? 0.5 : 0.2;
        c->runs += counts;
    }
    for (int i = 0; c->options.full_table && i < v->table.n; i++) {
        int n = 0;
        for (int k = 0; k < v->table.n && c->weight[i] > 0; k++)
            n += c->weight[k] > 0 && strcmp(v->outcome[k].run->group, v->outcome[i].run->group) == 0;
        if (n > 20)
            c->weight[i] = sqrt(20.0 / n);
    }
}

static void list_users(struct calibration *c, struct arena *arena)
{
    int rows = c->validation->table.n, n = 0;
    c->first = arena_array(arena, (size_t)rows + 1, sizeof *c->first);
    for (int i = 0; i < rows; i++)
        for (int p = 0; p < c->n && c->weight[i] > 0; p++)
            n += depends(c, &c->parameter[p], &c->validation->outcome[i]);
    c->user = arena_array(arena, (size_t)n, sizeof *c->user);
    n = 0;
    for (int i = 0; i < rows; i++) {
        for (int p = 0; p < c->n && c->weight[i] > 0; p++)
            if (depends(c, &c->parameter[p], &c->validation->outcome[i]))
                c->user[n++] = p;
        c->first[i + 1] = n;
    }
}

int calibrate_init(struct calibration *ret, struct validation *v, const struct calibrate_options *options, struct arena *arena, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    ret->validation = v;
    ret->options = *options;
    ret->weight = arena_array(arena, (size_t)v->table.n, sizeof *ret->weight);
    calibrate_weigh(ret, NULL);
    if (ret->runs == 0)
        return err_add(err, "no run of the table has both a prediction and a measured step time");
    for (int i = 0; i < v->table.n; i++) {
        const struct outcome *o = &v->outcome[i];
        for (size_t f = 0; ret->weight[i] > 0 && f < sizeof fitted / sizeof *fitted; f++)
            add_parameter(ret, &fitted[f], fitted[f].section == SECTION_STACK ? o->mapped.plan.stack : o->run->accelerator);
    }
    list_users(ret, arena);
    return ret->n > 0 ? 0 : err_add(err, "nothing to fit: '%s' names no stack or accelerator of these runs", options->only);
}

void calibrate_apply(struct calibration *c, bool prior)
{
    for (int p = 0; p < c->n; p++)
        set_value(c, &c->parameter[p], prior ? c->parameter[p].prior : c->parameter[p].value);
    validation_price_all(c->validation);
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
