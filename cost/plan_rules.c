/* Which launch rules a plan breaks, as bits: the search's test. No strings are
 * built and nothing is allocated; the sentences are in plan_check.c.
 *
 * The rules are those at which Megatron-LM (megatron/training/arguments.py,
 * megatron/core/parallel_state.py, pipeline_parallel/schedules.py), DeepSpeed,
 * torchtitan and DeepSeek's DualPipe stop with an assertion, or should have: each
 * one says where it is from. What only costs time or memory is no rule. */
#include "cost/plan.h"

#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan_internal.h"

const char *const plan_rule_names[] = {
    [RULE_WORLD] = "tp*cp*pp*dp is not the number of accelerators",
    [RULE_HEADS_TP] = "tp does not divide attention heads",
    [RULE_KV_HEADS_TP] = "tp and kv heads do not divide each other",
    [RULE_FFN_TP] = "tp does not divide the MLP width",
    [RULE_VOCAB_TP] = "tp does not divide an unpadded vocabulary",
    [RULE_SP_NEEDS_TP] = "sequence parallelism without tp",
    [RULE_SEQ_SP_CP] = "seq_len does not divide over sp and cp",
    [RULE_CP_HEADS] = "Ulysses: tp*cp does not divide attention heads",
    [RULE_LAYERS_SPLIT] = "pp*vp does not divide layers",
    [RULE_LAYERS_LIST] = "layers_per_stage does not hold the model's layers",
    [RULE_PP_LAYERS] = "more pipeline chunks than layers",
    [RULE_VP_NEEDS_PP] = "vp without pp",
    [RULE_VP_SCHEDULE] = "vp does not suit the schedule",
    [RULE_MICRO_BATCHES_PP] = "number of micro-batches does not suit the schedule",
    [RULE_BATCH] = "dp*micro_batch does not divide global_batch",
    [RULE_DP_BATCH] = "dp exceeds global_batch",
    [RULE_EP_EXPERTS] = "ep does not divide experts",
    [RULE_EP_WORLD] = "etp*ep*pp does not divide the world",
    [RULE_EP_DENSE] = "ep or etp on a dense model",
    [RULE_ETP_FFN] = "etp does not divide the expert width",
    [RULE_EP_SP] = "tp with ep needs sequence parallelism",
    [RULE_ZERO_PP] = "ZeRO stage does not go with pp in this stack",
    [RULE_PRECISION_ACCELERATOR] = "precision unknown to the accelerator",
    [RULE_SEQ_MODEL] = "seq_len exceeds the learned positions",
    [RULE_RECOMPUTE_LAYERS] = "recompute_layers out of place",
    [RULE_SCHEDULE] = "schedule cannot be built for this pp",
    [RULE_RANK_ORDER] = "rank order does not place the groups",
    [RULE_ADAPTERS] = "no linear of the model takes the adapters",
    [RULE_DP_SHARD] = "dp_shard does not divide dp*cp",
    [RULE_OFFLOAD] = "activations offloaded and recomputed",
    [RULES] = NULL,
};
_Static_assert(RULES <= 32, "one bit per rule");

static uint32_t bit_if(bool broken, enum plan_rule rule)
{
    return broken ? (uint32_t)1 << rule : 0;
}

static bool either_divides(int64_t a, int64_t b)
{
    return a % b == 0 || b % a == 0;
}

/* Megatron-LM: attention heads, MLP columns and experts are cut into equal parts
 * (core/utils.py divide()). kv heads fewer than tp are replicated, which needs tp
 * to be a multiple of them (V05). Shared experts are cut by tp, routed ones by etp. */
static uint32_t broken_widths(const struct plan *plan, const struct model *model)
{
    bool ffn = false, expert_ffn = false;
    bool grouped = model->kv_heads > 0 && model->kv_heads != model->heads; /* else the heads' rule says it */
    for (int i = 0; i < model->n_kinds; i++) {
        const struct layer_kind *kind = &model->kinds[i];
        if (kind->moe)
            expert_ffn |= kind->ffn % plan->etp != 0;
        ffn |= (kind->moe ? kind->shared_ffn : kind->ffn) % plan->tp != 0;
    }
    bool scanned = model->ssm_heads > 0 && model->ssm_groups % plan->tp != 0; /* Megatron-core: ngroups % tp; heads are a multiple */
    return bit_if(model->heads % plan->tp != 0 || scanned, RULE_HEADS_TP) |
           bit_if(grouped && !either_divides(model->kv_heads, plan->tp), RULE_KV_HEADS_TP) | bit_if(ffn, RULE_FFN_TP) |
           bit_if(expert_ffn && model->experts > 0, RULE_ETP_FFN);
}

