/* A plan as flags of Megatron-LM's pretrain_gpt.py.
 *
 * Names, choices and conditions are those of megatron/training/arguments.py and
 * megatron/core/transformer/transformer_config.py (Megatron-core 0.15 and later):
 * what validate_args and __post_init__ stop at is refused here. A list of layers that
 * is no "first, equal ones, last" becomes --pipeline-model-parallel-layout (E embedding,
 * t layer, m MTP module, L loss, | between chunks in stage order). ZeRO 2 and 3 are
 * Megatron-FSDP, which goes with tp, cp and ep, not with a pipeline. */
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "sim/writers/export_internal.h"

static void add_sizes(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    static const enum axis dp_inside[AXES] = {AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP};
    static const enum axis pp_inside[AXES] = {AXIS_TP, AXIS_CP, AXIS_EP, AXIS_PP, AXIS_DP};
    flag_add_int(list, "--tensor-model-parallel-size", p->tp);
    if (p->sequence_parallel)
        flag_add(list, "--sequence-parallel");
    flag_add_int(list, "--pipeline-model-parallel-size", p->pp);
    flag_add_int(list, "--context-parallel-size", p->cp);
    if (p->cp > 1)
        flag_add_text(list, "--cp-comm-type", p->context_parallel == CP_ULYSSES ? "a2a" : "p2p");
    if (export_has_experts(e) || !e->request->model) { /* Megatron-LM's default would be tp */
        flag_add_int(list, "--expert-model-parallel-size", p->ep);
        flag_add_int(list, "--expert-tensor-parallel-size", p->etp);
    }
    if (!export_order_is(e, dp_inside) && export_order_is(e, pp_inside))
        flag_add(list, "--use-tp-pp-dp-mapping");
    else if (!export_order_is(e, dp_inside))
        export_refuse(e, "rank_order", "another order", "tp-cp-ep-dp-pp and tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp");
    if (p->tp > 1 && !p->sequence_parallel && export_has_experts(e)) /* MoELayer.forward stops there */
        export_refuse(e, "sequence_parallel", "false with experts and tp > 1", "experts beside tensor parallelism with it", "true");
}

/* --- the pipeline ---------------------------------------------------------- */

static bool is_first_last(const struct plan *p)
{
    int n = p->n_layers_per_stage;
    if (p->vp > 1 || n < 2 || p->layers_per_stage[0] == 0 || p->layers_per_stage[n - 1] == 0)
        return false;
    for (int i = 2; i < n - 1; i++)
        if (p->layers_per_stage[i] != p->layers_per_stage[1])
            return false;
    return true;
}

static void add_layout(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    int n = p->n_layers_per_stage;
    int64_t mtp = e->request->model ? e->request->model->mtp_modules : 0;
    size_t size = (size_t)n * 12 + 32, used = 0;
    char *text = arena_alloc(&list->arena, size);
    for (int i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s", i == 0 ? "E" : "|");
        if (p->layers_per_stage[i] == 1)
            used += (size_t)snprintf(text + used, size - used, "t");
        else if (p->layers_per_stage[i] > 1)
            used += (size_t)snprintf(text + used, size - used, "t*%d", p->layers_per_stage[i]);
    }
    if (mtp > 0)
        used += (size_t)snprintf(text + used, size - used, mtp == 1 ? "m" : "m*%lld", (long long)mtp);
    snprintf(text + used, size - used, "L");
    flag_add_text(list, "--pipeline-model-parallel-layout", text);
}

