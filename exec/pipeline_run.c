#include "exec/pipeline_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "exec/comm.h"
#include "exec/data.h"
#include "exec/device.h"
#include "exec/fp8.h"
#include "exec/layer.h"
#include "exec/device_paced.h"
#include "exec/world.h"
#include "kernels/kernels.h"
#include "sim/schedule.h"

struct module {
    bool here;
    int direction, stage, n_layers;
    bool first, last;
    struct embedding embedding;
    struct head head;
    struct layer *layer;
    struct unit **unit; /* all it adds gradients to */
    int n_units;
};

/* Input of `stage` from another rank: activations, or backward gradients. */
struct message {
    int direction, stage, micro_batch;
    bool backward;
};

/* Messages carry no tags (comm.h): those of a rank arrive in the order of the ops that make them, which the program
 * tells the receiver as well. What is needed out of that order is asked for with all that comes before it. */
struct link {
    struct message *message; /* of a step, in the sender's order */
    int n, asked;
};

/* A micro-batch in a module, from F to W. */
struct micro {
    struct tensor *in, *din; /* arriving activations, gradients of the output */
    struct comm_request in_request, din_request;
    int in_place, din_place; /* in the link that they arrive by */
    int *token, *target;     /* first, last stage */
    struct layer_saved *layer;
    struct head_saved head;
    struct wgrad_list later;
};

struct outgoing {
    struct tensor *tensor;
    struct comm_request request;
    struct outgoing *next;
};

struct pipeline_run {
    struct executor *ex;
    const struct program *program;
    const struct pacing *pacing;
    const struct data *data;
    int64_t first_sequence;
    int rank, micro_batches; /* of one direction */
    struct module *module;   /* [directions * stages], of which those of this rank are here */
    struct micro *micro;     /* [directions * stages][micro_batches] */
    struct link *link;       /* [pp] */
    struct outgoing *outgoing;
    void **event;       /* [ops][2]: when each began and ended */
    double paced_end_s; /* when the op under way should end */
};

static void *zeroed(int64_t n, size_t element)
{
    void *array = calloc((size_t)n + 1, element);
    if (!array)
        abort();
    return array;
}

int pipeline_program(const struct plan *plan, struct arena *arena, struct program *ret, struct err *err)
{
    struct schedule_request request = {
        .pp = plan->pp, .vp = plan->vp, .micro_batches = (int)plan_micro_batches(plan), .group = plan->schedule_group};
    if (plan->schedule == SCHEDULE_DUALPIPE)
        request.vp = 0;
    if (schedule_validate(plan->schedule, &request, err) < 0)
        return -1;
    return schedule_emit(plan->schedule, &request, arena, ret, err);
}

/* --- modules -------------------------------------------------------------------- */

static struct module *module_at(const struct pipeline_run *run, int direction, int stage)
{
    return &run->module[direction * run->program->stages + stage];
}

static struct micro *micro_at(const struct pipeline_run *run, int direction, int stage, int micro_batch)
{
    return &run->micro[((int64_t)direction * run->program->stages + stage) * run->micro_batches + micro_batch];
}

static bool is_here(const struct pipeline_run *run, int direction, int stage)
{
    return run->program->stage_rank[direction * run->program->stages + stage] == run->rank;
}

static void add_unit(struct module *module, struct unit *unit)
{
    for (int i = 0; i < module->n_units; i++)
        if (module->unit[i] == unit)
            return;
    if (!unit)
        return;
    module->unit[module->n_units++] = unit;
    unit->uses++;
}

