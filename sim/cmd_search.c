/* plansim search: from a model and a cluster to ranked plans. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/clock.h"
#include "cost/base/file.h"
#include "cost/base/names.h"
#include "cost/base/opt.h"
#include "cost/base/unit.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/search.h"
#include "sim/search_advice.h"
#include "sim/writers/chart.h"
#include "sim/writers/export.h"
#include "sim/writers/plan_charts.h"
#include "sim/writers/search_out.h"

struct arguments {
    struct input_options in;
    const char *fix, *schedules, *stack, *out, *chart, *memory_chart;
    int64_t gbs, seq, top, threads, lora_rank;
    int precision, optimizer, objective, format, launch;
    bool pareto, why, exhaustive;
};
static const char *const formats[] = {"table", "json", "csv", NULL};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"model", OPT_STRING, &a->in.model, 0, 0, NULL, "FILE", "Hugging Face config.json"},
        {"cluster", OPT_STRING, &a->in.cluster, 0, 0, NULL, "FILE", "hw.json"},
        {"gbs", OPT_INT, &a->gbs, 1, 1e9, NULL, "N", "global batch, sequences per step (default: nearest to 4 M tokens)"},
        {"seq", OPT_INT, &a->seq, 1, 1e8, NULL, "N", "tokens per sequence (default: min(max_position_embeddings, 4096))"},
        {"lora-rank", OPT_INT, &a->lora_rank, 0, UINT16_MAX, NULL, "R", "low-rank adapters alone are trained (LoRA; default: all weights are)"},
        {"precision", OPT_CHOICE, &a->precision, 0, 0, precision_names, "P", "number format of the linear layers (default bf16)"},
        {"optimizer", OPT_CHOICE, &a->optimizer, 0, 0, optimizer_names, "O", "default adamw"},
        {"objective", OPT_CHOICE, &a->objective, 0, 0, objective_names, "O", "what to rank by (default time; cost has the same order: all accelerators are paid for)"},
        {"fix", OPT_STRING, &a->fix, 0, 0, NULL, "LIST", "fields of plan.json to leave alone: tp=8,recompute_modules=mlp+moe_act,cuda_graph=partial,..."},
        {"schedules", OPT_STRING, &a->schedules, 0, 0, NULL, "LIST", "schedules to try: 1f1b,interleaved,... (default all; plansim compare lists them)"},
        {"max-memory", OPT_STRING, &a->in.max_memory, 0, 0, NULL, "X", "limit per accelerator: 0.9 or 72GiB (default: 0.94 of its memory)"},
        {"top", OPT_INT, &a->top, 1, 1000, NULL, "N", "plans to show (default 10)"},
        {"pareto", OPT_FLAG, &a->pareto, 0, 0, NULL, NULL, "only plans that no other beats in both time and memory"},
        {"threads", OPT_INT, &a->threads, 1, 256, NULL, "N", "threads; the answer is the same for any number (default 1)"},
        {"why", OPT_FLAG, &a->why, 0, 0, NULL, NULL, "counts and examples of what was left out, and why"},
        {"exhaustive", OPT_FLAG, &a->exhaustive, 0, 0, NULL, NULL, "price every layout, without bounds; same answer (ZeRO-0, and ZeRO-2 in Megatron's pipelines, only with --fix zero=N)"},
        {"profile", OPT_STRING, &a->in.profile, 0, 0, NULL, "FILE", "your own profile, layered over the shipped one"},
        {"stack", OPT_STRING, &a->stack, 0, 0, NULL, "NAME", "software stack (default megatron; plansim profile list)"},
        {"launch", OPT_CHOICE, &a->launch, 0, 0, export_target_names, "NAME", "only plans that plansim export --to NAME writes, priced for that stack"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "default table"},
        {"out", OPT_STRING, &a->out, 0, 0, NULL, "FILE", "write the best plan (plan.json)"},
        {"chart", OPT_STRING, &a->chart, 0, 0, NULL, "FILE", "time breakdown of the plans (--pareto: time over memory) as PNG, SVG or PDF"},
        {"memory-chart", OPT_STRING, &a->memory_chart, 0, 0, NULL, "FILE", "memory per stage of the best plan as PNG, SVG or PDF"},
        {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    const char *positional[1];
    int n = 0;
    int result = opt_parse(table, argc, argv, positional, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(stdout, "plansim search --model config.json --cluster hw.json [OPTION]...",
                       "Ranks the plans for training a model on a cluster, fastest first.", table,
                       "plansim search --model config.json --cluster hw.json --gbs 1024 --seq 4096 --out best.plan.json");
    return result;
}

static int parse_schedules(const char *text, uint32_t *ret, struct err *err)
{
    int result = 0;
    uint32_t mask = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        char word[32], all[256];
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        text += length + (text[length] == ',');
        int i = names_find(schedule_names, word);
        const char *nearest = names_nearest(schedule_names, word);
        if (strcmp(word, "all") == 0)
            mask |= (1u << SCHEDULES) - 1;
        else if (i >= 0)
            mask |= 1u << i;
        else if (nearest)
            result = err_add(err, "--schedules knows no '%s'; did you mean '%s'?", word, nearest);
        else
            result = err_add(err, "--schedules knows no '%s'; it can be all or %s", word, names_join(schedule_names, all, sizeof all));
    }
    if (result == 0 && mask == 0)
        result = err_add(err, "--schedules names no schedule");
    *ret = mask;
    return result;
}

/* The batch nearest to 4 M tokens that a power of two of replicas divides. */
static int64_t assumed_batch(int64_t seq, int64_t accelerators)
{
    int64_t wanted = (int64_t)llround(4194304.0 / (double)seq), unit = accelerators;
    while (unit > wanted && unit % 2 == 0)
        unit /= 2;
    while (unit > wanted)
        unit = unit % 3 == 0 ? unit / 3 : 1;
    int64_t below = wanted / unit * unit;
    int64_t batch = wanted - below <= below + unit - wanted ? below : below + unit;
    return batch > 0 ? batch : 1;
}

