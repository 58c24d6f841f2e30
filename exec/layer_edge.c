/* The ends of the model: vocabulary-parallel embedding and head. A tied head is the embedding's own unit where both
 * are on this rank, a copy of the same name otherwise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/arch.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/layer.h"
#include "exec/world.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

static struct linear build_table(struct executor *ex, const char *key)
{
    bool new;
    struct unit *unit = params_unit(&ex->params, key, ex->world->comm[WORLD_DP_CP], &new);
    struct param param = {.rows = ex->vocab_rows,
                          .columns = ex->hidden,
                          .first_row = ex->vocab_first,
                          .all_rows = ex->model->vocab,
                          .all_columns = ex->hidden,
                          .std = ex->arch->init_std,
                          .decays = true};
    snprintf(param.name, sizeof param.name, "%s.weight", key);
    if (new)
        unit_add(unit, &param);
    return (struct linear){.unit = unit, .bias = -1, .in = ex->hidden, .out = ex->vocab_rows};
}

void embedding_build(struct executor *ex, struct embedding *ret)
{
    ret->table = build_table(ex, "embedding");
    ret->positions = (struct linear){0};
    if (!ex->model->learned_positions)
        return;
    bool new;
    int rows = (int)(ex->model->position_rows > ex->plan->seq_len ? ex->model->position_rows : ex->plan->seq_len);
    struct unit *unit = params_unit(&ex->params, "positions", ex->world->comm[WORLD_DP_CP], &new);
    struct param param = {.name = "positions.weight",
                          .rows = rows,
                          .columns = ex->hidden,
                          .all_rows = rows,
                          .all_columns = ex->hidden,
                          .std = ex->arch->init_std,
                          .sum = ex->plan->sequence_parallel ? SUM_TP : SUM_NONE,
                          .copies = COPIES_TP,
                          .decays = true};
    if (new)
        unit_add(unit, &param);
    ret->positions = (struct linear){.unit = unit, .bias = -1, .in = ex->hidden, .out = rows};
}

/* Positions of this rank's rows. */
static const int *own_positions(const struct executor *ex)
{
    return ex->row_position + (ex->plan->sequence_parallel ? ex->world->tp * ex->rows : 0);
}

struct tensor *embedding_forward(struct executor *ex, const struct embedding *embedding, const int *token)
{
    struct unit *unit = embedding->table.unit, *places = embedding->positions.unit;
    unit_acquire(&ex->params, unit);
    struct tensor *partial = tensor_new(ex->device, ex->tokens, ex->hidden);
    ex->kernels->embedding_forward(ex->queue, ex->tokens, ex->hidden, token, ex->vocab_first, ex->vocab_rows,
                                   unit_weight(unit, 0), partial->data);
    struct tensor *y = rows_reduce(ex, partial);
    unit_release(&ex->params, unit);
    if (places) {
        unit_acquire(&ex->params, places);
        struct tensor *p = tensor_new(ex->device, ex->rows, ex->hidden);
        ex->kernels->embedding_forward(ex->queue, ex->rows, ex->hidden, own_positions(ex), 0, embedding->positions.out,
                                       unit_weight(places, 0), p->data);
        ex->kernels->add(ex->queue, tensor_count(y), p->data, y->data);
        tensor_drop(&p);
        unit_release(&ex->params, places);
    }
    return y;
}

void embedding_backward(struct executor *ex, const struct embedding *embedding, const int *token, struct tensor *dy,
                        struct wgrad_list *later)
{
    struct unit *places = embedding->positions.unit;
    if (places)
        ex->kernels->embedding_backward(ex->queue, ex->rows, ex->hidden, own_positions(ex), 0, embedding->positions.out,
                                        dy->data, unit_gradient(&ex->params, places));
    wgrad_add_embedding(later, &embedding->table, token, dy, true);
}

void head_build(struct executor *ex, struct head *ret)
{
    bool new;
    struct unit *unit = params_unit(&ex->params, "final", ex->world->comm[WORLD_DP_CP], &new);
    ret->norm = (struct norm){unit, 0, ex->model->norm_bias ? ex->hidden : -1, ex->hidden};
    for (int i = 0; new &&i < 1 + ex->model->norm_bias; i++) {
        struct param param = {.rows = 1,
                              .columns = ex->hidden,
                              .all_rows = 1,
                              .all_columns = ex->hidden,
                              .start = i == 0,
                              .sum = ex->plan->sequence_parallel ? SUM_TP : SUM_NONE,
                              .copies = COPIES_TP};
        snprintf(param.name, sizeof param.name, "final_norm.%s", i == 0 ? "weight" : "bias");
        unit_add(unit, &param);
    }
    ret->table = build_table(ex, ex->model->tied ? "embedding" : "head");
}

void head_forward(struct executor *ex, const struct head *head, struct tensor *x, const int *target,
                  struct head_saved *saved)
{
    struct comm *tp = ex->world->comm[WORLD_TP];
    int rows = ex->tokens;
    unit_acquire(&ex->params, head->norm.unit);
    unit_acquire(&ex->params, head->table.unit);
    saved->x = tensor_keep(x);
    saved->target = target;
    saved->n = norm_forward(ex, &head->norm, x, &saved->stats);
    struct tensor *all = rows_gather(ex, saved->n), *picked = tensor_floats(ex->device, rows, 1);
    saved->logits = linear_forward(ex, &head->table, all);
    saved->max = tensor_floats(ex->device, rows, 1);
    saved->sum = tensor_floats(ex->device, rows, 1);
    ex->kernels->logits_max(ex->queue, rows, ex->vocab_real, ex->vocab_rows, saved->logits->data, saved->max->data);
    comm_all_reduce(tp, COMM_MAX, ELEMENT_F32, rows, saved->max->data);
    ex->kernels->logits_sum(ex->queue, rows, ex->vocab_real, ex->vocab_rows, saved->logits->data, saved->max->data,
                            target, ex->vocab_first, saved->sum->data, picked->data);
    comm_all_reduce(tp, COMM_SUM, ELEMENT_F32, rows, saved->sum->data);
    comm_all_reduce(tp, COMM_SUM, ELEMENT_F32, rows, picked->data);
    executor_note_loss(ex, saved->sum, picked);
    tensor_drop(&all);
    tensor_drop(&picked);
    unit_release(&ex->params, head->table.unit);
    unit_release(&ex->params, head->norm.unit);
}

struct tensor *head_backward(struct executor *ex, const struct head *head, struct head_saved *saved,
                             struct wgrad_list *later)
{
    unit_acquire(&ex->params, head->norm.unit);
    unit_acquire(&ex->params, head->table.unit);
    ex->kernels->logits_gradient(ex->queue, ex->tokens, ex->vocab_real, ex->vocab_rows, saved->logits->data,
                                 saved->max->data, saved->sum->data, saved->target, ex->vocab_first, ex->loss_factor);
    wgrad_add(later, &head->table, saved->n, ex->plan->sequence_parallel, saved->logits);
    struct tensor *dn = rows_reduce(ex, linear_backward(ex, &head->table, saved->logits));
    struct tensor *dx = tensor_zeros(ex->device, saved->x->rows, ex->hidden);
    norm_backward(ex, &head->norm, saved->x, saved->stats, dn, dx);
    tensor_drop(&dn);
    struct tensor **tensors[] = {&saved->x, &saved->stats, &saved->n, &saved->logits, &saved->max, &saved->sum};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensor_drop(tensors[i]);
    unit_release(&ex->params, head->table.unit);
    unit_release(&ex->params, head->norm.unit);
    return dx;
}
