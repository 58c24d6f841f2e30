/* 1F1B-V: 1F1B's ops (B and W joined) in a V, with two thirds of its activations.
 *
 * Claim: peak memory ceil((2P + 1) / 3) stages, without splitting backwards. No closed form of the makespan.
 *   every micro-batch repeats one pattern of six slots (F0, F1, and two slots for each backward); the pattern walks
 *   down and up the ranks slot by slot, with a pause of three slots after every third backward; the warm-up is then
 *   squeezed without raising the peak. The order does not depend on the costs.
 * Source: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, appendix, and the authors'
 * v1f1b.py.
 *
 * drawing: pp=2 vp=2 m=3 F=1 B=1 W=1
 *   rank 0 | F0a F1a F2a F0b BW0b -- F1b  BW1b --   .. BW0a --  F2b  BW2b --   .. BW1a -- ..   .. BW2a --
 *   rank 1 | ..  F0a F0b F1a F1b  .. BW0b --   BW0a -- F2a  F2b BW1b --   BW1a -- BW2b -- BW2a -- ..   ..
 */
#include "cost/base/arena.h"
#include "sim/schedules/schedules.h"

#include <string.h>

enum type { F0, F1, B1, B0, W1, W0, TYPES };
enum { EMPTY = -1, PERIOD = 6 };

struct grid {
    int pp, micro_batches, length;
    int8_t **cell;    /* [rank][slot] */
    int **held;       /* [rank][slot] activations after the slot */
    int *slot[TYPES]; /* [rank * micro_batches + i] final slots of the ops looked at */
    int peak;
};

static int *slot_of(const struct grid *g, enum type type, int rank, int i)
{
    return &g->slot[type][rank * g->micro_batches + i];
}

/* Slots modulo 6 of the four legs; a W follows its B. */
static void make_pattern(int pp, int (*residue)[4])
{
    int now = 0, backwards = (3 - (pp + 2) % 3) % 3;
    for (int r = 0; r < pp; r++)
        residue[r][F0] = ++now % PERIOD;
    for (int r = pp - 1; r >= 0; r--)
        residue[r][F1] = ++now % PERIOD;
    now += pp % 3 == 0 ? 4 : 1;
    for (int i = 0; i < 2 * pp; i++) {
        residue[i < pp ? i : 2 * pp - 1 - i][i < pp ? B1 : B0] = now % PERIOD;
        now += 2;
        if (++backwards == 3) {
            backwards = 0;
            now += 3;
        }
    }
}

static void place(struct grid *g, int rank, enum type type, int first)
{
    for (int i = 0; i < g->micro_batches; i++)
        g->cell[rank][first + PERIOD * i] = (int8_t)type;
}

/* Micro-batch 0 walks through the V, taking the first slot of its residue at each step; the others follow. */
static void repeat_pattern(struct grid *g, int (*residue)[4])
{
    int at = PERIOD;
    for (int type = F0; type <= B0; type++)
        for (int i = 0; i < g->pp; i++) {
            int rank = type == F0 || type == B1 ? i : g->pp - 1 - i;
            at += (residue[rank][type] - at % PERIOD + PERIOD) % PERIOD;
            place(g, rank, (enum type)type, at);
            if (type >= B1)
                place(g, rank, type == B1 ? W1 : W0, at + 1);
            at++;
        }
}

static void measure_memory(struct grid *g)
{
    for (int r = 0; r < g->pp; r++)
        for (int slot = 0, held = 0; slot < g->length; slot++) {
            int type = g->cell[r][slot];
            held += (type == F0 || type == F1) - (type == W0 || type == W1);
            g->held[r][slot] = held;
            g->peak = schedule_max(g->peak, held);
        }
}

/* The first slot after the op's inputs. B and W are joined, so a B waits for the other rank's W. */
static int earliest(const struct grid *g, int rank, enum type type, int i)
{
    int slot = i > 0 ? *slot_of(g, type, rank, i - 1) : -1, other = -1, last = g->pp - 1;
    switch (type) {
    case F0:
        other = rank > 0 ? *slot_of(g, F0, rank - 1, i) : -1;
        break;
    case F1:
        other = rank < last ? *slot_of(g, F1, rank + 1, i) : *slot_of(g, F0, rank, i);
        break;
    case B1:
        other = rank > 0 ? *slot_of(g, W1, rank - 1, i) : *slot_of(g, F1, rank, i);
        break;
    case B0:
        other = rank < last ? *slot_of(g, W0, rank + 1, i) : *slot_of(g, W1, rank, i);
        break;
    case W1:
        other = *slot_of(g, B1, rank, i);
        break;
    case W0:
        other = *slot_of(g, B0, rank, i);
        break;
    default:
        break;
    }
    return schedule_max(slot, other) + 1;
}

