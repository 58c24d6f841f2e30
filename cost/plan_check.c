/* The rules that a plan breaks, said in whole sentences: subject, values, what is
 * allowed, the nearest valid values, products with their factors (V09). The bits
 * come from plan_broken_rules, so that what is said is what is tested. */
#include "cost/plan.h"

#include <stdio.h>

#include "cost/base/err.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan_check.h"
#include "cost/plan_internal.h"

/* --- world and experts' world ------------------------------------------------ */

static void say_sizes(const struct plan_check *c)
{
    const struct plan *p = c->plan;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"tp", p->tp},
                 {"cp", p->cp},
                 {"pp", p->pp},
                 {"vp", p->vp},
                 {"dp", p->dp},
                 {"ep", p->ep},
                 {"etp", p->etp},
                 {"micro_batch", p->micro_batch},
                 {"global_batch", p->global_batch},
                 {"seq_len", p->seq_len}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1)
            err_add(c->err, "%s is %lld, but must be at least 1", sizes[i].name, ll(sizes[i].value));
}

static const char *world_product(const struct plan *plan, char *buffer, size_t size)
{
    snprintf(buffer, size, "tp %d x cp %d x pp %d x dp %d = %lld", plan->tp, plan->cp, plan->pp, plan->dp,
             ll(plan_world(plan)));
    return buffer;
}

static int accelerators_per_node(const struct cluster *cluster)
{
    int fewest = 0;
    for (int i = 0; i < cluster->n_groups; i++)
        if (fewest == 0 || cluster->group[i].accelerators_per_node < fewest)
            fewest = cluster->group[i].accelerators_per_node;
    return fewest;
}

static void say_world(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t need = plan_world(plan), have = c->cluster->accelerators;
    int64_t replica = plan_mul(plan_mul(plan->tp, plan->cp), plan->pp);
    int per_node = accelerators_per_node(c->cluster);
    char product[128], nodes[96] = "";
    world_product(plan, product, sizeof product);
    if (need > have && per_node > 0)
        snprintf(nodes, sizeof nodes, " (%lld nodes of %d)", ll(need / per_node + (need % per_node != 0)), per_node);
    if (have % replica == 0)
        err_add(c->err, "the plan needs %s accelerators%s, cluster '%s' has %lld; with dp %lld it uses them all",
                product, nodes, c->cluster->name, ll(have), ll(have / replica));
    else
        err_add(c->err,
                "the plan needs %s accelerators%s, cluster '%s' has %lld, which is no multiple of tp x cp x pp = %lld; "
                "nearest "
                "valid numbers of accelerators: %s",
                product, nodes, c->cluster->name, ll(have), ll(replica), plan_multiples_around(have, replica).text);
}

static void say_ep_world(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t block = plan_mul(plan_mul(plan->etp, plan->ep), plan->pp);
    int64_t replica = plan_mul(plan_mul(plan->tp, plan->cp), plan->pp);
    int64_t smallest = plan_least_common_multiple(block, replica);
    char product[128], cluster[96] = "";
    world_product(plan, product, sizeof product);
    if (c->cluster && c->cluster->accelerators != plan_world(plan))
        snprintf(cluster, sizeof cluster, " (cluster: %lld %% %lld = %lld)", ll(c->cluster->accelerators), ll(block),
                 ll(c->cluster->accelerators % block));
    err_add(
        c->err,
        "expert world etp %d x ep %d x pp %d = %lld does not divide the world %s: %lld %% %lld = %lld%s; at least %lld "
        "accelerators (dp %lld) and multiples of that",
        plan->etp, plan->ep, plan->pp, ll(block), product, ll(plan_world(plan)), ll(block),
        ll(plan_world(plan) % block), cluster, ll(smallest), ll(smallest / replica));
}

static void say_ep_experts(const struct plan_check *c)
{
    int64_t experts = c->model->experts;
    err_add(c->err, "ep %d does not divide the %lld experts: %lld %% %d = %lld; valid ep: %s", c->plan->ep, ll(experts),
            ll(experts), c->plan->ep, ll(experts % c->plan->ep), plan_divisors(experts).text);
}

static void say_ep_dense(const struct plan_check *c)
{
    if (c->plan->ep > 1)
        err_add(c->err, "ep %d on model '%s', which has no experts; ep must be 1", c->plan->ep, c->model->name);
    if (c->plan->etp > 1)
        err_add(c->err, "etp %d on model '%s', which has no experts; etp must be 1", c->plan->etp, c->model->name);
}

/* --- widths --------------------------------------------------------------- */

