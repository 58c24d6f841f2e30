#include "exec/fp8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/err.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/executor.h"
#include "exec/world.h"

enum { OPERANDS = 3 }; /* x, weight, dy */

struct fp8 {
    struct device *device;
    int n, max;
    struct fp8_linear **linear;
    bool paired, *begun; /* [slots]: the first step has a factor */
    int64_t step;
    float *amax, *scale, *inverse, *limit; /* [slots] */
    float *first, *history;                /* [1]; [FP8_HISTORY][slots] */
};

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* --- life --------------------------------------------------------------------------- */

struct fp8 *fp8_new(struct device *device)
{
    struct fp8 *fp8 = must(calloc(1, sizeof *fp8));
    fp8->device = device;
    return fp8;
}

struct fp8_linear *fp8_linear_of(struct fp8 *fp8, int layer, enum fp8_role role, int maps, int out, int in)
{
    for (int i = 0; i < fp8->n; i++)
        if (fp8->linear[i]->layer == layer && fp8->linear[i]->role == role)
            return fp8->linear[i];
    if (fp8->n == fp8->max) {
        fp8->max = fp8->max > 0 ? 2 * fp8->max : 16;
        fp8->linear = must(realloc(fp8->linear, (size_t)fp8->max * sizeof(struct fp8_linear *)));
    }
    struct fp8_linear *made = must(calloc(1, sizeof *made));
    *made = (struct fp8_linear){layer, role, maps, out, in, OPERANDS * fp8->n, NULL, NULL, -1};
    fp8->linear[fp8->n++] = made;
    return made;
}

static int slots_of(const struct fp8 *fp8)
{
    return OPERANDS * fp8->n;
}

static int64_t elements_of(const struct fp8_linear *linear)
{
    return (int64_t)linear->maps * linear->out * linear->in;
}

static enum element format_of(int slot)
{
    return slot % OPERANDS == 2 ? ELEMENT_E5M2 : ELEMENT_E4M3;
}

static void fill(const struct fp8 *fp8, float *device_floats, float (*value)(int slot))
{
    float *host = must(calloc((size_t)slots_of(fp8) + 1, sizeof *host));
    for (int i = 0; i < slots_of(fp8); i++)
        host[i] = value(i);
    fp8->device->upload(fp8->device, device_floats, host, (size_t)slots_of(fp8) * sizeof *host);
    free(host);
}

static float one_of(int slot)
{
    (void)slot;
    return 1;
}

static float limit_of(int slot)
{
    return fp8_limit(format_of(slot));
}

/* Floats: amax, scale, inverse, limit; history; first. */
static int64_t state_floats(const struct fp8 *fp8)
{
    return (int64_t)slots_of(fp8) * (4 + FP8_HISTORY) + 1;
}

void fp8_allocate(struct fp8 *fp8, bool paired)
{
    int n = slots_of(fp8);
    fp8->paired = paired;
    fp8->begun = must(calloc((size_t)n + 1, sizeof *fp8->begun));
    fp8->amax = device_floats(fp8->device, state_floats(fp8));
    fp8->scale = fp8->amax + n;
    fp8->inverse = fp8->scale + n;
    fp8->limit = fp8->inverse + n;
    fp8->history = fp8->limit + n;
    fp8->first = fp8->history + (int64_t)FP8_HISTORY * n;
    fill(fp8, fp8->scale, one_of);
    fill(fp8, fp8->inverse, one_of);
    fill(fp8, fp8->limit, limit_of);
}

int64_t fp8_bytes(const struct fp8 *fp8, int zero)
{
    int64_t bytes = 4 * state_floats(fp8);
    for (int i = 0; i < fp8->n && zero < 3; i++)
        bytes += 2 * elements_of(fp8->linear[i]);
    return bytes;
}

static void drop_weights(struct fp8 *fp8, struct fp8_linear *linear)
{
    device_free_typed(fp8->device, linear->weight, elements_of(linear), ELEMENT_E4M3);
    device_free_typed(fp8->device, linear->transposed, elements_of(linear), ELEMENT_E4M3);
    linear->weight = linear->transposed = NULL;
    linear->step = -1;
}

void fp8_free(struct fp8 *fp8)
{
    if (!fp8)
        return;
    device_free(fp8->device, fp8->amax, state_floats(fp8));
    for (int i = 0; i < fp8->n; i++) {
        drop_weights(fp8, fp8->linear[i]);
        free(fp8->linear[i]);
    }
    free(fp8->linear);
    free(fp8->begun);
    free(fp8);
}

