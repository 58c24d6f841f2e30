/* 1F1B (PipeDream-Flush): backwards as early as they can come.
 *
 * Claim: GPipe's bubble with at most P micro-batches held.
 *   order on rank r: w = min(P - 1 - r, M) forwards, then M - w times (F, BW), then w BW
 *   makespan = (M + P - 1) u + [2 (P - 1) M / P + 2 (P - 2)] c,  u = F + B + W, c = one hop
 *     exact for any M at c = 0; the term in c for P dividing M and small c (a message is on the critical path twice
 *     per micro-batch, even with asynchronous sends)
 *   in flight = min(P - r, M)
 * Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
 * arXiv:2104.04473, section 2.2.1. M < P works (Megatron-LM does it too; PyTorch refuses it).
 *
 * drawing: pp=3 vp=1 m=4 F=1 B=1 W=1
 *   rank 0 | F0 F1 F2 ..  .. ..  ..  BW0 --  F3  BW1 --  ..  BW2 --  .. BW3 --
 *   rank 1 | .. F0 F1 ..  .. BW0 --  F2  BW1 --  F3  BW2 --  ..  BW3 -- ..  ..
 *   rank 2 | .. .. F0 BW0 -- F1  BW1 --  F2  BW2 --  F3  BW3 --  ..  .. ..  ..
 */
#include "sim/schedules/schedules.h"

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, pp, 1, 0, m, 2 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        int warm_up = schedule_min(pp - 1 - r, m);
        for (int i = 0; i < warm_up; i++)
            program_push(ret, r, op_plain(OP_F, 0, r, i));
        for (int i = warm_up; i < m; i++) {
            program_push(ret, r, op_plain(OP_F, 0, r, i));
            program_push(ret, r, op_plain(OP_BW, 0, r, i - warm_up));
        }
        for (int i = m - warm_up; i < m; i++)
            program_push(ret, r, op_plain(OP_BW, 0, r, i));
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *times)
{
    (void)vp;
    double hops = pp > 1 ? 2.0 * (pp - 1) * micro_batches / pp + 2 * (pp - 2) : 0;
    return (micro_batches + pp - 1) * schedule_unit_s(times) + hops * times->comm_s;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group;
    return schedule_min(pp - rank, micro_batches);
}

const struct schedule schedule_one_f_one_b = {
    .name = "1f1b",
    .title = "1F1B",
    .cite = "Narayanan et al. 2021, arXiv:2104.04473",
    .placement = PLACEMENT_LOOP,
    .vp_min = 1,
    .vp_max = 1,
    .vp_default = 1,
    .weight_copies = 1,
    .emit = emit,
    .makespan_s = makespan_s,
    .in_flight = in_flight,
};
