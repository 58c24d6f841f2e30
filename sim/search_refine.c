/* Choices of one layout whose closed form may flatter: a few periods by the engine, where they could be of use. */
#include <math.h>

#include "sim/search_internal.h"

bool search_is_better(const struct search_worker *w, const struct search_choice *choice, const struct search_choice *than)
{
    return than->time_s < 0 || search_choice_compare(choice, than, w->options->objective) < 0;
}

/* Could messages, or unequal F, B and W, make the schedule wait where its closed form does not? V-Min took twice as long,
 * interleaved chunks up to four times between slow nodes. */
static bool may_flatter(const struct search_worker *w, const struct search_choice *choice)
{
    const struct plan *p = &w->plan;
    static const double negligible = 0.02;
    double messages = 2 * (double)plan_micro_batches(p) * p->vp * w->places.p2p_s; /* of a rank; all of them on the critical path at worst */
    return schedule_of(choice->schedule)->placement == PLACEMENT_V || messages > negligible * choice->time_s;
}

/* A choice that could be of use is run by the engine for a few periods; a lower bound remains one. */
static void refine(struct search_worker *w, struct search_choice *choice)
{
    double makespan_s;
    if (choice->time_s > w->useful_s)
        return;
    search_choice_plan(w->question, w->options, choice, &w->prices, &w->plan);
    if (may_flatter(w, choice)) {
        search_fill(w);
        if (pipeline_estimate_s(&w->stages, &w->arena, &makespan_s, NULL) < 0)
            return;
        choice->time_s = fmax(choice->time_s, makespan_s + w->chunking.step_s[w->plan.zero]);
    }
    choice->trusted = true;
}

struct search_family *search_fastest(const struct search_worker *w, struct search_family *of_schedule)
{
    struct search_family *ret = NULL;
    for (int vp = 0; vp <= SEARCH_VP_MAX; vp++)
        if (of_schedule[vp].best.time_s >= 0 && (!ret || search_is_better(w, &of_schedule[vp].best, &ret->best)))
            ret = &of_schedule[vp];
    return ret;
}

/* Until the number of chunks that is fastest is one whose time is known well. */
static void refine_schedule(struct search_worker *w, struct search_family *of_schedule)
{
    struct search_family *f = search_fastest(w, of_schedule);
    while (f && !f->best.trusted) {
        refine(w, &f->best);
        if (!f->best.trusted) /* of no use, or it could not be run */
            return;
        f = search_fastest(w, of_schedule);
    }
}

/* An automatic schedule, whose order takes long to find, is hardly faster than those that it begins with: with 410 random
 * durations, hops and sizes ZB-V-auto took 0.85 of the best of ZB-V, V-Half and V-Min at least, ZB-auto 0.77 of ZB-H1.
 * Where those have been priced, in the same layout, it does not flatter more than that. */
static void refine_automatic(struct search_worker *w, struct search_family (*family)[SEARCH_VP_MAX + 1], enum plan_schedule automatic,
                             const enum plan_schedule *begins, int n, double share)
{
    struct search_family *f = search_fastest(w, family[automatic]);
    double begins_s = HUGE_VAL;
    for (int i = 0; f && i < n; i++) {
        const struct search_family *from = search_fastest(w, family[begins[i]]);
        if (!from || !from->best.trusted || from->best.vp != f->best.vp || from->best.zero != f->best.zero || from->best.balanced != f->best.balanced ||
            from->best.recompute != f->best.recompute || from->best.recompute_layers != f->best.recompute_layers)
            return;
        begins_s = fmin(begins_s, from->best.time_s);
    }
    if (f)
        f->best.time_s = fmax(f->best.time_s, share * begins_s);
}

void search_refine(struct search_worker *w, struct search_family (*family)[SEARCH_VP_MAX + 1])
{
    static const enum plan_schedule straight[] = {SCHEDULE_ZB_H1}, v[] = {SCHEDULE_ZB_V, SCHEDULE_V_HALF, SCHEDULE_V_MIN};
    for (int s = 0; s < SCHEDULES; s++)
        if (s != SCHEDULE_ZB_AUTO && s != SCHEDULE_ZB_V_AUTO)
            refine_schedule(w, family[s]);
    refine_automatic(w, family, SCHEDULE_ZB_AUTO, straight, sizeof straight / sizeof *straight, 0.75);
    refine_automatic(w, family, SCHEDULE_ZB_V_AUTO, v, sizeof v / sizeof *v, 0.8);
}
