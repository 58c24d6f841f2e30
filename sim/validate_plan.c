#include "sim/validate_plan.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "sim/search.h"
#include "sim/validate_layout.h"

/* ---- words ---- */

/* Whether the text holds the word, case ignored. */
static bool says(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)word[i]))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

static bool begins(const char *text, const char *word)
{
    char head[64];
    snprintf(head, sizeof head, "%.*s", (int)strlen(word), text);
    return says(head, word);
}

__attribute__((format(printf, 2, 3))) static void note(char text[RUN_TEXT_MAX], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    if (used > 0 && used + 3 < RUN_TEXT_MAX)
        used += (size_t)snprintf(text + used, RUN_TEXT_MAX - used, "; ");
    if (used < RUN_TEXT_MAX)
        vsnprintf(text + used, RUN_TEXT_MAX - used, format, args);
    va_end(args);
}

/* ---- stacks ---- */

/* What each stack does unless told otherwise. */
static const struct stack_words {
    const char *theirs, *ours;
    int zero;
    bool sequence_parallel; /* with tp > 1 */
    bool serial_gradients;  /* data-parallel traffic not hidden unless stated */
} stacks[] = {
    {"megatron", "megatron", 1, true, false},
    {"megatron-zb", "megatron-zb", 0, false, false},
    {"megatron-deepspeed", "megatron-deepspeed", 0, false, false},
    {"aleph-alpha-scaling", "aleph-alpha-scaling", 1, false, true},
    {"internevo", "internevo", 1, false, false},
    {"megascale", "megatron", 1, true, false},
    {"colossalai", "megatron", 1, false, false},
    {"fsdp1", "fsdp1", 3, false, false},
    {"fsdp2", "fsdp2", 3, false, false},
    {"torchtitan", "torchtitan", 3, true, false},
    {"nanotron", "nanotron", 1, true, false},
    {"deepspeed", "deepspeed", 3, false, false},
};

static const struct stack_words *find_words(const char *name)
{
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        if (strcmp(stacks[i].theirs, name) == 0)
            return &stacks[i];
    return NULL;
}

static const struct stack_words *stack_words(const struct run *run)
{
    const struct stack_words *words = find_words(run->stack);
    return words ? words : &stacks[0];
}

bool run_stack_is_word(const char *name)
{
    return find_words(name) != NULL;
}

/* Before flash attention came to Megatron-LM (v4, early 2023). */
static bool before_flash(const struct run *run)
{
    return *run->date && strcmp(run->date, "2023-03") < 0;
}

/* Generations of Megatron-LM by the date of the run; "megatron" is the newest. */
static const char *megatron_of(const char *date)
{
    static const struct { const char *until, *stack; } ages[] = {
        {"2022", "megatron-2021"}, {"2023-03", "megatron-2022"}, {"2025-05", "megatron-2024"}};
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++)
        if (strcmp(date, ages[i].until) < 0)
            return ages[i].stack;
    return "megatron";
}

const char *run_stack_name(const struct run *run)
{
    const char *name = stack_words(run)->ours;
    if (run->own_stack)
        return run->own_stack;
    if (strcmp(name, "megatron") == 0 && before_flash(run) && run->zero == 3)
        return "deepspeed-2021"; /* Megatron-LM's papers compare with it */
    if (strcmp(name, "megatron") == 0 && *run->date)
        return megatron_of(run->date);
    if (strcmp(name, "aleph-alpha-scaling") == 0 && !says(run->kernels, "RMS kernel"))
        return "aleph-alpha-eager";
    if (strcmp(name, "megatron-deepspeed") == 0 && begins(run->group, "vTrain-single"))
        return "vtrain";
    if (strcmp(name, "megatron-zb") == 0 && strcmp(run->date, "2024-06") >= 0)
        return "megatron-zb-flash";
    if (strcmp(name, "fsdp2") == 0 && says(run->kernels, "liger"))
        return "fsdp2-liger";
    if (strcmp(name, "torchtitan") == 0 && !says(run->kernels, "compile"))
        return "torchtitan-eager";
    return name;
}

/* ---- parts of a plan ---- */

static int stated(int64_t value, int otherwise)
{
    return value > 0 ? (int)value : otherwise;
}

/* Until the beginning of 2025 Megatron-core cut experts as it cuts the rest, and NeMo's recipes leave it at that; without
 * expert parallelism it still does. */