/* --- casts ----------------------------------------------------------------------------- */

struct cast {
    int slot, rows, columns;
    const void *x;
    void *y, *transposed;
};

static struct fp8_cast job_of(const struct fp8 *fp8, const struct cast *cast)
{
    return (struct fp8_cast){.format = format_of(cast->slot),
                             .rows = cast->rows,
                             .columns = cast->columns,
                             .x = cast->x,
                             .scale = fp8->scale + cast->slot,
                             .amax = fp8->amax + cast->slot};
}

static bool is_first(const struct fp8 *fp8, int slot)
{
    return fp8->step == 0 && !fp8->begun[slot];
}

/* The largest magnitude alone. */
static void look_at(struct executor *ex, const struct cast *cast)
{
    struct fp8_cast job = job_of(ex->fp8, cast);
    ex->kernels->fp8_cast(ex->queue, &job);
}

/* The factor of the first step, from what was looked at. All ranks of the stage come here for the same slot. */
static void begin(struct executor *ex, int slot)
{
    struct fp8 *fp8 = ex->fp8;
    struct fp8_update update = {.n = 1,
                                .rows = 1,
                                .margin = 1,
                                .power_of_two = true,
                                .limit = fp8->limit + slot,
                                .amax = fp8->amax + slot,
                                .history = fp8->first,
                                .scale = fp8->scale + slot,
                                .inverse = fp8->inverse + slot};
    comm_all_reduce(ex->world->comm[WORLD_TP], COMM_MAX, ELEMENT_F32, 1, update.amax);
    comm_all_reduce(ex->world->comm[WORLD_DP_CP], COMM_MAX, ELEMENT_F32, 1, update.amax);
    ex->kernels->fp8_update(ex->queue, &update);
    fp8->begun[slot] = true;
}

/* Of activations and gradients the first micro-batch of all counts in the first step, that of rank 0 of dp. Ranks come
 * here with rows or without. */
static void run_cast(struct executor *ex, const struct cast *cast)
{
    struct fp8_cast job = job_of(ex->fp8, cast);
    if (is_first(ex->fp8, cast->slot)) {
        if (ex->world->dp == 0)
            look_at(ex, cast);
        begin(ex, cast->slot);
    }
    job.y = cast->y;
    job.transposed = cast->transposed;
    ex->kernels->fp8_cast(ex->queue, &job);
}

static struct cast weight_cast(const struct fp8_linear *eight, const struct linear *linear, int map)
{
    int64_t at = (int64_t)map * eight->out * eight->in;
    return (struct cast){.slot = eight->slot + 1,
                         .rows = eight->out,
                         .columns = eight->in,
                         .x = unit_weight(linear[map].unit, linear[map].weight),
                         .y = element_at(ELEMENT_E4M3, eight->weight, at),
                         .transposed = element_at(ELEMENT_E4M3, eight->transposed, at)};
}

void fp8_weights(struct executor *ex, const struct linear *linear)
{
    struct fp8_linear *eight = linear->fp8;
    if (!eight || (eight->weight && eight->step == ex->fp8->step))
        return;
    if (!eight->weight) {
        eight->weight = device_new(ex->device, elements_of(eight), ELEMENT_E4M3);
        eight->transposed = device_new(ex->device, elements_of(eight), ELEMENT_E4M3);
    }
    eight->step = ex->fp8->step;
    bool first = is_first(ex->fp8, eight->slot + 1); /* all experts of all ranks count: --resume finds them trained */
    for (int i = 0; i < eight->maps && first; i++) {
        struct cast cast = weight_cast(eight, linear, i);
        look_at(ex, &cast);
    }
    if (first)
        begin(ex, eight->slot + 1);
    for (int i = 0; i < eight->maps; i++) {
        struct cast cast = weight_cast(eight, linear, i);
        run_cast(ex, &cast);
    }
}

void fp8_weights_drop(struct executor *ex, const struct linear *linear)
{
    if (linear->fp8 && !linear->unit->weight)
        drop_weights(ex->fp8, linear->fp8);
}

static int slot_of(const struct linear *linear, bool gradient)
{
    return linear->fp8->slot + (gradient ? 2 : 0);
}

/* 8 bits two by two: nothing is computed on the way. */
static struct tensor *gather(struct executor *ex, const struct tensor *own)
{
    struct tensor *all = tensor_of(ex->device, own->rows * ex->plan->tp, own->columns, own->type);
    comm_all_gather(ex->world->comm[WORLD_TP], ELEMENT_BF16, tensor_count(own) / 2, own->data, all->data);
    return all;
}

