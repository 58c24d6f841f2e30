/* plansim compare: all schedules side by side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/opt.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/pricing.h"
#include "sim/writers/chart.h"
#include "sim/writers/compare_charts.h"
#include "sim/writers/table.h"

enum { FORMAT_TEXT, FORMAT_JSON };
static const char *const formats[] = {"text", "json", NULL};

struct arguments {
    const char *schedules, *cost, *stage_cost, *chart, *bubble_chart;
    int64_t pp, vp, micro_batches, group;
    double memory_limit, freed_by_b;
    bool blocking;
    int format;
};

static const char about[] =
    "Prices every pipeline schedule at the same sizes and costs. Costs, makespan, bubble, span\n"
    "and activations as in 'plansim schedule --help'; activations of the rank that holds\n"
    "most. weights: copies of a rank's share. * marks the schedules that no other beats in\n"
    "makespan and activations both. A schedule that does not allow the sizes is listed with\n"
    "the reason.";

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"pp", OPT_INT, &a->pp, 1, PROGRAM_RANKS_MAX, NULL, "P", "pipeline ranks"},
        {"microbatches", OPT_INT, &a->micro_batches, 1, PROGRAM_MICRO_BATCHES_MAX, NULL, "M", "micro-batches"},
        {"vp", OPT_INT, &a->vp, 1, PROGRAM_STAGES_MAX, NULL, "V",
         "chunks per rank of schedules that may choose (default 2)"},
        {"cost", OPT_STRING, &a->cost, 0, 0, NULL, "LIST",
         "F=1,B=1,W=1[,comm=0][,overlap=max|sum|half|N] (default F=1,B=1,W=1)"},
        {"stage-cost", OPT_STRING, &a->stage_cost, 0, 0, NULL, "FILE",
         "CSV stage,F,B,W; schedules with another number of stages are left out"},
        {"schedules", OPT_STRING, &a->schedules, 0, 0, NULL, "LIST", "only these, e.g. 1f1b,zb-h1 (default all)"},
        {"group", OPT_INT, &a->group, 1, PROGRAM_MICRO_BATCHES_MAX, NULL, "G",
         "interleaved: micro-batches per group (default P, or the next valid)"},
        {"memory-limit", OPT_DOUBLE, &a->memory_limit, 1, 1e9, NULL, "X",
         "zb-auto, zb-v-auto: activations per rank, in whole stages (default P)"},
        {"freed-by-b", OPT_DOUBLE, &a->freed_by_b, 0, 1, NULL, "S",
         "zb-auto, zb-v-auto: share of an activation that B frees (default 0)"},
        {"blocking", OPT_FLAG, &a->blocking, 0, 0, NULL, NULL,
         "the sender computes nothing until its message has arrived"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "text (default) or json"},
        {"chart", OPT_STRING, &a->chart, 0, 0, NULL, "FILE", "makespan against peak activations: .png, .svg or .pdf"},
        {"bubble-chart", OPT_STRING, &a->bubble_chart, 0, 0, NULL, "FILE",
         "bubble against micro-batches, up to M: .png, .svg or .pdf"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    int n = 0, result = opt_parse(table, argc, argv, NULL, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(stdout, "plansim compare --pp P --microbatches M [OPTION]...", about, table,
                       "plansim compare --pp 8 --microbatches 32 --cost F=2,B=3,W=1,comm=0.1");
    return result;
}

/* One schedule's answer, or why there is none. */
struct row {
    enum plan_schedule schedule;
    int vp;
    bool priced, pareto;
    double makespan, ideal, bubble_fraction, span, peak_activations;
    double *idle, *activations; /* [pp] */
    struct err reason;
};

struct answer {
    struct pricing pricing;
    int pp, micro_batches;
    int n;
    struct row *rows;
};

static int select_schedules(const char *list, struct answer *answer, struct err *err)
{
    char copy[512], known[512];
    if (!list || strcmp(list, "all") == 0) {
        for (answer->n = 0; answer->n < SCHEDULES; answer->n++)
            answer->rows[answer->n].schedule = (enum plan_schedule)answer->n;
        return 0;
    }
    if (strlen(list) >= sizeof copy)
        return err_add(err, "schedules: the list is too long");
    memcpy(copy, list, strlen(list) + 1);
    for (char *word = copy, *next; word; word = next) {
        next = strchr(word, ',');
        if (next)
            *next++ = 0;
        int index = names_find(schedule_names, word);
        const char *nearest = names_nearest(schedule_names, word);
        if (index < 0 && nearest)
            return err_add(err, "unknown schedule '%s'; did you mean '%s'?", word, nearest);
        if (index < 0)
            return err_add(err, "unknown schedule '%s'; known: %s", word,
                           names_join(schedule_names, known, sizeof known));
        for (int i = 0; i < answer->n; i++)
            if (answer->rows[i].schedule == (enum plan_schedule)index)
                return err_add(err, "schedule '%s' is listed twice", word);
        answer->rows[answer->n++].schedule = (enum plan_schedule)index;
    }
    return 0;
}

