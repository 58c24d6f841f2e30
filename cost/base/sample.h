/* Measured numbers in order: sorting, and what lies at a share of them. Values are finite. */
#ifndef COST_BASE_SAMPLE_H
#define COST_BASE_SAMPLE_H

void sample_sort(double *x, int n);
/* Of sorted values, n > 0: what lies at a place between neighbours; 0 is the first, n - 1 the last, beyond them too. */
double sample_at(const double *sorted, int n, double place);
/* q = 0 the least, 0.5 the median, 1 the largest. */
double sample_quantile(const double *sorted, int n, double q);
double sample_median(double *x, int n); /* sorts; 0 of none */

#endif
