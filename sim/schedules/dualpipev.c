/* DualPipeV: DualPipe cut in half and folded: two chunks per rank in a V, no second copy of the weights.
 *
 * Claim: DualPipe's overlapped slots without its doubled weights.
 *   chunk 0 = stage r, chunk 1 = stage 2P-1-r; DualPipe's steps (dualpipe.c) with H = P, h = r, M micro-batches in
 *   each module, and the last rank for the middle ranks
 *   makespan = 2M (f+b+w) - (2(M-P) - 1)(f + bw - fb) + k (fb - w + max(0, b-w)) + max(k (f-b), -f), k = P - 1,
 *     f, b, w, fb per chunk; exact at c = 0 (published bubble: k (fb + bw - 3w), the idle time of the last rank)
 *   in flight = 2P + 1 chunks on every rank
 * Source: deepseek-ai/DualPipe (dualpipev.py), "cut-in-half" after Sea AI Lab's ZB-V; PyTorch's ScheduleDualPipeV
 * emits the same. M >= 2P.
 *
 * drawing: pp=2 vp=2 m=4 F=1 B=1 W=1 slot=2
 *   rank 0 | F0a F1a F2a F0b B0b W0b F1b  F3a&BW1b --       .. F2b&BW0a -- BW2b     -- F3b&BW1a -- BW3b -- B2a W2a B3a W3a
 *   rank 1 | ..  F0a F0b F1a F1b F2a BW0b --       F2b&BW0a -- F3a&BW1b -- F3b&BW1a -- BW2b     -- BW2a -- B3b B3a W3b W3a
 */
#include "cost/base/err.h"
#include "sim/schedules/dual.h"

static int validate(const struct schedule_request *request, struct err *err)
{
    if (request->micro_batches >= 2 * request->pp)
        return 0;
    return err_add(err, "%d micro-batches are fewer than the %d stages of pp %d; nearest valid: %d",
                   request->micro_batches, 2 * request->pp, request->pp, 2 * request->pp);
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_V, pp, 2, 0, m, 6 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        struct dual dual = {.program = ret, .rank = r};
        dual.module[0] = (struct dual_module){.direction = 0, .stage = r};
        dual.module[1] = (struct dual_module){.direction = 0, .stage = 2 * pp - 1 - r};
        dual_emit(&dual, pp, r, m, arena);
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *t)
{
    double f = t->forward_s / vp, b = t->backward_s / vp, w = t->wgrad_s / vp, u = f + b + w;
    double slot = t->slot_s > 0 ? t->slot_s / vp : u;
    int k = pp - 1;
    return 2 * micro_batches * u - (2 * (micro_batches - pp) - 1) * (u - slot) +
           k * (slot - w + schedule_larger_s(0, b - w)) + schedule_larger_s(k * (f - b), -f) +
           (pp > 1 ? 2 * (pp - 1) * (double)micro_batches / pp + 2 * (pp - 2) : 0) * t->comm_s;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)micro_batches, (void)group, (void)rank;
    return 2 * pp + 1;
}

const struct schedule schedule_dualpipe_v = {
    .name = "dualpipev",
    .title = "DualPipeV",
    .cite = "deepseek-ai/DualPipe, dualpipev.py",
    .placement = PLACEMENT_V,
    .vp_min = 2,
    .vp_max = 2,
    .vp_default = 2,
    .splits_w = true,
    .overlaps = true,
    .weight_copies = 1,
    .validate = validate,
    .emit = emit,
    .makespan_s = makespan_s,
    .in_flight = in_flight,
};
