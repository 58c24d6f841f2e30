/* A parallelism plan (plan.json, contract.md): who computes what, when.
 *
 * World = tp*cp*pp*dp. Experts live on etp*ep*edp*pp = world. Sizes are counts
 * of ranks; batch sizes are sequences. The struct owns no memory; it is copied
 * freely. */
#ifndef COST_PLAN_H
#define COST_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cost/precision.h"

struct cluster;
struct err;
struct json;
struct model;
struct rank_group;

enum { PLAN_CHUNKS_MAX = 1024 };

enum plan_schedule {
    SCHEDULE_GPIPE, SCHEDULE_LOOPED_BFS, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZB_H1, SCHEDULE_ZB_H2, SCHEDULE_ZB_AUTO,
    SCHEDULE_INTERLEAVED_ZB, SCHEDULE_ZB_V, SCHEDULE_ZB_V_AUTO, SCHEDULE_V_HALF, SCHEDULE_V_MIN, SCHEDULE_1F1B_V, SCHEDULE_DUALPIPE,
    SCHEDULE_DUALPIPE_V, SCHEDULES
};
extern const char *const schedule_names[];  /* contract.md's words, NULL-terminated */
extern const char *const schedule_titles[]; /* the words of a table: "1F1B-I" */

enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum context_parallel { CP_RING, CP_ULYSSES };
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD, OPTIMIZERS };
/* flash: the stack's fused kernel; flash1: FlashAttention of 2022; unfused: batched GEMMs around one kernel of scale, mask and
 * softmax (Megatron-LM); eager: the softmax op by op, in fp32. */
enum attention_kernel { ATTENTION_FLASH, ATTENTION_FLASH1, ATTENTION_UNFUSED, ATTENTION_EAGER };
/* Expert dispatch: flex sends one copy of a token per rank and, across nodes, per node, which a pass then copies to its experts
 * (DeepEP); hybridep the same, the copies part of the exchange; all-to-all one copy per expert. */
enum moe_dispatcher { DISPATCHER_FLEX, DISPATCHER_ALL_TO_ALL, DISPATCHER_HYBRIDEP };
/* Kernels recorded once and replayed without the host: partial = attention, norms and router of a layer (TransformerEngine's
 * graphs; Megatron-core's scope attn, moe_router, moe_preprocess), router = the latter two alone, full = the whole iteration. */
enum cuda_graph { CUDA_GRAPH_NONE, CUDA_GRAPH_ROUTER, CUDA_GRAPH_PARTIAL, CUDA_GRAPH_FULL };
/* Where embedding and head live: first and last stage, or spread over all ranks of the pipeline (arXiv:2411.05288, whose
 * algorithm 1 holds two more micro-batches in flight, algorithm 2 one, an interlaced pipeline half as many again). */
enum vocab_parallel { VOCAB_EDGES, VOCAB_PIPELINE, VOCAB_PIPELINE_2, VOCAB_INTERLACED };
/* How the loss treats the logits, which sets what a logit takes at the peak (memory.h): unfused = a 16-bit and one fp32 copy
 * worked on in place, fused = one more fp32 copy (Megatron-core's "native" fusion until 2025;
 * since then as unfused), in-place = the gradient takes the logits'
 * own place (TransformerEngine's), chunked = head and loss in slices, logits never whole (Liger, torch.compile of both). */
enum cross_entropy { CROSS_ENTROPY_STACK, CROSS_ENTROPY_UNFUSED, CROSS_ENTROPY_FUSED, CROSS_ENTROPY_IN_PLACE, CROSS_ENTROPY_CHUNKED };
/* What selective recompute repeats (Megatron-core's --recompute-modules): bits of plan.recompute_modules. */
enum recompute_module { MODULE_CORE_ATTN, MODULE_LAYERNORM, MODULE_MLP, MODULE_MOE, MODULE_MOE_ACT, MODULE_MLA_UP_PROJ, MODULE_SHARED_EXPERTS,
                        RECOMPUTE_MODULES };
/* Inputs kept for backward that wait on the host (Megatron-core's --offload-modules): bits of plan.offload_modules. */
enum offload_module { OFFLOAD_ATTN_NORM, OFFLOAD_QKV_LINEAR, OFFLOAD_CORE_ATTN, OFFLOAD_ATTN_PROJ, OFFLOAD_MLP_NORM, OFFLOAD_EXPERT_FC1,
                      OFFLOAD_MOE_ACT, OFFLOAD_MODULES };
