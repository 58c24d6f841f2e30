/* Model x plan -> the ops of one layer, embedding and head, priced.
 *
 * Every op of one micro-batch on one rank, split into F (forward), B (gradient
 * of the input) and W (gradient of the weights), with the collectives that
 * tensor, sequence, context and expert parallelism put between them. Prices
 * depend only on tp, sequence_parallel, cp, ep, etp, micro_batch, seq_len,
 * precision, attention kernel, stack and where those groups lie; not on pp, vp,
 * dp, zero, schedule or recompute, so that a search keeps them.
 *
 * Seconds, bytes, FLOPs per micro-batch and rank. Pure; no allocation. */
#ifndef COST_OPS_H
#define COST_OPS_H

#include <stdint.h>

#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan.h"

enum phase { PHASE_F, PHASE_B, PHASE_W, PHASES };
extern const char *const phase_names[]; /* "F", "B", "W", NULL */

/* What an op is made of, for breakdowns. */
enum op_class { OP_GEMM, OP_ATTENTION, OP_POINTWISE, OP_EXPERTS, OP_TP, OP_CP, OP_EP, OP_HOST, OP_CLASSES };
extern const char *const op_class_names[]; /* "gemm", "attention", ... NULL */

struct op_line {
    const char *name; /* static text: "qkv", "attention core", "dispatch", ... */
    enum op_class op_class;
    enum phase phase;
    double seconds, flop, bytes; /* bytes: moved in memory or sent, 0 where FLOPs count */
    double m, n, k, products;    /* of linear layers: y[m x n] = x[m x k] weight, in every phase; experts: one product each */
};
/* Where the ops are written down one by one, for explain; NULL in the search. */
struct op_log {
    int n, max;
    struct op_line *line;
};

struct layer_price {
    double compute_s[PHASES];                        /* kernels, not below the host's launch rate */
    double tp_s[PHASES], cp_s[PHASES], ep_s[PHASES]; /* collectives that the same layer's compute does not hide */
    /* what backward repeats under recomputation */
    double selective_s, selective_tp_s;              /* compute, exposed collectives */
    double full_s, full_tp_s, full_cp_s, full_ep_s;
    /* kept from forward to backward, per micro-batch */
    double kept_bytes, kept_selective_bytes, kept_full_bytes;
    double offload_bytes; /* of them, what plan.offload_modules sends to the host (without selective recompute) */
    double working_bytes; /* most that one layer's backward needs at once beside what was kept */
    double adapter_params; /* of low-rank adapters, this rank */
    double flop;          /* of kernels run in F (no recompute), this rank */
};

/* Parameters of one layer on one rank. */
struct layer_shard {
    double dense, expert; /* elements */
};

struct ops_context {
    const struct model *model;
    const struct cluster *cluster;
    const struct plan *plan;
    const struct stack *stack;
    struct span tp, cp, ep, etp; /* how the groups lie */
    struct op_log *log;
};

/* Fills the spans from the plan's rank order. */
void ops_context_init(struct ops_context *ret, const struct model *model, const struct cluster *cluster, const struct plan *plan,
                      const struct stack *stack, struct op_log *log);

void ops_price_layer(const struct ops_context *context, int kind, struct layer_price *ret);
void ops_price_embedding(const struct ops_context *context, struct layer_price *ret);
/* Final norm, head GEMM, vocabulary-parallel cross-entropy. kept_bytes: until B; logits apart (memory.h). */
void ops_price_head(const struct ops_context *context, struct layer_price *ret);
/* One MTP module: its layer, the 2h x h projection, norms and its own head pass. */
void ops_price_mtp(const struct ops_context *context, struct layer_price *ret);

void ops_shard_layer(const struct model *model, const struct plan *plan, int kind, struct layer_shard *ret);
double ops_shard_embedding(const struct model *model, const struct plan *plan); /* token and position tables, per tp rank */
double ops_shard_head(const struct model *model, const struct plan *plan);      /* head and final norm */
double ops_vocab_per_rank(const struct model *model, const struct plan *plan);

#endif
