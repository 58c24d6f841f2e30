#include "sim/engine.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/program.h"
#include "sim/timeline.h"

const char *const engine_slot_names[] = {"sum", "half", "max", "comm", NULL};

/* The clock stays below 2^62 ps (53 days): every duration is at most 2^60 and the loop stops past the limit. */
#define CLOCK_LIMIT_PS    (INT64_C(1) << 62)
#define DURATION_LIMIT_PS (INT64_C(1) << 60)

enum { NOT_WAITING = -1 };

/* Arrivals of one kind of message (forward or backward), [(direction * stages + stage) * micro_batches + micro_batch]:
 * time of arrival + 1 at the stage that consumes it, 0 = not yet. One array holds both kinds, forwards first. */
struct engine {
    const struct program *program;
    const struct engine_costs *costs;
    bool sends;            /* the program spells out its messages: they leave when their turn has come */
    int micro_batches;     /* of a direction */
    int64_t n_slots;       /* of one kind */
    int64_t *arrival;      /* [2 * n_slots] */
    int64_t *waits_for;    /* [pp] index into arrival, or NOT_WAITING */
    int *at;               /* [pp] next index */
    int64_t *free_ps;      /* [pp] the rank's clock */
    int64_t *stream_ps[2]; /* [pp] when the rank's sending stream is free, by kind */
    int *work;             /* ring of runnable ranks; each is in it at most once */
    int work_head, work_count;
    int64_t *duration[OP_F_BW];                 /* [kind][stage] */
    int64_t *alloc_bytes, *free_bytes[OP_F_BW]; /* by stage */
    int64_t *mem_bytes;                         /* [pp] */
    int *in_flight, *in_flight_b;               /* [pp] */
    struct timeline *timeline;
    int iteration;
};

int64_t engine_ps(double seconds)
{
    return seconds < 9e6 ? (int64_t)llround(seconds * 1e12) : INT64_MAX; /* which no program may take; NaN too */
}

/* ---- set-up ---- */

static int check_durations(const int64_t *values, int n, const char *what, struct err *err)
{
    for (int i = 0; values && i < n; i++) {
        if (values[i] < 0)
            return err_add(err, "%s %d takes %lld ps; a duration is not negative", what, i, (long long)values[i]);
        if (values[i] > DURATION_LIMIT_PS)
            return err_add(err, "%s %d takes %s%.4g days, but nothing in a step may take more than %.4g days", what, i,
                           values[i] == INT64_MAX ? "more than " : "", (double)values[i] * 1e-12 / 86400, (double)DURATION_LIMIT_PS * 1e-12 / 86400);
    }
    return 0;
}

static int check_costs(const struct program *p, const struct engine_costs *costs, struct err *err)
{
    const int64_t limit = DURATION_LIMIT_PS;
    if (check_durations(costs->forward_ps, p->stages, "forward of stage", err) < 0 ||
        check_durations(costs->backward_ps, p->stages, "backward of stage", err) < 0 ||
        check_durations(costs->wgrad_ps, p->stages, "weight gradient of stage", err) < 0 ||
        check_durations(costs->slot_ps, p->stages, "overlapped slot of stage", err) < 0 ||
        check_durations(costs->forward_comm_ps, p->stages, "forward communication of stage", err) < 0 ||
        check_durations(costs->backward_comm_ps, p->stages, "backward communication of stage", err) < 0 ||
        check_durations(costs->p2p_ps, p->stages - 1, "message over boundary", err) < 0 ||
        check_durations(costs->p2p_occupancy_ps, p->stages - 1, "occupancy of boundary", err) < 0 ||
        check_durations(costs->optimizer_ps, p->pp, "optimizer of rank", err) < 0)
        return -1;
    if (costs->iterations < 0 || costs->chain_ps < 0 || costs->chain_ps > limit)
        return err_add(err, "negative iterations or chain time");
    return 0;
}

static void set_up_tables(struct engine *e, struct arena *arena)
{
    const struct engine_costs *c = e->costs;
    size_t n = (size_t)e->program->stages;
    for (int kind = OP_F; kind <= OP_BW; kind++) {
        e->duration[kind] = arena_array(arena, n, sizeof(int64_t));
        e->free_bytes[kind] = arena_array(arena, n, sizeof(int64_t));
    }
    e->alloc_bytes = arena_array(arena, n, sizeof(int64_t));
    for (size_t s = 0; s < n; s++) {
        e->duration[OP_F][s] = c->forward_ps[s];
        e->duration[OP_B][s] = c->backward_ps[s];
        e->duration[OP_W][s] = c->wgrad_ps[s];
        e->duration[OP_BW][s] = c->backward_ps[s] + c->wgrad_ps[s];
        int64_t all = c->act_bytes ? c->act_bytes[s] : 0, by_b = c->act_b_bytes ? c->act_b_bytes[s] : 0;
        e->alloc_bytes[s] = all;
        e->free_bytes[OP_B][s] = by_b;
        e->free_bytes[OP_W][s] = all - by_b;
        e->free_bytes[OP_BW][s] = all;
    }
}