static void build_module(struct pipeline_run *run, int direction, int stage)
{
    struct executor *ex = run->ex;
    struct module *module = module_at(run, direction, stage);
    int first_layer = 0;
    for (int s = 0; s < stage; s++)
        first_layer += plan_chunk_layers(ex->plan, ex->model, s);
    *module = (struct module){.here = true,
                              .direction = direction,
                              .stage = stage,
                              .first = stage == 0,
                              .last = stage == run->program->stages - 1,
                              .n_layers = plan_chunk_layers(ex->plan, ex->model, stage)};
    module->layer = zeroed(module->n_layers, sizeof *module->layer);
    module->unit = zeroed(2 * module->n_layers + 4, sizeof(struct unit *));
    if (module->first) {
        embedding_build(ex, &module->embedding);
        add_unit(module, module->embedding.table.unit);
        add_unit(module, module->embedding.positions.unit);
    }
    for (int i = 0; i < module->n_layers; i++) {
        layer_build(ex, first_layer + i, &module->layer[i]);
        add_unit(module, module->layer[i].dense);
        add_unit(module, module->layer[i].experts);
    }
    if (module->last) {
        head_build(ex, &module->head);
        add_unit(module, module->head.norm.unit);
        add_unit(module, module->head.table.unit);
    }
}

/* Which units have a copy on the pair rank: all of DualPipe's, else a tied embedding. */
static void mark_shared(struct executor *ex, const struct program *program)
{
    for (int i = 0; i < ex->params.n; i++)
        ex->params.unit[i]->shared = ex->world->pair_size == 2 &&
                                     (program->directions == 2 || strcmp(ex->params.unit[i]->key, "embedding") == 0);
}

/* Which message, if any, half of an op of rank `from` sends to this one. */
static bool message_of(const struct pipeline_run *run, int from, enum op_kind kind, int direction, int stage,
                       int micro_batch, struct message *ret)
{
    const struct program *program = run->program;
    bool backward = kind == OP_B || kind == OP_BW;
    int to = backward ? stage - 1 : stage + 1;
    if (kind == OP_W || to < 0 || to >= program->stages || from == run->rank)
        return false;
    *ret = (struct message){direction, to, micro_batch, backward};
    return is_here(run, direction, to);
}

static void add_message(struct pipeline_run *run, struct link *link, const struct message *message)
{
    struct micro *micro = micro_at(run, message->direction, message->stage, message->micro_batch);
    *(message->backward ? &micro->din_place : &micro->in_place) = link->n;
    link->message[link->n++] = *message;
}

static void build_links(struct pipeline_run *run)
{
    const struct program *program = run->program;
    run->link = zeroed(program->pp, sizeof *run->link);
    for (int r = 0; r < program->pp; r++) {
        struct message message;
        run->link[r].message = zeroed(2 * program->n_ops[r], sizeof message);
        for (int i = 0; i < program->n_ops[r]; i++) {
            const struct op *op = &program->ops[r][i];
            enum op_kind first = op->kind == OP_F_BW ? OP_F : (enum op_kind)op->kind;
            if (op_is_compute(op) &&
                message_of(run, r, first, op->direction, op->stage, (int)op->micro_batch, &message))
                add_message(run, &run->link[r], &message);
            if (op->kind == OP_F_BW &&
                message_of(run, r, OP_BW, op->direction2, op->stage2, (int)op->micro_batch2, &message))
                add_message(run, &run->link[r], &message);
        }
    }
}

static void build_events(struct pipeline_run *run)
{
    int n = 2 * run->program->n_ops[run->rank];
    run->event = zeroed(n, sizeof *run->event);
    for (int i = 0; i < n; i++)
        run->event[i] = run->ex->device->event_new(run->ex->device);
}

