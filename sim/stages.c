/* Stage prices.
 *
 * Data parallelism (cost-model.md section 2): plain and ZeRO-1/2 gradients are
 * reduced once per step beside the last micro-batch's backward, parameters
 * gathered beside the next forward: exposed = max(one bucket, t - cover), and the
 * covered part slows its cover by the stack's overlap_slowdown. ZeRO-3 (and stacks
 * that shard per layer) gather every layer forward and backward and scatter its
 * gradients, per micro-batch, each beside the neighbouring layer's compute.
 * Optimizer: bytes moved by fused AdamW, 16 read + 14 written per sharded
 * parameter, gradient norm and zeroing. */
#include "sim/stages.h"

#include <math.h>
#include <string.h>

#include "cost/collective.h"
#include "cost/kernel.h"
#include "sim/schedule.h"

const struct stack *question_stack(const struct question *question, const char *name)
{
    for (int i = 0; i < question->n_stacks; i++)
        if (strcmp(question->stacks[i].name, name) == 0)
            return &question->stacks[i];
    return NULL;
}

bool layer_prices_same(const struct layer_prices *prices, const struct plan *plan)
{
    const struct plan *k = &prices->key;
    return k->tp == plan->tp && k->sequence_parallel == plan->sequence_parallel && k->cp == plan->cp && k->ep == plan->ep &&
           k->etp == plan->etp && k->micro_batch == plan->micro_batch && k->seq_len == plan->seq_len && k->precision == plan->precision &&
           k->attention == plan->attention && k->context_parallel == plan->context_parallel && k->overlap.tp == plan->overlap.tp &&
           k->overlap.ep == plan->overlap.ep && k->cuda_graph == plan->cuda_graph && k->recompute_modules == plan->recompute_modules &&
           k->offload_modules == plan->offload_modules && k->lora_rank == plan->lora_rank && k->lora_modules == plan->lora_modules && k->dropout == plan->dropout && k->moe_dispatcher == plan->moe_dispatcher &&
           k->fused_grouped_mlp == plan->fused_grouped_mlp && k->fp8_attention == plan->fp8_attention && memcmp(k->rank_order, plan->rank_order, sizeof plan->rank_order) == 0 &&
           (plan->rank_order[AXES - 1] == AXIS_PP || k->pp == plan->pp) && strcmp(k->stack, plan->stack) == 0;
}

void layer_prices_fill(struct layer_prices *ret, const struct question *question, const struct plan *plan, const struct stack *stack)
{
    const struct model *model = question->model;
    struct ops_context context;
    ret->key = *plan;
    ret->stack = stack;
    ops_context_init(&context, model, question->cluster, plan, stack, NULL);
    for (int kind = 0; kind < model->n_kinds; kind++)
        ops_price_layer(&context, kind, &ret->kind[kind]);
    ops_price_embedding(&context, &ret->embedding);
    ops_price_head(&context, &ret->head);
    if (model->mtp_modules > 0)
        ops_price_mtp(&context, &ret->mtp);
    memset(ret->count[0], 0, sizeof ret->count[0]);
    for (int64_t i = 0; i < model->layers; i++) {
        memcpy(ret->count[i + 1], ret->count[i], sizeof ret->count[i]);
        ret->count[i + 1][model->kind_of_layer[i]]++;
    }
}

/* Collectives of one layer's weights under per-layer sharding. */
struct shard_times {
    double gather_s, scatter_s;
};

/* With several copies of the shards (hybrid sharding): what is reduced inside a copy is summed over the copies shard by
 * shard; gathering stays inside. */
static double copies_collective(const struct cluster *cluster, const struct span *inside, const struct span *copies, enum collective_op op, double bytes)
{
    if (copies->ranks <= 1)
        return collective_s(cluster, inside, op, bytes);
    double between = collective_s(cluster, copies, COLLECTIVE_ALL_REDUCE, bytes / (double)inside->ranks);
    double gather = collective_s(cluster, inside, COLLECTIVE_ALL_GATHER, bytes), scatter = collective_s(cluster, inside, COLLECTIVE_REDUCE_SCATTER, bytes);
    return op == COLLECTIVE_ALL_GATHER ? gather : scatter + between + (op == COLLECTIVE_ALL_REDUCE ? gather : 0);
}

static double group_collective(const struct stages *s, enum collective_op op, double dense_bytes, double expert_bytes)
{
    const struct cluster *cluster = s->question->cluster;
    double t = copies_collective(cluster, &s->places->dp, &s->places->dp_copies, op, dense_bytes);
    if (expert_bytes > 0)
        t += copies_collective(cluster, &s->places->expert_dp, &s->places->expert_dp_copies, op, expert_bytes);
    const struct stack *stack = s->prices->stack;
    return t / (stack->dp_collective_speed > 0 ? stack->dp_collective_speed : stack->collective_speed);
}

