/* Looped BFS: chunk after chunk, all micro-batches through each.
 *
 * Claim: the bubble of interleaved 1F1B with the memory of GPipe; whole chunks run in a row, so gradient and parameter
 * communication of a chunk can hide behind the other chunks.
 *   order on every rank: for chunk 0 .. V-1 all forwards; then for chunk V-1 .. 0 all BW, last micro-batch first
 *   makespan = M u + (P - 1) u / V + max(0, P - M) u (V - 1) / V,  u = F + B + W; exact
 *   in flight = M V chunks on every rank
 * Source: Lamy-Poirier 2022, "Breadth-First Pipeline Parallelism", arXiv:2211.05953, figure 4; backwards last in,
 * first out as PyTorch's ScheduleLoopedBFS runs them.
 *
 * drawing: pp=3 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a F0b F1b F2b ..  ..  ..   .. ..   .. BW2b -- BW1b -- BW0b -- BW2a -- BW1a -- BW0a --
 *   rank 1 | ..  F0a F1a F2a F0b F1b F2b ..  ..   .. BW2b -- BW1b -- BW0b -- BW2a -- BW1a -- BW0a -- ..   ..
 *   rank 2 | ..  ..  F0a F1a F2a F0b F1b F2b BW2b -- BW1b -- BW0b -- BW2a -- BW1a -- BW0a -- ..   .. ..   ..
 */
#include "sim/schedules/schedules.h"

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, vp = request->vp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, pp, vp, 0, m, 2 * (int64_t)m * vp, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        for (int chunk = 0; chunk < vp; chunk++)
            for (int i = 0; i < m; i++)
                program_push(ret, r, op_plain(OP_F, 0, chunk * pp + r, i));
        for (int chunk = vp - 1; chunk >= 0; chunk--)
            for (int i = m - 1; i >= 0; i--)
                program_push(ret, r, op_plain(OP_BW, 0, chunk * pp + r, i));
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *times)
{
    double u = schedule_unit_s(times), f = times->forward_s / vp, bw = u / vp - f, c = pp > 1 ? times->comm_s : 0;
    double wait_s = schedule_larger_s(0, pp * (f + c) - micro_batches * f) +
                    schedule_larger_s(0, pp * (bw + c) - micro_batches * bw); /* for the first to come round */
    return micro_batches * u + (pp - 1) * (u / vp + 2 * c) + (vp - 1) * wait_s;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)pp, (void)group, (void)rank;
    return micro_batches * vp;
}

const struct schedule schedule_looped_bfs = {
    .name = "looped-bfs",
    .title = "looped BFS",
    .cite = "Lamy-Poirier 2022, arXiv:2211.05953",
    .placement = PLACEMENT_LOOP,
    .vp_min = 1,
    .vp_max = 256,
    .vp_default = 2,
    .weight_copies = 1,
    .emit = emit,
    .makespan_s = makespan_s,
    .in_flight = in_flight,
};