static void say_heads(const struct plan_check *c)
{
    if (c->model->heads % c->plan->tp == 0) {
        err_add(c->err, "tp %d does not divide the %lld groups of the state-space mixers: %lld %% %d = %lld; valid tp: %s", c->plan->tp,
                ll(c->model->ssm_groups), ll(c->model->ssm_groups), c->plan->tp, ll(c->model->ssm_groups % c->plan->tp),
                plan_divisors(plan_greatest_common_divisor(c->model->heads, c->model->ssm_groups)).text);
        return;
    }
    err_add(c->err, "tp %d does not divide num_attention_heads %lld: %lld %% %d = %lld; valid tp: %s", c->plan->tp,
            ll(c->model->heads), ll(c->model->heads), c->plan->tp, ll(c->model->heads % c->plan->tp),
            plan_divisors(c->model->heads).text);
}

/* tp values that suit both counts of heads, from 1 up. */
static void say_kv_heads(const struct plan_check *c)
{
    struct plan_list list = {"", 0, 0};
    int64_t kv = c->model->kv_heads;
    for (int64_t tp = 1; tp <= c->model->heads && tp <= 1 << 16; tp++)
        if (c->model->heads % tp == 0 && (tp % kv == 0 || kv % tp == 0))
            plan_list_add(&list, ", ", tp);
    err_add(c->err,
            "tp %d and num_key_value_heads %lld do not divide each other: kv heads are split evenly, or replicated "
            "when tp is a "
            "multiple of them; valid tp: %s",
            c->plan->tp, ll(kv), list.text);
}

static void say_ffn(const struct plan_check *c)
{
    for (int i = 0; i < c->model->n_kinds; i++) {
        const struct layer_kind *kind = &c->model->kinds[i];
        int64_t width = kind->moe ? kind->shared_ffn : kind->ffn;
        if (width % c->plan->tp != 0 && !kind->mixer_only)
            err_add(c->err, "tp %d does not divide the %s width %lld: %lld %% %d = %lld; valid tp: %s", c->plan->tp,
                    kind->moe ? "shared experts'" : "MLP", ll(width), ll(width), c->plan->tp, ll(width % c->plan->tp),
                    plan_divisors(plan_greatest_common_divisor(width, c->model->heads)).text);
    }
}

static void say_etp_ffn(const struct plan_check *c)
{
    for (int i = 0; i < c->model->n_kinds; i++) {
        const struct layer_kind *kind = &c->model->kinds[i];
        if (kind->moe && kind->ffn % c->plan->etp != 0)
            err_add(c->err, "etp %d does not divide the width %lld of one expert: %lld %% %d = %lld; valid etp: %s",
                    c->plan->etp, ll(kind->ffn), ll(kind->ffn), c->plan->etp, ll(kind->ffn % c->plan->etp),
                    plan_divisors(kind->ffn).text);
    }
}

static void say_vocab(const struct plan_check *c)
{
    int64_t vocab = c->model->vocab, tp = c->plan->tp;
    err_add(c->err,
            "tp %lld does not divide vocab_size %lld: %lld %% %lld = %lld, and stack '%s' does not pad the vocabulary; "
            "pad it to "
            "%lld or take a tp that divides it",
            ll(tp), ll(vocab), ll(vocab), ll(tp), ll(vocab % tp), c->plan->stack, ll((vocab / tp + 1) * tp));
}

/* --- sequence --------------------------------------------------------------- */

static void say_sp_needs_tp(const struct plan_check *c)
{
    err_add(c->err, "sequence_parallel needs tp > 1, but tp is 1; set sequence_parallel to false or tp to %s",
            !c->model || c->model->heads % 2 == 0 ? "2" : plan_divisors(c->model->heads).text);
}

static void say_sequence(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t unit = plan_sequence_unit(plan);
    char why[160] = "";
    size_t used = 0;
    if (plan->cp > 1)
        used = (size_t)snprintf(why, sizeof why,
                                plan->context_parallel == CP_RING ? "ring attention cuts it into 2 x cp %d pieces"
                                                                  : "Ulysses cuts it into cp %d pieces",
                                plan->cp);
    if (plan->sequence_parallel)
        snprintf(why + used, sizeof why - used, "%ssequence parallelism %s into tp %d parts", used > 0 ? ", " : "",
                 used > 0 ? "each rank's share" : "cuts it", plan->tp);
    err_add(c->err, "seq_len %lld is not a multiple of %lld (%s); nearest valid: %s", ll(plan->seq_len), ll(unit), why,
            plan_multiples_around(plan->seq_len, unit).text);
}

