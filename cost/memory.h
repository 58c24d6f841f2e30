/* Model x plan -> bytes on one rank, by kind.
 *
 * Per parameter, mixed-precision AdamW (Rajbhandari et al. 2020; Megatron-LM
 * distributed optimizer): 2 weights + main gradients + 12 (fp32 master, m, v).
 * zero 1 shards the 12 over the data-parallel ranks (experts over theirs), zero 2
 * also the gradients, zero 3 also the weights. Stacks that shard per layer (FSDP)
 * keep fp32 shards (16 bytes / ways) and two gathered layers in flight.
 *
 * The peak: states, activations of all micro-batches in flight, and the larger of the
 * logits (last forward) and the temporaries of the heaviest layer (its backward), both
 * where something holds the logits; beside them the GEMM library's workspaces, 16-bit
 * stand-ins of fused weight gradients, messages between stages. Against the allocator's
 * own counter: SimuMax's 31 runs on B200 0.5 %, 483 of Megatron-LM's tests 1.2 %
 * (medians). Left out: routing that is not balanced.
 *
 * counted_buffers (planexec): the executor frees a buffer with its last use, and what it holds is counted. From F to
 * B: kept activations, and of every micro-batch in flight its logits, worked on in place. In B one layer: dy, dh, the
 * norm's and the layer's input gradients, and those of qkv and of gate and up, kept for the weights' gradients; or the
 * head's two. zero 2, 3: one layer's whole gradient (experts': once B is through the layer; split B and W: those that
 * are open, sim/stages.h), at 3 its gathered weights; or the head's table and its gradient. With linears in 8 bits two more copies of their weights, by rows and transposed, and a history
 * of 1024 largest magnitudes of input, weight and gradient of four linears of a layer. */
#ifndef COST_MEMORY_H
#define COST_MEMORY_H

#include "cost/plan.h"
#include "cost/profile.h"

enum memory_part {
    MEMORY_WEIGHTS, MEMORY_GRADIENTS, MEMORY_OPTIMIZER, MEMORY_ACTIVATIONS, MEMORY_LOGITS, MEMORY_TEMPORARY, MEMORY_COMMUNICATION,
    MEMORY_CONTEXT, MEMORY_FRAGMENTATION, MEMORY_PARTS
};
extern const char *const memory_part_names[]; /* "weights", ... NULL */

/* What one pipeline rank holds. */
struct rank_load {
    double dense_params, expert_params; /* on this rank before ZeRO */
    double frozen_dense, frozen_expert; /* of them, without gradients and optimizer (low-rank adapters) */
    double largest_layer_params;        /* dense + expert of its largest layer */
    double shape_params;                /* of one layer's different weights: dense + one expert */
    double edge_params;                 /* embedding and head on this rank, in dense_params too */
    double dp_ways, expert_dp_ways;     /* ranks that share one copy's states: dp*cp, expert dp */
    double kept_bytes;                  /* activations of all micro-batches in flight at the peak */
    double working_bytes;               /* temporaries of the heaviest layer */
    double logits;                      /* elements of the logits on this rank, 0 = no head */
    double p2p_bytes;                   /* send and receive buffers between stages */
    int communicators;
    int layers; /* on this rank; 0 = a lower bound is asked for */
    bool splits_w; /* the schedule has B and W apart */
    double open_gradient_bytes; /* planexec at zero 2, 3: whole gradients at the peak, where B and W are apart; else those that wait from
                                   head to embedding */
    double edge_bytes;          /* planexec at zero 2, 3: what head or embedding take beside what is kept */
    double layer_bytes;         /* working_bytes without the head's: what a layer takes beside what is kept */
    bool prefetches; /* planexec at zero 3: the next layer's weights are gathered beside the present one */
    double copies; /* parameter copies: 1, DualPipe 2 */
};

/* ret_bytes[MEMORY_PARTS]; returns the total. */
double memory_rank(const struct plan *plan, const struct stack *stack, const struct accelerator *accelerator, const struct rank_load *load,
                   double *ret_bytes);

/* Bytes per parameter that the optimizer keeps (12, fp32 training 8, SGD 8/4) and of the weights. */
double memory_optimizer_bytes(const struct plan *plan);
double memory_weight_bytes(const struct plan *plan);
double memory_gradient_bytes(const struct plan *plan, const struct stack *stack);

/* "allocated": what the framework's allocator counts at its peak (torch max_memory_allocated);
 * "reserved": with fragmentation; the total is what nvidia-smi shows. */
double memory_allocated(const double *bytes);
double memory_reserved(const double *bytes);

#endif
