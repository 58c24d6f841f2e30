#include "sim/schedules/v_pattern.h"

#include <assert.h>
#include <string.h>

#include "cost/base/arena.h"
#include "sim/schedules/schedules.h"

/* Types of a rank's ops beyond the legs: W, in one list or split by chunk. */
enum { ANY_W = V_LEGS, W1 = V_LEGS, W0, TYPES };
enum { EMPTY = -1, PERIOD = 6 };

struct rank_plan {
    int *slot[TYPES]; /* [type][n] increasing */
    int n[TYPES];
    int8_t *cell; /* [length] type in each slot, or EMPTY */
};

struct pattern {
    int pp, micro_batches, length; /* slots */
    struct rank_plan *rank;
};

static void clear_cells(struct pattern *p, struct rank_plan *rank)
{
    memset(rank->cell, EMPTY, (size_t)p->length);
}

static void fill_cells(struct pattern *p, struct rank_plan *rank)
{
    clear_cells(p, rank);
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < rank->n[type]; i++)
            rank->cell[rank->slot[type][i]] = (int8_t)type;
}

static int last_slot(const struct rank_plan *rank)
{
    int last = 0;
    for (int type = 0; type < TYPES; type++)
        if (rank->n[type] > 0)
            last = schedule_max(last, rank->slot[type][rank->n[type] - 1]);
    return last;
}

static void init(struct pattern *p, const struct schedule_request *request, const int *offsets, struct arena *arena)
{
    int most = 0, m = request->micro_batches;
    for (int i = 0; i < request->pp * V_LEGS; i++)
        most = schedule_max(most, offsets[i]);
    *p = (struct pattern){.pp = request->pp, .micro_batches = m, .length = most + PERIOD * m + 2 * m + 2};
    p->rank = arena_array(arena, (size_t)p->pp, sizeof *p->rank);
    for (int r = 0; r < p->pp; r++) {
        struct rank_plan *rank = &p->rank[r];
        rank->cell = arena_array(arena, (size_t)p->length, sizeof *rank->cell);
        for (int type = 0; type < TYPES; type++)
            rank->slot[type] = arena_array(arena, (type == ANY_W ? 2 : 1) * (size_t)m, sizeof(int));
        for (int leg = 0; leg < V_LEGS; leg++)
            for (rank->n[leg] = 0; rank->n[leg] < m; rank->n[leg]++)
                rank->slot[leg][rank->n[leg]] = offsets[r * V_LEGS + leg] + PERIOD * rank->n[leg];
    }
}

static void drop_w(struct rank_plan *rank)
{
    rank->n[W1] = rank->n[W0] = 0;
}

/* W's into empty slots, as early as their B's allow; chunk 1's first when split. */
static void put_w(struct pattern *p, struct rank_plan *rank, bool split)
{
    int due[2] = {0, 0}, last, slot;
    drop_w(rank);
    fill_cells(p, rank);
    last = last_slot(rank);
    for (slot = 0; slot <= last || due[0] || due[1]; slot++) {
        int type = rank->cell[slot];
        if (type == V_B1 || type == V_B0) {
            due[split && type == V_B0]++;
        } else if (type == EMPTY && (due[0] || due[1])) {
            int w = due[0] ? 0 : 1;
            due[w]--;
            rank->slot[W1 + w][rank->n[W1 + w]++] = slot;
            rank->cell[slot] = (int8_t)(W1 + w);
        }
    }
}

/* ---- memory of a rank, slot by slot ---- */

/* Activations held and B's whose W has not run. Without W's in the plan every empty slot runs one that is due. */
struct memory {
    int held, due;
};

static struct memory after(struct memory memory, int type, bool with_w)
{
    if (type == V_F0 || type == V_F1)
        memory.held++;
    else if (type == V_B1 || type == V_B0)
        memory.due++;
    else if ((with_w ? type == ANY_W : type == EMPTY) && memory.due > 0) {
        memory.held--;
        memory.due--;
    }
    return memory;
}

static int peak_of(const struct pattern *p, bool with_w)
{
    int peak = 0;
    for (int r = 0; r < p->pp; r++) {
        struct memory memory = {0, 0};
        for (int slot = 0, last = last_slot(&p->rank[r]); slot <= last; slot++) {
            memory = after(memory, p->rank[r].cell[slot], with_w);
            peak = schedule_max(peak, memory.held);
        }
    }
    return peak;
}

