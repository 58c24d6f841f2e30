#include "sim/calibrate_gemm.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/csv.h"
#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "cost/kernel.h"
#include "sim/calibrate_form.h"

struct shape {
    double m, n, k, time_s;
    bool looped;
};

/* Logs of efficiency, t0, pad_m, pad_n, pad_k; of round_m / (1 - round_m) and tail / (1 - tail). */
enum { PLAIN = 5, TILED = 7 };
static const double plain_prior[PLAIN] = {-0.357, -12.4, 4.159, 4.159, 4.605}; /* 0.7, 4 us, 64, 64, 100 */
static const double plain_sigma[PLAIN] = {1, 1.5, 0.5, 0.5, 0.5};
static const double tiled_prior[TILED] = {-0.357, -12.4, 3.4, 3.4, 4.605, 0, -1.9}; /* 30, 30; a half, 0.13 (fits.md, RT9 of nine GPUs) */
static const double tiled_sigma[TILED] = {1, 1.5, 1, 1, 0.5, 2, 0.7};
static const int many_shapes = 200;
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

static bool whole(double x)
{
    return !(floor(x) < x);
}

enum { TAKEN = GEMM_FAULTS, OTHER_KIND };

/* TAKEN, OTHER_KIND, or what is wrong with the row. */
static int read_shape(const struct csv *csv, size_t row, const struct columns *at, const char *dtype, const char *gpu, struct shape *ret)
{
    const char *mode = csv_cell(csv, row, at->mode);
    double time_us;
    if (!wanted(csv_cell(csv, row, at->dtype), dtype) || !wanted(csv_cell(csv, row, at->gpu), gpu))
        return OTHER_KIND;
    ret->looped = strcmp(mode, "sustained") == 0;
    if (*mode && !ret->looped && strcmp(mode, "burst") != 0)
        return OTHER_KIND;
    if (!reads(csv, row, at->m, &ret->m) || !reads(csv, row, at->n, &ret->n) || !reads(csv, row, at->k, &ret->k))
        return GEMM_NO_SIZE;
    if (!reads(csv, row, at->median, &time_us) && !reads(csv, row, at->time, &time_us))
        return GEMM_NO_TIME;
    ret->time_s = time_us * 1e-6;
    if (!whole(ret->m) || !whole(ret->n) || !whole(ret->k))
        return GEMM_FRACTION;
    return fmin(ret->m, fmin(ret->n, ret->k)) >= smallest_dimension ? TAKEN : GEMM_SMALL;
}

const char *gemm_faults(const struct gemm_fit *fit, char *ret, size_t size)
{
    static const char *const whys[GEMM_FAULTS] = {"with a dimension under 256", "whose m, n or k is no whole number", "whose m, n or k is no positive number",
                                                  "whose time_us is no positive number"};
    size_t used = 0;
    *ret = '\0';
    for (int i = 0; i < GEMM_FAULTS && used < size; i++)
        if (fit->fault[i] > 0)
            used += (size_t)snprintf(ret + used, size - used, "%s%d %s", used > 0 ? ", " : "", fit->fault[i], whys[i]);
    return ret;
}

static int read_shapes(const struct csv *csv, const char *path, const char *dtype, const char *gpu, struct shape *shapes, int *ret_n, struct gemm_fit *ret,
                       struct err *err)
{
    struct columns at = {csv_column(csv, "m"), csv_column(csv, "n"), csv_column(csv, "k"), csv_column(csv, "time_us"), csv_column(csv, "time_med_us"),
                         csv_column(csv, "dtype"), csv_column(csv, "gpu"), csv_column(csv, "mode")};
    if (at.m < 0 || at.n < 0 || at.k < 0 || at.time < 0)
        return err_add(err, "table '%s': needs the columns m, n, k and time_us", path);
    for (size_t row = 0; row < csv->n_rows; row++) {
        int taken = read_shape(csv, row, &at, dtype, gpu, &shapes[*ret_n]);
        *ret_n += taken == TAKEN;
        if (taken < GEMM_FAULTS) {
            ret->fault[taken]++;
            ret->left_out++;
        }
    }
    return 0;
}

/* ---- the fit ---- */

struct machine {
    double peak, multiprocessors;
    int parameters;
};

static double share_of(double x)
{
    return 1 / (1 + exp(-x));
}

static struct gemm_form form_at(const double *x, const struct machine *machine)
{
    struct gemm_form form = {.eff = exp(x[0]), .t0_s = exp(x[1]), .pad_m = exp(x[2]), .pad_n = exp(x[3]), .pad_k = exp(x[4]), .provenance = PROVENANCE_MEASURED};
    if (machine->parameters == TILED) {
        form.round_m = share_of(x[5]);
        form.tail = share_of(x[6]);
    }
    return form;
}

