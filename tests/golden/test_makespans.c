/* Every row of makespans.csv: the order file is read, priced by the engine and
 * compared: makespan, ideal, bubbles, span and peaks.
 *
 * Table: order x cost setting -> numbers of a public simulator of the published
 * schedules. Costs are per full stage of a rank; a chunk takes 1/V of it, each of
 * DualPipe's modules is a whole stage. Tolerance: makespans and times 1e-9
 * relative (the engine is exact; the table is printed with 6 digits after the
 * point, so half a unit of the sixth digit is allowed as well), peaks exact.
 *
 * A small cited part is built in, so that something is tested everywhere. */
#include <inttypes.h>
#include <math.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/program_csv.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "tests/golden/golden_csv.h"
#include "tests/unit/test.h"

#define TICKS 1e9 /* of the engine's clock per unit of cost */

struct setting {
    double forward, backward, wgrad, comm;
    bool nonuniform; /* stage 0: F and W + 0.25, last stage: F, B and W + 0.5 each, not divided by V */
    enum engine_slot slot;
    int iterations;
    enum engine_sync sync;
};

static int64_t ticks(double cost)
{
    return (int64_t)llround(cost * TICKS);
}

static int price(const struct program *p, const struct setting *setting, struct arena *arena, struct timeline *ret)
{
    int n = p->stages;
    int64_t *costs = arena_array(arena, 4 * (size_t)n, sizeof *costs);
    double share = (double)p->pp / n;
    for (int s = 0; s < n; s++) {
        double first = setting->nonuniform && s == 0 ? 0.25 : 0, last = setting->nonuniform && s == n - 1 ? 0.5 : 0;
        costs[s] = ticks(setting->forward * share + first + last);
        costs[n + s] = ticks(setting->backward * share + last);
        costs[2 * n + s] = ticks(setting->wgrad * share + first + last);
        costs[3 * n + s] = ticks(setting->comm);
    }
    struct engine_costs engine = {.forward_ps = costs,
                                  .backward_ps = costs + n,
                                  .wgrad_ps = costs + 2 * n,
                                  .p2p_ps = costs + 3 * n,
                                  .slot = setting->slot,
                                  .iterations = setting->iterations,
                                  .sync = setting->sync};
    struct err err = {0};
    if (engine_run(p, &engine, arena, ret, &err) == 0)
        return 0;
    printf("%s\n", err.text);
    test_count(false);
    return -1;
}

static void expect(const char *where, const char *what, double got, double wanted)
{
    if (!test_count(fabs(got - wanted) <= 1e-9 * fabs(wanted) + 5.1e-7))
        printf("%s: %s is %.12g, expected %.12g\n", where, what, got, wanted);
}

/* "5|5|4": one number per rank, or one for all. */
static void expect_ranks(const char *where, const char *what, const struct timeline *t, const double *got,
                         const char *cell)
{
    for (int r = 0; r < t->ranks; r++) {
        char *end;
        expect(where, what, got[r], strtod(cell, &end));
        cell = *end == '|' ? end + 1 : cell;
    }
}

static double idle_of(const struct timeline *t, int64_t busy_ps)
{
    return (double)(t->makespan_ps - busy_ps) / TICKS;
}

/* ---- the built-in part ---- */

