/* Predicted against measured: every run of a table through the model.
 *
 * validation_load maps each run to a plan and loads its model and cluster once;
 * validation_price predicts one run with the accelerators and stacks as they now
 * stand in the struct (calibrate changes them between calls). Not thread-safe;
 * validation_price_all itself uses several threads, with the same answer for any
 * number of them. */
#ifndef SIM_VALIDATE_H
#define SIM_VALIDATE_H

#include "cost/cluster.h"
#include "cost/model.h"
#include "sim/predict.h"
#include "sim/validate_plan.h"
#include "sim/validate_table.h"

struct err;
struct json;
struct profile;

enum { VALIDATE_STACKS_MAX = 64 };

enum run_counter { COUNTER_ALLOCATED, COUNTER_RESERVED, COUNTER_DEVICE, RUN_COUNTERS };
extern const char *const run_counter_names[]; /* "allocated", "reserved", "device", NULL */

/* What a run was predicted to take. */
struct outcome {
    const struct run *run;
    struct run_plan mapped;
    int model, cluster; /* index, -1 = none */
    bool predicted;
    double measured_s; /* NaN = not stated */
    double step_time_s, low_s, high_s;
    double error;      /* predicted / measured - 1; NaN without a measurement */
    double time_s[TIME_PARTS];
    enum run_counter counter;
    double memory_gib, memory_error; /* heaviest stage under the row's counter; NaN without a measurement */
    double device_gib;
    bool fits;
};

struct validation {
    struct run_table table;
    const struct profile *profile;
    int n_models, n_clusters, n_stacks;
    struct model_of_run *models;
    struct cluster_of_run *clusters;
    struct stack stacks[VALIDATE_STACKS_MAX];
    struct outcome *outcome; /* [table.n] */
    struct prediction *scratch;
    int threads; /* 0 = one for each core */
};
struct model_of_run {
    const char *name;
    struct model model;
    char reason[RUN_TEXT_MAX]; /* "" = it was understood */
};
struct cluster_of_run {
    char key[200];
    struct cluster cluster;
    char reason[RUN_TEXT_MAX];
};

/* models: JSON object of config.json objects by the table's `model` column. Release in both cases. */
int validation_load(struct validation *ret, const char *table, const char *models, const struct profile *profile, struct err *warn, struct err *err);
void validation_release(struct validation *validation);

/* Fills the outcome's numbers or mapped.reason. */
void validation_price(struct validation *validation, int row);
void validation_price_all(struct validation *validation);

#endif
