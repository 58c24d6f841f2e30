/* Pictures of one timeline: the Gantt chart (ranks down, time across) and the
 * activation memory of every rank over time.
 *
 * As chart_draw: PNG, SVG or PDF by the suffix, data and script left beside the
 * picture; 0, or -1 with one sentence that the caller prints as a warning. The
 * timeline must be recorded. */
#ifndef SIM_WRITERS_GANTT_CHART_H
#define SIM_WRITERS_GANTT_CHART_H

struct engine_costs;
struct err;
struct program;
struct timeline;

struct gantt_chart {
    const char *title;       /* "ZB-H1, pp 4, 8 micro-batches"; makespan and bubble are added */
    const char *unit;        /* of time, for the axis: "units of cost", "ms" */
    double per_tick;         /* of that unit, one tick of the timeline */
    double stages_per_chunk; /* memory without bytes: activations of one (micro-batch, chunk) in whole stages */
    const struct engine_costs *costs; /* message times are drawn when given; bytes by act_bytes; may be NULL */
};

int gantt_chart_draw(const char *path, const struct program *program, const struct timeline *timeline,
                     const struct gantt_chart *options, struct err *err);
int gantt_chart_memory(const char *path, const struct program *program, const struct timeline *timeline,
                       const struct gantt_chart *options, struct err *err);

#endif
