/* One layout: all its chunkings, schedules, ZeRO stages and recompute choices by
 * closed form.
 *
 * step >= M * mean busy time of the ranks, whatever the schedule: the bound (a
 * schedule with overlapped slots hides expert all-to-all beside compute, or compute
 * beside all-to-all, and no more).
 * Estimate: M u_max + (T(u_max) - M u_max) * mean/max, T the schedule's closed form
 * for equal stages (schedules.md section 4), u = F+B+W of a rank for one micro-batch
 * or, with overlapped slots, the slot (of DualPipe's two modules each sees half of
 * the micro-batches). Where that may flatter: search_refine.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/unit.h"
#include "sim/search_internal.h"
#include "sim/writers/export.h"

void choice_list_push(struct choice_list *list, const struct search_choice *choice)
{
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->item = realloc(list->item, (size_t)list->room * sizeof *list->item);
        if (!list->item)
            abort();
    }
    list->item[list->n++] = *choice;
}

/* No worse in both, and better in one by more than the engine's price may turn: so the order of arrival does not matter.
 * Only within a schedule: by closed form V-Min and V-Half take as little as half of the engine's time, and would hide others. */
static bool beats(const struct search_choice *a, const struct search_choice *b)
{
    if (a->schedule != b->schedule || a->time_s > b->time_s || a->bytes > b->bytes)
        return false;
    bool clearly = a->time_s * (1 + search_estimate_margin) < b->time_s || a->bytes * (1 + search_estimate_margin) < b->bytes;
    bool twins = a->time_s >= b->time_s && a->bytes >= b->bytes;
    return clearly || (twins && search_choice_compare(a, b, OBJECTIVE_TIME) <= 0);
}

void choice_list_push_front(struct choice_list *list, const struct search_choice *choice)
{
    for (int i = 0; i < list->n; i++)
        if (beats(&list->item[i], choice))
            return;
    int kept = 0;
    for (int i = 0; i < list->n; i++)
        if (!beats(choice, &list->item[i]))
            list->item[kept++] = list->item[i];
    list->n = kept;
    choice_list_push(list, choice);
}

void search_count_rejected(struct search_counts *counts, int reason, const struct search_choice *choice)
{
    counts->candidates++;
    counts->rejected[reason]++;
    if (!counts->has_example[reason] || search_choice_compare(choice, &counts->example[reason], OBJECTIVE_TIME) < 0) {
        counts->has_example[reason] = true;
        counts->example[reason] = *choice;
    }
}

#define COMPARE_FIELD(x, y)                 \
    do {                                    \
        if ((x) != (y))                     \
            return (x) < (y) ? -1 : 1;      \
    } while (0)

int search_choice_compare(const struct search_choice *a, const struct search_choice *b, enum search_objective objective)
{
    if (objective == OBJECTIVE_MEMORY)
        COMPARE_FIELD(a->bytes, b->bytes);
    COMPARE_FIELD(a->time_s, b->time_s);
    COMPARE_FIELD(a->zero, b->zero); /* the simpler of two equals */
    COMPARE_FIELD(a->bytes, b->bytes);
    const struct search_unit *u = &a->unit, *v = &b->unit;
    COMPARE_FIELD(u->tp, v->tp);
    COMPARE_FIELD(u->cp, v->cp);
    COMPARE_FIELD(u->pp, v->pp);
    COMPARE_FIELD(u->ep, v->ep);
    COMPARE_FIELD(u->etp, v->etp);
    COMPARE_FIELD(u->micro_batch, v->micro_batch);
    COMPARE_FIELD(v->sequence_parallel, u->sequence_parallel);
    COMPARE_FIELD(u->order, v->order);
    COMPARE_FIELD(v->overlap_ep, u->overlap_ep);
    COMPARE_FIELD(u->ulysses, v->ulysses);
    COMPARE_FIELD(a->vp, b->vp);
    COMPARE_FIELD(a->zero, b->zero);
    COMPARE_FIELD((int)a->schedule, (int)b->schedule);
    COMPARE_FIELD(a->balanced, b->balanced);
    COMPARE_FIELD((int)a->recompute, (int)b->recompute);
    COMPARE_FIELD(a->recompute_layers, b->recompute_layers);
    return 0;
}

