/* The attention core: rotary positions, then causal attention of this rank's heads.
 *
 * cp = 1: one block. Ring (Liu et al. 2023): every rank keeps its queries; keys and values go round, blocks are merged
 * by log-sum-exp; backward sends them round again with their gradients. Pieces r and 2cp-1-r of the sequence lie on
 * rank r, so that all have the same work. Ulysses (arXiv:2309.14509): an all-to-all gives each rank the whole sequence
 * of some heads, another one brings the outputs back. */
#include <math.h>
#include <stdlib.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "exec/arch.h"
#include "exec/layer.h"
#include "exec/world.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

/* Shape of the core on this rank: [q | k | v] columns of qkv. */
static struct attention shape(const struct executor *ex, const struct layer *layer, int heads, int kv_heads,
                              int sequence)
{
    struct attention a = {
        .batch = ex->batch,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = ex->head_dim,
        .queries = sequence,
        .keys = sequence,
        .window = (int)ex->model->kinds[layer->kind].window,
        .scale = 1 / sqrtf((float)ex->head_dim),
        .stride_q = (heads + 2 * kv_heads) * ex->head_dim,
        .stride_kv = (heads + 2 * kv_heads) * ex->head_dim,
        .stride_o = heads * ex->head_dim,
    };
    return a;
}

static void point_qkv(struct attention *a, const struct tensor *qkv)
{
    a->q = qkv->data;
    a->k = tensor_at(qkv, 0, a->heads * a->head_dim);
    a->v = tensor_at(qkv, 0, (a->heads + a->kv_heads) * a->head_dim);
}

static void rotate(struct executor *ex, struct tensor *qkv, bool inverse)
{
    if (ex->arch->rotary)
        ex->kernels->rotary(ex->queue, qkv->rows, ex->heads + ex->kv_heads, ex->head_dim, qkv->columns, ex->cosine,
                            ex->sine, inverse, qkv->data);
}

/* --- q/k norm: one weight per head dimension, applied to each head ----------- */

static struct head_norm head_norm_of(const struct executor *ex, const struct layer *layer, const struct tensor *qkv,
                                     const struct layer_saved *saved)
{
    return (struct head_norm){.rows = qkv->rows,
                              .heads = ex->heads,
                              .kv_heads = ex->kv_heads,
                              .head_dim = ex->head_dim,
                              .stride = qkv->columns,
                              .q_weight = unit_weight(layer->q_norm.unit, layer->q_norm.weight),
                              .k_weight = unit_weight(layer->k_norm.unit, layer->k_norm.weight),
                              .rstd = saved->qk_rstd->data};
}

static void qk_norm(struct executor *ex, const struct layer *layer, struct tensor *qkv, struct layer_saved *saved)
{
    if (!ex->model->qk_norm)
        return;
    saved->raw_qkv = tensor_new(ex->device, qkv->rows, qkv->columns);
    saved->qk_rstd = tensor_floats(ex->device, qkv->rows, ex->heads + ex->kv_heads);
    ex->device->copy(ex->device, saved->raw_qkv->data, qkv->data, (size_t)tensor_count(qkv) * element_bytes(qkv->type));
    struct head_norm n = head_norm_of(ex, layer, qkv, saved);
    ex->kernels->head_norm_forward(ex->queue, &n, ex->arch->norm_epsilon, saved->raw_qkv->data, qkv->data);
}

static void qk_norm_backward(struct executor *ex, const struct layer *layer, struct tensor *dqkv,
                             struct layer_saved *saved)
{
    if (!ex->model->qk_norm)
        return;
    struct head_norm n = head_norm_of(ex, layer, dqkv, saved);
    float *gradient = unit_gradient(&ex->params, layer->q_norm.unit);
    ex->kernels->head_norm_backward(ex->queue, &n, saved->raw_qkv->data, dqkv->data, dqkv->data,
                                    gradient + layer->q_norm.weight, gradient + layer->k_norm.weight);
}

/* --- ring -------------------------------------------------------------------- */

