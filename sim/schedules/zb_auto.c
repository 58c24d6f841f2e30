/* Automatic zero bubble: an order made for given costs and a given memory limit.
 *
 * Claim: a short span of every rank (first start to last end) for costs that may differ from stage to stage. No closed
 * form. With a limit of P activations it has ZB-H1's memory, with 2P it reaches zero span bubble at equal stages
 * ("ZB1P", "ZB2P").
 *   heuristic: warm-up with as many forwards as fit before the first B arrives, within the limit and fewer from rank to
 *   rank; then one F and one B per round; W's fill gaps of at least W, or are run when memory is full; best of 8 ways.
 *   in flight <= limit on every rank
 * Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 3.1, and the authors' zb.py
 * (which is this heuristic, not the ILP). Variants: "published" is the heuristic alone. "best", the usual one, takes
 * the best of it, ZB-H1 where the limit allows it, and two ways of dispatching; on small problems (3 P M <= 48) a
 * branch and bound then finds the optimum. Best = shortest span, then shortest makespan, never a longer makespan than
 * ZB-H1.
 *
 * drawing: pp=3 vp=1 m=4 F=1 B=1 W=1
 *   rank 0 | F0 F1 F2 .. .. B0 W0 F3 B1 W1 B2 W2 B3 W3
 *   rank 1 | .. F0 F1 .. B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
 *   rank 2 | .. .. F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
 */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/schedules/schedules.h"
#include "sim/schedules/zb_plan.h"

#include <math.h>

enum { BEST, PUBLISHED };
static const char *const variants[] = {"best", "published", NULL};

static const double mem_unit = 1 << 20; /* of F's memory */

static int64_t limit_of(const struct schedule_request *request)
{
    double limit = request->memory_limit > 0 ? request->memory_limit : request->pp;
    return limit >= request->micro_batches ? (int64_t)mem_unit * (request->micro_batches + 1)
                                           : (int64_t)floor(limit * mem_unit);
}

static void set_up(struct zb_problem *problem, const struct schedule_request *request, struct arena *arena)
{
    int64_t *ones = arena_array(arena, (size_t)request->pp, sizeof *ones);
    for (int j = 0; j < request->pp; j++)
        ones[j] = 1;
    int64_t freed_by_b = (int64_t)llround(request->freed_by_b * mem_unit);
    *problem = (struct zb_problem){
        .pp = request->pp,
        .micro_batches = request->micro_batches,
        .comm = request->comm_ticks,
        .cost = {request->forward_ticks ? request->forward_ticks : ones,
                 request->backward_ticks ? request->backward_ticks : ones,
                 request->wgrad_ticks ? request->wgrad_ticks : ones},
        .mem = {(int64_t)mem_unit, -freed_by_b, freed_by_b - (int64_t)mem_unit},
        .mem_limit = limit_of(request),
        .makespan_limit = INT64_MAX,
    };
}

static struct zb_plan new_plan(const struct zb_problem *problem, struct arena *arena)
{
    return (struct zb_plan){.kind = arena_array(arena, 3 * (size_t)problem->pp * (size_t)problem->micro_batches, 1),
                            .span = INT64_MAX};
}

static void take_better(const struct zb_problem *problem, struct zb_plan *best, struct zb_plan *candidate)
{
    if (!zb_better(problem, candidate, best))
        return;
    struct zb_plan previous = *best;
    *best = *candidate;
    *candidate = previous;
}

/* The shortest span of the eight ways; the first of equals, in the order of the original. */
static void plan_published(const struct zb_problem *problem, struct arena *arena, struct zb_plan *best)
{
    struct zb_plan plan = new_plan(problem, arena);
    for (int way = 7; way >= 0; way--) {
        struct zb_choices choices = {way & 4, way & 2, way & 1};
        if (zb_plan_make(problem, choices, arena, &plan) == 0 && plan.span < best->span)
            take_better(problem, best, &plan);
    }
}

static struct zb_plan plan_zb_h1(const struct zb_problem *problem, struct arena *arena)
{
    struct zb_plan plan = new_plan(problem, arena);
    int pp = problem->pp, m = problem->micro_batches;
    uint8_t *kind = plan.kind;
    for (int j = 0; j < pp; j++)
        for (int x = 0; x < m + pp - 1; x++) {
            int b = x - (pp - 1 - j), w = x - (pp - 1);
            if (x < m)
                *kind++ = OP_F;
            if (b >= 0 && b < m)
                *kind++ = OP_B;
            if (w >= 0)
                *kind++ = OP_W;
        }
    if (zb_plan_price(problem, arena, &plan) < 0)
        plan.span = INT64_MAX;
    return plan;
}

static void plan_best(struct zb_problem *problem, struct arena *arena, struct zb_plan *best)
{
    struct zb_plan plan = plan_zb_h1(problem, arena);
    if (plan.span < INT64_MAX)
        problem->makespan_limit = plan.makespan;
    take_better(problem, best, &plan);
    for (int patience = 0; patience < 2; patience++) {
        plan = new_plan(problem, arena);
        zb_plan_dispatch(problem, patience, arena, &plan);
        take_better(problem, best, &plan);
    }
    zb_search(problem, best);
}

static int emit_plan(const struct zb_problem *problem, const struct zb_plan *plan, struct arena *arena,
                     struct program *ret, struct err *err)
{
    int m = problem->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, problem->pp, 1, 0, m, 3 * (int64_t)m, err) < 0)
        return -1;
    for (int j = 0; j < problem->pp; j++) {
        int next[3] = {0};
        for (int i = 0; i < 3 * m; i++) {
            enum op_kind kind = (enum op_kind)plan->kind[(size_t)j * 3 * (size_t)m + (size_t)i];
            program_push(ret, j, op_plain(kind, 0, j, next[kind]++));
        }
    }
    return 0;
}

static int validate(const struct schedule_request *request, struct err *err)
{
    if (request->memory_limit < 0 || (request->memory_limit > 0 && request->memory_limit < 1))
        return err_add(err, "a memory limit of %g stage activations holds not one micro-batch; nearest valid: 1",
                       request->memory_limit);
    if (request->freed_by_b < 0 || request->freed_by_b > 1)
        return err_add(err, "B frees %g of an activation; allowed: 0 to 1", request->freed_by_b);
    return 0;
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    struct arena scratch = {0};
    struct zb_problem problem;
    set_up(&problem, request, &scratch);
    struct zb_plan plan = new_plan(&problem, &scratch);
    plan_published(&problem, &scratch, &plan);
    if (request->variant == BEST)
        plan_best(&problem, &scratch, &plan);
    int result = plan.span == INT64_MAX
                     ? err_add(err,
                               "the published heuristic finds no order with pp %d and %d micro-batches within "
                               "its memory limit; the variant 'best' does",
                               request->pp, request->micro_batches)
                     : emit_plan(&problem, &plan, arena, ret, err);
    arena_release(&scratch);
    return result;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group, (void)rank;
    return schedule_min(pp, micro_batches);
}

const struct schedule schedule_zb_auto = {
    .name = "zb-auto",
    .title = "automatic zero bubble",
    .cite = "Qi et al. 2023, arXiv:2401.10241",
    .variants = variants,
    .placement = PLACEMENT_LOOP,
    .vp_min = 1,
    .vp_max = 1,
    .vp_default = 1,
    .splits_w = true,
    .weight_copies = 1,
    .validate = validate,
    .emit = emit,
    .in_flight = in_flight,
};
