#include "sim/pipeline.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/schedule.h"

struct durations {
    int64_t *forward, *backward, *wgrad, *p2p, *zero, *bytes, *b_bytes, *forward_comm, *backward_comm;
    int64_t *open_b, *open_w, *open_bw; /* whole gradients: opened by B, added by W, of a BW */
    bool opens;                         /* not all zero */
    int64_t *all; /* the arrays, one behind the other */
    size_t n_all;
};

static void fill_durations(const struct stages *s, struct arena *arena, struct durations *d)
{
    size_t n = (size_t)s->n + 1;
    int64_t **arrays[] = {&d->forward, &d->backward, &d->wgrad, &d->p2p, &d->zero, &d->bytes, &d->b_bytes, &d->forward_comm, &d->backward_comm,
                          &d->open_b, &d->open_w, &d->open_bw};
    d->opens = stages_open_gradients(s);
    d->n_all = n * (sizeof arrays / sizeof *arrays);
    d->all = arena_array(arena, d->n_all, sizeof(int64_t));
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = d->all + i * n;
    for (int i = 0; i < s->n; i++) {
        d->forward[i] = engine_ps(s->stage[i].forward_s);
        d->backward[i] = engine_ps(s->stage[i].backward_s);
        d->wgrad[i] = engine_ps(s->stage[i].wgrad_s);
        d->bytes[i] = (int64_t)llround(s->stage[i].kept_bytes);
        d->b_bytes[i] = (int64_t)llround(s->stage[i].b_bytes);
        d->p2p[i] = engine_ps(s->places->p2p_s);
        d->forward_comm[i] = engine_ps(s->stage[i].forward_ep_s);
        d->backward_comm[i] = engine_ps(s->stage[i].backward_ep_s);
        if (d->opens) {
            struct stage_gradients g = stages_gradients(s, i);
            d->open_b[i] = (int64_t)llround(g.b_bytes);
            d->open_w[i] = (int64_t)llround(g.w_bytes);
            d->open_bw[i] = (int64_t)llround(g.bw_bytes);
        }
    }
}

/* Micro-batches of a group of interleaved chunks, that of the whole step though fewer are simulated; 0 = the schedule has none. */
static int group_of(const struct plan *plan)
{
    if (plan->schedule != SCHEDULE_INTERLEAVED)
        return plan->schedule_group;
    int64_t all = plan_micro_batches(plan);
    return plan->schedule_group > 0 ? plan->schedule_group : schedule_group(plan->pp, all < INT_MAX ? (int)all : INT_MAX);
}

static struct schedule_request request_of(const struct stages *s, const struct durations *d, int64_t micro_batches)
{
    const struct plan *plan = s->plan;
    return (struct schedule_request){.pp = plan->pp, .vp = plan->vp, .micro_batches = (int)micro_batches, .group = group_of(plan),
                                     .forward_ticks = d->forward, .backward_ticks = d->backward, .wgrad_ticks = d->wgrad,
                                     .comm_ticks = engine_ps(s->places->p2p_s)};
}

static struct engine_costs costs_of(const struct stages *s, const struct durations *d, bool messages)
{
    return (struct engine_costs){.forward_ps = d->forward, .backward_ps = d->backward, .wgrad_ps = d->wgrad,
                                 .p2p_ps = messages ? d->p2p : d->zero, .blocking_sends = messages && !s->plan->overlap.p2p,
                                 .slot = SLOT_COMM, .forward_comm_ps = d->forward_comm, .backward_comm_ps = d->backward_comm,
                                 .act_bytes = d->bytes, .act_b_bytes = d->b_bytes};
}

/* ---- what is kept between calls ---- */

void pipeline_memo_forget(struct pipeline_memo *memo)
{
    if (memo->start.block)
        arena_rewind(&memo->arena, memo->start);
    else {
        arena_alloc(&memo->arena, 1); /* the first block stays */
        memo->start = arena_mark(&memo->arena);
    }
    memo->n_programs = 0;
    memo->kept_ops = 0;
    memo->durations = NULL;
}

void pipeline_memo_release(struct pipeline_memo *memo)
{
    arena_release(&memo->arena);
    *memo = (struct pipeline_memo){.arena.block_bytes = memo->arena.block_bytes};
}

static bool same_durations(const struct pipeline_memo *memo, const struct durations *d)
{
    return memo && memo->durations && memcmp(memo->durations, d->all, d->n_all * sizeof *d->all) == 0;
}

static void keep_answer(struct pipeline_memo *memo, const struct durations *d, const struct pipeline *answer)
{
    if (!memo || memo->programs_only || memo->durations)
        return;
    memo->durations = arena_array(&memo->arena, d->n_all, sizeof *d->all);
    memcpy(memo->durations, d->all, d->n_all * sizeof *d->all);
    memo->answer = *answer;
}

