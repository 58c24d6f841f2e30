/* plansim calibrate: learns the numbers of a profile from what was measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cost/base/arena.h"
#include "cost/base/csv.h"
#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/opt.h"
#include "cost/profile.h"
#include "cost/profile_store.h"
#include "sim/calibrate.h"
#include "sim/calibrate_intervals.h"
#include "sim/calibrate_points.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/validate_stats.h"
#include "sim/writers/table.h"

struct arguments {
    const char *measured, *models, *profile, *out, *only, *trust, *source;
    int format, by;
    int64_t folds, threads;
    bool full_table, intervals, leave_out;
    struct points_arguments points;
};
enum { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };
static const char *const formats[] = {"table", "json", "csv", NULL};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"measured", OPT_STRING, &a->measured, 0, 0, NULL, "FILE", "table of measured runs, as for plansim validate"},
        {"models", OPT_STRING, &a->models, 0, 0, NULL, "FILE", "config.json objects by the table's model column"},
        {"profile", OPT_STRING, &a->profile, 0, 0, NULL, "FILE", "your own profile: layered over the shipped one, and written unless --out is given"},
        {"out", OPT_STRING, &a->out, 0, 0, NULL, "FILE", "profile to write instead"},
        {"gemm", OPT_STRING, &a->points.gemm, 0, 0, NULL, "FILE", "measured GEMMs: CSV with m, n, k, time_us, perhaps dtype, gpu, mode"},
        {"attention", OPT_STRING, &a->points.attention, 0, 0, NULL, "FILE", "measured attention: CSV with batch, seq, heads, kv_heads, head_dim, time_us, perhaps direction"},
        {"experts", OPT_STRING, &a->points.experts, 0, 0, NULL, "FILE", "measured grouped GEMMs: CSV with ng, m, n, k, time_us, perhaps stage; or whole expert MLPs"},
        {"nccl-tests", OPT_STRING, &a->points.nccl, 0, 0, NULL, "FILE", "log of nccl-tests or rccl-tests, text or JSON"},
        {"accelerator", OPT_STRING, &a->points.accelerator, 0, 0, NULL, "NAME", "what these kernels or collectives were measured on"},
        {"dtype", OPT_STRING, &a->points.dtype, 0, 0, NULL, "NAME", "rows of kernels to take (default bf16)"},
        {"gpu", OPT_STRING, &a->points.gpu, 0, 0, NULL, "NAME", "rows of kernels to take by their gpu column (default: all)"},
        {"op", OPT_STRING, &a->points.op, 0, 0, NULL, "NAME", "operation of a log that does not name it: all_reduce, all_gather, ..."},
        {"link", OPT_STRING, &a->points.link, 0, 0, NULL, "NAME", "link or network (for a log over several nodes) of the curves; default: those that clusters of the accelerator have by themselves"},
        {"only", OPT_STRING, &a->only, 0, 0, NULL, "NAME", "fit stack or accelerator numbers alone, or those of one name"},
        {"trust", OPT_STRING, &a->trust, 0, 0, NULL, "A", "fit only the runs whose trust column says so"},
        {"folds", OPT_INT, &a->folds, 0, 1000, NULL, "N", "parts of the cross-validation (default 10; 0 = none)"},
        {"threads", OPT_INT, &a->threads, 1, 256, NULL, "N", "threads; the answer is the same for any number (default: one for each core)"},
        {"full-table", OPT_FLAG, &a->full_table, 0, 0, NULL, NULL, "weaker prior, groups of many runs count less: how the shipped numbers are made"},
        {"leave-groups-out", OPT_FLAG, &a->leave_out, 0, 0, NULL, NULL, "fit without each group of runs in turn, and how well it is predicted then"},
        {"group-by", OPT_CHOICE, &a->by, 0, 0, validate_by_names, "WHAT", "what --leave-groups-out leaves out: group (default), accelerator, model or stack"},
        {"intervals", OPT_FLAG, &a->intervals, 0, 0, NULL, NULL, "no fit: the 80 % intervals of predictions, by stack, experts and nodes"},
        {"source", OPT_STRING, &a->source, 0, 0, NULL, "TEXT", "written beside each number (default: the table's name)"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "table (default), json, or csv: rows of a profile"},
        {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    const char *positional[1];
    int n = 0, result = opt_parse(table, argc, argv, positional, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(stdout, "plansim calibrate --measured runs.csv --models models.json | --gemm, --attention, --experts points.csv | --nccl-tests log.txt  [--profile my.db] [OPTION]...",
                       "Fits the numbers of the stacks and accelerators that the runs used: shipped values as prior, plausible ranges\n"
                       "as bounds. Few runs move them little. What --profile holds already is the prior: give all runs at once. --gemm, --attention and --experts fit the forms\n"
                       "of an accelerator's kernels, --nccl-tests the lines of its collectives.",
                       table, "plansim calibrate --measured mine.csv --models models.json --profile my.db");
    return result;
}

struct result {
    struct calibration calibration;
    struct spread before, after, unseen;
};

static void errors_of(const struct calibration *c, struct arena *arena, struct spread *ret)
{
    double *errors = arena_array(arena, (size_t)c->validation->table.n, sizeof *errors);
    int n = 0;
    for (int i = 0; i < c->validation->table.n; i++)
        if (c->weight[i] > 0)
            errors[n++] = c->validation->outcome[i].error;
    spread_of(errors, n, ret);
}

static void print_table(const struct result *r, const struct profile_rows *rows)
{
    const struct calibration *c = &r->calibration;
    struct table *table = table_new("  ");
    static const char *const titles[] = {"value", "before", "range", "unit", "runs"};
    table_column(table, "number", TABLE_LEFT);
    for (int i = 0; i < 5; i++)
        table_column(table, titles[i], TABLE_RIGHT);
    for (int p = 0; p < c->n; p++) {
        const struct calibrate_parameter *q = &c->parameter[p];
        const struct profile_row *row = &rows->row[p];
        double factor = profile_unit_factor(row->unit, q->field->dimension);
        table_cell(table, "%s %s", q->name, q->field->name);
        table_cell(table, "%.4g", row->value);
        table_cell(table, "%.4g", q->prior / factor);
        table_cell(table, "%.4g to %.4g", row->low, row->high);
        table_cell(table, "%s", row->unit);
        table_cell(table, "%d", q->runs);
    }
    printf("%d runs, %d numbers, %d iterations.\n", c->runs, c->n, c->iterations);
    printf("|error| median %.1f %%, p90 %.1f %% before; %.1f %%, %.1f %% after", 100 * r->before.median, 100 * r->before.p90, 100 * r->after.median,
           100 * r->after.p90);
    if (r->unseen.n > 0)
        printf("; %.1f %%, %.1f %% on runs that the fit did not see", 100 * r->unseen.median, 100 * r->unseen.p90);
    printf(".\n\n");
    table_print(table, stdout);
    table_free(table);
}

static void put_errors(struct json *root, const char *key, const struct spread *s)
{
    struct json *object = json_put_object(root, key);
    json_put_int(object, "n", s->n);
    json_put_number(object, "signed_median", s->signed_median);
    json_put_number(object, "median", s->median);
    json_put_number(object, "p90", s->p90);
}

static void print_json(const struct result *r, const struct profile_rows *rows)
{
    struct json *root = json_new_object();
    json_put_int(root, "runs", r->calibration.runs);
    put_errors(root, "before", &r->before);
    put_errors(root, "after", &r->after);
    put_errors(root, "unseen", &r->unseen);
    struct json *list = json_put_array(root, "numbers");
    for (size_t i = 0; i < rows->n; i++) {
        struct json *item = json_new_object();
        const struct profile_row *row = &rows->row[i];
        json_put_string(item, "table", profile_section_names[row->section]);
        json_put_string(item, "name", row->name);
        json_put_string(item, "field", row->field);
        json_put_number(item, "value", row->value);
        json_put_number(item, "before", r->calibration.parameter[i].prior / profile_unit_factor(row->unit, r->calibration.parameter[i].field->dimension));
        json_put_string(item, "unit", row->unit);
        json_push(list, item);
    }
    char *text = json_print(root);
    fputs(text, stdout);
    free(text);
    json_free(root);
}

static void today(char date[16])
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, 16, "%Y-%m-%d", &tm);
}

/* |error| beyond which a fit explains nothing: shipped numbers are within 10 % of most runs. */
static const double fit_explains = 0.5;

