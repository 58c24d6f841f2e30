/* Bytes of one rank. The formulas and their sources are in the header; checked
 * against published peaks in tests/golden (SimuMax B200 runs and Megatron-LM's own
 * tests: allocated bytes).
 *
 * Bytes per logit at the end of forward (cross_entropy), read off Megatron-LM's tests
 * (3 layers, vocabulary 50,304: the logits are half of the peak), which hold to 0.5 %:
 * unfused 2 + 4 (16-bit logits, fp32 copy worked on in place), fused 2 + 4 + 4,
 * in place 2. Sliced losses hold slices no larger than the head's input, which is counted. */
#include "cost/memory.h"

#include <math.h>

const char *const memory_part_names[] = {"weights",       "gradients", "optimizer",     "activations", "logits", "temporary",
                                         "communication", "context",   "fragmentation", NULL};

double memory_weight_bytes(const struct plan *plan)
{
    return plan->precision == PRECISION_FP32 ? 4 : 2;
}

double memory_optimizer_bytes(const struct plan *plan)
{
    double master = plan->precision == PRECISION_FP32 ? 0 : 4;
    return master + (plan->optimizer == OPTIMIZER_ADAMW ? 2 * plan->moment_bytes : 4);
}

double memory_gradient_bytes(const struct plan *plan, const struct stack *stack)
{
    if (plan->grad_bytes > 0)
        return plan->grad_bytes;
    return plan->precision == PRECISION_FP16 && !stack->sharded_per_layer ? 2 : stack->main_grad_bytes;
}

static double logit_bytes(const struct plan *plan, const struct stack *stack)
{
    static const double bytes[] = {
        [CROSS_ENTROPY_UNFUSED] = 6, [CROSS_ENTROPY_FUSED] = 10, [CROSS_ENTROPY_IN_PLACE] = 2, [CROSS_ENTROPY_CHUNKED] = 0};
    return plan->cross_entropy == CROSS_ENTROPY_STACK ? 4 * stack->cross_entropy_copies : bytes[plan->cross_entropy];
}

/* Bytes of a linear's weight in 8 or 4 bits as TransformerEngine keeps it from one micro-batch to the next: by rows and by
 * columns, each block with its scale (MXFP8 one byte for 32, NVFP4 one for 16; those of 128 x 128 do not count). Of one scale
 * per tensor the columns are a transpose, which only tensor cores before Blackwell's need (nvte_is_non_tn_fp8_gemm_supported):
 * the same Megatron-LM test takes a byte per parameter more on H100 than on GB200. */
static double low_weight_bytes(const struct plan *plan, const struct accelerator *accelerator)
{
    bool any_layout = accelerator->peak_flop_per_s[RATE_FP4] > 0;
    switch (plan->precision) {
    case PRECISION_FP8: return any_layout ? 1 : 2;
    case PRECISION_FP8_BLOCK: return 2;
    case PRECISION_MXFP8: return 2 * (1 + 1.0 / 32);
    case PRECISION_NVFP4: return 2 * (0.5 + 1.0 / 16);
    default: return 0;
    }
}

/* More bytes than the 16-bit weight of a linear: its 8-bit copies, less itself where they are all there is. */
static double low_weight_extra(const struct plan *plan, const struct stack *stack, const struct accelerator *accelerator)
{
    if (stack->sharded_per_layer || stack->counted_buffers || !precision_is_fp8(plan->precision) || plan->lora_rank > 0)
        return 0; /* torchao casts for every use */
    return low_weight_bytes(plan, accelerator) - (plan_keeps_low_weights(plan) ? memory_weight_bytes(plan) : 0);
}

/* States of `params` parameters, of which some are frozen, whose copies are shared by `ways` ranks. extra: bytes of weights
 * beside those. */
static void replicated_states(const struct plan *plan, const struct stack *stack, double params, double frozen, double ways, double extra, double *bytes)
{
    bytes[MEMORY_WEIGHTS] += (params * memory_weight_bytes(plan) + extra) / (plan->zero >= 3 ? ways : 1);
    params -= frozen;
    bytes[MEMORY_GRADIENTS] += params * memory_gradient_bytes(plan, stack) / (plan->zero >= 2 ? ways : 1);
    bytes[MEMORY_OPTIMIZER] += params * memory_optimizer_bytes(plan) * (1 - plan->optimizer_offload) / (plan->zero >= 1 ? ways : 1);
}

/* FSDP: fp32 shard, its gradient, two moments; zero 2 (no resharding after forward)
 * holds the gathered weights through the step. Frozen weights are kept in 16 bit alone. */
static void sharded_states(const struct plan *plan, double params, double frozen, double ways, double *bytes)
{
    double shard = (params - frozen) / (plan->zero >= 1 ? ways : 1);
    bytes[MEMORY_WEIGHTS] += memory_weight_bytes(plan) * frozen / (plan->zero >= 1 ? ways : 1);
    bytes[MEMORY_WEIGHTS] += 4 * shard;
    bytes[MEMORY_GRADIENTS] += 4 * shard;
    bytes[MEMORY_OPTIMIZER] += (plan->optimizer == OPTIMIZER_ADAMW ? 2 * plan->moment_bytes : 4) * (1 - plan->optimizer_offload) * shard;
    bool gathers = plan->precision != PRECISION_FP32 || (plan->zero >= 1 && ways > 1); /* fp32 weights of one owner are used as they are */
    if (plan->zero <= 2 && gathers)
        bytes[MEMORY_WEIGHTS] += memory_weight_bytes(plan) * params;
    if (plan->zero <= 2 && plan->pp > 1) /* a pipeline reduces gradients once, after its last micro-batch: whole until then */
        bytes[MEMORY_GRADIENTS] += 4 * (params - frozen);
}

