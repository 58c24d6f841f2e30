/* The fit itself: a point in x, the residuals of the runs there, and their derivatives.
 *
 * What does not change is not priced again: a run is priced when one of its numbers has another value than when it was
 * priced last, differentiated when one of them has moved by more than a hair since, on as many threads as the validation
 * has (the sums are made in the order of the rows: the answer is the same for any number). A step solves the normal
 * equations within the bounds (calibrate_solve.h); it is taken when the cost falls. */
#ifndef SIM_CALIBRATE_FIT_H
#define SIM_CALIBRATE_FIT_H

#include "sim/calibrate.h"

struct fit {
    struct calibration *calibration; /* its weights say which runs count */
    double *x;                       /* [n] of the point */
    double *residual;                /* [rows] log(predicted / measured) / noise at x; NaN = not priced yet */
    double *slope;                   /* by x, beside calibration->user */
    double *slope_x;                 /* likewise: x of that number when the slope was taken; NaN = never */
    int iterations;
};

/* At the parameters' values, nothing priced yet. In the arena. */
void fit_init(struct fit *ret, struct calibration *calibration, struct arena *arena);
/* A copy that moves on its own. */
void fit_copy(struct fit *ret, const struct fit *fit, struct arena *arena);
/* From x to the best x. */
int fit_run(struct fit *fit, struct arena *arena, struct err *err);
/* Residuals at x of the rows whose weight is not 0. */
void fit_price(struct fit *fit, const double *weight);
/* Residuals and slopes at x of the rows that count. */
void fit_differentiate(struct fit *fit);
/* x into the parameters' values. */
void fit_publish(const struct fit *fit);

#endif