/* seq_len splits over cp, for the causal balance of ring attention into 2*cp pieces
 * (Megatron-LM: seq_length % (2*cp)), and each part over tp with sequence
 * parallelism (torchtitan: seq_len_divisor = tp * 2*cp). */
int64_t plan_sequence_unit(const struct plan *plan)
{
    int64_t pieces = plan->cp > 1 && plan->context_parallel == CP_RING ? 2 : 1;
    int64_t parts = plan->sequence_parallel ? plan->tp : 1;
    if (pieces == 2 && parts % 2 == 0)
        pieces = 1;
    return plan_mul(plan->cp, plan_mul(pieces, parts));
}

/* Sequence parallelism without tp has nothing to split (Megatron-LM switches it off
 * silently; here it is said). MoE with tp and ep dispatches tokens that must not
 * be replicated over tp (Megatron-LM asserts sequence parallelism; DeepSpeed drops
 * duplicates). Ulysses exchanges heads for sequence (arXiv:2309.14509): whole heads
 * per rank, kv heads replicated as under tp. A learned position table ends. */
static uint32_t broken_sequence_split(const struct plan *plan)
{
    return bit_if(plan->sequence_parallel && plan->tp == 1, RULE_SP_NEEDS_TP) |
           bit_if(plan->seq_len % plan_sequence_unit(plan) != 0, RULE_SEQ_SP_CP);
}

static uint32_t broken_sequence(const struct plan *plan, const struct model *model)
{
    int64_t parts = plan_mul(plan->tp, plan->cp);
    bool ulysses = plan->cp > 1 && plan->context_parallel == CP_ULYSSES;
    bool heads = model->heads % parts != 0 || (model->kv_heads > 0 && !either_divides(model->kv_heads, parts));
    bool replicated = model->experts > 0 && plan->tp > 1 && plan->ep > 1 && !plan->sequence_parallel;
    return bit_if(ulysses && heads, RULE_CP_HEADS) |
           bit_if(replicated && !plan_stack_is(plan, "deepspeed"), RULE_EP_SP) |
           bit_if(model->learned_positions && !model->positions_assumed && model->max_positions > 0 && plan->seq_len > model->max_positions,
                  RULE_SEQ_MODEL);
}

/* Every layer is on exactly one chunk (V01, V02, V04). A chunk without layers may
 * only be the first or the last, holding the embedding or the head alone. */
static bool list_is_broken(const struct plan *plan, const struct model *model)
{
    int n = plan->n_layers_per_stage;
    int64_t sum = 0;
    bool hole = false;
    for (int i = 0; i < n; i++) {
        sum += plan->layers_per_stage[i];
        hole |= plan->layers_per_stage[i] == 0 && i > 0 && i < n - 1;
    }
    return hole || n != plan_chunks(plan) || (model && sum != model->layers);
}

/* Recompute of n layers is Megatron-LM's --recompute-method block, counted per
 * pipeline chunk, and means something only with full recompute. */
static bool recompute_is_broken(const struct plan *plan, const struct model *model)
{
    return plan->recompute_layers > plan_largest_chunk(plan, model);
}

static uint32_t broken_layers(const struct plan *plan, const struct model *model)
{
    int64_t chunks = plan_chunks(plan);
    bool even = plan->n_layers_per_stage == 0;
    return bit_if(even && chunks > model->layers, RULE_PP_LAYERS) |
           bit_if(even && chunks <= model->layers && model->layers % chunks != 0, RULE_LAYERS_SPLIT) |
           bit_if(recompute_is_broken(plan, model), RULE_RECOMPUTE_LAYERS);
}

/* Chunks per rank that a schedule is made for: V-shaped placements have two,
 * DualPipe two whole modules that count as one chunk here, interleaving with one
 * chunk would be 1F1B. Looped BFS and interleaved zero bubble with one are GPipe
 * and ZB-H1, as in PyTorch. */