static struct tensor *cut_kv(struct executor *ex, const struct tensor *qkv)
{
    int width = 2 * ex->kv_heads * ex->head_dim;
    struct tensor *kv = tensor_new(ex->device, qkv->rows, width);
    ex->kernels->copy_block(ex->queue, qkv->rows, width, tensor_at(qkv, 0, ex->heads * ex->head_dim), qkv->columns,
                            false, kv->data, width);
    return kv;
}

static void point_kv(const struct executor *ex, struct attention *a, const struct tensor *kv, int owner)
{
    a->k = kv->data;
    a->v = tensor_at(kv, 0, a->kv_heads * a->head_dim);
    a->stride_kv = kv->columns;
    a->position_k = ex->position + owner * ex->sequence;
}

/* Hands `from` on to the next rank and takes `to` from the one before. */
static void pass(struct comm *comm, const struct tensor *from, struct tensor *to, struct comm_request ret_requests[2])
{
    int rank = comm_rank(comm), size = comm_size(comm);
    int64_t n = tensor_count(from);
    ret_requests[0] = comm_receive(comm, (rank + size - 1) % size, to->type, n, to->data);
    ret_requests[1] = comm_send(comm, (rank + 1) % size, from->type, n, from->data);
}

/* Both have arrived and left: what came is the next block. */
static void passed(struct comm_request requests[2], struct tensor **now, struct tensor **next)
{
    struct tensor *done = *now;
    comm_wait(&requests[0]);
    comm_wait(&requests[1]);
    *now = *next;
    *next = done;
}

static void ring_forward(struct executor *ex, struct attention *a, const struct tensor *qkv)
{
    struct comm *comm = ex->world->comm[WORLD_CP];
    int size = comm_size(comm);
    struct tensor *kv = cut_kv(ex, qkv), *next = tensor_new(ex->device, kv->rows, kv->columns);
    for (int i = 0; i < size; i++) {
        struct comm_request requests[2] = {0};
        if (i + 1 < size)
            pass(comm, kv, next, requests);
        point_kv(ex, a, kv, (ex->world->cp + size - i) % size);
        a->merge = i > 0;
        ex->kernels->attention_forward(ex->queue, a);
        if (i + 1 < size)
            passed(requests, &kv, &next);
    }
    tensor_drop(&kv);
    tensor_drop(&next);
}

/* k and v go round as in forward; dk and dv follow one step behind with every rank's part, and come home. Returns
 * [dk | dv]. */
static struct tensor *ring_backward(struct executor *ex, struct attention_gradient *g, const struct tensor *qkv)
{
    struct comm *comm = ex->world->comm[WORLD_CP];
    int size = comm_size(comm), width = 2 * ex->kv_heads * ex->head_dim;
    struct tensor *kv = cut_kv(ex, qkv), *next = tensor_new(ex->device, kv->rows, width);
    struct tensor *dkv = tensor_zero_floats(ex->device, kv->rows, width),
                  *dnext = tensor_floats(ex->device, kv->rows, width);
    for (int i = 0; i < size; i++) {
        struct comm_request requests[2] = {0}, gradients[2];
        if (i + 1 < size)
            pass(comm, kv, next, requests);
        point_kv(ex, &g->forward, kv, (ex->world->cp + size - i) % size);
        g->dk = dkv->data;
        g->dv = tensor_at(dkv, 0, ex->kv_heads * ex->head_dim);
        ex->kernels->attention_backward(ex->queue, g);
        pass(comm, dkv, dnext, gradients);
        if (i + 1 < size)
            passed(requests, &kv, &next);
        passed(gradients, &dkv, &dnext);
    }
    tensor_drop(&kv);
    tensor_drop(&next);
    tensor_drop(&dnext);
    return dkv;
}

/* Into the columns of k and v. Drops dkv. */
static void put_kv(struct executor *ex, struct tensor *dkv, struct tensor *dqkv)
{
    struct tensor *elements = tensor_as(dkv, dqkv->type);
    ex->kernels->copy_block(ex->queue, dqkv->rows, dkv->columns, elements->data, dkv->columns, false,
                            tensor_at(dqkv, 0, ex->heads * ex->head_dim), dqkv->columns);
    tensor_drop(&elements);
    tensor_drop(&dkv);
}