/* Where the memo has the request's program; -1 = it has not. */
static int find_program(const struct pipeline_memo *memo, enum plan_schedule schedule, const struct schedule_request *request)
{
    for (int i = 0; i < memo->n_programs; i++)
        if (memo->program[i].micro_batches == request->micro_batches && memo->program[i].schedule == schedule && memo->program[i].pp == request->pp &&
            memo->program[i].vp == request->vp && memo->program[i].group == request->group)
            return i;
    return -1;
}

/* The program, kept where it does not depend on the durations. */
static int emit(const struct stages *s, const struct durations *d, int64_t micro_batches, struct arena *arena, struct program *ret, struct err *err)
{
    struct pipeline_memo *memo = s->question->memo;
    const struct plan *plan = s->plan;
    struct schedule_request request = request_of(s, d, micro_batches);
    bool kept = memo && plan->schedule != SCHEDULE_ZB_AUTO && plan->schedule != SCHEDULE_ZB_V_AUTO;
    int known = kept ? find_program(memo, plan->schedule, &request) : -1;
    if (known >= 0) {
        *ret = memo->program[known].program;
        return 0;
    }
    kept = kept && memo->n_programs < PIPELINE_PROGRAMS_MAX && memo->kept_ops < PIPELINE_KEPT_OPS_MAX;
    if (schedule_emit(plan->schedule, &request, kept ? &memo->arena : arena, ret, err) < 0)
        return -1;
    if (kept) {
        memo->program[memo->n_programs].schedule = plan->schedule;
        memo->program[memo->n_programs].pp = plan->pp;
        memo->program[memo->n_programs].vp = plan->vp;
        memo->program[memo->n_programs].group = request.group;
        memo->program[memo->n_programs].micro_batches = micro_batches;
        memo->program[memo->n_programs++].program = *ret;
        for (int r = 0; r < plan->pp; r++)
            memo->kept_ops += ret->n_ops[r];
    }
    return 0;
}

/* ---- whole gradients of sharded ones ---- */

/* What a rank holds as its program goes on: activations, and gradients of the stages whose B has been and whose W has not. */
struct holder {
    const struct durations *d;
    bool *open; /* [stages] */
    int64_t activations, gradients, most, most_activations;
};

static void hold(struct holder *h, int64_t beside)
{
    int64_t now = h->activations + h->gradients + beside;
    h->most = now > h->most ? now : h->most;
    h->most_activations = h->activations > h->most_activations ? h->activations : h->most_activations;
}

static void close_gradients(struct holder *h, int stage)
{
    h->gradients -= h->open[stage] ? h->d->open_b[stage] : 0;
    h->open[stage] = false;
}

static void hold_half(struct holder *h, enum op_kind kind, int stage)
{
    const struct durations *d = h->d;
    if (kind == OP_F) {
        h->activations += d->bytes[stage];
        hold(h, 0);
    } else if (kind == OP_B) {
        h->gradients += h->open[stage] ? 0 : d->open_b[stage];
        h->open[stage] = true;
        hold(h, 0);
        h->activations -= d->b_bytes[stage];
    } else if (kind == OP_W) {
        hold(h, d->open_w[stage]);
        close_gradients(h, stage);
        h->activations -= d->bytes[stage] - d->b_bytes[stage];
    } else {
        hold(h, h->open[stage] ? 0 : d->open_bw[stage]);
        close_gradients(h, stage);
        h->activations -= d->bytes[stage];
    }
}

/* Bytes of gradients at the rank's peak, as far as they lift it above that of activations. */
static double open_bytes(const struct program *program, const struct durations *d, int rank, struct arena *arena)
{
    struct holder h = {.d = d, .open = arena_array(arena, (size_t)program->stages, sizeof(bool))};
    for (int i = 0; i < program->n_ops[rank]; i++) {
        const struct op *op = &program->ops[rank][i];
        if (!op_is_compute(op))
            continue;
        hold_half(&h, op->kind == OP_F_BW ? OP_F : (enum op_kind)op->kind, op->stage);
        if (op->kind == OP_F_BW)
            hold_half(&h, OP_BW, op->stage2);
    }
    return (double)(h.most - h.most_activations);
}

/* ---- the run ---- */

struct run {
    double makespan_s, makespan_no_p2p_s;
    const struct timeline_rank *rank;
    double *gradient_bytes; /* [pp], NULL = 0 */
};

static int run_once(const struct stages *s, const struct durations *d, int64_t micro_batches, double give_up_s, struct arena *arena,
                    struct run *ret, struct err *err)
{
    struct program program;
    struct timeline timeline, quiet;
    if (emit(s, d, micro_batches, arena, &program, err) < 0)
        return -1;
    struct engine_costs costs = costs_of(s, d, true), no_messages = costs_of(s, d, false);
    if (engine_run(&program, &costs, arena, &timeline, err) < 0)
        return -1;
    ret->makespan_s = ret->makespan_no_p2p_s = (double)timeline.makespan_ps * 1e-12;
    if (s->places->p2p_s > 0 && ret->makespan_s <= give_up_s) {
        if (engine_run(&program, &no_messages, arena, &quiet, err) < 0)
            return -1;
        ret->makespan_no_p2p_s = (double)quiet.makespan_ps * 1e-12;
    }
    ret->rank = timeline.rank;
    ret->gradient_bytes = d->opens ? arena_array(arena, (size_t)program.pp, sizeof(double)) : NULL;
    for (int r = 0; d->opens && r < program.pp; r++)
        ret->gradient_bytes[r] = open_bytes(&program, d, r, arena);
    return 0;
}

