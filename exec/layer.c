/* A transformer layer: x + out(core(qkv(norm1 x))), then + mlp(norm2 ..), dense, routed, or both (shared experts). */
#include "exec/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/arch.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/fp8.h"
#include "exec/world.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

/* --- building ------------------------------------------------------------------ */

struct builder {
    struct executor *ex;
    struct unit *unit;
    int index;
    bool new; /* else the unit exists and only offsets are wanted, counted along */
    int64_t offset;
};

static int64_t add(struct builder *b, struct param param)
{
    int64_t at = b->offset;
    if (b->new)
        at = unit_add(b->unit, &param);
    b->offset = at + (int64_t)param.rows * param.columns;
    return at;
}

static struct param named(const struct builder *b, const char *part, int rows, int columns)
{
    struct param param = {.rows = rows,
                          .columns = columns,
                          .all_rows = rows,
                          .all_columns = columns,
                          .std = b->ex->arch->init_std,
                          .decays = true};
    snprintf(param.name, sizeof param.name, "layers.%d.%s", b->index, part);
    return param;
}

static struct norm build_norm(struct builder *b, const char *part, int columns, bool bias, enum param_sum sum)
{
    char name[64];
    struct norm norm = {b->unit, -1, -1, columns};
    for (int i = 0; i < 1 + bias; i++) {
        snprintf(name, sizeof name, "%s.%s", part, i == 0 ? "weight" : "bias");
        struct param param = named(b, name, 1, columns);
        param.std = 0;
        param.start = i == 0 ? 1 : 0;
        param.sum = sum;
        param.copies = COPIES_TP;
        param.decays = false;
        *(i == 0 ? &norm.weight : &norm.bias) = add(b, param);
    }
    return norm;
}

/* A vector or matrix of which this rank holds rows [first_row, +rows) and columns [first_column, +columns). */
static int64_t build_part(struct builder *b, const char *part, int rows, int64_t first_row, int64_t all_rows,
                          int columns, int64_t first_column, int64_t all_columns, enum param_sum sum,
                          enum param_copies copies)
{
    struct param param = named(b, part, rows, columns);
    param.first_row = first_row;
    param.all_rows = all_rows;
    param.first_column = first_column;
    param.all_columns = all_columns;
    param.sum = sum;
    param.copies = copies;
    size_t length = strlen(part);
    if (length > 5 && strcmp(part + length - 5, ".bias") == 0) {
        param.std = 0;
        param.decays = false;
    }
    return add(b, param);
}

/* In 8 bits where the plan says so. */
static struct fp8_linear *in_fp8(const struct executor *ex, int layer, enum fp8_role role, int maps,
                                 const struct linear *linear)
{
    return ex->fp8 ? fp8_linear_of(ex->fp8, layer, role, maps, linear->out, linear->in) : NULL;
}

static void build_qkv(struct builder *b, struct layer *layer)
{
    const struct executor *ex = b->ex;
    int d = ex->head_dim, q = ex->heads * d, kv = ex->kv_heads * d;
    int64_t all_q = ex->model->heads * d, all_kv = ex->model->kv_heads * d;
    enum param_sum sum = ex->plan->tp > ex->model->kv_heads ? SUM_KV : SUM_NONE;
    enum param_copies copies = sum == SUM_KV ? COPIES_KV : COPIES_NONE;
    layer->qkv = (struct linear){.unit = b->unit, .bias = -1, .in = ex->hidden, .out = q + 2 * kv};
    layer->qkv.weight = build_part(b, "q.weight", q, (int64_t)ex->world->tp * q, all_q, ex->hidden, 0, ex->hidden,
                                   SUM_NONE, COPIES_NONE);
    build_part(b, "k.weight", kv, ex->kv_first * d, all_kv, ex->hidden, 0, ex->hidden, sum, copies);
    build_part(b, "v.weight", kv, ex->kv_first * d, all_kv, ex->hidden, 0, ex->hidden, sum, copies);
    layer->qkv.fp8 = in_fp8(ex, layer->index, FP8_QKV, 1, &layer->qkv);
    if (ex->model->qkv_bias) {
        layer->qkv.bias = build_part(b, "q.bias", 1, 0, 1, q, (int64_t)ex->world->tp * q, all_q, SUM_NONE, COPIES_NONE);
        build_part(b, "k.bias", 1, 0, 1, kv, ex->kv_first * d, all_kv, sum, copies);
        build_part(b, "v.bias", 1, 0, 1, kv, ex->kv_first * d, all_kv, sum, copies);
    }
}