static double seconds(const double *x, const void *point, const void *context)
{
    const struct shape *s = point;
    const struct machine *machine = context;
    struct gemm_form form = form_at(x, machine);
    return kernel_form_s(&form, machine->peak, machine->multiprocessors, s->m, s->n, s->k);
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
static void measure_derate(const struct machine *machine, const struct shape *looped, int n, double *scratch, struct gemm_fit *ret)
{
    for (int i = 0; i < n; i++) {
        double burst_s = kernel_form_s(&ret->form, machine->peak, machine->multiprocessors, looped[i].m, looped[i].n, looped[i].k);
        if (burst_s > shortest_looped_s)
            scratch[ret->n_sustained++] = burst_s / looped[i].time_s;
    }
    ret->sustained = form_middle(scratch, ret->n_sustained);
}

static int check_shares(const char *path, const struct shape *shapes, int n, double peak, double *scratch, struct err *err)
{
    for (int i = 0; i < n; i++)
        scratch[i] = 2 * shapes[i].m * shapes[i].n * shapes[i].k / (shapes[i].time_s * peak);
    return form_check_shares(path, scratch, n, err);
}

static void fit(const struct shape *shapes, int n, const struct machine *machine, const double *measured_s, struct arena *arena, struct gemm_fit *ret)
{
    double x[TILED];
    bool tiled = machine->parameters == TILED;
    struct form form = {machine->parameters, tiled ? tiled_prior : plain_prior, tiled ? tiled_sigma : plain_sigma, seconds, machine, shapes, sizeof *shapes,
                        measured_s, n};
    form_fit(&form, arena, x);
    form_errors(&form, x, arena, &ret->median, &ret->p90);
    ret->form = form_at(x, machine);
    ret->n = n;
}

static int by_size(const void *a, const void *b)
{
    return memcmp(a, b, offsetof(struct shape, time_s));
}

/* A shape that was timed again and again tells of tiles no more than once. */
static int count_different(const struct shape *shapes, int n, struct arena *arena)
{
    int different = n > 0;
    struct shape *sorted = arena_array(arena, (size_t)n + 1, sizeof *sorted);
    memcpy(sorted, shapes, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 1; i < n; i++)
        different += by_size(&sorted[i - 1], &sorted[i]) != 0;
    return different;
}

/* The plain form, or the one with tiles where it pays. */
static void fit_best(const struct shape *shapes, int n, struct machine *machine, const double *measured_s, struct arena *arena, struct gemm_fit *ret)
{
    struct gemm_fit tiled = *ret;
    machine->parameters = PLAIN;
    fit(shapes, n, machine, measured_s, arena, ret);
    if (count_different(shapes, n, arena) < many_shapes)
        return;
    machine->parameters = TILED;
    fit(shapes, n, machine, measured_s, arena, &tiled);
    if (tiled.median < 0.9 * ret->median)
        *ret = tiled;
}

static int too_few(const char *path, const struct kernel_choice *choice, int n, const struct gemm_fit *fit, struct err *err)
{
    char left[240];
    gemm_faults(fit, left, sizeof left);
    return err_add(err, "table '%s': %d burst GEMMs of dtype %s%s%s%s%s%s; at least 3 are needed, some 40 are good", path, n, choice->dtype,
                   *choice->gpu ? " and gpu " : "", choice->gpu, *left ? " (left out: " : "", left, *left ? ")" : "");
}

int calibrate_gemm(const char *path, const struct accelerator *accelerator, enum rate rate, const struct kernel_choice *choice, struct arena *arena,
                   struct gemm_fit *ret, struct err *err)
{
    struct csv csv;
    struct machine machine = {accelerator->peak_flop_per_s[rate], accelerator->sm_count, PLAIN};
    int n = 0, bursts = 0;
    memset(ret, 0, sizeof *ret);
    int result = csv_load(path, &csv, err);
    if (result == 0)
        result = kernel_choice_check(&csv, path, choice, err);
    struct shape *shapes = result == 0 ? arena_array(arena, csv.n_rows + 1, sizeof *shapes) : NULL;
    if (result == 0)
        result = read_shapes(&csv, path, choice->dtype, choice->gpu, shapes, &n, ret, err);
    csv_release(&csv);
    bursts = split(shapes, n);
    if (result == 0 && bursts < 3)
        result = too_few(path, choice, bursts, ret, err);
    if (result != 0)
        return result;
    double *measured_s = arena_array(arena, (size_t)n, sizeof *measured_s);
    if (check_shares(path, shapes, bursts, machine.peak, measured_s, err) < 0)
        return -1;
    for (int i = 0; i < bursts; i++)
        measured_s[i] = shapes[i].time_s;
    fit_best(shapes, bursts, &machine, measured_s, arena, ret);
    if (form_check_eff(path, ret->form.eff, err) < 0)
        return -1;
    measure_derate(&machine, shapes + bursts, n - bursts, measured_s, ret);
    return 0;
}
