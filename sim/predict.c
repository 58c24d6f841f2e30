/* The prediction of one plan.
 *
 * step = pipeline makespan (engine) + what each rank adds once per step (exposed
 * gradient and parameter collectives, optimizer; the slowest rank) + the stack's
 * overhead. The breakdown is that of the busiest pipeline rank; its idle time is
 * split into what messages cause (pp_exposed: makespan minus the makespan with
 * messages that take no time) and bubble. MFU counts model FLOPs only (no
 * recompute, attention causal-halved) against the dense 16-bit peak, or the 8-bit
 * peak for fp8 recipes. */
#include "sim/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/kernel.h"
#include "sim/pipeline.h"
#include "sim/schedule.h"
#include "sim/stages.h"

const char *const time_part_names[] = {"compute",    "recompute",  "tp_exposed", "cp_exposed", "ep_exposed", "pp_exposed",
                                       "dp_exposed", "bubble",     "optimizer",  "other",      NULL};

/* DualPipe: each rank holds two modules, and each direction runs half of the micro-batches. */
static bool schedule_halves(const struct plan *plan)
{
    return schedule_of(plan->schedule)->placement == PLACEMENT_BIDIR;
}

/* 80 % of the measured runs of this stack in this situation lie between the two (hwprofiles/residuals.csv); wider by
 * half on an accelerator that no run was fitted to. */
static void prediction_interval(const struct question *q, const struct stack *stack, struct prediction *p)
{
    const struct accelerator *a = &q->cluster->accelerator;
    bool nodes = plan_world(&p->plan) > q->cluster->group[0].accelerators_per_node;
    const struct factor_range *range = &stack->spread[q->model->experts > 0][nodes];
    double widen = a->calibrated_runs > 0 ? 1 : 1.5;
    p->step_time_low_s = p->step_time_s * pow(fmin(range->low, 1), widen);
    p->step_time_high_s = p->step_time_s * pow(fmax(range->high, 1), widen);
}

static void fill_memory(const struct stages *stages, const struct pipeline *pipeline, struct prediction *p)
{
    p->n_stages = stages->plan->pp;
    p->peak_bytes = 0;
    p->worst_stage = 0;
    for (int r = 0; r < p->n_stages; r++) {
        struct stage_price sum;
        stages_sum_rank(stages, r, &sum);
        p->stage[r].total = stages_rank_memory(stages, r, &sum, pipeline->kept_bytes[r], pipeline->gradient_bytes[r], p->stage[r].bytes);
        if (p->stage[r].total > p->peak_bytes) {
            p->peak_bytes = p->stage[r].total;
            p->worst_stage = r;
        }
    }
    p->fits = p->peak_bytes <= p->limit_bytes;
}

static void fill_time(const struct stages *stages, const struct pipeline *pipeline, struct prediction *p)
{
    const struct plan *plan = stages->plan;
    const struct stack *stack = stages->prices->stack;
    double micro_batches = (double)plan_micro_batches(plan), busy_all = 0;
    struct rank_step worst = {0};
    struct stage_price sum, critical = {0};
    double scale = schedule_halves(plan) ? 0.5 : 1; /* DualPipe's two modules share the micro-batches */
    int critical_rank = 0;
    for (int r = 0; r < plan->pp; r++) {
        stages_sum_rank(stages, r, &sum);
        struct rank_step step = stages_rank_step(stages, r, &sum);
        if (step.dp_exposed_s + step.optimizer_s > worst.dp_exposed_s + worst.optimizer_s)
            worst = step;
        if (r == 0 || pipeline->busy_s[r] > pipeline->busy_s[critical_rank]) {
            critical = sum;
            critical_rank = r;
        }
        busy_all += pipeline->busy_s[r];
        p->phase_s[PHASE_F] += sum.forward_s * micro_batches * scale / plan->pp;
        p->phase_s[PHASE_B] += sum.backward_s * micro_batches * scale / plan->pp;
        p->phase_s[PHASE_W] += sum.wgrad_s * micro_batches * scale / plan->pp;
        for (int i = 0; i < TIME_PARTS; i++)
            p->inside_s[i] += sum.part_s[i] * micro_batches * scale / plan->pp;
    }
    double parts = 0, busy = pipeline->busy_s[critical_rank];
    for (int i = 0; i < TIME_PARTS; i++) {
        p->time_s[i] = critical.part_s[i] * micro_batches * scale;
        parts += p->time_s[i];
    }
    p->time_s[TIME_EP] = fmax(0, p->time_s[TIME_EP] - fmax(0, parts - busy)); /* overlapped slots hide expert traffic first */
    parts = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        parts += p->time_s[i];
    if (parts > busy) /* ... then compute */
        p->time_s[TIME_COMPUTE] -= parts - busy;
    p->time_s[TIME_PP] = fmax(0, pipeline->makespan_s - pipeline->makespan_no_p2p_s);
    p->time_s[TIME_BUBBLE] = pipeline->makespan_s - busy - p->time_s[TIME_PP];
    if (p->time_s[TIME_BUBBLE] < 0) {
        p->time_s[TIME_PP] += p->time_s[TIME_BUBBLE];
        p->time_s[TIME_BUBBLE] = 0;
    }
    if (p->time_s[TIME_PP] < 0) { /* rounding */
        p->time_s[TIME_COMPUTE] += p->time_s[TIME_PP];
        p->time_s[TIME_PP] = 0;
    }
    p->time_s[TIME_DP] += worst.dp_exposed_s;
    p->time_s[TIME_OPTIMIZER] = worst.optimizer_s;
    double overhead_s = stack->step_overhead_s + micro_batches * plan->vp * stack->micro_batch_overhead_s;
    p->time_s[TIME_OTHER] += overhead_s;
    p->step_time_s = pipeline->makespan_s + worst.dp_exposed_s + worst.optimizer_s + overhead_s;
    p->wait_s = pipeline->makespan_s - busy_all / plan->pp;
    p->end_s = p->step_time_s - pipeline->makespan_s;
    p->reduction_s = worst.dp_exposed_s - worst.gather_exposed_s;
    p->gather_s = worst.gather_exposed_s;
    p->overhead_s = overhead_s;
    p->n_chunks = stages->n <= PREDICT_STAGES_MAX ? stages->n : 0;
    for (int i = 0; i < p->n_chunks; i++) {
        p->chunk_s[i][PHASE_F] = stages->stage[i].forward_s;
        p->chunk_s[i][PHASE_B] = stages->stage[i].backward_s;
        p->chunk_s[i][PHASE_W] = stages->stage[i].wgrad_s;
    }
    p->bubble_fraction = fmax(0, 1 - busy_all / (plan->pp * pipeline->makespan_s));
}