/* Row-parallel: columns are cut; its bias is whole on every rank, and under sequence parallelism sees 1/tp of the
 * rows. */
static struct linear build_row(struct builder *b, const char *part, int in, int index, int64_t all_in, bool bias)
{
    char name[64];
    int hidden = b->ex->hidden;
    struct linear linear = {.unit = b->unit, .bias = -1, .in = in, .out = hidden};
    snprintf(name, sizeof name, "%s.weight", part);
    linear.weight = build_part(b, name, hidden, 0, hidden, in, (int64_t)index * in, all_in, SUM_NONE, COPIES_NONE);
    snprintf(name, sizeof name, "%s.bias", part);
    if (bias)
        linear.bias = build_part(b, name, 1, 0, 1, hidden, 0, hidden,
                                 b->ex->plan->sequence_parallel ? SUM_TP : SUM_NONE, COPIES_TP);
    return linear;
}

/* Column-parallel pair gate and up (or up alone), one product. */
static struct linear build_column(struct builder *b, const char *prefix, int inner, int index, int64_t all_inner,
                                  bool bias)
{
    static const char *const parts[] = {"gate", "up"};
    char name[64];
    int hidden = b->ex->hidden, from = b->ex->model->gated ? 0 : 1;
    struct linear linear = {.unit = b->unit, .weight = -1, .bias = -1, .in = hidden, .out = inner * (2 - from)};
    for (int kind = 0; kind < 1 + bias; kind++)
        for (int i = from; i < 2; i++) {
            snprintf(name, sizeof name, "%s%s.%s", prefix, parts[i], kind == 0 ? "weight" : "bias");
            int64_t at = kind == 0 ? build_part(b, name, inner, (int64_t)index * inner, all_inner, hidden, 0, hidden,
                                                SUM_NONE, COPIES_NONE)
                                   : build_part(b, name, 1, 0, 1, inner, (int64_t)index * inner, all_inner, SUM_NONE,
                                                COPIES_NONE);
            int64_t *first = kind == 0 ? &linear.weight : &linear.bias;
            *first = *first < 0 ? at : *first;
        }
    return linear;
}

static void build_mlp(struct builder *b, struct layer *layer, const char *prefix, int64_t ffn)
{
    char name[64];
    const struct executor *ex = b->ex;
    int inner = (int)(ffn / ex->plan->tp);
    layer->gate_up = build_column(b, prefix, inner, ex->world->tp, ffn, ex->model->mlp_bias);
    snprintf(name, sizeof name, "%sdown", prefix);
    layer->down = build_row(b, name, inner, ex->world->tp, ffn, ex->model->mlp_bias);
    layer->gate_up.fp8 = in_fp8(ex, layer->index, FP8_GATE_UP, 1, &layer->gate_up);
    layer->down.fp8 = in_fp8(ex, layer->index, FP8_DOWN, 1, &layer->down);
}

static void build_experts(struct executor *ex, struct layer *layer)
{
    char key[64], prefix[64];
    const struct layer_kind *kind = &ex->model->kinds[layer->kind];
    struct builder b = {.ex = ex, .index = layer->index};
    snprintf(key, sizeof key, "layers.%d.experts", layer->index);
    layer->experts = b.unit = params_unit(&ex->params, key, ex->world->comm[WORLD_EXPERT_DP], &b.new);
    layer->n_experts = (int)ex->model->experts / ex->plan->ep;
    layer->expert_gate_up = calloc((size_t)layer->n_experts, sizeof *layer->expert_gate_up);
    layer->expert_down = calloc((size_t)layer->n_experts, sizeof *layer->expert_down);
    if (!layer->expert_gate_up || !layer->expert_down)
        abort();
    int inner = (int)(kind->ffn / ex->plan->etp);
    for (int e = 0; e < layer->n_experts; e++) {
        int expert = ex->world->ep * layer->n_experts + e;
        snprintf(prefix, sizeof prefix, "experts.%d.", expert);
        layer->expert_gate_up[e] = build_column(&b, prefix, inner, ex->world->etp, kind->ffn, false);
        snprintf(prefix, sizeof prefix, "experts.%d.down", expert);
        layer->expert_down[e] = build_row(&b, prefix, inner, ex->world->etp, kind->ffn, false);
        struct linear *pair[] = {&layer->expert_gate_up[e], &layer->expert_down[e]};
        for (int i = 0; i < 2; i++) {
            pair[i]->fp8 = in_fp8(ex, layer->index, FP8_EXPERT_GATE_UP + i, layer->n_experts, pair[i]);
            pair[i]->map = e;
        }
    }
}