static void set_expert_tensor(const struct run *run, int64_t experts, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    bool fits = (int64_t)p->tp * p->cp * p->dp % ((int64_t)p->ep * p->tp) == 0;
    bool early = *run->date && strcmp(run->date, "2025-07") < 0;
    if (run->etp > 0 || experts == 0 || p->tp == 1 || !fits || !(early || p->ep == 1))
        return;
    p->etp = p->tp;
    note(ret->assumed, "etp %d", p->etp);
}

static int set_sizes(const struct run *run, int64_t experts, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    p->tp = stated(run->tp, 1);
    p->pp = stated(run->pp, 1);
    p->cp = stated(run->cp, 1);
    p->ep = stated(run->ep, 1);
    if (run->ep < 1 && experts > 0 && says(run->notes, "deepep") && run->dp > 0 && experts % run->dp == 0) { /* which has nothing to do on one rank */
        p->ep = (int)run->dp;
        note(ret->assumed, "ep %d", p->ep);
    }
    p->etp = stated(run->etp, 1);
    p->vp = stated(run->vp, 1);
    if (run->gpus < 1 || run->gbs < 1 || run->seq_len < 1)
        note(ret->reason, "%s not stated", run->gpus < 1 ? "number of accelerators" : run->gbs < 1 ? "global batch" : "sequence length");
    else if (run->tp < 1 && run->pp < 1 && run->dp < 1)
        note(ret->reason, "parallel layout not stated");
    else if (run->gpus % ((int64_t)p->tp * p->pp * p->cp) != 0)
        note(ret->reason, "tp %d x pp %d x cp %d does not divide %lld accelerators", p->tp, p->pp, p->cp, (long long)run->gpus);
    if (*ret->reason)
        return -1;
    p->dp = (int)(run->gpus / ((int64_t)p->tp * p->pp * p->cp));
    if (run->dp > 0 && run->dp != p->dp)
        note(ret->assumed, "dp %d instead of the stated %lld", p->dp, (long long)run->dp);
    set_expert_tensor(run, experts, ret);
    p->global_batch = run->gbs;
    p->seq_len = run->seq_len;
    if (run->mbs > 0)
        p->micro_batch = (int)run->mbs;
    else if (strcmp(run->stack, "torchtitan") == 0 && p->pp > 1 && run->gbs % ((int64_t)p->dp * p->pp) == 0) { /* as many micro-batches as stages */
        p->micro_batch = (int)(run->gbs / ((int64_t)p->dp * p->pp));
        note(ret->assumed, "micro-batch %d", p->micro_batch);
    } else
        note(ret->assumed, "micro-batch 1");
    return 0;
}

static void set_precision(const struct run *run, struct run_plan *ret)
{
    static const struct { const char *word; enum precision precision; } words[] = {
        {"mxfp8 grouped", PRECISION_BF16}, {"mxfp8", PRECISION_MXFP8}, {"nvfp4", PRECISION_NVFP4}, {"blockwise", PRECISION_FP8_BLOCK},
        {"fp8-block", PRECISION_FP8_BLOCK}, {"fp8", PRECISION_FP8},    {"float8", PRECISION_FP8},  {"fp16", PRECISION_FP16},
        {"bf16", PRECISION_BF16},           {"fp32", PRECISION_FP32}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (says(run->precision, words[i].word)) {
            ret->plan.precision = words[i].precision;
            return;
        }
    }
    ret->plan.precision = before_flash(run) || strcmp(run->stack, "megatron-zb") == 0 ? PRECISION_FP16 : PRECISION_BF16;
    note(ret->assumed, "precision %s", precision_names[ret->plan.precision]);
}

static void set_recompute(const struct run *run, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    const char *colon = strchr(run->recompute, ':');
    if (!*run->recompute) {
        p->recompute = RECOMPUTE_NONE;
        note(ret->assumed, "recompute %s", recompute_names[p->recompute]);
    } else if (begins(run->recompute, "full")) {
        p->recompute = RECOMPUTE_FULL;
    } else if (begins(run->recompute, "selective")) {
        p->recompute = RECOMPUTE_SELECTIVE;
        for (int i = 0; colon && i < RECOMPUTE_MODULES; i++) { /* "moe" is the start of "moe_act" */
            const char *at = strstr(colon, recompute_module_names[i]);
            while (at && (isalpha((unsigned char)at[-1]) || at[-1] == '_' || isalpha((unsigned char)at[strlen(recompute_module_names[i])]) ||
                          at[strlen(recompute_module_names[i])] == '_'))
                at = strstr(at + 1, recompute_module_names[i]);
            p->recompute_modules |= at ? 1U << i : 0;
        }
    } else if (!begins(run->recompute, "none")) {
        note(ret->assumed, "recompute '%s' is not known: none", run->recompute);
    }
}

