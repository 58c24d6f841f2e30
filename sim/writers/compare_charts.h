/* Pictures that set schedules side by side.
 *
 * As chart_draw: PNG, SVG or PDF by the suffix, data and script left beside the
 * picture; 0, or -1 with one sentence that the caller prints as a warning. */
#ifndef SIM_WRITERS_COMPARE_CHARTS_H
#define SIM_WRITERS_COMPARE_CHARTS_H

#include <stdbool.h>

#include "cost/plan.h"

struct err;
struct pricing;

struct compare_point {
    enum plan_schedule schedule;
    double makespan, peak_activations; /* units of cost; whole stages */
    bool pareto;                       /* no other beats it in both */
};

/* Makespan against peak activations; the schedules on the front are joined. title: "pp 8, 32 micro-batches". */
int compare_chart_scatter(const char *path, const char *title, const struct compare_point *points, int n,
                          struct err *err);

/* Bubble fraction against the number of micro-batches, up to most_micro_batches, of the given schedules; where a
 * schedule does not allow a number its line has a gap. */
int compare_chart_bubbles(const char *path, const struct pricing *pricing, int pp, int vp, int most_micro_batches,
                          const enum plan_schedule *which, int n, struct err *err);

#endif