/* Where the op of `slot` may go: a free slot (two for a B and its W), for an F without raising the peak. */
static int new_slot(const struct grid *g, int rank, enum type type, int i, int slot)
{
    const int8_t *cell = g->cell[rank];
    int to = earliest(g, rank, type, i);
    while (to < slot && (cell[to] != EMPTY || ((type == B1 || type == B0) && cell[to + 1] != EMPTY)))
        to++;
    if (to >= slot || (type != F0 && type != F1))
        return schedule_min(to, slot);
    int lowest = to;
    for (to = slot; to > lowest && g->held[rank][to - 1] < g->peak; to--)
        ;
    while (to < slot && cell[to] != EMPTY)
        to++;
    return to;
}

static void squeeze(struct grid *g, int (*done)[TYPES])
{
    for (int slot = 0; slot < g->length; slot++)
        for (int r = 0; r < g->pp; r++) {
            int type = g->cell[r][slot];
            if (type == EMPTY)
                continue;
            int i = done[r][type]++, to = new_slot(g, r, (enum type)type, i, slot);
            g->cell[r][slot] = EMPTY;
            g->cell[r][to] = (int8_t)type;
            *slot_of(g, (enum type)type, r, i) = to;
            for (int s = to; s < slot && type != B1 && type != B0; s++)
                g->held[r][s] += type == F0 || type == F1 ? 1 : -1;
        }
}

static void push_ranks(const struct grid *g, struct program *program)
{
    for (int r = 0; r < g->pp; r++) {
        int done[TYPES] = {0};
        for (int slot = 0; slot < g->length; slot++) {
            int type = g->cell[r][slot];
            if (type == EMPTY || type >= W1)
                continue;
            int stage = type == F0 || type == B0 ? r : 2 * g->pp - 1 - r;
            program_push(program, r, op_plain(type < B1 ? OP_F : OP_BW, 0, stage, done[type]++));
        }
    }
}

static int emit(const struct schedule_request *request, struct arena *arena, struct program *ret, struct err *err)
{
    struct arena scratch = {0};
    size_t pp = (size_t)request->pp, m = (size_t)request->micro_batches;
    struct grid g = {.pp = request->pp, .micro_batches = request->micro_batches};
    g.length = PERIOD * (4 * g.pp + g.micro_batches + 1);
    g.cell = arena_array(&scratch, pp, sizeof *g.cell);
    g.held = arena_array(&scratch, pp, sizeof *g.held);
    for (size_t r = 0; r < pp; r++) {
        g.cell[r] = arena_array(&scratch, (size_t)g.length, 1);
        memset(g.cell[r], EMPTY, (size_t)g.length);
        g.held[r] = arena_array(&scratch, (size_t)g.length, sizeof **g.held);
    }
    for (int type = F0; type < TYPES; type++)
        g.slot[type] = arena_array(&scratch, pp * m, sizeof **g.slot);
    int(*residue)[4] = arena_array(&scratch, pp, sizeof *residue);
    make_pattern(g.pp, residue);
    repeat_pattern(&g, residue);
    measure_memory(&g);
    squeeze(&g, arena_array(&scratch, pp, sizeof(int[TYPES])));
    int result = program_init(ret, arena, PLACEMENT_V, g.pp, 2, 0, g.micro_batches, 4 * (int64_t)m, err);
    if (result == 0)
        push_ranks(&g, ret);
    arena_release(&scratch);
    return result;
}

static int in_flight(int pp, int vp, int micro_batches, int group, int rank)
{
    (void)vp, (void)group;
    int filled = schedule_min(2 * micro_batches, micro_batches + 1 + 3 * rank / 2); /* with few micro-batches */
    return schedule_min(filled, 2 * ((2 * pp + 3) / 3));
}

const struct schedule schedule_one_f_one_b_v = {
    .name = "1f1b-v",
    .title = "1F1B-V",
    .cite = "Qi et al. 2024, arXiv:2405.15362",
    .placement = PLACEMENT_V,
    .vp_min = 2,
    .vp_max = 2,
    .vp_default = 2,
    .weight_copies = 1,
    .emit = emit,
    .in_flight = in_flight,
};
