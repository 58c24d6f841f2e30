/* Column- and row-parallel linears (Shoeybi et al. 2019) with Megatron's sequence parallelism (Korthikanti et al.
 * 2022): before a column-parallel map rows are gathered, after a row-parallel one partial sums are reduced (and
 * scattered). */
#include <stdlib.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "exec/executor.h"
#include "exec/world.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

void tensor_store(struct executor *ex, struct tensor *tensor)
{
    if (ex->params.rounded)
        ex->kernels->round_bf16(ex->queue, (int64_t)tensor->rows * tensor->columns, tensor->data);
}

struct tensor *linear_forward(struct executor *ex, const struct linear *linear, const struct tensor *x)
{
    struct tensor *y = tensor_new(ex->device, x->rows, linear->out);
    ex->kernels->gemm(ex->queue, false, true, x->rows, linear->out, linear->in, x->data, x->columns,
                      linear->unit->weight + linear->weight, linear->in, false, y->data, y->columns);
    tensor_store(ex, y);
    return y;
}

void linear_add_bias(struct executor *ex, const struct linear *linear, struct tensor *y)
{
    if (linear->bias >= 0)
        ex->kernels->bias_add(ex->queue, y->rows, y->columns, linear->unit->weight + linear->bias, y->data);
}

void linear_bias_gradient(struct executor *ex, const struct linear *linear, const struct tensor *dy)
{
    if (linear->bias >= 0)
        ex->kernels->column_sum(ex->queue, dy->rows, dy->columns, dy->data,
                                unit_gradient(&ex->params, linear->unit) + linear->bias);
}

struct tensor *linear_backward(struct executor *ex, const struct linear *linear, const struct tensor *dy)
{
    struct tensor *dx = tensor_new(ex->device, dy->rows, linear->in);
    ex->kernels->gemm(ex->queue, false, false, dy->rows, linear->in, linear->out, dy->data, dy->columns,
                      linear->unit->weight + linear->weight, linear->in, false, dx->data, dx->columns);
    tensor_store(ex, dx);
    return dx;
}

struct tensor *rows_gather(struct executor *ex, struct tensor *x)
{
    if (!ex->plan->sequence_parallel)
        return tensor_keep(x);
    struct tensor *all = tensor_new(ex->device, x->rows * ex->plan->tp, x->columns);
    comm_all_gather(ex->world->comm[WORLD_TP], (int64_t)x->rows * x->columns, x->data, all->data);
    return all;
}

struct tensor *rows_reduce(struct executor *ex, struct tensor *partial)
{
    int64_t n = (int64_t)partial->rows * partial->columns;
    if (!ex->plan->sequence_parallel) {
        comm_all_reduce(ex->world->comm[WORLD_TP], COMM_SUM, n, partial->data);
        tensor_store(ex, partial);
        return partial;
    }
    struct tensor *mine = tensor_new(ex->device, partial->rows / ex->plan->tp, partial->columns);
    comm_reduce_scatter(ex->world->comm[WORLD_TP], n / ex->plan->tp, partial->data, mine->data);
    tensor_store(ex, mine);
    tensor_drop(&partial);
    return mine;
}

struct tensor *rows_scatter(struct executor *ex, const struct tensor *x)
{
    int rows = x->rows / ex->plan->tp;
    struct tensor *mine = tensor_new(ex->device, rows, x->columns);
    ex->kernels->copy_block(ex->queue, rows, x->columns, x->data + (int64_t)ex->world->tp * rows * x->columns,
                            x->columns, false, mine->data, x->columns);
    return mine;
}

struct tensor *rows_collect(struct executor *ex, const struct tensor *mine, int rows)
{
    struct tensor *all = tensor_new(ex->device, rows, mine->columns);
    comm_all_gather(ex->world->comm[WORLD_TP], (int64_t)mine->rows * mine->columns, mine->data, all->data);
    return all;
}

/* --- W ---------------------------------------------------------------------- */

static struct wgrad *append(struct wgrad_list *list, const struct linear *linear)
{
    struct wgrad *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->linear = *linear;
    if (!list->first)
        list->last = &list->first;
    *list->last = w;
    list->last = &w->next;
    return w;
}

void wgrad_add_rows(struct wgrad_list *list, const struct linear *linear, struct tensor *x, int x_row,
                    struct tensor *dy, int dy_row, int rows)
{
    struct wgrad *w = append(list, linear);
    w->x = tensor_keep(x);
    w->dy = tensor_keep(dy);
    w->x_row = x_row;
    w->dy_row = dy_row;
    w->rows = rows;
}

void wgrad_add(struct wgrad_list *list, const struct linear *linear, struct tensor *x, bool gather_x, struct tensor *dy)
{
    struct wgrad *w = append(list, linear);
    w->x = tensor_keep(x);
    w->dy = tensor_keep(dy);
    w->gather_x = gather_x;
    w->rows = dy->rows;
}

void wgrad_add_embedding(struct wgrad_list *list, const struct linear *table, const int *token, struct tensor *dy,
                         bool gather_dy)
{
    struct wgrad *w = append(list, table);
    w->dy = tensor_keep(dy);
    w->token = token;
    w->gather_dy = gather_dy;
}

static void run_one(struct executor *ex, struct wgrad *w)
{
    const struct linear *l = &w->linear;
    float *gradient = unit_gradient(&ex->params, l->unit);
    struct tensor *dy = w->gather_dy ? rows_gather(ex, w->dy) : tensor_keep(w->dy);
    if (w->token) {
        ex->kernels->embedding_backward(ex->queue, dy->rows, l->in, w->token, ex->vocab_first, l->out, dy->data,
                                        gradient + l->weight);
    } else {
        struct tensor *x = w->gather_x ? rows_gather(ex, w->x) : tensor_keep(w->x);
        ex->kernels->gemm(ex->queue, true, false, l->out, l->in, w->rows, dy->data + (int64_t)w->dy_row * dy->columns,
                          dy->columns, x->data + (int64_t)w->x_row * x->columns, x->columns, true, gradient + l->weight,
                          l->in);
        if (l->bias >= 0)
            ex->kernels->column_sum(ex->queue, w->rows, l->out, dy->data + (int64_t)w->dy_row * dy->columns,
                                    gradient + l->bias);
        tensor_drop(&x);
    }
    tensor_drop(&dy);
}

void wgrad_run(struct executor *ex, struct wgrad_list *list)
{
    for (struct wgrad *w = list->first, *next; w; w = next) {
        next = w->next;
        run_one(ex, w);
        tensor_drop(&w->x);
        tensor_drop(&w->dy);
        free(w);
    }
    list->first = NULL;
}
