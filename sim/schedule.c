#include "sim/schedule.h"

#include <assert.h>

#include "cost/base/err.h"
#include "sim/schedules/schedules.h"

static const struct schedule *const table[SCHEDULES] = {
    [SCHEDULE_GPIPE] = &schedule_gpipe,
    [SCHEDULE_LOOPED_BFS] = &schedule_looped_bfs,
    [SCHEDULE_1F1B] = &schedule_one_f_one_b,
    [SCHEDULE_INTERLEAVED] = &schedule_interleaved,
    [SCHEDULE_ZB_H1] = &schedule_zb_h1,
    [SCHEDULE_ZB_H2] = &schedule_zb_h2,
    [SCHEDULE_ZB_AUTO] = &schedule_zb_auto,
    [SCHEDULE_INTERLEAVED_ZB] = &schedule_interleaved_zb,
    [SCHEDULE_ZB_V] = &schedule_zb_v,
    [SCHEDULE_ZB_V_AUTO] = &schedule_zb_v_auto,
    [SCHEDULE_1F1B_V] = &schedule_one_f_one_b_v,
    [SCHEDULE_V_HALF] = &schedule_v_half,
    [SCHEDULE_V_MIN] = &schedule_v_min,
    [SCHEDULE_DUALPIPE] = &schedule_dualpipe,
    [SCHEDULE_DUALPIPE_V] = &schedule_dualpipe_v,
};

const struct schedule *schedule_of(enum plan_schedule schedule)
{
    assert(schedule >= 0 && schedule < SCHEDULES);
    return table[schedule];
}

static int variant_count(const struct schedule *s)
{
    int n = 0;
    while (s->variants && s->variants[n])
        n++;
    return n ? n : 1;
}

static int check(const struct schedule *s, const struct schedule_request *request, struct err *err)
{
    if (request->pp < 1 || request->pp > PROGRAM_RANKS_MAX)
        return err_add(err, "pp %d is out of range; allowed: 1 to %d", request->pp, PROGRAM_RANKS_MAX);
    if (request->micro_batches < 1 || request->micro_batches > PROGRAM_MICRO_BATCHES_MAX)
        return err_add(err, "%d micro-batches are out of range; allowed: 1 to %d", request->micro_batches,
                       PROGRAM_MICRO_BATCHES_MAX);
    if (request->vp < s->vp_min || request->vp > s->vp_max)
        return err_add(err, "vp %d is not possible; nearest valid: %d", request->vp,
                       request->vp < s->vp_min ? s->vp_min : s->vp_max);
    if ((int64_t)request->micro_batches * request->vp > PROGRAM_OPS_MAX / (3 * request->pp))
        return err_add(err, "%d micro-batches of %d chunks on %d ranks are too many ops; allowed: %d in all",
                       request->micro_batches, request->vp, request->pp, PROGRAM_OPS_MAX);
    if (request->variant < 0 || request->variant >= variant_count(s))
        return err_add(err, "there is no variant number %d", request->variant);
    return s->validate ? s->validate(request, err) : 0;
}

static int resolve(const struct schedule *s, const struct schedule_request *request, struct schedule_request *ret,
                   struct err *err)
{
    int before = err ? err->count : 0;
    *ret = *request;
    if (ret->vp == 0)
        ret->vp = s->vp_default;
    return check(s, ret, err) < 0 ? err_prefix(err, before, "%s: ", s->name) : 0;
}

int schedule_validate(enum plan_schedule schedule, const struct schedule_request *request, struct err *err)
{
    struct schedule_request resolved;
    return resolve(schedule_of(schedule), request, &resolved, err);
}

int schedule_emit(enum plan_schedule schedule, const struct schedule_request *request, struct arena *arena,
                  struct program *ret, struct err *err)
{
    const struct schedule *s = schedule_of(schedule);
    struct schedule_request resolved;
    if (resolve(s, request, &resolved, err) < 0)
        return -1;
    return s->emit(&resolved, arena, ret, err);
}

/* No schedule ends before the last rank has done all its work after the first forward has reached it; nor, with one
 * chunk per rank, before the last stage has run all F and B and the last B has gone back to the first; nor before one
 * micro-batch has gone through all stages and back. */
static double lower_bound_s(const struct schedule *s, int pp, int vp, int micro_batches, const struct schedule_times *t)
{
    bool bidir = s->placement == PLACEMENT_BIDIR;
    double unit_s = schedule_unit_s(t), slot_s = t->slot_s > 0 && t->slot_s < unit_s ? t->slot_s : unit_s;
    double work_s = micro_batches * (s->overlaps ? slot_s : unit_s); /* all of it in slots at best */
    double fill_s = bidir ? 0 : (pp - 1) * t->forward_s / vp;
    double rounds = vp == 1 && !s->overlaps ? pp + micro_batches - 1 : pp;
    double chain_s = rounds * (t->forward_s + t->backward_s) + t->wgrad_s / (bidir ? 1 : vp);
    return schedule_larger_s(work_s + fill_s, chain_s);
}

double schedule_makespan_s(enum plan_schedule schedule, int pp, int vp, int micro_batches,
                           const struct schedule_times *times, bool *ret_exact)
{
    const struct schedule *s = schedule_of(schedule);
    vp = vp ? vp : s->vp_default;
    bool exact = s->makespan_s && (!s->exact || s->exact(pp, micro_batches, times));
    if (ret_exact)
        *ret_exact = exact && times->comm_s <= 0;
    return exact ? s->makespan_s(pp, vp, micro_batches, times) : lower_bound_s(s, pp, vp, micro_batches, times);
}

int schedule_in_flight(enum plan_schedule schedule, int pp, int vp, int micro_batches, int group, int rank)
{
    const struct schedule *s = schedule_of(schedule);
    return s->in_flight(pp, vp ? vp : s->vp_default, micro_batches, group, rank);
}
