/* Automatic ZB-V: the V placement with an order made for given costs and a memory limit.
 *
 * Claim: the smallest idle time of any rank after its first forward that the authors' heuristic finds. No closed form;
 * at unit costs, M >= 2P - 1 and a limit of P stages it idles as little as the hand-made ZB-V, and less for M < 2P.
 *   heuristic: fill the V with forwards; then rounds of one backward and at most one forward per rank; a W goes where
 *   the gap holds it, or where idling would make this rank the worst; four ways (fill before forwards, before
 *   backwards) and, for each, retries that may idle as long as the try before did.
 *   in flight <= 2 limit chunks on every rank
 * Source: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, and the authors' zbv.py.
 * Variants: "published" is the heuristic alone, which finds nothing at some costs and limits; "best", the usual one, is
 * the shortest span (then makespan) of it and of the fixed orders that the limit allows: ZB-V, V-Half, V-Min.
 *
 * drawing: pp=2 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a W0a F2b B2b B1a W2b B2a W1a W2a ..
 *   rank 1 | ..  F0a F0b F1a F1b B0b W0b F2a B0a W0a F2b B1b B1a B2b B2a W1b W1a W2b W2a
 */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/schedules/schedules.h"
#include "sim/timeline.h"

#include <math.h>

enum { BEST, PUBLISHED };
static const char *const variants[] = {"best", "published", NULL};

/* A micro-batch's way through a rank: forward of chunk 0 from the rank above, of chunk 1 from below, backward of chunk
 * 1 from above, of chunk 0 from below. */
enum { F0, F1, B1, B0, LEGS };

#define ABSENT INT64_MIN

static const double mem_unit = 1 << 20; /* of a chunk's F */

struct v_problem {
    int pp, micro_batches;
    const int64_t *cost[3]; /* [OP_F, OP_B, OP_W][stage] */
    int64_t comm, mem[3], mem_limit;
};