/* Linear layers with low-rank adapters (Megatron-core's names): bits of plan.lora_modules. */
enum lora_module { LORA_LINEAR_QKV, LORA_LINEAR_PROJ, LORA_LINEAR_FC1, LORA_LINEAR_FC2, LORA_MODULES };
enum axis { AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP, AXES };
extern const char *const recompute_names[];        /* "none", "selective", "full", NULL */
extern const char *const context_parallel_names[]; /* "ring", "ulysses", NULL */
extern const char *const optimizer_names[];        /* "adamw", "sgd", NULL */
extern const char *const attention_names[];        /* "flash", "flash1", "unfused", "eager", NULL */
extern const char *const moe_dispatcher_names[];   /* "flex", "alltoall", "hybridep", NULL */
extern const char *const cuda_graph_names[];       /* "none", "router", "partial", "full", NULL */
extern const char *const vocab_parallel_names[];   /* "edges", "pipeline", "pipeline-2", "interlaced", NULL */
extern const char *const cross_entropy_names[];    /* "stack", "unfused", "fused", "in-place", "chunked", NULL */
extern const char *const recompute_module_names[]; /* "core_attn", "layernorm", ... NULL */
extern const char *const offload_module_names[];   /* "attn_norm", "qkv_linear", ... NULL */
extern const char *const lora_module_names[];      /* "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", NULL */
extern const char *const axis_names[];             /* "tp", "cp", "ep", "dp", "pp", NULL */

struct plan {
    int tp, cp, pp, vp, dp, ep, etp;
    bool sequence_parallel;
    enum context_parallel context_parallel;
    int zero; /* 0..3 */
    int micro_batch;
    int64_t global_batch, seq_len;
    enum plan_schedule schedule;
    int schedule_group; /* interleaved: micro-batches per group, 0 = pp */
    enum recompute recompute;
    int recompute_layers; /* with full: layers recomputed per pipeline chunk (block), -1 = all (null in JSON) */
    enum precision precision;
    enum optimizer optimizer;
    double grad_bytes; /* main gradients: 4 (fp32) or 2 (bf16); 0 = the stack's own */
    enum attention_kernel attention;
    enum moe_dispatcher moe_dispatcher;
    struct { bool dp_grad, dp_param, tp, ep, p2p; } overlap;
    uint32_t recompute_modules; /* with selective: bits of enum recompute_module; 0 = the stack's own choice */
    enum cuda_graph cuda_graph;
    enum vocab_parallel vocab_parallel;
    enum cross_entropy cross_entropy; /* stack = as the stack does */
    bool fused_grouped_mlp;     /* routed experts in one kernel each way: activation and casts inside the grouped GEMMs */
    bool fp8_attention;         /* the attention core in 8 bit too */
    bool fp8_param_gather;      /* linears keep their weights in 8 bit alone, which are gathered so (plan_keeps_low_weights) */
    bool dropout;               /* masks of hidden and attention dropout are kept (GPT-2 and GPT-3 recipes) */
    int dp_shard;               /* ranks that share one copy of what zero shards (HSDP); 0 = all of dp x cp */
    double optimizer_offload;   /* share of the optimizer's states and steps on the host, 0..1 */
    int lora_rank;              /* low-rank adapters train and all else is frozen (LoRA); 0 = all weights train */
    uint32_t lora_modules;      /* bits of enum lora_module; 0 = all of them */
    int offload_layers;         /* layers per pipeline chunk whose kept activations wait on the host until backward */
    uint32_t offload_modules;   /* bits of enum offload_module, in the other layers */
    double moment_bytes;        /* of each AdamW moment: 4, or 2 (precision-aware optimizers) */
    enum axis rank_order[AXES]; /* fastest first */
    char stack[32];
    int n_layers_per_stage; /* 0 = even split, else pp*vp */
    uint16_t layers_per_stage[PLAN_CHUNKS_MAX];
};

/* The defaults of contract.md: tp..etp 1, no sequence parallelism, ring, zero 1,
 * micro_batch 1, global_batch 128, seq_len 4096, 1f1b, no recompute, bf16, adamw,
 * gradients as the stack keeps them, flash attention, even split, overlap of
 * data-parallel and pipeline traffic, tp-cp-ep-dp-pp, megatron. */
