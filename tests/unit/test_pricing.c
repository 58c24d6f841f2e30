/* sim/pricing.h and sim/writers/schedule_out.h: costs in the user's own units, exact where the units allow it. */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "sim/pricing.h"
#include "sim/writers/schedule_out.h"
#include "tests/unit/test.h"

static const struct {
    const char *text, *sentence; /* NULL = accepted */
} costs[] = {
    {"F=1,B=1,W=1", NULL},
    {"comm=0.25", NULL},
    {"F=1,overlap=max", NULL},
    {"overlap=2.5", NULL},
    {"", "'' is not name=value"},
    {"F", "'F' is not name=value"},
    {"F=1,", "'' is not name=value"},
    {"F,B=1", "'F' is not name=value"},
    {"f=1", "unknown name 'f'; allowed: F, B, W, comm, overlap"},
    {"F=", "cost: F: "},
    {"F=1,F=2", "cost: 'F' is given twice"},
    {"F=-1", "out of range"},
    {"F=1e99", "out of range"},
    {"overlap=some", "overlap 'some' is not one of max, sum, half, or a number above 0"},
    {"overlap=0", "overlap '0'"},
};

static void test_costs(void)
{
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        struct pricing pricing;
        struct err err = {0};
        pricing_defaults(&pricing);
        CHECK_INT(pricing_parse_cost(costs[i].text, &pricing, &err), costs[i].sentence ? -1 : 0);
        CHECK_CONTAINS(err.text, costs[i].sentence ? costs[i].sentence : "");
    }
}

static double makespan(enum plan_schedule schedule, int pp, int vp, int micro_batches, const char *cost)
{
    struct arena arena = {0};
    struct err err = {0};
    struct pricing pricing;
    struct priced priced;
    struct schedule_request request = {.pp = pp, .vp = vp, .micro_batches = micro_batches};
    double result = -1;
    pricing_defaults(&pricing);
    if (CHECK_INT(pricing_parse_cost(cost, &pricing, &err), 0) &&
        CHECK_INT(pricing_schedule(&pricing, schedule, &request, false, &arena, &priced, &err), 0))
        result = priced_units(&priced, priced.timeline.makespan_ps);
    arena_release(&arena);
    return result;
}

static void test_units(void)
{
    CHECK_DOUBLE(makespan(SCHEDULE_INTERLEAVED, 3, 3, 3, "F=1,B=1,W=1"), 11, 0); /* thirds are exact */
    CHECK_DOUBLE(makespan(SCHEDULE_INTERLEAVED, 7, 7, 7, "F=0.1,B=0.2,W=0.4"), 0.7 * 7 + 0.6, 1e-15);
    CHECK_DOUBLE(makespan(SCHEDULE_1F1B, 4, 1, 8, "F=1e12,B=1e12,W=1e12"), 33e12, 0);
    CHECK_DOUBLE(makespan(SCHEDULE_1F1B, 4, 1, 8, "F=0,B=0,W=0"), 0, 0);
    CHECK_DOUBLE(makespan(SCHEDULE_DUALPIPE, 4, 1, 8, "overlap=max"), 22, 0);
    CHECK_DOUBLE(makespan(SCHEDULE_DUALPIPE, 4, 1, 8, "overlap=2"), 22, 0);
    CHECK_DOUBLE(makespan(SCHEDULE_DUALPIPE_V, 4, 2, 8, "overlap=2"), 22, 0);
}

static int load(const char *text, struct pricing *pricing, struct arena *arena, struct err *err)
{
    char path[] = "/tmp/test_pricing_XXXXXX";
    int file = mkstemp(path);
    if (!CHECK(file >= 0))
        return -1;
    FILE *out = fdopen(file, "w");
    fputs(text, out);
    fclose(out);
    int result = pricing_load_stage_costs(path, arena, pricing, err);
    remove(path);
    return result;
}

static void test_stage_costs(void)
{
    static const char *const wrong[][2] = {
        {"stage,F,B,W\n", "no stages in it"},
        {"0,1,1\n", "line 1: not 4 columns"},
        {"0,1,1,1,1\n", "line 1: not 4 columns"},
        {"1,1,1,1\n", "line 1: stage 1, expected 0"},
        {"0,1,1,1\n0,1,1,1\n", "line 2: stage 0, expected 1"},
        {"0,1,x,1\n", "line 1: "},
    };
    struct arena arena = {0};
    struct pricing pricing;
    struct priced priced;
    struct err err = {0};
    struct schedule_request request = {.pp = 2, .micro_batches = 4};
    pricing_defaults(&pricing);
    CHECK_INT(load("# per stage\r\nstage,F,B,W\r\n0,1,1,1\r\n1,2,2,2\r\n", &pricing, &arena, &err), 0);
    CHECK_INT(pricing_schedule(&pricing, SCHEDULE_1F1B, &request, false, &arena, &priced, &err), 0);
    CHECK_DOUBLE(priced_units(&priced, priced.timeline.makespan_ps), 27, 0);
    request.pp = 4;
    CHECK_INT(pricing_schedule(&pricing, SCHEDULE_1F1B, &request, false, &arena, &priced, &err), -1);
    CHECK_CONTAINS(err.text, "2 stages, but the program has 4");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err_clear(&err);
        CHECK_INT(load(wrong[i][0], &pricing, &arena, &err), -1);
        CHECK_CONTAINS(err.text, wrong[i][1]);
    }
    arena_release(&arena);
}

static void test_numbers(void)
{
    char text[32];
    CHECK_STR(schedule_out_number(0.1, text, sizeof text), "0.1");
    CHECK_STR(schedule_out_number(33, text, sizeof text), "33");
    CHECK_STR(schedule_out_number(1.0 / 3, text, sizeof text), "0.3333333333333333");
    CHECK_DOUBLE(strtod(schedule_out_number(0.1 + 0.2, text, sizeof text), NULL), 0.1 + 0.2, 0);
}

int main(void)
{
    test_costs();
    test_units();
    test_stage_costs();
    test_numbers();
    return test_report();
}
