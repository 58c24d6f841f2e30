/* ZB-H1: the weight gradients wait, and fill the end of the pipeline; 1F1B's memory.
 *
 * Claim: a third of 1F1B's bubble (where F = B = W) for the same peak memory, which now every rank reaches.
 *   order on rank r, for x = 0, 1, ...: F_x, B_{x-(P-1-r)}, W_{x-(P-1)}, leaving out indices outside 0 .. M-1
 *   makespan = M u + (P - 1)(F + B - min(F, B, W)) for M >= P, u = F + B + W; exact at c = 0
 *     (published: bubble (P - 1)(F + B - W), right where W <= min(F, B))
 *   in flight = min(P, M) on every rank until W; P - r until B
 * Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, figure 3. Variants: "fused" joins B
 * and W on rank 0, where nobody waits for B (Megatron-DeepSpeed's generator); "quick" keeps them joined wherever
 * the steady state allows (branch zb-h1-quick-start of the authors' repository): the same makespan at c = 0.
 *
 * drawing: pp=3 vp=1 m=4 F=1 B=1 W=1
 *   rank 0 | F0 F1 F2 .. .. B0 W0 F3 B1 W1 B2 W2 B3 W3
 *   rank 1 | .. F0 F1 .. B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
 *   rank 2 | .. .. F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
 */
#include "sim/schedules/schedules.h"

enum { SPLIT, FUSED, QUICK };
static const char *const variants[] = {"split", "fused", "quick", NULL};

static void emit_rank(struct program *program, int pp, int micro_batches, int rank, bool fused)
{
    for (int x = 0; x < micro_batches + pp - 1; x++) {
        int b = x - (pp - 1 - rank), w = x - (pp - 1);
        if (x < micro_batches)
            program_push(program, rank, op_plain(OP_F, 0, rank, x));
        if (b >= 0 && b < micro_batches)
            program_push(program, rank, op_plain(fused ? OP_BW : OP_B, 0, rank, b));
        if (w >= 0 && w < micro_batches && !fused)
            program_push(program, rank, op_plain(OP_W, 0, rank, w));
    }
}

static bool quick_splits(int rank, int steady, int b)
{
    return rank > 0 && (b < rank || b >= steady - 1);
}

/* 1F1B's order; split are the first r of the M - w steady backwards, the last one, and all of the cool-down. From
 * backward r on, every split backward is followed by the oldest W. */
static void emit_rank_quick(struct program *program, int pp, int micro_batches, int rank)
{
    int warm_up = schedule_min(pp - 1 - rank, micro_batches), steady = micro_batches - warm_up, w = 0;
    for (int i = 0; i < warm_up; i++)
        program_push(program, rank, op_plain(OP_F, 0, rank, i));
    for (int b = 0; b < micro_batches; b++) {
        bool split = quick_splits(rank, steady, b);
        if (b < steady)
            program_push(program, rank, op_plain(OP_F, 0, rank, warm_up + b));
        program_push(program, rank, op_plain(split ? OP_B : OP_BW, 0, rank, b));
        if (!split || b < rank)
            continue;
        for (; !quick_splits(rank, steady, w); w++)
            ;
        program_push(program, rank, op_plain(OP_W, 0, rank, w++));
    }
    for (; w < micro_batches; w++)
        if (quick_splits(rank, steady, w))
            program_push(program, rank, op_plain(OP_W, 0, rank, w));
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_LOOP, pp, 1, 0, m, 3 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        if (request->variant == QUICK)
            emit_rank_quick(ret, pp, m, r);
        else
            emit_rank(ret, pp, m, r, request->variant == FUSED && r == 0);
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *t)
{
    (void)vp;
    double least_s = t->forward_s < t->backward_s ? t->forward_s : t->backward_s;
    least_s = t->wgrad_s < least_s ? t->wgrad_s : least_s;
    double hops = (t->wgrad_s > least_s ? 3 : 4) * (pp - 1) - (micro_batches > pp ? 0 : 2);
    return micro_batches * schedule_unit_s(t) + (pp - 1) * (t->forward_s + t->backward_s - least_s) +
           (pp > 1 ? hops : 0) * t->comm_s;
}

static bool exact(int pp, int micro_batches, const struct schedule_times *times)
{
    (void)times;
    return micro_batches >= pp;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group, (void)rank;
    return schedule_min(pp, micro_batches);
}

const struct schedule schedule_zb_h1 = {
    .name = "zb-h1",
    .title = "ZB-H1",
    .cite = "Qi et al. 2023, arXiv:2401.10241",
    .variants = variants,
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