static double layer_ep_seconds(const struct layer_price *p)
{
    double t = 0;
    for (int i = 0; i < PHASES; i++)
        t += p->ep_s[i];
    return t;
}

static double layer_seconds(const struct layer_price *p)
{
    double t = layer_ep_seconds(p);
    for (int i = 0; i < PHASES; i++)
        t += p->compute_s[i] + p->tp_s[i] + p->cp_s[i];
    return t;
}

/* Embedding and head in layers, for the balanced split. */
static void edge_weights(const struct model *model, const struct layer_prices *prices, double *ret_first, double *ret_last)
{
    double layers = 0;
    for (int kind = 0; kind < model->n_kinds; kind++)
        layers += layer_seconds(&prices->kind[kind]) * (double)model->kinds[kind].layers;
    double mean = layers / (double)model->layers;
    *ret_first = layer_seconds(&prices->embedding) / mean;
    *ret_last = (layer_seconds(&prices->head) + (double)model->mtp_modules * layer_seconds(&prices->mtp)) / mean;
}

static void unit_plan(const struct search_options *options, const struct search_unit *u, struct plan *p)
{
    size_t head = offsetof(struct plan, layers_per_stage); /* the long list is set apart */
    memcpy(p, &options->base, head);
    p->tp = u->tp, p->cp = u->cp, p->pp = u->pp, p->dp = u->dp, p->ep = u->ep, p->etp = u->etp;
    p->micro_batch = u->micro_batch, p->sequence_parallel = u->sequence_parallel;
    p->vp = 1, p->n_layers_per_stage = 0;
    p->overlap.ep = u->overlap_ep;
    p->context_parallel = u->ulysses ? CP_ULYSSES : CP_RING;
    memcpy(p->rank_order, search_orders[u->order], sizeof p->rank_order);
}

/* Deals the layers; false = this split is no use here. */
static bool set_split(const struct model *model, const struct layer_prices *prices, struct plan *p, bool balanced)
{
    int chunks = p->pp * p->vp;
    if (chunks > PLAN_CHUNKS_MAX)
        return false;
    p->n_layers_per_stage = 0;
    bool divides = model->layers % chunks == 0;
    if (!balanced)
        return divides;
    double first, last;
    if (p->pp == 1)
        return false;
    edge_weights(model, prices, &first, &last);
    if (!search_balanced_split((int)model->layers, chunks, first, last, p->layers_per_stage))
        return false;
    bool even = true;
    for (int i = 0; i < chunks && even; i++)
        even = p->layers_per_stage[i] == p->layers_per_stage[0];
    if (even)
        return false; /* the even split, again */
    p->n_layers_per_stage = chunks;
    return true;
}

void search_choice_plan(const struct question *question, const struct search_options *options, const struct search_choice *choice,
                        const struct layer_prices *prices, struct plan *ret)
{
    *ret = options->base;
    unit_plan(options, &choice->unit, ret);
    ret->vp = choice->vp;
    ret->zero = choice->zero;
    ret->schedule = choice->schedule;
    ret->recompute = choice->recompute;
    ret->recompute_layers = choice->recompute == RECOMPUTE_FULL ? choice->recompute_layers : -1;
    if (prices)
        set_split(question->model, prices, ret, choice->balanced);
}

static void make_prices(struct search_worker *w)
{
    if (w->prices.stack && layer_prices_same(&w->prices, &w->plan))
        return;
    layer_prices_fill(&w->prices, w->question, &w->plan, question_stack(w->question, w->plan.stack));
}

/* Does some schedule that may be tried keep one table for embedding and tied head? */
static bool may_share_table(const struct search_worker *w)
{
    struct plan plan = w->plan;
    for (int s = 0; s < SCHEDULES; s++) {
        plan.schedule = (enum plan_schedule)s;
        if (w->options->schedules & 1u << s && stages_ends_share(&plan))
            return true;
    }
    return false;
}

/* What the mean rank holds at least: its states under the most ZeRO that may be
 * tried, one micro-batch fully recomputed, nothing temporary. Some rank holds more. */