/* planexec adds what was reduced to the shard's sum after every micro-batch (two reads, a write), and clears a whole
 * gradient for the next one. */
static double fold_s(const struct stages *s, double dense, double expert)
{
    double owned = dense / s->dp_ways + expert / s->expert_dp_ways;
    if (!s->prices->stack->counted_buffers || dense + expert <= 0)
        return 0;
    return kernel_pointwise_s(&s->question->cluster->accelerator, 4 * (dense + expert) + 12 * owned);
}

/* Bytes of a gathered parameter of a linear layer: 8 bits where they are all that is kept, but for MXFP8, whose two layouts are
 * made from a gathered 16-bit one (Megatron-LM's --reuse-grad-buf-for-mxfp8-param-ag). */
static double gathered_bytes(const struct stages *s)
{
    const struct stack *stack = s->prices->stack;
    bool eight = s->plan->precision == PRECISION_FP8 || (s->plan->precision == PRECISION_FP8_BLOCK && !stack->sharded_per_layer);
    return eight && plan_keeps_low_weights(s->plan) && !stack->counted_buffers ? 1 : memory_weight_bytes(s->plan);
}

/* weight: bytes of a gathered parameter; trainable: of the dense parameters. */
static struct shard_times shard_times(const struct stages *s, double weight, double dense, double expert, double trainable_dense, double trainable_expert)
{
    struct shard_times t = {0};
    bool every = s->plan->zero == 2 && s->prices->stack->counted_buffers; /* planexec scatters after every micro-batch */
    if (s->plan->zero < 3 && !every)
        return t;
    double gradient = memory_gradient_bytes(s->plan, s->prices->stack);
    t.gather_s = every ? 0 : group_collective(s, COLLECTIVE_ALL_GATHER, dense * weight, expert * weight);
    t.scatter_s = group_collective(s, COLLECTIVE_REDUCE_SCATTER, trainable_dense * gradient, trainable_expert * gradient) + fold_s(s, trainable_dense, trainable_expert);
    return t;
}

/* Kept activations that wait on the host: of `offloaded` of n layers everything, of the others what the plan names. One
 * layer's copies run beside its own compute, out in forward and back in backward (Megatron-core's activation offload);
 * what is longer than that shows. */
struct offload {
    double bytes, exposed_f_s, exposed_b_s; /* of all n layers */
    double buffers;                         /* one layer on its way out, one on its way in */
};

static struct offload offload_of(const struct stages *s, const struct layer_price *p, double n, double offloaded, double kept, double forward_s, double backward_s)
{
    struct offload o = {0};
    double rate = s->question->cluster->accelerator.host_bytes_per_s, part = fmin(p->offload_bytes, kept);
    double all_s = kept / rate, part_s = part / rate;
    o.bytes = offloaded * kept + (n - offloaded) * part;
    o.exposed_f_s = offloaded * fmax(0, all_s - forward_s / n) + (n - offloaded) * fmax(0, part_s - forward_s / n);
    o.exposed_b_s = offloaded * fmax(0, all_s - backward_s / n) + (n - offloaded) * fmax(0, part_s - backward_s / n);
    o.buffers = o.bytes > 0 ? fmin(o.bytes, 2 * (offloaded > 0 ? kept : part)) : 0;
    return o;
}

/* Adds n layers (or an embedding, head, ...) of one price; recomputed of them run
 * their forward again in backward. weight: bytes of a gathered parameter. */
