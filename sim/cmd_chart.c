/* plansim chart: pictures of predictions that were written by predict and search with --format json; pictures of
 * schedules are schedule's and compare's own, under one roof. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/opt.h"
#include "cost/plan.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/predict.h"
#include "sim/writers/chart.h"
#include "sim/writers/plan_charts.h"

enum { CHART_PLANS_MAX = 4096 };

enum kind { KIND_BREAKDOWN, KIND_MEMORY, KIND_PARETO, KIND_GANTT, KIND_BUBBLES };
static const char *const kind_names[] = {"breakdown", "memory", "pareto", "gantt", "bubbles", NULL};

struct arguments {
    int kind;
    const char *in, *out, *title;
};

/* A field that the picture cannot do without. */
static int read_number(struct json_at at, const char *key, double *out, struct err *err)
{
    int found = json_read_double(at, key, 0, 1e30, out, err);
    if (found == 0)
        return err_add(err, "file '%s': %s%s%s is missing", at.file, at.path, *at.path ? "." : "", key);
    return found < 0 ? -1 : 0;
}

static int read_time(struct json_at at, struct prediction *ret, struct err *err)
{
    char path[64];
    struct json_at time;
    int found = json_read_object(at, "time_s", &time, path, sizeof(path), err);
    if (found <= 0)
        return found < 0 ? -1 : err_add(err, "file '%s': time_s is missing", at.file);
    for (int part = 0; part < TIME_PARTS; part++)
        if (json_read_double(time, time_part_names[part], 0, 1e30, &ret->time_s[part], err) < 0)
            return -1;
    return 0;
}

static int read_stage(struct json_at at, struct stage_memory *ret, struct err *err)
{
    for (int part = 0; part < MEMORY_PARTS; part++)
        if (json_read_double(at, memory_part_names[part], 0, 1e30, &ret->bytes[part], err) < 0)
            return -1;
    return read_number(at, "total", &ret->total, err);
}

static int read_memory(struct json_at at, struct prediction *ret, struct err *err)
{
    char path[64];
    struct json_at memory;
    int found = json_read_object(at, "memory_bytes", &memory, path, sizeof(path), err);
    if (found <= 0)
        return found < 0 ? -1 : err_add(err, "file '%s': memory_bytes is missing", at.file);
    if (read_number(memory, "peak", &ret->peak_bytes, err) < 0 ||
        read_number(memory, "limit", &ret->limit_bytes, err) < 0)
        return -1;
    const struct json *stages = json_get(memory.node, "stages");
    if (!stages || json_type(stages) != JSON_ARRAY)
        return err_add(err, "file '%s': memory_bytes.stages is not a list", at.file);
    for (const struct json *stage = json_first(stages); stage; stage = json_next(stage)) {
        struct json_at item = {.file = at.file, .path = "memory_bytes.stages", .node = stage};
        if (json_type(stage) != JSON_OBJECT || ret->n_stages == PREDICT_STAGES_MAX)
            return err_add(err, "file '%s': memory_bytes.stages is not a list of up to %d objects", at.file,
                           PREDICT_STAGES_MAX);
        if (read_stage(item, &ret->stage[ret->n_stages++], err) < 0)
            return -1;
    }
    return 0;
}

static int read_prediction(const struct json *node, const char *file, struct prediction *ret, struct err *err)
{
    struct json_at at = {.file = file, .path = "", .node = node};
    struct err warn = {0};
    if (json_type(node) != JSON_OBJECT)
        return err_add(err, "file '%s' is no prediction: it holds %s instead of an object", file, json_type_name(node));
    const struct json *plan = json_get(node, "plan");
    if (!plan || json_type(plan) != JSON_OBJECT)
        return err_add(err, "file '%s' is no prediction: plan is missing", file);
    if (plan_parse(plan, file, &ret->plan, &warn, err) < 0 ||
        read_number(at, "step_time_s", &ret->step_time_s, err) < 0 || read_time(at, ret, err) < 0 ||
        read_memory(at, ret, err) < 0)
        return -1;
    ret->step_time_low_s = ret->step_time_high_s = ret->step_time_s;
    if (json_read_double(at, "step_time_low_s", 0, 1e30, &ret->step_time_low_s, err) < 0 ||
        json_read_double(at, "step_time_high_s", 0, 1e30, &ret->step_time_high_s, err) < 0 ||
        json_read_double(at, "mfu", 0, 1e30, &ret->mfu, err) < 0)
        return -1;
    return 0;
}

