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

/* x = (L L')^-1 x. */
static void substitute(const double *l, double *x, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            x[i] -= l[i * n + k] * x[k];
        x[i] /= l[i * n + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            x[i] -= l[k * n + i] * x[k];
        x[i] /= l[i * n + i];
    }
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
    for (int i = 0; i < n; i++)
        x[i] = gradient[i];
    if (positive)
        substitute(a, x, n);
    arena_rewind(arena, mark);
    return positive;
}

/* The free ones of a step whose others are fixed. scratch: room for a matrix and a vector. */
static bool solve_free(const double *matrix, const double *gradient, int n, double damping, const int *free_index, int n_free, const bool *fixed,
                       double *step, double *a, double *x)
{
    for (int i = 0; i < n_free; i++) {
        const double *row = matrix + free_index[i] * n;
        x[i] = -gradient[free_index[i]];
        for (int k = 0; k < n; k++)
            x[i] -= fixed[k] ? row[k] * step[k] : 0;
        for (int k = 0; k < n_free; k++)
            a[i * n_free + k] = row[free_index[k]];
        a[i * n_free + i] *= 1 + damping;
    }
    if (!factor(a, n_free))
        return false;
    substitute(a, x, n_free);
    for (int i = 0; i < n_free; i++)
        step[free_index[i]] = x[i];
    return true;
}

bool solve_bounded(const double *matrix, const double *gradient, const double *low, const double *high, int n, double damping, double *step,
                   struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    size_t size = (size_t)n;
    double *a = arena_array(arena, size * size, sizeof *a), *x = arena_array(arena, size, sizeof *x);
    int *free_index = arena_array(arena, size, sizeof *free_index);
    bool *fixed = arena_array(arena, size, sizeof *fixed), positive = true;
    for (int i = 0; i < n; i++) { /* at a bound already, and pressed against it */
        step[i] = 0;
        fixed[i] = (low[i] >= 0 && gradient[i] >= 0) || (high[i] <= 0 && gradient[i] <= 0);
    }
    for (bool again = true; again && positive;) {
        int n_free = 0;
        for (int i = 0; i < n; i++)
            if (!fixed[i])
                free_index[n_free++] = i;
        positive = solve_free(matrix, gradient, n, damping, free_index, n_free, fixed, step, a, x);
        again = false;
        for (int i = 0; i < n_free && positive; i++) {
            int p = free_index[i];
            fixed[p] = step[p] < low[p] || step[p] > high[p];
            step[p] = step[p] < low[p] ? low[p] : step[p] > high[p] ? high[p] : step[p];
            again = again || fixed[p];
        }
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
