/* Runs that a fit did not see: folds of the table, or whole groups: a publication, an accelerator, a model, a stack. */
#include <math.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/calibrate.h"
#include "sim/calibrate_fit.h"

/* ---- folds ---- */

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

/* ---- groups ---- */

static int list_groups(const struct calibration *c, enum validate_by by, struct left_out *groups)
{
    int n = 0;
    for (int i = 0; i < c->validation->table.n; i++) {
        const char *name = validate_group_of(&c->validation->outcome[i], by);
        int k = 0;
        while (c->weight[i] > 0 && k < n && strcmp(groups[k].group, name) != 0)
            k++;
        if (c->weight[i] > 0 && k == n)
            groups[n++].group = name;
    }
    return n;
}

/* Errors of the rows that have this weight, appended. */
static int errors_of(const struct fit *fit, const double *weight, double *errors)
{
    const struct calibration *c = fit->calibration;
    int n = 0;
    for (int i = 0; i < c->validation->table.n; i++)
        if (weight[i] > 0)
            errors[n++] = expm1(fit->residual[i] * c->options.noise);
    return n;
}

/* spread_of changes the order. */
static void spread(const double *errors, int n, double *room, struct spread *ret)
{
    memcpy(room, errors, (size_t)n * sizeof *room);
    spread_of(room, n, ret);
}

/* Numbers of the group's predictions that no run tells: the prior, or what the fit says of the base they come from. */
static int lose(struct fit *without, const double *group)
{
    const struct calibration *c = without->calibration;
    int lost = 0;
    bool told[CALIBRATE_PARAMETERS_MAX] = {false}, used[CALIBRATE_PARAMETERS_MAX] = {false};
    for (int i = 0; i < c->validation->table.n; i++)
        for (int k = c->first[i]; k < c->first[i + 1]; k++) {
            told[c->user[k]] = told[c->user[k]] || c->weight[i] > 0;
            used[c->user[k]] = used[c->user[k]] || group[i] > 0;
        }
    for (int p = 0; p < c->n; p++) {
        int base = used[p] && !told[p] ? calibrate_inherited(c, p) : -1;
        if (base >= 0 && told[base])
            without->x[p] = calibrate_x(&c->parameter[p], calibrate_value(&c->parameter[base], without->x[base]));
        lost += used[p] && !told[p];
    }
    return lost;
}

/* By the slopes of the full fit. */
static void find_moves(const struct fit *full, const struct fit *without, const double *group, struct left_out *ret)
{
    const struct calibration *c = full->calibration;
    double by[CALIBRATE_PARAMETERS_MAX] = {0};
    for (int i = 0; i < c->validation->table.n; i++)
        for (int k = c->first[i]; k < c->first[i + 1] && group[i] > 0; k++)
            by[c->user[k]] += full->slope[k] * (without->x[c->user[k]] - full->x[c->user[k]]) * c->options.noise / ret->fitted.n;
    for (int m = 0; m < LEFT_OUT_MOVES; m++) {
        int most = 0;
        for (int p = 1; p < c->n; p++)
            most = fabs(by[p]) > fabs(by[most]) ? p : most;
        if (by[most] == 0)
            break;
        ret->move[m].parameter = &c->parameter[most];
        ret->move[m].by = by[most];
        by[most] = 0;
    }
}

struct leaving {
    struct calibration *calibration;
    enum validate_by by;
    const double *weight; /* of the full fit */
    struct fit full;
    bool *out;
    double *group, *fitted, *unseen, *room; /* by row: weights of the group alone; errors so far; scratch */
    int n;
};

static int leave_out(struct leaving *l, struct left_out *ret, struct arena *arena, struct err *err)
{
    struct calibration *c = l->calibration;
    struct arena_mark mark = arena_mark(arena);
    struct fit without;
    fit_copy(&without, &l->full, arena);
    for (int i = 0; i < c->validation->table.n; i++) {
        l->out[i] = strcmp(validate_group_of(&c->validation->outcome[i], l->by), ret->group) == 0;
        l->group[i] = l->out[i] ? l->weight[i] : 0;
    }
    calibrate_weigh(c, l->out);
    int result = fit_run(&without, arena, err);
    ret->lost = lose(&without, l->group);
    fit_price(&without, l->group);
    int n = errors_of(&l->full, l->group, l->fitted + l->n);
    errors_of(&without, l->group, l->unseen + l->n);
    spread(l->fitted + l->n, n, l->room, &ret->fitted);
    spread(l->unseen + l->n, n, l->room, &ret->unseen);
    l->n += n;
    find_moves(&l->full, &without, l->group, ret);
    arena_rewind(arena, mark);
    return result;
}

int calibrate_leave_groups_out(struct calibration *c, enum validate_by by, left_out_progress progress, struct arena *arena,
                               struct left_out **ret_groups, struct err *err)
{
    size_t rows = (size_t)c->validation->table.n;
    struct left_out *groups = *ret_groups = arena_array(arena, rows + 1, sizeof *groups);
    double *own = c->weight, *weight = arena_array(arena, rows, sizeof *weight);
    struct leaving l = {.calibration = c, .by = by, .weight = own};
    double **arrays[] = {&l.group, &l.fitted, &l.unseen, &l.room};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = arena_array(arena, rows, sizeof(double));
    l.out = arena_array(arena, rows, sizeof *l.out);
    int n = list_groups(c, by, groups), result = 0, runs = c->runs;
    fit_init(&l.full, c, arena);
    fit_differentiate(&l.full);
    c->weight = weight;
    for (int g = 0; g < n && result == 0; g++) {
        result = leave_out(&l, &groups[g], arena, err);
        if (progress)
            progress(&groups[g], g + 1, n);
    }
    c->weight = own;
    c->runs = runs;
    groups[n].group = NULL;
    spread(l.fitted, l.n, l.room, &groups[n].fitted);
    spread(l.unseen, l.n, l.room, &groups[n].unseen);
    return result == 0 ? n : -1;
}