static double least_bytes(struct search_worker *w)
{
    const struct model *model = w->question->model;
    const struct search_fix *fix = &w->options->fix;
    struct plan *p = &w->plan;
    struct rank_load load = {.copies = 1, .dp_ways = (double)p->dp * p->cp};
    struct layer_shard shard;
    bool offloads = p->offload_layers > 0 || p->offload_modules; /* what is kept may wait on the host */
    for (int kind = 0; kind < model->n_kinds; kind++) {
        double n = (double)model->kinds[kind].layers / p->pp;
        ops_shard_layer(model, p, kind, &shard);
        load.dense_params += n * shard.dense;
        load.expert_params += n * shard.expert;
        load.kept_bytes += offloads ? 0 : n * w->prices.kind[kind].kept_full_bytes;
    }
    load.dense_params += (ops_shard_embedding(model, p) + (model->tied && may_share_table(w) ? 0 : ops_shard_head(model, p))) / p->pp;
    if (p->lora_rank > 0) { /* adapters come on top */
        load.frozen_dense = load.dense_params;
        load.frozen_expert = load.expert_params;
    }
    load.expert_dp_ways = fmax(1, (double)p->tp * p->cp * p->dp / ((double)p->ep * p->etp));
    double bytes[MEMORY_PARTS];
    p->zero = fix->zero >= 0 ? fix->zero : p->pp == 1 || w->prices.stack->sharded_per_layer ? 3 : 1;
    return memory_rank(p, w->prices.stack, &w->question->cluster->accelerator, &load, bytes);
}

/* Can a schedule with overlapped slots run here, and hide expert all-to-all? */
static bool may_overlap_slots(const struct search_options *options, const struct search_unit *u)
{
    if (u->pp == 1 || u->ep == 1 || u->overlap_ep)
        return false;
    for (int s = 0; s < SCHEDULES; s++)
        if (options->schedules & 1u << s && schedule_of(s)->overlaps)
            return true;
    return false;
}

void search_unit_bound(struct search_worker *w, struct search_unit *u)
{
    const struct model *model = w->question->model;
    unit_plan(w->options, u, &w->plan);
    make_prices(w);
    double total = layer_seconds(&w->prices.embedding) + layer_seconds(&w->prices.head) + (double)model->mtp_modules * layer_seconds(&w->prices.mtp);
    double total_ep = (double)model->mtp_modules * layer_ep_seconds(&w->prices.mtp);
    for (int kind = 0; kind < model->n_kinds; kind++) {
        total += layer_seconds(&w->prices.kind[kind]) * (double)model->kinds[kind].layers;
        total_ep += layer_ep_seconds(&w->prices.kind[kind]) * (double)model->kinds[kind].layers;
    }
    double micro_batches = (double)(w->options->base.global_batch / u->dp / u->micro_batch);
    if (may_overlap_slots(w->options, u))
        total = fmax(total - total_ep, total_ep);
    u->bound_s = total / u->pp * micro_batches * (1 - 1e-9);
    u->hopeless = least_bytes(w) > w->question->memory_limit_bytes;
}

/* The share of the micro-batches that each of a rank's modules sees. */
static double module_share(const struct search_worker *w)
{
    return schedule_of(w->plan.schedule)->placement == PLACEMENT_BIDIR ? 0.5 : 1;
}

static void look_at_ranks(struct search_worker *w, struct chunking *c)
{
    int pp = w->plan.pp, most_params = 0, most_kept = 0;
    double sum = 0, share = module_share(w);
    c->max_busy_s = -1;
    c->slowest = 0;
    for (int r = 0; r < pp; r++) {
        if (stages_rank_same(&w->stages, r))
            w->sum[r] = w->sum[r - 1];
        else
            stages_sum_rank(&w->stages, r, &w->sum[r]);
        double busy = (w->sum[r].forward_s + w->sum[r].backward_s + w->sum[r].wgrad_s) * share;
        sum += busy;
        if (busy > c->max_busy_s) {
            c->max_busy_s = busy;
            c->slowest = r;
        }
        if (w->sum[r].dense_params + w->sum[r].expert_params > w->sum[most_params].dense_params + w->sum[most_params].expert_params)
            most_params = r;
        if (w->sum[r].kept_bytes > w->sum[most_kept].kept_bytes)
            most_kept = r;
    }
    c->mean_busy_s = sum / pp;
    const int wanted[] = {0, pp - 1, 1, pp - 2, most_params, most_kept};
    c->n_probes = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool known = wanted[i] < 0 || wanted[i] >= pp;
        for (int j = 0; j < c->n_probes; j++)
            known |= c->probe[j] == wanted[i];
        if (!known)
            c->probe[c->n_probes++] = wanted[i];
    }
}