static void add_layers(const struct stages *s, struct stage_price *stage, const struct layer_price *p, double n, double recomputed,
                       double offloaded, double weight, double dense, double expert)
{
    if (n <= 0)
        return;
    const struct plan *plan = s->plan;
    bool adapts = plan->lora_rank > 0;
    double frozen_dense = adapts ? dense : 0, frozen_expert = adapts ? expert : 0;
    dense += p->adapter_params;
    struct shard_times shard = shard_times(s, weight, dense, expert, dense - frozen_dense, expert - frozen_expert);
    double selective = plan->recompute == RECOMPUTE_SELECTIVE ? n : 0;
    double again = recomputed * p->full_s + selective * p->selective_s;
    double again_tp = recomputed * p->full_tp_s, again_cp = recomputed * p->full_cp_s, again_ep = recomputed * p->full_ep_s;
    double forward = n * (p->compute_s[PHASE_F] + p->tp_s[PHASE_F] + p->cp_s[PHASE_F] + p->ep_s[PHASE_F]);
    double backward = n * (p->compute_s[PHASE_B] + p->tp_s[PHASE_B] + p->cp_s[PHASE_B] + p->ep_s[PHASE_B]) + again + again_tp + again_cp + again_ep;
    double wgrad = n * p->compute_s[PHASE_W];
    double slowdown = s->prices->stack->overlap_slowdown;
    double shard_f = n * beside_cover(shard.gather_s, forward / n, slowdown);
    double shard_b = n * beside_cover(shard.gather_s + shard.scatter_s, (backward + wgrad) / n, slowdown);
    double kept = plan->recompute == RECOMPUTE_SELECTIVE ? p->kept_selective_bytes : p->kept_bytes;
    struct offload host = offload_of(s, p, n, offloaded, kept, forward + shard_f, backward + wgrad + shard_b);
    stage->forward_s += forward + shard_f + host.exposed_f_s;
    stage->backward_s += backward + shard_b + host.exposed_b_s;
    stage->wgrad_s += wgrad;
    stage->part_s[TIME_COMPUTE] += n * (p->compute_s[PHASE_F] + p->compute_s[PHASE_B] + p->compute_s[PHASE_W]);
    stage->part_s[TIME_RECOMPUTE] += again;
    stage->part_s[TIME_TP] += n * (p->tp_s[PHASE_F] + p->tp_s[PHASE_B]) + again_tp;
    stage->part_s[TIME_CP] += n * (p->cp_s[PHASE_F] + p->cp_s[PHASE_B]) + again_cp;
    stage->part_s[TIME_EP] += n * (p->ep_s[PHASE_F] + p->ep_s[PHASE_B]) + again_ep;
    stage->part_s[TIME_DP] += shard_f + shard_b;
    stage->part_s[TIME_OTHER] += host.exposed_f_s + host.exposed_b_s;
    stage->forward_ep_s += n * p->ep_s[PHASE_F];
    stage->backward_ep_s += n * p->ep_s[PHASE_B] + again_ep;
    stage->kept_bytes += recomputed * p->kept_full_bytes + (n - recomputed) * kept - host.bytes;
    double working = p->working_bytes + host.buffers + (recomputed > 0 ? p->kept_bytes : selective > 0 ? p->kept_bytes - p->kept_selective_bytes : 0);
    stage->working_bytes = fmax(stage->working_bytes, working);
    stage->dense_params += n * dense;
    stage->expert_params += n * expert;
    stage->frozen_dense += n * frozen_dense;
    stage->frozen_expert += n * frozen_expert;
    stage->largest_layer_params = fmax(stage->largest_layer_params, dense + expert);
    double local = fmax(1, (double)s->question->model->experts / plan->ep);
    stage->shape_params = fmax(stage->shape_params, dense + expert / local);
}

static bool v_placement(enum plan_schedule schedule)
{
    return schedule == SCHEDULE_ZB_V || schedule == SCHEDULE_ZB_V_AUTO || schedule == SCHEDULE_V_HALF || schedule == SCHEDULE_V_MIN ||
           schedule == SCHEDULE_1F1B_V || schedule == SCHEDULE_DUALPIPE_V;
}

bool stages_ends_share(const struct plan *plan)
{
    enum placement placement = schedule_of(plan->schedule)->placement;
    return plan->pp == 1 || plan->vocab_parallel != VOCAB_EDGES || placement == PLACEMENT_V || placement == PLACEMENT_BIDIR;
}

static int recomputed_layers(const struct plan *plan, int layers)
{
    if (plan->recompute != RECOMPUTE_FULL)
        return 0;
    return plan->recompute_layers < 0 || plan->recompute_layers > layers ? layers : plan->recompute_layers;
}

static int offloaded_layers(const struct plan *plan, int layers)
{
    return plan->offload_layers < layers ? plan->offload_layers : layers;
}

/* Embedding or head, or a part of it. */
static void add_edge(const struct stages *s, struct stage_price *stage, const struct layer_price *p, double part, double params)
{
    double largest = stage->largest_layer_params, shape = stage->shape_params;
    add_layers(s, stage, p, part, 0, 0, memory_weight_bytes(s->plan), params, 0);
    stage->largest_layer_params = largest;
    stage->shape_params = shape;
    stage->edge_params += part * params;
}

static double table_params(const struct stages *s)
{
    return ops_vocab_per_rank(s->question->model, s->plan) * (double)s->question->model->hidden;
}

/* A tied head that is another stage than the embedding, but on its rank, gathers and scatters the one table a second time. */
static void add_head(const struct stages *s, struct stage_price *stage, double part)
{
    const struct model *model = s->question->model;
    double own = ops_shard_head(model, s->plan), table = table_params(s);
    if (!model->tied || !stages_ends_share(s->plan)) {
        add_edge(s, stage, &s->prices->head, part, own);
        return;
    }
    if (s->n == 1) {
        add_edge(s, stage, &s->prices->head, part, own - table);
        return;
    }
    add_edge(s, stage, &s->prices->head, part, own);
    stage->dense_params -= part * table;
    stage->edge_params -= part * table;
    stage->frozen_dense -= s->plan->lora_rank > 0 ? part * table : 0;
}

