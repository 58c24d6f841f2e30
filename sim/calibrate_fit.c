#include "sim/calibrate_fit.h"

#include <math.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/calibrate_solve.h"
#include "sim/validate_rows.h"

void fit_init(struct fit *ret, struct calibration *c, struct arena *arena)
{
    int rows = c->validation->table.n;
    size_t users = (size_t)c->first[rows];
    *ret = (struct fit){.calibration = c};
    ret->x = arena_array(arena, (size_t)c->n, sizeof *ret->x);
    ret->residual = arena_array(arena, (size_t)rows, sizeof *ret->residual);
    ret->slope = arena_array(arena, users, sizeof *ret->slope);
    ret->slope_x = arena_array(arena, users, sizeof *ret->slope_x);
    for (int p = 0; p < c->n; p++)
        ret->x[p] = calibrate_x(&c->parameter[p], c->parameter[p].value);
    for (int i = 0; i < rows; i++)
        ret->residual[i] = (double)NAN;
    for (size_t i = 0; i < users; i++)
        ret->slope_x[i] = (double)NAN;
}

void fit_copy(struct fit *ret, const struct fit *fit, struct arena *arena)
{
    struct calibration *c = fit->calibration;
    fit_init(ret, c, arena);
    size_t rows = (size_t)c->validation->table.n, users = (size_t)c->first[rows];
    memcpy(ret->x, fit->x, (size_t)c->n * sizeof *ret->x);
    memcpy(ret->residual, fit->residual, rows * sizeof *ret->residual);
    memcpy(ret->slope, fit->slope, users * sizeof *ret->slope);
    memcpy(ret->slope_x, fit->slope_x, users * sizeof *ret->slope_x);
}

void fit_publish(const struct fit *fit)
{
    struct calibration *c = fit->calibration;
    for (int p = 0; p < c->n; p++)
        c->parameter[p].value = calibrate_value(&c->parameter[p], fit->x[p]);
}

/* ---- runs at a point ---- */

static void set_number(struct row_pricer *pricer, const struct calibrate_parameter *p, double x)
{
    double value = calibrate_value(p, x);
    if (p->section == SECTION_STACK) {
        profile_field_set(p->field, &pricer->stack, value, NULL);
        return;
    }
    profile_field_set(p->field, &pricer->cluster.accelerator, value, NULL); /* the clusters of runs have one group */
    profile_field_set(p->field, &pricer->cluster.group[0].accelerator, value, NULL);
}

static void begin(struct row_pricer *pricer, const struct calibration *c, const double *x, int row)
{
    row_pricer_begin(pricer, c->validation, row);
    for (int k = c->first[row]; k < c->first[row + 1]; k++)
        set_number(pricer, &c->parameter[c->user[k]], x[c->user[k]]);
}

static double residual_of(const struct calibration *c, int row, double step_s)
{
    return log(step_s / c->validation->outcome[row].measured_s) / c->options.noise;
}

struct pricing_job {
    struct calibration *calibration;
    const double *weight, *x, *old_x; /* NULL = price all */
    double *residual;
};

static void price_row(void *context, struct row_pricer *pricer, int row)
{
    const struct pricing_job *job = context;
    const struct calibration *c = job->calibration;
    bool stale = job->weight[row] > 0 && (!job->old_x || !isfinite(job->residual[row]));
    for (int k = c->first[row]; k < c->first[row + 1] && job->weight[row] > 0 && !stale; k++)
        stale = job->x[c->user[k]] != job->old_x[c->user[k]];
    if (!stale)
        return;
    begin(pricer, c, job->x, row);
    job->residual[row] = residual_of(c, row, row_pricer_step_s(pricer));
}

void fit_price(struct fit *fit, const double *weight)
{
    struct calibration *c = fit->calibration;
    struct pricing_job job = {c, weight, fit->x, NULL, fit->residual};
    validation_visit_rows(c->validation, c->validation->table.n, price_row, &job);
}