/* Before memory is filled: do weights, gradients and optimizer fit on every rank? The one that lacks most says so. */
static void check_room(struct executor *ex)
{
    struct comm *all = ex->world->comm[WORLD_ALL];
    double eights = ex->fp8 ? (double)fp8_bytes(ex->fp8, ex->params.zero) : 0;
    double needed = (double)params_bytes(&ex->params) + eights, limit = (double)ex->device->bytes_limit;
    double lack = needed - limit, most = lack;
    comm_all_reduce_doubles(all, COMM_MAX, 1, &most);
    if (most <= 0)
        return;
    double speaker = lack < most ? -1 : ex->world->rank;
    comm_all_reduce_doubles(all, COMM_MAX, 1, &speaker);
    if ((int)speaker == ex->world->rank && ex->device->fail) {
        char sentence[200], all_of_it[32], allowed[32];
        snprintf(sentence, sizeof sentence,
                 "weights, gradients and optimizer take %s on this rank, which may use %s (--max-memory): more ranks, or "
                 "ZeRO",
                 unit_format_bytes(needed, all_of_it, sizeof all_of_it),
                 unit_format_bytes(limit, allowed, sizeof allowed));
        ex->device->fail(ex->device->fail_context, sentence);
    }
    comm_barrier(all); /* never met */
}

struct pipeline_run *pipeline_new(struct executor *ex, const struct program *program, const struct pacing *pacing)
{
    struct pipeline_run *run = zeroed(1, sizeof *run);
    run->ex = ex;
    run->program = program;
    run->pacing = pacing;
    run->rank = ex->world->pp;
    run->micro_batches = program_direction_micro_batches(program);
    int n = program->directions * program->stages;
    run->module = zeroed(n, sizeof *run->module);
    run->micro = zeroed((int64_t)n * run->micro_batches, sizeof *run->micro);
    for (int stage = 0; stage < program->stages; stage++)
        for (int direction = 0; direction < program->directions; direction++)
            if (is_here(run, direction, stage))
                build_module(run, direction, stage);
    mark_shared(ex, program);
    build_links(run);
    build_events(run);
    if (!pacing) {
        check_room(ex);
        params_allocate(&ex->params);
        if (ex->fp8)
            fp8_allocate(ex->fp8, program->directions == 2);
    }
    return run;
}

void pipeline_free(struct pipeline_run *run)
{
    if (!run)
        return;
    for (int i = 0; i < run->program->directions * run->program->stages; i++) {
        for (int l = 0; l < run->module[i].n_layers; l++)
            layer_release(&run->module[i].layer[l]);
        free(run->module[i].layer);
        free(run->module[i].unit);
    }
    for (int r = 0; r < run->program->pp; r++)
        free(run->link[r].message);
    for (int i = 0; i < 2 * run->program->n_ops[run->rank]; i++)
        run->ex->device->event_free(run->ex->device, run->event[i]);
    free(run->event);
    free(run->link);
    free(run->module);
    free(run->micro);
    free(run);
}

/* --- messages --------------------------------------------------------------------- */

static void reap(struct pipeline_run *run, bool all)
{
    for (struct outgoing **at = &run->outgoing; *at;) {
        struct outgoing *out = *at;
        if (all)
            comm_wait(&out->request);
        if (!all && !comm_done(&out->request)) {
            at = &out->next;
            continue;
        }
        tensor_drop(&out->tensor);
        *at = out->next;
        free(out);
    }
}

/* Gives a tensor (and the caller's reference) to `stage`. */
static void deliver(struct pipeline_run *run, struct tensor *tensor, int direction, int stage, int micro_batch,
                    bool backward)
{
    if (is_here(run, direction, stage)) {
        struct micro *micro = micro_at(run, direction, stage, micro_batch);
        *(backward ? &micro->din : &micro->in) = tensor;
        return;
    }
    struct outgoing *out = zeroed(1, sizeof *out);
    out->tensor = tensor;
    out->request =
        comm_send(run->ex->world->comm[WORLD_PP], run->program->stage_rank[direction * run->program->stages + stage],
                  tensor->type, tensor_count(tensor), tensor->data);
    out->next = run->outgoing;
    run->outgoing = out;
}