void layer_build(struct executor *ex, int index, struct layer *ret)
{
    char key[64];
    struct layer *layer = ret;
    *layer = (struct layer){.index = index, .kind = ex->model->kind_of_layer[index]};
    const struct layer_kind *kind = &ex->model->kinds[layer->kind];
    struct builder b = {.ex = ex, .index = index};
    enum param_sum norm_sum = ex->plan->sequence_parallel ? SUM_TP : SUM_NONE;
    snprintf(key, sizeof key, "layers.%d", index);
    layer->dense = b.unit = params_unit(&ex->params, key, ex->world->comm[WORLD_DP_CP], &b.new);
    layer->norm1 = build_norm(&b, "norm1", ex->hidden, ex->model->norm_bias, norm_sum);
    build_qkv(&b, layer);
    if (ex->model->qk_norm) {
        layer->q_norm = build_norm(&b, "q_norm", ex->head_dim, false, SUM_TP);
        layer->k_norm = build_norm(&b, "k_norm", ex->head_dim, false, SUM_TP);
    }
    layer->out = build_row(&b, "out", ex->heads * ex->head_dim, ex->world->tp, ex->model->heads * ex->head_dim,
                           ex->model->out_bias);
    layer->out.fp8 = in_fp8(ex, index, FP8_OUT, 1, &layer->out);
    layer->norm2 = build_norm(&b, "norm2", ex->hidden, ex->model->norm_bias, norm_sum);
    if (!kind->moe) {
        build_mlp(&b, layer, "", kind->ffn);
        return;
    }
    int experts = (int)ex->model->experts;
    layer->router = (struct linear){.unit = b.unit, .bias = -1, .in = ex->hidden, .out = experts};
    layer->router.weight =
        build_part(&b, "router.weight", experts, 0, experts, ex->hidden, 0, ex->hidden, SUM_TP, COPIES_TP);
    if (kind->shared_ffn > 0)
        build_mlp(&b, layer, "shared.", kind->shared_ffn);
    build_experts(ex, layer);
}

void layer_release(struct layer *layer)
{
    free(layer->expert_gate_up);
    free(layer->expert_down);
}

/* --- forward -------------------------------------------------------------------- */

/* Through the row-parallel map back to rows, with its bias. *x becomes what W needs. */
static struct tensor *project(struct executor *ex, const struct linear *row, struct tensor **x)
{
    struct tensor *y = rows_reduce(ex, linear_enter(ex, row, x, false));
    linear_add_bias(ex, row, y);
    return y;
}

static void add_to(struct executor *ex, const struct tensor *x, struct tensor *y)
{
    ex->kernels->add(ex->queue, tensor_count(y), x->data, y->data);
    tensor_store(ex, y);
}

static struct tensor *activate(struct executor *ex, const struct layer *layer, const struct tensor *gate_up)
{
    struct tensor *act = tensor_new(ex->device, gate_up->rows, layer->down.in);
    ex->kernels->activation_forward(ex->queue, ex->arch->activation, ex->model->gated, act->rows, act->columns,
                                    gate_up->data, act->data);
    tensor_store(ex, act);
    return act;
}

static struct tensor *mlp_forward(struct executor *ex, const struct layer *layer, struct layer_saved *saved)
{
    saved->gate_up = linear_enter(ex, &layer->gate_up, &saved->n2, true);
    linear_add_bias(ex, &layer->gate_up, saved->gate_up);
    saved->act = activate(ex, layer, saved->gate_up);
    return project(ex, &layer->down, &saved->act);
}

