#include "cost/base/sample.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sample_sort(double *x, int n)
{
    if (n > 1)
        qsort(x, (size_t)n, sizeof *x, by_value);
}

double sample_at(const double *sorted, int n, double place)
{
    double at = fmin(fmax(place, 0), n - 1);
    int below = (int)at;
    return below + 1 < n ? sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]) : sorted[n - 1];
}

double sample_quantile(const double *sorted, int n, double q)
{
    return sample_at(sorted, n, q * (n - 1));
}

double sample_median(double *x, int n)
{
    sample_sort(x, n);
    return n > 0 ? sample_quantile(x, n, 0.5) : 0;
}