/* residual: that of old_x before, of x after. */
static void reprice(struct calibration *c, const double *old_x, const double *x, double *residual)
{
    struct pricing_job job = {c, c->weight, x, old_x, residual};
    validation_visit_rows(c->validation, c->validation->table.n, price_row, &job);
}

/* ---- slopes ---- */

/* A slope is taken again when a number of its run has moved by this share of its range. */
static const double slope_lasts = 0.002;

static double range_of(const struct calibrate_parameter *q)
{
    return calibrate_x(q, q->high) - calibrate_x(q, q->low);
}

static bool slopes_last(const struct fit *fit, int row)
{
    const struct calibration *c = fit->calibration;
    for (int k = c->first[row]; k < c->first[row + 1]; k++) {
        double moved = fabs(fit->x[c->user[k]] - fit->slope_x[k]);
        if (!(moved <= slope_lasts * range_of(&c->parameter[c->user[k]])))
            return false;
    }
    return true;
}

static void differentiate_row(void *context, struct row_pricer *pricer, int row)
{
    struct fit *fit = context;
    const struct calibration *c = fit->calibration;
    if (c->weight[row] <= 0 || slopes_last(fit, row))
        return;
    begin(pricer, c, fit->x, row);
    double at = residual_of(c, row, row_pricer_step_s(pricer)); /* the first: what has its durations is not simulated again */
    for (int k = c->first[row]; k < c->first[row + 1]; k++) {
        const struct calibrate_parameter *q = &c->parameter[c->user[k]];
        double x = fit->x[c->user[k]], step = 0.02 * range_of(q);
        if (x + step > calibrate_x(q, q->high))
            step = -step;
        set_number(pricer, q, x + step);
        fit->slope[k] = (residual_of(c, row, row_pricer_step_s(pricer)) - at) / step;
        fit->slope_x[k] = x;
        set_number(pricer, q, x);
    }
}

void fit_differentiate(struct fit *fit)
{
    struct calibration *c = fit->calibration;
    reprice(c, fit->x, fit->x, fit->residual); /* what was not yet */
    validation_visit_rows(c->validation, c->validation->table.n, differentiate_row, fit);
}

/* ---- steps ---- */

static double huber(double z)
{
    return fabs(z) <= 1 ? z * z : 2 * fabs(z) - 1;
}

/* From the prior, in sigma. */
static double distance(const struct calibration *c, const double *x, int p)
{
    const struct calibrate_parameter *q = &c->parameter[p];
    return (x[p] - calibrate_x(q, q->prior)) / q->sigma;
}

static double cost_of(const struct calibration *c, const double *x, const double *residual)
{
    double sum = 0;
    for (int i = 0; i < c->validation->table.n; i++)
        if (c->weight[i] > 0)
            sum += c->weight[i] * huber(residual[i]);
    for (int p = 0; p < c->n; p++)
        sum += distance(c, x, p) * distance(c, x, p);
    return sum;
}

/* Normal equations of the step: J'WJ + priors, and the gradient. */
static void fill_normal(const struct fit *fit, double *matrix, double *gradient)
{
    const struct calibration *c = fit->calibration;
    int n = c->n;
    memset(matrix, 0, (size_t)n * (size_t)n * sizeof *matrix);
    for (int p = 0; p < n; p++) {
        double sigma = c->parameter[p].sigma;
        matrix[p * n + p] = 1 / (sigma * sigma);
        gradient[p] = distance(c, fit->x, p) / sigma;
    }
    for (int i = 0; i < c->validation->table.n; i++) {
        double weight = c->weight[i] > 0 ? c->weight[i] / fmax(1, fabs(fit->residual[i])) : 0;
        for (int k = c->first[i]; k < c->first[i + 1] && weight > 0; k++) {
            int p = c->user[k];
            gradient[p] += weight * fit->slope[k] * fit->residual[i];
            for (int l = c->first[i]; l < c->first[i + 1]; l++)
                matrix[p * n + c->user[l]] += weight * fit->slope[k] * fit->slope[l];
        }
    }
}

struct step_room {
    double *matrix, *gradient, *low, *high, *step, *x, *residual;
};

