/* Small dense algebra of the fits. */
#ifndef SIM_CALIBRATE_SOLVE_H
#define SIM_CALIBRATE_SOLVE_H

#include <stdbool.h>

struct arena;

/* (matrix + damping * diagonal) step = gradient for a symmetric positive matrix [n x n]; false when it is not. */
bool solve_damped(const double *matrix, const double *gradient, int n, double damping, double *ret_step, struct arena *arena);

/* To four significant digits, so that what is written is what was meant. */
double strtod_rounded(double value);

#endif
