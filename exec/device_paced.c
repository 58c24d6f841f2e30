#include "exec/device_paced.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/ops.h"
#include "cost/plan.h"
#include "exec/device.h"

static void allocate(struct pacing *ret, const struct program *program)
{
    size_t n = (size_t)program->stages;
    ret->stages = program->stages;
    ret->forward_s = calloc(3 * n, sizeof(double));
    if (!ret->forward_s)
        abort();
    ret->backward_s = ret->forward_s + n;
    ret->wgrad_s = ret->backward_s + n;
}

void pacing_equal(struct pacing *ret, const struct program *program, double forward_s, double backward_s,
                  double wgrad_s)
{
    int chunks = program->directions == 2 ? 1 : program->chunks;
    allocate(ret, program);
    for (int s = 0; s < program->stages; s++) {
        ret->forward_s[s] = forward_s / chunks;
        ret->backward_s[s] = backward_s / chunks;
        ret->wgrad_s[s] = wgrad_s / chunks;
    }
}

static double phase_s(const struct layer_price *p, enum phase phase)
{
    return p->compute_s[phase] + p->tp_s[phase] + p->cp_s[phase] + p->ep_s[phase];
}

static void add(struct pacing *pacing, int stage, const struct layer_price *p)
{
    pacing->forward_s[stage] += phase_s(p, PHASE_F);
    pacing->backward_s[stage] += phase_s(p, PHASE_B);
    pacing->wgrad_s[stage] += phase_s(p, PHASE_W);
}

static double recompute_s(const struct plan *plan, const struct layer_price *p, int place)
{
    if (plan->recompute == RECOMPUTE_SELECTIVE)
        return p->selective_s + p->selective_tp_s;
    bool full = plan->recompute == RECOMPUTE_FULL && (plan->recompute_layers < 0 || place < plan->recompute_layers);
    return full ? p->full_s + p->full_tp_s + p->full_cp_s + p->full_ep_s : 0;
}

void pacing_price(struct pacing *ret, const struct program *program, const struct model *model,
                  const struct cluster *cluster, const struct plan *plan, const struct stack *stack)
{
    struct ops_context context;
    struct layer_price price;
    int layer = 0;
    allocate(ret, program);
    ops_context_init(&context, model, cluster, plan, stack, NULL);
    for (int s = 0; s < program->stages; s++) {
        int n = plan_chunk_layers(plan, model, s);
        for (int i = 0; i < n; i++, layer++) {
            ops_price_layer(&context, model->kind_of_layer[layer], &price);
            add(ret, s, &price);
            ret->backward_s[s] += recompute_s(plan, &price, i);
        }
        if (s == 0) {
            ops_price_embedding(&context, &price);
            add(ret, s, &price);
        }
        if (s == program->stages - 1) {
            ops_price_head(&context, &price);
            add(ret, s, &price);
        }
    }
}

void pacing_release(struct pacing *pacing)
{
    free(pacing->forward_s);
    *pacing = (struct pacing){0};
}

double pacing_seconds(const struct pacing *pacing, int stage, enum op_kind kind)
{
    switch (kind) {
    case OP_F:
        return pacing->forward_s[stage];
    case OP_B:
        return pacing->backward_s[stage];
    case OP_W:
        return pacing->wgrad_s[stage];
    case OP_BW:
        return pacing->backward_s[stage] + pacing->wgrad_s[stage];
    default:
        return 0;
    }
}

void pacing_sleep_until(double end_s)
{
    struct timespec end = {(time_t)end_s, (long)((end_s - (double)(time_t)end_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
}
