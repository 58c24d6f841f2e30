/* plansim schedule: one pipeline schedule, or a program from a file, priced and drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/names.h"
#include "cost/base/opt.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/pricing.h"
#include "sim/program_csv.h"
#include "sim/writers/chart.h"
#include "sim/writers/gantt_chart.h"
#include "sim/writers/gantt_text.h"
#include "sim/writers/schedule_out.h"
#include "sim/writers/trace.h"

enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV, FORMAT_TORCH_CSV };
static const char *const formats[] = {"text", "json", "csv", "torch-csv", NULL};
static const char *const syncs[] = {"barrier", "none", "chain", NULL};

struct arguments {
    const char *schedule, *program, *cost, *stage_cost, *variant, *trace, *chart, *memory_chart;
    int64_t pp, vp, micro_batches, group, iterations;
    double memory_limit, freed_by_b;
    bool blocking;
    int format, sync;
};

static const char about[] = "Prices one pipeline schedule, or a program read from a file, and draws it.\n\n"
                            "Costs are numbers without unit: F (forward), B (gradient of the input) and W (gradient\n"
                            "of the weights) of one rank's whole work for one micro-batch; a chunk takes 1/V of\n"
                            "them, each of DualPipe's two modules is a whole stage. comm is one hop, sent\n"
                            "asynchronously. overlap is how long an F&B slot lasts: sum (F+B+W, the default),\n"
                            "max(F, B+W), half (their mean), or a number (of a whole stage, as F, B and W).\n"
                            "DualPipe's micro-batches count both directions.\n\n"
                            "makespan: last end, from time 0; ideal: mean busy time; bubble: idle time of all ranks\n"
                            "/ (ranks x makespan); span: longest first start to last end of one rank; activations:\n"
                            "most that a rank holds from F to W, in whole stages.";

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"schedule", OPT_STRING, &a->schedule, 0, 0, NULL, "NAME",
         "gpipe, 1f1b, interleaved, zb-h1, ... (a wrong name lists all)"},
        {"program", OPT_STRING, &a->program, 0, 0, NULL, "FILE",
         "price this program: our CSV, or PyTorch's compute_only or compute_comms"},
        {"pp", OPT_INT, &a->pp, 1, PROGRAM_RANKS_MAX, NULL, "P", "pipeline ranks"},
        {"vp", OPT_INT, &a->vp, 1, PROGRAM_STAGES_MAX, NULL, "V", "chunks per rank (default: the schedule's own)"},
        {"microbatches", OPT_INT, &a->micro_batches, 1, PROGRAM_MICRO_BATCHES_MAX, NULL, "M", "micro-batches"},
        {"cost", OPT_STRING, &a->cost, 0, 0, NULL, "LIST",
         "F=1,B=1,W=1[,comm=0][,overlap=max|sum|half|N] (default F=1,B=1,W=1)"},
        {"stage-cost", OPT_STRING, &a->stage_cost, 0, 0, NULL, "FILE",
         "CSV stage,F,B,W: costs of every pipeline stage"},
        {"group", OPT_INT, &a->group, 1, PROGRAM_MICRO_BATCHES_MAX, NULL, "G",
         "interleaved: micro-batches per group (default P, or the next valid)"},
        {"memory-limit", OPT_DOUBLE, &a->memory_limit, 1, 1e9, NULL, "X",
         "zb-auto, zb-v-auto: activations per rank, in whole stages (default P)"},
        {"freed-by-b", OPT_DOUBLE, &a->freed_by_b, 0, 1, NULL, "S",
         "zb-auto, zb-v-auto: share of an activation that B frees (default 0)"},
        {"variant", OPT_STRING, &a->variant, 0, 0, NULL, "NAME",
         "another published form (zb-h1: split, fused, quick; zb-auto, zb-v-auto: best, published)"},
        {"blocking", OPT_FLAG, &a->blocking, 0, 0, NULL, NULL,
         "the sender computes nothing until its message has arrived"},
        {"iterations", OPT_INT, &a->iterations, 1, 1000, NULL, "N", "iterations back to back (default 1)"},
        {"sync", OPT_CHOICE, &a->sync, 0, 0, syncs, "S",
         "between iterations: barrier (default), none, chain (post-validation)"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "text (default), json, csv, torch-csv"},
        {"trace", OPT_STRING, &a->trace, 0, 0, NULL, "FILE",
         "Chrome/Perfetto trace; one unit of cost is shown as 1 ms"},
        {"chart", OPT_STRING, &a->chart, 0, 0, NULL, "FILE", "Gantt chart: .png, .svg or .pdf"},
        {"memory-chart", OPT_STRING, &a->memory_chart, 0, 0, NULL, "FILE",
         "activations of every rank over time: .png, .svg or .pdf"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    int n = 0, result = opt_parse(table, argc, argv, NULL, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(
            stdout,
            "plansim schedule --schedule NAME --pp P --microbatches M [OPTION]...\n       plansim schedule --program FILE [OPTION]...",
            about, table, "plansim schedule --schedule zb-h1 --pp 4 --microbatches 8 --cost F=1,B=1,W=1");
    return result;
}

static int find_schedule(const char *name, enum plan_schedule *ret, struct err *err)
{
    char list[512];
    int index = names_find(schedule_names, name);
    const char *nearest = names_nearest(schedule_names, name);
    if (index >= 0) {
        *ret = (enum plan_schedule)index;
        return 0;
    }
    if (nearest)
        return err_add(err, "unknown schedule '%s'; did you mean '%s'?", name, nearest);
    return err_add(err, "unknown schedule '%s'; known: %s", name, names_join(schedule_names, list, sizeof list));
}

static int find_variant(const struct schedule *schedule, const char *name, int *ret, struct err *err)
{
    char list[128];
    if (!schedule->variants)
        return err_add(err, "%s has no variants", schedule->name);
    *ret = names_find(schedule->variants, name);
    if (*ret >= 0)
        return 0;
    return err_add(err, "%s has no variant '%s'; known: %s", schedule->name, name,
                   names_join(schedule->variants, list, sizeof list));
}

/* An option that the schedule cannot heed is refused, not dropped. */
static int check_heeded(const struct arguments *a, enum plan_schedule schedule, struct err *err)
{
    bool grouped = schedule == SCHEDULE_INTERLEAVED || schedule == SCHEDULE_INTERLEAVED_ZB;
    bool automatic = schedule == SCHEDULE_ZB_AUTO || schedule == SCHEDULE_ZB_V_AUTO;
    if (a->group && !grouped)
        return err_add(err, "%s has no groups: --group goes with interleaved and interleaved-zb",
                       schedule_names[schedule]);
    if ((a->memory_limit > 0 || a->freed_by_b > 0) && !automatic)
        return err_add(err, "%s has a fixed order: --%s goes with zb-auto and zb-v-auto", schedule_names[schedule],
                       a->memory_limit > 0 ? "memory-limit" : "freed-by-b");
    return 0;
}

