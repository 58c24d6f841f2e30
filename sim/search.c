/* The search: bound all layouts, price them from the most promising on in fixed
 * batches, re-price the leaders with the engine.
 *
 * The threshold that lets a layout be skipped is read once per batch, and batches
 * are dealt by index, so that the number of threads changes nothing. */
#include "sim/search.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "cost/base/names.h"
#include "sim/pipeline.h"
#include "sim/search_internal.h"

const char *const objective_names[] = {"time", "cost", "memory", NULL};
const char *const search_reason_names[] = {"out of memory", "provably slower than the plans kept (whole layouts)",
                                           "not a launch of the framework (--launch)"};

enum { BATCH_UNITS = 64, SHOWN_MIN = 10, LEADERS_MIN = 128, FRONT_LEADERS_MIN = 512, THREADS_MAX = 256 };

void search_defaults(struct search_options *o)
{
    memset(o, 0, sizeof *o);
    plan_defaults(&o->base);
    o->fix = (struct search_fix){.sequence_parallel = -1, .zero = -1, .recompute = -1, .recompute_layers = -1, .context_parallel = -1, .overlap_ep = -1, .order = -1};
    o->schedules = (1u << SCHEDULES) - 1;
    o->launch = -1;
    o->top = 10;
    o->threads = 1;
}

bool search_weighs_memory(const struct search_options *options)
{
    return options->pareto || options->objective == OBJECTIVE_MEMORY;
}

const char *search_reason_text(int reason)
{
    return reason < RULES ? plan_rule_names[reason] : search_reason_names[reason - RULES];
}

static int compare_time(const void *a, const void *b)
{
    return search_choice_compare(a, b, OBJECTIVE_TIME);
}

static int compare_memory(const void *a, const void *b)
{
    return search_choice_compare(a, b, OBJECTIVE_MEMORY);
}

