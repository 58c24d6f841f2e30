/* The space of layouts, and how the layers of an uneven split are dealt.
 *
 * tp: divisors of the attention heads and the world (beyond the NVLink domain too:
 * slow, priced, not forbidden); cp: where each rank keeps at least 1,024 tokens, as a
 * ring and as Ulysses all-to-alls;
 * pp: divisors of the world up to the layers; ep: divisors of the experts; etp: 1
 * or tp; micro-batch: divisors of the batch per replica up to 64; rank order:
 * pipeline outermost, or data parallelism outermost. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "sim/search_internal.h"

const enum axis search_orders[2][AXES] = {{AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP}, {AXIS_TP, AXIS_CP, AXIS_EP, AXIS_PP, AXIS_DP}};

enum { MIN_TOKENS_PER_CP_RANK = 1024, MICRO_BATCH_MAX = 64 };

static bool free_or(int fixed, int value)
{
    return fixed == 0 || fixed == value;
}

bool search_balanced_split(int layers, int chunks, double first, double last, uint16_t *ret_layers)
{
    if (chunks < 2 || layers < chunks - 2)
        return false;
    double least = (double)layers / chunks;
    for (int step = 0; step < 3 * (layers + 1); step++) { /* the limits at which some chunk gains a layer, ascending */
        double whole = floor(least) + step / 3;
        double limit = step % 3 == 0 ? whole : step % 3 == 1 ? whole + (first - floor(first)) : whole + (last - floor(last));
        int middle = (int)floor(limit + 1e-9), a = (int)fmax(0, floor(limit - first + 1e-9)), b = (int)fmax(0, floor(limit - last + 1e-9));
        if (middle < 1 || middle > UINT16_MAX)
            continue;
        int64_t room = (int64_t)middle * (chunks - 2) + a + b;
        if (room < layers)
            continue;
        for (int i = 0; i < chunks; i++)
            ret_layers[i] = (uint16_t)(i == 0 ? a : i == chunks - 1 ? b : middle);
        int64_t surplus = room - layers;
        int take_at = 0; /* from the first chunk on: it holds the most activations */
        while (surplus > 0 && take_at < chunks) {
            int least_here = take_at == 0 || take_at == chunks - 1 ? 0 : 1;
            if (ret_layers[take_at] > least_here) {
                ret_layers[take_at]--;
                surplus--;
            }
            take_at++;
            if (take_at == chunks && surplus > 0)
                take_at = 0;
        }
        return surplus == 0;
    }
    return false;
}

struct space {
    const struct question *question;
    const struct search_options *options;
    struct search_unit *unit;
    int n, room;
    struct search_counts *counts;
    struct plan plan; /* scratch for the rules */
};

static void reject(struct space *s, int reason, const struct search_unit *u)
{
    struct search_choice choice = {.unit = *u, .vp = 1, .schedule = SCHEDULE_1F1B};
    search_count_rejected(s->counts, reason, &choice);
}

static void push(struct space *s, const struct search_unit *u)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->unit = realloc(s->unit, (size_t)s->room * sizeof *s->unit);
        if (!s->unit)
            abort();
    }
    s->unit[s->n++] = *u;
}

/* The rules that hold whatever the pipeline does; split and batch rules come later. */
static int unit_rule(struct space *s, const struct search_unit *u)
{
    struct plan *p = &s->plan;
    p->tp = u->tp, p->cp = u->cp, p->pp = u->pp, p->dp = u->dp, p->ep = u->ep, p->etp = u->etp;
    p->micro_batch = u->micro_batch, p->sequence_parallel = u->sequence_parallel;
    p->context_parallel = u->ulysses ? CP_ULYSSES : CP_RING;
    p->vp = 1, p->zero = 0, p->recompute = RECOMPUTE_NONE, p->n_layers_per_stage = 0, p->schedule = SCHEDULE_1F1B;
    memcpy(p->rank_order, search_orders[u->order], sizeof p->rank_order);
    uint32_t later = 1u << RULE_LAYERS_SPLIT | 1u << RULE_MICRO_BATCHES_PP | 1u << RULE_SCHEDULE | 1u << RULE_ZERO_PP;
    uint32_t broken = plan_broken_rules(p, s->question->model, s->question->cluster) & ~later;
    for (int rule = 0; broken && rule < RULES; rule++)
        if (broken & 1u << rule)
            return rule;
    return -1;
}

/* With experts: both with and without the all-to-all beside another micro-batch's
 * compute; which schedules can do that is decided later. */
static void overlaps(struct space *s, struct search_unit *u)
{
    int pinned = s->options->fix.overlap_ep;
    for (int overlap = 0; overlap < 2; overlap++) {
        if (pinned >= 0 ? overlap != pinned : overlap > 0 && u->ep == 1)
            continue;
        u->overlap_ep = overlap;
        push(s, u);
    }
    u->overlap_ep = false;
}