static void set_up(struct engine *e, struct arena *arena)
{
    const struct program *p = e->program;
    size_t ranks = (size_t)p->pp;
    e->sends = program_has_messages(p);
    e->micro_batches = program_direction_micro_batches(p);
    e->n_slots = (int64_t)p->directions * p->stages * e->micro_batches;
    e->arrival = arena_array(arena, 2 * (size_t)e->n_slots, sizeof *e->arrival);
    e->waits_for = arena_array(arena, ranks, sizeof *e->waits_for);
    e->at = arena_array(arena, ranks, sizeof *e->at);
    e->free_ps = arena_array(arena, ranks, sizeof *e->free_ps);
    e->stream_ps[0] = arena_array(arena, ranks, sizeof *e->stream_ps[0]);
    e->stream_ps[1] = arena_array(arena, ranks, sizeof *e->stream_ps[1]);
    e->work = arena_array(arena, ranks, sizeof *e->work);
    e->mem_bytes = arena_array(arena, ranks, sizeof *e->mem_bytes);
    e->in_flight = arena_array(arena, ranks, sizeof *e->in_flight);
    e->in_flight_b = arena_array(arena, ranks, sizeof *e->in_flight_b);
    set_up_tables(e, arena);
}

static void set_up_timeline(struct engine *e, struct arena *arena)
{
    const struct program *p = e->program;
    struct timeline *t = e->timeline;
    int iterations = e->costs->iterations > 0 ? e->costs->iterations : 1;
    *t = (struct timeline){.ranks = p->pp, .iterations = iterations};
    t->rank = arena_array(arena, (size_t)p->pp, sizeof *t->rank);
    t->optimizer_start_ps = arena_array(arena, (size_t)p->pp * (size_t)iterations, sizeof(int64_t));
    if (!e->costs->record)
        return;
    t->start_ps = arena_array(arena, (size_t)p->pp, sizeof *t->start_ps);
    t->end_ps = arena_array(arena, (size_t)p->pp, sizeof *t->end_ps);
    for (int r = 0; r < p->pp; r++) {
        size_t n = (size_t)p->n_ops[r] * (size_t)iterations;
        t->start_ps[r] = arena_array(arena, n, sizeof(int64_t));
        t->end_ps[r] = arena_array(arena, n, sizeof(int64_t));
    }
}

/* ---- the loop ---- */

static void push_work(struct engine *e, int rank)
{
    int tail = e->work_head + e->work_count++;
    e->work[tail < e->program->pp ? tail : tail - e->program->pp] = rank;
}

static int pop_work(struct engine *e)
{
    int rank = e->work[e->work_head];
    if (++e->work_head == e->program->pp)
        e->work_head = 0;
    e->work_count--;
    return rank;
}

static inline int64_t slot_index(const struct engine *e, unsigned direction, unsigned stage, unsigned micro_batch)
{
    return ((int64_t)direction * e->program->stages + stage) * e->micro_batches + micro_batch;
}

static int64_t boundary_ps(const struct engine *e, const int64_t *values, unsigned direction, int boundary)
{
    if (!values)
        return 0;
    return values[direction == 0 ? boundary : e->program->pp - 2 - boundary];
}

/* The output of an op that ended at end_ps goes to stage `to` (a neighbour of `from`). Returns when the sender goes
 * on. */
