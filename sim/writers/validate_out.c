#include "sim/writers/validate_out.h"

#include <math.h>
#include <string.h>

#include "cost/base/csv.h"
#include "cost/base/json.h"
#include "cost/plan.h"
#include "cost/profile.h"
#include "sim/writers/table.h"

/* ---- table ---- */

static void percent_cell(struct table *table, int n, double value, bool sign)
{
    if (n == 0)
        table_cell(table, "%s", "");
    else if (sign)
        table_cell(table, "%+.1f %%", 100 * value);
    else
        table_cell(table, "%.1f %%", 100 * value);
}

static void group_row(struct table *table, const struct group_stats *g)
{
    table_cell(table, "%s", g->name);
    table_cell(table, "%d", g->time.n);
    percent_cell(table, g->time.n, g->time.signed_median, true);
    percent_cell(table, g->time.n, g->time.median, false);
    percent_cell(table, g->time.n, g->time.p90, false);
    if (g->time.n > 0)
        table_cell(table, "%.0f %%", 100.0 * g->within / g->time.n);
    else
        table_cell(table, "%s", "");
    for (int i = 0; i < RUN_COUNTERS; i++)
        if (g->memory[i].n > 0)
            table_cell(table, "%.1f %% of %d", 100 * g->memory[i].median, g->memory[i].n);
        else
            table_cell(table, "%s", "");
    if (g->not_predicted > 0)
        table_cell(table, "%d", g->not_predicted);
    else
        table_cell(table, "%s", "");
}

static void print_groups(FILE *out, const struct validate_stats *stats, enum validate_by by)
{
    static const char *const titles[] = {"runs", "signed", "median", "p90", "in 80 %", "allocated", "reserved", "device", "left out"};
    struct table *table = table_new("  ");
    table_column(table, validate_by_names[by], TABLE_LEFT);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        table_column(table, titles[i], TABLE_RIGHT);
    for (int i = 0; i < stats->n_groups; i++)
        group_row(table, &stats->group[i]);
    table_rule(table);
    group_row(table, &stats->all);
    table_print(table, out);
    table_free(table);
}

static void print_verdicts(FILE *out, const struct validate_stats *s)
{
    double accuracy = validate_balanced_accuracy(s);
    fprintf(out, "\nFits: of %d runs that fitted %d were predicted to, of %d that ran out of memory %d were predicted to", s->fits_fits + s->fits_oom,
            s->fits_fits, s->oom_fits + s->oom_oom, s->oom_oom);
    if (isfinite(accuracy))
        fprintf(out, "; balanced accuracy %.1f %%", 100 * accuracy);
    fprintf(out, ".\n");
    if (s->regret.sweeps > 0)
        fprintf(out, "Ranking: %d sweeps of %d plans; the plan predicted fastest is slower than the best measured one by %.1f %% on average, %.1f %% at most.\n",
                s->regret.sweeps, s->regret.plans, 100 * s->regret.mean, 100 * s->regret.max);
    if (s->n_reasons > 0)
        fprintf(out, "\nNot predicted:\n");
    for (int i = 0; i < s->n_reasons; i++)
        fprintf(out, "  %5d  %s\n", s->reason[i].n, s->reason[i].text);
}

void validate_print(FILE *out, const struct validation *v, const struct validate_stats *stats, enum validate_by by)
{
    fprintf(out, "Step time and memory, predicted / measured - 1, of %d runs. Profile %s %.12s.\n\n", stats->all.runs, profile_name(v->profile),
            profile_sha256(v->profile));
    print_groups(out, stats, by);
    print_verdicts(out, stats);
}

/* ---- CSV ---- */

static void csv_number(FILE *out, double value, const char *format)
{
    putc(',', out);
    if (isfinite(value))
        fprintf(out, format, value);
}

void validate_print_csv(FILE *out, const struct validation *v)
{
    fputs("id,predicted_step_time_s,low_s,high_s,measured_step_time_s,error,predicted_memory_gib,measured_memory_gib,fits,assumed,reason\n", out);
    for (int row = 0; row < v->table.n; row++) {
        const struct outcome *o = &v->outcome[row];
        double none = (double)NAN;
        csv_print(o->run->id, out);
        csv_number(out, o->predicted ? o->step_time_s : none, "%.6g");
        csv_number(out, o->predicted ? o->low_s : none, "%.6g");
        csv_number(out, o->predicted ? o->high_s : none, "%.6g");
        csv_number(out, o->measured_s, "%.6g");
        csv_number(out, o->predicted ? o->error : none, "%.4f");
        csv_number(out, o->predicted ? o->memory_gib : none, "%.3f");
        csv_number(out, run_memory_gib(o->run), "%.3f");
        fprintf(out, ",%s,", !o->predicted ? "" : o->fits ? "yes" : "no");
        csv_print(o->mapped.assumed, out);
        putc(',', out);
        csv_print(o->mapped.reason, out);
        putc('\n', out);
    }
}

