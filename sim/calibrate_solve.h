/* Small dense algebra of the fits. */
#ifndef SIM_CALIBRATE_SOLVE_H
#define SIM_CALIBRATE_SOLVE_H

#include <stdbool.h>

struct arena;

/* (matrix + damping * diagonal) step = gradient for a symmetric positive matrix [n x n]; false when it is not. */
bool solve_damped(const double *matrix, const double *gradient, int n, double damping, double *ret_step, struct arena *arena);

/* The step that lowers gradient' step + step' (matrix + damping * diagonal) step / 2 with low <= step <= high (low <= 0 <= high):
 * what is at a bound and pressed against it stays, what a step would carry over a bound stops there, and the others are
 * solved for that. false as above. */
bool solve_bounded(const double *matrix, const double *gradient, const double *low, const double *high, int n, double damping, double *ret_step,
                   struct arena *arena);

/* To four significant digits, so that what is written is what was meant. */
double strtod_rounded(double value);

#endif
