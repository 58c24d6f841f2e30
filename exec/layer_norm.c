#include "exec/arch.h"
#include "exec/device.h"
#include "exec/layer.h"
#include "cost/model.h"
#include "kernels/kernels.h"

static const float *bias_of(const struct norm *norm)
{
    return norm->bias >= 0 ? norm->unit->weight + norm->bias : NULL;
}

/* stats: row 0 means, row 1 reciprocal standard deviations. */
struct tensor *norm_forward(struct executor *ex, const struct norm *norm, const struct tensor *x,
                            struct tensor **ret_stats)
{
    struct tensor *y = tensor_new(ex->device, x->rows, x->columns), *stats = tensor_new(ex->device, 2, x->rows);
    ex->kernels->norm_forward(ex->queue, x->rows, x->columns, x->columns, ex->arch->norm_epsilon,
                              ex->model->norm == MODEL_LAYER_NORM, x->data, norm->unit->weight + norm->weight,
                              bias_of(norm), y->data, stats->data, stats->data + x->rows);
    tensor_store(ex, y);
    *ret_stats = stats;
    return y;
}

struct tensor *norm_again(struct executor *ex, const struct norm *norm, const struct tensor *x,
                          const struct tensor *stats)
{
    struct tensor *y = tensor_new(ex->device, x->rows, x->columns);
    ex->kernels->norm_apply(ex->queue, x->rows, x->columns, x->columns, x->data, norm->unit->weight + norm->weight,
                            bias_of(norm), stats->data, stats->data + x->rows, y->data);
    tensor_store(ex, y);
    return y;
}

void norm_backward(struct executor *ex, const struct norm *norm, const struct tensor *x, const struct tensor *stats,
                   const struct tensor *dy, struct tensor *dx)
{
    float *gradient = unit_gradient(&ex->params, norm->unit);
    ex->kernels->norm_backward(ex->queue, x->rows, x->columns, x->columns, ex->model->norm == MODEL_LAYER_NORM, x->data,
                               norm->unit->weight + norm->weight, stats->data, stats->data + x->rows, dy->data, true,
                               dx->data, gradient + norm->weight, norm->bias >= 0 ? gradient + norm->bias : NULL);
}
