#include "sim/schedules/zb_plan.h"

#include <string.h>

/* Branch and bound over active schedules (Giffler and Thompson 1960): at every node the op that could end first marks
 * its stage, and only ops of that stage that could start before that end are tried. Micro-batches are alike, so each
 * kind runs in order; a memory limit only delays F's. The start of a stage's first op is the same in all orders, so the
 * span, like the makespan, is a maximum of ends: active schedules contain an optimum of both. */

enum { RANKS = ZB_SEARCH_RANKS_MAX, OPS = ZB_SEARCH_OPS_MAX, NODES = 40000 };

struct search {
    const struct zb_problem *problem;
    struct zb_plan *best;
    int64_t first[RANKS]; /* start of the stage's first op */
    int64_t nodes;
    int done[3][RANKS];
    int64_t end[2][RANKS][OPS];                  /* [OP_F, OP_B][stage][micro-batch] */
    int64_t now[RANKS], mem[RANKS], work[RANKS]; /* work: what is left */
    uint8_t kind[RANKS][OPS];
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t cost_of(const struct search *s, int kind, int j)
{
    return s->problem->cost[kind][j];
}

/* Earliest start of the stage's next op of a kind, or -1: not yet possible. */
static int64_t start_of(const struct search *s, int kind, int j)
{
    const struct zb_problem *q = s->problem;
    int i = s->done[kind][j];
    if (i >= q->micro_batches)
        return -1;
    if (kind == OP_W)
        return i < s->done[OP_B][j] ? s->now[j] : -1;
    if (kind == OP_B && i >= s->done[OP_F][j])
        return -1;
    if (kind == OP_F && s->mem[j] + q->mem[OP_F] > q->mem_limit)
        return -1;
    int from = kind == OP_F ? j - 1 : j + 1;
    if (from < 0 || from >= q->pp)
        return s->now[j];
    return s->done[kind][from] > i ? larger(s->now[j], s->end[kind][from][i] + q->comm) : -1;
}

/* Can no completion of this node beat the best plan? */
static bool is_hopeless(const struct search *s)
{
    const struct zb_problem *q = s->problem;
    int64_t last_b = 0, span = 0, makespan = 0;
    for (int j = q->pp - 1; j >= 0; j--) {
        int64_t end = s->now[j] + s->work[j];
        if (s->done[OP_B][j] < q->micro_batches) {
            int64_t w_left = (q->micro_batches - s->done[OP_W][j]) * cost_of(s, OP_W, j);
            last_b = larger(j == q->pp - 1 ? 0 : last_b + q->comm + cost_of(s, OP_B, j), end - w_left);
            end = larger(end, last_b + cost_of(s, OP_W, j));
        }
        span = larger(span, end - s->first[j]);
        makespan = larger(makespan, end);
    }
    struct zb_plan bound = {.span = span, .makespan = makespan};
    return makespan > q->makespan_limit || !zb_better(q, &bound, s->best);
}

static void keep(struct search *s)
{
    const struct zb_problem *q = s->problem;
    int n = 3 * q->micro_batches;
    s->best->span = s->best->makespan = 0;
    for (int j = 0; j < q->pp; j++) {
        memcpy(s->best->kind + (size_t)j * (size_t)n, s->kind[j], (size_t)n);
        s->best->span = larger(s->best->span, s->now[j] - s->first[j]);
        s->best->makespan = larger(s->best->makespan, s->now[j]);
    }
}

static void branch(struct search *s);

static void try_op(struct search *s, int kind, int j, int64_t start)
{
    const struct zb_problem *q = s->problem;
    int64_t now = s->now[j];
    int index = s->done[OP_F][j] + s->done[OP_B][j] + s->done[OP_W][j], i = s->done[kind][j]++;
    s->now[j] = start + cost_of(s, kind, j);
    s->work[j] -= cost_of(s, kind, j);
    s->mem[j] += q->mem[kind];
    s->kind[j][index] = (uint8_t)kind;
    if (kind != OP_W)
        s->end[kind][j][i] = s->now[j];
    if (!is_hopeless(s))
        branch(s);
    s->done[kind][j]--;
    s->now[j] = now;
    s->work[j] += cost_of(s, kind, j);
    s->mem[j] -= q->mem[kind];
}

static void branch(struct search *s)
{
    static const int order[3] = {OP_B, OP_F, OP_W};
    int64_t first_end = INT64_MAX;
    int stage = -1;
    if (++s->nodes > NODES)
        return;
    for (int j = 0; j < s->problem->pp; j++)
        for (int kind = OP_F; kind <= OP_W; kind++) {
            int64_t start = start_of(s, kind, j);
            if (start >= 0 && start + cost_of(s, kind, j) < first_end) {
                first_end = start + cost_of(s, kind, j);
                stage = j;
            }
        }
    if (stage < 0) { /* all done, or the memory limit leaves nothing to do */
        for (int j = 0; j < s->problem->pp; j++)
            if (s->work[j] > 0 || s->done[OP_W][j] < s->problem->micro_batches)
                return;
        keep(s);
        return;
    }
    for (int k = 0; k < 3; k++) {
        int64_t start = start_of(s, order[k], stage);
        if (start >= 0 && (start < first_end || start + cost_of(s, order[k], stage) == first_end))
            try_op(s, order[k], stage, start);
    }
}

bool zb_search(const struct zb_problem *problem, struct zb_plan *plan)
{
    if (problem->pp > RANKS || 3 * problem->micro_batches > OPS ||
        3 * problem->pp * problem->micro_batches > ZB_SEARCH_TOTAL_MAX)
        return false;
    struct search s = {.problem = problem, .best = plan};
    for (int j = 0; j < problem->pp; j++) {
        s.first[j] = j > 0 ? s.first[j - 1] + cost_of(&s, OP_F, j - 1) + problem->comm : 0;
        for (int kind = OP_F; kind <= OP_W; kind++)
            s.work[j] += problem->micro_batches * cost_of(&s, kind, j);
    }
    branch(&s);
    return s.nodes <= NODES;
}