static void ask_next(struct pipeline_run *run, int from)
{
    struct link *link = &run->link[from];
    const struct message *message = &link->message[link->asked++];
    struct micro *micro = micro_at(run, message->direction, message->stage, message->micro_batch);
    struct tensor *tensor = tensor_new(run->ex->device, run->ex->rows, run->ex->hidden);
    *(message->backward ? &micro->din : &micro->in) = tensor;
    *(message->backward ? &micro->din_request : &micro->in_request) =
        comm_receive(run->ex->world->comm[WORLD_PP], from, tensor->type, tensor_count(tensor), tensor->data);
}

/* Asks for what `stage` needs from another rank, unless that has been done. */
static void ask(struct pipeline_run *run, int direction, int stage, int micro_batch, bool backward)
{
    int from = backward ? stage + 1 : stage - 1;
    if (from < 0 || from >= run->program->stages || is_here(run, direction, from))
        return;
    struct micro *micro = micro_at(run, direction, stage, micro_batch);
    int rank = run->program->stage_rank[direction * run->program->stages + from];
    while (run->link[rank].asked <= (backward ? micro->din_place : micro->in_place))
        ask_next(run, rank);
}

static void ask_for_op(struct pipeline_run *run, const struct op *op)
{
    if (op->kind == OP_F || op->kind == OP_F_BW)
        ask(run, op->direction, op->stage, (int)op->micro_batch, false);
    if (op->kind == OP_B || op->kind == OP_BW)
        ask(run, op->direction, op->stage, (int)op->micro_batch, true);
    if (op->kind == OP_F_BW)
        ask(run, op->direction2, op->stage2, (int)op->micro_batch2, true);
}

/* --- tokens ------------------------------------------------------------------------ */

/* Which micro-batch of the global batch this is: pipelines of dp take turns; direction 1 has the second half. */
static int64_t first_sequence_of(const struct pipeline_run *run, int direction, int micro_batch)
{
    const struct plan *plan = run->ex->plan;
    int64_t number = (int64_t)direction * run->micro_batches + micro_batch;
    return run->first_sequence + (number * plan->dp + run->ex->world->dp) * plan->micro_batch;
}

static int *words(struct pipeline_run *run, int direction, int micro_batch, int shift)
{
    struct executor *ex = run->ex;
    int64_t first = first_sequence_of(run, direction, micro_batch);
    int *host = zeroed(ex->tokens, sizeof *host), *device = device_ints(ex->device, ex->tokens);
    for (int t = 0; t < ex->tokens; t++)
        host[t] = data_token(run->data, first + t % ex->batch, ex->plan->seq_len, ex->host_row_position[t] + shift);
    ex->device->upload(ex->device, device, host, (size_t)ex->tokens * sizeof *host);
    free(host);
    return device;
}

/* --- ops ---------------------------------------------------------------------------- */

/* Instead of arithmetic: the time that it would take, and messages of the right size. */
static void paced_op(struct pipeline_run *run, const struct module *module, struct micro *micro, enum op_kind kind,
                     int micro_batch)
{
    struct executor *ex = run->ex;
    run->paced_end_s += pacing_seconds(run->pacing, module->stage, kind);
    pacing_sleep_until(run->paced_end_s);
    if (kind == OP_F) {
        tensor_drop(&micro->in);
        if (!module->last)
            deliver(run, tensor_new(ex->device, ex->rows, ex->hidden), module->direction, module->stage + 1,
                    micro_batch, false);
    } else if (kind != OP_W) {
        tensor_drop(&micro->din);
        if (!module->first)
            deliver(run, tensor_new(ex->device, ex->rows, ex->hidden), module->direction, module->stage - 1,
                    micro_batch, true);
    }
}

/* ZeRO-3: the weights of layer `place` (of the head: place = n_layers) are gathered beside what is computed before them. */
static void prefetch(struct pipeline_run *run, const struct module *module, int place)
{
    struct params *params = &run->ex->params;
    bool head = place == module->n_layers && module->last;
    if (!run->ex->plan->overlap.dp_param || place < 0 || (place >= module->n_layers && !head))
        return;
    unit_prefetch(params, head ? module->head.norm.unit : module->layer[place].dense);
    struct unit *second = head ? module->head.table.unit : module->layer[place].experts;
    if (second)
        unit_prefetch(params, second);
}