bool plan_vp_fits_schedule(const struct plan *plan)
{
    switch (plan->schedule) {
    case SCHEDULE_LOOPED_BFS:
    case SCHEDULE_INTERLEAVED_ZB: return true;
    case SCHEDULE_INTERLEAVED: return plan->vp >= 2;
    case SCHEDULE_ZB_V:
    case SCHEDULE_ZB_V_AUTO:
    case SCHEDULE_V_HALF:
    case SCHEDULE_V_MIN:
    case SCHEDULE_1F1B_V:
    case SCHEDULE_DUALPIPE_V: return plan->vp == 2;
    default: return plan->vp == 1;
    }
}

/* Micro-batches that the original implementations take (schedules.md section 3):
 * Megatron-LM's interleaving P <= G <= M and M mod G = 0 or >= P, G = P unless
 * given; PyTorch's interleaving (it chooses G) and interleaved zero bubble M mod
 * max(1, M/P) = 0, its 1F1B M >= P; DualPipe M even and >= 2P, DualPipeV M >= 2P
 * (DeepSeek). The others take any. */
bool plan_schedule_takes(const struct plan *plan, int64_t micro_batches)
{
    int64_t m = micro_batches, p = plan->pp;
    int64_t group = plan->schedule_group > 0 ? plan->schedule_group : p;
    if (m < 1)
        return false;
    bool whole_rounds = m < p || m % (m / p) == 0;
    switch (plan->schedule) {
    case SCHEDULE_1F1B: return m >= p || !plan_stack_is_torch(plan);
    case SCHEDULE_INTERLEAVED:
        if (plan->schedule_group == 0 && plan_stack_is_torch(plan))
            return whole_rounds;
        return p <= group && group <= m && (m % group == 0 || m % group >= p);
    case SCHEDULE_INTERLEAVED_ZB: return whole_rounds;
    case SCHEDULE_DUALPIPE: return m % 2 == 0 && m >= 2 * p;
    case SCHEDULE_DUALPIPE_V: return m >= 2 * p;
    default: return true;
    }
}

/* Narayanan et al. 2021 and Megatron-LM: global batch % (dp*micro batch) (V10),
 * interleaving needs a pipeline. The number of micro-batches is judged only where
 * the batch divides and the pipeline is one. */
static uint32_t broken_pipeline(const struct plan *plan)
{
    int64_t unit = plan_mul(plan->dp, plan->micro_batch);
    bool few = plan->dp > plan->global_batch;
    bool split = !few && plan->global_batch % unit != 0;
    bool judged = !few && !split && plan->pp > 1 && (unsigned)plan->schedule < SCHEDULES;
    bool dualpipe = plan->schedule == SCHEDULE_DUALPIPE && plan->pp % 2 != 0; /* DeepSeek: assert P % 2 == 0 */
    bool group = plan->schedule_group > 0 && plan->schedule != SCHEDULE_INTERLEAVED;
    bool vp_alone = plan->vp > 1 && plan->pp == 1;
    return bit_if(few, RULE_DP_BATCH) | bit_if(split, RULE_BATCH) | bit_if(vp_alone, RULE_VP_NEEDS_PP) |
           bit_if(!vp_alone && !plan_vp_fits_schedule(plan), RULE_VP_SCHEDULE) |
           bit_if(judged && !plan_schedule_takes(plan, plan->global_batch / unit), RULE_MICRO_BATCHES_PP) |
           bit_if(dualpipe || group || (unsigned)plan->schedule >= SCHEDULES, RULE_SCHEDULE);
}

/* Megatron-Bridge: LoRA matches modules by name and trains nothing where none matches; experts have no adapters. */
static uint32_t broken_adapters(const struct plan *plan, const struct model *model)
{
    uint32_t named = plan->lora_modules ? plan->lora_modules : (1U << LORA_MODULES) - 1;
    return bit_if(plan->lora_rank > 0 && (named & ~plan_idle_adapters(model)) == 0, RULE_ADAPTERS);
}

/* Megatron-LM parallel_state.py: expert_tensor*expert*pipeline divides the world
 * (V08, V09); num_experts % ep; expert parallelism is of experts. */
static uint32_t broken_experts(const struct plan *plan, const struct model *model)
{
    int64_t cut = plan_mul(plan->etp, plan->ep);
    int64_t stage = plan_mul(plan_mul(plan->tp, plan->cp), plan->dp);
    if (model->experts == 0)
        return bit_if(cut > 1, RULE_EP_DENSE);
    return bit_if(model->experts % plan->ep != 0, RULE_EP_EXPERTS) | bit_if(stage % cut != 0, RULE_EP_WORLD);
}