void plan_defaults(struct plan *plan);
int plan_load(const char *path, struct plan *ret_plan, struct err *warn, struct err *err);
int plan_parse(const struct json *root, const char *file, struct plan *ret_plan, struct err *warn, struct err *err);
/* The fields that are there, onto a plan that has the others. */
int plan_parse_onto(const struct json *root, const char *file, struct plan *plan, struct err *warn, struct err *err);
struct json *plan_to_json(const struct plan *plan); /* caller owns */
int plan_save(const char *path, const struct plan *plan, struct err *err);
/* "TP8 PP4 DP2 EP1 ZeRO-1 mbs1 vp2 1F1B-I" (CP, SP, ETP, recompute, order only when not the default); returns buffer */
const char *plan_format(const struct plan *plan, char *buffer, size_t size);
/* A total order for ties: plans that differ never compare equal. */
int plan_compare(const struct plan *a, const struct plan *b);

int64_t plan_world(const struct plan *plan);                 /* tp*cp*pp*dp */
/* fp8_param_gather where there is something to it: an 8-bit recipe, a sharded optimizer that holds the master weights
 * (Megatron-LM refuses it without), no frozen weights. NVFP4 keeps 16-bit weights (Megatron-Bridge's recipes). */
bool plan_keeps_low_weights(const struct plan *plan);
int64_t plan_micro_batches(const struct plan *plan);         /* per pipeline: gbs/(dp*mbs) */
int plan_chunk_layers(const struct plan *plan, const struct model *model, int chunk); /* layers of chunk (in stage order) */
/* Rows of the embedding table and the head: Megatron-LM pads to a multiple of
 * 128*tp, the PyTorch-native stacks and DeepSpeed do not pad. */
int64_t plan_padded_vocab(const struct plan *plan, const struct model *model);

/* Launch rules of Megatron-LM and DeepSpeed: one bit each. */
enum plan_rule {
    RULE_WORLD, RULE_HEADS_TP, RULE_KV_HEADS_TP, RULE_FFN_TP, RULE_VOCAB_TP, RULE_SP_NEEDS_TP, RULE_SEQ_SP_CP, RULE_CP_HEADS,
    RULE_LAYERS_SPLIT, RULE_LAYERS_LIST, RULE_PP_LAYERS, RULE_VP_NEEDS_PP, RULE_VP_SCHEDULE, RULE_MICRO_BATCHES_PP, RULE_BATCH, RULE_DP_BATCH,
    RULE_EP_EXPERTS, RULE_EP_WORLD, RULE_EP_DENSE, RULE_ETP_FFN, RULE_EP_SP, RULE_ZERO_PP, RULE_PRECISION_ACCELERATOR, RULE_SEQ_MODEL,
    RULE_RECOMPUTE_LAYERS, RULE_SCHEDULE, RULE_RANK_ORDER, RULE_ADAPTERS, RULE_DP_SHARD, RULE_OFFLOAD, RULES
};
extern const char *const plan_rule_names[]; /* short reason for counts: "tp does not divide attention heads", ... */

/* Every broken rule as a bit set; no strings, no allocation (the search's test).
 * cluster may be NULL (world and accelerator rules are then not tested), and model
 * (what is left are the rules of the plan alone). */
uint32_t plan_broken_rules(const struct plan *plan, const struct model *model, const struct cluster *cluster);
/* The same as sentences with the nearest valid values, all at once. Returns 0 or -1. */
int plan_check(const struct plan *plan, const struct model *model, const struct cluster *cluster, struct err *warn, struct err *err);
bool plan_accelerator_has(const struct cluster *cluster, enum precision precision); /* every member computes in it */

/* Process groups from the rank order. */
enum plan_group { GROUP_TP, GROUP_CP, GROUP_DP, GROUP_DP_CP, GROUP_EP, GROUP_ETP, GROUP_EXPERT_DP, GROUP_PP, GROUP_PP_NEXT, GROUPS };
/* GROUP_PP_NEXT is the pair of neighbouring stages; GROUP_DP_CP reduces dense gradients. */
/* Experts take the places of tp, ep and dp in the rank order within a stage
 * (Megatron-LM). Dims come fastest first, merged where contiguous, size 1 left
 * out. Meant for plans whose RULE_EP_WORLD and RULE_RANK_ORDER hold. */
void plan_rank_group(const struct plan *plan, enum plan_group which, struct rank_group *ret);

#endif