static const struct {
    enum plan_schedule schedule;
    int pp, vp, micro_batches;
    double forward, backward, wgrad, comm, makespan, span; /* span 0 = makespan */
    const char *source;
} cited[] = {
    {SCHEDULE_GPIPE, 4, 1, 8, 1, 1, 1, 0, 33, 0, "arXiv:1811.06965: (M+P-1) u"},
    {SCHEDULE_1F1B, 4, 1, 8, 1, 1, 1, 0, 33, 0, "arXiv:2104.04473, section 2.2.1"},
    {SCHEDULE_1F1B, 8, 1, 32, 4, 4.4, 3.1, 0.2, 462.1, 0, "Megatron-LM d98e8a64, executed"},
    {SCHEDULE_INTERLEAVED, 4, 2, 8, 1, 1, 1, 0, 28.5, 0, "arXiv:2104.04473, section 2.2.2: (P-1) u / V"},
    {SCHEDULE_INTERLEAVED, 8, 2, 16, 4, 4.4, 3.1, 0.2, 230.25, 0, "Megatron-LM d98e8a64, executed"},
    {SCHEDULE_LOOPED_BFS, 4, 2, 8, 1, 1, 1, 0, 28.5, 0, "arXiv:2211.05953: bubble of interleaved"},
    {SCHEDULE_ZB_H1, 4, 1, 8, 1, 1, 1, 0, 27, 0, "arXiv:2401.10241: (P-1)(F+B-W)"},
    {SCHEDULE_ZB_H1, 4, 1, 8, 4, 4.4, 3.1, 0.2, 110.3, 0, "Megatron-DeepSpeed's ZB-H1 order"},
    {SCHEDULE_ZB_H2, 4, 1, 8, 1, 1, 1, 0, 27, 24, "arXiv:2401.10241: zero bubble of the span"},
    {SCHEDULE_ZB_V, 8, 2, 32, 1, 1, 1, 0, 99.5, 96, "arXiv:2405.15362: zero bubble of the span"},
    {SCHEDULE_V_HALF, 4, 2, 8, 2, 3, 1, 0, 62, 0, "zero-bubble 39f2c186, zbv_greedy.py"},
    {SCHEDULE_V_MIN, 4, 2, 8, 2, 3, 1, 0, 83.5, 0, "zero-bubble 39f2c186, zbv_greedy.py"},
    {SCHEDULE_DUALPIPE, 4, 1, 8, 1, 1, 1, 0, 26, 0, "DualPipe 3da1bbea, executed: bubble (P/2-1)(FB+BW-3W) = 2"},
};

static void test_cited(void)
{
    for (size_t i = 0; i < sizeof cited / sizeof *cited; i++) {
        struct arena arena = {0};
        struct err err = {0};
        struct program program;
        struct timeline timeline;
        struct schedule_request request = {
            .pp = cited[i].pp, .vp = cited[i].vp, .micro_batches = cited[i].micro_batches};
        struct setting setting = {
            cited[i].forward, cited[i].backward, cited[i].wgrad, cited[i].comm, false, SLOT_SUM, 1, SYNC_BARRIER};
        if (schedule_emit(cited[i].schedule, &request, &arena, &program, &err) < 0) {
            printf("%s: %s\n", cited[i].source, err.text);
            test_count(false);
        } else if (price(&program, &setting, &arena, &timeline) == 0) {
            expect(cited[i].source, "makespan", (double)timeline.makespan_ps / TICKS, cited[i].makespan);
            expect(cited[i].source, "span", (double)timeline.span_ps / TICKS,
                   cited[i].span > 0 ? cited[i].span : cited[i].makespan);
        }
        arena_release(&arena);
    }
}

/* ---- the whole table ---- */

struct columns {
    int order, setting, forward, backward, wgrad, comm, slot, makespan, ideal, total, mean, min, fraction, span,
        span_bubble;
    int peak_w, peak_b, average;
};

static struct columns find_columns(char **cells, int n)
{
    return (struct columns){
        .order = golden_column(cells, n, "order_file"),
        .setting = golden_column(cells, n, "cost_setting"),
        .forward = golden_column(cells, n, "F"),
        .backward = golden_column(cells, n, "B"),
        .wgrad = golden_column(cells, n, "W"),
        .comm = golden_column(cells, n, "comm"),
        .slot = golden_column(cells, n, "fb_mode"),
        .makespan = golden_column(cells, n, "makespan"),
        .ideal = golden_column(cells, n, "ideal"),
        .total = golden_column(cells, n, "bubble_total"),
        .mean = golden_column(cells, n, "bubble_mean"),
        .min = golden_column(cells, n, "bubble_min"),
        .fraction = golden_column(cells, n, "bubble_frac"),
        .span = golden_column(cells, n, "span_max"),
        .span_bubble = golden_column(cells, n, "span_bubble_max"),
        .peak_w = golden_column(cells, n, "peak_count_until_W"),
        .peak_b = golden_column(cells, n, "peak_count_until_B"),
        .average = golden_column(cells, n, "avg_count_until_W"),
    };
}