/* Stages and their sums by rank, again only when the plan's ZeRO stage or placement asks for it. */
static void fill_chunking(struct search_worker *w)
{
    struct chunking *c = &w->chunking;
    bool sharded = w->plan.zero >= 3;
    enum placement placement = schedule_of(w->plan.schedule)->placement;
    if (c->valid && c->sharded == sharded && c->placement == placement)
        return;
    stages_fill(&w->stages, w->question, &w->plan, &w->prices, &w->places, w->stage);
    look_at_ranks(w, c);
    memset(c->known, 0, sizeof c->known);
    c->valid = true;
    c->sharded = sharded;
    c->placement = placement;
}

/* An overlapped slot of the engine (SLOT_COMM): compute of one half beside communication of the other. */
static double slot_of(const struct stage_price *s, double share)
{
    double forward = s->forward_s * share, backward = (s->backward_s + s->wgrad_s) * share;
    double comm = (s->forward_ep_s + s->backward_ep_s) * share, compute = forward + backward - comm;
    return fmax(fmax(forward, backward), fmax(compute, comm));
}

static double pipeline_estimate(const struct search_worker *w, const struct chunking *c, enum plan_schedule schedule)
{
    const struct plan *p = &w->plan;
    const struct stage_price *s = &w->sum[c->slowest];
    double micro_batches = (double)plan_micro_batches(p), share = module_share(w);
    if (p->pp == 1)
        return micro_batches * c->max_busy_s;
    struct schedule_times times = {.forward_s = s->forward_s * share, .backward_s = s->backward_s * share, .wgrad_s = s->wgrad_s * share,
                                   .slot_s = slot_of(s, share), .comm_s = w->places.p2p_s};
    int counted = micro_batches > 1 << 20 ? 1 << 20 : (int)micro_batches;
    double equal = schedule_makespan_s(schedule, p->pp, p->vp, counted, &times, NULL);
    double pace = schedule_of(schedule)->overlaps ? fmin(times.slot_s, c->max_busy_s) : c->max_busy_s; /* of the slowest rank */
    return micro_batches * pace + fmax(0, equal - counted * pace) * c->mean_busy_s / c->max_busy_s;
}

/* Per ZeRO stage: step work, and memory, which is linear in the bytes in flight (cost/memory.h). */
static void fill_zero(struct search_worker *w)
{
    struct chunking *c = &w->chunking;
    int zero = w->plan.zero;
    double bytes[MEMORY_PARTS], worst = 0;
    if (c->known[zero])
        return;
    c->known[zero] = true;
    for (int i = 0; i < c->n_probes; i++) {
        int r = c->probe[i];
        c->still_bytes[zero][i] = stages_rank_memory(&w->stages, r, &w->sum[r], 0, 0, bytes);
        struct rank_step step = stages_rank_step(&w->stages, r, &w->sum[r]);
        worst = fmax(worst, step.dp_exposed_s + step.optimizer_s);
    }
    double probe = stages_rank_memory(&w->stages, c->probe[0], &w->sum[c->probe[0]], UNIT_GIB, 0, bytes);
    c->per_byte[zero] = (probe - c->still_bytes[zero][0]) / UNIT_GIB;
    const struct stack *stack = w->prices.stack;
    c->step_s[zero] = worst + stack->step_overhead_s + (double)plan_micro_batches(&w->plan) * w->plan.vp * stack->micro_batch_overhead_s;
}

void search_fill(struct search_worker *w)
{
    w->chunking.valid = false;
    fill_chunking(w);
    fill_zero(w);
}

static double memory_estimate(struct search_worker *w, enum plan_schedule schedule)
{
    const struct plan *p = &w->plan;
    const struct chunking *c = &w->chunking;
    double worst = 0;
    int64_t micro_batches = plan_micro_batches(p);
    int counted = micro_batches > 1 << 20 ? 1 << 20 : (int)micro_batches;
    for (int i = 0; i < c->n_probes; i++) {
        int r = c->probe[i];
        double in_flight = p->pp == 1 ? 1 : schedule_in_flight(schedule, p->pp, p->vp, counted, 0, r);
        double kept = w->sum[r].kept_bytes * in_flight / p->vp * module_share(w);
        worst = fmax(worst, c->still_bytes[p->zero][i] + kept * c->per_byte[p->zero]);
    }
    return worst;
}