/* What was asked for, as the writers need it. */
struct asked {
    struct pricing pricing;
    enum plan_schedule schedule;
    struct schedule_request request;
    struct schedule_label label;
    bool record;
};

static int check_usage(const struct arguments *a, struct err *err)
{
    if (!a->schedule == !a->program)
        return err_add(err, "give either --schedule or --program");
    if (a->schedule && (a->pp == 0 || a->micro_batches == 0))
        return err_add(err, "--schedule needs --pp and --microbatches");
    if (a->program &&
        (a->pp || a->vp || a->micro_batches || a->group || a->memory_limit > 0 || a->freed_by_b > 0 || a->variant))
        return err_add(
            err,
            "a program from a file has its own shape: --pp, --vp, --microbatches, --group, --memory-limit, --freed-by-b "
            "and --variant go with --schedule");
    if (a->iterations > 1 && (a->chart || a->memory_chart))
        return err_add(err, "charts show one iteration; leave --iterations out");
    if (a->trace && file_check_output(a->trace, "--trace", err) < 0)
        return -1;
    if (a->chart && chart_check_path(a->chart, err) < 0)
        return -1;
    return a->memory_chart ? chart_check_path(a->memory_chart, err) : 0;
}

static int ask(const struct arguments *a, struct asked *q, struct err *err)
{
    *q = (struct asked){.request = {.pp = (int)a->pp,
                                    .vp = (int)a->vp,
                                    .micro_batches = (int)a->micro_batches,
                                    .group = (int)a->group,
                                    .memory_limit = a->memory_limit,
                                    .freed_by_b = a->freed_by_b},
                        .label = {.source = a->program, .vp = (int)a->vp, .variant = a->variant}};
    pricing_defaults(&q->pricing);
    q->pricing.blocking_sends = a->blocking;
    q->pricing.iterations = (int)a->iterations;
    q->pricing.sync = (enum engine_sync)a->sync;
    q->record = a->format == FORMAT_TEXT || a->format == FORMAT_JSON || a->trace || a->chart || a->memory_chart;
    if ((a->schedule && find_schedule(a->schedule, &q->schedule, err) < 0) || check_usage(a, err) < 0 ||
        (a->cost && pricing_parse_cost(a->cost, &q->pricing, err) < 0))
        return -1;
    if (!a->schedule)
        return 0;
    if (check_heeded(a, q->schedule, err) < 0)
        return -1;
    const struct schedule *schedule = schedule_of(q->schedule);
    q->label.vp = q->label.vp ? q->label.vp : schedule->vp_default;
    if (a->variant && find_variant(schedule, a->variant, &q->request.variant, err) < 0)
        return -1;
    if (q->schedule == SCHEDULE_INTERLEAVED || q->schedule == SCHEDULE_INTERLEAVED_ZB)
        q->label.group = q->request.group ? q->request.group : schedule_group(q->request.pp, q->request.micro_batches);
    return schedule_validate(q->schedule, &q->request, err);
}

