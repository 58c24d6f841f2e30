/* Routed experts without dropping: router, dispatch, experts, combine.
 *
 * Every rank routes its own share of the tokens: its rows with sequence parallelism, else 1/tp of them. One all-to-all
 * over the ep x etp ranks takes a copy of each row to every etp part of its expert, another one brings the partial
 * outputs back (with etp = 1 that is plain expert parallelism; etp > 1 merges Megatron's all-gather and reduce-scatter
 * into them). Load balancing per micro-batch (Fedus et al. 2021): coefficient x E x sum_e f_e P_e, f_e = choices of e
 * per token, P_e = mean probability; f_e is counted over all ranks that share the micro-batch, P_e enters rank by
 * rank. */
#include <stdlib.h>
#include <string.h>

#include "exec/arch.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/fp8.h"
#include "exec/layer.h"
#include "exec/world.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

struct moe_saved {
    int rows, n_choices;                     /* tokens here; rows x k */
    struct tensor *x, *probability, *weight; /* weight: [n_choices] */
    float *expert_bias;                      /* [experts] load balancing: added to every dprobability */
    int *choice;                             /* [n_choices], on the device */
    int n_sent, n_received;                  /* rows */
    int n_ordered;                           /* n_received, and in 8 bits rows of zeros behind each expert's */
    int *sent_token, *sent_choice;           /* [n_sent] row of x, index of the choice */
    struct tensor *sent_weight;              /* [n_sent] */
    int *token_first, *token_sent;           /* [rows + 1], [n_sent] rows sent of each token, in order of sending */
    int *received_order, *received_place;    /* [n_ordered] expert by expert: row as received, -1 = none; its inverse */
    int *expert_first;                       /* host: [n_experts + 1] rows of each local expert in that order */
    int64_t *sent_counts, *received_counts;  /* host: rows per rank of the group */
    struct tensor *rows_in, *gate_up, *act, *rows_out; /* expert by expert; rows_out: as sent, back home */
};

/* Device ints come from and go to the host. */
static int *upload(struct executor *ex, const int *host, int n)
{
    int *device = device_ints(ex->device, n);
    ex->device->upload(ex->device, device, host, (size_t)n * sizeof *host);
    return device;
}

static void *host_array(int64_t n, size_t element)
{
    void *array = calloc((size_t)n + 1, element);
    if (!array)
        abort();
    return array;
}

static int experts_per_token(const struct executor *ex)
{
    return (int)ex->model->experts_per_token;
}

/* --- routing ------------------------------------------------------------------ */

/* Experts in turn by the token's place in the sequence; the router's probabilities stay the weights. */
static void choose_in_turn(struct executor *ex, struct moe_saved *s, int *choice)
{
    int k = experts_per_token(ex), experts = (int)ex->model->experts,
        first = ex->plan->tp > 1 ? ex->world->tp * s->rows : 0;
    float *p = host_array((int64_t)s->rows * experts, sizeof *p), *w = host_array(s->n_choices, sizeof *w);
    ex->device->download(ex->device, p, s->probability->data, (size_t)s->rows * (size_t)experts * sizeof *p);
    for (int t = 0; t < s->rows; t++) {
        int place = ex->host_row_position[first + t] * ex->batch + (first + t) % ex->batch;
        float total = 0;
        for (int i = 0; i < k; i++) {
            choice[t * k + i] = (int)(((int64_t)place * k + i) % experts);
            w[t * k + i] = p[(int64_t)t * experts + choice[t * k + i]];
            total += w[t * k + i];
        }
        for (int i = 0; i < k && ex->arch->renormalise; i++)
            w[t * k + i] /= total;
    }
    ex->device->upload(ex->device, s->weight->data, w, (size_t)s->n_choices * sizeof *w);
    ex->device->upload(ex->device, s->choice, choice, (size_t)s->n_choices * sizeof *choice);
    free(p);
    free(w);
}

