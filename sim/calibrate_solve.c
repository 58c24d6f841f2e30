#include "sim/calibrate_solve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/arena.h"

/* Cholesky in place: the lower triangle L of a = L L'. */
static bool factor(double *a, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k <= i; k++) {
            double sum = a[i * n + k];
            for (int j = 0; j < k; j++)
                sum -= a[i * n + j] * a[k * n + j];
            if (i == k && !(sum > 0))
                return false;
            a[i * n + k] = i == k ? sqrt(sum) : sum / a[k * n + k];
        }
    }
    return true;
}

bool solve_damped(const double *matrix, const double *gradient, int n, double damping, double *x, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double *a = arena_array(arena, (size_t)n * (size_t)n, sizeof *a);
    for (int i = 0; i < n * n; i++)
        a[i] = matrix[i];
    for (int i = 0; i < n; i++)
        a[i * n + i] *= 1 + damping;
    bool positive = factor(a, n);
    for (int i = 0; positive && i < n; i++) {
        x[i] = gradient[i];
        for (int k = 0; k < i; k++)
            x[i] -= a[i * n + k] * x[k];
        x[i] /= a[i * n + i];
    }
    for (int i = n - 1; positive && i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            x[i] -= a[k * n + i] * x[k];
        x[i] /= a[i * n + i];
    }
    arena_rewind(arena, mark);
    return positive;
}

double strtod_rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return strtod(text, NULL);
}
