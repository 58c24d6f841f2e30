#include "sim/timeline.h"

#include <string.h>

#include "cost/base/arena.h"
#include "sim/engine.h"
#include "sim/program.h"

double timeline_ideal_ps(const struct timeline *timeline)
{
    double busy_ps = 0;
    for (int r = 0; r < timeline->ranks; r++)
        busy_ps += (double)timeline->rank[r].busy_ps;
    return busy_ps / timeline->ranks;
}

double timeline_bubble_fraction(const struct timeline *timeline)
{
    if (timeline->makespan_ps <= 0)
        return 0;
    double idle_ps = 0;
    for (int r = 0; r < timeline->ranks; r++)
        idle_ps += (double)(timeline->makespan_ps - timeline->iterations * timeline->rank[r].busy_ps);
    return idle_ps / ((double)timeline->makespan_ps * timeline->ranks);
}

int64_t timeline_peak_bytes(const struct timeline *timeline, int *ret_rank)
{
    int worst = 0;
    for (int r = 1; r < timeline->ranks; r++)
        if (timeline->rank[r].peak_bytes > timeline->rank[worst].peak_bytes)
            worst = r;
    if (ret_rank)
        *ret_rank = worst;
    return timeline->rank[worst].peak_bytes;
}

void timeline_init(struct timeline *timeline, const struct program *program, struct arena *arena)
{
    *timeline = (struct timeline){.ranks = program->pp, .iterations = 1};
    size_t ranks = (size_t)program->pp;
    timeline->rank = arena_array(arena, ranks, sizeof *timeline->rank);
    timeline->optimizer_start_ps = arena_array(arena, ranks, sizeof(int64_t));
    timeline->start_ps = arena_array(arena, ranks, sizeof *timeline->start_ps);
    timeline->end_ps = arena_array(arena, ranks, sizeof *timeline->end_ps);
    for (size_t r = 0; r < ranks; r++) {
        timeline->start_ps[r] = arena_array(arena, (size_t)program->n_ops[r], sizeof(int64_t));
        timeline->end_ps[r] = arena_array(arena, (size_t)program->n_ops[r], sizeof(int64_t));
    }
}

struct held {
    int64_t bytes;
    int pairs, pairs_b;
};

static void hold(struct timeline_rank *rank, struct held *held, int64_t bytes, int64_t start_ps)
{
    held->bytes += bytes;
    rank->peak_bytes = held->bytes > rank->peak_bytes ? held->bytes : rank->peak_bytes;
    rank->peak_in_flight = ++held->pairs > rank->peak_in_flight ? held->pairs : rank->peak_in_flight;
    rank->peak_in_flight_b = ++held->pairs_b > rank->peak_in_flight_b ? held->pairs_b : rank->peak_in_flight_b;
    rank->in_flight_ps -= (double)start_ps;
}

static void account(struct timeline_rank *rank, struct held *held, const struct op *op, const int64_t *act_bytes,
                    const int64_t *act_b_bytes, int64_t start_ps, int64_t end_ps)
{
    int kind = op->kind == OP_F_BW ? OP_BW : op->kind;
    int stage = op->kind == OP_F_BW ? op->stage2 : op->stage;
    if (op->kind == OP_F || op->kind == OP_F_BW)
        hold(rank, held, act_bytes ? act_bytes[op->stage] : 0, start_ps);
    if (kind == OP_F)
        return;
    int64_t all = act_bytes ? act_bytes[stage] : 0, by_b = act_b_bytes ? act_b_bytes[stage] : 0;
    held->bytes -= kind == OP_BW ? all : kind == OP_B ? by_b : all - by_b;
    held->pairs_b -= kind != OP_W;
    if (kind != OP_B) {
        held->pairs--;
        rank->in_flight_ps += (double)end_ps;
    }
}

static void summarize_rank(struct timeline *timeline, const struct program *program, int r, const int64_t *act_bytes,
                           const int64_t *act_b_bytes)
{
    struct timeline_rank rank = {0};
    struct held held = {0};
    bool first = true;
    for (int i = 0; i < program->n_ops[r]; i++) {
        const struct op *op = &program->ops[r][i];
        if (!op_is_compute(op))
            continue;
        int64_t start_ps = timeline->start_ps[r][i], end_ps = timeline->end_ps[r][i];
        rank.start_ps = first || start_ps < rank.start_ps ? start_ps : rank.start_ps;
        rank.end_ps = first || end_ps > rank.end_ps ? end_ps : rank.end_ps;
        rank.busy_ps += end_ps - start_ps;
        account(&rank, &held, op, act_bytes, act_b_bytes, start_ps, end_ps);
        first = false;
    }
    timeline->rank[r] = rank;
}

void timeline_summarize(struct timeline *timeline, const struct program *program, const struct engine_costs *costs)
{
    timeline->makespan_ps = timeline->span_ps = 0;
    for (int r = 0; r < program->pp; r++) {
        summarize_rank(timeline, program, r, costs ? costs->act_bytes : NULL, costs ? costs->act_b_bytes : NULL);
        const struct timeline_rank *rank = &timeline->rank[r];
        int64_t span_ps = rank->end_ps - rank->start_ps;
        timeline->makespan_ps = rank->end_ps > timeline->makespan_ps ? rank->end_ps : timeline->makespan_ps;
        timeline->span_ps = span_ps > timeline->span_ps ? span_ps : timeline->span_ps;
    }
    if (timeline->finish_ps < timeline->makespan_ps)
        timeline->finish_ps = timeline->makespan_ps;
    timeline->period_ps = timeline->finish_ps;
}