static void balance(struct executor *ex, struct moe_saved *s, const int *choice, bool first)
{
    int experts = (int)ex->model->experts;
    float *f = host_array(experts, sizeof *f);
    double *counts = host_array(experts, sizeof *counts);
    s->expert_bias = device_floats(ex->device, experts);
    if (ex->aux_factor > 0) {
        float tokens = (float)(ex->plan->micro_batch * ex->plan->seq_len);
        for (int i = 0; i < s->n_choices; i++)
            counts[choice[i]] += 1;
        comm_all_reduce_doubles(ex->world->comm[WORLD_TP], COMM_SUM, experts, counts);
        comm_all_reduce_doubles(ex->world->comm[WORLD_CP], COMM_SUM, experts, counts);
        for (int e = 0; e < experts; e++)
            f[e] = (float)counts[e] * (ex->aux_factor * (float)experts / tokens / tokens);
        ex->device->upload(ex->device, s->expert_bias, f, (size_t)experts * sizeof *f);
        float *p = host_array((int64_t)s->rows * experts, sizeof *p);
        ex->device->download(ex->device, p, s->probability->data, (size_t)s->rows * (size_t)experts * sizeof *p);
        double loss = 0;
        for (int64_t i = 0; i < (int64_t)s->rows * experts; i++)
            loss += (double)p[i] * (double)f[i % experts];
        ex->aux_loss += first ? loss : 0;
        ex->loss += first ? loss : 0;
        free(p);
    }
    free(f);
    free(counts);
}

/* Returns the choices on the host; the caller frees. */
static int *route(struct executor *ex, const struct layer *layer, struct moe_saved *s, bool first)
{
    int k = experts_per_token(ex), experts = (int)ex->model->experts;
    int *choice = host_array(s->n_choices, sizeof *choice);
    s->probability = linear_forward_floats(ex, &layer->router, s->x);
    s->weight = tensor_floats(ex->device, s->n_choices, 1);
    s->choice = device_ints(ex->device, s->n_choices);
    ex->kernels->router_forward(ex->queue, s->rows, experts, k, ex->arch->renormalise, s->probability->data, s->choice,
                                s->weight->data);
    if (ex->balanced)
        choose_in_turn(ex, s, choice);
    else
        ex->device->download(ex->device, choice, s->choice, (size_t)s->n_choices * sizeof *choice);
    balance(ex, s, choice, first);
    return choice;
}

/* --- who sends what ----------------------------------------------------------- */

static int group_size(const struct executor *ex)
{
    return comm_size(ex->world->comm[WORLD_EP]);
}

/* Sorts numbers 0 .. n - 1 by key (0 .. keys - 1), equal keys in order: those of key x are ret_order[ret_first[x]] ..
 * ret_order[ret_first[x + 1] - 1]. ret_first: [keys + 1], zeroed. */
static void sort_by_key(const int *key, int n, int keys, int *ret_first, int *ret_order)
{
    for (int i = 0; i < n; i++)
        ret_first[key[i] + 1]++;
    for (int x = 0; x < keys; x++)
        ret_first[x + 1] += ret_first[x];
    for (int i = 0; i < n; i++)
        ret_order[ret_first[key[i]]++] = i;
    for (int x = keys; x > 0; x--)
        ret_first[x] = ret_first[x - 1];
    ret_first[0] = 0;
}

/* For every token the rows that carry it, in order of sending. */
static void plan_combining(struct executor *ex, struct moe_saved *s, const int *token)
{
    int *first = host_array(s->rows + 1, sizeof *first), *order = host_array(s->n_sent, sizeof *order);
    sort_by_key(token, s->n_sent, s->rows, first, order);
    s->token_first = upload(ex, first, s->rows + 1);
    s->token_sent = upload(ex, order, s->n_sent);
    free(first);
    free(order);
}

/* Sent rows in order of rank, then its experts, then tokens. counts[rank][local expert]. */
static void plan_sending(struct executor *ex, const struct layer *layer, struct moe_saved *s, const int *choice,
                         int *counts)
{
    int ranks = group_size(ex), etp = ex->plan->etp, k = experts_per_token(ex), experts = (int)ex->model->experts;
    int *first = host_array(experts + 1, sizeof *first), *order = host_array(s->n_choices, sizeof *order);
    int *token = host_array((int64_t)s->n_choices * etp, sizeof *token),
        *which = host_array((int64_t)s->n_choices * etp, sizeof *which), n = 0;
    sort_by_key(choice, s->n_choices, experts, first, order);
    for (int r = 0; r < ranks; r++)
        for (int e = 0; e < layer->n_experts; e++) {
            int expert = r / etp * layer->n_experts + e;
            for (int i = first[expert]; i < first[expert + 1]; i++) {
                token[n] = order[i] / k;
                which[n++] = order[i];
            }
            counts[r * layer->n_experts + e] = first[expert + 1] - first[expert];
            s->sent_counts[r] += first[expert + 1] - first[expert];
        }
    s->n_sent = n;
    s->sent_token = upload(ex, token, n);
    s->sent_choice = upload(ex, which, n);
    plan_combining(ex, s, token);
    free(first);
    free(order);
    free(token);
    free(which);
}