static void set_schedule(const struct run *run, struct run_plan *ret)
{
    static const struct { const char *word; enum plan_schedule schedule; } words[] = {
        {"zb-2p", SCHEDULE_ZB_H2}, {"zb-1p", SCHEDULE_ZB_H1},    {"zb-v", SCHEDULE_ZB_V},         {"v-half", SCHEDULE_V_HALF},
        {"v-min", SCHEDULE_V_MIN}, {"dualpipev", SCHEDULE_DUALPIPE_V}, {"dualpipe", SCHEDULE_DUALPIPE}, {"gpipe", SCHEDULE_GPIPE}};
    struct plan *p = &ret->plan;
    int named = names_find(schedule_names, run->schedule);
    bool known = !*run->schedule || begins(run->schedule, "1f1b,") || strcmp(run->schedule, "1F1B") == 0 || begins(run->schedule, "interleaved") ||
                 begins(run->schedule, "no-pp") || begins(run->schedule, "fsdp");
    p->schedule = p->vp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    for (size_t i = 0; named < 0 && i < sizeof words / sizeof *words; i++)
        if (begins(run->schedule, words[i].word)) {
            p->schedule = words[i].schedule;
            known = true;
        }
    if (named >= 0 && named != SCHEDULE_1F1B) /* contract.md's names; with vp, 1f1b is interleaved */
        p->schedule = (enum plan_schedule)named;
    else if (!known && named < 0)
        note(ret->assumed, "schedule '%s' is not known: %s", run->schedule, schedule_names[p->schedule]);
    if (p->schedule == SCHEDULE_ZB_V || p->schedule == SCHEDULE_V_HALF || p->schedule == SCHEDULE_V_MIN || p->schedule == SCHEDULE_DUALPIPE_V ||
        p->schedule == SCHEDULE_ZB_V_AUTO || p->schedule == SCHEDULE_1F1B_V)
        p->vp = 2;
    if (says(run->schedule, ", vocab-") || says(run->schedule, ", interlaced"))
        p->vocab_parallel = says(run->schedule, "vocab-2") ? VOCAB_PIPELINE_2 : says(run->schedule, "interlaced") ? VOCAB_INTERLACED : VOCAB_PIPELINE;
}

static void set_overlap(const struct run *run, const struct model *model, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    const char *text = run->overlap;
    bool none = begins(text, "none") || (!*text && stack_words(run)->serial_gradients);
    if (!*text && p->dp * p->cp > 1)
        note(ret->assumed, "gradient traffic %s", none ? "not hidden" : "hidden");
    p->overlap.dp_grad = p->overlap.dp_param = !none;
    bool dense_only = says(text, "in llama recipes") && model->experts > 0;
    p->overlap.tp = p->tp > 1 && !dense_only &&
                    (says(text, "userbuffers") || says(text, "tp-comm-overlap") || says(text, "tp comm overlap") || says(text, "async tp"));
    p->overlap.ep = p->ep > 1 && (says(text, "ep a2a") || says(text, "ep overlap"));
}

/* Whether the row says so anywhere. */
static bool states(const struct run *run, const char *word)
{
    return says(run->overlap, word) || says(run->moe_routing, word) || says(run->notes, word);
}

/* Megatron-Bridge's recipes: those of its library take the all-to-all; those of its performance tables HybridEP on racks
 * and, since 2026, on the others (before, DeepEP), but for gpt-oss, which keeps the all-to-all except inside a node of
 * B300 and where the whole iteration is a graph. */