static inline int64_t deliver(struct engine *e, int rank, int backward, unsigned direction, int from, int to,
                              unsigned micro_batch, int64_t end_ps, bool send)
{
    const struct program *p = e->program;
    int64_t slot = (backward ? e->n_slots : 0) + slot_index(e, direction, (unsigned)to, micro_batch);
    int peer = p->stage_rank[(int)direction * p->stages + to];
    if (e->sends && !send && peer != rank)
        return end_ps;
    int64_t start_ps = end_ps, arrival_ps = end_ps;
    if (peer != rank && e->costs->p2p_ps) {
        int boundary = from < to ? from : to;
        if (e->costs->p2p_occupancy_ps) {
            int64_t *stream_ps = &e->stream_ps[backward][rank];
            start_ps = *stream_ps > end_ps ? *stream_ps : end_ps;
            *stream_ps = start_ps + boundary_ps(e, e->costs->p2p_occupancy_ps, direction, boundary);
        }
        arrival_ps = start_ps + boundary_ps(e, e->costs->p2p_ps, direction, boundary);
    }
    e->arrival[slot] = arrival_ps + 1;
    if (e->waits_for[peer] == slot) {
        e->waits_for[peer] = NOT_WAITING;
        push_work(e, peer);
    }
    return e->costs->blocking_sends && peer != rank ? arrival_ps : end_ps;
}

static inline int64_t deliver_forward(struct engine *e, int rank, const struct op *op, int64_t end_ps)
{
    if (op->stage + 1 >= e->program->stages)
        return end_ps;
    return deliver(e, rank, 0, op->direction, op->stage, op->stage + 1, op->micro_batch, end_ps, false);
}

static inline int64_t deliver_backward(struct engine *e, int rank, unsigned direction, int stage, unsigned micro_batch,
                                       int64_t end_ps)
{
    if (stage == 0)
        return end_ps;
    return deliver(e, rank, 1, direction, stage, stage - 1, micro_batch, end_ps, false);
}

/* Slots that an op reads, or -1: the first stage reads no forward, the last no backward. */
static inline int64_t forward_input(const struct engine *e, const struct op *op)
{
    return op->stage == 0 ? -1 : slot_index(e, op->direction, op->stage, op->micro_batch);
}

static inline int64_t backward_input(const struct engine *e, unsigned direction, int stage, unsigned micro_batch)
{
    return stage + 1 == e->program->stages ? -1 : e->n_slots + slot_index(e, direction, (unsigned)stage, micro_batch);
}

static int64_t overlap_ps(const struct engine *e, const struct op *op)
{
    const struct engine_costs *c = e->costs;
    if (c->slot_ps)
        return c->slot_ps[op->stage];
    int64_t f = e->duration[OP_F][op->stage], bw = e->duration[OP_BW][op->stage2];
    int64_t sum = f + bw, max = f > bw ? f : bw;
    if (c->slot == SLOT_SUM)
        return sum;
    if (c->slot == SLOT_HALF)
        return max + (sum - max) / 2;
    if (c->slot == SLOT_COMM) {
        int64_t comm = (c->forward_comm_ps ? c->forward_comm_ps[op->stage] : 0) +
                       (c->backward_comm_ps ? c->backward_comm_ps[op->stage2] : 0);
        int64_t compute = sum - comm;
        max = comm > max ? comm : max;
        max = compute > max ? compute : max;
    }
    return max;
}

/* What one visit of a rank keeps in registers. */
struct visit {
    int rank;
    int64_t now_ps, busy_ps, bytes, peak_bytes;
    int held, held_b, peak_held, peak_held_b;
    double in_flight_ps;
};

static void visit_begin(const struct engine *e, int rank, struct visit *v)
{
    const struct timeline_rank *t = &e->timeline->rank[rank];
    *v = (struct visit){.rank = rank,
                        .now_ps = e->free_ps[rank],
                        .busy_ps = t->busy_ps,
                        .bytes = e->mem_bytes[rank],
                        .peak_bytes = t->peak_bytes,
                        .held = e->in_flight[rank],
                        .held_b = e->in_flight_b[rank],
                        .peak_held = t->peak_in_flight,
                        .peak_held_b = t->peak_in_flight_b,
                        .in_flight_ps = t->in_flight_ps};
}

static void visit_end(struct engine *e, const struct visit *v)
{
    struct timeline_rank *t = &e->timeline->rank[v->rank];
    e->free_ps[v->rank] = v->now_ps;
    e->mem_bytes[v->rank] = v->bytes;
    e->in_flight[v->rank] = v->held;
    e->in_flight_b[v->rank] = v->held_b;
    t->busy_ps = v->busy_ps;
    t->peak_bytes = v->peak_bytes;
    t->peak_in_flight = v->peak_held;
    t->peak_in_flight_b = v->peak_held_b;
    t->in_flight_ps = v->in_flight_ps;
}

static inline void hold(const struct engine *e, struct visit *v, int stage, int64_t start_ps)
{
    v->bytes += e->alloc_bytes[stage];
    v->peak_bytes = v->bytes > v->peak_bytes ? v->bytes : v->peak_bytes;
    v->peak_held = ++v->held > v->peak_held ? v->held : v->peak_held;
    v->peak_held_b = ++v->held_b > v->peak_held_b ? v->held_b : v->peak_held_b;
    v->in_flight_ps -= (double)start_ps;
}