/* So that in 8 bits an expert's rows begin and end at whole pieces. */
static int padded(const struct executor *ex, int rows)
{
    return ex->fp8 ? (rows + FP8_MULTIPLE - 1) / FP8_MULTIPLE * FP8_MULTIPLE : rows;
}

/* From rows by source and expert to rows by expert. */
static void plan_receiving(struct executor *ex, const struct layer *layer, struct moe_saved *s, const int *counts)
{
    int ranks = group_size(ex), n = 0, experts = layer->n_experts;
    for (int r = 0; r < ranks; r++)
        for (int e = 0; e < experts; e++)
            s->received_counts[r] += counts[r * experts + e];
    for (int r = 0; r < ranks; r++)
        n += (int)s->received_counts[r];
    int most = n + (ex->fp8 ? experts * FP8_MULTIPLE : 0), at = 0;
    int *order = host_array(most, sizeof *order), *place = host_array(n, sizeof *place);
    s->n_received = n;
    for (int e = 0; e < experts; e++) {
        s->expert_first[e] = at;
        for (int r = 0, row = 0; r < ranks; r++)
            for (int other = 0; other < experts; other++) {
                for (int i = 0; other == e && i < counts[r * experts + e]; i++)
                    order[at++] = row + i;
                row += counts[r * experts + other];
            }
        for (int end = s->expert_first[e] + padded(ex, at - s->expert_first[e]); at < end;)
            order[at++] = -1;
    }
    s->expert_first[experts] = s->n_ordered = at;
    for (int i = 0; i < at; i++)
        if (order[i] >= 0)
            place[order[i]] = i;
    s->received_order = upload(ex, order, at);
    s->received_place = upload(ex, place, n);
    free(order);
    free(place);
}

static void plan_dispatch(struct executor *ex, const struct layer *layer, struct moe_saved *s, const int *choice)
{
    int ranks = group_size(ex), n = ranks * layer->n_experts;
    int *sent = host_array(n, sizeof *sent), *received = host_array(n, sizeof *received);
    s->sent_counts = host_array(ranks, sizeof *s->sent_counts);
    s->received_counts = host_array(ranks, sizeof *s->received_counts);
    s->expert_first = host_array(layer->n_experts, sizeof *s->expert_first);
    plan_sending(ex, layer, s, choice, sent);
    comm_all_to_all_ints(ex->world->comm[WORLD_EP], layer->n_experts, sent, received);
    plan_receiving(ex, layer, s, received);
    s->sent_weight = tensor_floats(ex->device, s->n_sent, 1);
    ex->kernels->gather_floats(ex->queue, s->n_sent, s->sent_choice, s->weight->data, s->sent_weight->data);
    free(sent);
    free(received);
}

/* Rows as sent -> rows expert by expert on the experts' ranks, or back home. Drops x. */
static struct tensor *travel(struct executor *ex, const struct moe_saved *s, struct tensor *x, bool home)
{
    int ranks = group_size(ex), columns = x->columns;
    int64_t *out = host_array(ranks, sizeof *out), *in = host_array(ranks, sizeof *in);
    for (int r = 0; r < ranks; r++) {
        out[r] = (home ? s->received_counts[r] : s->sent_counts[r]) * columns;
        in[r] = (home ? s->sent_counts[r] : s->received_counts[r]) * columns;
    }
    if (home) {
        struct tensor *ordered = tensor_new(ex->device, s->n_received, columns);
        ex->kernels->gather_rows(ex->queue, s->n_received, columns, s->received_place, NULL, x->data, ordered->data);
        tensor_drop(&x);
        x = ordered;
    }
    struct tensor *arrived = tensor_new(ex->device, home ? s->n_sent : s->n_received, columns);
    comm_all_to_all(ex->world->comm[WORLD_EP], x->type, out, x->data, in, arrived->data);
    tensor_drop(&x);
    free(out);
    free(in);
    if (home)
        return arrived;
    struct tensor *ordered = tensor_new(ex->device, s->n_ordered, columns);
    ex->kernels->gather_rows(ex->queue, s->n_ordered, columns, s->received_order, NULL, arrived->data, ordered->data);
    tensor_drop(&arrived);
    return ordered;
}