/* ---- moving ops forward in time ---- */

struct reorder {
    struct pattern *p;
    bool with_w;
    int limit;              /* peak memory of any rank before */
    int8_t **taken;         /* [rank][slot] cells of the ops already looked at, in their final slots */
    struct memory **memory; /* [rank][slot] after the slot, of taken */
    int (*done)[TYPES];     /* [rank][type] ops looked at */
    int **b_slots;          /* [rank] final slots of the B's looked at, sorted; the k-th W needs the k-th */
    int *n_b;
    int phase; /* 0 warm-up, 1 steady, 2 cool-down */
};

static void init_reorder(struct reorder *o, struct arena *arena)
{
    size_t ranks = (size_t)o->p->pp, length = (size_t)o->p->length;
    o->taken = arena_array(arena, ranks, sizeof *o->taken);
    o->memory = arena_array(arena, ranks, sizeof *o->memory);
    o->b_slots = arena_array(arena, ranks, sizeof *o->b_slots);
    o->n_b = arena_array(arena, ranks, sizeof *o->n_b);
    o->done = arena_array(arena, ranks, sizeof *o->done);
    for (size_t r = 0; r < ranks; r++) {
        o->taken[r] = arena_array(arena, length, sizeof **o->taken);
        memset(o->taken[r], EMPTY, length);
        o->memory[r] = arena_array(arena, length, sizeof **o->memory);
        o->b_slots[r] = arena_array(arena, 2 * (size_t)o->p->micro_batches, sizeof **o->b_slots);
    }
}

/* The first slot in which the op's inputs allow it. */
static int earliest(const struct reorder *o, int r, int type, int i)
{
    const struct rank_plan *rank = &o->p->rank[r];
    int slot = -1;
    if ((type == V_F0 || type == V_B1) && r > 0)
        slot = schedule_max(slot, rank[-1].slot[type][i]);
    if ((type == V_F1 || type == V_B0) && r + 1 < o->p->pp)
        slot = schedule_max(slot, rank[1].slot[type][i]);
    if (type > V_F0 && type < V_LEGS)
        slot = schedule_max(slot, rank->slot[type - 1][i]);
    if (type == ANY_W)
        slot = schedule_max(slot, o->b_slots[r][i]);
    if (i > 0)
        slot = schedule_max(slot, rank->slot[type][i - 1]);
    return slot + 1;
}

/* Would moving the op from slot `from` to `to` keep the rank's memory within the limit? */
static bool fits(const struct reorder *o, int r, int type, int from, int to)
{
    const int8_t *cell = o->p->rank[r].cell, *taken = o->taken[r];
    struct memory moved = to > 0 ? o->memory[r][to - 1] : (struct memory){0, 0}, stayed = {0, 0};
    for (int slot = to; slot < o->p->length; slot++) {
        int here = slot == to ? type : slot == from ? EMPTY : slot < from ? taken[slot] : cell[slot];
        moved = after(moved, here, o->with_w);
        if (moved.held > o->limit)
            return false;
        if (slot == from)
            stayed = after(from > 0 ? o->memory[r][from - 1] : stayed, type, o->with_w);
        else if (slot > from)
            stayed = after(stayed, here, o->with_w);
        if (slot >= from && moved.held == stayed.held && moved.due == stayed.due)
            return true; /* the same from here on */
    }
    return true;
}

static int new_slot(const struct reorder *o, int r, int type, int i, int slot)
{
    for (int to = earliest(o, r, type, i); to < slot; to++)
        if (o->taken[r][to] == EMPTY && fits(o, r, type, slot, to))
            return to;
    return slot;
}

static void settle(struct reorder *o, int r, int type, int i, int from, int to)
{
    struct rank_plan *rank = &o->p->rank[r];
    rank->slot[type][i] = to;
    o->taken[r][to] = (int8_t)type;
    if (type == V_B1 || type == V_B0) {
        int at = o->n_b[r]++;
        for (; at > 0 && o->b_slots[r][at - 1] > to; at--)
            o->b_slots[r][at] = o->b_slots[r][at - 1];
        o->b_slots[r][at] = to;
    }
    for (int slot = to; slot <= from; slot++)
        o->memory[r][slot] =
            after(slot > 0 ? o->memory[r][slot - 1] : (struct memory){0, 0}, o->taken[r][slot], o->with_w);
}