static int compare_bound(const void *a, const void *b)
{
    const struct search_unit *x = a, *y = b;
    if (x->bound_s != y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    struct search_choice p = {.unit = *x}, q = {.unit = *y};
    return search_choice_compare(&p, &q, OBJECTIVE_TIME);
}

static bool same_layout(const struct search_choice *a, const struct search_choice *b)
{
    const struct search_unit *u = &a->unit, *v = &b->unit;
    return u->tp == v->tp && u->cp == v->cp && u->pp == v->pp && u->ep == v->ep && u->etp == v->etp && u->micro_batch == v->micro_batch &&
           u->sequence_parallel == v->sequence_parallel && a->schedule == b->schedule;
}

/* Best first, the better of two that differ in the rank order alone, `keep` at most of those with a trusted time and of the others. */
static void sort_choices(struct choice_list *list, enum search_objective objective, int keep)
{
    int n = 0, kept[2] = {0, 0};
    if (list->n > 1)
        qsort(list->item, (size_t)list->n, sizeof *list->item, objective == OBJECTIVE_MEMORY ? compare_memory : compare_time);
    for (int i = 0; i < list->n; i++) {
        bool known = kept[list->item[i].trusted] >= keep;
        for (int j = 0; j < n && !known; j++)
            known = same_layout(&list->item[i], &list->item[j]);
        if (known)
            continue;
        kept[list->item[i].trusted]++;
        list->item[n++] = list->item[i];
    }
    list->n = n;
}

/* One phase over a range of units, dealt to the threads by index. */
struct job {
    struct search_worker *worker;
    struct search_unit *unit;
    int from, to, stride;
    bool bound_only;
};

static void *run_job(void *argument)
{
    struct job *job = argument;
    for (int i = job->from; i < job->to; i += job->stride) {
        if (job->bound_only)
            search_unit_bound(job->worker, &job->unit[i]);
        else
            search_unit_run(job->worker, &job->unit[i]);
    }
    return NULL;
}

static void run_jobs(struct search_worker *workers, int threads, struct search_unit *units, int from, int to, bool bound_only)
{
    struct job job[THREADS_MAX] = {{0}};
    pthread_t thread[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    for (int t = 0; t < threads; t++)
        job[t] = (struct job){&workers[t], units, from + t, to, threads, bound_only};
    for (int t = 1; t < threads; t++)
        started[t] = pthread_create(&thread[t], NULL, run_job, &job[t]) == 0;
    run_job(&job[0]);
    for (int t = 1; t < threads; t++) {
        if (started[t])
            pthread_join(thread[t], NULL);
        else
            run_job(&job[t]);
    }
}

static void merge_counts(struct search_counts *sum, const struct search_counts *add)
{
    sum->candidates += add->candidates;
    sum->evaluated += add->evaluated;
    sum->feasible += add->feasible;
    for (int i = 0; i < REASONS; i++) {
        sum->rejected[i] += add->rejected[i];
        if (add->has_example[i] && (!sum->has_example[i] || search_choice_compare(&add->example[i], &sum->example[i], OBJECTIVE_TIME) < 0)) {
            sum->has_example[i] = true;
            sum->example[i] = add->example[i];
        }
    }
}

struct search {
    const struct question *question;
    const struct search_options *options;
    struct search_worker *workers;
    int threads, n_units, n_leaders;
    struct search_unit *units;
    struct search_counts counts;
    struct choice_list leaders, others;
    struct search_choice nearest;
    double nearest_excess;
    bool has_nearest;
};

/* A leader that takes longer than estimated by more than this may be behind others of its layout. */
static const double close_margin = 0.01;

/* Predictions kept while the leaders are priced. */
static int answer_room(const struct search *s)
{
    return s->options->pareto ? s->n_leaders : s->options->top;
}

/* Takes what the workers found in a batch. */
static void gather(struct search *s)
{
    for (int t = 0; t < s->threads; t++) {
        struct search_worker *w = &s->workers[t];
        for (int i = 0; i < w->found.n; i++)
            (s->options->pareto ? choice_list_push_front : choice_list_push)(&s->leaders, &w->found.item[i]);
        w->found.n = 0;
        for (int i = 0; i < w->others.n; i++)
            choice_list_push(&s->others, &w->others.item[i]);
        w->others.n = 0;
        bool nearer = w->has_nearest && (!s->has_nearest || w->nearest_excess < s->nearest_excess ||
                                         (w->nearest_excess <= s->nearest_excess &&
                                          search_choice_compare(&w->nearest, &s->nearest, OBJECTIVE_TIME) < 0));
        if (nearer) {
            s->has_nearest = true;
            s->nearest = w->nearest;
            s->nearest_excess = w->nearest_excess;
        }
    }
    if (!s->options->pareto)
        sort_choices(&s->leaders, s->options->objective, s->n_leaders);
}

/* Moves the layouts that can still matter to the front, in order; the others are counted. */
static int drop_hopeless(struct search *s)
{
    int n = 0;
    for (int i = 0; i < s->n_units; i++) {
        struct search_unit unit = s->units[i];
        if (!unit.hopeless) {
            s->units[i] = s->units[n];
            s->units[n++] = unit;
            continue;
        }
        struct search_choice skipped = {.unit = unit, .vp = 1, .schedule = SCHEDULE_1F1B};
        search_count_rejected(&s->counts, REASON_MEMORY, &skipped);
    }
    return n;
}

/* A layout whose bound is above this cannot enter the answer: behind the last leader, or so far behind the last plan shown
 * that the engine's price will not turn it. Leaders whose time may flatter say nothing. */
static double useful_s(const struct search *s)
{
    int shown = s->options->top > SHOWN_MIN ? s->options->top : SHOWN_MIN, n = 0; /* of the first few some may turn out not to fit */
    for (int i = 0; i < s->leaders.n; i++) {
        n += s->leaders.item[i].trusted;
        if (n == shown)
            return s->leaders.item[i].time_s * (1 + 2 * search_estimate_margin);
    }
    return HUGE_VAL;
}

static void report(const struct search *s, const char *what, int done, int all)
{
    if (s->options->progress)
        s->options->progress(what, done, all);
}

static void price_range(struct search *s, int from, int n, bool bounded)
{
    for (; from < n; from += BATCH_UNITS) {
        report(s, "layouts", from, n);
        double useful = bounded ? useful_s(s) : HUGE_VAL;
        if (s->units[from].bound_s > useful) {
            for (int i = from; i < n; i++) { /* sorted: the rest is slower still */
                struct search_choice skipped = {.unit = s->units[i], .vp = 1, .schedule = SCHEDULE_1F1B};
                search_count_rejected(&s->counts, REASON_BOUND, &skipped);
            }
            break;
        }
        for (int t = 0; t < s->threads; t++)
            s->workers[t].useful_s = useful;
        run_jobs(s->workers, s->threads, s->units, from, from + BATCH_UNITS < n ? from + BATCH_UNITS : n, false);
        gather(s);
    }
}

static void price_units(struct search *s)
{
    bool bounded = !s->options->exhaustive && !search_weighs_memory(s->options);
    run_jobs(s->workers, s->threads, s->units, 0, s->n_units, true);
    qsort(s->units, (size_t)s->n_units, sizeof *s->units, compare_bound);
    int n = s->options->exhaustive ? s->n_units : drop_hopeless(s);
    price_range(s, 0, n, bounded);
    if (s->leaders.n == 0 && n < s->n_units) { /* nothing fits: which misses by least? */
        s->counts.candidates -= s->n_units - n;
        s->counts.rejected[REASON_MEMORY] -= s->n_units - n;
        price_range(s, n, s->n_units, false);
    }
    for (int t = 0; t < s->threads; t++)
        merge_counts(&s->counts, &s->workers[t].counts);
}

/* Engine price of a choice; with partial recompute, the fewest layers that still fit (unless memory is to be little). */
static int reprice(struct search *s, const struct search_choice *choice, double give_up_s, struct arena *arena, struct prediction *ret, struct err *err)
{
    struct search_worker *w = &s->workers[0];
    struct plan plan;
    search_choice_plan(s->question, s->options, choice, &w->prices, &plan);
    if (!layer_prices_same(&w->prices, &plan)) {
        layer_prices_fill(&w->prices, s->question, &plan, question_stack(s->question, plan.stack));
        search_choice_plan(s->question, s->options, choice, &w->prices, &plan);
    }
    if (predict_priced(s->question, &plan, &w->prices, give_up_s, arena, ret, err) < 0)
        return -1;
    bool partial = plan.recompute == RECOMPUTE_FULL && plan.recompute_layers > 1 && s->options->fix.recompute_layers < 0 &&
                   !search_weighs_memory(s->options);
    struct prediction *less = partial ? malloc(sizeof *less) : NULL;
    while (less && ret->fits && plan.recompute_layers > 1) {
        plan.recompute_layers--;
        if (predict_priced(s->question, &plan, &w->prices, give_up_s, arena, less, err) < 0 || !less->fits)
            break;
        *ret = *less;
    }
    free(less);
    return 0;
}

static double objective_value(const struct prediction *p, const struct search_options *options)
{
    return options->objective == OBJECTIVE_MEMORY && !options->pareto ? p->peak_bytes : p->step_time_s;
}

static void insert_prediction(struct search_result *ret, const struct prediction *p, const struct search_options *options, int room)
{
    int at = ret->n;
    while (at > 0) {
        double mine = objective_value(p, options), other = objective_value(&ret->plans[at - 1], options);
        if (mine > other || (mine >= other && (p->step_time_s > ret->plans[at - 1].step_time_s ||
                                               (p->step_time_s >= ret->plans[at - 1].step_time_s && plan_compare(&p->plan, &ret->plans[at - 1].plan) >= 0))))
            break;
        at--;
    }
    if (at >= room)
        return;
    int last = ret->n < room ? ret->n : room - 1;
    memmove(&ret->plans[at + 1], &ret->plans[at], (size_t)(last - at) * sizeof *ret->plans);
    ret->plans[at] = *p;
    ret->n = last + 1;
}

/* Of n, in place, at most `most`: the ends and what lies evenly between. */
static int thin(void *items, size_t size, int n, int most)
{
    char *at = items;
    if (n <= most)
        return n;
    for (int i = 0; i < most; i++)
        memmove(at + (size_t)i * size, at + (size_t)(most > 1 ? (int64_t)i * (n - 1) / (most - 1) : 0) * size, size);
    return most;
}

/* Priced by the engine, one is on the front when no other is as fast and as small; of twins the first in the order of plans. */
static void insert_on_front(struct search_result *ret, const struct prediction *p, const struct search_options *options, int room)
{
    int kept = 0;
    for (int i = 0; i < ret->n; i++) {
        const struct prediction *q = &ret->plans[i];
        bool twins = q->step_time_s >= p->step_time_s && q->step_time_s <= p->step_time_s && q->peak_bytes >= p->peak_bytes && q->peak_bytes <= p->peak_bytes;
        if (q->step_time_s <= p->step_time_s && q->peak_bytes <= p->peak_bytes && !(twins && plan_compare(&p->plan, &q->plan) < 0))
            return; /* who is beaten beats nobody that is kept */
    }
    for (int i = 0; i < ret->n; i++) {
        if (ret->plans[i].step_time_s >= p->step_time_s && ret->plans[i].peak_bytes >= p->peak_bytes)
            continue;
        if (kept != i)
            ret->plans[kept] = ret->plans[i];
        kept++;
    }
    ret->n = kept;
    insert_prediction(ret, p, options, room);
}

/* A plan priced already is faster and smaller by more than the estimates of this one may be too high. */
static bool is_behind(const struct search_result *front, const struct search_choice *choice)
{
    double time_s = choice->time_s / (1 + search_estimate_margin), bytes = choice->bytes / (1 + search_estimate_margin);
    for (int i = 0; i < front->n; i++)
        if (front->plans[i].step_time_s < time_s && front->plans[i].peak_bytes < bytes)
            return true;
    return false;
}

/* Estimates that flatter one plan drop others from the front: the fastest plan of all, which a search by time finds, is in it. */
static void insert_fastest(const struct search *s, struct search_result *ret, int room, struct err *err)
{
    struct search_options by_time = *s->options;
    struct search_result fastest;
    by_time.pareto = by_time.exhaustive = false;
    by_time.objective = OBJECTIVE_TIME;
    by_time.top = 1;
    if (search_run(s->question, &by_time, &fastest, err) == 0 && fastest.n > 0)
        insert_on_front(ret, &fastest.plans[0], s->options, room);
    search_release(&fastest);
}

/* The engine says that a leader does not fit, or is slower than estimated: the best of it and of the others of its layout. */
static void price_others(struct search *s, const struct search_choice *leader, struct arena *arena, int *priced, struct prediction *best,
                         struct search_result *ret)
{
    struct prediction *p = malloc(sizeof *p);
    for (int i = 0; p && i < s->others.n; i++) {
        const struct search_choice *other = &s->others.item[i];
        bool found = *priced == 0 && best->fits;
        if (!same_layout(other, leader) || (found && other->time_s >= best->step_time_s))
            continue;
        int result = reprice(s, other, 0, arena, p, NULL);
        ret->repriced++;
        if (result < 0 || !p->fits || (found && p->step_time_s >= best->step_time_s))
            continue;
        *best = *p;
        *priced = 0;
    }
    free(p);
}

static int price_leaders(struct search *s, struct search_result *ret, struct err *err)
{
    struct arena arena = {0};
    struct err failed = {0};
    struct prediction *p = malloc(sizeof *p);
    int result = p ? 0 : err_add(err, "out of memory"), room = answer_room(s);
    pipeline_memo_forget(&s->workers[0].memo); /* leaders share many programs, others than the estimates */
    if (s->options->pareto && s->leaders.n > 1)
        qsort(s->leaders.item, (size_t)s->leaders.n, sizeof *s->leaders.item, compare_time);
    for (int i = 0; i < s->leaders.n && result == 0; i++) {
        const struct search_choice *choice = &s->leaders.item[i];
        report(s, "leaders", i, s->leaders.n);
        bool full = ret->n == room && !search_weighs_memory(s->options);
        if (full && choice->time_s * (1 - search_estimate_margin) > ret->plans[ret->n - 1].step_time_s)
            break;
        if (s->options->pareto && is_behind(ret, choice))
            continue;
        int priced = reprice(s, choice, 0, &arena, p, failed.count == 0 ? &failed : NULL);
        ret->repriced++;
        bool good = priced == 0 && p->fits && p->step_time_s <= choice->time_s * (1 + close_margin);
        if (!good && !search_weighs_memory(s->options))
            price_others(s, choice, &arena, &priced, p, ret);
        if (priced == 0 && p->fits)
            (s->options->pareto ? insert_on_front : insert_prediction)(ret, p, s->options, room);
    }
    if (ret->n == 0 && failed.count > 0) /* a plan without a price is only left out, unless there is no other */
        result = err_append(err, &failed);
    if (s->options->pareto) {
        insert_fastest(s, ret, room, NULL);
        ret->n = thin(ret->plans, sizeof *ret->plans, ret->n, s->options->top);
    }
    for (int i = 0; i < ret->n && result == 0; i++) { /* taken apart, which leaders need not be */
        *p = ret->plans[i];
        result = predict_plan(s->question, &p->plan, &ret->plans[i], err);
    }
    if (result == 0 && ret->n == 0 && s->has_nearest) {
        ret->has_nearest = true;
        result = reprice(s, &s->nearest, INFINITY, &arena, &ret->nearest, err);
    }
    free(p);
    arena_release(&arena);
    return result;
}

static void publish_counts(struct search *s, struct search_result *ret)
{
    ret->candidates = s->counts.candidates;
    ret->evaluated = s->counts.evaluated;
    ret->feasible = s->counts.feasible;
    for (int i = 0; i < REASONS; i++) {
        ret->rejected[i] = s->counts.rejected[i];
        if (s->counts.has_example[i]) {
            struct search_choice *e = &s->counts.example[i];
            struct layer_prices *prices = i < RULES ? NULL : &s->workers[0].prices; /* a broken plan has no prices */
            if (prices) {
                search_choice_plan(s->question, s->options, e, NULL, &ret->example[i]);
                layer_prices_fill(prices, s->question, &ret->example[i], question_stack(s->question, s->options->base.stack));
            }
            search_choice_plan(s->question, s->options, e, prices, &ret->example[i]);
        }
    }
}

int search_run(const struct question *question, const struct search_options *options, struct search_result *ret, struct err *err)
{
    double start = clock_s();
    struct search s = {.question = question, .options = options, .threads = options->threads < THREADS_MAX ? options->threads : THREADS_MAX};
    memset(ret, 0, sizeof *ret);
    int least = options->pareto ? FRONT_LEADERS_MIN : LEADERS_MIN;
    s.n_leaders = 4 * options->top > least ? 4 * options->top : least;
    if (search_units(question, options, &s.units, &s.n_units, &s.counts, err) < 0)
        return -1;
    s.workers = calloc((size_t)s.threads, sizeof *s.workers);
    ret->plans = calloc((size_t)answer_room(&s) + 1, sizeof *ret->plans);
    if (!s.workers || !ret->plans)
        abort();
    for (int t = 0; t < s.threads; t++) {
        struct search_worker *w = &s.workers[t];
        w->own = *question;
        w->cluster = *question->cluster;
        w->cluster.spans = &w->spans;
        w->own.cluster = &w->cluster;
        w->question = &w->own;
        w->memo.programs_only = true;
        pipeline_memo_forget(&w->memo);
        w->own.memo = &w->memo;
        s.workers[t].options = options;
        s.workers[t].plan = options->base;
    }
    s.question = s.workers[0].question;
    int result = 0;
    if (s.n_units > 0) {
        price_units(&s);
        result = price_leaders(&s, ret, err);
    }
    publish_counts(&s, ret);
    ret->elapsed_s = clock_s() - start;
    for (int t = 0; t < s.threads; t++) {
        free(s.workers[t].found.item);
        free(s.workers[t].others.item);
        arena_release(&s.workers[t].arena);
        pipeline_memo_release(&s.workers[t].memo);
    }
    free(s.workers);
    free(s.units);
    free(s.leaders.item);
    free(s.others.item);
    return result;
}

void search_release(struct search_result *result)
{
    free(result->plans);
    result->plans = NULL;
    result->n = 0;
}
