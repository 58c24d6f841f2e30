/* What every part of a training step on one rank shares: the plan, sizes of this rank, parameters, and the work that
 * the backward pass leaves for later (gradients of weights, "W").
 *
 * Activations are matrices with one row per token, token t = position * batch + sequence, so that cutting the sequence
 * (cp, sequence parallelism) cuts rows. Between blocks a rank holds `rows` of them: all `tokens` of its cp share, or
 * 1/tp of these with sequence parallelism. One thread. */
#ifndef EXEC_EXECUTOR_H
#define EXEC_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/params.h"
#include "exec/stopwatch.h"

struct arch;
struct device;
struct fp8;
struct fp8_linear;
struct kernels;
struct model;
struct plan;
struct tensor;
struct world;

struct executor {
    const struct model *model;
    const struct plan *plan;
    const struct arch *arch;
    struct world *world;
    struct device *device;
    const struct kernels *kernels;
    void *queue;
    struct params params;
    struct fp8 *fp8;     /* linears of layers in 8 bits; NULL = in elements */
    bool balanced;       /* experts are chosen in turn, not by the router: equal loads */
    int batch, sequence; /* of one micro-batch on this rank */
    int tokens, rows;
    int hidden, head_dim, heads, kv_heads;   /* heads of this tp rank */
    int kv_first;                            /* its first key/value head */
    int vocab_first, vocab_rows, vocab_real; /* of the table: first row, rows with padding, rows of real words */
    int *position;                           /* [cp][sequence]: positions of each cp rank, on the device */
    int *row_position, *host_row_position;   /* [tokens] of this rank, on the device and on the host */
    float *cosine, *sine;                    /* [tokens][head_dim / 2] */
    float loss_factor;                       /* 1 / tokens of the global batch */
    float aux_factor;                        /* of the load-balancing loss of one micro-batch */
    struct stopwatch watch;              /* of parts of the step under way */
    struct loss_part *losses;                /* of micro-batches, not yet added to loss (executor_loss) */
    double loss;     /* this rank's part of the step's loss; the sum over all ranks is the loss */
    double aux_loss; /* the load-balancing part of it */
};

/* The struct's inputs (model .. world, device, params.seed) are set by the caller; this derives the rest. */
void executor_init(struct executor *ex);
void executor_release(struct executor *ex);
/* A micro-batch's loss: sum of log(sum) - picked over the rows; added to ex->loss by executor_add_losses, so that the
 * host need not wait for it now. */
void executor_note_loss(struct executor *ex, const struct tensor *sum, const struct tensor *picked);
void executor_add_losses(struct executor *ex); /* waits for the device */

/* A linear map of this rank: y = x weight^T + bias; weight out x in at an offset of the unit. */
struct linear {
    struct unit *unit;
    int64_t weight, bias; /* offsets; bias -1 = none */
    int in, out;
    struct fp8_linear *fp8; /* NULL: in elements */
    int map;                /* of it */
};

/* Gradients of weights that wait for W: what they need is kept alive here. */
struct wgrad {
    struct wgrad *next;
    struct linear linear;
    struct tensor *x, *dy;
    int x_row, dy_row, rows;  /* the part of both that counts; of 8 bits: they are transposed, columns */
    bool gather_x, gather_dy; /* rows are a share of tp's, to be gathered first */
    const int *token;         /* an embedding instead: rows of dy go to these rows of the table */
};
struct wgrad_list {
    struct wgrad *first, **last;
};
void wgrad_add(struct wgrad_list *list, const struct linear *linear, struct tensor *x, bool gather_x,
               struct tensor *dy);
void wgrad_add_rows(struct wgrad_list *list, const struct linear *linear, struct tensor *x, int x_row,
                    struct tensor *dy, int dy_row, int rows);
void wgrad_add_embedding(struct wgrad_list *list, const struct linear *table, const int *token, struct tensor *dy,
                         bool gather_dy);
void wgrad_run(struct executor *ex, struct wgrad_list *list); /* and empties it */

/* Activations in bfloat16 (params.rounded): what is written to memory is rounded; sums within a kernel are not. */
void tensor_store(struct executor *ex, struct tensor *tensor);

/* Rows [first, end) of y from the same rows of x, through the weight or, for the gradient of its input, its transpose.
 * */
struct gemm linear_product(const struct linear *linear, bool gradient, const struct tensor *x, int first, int end,
                           struct tensor *y);
/* Of a layer, in elements or in 8 bits: *x, with `gather` this rank's rows of tp's, becomes what W needs of it. Without
 * bias. */
struct tensor *linear_enter(struct executor *ex, const struct linear *linear, struct tensor **x, bool gather);
/* The same for *x alone, computed again. */
void linear_remember(struct executor *ex, const struct linear *linear, struct tensor **x, bool gather);
/* Gradient of the input that entered and left `x`; the weight's is left for later. gather_dy: dy is this rank's rows of
 * tp's, and the bias's gradient has been added. */
struct linear_exit {
    const struct linear *linear;
    struct tensor *x, *dy;
    bool gather_x, gather_dy;
};
struct tensor *linear_leave(struct executor *ex, const struct linear_exit *exit, struct wgrad_list *later);
/* Returned tensors are the caller's reference. */
struct tensor *linear_forward(struct executor *ex, const struct linear *linear,
                              const struct tensor *x); /* without bias */
struct tensor *linear_forward_floats(struct executor *ex, const struct linear *linear, const struct tensor *x);
void linear_add_bias(struct executor *ex, const struct linear *linear, struct tensor *y);
void linear_bias_gradient(struct executor *ex, const struct linear *linear, const struct tensor *dy);
struct tensor *linear_backward(struct executor *ex, const struct linear *linear, const struct tensor *dy);
/* Sequence parallelism: rows of all tp ranks together; otherwise x itself. */
struct tensor *rows_gather(struct executor *ex, struct tensor *x);
/* Sums over tp, of which a rank keeps its rows with sequence parallelism, else all. Drops partial. */
struct tensor *rows_reduce(struct executor *ex, struct tensor *partial);
/* Every tp rank takes its rows of a tensor that all hold, and back. */
struct tensor *rows_scatter(struct executor *ex, const struct tensor *x);
struct tensor *rows_collect(struct executor *ex, const struct tensor *mine, int rows);

#endif