static void say_cp_heads(const struct plan_check *c)
{
    struct plan_list list = {"", 0, 0};
    int64_t heads = c->model->heads, kv = c->model->kv_heads, tp = c->plan->tp;
    for (int64_t cp = 1; cp <= heads / tp && cp <= 1 << 16; cp++)
        if (heads % (tp * cp) == 0 && (kv == 0 || (tp * cp) % kv == 0 || kv % (tp * cp) == 0))
            plan_list_add(&list, ", ", cp);
    err_add(c->err,
            "Ulysses needs whole heads on every rank: tp %lld x cp %d = %lld must divide num_attention_heads %lld and "
            "go with "
            "num_key_value_heads %lld; valid cp: %s, or context_parallel ring",
            ll(tp), c->plan->cp, ll(plan_mul(tp, c->plan->cp)), ll(heads), ll(kv), list.count > 0 ? list.text : "none");
}

static void say_ep_sp(const struct plan_check *c)
{
    err_add(c->err,
            "experts with tp %d and ep %d need sequence_parallel true: without it every tp rank would dispatch the "
            "same tokens",
            c->plan->tp, c->plan->ep);
}

static void say_seq_model(const struct plan_check *c)
{
    err_add(c->err,
            "seq_len %lld exceeds the %lld learned positions of model '%s'; at most %lld, or "
            "max_position_embeddings raised in the model file when it is trained from scratch",
            ll(c->plan->seq_len), ll(c->model->max_positions), c->model->name, ll(c->model->max_positions));
}

/* --- the rest ----------------------------------------------------------- */

static void say_zero(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    if (plan->zero < 0 || plan->zero > 3)
        err_add(c->err, "zero is %d; allowed: 0, 1, 2, 3", plan->zero);
    else
        err_add(c->err, "zero %d does not go with pp %d in stack '%s'; allowed with pp > 1: zero 0 or 1%s", plan->zero,
                plan->pp, plan->stack, plan_stack_is(plan, "deepspeed") ? "" : " or 2, zero 3 in torchtitan and fsdp2");
}

static void say_precision(const struct plan_check *c)
{
    char known[128];
    size_t used = 0;
    for (int i = 0; i < PRECISIONS; i++)
        if (plan_accelerator_has(c->cluster, (enum precision)i))
            used +=
                (size_t)snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "", precision_names[i]);
    err_add(c->err, "accelerator '%s' of cluster '%s' does not support precision '%s'; it has %s",
            c->cluster->accelerator.name, c->cluster->name, precision_names[c->plan->precision], known);
}

static void say_rank_order(const struct plan_check *c)
{
    if (!plan_order_is_permutation(c->plan))
        err_add(c->err, "rank_order must name each of tp, cp, ep, dp and pp once");
    else
        err_add(c->err,
                "rank_order puts pp inside dimensions that etp %d and ep %d cut differently than tp %d, cp %d and dp "
                "%d do; "
                "put pp last",
                c->plan->etp, c->plan->ep, c->plan->tp, c->plan->cp, c->plan->dp);
}

static void say_adapters(const struct plan_check *c)
{
    char named[96], there[96];
    uint32_t idle = plan_idle_adapters(c->model), all = (1U << LORA_MODULES) - 1;
    err_add(c->err, "lora_modules %s name no linear that model '%s' has outside its routed experts: nothing would be trained; allowed: %s",
            plan_join_bits(lora_module_names, c->plan->lora_modules ? c->plan->lora_modules : all, named, sizeof named), c->model->name,
            idle == all ? "none, lora_rank must be 0" : plan_join_bits(lora_module_names, all & ~idle, there, sizeof there));
}

static void say_dp_shard(const struct plan_check *c)
{
    int64_t ranks = plan_mul(c->plan->dp, c->plan->cp);
    err_add(c->err, "dp_shard %d does not divide dp %d x cp %d = %lld: %lld %% %d = %lld; valid dp_shard: %s", c->plan->dp_shard, c->plan->dp, c->plan->cp,
            ll(ranks), ll(ranks), c->plan->dp_shard, ll(ranks % c->plan->dp_shard), plan_divisors(ranks).text);
}

static void say_offload(const struct plan_check *c)
{
    char modules[160];
    if (c->plan->offload_layers > 0)
        err_add(c->err, "activation_offload_layers %d goes with recompute 'none' or 'selective', not 'full': what is recomputed is not kept; set it to 0 or recompute to none",
                c->plan->offload_layers);
    if (c->plan->offload_modules)
        err_add(c->err, "offload_modules %s go with recompute 'none' or 'selective', not 'full': what is recomputed is not kept; set them to null or recompute to none",
                plan_join_bits(offload_module_names, c->plan->offload_modules, modules, sizeof modules));
}

