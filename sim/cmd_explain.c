/* plansim explain: where a plan's time and memory go, op by op and stage by stage,
 * and why another plan is slower. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/opt.h"
#include "cost/base/unit.h"
#include "cost/ops.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/stages.h"
#include "sim/writers/chart.h"
#include "sim/writers/plan_charts.h"
#include "sim/writers/prediction.h"
#include "sim/writers/table.h"

struct arguments {
    struct input_options in;
    const char *plan, *versus, *chart, *memory_chart;
};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"model", OPT_STRING, &a->in.model, 0, 0, NULL, "FILE", "Hugging Face config.json"},
        {"cluster", OPT_STRING, &a->in.cluster, 0, 0, NULL, "FILE", "hw.json"},
        {"plan", OPT_STRING, &a->plan, 0, 0, NULL, "FILE", "plan.json"},
        {"versus", OPT_STRING, &a->versus, 0, 0, NULL, "FILE", "another plan.json to compare with"},
        {"profile", OPT_STRING, &a->in.profile, 0, 0, NULL, "FILE", "your own profile, layered over the shipped one"},
        {"max-memory", OPT_STRING, &a->in.max_memory, 0, 0, NULL, "X", "limit per accelerator: 0.9 or 72GiB (default: 0.94 of its memory)"},
        {"chart", OPT_STRING, &a->chart, 0, 0, NULL, "FILE", "time breakdown as PNG, SVG or PDF"},
        {"memory-chart", OPT_STRING, &a->memory_chart, 0, 0, NULL, "FILE", "memory per pipeline stage as PNG, SVG or PDF"},
        {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    const char *positional[1];
    int n = 0;
    int result = opt_parse(table, argc, argv, positional, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(stdout, "plansim explain --model config.json --cluster hw.json --plan a.json [--versus b.json] [OPTION]...",
                       "Shows where the time and the memory of a plan go, op by op and stage by stage;\n"
                       "with --versus, what makes the other plan slower or faster.",
                       table, "plansim explain --model config.json --cluster hw.json --plan a.json --versus b.json");
    return result;
}

enum { LINES_MAX = 128 };

/* Ops of one layer kind, merged by name over their phases. */
static void print_ops(const struct inputs *in, const struct plan *plan, int kind)
{
    struct op_line line[LINES_MAX];
    struct op_log log = {.max = LINES_MAX, .line = line};
    struct ops_context context;
    struct layer_price price;
    char text[3][32];
    ops_context_init(&context, &in->model, &in->cluster, plan, question_stack(&in->question, plan->stack), &log);
    ops_price_layer(&context, kind, &price);
    struct table *table = table_new("  ");
    char title[64];
    snprintf(title, sizeof title, "%s layer (%lld of them)", in->model.kinds[kind].moe ? "MoE" : "dense", (long long)in->model.kinds[kind].layers);
    table_column(table, title, TABLE_LEFT);
    table_column(table, "kind", TABLE_LEFT);
    for (int phase = 0; phase < PHASES; phase++)
        table_column(table, phase_names[phase], TABLE_RIGHT);
    table_column(table, "TFLOP/s in F", TABLE_RIGHT);
    for (int i = 0; i < log.n; i++) {
        double seconds[PHASES] = {0}, flop = 0;
        bool first = true;
        for (int j = 0; j < i && first; j++)
            first = strcmp(line[j].name, line[i].name) != 0 || line[j].op_class != line[i].op_class;
        if (!first)
            continue;
        for (int j = i; j < log.n; j++) {
            if (strcmp(line[j].name, line[i].name) != 0 || line[j].op_class != line[i].op_class)
                continue;
            seconds[line[j].phase] += line[j].seconds;
            flop += line[j].phase == PHASE_F ? line[j].flop : 0;
        }
        table_cell(table, "%s", line[i].name);
        table_cell(table, "%s", op_class_names[line[i].op_class]);
        for (int phase = 0; phase < PHASES; phase++)
            table_cell(table, "%s", seconds[phase] > 0 ? unit_format_seconds(seconds[phase], text[phase], sizeof text[phase]) : "");
        if (flop > 0 && seconds[PHASE_F] > 0)
            table_cell(table, "%.0f", flop / seconds[PHASE_F] * 1e-12);
        else
            table_cell(table, "%s", "");
    }
    table_print(table, stdout);
    table_free(table);
    putchar('\n');
}

