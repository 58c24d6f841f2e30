/* Column- and row-parallel linears (Shoeybi et al. 2019) with Megatron's sequence parallelism (Korthikanti et al.
 * 2022): before a column-parallel map rows are gathered, after a row-parallel one partial sums are reduced (and
 * scattered). */
#include <stdlib.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "exec/executor.h"
#include "exec/fp8.h"
#include "exec/world.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

void tensor_store(struct executor *ex, struct tensor *tensor)
{
    if (ex->params.rounded)
        ex->kernels->round_bf16(ex->queue, tensor_count(tensor), tensor->data);
}

struct gemm linear_product(const struct linear *linear, bool gradient, const struct tensor *x, int first, int end,
                           struct tensor *y)
{
    return (struct gemm){.transpose_b = !gradient,
                         .m = end - first,
                         .n = y->columns,
                         .k = x->columns,
                         .a = tensor_at(x, first, 0),
                         .stride_a = x->columns,
                         .b = unit_weight(linear->unit, linear->weight),
                         .stride_b = linear->in,
                         .c = tensor_at(y, first, 0),
                         .stride_c = y->columns,
                         .c_type = y->type};
}

static void multiply(struct executor *ex, const struct linear *linear, bool gradient, const struct tensor *x,
                     struct tensor *y)
{
    struct gemm product = linear_product(linear, gradient, x, 0, x->rows, y);
    ex->kernels->gemm(ex->queue, 1, &product);
    tensor_store(ex, y);
}

struct tensor *linear_forward(struct executor *ex, const struct linear *linear, const struct tensor *x)
{
    struct tensor *y = tensor_new(ex->device, x->rows, linear->out);
    multiply(ex, linear, false, x, y);
    return y;
}

struct tensor *linear_forward_floats(struct executor *ex, const struct linear *linear, const struct tensor *x)
{
    struct tensor *y = tensor_floats(ex->device, x->rows, linear->out);
    multiply(ex, linear, false, x, y);
    return y;
}

void linear_add_bias(struct executor *ex, const struct linear *linear, struct tensor *y)
{
    if (linear->bias >= 0)
        ex->kernels->bias_add(ex->queue, y->rows, y->columns, unit_weight(linear->unit, linear->bias), y->data);
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
    multiply(ex, linear, true, dy, dx);
    return dx;
}

/* --- linears of layers ------------------------------------------------------ */

static struct tensor *multiply_8_bits(struct executor *ex, const struct linear *linear, bool gradient,
                                      const struct tensor *x)
{
    struct tensor *y = tensor_new(ex->device, x->rows, gradient ? linear->in : linear->out);
    struct gemm product = fp8_product(ex, linear, gradient, x, 0, x->rows, y);
    ex->kernels->gemm(ex->queue, 1, &product);
    tensor_store(ex, y);
    return y;
}

struct tensor *linear_enter(struct executor *ex, const struct linear *linear, struct tensor **x, bool gather)
{
    struct tensor *all, *kept = NULL, *y;
    if (!linear->fp8) {
        all = gather ? rows_gather(ex, *x) : tensor_keep(*x);
        y = linear_forward(ex, linear, all);
        tensor_drop(&all);
        return y;
    }
    gather = gather && ex->plan->sequence_parallel;
    struct fp8_operand operand = {linear, false, gather};
    all = fp8_operand(ex, &operand, *x, gather ? NULL : &kept, gather ? &kept : NULL);
    tensor_drop(x);
    *x = kept;
    y = multiply_8_bits(ex, linear, false, all);
    tensor_drop(&all);
    return y;
}

void linear_remember(struct executor *ex, const struct linear *linear, struct tensor **x, bool gather)
{
    if (!linear->fp8)
        return;
    struct tensor *kept = fp8_kept(ex, linear, *x, gather && ex->plan->sequence_parallel);
    tensor_drop(x);
    *x = kept;
}

struct tensor *linear_leave(struct executor *ex, const struct linear_exit *exit, struct wgrad_list *later)
{
    struct linear bare = *exit->linear; /* for W, whose dy has no rows of its own to sum */
    struct tensor *all, *transposed = NULL, *dx;
    bool gather_x = exit->gather_x && ex->plan->sequence_parallel;
    if (!bare.fp8) {
        all = exit->gather_dy ? rows_gather(ex, exit->dy) : tensor_keep(exit->dy);
        bare.bias = exit->gather_dy ? -1 : bare.bias;
        wgrad_add(later, &bare, exit->x, gather_x, all);
        dx = linear_backward(ex, &bare, all);
        tensor_drop(&all);
        return dx;
    }
    if (!exit->gather_dy)
        linear_bias_gradient(ex, &bare, exit->dy);
    bare.bias = -1;
    struct fp8_operand operand = {&bare, true, exit->gather_dy && ex->plan->sequence_parallel};
    all = fp8_operand(ex, &operand, exit->dy, &transposed, NULL);
    wgrad_add(later, &bare, exit->x, gather_x, transposed);
    dx = multiply_8_bits(ex, &bare, true, all);
    tensor_drop(&transposed);
    tensor_drop(&all);
    return dx;
}

struct tensor *rows_gather(struct executor *ex, struct tensor *x)
{
    if (!ex->plan->sequence_parallel)
        return tensor_keep(x);
    struct tensor *all = tensor_new(ex->device, x->rows * ex->plan->tp, x->columns);
    comm_all_gather(ex->world->comm[WORLD_TP], x->type, tensor_count(x), x->data, all->data);
    return all;
}

