/* Measured kernels -> the numbers of a form: a robust fit of log t with priors.
 *
 * Minimises sum huber(log(t_form / t_measured) / 5 %) + sum ((x - prior) / sigma)^2 by damped Gauss-Newton steps;
 * derivatives by differences. Parameters are usually logs of positive numbers. */
#ifndef SIM_CALIBRATE_FORM_H
#define SIM_CALIBRATE_FORM_H

#include <stddef.h>

struct arena;

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
/* Median and 90th percentile of |predicted / measured - 1|. */
void form_errors(const struct form *form, const double *x, struct arena *arena, double *ret_median, double *ret_p90);

#endif
