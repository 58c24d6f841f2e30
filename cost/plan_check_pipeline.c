/* Sentences about layers, pipeline, schedule and batch, and lists of numbers that
 * would do. */
#include "cost/plan_check.h"

#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/model.h"
#include "cost/plan_internal.h"

enum { REACH_MAX = 1 << 16, WRITTEN_OUT_MAX = 32 };

void plan_list_add(struct plan_list *list, const char *between, int64_t value)
{
    char word[48];
    int n = snprintf(word, sizeof word, "%s%lld", list->count > 0 ? between : "", (long long)value);
    if (list->used + (size_t)n + sizeof ", ..." > sizeof list->text) {
        if (list->used == 0 || list->text[list->used - 1] != '.')
            list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, ", ...");
        return;
    }
    memcpy(list->text + list->used, word, (size_t)n + 1);
    list->used += (size_t)n;
    list->count++;
}

/* The divisors of n in increasing order. */
struct plan_list plan_divisors(int64_t n)
{
    struct plan_list list = {"", 0, 0};
    int64_t root = 1;
    for (; root * root <= n && root < 1 << 20; root++)
        if (n % root == 0)
            plan_list_add(&list, ", ", root);
    for (root--; root >= 1; root--)
        if (n % root == 0 && n / root > root)
            plan_list_add(&list, ", ", n / root);
    return list;
}

/* "252 or 266": the multiples of unit around value; the lower only when positive. */
struct plan_list plan_multiples_around(int64_t value, int64_t unit)
{
    struct plan_list list = {"", 0, 0};
    int64_t below = value / unit * unit;
    if (below > 0)
        plan_list_add(&list, " or ", below);
    if (below < INT64_MAX - unit)
        plan_list_add(&list, " or ", below + unit);
    return list;
}

int64_t plan_greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t plan_least_common_multiple(int64_t a, int64_t b)
{
    return plan_mul(a / plan_greatest_common_divisor(a, b), b);
}

/* --- layers --------------------------------------------------------------- */

/* Layers of a chunk in the split that is offered: all middle chunks one more than the
 * even share, the first and last, with embedding and head, what is left (46 on 4: 11,
 * 12, 12, 11; none is allowed there); where that is too much, the first middle chunks
 * take one more. No chunk holds more than the even share rounded up. */
static int64_t offered_layers(int64_t layers, int64_t chunks, int64_t chunk)
{
    int64_t share = layers / chunks, ends = layers - (share + 1) * (chunks - 2);
    if (ends < 0)
        return share + (chunk >= 1 && chunk <= layers % chunks);
    return chunk == 0 ? ends - ends / 2 : chunk == chunks - 1 ? ends / 2 : share + 1;
}

/* "[11,12,12,11]", or with its runs counted where that would be too long. */
static void offered_split(int64_t layers, int64_t chunks, char *buffer, size_t size)
{
    size_t used = 0;
    for (int64_t i = 0, run; i < chunks && used<size; i += chunks> WRITTEN_OUT_MAX ? run : 1) {
        int64_t count = offered_layers(layers, chunks, i);
        for (run = 1; i + run < chunks && offered_layers(layers, chunks, i + run) == count;)
            run++;
        used += (size_t)snprintf(buffer + used, size - used, "%s", i == 0 ? "[" : ",");
        if (used < size && chunks > WRITTEN_OUT_MAX && run > 1)
            used += (size_t)snprintf(buffer + used, size - used, "%lld times ", ll(run));
        if (used < size)
            used += (size_t)snprintf(buffer + used, size - used, "%lld", ll(count));
    }
    if (used < size)
        snprintf(buffer + used, size - used, "]");
}

/* How Megatron-LM is told: first and last stage, or embedding and head counted as a
 * layer each, or chunk by chunk. */