static void recipe_dispatcher(const struct run *run, const struct model *model, struct run_plan *ret)
{
    bool bridge = begins(run->group, "bridge"), racks = begins(run->accelerator, "gb");
    bool whole = says(run->cuda_graph, "full"), recent = strcmp(run->date, "2026") >= 0;
    bool library = says(run->moe_routing, "see recipe");
    if (library || (bridge && model->expert_bias && !whole && (strcmp(run->accelerator, "b300") != 0 || run->ep > 8)))
        ret->plan.moe_dispatcher = DISPATCHER_ALL_TO_ALL;
    else
        ret->plan.moe_dispatcher = whole || (racks && (bridge || recent)) || (bridge && recent) ? DISPATCHER_HYBRIDEP : DISPATCHER_FLEX;
    note(ret->assumed, "dispatcher %s", moe_dispatcher_names[ret->plan.moe_dispatcher]);
}

static void set_experts(const struct run *run, const struct model *model, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    if (model->experts == 0)
        return;
    bool early = *run->date && strcmp(run->date, "2025-07") < 0;
    if (states(run, "hybridep"))
        p->moe_dispatcher = DISPATCHER_HYBRIDEP;
    else if (states(run, "deepep"))
        p->moe_dispatcher = DISPATCHER_FLEX;
    else if (states(run, "alltoall") || early || says(run->moe_routing, "capacity") || says(run->hardware, "one node") || strcmp(stack_words(run)->ours, "megatron") != 0)
        p->moe_dispatcher = DISPATCHER_ALL_TO_ALL;
    else
        recipe_dispatcher(run, model, ret);
}

/* The grouped MLP of cuDNN and attention in 8 bit: stated; the former also where the whole iteration is a graph, whose
 * experts take it (Megatron-core: paged stash needs it). */
static void set_fusions(const struct run *run, const struct model *model, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    bool eight = precision_is_fp8(p->precision), whole = p->cuda_graph == CUDA_GRAPH_FULL && begins(run->group, "bridge");
    p->fp8_attention = eight && says(run->notes, "fp8_dot_product_attention=True");
    p->fused_grouped_mlp = model->experts > 0 && eight && (whole || says(run->notes, "fused_grouped_mlp=True"));
}

/* Megatron-Bridge's and NeMo's recipes (utils/mixed_precision) gather 8-bit weights, but for blocks; torchtitan's commands where
 * they say so. */
static void set_param_gather(const struct run *run, struct run_plan *ret)
{
    struct plan *p = &ret->plan;
    bool stated = says(run->precision, "all-gather");
    p->fp8_param_gather = stated || !precision_is_fp8(p->precision) || (strcmp(run->stack, "torchtitan") != 0 && p->precision != PRECISION_FP8_BLOCK);
    if (precision_is_fp8(p->precision) && !stated && p->precision != PRECISION_NVFP4)
        note(ret->assumed, "weights gathered in %s", plan_keeps_low_weights(p) && p->precision != PRECISION_MXFP8 ? "8 bit" : "16 bit");
}

static void set_graphs(const struct run *run, struct run_plan *ret)
{
    const char *text = run->cuda_graph, *nearest = strstr(run->notes, "cuda graph ");
    bool taken = !*text && nearest;
    if (taken) /* of the nearest recipe that was published */
        text = nearest + strlen("cuda graph ");
    if (!*text || begins(text, "none"))
        return;
    if (says(text, "for fp8") && !precision_is_fp8(ret->plan.precision))
        return;
    bool routing = says(text, "moe_router") && !says(text, "attn") && !says(text, "mamba");
    bool whole = says(text, "full") || says(text, "layer") || (begins(text, "enabled") && says(run->moe_routing, "padded")); /* shapes stand: experts too */
    ret->plan.cuda_graph = whole ? CUDA_GRAPH_FULL : routing ? CUDA_GRAPH_ROUTER : CUDA_GRAPH_PARTIAL;
    if (taken)
        note(ret->assumed, "graphs %s", cuda_graph_names[ret->plan.cuda_graph]);
}

static void set_offload(const struct run *run, struct run_plan *ret)
{
    const char *percent = strstr(run->offload, "optimizer CPU offload ");
    if (percent)
        ret->plan.optimizer_offload = fmin(1, atof(percent + strlen("optimizer CPU offload ")) / 100);
    if (says(run->offload, "adamw offload") || says(run->notes, "CPU AdamW offload on"))
        ret->plan.optimizer_offload = 1;
    const char *layers = strstr(run->offload, "activation offload "), *modules = strstr(run->offload, "fine-grained activation offload");
    if (modules) /* a list of words; fused_group_mlp = the inputs of the grouped GEMMs and of the activation between them */
        for (int i = 0; i < OFFLOAD_MODULES; i++)
            if (strstr(modules, offload_module_names[i]) || (strstr(modules, "fused_group_mlp") && (i == OFFLOAD_EXPERT_FC1 || i == OFFLOAD_MOE_ACT)))
                ret->plan.offload_modules |= 1U << i;
    if (layers && !modules)
        ret->plan.offload_layers = atoi(layers + strlen("activation offload "));
}