static void forward(struct pipeline_run *run, const struct module *module, struct micro *micro, int micro_batch)
{
    struct executor *ex = run->ex;
    if (module->first)
        unit_prefetch(&ex->params, module->embedding.table.unit);
    prefetch(run, module, 0);
    if (module->first)
        micro->token = words(run, module->direction, micro_batch, 0);
    struct tensor *x = module->first ? embedding_forward(ex, &module->embedding, micro->token) : micro->in;
    micro->in = NULL;
    micro->layer = zeroed(module->n_layers, sizeof *micro->layer);
    for (int i = 0; i < module->n_layers; i++) {
        prefetch(run, module, i + 1);
        struct tensor *y = layer_forward(ex, &module->layer[i], x, true, &micro->layer[i]);
        tensor_drop(&x);
        x = y;
        if (ex->plan->recompute != RECOMPUTE_NONE &&
            (ex->plan->recompute == RECOMPUTE_SELECTIVE || layer_is_recomputed(ex->plan, i)))
            layer_forget(&micro->layer[i], ex->plan->recompute == RECOMPUTE_FULL);
    }
    if (!module->last) {
        deliver(run, x, module->direction, module->stage + 1, micro_batch, false);
        return;
    }
    micro->target = words(run, module->direction, micro_batch, 1);
    head_forward(ex, &module->head, x, micro->target, &micro->head);
    tensor_drop(&x);
}

/* One module has added a micro-batch's gradient; after the last one the sum over the data-parallel ranks may begin,
 * beside what is still to be computed. */
static void finish_unit(struct pipeline_run *run, struct unit *unit)
{
    struct params *params = &run->ex->params;
    unit_fold(params, unit);
    if (++unit->folds < (int64_t)unit->uses * run->micro_batches)
        return;
    unit->folds = 0;
    if (run->ex->plan->overlap.dp_grad)
        unit_reduce_start(params, unit);
}

/* Units but a tied table's: gradients of layer `place` (of the head: place = n_layers) have all been added. */
static int first_unit_of(const struct module *module, int place)
{
    struct unit *unit = place < module->n_layers ? module->layer[place].dense : module->head.norm.unit;
    int first = 0;
    while (first < module->n_units && module->unit[first] != unit)
        first++;
    return first;
}

/* Runs what is left for later; the units [first, end) of the module are then done with this micro-batch. */
static void weights_of(struct pipeline_run *run, const struct module *module, struct micro *micro, int first, int end)
{
    wgrad_run(run->ex, &micro->later);
    for (int i = first; i < end; i++)
        finish_unit(run, module->unit[i]);
}

/* Units before `end` have gradients to come. */
static void weights(struct pipeline_run *run, const struct module *module, struct micro *micro, int end)
{
    struct executor *ex = run->ex;
    weights_of(run, module, micro, 0, end);
    device_free(ex->device, micro->token, ex->tokens);
    device_free(ex->device, micro->target, ex->tokens);
    micro->token = micro->target = NULL;
}

/* fused: weights' gradients at once, layer by layer, and the input's gradient leaves last. */
static void backward(struct pipeline_run *run, const struct module *module, struct micro *micro, int micro_batch,
                     bool fused)
{
    struct executor *ex = run->ex;
    prefetch(run, module, module->n_layers);
    prefetch(run, module, module->n_layers - 1);
    struct tensor *dy = module->last ? head_backward(ex, &module->head, &micro->head, &micro->later) : micro->din;
    int end = module->n_units;
    micro->din = NULL;
    for (int i = module->n_layers - 1; i >= 0; i--) {
        int first = first_unit_of(module, i + 1);
        if (fused)
            weights_of(run, module, micro, first, end);
        end = fused && first < end ? first : end;
        prefetch(run, module, i - 1);
        struct tensor *dx = layer_backward(ex, &module->layer[i], &micro->layer[i], dy, &micro->later);
        tensor_drop(&dy);
        dy = dx;
    }
    free(micro->layer);
    micro->layer = NULL;
    if (module->first)
        embedding_backward(ex, &module->embedding, micro->token, dy, &micro->later);
    if (fused)
        weights(run, module, micro, end);
    if (module->first)
        tensor_drop(&dy);
    else
        deliver(run, dy, module->direction, module->stage - 1, micro_batch, true);
}

