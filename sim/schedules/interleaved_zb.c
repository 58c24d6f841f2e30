/* Interleaved zero bubble: interleaved 1F1B with B and W apart.
 *
 * Claim: ZB-H1's bubble divided by V.
 *   order: virtual index k and groups as in interleaved 1F1B; rank r runs w = min((V-1) G + P - 1 - r, M V) forwards,
 *   then (F_{w+k}, B_k), then the remaining B; from k = r on, every B_k is followed by the oldest W; at last all W
 *   makespan = M u + (P - 1)(F + B - min(F, B, W)) / V for M >= P, u = F + B + W; exact at c = 0
 *   hops that show while c is small: P V + 3P - 4 (P - 1 fewer where W > min(F, B), 2 fewer for M = P)
 *   in flight = min((V - 1) G + P, M V) chunks on every rank, P stages for G = P
 * Source: ScheduleInterleavedZeroBubble of PyTorch (torch/distributed/pipelining/schedules.py), after Qi et al. 2023,
 * arXiv:2401.10241. With V = 1 it is ZB-H1. G as in interleaved.c.
 *
 * drawing: pp=3 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a F0b F1b F2b ..  ..  B0b W0b B1b W1b B2b W2b B0a W0a B1a W1a B2a W2a
 *   rank 1 | ..  F0a F1a F2a F0b F1b ..  B0b F2b B1b W0b B2b W1b B0a W2b B1a W0a B2a W1a W2a
 *   rank 2 | ..  ..  F0a F1a F2a F0b B0b F1b B1b F2b B2b W0b B0a W1b B1a W2b B2a W0a W1a W2a
 */
#include "sim/schedules/schedules.h"

static int warm_up_of(int pp, int vp, int micro_batches, int group, int rank)
{
    int64_t warm_up = (int64_t)(vp - 1) * group + pp - 1 - rank, all = (int64_t)micro_batches * vp;
    return (int)(warm_up < all ? warm_up : all);
}

static void push(struct program *program, const struct schedule_request *request, int rank, int group,
                 enum op_kind kind, int k)
{
    int chunk, micro_batch;
    schedule_virtual_at(k, request->micro_batches, request->vp, group, &chunk, &micro_batch);
    if (kind != OP_F)
        chunk = request->vp - 1 - chunk;
    program_push(program, rank, op_plain(kind, 0, chunk * request->pp + rank, micro_batch));
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, vp = request->vp, m = request->micro_batches, all = m * vp;
    int group = request->group ? request->group : schedule_group(pp, m);
    if (program_init(ret, arena, PLACEMENT_LOOP, pp, vp, 0, m, 3 * (int64_t)m * vp, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        int warm_up = warm_up_of(pp, vp, m, group, r), w = 0;
        for (int k = 0; k < warm_up; k++)
            push(ret, request, r, group, OP_F, k);
        for (int k = 0; k < all; k++) {
            if (warm_up + k < all)
                push(ret, request, r, group, OP_F, warm_up + k);
            push(ret, request, r, group, OP_B, k);
            if (k >= r)
                push(ret, request, r, group, OP_W, w++);
        }
        while (w < all)
            push(ret, request, r, group, OP_W, w++);
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *t)
{
    double least_s = t->forward_s < t->backward_s ? t->forward_s : t->backward_s;
    least_s = t->wgrad_s < least_s ? t->wgrad_s : least_s;
    double hops = pp * vp + 3 * pp - 4 - (micro_batches > pp ? 0 : 2);
    if (t->wgrad_s > least_s) /* W's cover some of them */
        hops -= pp - 1;
    return micro_batches * schedule_unit_s(t) + (pp - 1) * (t->forward_s + t->backward_s - least_s) / vp +
           (pp > 1 ? hops : 0) * t->comm_s;
}

static bool exact(int pp, int micro_batches, const struct schedule_times *times)
{
    (void)times;
    return micro_batches >= pp;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)rank;
    if (group == 0)
        group = schedule_group(pp, micro_batches);
    return schedule_min((vp - 1) * group + pp, micro_batches * vp);
}

const struct schedule schedule_interleaved_zb = {
    .name = "interleaved-zb",
    .title = "interleaved zero bubble",
    .cite = "PyTorch ScheduleInterleavedZeroBubble, after Qi et al. 2023, arXiv:2401.10241",
    .placement = PLACEMENT_LOOP,
    .vp_min = 1,
    .vp_max = 256,
    .vp_default = 2,
    .splits_w = true,
    .weight_copies = 1,
    .validate = schedule_check_group,
    .emit = emit,
    .makespan_s = makespan_s,
    .exact = exact,
    .in_flight = in_flight,
};
