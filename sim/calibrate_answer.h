/* What plansim calibrate gathers from measured points: rows of a profile, and how they are written down. */
#ifndef SIM_CALIBRATE_ANSWER_H
#define SIM_CALIBRATE_ANSWER_H

#include <stdbool.h>

#include "cost/profile_rows.h"
#include "sim/calibrate_points.h"

struct arena;
struct err;
struct json;
struct profile;

enum { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };

struct answer {
    const struct points_arguments *arguments;
    struct profile_rows rows;
    char date[16], source[200];
    struct gemm_form gemm; /* fitted by the same command; eff 0 = none */
    bool bad_option; /* what failed is the value of an option, not a file */
    struct err *err;
};

/* A measured number, SI, written in `unit`. */
int answer_add(struct answer *answer, enum profile_section section, const char *name, const char *key, const char *field, double value, const char *unit);

/* calibrate_log.c: --nccl-tests. Prints the table of series when that is the format; the curves go to the answer, the
 * series to root. -1 when there is nothing that can be fitted, or written where curves are asked for (an accelerator
 * is stated), with the reason.
 * Curves of series inside a node go to --link, or the accelerator's usual link; those of series over several nodes to
 * --link when that is a network, or to the network that clusters of the accelerator have when hw.json names none. A
 * link that is known to reach beyond a host (a rack of NVLink) takes series of several hosts in, unless --link says
 * that it was a network. Of series that differ in the reduction alone the first is taken. */
int calibrate_log(struct answer *answer, const struct profile *profile, struct arena *arena, struct json *root);

#endif
