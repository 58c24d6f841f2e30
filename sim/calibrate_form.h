/* Measured kernels -> the numbers of a form: a robust fit of log t with priors.
 *
 * Minimises sum huber(log(t_form / t_measured) / 5 %) + sum ((x - prior) / sigma)^2 by damped Gauss-Newton steps;
 * derivatives by differences. Parameters are usually logs of positive numbers. */
#ifndef SIM_CALIBRATE_FORM_H
#define SIM_CALIBRATE_FORM_H

#include <stddef.h>

struct arena;
struct err;

enum { FORM_PARAMETERS_MAX = 8 };

struct form {
    int parameters;
    const double *prior, *sigma; /* [parameters] */
    double (*seconds)(const double *x, const void *point, const void *context);
    const void *context;
    const void *points; /* [n] of `stride` bytes, each with its measured seconds */
    size_t stride;
    const double *measured_s; /* [n] */
    int n;
};

/* x: [parameters], begins at the prior. */
void form_fit(const struct form *form, struct arena *arena, double *ret_x);
/* The middle one of n values, the upper of the two where n is even; 0 of none. Sorts them. */
double form_middle(double *values, int n);
/* share: [n] FLOP/s of each measurement over the peak, sorted here. -1 with a sentence when no such accelerator can have
 * reached them: times in another unit, or of another accelerator. */
int form_check_shares(const char *path, double *share, int n, struct err *err);
/* eff: share of the peak that the fitted form gives large kernels. -1 with a sentence when there is no such share: the
 * times do not grow with the work. */
int form_check_eff(const char *path, double eff, struct err *err);
/* Median and 90th percentile of |predicted / measured - 1|. */
void form_errors(const struct form *form, const double *x, struct arena *arena, double *ret_median, double *ret_p90);

#endif