/* No run states its adapters: NeMo's performance recipes put them on the qkv projection alone, its PyTorch recipes on all. */
static void set_adapters(const struct run *run, struct run_plan *ret)
{
    if (!says(run->task, "lora"))
        return;
    ret->plan.lora_rank = 16;
    ret->plan.lora_modules = says(run->notes, "PyTorch FSDP2") ? 0 : 1U << LORA_LINEAR_QKV;
    if (says(run->notes, "packed"))
        note(ret->assumed, "packed documents attend to each other");
    note(ret->assumed, "lora_rank %d on %s", ret->plan.lora_rank, ret->plan.lora_modules ? "linear_qkv" : "all linears");
}

/* Stacks that stayed with FlashAttention's first version. llm-foundry's "gpu" installation and its Triton kernel until March
 * 2024 (mosaicml/llm-foundry #722, #1023); InternEvo's instructions and images: v1.0.5 (its doc/en/install.md). */
static bool has_flash1(const struct run *run)
{
    static const char *const second[] = {"flash2", "flash 2", "flash-2", "attention2", "attention 2", "attention-2", "attn2", "attn 2", "attn-2", "attentionv2", "attention v2", "flash v2"};
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        if (says(run->kernels, second[i]))
            return false;
    return strcmp(run->stack, "internevo") == 0 || (strcmp(run->stack, "fsdp1") == 0 && *run->date && strcmp(run->date, "2024-03") < 0);
}

static void set_attention(const struct run *run, struct run_plan *ret)
{
    bool flash = says(run->kernels, "flash") && !says(run->kernels, "no flash");
    bool unfused = says(run->kernels, "no flash") || strcmp(run->kernels, "torch") == 0 || strcmp(run->kernels, "fused") == 0;
    bool early = before_flash(run) && strcmp(stack_words(run)->ours, "megatron") == 0;
    bool fork = strcmp(run->stack, "megatron-zb") == 0 && strcmp(run->date, "2024-06") < 0; /* the fork of 2023 */
    bool first = says(run->kernels, "attentionv1");
    if (first || has_flash1(run))
        ret->plan.attention = ATTENTION_FLASH1;
    if (!flash && strcmp(run->kernels, "torch") == 0)
        ret->plan.attention = ATTENTION_EAGER;
    else if (!flash && (unfused || early || fork))
        ret->plan.attention = ATTENTION_UNFUSED;
    if (!first && ret->plan.attention == ATTENTION_FLASH1)
        note(ret->assumed, "attention flash1");
    if (!unfused && ret->plan.attention == ATTENTION_UNFUSED)
        note(ret->assumed, "attention unfused");
}

/* Megatron-LM's default of 0.1 stands in the GPT-3-like sweeps of its forks: activations kept per micro-batch there are
 * 34 bytes per element, and 5 per score without flash attention, as with dropout (Korthikanti et al. 2022, equation 2). */
static void set_dropout(const struct run *run, struct run_plan *ret)
{
    ret->plan.dropout = strcmp(run->stack, "megatron-zb") == 0 || strcmp(run->stack, "megatron-deepspeed") == 0 || (before_flash(run) && strcmp(stack_words(run)->ours, "megatron") == 0);
}

/* Composer's mixed precision: DEFAULT reduces gradients in fp32, PURE in 16 bit. */
static void set_gradients(const struct run *run, struct run_plan *ret)
{
    if (says(run->precision, "mp_mode PURE"))
        ret->plan.grad_bytes = 2;
}

/* Liger's kernels take head and loss together, in slices. */
static void set_loss(const struct run *run, struct run_plan *ret)
{
    if (says(run->kernels, "liger"))
        ret->plan.cross_entropy = CROSS_ENTROPY_CHUNKED;
    else if (says(run->kernels, "cross-entropy fusion") && strcmp(run->date, "2026") < 0)
        ret->plan.cross_entropy = CROSS_ENTROPY_FUSED;
    else if (strcmp(run->stack, "torchtitan") == 0 && says(run->kernels, "compile") && strcmp(run->date, "2025") >= 0)
        ret->plan.cross_entropy = CROSS_ENTROPY_IN_PLACE; /* the loss is compiled too */
}