static struct tensor *transpose(struct executor *ex, const struct tensor *x)
{
    struct tensor *y = tensor_of(ex->device, x->columns, x->rows, x->type);
    ex->kernels->fp8_transpose(ex->queue, x->rows, x->columns, x->data, y->data);
    return y;
}

static struct tensor *cast_tensor(struct executor *ex, int slot, const struct tensor *x, bool rows,
                                  struct tensor **ret_transposed)
{
    enum element format = format_of(slot);
    struct tensor *y = rows ? tensor_of(ex->device, x->rows, x->columns, format) : NULL;
    if (ret_transposed)
        *ret_transposed = tensor_of(ex->device, x->columns, x->rows, format);
    struct cast cast = {.slot = slot,
                        .rows = x->rows,
                        .columns = x->columns,
                        .x = x->data,
                        .y = y ? y->data : NULL,
                        .transposed = ret_transposed ? (*ret_transposed)->data : NULL};
    run_cast(ex, &cast);
    return y;
}

struct tensor *fp8_operand(struct executor *ex, const struct fp8_operand *operand, const struct tensor *x,
                           struct tensor **ret_transposed, struct tensor **ret_own)
{
    int slot = slot_of(operand->linear, operand->gradient);
    if (!operand->gather)
        return cast_tensor(ex, slot, x, true, ret_transposed);
    struct tensor *own = cast_tensor(ex, slot, x, true, NULL), *all = gather(ex, own);
    if (ret_transposed)
        *ret_transposed = transpose(ex, all);
    if (ret_own)
        *ret_own = own;
    else
        tensor_drop(&own);
    return all;
}

struct tensor *fp8_kept(struct executor *ex, const struct linear *linear, const struct tensor *x, bool gather_later)
{
    struct tensor *transposed = NULL;
    if (gather_later)
        return cast_tensor(ex, slot_of(linear, false), x, true, NULL);
    cast_tensor(ex, slot_of(linear, false), x, false, &transposed);
    return transposed;
}

struct tensor *fp8_gather_transposed(struct executor *ex, const struct tensor *own)
{
    struct tensor *all = gather(ex, own), *transposed = transpose(ex, all);
    tensor_drop(&all);
    return transposed;
}

/* --- products ------------------------------------------------------------------------------ */

struct gemm fp8_product(const struct executor *ex, const struct linear *linear, bool gradient, const struct tensor *x,
                        int first, int end, struct tensor *y)
{
    const struct fp8_linear *eight = linear->fp8;
    return (struct gemm){.transpose_b = true,
                         .fast_sums = !gradient,
                         .m = end - first,
                         .n = y->columns,
                         .k = x->columns,
                         .a = tensor_at(x, first, 0),
                         .stride_a = x->columns,
                         .b = element_at(ELEMENT_E4M3, gradient ? eight->transposed : eight->weight,
                                         (int64_t)linear->map * eight->out * eight->in),
                         .stride_b = x->columns,
                         .c = tensor_at(y, first, 0),
                         .stride_c = y->columns,
                         .c_type = y->type,
                         .a_type = x->type,
                         .b_type = ELEMENT_E4M3,
                         .scale_a = ex->fp8->inverse + slot_of(linear, gradient),
                         .scale_b = ex->fp8->inverse + eight->slot + 1};
}

struct gemm fp8_wgrad(const struct executor *ex, const struct linear *linear, const struct tensor *x,
                      const struct tensor *dy, int first, int rows, float *gradient)
{
    return (struct gemm){.transpose_b = true,
                         .accumulate = true,
                         .m = linear->out,
                         .n = linear->in,
                         .k = rows,
                         .a = tensor_at(dy, 0, first),
                         .stride_a = dy->columns,
                         .b = tensor_at(x, 0, first),
                         .stride_b = x->columns,
                         .c = gradient + linear->weight,
                         .stride_c = linear->in,
                         .c_type = ELEMENT_F32,
                         .a_type = dy->type,
                         .b_type = x->type,
                         .scale_a = ex->fp8->inverse + slot_of(linear, true),
                         .scale_b = ex->fp8->inverse + slot_of(linear, false)};
}

/* --- the end of a step ----------------------------------------------------------------------- */

