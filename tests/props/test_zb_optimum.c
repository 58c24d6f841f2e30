/* Automatic zero bubble: never worse than ZB-H1 under the same memory limit, and
 * the optimum on small cases.
 *
 * The optimum is proven by enumeration, not by the emitter's own search: every
 * order of every rank (micro-batches are alike, so F's, B's and W's each count up)
 * within the memory limit is listed; orders that could not beat the emitted span
 * even with inputs at their earliest are dropped; of the rest, all combinations
 * are priced, the lower ranks first with rank 0's output at its earliest. None may
 * have a shorter span (first start to last end of the worst rank) without a longer
 * makespan than ZB-H1's. --seed N repeats a run. */
#include <inttypes.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "tests/unit/test.h"

enum { RANKS = 3, MICRO_BATCHES = 4, OPS = 3 * MICRO_BATCHES, ORDERS_MAX = 512 };

static uint64_t seed = 20240131;

static int random_int(int low, int high)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return low + (int)(seed * 2685821657736338717u % (uint64_t)(high - low + 1));
}

struct order {
    int8_t kind[OPS];
};

struct problem {
    int pp, micro_batches, limit;
    int64_t cost[3][64], comm[64];
    int64_t first[RANKS];       /* start of the rank's first op: the same in all orders */
    int64_t span, makespan_max; /* to beat, and not to pass */
    struct order orders[RANKS][ORDERS_MAX];
    int n_orders[RANKS];
};

/* ---- one combination ---- */

/* Ends of the ranks from `from` on, each with its order; F's come to rank `from` as early as they could. False:
 * deadlock. */
static bool price(const struct problem *p, int from, const struct order *const *orders, int64_t *end)
{
    int64_t done_f[RANKS][MICRO_BATCHES], done_b[RANKS][MICRO_BATCHES], now[RANKS];
    int at[RANKS] = {0}, count[RANKS][3] = {{0}}, n = 3 * p->micro_batches, left = n * (p->pp - from);
    for (int r = from; r < p->pp; r++)
        now[r] = 0;
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int r = from; r < p->pp; r++)
            for (; at[r] < n; at[r]++, left--, moved = true) {
                int kind = orders[r]->kind[at[r]], i = count[r][kind];
                int64_t start = now[r];
                if (kind == OP_F && r == from && r > 0) {
                    int64_t arrival = p->first[r] + i * p->cost[OP_F][0];
                    start = arrival > start ? arrival : start;
                } else if (kind != OP_W && (kind == OP_F ? r > 0 : r + 1 < p->pp)) {
                    int other = kind == OP_F ? r - 1 : r + 1;
                    if (count[other][kind] <= i)
                        break;
                    int64_t arrival = (kind == OP_F ? done_f : done_b)[other][i] + p->comm[0];
                    start = arrival > start ? arrival : start;
                }
                now[r] = start + p->cost[kind][r];
                if (kind == OP_F)
                    done_f[r][i] = now[r];
                if (kind == OP_B)
                    done_b[r][i] = now[r];
                count[r][kind]++;
            }
    }
    for (int r = from; r < p->pp; r++)
        end[r] = now[r];
    return left == 0;
}

static bool beats(const struct problem *p, int from, const int64_t *end)
{
    for (int r = from; r < p->pp; r++)
        if (end[r] - p->first[r] >= p->span || end[r] > p->makespan_max)
            return false;
    return true;
}

/* ---- all orders ---- */

/* The rank's order alone, inputs at their earliest: could it be part of something better? */
static bool is_promising(const struct problem *p, int r, const struct order *order)
{
    int64_t now = p->first[r], turn = 0, back = 0;
    int count[3] = {0};
    for (int q = r; q + 1 < p->pp; q++) {
        turn += p->cost[OP_F][q + 1] + p->comm[0];
        back += p->cost[OP_B][q + 1] + p->comm[0];
    }
    for (int i = 0; i < 3 * p->micro_batches; i++) {
        int kind = order->kind[i], m = count[kind]++;
        int64_t input = 0;
        if (kind == OP_F && r > 0)
            input = p->first[r] + m * p->cost[OP_F][0];
        if (kind == OP_B && r + 1 < p->pp)
            input = p->first[r] + p->cost[OP_F][r] + turn + back;
        now = (input > now ? input : now) + p->cost[kind][r];
    }
    return now - p->first[r] < p->span && now <= p->makespan_max;
}

static void list_orders(struct problem *p, int r, struct order *order, int f, int b, int w)
{
    int m = p->micro_batches, at = f + b + w;
    if (at == 3 * m) {
        if (is_promising(p, r, order))
            p->orders[r][p->n_orders[r]++] = *order;
        return;
    }
    if (f < m && f - w < p->limit) {
        order->kind[at] = OP_F;
        list_orders(p, r, order, f + 1, b, w);
    }
    if (b < f) {
        order->kind[at] = OP_B;
        list_orders(p, r, order, f, b + 1, w);
    }
    if (w < b) {
        order->kind[at] = OP_W;
        list_orders(p, r, order, f, b, w + 1);
    }
}