/* NeMo's and Megatron-Bridge's recipes reduce and keep gradients in 16 bit; Megatron-Bridge's take TransformerEngine's loss, and
 * those of the DeepSeek family keep AdamW's moments in 16 bit. */
static void set_bridge(const struct run *run, const struct model *model, struct run_plan *ret)
{
    bool bridge = begins(run->group, "bridge"), nemo = bridge || says(run->container, "nemo:");
    if (!nemo || says(run->precision, "fp32 grad"))
        return;
    ret->plan.grad_bytes = 2;
    if (bridge)
        ret->plan.cross_entropy = CROSS_ENTROPY_IN_PLACE;
    if (bridge && model->mla)
        ret->plan.moment_bytes = 2;
    note(ret->assumed, "16-bit gradients%s", bridge && model->mla ? " and moments" : "");
}


static void set_sharding(const struct run *run, struct run_plan *ret)
{
    const struct stack_words *words = stack_words(run);
    struct plan *p = &ret->plan;
    snprintf(p->stack, sizeof p->stack, "%s", run_stack_name(run));
    if (run->unknown_stack)
        note(ret->assumed, "stack '%s' is not known: %s", run->unknown_stack, p->stack);
    else if (!*run->stack)
        note(ret->assumed, "stack %s", p->stack);
    p->sequence_parallel = run->sequence_parallel == 1 && p->tp > 1;
    if (run->sequence_parallel < 0 && p->tp > 1) {
        p->sequence_parallel = words->sequence_parallel && !before_flash(run);
        note(ret->assumed, "sequence parallelism %s", p->sequence_parallel ? "on" : "off");
    }
    p->zero = (int)run->zero;
    if (run->zero < 0 || run->zero > 3) {
        p->zero = words->zero == 3 && p->pp > 1 ? 2 : words->zero;
        if (p->dp * p->cp > 1)
            note(ret->assumed, "zero %d", p->zero);
    }
}

/* InternEvo states in how many ranks the optimizer is cut: "zero1=8", "zero1 group 8"; less than all of them are copies. */
static void set_copies(const struct run *run, struct run_plan *ret)
{
    const char *cut = strstr(run->notes, "zero1=");
    cut = cut ? cut + strlen("zero1=") : strstr(run->notes, "zero1 group ");
    int ranks = !cut ? 0 : atoi(strncmp(cut, "zero1 group ", strlen("zero1 group ")) == 0 ? cut + strlen("zero1 group ") : cut);
    struct plan *p = &ret->plan;
    if (p->zero == 1 && ranks > 1 && ranks < p->dp && p->dp % ranks == 0)
        p->dp_shard = ranks;
}

/* ---- cluster ---- */

/* Aleph Alpha's tables leave the network out and their paper (arXiv:2311.05610) says "200Gb/s HDR": a node is taken to have
 * two such ports, with which the parts of their steps that grow with the parameters of a rank agree. */
static void assume_hdr(struct run_plan *ret)
{
    if (ret->nodes <= 1)
        return;
    ret->nics_per_node = 2;
    ret->nic_gbps = 200;
    note(ret->assumed, "2 NICs of 200 Gbit/s a node");
}