/* Every expert's rows of x through its map, or for the gradient of its input. */
static void expert_products(struct executor *ex, const struct linear *linear, const struct moe_saved *s, int experts,
                            const struct tensor *x, struct tensor *y, bool gradient)
{
    struct gemm *product = host_array(experts, sizeof *product);
    for (int e = 0; e < experts; e++)
        product[e] = linear[e].fp8
                         ? fp8_product(ex, &linear[e], gradient, x, s->expert_first[e], s->expert_first[e + 1], y)
                         : linear_product(&linear[e], gradient, x, s->expert_first[e], s->expert_first[e + 1], y);
    ex->kernels->gemm(ex->queue, experts, product);
    free(product);
}

/* To y from the input x, or to y from the gradient x of the output; x becomes what W needs of it. */
static void experts_multiply(struct executor *ex, const struct linear *linear, const struct moe_saved *s, int experts,
                             struct tensor **x, struct tensor *y, bool gradient)
{
    struct fp8_operand operand = {linear, gradient, false};
    struct tensor *later = NULL, *rows = linear->fp8 ? fp8_operand(ex, &operand, *x, &later, NULL) : tensor_keep(*x);
    expert_products(ex, linear, s, experts, rows, y, gradient);
    tensor_drop(&rows);
    if (!later)
        return;
    tensor_drop(x);
    *x = later;
}

static struct tensor *experts_forward(struct executor *ex, const struct layer *layer, struct moe_saved *s)
{
    int inner = layer->expert_down[0].in;
    s->gate_up = tensor_new(ex->device, s->n_ordered, layer->expert_gate_up[0].out);
    s->act = tensor_new(ex->device, s->n_ordered, inner);
    struct tensor *out = tensor_new(ex->device, s->n_ordered, ex->hidden);
    experts_multiply(ex, layer->expert_gate_up, s, layer->n_experts, &s->rows_in, s->gate_up, false);
    ex->kernels->activation_forward(ex->queue, ex->arch->activation, ex->model->gated, s->n_ordered, inner,
                                    s->gate_up->data, s->act->data);
    experts_multiply(ex, layer->expert_down, s, layer->n_experts, &s->act, out, false);
    return out;
}

struct tensor *moe_forward(struct executor *ex, const struct layer *layer, struct tensor *x, bool first,
                           struct moe_saved **ret_saved)
{
    bool spread = ex->plan->tp > 1 && !ex->plan->sequence_parallel;
    struct moe_saved *s = host_array(1, sizeof *s);
    s->x = spread ? rows_scatter(ex, x) : tensor_keep(x);
    s->rows = s->x->rows;
    s->n_choices = s->rows * experts_per_token(ex);
    int *choice = route(ex, layer, s, first);
    plan_dispatch(ex, layer, s, choice);
    free(choice);
    struct tensor *sent = tensor_new(ex->device, s->n_sent, ex->hidden);
    ex->kernels->gather_rows(ex->queue, s->n_sent, ex->hidden, s->sent_token, NULL, s->x->data, sent->data);
    s->rows_in = travel(ex, s, sent, false);
    s->rows_out = travel(ex, s, experts_forward(ex, layer, s), true);
    struct tensor *y = tensor_new(ex->device, s->rows, ex->hidden);
    ex->kernels->combine_rows(ex->queue, s->rows, ex->hidden, s->token_first, s->token_sent, s->sent_weight->data,
                              s->rows_out->data, false, y->data);
    *ret_saved = s;
    if (!spread)
        return y;
    struct tensor *all = rows_collect(ex, y, x->rows);
    tensor_drop(&y);
    return all;
}

/* --- backward ------------------------------------------------------------------ */

static void experts_later(struct wgrad_list *later, const struct linear *linear, const struct moe_saved *s, int experts,
                          struct tensor *x, struct tensor *dy)
{
    for (int e = 0; e < experts; e++) {
        int first = s->expert_first[e];
        wgrad_add_rows(later, &linear[e], x, first, dy, first, s->expert_first[e + 1] - first);
    }
}