/* Which groups there are, and which links each of them crosses. */
static void print_groups(const struct inputs *in, const struct plan *plan)
{
    static const struct { const char *name; enum plan_group which; } groups[] = {
        {"tensor", GROUP_TP}, {"context", GROUP_CP}, {"expert", GROUP_EP}, {"expert tensor", GROUP_ETP}, {"data (dense)", GROUP_DP_CP},
        {"data (experts)", GROUP_EXPERT_DP}, {"pipeline hop", GROUP_PP}};
    static const char *const titles[] = {"group", "ranks", "nodes", "in a node", "link", "GB/s a node", "groups sharing it"};
    struct table *table = table_new("  ");
    for (int i = 0; i < 7; i++)
        table_column(table, titles[i], i == 0 || i == 4 ? TABLE_LEFT : TABLE_RIGHT);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct rank_group group;
        struct span span;
        plan_rank_group(plan, groups[i].which, &group);
        if (groups[i].which == GROUP_PP)
            cluster_hop(&in->cluster, &group, plan_world(plan), &span);
        else
            cluster_span(&in->cluster, &group, plan_world(plan), &span);
        if (span.ranks <= 1 || (groups[i].which == GROUP_EXPERT_DP && in->model.experts == 0))
            continue;
        const struct node_group *node = &in->cluster.group[span.node_group];
        bool inside = span.nodes <= 1;
        table_cell(table, "%s", groups[i].name);
        table_cell(table, "%lld", (long long)span.ranks);
        table_cell(table, "%lld", (long long)span.nodes);
        table_cell(table, "%d", span.ranks_per_node);
        table_cell(table, "%s", inside ? node->intra.name : node->fabric.name);
        table_cell(table, "%.0f", (inside ? node->intra.bytes_per_s * span.ranks_per_node : span.nic_bytes_per_s) * 1e-9);
        table_cell(table, "%d", span.groups_per_node);
    }
    table_print(table, stdout);
    table_free(table);
    putchar('\n');
}

static void print_stages(const struct prediction *p)
{
    struct table *table = table_new("  ");
    table_column(table, "stage", TABLE_RIGHT);
    for (int part = 0; part < MEMORY_PARTS; part++)
        table_column(table, memory_part_names[part], TABLE_RIGHT);
    table_column(table, "total GiB", TABLE_RIGHT);
    for (int i = 0; i < p->n_stages; i++) {
        table_cell(table, "%d%s", i, i == p->worst_stage ? " *" : "");
        for (int part = 0; part < MEMORY_PARTS; part++)
            table_cell(table, "%.2f", p->stage[i].bytes[part] / UNIT_GIB);
        table_cell(table, "%.2f", p->stage[i].total / UNIT_GIB);
    }
    puts("memory by pipeline rank, GiB (* heaviest)");
    table_print(table, stdout);
    table_free(table);
    putchar('\n');
}

