/* Parameters of one rank: units (a layer's dense part, a layer's experts, an embedding, ...) of named matrices.
 *
 * A unit is one flat buffer, padded to the ranks of its data-parallel group, that is reduced, sharded and gathered as a
 * whole. ZeRO: 0 nothing, 1 optimizer state, 2 gradients too, 3 weights too. What a rank "owns" of a unit is the slice
 * [owned_first, owned_first + owned) that it updates: all of it for ZeRO 0. Where elements are not floats, or weights
 * are rounded, the slice's master weights (owned_weight, float) stand beside the weights that products read.
 *
 * Every element starts from (seed, parameter name, row, column) alone, so any plan starts from the same weights.
 * Names: layers.3.q.weight, layers.3.experts.5.down.weight, embedding.weight, head.weight, ... (params.c).
 * Counts are elements. Units live until params_release. */
#ifndef EXEC_PARAMS_H
#define EXEC_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/comm.h"

struct device;

/* Over which ranks of a stage the gradient of a parameter is a sum, beside data parallelism. */
enum param_sum { SUM_NONE, SUM_TP, SUM_KV };
/* Ranks of tp that hold the same elements (counted once in the norm). */
enum param_copies { COPIES_NONE, COPIES_TP, COPIES_KV };

enum { PARAM_NAME_MAX = 96 };

struct param {
    char name[PARAM_NAME_MAX];
    int rows, columns;               /* on this rank */
    int64_t first_row, first_column; /* where they lie in the whole matrix */
    int64_t all_rows, all_columns;   /* of the whole, without padding */
    int64_t offset;                  /* in the unit */
    enum param_sum sum;
    enum param_copies copies;
    float start; /* constant to start from, with std 0 */
    float std;   /* else uniform with this standard deviation */
    bool decays; /* weight decay: matrices only */
};

struct unit {
    char key[PARAM_NAME_MAX];
    int n_params, max_params;
    struct param *param;
    int64_t size; /* padded */
    int64_t owned_first, owned;
    struct comm *group;            /* data-parallel */
    bool shared;                   /* the pair rank (world.h) holds a copy */
    int users;                     /* ZeRO-3: acquires not yet released */
    enum element type;             /* of weight */
    void *weight;                  /* [size] elements; ZeRO-3: NULL while nobody uses it */
    float *gradient;               /* [size]; ZeRO-2, 3: NULL while there is none */
    float *owned_weight;           /* [owned]; = weight + owned_first where nothing sets the two apart */
    float *owned_gradient;         /* ZeRO-2, 3: [owned] sums of folded gradients, else = gradient + owned_first */
    float *m, *v;                  /* [owned] */
    int uses;                      /* modules of this rank that add to the gradient */
    int64_t folds;                 /* times that one of them has, in this step */
    struct comm_request gathering; /* ZeRO-3: the weights, under way */
    struct comm_request reduction; /* ZeRO-0, 1: the sum over the group, under way */
    float *reduced;                /* ZeRO-1: where it goes */
};

struct params {
    struct device *device;
    int zero;
    bool rounded; /* weights are used in bfloat16; owned_weight keeps them in full */
    uint64_t seed;
    int n, max;
    struct unit **unit; /* in order of depth; the same on both ranks of a pair */
};

/* The unit of that name, made when missing (*ret_new). */
struct unit *params_unit(struct params *params, const char *key, struct comm *group, bool *ret_new);
/* Adds a matrix; returns its offset. Before params_allocate only. */
int64_t unit_add(struct unit *unit, const struct param *param);
/* What params_allocate will take, with the largest unit gathered (ZeRO-3). */
int64_t params_bytes(const struct params *params);
void params_allocate(struct params *params); /* and fills in the first weights */
void params_release(struct params *params);
int64_t params_count(const struct params *params); /* elements, no padding */

/* Weights are there between the two (ZeRO-3 gathers; else nothing happens). */
void unit_acquire(struct params *params, struct unit *unit);
void unit_prefetch(struct params *params, struct unit *unit); /* begins to gather what will be acquired soon */
void unit_release(struct params *params, struct unit *unit);
/* Element `offset` of the weight that products read. */
void *unit_weight(const struct unit *unit, int64_t offset);
/* After owned_weight changed: where the optimizer itself writes the elements of it that products read (NULL =
 * unit_refresh does that), and then all ranks of the group get them. */
void *unit_copy(const struct params *params, const struct unit *unit);
void unit_refresh(struct params *params, struct unit *unit);
void unit_publish(struct params *params, struct unit *unit);
float *unit_gradient(struct params *params, struct unit *unit); /* [size], to add to */
void unit_fold(struct params *params, struct unit *unit); /* ZeRO-2, 3: reduces what was added into owned_gradient */
/* ZeRO-0, 1: the sum of a finished gradient over the group begins, and ends in owned_gradient (both may be called in
 * turn). */
void unit_reduce_start(struct params *params, struct unit *unit);
void unit_reduce_end(struct params *params, struct unit *unit);

/* Value of one element at the start. */
float param_start(const struct param *param, uint64_t seed, int64_t row, int64_t column);

#endif