static inline void let_go(const struct engine *e, struct visit *v, int kind, int stage, int64_t end_ps)
{
    v->bytes -= e->free_bytes[kind][stage];
    if (kind != OP_W)
        v->held_b--;
    if (kind != OP_B) {
        v->held--;
        v->in_flight_ps += (double)end_ps;
    }
}

static inline void record_op(struct engine *e, const struct visit *v, int64_t start_ps, int64_t end_ps)
{
    struct timeline *t = e->timeline;
    int index = e->at[v->rank];
    struct timeline_rank *rank = &t->rank[v->rank];
    if (rank->end_ps < 0) /* first op of this iteration */
        rank->start_ps = start_ps;
    rank->end_ps = end_ps;
    if (t->start_ps) {
        size_t i = (size_t)e->iteration * (size_t)e->program->n_ops[v->rank] + (size_t)index;
        t->start_ps[v->rank][i] = start_ps;
        t->end_ps[v->rank][i] = end_ps;
    }
}

/* The arrival in a slot, or false when it has not come (the rank then waits for it). */
static inline bool arrived(struct engine *e, const struct visit *v, int64_t slot, int64_t *start_ps)
{
    if (slot < 0)
        return true;
    int64_t at = e->arrival[slot];
    if (at == 0) {
        e->waits_for[v->rank] = slot;
        return false;
    }
    *start_ps = at - 1 > *start_ps ? at - 1 : *start_ps;
    return true;
}

static bool run_overlap(struct engine *e, struct visit *v, const struct op *op)
{
    int64_t start_ps = v->now_ps;
    if (!arrived(e, v, forward_input(e, op), &start_ps) ||
        !arrived(e, v, backward_input(e, op->direction2, op->stage2, op->micro_batch2), &start_ps))
        return false;
    int64_t end_ps = start_ps + overlap_ps(e, op);
    hold(e, v, op->stage, start_ps);
    let_go(e, v, OP_BW, op->stage2, end_ps);
    v->busy_ps += end_ps - start_ps;
    record_op(e, v, start_ps, end_ps);
    int64_t after_f = deliver_forward(e, v->rank, op, end_ps);
    int64_t after_b = deliver_backward(e, v->rank, op->direction2, op->stage2, op->micro_batch2, end_ps);
    v->now_ps = after_f > after_b ? after_f : after_b;
    return true;
}

/* Sends, receives and bookkeeping: no time of the compute stream, but a message leaves here. */
static void pass_message(struct engine *e, struct visit *v, const struct op *op)
{
    int64_t now_ps = v->now_ps;
    if (e->timeline->start_ps) {
        size_t i = (size_t)e->iteration * (size_t)e->program->n_ops[v->rank] + (size_t)e->at[v->rank];
        e->timeline->start_ps[v->rank][i] = e->timeline->end_ps[v->rank][i] = now_ps;
    }
    if (op->kind == OP_SEND_F)
        v->now_ps = deliver(e, v->rank, 0, op->direction, op->stage, op->stage + 1, op->micro_batch, now_ps, true);
    if (op->kind == OP_SEND_B)
        v->now_ps = deliver(e, v->rank, 1, op->direction, op->stage, op->stage - 1, op->micro_batch, now_ps, true);
}

/* Runs one op; false when its input is not there. */
static inline bool run_op(struct engine *e, struct visit *v, const struct op *op)
{
    int kind = op->kind;
    int64_t start_ps = v->now_ps;
    if (kind > OP_F_BW) {
        pass_message(e, v, op);
        return true;
    }
    if (kind == OP_F_BW)
        return run_overlap(e, v, op);
    if (kind == OP_F
            ? !arrived(e, v, forward_input(e, op), &start_ps)
            : kind != OP_W && !arrived(e, v, backward_input(e, op->direction, op->stage, op->micro_batch), &start_ps))
        return false;
    int64_t end_ps = start_ps + e->duration[kind][op->stage];
    v->busy_ps += end_ps - start_ps;
    v->now_ps = end_ps;
    record_op(e, v, start_ps, end_ps);
    if (kind == OP_F) {
        hold(e, v, op->stage, start_ps);
        v->now_ps = deliver_forward(e, v->rank, op, end_ps);
    } else {
        let_go(e, v, kind, op->stage, end_ps);
        if (kind != OP_W)
            v->now_ps = deliver_backward(e, v->rank, op->direction, op->stage, op->micro_batch, end_ps);
    }
    return true;
}