static void visit(struct reorder *o, int r, int slot)
{
    int type = o->p->rank[r].cell[slot], to = slot;
    if (type == EMPTY) {
        o->memory[r][slot] = after(slot > 0 ? o->memory[r][slot - 1] : (struct memory){0, 0}, EMPTY, o->with_w);
        return;
    }
    int i = o->done[r][type]++;
    if (type == V_B0 && r == 0 && o->phase == 0)
        o->phase = 1;
    if (o->phase == 1)
        o->phase += type == V_F0 && i == o->p->micro_batches - 1;
    else if (o->phase == 2 || o->with_w)
        to = new_slot(o, r, type, i, slot);
    settle(o, r, type, i, slot, to);
}

/* With W's in the plan both ends are squeezed, without only the cool-down, whose W's then find new places. */
static void reorder(struct pattern *p, bool with_w, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    struct reorder o = {.p = p, .with_w = with_w};
    for (int r = 0; r < p->pp; r++) {
        drop_w(&p->rank[r]);
        fill_cells(p, &p->rank[r]);
        if (with_w)
            put_w(p, &p->rank[r], false);
    }
    o.limit = peak_of(p, with_w);
    init_reorder(&o, arena);
    for (int slot = 0; slot < p->length; slot++)
        for (int r = 0; r < p->pp; r++)
            visit(&o, r, slot);
    for (int r = 0; r < p->pp; r++) {
        if (!with_w)
            put_w(p, &p->rank[r], false);
        fill_cells(p, &p->rank[r]);
    }
    arena_rewind(arena, mark);
}

/* ---- slots to times ---- */

/* Runs every rank's ops in the order of their slots, each one slot long, as early as inputs allow. */
static void squeeze(struct pattern *p, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    int *now = arena_array(arena, (size_t)p->pp, sizeof *now);
    int(*done)[TYPES] = arena_array(arena, (size_t)p->pp, sizeof *done);
    for (int slot = 0; slot < p->length; slot++)
        for (int r = 0; r < p->pp; r++) {
            struct rank_plan *rank = &p->rank[r];
            int type = rank->cell[slot];
            if (type == EMPTY)
                continue;
            int i = done[r][type]++, start = now[r];
            if ((type == V_F0 || type == V_B1) && r > 0)
                start = schedule_max(start, rank[-1].slot[type][i] + 1);
            if ((type == V_F1 || type == V_B0) && r + 1 < p->pp)
                start = schedule_max(start, rank[1].slot[type][i] + 1);
            rank->slot[type][i] = start;
            now[r] = start + 1;
        }
    for (int r = 0; r < p->pp; r++)
        fill_cells(p, &p->rank[r]);
    arena_rewind(arena, mark);
}

static void push_rank(const struct pattern *p, int r, struct program *program)
{
    static const enum op_kind kinds[TYPES] = {OP_F, OP_F, OP_B, OP_B, OP_W, OP_W};
    static const int chunks[TYPES] = {0, 1, 1, 0, 1, 0};
    int done[TYPES] = {0};
    for (int slot = 0; slot < p->length; slot++) {
        int type = p->rank[r].cell[slot];
        if (type != EMPTY)
            program_push(program, r, op_plain(kinds[type], 0, chunks[type] ? 2 * p->pp - 1 - r : r, done[type]++));
    }
}

int v_pattern_emit(const struct schedule_request *request, const int *offsets, struct arena *arena, struct program *ret,
                   struct err *err)
{
    struct arena scratch = {0};
    struct pattern p;
    init(&p, request, offsets, &scratch);
    reorder(&p, true, &scratch);
    squeeze(&p, &scratch);
    reorder(&p, false, &scratch);
    squeeze(&p, &scratch);
    int result = program_init(ret, arena, PLACEMENT_V, p.pp, 2, 0, p.micro_batches, 6 * (int64_t)p.micro_batches, err);
    for (int r = 0; r < p.pp && result == 0; r++) {
        put_w(&p, &p.rank[r], true);
        push_rank(&p, r, ret);
    }
    arena_release(&scratch);
    return result;
}
