/* plansim predict: step time and memory of one plan. */
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/arena.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "cost/base/opt.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/plan_timeline.h"
#include "sim/writers/chart.h"
#include "sim/writers/plan_charts.h"
#include "sim/writers/prediction.h"

struct arguments {
    struct input_options in;
    const char *plan, *chart, *memory_chart, *trace, *gantt;
    int format;
};
static const char *const formats[] = {"table", "json", NULL};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"model", OPT_STRING, &a->in.model, 0, 0, NULL, "FILE", "Hugging Face config.json"},
        {"cluster", OPT_STRING, &a->in.cluster, 0, 0, NULL, "FILE", "hw.json"},
        {"plan", OPT_STRING, &a->plan, 0, 0, NULL, "FILE", "plan.json"},
        {"profile", OPT_STRING, &a->in.profile, 0, 0, NULL, "FILE", "your own profile, layered over the shipped one"},
        {"max-memory", OPT_STRING, &a->in.max_memory, 0, 0, NULL, "X", "limit per accelerator: 0.9 or 72GiB (default: 0.94 of its memory)"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "default table"},
        {"chart", OPT_STRING, &a->chart, 0, 0, NULL, "FILE", "time breakdown as PNG, SVG or PDF"},
        {"memory-chart", OPT_STRING, &a->memory_chart, 0, 0, NULL, "FILE", "memory per pipeline stage as PNG, SVG or PDF"},
        {"trace", OPT_STRING, &a->trace, 0, 0, NULL, "FILE", "one step as a Chrome trace (ui.perfetto.dev)"},
        {"gantt", OPT_STRING, &a->gantt, 0, 0, NULL, "FILE", "one step's pipeline as PNG, SVG or PDF"},
        {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    const char *positional[1];
    int n = 0;
    int result = opt_parse(table, argc, argv, positional, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(stdout, "plansim predict --model config.json --cluster hw.json --plan plan.json [OPTION]...",
                       "Predicts step time and memory of a plan, and where both go.\n\n"
                       "Fields missing from plan.json: tp cp pp vp dp ep etp 1, zero 1, micro_batch 1, schedule 1f1b,\n"
                       "recompute none, precision bf16, optimizer adamw, rank_order tp-cp-ep-dp-pp, stack megatron.\n"
                       "model_tflops_per_gpu and MFU count model FLOPs only (no recompute), attention causal-halved,\n"
                       "against the dense peak of the plan's precision.",
                       table, "plansim predict --model config.json --cluster hw.json --plan plan.json --format json");
    return result;
}

static void draw(const struct arguments *a, const struct inputs *in, const struct prediction *p)
{
    struct err err = {0};
    char title[300];
    snprintf(title, sizeof title, "%s on %s", in->model.name, in->cluster.name);
    if (a->chart)
        plan_chart_breakdown(a->chart, title, p, 1, &err);
    if (a->memory_chart)
        plan_chart_memory(a->memory_chart, title, p, &err);
    inputs_print("predict", "warning: ", &err);
}

/* The trace is an answer: failing to write it fails. The picture is an extra. */
static int show_timeline(const struct arguments *a, const struct inputs *in, const struct plan *plan, struct err *err)
{
    if (!a->trace && !a->gantt)
        return EXIT_ANSWERED;
    struct arena arena = {0};
    struct plan_timeline timeline;
    struct err warn = {0};
    char title[300];
    int code = EXIT_ANSWERED;
    snprintf(title, sizeof title, "%s on %s", in->model.name, in->cluster.name);
    if (plan_timeline_make(&in->question, plan, &arena, &timeline, err) < 0)
        code = EXIT_INPUT;
    else if (a->trace && plan_timeline_trace(&timeline, a->trace, title, err) < 0)
        code = EXIT_MACHINE;
    if (code == EXIT_ANSWERED && timeline.micro_batches < plan_micro_batches(plan))
        err_add(&warn, "trace and Gantt chart show the first %lld of %lld micro-batches", (long long)timeline.micro_batches,
                (long long)plan_micro_batches(plan));
    if (code == EXIT_ANSWERED && a->gantt)
        plan_timeline_gantt(&timeline, a->gantt, title, &warn);
    inputs_print("predict", "warning: ", &warn);
    arena_release(&arena);
    return code;
}

static void print(const struct arguments *a, const struct inputs *in, const struct prediction *p)
{
    inputs_print("predict", "warning: ", &in->warnings);
    if (a->format == 0) {
        prediction_print(stdout, p, in->profile);
        return;
    }
    struct json *root = prediction_to_json(p, in->profile, &in->warnings);
    char *text = json_print(root);
    fputs(text, stdout);
    free(text);
    json_free(root);
}

static int run(const struct arguments *a, struct inputs *in, struct err *err)
{
    int code;
    struct plan plan;
    if (inputs_load(in, &a->in, &code, err) < 0)
        return code;
    if (plan_load(a->plan, &plan, &in->warnings, err) < 0 || inputs_add_stack(in, plan.stack, err) < 0)
        return EXIT_INPUT;
    if (plan_check(&plan, &in->model, &in->cluster, &in->warnings, err) < 0)
        return EXIT_INPUT;
    struct prediction *p = malloc(sizeof *p);
    if (!p || predict_plan(&in->question, &plan, p, err) < 0) {
        free(p);
        return EXIT_INPUT;
    }
    code = show_timeline(a, in, &plan, err); /* before the answer: without it there is none */
    if (code == EXIT_ANSWERED) {
        print(a, in, p);
        draw(a, in, p);
        code = p->fits ? EXIT_ANSWERED : EXIT_NO;
    }
    free(p);
    return code;
}

int cmd_predict(int argc, char **argv)
{
    struct arguments a = {0};
    static struct inputs in;
    struct err err = {0};
    bool help = false;
    if (parse(&a, argc, argv, &help, &err) < 0) {
        inputs_print("predict", "", &err);
        return EXIT_USAGE;
    }
    if (help)
        return EXIT_ANSWERED;
    if (!a.plan) {
        err_add(&err, "--plan FILE is needed");
        inputs_print("predict", "", &err);
        return EXIT_USAGE;
    }
    const char *pictures[] = {a.chart, a.memory_chart, a.gantt};
    int code = inputs_check_stdin(&a.in, a.plan, NULL, &err) < 0 ? EXIT_USAGE : EXIT_ANSWERED;
    for (int i = 0; i < 3; i++)
        if (pictures[i] && chart_check_path(pictures[i], &err) < 0)
            code = EXIT_USAGE;
    if (a.trace && file_check_output(a.trace, "--trace", &err) < 0)
        code = EXIT_USAGE;
    if (code == EXIT_ANSWERED) {
        code = run(&a, &in, &err);
        inputs_release(&in);
    }
    inputs_print("predict", "", &err);
    return code;
}