static void batches(struct space *s, struct search_unit *u)
{
    int64_t per_replica = s->options->base.global_batch / u->dp;
    const struct search_fix *fix = &s->options->fix;
    for (int mbs = 1; mbs <= per_replica && mbs <= MICRO_BATCH_MAX; mbs++) {
        if (per_replica % mbs != 0 || !free_or(fix->micro_batch, mbs))
            continue;
        for (int sp = 1; sp >= 0; sp--) {
            u->micro_batch = mbs;
            u->sequence_parallel = sp;
            if ((sp && u->tp == 1) || (fix->sequence_parallel >= 0 && fix->sequence_parallel != sp))
                continue;
            for (int ulysses = 0; ulysses < 2; ulysses++) {
                if (fix->context_parallel >= 0 ? ulysses != (fix->context_parallel == CP_ULYSSES) : ulysses > 0 && u->cp == 1)
                    continue;
                u->ulysses = ulysses;
                int rule = unit_rule(s, u);
                if (rule >= 0)
                    reject(s, rule, u);
                else
                    overlaps(s, u);
            }
            u->ulysses = false;
        }
    }
}

static void experts(struct space *s, struct search_unit *u)
{
    const struct model *model = s->question->model;
    const struct search_fix *fix = &s->options->fix;
    int64_t most = model->experts > 0 ? model->experts : 1;
    for (int ep = 1; ep <= most; ep++) {
        if (most % ep != 0 || !free_or(fix->ep, ep))
            continue;
        for (int i = 0; i < 2; i++) {
            u->ep = ep;
            u->etp = i == 0 ? 1 : u->tp;
            if ((i == 1 && (u->tp == 1 || model->experts == 0)) || !free_or(fix->etp, u->etp))
                continue;
            if ((int64_t)u->tp * u->cp * u->dp % ((int64_t)ep * u->etp) != 0)
                reject(s, RULE_EP_WORLD, u);
            else
                batches(s, u);
        }
    }
}

static void replicas(struct space *s, struct search_unit *u, int64_t rest)
{
    const struct search_fix *fix = &s->options->fix;
    const struct model *model = s->question->model;
    for (int pp = 1; pp <= rest; pp++) {
        if (rest % pp != 0 || !free_or(fix->pp, pp) || !free_or(fix->dp, (int)(rest / pp)))
            continue;
        u->pp = pp;
        u->dp = (int)(rest / pp);
        u->ep = u->etp = u->micro_batch = 1;
        u->sequence_parallel = u->tp > 1;
        if (pp > model->layers + 2 || pp > PREDICT_STAGES_MAX)
            reject(s, RULE_PP_LAYERS, u);
        else if (s->options->base.global_batch % u->dp != 0)
            reject(s, u->dp > s->options->base.global_batch ? RULE_DP_BATCH : RULE_BATCH, u);
        else
            experts(s, u);
    }
}

static void layouts(struct space *s, int order)
{
    const struct model *model = s->question->model;
    const struct search_fix *fix = &s->options->fix;
    int64_t world = s->question->cluster->accelerators;
    struct search_unit u = {.order = order, .pp = 1, .ep = 1, .etp = 1, .micro_batch = 1};
    for (int tp = 1; tp <= world && tp <= model->heads; tp++) {
        if (world % tp != 0 || !free_or(fix->tp, tp))
            continue;
        u.tp = tp;
        u.sequence_parallel = tp > 1;
        u.cp = 1;
        u.dp = (int)(world / tp);
        if (model->heads % tp != 0) {
            reject(s, RULE_HEADS_TP, &u);
            continue;
        }
        for (int cp = 1; cp <= world / tp; cp++) {
            bool wanted = fix->cp == cp || (fix->cp == 0 && (cp == 1 || s->options->base.seq_len / cp >= MIN_TOKENS_PER_CP_RANK));
            if (world / tp % cp != 0 || !wanted)
                continue;
            u.cp = cp;
            replicas(s, &u, world / tp / cp);
        }
    }
}

/* The divisors of `whole` around `value`, at most `limit`: "2 or 4". */
static const char *near_divisors(int64_t whole, int64_t value, int64_t limit, char *text, size_t size)
{
    int64_t below = value < limit ? value : limit, above = value;
    while (below > 1 && whole % below != 0)
        below--;
    while (above <= limit && above <= whole && whole % above != 0)
        above++;
    if (above > limit || above > whole || above == below)
        snprintf(text, size, "%lld", (long long)below);
    else
        snprintf(text, size, "%lld or %lld", (long long)below, (long long)above);
    return text;
}