/* --- Ulysses ----------------------------------------------------------------- */

/* Heads of one rank after the exchange; kv heads are replicated where there are fewer than ranks. */
struct ulysses {
    int ranks, heads, kv_heads, width; /* width: columns of [q | k | v] of one rank */
};

static struct ulysses ulysses_of(const struct executor *ex)
{
    struct ulysses u = {.ranks = ex->plan->cp};
    u.heads = ex->heads / u.ranks;
    u.kv_heads = ex->kv_heads >= u.ranks ? ex->kv_heads / u.ranks : 1;
    u.width = (u.heads + 2 * u.kv_heads) * ex->head_dim;
    return u;
}

/* Columns of part (0 q, 1 k, 2 v) of rank j within this rank's qkv; returns how many. */
static int columns_of(const struct executor *ex, const struct ulysses *u, int j, int part, int *ret_first)
{
    int first_kv = j * u->heads * ex->kv_heads / ex->heads;
    int first = part == 0 ? j * u->heads : ex->heads + (part == 2 ? ex->kv_heads : 0) + first_kv;
    *ret_first = first * ex->head_dim;
    return (part == 0 ? u->heads : u->kv_heads) * ex->head_dim;
}

/* Between this rank's tokens of all heads ("mine") and a block per rank of its heads ("packed"). */
static void pack_qkv(struct executor *ex, const struct ulysses *u, struct tensor *packed, struct tensor *mine,
                     bool back)
{
    for (int j = 0; j < u->ranks; j++)
        for (int part = 0, at = 0; part < 3; part++) {
            int first, n = columns_of(ex, u, j, part, &first);
            void *block = tensor_at(packed, (int64_t)j * ex->tokens, at), *place = tensor_at(mine, 0, first);
            if (back)
                ex->kernels->copy_block(ex->queue, ex->tokens, n, block, u->width, true, place, mine->columns);
            else
                ex->kernels->copy_block(ex->queue, ex->tokens, n, place, mine->columns, false, block, u->width);
            at += n;
        }
}

static void exchange(struct executor *ex, int width, const struct tensor *from, struct tensor *to)
{
    int64_t counts[64];
    int ranks = ex->plan->cp;
    for (int j = 0; j < ranks && j < 64; j++)
        counts[j] = (int64_t)ex->tokens * width;
    comm_all_to_all(ex->world->comm[WORLD_CP], from->type, counts, from->data, counts, to->data);
}

/* [tokens of all][q k v of my heads] */
static struct tensor *ulysses_spread(struct executor *ex, const struct ulysses *u, struct tensor *qkv)
{
    struct tensor *packed = tensor_new(ex->device, ex->tokens * u->ranks, u->width),
                  *all = tensor_new(ex->device, packed->rows, u->width);
    pack_qkv(ex, u, packed, qkv, false);
    exchange(ex, u->width, packed, all);
    tensor_drop(&packed);
    return all;
}

static void ulysses_return(struct executor *ex, const struct ulysses *u, struct tensor *dall, struct tensor *dqkv)
{
    struct tensor *packed = tensor_new(ex->device, dall->rows, u->width);
    exchange(ex, u->width, dall, packed);
    pack_qkv(ex, u, packed, dqkv, true);
    tensor_drop(&packed);
}

/* Outputs: my heads of all tokens <-> all heads of my tokens. */
static struct tensor *ulysses_outputs(struct executor *ex, const struct ulysses *u, struct tensor *x, bool back)
{
    int width = u->heads * ex->head_dim, all = width * u->ranks;
    struct tensor *packed = tensor_new(ex->device, ex->tokens * u->ranks, width), *y;
    if (back) {
        y = tensor_new(ex->device, ex->tokens, all);
        exchange(ex, width, x, packed);
    } else {
        y = tensor_new(ex->device, ex->tokens * u->ranks, width);
    }
    for (int j = 0; j < u->ranks; j++) {
        void *block = tensor_at(packed, (int64_t)j * ex->tokens, 0);
        if (back)
            ex->kernels->copy_block(ex->queue, ex->tokens, width, block, width, false, tensor_at(y, 0, j * width), all);
        else
            ex->kernels->copy_block(ex->queue, ex->tokens, width, tensor_at(x, 0, j * width), all, false, block, width);
    }
    if (!back)
        exchange(ex, width, packed, y);
    tensor_drop(&packed);
    return y;
}

