#include "sim/schedules/zb_plan.h"

#include <assert.h>
#include <string.h>

#include "cost/base/arena.h"

struct planner {
    const struct zb_problem *problem;
    struct zb_choices choices;
    struct zb_plan *plan;
    int *done[3];       /* [kind][stage] ops placed */
    int64_t *end[2];    /* [OP_F, OP_B][stage * micro_batches + micro-batch] */
    int64_t *now, *mem; /* [stage] */
    int64_t *first;     /* [stage] start of the first F */
    int64_t *bubble;    /* [stage] idle since the first F */
    int64_t worst_bubble;
    int *wanted; /* [stage] forwards of this round */
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void init_planner(struct planner *p, struct arena *arena)
{
    size_t stages = (size_t)p->problem->pp, slots = stages * (size_t)p->problem->micro_batches;
    for (int kind = OP_F; kind <= OP_W; kind++)
        p->done[kind] = arena_array(arena, stages, sizeof(int));
    for (int kind = OP_F; kind <= OP_B; kind++)
        p->end[kind] = arena_array(arena, slots, sizeof(int64_t));
    p->now = arena_array(arena, stages, sizeof(int64_t));
    p->mem = arena_array(arena, stages, sizeof(int64_t));
    p->first = arena_array(arena, stages, sizeof(int64_t));
    p->bubble = arena_array(arena, stages, sizeof(int64_t));
    p->wanted = arena_array(arena, stages, sizeof(int));
}

static int64_t cost_of(const struct planner *p, int kind, int stage)
{
    return p->problem->cost[kind][stage];
}

/* When the input of the stage's next F or B is there; -1 for the first stage's F and the last stage's B. */
static int64_t arrival(const struct planner *p, int kind, int stage)
{
    int from = kind == OP_F ? stage - 1 : stage + 1, m = p->problem->micro_batches;
    if (kind == OP_W || from < 0 || from >= p->problem->pp)
        return -1;
    return p->end[kind][from * m + p->done[kind][stage]] + p->problem->comm;
}

static void put(struct planner *p, int kind, int stage)
{
    int m = p->problem->micro_batches, i = p->done[kind][stage]++;
    int index = p->done[OP_F][stage] + p->done[OP_B][stage] + p->done[OP_W][stage] - 1;
    p->done[kind][stage]--; /* arrival looks at the op being placed */
    int64_t start = larger(p->now[stage], arrival(p, kind, stage));
    p->done[kind][stage]++;
    if (kind == OP_F && i == 0)
        p->first[stage] = start;
    if (p->done[OP_F][stage] > 1 || kind != OP_F)
        p->bubble[stage] += start - p->now[stage];
    p->worst_bubble = larger(p->worst_bubble, p->bubble[stage]);
    p->now[stage] = start + cost_of(p, kind, stage);
    p->mem[stage] += p->problem->mem[kind];
    if (kind != OP_W)
        p->end[kind][stage * m + i] = p->now[stage];
    p->plan->kind[(size_t)stage * 3 * (size_t)m + (size_t)index] = (uint8_t)kind;
}

static void measure(const struct planner *p)
{
    p->plan->span = p->plan->makespan = 0;
    for (int j = 0; j < p->problem->pp; j++) {
        p->plan->span = larger(p->plan->span, p->now[j] - p->first[j]);
        p->plan->makespan = larger(p->plan->makespan, p->now[j]);
    }
}

/* Warm-up: how many more forwards each stage runs before its first B, from the last stage up. */
static void plan_warm_up(struct planner *p)
{
    const struct zb_problem *q = p->problem;
    int last = q->pp - 1;
    int64_t b_end = p->now[last] + cost_of(p, OP_B, last); /* of the stage below */
    for (int j = last - 1; j >= 0; j--) {
        int64_t mem = p->mem[j], now = p->now[j], f = cost_of(p, OP_F, j);
        while (p->done[OP_F][j] + p->wanted[j] < q->micro_batches && mem + q->mem[OP_F] <= q->mem_limit) {
            if (p->choices.bubble_before_first_b ? now + f > b_end + q->comm : now >= b_end + q->comm)
                break;
            mem += q->mem[OP_F];
            now += f;
            p->wanted[j]++;
        }
        b_end = larger(now, b_end + q->comm) + cost_of(p, OP_B, j);
    }
    /* A stage runs fewer than the one above it, unless all micro-batches are out. */
    for (int j = 1; j < q->pp; j++)
        while (p->wanted[j] > 0 && p->wanted[j] >= p->wanted[j - 1] &&
               p->done[OP_F][j] + p->wanted[j] < q->micro_batches)
            p->wanted[j]--;
}

static void run_warm_up(struct planner *p)
{
    for (int j = 0; j < p->problem->pp; j++)
        put(p, OP_F, j);
    plan_warm_up(p);
    for (int j = 0; j < p->problem->pp; j++)
        for (int i = 0; i < p->wanted[j]; i++)
            put(p, OP_F, j);
    for (int j = p->problem->pp - 1; j >= 0; j--)
        put(p, OP_B, j);
}

/* Would an F now on stage j, two or more ahead of the stage below, only delay what that stage waits for? */
static bool skips_f(const struct planner *p, int j)
{
    const struct zb_problem *q = p->problem;
    if (!p->choices.prioritize_b || j + 1 >= q->pp || p->done[OP_F][j] < p->done[OP_F][j + 1] + 2)
        return false;
    int64_t below = p->now[j + 1] + cost_of(p, OP_F, j + 1) + cost_of(p, OP_B, j + 1) + q->comm;
    if (p->now[j] >= below)
        return true;
    int64_t w_cost = 0, mem = p->mem[j] + q->mem[OP_F];
    for (int w = p->done[OP_W][j]; mem > q->mem_limit && w < p->done[OP_B][j]; w++) {
        w_cost += cost_of(p, OP_W, j);
        mem += q->mem[OP_W];
    }
    if (p->now[j] + cost_of(p, OP_F, j) + w_cost <= below)
        return false;
    return below - p->now[j] <= p->worst_bubble - p->bubble[j];
}

static bool has_w(const struct planner *p, int j)
{
    return p->done[OP_W][j] < p->done[OP_B][j];
}

static int make_room(struct planner *p, int kind, int j)
{
    while (p->mem[j] + p->problem->mem[kind] > p->problem->mem_limit) {
        if (!has_w(p, j))
            return -1;
        put(p, OP_W, j);
    }
    return 0;
}

/* W's into the time until the next op's input arrives: all that fit, and one that does not where idling would make
 * this stage the worst one, or the choice is greedy. */
static void fill_gap(struct planner *p, int kind, int j)
{
    int64_t until = arrival(p, kind, j);
    while (has_w(p, j) && p->now[j] + cost_of(p, OP_W, j) <= until)
        put(p, OP_W, j);
    if (has_w(p, j) && p->now[j] < until && (until - p->now[j] > p->worst_bubble - p->bubble[j] || p->choices.greedy))
        put(p, OP_W, j);
}

/* One F at most and one B on every stage. */
static int run_round(struct planner *p)
{
    const struct zb_problem *q = p->problem;
    for (int j = 0; j < q->pp; j++)
        p->wanted[j] = p->done[OP_F][j] < q->micro_batches && !skips_f(p, j);
    for (int j = q->pp - 2; j >= 0; j--)
        if (p->wanted[j] > p->wanted[j + 1])
            p->wanted[j] = p->wanted[j + 1];
    for (int j = 0; j < q->pp; j++) {
        if (!p->wanted[j])
            continue;
        if (make_room(p, OP_F, j) < 0)
            return -1;
        fill_gap(p, OP_F, j);
        put(p, OP_F, j);
    }
    for (int j = q->pp - 1; j >= 0; j--) {
        if (p->done[OP_F][j] <= p->done[OP_B][j] || make_room(p, OP_B, j) < 0)
            return -1; /* with few micro-batches a rank may have skipped the F */
        fill_gap(p, OP_B, j);
        while (j == 0 && p->done[OP_F][0] == q->micro_batches && has_w(p, 0))
            put(p, OP_W, 0);
        put(p, OP_B, j);
    }
    return 0;
}

int zb_plan_make(const struct zb_problem *problem, struct zb_choices choices, struct arena *arena, struct zb_plan *plan)
{
    struct arena_mark mark = arena_mark(arena);
    struct planner p = {.problem = problem, .choices = choices, .plan = plan};
    int result = problem->mem[OP_F] <= problem->mem_limit ? 0 : -1;
    init_planner(&p, arena);
    if (result == 0)
        run_warm_up(&p);
    for (int i = 1; i < problem->micro_batches && result == 0; i++)
        result = run_round(&p);
    for (int j = 0; j < problem->pp && result == 0; j++)
        while (p.done[OP_W][j] < problem->micro_batches)
            put(&p, OP_W, j);
    measure(&p);
    arena_rewind(arena, mark);
    return result;
}

static bool may_run(const struct planner *p, int kind, int j)
{
    const struct zb_problem *q = p->problem;
    int i = p->done[kind][j], from = kind == OP_F ? j - 1 : j + 1;
    if (i >= q->micro_batches || (kind == OP_B && i >= p->done[OP_F][j]) || (kind == OP_W && i >= p->done[OP_B][j]) ||
        (kind == OP_F && p->mem[j] + q->mem[OP_F] > q->mem_limit))
        return false;
    return kind == OP_W || from < 0 || from >= q->pp || p->done[kind][from] > i;
}

/* Runs every stage's list as far as its inputs are there, until nothing moves. */
int zb_plan_price(const struct zb_problem *problem, struct arena *arena, struct zb_plan *plan)
{
    struct arena_mark mark = arena_mark(arena);
    struct zb_plan copy = {.kind = arena_array(arena, 3 * (size_t)problem->pp * (size_t)problem->micro_batches, 1)};
    struct planner p = {.problem = problem, .plan = &copy};
    int n = 3 * problem->micro_batches, left = n * problem->pp, moved = 1;
    int *at = arena_array(arena, (size_t)problem->pp, sizeof *at);
    init_planner(&p, arena);
    while (moved > 0) {
        moved = 0;
        for (int j = 0; j < problem->pp; j++)
            for (; at[j] < n && may_run(&p, plan->kind[(size_t)j * (size_t)n + (size_t)at[j]], j); at[j]++, moved++)
                put(&p, plan->kind[(size_t)j * (size_t)n + (size_t)at[j]], j);
        left -= moved;
    }
    measure(&p);
    plan->span = copy.span;
    plan->makespan = copy.makespan;
    arena_rewind(arena, mark);
    return left == 0 ? 0 : -1;
}

bool zb_better(const struct zb_problem *problem, const struct zb_plan *a, const struct zb_plan *b)
{
    bool a_within = a->makespan <= problem->makespan_limit, b_within = b->makespan <= problem->makespan_limit;
    if (a->span == INT64_MAX || b->span == INT64_MAX)
        return a->span < b->span;
    if (a_within != b_within)
        return a_within;
    return a->span != b->span ? a->span < b->span : a->makespan < b->makespan;
}

/* Start of a stage's next op of a kind; it may run. */
static int64_t start_of(const struct planner *p, int kind, int j)
{
    return larger(p->now[j], arrival(p, kind, j));
}

/* What a stage would run next, and when; INT64_MAX = nothing can run. */
struct choice {
    int64_t start;
    int kind;
};

static struct choice choose(const struct planner *p, bool patience, int j)
{
    static const int preferred[] = {OP_B, OP_F, OP_W};
    struct choice choice = {INT64_MAX, OP_F};
    int64_t start[3], until = INT64_MAX;
    for (int kind = OP_F; kind <= OP_W; kind++) {
        start[kind] = may_run(p, kind, j) ? start_of(p, kind, j) : INT64_MAX;
        if (start[kind] < INT64_MAX) {
            int64_t limit = start[kind] + (patience ? larger(cost_of(p, kind, j), 1) : 1);
            until = limit < until ? limit : until;
        }
    }
    for (int k = 0; k < 3 && choice.start == INT64_MAX; k++)
        if (start[preferred[k]] < until)
            choice = (struct choice){start[preferred[k]], preferred[k]};
    return choice;
}

void zb_plan_dispatch(const struct zb_problem *problem, bool patience, struct arena *arena, struct zb_plan *plan)
{
    struct arena_mark mark = arena_mark(arena);
    struct planner p = {.problem = problem, .plan = plan};
    struct choice *next = arena_array(arena, (size_t)problem->pp, sizeof *next);
    init_planner(&p, arena);
    for (int j = 0; j < problem->pp; j++)
        next[j] = choose(&p, patience, j);
    for (int left = 3 * problem->micro_batches * problem->pp; left > 0; left--) {
        int stage = 0;
        for (int j = 1; j < problem->pp; j++)
            if (next[j].start < next[stage].start)
                stage = j;
        assert(next[stage].start <
               INT64_MAX); /* with room for one activation the oldest micro-batch can always go on */
        put(&p, next[stage].kind, stage);
        for (int j = stage > 0 ? stage - 1 : 0; j <= stage + 1 && j < problem->pp; j++)
            next[j] = choose(&p, patience, j);
    }
    measure(&p);
    arena_rewind(arena, mark);
}
