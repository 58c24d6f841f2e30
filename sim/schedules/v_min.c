/* V-Min: a third of 1F1B's activations, the least that a V allows.
 *
 * Claim: peak memory floor((P + 4) / 3) stages (about a third) at a bubble near 1F1B's two thirds at F = B = W.
 *   every micro-batch repeats one pattern 6 slots later; rank r starts F0 at r, F1 at 2P-1-r, B1 at 2P+I+r, B0 at
 *   4P+I-1-r (I = 2 if 3 divides P, else 0); W fills free slots; the ends are squeezed without raising the peak. The
 *   order does not depend on the costs.
 *   makespan at F = B = W = 1, M >= 2P: M u + 2P - 2.5, or M u + 2P - 3.5 if 3 divides P. Every message is on the
 *   critical path: 4 to 5 hops per micro-batch.
 *   in flight = 2 floor((P + 4) / 3) chunks, on rank 0 one less if P mod 3 = 2
 * Source: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, section 3.2, and the
 * authors' zbv_greedy.py.
 *
 * drawing: pp=3 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a ..  ..  F0b B0b W0b F1b B1b W1b B0a W0a ..  ..  ..  ..  F2b B1a B2b W2b W1a ..  ..  B2a W2a
 *   rank 1 | ..  F0a F1a ..  F0b ..  F1b B0b W0b ..  B0a W0a B1b F2a W1b ..  F2b B1a W1a ..  B2b W2b ..  B2a W2a ..
 *   rank 2 | ..  ..  F0a F0b F1a F1b ..  ..  B0b B0a W0b W0a ..  B1b F2a F2b B1a W1b W1a ..  ..  B2b B2a W2b W2a ..
 */
#include "cost/base/arena.h"
#include "sim/schedules/schedules.h"
#include "sim/schedules/v_pattern.h"

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    struct arena scratch = {0};
    int pp = request->pp, interval = pp % 3 == 0 ? 2 : 0;
    int *offsets = arena_array(&scratch, (size_t)pp * V_LEGS, sizeof *offsets);
    for (int r = 0; r < pp; r++) {
        offsets[r * V_LEGS + V_F0] = r;
        offsets[r * V_LEGS + V_F1] = 2 * pp - 1 - r;
        offsets[r * V_LEGS + V_B1] = 2 * pp + interval + r;
        offsets[r * V_LEGS + V_B0] = 4 * pp + interval - 1 - r;
    }
    int result = v_pattern_emit(request, offsets, arena, ret, err);
    arena_release(&scratch);
    return result;
}

static double makespan_s(int pp, int vp, int micro_batches, const struct schedule_times *times)
{
    (void)vp;
    return micro_batches * schedule_unit_s(times) + (pp % 3 == 0 ? 2 * pp - 3.5 : 2 * pp - 2.5) * times->forward_s;
}

static bool exact(int pp, int micro_batches, const struct schedule_times *times)
{
    return schedule_is_unit(times) && pp > 1 && micro_batches >= 2 * pp;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group;
    int filled = schedule_min(2 * micro_batches, micro_batches + rank + 1); /* with few micro-batches */
    int most = 2 * ((pp + 4) / 3) - (pp % 3 == 2 && rank == 0);
    return schedule_min(filled, most);
}

const struct schedule schedule_v_min = {
    .name = "v-min",
    .title = "V-Min",
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