static bool framework_launches(const struct search_worker *w)
{
    static const struct model_words plain = {.activation = ""};
    const struct model_words *words = w->options->words ? w->options->words : &plain;
    const struct export_request request = {.plan = &w->plan, .model = w->question->model, .words = words};
    char *text = NULL;
    bool good = export_plan((enum export_target)w->options->launch, &request, &text, NULL, NULL) == 0;
    free(text);
    return good;
}

/* Of the worker's plan. Which layers and how many chunks beyond two make no difference. */
static bool launches(struct search_worker *w)
{
    const struct plan *p = &w->plan;
    if (w->options->launch < 0)
        return true;
    int recompute = p->recompute == RECOMPUTE_FULL && p->recompute_layers >= 0 ? LAUNCH_RECOMPUTES - 1 : (int)p->recompute;
    int chunks = p->vp < LAUNCH_CHUNKS ? p->vp - 1 : LAUNCH_CHUNKS - 1;
    int8_t *verdict = &w->launch.verdict[p->schedule][p->zero][recompute][chunks][p->n_layers_per_stage > 0];
    if (*verdict == 0)
        *verdict = framework_launches(w) ? 1 : -1;
    return *verdict > 0;
}

/* Memory by closed form may be too low by this. */
static const double memory_margin = 0.05;

static void consider(struct search_worker *w, struct search_choice *choice, struct search_family *family)
{
    double limit = w->question->memory_limit_bytes;
    w->counts.evaluated++;
    if (choice->bytes > limit) {
        search_count_rejected(&w->counts, REASON_MEMORY, choice);
        double excess = choice->bytes - limit;
        if ((!w->has_nearest || excess < w->nearest_excess) && launches(w)) {
            w->has_nearest = true;
            w->nearest_excess = excess;
            w->nearest = *choice;
        }
        return;
    }
    bool better = search_is_better(w, choice, &family->best);
    bool roomier = choice->bytes * (1 + memory_margin) <= limit && search_is_better(w, choice, &family->roomy);
    if ((w->options->pareto || better || roomier) && !launches(w)) {
        search_count_rejected(&w->counts, REASON_LAUNCH, choice);
        return;
    }
    w->counts.candidates++;
    w->counts.feasible++;
    if (w->options->pareto) {
        choice_list_push_front(&w->found, choice);
        return;
    }
    if (better)
        family->best = *choice;
    if (roomier)
        family->roomy = *choice;
}

/* ZeRO stages worth a look: with one copy of the states they are all the same, and
 * beside a pipeline Megatron's distributed optimizer is ZeRO-1 (gradients that are
 * sharded would have to be reduced for every micro-batch). ZeRO-0 moves the bytes of
 * ZeRO-1 and holds more: only when it is asked for. */
static int zero_stages(const struct search_worker *w, int *ret)
{
    const struct search_fix *fix = &w->options->fix;
    int n = 0;
    bool alone = w->plan.dp * w->plan.cp == 1 && w->plan.ep * w->plan.etp == w->plan.tp;
    bool more = w->plan.pp == 1 || w->prices.stack->sharded_per_layer;
    for (int zero = 0; zero <= 3; zero++)
        if (fix->zero >= 0 ? zero == fix->zero : zero == 1 || (zero > 1 && !alone && more))
            ret[n++] = zero;
    return n;
}

static int first_rule(uint32_t broken)
{
    int rule = 0;
    while (!(broken & 1u << rule))
        rule++;
    return rule;
}

/* The working set of a recomputed layer, which lighter recompute does not need. */
static double layer_kept_bytes(const struct search_worker *w)
{
    double most = 0;
    for (int kind = 0; kind < w->question->model->n_kinds; kind++)
        most = fmax(most, w->prices.kind[kind].kept_bytes);
    return most;
}

/* Whether no other recompute step of this schedule and ZeRO stage can matter: less
 * work would not fit either, or what was just tried fits and the others take longer. */