static int price(const struct arguments *a, struct asked *q, struct arena *arena, struct priced *ret, struct err *err)
{
    struct program program;
    if (a->stage_cost && pricing_load_stage_costs(a->stage_cost, arena, &q->pricing, err) < 0)
        return -1;
    if (a->schedule)
        return pricing_schedule(&q->pricing, q->schedule, &q->request, q->record, arena, ret, err);
    if (program_load(a->program, arena, &program, err) < 0)
        return -1;
    q->label.vp = program.placement == PLACEMENT_BIDIR ? 1 : program.chunks;
    return pricing_program(&q->pricing, &program, q->record, arena, ret, err);
}

static int print_csv(char *text, struct err *err)
{
    if (!text)
        return err->count ? EXIT_USAGE : EXIT_MACHINE;
    fputs(text, stdout);
    free(text);
    return EXIT_ANSWERED;
}

static int print(const struct arguments *a, const struct asked *q, const struct priced *priced, struct err *err)
{
    switch (a->format) {
    case FORMAT_JSON:
        schedule_out_json(stdout, priced, &q->pricing, &q->label);
        return EXIT_ANSWERED;
    case FORMAT_CSV:
        return print_csv(program_to_csv(&priced->program), err);
    case FORMAT_TORCH_CSV:
        return print_csv(program_to_torch_csv(&priced->program, err), err);
    default:
        break;
    }
    schedule_out_summary(stdout, priced, &q->pricing, &q->label);
    putchar('\n');
    gantt_text_print(stdout, &priced->program, &priced->timeline, gantt_text_columns(stdout), gantt_text_colour(stdout),
                     gantt_text_ascii(stdout));
    return EXIT_ANSWERED;
}

static int write_trace(const struct arguments *a, const struct priced *priced, struct err *err)
{
    const char *title = priced->schedule ? priced->schedule->title : a->program;
    struct trace_options options = {
        .title = title, .us_per_tick = 1000 / priced->ticks_per_unit, .stages_per_chunk = priced->stages_per_chunk};
    return trace_write(a->trace, &priced->program, &priced->timeline, &priced->costs, &options, err);
}

/* Pictures are extras: not being able to draw is said, and no failure. */
static void draw_charts(const struct arguments *a, const struct priced *priced)
{
    struct err warn = {0};
    char title[256];
    const struct program *p = &priced->program;
    snprintf(title, sizeof title, "%s, pp %d, %d micro-batches",
             priced->schedule ? priced->schedule->title : a->program, p->pp, p->micro_batches);
    struct gantt_chart options = {.title = title,
                                  .unit = "units of cost",
                                  .per_tick = 1 / priced->ticks_per_unit,
                                  .stages_per_chunk = priced->stages_per_chunk,
                                  .costs = &priced->costs};
    if (a->chart)
        gantt_chart_draw(a->chart, p, &priced->timeline, &options, &warn);
    if (a->memory_chart)
        gantt_chart_memory(a->memory_chart, p, &priced->timeline, &options, &warn);
    inputs_print("schedule", "warning: ", &warn);
}

int cmd_schedule(int argc, char **argv)
{
    struct arguments a = {0};
    struct err err = {0};
    struct arena arena = {0};
    struct asked q;
    struct priced priced;
    bool help = false;
    int code = EXIT_ANSWERED;
    if (parse(&a, argc, argv, &help, &err) < 0 || (!help && ask(&a, &q, &err) < 0))
        code = EXIT_USAGE;
    else if (!help && price(&a, &q, &arena, &priced, &err) < 0)
        code = a.program || a.stage_cost ? EXIT_INPUT : EXIT_USAGE; /* no file was read */
    else if (!help && a.trace && write_trace(&a, &priced, &err) < 0) /* before the answer: without it there is none */
        code = EXIT_MACHINE;
    else if (!help)
        code = print(&a, &q, &priced, &err);
    if (!help && code == EXIT_ANSWERED)
        draw_charts(&a, &priced);
    inputs_print("schedule", "", &err);
    arena_release(&arena);
    return code;
}
