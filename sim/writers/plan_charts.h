/* Pictures of predictions: where the time of a step goes, the memory of every pipeline stage, speed against memory.
 *
 * As chart_draw: PNG, SVG or PDF by the suffix, data and script left beside the picture; 0, or -1 with one sentence
 * that the caller prints as a warning. */
#ifndef SIM_WRITERS_PLAN_CHARTS_H
#define SIM_WRITERS_PLAN_CHARTS_H

struct err;
struct prediction;

enum { PLAN_CHART_ROWS_MAX = 20 };

/* One horizontal bar per plan, best first; at most PLAN_CHART_ROWS_MAX are drawn. title: "llama-3.1-70b on dgx-h100-x8". */
int plan_chart_breakdown(const char *path, const char *title, const struct prediction *predictions, int n,
                         struct err *err);
/* One bar per pipeline stage, its heaviest rank, against the limit. */
int plan_chart_memory(const char *path, const char *title, const struct prediction *prediction, struct err *err);
/* One point per plan, step time over peak memory; those that no other plan beats in both are joined and named. */
int plan_chart_pareto(const char *path, const char *title, const struct prediction *predictions, int n,
                      struct err *err);

#endif