static bool settles(const struct search_worker *w, const struct search_choice *choice)
{
    double limit = w->question->memory_limit_bytes;
    if (choice->bytes > limit)
        return !w->options->exhaustive && choice->recompute == RECOMPUTE_FULL && choice->recompute_layers < 0 &&
               choice->bytes - 1.01 * layer_kept_bytes(w) > limit;
    return choice->recompute == RECOMPUTE_NONE && !search_weighs_memory(w->options);
}

/* The ZeRO stages of one schedule but the settled ones; keeps the best of the family.
 * others: recompute steps still to come. */
static void run_schedule(struct search_worker *w, struct search_choice *choice, struct search_family *family, uint8_t *settled, int others)
{
    struct plan *p = &w->plan;
    int zero[4], n = zero_stages(w, zero);
    for (int i = 0; i < n; i++) {
        p->zero = choice->zero = zero[i];
        p->schedule = choice->schedule;
        if (*settled & 1u << p->zero)
            continue;
        uint32_t broken = plan_broken_rules(p, w->question->model, w->question->cluster);
        if (broken) {
            search_count_rejected(&w->counts, first_rule(broken), choice);
            continue;
        }
        fill_chunking(w);
        fill_zero(w);
        choice->time_s = pipeline_estimate(w, &w->chunking, choice->schedule) + w->chunking.step_s[p->zero];
        choice->bytes = memory_estimate(w, choice->schedule);
        consider(w, choice, family);
        if (!settles(w, choice))
            continue;
        *settled |= (uint8_t)(1u << p->zero);
        if (choice->bytes > w->question->memory_limit_bytes) {
            w->counts.candidates += others;
            w->counts.rejected[REASON_MEMORY] += others;
        }
    }
}

enum { RECOMPUTE_STEPS = 8 };
struct recompute_step {
    enum recompute kind;
    int layers;
};

/* From nothing to everything: each later one takes more time and less memory. */
static int recompute_steps(const struct search_worker *w, struct recompute_step ret[RECOMPUTE_STEPS])
{
    const struct search_fix *fix = &w->options->fix;
    int chunks = w->plan.pp * w->plan.vp, most = (int)((w->question->model->layers + chunks - 1) / chunks), n = 0;
    const struct recompute_step all[] = {{RECOMPUTE_NONE, -1},          {RECOMPUTE_SELECTIVE, -1},      {RECOMPUTE_FULL, 1},
                                         {RECOMPUTE_FULL, most / 8},    {RECOMPUTE_FULL, most / 4},     {RECOMPUTE_FULL, most / 2},
                                         {RECOMPUTE_FULL, most * 3 / 4}, {RECOMPUTE_FULL, -1}};
    int before = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct recompute_step step = all[i];
        if (fix->recompute >= 0 && (int)step.kind != fix->recompute)
            continue;
        if (step.kind == RECOMPUTE_FULL && fix->recompute_layers >= 0) {
            step.layers = fix->recompute_layers;
            ret[n++] = step;
            break;
        }
        if (step.kind == RECOMPUTE_FULL && step.layers >= 0) {
            if (step.layers <= before || step.layers >= most)
                continue;
            before = step.layers;
        }
        ret[n++] = step;
    }
    return n;
}

/* Chunks per rank that a schedule can have here. */
static bool vp_fits(const struct schedule *schedule, const struct plan *p, const struct model *model, int vp)
{
    if (vp < schedule->vp_min || vp > schedule->vp_max)
        return false;
    return vp == 1 || (p->pp > 1 && (int64_t)p->pp * vp <= model->layers + 2);
}

/* More chunks are worth a look when the largest of them gets smaller, or when they divide the layers. */
static bool vp_differs(const struct model *model, int pp, int vp)
{
    int64_t chunks = (int64_t)pp * vp, fewer = (int64_t)pp * (vp - 1);
    return vp <= 2 || model->layers % chunks == 0 || (model->layers + chunks - 1) / chunks < (model->layers + fewer - 1) / fewer;
}

static void run_recompute(struct search_worker *w, const struct search_choice *chunking, struct recompute_step step, int others,
                          uint32_t schedules, struct search_family (*family)[SEARCH_VP_MAX + 1], uint8_t *settled)
{
    w->plan.recompute = step.kind;
    w->plan.recompute_layers = step.layers;
    w->chunking.valid = false;
    for (int s = 0; s < SCHEDULES; s++) {
        if (!(schedules & 1u << s))
            continue;
        struct search_choice choice = *chunking;
        choice.schedule = s;
        choice.recompute = step.kind;
        choice.recompute_layers = step.layers;
        run_schedule(w, &choice, &family[s][choice.vp <= SEARCH_VP_MAX ? choice.vp : 0], &settled[s], others);
    }
}

