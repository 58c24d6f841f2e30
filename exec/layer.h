/* One transformer layer, the embedding, the head: forward, and backward with respect to the input; gradients of weight
 * matrices are left in a wgrad_list (executor.h). Tensors returned are the caller's reference; inputs stay the
 * caller's. */
#ifndef EXEC_LAYER_H
#define EXEC_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/executor.h"

struct moe_saved;

struct norm {
    struct unit *unit;
    int64_t weight, bias; /* offsets; bias -1 = none */
    int columns;
};

/* Offsets into units; made once by layer_build. */
struct layer {
    int index;                    /* in the model */
    int kind;                     /* of model->kinds */
    struct unit *dense, *experts; /* experts NULL = dense layer */
    struct norm norm1, norm2, q_norm, k_norm;
    struct linear qkv, out, gate_up, down; /* gate_up, down: dense MLP, or the shared experts (out 0 = none) */
    struct linear router, *expert_gate_up, *expert_down; /* [local experts] */
    int n_experts;
};

/* What forward leaves for backward. Recompute: full keeps x alone, selective drops n1, n2 and act. n1, core, n2 and act
 * are as W needs them (linear_enter). */
struct layer_saved {
    struct tensor *x, *stats1, *n1;
    struct tensor *raw_qkv, *qk_rstd;  /* before the q/k norm; [tokens][heads of q and k] */
    struct tensor *qkv, *o, *lse;      /* as the attention core saw them */
    struct tensor *core;               /* its output on this rank, input of `out` (= o but for Ulysses) */
    struct tensor *h, *stats2, *n2;
    struct tensor *gate_up, *act;
    struct moe_saved *moe;
};

void layer_build(struct executor *ex, int index, struct layer *ret);
void layer_release(struct layer *layer);
/* first: the first time, not a recomputation (counts the load-balancing loss). saved: zeroed by the caller. */
struct tensor *layer_forward(struct executor *ex, const struct layer *layer, struct tensor *x, bool first,
                             struct layer_saved *saved);
/* Fills in what recomputation dropped, then dx; releases saved. */
struct tensor *layer_backward(struct executor *ex, const struct layer *layer, struct layer_saved *saved,
                              struct tensor *dy, struct wgrad_list *later);
void layer_drop(struct layer_saved *saved);
/* Is layer number `place` of its chunk recomputed in full? */
bool layer_is_recomputed(const struct plan *plan, int place);
void layer_forget(struct layer_saved *saved, bool full); /* drops what is recomputed */

/* Parts; each in its file. */
struct tensor *norm_forward(struct executor *ex, const struct norm *norm, const struct tensor *x,
                            struct tensor **ret_stats);
/* x += residual first. */
struct tensor *add_norm_forward(struct executor *ex, const struct norm *norm, const struct tensor *residual,
                                struct tensor *x, struct tensor **ret_stats);
struct tensor *norm_again(struct executor *ex, const struct norm *norm, const struct tensor *x,
                          const struct tensor *stats);
/* dx += */
void norm_backward(struct executor *ex, const struct norm *norm, const struct tensor *x, const struct tensor *stats,
                   const struct tensor *dy, struct tensor *dx);
struct tensor *attention_core_forward(struct executor *ex, const struct layer *layer, struct tensor *qkv,
                                      struct layer_saved *saved);
struct tensor *attention_core_backward(struct executor *ex, const struct layer *layer, struct layer_saved *saved,
                                       struct tensor *dcore);
struct tensor *moe_forward(struct executor *ex, const struct layer *layer, struct tensor *x, bool first,
                           struct moe_saved **ret_saved);
struct tensor *moe_backward(struct executor *ex, const struct layer *layer, struct moe_saved **saved, struct tensor *dy,
                            struct wgrad_list *later);
void moe_drop(struct moe_saved **saved);

/* The ends of the model. */
struct embedding {
    struct linear table, positions; /* positions.unit NULL = none */
};
struct head {
    struct norm norm;
    struct linear table;
};
struct head_saved {
    struct tensor *x, *stats, *n, *logits, *max, *sum;
    const int *target;
};
void embedding_build(struct executor *ex, struct embedding *ret);
void head_build(struct executor *ex, struct head *ret);
struct tensor *embedding_forward(struct executor *ex, const struct embedding *embedding, const int *token);
void embedding_backward(struct executor *ex, const struct embedding *embedding, const int *token, struct tensor *dy,
                        struct wgrad_list *later);
/* Notes the loss (executor_note_loss). target[tokens] stays valid until backward. */
void head_forward(struct executor *ex, const struct head *head, struct tensor *x, const int *target,
                  struct head_saved *saved);
struct tensor *head_backward(struct executor *ex, const struct head *head, struct head_saved *saved,
                             struct wgrad_list *later);

#endif