static int write_answer(const struct arguments *a, const struct result *r, struct err *err)
{
    char date[16];
    struct profile_rows rows = {0};
    const char *out = a->out ? a->out : a->profile;
    today(date);
    if (r->after.median > fit_explains)
        fprintf(stderr, "plansim calibrate: warning: the fitted predictions are still off by %.0f %% (median): are the step times in seconds?\n",
                100 * r->after.median);
    int code = EXIT_ANSWERED, result = calibrate_rows(&r->calibration, date, a->source ? a->source : a->measured, &rows, err);
    if (result == 0 && a->format == FORMAT_CSV) {
        puts(profile_csv_header);
        for (size_t i = 0; i < rows.n; i++)
            profile_csv_print(&rows.row[i], stdout);
    } else if (result == 0 && a->format == FORMAT_JSON) {
        print_json(r, &rows);
    } else if (result == 0) {
        print_table(r, &rows);
    }
    if (result == 0 && out) {
        profile_rows_sort(&rows, NULL, NULL);
        result = profile_store_write(out, &rows, date, err);
    }
    if (result != 0)
        code = result == PROFILE_STORE_MACHINE ? EXIT_MACHINE : EXIT_INPUT;
    profile_rows_release(&rows);
    return code;
}

/* Rows as CSV, and into the profile when one is named. */
static int write_intervals(const struct arguments *a, struct validation *validation, struct err *err)
{
    char date[16];
    struct arena arena = {0};
    struct profile_rows rows = {0};
    const char *out = a->out ? a->out : a->profile;
    today(date);
    validation_price_all(validation);
    int result = calibrate_interval_rows(validation, date, a->source ? a->source : a->measured, &arena, &rows, err);
    if (result == 0) {
        puts(profile_csv_header);
        for (size_t i = 0; i < rows.n; i++)
            profile_csv_print(&rows.row[i], stdout);
    }
    if (result == 0 && out) {
        profile_rows_sort(&rows, NULL, NULL);
        result = profile_store_write(out, &rows, date, err);
    }
    profile_rows_release(&rows);
    arena_release(&arena);
    return result == 0 ? EXIT_ANSWERED : result == PROFILE_STORE_MACHINE ? EXIT_MACHINE : EXIT_INPUT;
}