static void assume(struct inputs *in, struct plan *base)
{
    if (base->seq_len == 0) {
        int64_t most = in->model.max_positions > 0 ? in->model.max_positions : 4096;
        base->seq_len = most < 4096 ? most : 4096;
        err_add(&in->warnings, "assumed --seq %lld (the smaller of max_position_embeddings and 4096)", (long long)base->seq_len);
    }
    if (base->global_batch == 0) {
        base->global_batch = assumed_batch(base->seq_len, in->cluster.accelerators);
        err_add(&in->warnings, "assumed --gbs %lld (nearest to 4 M tokens per step that the cluster divides)", (long long)base->global_batch);
    }
}

/* The options that are fields of the plan; --fix may state those that are not there. */
static void fill_base(const struct arguments *a, struct plan *base, const char **taken)
{
    const struct {
        const char *field;
        bool given;
    } options[] = {{"global_batch", a->gbs > 0}, {"seq_len", a->seq > 0}, {"precision", a->precision >= 0}, {"optimizer", a->optimizer >= 0},
                   {"lora_rank", a->lora_rank >= 0}, {"stack", a->stack != NULL}, {"schedule", a->schedules != NULL}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            *taken++ = options[i].field;
    base->global_batch = a->gbs;
    base->seq_len = a->seq;
    if (a->precision >= 0)
        base->precision = (enum precision)a->precision;
    if (a->optimizer >= 0)
        base->optimizer = (enum optimizer)a->optimizer;
    if (a->lora_rank >= 0)
        base->lora_rank = (int)a->lora_rank;
    if (a->stack || a->launch >= 0)
        snprintf(base->stack, sizeof base->stack, "%s", a->stack ? a->stack : export_target_names[a->launch]);
}

/* Once a second, from the first second on. */
static void say_progress(const char *what, int done, int all)
{
    static double said_s = -1;
    double now_s = clock_s();
    if (said_s >= 0 && now_s < said_s + 1)
        return;
    if (said_s >= 0)
        fprintf(stderr, "plansim search: %d of %d %s priced\n", done, all, what);
    said_s = now_s;
}

static int fill_options(const struct arguments *a, struct inputs *in, struct search_options *o, struct err *err)
{
    int result = 0;
    const char *taken[8] = {NULL};
    search_defaults(o);
    o->progress = say_progress;
    o->objective = a->objective;
    o->top = (int)a->top;
    o->threads = (int)a->threads;
    o->exhaustive = a->exhaustive;
    o->pareto = a->pareto;
    o->launch = a->launch;
    o->words = &in->words;
    fill_base(a, &o->base, taken);
    if (a->schedules && parse_schedules(a->schedules, &o->schedules, err) < 0)
        result = -1;
    if (a->fix && search_parse_fix(a->fix, taken, o, err) < 0)
        result = -1;
    if (inputs_add_stack(in, o->base.stack, err) < 0)
        result = -1;
    assume(in, &o->base);
    return result;
}

static void draw(const struct arguments *a, const struct inputs *in, const struct search_result *r)
{
    struct err err = {0};
    char title[300];
    snprintf(title, sizeof title, "%s on %s", in->model.name, in->cluster.name);
    if (a->chart)
        (a->pareto ? plan_chart_pareto : plan_chart_breakdown)(a->chart, title, r->plans, r->n, &err);
    if (a->memory_chart)
        plan_chart_memory(a->memory_chart, title, &r->plans[0], &err);
    inputs_print("search", "warning: ", &err);
}

static void print_header(const struct inputs *in, const struct search_options *o, const struct search_result *r)
{
    char count[32], total[32];
    struct model_parameters parameters;
    model_count_parameters(&in->model, &parameters);
    printf("%s (%.1f B parameters) on %s (%s x %s), batch %lld x %lld tokens, %s, stack %s\n", in->model.name, (double)parameters.total * 1e-9,
           in->cluster.name, unit_format_count(in->cluster.accelerators, count, sizeof count), in->cluster.accelerator.name,
           (long long)o->base.global_batch, (long long)o->base.seq_len, precision_names[o->base.precision], o->base.stack);
    printf("%s plans and layouts looked at; profile %s (%s)\n\n", unit_format_count(r->candidates, total, sizeof total),
           profile_name(in->profile), provenance_names[in->cluster.accelerator.provenance]);
    fprintf(stderr, "plansim search: %s plans priced in %.2f s\n", unit_format_count(r->evaluated, count, sizeof count), r->elapsed_s);
}

/* The leaders' intervals overlap so far that the order among them means little. */
static void print_tie(const struct search_options *o, const struct search_result *r)
{
    int tied = 1;
    while (!search_weighs_memory(o) && tied < r->n && r->plans[tied].step_time_s < r->plans[0].step_time_s * 1.02)
        tied++;
    if (tied > 1)
        printf("\nThe first %d plans are within 2 %%: a tie, as far as this prediction can tell.\n", tied);
}

static int answer(const struct arguments *a, struct inputs *in, const struct search_options *o, struct search_result *r, struct err *err)
{
    if (a->out && r->n > 0 && plan_save(a->out, &r->plans[0].plan, err) < 0) /* before the answer: without it there is none */
        return EXIT_MACHINE;
    if (a->format == 1)
        search_print_json(stdout, r, r->plans, r->n, in->profile, &in->warnings);
    else if (a->format == 2)
        search_print_csv(stdout, r->plans, r->n);
    else
        print_header(in, o, r);
    if (a->format == 0 && r->n > 0) {
        search_print_table(stdout, r->plans, r->n);
        print_tie(o, r);
    }
    if (a->why) {
        FILE *out = a->format == 0 ? stdout : stderr;
        fputc('\n', out);
        search_print_why(out, r);
    }
    if (r->n == 0) {
        search_print_advice(a->format == 0 ? stdout : stderr, &in->question, o, r);
        return EXIT_NO;
    }
    draw(a, in, r);
    return EXIT_ANSWERED;
}

static int try_launch(const struct arguments *a, const struct inputs *in, const struct plan *plan, struct err *err)
{
    char *text = NULL;
    const struct export_request request = {.plan = plan, .model = &in->model, .words = &in->words};
    int result = export_plan((enum export_target)a->launch, &request, &text, NULL, err);
    free(text);
    return result;
}

/* With any ZeRO and recomputation that the search may choose. */
static bool ever_launches(const struct arguments *a, const struct inputs *in, const struct search_options *o, struct plan plan)
{
    for (int i = 0; i < 4 * 3; i++) {
        plan.zero = o->fix.zero >= 0 ? o->fix.zero : i % 4;
        plan.recompute = (enum recompute)(o->fix.recompute >= 0 ? o->fix.recompute : i / 4);
        if (try_launch(a, in, &plan, NULL) == 0)
            return true;
    }
    return false;
}

static bool ever_launches_pipeline(const struct arguments *a, const struct inputs *in, const struct search_options *o, struct plan plan)
{
    plan.pp = 2;
    for (int i = 0; i < 2 * SCHEDULES; i++) {
        plan.schedule = (enum plan_schedule)(i / 2);
        plan.vp = 1 + i % 2;
        if (o->schedules >> plan.schedule & 1 && ever_launches(a, in, o, plan))
            return true;
    }
    return false;
}

/* A model, or a field of all plans, that the framework cannot run is said once, before all of them are refused for it:
 * what it refuses on one rank, whatever the search varies there, it refuses on all. Nor are pipelines and expert
 * parallelism looked at that it refuses in every form. */
static int check_launch(const struct arguments *a, const struct inputs *in, struct search_options *o, struct err *err)
{
    struct plan plan = o->base, experts;
    if (a->launch < 0)
        return 0;
    plan.tp = plan.cp = plan.pp = plan.vp = plan.dp = plan.ep = plan.etp = 1;
    if (!ever_launches(a, in, o, plan)) {
        plan.zero = o->fix.zero >= 0 ? o->fix.zero : 1;
        plan.recompute = o->fix.recompute >= 0 ? (enum recompute)o->fix.recompute : RECOMPUTE_NONE;
        return try_launch(a, in, &plan, err);
    }
    experts = plan;
    experts.ep = experts.dp = 2;
    if (o->fix.pp == 0 && !ever_launches_pipeline(a, in, o, plan))
        o->fix.pp = 1;
    if (o->fix.ep == 0 && !ever_launches(a, in, o, experts))
        o->fix.ep = 1;
    return 0;
}

static int run(const struct arguments *a, struct inputs *in, struct err *err)
{
    int code;
    struct search_options options;
    struct search_result result;
    if (inputs_load(in, &a->in, &code, err) < 0)
        return code;
    if (fill_options(a, in, &options, err) < 0)
        return EXIT_USAGE;
    if (check_launch(a, in, &options, err) < 0)
        return EXIT_NO;
    if (a->objective == OBJECTIVE_COST && in->cluster.price_per_accelerator_hour <= 0)
        err_add(&in->warnings, "the cluster has no price_per_accelerator_hour: --objective cost ranks by time, which is the same order");
    inputs_print("search", "warning: ", &in->warnings);
    if (search_run(&in->question, &options, &result, err) < 0) {
        search_release(&result);
        return EXIT_USAGE;
    }
    code = answer(a, in, &options, &result, err);
    search_release(&result);
    return code;
}

/* Each result needs a file of its own. */
static int check_outputs(const struct arguments *a, struct err *err)
{
    const struct {
        const char *option, *path;
    } outputs[] = {{"--out", a->out}, {"--chart", a->chart}, {"--memory-chart", a->memory_chart}};
    int result = 0;
    if (a->out && strcmp(a->out, "-") == 0)
        result = err_add(err, "--out cannot be '-': standard output carries the table (the plan is in --format json)");
    if (a->out && result == 0)
        result = file_check_folder(a->out, err);
    for (int i = 0; i < 3; i++)
        for (int j = i + 1; j < 3; j++)
            if (outputs[i].path && outputs[j].path && strcmp(outputs[i].path, outputs[j].path) == 0)
                result = err_add(err, "%s and %s name the same file '%s'", outputs[i].option, outputs[j].option, outputs[i].path);
    return result;
}

int cmd_search(int argc, char **argv)
{
    struct arguments a = {.top = 10, .threads = 1, .precision = -1, .optimizer = -1, .lora_rank = -1, .launch = -1};
    static struct inputs in;
    struct err err = {0};
    bool help = false;
    int code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0) {
        if (help)
            return EXIT_ANSWERED;
        if (check_outputs(&a, &err) == 0 && (!a.chart || chart_check_path(a.chart, &err) == 0) && (!a.memory_chart || chart_check_path(a.memory_chart, &err) == 0)) {
            code = run(&a, &in, &err);
            inputs_release(&in);
        }
    }
    inputs_print("search", "", &err);
    return code;
}