static void price_row(const struct arguments *a, const struct answer *answer, struct row *row,
                      struct arena *answer_arena)
{
    const struct schedule *s = schedule_of(row->schedule);
    struct arena arena = {0};
    struct priced priced;
    struct schedule_request request = {.pp = (int)a->pp,
                                       .micro_batches = (int)a->micro_batches,
                                       .memory_limit = a->memory_limit,
                                       .freed_by_b = a->freed_by_b};
    bool flexible = s->vp_max > 2;
    request.vp = row->vp = flexible && a->vp ? (int)a->vp : s->vp_default;
    if (flexible)
        request.group = (int)a->group;
    if (pricing_schedule(&answer->pricing, row->schedule, &request, false, &arena, &priced, &row->reason) < 0) {
        if (strncmp(row->reason.text, s->name, strlen(s->name)) != 0) /* a schedule's own sentences name it */
            err_prefix(&row->reason, 0, "%s: ", s->name);
    } else {
        row->priced = true;
        row->makespan = priced_units(&priced, priced.timeline.makespan_ps);
        row->ideal = timeline_ideal_ps(&priced.timeline) / priced.ticks_per_unit;
        row->bubble_fraction = timeline_bubble_fraction(&priced.timeline);
        row->span = priced_units(&priced, priced.timeline.span_ps);
        row->peak_activations = priced_peak_activations(&priced);
        row->idle = arena_array(answer_arena, (size_t)a->pp, sizeof *row->idle);
        row->activations = arena_array(answer_arena, (size_t)a->pp, sizeof *row->activations);
        for (int r = 0; r < priced.timeline.ranks; r++) {
            row->idle[r] = priced_units(&priced, priced.timeline.makespan_ps - priced.timeline.rank[r].busy_ps);
            row->activations[r] = priced.timeline.rank[r].peak_in_flight * priced.stages_per_chunk;
        }
    }
    arena_release(&arena);
}

static bool beats(const struct row *a, const struct row *b)
{
    return a->priced && a->makespan <= b->makespan && a->peak_activations <= b->peak_activations &&
           (a->makespan < b->makespan || a->peak_activations < b->peak_activations);
}

static void mark_pareto(struct answer *answer)
{
    for (int i = 0; i < answer->n; i++) {
        answer->rows[i].pareto = answer->rows[i].priced;
        for (int j = 0; j < answer->n; j++)
            if (beats(&answer->rows[j], &answer->rows[i]))
                answer->rows[i].pareto = false;
    }
}

/* ---- output ---- */

static void print_text(const struct answer *answer)
{
    struct table *table = table_new("  ");
    static const char *const columns[] = {"makespan", "bubble %", "span", "activations", "weights"};
    const struct pricing *p = &answer->pricing;
    char overlap[32];
    if (p->stage_cost[0])
        printf("pp %d, %d micro-batches; costs per stage from %s, one hop %.6g\n\n", answer->pp, answer->micro_batches,
               p->stage_cost_file, p->comm);
    else
        printf(
            "pp %d, %d micro-batches; F %.6g, B %.6g, W %.6g per rank and micro-batch, one hop %.6g, overlapped slots: %s\n\n",
            answer->pp, answer->micro_batches, p->cost[0], p->cost[1], p->cost[2], p->comm,
            pricing_overlap(p, overlap, sizeof overlap));
    table_column(table, "schedule", TABLE_LEFT);
    table_column(table, "vp", TABLE_RIGHT);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        table_column(table, columns[i], TABLE_RIGHT);
    table_column(table, "", TABLE_LEFT);
    for (int i = 0; i < answer->n; i++) {
        const struct row *row = &answer->rows[i];
        if (!row->priced)
            continue;
        table_cell(table, "%s", schedule_names[row->schedule]);
        table_cell(table, "%d", row->vp);
        table_cell(table, "%.6g", row->makespan);
        table_cell(table, "%.2f", 100 * row->bubble_fraction);
        table_cell(table, "%.6g", row->span);
        table_cell(table, "%.6g", row->peak_activations);
        table_cell(table, "%dx", schedule_of(row->schedule)->weight_copies);
        table_cell(table, "%s", row->pareto ? "*" : "");
    }
    table_print(table, stdout);
    table_free(table);
    for (int i = 0, n = 0; i < answer->n; i++)
        if (!answer->rows[i].priced)
            printf("%snot possible: %s\n", n++ ? "" : "\n", answer->rows[i].reason.text);
}

static void put_cost(struct json *root, const struct pricing *p)
{
    struct json *cost = json_put_object(root, "cost");
    if (p->stage_cost[0]) {
        json_put_string(cost, "stage_cost", p->stage_cost_file);
    } else {
        json_put_number(cost, "F", p->cost[0]);
        json_put_number(cost, "B", p->cost[1]);
        json_put_number(cost, "W", p->cost[2]);
    }
    json_put_number(cost, "comm", p->comm);
    if (p->slot_cost > 0)
        json_put_number(cost, "overlap", p->slot_cost);
    else
        json_put_string(cost, "overlap", engine_slot_names[p->slot]);
}