static void fill_stage(const struct stages *s, int index, int first_layer, int layers, struct stage_price *stage)
{
    const struct model *model = s->question->model;
    const struct plan *plan = s->plan;
    const struct layer_prices *prices = s->prices;
    memset(stage, 0, sizeof *stage);
    stage->layers = layers;
    int recomputed = recomputed_layers(plan, layers), offloaded = offloaded_layers(plan, layers);
    for (int kind = 0; kind < model->n_kinds; kind++) {
        int n = prices->count[first_layer + layers][kind] - prices->count[first_layer][kind];
        int again = prices->count[first_layer + recomputed][kind] - prices->count[first_layer][kind];
        int away = prices->count[first_layer + offloaded][kind] - prices->count[first_layer][kind];
        if (n == 0)
            continue;
        struct layer_shard shard;
        ops_shard_layer(model, plan, kind, &shard);
        add_layers(s, stage, &prices->kind[kind], n, again, away, gathered_bytes(s), shard.dense, shard.expert);
    }
    stage->layer_bytes = stage->working_bytes;
    double all = plan->recompute == RECOMPUTE_FULL && plan->recompute_layers < 0 ? 1 : 0;
    bool spread = plan->vocab_parallel != VOCAB_EDGES && plan->pp > 1; /* each rank has its part, beside its first chunk */
    double part = spread ? 1.0 / plan->pp : 1;
    if (spread ? index < plan->pp : index == 0)
        add_edge(s, stage, &prices->embedding, part, ops_shard_embedding(model, plan));
    if (prices->stack->counted_buffers && index == s->n - 1) {
        /* The head's buffers are gone when the layers' are there; apart from W, B frees its input alone: as large as a message. */
        bool splits = plan->pp > 1 && schedule_of(plan->schedule)->splits_w;
        stage->b_bytes = splits ? s->places->p2p_bytes : 0;
        stage->layer_bytes -= splits ? stage->b_bytes : prices->head.kept_bytes;
        stage->working_bytes = fmax(0, stage->layer_bytes);
    }
    if (spread ? index < plan->pp : index == s->n - 1)
        add_head(s, stage, part);
    if (index == s->n - 1) {
        if (model->mtp_modules > 0) {
            struct layer_shard shard, sum = {.dense = 2.0 * (double)model->hidden * (double)model->hidden / plan->tp};
            for (int i = 0; i < model->n_mtp_layers; i++) {
                ops_shard_layer(model, plan, model->mtp_kind[i], &shard);
                sum.dense += shard.dense;
                sum.expert += shard.expert;
            }
            add_layers(s, stage, &prices->mtp, (double)model->mtp_modules, all * (double)model->mtp_modules, 0, gathered_bytes(s), sum.dense, sum.expert);
        }
    }
}

/* Two chunks hold the same layers of each kind, and recompute the same. */
static bool same_kinds(const struct stages *s, int first_a, int first_b, int layers_b, int layers_a)
{
    if (layers_a != layers_b)
        return false;
    if (s->question->model->n_kinds == 1)
        return true;
    const struct layer_prices *p = s->prices;
    int again = recomputed_layers(s->plan, layers_a), away = offloaded_layers(s->plan, layers_a);
    for (int kind = 0; kind < s->question->model->n_kinds; kind++) {
        if (p->count[first_a + layers_a][kind] - p->count[first_a][kind] != p->count[first_b + layers_b][kind] - p->count[first_b][kind] ||
            p->count[first_a + again][kind] - p->count[first_a][kind] != p->count[first_b + again][kind] - p->count[first_b][kind] ||
            p->count[first_a + away][kind] - p->count[first_a][kind] != p->count[first_b + away][kind] - p->count[first_b][kind])
            return false;
    }
    return true;
}

