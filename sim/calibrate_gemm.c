#include "sim/calibrate_gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/csv.h"
#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "sim/calibrate_solve.h"
#include "sim/validate_stats.h"

struct shape {
    double m, n, k, time_s;
    bool looped;
};

enum { PARAMETERS = 5 }; /* log of efficiency, t0, pad_m, pad_n, pad_k */
static const double prior[PARAMETERS] = {-0.357, -12.4, 4.159, 4.159, 4.605}; /* 0.7, 4 us, 64, 64, 100 */
static const double sigma[PARAMETERS] = {1, 1.5, 0.5, 0.5, 0.5};
static const double smallest_dimension = 256; /* below it other kernels run, which training does not use */
static const double noise = 0.05, shortest_looped_s = 3e-5;

/* ---- the table ---- */

struct columns {
    int m, n, k, time, median, dtype, gpu, mode;
};

static bool reads(const struct csv *csv, size_t row, int column, double *ret)
{
    return column >= 0 && unit_parse_double(csv_cell(csv, row, column), 1e-9, 1e15, ret, NULL) == 0;
}

static bool wanted(const char *cell, const char *choice)
{
    return !*choice || !*cell || strcmp(cell, choice) == 0;
}

/* 1 taken, 0 another kind, -1 no usable measurement. */
static int read_shape(const struct csv *csv, size_t row, const struct columns *at, const char *dtype, const char *gpu, struct shape *ret)
{
    const char *mode = csv_cell(csv, row, at->mode);
    double time_us;
    if (!wanted(csv_cell(csv, row, at->dtype), dtype) || !wanted(csv_cell(csv, row, at->gpu), gpu))
        return 0;
    ret->looped = strcmp(mode, "sustained") == 0;
    if (*mode && !ret->looped && strcmp(mode, "burst") != 0)
        return 0;
    if (!reads(csv, row, at->m, &ret->m) || !reads(csv, row, at->n, &ret->n) || !reads(csv, row, at->k, &ret->k) ||
        !(reads(csv, row, at->median, &time_us) || reads(csv, row, at->time, &time_us)))
        return -1;
    ret->time_s = time_us * 1e-6;
    return fmin(ret->m, fmin(ret->n, ret->k)) >= smallest_dimension ? 1 : -1;
}

static int read_shapes(const struct csv *csv, const char *path, const char *dtype, const char *gpu, struct shape *shapes, int *ret_n, int *ret_left_out,
                       struct err *err)
{
    struct columns at = {csv_column(csv, "m"), csv_column(csv, "n"), csv_column(csv, "k"), csv_column(csv, "time_us"), csv_column(csv, "time_med_us"),
                         csv_column(csv, "dtype"), csv_column(csv, "gpu"), csv_column(csv, "mode")};
    if (at.m < 0 || at.n < 0 || at.k < 0 || at.time < 0)
        return err_add(err, "table '%s': needs the columns m, n, k and time_us", path);
    for (size_t row = 0; row < csv->n_rows; row++) {
        int taken = read_shape(csv, row, &at, dtype, gpu, &shapes[*ret_n]);
        *ret_n += taken > 0;
        *ret_left_out += taken < 0;
    }
    return 0;
}

/* ---- the fit ---- */

static double predicted(const double *x, const struct shape *s, double peak)
{
    return exp(x[1]) + 2 * (s->m + exp(x[2])) * (s->n + exp(x[3])) * (s->k + exp(x[4])) / (peak * exp(x[0]));
}

static double residual(const double *x, const struct shape *s, double peak)
{
    return log(predicted(x, s, peak) / s->time_s) / noise;
}

static double cost_of(const double *x, const struct shape *shapes, int n, double peak)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double z = fabs(residual(x, &shapes[i], peak));
        sum += shapes[i].looped ? 0 : z <= 1 ? z * z : 2 * z - 1;
    }
    for (int p = 0; p < PARAMETERS; p++)
        sum += (x[p] - prior[p]) * (x[p] - prior[p]) / (sigma[p] * sigma[p]);
    return sum;
}

