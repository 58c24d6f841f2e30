#include "exec/arch.h"
#include "exec/device.h"
#include "exec/layer.h"
#include "cost/model.h"
#include "kernels/kernels.h"

static const void *bias_of(const struct norm *norm)
{
    return norm->bias >= 0 ? unit_weight(norm->unit, norm->bias) : NULL;
}

/* stats: row 0 means, row 1 reciprocal standard deviations. */
struct tensor *norm_forward(struct executor *ex, const struct norm *norm, const struct tensor *x,
                            struct tensor **ret_stats)
{
    struct tensor *y = tensor_new(ex->device, x->rows, x->columns), *stats = tensor_floats(ex->device, 2, x->rows);
    ex->kernels->norm_forward(ex->queue, x->rows, x->columns, x->columns, ex->arch->norm_epsilon,
                              ex->model->norm == MODEL_LAYER_NORM, x->data, unit_weight(norm->unit, norm->weight),
                              bias_of(norm), y->data, stats->data, tensor_at(stats, 1, 0));
    tensor_store(ex, y);
    *ret_stats = stats;
    return y;
}

/* Rounding of what is stored, where it is emulated, comes between the sum and the norm. */
struct tensor *add_norm_forward(struct executor *ex, const struct norm *norm, const struct tensor *residual,
                                struct tensor *x, struct tensor **ret_stats)
{
    if (ex->params.rounded) {
        ex->kernels->add(ex->queue, tensor_count(x), residual->data, x->data);
        tensor_store(ex, x);
        return norm_forward(ex, norm, x, ret_stats);
    }
    struct tensor *y = tensor_new(ex->device, x->rows, x->columns), *stats = tensor_floats(ex->device, 2, x->rows);
    ex->kernels->add_norm_forward(ex->queue, x->rows, x->columns, x->columns, ex->arch->norm_epsilon,
                                  ex->model->norm == MODEL_LAYER_NORM, residual->data, x->data,
                                  unit_weight(norm->unit, norm->weight), bias_of(norm), y->data, stats->data,
                                  tensor_at(stats, 1, 0));
    *ret_stats = stats;
    return y;
}

struct tensor *norm_again(struct executor *ex, const struct norm *norm, const struct tensor *x,
                          const struct tensor *stats)
{
    struct tensor *y = tensor_new(ex->device, x->rows, x->columns);
    ex->kernels->norm_apply(ex->queue, x->rows, x->columns, x->columns, x->data, unit_weight(norm->unit, norm->weight),
                            bias_of(norm), stats->data, tensor_at(stats, 1, 0), y->data);
    tensor_store(ex, y);
    return y;
}

void norm_backward(struct executor *ex, const struct norm *norm, const struct tensor *x, const struct tensor *stats,
                   const struct tensor *dy, struct tensor *dx)
{
    float *gradient = unit_gradient(&ex->params, norm->unit);
    ex->kernels->norm_backward(ex->queue, x->rows, x->columns, x->columns, ex->model->norm == MODEL_LAYER_NORM, x->data,
                               unit_weight(norm->unit, norm->weight), stats->data, tensor_at(stats, 1, 0), dy->data,
                               true, dx->data, gradient + norm->weight, norm->bias >= 0 ? gradient + norm->bias : NULL);
}
