#include "sim/program.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"

const char *const op_kind_names[] = {"F",      "B",      "W",       "BW",      "F&BW",        "SEND_F", "RECV_F",
                                     "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "IDLE",   NULL};
const char *const placement_names[] = {"loop", "v", "bidir", "free", NULL};

static_assert(sizeof(struct op) == 16, "an op is 16 bytes");
static_assert(sizeof op_kind_names / sizeof *op_kind_names == OP_KINDS + 1, "one name per kind");

static int check_sizes(int pp, int vp, int64_t stages, int micro_batches, int64_t ops_per_rank, struct err *err)
{
    if (pp < 1 || pp > PROGRAM_RANKS_MAX)
        return err_add(err, "a program of %d ranks is not possible; allowed: 1 to %d", pp, PROGRAM_RANKS_MAX);
    if (vp < 1 || stages < 1 || stages > PROGRAM_STAGES_MAX)
        return err_add(err, "a program of %lld stages is not possible; allowed: 1 to %d", (long long)stages,
                       PROGRAM_STAGES_MAX);
    if (micro_batches < 1 || micro_batches > PROGRAM_MICRO_BATCHES_MAX)
        return err_add(err, "a program of %d micro-batches is not possible; allowed: 1 to %d", micro_batches,
                       PROGRAM_MICRO_BATCHES_MAX);
    if (ops_per_rank < 0 || ops_per_rank > PROGRAM_OPS_MAX / pp || stages * micro_batches > PROGRAM_OPS_MAX)
        return err_add(err, "a program of %lld ops on each of %d ranks is too large; allowed: %d ops in all",
                       (long long)ops_per_rank, pp, PROGRAM_OPS_MAX);
    return 0;
}

static void place_stages(struct program *program)
{
    int pp = program->pp;
    for (int s = 0; s < program->stages; s++) {
        int rank = s % pp, chunk = s / pp;
        if (program->placement == PLACEMENT_V && chunk % 2 == 1)
            rank = pp - 1 - rank;
        program->stage_rank[s] = (uint16_t)rank;
        program->stage_chunk[s] = (uint16_t)chunk;
        if (program->placement == PLACEMENT_BIDIR) {
            program->stage_rank[program->stages + s] = (uint16_t)(pp - 1 - s);
            program->stage_chunk[program->stages + s] = 1;
        }
    }
}

int program_init(struct program *program, struct arena *arena, enum placement placement, int pp, int vp, int stages,
                 int micro_batches, int64_t ops_per_rank, struct err *err)
{
    int64_t n_stages = placement == PLACEMENT_FREE ? stages : placement == PLACEMENT_BIDIR ? pp : (int64_t)pp * vp;
    if (check_sizes(pp, vp, n_stages, micro_batches, ops_per_rank, err) < 0)
        return -1;
    *program = (struct program){.placement = placement,
                                .pp = pp,
                                .stages = (int)n_stages,
                                .chunks = vp,
                                .micro_batches = micro_batches,
                                .directions = 1};
    if (placement == PLACEMENT_BIDIR) {
        program->directions = 2;
        program->chunks = 2;
    }
    size_t entries = (size_t)program->stages * (size_t)program->directions;
    program->stage_rank = arena_array(arena, entries, sizeof *program->stage_rank);
    program->stage_chunk = arena_array(arena, entries, sizeof *program->stage_chunk);
    program->n_ops = arena_array(arena, (size_t)pp, sizeof *program->n_ops);
    program->max_ops = arena_array(arena, (size_t)pp, sizeof *program->max_ops);
    program->ops = arena_array(arena, (size_t)pp, sizeof *program->ops);
    for (int r = 0; r < pp; r++) {
        program->max_ops[r] = (int)ops_per_rank;
        program->ops[r] = arena_array(arena, (size_t)ops_per_rank, sizeof **program->ops);
    }
    if (placement != PLACEMENT_FREE)
        place_stages(program);
    return 0;
}

void program_push(struct program *program, int rank, struct op op)
{
    assert(rank >= 0 && rank < program->pp && program->n_ops[rank] < program->max_ops[rank]);
    program->ops[rank][program->n_ops[rank]++] = op;
}

struct op op_overlap(struct op forward, struct op backward)
{
    assert(forward.kind == OP_F && backward.kind == OP_BW);
    forward.kind = OP_F_BW;
    forward.direction2 = backward.direction;
    forward.stage2 = backward.stage;
    forward.micro_batch2 = backward.micro_batch;
    return forward;
}

int64_t program_count_ops(const struct program *program)
{
    int64_t n = 0;
    for (int r = 0; r < program->pp; r++)
        for (int i = 0; i < program->n_ops[r]; i++)
            n += op_is_compute(&program->ops[r][i]);
    return n;
}

void program_strip(struct program *program)
{
    for (int r = 0; r < program->pp; r++) {
        int n = 0;
        for (int i = 0; i < program->n_ops[r]; i++)
            if (op_is_compute(&program->ops[r][i]))
                program->ops[r][n++] = program->ops[r][i];
        program->n_ops[r] = n;
    }
}

bool program_equal(const struct program *a, const struct program *b)
{
    if (a->pp != b->pp || a->stages != b->stages || a->directions != b->directions ||
        a->micro_batches != b->micro_batches)
        return false;
    size_t entries = (size_t)a->stages * (size_t)a->directions;
    if (memcmp(a->stage_rank, b->stage_rank, entries * sizeof *a->stage_rank) != 0)
        return false;
    for (int r = 0; r < a->pp; r++)
        if (a->n_ops[r] != b->n_ops[r] || memcmp(a->ops[r], b->ops[r], (size_t)a->n_ops[r] * sizeof **a->ops) != 0)
            return false;
    return true;
}

static int format_half(const struct program *program, const char *kind, int direction, unsigned stage,
                       unsigned micro_batch, char *buffer, size_t size)
{
    if (program->directions > 1)
        return snprintf(buffer, size, "%s mb %u stage %u dir %d", kind, micro_batch, stage, direction);
    return snprintf(buffer, size, "%s mb %u stage %u", kind, micro_batch, stage);
}

const char *op_format(const struct program *program, const struct op *op, char *buffer, size_t size)
{
    const char *kind = op->kind < OP_KINDS ? op_kind_names[op->kind] : "?";
    if (op->kind == OP_F_BW) {
        int n = format_half(program, "F", op->direction, op->stage, op->micro_batch, buffer, size);
        if (n >= 0 && (size_t)n + 3 < size) {
            memcpy(buffer + n, " & ", 4);
            format_half(program, "BW", op->direction2, op->stage2, op->micro_batch2, buffer + n + 3,
                        size - (size_t)n - 3);
        }
    } else if (op->kind == OP_IDLE) {
        snprintf(buffer, size, "%s", kind);
    } else if (op->kind >= OP_UNSHARD) {
        snprintf(buffer, size, "%s stage %d", kind, op->stage);
    } else {
        format_half(program, kind, op->direction, op->stage, op->micro_batch, buffer, size);
    }
    return buffer;
}

/* ---- program_check ---- */

/* What has been seen of one (direction, stage, micro-batch), as bits. */
enum { SEEN_F = 1, SEEN_B = 2, SEEN_W = 4, SEEN_SEND_F = 8, SEEN_RECV_F = 16, SEEN_SEND_B = 32, SEEN_RECV_B = 64 };

struct checker {
    const struct program *program;
    int micro_batches; /* of a direction */
    uint8_t *seen;     /* [(direction * stages + stage) * micro_batches + micro_batch] */
    bool comms;        /* the program spells out sends and receives */
    int rank, index;
    struct err *err;
};

static size_t slot_of(const struct checker *c, int direction, int stage, uint32_t micro_batch)
{
    return ((size_t)direction * (size_t)c->program->stages + (size_t)stage) * (size_t)c->micro_batches + micro_batch;
}

static int refuse(const struct checker *c, const char *reason)
{
    char text[96];
    const struct op *op = &c->program->ops[c->rank][c->index];
    return err_add(c->err, "rank %d, index %d: %s: %s", c->rank, c->index, op_format(c->program, op, text, sizeof text),
                   reason);
}

static int refuse_range(const struct checker *c, const char *what, int64_t value, int64_t n)
{
    char reason[96];
    snprintf(reason, sizeof reason, "unknown %s %lld; allowed: 0 to %lld", what, (long long)value, (long long)n - 1);
    return refuse(c, reason);
}

/* Direction, stage and micro-batch exist, and the stage lives on this rank. */
static int check_place(const struct checker *c, int direction, int stage, uint32_t micro_batch)
{
    const struct program *p = c->program;
    if (direction >= p->directions)
        return refuse_range(c, "direction", direction, p->directions);
    if (stage >= p->stages)
        return refuse_range(c, "stage", stage, p->stages);
    if (micro_batch >= (uint32_t)c->micro_batches)
        return refuse_range(c, "micro-batch", micro_batch, c->micro_batches);
    int home = p->stage_rank[direction * p->stages + stage];
    if (home == c->rank)
        return 0;
    char reason[64];
    snprintf(reason, sizeof reason, "stage %d lives on rank %d", stage, home);
    return refuse(c, reason);
}

static int check_forward(const struct checker *c, int direction, int stage, uint32_t micro_batch)
{
    if (check_place(c, direction, stage, micro_batch) < 0)
        return -1;
    uint8_t *seen = &c->seen[slot_of(c, direction, stage, micro_batch)];
    if (*seen & SEEN_F)
        return refuse(c, "second F of the same stage and micro-batch");
    *seen |= SEEN_F;
    return 0;
}

/* B, or BW when with_w. */
static int check_backward(const struct checker *c, int direction, int stage, uint32_t micro_batch, bool with_w)
{
    if (check_place(c, direction, stage, micro_batch) < 0)
        return -1;
    uint8_t *seen = &c->seen[slot_of(c, direction, stage, micro_batch)];
    if (!(*seen & SEEN_F))
        return refuse(c, "backward before its F");
    if (*seen & SEEN_B)
        return refuse(c, "second backward of the same stage and micro-batch");
    *seen |= with_w ? SEEN_B | SEEN_W : SEEN_B;
    return 0;
}

static int check_wgrad(const struct checker *c, const struct op *op)
{
    if (check_place(c, op->direction, op->stage, op->micro_batch) < 0)
        return -1;
    uint8_t *seen = &c->seen[slot_of(c, op->direction, op->stage, op->micro_batch)];
    if (*seen & SEEN_W)
        return refuse(c, "second W of the same stage and micro-batch");
    if (!(*seen & SEEN_B))
        return refuse(c, "W before its B");
    *seen |= SEEN_W;
    return 0;
}

static int check_message(const struct checker *c, const struct op *op)
{
    static const struct {
        uint8_t bit;
        int peer;
        uint8_t after, before;
        const char *wrong;
    } rules[] = {
        [OP_SEND_F] = {SEEN_SEND_F, +1, SEEN_F, 0, "sent before its F"},
        [OP_RECV_F] = {SEEN_RECV_F, -1, 0, SEEN_F, "received after its F"},
        [OP_SEND_B] = {SEEN_SEND_B, -1, SEEN_B, 0, "sent before its B"},
        [OP_RECV_B] = {SEEN_RECV_B, +1, 0, SEEN_B, "received after its B"},
    };
    const struct program *p = c->program;
    if (check_place(c, op->direction, op->stage, op->micro_batch) < 0)
        return -1;
    int peer = op->stage + rules[op->kind].peer;
    if (peer < 0 || peer >= p->stages)
        return refuse(c, "the pipeline has no stage at the other end");
    if (p->stage_rank[op->direction * p->stages + peer] == c->rank)
        return refuse(c, "self-send: both stages live on this rank");
    uint8_t *seen = &c->seen[slot_of(c, op->direction, op->stage, op->micro_batch)];
    if (*seen & rules[op->kind].bit)
        return refuse(c, "second message of the same kind");
    if ((*seen & rules[op->kind].after) != rules[op->kind].after || (*seen & rules[op->kind].before))
        return refuse(c, rules[op->kind].wrong);
    *seen |= rules[op->kind].bit;
    return 0;
}

static int check_op(const struct checker *c, const struct op *op)
{
    switch (op->kind) {
    case OP_F:
        return check_forward(c, op->direction, op->stage, op->micro_batch);
    case OP_B:
        return check_backward(c, op->direction, op->stage, op->micro_batch, false);
    case OP_BW:
        return check_backward(c, op->direction, op->stage, op->micro_batch, true);
    case OP_W:
        return check_wgrad(c, op);
    case OP_F_BW:
        /* Both halves run at once: the backward must not need this very forward. */
        if (check_backward(c, op->direction2, op->stage2, op->micro_batch2, true) < 0)
            return -1;
        return check_forward(c, op->direction, op->stage, op->micro_batch);
    case OP_SEND_F:
    case OP_RECV_F:
    case OP_SEND_B:
    case OP_RECV_B:
        return check_message(c, op);
    case OP_UNSHARD:
    case OP_RESHARD:
    case OP_REDUCE_GRAD:
        return check_place(c, op->direction, op->stage, 0);
    case OP_IDLE:
        return 0;
    default:
        return refuse(c, "unknown op");
    }
}

static int missing(const struct checker *c, const char *kind, int direction, int stage, int micro_batch)
{
    char text[96];
    format_half(c->program, kind, direction, (unsigned)stage, (unsigned)micro_batch, text, sizeof text);
    int rank = c->program->stage_rank[direction * c->program->stages + stage];
    return err_add(c->err, "rank %d, index %d (its end): missing op: %s", rank, c->program->n_ops[rank], text);
}

static uint8_t needed_bits(const struct checker *c, int direction, int stage)
{
    const struct program *p = c->program;
    const uint16_t *rank = p->stage_rank + direction * p->stages;
    uint8_t bits = SEEN_F | SEEN_B | SEEN_W;
    if (c->comms && stage + 1 < p->stages && rank[stage + 1] != rank[stage])
        bits |= SEEN_SEND_F | SEEN_RECV_B;
    if (c->comms && stage > 0 && rank[stage - 1] != rank[stage])
        bits |= SEEN_RECV_F | SEEN_SEND_B;
    return bits;
}

static int check_complete(const struct checker *c)
{
    static const char *const names[] = {"F", "B", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
    for (int d = 0; d < c->program->directions; d++)
        for (int s = 0; s < c->program->stages; s++) {
            uint8_t needed = needed_bits(c, d, s);
            for (int m = 0; m < c->micro_batches; m++) {
                uint8_t lacks = needed & (uint8_t)~c->seen[slot_of(c, d, s, (uint32_t)m)];
                for (int bit = 0; lacks && bit < 7; bit++)
                    if (lacks >> bit & 1)
                        return missing(c, names[bit], d, s, m);
            }
        }
    return 0;
}

/* ---- deadlock ---- */

/* A dry run without time: advances every rank while its inputs are there. seen's bits of F, B and sends mean "has run".
 * Where the program spells out its messages, an input from another rank is there once it has been sent. */
struct dry_run {
    struct checker *c;
    int *at; /* next index of each rank */
};

/* Is the output of stage `from` (F's or B's) still to come for its neighbour `to`? */
static bool lacks(const struct dry_run *d, int direction, int from, int to, uint32_t micro_batch, bool forward,
                  int *ret_rank, struct op *ret_need)
{
    const uint16_t *rank = d->c->program->stage_rank + direction * d->c->program->stages;
    bool sent = d->c->comms && rank[from] != rank[to];
    enum op_kind kind = forward ? (sent ? OP_SEND_F : OP_F) : sent ? OP_SEND_B : OP_B;
    uint8_t bit = forward ? (sent ? SEEN_SEND_F : SEEN_F) : sent ? SEEN_SEND_B : SEEN_B;
    if (d->c->seen[slot_of(d->c, direction, from, micro_batch)] & bit)
        return false;
    *ret_need = op_plain(kind, direction, from, (int)micro_batch);
    *ret_rank = rank[from];
    return true;
}

/* The input that the op lacks: *ret_rank is the rank that produces it, *ret_need says what. False when it can run. */
static bool op_waits(const struct dry_run *d, const struct op *op, int *ret_rank, struct op *ret_need)
{
    bool overlap = op->kind == OP_F_BW;
    if ((op->kind == OP_F || overlap) && op->stage > 0 &&
        lacks(d, op->direction, op->stage - 1, op->stage, op->micro_batch, true, ret_rank, ret_need))
        return true;
    int direction = overlap ? op->direction2 : op->direction, stage = overlap ? op->stage2 : op->stage;
    uint32_t micro_batch = overlap ? op->micro_batch2 : op->micro_batch;
    return (op->kind == OP_B || op->kind == OP_BW || overlap) && stage + 1 < d->c->program->stages &&
           lacks(d, direction, stage + 1, stage, micro_batch, false, ret_rank, ret_need);
}

static void mark_ran(const struct dry_run *d, const struct op *op)
{
    static const uint8_t bits[OP_KINDS] = {[OP_F] = SEEN_F,    [OP_B] = SEEN_B,           [OP_BW] = SEEN_B,
                                           [OP_F_BW] = SEEN_F, [OP_SEND_F] = SEEN_SEND_F, [OP_SEND_B] = SEEN_SEND_B};
    if (bits[op->kind])
        d->c->seen[slot_of(d->c, op->direction, op->stage, op->micro_batch)] |= bits[op->kind];
    if (op->kind == OP_F_BW)
        d->c->seen[slot_of(d->c, op->direction2, op->stage2, op->micro_batch2)] |= SEEN_B;
}

/* Follows "waits for" from a stuck rank until a rank comes back, and names the ring. */
static int name_cycle(const struct dry_run *d, int rank, bool *visited, struct err *err)
{
    const struct program *p = d->c->program;
    struct op need;
    while (!visited[rank]) {
        visited[rank] = true;
        op_waits(d, &p->ops[rank][d->at[rank]], &rank, &need);
    }
    char text[1024] = "";
    size_t length = 0;
    for (int first = rank, hops = 0; hops == 0 || (rank != first && hops < 8); hops++) {
        char op[96], wanted[96];
        int from = rank;
        op_format(p, &p->ops[rank][d->at[rank]], op, sizeof op);
        op_waits(d, &p->ops[rank][d->at[rank]], &rank, &need);
        op_format(p, &need, wanted, sizeof wanted);
        int n = snprintf(text + length, sizeof text - length, "%srank %d at index %d (%s) waits for %s of rank %d",
                         hops ? ", " : "", from, d->at[from], op, wanted, rank);
        length += n > 0 && (size_t)n < sizeof text - length ? (size_t)n : 0;
    }
    return err_add(err, "deadlock: %s", text);
}

static int check_deadlock(struct checker *c, struct arena *arena)
{
    const struct program *p = c->program;
    struct dry_run d = {.c = c, .at = arena_array(arena, (size_t)p->pp, sizeof *d.at)};
    int rank;
    struct op need;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->pp; r++)
            for (; d.at[r] < p->n_ops[r] && !op_waits(&d, &p->ops[r][d.at[r]], &rank, &need); d.at[r]++) {
                mark_ran(&d, &p->ops[r][d.at[r]]);
                moved = true;
            }
    }
    for (int r = 0; r < p->pp; r++)
        if (d.at[r] < p->n_ops[r])
            return name_cycle(&d, r, arena_array(arena, (size_t)p->pp, sizeof(bool)), c->err);
    return 0;
}