/* Whole gradients beside the most that a layer's backward needs. Those of experts come after it, when its own buffers,
 * and at zero 3 the weights, are gone. */
static double counted_gradients(const struct rank_load *load, double largest, bool gathered)
{
    if (load->splits_w)
        return 0; /* those that are open */
    if (load->expert_params > 0)
        return gathered ? 0 : fmax(0, largest - load->working_bytes);
    return largest;
}

/* planexec's weights in 8 bits, both ways, and what their factors are made from (exec/fp8.h). At zero 3 those of a layer. */
static void eight_bit_copies(const struct plan *plan, const struct rank_load *load, double *bytes)
{
    double linears = (load->dense_params - load->edge_params + load->expert_params) * load->copies;
    if (plan->precision != PRECISION_FP8 || load->layers == 0)
        return;
    bytes[plan->zero >= 3 ? MEMORY_TEMPORARY : MEMORY_WEIGHTS] += 2 * (plan->zero >= 3 ? load->largest_layer_params : linears);
    bytes[MEMORY_WEIGHTS] += load->layers * 4.0 * 3 * (1024 + 4) * 4;
}

double memory_rank(const struct plan *plan, const struct stack *stack, const struct accelerator *accelerator, const struct rank_load *load,
                   double *bytes)
{
    for (int i = 0; i < MEMORY_PARTS; i++)
        bytes[i] = 0;
    double dense = load->dense_params * load->copies, expert = load->expert_params * load->copies;
    double frozen_dense = load->frozen_dense * load->copies, frozen_expert = load->frozen_expert * load->copies;
    if (stack->sharded_per_layer) {
        sharded_states(plan, dense, frozen_dense, load->dp_ways, bytes);
        sharded_states(plan, expert, frozen_expert, load->expert_dp_ways, bytes);
    } else {
        double extra = low_weight_extra(plan, stack, accelerator), linears = dense - load->edge_params * load->copies;
        if (load->layers == 0) /* how much is edges is not said */
            extra = fmin(extra, 0);
        replicated_states(plan, stack, dense, frozen_dense, load->dp_ways, extra * linears, bytes);
        replicated_states(plan, stack, expert, frozen_expert, load->expert_dp_ways, extra * expert, bytes);
    }
    double largest = load->largest_layer_params * 4, gathered = load->largest_layer_params * memory_weight_bytes(plan);
    if (stack->counted_buffers) {
        double layer = (plan->zero >= 3 ? gathered * (load->prefetches ? 2 : 1) : 0) + counted_gradients(load, largest, plan->zero >= 3) + load->open_gradient_bytes;
        bytes[MEMORY_TEMPORARY] += plan->zero < 2 ? 0 : fmax(0, fmax(layer + load->layer_bytes, load->edge_bytes) - load->working_bytes);
        if (plan->zero >= 3 && plan->precision != PRECISION_FP32) /* gathered from the master weights */
            bytes[MEMORY_WEIGHTS] = 0;
        eight_bit_copies(plan, load, bytes);
    }
    if (plan->zero >= 3 && !stack->counted_buffers) /* two gathered layers and one layer's gradients, and the gathered embedding or head */
        bytes[MEMORY_TEMPORARY] += load->largest_layer_params * (2 * memory_weight_bytes(plan) + (plan->lora_rank > 0 ? 0 : 4)) + load->edge_params * memory_weight_bytes(plan);
    if (stack->wgrad_stand_in && plan->lora_rank == 0)
        bytes[MEMORY_TEMPORARY] += load->shape_params * memory_weight_bytes(plan);
    bytes[MEMORY_ACTIVATIONS] = load->kept_bytes;
    /* Megatron-LM: the logits are gone when the last layer's backward needs its temporaries; where the training loop holds
     * them, or the allocator does, both count. */
    bool held = stack->gathered_logits || stack->sharded_per_layer || stack->counted_buffers;
    bytes[MEMORY_LOGITS] = load->logits * logit_bytes(plan, stack) * (stack->gathered_logits ? plan->tp : 1);
    bytes[MEMORY_TEMPORARY] += (held ? load->working_bytes : fmax(0, load->working_bytes - bytes[MEMORY_LOGITS])) + load->p2p_bytes + stack->workspace_bytes + accelerator->gemm_workspace_bytes;
    dense -= frozen_dense;
    expert -= frozen_expert;
    double updated = plan->zero >= 1 ? dense / load->dp_ways + expert / load->expert_dp_ways : dense + expert;
    bytes[MEMORY_TEMPORARY] += updated * (1 - plan->optimizer_offload) * stack->optimizer_temporary_bytes;
    bytes[MEMORY_COMMUNICATION] = load->communicators * stack->communicator_bytes;
    bytes[MEMORY_CONTEXT] = accelerator->context_bytes;
    bytes[MEMORY_FRAGMENTATION] = stack->fragmentation * memory_allocated(bytes);
    double total = 0;
    for (int i = 0; i < MEMORY_PARTS; i++)
        total += bytes[i];
    return total;
}

double memory_allocated(const double *bytes)
{
    return bytes[MEMORY_WEIGHTS] + bytes[MEMORY_GRADIENTS] + bytes[MEMORY_OPTIMIZER] + bytes[MEMORY_ACTIVATIONS] + bytes[MEMORY_LOGITS] +
           bytes[MEMORY_TEMPORARY];
}

double memory_reserved(const double *bytes)
{
    return memory_allocated(bytes) + bytes[MEMORY_FRAGMENTATION];
}