/* A group cut into `copies` parts of neighbouring ranks: one part, and the ranks at the same place in all of them. */
static void split_span(const struct question *question, const struct plan *plan, enum plan_group which, int64_t copies, struct span *ret_part,
                       struct span *ret_copies)
{
    struct rank_group group, part = {0}, same = {0};
    int64_t ranks = 1, left;
    plan_rank_group(plan, which, &group);
    for (int i = 0; i < group.n_dims; i++)
        ranks *= group.dim[i].size;
    *ret_copies = (struct span){.ranks = 1};
    left = ranks % copies == 0 ? ranks / copies : ranks;
    if (left == ranks) {
        cluster_span(question->cluster, &group, plan_world(plan), ret_part);
        return;
    }
    for (int i = 0; i < group.n_dims; i++) { /* fastest first: a part takes what it needs of each */
        int64_t size = group.dim[i].size, take = left >= size && left % size == 0 ? size : size % left == 0 ? left : 1;
        left /= take;
        if (take > 1) {
            part.dim[part.n_dims].size = take;
            part.dim[part.n_dims++].stride = group.dim[i].stride;
        }
        if (size / take > 1) {
            same.dim[same.n_dims].size = size / take;
            same.dim[same.n_dims++].stride = group.dim[i].stride * take;
        }
    }
    cluster_span(question->cluster, &part, plan_world(plan), ret_part);
    cluster_span(question->cluster, &same, plan_world(plan), ret_copies);
}

static int count_communicators(const struct plan *plan)
{
    int n = 1; /* world */
    n += plan->tp > 1;
    n += plan->cp > 1;
    n += plan->dp * plan->cp > 1;
    n += plan->ep > 1;
    n += plan->ep > 1 && plan->dp * plan->cp * plan->tp > plan->ep * plan->etp;
    n += plan->etp > 1;
    n += plan->pp > 1 ? 2 : 0; /* neighbours, embedding group */
    return n;
}

void stages_place(const struct question *question, const struct plan *plan, struct stage_places *ret)
{
    int64_t copies = plan->dp_shard > 0 ? (int64_t)plan->dp * plan->cp / plan->dp_shard : 1;
    *ret = (struct stage_places){.communicators = count_communicators(plan)};
    split_span(question, plan, GROUP_DP_CP, copies, &ret->dp, &ret->dp_copies);
    split_span(question, plan, GROUP_EXPERT_DP, copies, &ret->expert_dp, &ret->expert_dp_copies);
    if (plan->pp == 1)
        return;
    struct span hop;
    struct rank_group pipeline;
    plan_rank_group(plan, GROUP_PP, &pipeline);
    cluster_hop(question->cluster, &pipeline, plan_world(plan), &hop);
    ret->p2p_bytes = (double)plan->micro_batch * (double)plan->seq_len / plan->cp * (double)question->model->hidden *
                     precision_activation_bytes(plan->precision) / (plan->sequence_parallel ? plan->tp : 1);
    ret->p2p_s = collective_s(question->cluster, &hop, COLLECTIVE_P2P, ret->p2p_bytes);
}

void stages_fill(struct stages *ret, const struct question *question, const struct plan *plan, const struct layer_prices *prices,
                 const struct stage_places *places, struct stage_price *stage)
{
    const struct model *model = question->model;
    *ret = (struct stages){.question = question, .plan = plan, .prices = prices, .places = places, .stage = stage, .n = plan->pp * plan->vp};
    ret->dp_ways = (double)plan->dp * plan->cp;
    ret->expert_dp_ways = fmax(1, (double)places->expert_dp.ranks); /* of one copy */
    if (plan->dp_shard > 0) /* several copies of what is sharded */
        ret->dp_ways = plan->dp_shard;
    int layer = 0;
    for (int i = 0; i < ret->n; i++) {
        int layers = plan_chunk_layers(plan, model, i);
        if (i > 1 && i < ret->n - 1 && (plan->vocab_parallel == VOCAB_EDGES || i != plan->pp) && same_kinds(ret, layer - stage[i - 1].layers, layer, layers, stage[i - 1].layers)) {
            stage[i] = stage[i - 1];
            stage[i].same = true;
        } else {
            fill_stage(ret, i, layer, layers, &stage[i]);
        }
        layer += layers;
    }
}

int stages_rank_of(const struct plan *plan, int stage)
{
    if (v_placement(plan->schedule))
        return stage < plan->pp ? stage : 2 * plan->pp - 1 - stage;
    return stage % plan->pp;
}

bool stages_rank_same(const struct stages *s, int rank)
{
    const struct plan *plan = s->plan;
    if (rank == 0 || plan->schedule == SCHEDULE_DUALPIPE)
        return false;
    if (v_placement(plan->schedule)) /* going up the second leg, stage 2P-1-r comes before that of rank r-1 */
        return s->stage[rank].same && s->stage[2 * plan->pp - rank].same;
    for (int i = rank; i < s->n; i += plan->pp)
        if (!s->stage[i].same)
            return false;
    return true;
}

