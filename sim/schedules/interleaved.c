/* Interleaved 1F1B: every rank holds V chunks of the model, a V-th of the bubble.
 *
 * Claim: the bubble shrinks by V; a little more memory and V times the messages.
 *   order: virtual index k runs over groups of G micro-batches, in a group over chunks, in a chunk over the group's
 *   micro-batches; backward k is the same with chunks reversed. Rank r runs w = min(2 (P - 1 - r) + (V - 1) G, M V)
 *   forwards, then (F_{w+k}, BW_k), then the remaining BW.
 *   makespan = M u + (P - 1) u / V + max(0, P - M) u (V - 1) / V,  u = F + B + W; + 2 (P V - 1) c for small c
 *     exact at c = 0 for G = P, M a multiple of P, and for M <= P
 *   in flight = min(w + 1, M V) chunks
 * Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2. Megatron-LM wants P <= G <= M and M mod G = 0 or
 * >= P; PyTorch takes G = M / max(1, M / P). Here G = 0 means the smallest group that Megatron's rule allows, which
 * is PyTorch's wherever PyTorch accepts M; with M < P the group is M.
 *
 * drawing: pp=3 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a F0b F1b F2b ..   .. ..   ..   BW0b --   ..   BW1b --   .. BW2b -- BW0a -- BW1a -- BW2a --
 *   rank 1 | ..  F0a F1a F2a F0b F1b F2b  .. BW0b --   ..   BW1b --   ..   BW2b -- BW0a -- BW1a -- BW2a -- ..   ..
 *   rank 2 | ..  ..  F0a F1a F2a F0b BW0b -- F1b  BW1b --   F2b  BW2b --   BW0a -- BW1a -- BW2a -- ..   .. ..   ..
 */
#include "cost/base/err.h"
#include "sim/schedules/schedules.h"

static bool group_is_valid(int pp, int micro_batches, int group)
{
    int rest = micro_batches % group;
    return group >= schedule_min(pp, micro_batches) && group <= micro_batches && (rest == 0 || rest >= pp);
}

int schedule_group(int pp, int micro_batches)
{
    int group = schedule_min(pp, micro_batches);
    while (!group_is_valid(pp, micro_batches, group))
        group++;
    return group;
}

int schedule_check_group(const struct schedule_request *request, struct err *err)
{
    int pp = request->pp, m = request->micro_batches, group = request->group;
    if (group == 0 || group_is_valid(pp, m, group))
        return 0;
    int nearest = schedule_group(pp, m);
    for (int g = nearest; g <= m; g++)
        if (group_is_valid(pp, m, g) &&
            (g > group ? g - group : group - g) < (nearest > group ? nearest - group : group - nearest))
            nearest = g;
    return err_add(err,
                   "a group of %d micro-batches is not possible with pp %d and %d micro-batches (the group "
                   "must be between pp and the micro-batches, and leave a rest of 0 or at least pp); nearest valid: %d",
                   group, pp, m, nearest);
}

static int warm_up_of(int pp, int vp, int micro_batches, int group, int rank)
{
    int64_t warm_up = 2 * (int64_t)(pp - 1 - rank) + (int64_t)(vp - 1) * group, all = (int64_t)micro_batches * vp;
    return (int)(warm_up < all ? warm_up : all);
}

static void push(struct program *program, const struct schedule_request *request, int rank, int group,
                 enum op_kind kind, int k)
{
    int chunk, micro_batch;
    schedule_virtual_at(k, request->micro_batches, request->vp, group, &chunk, &micro_batch);
    if (kind == OP_BW)
        chunk = request->vp - 1 - chunk;
    program_push(program, rank, op_plain(kind, 0, chunk * request->pp + rank, micro_batch));
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, vp = request->vp, m = request->micro_batches;
    int group = request->group ? request->group : schedule_group(pp, m);
    if (program_init(ret, arena, PLACEMENT_LOOP, pp, vp, 0, m, 2 * (int64_t)m * vp, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        int warm_up = warm_up_of(pp, vp, m, group, r);
        for (int k = 0; k < warm_up; k++)
            push(ret, request, r, group, OP_F, k);
        for (int k = warm_up; k < m * vp; k++) {
            push(ret, request, r, group, OP_F, k);
            push(ret, request, r, group, OP_BW, k - warm_up);
        }
        for (int k = m * vp - warm_up; k < m * vp; k++)
            push(ret, request, r, group, OP_BW, k);
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *times)
{
    double u = schedule_unit_s(times);
    return micro_batches * u + (pp - 1) * u / vp + schedule_max(0, pp - micro_batches) * u * (vp - 1) / vp +
           2.0 * (pp * vp - 1) * times->comm_s;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    if (group == 0)
        group = schedule_group(pp, micro_batches);
    int warm_up = warm_up_of(pp, vp, micro_batches, group, rank);
    return schedule_min(warm_up + 1, micro_batches * vp);
}

const struct schedule schedule_interleaved = {
    .name = "interleaved",
    .title = "interleaved 1F1B",
    .cite = "Narayanan et al. 2021, arXiv:2104.04473",
    .placement = PLACEMENT_LOOP,
    .vp_min = 2,
    .vp_max = 256,
    .vp_default = 2,
    .weight_copies = 1,
    .validate = schedule_check_group,
    .emit = emit,
    .makespan_s = makespan_s,
    .in_flight = in_flight,
};
