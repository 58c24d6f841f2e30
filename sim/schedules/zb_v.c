/* ZB-V: two chunks per rank in a V; zero bubble of the span with 1F1B's memory.
 *
 * Claim: at F = B = W no rank idles between its first and last op, with P stages' activations.
 *   chunk 0 = stage r, chunk 1 = stage 2P-1-r, and with n = max(2P - 1, M) micro-batches on rank r:
 *   2(P-r)-1 F0; r (F1, F0); P-r (F1, B1, W1); then, while forwards remain, [F0], B0, W0, F1, B1, W1;
 *   r (B0, B1); P-r (B0, W0); all W1 that are left, then all W0. Micro-batches from M on are left out.
 *   makespan = M u + (P - 1) F / 2 at F = B = W and M >= 2P - 1, u = F + B + W
 *   in flight = min(2P, 2M, M + r + 1) chunks
 * Source: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362 (ZB-V); as in the authors'
 * hand-made order and PyTorch's ScheduleZBVZeroBubble. The zero holds at F = B = W only.
 *
 * drawing: pp=2 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a W0a F2b B2b W2b B1a W1a B2a W2a ..
 *   rank 1 | ..  F0a F0b F1a F1b B0b W0b F2a B0a W0a F2b B1b W1b B1a B2b B2a W1a W2b W2a
 */
#include "sim/schedules/schedules.h"

/* Hands out micro-batches of one rank op by op, by kind and chunk. */
struct hand {
    struct program *program;
    int rank, micro_batches;
    int next[3][2]; /* [OP_F, OP_B, OP_W][chunk] */
};

static void put(struct hand *hand, enum op_kind kind, int chunk)
{
    int micro_batch = hand->next[kind][chunk]++, pp = hand->program->pp;
    if (micro_batch < hand->micro_batches)
        program_push(hand->program, hand->rank,
                     op_plain(kind, 0, chunk == 0 ? hand->rank : 2 * pp - 1 - hand->rank, micro_batch));
}

static void put_w_after(struct hand *hand, enum op_kind kind, int chunk)
{
    put(hand, kind, chunk);
    put(hand, OP_W, chunk);
}

static void emit_rank(struct hand *hand, int n)
{
    int r = hand->rank, pp = hand->program->pp;
    for (int i = 0; i < 2 * (pp - r) - 1; i++)
        put(hand, OP_F, 0);
    for (int i = 0; i < r; i++) {
        put(hand, OP_F, 1);
        put(hand, OP_F, 0);
    }
    for (int i = 0; i < pp - r; i++) {
        put(hand, OP_F, 1);
        put_w_after(hand, OP_B, 1);
    }
    while (hand->next[OP_F][1] < hand->next[OP_F][0] || hand->next[OP_F][0] < n) {
        if (hand->next[OP_F][0] < n)
            put(hand, OP_F, 0);
        put_w_after(hand, OP_B, 0);
        put(hand, OP_F, 1);
        put_w_after(hand, OP_B, 1);
    }
    for (int i = 0; i < r; i++) {
        put(hand, OP_B, 0);
        put(hand, OP_B, 1);
    }
    for (int i = 0; i < pp - r; i++)
        put_w_after(hand, OP_B, 0);
    for (int chunk = 1; chunk >= 0; chunk--)
        while (hand->next[OP_W][chunk] < hand->next[OP_B][chunk])
            put(hand, OP_W, chunk);
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_V, pp, 2, 0, m, 6 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        struct hand hand = {.program = ret, .rank = r, .micro_batches = m};
        emit_rank(&hand, schedule_max(2 * pp - 1, m));
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *times)
{
    (void)vp;
    return micro_batches * schedule_unit_s(times) + (pp - 1) * times->forward_s / 2;
}

static bool exact(int pp, int micro_batches, const struct schedule_times *times)
{
    return schedule_is_unit(times) && micro_batches >= 2 * pp - 1;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group;
    int filled = schedule_min(2 * micro_batches, micro_batches + rank + 1); /* with few micro-batches */
    return schedule_min(filled, 2 * pp);
}

const struct schedule schedule_zb_v = {
    .name = "zb-v",
    .title = "ZB-V (hand-made)",
    .cite = "Qi et al. 2024, arXiv:2405.15362",
    .placement = PLACEMENT_V,
    .vp_min = 2,
    .vp_max = 2,
    .vp_default = 2,
    .splits_w = true,
    .weight_copies = 1,
    .emit = emit,
    .makespan_s = makespan_s,
    .exact = exact,
    .in_flight = in_flight,
};
