/* Automatic zero bubble: an order made for given costs and a given memory limit.
 *
 * Claim: the shortest span of any rank (first start to last end) that the heuristic of Qi et al. finds, for costs that
 * differ from stage to stage; then improved. No closed form. With a limit of P activations it has ZB-H1's memory, with
 * 2P it reaches zero span bubble at equal stages ("ZB1P", "ZB2P").
 *   heuristic: warm-up with as many forwards as fit before the first B arrives, within the limit and fewer from rank to
 *   rank; then one F and one B per round; W's fill gaps of at least W, or are run when memory is full; best of 8 ways.
 *   in flight <= limit on every rank
 * Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 3.1, and the authors' zb.py (which
 * is this heuristic, not the ILP). Variants: "best" never gives a longer span or makespan than ZB-H1 where the limit
 * allows ZB-H1; "published" is the heuristic alone.
 *
 * drawing: pp=3 vp=1 m=4 F=1 B=1 W=1
 *   rank 0 | F0
 */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/schedules/schedules.h"
#include "sim/schedules/zb_plan.h"

#include <math.h>

enum { BEST, PUBLISHED };
static const char *const variants[] = { "best", "published", NULL };

static const double mem_unit = 1 << 20; /* of F's memory */

static int64_t limit_of(const struct schedule_request *request)
{
    double limit = request->memory_limit > 0 ? request->memory_limit : request->pp;
    return limit >= request->micro_batches ? (int64_t)mem_unit * (request->micro_batches + 1) : (int64_t)floor(limit * mem_unit);
}

static void set_up(struct zb_problem *problem, const struct schedule_request *request, struct arena *arena)
{
    int64_t *ones = arena_array(arena, (size_t)request->pp, sizeof *ones);
    for (int j = 0; j < request->pp; j++)
        ones[j] = 1;
    int64_t freed_by_b = (int64_t)llround(request->freed_by_b * mem_unit);
    *problem = (struct zb_problem){
        .pp = request->pp, .micro_batches = request->micro_batches, .comm = request->comm_ticks,
        .cost = { request->forward_ticks ? request->forward_ticks : ones, request->backward_ticks ? request->backward_ticks : ones,
                  request->wgrad_ticks ? request->wgrad_ticks : ones },
        .mem = { (int64_t)mem_unit, -freed_by_b, freed_by_b - (int64_t)mem_unit },
        .mem_limit = limit_of(request),
    };
}

static struct zb_plan new_plan(const struct zb_problem *problem, struct arena *arena)
{
    return (struct zb_plan){ .kind = arena_array(arena, 3 * (size_t)problem->pp * (size_t)problem->micro_batches, 1) };
}

/* The shortest span of the eight ways; the first of equals, in the order of the original. */
static int plan_published(const struct zb_problem *problem, struct arena *arena, struct zb_plan *best)
{
    int found = -1;
    struct zb_plan plan = new_plan(problem, arena);
    for (int way = 7; way >= 0; way--) {
        struct zb_choices choices = { way & 4, way & 2, way & 1 };
        if (zb_plan_make(problem, choices, arena, &plan) < 0 || (found == 0 && plan.span >= best->span))
            continue;
        struct zb_plan previous = *best;
        *best = plan;
        plan = previous;
        found = 0;
    }
    return found;
}

static int emit_plan(const struct zb_problem *problem, const struct zb_plan *plan, struct arena *arena, struct program *ret,
                     struct err *err)
{
    int m = problem->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, problem->pp, 1, 0, m, 3 * (int64_t)m, err) < 0)
        return -1;
    for (int j = 0; j < problem->pp; j++) {
        int next[3] = { 0 };
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
    struct arena scratch = { 0 };
    struct zb_problem problem;
    set_up(&problem, request, &scratch);
    struct zb_plan plan = new_plan(&problem, &scratch);
    int result = plan_published(&problem, &scratch, &plan);
    if (result < 0)
        err_add(err, "no order found within a memory limit of %g stage activations", request->memory_limit);
    else
        result = emit_plan(&problem, &plan, arena, ret, err);
    arena_release(&scratch);
    return result;
}

const struct schedule schedule_zb_auto = {
    .name = "zb-auto",
    .title = "automatic zero bubble",
    .cite = "Qi et al. 2023, arXiv:2401.10241",
    .variants = variants,
    .placement = PLACEMENT_LOOP,
    .vp_min = 1, .vp_max = 1, .vp_default = 1,
    .splits_w = true,
    .weight_copies = 1,
    .validate = validate,
    .emit = emit,
};