static void put_list(struct json *object, const char *name, const double *values, int n)
{
    struct json *list = json_put_array(object, name);
    for (int i = 0; i < n; i++)
        json_push_number(list, values[i]);
}

static void print_json(const struct answer *answer)
{
    struct json *root = json_new_object();
    json_put_int(root, "pp", answer->pp);
    json_put_int(root, "microbatches", answer->micro_batches);
    put_cost(root, &answer->pricing);
    struct json *schedules = json_put_array(root, "schedules"), *refused = json_put_array(root, "refused");
    for (int i = 0; i < answer->n; i++) {
        const struct row *row = &answer->rows[i];
        struct json *object = json_new_object();
        json_push(row->priced ? schedules : refused, object);
        json_put_string(object, "schedule", schedule_names[row->schedule]);
        if (!row->priced) {
            json_put_string(object, "reason", row->reason.text);
            continue;
        }
        json_put_int(object, "pp", answer->pp);
        json_put_int(object, "vp", row->vp);
        json_put_int(object, "microbatches", answer->micro_batches);
        json_put_number(object, "makespan", row->makespan);
        json_put_number(object, "ideal", row->ideal);
        json_put_number(object, "bubble_fraction", row->bubble_fraction);
        json_put_number(object, "span", row->span);
        put_list(object, "bubble_per_rank", row->idle, answer->pp);
        put_list(object, "peak_activations_per_rank", row->activations, answer->pp);
        json_put_number(object, "peak_activations", row->peak_activations);
        json_put_int(object, "weight_copies", schedule_of(row->schedule)->weight_copies);
        json_put_bool(object, "pareto", row->pareto);
    }
    char *text = json_print(root);
    fputs(text, stdout);
    free(text);
    json_free(root);
}

static int ask(const struct arguments *a, struct answer *answer, struct err *err)
{
    pricing_defaults(&answer->pricing);
    answer->pricing.blocking_sends = a->blocking;
    answer->pp = (int)a->pp;
    answer->micro_batches = (int)a->micro_batches;
    if (a->pp == 0 || a->micro_batches == 0)
        return err_add(err, "--pp and --microbatches are needed");
    if (a->cost && pricing_parse_cost(a->cost, &answer->pricing, err) < 0)
        return -1;
    if ((a->chart && chart_check_path(a->chart, err) < 0) ||
        (a->bubble_chart && chart_check_path(a->bubble_chart, err) < 0))
        return -1;
    return select_schedules(a->schedules, answer, err);
}

/* Pictures are extras: not being able to draw is said, and no failure. */
static void draw_charts(const struct arguments *a, const struct answer *answer)
{
    struct err warn = {0};
    struct compare_point points[SCHEDULES];
    enum plan_schedule which[SCHEDULES];
    char title[128];
    int n = 0;
    for (int i = 0; i < answer->n; i++) {
        const struct row *row = &answer->rows[i];
        which[i] = row->schedule;
        if (row->priced)
            points[n++] = (struct compare_point){row->schedule, row->makespan, row->peak_activations, row->pareto};
    }
    snprintf(title, sizeof title, "makespan against memory: pp %d, %d micro-batches", answer->pp,
             answer->micro_batches);
    if (a->chart)
        compare_chart_scatter(a->chart, title, points, n, &warn);
    if (a->bubble_chart)
        compare_chart_bubbles(a->bubble_chart, &answer->pricing, answer->pp, (int)a->vp, answer->micro_batches, which,
                              answer->n, &warn);
    inputs_print("compare", "warning: ", &warn);
}

/* Prices all; exit 1 when not one schedule is possible. */
static int compare(const struct arguments *a, struct answer *answer, struct arena *arena)
{
    int priced = 0;
    for (int i = 0; i < answer->n; i++) {
        price_row(a, answer, &answer->rows[i], arena);
        priced += answer->rows[i].priced;
    }
    mark_pareto(answer);
    if (a->format == FORMAT_JSON)
        print_json(answer);
    else
        print_text(answer);
    return priced ? EXIT_ANSWERED : EXIT_NO;
}

int cmd_compare(int argc, char **argv)
{
    struct arguments a = {0};
    struct err err = {0};
    struct arena arena = {0};
    struct answer answer = {.rows = arena_array(&arena, SCHEDULES, sizeof *answer.rows)};
    bool help = false;
    int code = EXIT_ANSWERED;
    if (parse(&a, argc, argv, &help, &err) < 0 || (!help && ask(&a, &answer, &err) < 0))
        code = EXIT_USAGE;
    else if (!help && a.stage_cost && pricing_load_stage_costs(a.stage_cost, &arena, &answer.pricing, &err) < 0)
        code = EXIT_INPUT;
    else if (!help)
        code = compare(&a, &answer, &arena);
    if (!help && (code == EXIT_ANSWERED || code == EXIT_NO))
        draw_charts(&a, &answer);
    inputs_print("compare", "", &err);
    arena_release(&arena);
    return code;
}