static void add_schedule(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    bool known = p->schedule == SCHEDULE_1F1B || p->schedule == SCHEDULE_INTERLEAVED;
    if (p->pp == 1)
        return; /* one stage: all schedules are one */
    if (!known)
        export_refuse(e, "schedule", schedule_names[p->schedule], "1f1b (vp 1) and interleaved (vp 2 or more)", p->vp > 1 ? "interleaved" : "1f1b with vp 1");
    if (p->n_layers_per_stage > 0 && is_first_last(p)) {
        flag_add_int(list, "--decoder-first-pipeline-num-layers", p->layers_per_stage[0]);
        flag_add_int(list, "--decoder-last-pipeline-num-layers", p->layers_per_stage[p->n_layers_per_stage - 1]);
    } else if (p->n_layers_per_stage > 0) {
        add_layout(e, list);
    } else if (p->vp > 1) {
        flag_add_int(list, "--num-virtual-stages-per-pipeline-rank", p->vp);
    }
    if (p->schedule_group > 0)
        flag_add_int(list, "--microbatch-group-size-per-virtual-pipeline-stage", p->schedule_group);
    if (p->vp > 1 && !p->overlap.p2p && p->pp == 2)
        export_refuse(e, "overlap.p2p", "false", "it with vp > 1 and pp > 2 only", "true");
    else if (p->vp > 1 && !p->overlap.p2p)
        flag_add(list, "--no-overlap-p2p-communication");
}

/* --- data parallelism and optimizer ----------------------------------------- */

static void add_overlap(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    if (p->overlap.dp_grad)
        flag_add(list, "--overlap-grad-reduce");
    if (p->overlap.dp_param && p->zero > 0 && !p->overlap.dp_grad)
        export_refuse(e, "overlap.dp_param", "true with overlap.dp_grad false", "dp_param with dp_grad", "both true, or both false");
    else if (p->overlap.dp_param && p->zero > 0)
        flag_add(list, "--overlap-param-gather");
    if (p->overlap.tp && p->tp == 1)
        err_add(e->warn, "overlap.tp changes nothing: tp is 1");
    else if (p->overlap.tp && !p->sequence_parallel)
        export_refuse(e, "overlap.tp", "true with sequence_parallel false", "--tp-comm-overlap with sequence parallelism only", "sequence_parallel true, or overlap.tp false");
    else if (p->overlap.tp)
        flag_add(list, "--tp-comm-overlap");
}

static void add_expert_overlap(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    if (!p->overlap.ep)
        return;
    if (p->ep == 1) {
        err_add(e->warn, "overlap.ep changes nothing: ep is 1");
        return;
    }
    if (p->pp > 1 && p->vp == 1)
        export_refuse(e, "overlap.ep", "true with pp > 1 and vp 1", "it without a pipeline, or interleaved with vp 2 or more", "false");
    if (p->recompute == RECOMPUTE_FULL)
        export_refuse(e, "overlap.ep", "true with recompute full", "it with recompute none or selective", "false");
    if (p->precision == PRECISION_FP32)
        export_refuse(e, "overlap.ep", "true with precision fp32", "it in 16 bit", "false");
    if (e->request->model && e->request->model->mtp_modules > 1)
        export_refuse(e, "overlap.ep", "true with more than one MTP module", "it with one at most", "false");
    flag_add(list, "--overlap-moe-expert-parallel-comm");
}

static void add_zero(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    int64_t ranks = export_data_ranks(p);
    if (p->zero > 0)
        flag_add(list, "--use-distributed-optimizer");
    if (p->zero > 1) {
        flag_add(list, "--use-megatron-fsdp");
        flag_add_text(list, "--data-parallel-sharding-strategy", p->zero == 2 ? "optim_grads" : "optim_grads_params");
        flag_add(list, "--no-gradient-accumulation-fusion");
        flag_add_text(list, "--ckpt-format", "fsdp_dtensor");
    }
    if (p->zero > 1 && p->pp > 1)
        export_refuse(e, "zero", export_number(p->zero).text, "zero 0 or 1 with pp > 1 (Megatron-FSDP has no pipeline)", "1");
    if (p->zero > 0 && export_shard_ranks(p) < ranks)
        flag_add_int(list, "--num-distributed-optimizer-instances", ranks / export_shard_ranks(p));
    else if (p->dp_shard > 0 && p->zero == 0)
        err_add(e->warn, "dp_shard %d changes nothing: with zero 0 nothing is sharded", p->dp_shard);
    if (p->optimizer == OPTIMIZER_SGD && p->zero > 0)
        export_refuse(e, "optimizer", "sgd with zero > 0", "adamw alone in its distributed optimizer", "adamw, or zero 0");
    flag_add_text(list, "--optimizer", p->optimizer == OPTIMIZER_SGD ? "sgd" : "adam");
}

