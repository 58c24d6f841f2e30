/* Linears of layers in 8 bits (plan: "precision": "fp8"), by delayed scaling: one factor for each operand of each
 * linear, from the largest magnitudes of earlier steps. Attention projections, MLPs and experts; embeddings, head,
 * router, norms and the attention core stay in 16 bits, and so do the weights that the optimizer writes.
 *
 * Transformer Engine's recipe DelayedScaling, with its defaults: inputs and weights are e4m3, gradients of outputs e5m2
 * (HYBRID); a factor is the format's largest number over the largest magnitude of the last 1024 steps ("max"), margin
 * 0; sums of forward products may be fast, those of gradients are in fp32. Where this differs:
 *   - A step is one entry of the history, whatever its micro-batches, and a factor is the same through the step. So it
 *     is the same for every plan: largest magnitudes are put together over all ranks of a stage (tp, dp, cp, ep; TE and
 *     Megatron-LM do so over tp x dp x cp), weights' too, whose shards could have factors of their own.
 *   - In the first step there is no history: the first micro-batch of all (rank 0 of dp has it) sets the factor,
 *     rounded down to a power of two and halved, so that others need not saturate. (TE starts with 1, which would make
 *     gradients of a mean over many tokens zero.) The same happens after --resume: checkpoints have no history.
 *   - All experts of a layer share factors. Their rows are padded with zeros to multiples of 16.
 *
 * Hopper multiplies 8-bit matrices along their rows only. So weights are cast once a step, both ways, and kept beside
 * the 16-bit ones (2 bytes a parameter; ZeRO-3: while they are gathered). Of inputs what W needs is kept: transposed,
 * or with sequence parallelism this rank's rows, in 1 byte. Rows are gathered over tp in 8 bits. */
#ifndef EXEC_FP8_H
#define EXEC_FP8_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct device;
struct err;
struct executor;
struct fp8;
struct linear;
struct model;
struct plan;
struct tensor;

enum fp8_role { FP8_QKV, FP8_OUT, FP8_GATE_UP, FP8_DOWN, FP8_EXPERT_GATE_UP, FP8_EXPERT_DOWN, FP8_ROLES };
/* FP8_CAPABILITY: of the first GPUs with such products, 10 x major + minor. */
enum { FP8_HISTORY = 1024, FP8_MULTIPLE = 16, FP8_CAPABILITY = 89 };

/* One linear, or the experts' of one layer. */
struct fp8_linear {
    int layer;
    enum fp8_role role;
    int maps, out, in;
    int slot;                  /* of the factors of x; then the weight's, then dy's */
    void *weight, *transposed; /* [maps][out][in], [maps][in][out]; NULL = not cast */
    int64_t step;              /* when they were cast */
};

/* Whether the plan's matrices are whole pieces of 16 on every rank: 0, or -1 with a sentence for each that is not. */
int fp8_check(const struct model *model, const struct plan *plan, struct err *err);

struct fp8 *fp8_new(struct device *device);
void fp8_free(struct fp8 *fp8); /* NULL is fine */
/* Of that layer; made when missing. Before fp8_allocate. The same order on all ranks that share a stage. */
struct fp8_linear *fp8_linear_of(struct fp8 *fp8, int layer, enum fp8_role role, int maps, int out, int in);
/* paired: the pair rank (world.h) has the same layers. */
void fp8_allocate(struct fp8 *fp8, bool paired);
int64_t fp8_bytes(const struct fp8 *fp8, int zero); /* of histories, and of weights that stay */

/* linear: [maps]. Their weights in 8 bits, if they are not yet; and away again where ZeRO-3 gave up the others. */
void fp8_weights(struct executor *ex, const struct linear *linear);
void fp8_weights_drop(struct executor *ex, const struct linear *linear);

/* x, the input of `linear`, or the gradient of its output, in 8 bits, by rows and transposed (NULL = not wanted).
 * gather: x is this rank's rows of tp's; rows of all come out, and this rank's (ret_own, NULL = not wanted). */
struct fp8_operand {
    const struct linear *linear;
    bool gradient, gather;
};
struct tensor *fp8_operand(struct executor *ex, const struct fp8_operand *operand, const struct tensor *x,
                           struct tensor **ret_transposed, struct tensor **ret_own);
/* An input as W needs it, from 16 bits again. */
struct tensor *fp8_kept(struct executor *ex, const struct linear *linear, const struct tensor *x, bool gather);
/* Own rows in 8 bits become the transpose of all rows. */
struct tensor *fp8_gather_transposed(struct executor *ex, const struct tensor *own);

/* Rows [first, end) of y from those of x (8 bits), through the weight or its transpose. */
struct gemm fp8_product(const struct executor *ex, const struct linear *linear, bool gradient, const struct tensor *x,
                        int first, int end, struct tensor *y);
/* gradient += dy^T x over `rows` rows from `first` on; both are transposed. */
struct gemm fp8_wgrad(const struct executor *ex, const struct linear *linear, const struct tensor *x,
                      const struct tensor *dy, int first, int rows, float *gradient);

/* After the last product of a step: the factors of the next. Collective over the stage. */
void fp8_end_step(struct executor *ex);
/* The largest relative difference of a factor between the ranks of this stage: 0. Collective; waits. */
double fp8_spread(struct executor *ex);

#endif