/* One prediction, or the plans of a search. *ret: malloc'd. Returns their number, or -1. */
static int read_predictions(const struct json *root, const char *file, struct prediction **ret, struct err *err)
{
    const struct json *plans = json_type(root) == JSON_OBJECT ? json_get(root, "plans") : NULL;
    int n = plans && json_type(plans) == JSON_ARRAY ? json_length(plans) : 1;
    if (n > CHART_PLANS_MAX)
        n = CHART_PLANS_MAX;
    if (n == 0)
        return err_add(err, "file '%s' holds no plans", file);
    struct prediction *all = calloc((size_t)n, sizeof(*all));
    if (!all)
        return err_add(err, "out of memory for %d plans", n);
    const struct json *node = plans ? json_first(plans) : root;
    for (int i = 0; i < n && node; i++, node = json_next(node)) {
        if (read_prediction(node, file, &all[i], err) < 0) {
            free(all);
            return -1;
        }
    }
    *ret = all;
    return n;
}

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"in", OPT_STRING, &a->in, 0, 0, NULL, "FILE",
         "what predict or search wrote with --format json; - is standard input"},
        {"out", OPT_STRING, &a->out, 0, 0, NULL, "FILE", "the picture: .png, .svg or .pdf"},
        {"title", OPT_STRING, &a->title, 0, 0, NULL, "TEXT", "title of the picture (default: the name of the file)"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    const char *positional[1] = {NULL};
    int n = 0, result = opt_parse(table, argc, argv, positional, 1, &n, ret_help, err);
    if (*ret_help) {
        opt_print_help(
            stdout,
            "plansim chart breakdown|memory|pareto --in FILE --out FILE [OPTION]...\n"
            "       plansim chart gantt|bubbles --out FILE OPTION...",
            "Draws predictions and schedules by gnuplot, without a display.\n\n"
            "breakdown: where the time of a step goes, a bar per plan\n"
            "memory:    memory of every pipeline stage of the first plan, against the limit\n"
            "pareto:    step time over peak memory of all plans of a search\n"
            "gantt:     one schedule, all ranks; options of plansim schedule\n"
            "bubbles:   bubble of all schedules over micro-batches; options of plansim compare\n\n"
            "Data and script stay beside the picture (out.png.dat, out.png.gp).",
            table,
            "plansim search --model config.json --cluster hw.json --format json | plansim chart pareto --in - --out pareto.png");
        return 0;
    }
    if (result < 0)
        return -1;
    char list[128];
    if (n == 0 || !a->in || !a->out)
        return err_add(err, "a kind of chart (%s), --in FILE and --out FILE are needed",
                       names_join(kind_names, list, sizeof(list)));
    a->kind = names_find(kind_names, positional[0]);
    if (a->kind < 0)
        return err_add(err, "unknown chart '%s'; the kinds are %s", positional[0],
                       names_join(kind_names, list, sizeof(list)));
    if (a->kind > KIND_PARETO)
        return err_add(err, "the kind of chart comes first: plansim chart %s OPTION...", kind_names[a->kind]);
    return chart_check_path(a->out, err);
}

/* Here the picture is the answer: no picture, no answer. */
static int draw(const struct arguments *a, const struct prediction *predictions, int n, struct err *err)
{
    const char *title = a->title ? a->title : strcmp(a->in, "-") == 0 ? "standard input" : a->in;
    int result = a->kind == KIND_BREAKDOWN ? plan_chart_breakdown(a->out, title, predictions, n, err)
                 : a->kind == KIND_MEMORY  ? plan_chart_memory(a->out, title, predictions, err)
                                           : plan_chart_pareto(a->out, title, predictions, n, err);
    return result < 0 ? EXIT_MACHINE : EXIT_ANSWERED;
}

/* `chart gantt ... --out X` is `schedule ... --chart X`, and so on: the same options, help and messages. */
static int other_command(int (*run)(int, char **), char *out_option, int argc, char **argv)
{
    char **changed = calloc((size_t)argc + 1, sizeof(*changed));
    if (!changed)
        return EXIT_MACHINE;
    for (int i = 0; i < argc; i++)
        changed[i] = strcmp(argv[i], "--out") == 0 ? out_option : argv[i];
    int code = run(argc, changed);
    free(changed);
    return code;
}

int cmd_chart(int argc, char **argv)
{
    static char chart[] = "--chart", bubble_chart[] = "--bubble-chart";
    int kind = argc > 0 ? names_find(kind_names, argv[0]) : -1;
    if (kind == KIND_GANTT)
        return other_command(cmd_schedule, chart, argc - 1, argv + 1);
    if (kind == KIND_BUBBLES)
        return other_command(cmd_compare, bubble_chart, argc - 1, argv + 1);

    struct arguments a = {0};
    struct err err = {0};
    bool help = false;
    struct json *root = NULL;
    struct prediction *predictions = NULL;
    int n, code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0 && !help) {
        code = EXIT_INPUT;
        if (json_load(a.in, &root, &err) == 0 && (n = read_predictions(root, a.in, &predictions, &err)) > 0)
            code = draw(&a, predictions, n, &err);
    }
    inputs_print("chart", "", &err);
    free(predictions);
    json_free(root);
    return help ? EXIT_ANSWERED : code;
}