static void compare_ranks(const char *where, const struct timeline *t, char **cells, const struct columns *c)
{
    double *values = calloc((size_t)t->ranks, sizeof *values);
    for (int r = 0; r < t->ranks; r++)
        values[r] = t->rank[r].peak_in_flight;
    expect_ranks(where, "peak until W", t, values, cells[c->peak_w]);
    for (int r = 0; r < t->ranks; r++)
        values[r] = t->rank[r].peak_in_flight_b;
    expect_ranks(where, "peak until B", t, values, cells[c->peak_b]);
    for (int r = 0; r < t->ranks; r++)
        values[r] = t->rank[r].in_flight_ps / (double)t->makespan_ps;
    expect_ranks(where, "mean in flight", t, values, cells[c->average]);
    free(values);
}

static void compare_row(const struct program *program, char **cells, const struct columns *c, int line)
{
    struct setting setting = {atof(cells[c->forward]),
                              atof(cells[c->backward]),
                              atof(cells[c->wgrad]),
                              atof(cells[c->comm]),
                              strncmp(cells[c->setting], "nonuni", 6) == 0,
                              SLOT_SUM,
                              1,
                              SYNC_BARRIER};
    for (int i = 0; engine_slot_names[i]; i++)
        if (strcmp(cells[c->slot], engine_slot_names[i]) == 0)
            setting.slot = (enum engine_slot)i;
    struct arena arena = {0};
    struct timeline t;
    char where[200];
    snprintf(where, sizeof where, "line %d: %s, %s %s", line, cells[c->order], cells[c->setting], cells[c->slot]);
    if (price(program, &setting, &arena, &t) == 0) {
        int64_t most = 0, total = 0, span_bubble = 0;
        for (int r = 0; r < t.ranks; r++) {
            const struct timeline_rank *rank = &t.rank[r];
            int64_t bubble = rank->end_ps - rank->start_ps - rank->busy_ps;
            most = rank->busy_ps > most ? rank->busy_ps : most;
            span_bubble = bubble > span_bubble ? bubble : span_bubble;
            total += t.makespan_ps - rank->busy_ps;
        }
        expect(where, "makespan", (double)t.makespan_ps / TICKS, atof(cells[c->makespan]));
        expect(where, "ideal", timeline_ideal_ps(&t) / TICKS, atof(cells[c->ideal]));
        expect(where, "bubble_total", (double)total / TICKS, atof(cells[c->total]));
        expect(where, "bubble_mean", (double)total / TICKS / t.ranks, atof(cells[c->mean]));
        expect(where, "bubble_min", idle_of(&t, most), atof(cells[c->min]));
        expect(where, "bubble_frac", timeline_bubble_fraction(&t), atof(cells[c->fraction]));
        expect(where, "span_max", (double)t.span_ps / TICKS, atof(cells[c->span]));
        expect(where, "span_bubble_max", (double)span_bubble / TICKS, atof(cells[c->span_bubble]));
        compare_ranks(where, &t, cells, c);
    }
    arena_release(&arena);
}

static int load_order(const char *name, struct arena *arena, struct program *ret)
{
    char path[GOLDEN_PATH], file[300];
    struct err err = {0};
    snprintf(file, sizeof file, "orders/%s.csv", name);
    if (program_load(golden_path(path, file), arena, ret, &err) == 0)
        return 0;
    printf("%s\n", err.text);
    test_count(false);
    return -1;
}

static void test_table(void)
{
    char path[GOLDEN_PATH], line[GOLDEN_LINE], *cells[GOLDEN_CELLS], order[200] = "";
    FILE *in = fopen(golden_path(path, "makespans.csv"), "r");
    if (!in) {
        test_skip("the table of the original implementations is not here");
        return;
    }
    struct columns columns = {0};
    struct arena arena = {0};
    struct program program;
    bool loaded = false;
    for (int number = 1; fgets(line, sizeof line, in); number++) {
        int n = golden_split(line, cells);
        if (number == 1) {
            columns = find_columns(cells, n);
            continue;
        }
        if (strcmp(order, cells[columns.order]) != 0) {
            snprintf(order, sizeof order, "%s", cells[columns.order]);
            arena_release(&arena);
            loaded = load_order(order, &arena, &program) == 0;
        }
        if (loaded)
            compare_row(&program, cells, &columns, number);
    }
    fclose(in);
    arena_release(&arena);
}

