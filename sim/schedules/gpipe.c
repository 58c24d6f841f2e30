/* GPipe: all forwards, then all backwards.
 *
 * Claim: the simplest schedule; a rank holds every micro-batch at once.
 *   makespan = (M + P - 1) u + 2 (P - 1) c,  u = F + B + W, c = one hop; exact for any M
 *   in flight = M on every rank
 * Source: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
 * arXiv:1811.06965, figure 2. The figure runs the backwards last in, first out; nanotron and PyTorch run them first
 * in, first out, and so do we: the makespan is the same.
 *
 * drawing: pp=3 vp=1 m=4 F=1 B=1 W=1
 *   rank 0 | F0 F1 F2 F3 .. .. ..  .. ..  .. BW0 -- BW1 -- BW2 -- BW3 --
 *   rank 1 | .. F0 F1 F2 F3 .. ..  .. BW0 -- BW1 -- BW2 -- BW3 -- ..  ..
 *   rank 2 | .. .. F0 F1 F2 F3 BW0 -- BW1 -- BW2 -- BW3 -- ..  .. ..  ..
 */
#include "sim/schedules/schedules.h"

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, request->pp, 1, 0, m, 2 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < request->pp; r++) {
        for (int i = 0; i < m; i++)
            program_push(ret, r, op_plain(OP_F, 0, r, i));
        for (int i = 0; i < m; i++)
            program_push(ret, r, op_plain(OP_BW, 0, r, i));
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *times)
{
    (void)vp;
    return (micro_batches + pp - 1) * schedule_unit_s(times) + 2 * (pp - 1) * times->comm_s;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)pp, (void)vp, (void)group, (void)rank;
    return micro_batches;
}

const struct schedule schedule_gpipe = {
    .name = "gpipe",
    .title = "GPipe",
    .cite = "Huang et al. 2019, arXiv:1811.06965",
    .placement = PLACEMENT_LOOP,
    .vp_min = 1,
    .vp_max = 1,
    .vp_default = 1,
    .weight_copies = 1,
    .emit = emit,
    .makespan_s = makespan_s,
    .in_flight = in_flight,
};