/* After how many micro-batches a schedule in its steady state repeats itself. */
static int64_t period_of(const struct plan *plan)
{
    if (plan->schedule == SCHEDULE_INTERLEAVED)
        return group_of(plan);
    return plan->pp * (schedule_of(plan->schedule)->placement == PLACEMENT_BIDIR ? 2 : 1);
}

/* Micro-batches to simulate of `all`: `most`, but at least `periods` of them, with the same remainder. */
static int64_t simulated_of(int64_t all, int64_t most, int64_t period, int64_t periods)
{
    int64_t kept = most > periods * period ? most : periods * period;
    return all > kept ? all - (all - kept) / period * period : all;
}

/* The first `simulated` micro-batches and, where those are not all, one period fewer: what a period adds. */
static int run_periods(const struct stages *s, const struct durations *d, int64_t simulated, double give_up_s, struct arena *arena, struct run *ret,
                       struct run *ret_shorter, struct err *err)
{
    if (run_once(s, d, simulated, give_up_s, arena, ret, err) < 0)
        return -1;
    *ret_shorter = *ret;
    return simulated < plan_micro_batches(s->plan) ? run_once(s, d, simulated - period_of(s->plan), give_up_s, arena, ret_shorter, err) : 0;
}

int pipeline_estimate_s(const struct stages *s, struct arena *arena, double *ret, struct err *err)
{
    struct durations d;
    struct run run, shorter;
    struct arena_mark mark = arena_mark(arena);
    int64_t all = plan_micro_batches(s->plan), period = period_of(s->plan), simulated = simulated_of(all, 0, period, 3);
    fill_durations(s, arena, &d);
    int result = run_periods(s, &d, simulated, 0, arena, &run, &shorter, err);
    if (result == 0)
        *ret = run.makespan_s + (run.makespan_s - shorter.makespan_s) * (double)(all - simulated) / (double)period;
    arena_rewind(arena, mark);
    return result;
}

int pipeline_run(const struct stages *s, double give_up_s, struct arena *arena, struct pipeline *ret, struct err *err)
{
    struct durations d;
    struct arena_mark mark = arena_mark(arena);
    const struct plan *plan = s->plan;
    int64_t all = plan_micro_batches(plan), period = period_of(plan), most = PIPELINE_OPS_MAX / (3LL * s->n);
    int64_t simulated = all > most ? simulated_of(all, most, period, 4) : all;
    struct pipeline_memo *memo = s->question->memo;
    fill_durations(s, arena, &d);
    if (same_durations(memo, &d)) {
        *ret = memo->answer;
        arena_rewind(arena, mark);
        return 0;
    }
    struct run run, shorter;
    int result = run_periods(s, &d, simulated, give_up_s, arena, &run, &shorter, err);
    if (result == 0) {
        double periods = (double)(all - simulated) / (double)period, scale = (double)all / (double)simulated;
        ret->makespan_s = run.makespan_s;
        ret->makespan_no_p2p_s = run.makespan_no_p2p_s;
        ret->makespan_s += periods * (run.makespan_s - shorter.makespan_s);
        ret->makespan_no_p2p_s += periods * (run.makespan_no_p2p_s - shorter.makespan_no_p2p_s);
        for (int r = 0; r < plan->pp; r++) {
            ret->busy_s[r] = (double)run.rank[r].busy_ps * 1e-12 * scale;
            ret->kept_bytes[r] = (double)run.rank[r].peak_bytes;
            ret->kept_bytes[r] += periods * (double)(run.rank[r].peak_bytes - shorter.rank[r].peak_bytes); /* GPipe holds more with every micro-batch */
            ret->gradient_bytes[r] = run.gradient_bytes ? run.gradient_bytes[r] : 0;
        }
        keep_answer(memo, &d, ret);
    }
    arena_rewind(arena, mark);
    return result;
}

int pipeline_record(const struct stages *s, struct arena *arena, struct program *ret_program, struct timeline *ret_timeline,
                    struct engine_costs *ret_costs, struct err *err)
{
    struct durations d;
    fill_durations(s, arena, &d);
    int64_t micro_batches = plan_micro_batches(s->plan), most = PIPELINE_OPS_MAX / (3LL * s->n) / (2 * s->plan->pp) * (2 * s->plan->pp);
    if (micro_batches > most)
        micro_batches = most;
    struct schedule_request request = request_of(s, &d, micro_batches);
    if (schedule_emit(s->plan->schedule, &request, arena, ret_program, err) < 0)
        return -1;
    *ret_costs = costs_of(s, &d, true);
    ret_costs->record = true;
    return engine_run(ret_program, ret_costs, arena, ret_timeline, err);
}