/* Runs a rank until it waits, ends, or its clock leaves the range. */
static void run_rank(struct engine *e, int rank)
{
    struct visit v;
    visit_begin(e, rank, &v);
    const struct op *ops = e->program->ops[rank];
    int n = e->program->n_ops[rank];
    while (e->at[rank] < n && v.now_ps < CLOCK_LIMIT_PS && run_op(e, &v, &ops[e->at[rank]]))
        e->at[rank]++;
    visit_end(e, &v);
}

/* ---- one iteration after the other ---- */

static int run_iteration(struct engine *e, struct err *err)
{
    const struct program *p = e->program;
    e->work_head = e->work_count = 0;
    for (int r = 0; r < p->pp; r++) {
        struct timeline_rank *t = &e->timeline->rank[r];
        *t = (struct timeline_rank){.start_ps = e->free_ps[r], .end_ps = -1};
        e->at[r] = 0;
        e->waits_for[r] = NOT_WAITING;
        push_work(e, r);
    }
    while (e->work_count > 0)
        run_rank(e, pop_work(e));
    for (int r = 0; r < p->pp; r++) {
        if (e->at[r] < p->n_ops[r] && e->free_ps[r] >= CLOCK_LIMIT_PS)
            return err_add(err, "the simulated clock passes 2^62 ps (53 days) on rank %d", r);
    }
    for (int r = 0; r < p->pp; r++) {
        if (e->at[r] < p->n_ops[r]) {
            int before = err ? err->count : 0;
            program_check(p, err);
            if (err && err->count == before)
                err_add(err, "rank %d is stuck at index %d", r, e->at[r]);
            return -1;
        }
        if (e->timeline->rank[r].end_ps < 0) /* a rank without ops */
            e->timeline->rank[r].end_ps = e->timeline->rank[r].start_ps;
    }
    return 0;
}

/* Optimizer steps; afterwards free_ps is when each rank may begin its next iteration. */
static void step_optimizer(struct engine *e)
{
    const struct engine_costs *c = e->costs;
    struct timeline *t = e->timeline;
    int64_t last_ps = 0, chain_ps = 0;
    for (int r = 0; r < t->ranks; r++)
        last_ps = t->rank[r].end_ps > last_ps ? t->rank[r].end_ps : last_ps;
    t->makespan_ps = last_ps;
    for (int r = 0; r < t->ranks; r++) {
        int64_t start_ps = c->sync == SYNC_BARRIER ? last_ps : t->rank[r].end_ps;
        if (c->sync == SYNC_CHAIN) {
            start_ps = start_ps > chain_ps ? start_ps : chain_ps;
            chain_ps = start_ps + c->chain_ps;
        }
        t->optimizer_start_ps[(size_t)e->iteration * (size_t)t->ranks + (size_t)r] = start_ps;
        int64_t end_ps = start_ps + (c->optimizer_ps ? c->optimizer_ps[r] : 0);
        e->free_ps[r] = end_ps > e->free_ps[r] ? end_ps : e->free_ps[r];
        if (c->sync == SYNC_BARRIER && e->free_ps[r] < last_ps)
            e->free_ps[r] = last_ps;
        t->finish_ps = end_ps > t->finish_ps ? end_ps : t->finish_ps;
        int64_t span_ps = t->rank[r].end_ps - t->rank[r].start_ps;
        t->span_ps = span_ps > t->span_ps ? span_ps : t->span_ps;
    }
}

int engine_run(const struct program *program, const struct engine_costs *costs, struct arena *arena,
               struct timeline *ret, struct err *err)
{
    assert(costs->forward_ps && costs->backward_ps && costs->wgrad_ps);
    struct timeline timeline;
    struct engine e = {.program = program, .costs = costs, .timeline = &timeline};
    if (check_costs(program, costs, err) < 0)
        return -1;
    set_up_timeline(&e, arena);
    set_up(&e, arena);
    for (e.iteration = 0; e.iteration < timeline.iterations; e.iteration++) {
        int64_t finish_before_ps = timeline.finish_ps;
        if (e.iteration > 0)
            memset(e.arrival, 0, 2 * (size_t)e.n_slots * sizeof *e.arrival);
        timeline.span_ps = 0;
        if (run_iteration(&e, err) < 0)
            return -1;
        step_optimizer(&e);
        timeline.period_ps = timeline.finish_ps - finish_before_ps;
    }
    *ret = timeline;
    return 0;
}