/* Moments and steps of another kind than fp32 on the accelerator go through the precision-aware optimizer. */
static void add_states(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    bool small = p->moment_bytes < 4 && p->optimizer == OPTIMIZER_ADAMW, offload = p->optimizer_offload > 0;
    const char *moment = p->moment_bytes < 2 ? "fp8" : "bf16";
    if (p->moment_bytes < 4 && !small)
        err_add(e->warn, "optimizer_state_dtype changes nothing: sgd has no moments");
    if ((small || offload) && p->zero == 0)
        export_refuse(e, small ? "optimizer_state_dtype" : "optimizer_offload", small ? moment : export_fraction(p->optimizer_offload).text,
                      "it with zero 1 or more", small ? "fp32, or zero 1" : "0, or zero 1");
    if (small || offload)
        flag_add(list, "--use-precision-aware-optimizer");
    if (small) {
        flag_add_text(list, "--exp-avg-dtype", moment);
        flag_add_text(list, "--exp-avg-sq-dtype", moment);
    }
    if (offload) {
        flag_add(list, "--optimizer-cpu-offload");
        flag_add_double(list, "--optimizer-offload-fraction", p->optimizer_offload);
    }
    if ((small || offload) && p->grad_bytes > 0 && p->grad_bytes < 4 && p->precision != PRECISION_FP32)
        flag_add_text(list, "--main-grads-dtype", "bf16");
}

/* --- precision ------------------------------------------------------------- */

static void add_gradients(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    if (p->grad_bytes >= 4)
        flag_add(list, "--accumulate-allreduce-grads-in-fp32");
    else if (p->grad_bytes > 0 && p->precision == PRECISION_FP32)
        export_refuse(e, "grad_dtype", "bf16 with precision fp32", "gradients of fp32 weights in fp32", "fp32");
    else if (p->grad_bytes > 0 && p->precision == PRECISION_FP16)
        export_refuse(e, "grad_dtype", "bf16 with precision fp16", "gradients of fp16 weights in fp16 or fp32", "null (fp16), or fp32");
    else if (p->grad_bytes > 0)
        flag_add(list, "--grad-reduce-in-bf16");
}