static void print_versus(const struct prediction *a, const struct prediction *b)
{
    char plan[256], text[3][32];
    struct table *table = table_new("  ");
    int most = 0;
    printf("\nversus       %s\n", plan_format(&b->plan, plan, sizeof plan));
    table_column(table, "part", TABLE_LEFT);
    table_column(table, "this", TABLE_RIGHT);
    table_column(table, "other", TABLE_RIGHT);
    table_column(table, "other - this", TABLE_RIGHT);
    for (int i = 0; i < TIME_PARTS; i++) {
        double difference = b->time_s[i] - a->time_s[i];
        if (fabs(difference) > fabs(b->time_s[most] - a->time_s[most]))
            most = i;
        table_cell(table, "%s", time_part_names[i]);
        table_cell(table, "%s", unit_format_seconds(a->time_s[i], text[0], sizeof text[0]));
        table_cell(table, "%s", unit_format_seconds(b->time_s[i], text[1], sizeof text[1]));
        table_cell(table, "%s%s", difference >= 0 ? "+" : "-", unit_format_seconds(fabs(difference), text[2], sizeof text[2]));
    }
    table_rule(table);
    double difference = b->step_time_s - a->step_time_s;
    table_cell(table, "step");
    table_cell(table, "%s", unit_format_seconds(a->step_time_s, text[0], sizeof text[0]));
    table_cell(table, "%s", unit_format_seconds(b->step_time_s, text[1], sizeof text[1]));
    table_cell(table, "%s%s", difference >= 0 ? "+" : "-", unit_format_seconds(fabs(difference), text[2], sizeof text[2]));
    table_print(table, stdout);
    table_free(table);
    double ratio = 100 * (b->step_time_s / a->step_time_s - 1);
    if (fabs(difference) < 1e-9 * a->step_time_s && fabs(b->peak_bytes - a->peak_bytes) < 1) {
        puts("The other plan takes the same time and memory.");
        return;
    }
    printf("The other plan is %.1f %% %s, most of it in %s; it needs %s %s memory.\n", fabs(ratio), ratio >= 0 ? "slower" : "faster",
           time_part_names[most], unit_format_bytes(fabs(b->peak_bytes - a->peak_bytes), text[0], sizeof text[0]),
           b->peak_bytes >= a->peak_bytes ? "more" : "less");
}

static int load_plan(struct inputs *in, const char *path, struct plan *ret, struct err *err)
{
    if (plan_load(path, ret, &in->warnings, err) < 0 || inputs_add_stack(in, ret->stack, err) < 0)
        return -1;
    return plan_check(ret, &in->model, &in->cluster, &in->warnings, err);
}

static int run(const struct arguments *a, struct inputs *in, struct prediction *p, struct err *err)
{
    int code;
    struct plan plan[2];
    if (inputs_load(in, &a->in, &code, err) < 0)
        return code;
    int n = a->versus ? 2 : 1, result = load_plan(in, a->plan, &plan[0], err);
    if (n == 2 && load_plan(in, a->versus, &plan[1], err) < 0)
        result = -1;
    for (int i = 0; i < n && result == 0; i++)
        result = predict_plan(&in->question, &plan[i], &p[i], err);
    if (result < 0)
        return EXIT_INPUT;
    inputs_print("explain", "warning: ", &in->warnings);
    prediction_print(stdout, &p[0], in->profile);
    putchar('\n');
    print_groups(in, &plan[0]);
    for (int kind = 0; kind < in->model.n_kinds; kind++)
        print_ops(in, &plan[0], kind);
    print_stages(&p[0]);
    if (n == 2)
        print_versus(&p[0], &p[1]);
    struct err chart = {0};
    char title[300];
    snprintf(title, sizeof title, "%s on %s", in->model.name, in->cluster.name);
    if (a->chart)
        plan_chart_breakdown(a->chart, title, p, n, &chart);
    if (a->memory_chart)
        plan_chart_memory(a->memory_chart, title, &p[0], &chart);
    inputs_print("explain", "warning: ", &chart);
    return p[0].fits ? EXIT_ANSWERED : EXIT_NO;
}

int cmd_explain(int argc, char **argv)
{
    struct arguments a = {0};
    static struct inputs in;
    static struct prediction p[2];
    struct err err = {0};
    bool help = false;
    int code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0) {
        if (help)
            return EXIT_ANSWERED;
        if (!a.plan) {
            err_add(&err, "--plan FILE is needed");
        } else if (inputs_check_stdin(&a.in, a.plan, a.versus, &err) == 0 && (!a.chart || chart_check_path(a.chart, &err) == 0) && (!a.memory_chart || chart_check_path(a.memory_chart, &err) == 0)) {
            code = run(&a, &in, &p[0], &err);
            inputs_release(&in);
        }
    }
    inputs_print("explain", "", &err);
    return code;
}
