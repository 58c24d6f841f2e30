/* DualPipe: two pipelines run towards each other; a forward of one overlaps a backward of the other.
 *
 * Claim: in the main part every slot is a forward beside a backward, whose communication (expert all-to-all) hides in
 * the other's compute; price: every rank holds two stages' weights.
 *   h = min(r, P-1-r), H = P/2; phase 0 = the direction that enters the pipeline on this half. On rank r:
 *   (1) 2(H-h-1) F0   (2) h+1 (F0, F1)   (3) H-h-1 (B1, W, F1)
 *   (4) M/2-P+h+1 (F0&BW1, F1&BW0), the very first F0, BW1 of the two middle ranks one after the other
 *   (5) H-h-1 (BW1, F1&BW0)   (6) h+1 (BW1, BW0), the second half of these 2(h+1) split   (7) H-h-1 (W, B0)
 *   (8) h+1 W.   W takes the oldest of either direction.
 *   makespan = M u - (M-P-1)(F + BW - FB) + k (FB - W + max(0, B - W)) + max(k (F - B), -F),
 *     k = P/2 - 1, u = F + B + W, FB = an overlapped slot; exact at c = 0. M counts both directions.
 *     (published bubble: (P/2 - 1)(FB + BW - 3W), the idle time of the two middle ranks)
 *   in flight = P + 1 on every rank
 * Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.2.1, and deepseek-ai/DualPipe
 * (dualpipe.py, step). P and M must be even and M >= 2P.
 *
 * drawing: pp=4 vp=1 m=8 F=1 B=1 W=1 slot=2
 *   rank 0 | F0a F1a F2a F0b B0b W0b F1b  F3a&BW1b --       .. F2b&BW0a -- BW2b     -- F3b&BW1a -- BW3b -- B2a W2a B3a W3a
 *   rank 1 | ..  F0a F0b F1a F1b F2a BW0b --       F2b&BW0a -- F3a&BW1b -- F3b&BW1a -- BW2b     -- BW2a -- B3b B3a W3b W3a
 *   rank 2 | ..  F0b F0a F1b F1a F2b BW0a --       F2a&BW0b -- F3b&BW1a -- F3a&BW1b -- BW2a     -- BW2b -- B3a B3b W3a W3b
 *   rank 3 | F0b F1b F2b F0a B0a W0a F1a  F3b&BW1a --       .. F2a&BW0b -- BW2a     -- F3a&BW1b -- BW3a -- B2b W2b B3b W3b
 */
#include "cost/base/err.h"
#include "sim/schedules/dual.h"

static int validate(const struct schedule_request *request, struct err *err)
{
    int pp = request->pp, m = request->micro_batches, bad = 0;
    if (pp % 2 != 0)
        bad =
            err_add(err, "pp %d is odd, but the two directions meet between two ranks; nearest valid: %d", pp, pp + 1);
    if (m % 2 != 0 || m < 2 * pp)
        bad = err_add(err,
                      "%d micro-batches are not possible with pp %d (an even number from 2 pp on: half of "
                      "them in each direction); nearest valid: %d",
                      m, pp, m < 2 * pp ? 2 * pp : m + 1);
    return bad;
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    int pp = request->pp, m = request->micro_batches;
    if (program_init(ret, arena, PLACEMENT_BIDIR, pp, 1, 0, m, 3 * (int64_t)m, err) < 0)
        return -1;
    for (int r = 0; r < pp; r++) {
        int mirrored = pp - 1 - r, h = schedule_min(r, mirrored);
        bool second_half = r >= pp / 2;
        struct dual dual = {.program = ret, .rank = r};
        dual.module[second_half] = (struct dual_module){.direction = 0, .stage = r};
        dual.module[!second_half] = (struct dual_module){.direction = 1, .stage = mirrored};
        dual_emit(&dual, pp / 2, h, m / 2, arena);
    }
    return 0;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *t)
{
    (void)vp;
    double f = t->forward_s, b = t->backward_s, w = t->wgrad_s, u = schedule_unit_s(t),
           slot = t->slot_s > 0 ? t->slot_s : u;
    int k = pp / 2 - 1;
    return micro_batches * u - (micro_batches - pp - 1) * (u - slot) + k * (slot - w + schedule_larger_s(0, b - w)) +
           schedule_larger_s(k * (f - b), -f) + ((pp - 1) * (double)micro_batches / pp + 2 * k + 1) * t->comm_s;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)micro_batches, (void)group, (void)rank;
    return pp + 1;
}

const struct schedule schedule_dualpipe = {
    .name = "dualpipe",
    .title = "DualPipe",
    .cite = "DeepSeek-AI 2024, arXiv:2412.19437",
    .placement = PLACEMENT_BIDIR,
    .vp_min = 1,
    .vp_max = 2,
    .vp_default = 1, /* 2: the two modules counted as chunks */
    .splits_w = true,
    .overlaps = true,
    .weight_copies = 2,
    .validate = validate,
    .emit = emit,
    .makespan_s = makespan_s,
    .in_flight = in_flight,
};