static struct tensor *attention_forward(struct executor *ex, const struct layer *layer, struct layer_saved *saved)
{
    saved->n1 = norm_forward(ex, &layer->norm1, saved->x, &saved->stats1);
    struct tensor *qkv = linear_enter(ex, &layer->qkv, &saved->n1, true);
    linear_add_bias(ex, &layer->qkv, qkv);
    saved->core = attention_core_forward(ex, layer, qkv, saved);
    tensor_drop(&qkv);
    return project(ex, &layer->out, &saved->core);
}

static void each_fp8(struct executor *ex, const struct layer *layer,
                     void (*what)(struct executor *ex, const struct linear *linear))
{
    const struct linear *linears[] = {&layer->qkv,  &layer->out,           &layer->gate_up,
                                      &layer->down, layer->expert_gate_up, layer->expert_down};
    for (int i = 0; ex->fp8 && i < FP8_ROLES; i++)
        if (linears[i])
            what(ex, linears[i]);
}

static void acquire(struct executor *ex, const struct layer *layer)
{
    unit_acquire(&ex->params, layer->dense);
    if (layer->experts)
        unit_acquire(&ex->params, layer->experts);
    each_fp8(ex, layer, fp8_weights);
}

static void release(struct executor *ex, const struct layer *layer)
{
    unit_release(&ex->params, layer->dense);
    if (layer->experts)
        unit_release(&ex->params, layer->experts);
    each_fp8(ex, layer, fp8_weights_drop);
}

struct tensor *layer_forward(struct executor *ex, const struct layer *layer, struct tensor *x, bool first,
                             struct layer_saved *saved)
{
    acquire(ex, layer);
    if (saved->x != x) {
        tensor_drop(&saved->x);
        saved->x = tensor_keep(x);
    }
    saved->h = attention_forward(ex, layer, saved);
    saved->n2 = add_norm_forward(ex, &layer->norm2, x, saved->h, &saved->stats2);
    struct tensor *n2 = layer->experts ? tensor_keep(saved->n2) : NULL; /* the router's, in elements */
    struct tensor *y = layer->down.out > 0 ? mlp_forward(ex, layer, saved) : NULL;
    if (layer->experts) {
        struct tensor *routed = moe_forward(ex, layer, n2, first, &saved->moe);
        if (y)
            add_to(ex, y, routed);
        tensor_drop(&y);
        y = routed;
    }
    tensor_drop(&n2);
    add_to(ex, saved->h, y);
    release(ex, layer);
    return y;
}

/* --- recompute ------------------------------------------------------------------- */

bool layer_is_recomputed(const struct plan *plan, int place)
{
    return plan->recompute == RECOMPUTE_FULL && (plan->recompute_layers < 0 || place < plan->recompute_layers);
}

void layer_forget(struct layer_saved *saved, bool full)
{
    if (!full) {
        tensor_drop(&saved->n1);
        tensor_drop(&saved->n2);
        tensor_drop(&saved->act);
        return;
    }
    struct tensor *x = tensor_keep(saved->x);
    layer_drop(saved);
    saved->x = x;
}

static void fill_in(struct executor *ex, const struct layer *layer, struct layer_saved *saved)
{
    if (!saved->h) {
        struct tensor *y = layer_forward(ex, layer, saved->x, false, saved);
        tensor_drop(&y);
        return;
    }
    if (!saved->n1) {
        saved->n1 = norm_again(ex, &layer->norm1, saved->x, saved->stats1);
        linear_remember(ex, &layer->qkv, &saved->n1, true);
    }
    if (!saved->n2) {
        saved->n2 = norm_again(ex, &layer->norm2, saved->h, saved->stats2);
        linear_remember(ex, &layer->gate_up, &saved->n2, true);
    }
    if (!saved->act && saved->gate_up) {
        saved->act = activate(ex, layer, saved->gate_up);
        linear_remember(ex, &layer->down, &saved->act, false);
    }
}