/* ---- groups left out ---- */

static void say_progress(const struct left_out *g, int done, int all)
{
    fprintf(stderr, "%d of %d: %s, %d runs, |error| median %.1f %% fitted, %.1f %% unseen\n", done, all, g->group, g->fitted.n, 100 * g->fitted.median,
            100 * g->unseen.median);
}

static const char *group_name(const struct left_out *g)
{
    return g->group ? g->group : "all";
}

static double ratio_of(const struct left_out *g)
{
    return g->unseen.median / g->fitted.median;
}

/* "h100-sxm sustained -3.1 %; ..." */
static const char *moves_of(const struct left_out *g, char *text, size_t size)
{
    size_t used = 0;
    *text = 0;
    for (int m = 0; m < LEFT_OUT_MOVES && g->move[m].parameter && used < size; m++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %s %+.1f %%", m ? "; " : "", g->move[m].parameter->name,
                                 g->move[m].parameter->field->name, 100 * expm1(g->move[m].by));
    return text;
}

static void print_groups_table(const struct left_out *groups, int n, const char *what)
{
    static const char *const titles[] = {"runs", "median", "p90", "unseen", "p90", "signed", "ratio", "lost"};
    struct table *table = table_new("  ");
    char title[32];
    snprintf(title, sizeof title, "%s left out", what);
    table_column(table, title, TABLE_LEFT);
    for (int i = 0; i < 8; i++)
        table_column(table, titles[i], TABLE_RIGHT);
    table_column(table, "what moves its predictions", TABLE_LEFT);
    for (int g = 0; g <= n; g++) {
        const struct left_out *at = &groups[g];
        char moves[400];
        if (g == n)
            table_rule(table);
        table_cell(table, "%s", group_name(at));
        table_cell(table, "%d", at->fitted.n);
        table_cell(table, "%.1f %%", 100 * at->fitted.median);
        table_cell(table, "%.1f %%", 100 * at->fitted.p90);
        table_cell(table, "%.1f %%", 100 * at->unseen.median);
        table_cell(table, "%.1f %%", 100 * at->unseen.p90);
        table_cell(table, "%+.1f %%", 100 * at->unseen.signed_median);
        table_cell(table, "%.2f", ratio_of(at));
        table_cell(table, at->lost ? "%d" : "", at->lost);
        table_cell(table, "%s", moves_of(at, moves, sizeof moves));
    }
    table_print(table, stdout);
    printf("\n|error| of the step times of each %s, fitted with them and without. Lost: numbers of their predictions that no\n"
           "other run tells; they are the prior again.\n", what);
    table_free(table);
}