static void add_stage(struct stage_price *sum, const struct stage_price *add)
{
    sum->forward_s += add->forward_s;
    sum->backward_s += add->backward_s;
    sum->wgrad_s += add->wgrad_s;
    for (int i = 0; i < TIME_PARTS; i++)
        sum->part_s[i] += add->part_s[i];
    sum->forward_ep_s += add->forward_ep_s;
    sum->backward_ep_s += add->backward_ep_s;
    sum->kept_bytes += add->kept_bytes;
    sum->dense_params += add->dense_params;
    sum->expert_params += add->expert_params;
    sum->frozen_dense += add->frozen_dense;
    sum->frozen_expert += add->frozen_expert;
    sum->edge_params += add->edge_params;
    sum->largest_layer_params = fmax(sum->largest_layer_params, add->largest_layer_params);
    sum->shape_params = fmax(sum->shape_params, add->shape_params);
    sum->working_bytes = fmax(sum->working_bytes, add->working_bytes);
    sum->layer_bytes = sum->layers > 0 ? fmax(sum->layer_bytes, add->layer_bytes) : add->layer_bytes;
    sum->layers += add->layers;
}

void stages_sum_rank(const struct stages *s, int rank, struct stage_price *ret)
{
    memset(ret, 0, sizeof *ret);
    if (v_placement(s->plan->schedule)) {
        add_stage(ret, &s->stage[rank]);
        add_stage(ret, &s->stage[2 * s->plan->pp - 1 - rank]);
        return;
    }
    for (int i = rank; i < s->n; i += s->plan->pp)
        add_stage(ret, &s->stage[i]);
    if (s->plan->schedule == SCHEDULE_DUALPIPE) { /* a second copy of the mirrored stage; the two share the micro-batches */
        struct stage_price mirror = s->stage[s->plan->pp - 1 - rank];
        add_stage(ret, &mirror);
    }
}

/* A collective once per step beside `cover` seconds, in `buckets` pieces: at least the last piece shows. */
static double once_per_step(double t, bool overlap, double cover, double buckets, double slowdown)
{
    if (!overlap || t <= 0)
        return t;
    return fmax(t / fmax(1, buckets), beside_cover(t, cover, slowdown));
}

/* Optimizer on the host: gradients down and weights up, and 28 bytes per parameter through a host's memory that
 * the accelerators of its node share (CPUAdam on 8 B200: 8 G parameters in 1.7 s, ml-engineering 2026-08); a node of more than
 * eight, such as the 72 of an NVLink rack, is of several hosts. */
static double offloaded_s(const struct stages *s, double params)
{
    static const double memory_bytes_per_s = 142e9, of_a_host = 8;
    const struct cluster *cluster = s->question->cluster;
    double sharing = fmin(fmin(cluster->group[0].accelerators_per_node, of_a_host), (double)plan_world(s->plan));
    return params * (6 / cluster->accelerator.host_bytes_per_s + 28 * sharing / memory_bytes_per_s);
}

/* Optimizer states cut by whole tensors: each gradient goes to its owner and each weight comes back by an operation of its
 * own, which passes every rank of the ring (InternEvo, HybridZeroOptimizer: reduce and broadcast). */
static double owners_s(const struct stages *s, double layers)
{
    static const double tensors_per_layer = 7; /* four of attention and its norm, gate and up, down; norms */
    const struct span *span = &s->places->dp;
    if (!s->prices->stack->whole_tensors || s->plan->zero == 0 || span->nodes <= 1)
        return 0;
    return 2 * layers * tensors_per_layer * (double)span->ranks * s->question->cluster->group[span->node_group].fabric.ring_hop_s;
}

/* Gradients to the ranks that hold their optimizer states. With all_reduces (Aleph-Alpha/scaling, core/optimizer/allreduce.py):
 * flattened, divided, cast to fp32, summed everywhere, cast back and spread out, 24 bytes of passes per parameter. */
static double sharded_reduce_s(const struct stages *s, double dense, double expert, double gradient)
{
    if (!s->prices->stack->all_reduces || s->plan->zero != 1 || s->dp_ways <= 1)
        return group_collective(s, COLLECTIVE_REDUCE_SCATTER, dense * gradient, expert * gradient);
    return group_collective(s, COLLECTIVE_ALL_REDUCE, 4 * dense, 4 * expert) +
           kernel_pointwise_s(&s->question->cluster->accelerator, 24 * (dense + expert));
}

/* Of gradients, per step. Sharded ones (ZeRO-2) are reduced whenever a rank turns to another chunk or to a forward pass: after
 * every micro-batch; of interleaved chunks after a round of pp; once where all backward passes of a chunk follow each other.
 * FSDP keeps them whole in a pipeline until the last one. */