void fp8_end_step(struct executor *ex)
{
    struct fp8 *fp8 = ex->fp8;
    int n = slots_of(fp8);
    comm_all_reduce(ex->world->comm[WORLD_TP], COMM_MAX, ELEMENT_F32, n, fp8->amax);
    comm_all_reduce(ex->world->comm[WORLD_DP_CP], COMM_MAX, ELEMENT_F32, n, fp8->amax);
    if (fp8->paired)
        comm_all_reduce(ex->world->comm[WORLD_PAIR], COMM_MAX, ELEMENT_F32, n, fp8->amax);
    struct fp8_update update = {.n = n,
                                .rows = fp8->step + 1 < FP8_HISTORY ? (int)fp8->step + 1 : FP8_HISTORY,
                                .row = (int)(fp8->step % FP8_HISTORY),
                                .limit = fp8->limit,
                                .amax = fp8->amax,
                                .history = fp8->history,
                                .scale = fp8->scale,
                                .inverse = fp8->inverse};
    ex->kernels->fp8_update(ex->queue, &update);
    fp8->step++;
}

double fp8_spread(struct executor *ex)
{
    struct fp8 *fp8 = ex->fp8;
    int n = slots_of(fp8);
    float *host = must(calloc((size_t)n + 1, sizeof *host));
    double *most = must(calloc(2 * (size_t)n + 1, sizeof *most)), spread = 0; /* and the least's negative */
    fp8->device->download(fp8->device, host, fp8->scale, (size_t)n * sizeof *host);
    for (int i = 0; i < n; i++) {
        most[i] = (double)host[i];
        most[n + i] = -(double)host[i];
    }
    comm_all_reduce_doubles(ex->world->comm[WORLD_TP], COMM_MAX, 2 * n, most);
    comm_all_reduce_doubles(ex->world->comm[WORLD_DP_CP], COMM_MAX, 2 * n, most);
    if (fp8->paired)
        comm_all_reduce_doubles(ex->world->comm[WORLD_PAIR], COMM_MAX, 2 * n, most);
    for (int i = 0; i < n; i++)
        spread = fmax(spread, (most[i] + most[n + i]) / most[i]);
    free(host);
    free(most);
    return spread;
}

/* --- which plans ----------------------------------------------------------------------------- */

/* `whole` in `ways` equal parts. */
struct width {
    const char *what, *way;
    int64_t whole, ways;
};

static void check_width(struct err *err, const struct width *w)
{
    char parts[64] = "";
    int64_t part = w->whole / w->ways, below = part / FP8_MULTIPLE * FP8_MULTIPLE;
    int64_t nearest = below == 0 || part - below >= FP8_MULTIPLE / 2 ? below + FP8_MULTIPLE : below;
    if (w->whole % w->ways != 0 || part % FP8_MULTIPLE == 0)
        return;
    if (w->way)
        snprintf(parts, sizeof parts, " / %s %lld = %lld", w->way, (long long)w->ways, (long long)part);
    err_add(err, "precision fp8 multiplies matrices of whole pieces of %d: %s %lld%s is none; the nearest is %lld",
            FP8_MULTIPLE, w->what, (long long)w->whole, parts, (long long)nearest);
}

static void check_kind(const struct layer_kind *kind, const struct plan *plan, struct err *err)
{
    if (kind->moe)
        check_width(err, &(struct width){"the experts' width", "etp", kind->ffn, plan->etp});
    else
        check_width(err, &(struct width){"the MLP's width", "tp", kind->ffn, plan->tp});
    if (kind->moe && kind->shared_ffn > 0)
        check_width(err, &(struct width){"the shared experts' width", "tp", kind->shared_ffn, plan->tp});
}

int fp8_check(const struct model *model, const struct plan *plan, struct err *err)
{
    int before = err->count;
    int64_t heads = model->heads / plan->tp, kv_heads = model->kv_heads >= plan->tp ? model->kv_heads / plan->tp : 1;
    const struct width widths[] = {
        {"hidden size", NULL, model->hidden, 1},
        {"the heads' width", "tp", model->heads * model->head_dim, plan->tp},
        {"a rank's width of q, k and v", NULL, (heads + 2 * kv_heads) * model->head_dim, 1},
        {"the tokens of a micro-batch", "cp", plan->micro_batch * plan->seq_len, plan->cp},
    };
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        check_width(err, &widths[i]);
    for (int i = 0; i < model->n_kinds; i++)
        check_kind(&model->kinds[i], plan, err);
    return err->count > before ? -1 : 0;
}