/* Expert sizes that the model does not have. */
static void explain_experts(const struct model *model, const struct search_fix *fix, struct err *err)
{
    char text[64];
    if (model->experts == 0 && (fix->ep > 1 || fix->etp > 1))
        err_add(err, "--fix %s=%d on model '%s', which has no experts; it must be 1", fix->ep > 1 ? "ep" : "etp", fix->ep > 1 ? fix->ep : fix->etp, model->name);
    else if (model->experts > 0 && fix->ep > 0 && model->experts % fix->ep != 0)
        err_add(err, "--fix ep=%d does not divide the %lld experts; nearest: %s", fix->ep, (long long)model->experts,
                near_divisors(model->experts, fix->ep, model->experts, text, sizeof text));
    else if (fix->etp > 1 && fix->tp > 0 && fix->etp != fix->tp)
        err_add(err, "--fix etp=%d: the search tries 1 and tp %d", fix->etp, fix->tp);
}

/* Batches that no replica can have. */
static void explain_batch(const struct search_options *options, struct err *err)
{
    int64_t batch = options->base.global_batch, dp = options->fix.dp > 0 ? options->fix.dp : 1, mbs = options->fix.micro_batch;
    char text[64];
    if (mbs > MICRO_BATCH_MAX)
        err_add(err, "--fix micro_batch=%lld is more than the %d that the search tries", (long long)mbs, MICRO_BATCH_MAX);
    else if (mbs > 0 && batch % dp == 0 && batch / dp % mbs != 0)
        err_add(err, "--fix micro_batch=%lld does not divide the %lld sequences of a replica; nearest: %s", (long long)mbs, (long long)(batch / dp),
                near_divisors(batch / dp, mbs, MICRO_BATCH_MAX, text, sizeof text));
}

/* No layout at all: which pinned sizes cannot be, all of them, with the nearest that can. */
static int explain_fix(const struct question *question, const struct search_options *options, struct err *err)
{
    const struct search_fix *fix = &options->fix;
    int64_t world = question->cluster->accelerators, product = 1;
    int pinned = 0, before = err->count;
    const struct {
        const char *name;
        int value;
        int64_t limit;
    } sizes[] = {{"tp", fix->tp, question->model->heads}, {"cp", fix->cp, world}, {"pp", fix->pp, world}, {"dp", fix->dp, world}};
    char text[64];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value == 0)
            continue;
        pinned++;
        product = product > world ? product : product * sizes[i].value;
        if (sizes[i].value > sizes[i].limit && world % sizes[i].value == 0)
            err_add(err, "--fix %s=%d is more than the %lld attention heads; nearest: %s", sizes[i].name, sizes[i].value, (long long)sizes[i].limit,
                    near_divisors(world, sizes[i].value, sizes[i].limit, text, sizeof text));
        else if (world % sizes[i].value != 0)
            err_add(err, "--fix %s=%d does not divide the %lld accelerators; nearest: %s", sizes[i].name, sizes[i].value, (long long)world,
                    near_divisors(world, sizes[i].value, sizes[i].limit, text, sizeof text));
    }
    explain_experts(question->model, fix, err);
    explain_batch(options, err);
    if (err->count == before && (product > world || world % product != 0 || (pinned == 4 && product != world)))
        err_add(err, "--fix: the product of the pinned tp, cp, pp and dp %s the %lld accelerators", pinned == 4 ? "is not" : "does not divide",
                (long long)world);
    if (err->count == before)
        err_add(err, "no layout of %lld accelerators agrees with --fix", (long long)world);
    return -1;
}

int search_units(const struct question *question, const struct search_options *options, struct search_unit **ret_units, int *ret_n,
                 struct search_counts *counts, struct err *err)
{
    struct space s = {.question = question, .options = options, .counts = counts, .plan = options->base};
    /* Data parallelism outermost keeps the pipeline near: worth a try where links differ. */
    bool two = question->cluster->n_groups > 1 || question->cluster->group[0].nodes > 1;
    int per_node = question->cluster->group[0].accelerators_per_node;
    bool levels = question->cluster->n_groups > 1 || question->cluster->group[0].nodes_per_leaf > 0;
    for (int order = 0; order < 2; order++) {
        if (options->fix.order >= 0 ? options->fix.order != order : order == 1 && !two)
            continue;
        int from = s.n;
        layouts(&s, order);
        if (order == 0 || options->fix.order >= 0)
            continue;
        int kept = from; /* with one stage or one replica, or full nodes below both, the orders are the same */
        for (int i = from; i < s.n; i++)
            if (s.unit[i].pp > 1 && s.unit[i].dp > 1 && (levels || (int64_t)s.unit[i].tp * s.unit[i].cp < per_node))
                s.unit[kept++] = s.unit[i];
        s.n = kept;
    }
    *ret_units = s.unit;
    *ret_n = s.n;
    if (s.n == 0 && counts->candidates == 0)
        return explain_fix(question, options, err);
    return 0;
}