static double reductions(const struct stages *s)
{
    const struct plan *plan = s->plan;
    double micro_batches = (double)plan_micro_batches(plan);
    if (plan->zero != 2)
        return 1;
    if (plan->pp > 1 && (s->prices->stack->sharded_per_layer || plan->schedule == SCHEDULE_GPIPE || plan->schedule == SCHEDULE_LOOPED_BFS))
        return 1;
    bool rounds = plan->pp > 1 && (plan->schedule == SCHEDULE_INTERLEAVED || plan->schedule == SCHEDULE_INTERLEAVED_ZB);
    return rounds ? ceil(micro_batches / plan->pp) : micro_batches;
}

struct rank_step stages_rank_step(const struct stages *s, int rank, const struct stage_price *sum)
{
    const struct plan *plan = s->plan;
    const struct stack *stack = s->prices->stack;
    const struct accelerator *a = &s->question->cluster->accelerator;
    struct rank_step step = {0};
    double weight = gathered_bytes(s), gradient = memory_gradient_bytes(plan, stack);
    double dense = sum->dense_params - sum->frozen_dense, expert = sum->expert_params - sum->frozen_expert; /* that train */
    double buckets = sum->layers;
    (void)rank;
    if (plan->zero < 3) {
        double reduce, gather = 0;
        if (plan->zero == 0) {
            reduce = group_collective(s, COLLECTIVE_ALL_REDUCE, dense * gradient, expert * gradient);
        } else {
            reduce = sharded_reduce_s(s, dense, expert, gradient);
            double edges = sum->edge_params * (memory_weight_bytes(plan) - weight); /* are gathered as they are */
            gather = group_collective(s, COLLECTIVE_ALL_GATHER, dense * weight + edges, expert * weight);
        }
        double times = reductions(s);
        if (plan->zero == 2 && stack->counted_buffers) /* with the layers */
            reduce = 0;
        double cover = plan->overlap.dp_grad ? (sum->backward_s + sum->wgrad_s) * (double)plan_micro_batches(plan) / times : 0;
        step.dp_exposed_s = (times - 1) * beside_cover(reduce, cover, stack->overlap_slowdown);
        step.gather_exposed_s = once_per_step(gather, plan->overlap.dp_param, sum->forward_s, buckets, stack->overlap_slowdown);
        step.dp_exposed_s += once_per_step(reduce, plan->overlap.dp_grad, sum->backward_s + sum->wgrad_s, buckets, stack->overlap_slowdown) +
                            step.gather_exposed_s + owners_s(s, sum->layers);
    } else { /* the first gather and the last scatter have nothing beside them */
        double layers = fmax(1, sum->layers);
        struct shard_times t = shard_times(s, weight, sum->dense_params / layers, sum->expert_params / layers, dense / layers, expert / layers);
        step.dp_exposed_s = stack->counted_buffers ? 0 : t.gather_s + t.scatter_s; /* nor has any other in planexec */
    }
    double shard = plan->zero >= 1 ? dense / s->dp_ways + expert / s->expert_dp_ways : dense + expert;
    double moved = shard * (30 + 4) + (plan->zero >= 2 ? shard : dense + expert) * gradient;
    if (stack->counted_buffers && plan->precision == PRECISION_FP8) /* planexec casts weights once a step, both ways */
        moved += 4 * (sum->dense_params - sum->edge_params + sum->expert_params);
    step.optimizer_s = kernel_pointwise_s(a, moved * (1 - plan->optimizer_offload)) + offloaded_s(s, shard * plan->optimizer_offload) + (plan->pp > 1 ? 50e-6 : 0);
    return step;
}

bool stages_open_gradients(const struct stages *s)
{
    return s->prices->stack->counted_buffers && s->plan->zero >= 2 && s->plan->pp > 1 && schedule_of(s->plan->schedule)->splits_w;
}

/* planexec's head with sharded gradients or weights, beside what is kept: its own buffers, at zero 3 with its table and the layer
 * that is gathered next; then its table's gradient; then, its buffers gone, that and the shard it is reduced to. */
static double head_bytes(const struct stages *s, double next_bytes)
{
    const struct layer_price *head = &s->prices->head;
    double gathered = s->plan->zero >= 3 ? table_params(s) * memory_weight_bytes(s->plan) : 0, table = 4 * table_params(s);
    double shard = s->n == 1 && s->question->model->tied ? 0 : table / s->dp_ways; /* a table that the embedding adds to as well comes last */
    return fmax(head->working_bytes + gathered, fmax(table, table + shard - head->kept_bytes)) + next_bytes;
}

/* The embedding's come when all that its micro-batch kept is gone, and are scattered before those of the first layer
 * (`layers` bytes). */
static double embedding_bytes(const struct stages *s, double layers)
{
    return 4 * ops_shard_embedding(s->question->model, s->plan) * (1 + 1 / s->dp_ways) + layers - s->stage[0].kept_bytes;
}