static void run_half(struct pipeline_run *run, enum op_kind kind, int direction, int stage, int micro_batch)
{
    const struct module *module = module_at(run, direction, stage);
    struct micro *micro = micro_at(run, direction, stage, micro_batch);
    if (run->pacing) {
        paced_op(run, module, micro, kind, micro_batch);
        return;
    }
    switch (kind) {
    case OP_F:
        forward(run, module, micro, micro_batch);
        break;
    case OP_B:
        backward(run, module, micro, micro_batch, false);
        break;
    case OP_BW:
        backward(run, module, micro, micro_batch, true);
        break;
    case OP_W:
        weights(run, module, micro, module->n_units);
        break;
    default:
        break;
    }
}

/* A paced rank leaves its core to others while it waits. An op that need not wait begins when the one before should
 * have ended, so that late wake-ups do not add up. */
static void arrive(struct pipeline_run *run, struct comm_request *request)
{
    while (run->pacing && !comm_done(request)) {
        pacing_sleep_until(clock_s() + 20e-6);
        run->paced_end_s = clock_s();
    }
    comm_wait(request);
}

static void await(struct pipeline_run *run, const struct op *op)
{
    ask_for_op(run, op);
    struct micro *micro = micro_at(run, op->direction, op->stage, (int)op->micro_batch);
    arrive(run, op->kind == OP_F || op->kind == OP_F_BW ? &micro->in_request : &micro->din_request);
    if (op->kind == OP_F_BW)
        arrive(run, &micro_at(run, op->direction2, op->stage2, (int)op->micro_batch2)->din_request);
}

static void end_step(struct pipeline_run *run, double origin_s, double *start_s, double *end_s)
{
    struct device *device = run->ex->device;
    reap(run, true);
    for (int r = 0; r < run->program->pp; r++)
        run->link[r].asked = 0;
    for (int i = 0; start_s && end_s && i < run->program->n_ops[run->rank]; i++) {
        if (!op_is_compute(&run->program->ops[run->rank][i]))
            continue;
        start_s[i] = device->event_s(device, run->event[2 * i]) - origin_s;
        end_s[i] = device->event_s(device, run->event[2 * i + 1]) - origin_s;
    }
}

void pipeline_step(struct pipeline_run *run, const struct data *data, int64_t first_sequence, double *start_s,
                   double *end_s)
{
    const struct op *ops = run->program->ops[run->rank];
    int n = run->program->n_ops[run->rank];
    struct device *device = run->ex->device;
    double origin_s = clock_s();
    run->data = data;
    run->paced_end_s = origin_s;
    run->first_sequence = first_sequence;
    for (int i = 0; i < n; i++) {
        const struct op *op = &ops[i];
        if (!op_is_compute(op))
            continue;
        if (op->kind != OP_W)
            await(run, op);
        if (i + 1 < n)
            ask_for_op(run, &ops[i + 1]);
        device->event_record(device, run->event[2 * i], device->queue);
        enum op_kind first = op->kind == OP_F_BW ? OP_F : (enum op_kind)op->kind;
        run_half(run, first, op->direction, op->stage, (int)op->micro_batch);
        if (op->kind == OP_F_BW)
            run_half(run, OP_BW, op->direction2, op->stage2, (int)op->micro_batch2);
        device->event_record(device, run->event[2 * i + 1], device->queue);
        reap(run, false);
    }
    end_step(run, origin_s, start_s, end_s);
}