/* Orders for ranks `from` to the last are chosen; is there a better whole? */
static bool better_exists(const struct problem *p, int from, const struct order **orders)
{
    int64_t end[RANKS];
    if (from < p->pp && (!price(p, from, orders, end) || !beats(p, from, end)))
        return false;
    if (from == 0)
        return true;
    for (int i = 0; i < p->n_orders[from - 1]; i++) {
        orders[from - 1] = &p->orders[from - 1][i];
        if (better_exists(p, from - 1, orders))
            return true;
    }
    return false;
}

/* ---- the emitter's answer ---- */

static bool emit(const struct problem *p, enum plan_schedule schedule, int64_t *ret_span, int64_t *ret_makespan)
{
    struct arena arena = {0};
    struct err err = {0};
    struct program program;
    struct timeline timeline;
    struct schedule_request request = {.pp = p->pp,
                                       .micro_batches = p->micro_batches,
                                       .memory_limit = p->limit,
                                       .forward_ticks = p->cost[OP_F],
                                       .backward_ticks = p->cost[OP_B],
                                       .wgrad_ticks = p->cost[OP_W],
                                       .comm_ticks = p->comm[0]};
    struct engine_costs costs = {
        .forward_ps = p->cost[OP_F], .backward_ps = p->cost[OP_B], .wgrad_ps = p->cost[OP_W], .p2p_ps = p->comm};
    bool ok = schedule_emit(schedule, &request, &arena, &program, &err) == 0 &&
              engine_run(&program, &costs, &arena, &timeline, &err) == 0;
    for (int r = 0; ok && schedule == SCHEDULE_ZB_AUTO && r < p->pp; r++)
        CHECK(timeline.rank[r].peak_in_flight <= p->limit);
    if (!CHECK(ok))
        printf("%s\n", err.text);
    *ret_span = timeline.span_ps;
    *ret_makespan = timeline.makespan_ps;
    arena_release(&arena);
    return ok;
}

static void random_costs(struct problem *p, bool equal, int most_comm)
{
    int comm = random_int(0, most_comm);
    for (int s = 0; s < p->pp; s++) {
        for (int k = 0; k < 3; k++)
            p->cost[k][s] = s == 0 || !equal ? random_int(10, 99) : p->cost[k][0];
        p->comm[s] = comm;
    }
    for (int r = 1; r < p->pp && r < RANKS; r++)
        p->first[r] = p->first[r - 1] + p->cost[OP_F][r - 1] + comm;
}

static void print_problem(const struct problem *p)
{
    printf("pp %d, m %d, limit %d, comm %" PRId64 ":", p->pp, p->micro_batches, p->limit, p->comm[0]);
    for (int r = 0; r < p->pp; r++)
        printf(" (%" PRId64 " %" PRId64 " %" PRId64 ")", p->cost[0][r], p->cost[1][r], p->cost[2][r]);
    putchar('\n');
}

static void test_optimum(int pp, int micro_batches)
{
    static struct problem p;
    int64_t makespan, h1_span, h1_makespan;
    const struct order *orders[RANKS] = {NULL};
    struct order order;
    p = (struct problem){.pp = pp, .micro_batches = micro_batches, .limit = random_int(1, pp + 2)};
    random_costs(&p, random_int(0, 2) == 0, 20);
    if (!emit(&p, SCHEDULE_ZB_AUTO, &p.span, &makespan) || !emit(&p, SCHEDULE_ZB_H1, &h1_span, &h1_makespan))
        return;
    p.makespan_max = p.limit >= (pp < micro_batches ? pp : micro_batches) ? h1_makespan : INT64_MAX;
    for (int r = 0; r < pp; r++)
        list_orders(&p, r, &order, 0, 0, 0);
    if (!CHECK(!better_exists(&p, pp, orders)))
        print_problem(&p);
}

static void test_against_zb_h1(void)
{
    static struct problem p;
    int64_t span, makespan, h1_span, h1_makespan;
    p = (struct problem){.pp = random_int(1, 24), .micro_batches = random_int(1, 64)};
    p.limit = random_int(p.pp, 2 * p.pp);
    random_costs(&p, random_int(0, 1), 20);
    if (!emit(&p, SCHEDULE_ZB_AUTO, &span, &makespan) || !emit(&p, SCHEDULE_ZB_H1, &h1_span, &h1_makespan))
        return;
    if (!CHECK(span <= h1_span) || !CHECK(makespan <= h1_makespan))
        print_problem(&p);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        seed = 2 * strtoull(argv[2], NULL, 10) + 1;
    printf("seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 40; i++)
        for (int pp = 2; pp <= 3; pp++)
            for (int m = 1; m <= MICRO_BATCHES; m++)
                if (pp < 3 || m < MICRO_BATCHES || i < 12)
                    test_optimum(pp, m);
    for (int i = 0; i < 200; i++)
        test_against_zb_h1();
    return test_report();
}