/* "800 Gbps inter-node", "1600Gbps RoCE per node", "4x100Gb RoCE per node", "400Gb/s RDMA per GPU". */
static void set_network(const struct run *run, struct run_plan *ret)
{
    const char *unit = strstr(run->hardware, "Gb");
    if (!unit && strcmp(run->stack, "aleph-alpha-scaling") == 0)
        assume_hdr(ret);
    if (!unit)
        return;
    const char *digits = unit;
    while (digits > run->hardware && (isdigit((unsigned char)digits[-1]) || digits[-1] == ' '))
        digits--;
    double gbps = atof(digits), many = 0;
    if (digits > run->hardware && digits[-1] == 'x') {
        const char *count = digits - 1;
        while (count > run->hardware && isdigit((unsigned char)count[-1]))
            count--;
        many = atof(count);
    }
    if (!(gbps > 0))
        return;
    if (many >= 1 && many <= 1024) {
        ret->nics_per_node = (int)many;
        ret->nic_gbps = gbps;
    } else if (says(unit, "per node") || says(unit, "inter-node")) {
        ret->nics_per_node = gbps > 800 ? 8 : 4;
        ret->nic_gbps = gbps / ret->nics_per_node;
    } else if (says(unit, "per gpu")) {
        ret->nic_gbps = gbps;
    }
}

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Racks of Grace-Blackwell are one NVLink domain of up to 72; plans use 64 of it where that divides. */
static void set_nodes(const struct run *run, struct run_plan *ret)
{
    int64_t per_node = 8;
    const char *stated_size = strstr(run->hardware, "/node");
    while (stated_size && stated_size > run->hardware && isdigit((unsigned char)stated_size[-1]))
        stated_size--;
    if (stated_size && atoi(stated_size) > 0)
        per_node = atoi(stated_size);
    if (begins(run->accelerator, "gb"))
        per_node = run->gpus <= 72 ? run->gpus : run->gpus % 64 == 0 ? 64 : run->gpus % 72 == 0 ? 72 : greatest_common_divisor(run->gpus, 64);
    else if (run->gpus < per_node)
        per_node = run->gpus;
    else
        per_node = greatest_common_divisor(run->gpus, per_node);
    ret->accelerators_per_node = (int)per_node;
    ret->nodes = run->gpus / per_node;
}

struct json *run_plan_cluster(const struct run *run, const struct run_plan *plan)
{
    struct json *root = json_new_object();
    json_put_string(root, "accelerator", run->accelerator);
    json_put_int(root, "nodes", plan->nodes);
    json_put_int(root, "accelerators_per_node", plan->accelerators_per_node);
    if (plan->nic_gbps > 0) {
        struct json *inter = json_put_object(root, "inter_node");
        json_put_number(inter, "nic_gbps", plan->nic_gbps);
        if (plan->nics_per_node > 0)
            json_put_int(inter, "nics_per_node", plan->nics_per_node);
        if (says(run->hardware, "roce"))
            json_put_string(inter, "fabric", "roce");
    }
    return root;
}

/* ---- all of it ---- */

void run_plan_of(const struct run *run, const struct model *model, struct run_plan *ret)
{
    memset(ret, 0, sizeof *ret);
    plan_defaults(&ret->plan);
    if (run->result == RUN_ERROR)
        note(ret->reason, "the run ended with an error that is not about memory");
    if (*ret->reason || set_sizes(run, model->experts, ret) < 0)
        return;
    set_precision(run, ret);
    set_recompute(run, ret);
    set_sharding(run, ret);
    set_copies(run, ret);
    set_schedule(run, ret);
    set_overlap(run, model, ret);
    set_experts(run, model, ret);
    set_graphs(run, ret);
    set_fusions(run, model, ret);
    set_param_gather(run, ret);
    set_offload(run, ret);
    set_adapters(run, ret);
    set_attention(run, ret);
    set_dropout(run, ret);
    set_loss(run, ret);
    set_bridge(run, model, ret);
    set_gradients(run, ret);
    set_nodes(run, ret);
    set_network(run, ret);
    if (run_layout(run, model, &ret->plan, ret->assumed, ret->reason) < 0 && !*ret->reason)
        note(ret->reason, "no layout of %lld layers over %d x %d stages", (long long)model->layers, ret->plan.pp, ret->plan.vp);
}

/* The tables of zero bubble (2023) print decimal GB: from 4 to 15 micro-batches in flight the 6.2B model's peak grows by 74.1
 * bytes per element and layer so read, and 34 + 5 a s/h is 74.0; read as GiB it would be 79.6. Those of vocabulary
 * parallelism (2024) print GiB: 32,000 more rows then take 16.0 bytes per parameter, read as GB 14.9. */
double run_memory_gib(const struct run *run)
{
    bool decimal = strcmp(run->stack, "megatron-zb") == 0 && strcmp(run->date, "2024-06") < 0 && says(run->mem_kind, "reported as GB");
    return decimal ? run->mem_gib * 1e9 / UNIT_GIB : run->mem_gib;
}

const char *run_memory_counter(const struct run *run)
{
    if (says(run->mem_kind, "alloc") || says(run->mem_kind, "torch peak") || says(run->mem_kind, "peak, reported"))
        return "allocated";
    if (says(run->mem_kind, "reserved"))
        return "reserved";
    return "device";
}
