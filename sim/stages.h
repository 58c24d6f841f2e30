/* What each pipeline stage does and holds under a plan: the step between layer
 * prices (cost/ops.h) and the engine.
 *
 * layer_prices are kept between plans that differ only in pp, vp, dp, zero,
 * schedule, recompute or layer split (layer_prices_same); everything else here
 * is arithmetic on them: no allocation, no strings. Seconds and bytes per
 * micro-batch unless said otherwise. */
#ifndef SIM_STAGES_H
#define SIM_STAGES_H

#include "cost/memory.h"
#include "cost/ops.h"
#include "sim/predict.h"

struct layer_prices {
    struct plan key; /* the fields it depends on */
    const struct stack *stack;
    struct layer_price kind[MODEL_KINDS_MAX], embedding, head, mtp;
    uint16_t count[MODEL_LAYERS_MAX + 1][MODEL_KINDS_MAX]; /* layers of each kind before layer i */
};

/* One chunk of layers (a global pipeline stage). */
struct stage_price {
    double forward_s, backward_s, wgrad_s; /* all that the rank is busy with: compute, recompute, exposed collectives */
    double part_s[TIME_PARTS];             /* compute, recompute, tp, cp, ep, dp (per-layer sharding), other (copies to and from the host) of the three */
    double forward_ep_s, backward_ep_s;    /* expert all-to-all inside forward_s and backward_s */
    double kept_bytes, working_bytes;
    double layer_bytes; /* working_bytes of its layers alone, less what the head has freed by then: may be negative */
    double b_bytes; /* of kept_bytes, freed by a B that is apart from W */
    double dense_params, expert_params, largest_layer_params, shape_params, edge_params; /* this rank's shard, before ZeRO */
    double frozen_dense, frozen_expert; /* of these params, without gradients and optimizer (low-rank adapters) */
    int layers;
    bool same; /* as the stage before it */
};

/* One pipeline rank: its chunks together, and what it does once per step. */
struct rank_step {
    double dp_exposed_s, optimizer_s;
    double gather_exposed_s; /* of dp_exposed_s: parameters, not gradients */
};

/* Where a plan's data-parallel groups and pipeline neighbours lie; depends on the
 * sizes tp..etp, the rank order and the micro-batch alone. */
struct stage_places {
    struct span dp, expert_dp;             /* that share one copy of what zero shards */
    struct span dp_copies, expert_dp_copies; /* holders of the same shard (dp_shard); ranks 1 = there is one copy */
    double p2p_s, p2p_bytes; /* one message between neighbouring stages */
    int communicators;
};

struct stages {
    const struct question *question;
    const struct plan *plan;
    const struct layer_prices *prices;
    int n;                   /* chunks: pp * vp (pp for dualpipe) */
    const struct stage_places *places;
    double dp_ways, expert_dp_ways;
    struct stage_price *stage; /* [n], the caller's */
};

const struct stack *question_stack(const struct question *question, const char *name); /* NULL = unknown */
bool layer_prices_same(const struct layer_prices *prices, const struct plan *plan);
void layer_prices_fill(struct layer_prices *ret, const struct question *question, const struct plan *plan, const struct stack *stack);

void stages_place(const struct question *question, const struct plan *plan, struct stage_places *ret);

/* stage: room for pp * vp. Depends on pp, vp, dp, zero, recompute, layers_per_stage (not on schedule's order). */
void stages_fill(struct stages *ret, const struct question *question, const struct plan *plan, const struct layer_prices *prices,
                 const struct stage_places *places, struct stage_price *stage);
int stages_rank_of(const struct plan *plan, int stage); /* loop or V placement */
/* Whether the rank that has the embedding, or a part of it, has the head as well: a tied one is the same table there. DualPipe:
 * of opposite directions; a rank's two modules then use one table, as its pair rank's do. */
bool stages_ends_share(const struct plan *plan);
/* Whether the rank's stages are all the same as those of the rank before it. */
bool stages_rank_same(const struct stages *stages, int rank);
/* The rank's stages into *ret (sums; largest_layer and working are maxima). */
void stages_sum_rank(const struct stages *stages, int rank, struct stage_price *ret);
struct rank_step stages_rank_step(const struct stages *stages, int rank, const struct stage_price *sum);
/* kept_bytes: activations in flight at the rank's peak; gradient_bytes: whole gradients beside them (stages_open_gradients). */
double stages_rank_memory(const struct stages *stages, int rank, const struct stage_price *sum, double kept_bytes, double gradient_bytes,
                          double *ret_bytes);

/* Where gradients are sharded and B and W apart, planexec opens those of a chunk's dense layers in B (norms and biases add to
 * them) and scatters them after its W; W adds those of experts and of a table, when what B works with is gone; a fused BW has one
 * layer's. Which of them are there at the peak is the program's to say. */
struct stage_gradients {
    double b_bytes, w_bytes, bw_bytes;
};
bool stages_open_gradients(const struct stages *stages); /* is it so here? */
struct stage_gradients stages_gradients(const struct stages *stages, int stage);

#endif