/* Drops dout. */
static struct tensor *experts_backward(struct executor *ex, const struct layer *layer, struct moe_saved *s,
                                       struct tensor *dout, struct wgrad_list *later)
{
    int inner = layer->expert_down[0].in;
    struct tensor *dact = tensor_new(ex->device, s->n_ordered, inner),
                  *dgate_up = tensor_new(ex->device, s->n_ordered, s->gate_up->columns);
    struct tensor *dx = tensor_new(ex->device, s->n_ordered, ex->hidden);
    experts_multiply(ex, layer->expert_down, s, layer->n_experts, &dout, dact, true);
    experts_later(later, layer->expert_down, s, layer->n_experts, s->act, dout);
    ex->kernels->activation_backward(ex->queue, ex->arch->activation, ex->model->gated, s->n_ordered, inner,
                                     s->gate_up->data, dact->data, dgate_up->data);
    experts_multiply(ex, layer->expert_gate_up, s, layer->n_experts, &dgate_up, dx, true);
    experts_later(later, layer->expert_gate_up, s, layer->n_experts, s->rows_in, dgate_up);
    tensor_drop(&dact);
    tensor_drop(&dgate_up);
    tensor_drop(&dout);
    return dx;
}

/* dx += through the weights of the choices. */
static void router_backward(struct executor *ex, const struct layer *layer, struct moe_saved *s,
                            const struct tensor *dy, struct tensor *dx, struct wgrad_list *later)
{
    int experts = (int)ex->model->experts;
    struct tensor *dots = tensor_floats(ex->device, s->n_sent, 1),
                  *dweight = tensor_zero_floats(ex->device, s->n_choices, 1),
                  *floats = tensor_floats(ex->device, s->rows, experts);
    ex->kernels->dot_rows(ex->queue, s->n_sent, ex->hidden, s->sent_token, s->rows_out->data, dy->data, dots->data);
    ex->kernels->scatter_floats(ex->queue, s->n_sent, s->sent_choice, dots->data, dweight->data);
    ex->kernels->router_backward(ex->queue, s->rows, experts, experts_per_token(ex), ex->arch->renormalise,
                                 s->probability->data, s->choice, dweight->data, s->expert_bias, floats->data);
    struct tensor *dlogits = tensor_as(floats, s->x->type);
    struct gemm product = linear_product(&layer->router, true, dlogits, 0, s->rows, dx);
    product.accumulate = true;
    ex->kernels->gemm(ex->queue, 1, &product);
    wgrad_add(later, &layer->router, s->x, false, dlogits);
    tensor_drop(&dots);
    tensor_drop(&dweight);
    tensor_drop(&floats);
    tensor_drop(&dlogits);
}

struct tensor *moe_backward(struct executor *ex, const struct layer *layer, struct moe_saved **saved, struct tensor *dy,
                            struct wgrad_list *later)
{
    bool spread = ex->plan->tp > 1 && !ex->plan->sequence_parallel;
    struct moe_saved *s = *saved;
    struct tensor *dmine = spread ? rows_scatter(ex, dy) : tensor_keep(dy);
    struct tensor *dsent = tensor_new(ex->device, s->n_sent, ex->hidden),
                  *dx = tensor_new(ex->device, s->rows, ex->hidden);
    ex->kernels->gather_rows(ex->queue, s->n_sent, ex->hidden, s->sent_token, s->sent_weight->data, dmine->data,
                             dsent->data);
    struct tensor *dout = travel(ex, s, dsent, false);
    struct tensor *drows = travel(ex, s, experts_backward(ex, layer, s, dout, later), true);
    ex->kernels->combine_rows(ex->queue, s->rows, ex->hidden, s->token_first, s->token_sent, NULL, drows->data, false,
                              dx->data);
    tensor_drop(&drows);
    router_backward(ex, layer, s, dmine, dx, later);
    tensor_drop(&dmine);
    moe_drop(saved);
    if (!spread)
        return dx;
    struct tensor *all = rows_collect(ex, dx, dy->rows);
    tensor_drop(&dx);
    return all;
}

void moe_drop(struct moe_saved **saved)
{
    struct moe_saved *s = *saved;
    *saved = NULL;
    if (!s)
        return;
    struct device *device = s->x->device;
    int experts = s->probability->columns;
    device_free(device, s->expert_bias, experts);
    device_free(device, s->choice, s->n_choices);
    device_free(device, s->sent_token, s->n_sent);
    device_free(device, s->sent_choice, s->n_sent);
    device_free(device, s->token_first, s->rows + 1);
    device_free(device, s->token_sent, s->n_sent);
    device_free(device, s->received_order, s->n_ordered);
    device_free(device, s->received_place, s->n_received);
    struct tensor **tensors[] = {&s->x,       &s->probability, &s->weight, &s->sent_weight,
                                 &s->rows_in, &s->gate_up,     &s->act,    &s->rows_out};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensor_drop(tensors[i]);
    free(s->expert_first);
    free(s->sent_counts);
    free(s->received_counts);
    free(s);
}