struct tensor *rows_reduce(struct executor *ex, struct tensor *partial)
{
    int64_t n = tensor_count(partial);
    if (!ex->plan->sequence_parallel) {
        comm_all_reduce(ex->world->comm[WORLD_TP], COMM_SUM, partial->type, n, partial->data);
        tensor_store(ex, partial);
        return partial;
    }
    struct tensor *mine = tensor_new(ex->device, partial->rows / ex->plan->tp, partial->columns);
    comm_reduce_scatter(ex->world->comm[WORLD_TP], mine->type, n / ex->plan->tp, partial->data, mine->data);
    tensor_store(ex, mine);
    tensor_drop(&partial);
    return mine;
}

struct tensor *rows_scatter(struct executor *ex, const struct tensor *x)
{
    int rows = x->rows / ex->plan->tp;
    struct tensor *mine = tensor_new(ex->device, rows, x->columns);
    ex->kernels->copy_block(ex->queue, rows, x->columns, tensor_at(x, (int64_t)ex->world->tp * rows, 0), x->columns,
                            false, mine->data, x->columns);
    return mine;
}

struct tensor *rows_collect(struct executor *ex, const struct tensor *mine, int rows)
{
    struct tensor *all = tensor_new(ex->device, rows, mine->columns);
    comm_all_gather(ex->world->comm[WORLD_TP], mine->type, tensor_count(mine), mine->data, all->data);
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
    w->rows = linear->fp8 ? dy->columns : dy->rows;
}

void wgrad_add_embedding(struct wgrad_list *list, const struct linear *table, const int *token, struct tensor *dy,
                         bool gather_dy)
{
    struct wgrad *w = append(list, table);
    w->dy = tensor_keep(dy);
    w->token = token;
    w->gather_dy = gather_dy;
}

/* gradient += dy^T x over the rows that count. */
static struct gemm wgrad_product(const struct executor *ex, const struct wgrad *w, const struct tensor *x,
                                 const struct tensor *dy, float *gradient)
{
    if (w->linear.fp8)
        return fp8_wgrad(ex, &w->linear, x, dy, w->x_row, w->rows, gradient);
    return (struct gemm){.transpose_a = true,
                         .accumulate = true,
                         .m = w->linear.out,
                         .n = w->linear.in,
                         .k = w->rows,
                         .a = tensor_at(dy, w->dy_row, 0),
                         .stride_a = dy->columns,
                         .b = tensor_at(x, w->x_row, 0),
                         .stride_b = x->columns,
                         .c = gradient + w->linear.weight,
                         .stride_c = w->linear.in,
                         .c_type = ELEMENT_F32};
}

/* Do both come from the same product of many (experts)? */
static bool is_alike(const struct wgrad *a, const struct wgrad *b)
{
    return a->x && b->x == a->x && b->dy == a->dy && !a->gather_x && !b->gather_x && a->linear.bias < 0 &&
           b->linear.bias < 0;
}

/* Products of one and the same x and dy, each with its rows, in one call. Returns how many. */
static int run_alike(struct executor *ex, struct wgrad *w)
{
    int n = 1;
    for (struct wgrad *other = w->next; other && is_alike(w, other); other = other->next)
        n++;
    struct gemm *product = calloc((size_t)n, sizeof *product);
    if (!product)
        abort();
    for (int i = 0; i < n; i++, w = w->next)
        product[i] = wgrad_product(ex, w, w->x, w->dy, unit_gradient(&ex->params, w->linear.unit));
    ex->kernels->gemm(ex->queue, n, product);
    free(product);
    return n;
}

static void run_embedding(struct executor *ex, struct wgrad *w)
{
    const struct linear *l = &w->linear;
    struct tensor *dy = w->gather_dy ? rows_gather(ex, w->dy) : tensor_keep(w->dy);
    ex->kernels->embedding_backward(ex->queue, dy->rows, l->in, w->token, ex->vocab_first, l->out, dy->data,
                                    unit_gradient(&ex->params, l->unit) + l->weight);
    tensor_drop(&dy);
}

static void run_one(struct executor *ex, struct wgrad *w)
{
    const struct linear *l = &w->linear;
    float *gradient = unit_gradient(&ex->params, l->unit);
    struct tensor *x = !w->gather_x ? tensor_keep(w->x)
                       : l->fp8     ? fp8_gather_transposed(ex, w->x)
                                    : rows_gather(ex, w->x);
    struct gemm product = wgrad_product(ex, w, x, w->dy, gradient);
    ex->kernels->gemm(ex->queue, 1, &product);
    if (l->bias >= 0)
        ex->kernels->column_sum(ex->queue, w->rows, l->out, tensor_at(w->dy, w->dy_row, 0), gradient + l->bias);
    tensor_drop(&x);
}

void wgrad_run(struct executor *ex, struct wgrad_list *list)
{
    while (list->first) {
        struct wgrad *w = list->first;
        int n = 1;
        if (w->token)
            run_embedding(ex, w);
        else if (w->next && is_alike(w, w->next))
            n = run_alike(ex, w);
        else
            run_one(ex, w);
        for (int i = 0; i < n; i++) {
            w = list->first;
            list->first = w->next;
            tensor_drop(&w->x);
            tensor_drop(&w->dy);
            free(w);
        }
    }
}