/* ---- JSON ---- */

static void put_spread(struct json *object, const char *key, const struct spread *s)
{
    struct json *child = json_put_object(object, key);
    json_put_int(child, "n", s->n);
    json_put_number(child, "signed_median", s->signed_median);
    json_put_number(child, "median", s->median);
    json_put_number(child, "p90", s->p90);
}

static struct json *group_to_json(const struct group_stats *g)
{
    struct json *object = json_new_object();
    json_put_string(object, "name", g->name);
    json_put_int(object, "runs", g->runs);
    json_put_int(object, "not_predicted", g->not_predicted);
    put_spread(object, "step_time", &g->time);
    json_put_number(object, "interval_coverage", g->time.n > 0 ? (double)g->within / g->time.n : (double)NAN);
    struct json *memory = json_put_object(object, "memory");
    for (int i = 0; i < RUN_COUNTERS; i++)
        put_spread(memory, run_counter_names[i], &g->memory[i]);
    return object;
}

static struct json *row_to_json(const struct outcome *o)
{
    struct json *object = json_new_object();
    double none = (double)NAN;
    json_put_string(object, "id", o->run->id);
    json_put_string(object, "group", o->run->group);
    json_put_string(object, "accelerator", o->run->accelerator);
    json_put_string(object, "model", o->run->model);
    json_put_string(object, "trust", o->run->trust);
    json_put_number(object, "predicted_step_time_s", o->predicted ? o->step_time_s : none);
    json_put_number(object, "low_s", o->predicted ? o->low_s : none);
    json_put_number(object, "high_s", o->predicted ? o->high_s : none);
    json_put_number(object, "measured_step_time_s", o->measured_s);
    json_put_number(object, "error", o->predicted ? o->error : none);
    json_put_string(object, "memory_counter", run_counter_names[o->counter]);
    json_put_number(object, "predicted_memory_gib", o->predicted ? o->memory_gib : none);
    json_put_number(object, "measured_memory_gib", run_memory_gib(o->run));
    json_put_string(object, "result", o->run->result == RUN_OK ? "ok" : o->run->result == RUN_OOM ? "oom" : "error");
    if (o->predicted)
        json_put_bool(object, "fits", o->fits);
    else
        json_put_null(object, "fits");
    json_put_string(object, "assumed", o->mapped.assumed);
    json_put_string(object, "reason", o->mapped.reason);
    struct json *time = o->predicted ? json_put_object(object, "time_s") : NULL;
    for (int i = 0; time && i < TIME_PARTS; i++)
        json_put_number(time, time_part_names[i], o->time_s[i]);
    if (!*o->mapped.reason)
        json_put(object, "plan", plan_to_json(&o->mapped.plan));
    return object;
}

static void put_fits(struct json *root, const struct validate_stats *s)
{
    struct json *fits = json_put_object(root, "fits");
    json_put_int(fits, "fitted_predicted_fits", s->fits_fits);
    json_put_int(fits, "fitted_predicted_oom", s->fits_oom);
    json_put_int(fits, "oom_predicted_fits", s->oom_fits);
    json_put_int(fits, "oom_predicted_oom", s->oom_oom);
    json_put_number(fits, "balanced_accuracy", validate_balanced_accuracy(s));
    struct json *regret = json_put_object(root, "ranking_regret");
    json_put_int(regret, "sweeps", s->regret.sweeps);
    json_put_int(regret, "plans", s->regret.plans);
    json_put_number(regret, "mean", s->regret.mean);
    json_put_number(regret, "median", s->regret.median);
    json_put_number(regret, "max", s->regret.max);
}

struct json *validate_to_json(const struct validation *v, const struct validate_stats *stats, enum validate_by by)
{
    struct json *root = json_new_object();
    struct json *profile = json_put_object(root, "profile");
    json_put_string(profile, "name", profile_name(v->profile));
    json_put_string(profile, "sha256", profile_sha256(v->profile));
    json_put_string(root, "group_by", validate_by_names[by]);
    json_put(root, "all", group_to_json(&stats->all));
    struct json *groups = json_put_array(root, "groups");
    for (int i = 0; i < stats->n_groups; i++)
        json_push(groups, group_to_json(&stats->group[i]));
    put_fits(root, stats);
    struct json *rows = json_put_array(root, "rows");
    for (int row = 0; row < v->table.n; row++)
        json_push(rows, row_to_json(&v->outcome[row]));
    return root;
}