struct v_try {
    const struct v_problem *problem;
    bool fill_f, fill_b;
    const int64_t *approved; /* [rank] idle time of the try before; NULL */
    int64_t most_approved;
    int *count[LEGS];   /* [rank] */
    int64_t *end[LEGS]; /* [rank * micro_batches + micro-batch], ABSENT = not placed */
    int64_t *now, *mem, *bubble;
    int64_t worst_bubble, last_w_end;
    struct op *due; /* [rank][2 * micro_batches] the W of every backward placed, oldest first */
    int *n_backwards, *n_w;
    struct op *ops; /* [rank][6 * micro_batches] */
    int *n_ops;
    bool failed; /* the memory limit, or an input that is not there */
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int stage_of(const struct v_try *t, int leg, int rank)
{
    return leg == F0 || leg == B0 ? rank : 2 * t->problem->pp - 1 - rank;
}

static int64_t *end_of(const struct v_try *t, int leg, int rank, int micro_batch)
{
    return &t->end[leg][(size_t)rank * (size_t)t->problem->micro_batches + (size_t)micro_batch];
}

/* Where the leg's next input comes from: another rank's end, or NULL at the turns. */
static const int64_t *source_of(const struct v_try *t, int leg, int rank)
{
    int from = leg == F0 || leg == B1 ? rank - 1 : rank + 1;
    return from < 0 || from >= t->problem->pp ? NULL : end_of(t, leg, from, t->count[leg][rank]);
}

static void push(struct v_try *t, int rank, struct op op)
{
    size_t room = 6 * (size_t)t->problem->micro_batches;
    t->ops[(size_t)rank * room + (size_t)t->n_ops[rank]++] = op;
}

static struct op *due_of(const struct v_try *t, int rank, int index)
{
    return &t->due[(size_t)rank * 2 * (size_t)t->problem->micro_batches + (size_t)index];
}

static bool has_w(const struct v_try *t, int rank)
{
    return t->n_w[rank] < t->n_backwards[rank];
}
static const struct op *next_w(const struct v_try *t, int rank)
{
    return due_of(t, rank, t->n_w[rank]);
}

static void put_w(struct v_try *t, int rank)
{
    const struct v_problem *q = t->problem;
    struct op w = *next_w(t, rank);
    t->n_w[rank]++;
    t->now[rank] += q->cost[OP_W][w.stage];
    t->mem[rank] += q->mem[OP_W];
    push(t, rank, w);
    if (w.stage == q->pp - 1 && w.micro_batch == (uint32_t)q->micro_batches - 1)
        t->last_w_end = t->now[rank];
}

static void put(struct v_try *t, int leg, int rank)
{
    const struct v_problem *q = t->problem;
    enum op_kind kind = leg < B1 ? OP_F : OP_B;
    int i = t->count[leg][rank], stage = stage_of(t, leg, rank);
    if (t->failed || i >= q->micro_batches || t->mem[rank] + q->mem[kind] > q->mem_limit ||
        (leg > 0 && *end_of(t, leg - 1, rank, i) == ABSENT)) {
        t->failed = true;
        return;
    }
    int64_t start = t->now[rank];
    const int64_t *source = source_of(t, leg, rank);
    if (source && *source == ABSENT) {
        t->failed = true;
        return;
    }
    if (source)
        start = larger(start, *source + q->comm);
    if (t->count[F0][rank] > 0)
        t->bubble[rank] += start - t->now[rank];
    t->worst_bubble = larger(t->worst_bubble, t->bubble[rank]);
    t->now[rank] = *end_of(t, leg, rank, i) = start + q->cost[kind][stage];
    t->mem[rank] += q->mem[kind];
    push(t, rank, op_plain(kind, 0, stage, i));
    if (kind == OP_B)
        *due_of(t, rank, t->n_backwards[rank]++) = op_plain(OP_W, 0, stage, i);
    t->count[leg][rank]++;
}

/* ---- the three parts ---- */

static void fill_down_and_up(struct v_try *t)
{
    const struct v_problem *q = t->problem;
    for (int i = 0; i < q->pp; i++)
        put(t, F0, i);
    for (int i = q->pp - 1; i >= 0 && !t->failed; i--) {
        int64_t until = i == q->pp - 1 ? ABSENT : *end_of(t, F1, i + 1, 0) + q->comm;
        while (!t->failed && i < q->pp - 1 && t->mem[i] + q->mem[OP_F] * (2 + 2 * i) <= q->mem_limit &&
               t->now[i] + q->cost[OP_F][i] <= until && t->count[F0][i] < q->micro_batches)
            for (int j = 0; j <= i; j++)
                put(t, F0, j);
        put(t, F1, i);
    }
}

/* Every rank is to have run as many forwards as the rank above it. */
static void fill_lower_ranks(struct v_try *t)
{
    const struct v_problem *q = t->problem;
    int leg = F0;
    for (int i = 1; i < q->pp; i++)
        for (int idle = 0; !t->failed && idle < 2; leg = F1 - leg) {
            bool fewer = t->count[F0][i] + t->count[F1][i] < t->count[F0][i - 1] + t->count[F1][i - 1];
            bool behind = t->count[F1][i] <= t->count[F1][i - 1] && t->count[F1][i - 1] < q->micro_batches;
            if (!fewer && !behind)
                break;
            idle++;
            for (int j = q->pp - 1; j >= i; j--)
                if (t->count[leg][j] < q->micro_batches) {
                    put(t, leg, j);
                    idle = 0;
                }
        }
}

static int64_t allowed_bubble(const struct v_try *t, int rank)
{
    int64_t worst = t->approved ? larger(t->worst_bubble, t->most_approved - t->approved[rank]) : t->worst_bubble;
    return worst - t->bubble[rank];
}

/* W's before the leg's op: all that fit before its input arrives, and one more where the gap is longer than this rank
 * may idle. Where the input is the rank's own, the original looks at the very last W of the schedule instead (an index
 * of -1): kept, it decides rarely and only at the end. */
static void fill_gap(struct v_try *t, int leg, int rank, bool fill)
{
    const struct v_problem *q = t->problem;
    const int64_t *source = source_of(t, leg, rank);
    while (has_w(t, rank) && source && *source != ABSENT &&
           *source + q->comm >= t->now[rank] + q->cost[OP_W][next_w(t, rank)->stage])
        put_w(t, rank);
    int64_t until = source ? *source : t->last_w_end;
    if (fill && has_w(t, rank) && until != ABSENT && until + q->comm - t->now[rank] > allowed_bubble(t, rank))
        put_w(t, rank);
}

static bool make_room(struct v_try *t, enum op_kind kind, int rank)
{
    while (t->mem[rank] + t->problem->mem[kind] > t->problem->mem_limit) {
        if (!has_w(t, rank)) {
            t->failed = true;
            return false;
        }
        put_w(t, rank);
    }
    return true;
}

static int backward_leg(const struct v_try *t, int rank)
{
    if (t->count[B0][rank] >= t->count[B1][rank])
        return B1;
    if (rank == t->problem->pp - 1 || t->count[B1][rank] >= t->problem->micro_batches)
        return B0;
    return *source_of(t, B0, rank) != ABSENT ? B0 : B1;
}

/* F0, F1 or -1: none now. */
static int forward_leg(const struct v_try *t, int rank)
{
    const struct v_problem *q = t->problem;
    if (t->count[F1][rank] >= q->micro_batches)
        return -1;
    if (t->count[F1][rank] >= t->count[F0][rank])
        return F0;
    if (rank == q->pp - 1 || *source_of(t, F1, rank) != ABSENT)
        return F1;
    if (t->count[F0][rank] < q->micro_batches && (rank == 0 || *source_of(t, F0, rank) != ABSENT))
        return F0;
    return -1;
}

static void put_backward(struct v_try *t, int leg, int rank)
{
    fill_gap(t, leg, rank, leg == B0 || t->fill_b);
    put(t, leg, rank);
}

static void run_round(struct v_try *t, int *legs)
{
    const struct v_problem *q = t->problem;
    for (int i = 0; i < q->pp && make_room(t, OP_B, i); i++)
        ;
    for (int i = 0; i < q->pp; i++)
        legs[i] = t->failed ? -1 : backward_leg(t, i);
    for (int i = q->pp - 1; i >= 0 && !t->failed; i--)
        if (legs[i] == B0)
            put_backward(t, B0, i);
    for (int i = 0; i < q->pp && !t->failed; i++)
        if (legs[i] == B1)
            put_backward(t, B1, i);
    for (int i = 0; i < q->pp && !t->failed; i++) {
        int leg = forward_leg(t, i);
        if (leg < 0 || !make_room(t, OP_F, i))
            continue;
        fill_gap(t, leg, i, t->fill_f);
        put(t, leg, i);
    }
}

static void init_try(struct v_try *t, const struct v_problem *problem, struct arena *arena)
{
    size_t ranks = (size_t)problem->pp, m = (size_t)problem->micro_batches;
    t->problem = problem;
    for (int leg = 0; leg < LEGS; leg++) {
        t->count[leg] = arena_array(arena, ranks, sizeof(int));
        t->end[leg] = arena_array(arena, ranks * m, sizeof(int64_t));
        for (size_t i = 0; i < ranks * m; i++)
            t->end[leg][i] = ABSENT;
    }
    t->now = arena_array(arena, ranks, sizeof(int64_t));
    t->mem = arena_array(arena, ranks, sizeof(int64_t));
    t->bubble = arena_array(arena, ranks, sizeof(int64_t));
    t->due = arena_array(arena, 2 * ranks * m, sizeof *t->due);
    t->n_backwards = arena_array(arena, ranks, sizeof(int));
    t->n_w = arena_array(arena, ranks, sizeof(int));
    t->ops = arena_array(arena, 6 * ranks * m, sizeof *t->ops);
    t->n_ops = arena_array(arena, ranks, sizeof(int));
    t->last_w_end = ABSENT;
}

static void run_try(struct v_try *t, struct arena *arena)
{
    int *legs = arena_array(arena, (size_t)t->problem->pp, sizeof *legs);
    fill_down_and_up(t);
    fill_lower_ranks(t);
    for (int i = 0; i < 2 * t->problem->micro_batches && !t->failed; i++)
        run_round(t, legs);
    for (int i = 0; i < t->problem->pp; i++)
        while (has_w(t, i))
            put_w(t, i);
}

/* A way of filling and its retries; each may idle as long as the try before, and stays only if it idles less. */
static bool plan_way(const struct v_problem *problem, bool fill_f, bool fill_b, struct arena *arena, struct v_try *best)
{
    struct v_try tries[2] = {0};
    tries[0].fill_f = fill_f;
    tries[0].fill_b = fill_b;
    init_try(&tries[0], problem, arena);
    run_try(&tries[0], arena);
    if (tries[0].failed)
        return false;
    *best = tries[0];
    for (;;) {
        tries[1] = (struct v_try){
            .fill_f = fill_f, .fill_b = fill_b, .approved = tries[0].bubble, .most_approved = tries[0].worst_bubble};
        init_try(&tries[1], problem, arena);
        run_try(&tries[1], arena);
        if (tries[1].failed || tries[1].worst_bubble >= best->worst_bubble)
            return true;
        *best = tries[0] = tries[1];
    }
}

static int plan(const struct v_problem *problem, struct arena *arena, struct v_try *best)
{
    int found = -1;
    for (int way = 3; way >= 0; way--) {
        struct v_try candidate;
        if (!plan_way(problem, way & 1, way & 2, arena, &candidate) ||
            (found == 0 && candidate.worst_bubble >= best->worst_bubble))
            continue;
        *best = candidate;
        found = 0;
    }
    return found;
}

static void set_up(struct v_problem *problem, const struct schedule_request *request, struct arena *arena)
{
    int64_t *ones = arena_array(arena, 2 * (size_t)request->pp, sizeof *ones);
    for (int s = 0; s < 2 * request->pp; s++)
        ones[s] = 1;
    int64_t freed_by_b = (int64_t)llround(request->freed_by_b * mem_unit);
    double limit = 2 * (request->memory_limit > 0 ? request->memory_limit : request->pp),
           most = 2.0 * (request->micro_batches + request->pp + 1); /* never reached */
    *problem = (struct v_problem){
        .pp = request->pp,
        .micro_batches = request->micro_batches,
        .comm = request->comm_ticks,
        .cost = {request->forward_ticks ? request->forward_ticks : ones,
                 request->backward_ticks ? request->backward_ticks : ones,
                 request->wgrad_ticks ? request->wgrad_ticks : ones},
        .mem = {(int64_t)mem_unit, -freed_by_b, freed_by_b - (int64_t)mem_unit},
        .mem_limit = (int64_t)floor((limit < most ? limit : most) * mem_unit),
    };
}

static int validate(const struct schedule_request *request, struct err *err)
{
    if (request->memory_limit < 0 || (request->memory_limit > 0 && request->memory_limit < 1))
        return err_add(
            err, "a memory limit of %g stage activations does not hold both chunks of a micro-batch; nearest valid: 1",
            request->memory_limit);
    if (request->freed_by_b < 0 || request->freed_by_b > 1)
        return err_add(err, "B frees %g of an activation; allowed: 0 to 1", request->freed_by_b);
    return 0;
}

static int emit_published(const struct v_problem *problem, struct arena *arena, struct program *ret, struct err *err)
{
    struct arena scratch = {0};
    struct v_try best;
    int m = problem->micro_batches, result = plan(problem, &scratch, &best);
    if (result == 0)
        result = program_init(ret, arena, PLACEMENT_V, problem->pp, 2, 0, m, 6 * (int64_t)m, err);
    for (int r = 0; result == 0 && r < problem->pp; r++)
        for (int i = 0; i < best.n_ops[r]; i++)
            program_push(ret, r, best.ops[(size_t)r * 6 * (size_t)m + (size_t)i]);
    arena_release(&scratch);
    return result;
}

/* Takes the candidate when it fits the memory limit and is better than what is there; both belong to the same arena. */
static void take_better(const struct v_problem *problem, struct program *best, struct timeline *best_timeline,
                        const struct program *candidate, struct arena *arena)
{
    struct timeline timeline;
    size_t stages = 2 * (size_t)problem->pp;
    int64_t *costs = arena_array(arena, 3 * stages, sizeof *costs);
    for (size_t s = 0; s < stages; s++) {
        costs[s] = problem->comm;
        costs[stages + s] = problem->mem[OP_F];
        costs[2 * stages + s] = -problem->mem[OP_B];
    }
    struct engine_costs engine = {.forward_ps = problem->cost[OP_F],
                                  .backward_ps = problem->cost[OP_B],
                                  .wgrad_ps = problem->cost[OP_W],
                                  .p2p_ps = costs,
                                  .act_bytes = costs + stages,
                                  .act_b_bytes = costs + 2 * stages};
    if (engine_run(candidate, &engine, arena, &timeline, NULL) < 0 ||
        timeline_peak_bytes(&timeline, NULL) > problem->mem_limit)
        return;
    if (best->ops &&
        (timeline.span_ps > best_timeline->span_ps ||
         (timeline.span_ps == best_timeline->span_ps && timeline.makespan_ps >= best_timeline->makespan_ps)))
        return;
    *best = *candidate;
    *best_timeline = timeline;
}

static int emit_best(const struct v_problem *problem, const struct schedule_request *request, struct arena *arena,
                     struct program *ret, struct err *err)
{
    static const struct schedule *const fixed[] = {&schedule_zb_v, &schedule_v_half, &schedule_v_min};
    struct program best = {0}, candidate;
    struct timeline timeline = {0};
    if (emit_published(problem, arena, &candidate, err) == 0)
        take_better(problem, &best, &timeline, &candidate, arena);
    struct schedule_request plain = {.pp = request->pp, .vp = 2, .micro_batches = request->micro_batches};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i]->emit(&plain, arena, &candidate, err) == 0)
            take_better(problem, &best, &timeline, &candidate, arena);
    if (!best.ops)
        return -1;
    *ret = best;
    return 0;
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    struct arena scratch = {0};
    struct v_problem problem;
    set_up(&problem, request, &scratch);
    bool published = request->variant == PUBLISHED;
    int result = published ? emit_published(&problem, arena, ret, err) : emit_best(&problem, request, arena, ret, err);
    if (result < 0)
        err_add(err, "no order found within a memory limit of %g stage activations; nearest valid: %d%s",
                request->memory_limit > 0 ? request->memory_limit : request->pp,
                published ? request->pp : schedule_min(request->micro_batches, (request->pp + 4) / 3),
                published ? " with the variant 'best'" : "");
    arena_release(&scratch);
    return result;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group, (void)rank;
    return schedule_min(2 * pp, 2 * micro_batches);
}

const struct schedule schedule_zb_v_auto = {
    .name = "zb-v-auto",
    .title = "automatic ZB-V",
    .cite = "Qi et al. 2024, arXiv:2405.15362",
    .variants = variants,
    .placement = PLACEMENT_V,
    .vp_min = 2,
    .vp_max = 2,
    .vp_default = 2,
    .splits_w = true,
    .weight_copies = 1,
    .validate = validate,
    .emit = emit,
    .in_flight = in_flight,
};
