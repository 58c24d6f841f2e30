#include "sim/calibrate_form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/sample.h"
#include "sim/calibrate_solve.h"
#include "sim/validate_stats.h"

static const double noise = 0.05;

static double seconds(const struct form *f, const double *x, int i)
{
    return f->seconds(x, (const char *)f->points + (size_t)i * f->stride, f->context);
}

static double residual(const struct form *f, const double *x, int i)
{
    return log(seconds(f, x, i) / f->measured_s[i]) / noise;
}

static double cost_of(const struct form *f, const double *x)
{
    double sum = 0;
    for (int i = 0; i < f->n; i++) {
        double z = fabs(residual(f, x, i));
        sum += z <= 1 ? z * z : 2 * z - 1;
    }
    for (int p = 0; p < f->parameters; p++)
        sum += (x[p] - f->prior[p]) * (x[p] - f->prior[p]) / (f->sigma[p] * f->sigma[p]);
    return sum;
}

static void fill_normal(const struct form *f, const double *x, double *matrix, double *gradient)
{
    int n = f->parameters;
    memset(matrix, 0, (size_t)(n * n) * sizeof *matrix);
    for (int p = 0; p < n; p++) {
        matrix[p * n + p] = 1 / (f->sigma[p] * f->sigma[p]);
        gradient[p] = (x[p] - f->prior[p]) / (f->sigma[p] * f->sigma[p]);
    }
    for (int i = 0; i < f->n; i++) {
        double slope[FORM_PARAMETERS_MAX], at = residual(f, x, i), weight = 1 / fmax(1, fabs(at));
        for (int p = 0; p < n; p++) {
            double moved[FORM_PARAMETERS_MAX];
            memcpy(moved, x, (size_t)n * sizeof *moved);
            moved[p] += 1e-4;
            slope[p] = (residual(f, moved, i) - at) / 1e-4;
        }
        for (int p = 0; p < n; p++) {
            gradient[p] += weight * slope[p] * at;
            for (int q = 0; q < n; q++)
                matrix[p * n + q] += weight * slope[p] * slope[q];
        }
    }
}

void form_fit(const struct form *f, struct arena *arena, double *x)
{
    double damping = 1e-2, matrix[FORM_PARAMETERS_MAX * FORM_PARAMETERS_MAX], gradient[FORM_PARAMETERS_MAX], step[FORM_PARAMETERS_MAX];
    size_t bytes = (size_t)f->parameters * sizeof *x;
    memcpy(x, f->prior, bytes);
    double cost = cost_of(f, x);
    for (int iteration = 0; iteration < 60 && damping < 1e9; iteration++) {
        double next[FORM_PARAMETERS_MAX];
        fill_normal(f, x, matrix, gradient);
        if (!solve_damped(matrix, gradient, f->parameters, damping, step, arena))
            return;
        for (int p = 0; p < f->parameters; p++)
            next[p] = x[p] - step[p];
        double now = cost_of(f, next);
        bool better = now < cost;
        if (better && cost - now < 1e-6 * cost)
            return;
        damping = better ? fmax(damping / 8, 1e-9) : damping * 8;
        if (better) {
            memcpy(x, next, bytes);
            cost = now;
        }
    }
}

double form_middle(double *values, int n)
{
    sample_sort(values, n);
    return n > 0 ? values[n / 2] : 0;
}

/* Single rows may be wrong, and 8-bit attention is measured against 16 bit. */
static const double share_max = 1.5;

int form_check_eff(const char *path, double eff, struct err *err)
{
    if (eff <= share_max)
        return 0;
    return err_add(err, "table '%s': the times do not grow with the work: large kernels would reach %.3g times the accelerator's peak", path, eff);
}

int form_check_shares(const char *path, double *share, int n, struct err *err)
{
    static const double share_min = 1e-3; /* the fastest kernel of a table is no crawl */
    if (n == 0)
        return 0;
    double median = form_middle(share, n);
    if (median > share_max)
        return err_add(err, "table '%s': half of the %d kernels reach more than %.3g times the accelerator's peak; is time_us in microseconds, and --accelerator theirs?",
                       path, n, median);
    if (share[n - 1] < share_min)
        return err_add(err, "table '%s': the fastest of %d kernels reaches %.2g %% of the accelerator's peak; is time_us in microseconds, and --accelerator theirs?",
                       path, n, 100 * share[n - 1]);
    return 0;
}

void form_errors(const struct form *f, const double *x, struct arena *arena, double *ret_median, double *ret_p90)
{
    struct spread spread;
    double *errors = arena_array(arena, (size_t)f->n + 1, sizeof *errors);
    for (int i = 0; i < f->n; i++)
        errors[i] = seconds(f, x, i) / f->measured_s[i] - 1;
    spread_of(errors, f->n, &spread);
    *ret_median = spread.median;
    *ret_p90 = spread.p90;
}