/* DeepSpeed's PipelineEngine asserts ZeRO < 2; ZeRO-2 with pp runs where gradients
 * are kept for the whole step (Llama 3, arXiv:2407.21783 section 3.3.2); ZeRO-3
 * with pp only where FSDP2 wraps the stages. DeepSpeed and unpadded stacks cut the
 * vocabulary as it is; Megatron-LM pads it to 128*tp (V06). */
static uint32_t broken_zero(const struct plan *plan)
{
    bool zero_pp = plan->zero >= 2 && plan->pp > 1 &&
                   (plan_stack_is(plan, "deepspeed") || (plan->zero == 3 && !plan_stack_is_torch(plan)));
    return bit_if(zero_pp || plan->zero < 0 || plan->zero > 3, RULE_ZERO_PP);
}

/* Hybrid sharding cuts dp x cp into equal groups (Megatron-LM: data-parallel size %
 * num-distributed-optimizer-instances). Megatron-core: what is recomputed from a layer's
 * input is not kept, so there is nothing to offload. recompute_layers belongs to full. */
static uint32_t broken_sharing(const struct plan *plan)
{
    bool offloads = plan->offload_layers > 0 || plan->offload_modules != 0;
    return bit_if(plan->dp_shard > 0 && plan_mul(plan->dp, plan->cp) % plan->dp_shard != 0, RULE_DP_SHARD) |
           bit_if(plan->recompute_layers >= 0 && plan->recompute != RECOMPUTE_FULL, RULE_RECOMPUTE_LAYERS) |
           bit_if(offloads && plan->recompute == RECOMPUTE_FULL, RULE_OFFLOAD);
}

/* MXFP8 is what came with 4-bit tensor cores (Blackwell, CDNA4). */
static bool accelerator_has(const struct accelerator *accelerator, enum precision precision)
{
    switch (precision) {
    case PRECISION_FP32: return true;
    case PRECISION_BF16: return accelerator->peak_flop_per_s[RATE_16BIT] > 0 && !accelerator->lacks_bf16;
    case PRECISION_MXFP8:
        return accelerator->peak_flop_per_s[RATE_FP8] > 0 && accelerator->peak_flop_per_s[RATE_FP4] > 0;
    default: return accelerator->peak_flop_per_s[precision_rate(precision)] > 0;
    }
}

bool plan_accelerator_has(const struct cluster *cluster, enum precision precision)
{
    for (int i = 0; i < cluster->n_groups; i++)
        if (!accelerator_has(&cluster->group[i].accelerator, precision))
            return false;
    return accelerator_has(&cluster->accelerator, precision);
}

bool plan_sizes_are_positive(const struct plan *plan)
{
    return plan->tp > 0 && plan->cp > 0 && plan->pp > 0 && plan->vp > 0 && plan->dp > 0 && plan->ep > 0 &&
           plan->etp > 0 && plan->micro_batch > 0 && plan->global_batch > 0 && plan->seq_len > 0;
}

static uint32_t broken_by_model(const struct plan *plan, const struct model *model, bool order)
{
    uint32_t broken = broken_widths(plan, model) | broken_sequence(plan, model) | broken_layers(plan, model) |
                      broken_experts(plan, model) | broken_adapters(plan, model) |
                      bit_if(model->vocab % plan->tp != 0 && !plan_stack_pads_vocab(plan), RULE_VOCAB_TP);
    bool experts = order && model->experts > 0 && (broken & bit_if(true, RULE_EP_WORLD)) == 0;
    return broken | bit_if(experts && !plan_experts_aligned(plan), RULE_RANK_ORDER);
}

uint32_t plan_broken_rules(const struct plan *plan, const struct model *model, const struct cluster *cluster)
{
    if (!plan_sizes_are_positive(plan))
        return bit_if(true, RULE_WORLD);
    bool order = plan_order_is_permutation(plan);
    uint32_t broken = broken_sequence_split(plan) | broken_pipeline(plan) | broken_zero(plan) | broken_sharing(plan) | bit_if(!order, RULE_RANK_ORDER) |
                      bit_if(plan->n_layers_per_stage > 0 && list_is_broken(plan, model), RULE_LAYERS_LIST);
    if (model)
        broken |= broken_by_model(plan, model, order);
    if (cluster)
        broken |= bit_if(plan_world(plan) != cluster->accelerators, RULE_WORLD) |
                  bit_if(!plan_accelerator_has(cluster, plan->precision), RULE_PRECISION_ACCELERATOR);
    return broken;
}