static void print_groups_csv(const struct left_out *groups, int n, const char *what)
{
    printf("%s,runs,fitted_median,fitted_p90,unseen_median,unseen_p90,unseen_signed,ratio,lost,moves\n", what);
    for (int g = 0; g <= n; g++) {
        const struct left_out *at = &groups[g];
        char moves[400];
        csv_print(group_name(at), stdout);
        printf(",%d,%.4f,%.4f,%.4f,%.4f,%.4f,%.3f,%d,%s\n", at->fitted.n, at->fitted.median, at->fitted.p90, at->unseen.median,
               at->unseen.p90, at->unseen.signed_median, ratio_of(at), at->lost, moves_of(at, moves, sizeof moves));
    }
}

static void print_groups_json(const struct left_out *groups, int n, const char *what)
{
    struct json *root = json_new_object(), *list = json_put_array(root, "groups_left_out");
    for (int g = 0; g <= n; g++) {
        struct json *item = json_new_object();
        json_put_string(item, what, group_name(&groups[g]));
        put_errors(item, "fitted", &groups[g].fitted);
        put_errors(item, "unseen", &groups[g].unseen);
        json_put_number(item, "ratio", ratio_of(&groups[g]));
        json_put_int(item, "lost", groups[g].lost);
        struct json *moves = json_put_array(item, "moves");
        for (int m = 0; m < LEFT_OUT_MOVES && groups[g].move[m].parameter; m++) {
            struct json *move = json_new_object();
            json_put_string(move, "name", groups[g].move[m].parameter->name);
            json_put_string(move, "field", groups[g].move[m].parameter->field->name);
            json_put_number(move, "step_time", expm1(groups[g].move[m].by));
            json_push(moves, move);
        }
        json_push(list, item);
    }
    char *text = json_print(root);
    fputs(text, stdout);
    free(text);
    json_free(root);
}

static int write_groups(const struct arguments *a, struct calibration *c, struct arena *arena, struct err *err)
{
    struct left_out *groups;
    int n = calibrate_leave_groups_out(c, (enum validate_by)a->by, say_progress, arena, &groups, err);
    if (n < 0)
        return EXIT_INPUT;
    if (a->format == FORMAT_JSON)
        print_groups_json(groups, n, validate_by_names[a->by]);
    else if (a->format == FORMAT_CSV)
        print_groups_csv(groups, n, validate_by_names[a->by]);
    else
        print_groups_table(groups, n, validate_by_names[a->by]);
    return EXIT_ANSWERED;
}

/* ---- the fit ---- */

/* Runs with a measurement that are not fitted all the same. */
static void warn_unpredicted(const struct validation *v)
{
    const struct outcome *first = NULL;
    int n = 0, all = 0;
    for (int i = 0; i < v->table.n; i++) {
        const struct outcome *o = &v->outcome[i];
        all += o->measured_s > 0;
        n += o->measured_s > 0 && !o->predicted;
        if (o->measured_s > 0 && !o->predicted && !first)
            first = o;
    }
    if (first)
        fprintf(stderr, "plansim calibrate: warning: %d of %d measured runs cannot be predicted and are not fitted; the first, line %d: %s\n", n, all,
                first->run->line, first->mapped.reason);
}