static void offered_options(const struct plan *plan, int64_t layers, char *buffer, size_t size)
{
    int64_t chunks = plan_chunks(plan), first = offered_layers(layers, chunks, 0);
    int64_t last = offered_layers(layers, chunks, chunks - 1), share = layers / chunks;
    bool uniform = layers >= (share + 1) * (chunks - 2);
    if (plan->vp == 1 && uniform && last > 0)
        snprintf(buffer, size, "--decoder-first-pipeline-num-layers %lld --decoder-last-pipeline-num-layers %lld",
                 ll(first), ll(last));
    else if (uniform && first == share && last == share)
        snprintf(buffer, size, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split");
    else
        snprintf(buffer, size, "--pipeline-model-parallel-layout");
}

void plan_say_layers_split(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t layers = c->model->layers, chunks = plan_chunks(plan);
    char split[PLAN_LIST_MAX], options[128];
    offered_split(layers, chunks, split, sizeof split);
    offered_options(plan, layers, options, sizeof options);
    err_add(
        c->err,
        "pp %d x vp %d = %lld does not divide num_hidden_layers %lld: %lld %% %lld = %lld; set layers_per_stage to %s "
        "(Megatron-LM: %s), or pp x vp to one of %s",
        plan->pp, plan->vp, ll(chunks), ll(layers), ll(layers), ll(chunks), ll(layers % chunks), split, options,
        plan_divisors(layers).text);
}

void plan_say_pp_layers(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t layers = c->model->layers, chunks = plan_chunks(plan);
    char split[PLAN_LIST_MAX], options[128], offer[3 * PLAN_LIST_MAX] = "";
    if (chunks <= layers + 2) { /* embedding and head alone on theirs */
        offered_split(layers, chunks, split, sizeof split);
        offered_options(plan, layers, options, sizeof options);
        snprintf(offer, sizeof offer, "set layers_per_stage to %s (Megatron-LM: %s), or ", split, options);
    }
    err_add(c->err, "pp %d x vp %d = %lld chunks, but model '%s' has only %lld layers; %spp x vp to one of %s",
            plan->pp, plan->vp, ll(chunks), c->model->name, ll(layers), offer[0] ? offer : "set ",
            plan_divisors(layers).text);
}

void plan_say_layers_list(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int n = plan->n_layers_per_stage;
    int64_t sum = 0, layers;
    for (int i = 0; i < n; i++)
        sum += plan->layers_per_stage[i];
    if (n != plan_chunks(plan))
        err_add(c->err, "layers_per_stage has %d entries, pp %d x vp %d = %lld are needed", n, plan->pp, plan->vp,
                ll(plan_chunks(plan)));
    layers = c->model ? c->model->layers : sum;
    if (sum < layers)
        err_add(c->err, "%lld layers, list holds %lld: layers_per_stage would lose %lld layers of model '%s'%s",
                ll(layers), ll(sum), ll(layers - sum), c->model->name,
                plan->pp == 1 ? "; an uneven split needs pp > 1" : "");
    if (sum > layers)
        err_add(c->err, "%lld layers, list holds %lld: layers_per_stage has %lld layers more than model '%s'",
                ll(layers), ll(sum), ll(sum - layers), c->model->name);
    for (int i = 1; i < n - 1; i++)
        if (plan->layers_per_stage[i] == 0)
            err_add(
                c->err,
                "layers_per_stage gives chunk %d no layer; only the first and the last may be empty (embedding, head)",
                i);
}

void plan_say_recompute(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    if (plan->recompute != RECOMPUTE_FULL)
        err_add(c->err,
                "recompute_layers %d goes only with recompute 'full', not '%s'; set it to null or recompute to full",
                plan->recompute_layers, recompute_names[plan->recompute]);
    else
        err_add(c->err,
                "recompute_layers %d exceeds the %lld layers of the largest pipeline chunk; allowed: 0 to %lld, or "
                "null for all",
                plan->recompute_layers, ll(plan_largest_chunk(plan, c->model)), ll(plan_largest_chunk(plan, c->model)));
}

/* --- schedule and batch --------------------------------------------------- */

void plan_say_vp_needs_pp(const struct plan_check *c)
{
    err_add(c->err, "vp %d needs a pipeline, but pp is 1; set vp to 1 or pp to at least 2", c->plan->vp);
}

void plan_say_vp_schedule(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    if (plan->schedule == SCHEDULE_INTERLEAVED)
        err_add(c->err, "schedule 'interleaved' needs vp >= 2, but vp is %d; with one chunk per rank it is '1f1b'",
                plan->vp);
    else if (plan->vp == 1)
        err_add(c->err, "schedule '%s' places two chunks on every rank and needs pp > 1 with vp 2, but vp is 1",
                schedule_names[plan->schedule]);
    else
        err_add(c->err,
                "schedule '%s' runs with vp %s, but vp is %d; more chunks per rank: interleaved, looped-bfs, "
                "interleaved-zb",
                schedule_names[plan->schedule],
                plan->schedule >= SCHEDULE_ZB_V && plan->schedule != SCHEDULE_DUALPIPE ? "2" : "1", plan->vp);
}

/* The micro-batch counts around m that the schedule takes, searched for as far as any rule repeats. */
static void say_nearest_micro_batches(const struct plan_check *c, int64_t m, char *buffer, size_t size)
{
    int64_t unit = plan_mul(c->plan->dp, c->plan->micro_batch);
    int64_t reach = 2 * ((int64_t)c->plan->pp + c->plan->schedule_group) + 2, below = m - 1, above = m + 1;
    if (reach > REACH_MAX)
        reach = REACH_MAX;
    while (below > 0 && below > m - reach && !plan_schedule_takes(c->plan, below))
        below--;
    while (above < m + reach && !plan_schedule_takes(c->plan, above))
        above++;
    struct plan_list counts = {"", 0, 0}, batches = {"", 0, 0};
    if (below > 0 && plan_schedule_takes(c->plan, below)) {
        plan_list_add(&counts, " or ", below);
        plan_list_add(&batches, " or ", plan_mul(below, unit));
    }
    if (plan_schedule_takes(c->plan, above)) {
        plan_list_add(&counts, " or ", above);
        plan_list_add(&batches, " or ", plan_mul(above, unit));
    }
    buffer[0] = '\0';
    if (counts.count > 0)
        snprintf(buffer, size, "; nearest valid: %s (global_batch %s)", counts.text, batches.text);
}

static const char *micro_batch_rule(const struct plan *plan, char *buffer, size_t size)
{
    int pp = plan->pp, group = plan->schedule_group > 0 ? plan->schedule_group : pp;
    switch (plan->schedule) {
    case SCHEDULE_1F1B: snprintf(buffer, size, "stack '%s' runs 1f1b with at least pp %d", plan->stack, pp); break;
    case SCHEDULE_INTERLEAVED:
        if (plan->schedule_group == 0 && plan_stack_is_torch(plan))
            snprintf(buffer, size, "stack '%s' runs them in equal rounds of at least pp %d", plan->stack, pp);
        else if (plan->schedule_group == 0)
            snprintf(buffer, size, "interleaved needs a multiple of pp %d, or a schedule_group that suits", pp);
        else if (group < pp)
            snprintf(buffer, size, "interleaved needs pp %d <= schedule_group, which is %d, <= micro-batches", pp,
                     group);
        else
            snprintf(buffer, size,
                     "interleaved needs at least schedule_group %d and a rest of 0 or at least pp %d in the last group",
                     group, pp);
        break;
    case SCHEDULE_INTERLEAVED_ZB:
        snprintf(buffer, size, "interleaved-zb runs them in equal rounds of at least pp %d", pp);
        break;
    default:
        snprintf(buffer, size, "%s needs at least 2 x pp = %lld%s", schedule_names[plan->schedule], 2LL * pp,
                 plan->schedule == SCHEDULE_DUALPIPE ? ", and an even number for its two directions" : "");
        break;
    }
    return buffer;
}

void plan_say_micro_batches(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t m = plan_micro_batches(plan);
    char rule[192], nearest[2 * PLAN_LIST_MAX + 64];
    say_nearest_micro_batches(c, m, nearest, sizeof nearest);
    err_add(c->err, "%lld micro-batches (global_batch %lld / (dp %d x micro_batch %d)) do not suit the schedule: %s%s",
            ll(m), ll(plan->global_batch), plan->dp, plan->micro_batch, micro_batch_rule(plan, rule, sizeof rule),
            nearest);
}

void plan_say_batch(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    int64_t unit = plan_mul(plan->dp, plan->micro_batch);
    err_add(
        c->err,
        "global_batch %lld is not a multiple of dp %d x micro_batch %d = %lld: %lld %% %lld = %lld; nearest valid: %s",
        ll(plan->global_batch), plan->dp, plan->micro_batch, ll(unit), ll(plan->global_batch), ll(unit),
        ll(plan->global_batch % unit), plan_multiples_around(plan->global_batch, unit).text);
}

void plan_say_dp_batch(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    err_add(c->err,
            "dp %d exceeds global_batch %lld: some replicas would have no sequence; global_batch at least %lld or dp "
            "at most %lld",
            plan->dp, ll(plan->global_batch), ll(plan_mul(plan->dp, plan->micro_batch)),
            ll(plan->global_batch / plan->micro_batch > 0 ? plan->global_batch / plan->micro_batch : 1));
}

void plan_say_schedule(const struct plan_check *c)
{
    const struct plan *plan = c->plan;
    if ((unsigned)plan->schedule >= SCHEDULES) {
        err_add(c->err, "schedule number %d does not exist", (int)plan->schedule);
        return;
    }
    if (plan->schedule == SCHEDULE_DUALPIPE && plan->pp % 2 != 0)
        err_add(c->err, "schedule 'dualpipe' needs an even pp, but pp is %d; nearest valid: %s", plan->pp,
                plan_multiples_around(plan->pp, 2).text);
    if (plan->schedule_group > 0 && plan->schedule != SCHEDULE_INTERLEAVED)
        err_add(c->err, "schedule_group %d goes only with schedule 'interleaved', not '%s'; set it to null",
                plan->schedule_group, schedule_names[plan->schedule]);
}
