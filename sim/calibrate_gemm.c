#include "sim/calibrate_gemm.h"

#include <math.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/csv.h"
#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "sim/calibrate_form.h"

struct shape {
    double m, n, k, time_s;
    bool looped;
};

enum { PARAMETERS = 5 }; /* log of efficiency, t0, pad_m, pad_n, pad_k */
static const double prior[PARAMETERS] = {-0.357, -12.4, 4.159, 4.159, 4.605}; /* 0.7, 4 us, 64, 64, 100 */
static const double sigma[PARAMETERS] = {1, 1.5, 0.5, 0.5, 0.5};
static const double smallest_dimension = 256; /* below it other kernels run, which training does not use */
static const double shortest_looped_s = 3e-5;

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

static double seconds(const double *x, const void *point, const void *context)
{
    return predicted(x, point, *(const double *)context);
}

/* Bursts come first. */
static int split(struct shape *shapes, int n)
{
    int bursts = 0;
    for (int i = 0; i < n; i++)
        if (!shapes[i].looped) {
            struct shape burst = shapes[i];
            shapes[i] = shapes[bursts];
            shapes[bursts++] = burst;
        }
    return bursts;
}

/* Burst over looped time of the long GEMMs. */
static void measure_derate(const double *x, const struct shape *looped, int n, double peak, double *scratch, struct gemm_fit *ret)
{
    for (int i = 0; i < n; i++)
        if (predicted(x, &looped[i], peak) > shortest_looped_s)
            scratch[ret->n_sustained++] = predicted(x, &looped[i], peak) / looped[i].time_s;
    ret->sustained = form_middle(scratch, ret->n_sustained);
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
    bursts = split(shapes, n);
    if (result == 0 && bursts < 3)
        result = err_add(err, "table '%s': %d GEMMs of this kind; at least 3 are needed, some 40 are good", path, bursts);
    if (result != 0)
        return result;
    double x[PARAMETERS], *measured_s = arena_array(arena, (size_t)n, sizeof *measured_s);
    for (int i = 0; i < bursts; i++)
        measured_s[i] = 2 * shapes[i].m * shapes[i].n * shapes[i].k / (shapes[i].time_s * peak);
    if (form_check_shares(path, measured_s, bursts, err) < 0)
        return -1;
    for (int i = 0; i < bursts; i++)
        measured_s[i] = shapes[i].time_s;
    struct form form = {PARAMETERS, prior, sigma, seconds, &peak, shapes, sizeof *shapes, measured_s, bursts};
    form_fit(&form, arena, x);
    form_errors(&form, x, arena, &ret->median, &ret->p90);
    if (form_check_eff(path, exp(x[0]), err) < 0)
        return -1;
    ret->n = bursts;
    measure_derate(x, shapes + bursts, n - bursts, peak, measured_s, ret);
    ret->form = (struct gemm_form){.eff = exp(x[0]), .t0_s = exp(x[1]), .pad_m = exp(x[2]), .pad_n = exp(x[3]), .pad_k = exp(x[4]),
                                   .provenance = PROVENANCE_MEASURED};
    return 0;
}