bool program_has_messages(const struct program *program)
{
    for (int r = 0; r < program->pp; r++)
        for (int i = 0; i < program->n_ops[r]; i++)
            if (program->ops[r][i].kind >= OP_SEND_F && program->ops[r][i].kind <= OP_RECV_B)
                return true;
    return false;
}

int program_check(const struct program *program, struct err *err)
{
    if (program->micro_batches % program->directions != 0)
        return err_add(err, "%d micro-batches do not split evenly over %d directions", program->micro_batches,
                       program->directions);
    struct arena arena = {0};
    struct checker c = {.program = program,
                        .micro_batches = program_direction_micro_batches(program),
                        .comms = program_has_messages(program),
                        .err = err};
    size_t slots = (size_t)program->stages * (size_t)program->directions * (size_t)c.micro_batches;
    c.seen = arena_array(&arena, slots, 1);
    int result = 0;
    for (c.rank = 0; c.rank < program->pp && result == 0; c.rank++)
        for (c.index = 0; c.index < program->n_ops[c.rank] && result == 0; c.index++)
            result = check_op(&c, &program->ops[c.rank][c.index]);
    if (result == 0)
        result = check_complete(&c);
    if (result == 0) {
        memset(c.seen, 0, slots);
        result = check_deadlock(&c, &arena);
    }
    arena_release(&arena);
    return result;
}