static void find_bounds(const struct fit *fit, struct step_room *room)
{
    for (int p = 0; p < fit->calibration->n; p++) {
        const struct calibrate_parameter *q = &fit->calibration->parameter[p];
        room->low[p] = fmin(0, calibrate_x(q, q->low) - fit->x[p]);
        room->high[p] = fmax(0, calibrate_x(q, q->high) - fit->x[p]);
    }
}

/* By how much the quadratic form says that the cost falls. */
static double promised(const struct step_room *room, int n)
{
    double sum = 0;
    for (int p = 0; p < n; p++) {
        double product = 0;
        for (int r = 0; r < n; r++)
            product += room->matrix[p * n + r] * room->step[r];
        sum -= room->step[p] * (2 * room->gradient[p] + product);
    }
    return sum;
}

/* One accepted step; returns the new cost, or the old one when none was better. */
static double improve(struct fit *fit, double cost, double *damping, double enough, struct step_room *room, struct arena *arena)
{
    static const double still = 1e-6; /* of sigma: a number that moves less stays, and its runs are not priced again */
    struct calibration *c = fit->calibration;
    size_t n = (size_t)c->n, rows = (size_t)c->validation->table.n;
    find_bounds(fit, room);
    for (int tries = 0; tries < 8; tries++, *damping *= 8) {
        if (!solve_bounded(room->matrix, room->gradient, room->low, room->high, c->n, *damping, room->step, arena))
            continue;
        if (promised(room, c->n) < enough)
            break;
        for (size_t p = 0; p < n; p++)
            room->x[p] = fit->x[p] + (fabs(room->step[p]) < still * c->parameter[p].sigma ? 0 : room->step[p]);
        memcpy(room->residual, fit->residual, rows * sizeof *room->residual);
        reprice(c, fit->x, room->x, room->residual);
        double now = cost_of(c, room->x, room->residual);
        if (now < cost) {
            memcpy(fit->x, room->x, n * sizeof *fit->x);
            memcpy(fit->residual, room->residual, rows * sizeof *fit->residual);
            *damping = fmax(*damping / 8, 1e-6);
            return now;
        }
    }
    return cost;
}

int fit_run(struct fit *fit, struct arena *arena, struct err *err)
{
    enum { ITERATIONS_MAX = 80 };
    static const double enough = 1e-5; /* of the cost, in one step */
    struct calibration *c = fit->calibration;
    size_t n = (size_t)c->n, rows = (size_t)c->validation->table.n;
    struct arena_mark mark = arena_mark(arena);
    struct step_room room = {.matrix = arena_array(arena, n * n, sizeof(double)), .gradient = arena_array(arena, n, sizeof(double)),
                             .low = arena_array(arena, n, sizeof(double)), .high = arena_array(arena, n, sizeof(double)),
                             .step = arena_array(arena, n, sizeof(double)), .x = arena_array(arena, n, sizeof(double)),
                             .residual = arena_array(arena, rows, sizeof(double))};
    double damping = 1e-3, before = (double)INFINITY;
    reprice(c, fit->x, fit->x, fit->residual); /* what was not yet */
    double cost = cost_of(c, fit->x, fit->residual);
    for (fit->iterations = 0; fit->iterations < ITERATIONS_MAX && cost < before * (1 - enough); fit->iterations++) {
        before = cost;
        fit_differentiate(fit);
        fill_normal(fit, room.matrix, room.gradient);
        cost = improve(fit, cost, &damping, enough * cost, &room, arena);
    }
    arena_rewind(arena, mark);
    return isfinite(cost) ? 0 : err_add(err, "the fit found no finite error: are the measured step times in seconds?");
}

int calibrate_fit(struct calibration *c, struct arena *arena, struct err *err)
{
    struct arena_mark mark = arena_mark(arena);
    struct fit fit;
    fit_init(&fit, c, arena);
    int result = fit_run(&fit, arena, err);
    c->iterations = fit.iterations;
    fit_publish(&fit);
    arena_rewind(arena, mark);
    calibrate_apply(c, false);
    return result;
}