static int fit(const struct arguments *a, struct validation *validation, struct err *err)
{
    struct arena arena = {0};
    struct calibrate_options options;
    struct result *r = arena_alloc(&arena, sizeof *r);
    calibrate_defaults(&options);
    options.trust = a->trust ? a->trust : "";
    options.only = a->only ? a->only : "";
    if (a->full_table) {
        options.noise = 0.05;
        options.freedom = 0.3;
        options.full_table = true;
    }
    validation_price_all(validation);
    warn_unpredicted(validation);
    int code = EXIT_INPUT;
    if (calibrate_init(&r->calibration, validation, &options, &arena, err) == 0) {
        errors_of(&r->calibration, &arena, &r->before);
        struct spread before;
        int result = calibrate_fit(&r->calibration, &arena, err);
        errors_of(&r->calibration, &arena, &r->after);
        if (result == 0 && a->folds > 1 && r->calibration.runs > 1)
            result = calibrate_cross_validate(&r->calibration, (int)a->folds, &arena, &before, &r->unseen, err);
        code = result != 0 ? EXIT_INPUT : a->leave_out ? write_groups(a, &r->calibration, &arena, err) : write_answer(a, r, err);
    }
    arena_release(&arena);
    return code;
}

/* Kernels or collectives instead of runs. */
static bool asks_points(const struct arguments *a)
{
    return a->points.gemm || a->points.attention || a->points.experts || a->points.nccl;
}

static int run_points(const struct arguments *a, const struct profile *profile, struct err *err)
{
    struct points_arguments points = a->points;
    points.out = a->out ? a->out : a->profile;
    points.source = a->source;
    points.format = a->format;
    return calibrate_points(&points, profile, err);
}

static int run(const struct arguments *a, struct err *err)
{
    struct profile *profile = NULL;
    struct validation validation = {0};
    struct err warning = {0};
    int code = EXIT_INPUT;
    bool layer = a->profile && (a->out || access(a->profile, F_OK) == 0); /* a new file begins as a copy of nothing */
    bool opened = profile_open(NULL, &profile, err) == 0 && (!layer || profile_layer(profile, a->profile, err) == 0);
    if (opened && asks_points(a))
        code = run_points(a, profile, err);
    else if (opened && validation_load(&validation, a->measured, a->models, profile, &warning, err) == 0) {
        validation.threads = (int)a->threads;
        code = a->intervals ? write_intervals(a, &validation, err) : fit(a, &validation, err);
    }
    inputs_print("calibrate", "warning: ", &warning);
    validation_release(&validation);
    profile_close(profile);
    return code;
}

int cmd_calibrate(int argc, char **argv)
{
    struct arguments a = {.folds = 10};
    struct err err = {0};
    bool help = false;
    int code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0 && !help) {
        bool points = asks_points(&a);
        if (!points && (!a.measured || !a.models))
            err_add(&err, "--measured FILE and --models FILE are needed, or --gemm, --attention, --experts or --nccl-tests FILE");
        else if (!points && strcmp(a.measured, "-") == 0 && strcmp(a.models, "-") == 0)
            err_add(&err, "only one file can be '-': standard input holds one");
        else if (a.intervals && a.leave_out)
            err_add(&err, "--intervals and --leave-groups-out are two questions: ask one at a time");
        else if (a.leave_out && a.out)
            err_add(&err, "--leave-groups-out writes no profile: --out has nothing to take");
        else if (a.intervals && (a.trust || a.only || a.format == FORMAT_JSON))
            err_add(&err, "--intervals are of all runs, as rows of a profile: without --trust, --only and --format json");
        else if (points && (a.trust || a.only))
            err_add(&err, "--trust and --only choose among measured runs (--measured), not kernels or collectives");
        else if (a.by != BY_GROUP && !a.leave_out)
            err_add(&err, "--group-by %s goes with --leave-groups-out", validate_by_names[a.by]);
        else if (points && (a.intervals || a.leave_out))
            err_add(&err, "%s is a question about measured runs (--measured), not about kernels or collectives", a.intervals ? "--intervals" : "--leave-groups-out");
        else if ((a.points.gemm || a.points.attention || a.points.experts) && !a.points.accelerator)
            err_add(&err, "--accelerator NAME is needed: whose kernels these are (its peak is in the profile)");
        else if (points && a.measured)
            err_add(&err, "--measured is fitted by a command of its own, after those of kernels and collectives");
        else
            code = run(&a, &err);
    } else if (help) {
        code = EXIT_ANSWERED;
    }
    inputs_print("calibrate", "", &err);
    return code;
}