/* multi_iter.csv: the period of iterations back to back, with a barrier between them and without. */
static void test_periods(void)
{
    char path[GOLDEN_PATH], line[GOLDEN_LINE], *cells[GOLDEN_CELLS];
    FILE *in = fopen(golden_path(path, "multi_iter.csv"), "r");
    if (!in)
        return;
    for (int number = 1; fgets(line, sizeof line, in); number++) {
        struct arena arena = {0};
        struct program program;
        if (golden_split(line, cells) < 8 || number == 1 || load_order(cells[0], &arena, &program) < 0)
            continue;
        struct setting setting = {1, 1, 1, 0, false, SLOT_SUM, 6, SYNC_BARRIER};
        struct timeline timeline;
        char where[200];
        snprintf(where, sizeof where, "multi_iter line %d: %s, %s", number, cells[0], cells[3]);
        if (strcmp(cells[3], "uneq") == 0)
            setting = (struct setting){4, 4.4, 3.1, 0.2, false, SLOT_SUM, 6, SYNC_BARRIER};
        if (price(&program, &setting, &arena, &timeline) == 0)
            expect(where, "period with a barrier", (double)timeline.period_ps / TICKS, atof(cells[4]));
        setting.sync = SYNC_NONE;
        if (price(&program, &setting, &arena, &timeline) == 0)
            expect(where, "period without", (double)timeline.period_ps / TICKS, atof(cells[5]));
        arena_release(&arena);
    }
    fclose(in);
}

/* closed_form_scan.csv: makespans of our own orders at 36 cost vectors; a = 0, 0.5, 1 is overlap sum, half, max. */
static void compare_scan(char **cells, int number)
{
    static const struct {
        const char *what;
        enum plan_schedule schedule;
    } rows[] = {
        {"1f1b", SCHEDULE_1F1B},
        {"interleaved", SCHEDULE_INTERLEAVED},
        {"zbh1", SCHEDULE_ZB_H1},
        {"zbh2", SCHEDULE_ZB_H2},
        {"zbv", SCHEDULE_ZB_V},
        {"dualpipe ", SCHEDULE_DUALPIPE},
        {"dualpipev ", SCHEDULE_DUALPIPE_V},
    };
    struct setting setting = {atof(cells[3]), atof(cells[4]), atof(cells[5]), 0, false, SLOT_SUM, 1, SYNC_BARRIER};
    setting.slot = atof(cells[6]) > 0.75 ? SLOT_MAX : atof(cells[6]) > 0.25 ? SLOT_HALF : SLOT_SUM;
    struct schedule_request request = {.pp = atoi(cells[1]), .micro_batches = atoi(cells[2])};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena arena = {0};
        struct program program;
        struct timeline timeline;
        struct err err = {0};
        char where[120];
        snprintf(where, sizeof where, "closed_form_scan line %d: %s", number, cells[0]);
        if (strncmp(cells[0], rows[i].what, strlen(rows[i].what)) != 0)
            continue;
        if (schedule_emit(rows[i].schedule, &request, &arena, &program, &err) < 0) {
            printf("%s: %s\n", where, err.text);
            test_count(false);
        } else if (price(&program, &setting, &arena, &timeline) == 0) {
            expect(where, "makespan", (double)timeline.makespan_ps / TICKS, atof(cells[8]));
        }
        arena_release(&arena);
    }
}

static void test_scan(void)
{
    char path[GOLDEN_PATH], line[GOLDEN_LINE], *cells[GOLDEN_CELLS];
    FILE *in = fopen(golden_path(path, "closed_form_scan.csv"), "r");
    if (!in)
        return;
    for (int number = 1; fgets(line, sizeof line, in); number++)
        if (golden_split(line, cells) > 8 && number > 1)
            compare_scan(cells, number);
    fclose(in);
}

int main(void)
{
    test_cited();
    test_table();
    test_periods();
    test_scan();
    return test_report();
}
