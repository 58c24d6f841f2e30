/* Predictions against published runs: the table that README shows.
 *
 * tests/golden/published_runs.json holds, for each run, where it was published, the
 * model, cluster and plan in plansim's own formats, and what was measured. A row
 * passes when the step time lies within its own stated tolerance (0.20) and, where
 * memory was published for a counter, the bytes within 0.10. */
#include "tests/unit/test.h"

#include <math.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/plan.h"
#include "cost/profile.h"
#include "sim/inputs.h"
#include "sim/writers/table.h"

struct row {
    const char *id, *source, *counter;
    double step_time_s, memory_gib, time_tolerance, memory_tolerance;
    struct inputs *in;
    struct plan plan;
};

static int load_model(const struct json *row, struct inputs *in, struct err *err)
{
    const struct json *model = json_get(row, "model");
    if (json_type(model) == JSON_OBJECT)
        return model_parse(model, "published_runs.json", &in->model, &in->warnings, err);
    char path[TEST_PATH_MAX];
    return model_load(test_source_path(path, json_text(model)), &in->model, &in->warnings, err);
}

static int load_row(const struct json *json, struct profile *profile, struct row *row, struct err *err)
{
    struct inputs *in = row->in;
    struct json_at at = {"published_runs.json", "", json};
    memset(in, 0, sizeof *in);
    in->profile = profile;
    row->counter = "";
    row->time_tolerance = 0.20;
    row->memory_tolerance = 0.10;
    row->step_time_s = row->memory_gib = 0;
    json_read_string(at, "id", &row->id, err);
    json_read_string(at, "source", &row->source, err);
    json_read_string(at, "memory_counter", &row->counter, err);
    json_read_double(at, "step_time_s", 0, 1e9, &row->step_time_s, err);
    json_read_double(at, "memory_gib", 0, 1e6, &row->memory_gib, err);
    json_read_double(at, "time_tolerance", 0, 1, &row->time_tolerance, err);
    json_read_double(at, "memory_tolerance", 0, 1, &row->memory_tolerance, err);
    if (load_model(json, in, err) < 0 || cluster_parse(json_get(json, "cluster"), row->id, profile, &in->cluster, &in->warnings, err) < 0 ||
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

static void check_row(struct table *table, const struct row *row, const struct prediction *p)
{
    char plan[256];
    double time = p->step_time_s / row->step_time_s - 1, memory = row->memory_gib > 0 ? heaviest_gib(p, row->counter) / row->memory_gib - 1 : 0;
    table_cell(table, "%s", row->id);
    table_cell(table, "%s", plan_format(&row->plan, plan, sizeof plan));
    table_cell(table, row->step_time_s > 0 ? "%.3f" : "", row->step_time_s);
    table_cell(table, "%.3f", p->step_time_s);
    table_cell(table, row->step_time_s > 0 ? "%+.1f %%" : "", 100 * time);
    table_cell(table, row->memory_gib > 0 ? "%.1f" : "", row->memory_gib);
    table_cell(table, row->memory_gib > 0 ? "%+.1f %%" : "", 100 * memory);
    if (row->step_time_s > 0 && !CHECK(fabs(time) <= row->time_tolerance))
        printf("  %s: step time off by %+.1f %%\n", row->id, 100 * time);
    if (row->memory_gib > 0 && !CHECK(fabs(memory) <= row->memory_tolerance))
        printf("  %s: memory off by %+.1f %%\n", row->id, 100 * memory);
}

int main(void)
{
    static struct inputs in;
    static struct prediction prediction;
    static struct row row;
    struct err err = {0};
    struct profile *profile = NULL;
    struct json *root = NULL;
    char path[TEST_PATH_MAX];
    static const char *const titles[] = {"run", "plan", "measured s", "predicted s", "error", "GiB", "error"};
    if (profile_open(NULL, &profile, &err) < 0 || json_load(test_source_path(path, "tests/golden/published_runs.json"), &root, &err) < 0) {
        printf("%s\n", err.text);
        return 1;
    }
    struct table *table = table_new("  ");
    for (int i = 0; i < 7; i++)
        table_column(table, titles[i], i < 2 ? TABLE_LEFT : TABLE_RIGHT);
    for (const struct json *item = json_first(root); item; item = json_next(item)) {
        row.in = &in;
        if (!CHECK(load_row(item, profile, &row, &err) == 0 && predict_plan(&in.question, &row.plan, &prediction, &err) == 0)) {
            printf("  %s: %s\n", row.id, err.text);
            err_clear(&err);
            continue;
        }
        check_row(table, &row, &prediction);
    }
    table_print(table, stdout);
    table_free(table);
    json_free(root);
    profile_close(profile);
    return test_report();
}
