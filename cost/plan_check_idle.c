/* Fields of a plan that have no effect on this model, or that no framework runs so: said, so that nobody counts on a saving
 * that is not there. */
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/model.h"
#include "cost/plan_check.h"
#include "cost/plan_internal.h"
#include "cost/precision.h"

/* What the layers have. */
struct parts {
    bool mixer, window, dense_mlp, experts, shared_experts;
};

static struct parts parts_of(const struct model *model)
{
    struct parts p = {.experts = model->experts > 0};
    for (int i = 0; i < model->n_kinds; i++) {
        const struct layer_kind *kind = &model->kinds[i];
        p.mixer |= kind->mixer != MIXER_NONE;
        p.window |= kind->window > 0;
        p.dense_mlp |= !kind->moe && !kind->mixer_only;
        p.shared_experts |= kind->moe && kind->shared_ffn > 0;
    }
    return p;
}

static uint32_t bit_unless(bool there, int bit)
{
    return there ? 0 : 1U << bit;
}

uint32_t plan_idle_adapters(const struct model *model)
{
    struct parts p = parts_of(model);
    bool mlp = p.dense_mlp || p.shared_experts;
    return bit_unless(p.mixer, LORA_LINEAR_QKV) | bit_unless(p.mixer, LORA_LINEAR_PROJ) | bit_unless(mlp, LORA_LINEAR_FC1) | bit_unless(mlp, LORA_LINEAR_FC2);
}

const char *plan_join_bits(const char *const *names, uint32_t bits, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; names[i] && used < size; i++)
        if (bits >> i & 1)
            used += (size_t)snprintf(buffer + used, size - used, "%s%s", used > 0 ? ", " : "", names[i]);
    return buffer;
}

static void say_idle(const struct plan_check *c, const char *field, const char *const *names, uint32_t bits)
{
    char list[160];
    if (bits)
        err_add(c->err, "%s %s: model '%s' has no such part, nothing changes", field, plan_join_bits(names, bits, list, sizeof list), c->model->name);
}

static void warn_modules(const struct plan_check *c, const struct parts *p)
{
    const struct plan *plan = c->plan;
    uint32_t recompute = bit_unless(p->dense_mlp, MODULE_MLP) | bit_unless(p->experts, MODULE_MOE) | bit_unless(p->experts, MODULE_MOE_ACT) |
                         bit_unless(c->model->mla, MODULE_MLA_UP_PROJ) | bit_unless(p->shared_experts, MODULE_SHARED_EXPERTS);
    uint32_t offload = bit_unless(p->experts, OFFLOAD_EXPERT_FC1) | bit_unless(p->experts, OFFLOAD_MOE_ACT);
    if (plan->recompute == RECOMPUTE_SELECTIVE)
        say_idle(c, "recompute_modules", recompute_module_names, plan->recompute_modules & recompute);
    else if (plan->recompute_modules)
        err_add(c->err, "recompute_modules go with recompute 'selective', not '%s': they change nothing", recompute_names[plan->recompute]);
    say_idle(c, "offload_modules", offload_module_names, plan->offload_modules & offload);
    if (plan->lora_rank > 0)
        say_idle(c, "lora_modules", lora_module_names, plan->lora_modules & plan_idle_adapters(c->model));
    else if (plan->lora_modules)
        err_add(c->err, "lora_modules are named, but lora_rank is 0: all weights are trained");
}

static void warn_attention(const struct plan_check *c, const struct parts *p)
{
    const struct plan *plan = c->plan;
    if (!plan->fp8_attention)
        return;
    if (!precision_is_fp8(plan->precision))
        err_add(c->err, "fp8_attention goes with an 8-bit precision, not '%s': attention stays in 16 bit", precision_names[plan->precision]);
    else if (plan->attention >= ATTENTION_UNFUSED)
        err_add(c->err, "fp8_attention goes with fused attention, not '%s': attention stays in 16 bit", attention_names[plan->attention]);
    else if (p->window)
        err_add(c->err, "fp8_attention has no kernel for sliding windows, which model '%s' has: attention stays in 16 bit", c->model->name);
}

static void warn_param_gather(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    if (!precision_is_fp8(plan->precision)) {
        if (!plan->fp8_param_gather)
            err_add(c->err, "fp8_param_gather goes with an 8-bit precision, not '%s': weights are in 16 bit as they are", precision_names[plan->precision]);
    } else if (plan->fp8_param_gather && plan->zero == 0 && strcmp(plan->stack, "planexec") != 0) {
        err_add(c->err, "fp8_param_gather goes with zero 1 or more, not 0: weights are kept in 16 bit beside their 8-bit copies");
    }
}

void plan_warn_idle(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    struct parts p = parts_of(c->model);
    int64_t most = plan_largest_chunk(plan, c->model);
    warn_modules(c, &p);
    warn_attention(c, &p);
    warn_param_gather(c);
    if (plan->fused_grouped_mlp && !p.experts)
        err_add(c->err, "fused_grouped_mlp: model '%s' has no experts, nothing changes", c->model->name);
    if (plan->overlap.ep && plan->ep > 1 && plan->pp > 1 && plan->schedule != SCHEDULE_INTERLEAVED)
        err_add(c->err, "overlap.ep beside pp %d goes with schedule 'interleaved' in the frameworks, not with '%s': it is priced as if it did", plan->pp,
                schedule_names[plan->schedule]);
    if (plan->offload_layers > most)
        err_add(c->err, "activation_offload_layers %d exceeds the %lld layers of the largest pipeline chunk: all of them are offloaded", plan->offload_layers,
                ll(most));
}
