/* Timelines as Chrome traces (JSON; chrome://tracing, ui.perfetto.dev), simulated and measured alike.
 *
 * One process per rank with the threads "compute", "send forward" and "send
 * backward"; a flow arrow per message, from the op that made it to the op that
 * waited for it; a counter track of the activations held. */
#ifndef SIM_WRITERS_TRACE_H
#define SIM_WRITERS_TRACE_H

struct engine_costs;
struct err;
struct program;
struct timeline;

struct trace_options {
    const char *title;       /* in the file's metadata; NULL = none */
    double us_per_tick;      /* microseconds shown per unit of the timeline: 1e-6 for picoseconds */
    double stages_per_chunk; /* activations of one (micro-batch, chunk) in whole stages, for the counter */
    const char *rank_name;   /* "rank", "stage", ...; NULL = "rank" */
};

/* The timeline must be recorded. costs: for the length of messages and the bytes held; NULL = arrows only.
 * path "-" = standard output. */
int trace_write(const char *path, const struct program *program, const struct timeline *timeline,
                const struct engine_costs *costs, const struct trace_options *options, struct err *err);

#endif
