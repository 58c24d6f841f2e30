/* Predictions against published runs: the accuracy that README states.
 *
 * tests/golden/published_runs.json holds at most 200 runs of every group of the public table: where each was published,
 * cluster and plan in plansim's own formats, what was measured; models once by name; and for every group how large the
 * median and the worst error of its rows may be. A row must also be priced at all. */
#include "tests/unit/test.h"

#include <math.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/plan.h"
#include "cost/profile.h"
#include "sim/inputs.h"
#include "sim/validate_stats.h"
#include "sim/writers/table.h"

enum { RUNS_MAX = 200 };
static const char file[] = "published_runs.json";

struct row {
    const char *id, *group, *source, *counter, *model;
    double step_time_s, memory_gib;
    struct inputs *in;
    struct plan plan;
};

static int load_row(const struct json *json, const struct json *models, struct profile *profile, struct row *row, struct err *err)
{
    struct inputs *in = row->in;
    struct json_at at = {file, "", json};
    memset(in, 0, sizeof *in);
    in->profile = profile;
    row->counter = "";
    row->step_time_s = row->memory_gib = 0;
    json_read_string(at, "id", &row->id, err);
    json_read_string(at, "group", &row->group, err);
    json_read_string(at, "source", &row->source, err);
    json_read_string(at, "model", &row->model, err);
    json_read_string(at, "memory_counter", &row->counter, err);
    json_read_double(at, "step_time_s", 0, 1e9, &row->step_time_s, err);
    json_read_double(at, "memory_gib", 0, 1e6, &row->memory_gib, err);
    const struct json *model = json_get(models, row->model);
    if (!model || model_parse(model, row->model, &in->model, &in->warnings, err) < 0 ||
        cluster_parse(json_get(json, "cluster"), row->id, profile, &in->cluster, &in->warnings, err) < 0 ||
        plan_parse(json_get(json, "plan"), row->id, &row->plan, &in->warnings, err) < 0)
        return -1;
    in->question = (struct question){.model = &in->model, .cluster = &in->cluster, .profile = profile, .stacks = in->stacks,
                                     .memory_limit_bytes = in->cluster.accelerator.memory_bytes};
    return inputs_add_stack(in, row->plan.stack, err);
}

static double heaviest_gib(const struct prediction *p, const char *counter)
{
    double most = 0;
    for (int i = 0; i < p->n_stages; i++) {
        const double *bytes = p->stage[i].bytes;
        double here = strcmp(counter, "allocated") == 0 ? memory_allocated(bytes) : strcmp(counter, "reserved") == 0 ? memory_reserved(bytes) : p->stage[i].total;
        most = fmax(most, here);
    }
    return most / (1024.0 * 1024 * 1024);
}

struct errors {
    int n, n_memory;
    double time[RUNS_MAX], memory[RUNS_MAX];
};

static void add_row(struct table *table, const struct row *row, const struct prediction *p, struct errors *errors)
{
    char plan[256];
    double time = p->step_time_s / row->step_time_s - 1, memory = row->memory_gib > 0 ? heaviest_gib(p, row->counter) / row->memory_gib - 1 : 0;
    errors->time[errors->n++] = time;
    if (row->memory_gib > 0)
        errors->memory[errors->n_memory++] = memory;
    table_cell(table, "%s", row->id);
    table_cell(table, "%s", plan_format(&row->plan, plan, sizeof plan));
    table_cell(table, "%.3f", row->step_time_s);
    table_cell(table, "%.3f", p->step_time_s);
    table_cell(table, "%+.1f %%", 100 * time);
    for (int i = 0; i < 2; i++)
        if (row->memory_gib > 0)
            table_cell(table, i == 0 ? "%.1f" : "%+.1f %%", i == 0 ? row->memory_gib : 100 * memory);
        else
            table_cell(table, "%s", "");
}

static void check_group(const struct json *limits, struct errors *errors)
{
    const char *name = json_key(limits);
    struct json_at at = {file, name, limits};
    struct err err = {0};
    double median = 0, worst = 0, memory_median = 0, most = 0;
    json_read_double(at, "median", 0, 10, &median, &err);
    json_read_double(at, "worst", 0, 10, &worst, &err);
    json_read_double(at, "memory_median", 0, 10, &memory_median, &err);
    struct spread time, memory;
    for (int i = 0; i < errors->n; i++)
        most = fmax(most, fabs(errors->time[i]));
    spread_of(errors->time, errors->n, &time);
    spread_of(errors->memory, errors->n_memory, &memory);
    if (!CHECK(time.n > 0 && time.median <= median && most <= worst))
        printf("  %s: median %.1f %% (allowed %.1f %%), worst %.1f %% (%.1f %%)\n", name, 100 * time.median, 100 * median, 100 * most, 100 * worst);
    if (memory.n > 0 && !CHECK(memory.median <= memory_median))
        printf("  %s: memory, median %.1f %% (allowed %.1f %%)\n", name, 100 * memory.median, 100 * memory_median);
}

/* All rows of one group. */
static void price_group(const char *group, const struct json *root, struct profile *profile, struct table *table, struct errors *errors)
{
    static struct inputs in;
    static struct prediction prediction;
    struct row row = {.in = &in};
    memset(errors, 0, sizeof *errors);
    for (const struct json *item = json_first(json_get(root, "runs")); item; item = json_next(item)) {
        struct err err = {0};
        if (strcmp(json_text(json_get(item, "group")), group) != 0)
            continue;
        if (CHECK(load_row(item, json_get(root, "models"), profile, &row, &err) == 0 && predict_plan(&in.question, &row.plan, &prediction, &err) == 0))
            add_row(table, &row, &prediction, errors);
        else
            printf("  %s: %s\n", json_text(json_get(item, "id")), err.text);
    }
}

int main(void)
{
    static struct errors errors;
    struct err err = {0};
    struct profile *profile = NULL;
    struct json *root = NULL;
    char path[TEST_PATH_MAX];
    static const char *const titles[] = {"run", "plan", "measured s", "predicted s", "error", "GiB", "error"};
    if (profile_open(NULL, &profile, &err) < 0 || json_load(test_source_path(path, "tests/golden/published_runs.json"), &root, &err) < 0) {
        printf("%s\n", err.text);
        return 1;
    }
    CHECK(json_length(json_get(root, "runs")) <= RUNS_MAX);
    struct table *table = table_new("  ");
    for (int i = 0; i < 7; i++)
        table_column(table, titles[i], i < 2 ? TABLE_LEFT : TABLE_RIGHT);
    for (const struct json *limits = json_first(json_get(root, "groups")); limits; limits = json_next(limits)) {
        price_group(json_key(limits), root, profile, table, &errors);
        check_group(limits, &errors);
    }
    table_print(table, stdout);
    table_free(table);
    json_free(root);
    profile_close(profile);
    return test_report();
}