/* Of W, in its order: the head's table, then layer by layer what is kept goes and the experts' gradients come. */
static double w_bytes(const struct stages *s, int index)
{
    const struct stage_price *stage = &s->stage[index];
    bool head = index == s->n - 1;
    double layers = fmax(1, stage->layers), experts = 4 * stage->expert_params / layers, gone = head ? s->prices->head.kept_bytes : 0;
    double kept = (stage->kept_bytes - gone) / layers, table = head ? 4 * table_params(s) : 0;
    double first = table - gone + experts, last = table - gone + layers * experts - (layers - 1) * kept;
    double embedding = index == 0 ? embedding_bytes(s, layers * experts) : 0;
    return fmax(fmax(table, embedding), fmax(first, last));
}

static double layer_gradient_bytes(const struct stages *s, const struct stage_price *stage)
{
    double largest = 4 * stage->largest_layer_params;
    return stage->expert_params <= 0 ? largest : s->plan->zero >= 3 ? 0 : fmax(0, largest - stage->working_bytes);
}

struct stage_gradients stages_gradients(const struct stages *s, int index)
{
    const struct stage_price *stage = &s->stage[index];
    double working = stage->working_bytes, bw = layer_gradient_bytes(s, stage);
    if (index == s->n - 1)
        bw = fmax(bw, head_bytes(s, 0) - working);
    if (index == 0)
        bw = fmax(bw, embedding_bytes(s, 4 * stage->largest_layer_params) - working);
    return (struct stage_gradients){.b_bytes = 4 * (stage->dense_params - stage->edge_params), .w_bytes = fmax(0, w_bytes(s, index) - working), .bw_bytes = bw};
}

double stages_rank_memory(const struct stages *s, int rank, const struct stage_price *sum, double kept_bytes, double gradient_bytes, double *ret_bytes)
{
    const struct plan *plan = s->plan;
    const struct model *model = s->question->model;
    bool has_head = stages_rank_of(plan, s->n - 1) == rank || (plan->schedule == SCHEDULE_DUALPIPE && rank == 0);
    if (plan->overlap.ep && plan->pp > 1) /* the overlapped slot holds one more micro-batch of a chunk; without a pipeline one ends as the next begins */
        kept_bytes += sum->kept_bytes / plan->vp;
    if (plan->pp > 1)
        kept_bytes += plan->vocab_parallel == VOCAB_PIPELINE ? 2 * plan->vp * sum->kept_bytes : plan->vocab_parallel == VOCAB_PIPELINE_2 ? plan->vp * sum->kept_bytes :
                      plan->vocab_parallel == VOCAB_INTERLACED ? 0.5 * kept_bytes : 0; /* each barrier once per chunk */
    struct rank_load load = {.dense_params = sum->dense_params, .expert_params = sum->expert_params,
                             .frozen_dense = sum->frozen_dense, .frozen_expert = sum->frozen_expert,
                             .largest_layer_params = sum->largest_layer_params, .shape_params = sum->shape_params, .edge_params = sum->edge_params, .dp_ways = s->dp_ways,
                             .expert_dp_ways = s->expert_dp_ways, .kept_bytes = kept_bytes, .working_bytes = sum->working_bytes,
                             .p2p_bytes = plan->pp > 1 ? 2 * s->places->p2p_bytes : 0, .communicators = s->places->communicators, .layers = sum->layers, .copies = 1};
    bool spread = plan->vocab_parallel != VOCAB_EDGES && plan->pp > 1;
    load.prefetches = plan->overlap.dp_param && sum->layers > plan->vp; /* more than one layer in a chunk */
    load.splits_w = plan->pp > 1 && schedule_of(plan->schedule)->splits_w;
    load.open_gradient_bytes = gradient_bytes;
    load.layer_bytes = sum->layer_bytes;
    if (s->prices->stack->counted_buffers && plan->zero >= 2 && !load.splits_w) {
        if (has_head)
            load.edge_bytes = head_bytes(s, plan->zero >= 3 && load.prefetches ? sum->largest_layer_params * memory_weight_bytes(plan) : 0);
        if (rank == 0)
            load.edge_bytes = fmax(load.edge_bytes, embedding_bytes(s, 4 * s->stage[0].largest_layer_params));
        load.open_gradient_bytes = s->n == 1 && model->tied ? 4 * table_params(s) : 0;
    }
    if ((has_head || spread) && !s->prices->stack->counted_buffers) /* else among the activations */
        load.logits = (spread ? 1.0 / plan->pp : 1) * (double)plan->micro_batch * (double)plan->seq_len / plan->cp * ops_vocab_per_rank(model, plan) * (1 + (double)model->mtp_modules);
    return memory_rank(plan, s->prices->stack, &s->question->cluster->accelerator, &load, ret_bytes);
}
