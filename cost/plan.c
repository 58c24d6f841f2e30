/* The plan itself: defaults, sizes that follow from it, its name, its order.
 *
 * World = tp*cp*pp*dp (Narayanan et al. 2021, arXiv:2104.04473, section 3.1, with
 * cp added); micro-batches per pipeline = global_batch/(dp*micro_batch). Rules are
 * in plan_rules.c, sentences in plan_check.c, rank groups in plan_groups.c and
 * plan.json in plan_json.c. */
#include "cost/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cost/model.h"
#include "cost/plan_internal.h"

const char *const schedule_names[] = {
    "gpipe", "looped-bfs", "1f1b",   "interleaved", "zb-h1",  "zb-h2",    "zb-auto",   "interleaved-zb",
    "zb-v",  "zb-v-auto",  "v-half", "v-min",       "1f1b-v", "dualpipe", "dualpipev", NULL,
};
const char *const schedule_titles[] = {
    "GPipe", "BFS",       "1F1B",   "1F1B-I", "ZB-H1",  "ZB-H2",    "ZB-auto",   "ZB-I",
    "ZB-V",  "ZB-V-auto", "V-Half", "V-Min",  "1F1B-V", "DualPipe", "DualPipeV", NULL,
};
const char *const recompute_names[] = {"none", "selective", "full", NULL};
const char *const context_parallel_names[] = {"ring", "ulysses", NULL};
const char *const optimizer_names[] = {"adamw", "sgd", NULL};
const char *const attention_names[] = {"flash", "flash1", "unfused", "eager", NULL};
const char *const moe_dispatcher_names[] = {"flex", "alltoall", "hybridep", NULL};
const char *const cuda_graph_names[] = {"none", "router", "partial", "full", NULL};
const char *const vocab_parallel_names[] = {"edges", "pipeline", "pipeline-2", "interlaced", NULL};
const char *const cross_entropy_names[] = {"stack", "unfused", "fused", "in-place", "chunked", NULL};
const char *const recompute_module_names[] = {"core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts", NULL};
const char *const offload_module_names[] = {"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act", NULL};
const char *const lora_module_names[] = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", NULL};
const char *const axis_names[] = {"tp", "cp", "ep", "dp", "pp", NULL};

_Static_assert(sizeof(schedule_names) / sizeof(schedule_names[0]) == SCHEDULES + 1, "one word per schedule");
_Static_assert(sizeof(schedule_titles) / sizeof(schedule_titles[0]) == SCHEDULES + 1, "one title per schedule");
_Static_assert(sizeof(optimizer_names) / sizeof(optimizer_names[0]) == OPTIMIZERS + 1, "one word per optimizer");
_Static_assert(sizeof(recompute_module_names) / sizeof(recompute_module_names[0]) == RECOMPUTE_MODULES + 1, "one word per module");
_Static_assert(sizeof(offload_module_names) / sizeof(offload_module_names[0]) == OFFLOAD_MODULES + 1, "one word per module");
_Static_assert(sizeof(lora_module_names) / sizeof(lora_module_names[0]) == LORA_MODULES + 1, "one word per module");
_Static_assert(sizeof(axis_names) / sizeof(axis_names[0]) == AXES + 1, "one word per axis");

void plan_defaults(struct plan *plan)
{
    memset(plan, 0, sizeof *plan); /* padding too: equal plans are equal bytes */
    plan->tp = plan->cp = plan->pp = plan->vp = plan->dp = plan->ep = plan->etp = 1;
    plan->context_parallel = CP_RING;
    plan->zero = 1;
    plan->micro_batch = 1;
    plan->global_batch = 128;
    plan->seq_len = 4096;
    plan->schedule = SCHEDULE_1F1B;
    plan->recompute = RECOMPUTE_NONE;
    plan->recompute_layers = -1;
    plan->precision = PRECISION_BF16;
    plan->optimizer = OPTIMIZER_ADAMW;
    plan->attention = ATTENTION_FLASH;
    plan->fp8_param_gather = true;
    plan->moe_dispatcher = DISPATCHER_FLEX;
    plan->moment_bytes = 4;
    plan->overlap.dp_grad = plan->overlap.dp_param = plan->overlap.p2p = true;
    for (int i = 0; i < AXES; i++)
        plan->rank_order[i] = (enum axis)i;
    memcpy(plan->stack, "megatron", sizeof "megatron");
}

