/* What a validation says: errors by kind of run, memory by counter, who fits,
 * how much a user loses by taking the plan that is predicted fastest. */
#ifndef SIM_VALIDATE_STATS_H
#define SIM_VALIDATE_STATS_H

#include "sim/validate.h"

enum validate_by { BY_GROUP, BY_ACCELERATOR, BY_MODEL, BY_STACK };
extern const char *const validate_by_names[]; /* "group", "accelerator", "model", "stack", NULL */

/* Of |error|, but signed: the median of error itself. NaN where n is 0. */
struct spread {
    int n;
    double signed_median, median, p90;
};

struct group_stats {
    const char *name;
    struct spread time, memory[RUN_COUNTERS];
    int within; /* rows whose measurement lies between low and high */
    int not_predicted, runs;
};

/* Rows where a sweep holds several plans of one model, cluster and batch. */
struct regret {
    int sweeps, plans;
    double mean, median, max; /* time of the plan we would take / best measured - 1 */
};

struct validate_stats {
    int n_groups;
    struct group_stats *group; /* sorted by name */
    struct group_stats all;
    int fits_fits, fits_oom, oom_fits, oom_oom; /* measured_predicted */
    struct regret regret;
    int n_reasons;
    struct { const char *text; int n; } reason[64]; /* most frequent first; the last holds all others together */
};

/* Memory from the arena. trust: "" = all rows, "A" = those rows only. */
void validate_stats(const struct validation *validation, enum validate_by by, const char *trust, struct arena *arena, struct validate_stats *ret);
double validate_balanced_accuracy(const struct validate_stats *stats);
/* Name under which a row counts. */
const char *validate_group_of(const struct outcome *outcome, enum validate_by by);

/* Fills ret from n errors (changes their order). */
void spread_of(double *errors, int n, struct spread *ret);

#endif