static void fill_normal(const double *x, const struct shape *shapes, int n, double peak, double *matrix, double *gradient)
{
    memset(matrix, 0, PARAMETERS * PARAMETERS * sizeof *matrix);
    for (int p = 0; p < PARAMETERS; p++) {
        matrix[p * PARAMETERS + p] = 1 / (sigma[p] * sigma[p]);
        gradient[p] = (x[p] - prior[p]) / (sigma[p] * sigma[p]);
    }
    for (int i = 0; i < n; i++) {
        double slope[PARAMETERS], at = residual(x, &shapes[i], peak), weight = 1 / fmax(1, fabs(at));
        if (shapes[i].looped)
            continue;
        for (int p = 0; p < PARAMETERS; p++) {
            double moved[PARAMETERS];
            memcpy(moved, x, sizeof moved);
            moved[p] += 1e-4;
            slope[p] = (residual(moved, &shapes[i], peak) - at) / 1e-4;
        }
        for (int p = 0; p < PARAMETERS; p++) {
            gradient[p] += weight * slope[p] * at;
            for (int q = 0; q < PARAMETERS; q++)
                matrix[p * PARAMETERS + q] += weight * slope[p] * slope[q];
        }
    }
}

static void fit(const struct shape *shapes, int n, double peak, struct arena *arena, double *x)
{
    double damping = 1e-2, matrix[PARAMETERS * PARAMETERS], gradient[PARAMETERS], step[PARAMETERS], cost = cost_of(x, shapes, n, peak);
    for (int iteration = 0; iteration < 60 && damping < 1e9; iteration++) {
        double next[PARAMETERS];
        fill_normal(x, shapes, n, peak, matrix, gradient);
        if (!solve_damped(matrix, gradient, PARAMETERS, damping, step, arena))
            return;
        for (int p = 0; p < PARAMETERS; p++)
            next[p] = x[p] - step[p];
        double now = cost_of(next, shapes, n, peak);
        bool better = now < cost;
        if (better && cost - now < 1e-6 * cost)
            return;
        damping = better ? fmax(damping / 8, 1e-9) : damping * 8;
        if (better) {
            memcpy(x, next, sizeof next);
            cost = now;
        }
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_errors(const double *x, const struct shape *shapes, int n, double peak, double *scratch, struct gemm_fit *ret)
{
    struct spread spread;
    int looped = 0;
    for (int i = 0; i < n; i++)
        if (!shapes[i].looped)
            scratch[ret->n++] = predicted(x, &shapes[i], peak) / shapes[i].time_s - 1;
    spread_of(scratch, ret->n, &spread);
    ret->median = spread.median;
    ret->p90 = spread.p90;
    for (int i = 0; i < n; i++)
        if (shapes[i].looped && predicted(x, &shapes[i], peak) > shortest_looped_s)
            scratch[looped++] = predicted(x, &shapes[i], peak) / shapes[i].time_s;
    qsort(scratch, (size_t)looped, sizeof *scratch, compare);
    ret->n_sustained = looped;
    ret->sustained = looped > 0 ? scratch[looped / 2] : 0;
}

int calibrate_gemm(const char *path, double peak, const char *dtype, const char *gpu, struct arena *arena, struct gemm_fit *ret, struct err *err)
{
    struct csv csv;
    int n = 0, bursts = 0;
    memset(ret, 0, sizeof *ret);
    int result = csv_load(path, &csv, err);
    struct shape *shapes = result == 0 ? arena_array(arena, csv.n_rows + 1, sizeof *shapes) : NULL;
    if (result == 0)
        result = read_shapes(&csv, path, dtype, gpu, shapes, &n, &ret->left_out, err);
    csv_release(&csv);
    for (int i = 0; i < n; i++)
        bursts += !shapes[i].looped;
    if (result == 0 && bursts < 3)
        result = err_add(err, "table '%s': %d GEMMs of this kind; at least 3 are needed, some 40 are good", path, bursts);
    if (result != 0)
        return result;
    double x[PARAMETERS];
    memcpy(x, prior, sizeof x);
    fit(shapes, n, peak, arena, x);
    measure_errors(x, shapes, n, peak, arena_array(arena, (size_t)n, sizeof(double)), ret);
    ret->form = (struct gemm_form){.eff = exp(x[0]), .t0_s = exp(x[1]), .pad_m = exp(x[2]), .pad_n = exp(x[3]), .pad_k = exp(x[4]),
                                   .provenance = PROVENANCE_MEASURED};
    return 0;
}
