#include "exec/shapes.h"

#include <string.h>

#include "cost/base/err.h"
#include "cost/model.h"
#include "cost/ops.h"
#include "cost/plan.h"

enum { LINES_MAX = 256 };

static int add_linear(struct shapes *s, const struct op_line *line, struct err *err)
{
    struct shape_linear shape = {line->op_class == OP_EXPERTS, (int)line->m, (int)line->n, (int)line->k,
                                 line->products};
    for (int i = 0; i < s->n_linears; i++) {
        const struct shape_linear *old = &s->linear[i];
        if (old->m == shape.m && old->n == shape.n && old->k == shape.k && old->expert == shape.expert)
            return 0;
    }
    if (s->n_linears == SHAPES_LINEAR_MAX)
        return err_add(err, "the plans have more than %d linear layers of different shapes", SHAPES_LINEAR_MAX);
    s->linear[s->n_linears++] = shape;
    return 0;
}

static int add_linears(struct shapes *s, const struct op_log *log, struct err *err)
{
    for (int i = 0; i < log->n; i++)
        if (log->line[i].phase == PHASE_F && log->line[i].m >= 1 && add_linear(s, &log->line[i], err) < 0)
            return -1;
    return 0;
}

/* Prices are not wanted here: any cluster and stack will do. */
static int add_ops(struct shapes *s, const struct model *model, const struct plan *plan, struct err *err)
{
    static const struct stack stack = {.gemm_speed = 1, .attention_speed = 1, .collective_speed = 1, .norm_passes = 1};
    static const struct cluster nowhere = {
        .accelerators = 1 << 30, .n_groups = 1, .group = {{.nodes = 1, .accelerators_per_node = 1 << 30}}};
    struct op_line line[LINES_MAX];
    struct op_log log = {.max = LINES_MAX, .line = line};
    struct ops_context context;
    struct layer_price price;
    ops_context_init(&context, model, &nowhere, plan, &stack, &log);
    for (int kind = 0; kind < model->n_kinds; kind++) {
        log.n = 0;
        ops_price_layer(&context, kind, &price);
        if (add_linears(s, &log, err) < 0)
            return -1;
    }
    log.n = 0;
    ops_price_head(&context, &price);
    return add_linears(s, &log, err);
}

static int add_attention(struct shapes *s, const struct model *model, const struct plan *plan, struct err *err)
{
    int cp = plan->cp, heads = (int)model->heads / plan->tp, kv_heads = (int)model->kv_heads / plan->tp;
    bool ulysses = cp > 1 && plan->context_parallel == CP_ULYSSES;
    int ways = ulysses ? cp : 1;
    struct bench_attention a = {.batch = plan->micro_batch,
                                .heads = heads / ways,
                                .kv_heads = kv_heads / ways > 0 ? kv_heads / ways : 1,
                                .head_dim = (int)model->head_dim,
                                .sequence = (int)(ulysses ? plan->seq_len : plan->seq_len / cp)};
    for (int i = 0; i < s->n_attentions; i++)
        if (memcmp(&s->attention[i], &a, sizeof a) == 0)
            return 0;
    if (s->n_attentions == SHAPES_ATTENTION_MAX)
        return err_add(err, "the plans have more than %d attention cores of different shapes", SHAPES_ATTENTION_MAX);
    s->attention[s->n_attentions++] = a;
    return 0;
}

/* Mean over the pipeline of what a rank updates. */
static double parameters_of(const struct model *model, const struct plan *plan)
{
    double dense = ops_shard_embedding(model, plan) + (model->tied ? 0 : ops_shard_head(model, plan)), expert = 0;
    for (int64_t i = 0; i < model->layers; i++) {
        struct layer_shard shard;
        ops_shard_layer(model, plan, model->kind_of_layer[i], &shard);
        dense += shard.dense;
        expert += shard.expert;
    }
    double ways = plan->zero > 0 ? (double)plan->dp * plan->cp : 1;
    double expert_ways = plan->zero > 0 ? ways * plan->tp / plan->ep / plan->etp : 1;
    return (dense / ways + expert / (expert_ways > 1 ? expert_ways : 1)) / plan->pp;
}

static void add_pointwise(struct shapes *s, const struct model *model, const struct plan *plan)
{
    const struct layer_kind *kind = &model->kinds[model->n_kinds - 1];
    int64_t tokens = plan->micro_batch * plan->seq_len / plan->cp;
    int layers = (int)(model->layers / plan->pp), kv_heads = (int)model->kv_heads / plan->tp;
    struct bench_pointwise shape = {
        .hidden = (int)model->hidden,
        .ffn = (int)kind->ffn / (kind->moe ? plan->etp : plan->tp),
        .heads = (int)model->heads / plan->tp,
        .kv_heads = kv_heads > 0 ? kv_heads : 1,
        .head_dim = (int)model->head_dim,
        .tokens = (int)tokens,
        .vocab = (int)ops_vocab_per_rank(model, plan),
        .layers = layers > 0 ? layers : 1,
        .parameters = (int64_t)parameters_of(model, plan),
        .activations = (int)(kind->moe ? tokens / plan->tp * model->experts_per_token * plan->etp : tokens),
        .routed = kind->moe ? (int)(tokens / plan->tp) : 0,
        .choices = (int)model->experts_per_token,
        .alone = plan->ep * plan->etp == 1,
    };
    for (int i = 0; i < s->n_plans; i++)
        if (memcmp(&s->plan[i], &shape, sizeof shape) == 0)
            return;
    s->plan[s->n_plans++] = shape;
}

int shapes_add(struct shapes *s, const struct model *model, const struct plan *plan, struct err *err)
{
    if (s->n_plans == SHAPES_PLANS_MAX)
        return err_add(err, "more than %d plans", SHAPES_PLANS_MAX);
    if (add_ops(s, model, plan, err) < 0 || add_attention(s, model, plan, err) < 0)
        return -1;
    add_pointwise(s, model, plan);
    return 0;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t shapes_largest(const struct shapes *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->n_linears; i++) {
        const struct shape_linear *l = &s->linear[i];
        n = most(n, most((int64_t)l->m * l->n, most((int64_t)l->n * l->k, (int64_t)l->m * l->k)));
    }
    for (int i = 0; i < s->n_attentions; i++) {
        const struct bench_attention *a = &s->attention[i];
        n = most(n, (int64_t)a->batch * a->sequence * (a->heads + 2 * a->kv_heads) * a->head_dim);
    }
    for (int i = 0; i < s->n_plans; i++) {
        const struct bench_pointwise *p = &s->plan[i];
        n = most(n, (int64_t)p->tokens * most(p->vocab, p->hidden));
        n = most(n, most(2 * (int64_t)p->activations * p->ffn, (int64_t)p->routed * p->choices * p->hidden));
        n = most(n, (int64_t)p->vocab * p->hidden);
    }
    return n;
}