bool plan_keeps_low_weights(const struct plan *plan)
{
    return plan->fp8_param_gather && precision_is_fp8(plan->precision) && plan->precision != PRECISION_NVFP4 && plan->zero >= 1 && plan->lora_rank == 0;
}

int64_t plan_world(const struct plan *plan)
{
    return plan_mul(plan_mul(plan->tp, plan->cp), plan_mul(plan->pp, plan->dp));
}

int64_t plan_micro_batches(const struct plan *plan)
{
    return plan->global_batch / plan_mul(plan->dp, plan->micro_batch);
}

int64_t plan_chunks(const struct plan *plan)
{
    return plan_mul(plan->pp, plan->vp);
}

int plan_chunk_layers(const struct plan *plan, const struct model *model, int chunk)
{
    if (plan->n_layers_per_stage > 0)
        return chunk >= 0 && chunk < plan->n_layers_per_stage ? plan->layers_per_stage[chunk] : 0;
    return (int)(model->layers / plan_chunks(plan));
}

int64_t plan_largest_chunk(const struct plan *plan, const struct model *model)
{
    if (plan->n_layers_per_stage == 0)
        return model->layers / plan_chunks(plan);
    int64_t most = 0;
    for (int i = 0; i < plan->n_layers_per_stage; i++)
        if (plan->layers_per_stage[i] > most)
            most = plan->layers_per_stage[i];
    return most;
}

bool plan_stack_is(const struct plan *plan, const char *name)
{
    return strcmp(plan->stack, name) == 0;
}

/* Variants of a stack are named after it: "torchtitan-eager", "fsdp1-triton". */
static bool stack_begins(const struct plan *plan, const char *name)
{
    return strncmp(plan->stack, name, strlen(name)) == 0;
}

bool plan_stack_is_torch(const struct plan *plan)
{
    return stack_begins(plan, "torchtitan") || stack_begins(plan, "fsdp2");
}

bool plan_stack_pads_vocab(const struct plan *plan)
{
    return !plan_stack_is_torch(plan) && !stack_begins(plan, "fsdp1") && !plan_stack_is(plan, "deepspeed");
}

int64_t plan_padded_vocab(const struct plan *plan, const struct model *model)
{
    if (!plan_stack_pads_vocab(plan))
        return model->vocab;
    if (plan_stack_is(plan, "vtrain"))
        return model->vocab / plan->tp * plan->tp;
    int64_t unit = plan_mul(128, plan->tp);
    int64_t rows = model->vocab / unit + (model->vocab % unit != 0);
    return plan_mul(rows, unit);
}

/* --- the name that users read ------------------------------------------- */

struct text {
    char *buffer;
    size_t size, used; /* used <= size - 1 */
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text->buffer + text->used, text->size - text->used, format, args);
    va_end(args);
    if (n > 0)
        text->used = text->used + (size_t)n < text->size ? text->used + (size_t)n : text->size - 1;
}

/* Runs of equal counts are written once: 11,12x14,11. */
static void text_add_layers(struct text *text, const struct plan *plan)
{
    for (int i = 0, run; i < plan->n_layers_per_stage; i += run) {
        for (run = 1; i + run < plan->n_layers_per_stage; run++)
            if (plan->layers_per_stage[i + run] != plan->layers_per_stage[i])
                break;
        text_add(text, "%s%d", i == 0 ? " layers " : ",", plan->layers_per_stage[i]);
        if (run > 1)
            text_add(text, "x%d", run);
    }
}

static bool order_is_default(const struct plan *plan)
{
    for (int i = 0; i < AXES; i++)
        if (plan->rank_order[i] != (enum axis)i)
            return false;
    return true;
}