/* Full recompute is tried first: where even that does not fit, nothing does. */
static void run_chunking(struct search_worker *w, const struct search_unit *u, int vp, uint32_t schedules, struct search_family (*family)[SEARCH_VP_MAX + 1])
{
    struct recompute_step steps[RECOMPUTE_STEPS];
    for (int balanced = 0; balanced < 2; balanced++) {
        w->plan.vp = vp;
        if (!set_split(w->question->model, &w->prices, &w->plan, balanced))
            continue;
        struct search_choice chunking = {.unit = *u, .vp = vp, .balanced = balanced};
        uint8_t settled[SCHEDULES] = {0}; /* ZeRO stages, by schedule */
        int n = recompute_steps(w, steps);
        for (int i = 0; i < n; i++)
            run_recompute(w, &chunking, steps[i == 0 ? n - 1 : i - 1], n - 1 - i, schedules, family, settled);
    }
}

/* Megatron's expert-parallel overlap runs one micro-batch's all-to-all beside
 * another's compute: with virtual pipeline chunks, or without a pipeline. DualPipe
 * does it in its own overlapped slots (sim/pipeline.c). */
static bool overlaps_experts(enum plan_schedule schedule, bool alone)
{
    return alone || schedule == SCHEDULE_INTERLEAVED;
}

/* The fastest of each schedule. Those with other numbers of chunks, and those with memory to spare, wait among the others. */
static void publish(struct search_worker *w, struct search_family (*family)[SEARCH_VP_MAX + 1])
{
    for (int s = 0; s < SCHEDULES; s++) {
        const struct search_family *first = search_fastest(w, family[s]);
        if (!first || first->best.time_s > w->useful_s)
            continue;
        choice_list_push(&w->found, &first->best);
        for (int vp = 0; vp <= SEARCH_VP_MAX; vp++) {
            const struct search_choice *best = &family[s][vp].best, *roomy = &family[s][vp].roomy;
            if (best != &first->best && best->time_s >= 0 && best->time_s <= w->useful_s)
                choice_list_push(&w->others, best);
            if (roomy->time_s >= 0 && roomy->time_s <= w->useful_s && roomy->bytes < best->bytes)
                choice_list_push(&w->others, roomy);
        }
    }
}

void search_unit_run(struct search_worker *w, const struct search_unit *u)
{
    const struct model *model = w->question->model;
    unit_plan(w->options, u, &w->plan);
    make_prices(w);
    stages_place(w->question, &w->plan, &w->places);
    w->launch = (struct launch_memo){{{{{{0}}}}}};
    struct search_family family[SCHEDULES][SEARCH_VP_MAX + 1];
    for (int s = 0; s < SCHEDULES; s++)
        for (int vp = 0; vp <= SEARCH_VP_MAX; vp++)
            family[s][vp].best.time_s = family[s][vp].roomy.time_s = -1;
    int pinned = w->options->fix.vp;
    for (int vp = pinned > 0 ? pinned : 1; vp <= (pinned > 0 ? pinned : SEARCH_VP_MAX); vp++) {
        if (pinned == 0 && !vp_differs(model, u->pp, vp))
            continue;
        uint32_t schedules = 0;
        for (int s = 0; s < SCHEDULES; s++) {
            bool alone = u->pp == 1; /* one stage: every schedule is the same */
            if (alone ? s != SCHEDULE_1F1B : !(w->options->schedules & 1u << s))
                continue;
            bool chosen = (w->options->fix.overlap_ep >= 0 || w->options->launch >= 0) && !u->overlap_ep; /* to go without is always possible */
            if (u->ep > 1 && !chosen && u->overlap_ep != overlaps_experts(s, alone))
                continue;
            if (vp_fits(schedule_of(s), &w->plan, model, vp))
                schedules |= 1u << s;
        }
        if (schedules)
            run_chunking(w, u, vp, schedules, family);
    }
    if (!search_weighs_memory(w->options))
        search_refine(w, family);
    publish(w, family);
}
