#include "sim/schedules/dual.h"

#include "cost/base/arena.h"

static struct op forward_of(struct dual *dual, int phase)
{
    struct dual_module *module = &dual->module[phase];
    return op_plain(OP_F, module->direction, module->stage, module->next_f++);
}

static void put_f(struct dual *dual, int phase)
{
    program_push(dual->program, dual->rank, forward_of(dual, phase));
}

static struct op backward_of(struct dual *dual, int phase, bool split)
{
    struct dual_module *module = &dual->module[phase];
    struct op op = op_plain(split ? OP_B : OP_BW, module->direction, module->stage, module->next_b++);
    if (split) {
        dual->waiting[dual->n_waiting] = op;
        dual->waiting[dual->n_waiting++].kind = OP_W;
    }
    return op;
}

static void put_b(struct dual *dual, int phase, bool split)
{
    program_push(dual->program, dual->rank, backward_of(dual, phase, split));
}

static void put_w(struct dual *dual)
{
    program_push(dual->program, dual->rank, dual->waiting[dual->next_waiting++]);
}

static void put_overlap(struct dual *dual, int forward_phase, int backward_phase)
{
    struct op forward = forward_of(dual, forward_phase);
    program_push(dual->program, dual->rank, op_overlap(forward, backward_of(dual, backward_phase, false)));
}

/* Step 6: 2(h+1) backwards in turn, the second half of them split; with h even the middle falls between the two. */
static void put_last_backwards(struct dual *dual, int h)
{
    bool split = false;
    for (int i = 0; i < h + 1; i++) {
        bool middle = i == (h + 1) / 2;
        split = split || (middle && h % 2 == 1);
        put_b(dual, 1, split);
        split = split || middle;
        put_b(dual, 0, split);
    }
}

void dual_emit(struct dual *dual, int depth, int h, int micro_batches, struct arena *arena)
{
    int to_turn = depth - h - 1, main_steps = micro_batches - 2 * depth + h + 1;
    dual->waiting = arena_array(arena, (size_t)(2 * depth + 2), sizeof *dual->waiting);
    for (int i = 0; i < 2 * to_turn; i++)
        put_f(dual, 0);
    for (int i = 0; i < h + 1; i++) {
        put_f(dual, 0);
        put_f(dual, 1);
    }
    for (int i = 0; i < to_turn; i++) {
        put_b(dual, 1, true);
        put_w(dual);
        put_f(dual, 1);
    }
    for (int i = 0; i < main_steps; i++) {
        if (i == 0 && to_turn == 0) {
            put_f(dual, 0);
            put_b(dual, 1, false);
        } else {
            put_overlap(dual, 0, 1);
        }
        put_overlap(dual, 1, 0);
    }
    for (int i = 0; i < to_turn; i++) {
        put_b(dual, 1, false);
        put_overlap(dual, 1, 0);
    }
    put_last_backwards(dual, h);
    for (int i = 0; i < to_turn; i++) {
        put_w(dual);
        put_b(dual, 0, true);
    }
    for (int i = 0; i < h + 1; i++)
        put_w(dual);
}
