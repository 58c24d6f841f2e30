/* ZB-H2: no bubble between a rank's first and last op, for twice the activations.
 *
 * Claim: zero bubble of the SPAN of each rank (published: (P - 1)(F + B - 2W) = 0 at F = B = W); the makespan keeps the
 * skew (P - 1) F, which costs nothing only when the optimizer step needs no barrier.
 *   order on rank r, for x = 0, 1, ...: F_x, B_{x-2(P-1-r)}, W_{x-2(P-1)}, leaving out indices outside 0 .. M-1
 *   makespan = M u + (P - 1) max(F, F + B - 2W, B - F) for M >= 2P - 1, u = F + B + W; exact at c = 0
 *   span bubble = (P - 1) max(0, F + B - 2W, B - F)
 *   in flight = min(2P - 1, M) on every rank until W; 2 (P - r) - 1 until B
 * Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, figure 3.
 *
 * drawing: pp=3 vp=1 m=5 F=1 B=1 W=1
 *   rank 0 | F0 F1 F2 F3 F4 B0 W0 B1 W1 B2 W2 B3 W3 B4 W4 .. ..
 *   rank 1 | .. F0 F1 F2 B0 F3 B1 F4 B2 W0 B3 W1 B4 W2 W3 W4 ..
 *   rank 2 | .. .. F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 W0 W1 W2 W3 W4
 */
#include "sim/schedules/schedules.h"

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, pp, 1, 0, m, 3 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++)
        for (int x = 0; x < m + 2 * (pp - 1); x++) {
            int b = x - 2 * (pp - 1 - r), w = x - 2 * (pp - 1);
            if (x < m)
                program_push(ret, r, op_plain(OP_F, 0, r, x));
            if (b >= 0 && b < m)
                program_push(ret, r, op_plain(OP_B, 0, r, b));
            if (w >= 0)
                program_push(ret, r, op_plain(OP_W, 0, r, w));
        }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *t)
{
    (void)vp;
    double skew_s =
        schedule_larger_s(t->forward_s + t->comm_s, t->forward_s + t->backward_s - 2 * t->wgrad_s + 2 * t->comm_s);
    skew_s = schedule_larger_s(skew_s, t->backward_s - t->forward_s);
    return micro_batches * schedule_unit_s(t) + (pp - 1) * skew_s;
}

static bool exact(int pp, int micro_batches, const struct schedule_times *times)
{
    (void)times;
    return micro_batches >= 2 * pp - 1;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group, (void)rank;
    return schedule_min(2 * pp - 1, micro_batches);
}

const struct schedule schedule_zb_h2 = {
    .name = "zb-h2",
    .title = "ZB-H2",
    .cite = "Qi et al. 2023, arXiv:2401.10241",
    .placement = PLACEMENT_LOOP,
    .vp_min = 1,
    .vp_max = 1,
    .vp_default = 1,
    .splits_w = true,
    .weight_copies = 1,
    .emit = emit,
    .makespan_s = makespan_s,
    .exact = exact,
    .in_flight = in_flight,
};