static void fill_rates(const struct question *q, struct prediction *p)
{
    const struct plan *plan = &p->plan;
    double world = (double)plan_world(plan), tokens = (double)plan->global_batch * (double)plan->seq_len;
    struct model_flops flops;
    model_count_flops(q->model, plan->seq_len, &flops);
    p->tokens_per_s_per_gpu = tokens / p->step_time_s / world;
    double training = plan->lora_rank > 0 ? flops.training * 2 / 3 : flops.training; /* frozen weights have no gradient */
    p->model_flop_per_s_per_gpu = p->tokens_per_s_per_gpu * training;
    const struct accelerator *a = &q->cluster->accelerator;
    p->mfu = p->model_flop_per_s_per_gpu / a->peak_flop_per_s[kernel_rate(a, precision_rate(plan->precision))];
    double price = q->cluster->price_per_accelerator_hour;
    p->cost_per_step = price > 0 ? price * world * p->step_time_s / 3600 : -1;
    p->provenance = a->provenance;
}

int predict_priced(const struct question *question, const struct plan *plan, const struct layer_prices *prices, double give_up_s,
                   struct arena *arena, struct prediction *ret, struct err *err)
{
    struct arena_mark mark = arena_mark(arena);
    struct stage_price *stage = arena_array(arena, (size_t)plan->pp * (size_t)plan->vp, sizeof *stage);
    struct pipeline *pipeline = arena_alloc(arena, sizeof *pipeline);
    struct stages stages;
    memset(ret, 0, sizeof *ret);
    ret->plan = *plan;
    ret->limit_bytes = question->memory_limit_bytes;
    struct stage_places places;
    stages_place(question, plan, &places);
    stages_fill(&stages, question, plan, prices, &places, stage);
    int result = pipeline_run(&stages, give_up_s, arena, pipeline, err);
    if (result == 0) {
        fill_time(&stages, pipeline, ret);
        fill_memory(&stages, pipeline, ret);
        fill_rates(question, ret);
        prediction_interval(question, prices->stack, ret);
    }
    arena_rewind(arena, mark);
    return result;
}

int predict_plan(const struct question *question, const struct plan *plan, struct prediction *ret, struct err *err)
{
    const struct stack *stack = question_stack(question, plan->stack);
    if (!stack)
        return err_add(err, "plan: stack '%s' is not among the loaded ones", plan->stack);
    if (plan_broken_rules(plan, question->model, question->cluster) && plan_check(plan, question->model, question->cluster, NULL, err) < 0)
        return -1;
    if (plan->pp > PREDICT_STAGES_MAX)
        return err_add(err, "plan: pp %d is more than the %d stages that a prediction holds", plan->pp, PREDICT_STAGES_MAX);
    struct layer_prices *prices = malloc(sizeof *prices);
    if (!prices)
        return err_add(err, "out of memory");
    struct arena arena = {0};
    layer_prices_fill(prices, question, plan, stack);
    int result = predict_priced(question, plan, prices, INFINITY, &arena, ret, err);
    arena_release(&arena);
    free(prices);
    return result;
}