/* --- the core ---------------------------------------------------------------- */

static bool is_ulysses(const struct executor *ex)
{
    return ex->plan->cp > 1 && ex->plan->context_parallel == CP_ULYSSES;
}

static struct attention core_shape(const struct executor *ex, const struct layer *layer,
                                   const struct layer_saved *saved)
{
    struct ulysses u = ulysses_of(ex);
    bool spread = is_ulysses(ex);
    struct attention a = shape(ex, layer, spread ? u.heads : ex->heads, spread ? u.kv_heads : ex->kv_heads,
                               spread ? ex->sequence * u.ranks : ex->sequence);
    point_qkv(&a, saved->qkv);
    a.position_q = a.position_k = ex->position + (spread ? 0 : ex->world->cp * ex->sequence);
    a.o = saved->o->data;
    a.lse = saved->lse->data;
    return a;
}

struct tensor *attention_core_forward(struct executor *ex, const struct layer *layer, struct tensor *qkv,
                                      struct layer_saved *saved)
{
    struct ulysses u = ulysses_of(ex);
    qk_norm(ex, layer, qkv, saved);
    rotate(ex, qkv, false);
    bool spread = is_ulysses(ex), ring = ex->plan->cp > 1 && !spread;
    saved->qkv = spread ? ulysses_spread(ex, &u, qkv) : tensor_keep(qkv);
    int heads = spread ? u.heads : ex->heads;
    saved->o = tensor_new(ex->device, saved->qkv->rows, heads * ex->head_dim);
    saved->lse = tensor_floats(ex->device, heads, saved->qkv->rows);
    struct attention a = core_shape(ex, layer, saved);
    if (ring)
        ring_forward(ex, &a, saved->qkv);
    else
        ex->kernels->attention_forward(ex->queue, &a);
    tensor_store(ex, saved->o);
    return spread ? ulysses_outputs(ex, &u, saved->o, true) : tensor_keep(saved->o);
}

struct tensor *attention_core_backward(struct executor *ex, const struct layer *layer, struct layer_saved *saved,
                                       struct tensor *dcore)
{
    struct ulysses u = ulysses_of(ex);
    bool spread = is_ulysses(ex), ring = ex->plan->cp > 1 && !spread;
    struct tensor *dout = spread ? ulysses_outputs(ex, &u, dcore, false) : tensor_keep(dcore);
    struct tensor *sums = tensor_zero_floats(ex->device, saved->qkv->rows, saved->qkv->columns);
    struct attention_gradient g = {.forward = core_shape(ex, layer, saved), .dout = dout->data, .dq = sums->data};
    g.dk = tensor_at(sums, 0, g.forward.heads * ex->head_dim);
    g.dv = tensor_at(sums, 0, (g.forward.heads + g.forward.kv_heads) * ex->head_dim);
    struct tensor *dkv = ring ? ring_backward(ex, &g, saved->qkv) : NULL;
    if (!ring)
        ex->kernels->attention_backward(ex->queue, &g);
    tensor_drop(&dout);
    struct tensor *dall = tensor_as(sums, saved->qkv->type), *dqkv = dall;
    tensor_drop(&sums);
    if (ring)
        put_kv(ex, dkv, dall);
    if (spread) {
        dqkv = tensor_zeros(ex->device, ex->tokens, (ex->heads + 2 * ex->kv_heads) * ex->head_dim);
        ulysses_return(ex, &u, dall, dqkv);
        tensor_drop(&dall);
    }
    rotate(ex, dqkv, true);
    qk_norm_backward(ex, layer, dqkv, saved);
    return dqkv;
}
