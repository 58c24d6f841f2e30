/* Is a plan's training the same as that of one rank? */
#ifndef EXEC_CHECK_H
#define EXEC_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/params.h"

struct trainer;

/* Tolerances are fixed before anything runs. With u = 2^-24, n = the longest sum that any gradient is made of (tokens
 * of the global batch, hidden, MLP width, vocabulary) and L layers, a gradient or loss may differ by
 *     16 u sqrt(n) (L + 2) t
 * at step t, relative to the largest element of the parameter, or to 1/1000 of its layer's largest if that is more
 * (some gradients, like those of key biases, are zero but for rounding). AdamW divides by sqrt(v): an update may
 * differ by
 *     rate min(2, 2 d / (sqrt(v) + epsilon)),   d = the gradient's tolerance,
 * summed over the steps, and by rounding 8 u |w|. That is up to two whole updates where a gradient is zero but for rounding,
 * and weights that are so far apart have other gradients: so once a step's weights have been compared, the reference takes the
 * plan's and goes on from them, and the next step's gradients differ by rounding alone. (The plan's run is left as it is: copies
 * of weights that were not brought up to date still show.) With weights and activations stored in bfloat16, or rounded to it (error 2^-9 each,
 * some ten stores per layer that add up like a random walk, in both runs) the gradient's tolerance is 4 x 2^-9 sqrt(10
 * (L + 2)) t.
 *
 * Linears in 8 bits round coarsely: a rounding to e4m3 is off by 2^-3 / sqrt(12) x 0.736 = 2.66 % of the number (root
 * mean square over a power of two; 0.736: that of 1 / mantissa), one to e5m2 by twice that. Factors are the same for
 * every plan (fp8.h), so while both runs add up the same way, they round the same way: in the first step the tolerance
 * is that of bfloat16, but where tp or cp cuts sums, and where ep or the two directions of DualPipe mix micro-batches in
 * the first of all. Else a difference in the last bit of bfloat16 makes an operand
 * round to its neighbour, that moves more operands of the next linear, and some layers on the roundings of the two runs
 * have nothing in common. Then a gradient may differ by
 *     d = sqrt(2 (L + 2) (12 x 2.66 %^2 + 4 x 5.32 %^2)):
 * two runs; a layer's four linears round input and weight forward, weight and dy backward; an element is off by up to
 * four of these, and the largest element of a matrix is four times its root mean square. (AdamW turns a gradient that
 * is zero but for rounding into a whole step: the weights of the two runs are apart as well, which the weights'
 * roundings, the same in the first step, are for.) A norm is off by d^2 / 2; the loss, by f = sqrt(2 (L + 2) 8) x 2.66
 * %, the error of what the head reads, by f / sqrt(tokens) + f^2 / 2: independent at every token, and in the second
 * order a shift of them all. */
struct check_worst {
    double ratio; /* difference / tolerance, the largest */
    char name[PARAM_NAME_MAX];
};

struct check_result {
    double loss, reference_loss, loss_tolerance;
    double norm, reference_norm, norm_tolerance;
    struct check_worst gradient, weight;
    double factor_spread; /* with linears in 8 bits: between ranks of a stage (fp8.h), 0 */
    int parameters;   /* compared */
    int64_t elements; /* compared, each once */
    int64_t missing;  /* of the reference, that no rank owned, or that several counted */
};

/* Both take a step; collective. reference: on rank 0, NULL on others. `bounds` keeps rank 0's sums between steps. */
struct check_bounds;
struct check_bounds *check_begin(struct trainer *trainer, struct trainer *reference);
void check_end(struct check_bounds *bounds);
void check_step(struct check_bounds *bounds, struct check_result *ret);
bool check_passed(const struct check_result *result);

#endif