static void remember(struct executor *ex, const struct layer *layer, struct layer_saved *saved)
{
    if (saved->h && saved->n1 && saved->n2 && (saved->act || !saved->gate_up))
        return;
    int lap = stopwatch_start(&ex->watch, ex->device, STOPWATCH_RECOMPUTE);
    fill_in(ex, layer, saved);
    stopwatch_end(&ex->watch, ex->device, lap);
}

/* --- backward -------------------------------------------------------------------- */

/* From dy of `row`'s output to the gradient of its input; its weight is left for later. */
static struct tensor *unproject(struct executor *ex, const struct linear *row, struct tensor *x, struct tensor *dy,
                                struct wgrad_list *later)
{
    linear_bias_gradient(ex, row, dy); /* the bias saw this rank's rows only */
    return linear_leave(ex, &(struct linear_exit){row, x, dy, false, true}, later);
}

static struct tensor *mlp_backward(struct executor *ex, const struct layer *layer, struct layer_saved *saved,
                                   struct tensor *dy, struct wgrad_list *later)
{
    struct tensor *dact = unproject(ex, &layer->down, saved->act, dy, later);
    struct tensor *dgate_up = tensor_new(ex->device, saved->gate_up->rows, saved->gate_up->columns);
    ex->kernels->activation_backward(ex->queue, ex->arch->activation, ex->model->gated, dact->rows, dact->columns,
                                     saved->gate_up->data, dact->data, dgate_up->data);
    tensor_drop(&dact);
    struct linear_exit exit = {&layer->gate_up, saved->n2, dgate_up, true, false};
    struct tensor *dn = rows_reduce(ex, linear_leave(ex, &exit, later));
    tensor_drop(&dgate_up);
    return dn;
}

static struct tensor *attention_backward(struct executor *ex, const struct layer *layer, struct layer_saved *saved,
                                         struct tensor *dy, struct wgrad_list *later)
{
    struct tensor *dcore = unproject(ex, &layer->out, saved->core, dy, later);
    struct tensor *dqkv = attention_core_backward(ex, layer, saved, dcore);
    tensor_drop(&dcore);
    struct linear_exit exit = {&layer->qkv, saved->n1, dqkv, true, false};
    struct tensor *dn = rows_reduce(ex, linear_leave(ex, &exit, later));
    tensor_drop(&dqkv);
    return dn;
}

static struct tensor *copy_of(struct executor *ex, const struct tensor *x)
{
    struct tensor *y = tensor_new(ex->device, x->rows, x->columns);
    ex->device->copy(ex->device, y->data, x->data, (size_t)tensor_count(x) * element_bytes(x->type));
    return y;
}

struct tensor *layer_backward(struct executor *ex, const struct layer *layer, struct layer_saved *saved,
                              struct tensor *dy, struct wgrad_list *later)
{
    acquire(ex, layer);
    remember(ex, layer, saved);
    struct tensor *dn2 = layer->down.out > 0 ? mlp_backward(ex, layer, saved, dy, later) : NULL;
    if (layer->experts) {
        struct tensor *routed = moe_backward(ex, layer, &saved->moe, dy, later);
        if (dn2)
            add_to(ex, dn2, routed);
        tensor_drop(&dn2);
        dn2 = routed;
    }
    struct tensor *dh = copy_of(ex, dy);
    norm_backward(ex, &layer->norm2, saved->h, saved->stats2, dn2, dh);
    tensor_drop(&dn2);
    struct tensor *dn1 = attention_backward(ex, layer, saved, dh, later);
    struct tensor *dx = copy_of(ex, dh); /* the weights' gradients still need dh itself */
    tensor_drop(&dh);
    norm_backward(ex, &layer->norm1, saved->x, saved->stats1, dn1, dx);
    tensor_drop(&dn1);
    layer_drop(saved);
    release(ex, layer);
    return dx;
}

void layer_drop(struct layer_saved *saved)
{
    struct tensor **tensors[] = {&saved->x,      &saved->stats1, &saved->n1,      &saved->raw_qkv, &saved->qk_rstd,
                                 &saved->qkv,    &saved->o,      &saved->lse,     &saved->core,    &saved->h,
                                 &saved->stats2, &saved->n2,     &saved->gate_up, &saved->act};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensor_drop(tensors[i]);
    moe_drop(&saved->moe);
}