static void add_precision(const struct exporter *e, struct flag_list *list)
{
    static const struct {
        const char *base, *format_flag, *format, *recipe_flag, *recipe;
    } words[PRECISIONS] = {
        [PRECISION_BF16] = {"--bf16", NULL, NULL, NULL, NULL},
        [PRECISION_FP16] = {"--fp16", NULL, NULL, NULL, NULL},
        [PRECISION_FP8] = {"--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "delayed"},
        [PRECISION_FP8_BLOCK] = {"--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "blockwise"},
        [PRECISION_MXFP8] = {"--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"},
        [PRECISION_NVFP4] = {"--bf16", "--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"},
    };
    const struct plan *p = e->plan;
    if (words[p->precision].base)
        flag_add(list, words[p->precision].base);
    if (words[p->precision].format) {
        flag_add_text(list, words[p->precision].format_flag, words[p->precision].format);
        flag_add_text(list, words[p->precision].recipe_flag, words[p->precision].recipe);
    }
    if (plan_keeps_low_weights(p)) {
        flag_add(list, "--fp8-param-gather");
        if (p->precision == PRECISION_MXFP8)
            flag_add(list, "--reuse-grad-buf-for-mxfp8-param-ag");
    }
    if (p->fp8_attention && precision_is_fp8(p->precision))
        flag_add(list, "--fp8-dot-product-attention");
    else if (p->fp8_attention)
        err_add(e->warn, "fp8_attention changes nothing: precision is %s", precision_names[p->precision]);
    add_gradients(e, list);
}

/* --- activations ----------------------------------------------------------- */

/* What selective recompute repeats, as it is priced (cost/ops_layer.c): the core where it keeps scores; flash attention keeps
 * none, and what is cheap is repeated instead. */
static uint32_t repeated_modules(const struct exporter *e)
{
    const struct plan *p = e->plan;
    const struct model *m = e->request->model;
    if (p->recompute != RECOMPUTE_SELECTIVE || p->recompute_modules)
        return p->recompute == RECOMPUTE_SELECTIVE ? p->recompute_modules : 0;
    if (p->attention >= ATTENTION_UNFUSED)
        return 1U << MODULE_CORE_ATTN;
    return 1U << MODULE_LAYERNORM | (export_has_experts(e) ? 1U << MODULE_MOE_ACT : 0) | (m && m->mla ? 1U << MODULE_MLA_UP_PROJ : 0);
}

static void add_recompute(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    uint32_t modules = repeated_modules(e);
    if (p->recompute == RECOMPUTE_NONE || (p->recompute == RECOMPUTE_FULL && p->recompute_layers == 0))
        return;
    flag_add_text(list, "--recompute-granularity", recompute_names[p->recompute]);
    if (p->recompute == RECOMPUTE_FULL) {
        flag_add_text(list, "--recompute-method", p->recompute_layers < 0 ? "uniform" : "block");
        flag_add_int(list, "--recompute-num-layers", p->recompute_layers < 0 ? 1 : p->recompute_layers);
        return;
    }
    if (modules & 1U << MODULE_MOE_ACT && e->request->model && !export_has_experts(e))
        export_refuse(e, "recompute_modules", "moe_act on a model without experts", "it with grouped experts only", "the list without moe_act");
    flag_add_words(list, "--recompute-modules", recompute_module_names, modules);
    if (p->precision == PRECISION_FP8 && modules & (1U << MODULE_MOE_ACT | 1U << MODULE_LAYERNORM))
        export_refuse(e, "recompute_modules", "moe_act or layernorm with precision fp8", "them with other recipes than delayed scaling", "fp8-block or mxfp8, or other modules");
    if (modules & 1U << MODULE_MLA_UP_PROJ && e->request->model && !e->request->model->mla)
        export_refuse(e, "recompute_modules", "mla_up_proj on a model without latent attention", "it with latent attention only", "the list without mla_up_proj");
}

static void add_offload(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    if (p->offload_layers > 0) {
        if (p->pp > 1)
            export_refuse(e, "activation_offload_layers", export_number(p->offload_layers).text, "it without a pipeline only", "0, or pp 1");
        if (p->recompute != RECOMPUTE_NONE)
            export_refuse(e, "activation_offload_layers", export_number(p->offload_layers).text, "it with recompute none only", "0, or recompute none");
        if (p->cuda_graph != CUDA_GRAPH_NONE)
            export_refuse(e, "activation_offload_layers", export_number(p->offload_layers).text, "it without CUDA graphs only", "0, or cuda_graph none");
        if (p->offload_modules)
            export_refuse(e, "activation_offload_layers", "set beside offload_modules", "one of the two", "0");
        if (e->request->model && p->offload_layers >= e->request->model->layers)
            export_refuse(e, "activation_offload_layers", export_number(p->offload_layers).text, "fewer than all layers",
                          export_number(e->request->model->layers - 1).text);
        flag_add_int(list, "--cpu-offloading-num-layers", p->offload_layers);
    }
    if (!p->offload_modules)
        return;
    if (p->offload_modules & 1U << OFFLOAD_ATTN_PROJ && !(p->offload_modules & 1U << OFFLOAD_CORE_ATTN))
        export_refuse(e, "offload_modules", "attn_proj without core_attn", "the two together", "core_attn and attn_proj, or neither");
    flag_add(list, "--fine-grained-activation-offloading");
    flag_add_words(list, "--offload-modules", offload_module_names, p->offload_modules);
}

/* What the stacks are priced with (stacks.csv: fused_cross_entropy, cross_entropy_copies); nothing is fused unless it is asked for. */
static enum cross_entropy priced_loss(const struct plan *p)
{
    if (p->cross_entropy != CROSS_ENTROPY_STACK)
        return p->cross_entropy;
    return strcmp(p->stack, "megatron") == 0 ? CROSS_ENTROPY_IN_PLACE : strcmp(p->stack, "megatron-2024") == 0 ? CROSS_ENTROPY_FUSED : CROSS_ENTROPY_UNFUSED;
}

static void add_kernels(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    enum cross_entropy loss = priced_loss(p);
    if (p->attention == ATTENTION_FLASH1 || p->attention == ATTENTION_EAGER)
        export_refuse(e, "attention", attention_names[p->attention], "flash and unfused", p->attention == ATTENTION_FLASH1 ? "flash" : "unfused");
    flag_add_text(list, "--attention-backend", p->attention == ATTENTION_UNFUSED ? "unfused" : "auto");
    if (p->cross_entropy == CROSS_ENTROPY_CHUNKED)
        export_refuse(e, "cross_entropy", "chunked", "stack, unfused, fused and in-place", "in-place");
    if (loss == CROSS_ENTROPY_FUSED || loss == CROSS_ENTROPY_IN_PLACE) {
        flag_add(list, "--cross-entropy-loss-fusion");
        flag_add_text(list, "--cross-entropy-fusion-impl", loss == CROSS_ENTROPY_FUSED ? "native" : "te");
    }
    flag_add_text(list, "--attention-dropout", p->dropout ? "0.1" : "0.0");
    flag_add_text(list, "--hidden-dropout", p->dropout ? "0.1" : "0.0");
    if (p->vocab_parallel != VOCAB_EDGES)
        export_refuse(e, "vocab_parallel", vocab_parallel_names[p->vocab_parallel], "embedding and head on the first and last stage", "edges");
    if (p->lora_rank > 0)
        export_refuse(e, "lora_rank", export_number(p->lora_rank).text, "all weights in pretrain_gpt.py (adapters are Megatron-Bridge's)", "0");
    else if (p->lora_modules)
        err_add(e->warn, "lora_modules change nothing: lora_rank is 0");
}

/* attn and the router are what a partial graph holds (cost/plan.h). */
static void add_graphs(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    uint32_t attention = 1U << MODULE_CORE_ATTN | 1U << MODULE_MLA_UP_PROJ, experts = 1U << MODULE_MOE | 1U << MODULE_SHARED_EXPERTS;
    uint32_t modules = repeated_modules(e);
    const char *name = cuda_graph_names[p->cuda_graph];
    bool routed = export_has_experts(e);
    if (p->cuda_graph == CUDA_GRAPH_NONE)
        return;
    if (p->recompute == RECOMPUTE_FULL || (p->recompute != RECOMPUTE_NONE && p->cuda_graph == CUDA_GRAPH_FULL))
        export_refuse(e, "cuda_graph", name, p->cuda_graph == CUDA_GRAPH_FULL ? "it with recompute none" : "it with recompute none or selective", "none");
    if (p->cuda_graph == CUDA_GRAPH_PARTIAL && modules & attention)
        export_refuse(e, "cuda_graph", "partial with core_attn or mla_up_proj recomputed", "attention in a graph or recomputed, not both", "router, or other recompute_modules");
    if (p->cuda_graph != CUDA_GRAPH_FULL && modules & experts)
        export_refuse(e, "cuda_graph", "beside moe or shared_experts recomputed", "the router in a graph without them", "none, or other recompute_modules");
    if (p->cuda_graph == CUDA_GRAPH_ROUTER && !routed)
        export_refuse(e, "cuda_graph", "router on a model without experts", "it with experts", "none or partial");
    flag_add_text(list, "--cuda-graph-impl", p->cuda_graph == CUDA_GRAPH_FULL ? "local" : "transformer_engine");
    flag_add_text(list, "--cuda-graph-scope", p->cuda_graph == CUDA_GRAPH_FULL ? "full_iteration" : p->cuda_graph == CUDA_GRAPH_PARTIAL ? "attn" : "moe_router");
    if (p->cuda_graph == CUDA_GRAPH_PARTIAL && routed)
        flag_add(list, "moe_router");
    if (p->cuda_graph != CUDA_GRAPH_FULL && routed)
        flag_add(list, "moe_preprocess");
    flag_add(list, "--te-rng-tracker");
    if (p->cuda_graph == CUDA_GRAPH_FULL)
        flag_add(list, "--no-check-for-nan-in-loss-and-grad");
}

/* Flex needs someone to dispatch to; with etp x ep 1 every dispatcher leaves the tokens where they are. */
static void add_dispatcher(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    bool routed = export_has_experts(e), flex = p->moe_dispatcher != DISPATCHER_ALL_TO_ALL && p->ep * p->etp > 1;
    if (p->fused_grouped_mlp && routed)
        flag_add(list, "--use-transformer-engine-op-fuser");
    else if (p->fused_grouped_mlp)
        err_add(e->warn, "fused_grouped_mlp changes nothing: no experts are known%s", e->request->model ? "" : " without --model");
    if (!routed)
        return;
    if (p->precision == PRECISION_FP16 || p->precision == PRECISION_FP32)
        export_refuse(e, "precision", p->precision == PRECISION_FP16 ? "fp16 on a model with experts" : "fp32 on a model with experts", "grouped GEMMs of experts in bf16 (--moe-grouped-gemm)", "bf16");
    flag_add(list, "--moe-grouped-gemm");
    flag_add_text(list, "--moe-token-dispatcher-type", flex ? "flex" : "alltoall");
    if (flex) {
        flag_add_text(list, "--moe-flex-dispatcher-backend", p->moe_dispatcher == DISPATCHER_HYBRIDEP ? "hybridep" : "deepep");
        flag_add_text(list, "--moe-router-dtype", "fp32"); /* DeepEP takes no other, and casts */
    }
    if (strcmp(p->stack, "megatron") == 0) /* as in the recipes that its permutation was fitted to */
        flag_add(list, "--moe-permute-fusion");
}

static void add_batch(const struct exporter *e, struct flag_list *list)
{
    const struct plan *p = e->plan;
    int64_t unit = 2 * (int64_t)p->cp; /* Ulysses alone would need whole parts of cp */
    if (p->cp > 1 && p->seq_len % unit != 0) {
        char takes[64];
        snprintf(takes, sizeof takes, "multiples of 2 x cp = %lld", (long long)unit);
        export_refuse(e, "seq_len", export_number(p->seq_len).text, takes, export_number((p->seq_len / unit + (p->seq_len < unit)) * unit).text);
    }
    flag_add_int(list, "--micro-batch-size", p->micro_batch);
    flag_add_int(list, "--global-batch-size", p->global_batch);
    flag_add_int(list, "--seq-length", p->seq_len);
}

/* --- the environment, the launcher, the text --------------------------------- */

enum { VARIABLES_MAX = 4 };
struct variables {
    int n;
    const char *name[VARIABLES_MAX], *value[VARIABLES_MAX];
};

static void set(struct variables *v, const char *name, const char *value)
{
    v->name[v->n] = name;
    v->value[v->n++] = value;
}

/* Before Blackwell, tensor and context parallelism rely on the order of one queue; overlapped expert traffic and FSDP on many. */
static struct variables environment(const struct plan *p)
{
    struct variables v = {0};
    if (p->zero > 1)
        set(&v, "CUDA_DEVICE_MAX_CONNECTIONS", "8");
    else if (p->overlap.ep && p->ep > 1)
        set(&v, "CUDA_DEVICE_MAX_CONNECTIONS", "32");
    else if (p->tp > 1 || p->cp > 1)
        set(&v, "CUDA_DEVICE_MAX_CONNECTIONS", "1");
    if (p->fused_grouped_mlp)
        set(&v, "NVTE_CUTEDSL_FUSED_GROUPED_MLP", "1");
    if (p->offload_layers > 0 || p->offload_modules)
        set(&v, "NVTE_CPU_OFFLOAD_V1", "1");
    return v;
}

static bool needs_quotes(const char *word)
{
    return word[0] == '\0' || word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@%")] != '\0';
}

/* One flag per line. */
static void print_flags(FILE *out, const struct flag_list *list, const char *before, const char *between)
{
    for (int i = 0; i < list->n; i++) {
        bool flag = strncmp(list->word[i], "--", 2) == 0, quotes = needs_quotes(list->word[i]); /* no word holds a quote */
        fprintf(out, "%s%s%s%s", !flag ? " " : i == 0 ? before : between, quotes ? "'" : "", list->word[i], quotes ? "'" : "");
    }
}

static void print_command(const struct exporter *e, FILE *out, const struct flag_list *list, const struct variables *v)
{
    int64_t nodes = 0;
    int per_node = 0;
    export_nodes(e->request->cluster, &nodes, &per_node);
    for (int i = 0; i < v->n; i++)
        fprintf(out, "%s=%s \\\n", v->name[i], v->value[i]);
    fprintf(out, "torchrun --nnodes %lld --nproc-per-node %d", (long long)nodes, per_node);
    if (nodes > 1)
        fprintf(out, " --node-rank \"$NODE_RANK\" --master-addr \"$MASTER_ADDR\" --master-port \"$MASTER_PORT\"");
    fprintf(out, " pretrain_gpt.py \\\n");
    print_flags(out, list, "    ", " \\\n    ");
    fprintf(out, " \\\n    \"$@\"\n");
}

static void print_json(const struct exporter *e, FILE *out, const struct flag_list *list, const struct variables *v)
{
    struct json *root = json_new_object(), *variables = json_put_object(root, "environment");
    for (int i = 0; i < v->n; i++)
        json_put_string(variables, v->name[i], v->value[i]);
    json_put_int(root, "world_size", plan_world(e->plan));
    if (e->request->cluster) {
        int64_t nodes;
        int per_node;
        export_nodes(e->request->cluster, &nodes, &per_node);
        json_put_int(root, "nnodes", nodes);
        json_put_int(root, "nproc_per_node", per_node);
    }
    json_put_string(root, "script", "pretrain_gpt.py");
    struct json *arguments = json_put_array(root, "arguments");
    for (int i = 0; i < list->n; i++)
        json_push_string(arguments, list->word[i]);
    char *text = json_print(root);
    fputs(text, out);
    free(text);
    json_free(root);
}

void export_megatron(const struct exporter *e, FILE *out)
{
    static void (*const parts[])(const struct exporter *, struct flag_list *) = {
        add_sizes, add_schedule, add_batch, megatron_add_model, add_dispatcher, add_expert_overlap, add_zero, add_overlap,
        add_states, add_precision, add_recompute, add_offload, add_kernels, add_graphs};
    struct flag_list list = {0};
    struct variables v = environment(e->plan);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](e, &list);
    if (e->request->json) {
        print_json(e, out, &list, &v);
    } else if (e->request->cluster) {
        print_command(e, out, &list, &v);
    } else {
        print_flags(out, &list, "", "\n");
        fputc('\n', out);
        for (int i = 0; i < v.n; i++)
            err_add(e->warn, "set %s=%s in the environment of every rank (--cluster writes the whole command)", v.name[i], v.value[i]);
    }
    arena_release(&list.arena);
}