static void (*const sayings[RULES])(const struct plan_check *) = {
    [RULE_WORLD] = say_world,
    [RULE_HEADS_TP] = say_heads,
    [RULE_KV_HEADS_TP] = say_kv_heads,
    [RULE_FFN_TP] = say_ffn,
    [RULE_VOCAB_TP] = say_vocab,
    [RULE_SP_NEEDS_TP] = say_sp_needs_tp,
    [RULE_SEQ_SP_CP] = say_sequence,
    [RULE_CP_HEADS] = say_cp_heads,
    [RULE_LAYERS_SPLIT] = plan_say_layers_split,
    [RULE_LAYERS_LIST] = plan_say_layers_list,
    [RULE_PP_LAYERS] = plan_say_pp_layers,
    [RULE_VP_NEEDS_PP] = plan_say_vp_needs_pp,
    [RULE_VP_SCHEDULE] = plan_say_vp_schedule,
    [RULE_MICRO_BATCHES_PP] = plan_say_micro_batches,
    [RULE_BATCH] = plan_say_batch,
    [RULE_DP_BATCH] = plan_say_dp_batch,
    [RULE_EP_EXPERTS] = say_ep_experts,
    [RULE_EP_WORLD] = say_ep_world,
    [RULE_EP_DENSE] = say_ep_dense,
    [RULE_ETP_FFN] = say_etp_ffn,
    [RULE_EP_SP] = say_ep_sp,
    [RULE_ZERO_PP] = say_zero,
    [RULE_PRECISION_ACCELERATOR] = say_precision,
    [RULE_SEQ_MODEL] = say_seq_model,
    [RULE_RECOMPUTE_LAYERS] = plan_say_recompute,
    [RULE_SCHEDULE] = plan_say_schedule,
    [RULE_RANK_ORDER] = say_rank_order,
    [RULE_ADAPTERS] = say_adapters,
    [RULE_DP_SHARD] = say_dp_shard,
    [RULE_OFFLOAD] = say_offload,
};

/* --- what is allowed but worth knowing ------------------------------------- */

/* Nodes start at multiples of their size: a group stays inside when its block divides the node (V13). */
static void warn_tp_nodes(const struct plan_check *c)
{
    struct rank_group group;
    int per_node = c->cluster ? accelerators_per_node(c->cluster) : 0;
    if (per_node == 0 || c->plan->tp == 1 || !plan_order_is_permutation(c->plan))
        return;
    plan_rank_group(c->plan, GROUP_TP, &group);
    int64_t block = plan_mul(group.dim[0].size, group.dim[0].stride);
    int64_t nodes = block / per_node + (block % per_node != 0);
    if (per_node % block != 0)
        err_add(
            c->err,
            "tp %d reaches across %lld nodes of %d accelerators: its all-reduces of every layer run over the network",
            c->plan->tp, ll(nodes > 1 ? nodes : 2), per_node);
}

static void warn_model(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    const struct model *model = c->model;
    int64_t padded = plan_padded_vocab(plan, model);
    if (padded != model->vocab)
        err_add(c->err, "vocab_size %lld is padded to %lld, a multiple of 128 x tp %d", ll(model->vocab), ll(padded),
                plan->tp);
    int64_t parts = plan->context_parallel == CP_ULYSSES ? plan_mul(plan->tp, plan->cp) : plan->tp;
    if (model->kv_heads > 0 && parts > model->kv_heads && parts % model->kv_heads == 0)
        err_add(c->err,
                "num_key_value_heads %lld are fewer than %s %lld: each kv head is on %lld ranks, its weights are not "
                "divided further",
                ll(model->kv_heads), parts > plan->tp ? "tp x cp" : "tp", ll(parts), ll(parts / model->kv_heads));
    if (!model->learned_positions && model->max_positions > 0 && plan->seq_len > model->max_positions)
        err_add(c->err, "seq_len %lld exceeds max_position_embeddings %lld of model '%s'", ll(plan->seq_len),
                ll(model->max_positions), model->name);
}

int plan_check(const struct plan *plan, const struct model *model, const struct cluster *cluster, struct err *warn,
               struct err *err)
{
    const struct plan_check c = {plan, model, cluster, err}, w = {plan, model, cluster, warn};
    uint32_t broken = plan_broken_rules(plan, model, cluster);
    if (!plan_sizes_are_positive(plan)) {
        say_sizes(&c);
        return -1;
    }
    for (int rule = 0; rule < RULES; rule++)
        if (broken & (uint32_t)1 << rule)
            sayings[rule](&c);
    warn_tp_nodes(&w);
    if (model) {
        warn_model(&w);
        plan_warn_idle(&w);
    }
    return broken ? -1 : 0;
}