const char *plan_format(const struct plan *plan, char *buffer, size_t size)
{
    if (size == 0)
        return buffer;
    struct text text = {buffer, size, 0};
    buffer[0] = '\0';
    text_add(&text, "TP%d%s", plan->tp, plan->sequence_parallel ? " SP" : "");
    if (plan->cp > 1)
        text_add(&text, " CP%d%s", plan->cp, plan->context_parallel == CP_ULYSSES ? "-Ulysses" : "");
    text_add(&text, " PP%d DP%d EP%d", plan->pp, plan->dp, plan->ep);
    if (plan->etp > 1)
        text_add(&text, " ETP%d", plan->etp);
    text_add(&text, " ZeRO-%d", plan->zero);
    if (plan->dp_shard > 0)
        text_add(&text, "/%d", plan->dp_shard);
    text_add(&text, " mbs%d vp%d %s", plan->micro_batch, plan->vp, schedule_titles[plan->schedule]);
    if (plan->schedule_group > 0)
        text_add(&text, " group%d", plan->schedule_group);
    if (plan->recompute != RECOMPUTE_NONE)
        text_add(&text, " recompute-%s", recompute_names[plan->recompute]);
    if (plan->recompute != RECOMPUTE_NONE && plan->recompute_layers >= 0)
        text_add(&text, "-%d", plan->recompute_layers);
    text_add_layers(&text, plan);
    if (plan->cuda_graph != CUDA_GRAPH_NONE)
        text_add(&text, " graphs-%s", cuda_graph_names[plan->cuda_graph]);
    if (plan->vocab_parallel != VOCAB_EDGES)
        text_add(&text, " vocab-%s", vocab_parallel_names[plan->vocab_parallel]);
    if (plan->optimizer_offload > 0)
        text_add(&text, " offload-%.0f%%", 100 * plan->optimizer_offload);
    if (plan->lora_rank > 0)
        text_add(&text, " LoRA-%d", plan->lora_rank);
    if (plan->offload_layers > 0)
        text_add(&text, " offload-%d-layers", plan->offload_layers);
    for (int i = 0; i < OFFLOAD_MODULES; i++)
        if (plan->offload_modules >> i & 1)
            text_add(&text, " offload-%s", offload_module_names[i]);
    for (int i = 0; i < AXES && !order_is_default(plan); i++)
        text_add(&text, "%s%s", i == 0 ? " " : "-", axis_names[plan->rank_order[i]]);
    return buffer;
}

/* --- total order ---------------------------------------------------------- */

enum { KEY_MAX = 48 };

/* Everything but fractions, the list and the stack, in the order of the struct. */
static int sort_key(const struct plan *p, int64_t ret_key[KEY_MAX])
{
    /* clang-format off */
    const int64_t key[] = {
        p->tp, p->cp, p->pp, p->vp, p->dp, p->ep, p->etp, p->sequence_parallel, p->context_parallel, p->zero,
        p->micro_batch, p->global_batch, p->seq_len, p->schedule, p->schedule_group, p->recompute, p->recompute_layers,
        p->precision, p->optimizer, p->attention, p->moe_dispatcher,
        p->overlap.dp_grad, p->overlap.dp_param, p->overlap.tp, p->overlap.ep, p->overlap.p2p,
        p->rank_order[0], p->rank_order[1], p->rank_order[2], p->rank_order[3], p->rank_order[4],
        p->n_layers_per_stage, p->recompute_modules, p->cuda_graph, p->vocab_parallel, p->dp_shard,
        p->cross_entropy, p->dropout, p->offload_layers, p->offload_modules, p->lora_rank, p->lora_modules,
        p->fused_grouped_mlp, p->fp8_attention, p->fp8_param_gather,
    };
    /* clang-format on */
    _Static_assert(sizeof key <= KEY_MAX * sizeof key[0], "room for the key");
    memcpy(ret_key, key, sizeof key);
    return (int)(sizeof key / sizeof key[0]);
}

int plan_compare(const struct plan *a, const struct plan *b)
{
    int64_t left[KEY_MAX], right[KEY_MAX];
    int n = sort_key(a, left);
    sort_key(b, right);
    for (int i = 0; i < n; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    for (int i = 0; i < a->n_layers_per_stage; i++)
        if (a->layers_per_stage[i] != b->layers_per_stage[i])
            return a->layers_per_stage[i] < b->layers_per_stage[i] ? -1 : 1;
    const double fractions[][2] = {{a->grad_bytes, b->grad_bytes}, {a->optimizer_offload, b->optimizer_offload}, {a->moment_bytes, b->moment_bytes}};
    int order = 0;
    for (int i = 0; i < 3 && order == 0; i++)
        order = (fractions[i][0] > fractions[i][1]) - (fractions[i][0] < fractions[i][1]);
    return order != 0 ? order : strcmp(a->stack, b->stack);
}
